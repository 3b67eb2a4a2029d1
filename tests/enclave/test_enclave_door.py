"""Who gets in at an enclave's door: silent sockets, dripping ones and one address alone shut nobody out."""

import asyncio
import json
import select
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import seal_kit as kit
from assay.enclave.service.lifecycle import Service
from assay.enclave.service.process import make_server
from assay.peers.guard import CONNECTION_LIMITS, Connection, ConnectionGuard, ConnectionLimits

GET = b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n"
SMALL = ConnectionLimits(connections=6, address_connections=3, requests=4, address_requests=2, kept=1, body=10.0)
FAR = [f"8.8.{number}.1" for number in range(100)]


class SteppedClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Hall:
    """A door with guests that are only names."""

    def __init__(self, bounds: ConnectionLimits = SMALL) -> None:
        self.clock = SteppedClock()
        self.door = ConnectionGuard(bounds, self.clock)
        self.left: list[Connection] = []
        self.whole: set[Connection] = set()

    def come(self, address: str) -> Connection | None:
        guest = Connection(address, lambda: self.left.append(guest), lambda: guest not in self.whole)
        return guest if self.door.arrive(guest) else None

    def ask(self, address: str) -> Connection | None:
        guest = self.come(address)
        return guest if guest is not None and self.door.ask(guest) else None


def test_the_oldest_silent_one_of_the_busiest_address_goes() -> None:
    hall = Hall()
    first = [hall.come(FAR[0]) for _ in range(2)] + [hall.come(FAR[1]) for _ in range(3)]
    alone = hall.come(FAR[2])
    assert None not in first
    assert not hall.left
    assert hall.come(FAR[3]) is not None
    assert hall.left == [first[2]]  # of the address that has most
    assert alone not in hall.left
    assert first[3] is not None
    hall.door.welcome(first[3], b"a")  # its address is known now: a stranger goes
    hall.come(FAR[4])
    assert hall.left[1:] == [first[0]]


def test_an_address_has_its_share() -> None:
    hall = Hall()
    mine = [hall.come(FAR[0]) for _ in range(5)]
    assert hall.left == mine[:2]
    assert [hall.ask(FAR[1]) is not None for _ in range(3)] == [True, True, False]
    hall = Hall(replace(SMALL, address_requests=3))
    asking = [hall.ask(FAR[0]) for _ in range(3)]
    assert None not in asking
    assert hall.come(FAR[0]) is None  # none of its own is silent, and none is slow
    shared = Hall()
    for address in ("", "127.0.0.1", "10.1.2.3", "fe80::1%eth0", "fd00::1", "not an address"):
        assert shared.come(address) is not None
        assert shared.come(address) is not None
    assert [shared.come("10.1.2.3") is not None for _ in range(4)] == [True] * 4  # many may stand behind it


def test_a_network_of_ipv6_is_one_address() -> None:
    def guest(address: str) -> Connection:
        return Connection(address, lambda: None, lambda: False)

    assert guest("2001:4860:1:2::1").address == guest("2001:4860:1:2:ffff::9").address
    assert guest("2001:4860:1:2::1").address != guest("2001:4860:1:3::1").address
    assert guest("::ffff:8.8.8.8").address == guest("8.8.8.8").address
    assert [guest(address).shared for address in ("8.8.8.8", "2001:4860::1", "10.0.0.1", "::ffff:10.0.0.1", "")] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_room_is_kept_for_those_who_are_known() -> None:
    hall = Hall()
    friend = hall.come(FAR[9])
    assert friend is not None
    hall.door.welcome(friend, b"a")
    strangers = [hall.ask(address) for address in FAR[:3]]
    assert None not in strangers
    assert hall.ask(FAR[3]) is None
    assert hall.door.ask(friend)
    hall.door.answered(friend)
    assert strangers[0] is not None
    hall.door.answered(strangers[0])
    hall.door.gone(strangers[0])
    assert hall.ask(FAR[4]) is not None
    for number in range(SMALL.known + 1):
        hall.door.welcome(Connection(f"9.{number // 256}.{number % 256}.1", lambda: None, lambda: False), b"%d" % number)
    assert not hall.door.is_known(friend)  # so many are remembered
    hall.door.welcome(Connection("10.0.0.1", lambda: None, lambda: False), b"b")
    assert not hall.door.is_known(Connection("10.0.0.1", lambda: None, lambda: False))


def test_one_commitment_sent_again_from_many_addresses_makes_few_known() -> None:
    hall = Hall()
    friend, *others = (Connection(address, lambda: None, lambda: False) for address in FAR)
    hall.door.welcome(friend, b"friend's")
    for other in others:
        hall.door.welcome(other, b"one's")
    assert [hall.door.is_known(other) for other in others] == [True] * SMALL.each + [False] * (len(others) - SMALL.each)
    hall.door.welcome(others[0], b"one's")  # again, from where it came
    assert hall.door.is_known(friend)


def test_one_network_of_many_addresses_makes_room() -> None:
    hall = Hall()
    held = [hall.ask(f"2620:fe:0:{number}::1") for number in range(3)]
    assert None not in held
    assert hall.ask(FAR[0]) is not None
    assert hall.left == held[:1]
    assert hall.ask("2620:fe:0:9::1") is None


def test_a_slow_request_makes_room() -> None:
    hall = Hall()
    slow = [hall.ask(address) for address in FAR[:3]]
    assert slow[0] is not None
    hall.whole.add(slow[0])
    assert hall.ask(FAR[3]) is None
    hall.clock.now += 10
    assert hall.ask(FAR[4]) is not None
    assert hall.left == [slow[1]]  # the first one is whole, and waits for its answer
    assert hall.ask(FAR[2]) is not None
    assert hall.ask(FAR[2]) is None  # its share, and the other two are quick


def test_who_renews_incomplete_requests_makes_room_for_who_has_none() -> None:
    hall = Hall()  # three requests at one time for strangers, two of an address
    held = [hall.ask(FAR[0]), hall.ask(FAR[0]), hall.ask(FAR[1])]
    assert None not in held
    assert hall.ask(FAR[2]) is not None
    assert hall.left == held[:1]
    assert hall.ask(FAR[3]) is None  # the others have one each
    hall = Hall()
    for guest in (whole := [hall.ask(FAR[0]), hall.ask(FAR[0]), hall.ask(FAR[1])]):
        assert guest is not None
        hall.whole.add(guest)
    assert hall.ask(FAR[2]) is None  # what is whole is answered
    assert hall.left == []
    assert whole


def served(place: Path, act: Callable[[int, Service], Awaitable[None]], bounds: ConnectionLimits) -> None:
    """A real server on this machine's network, and what is done with its port."""
    house = kit.House(kit.bounty_folder(place / "bounty"))

    async def asked(service: Service) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = make_server(service, ConnectionGuard(bounds))
            running = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                await act(listener.getsockname()[1], service)
            finally:
                server.should_exit = True
                await running

    house.run(asked)


async def get(port: int, request: bytes = GET) -> tuple[int, bytes]:
    """Status and all that came; 0 where nothing did."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        data = await reader.read()
    except ConnectionError:
        return 0, b""
    finally:
        writer.close()
    return (int(data.split()[1]) if data else 0), data


async def sockets(port: int, count: int, sent: bytes = b"") -> list[asyncio.StreamWriter]:
    writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(count)]
    for writer in writers:
        writer.write(sent)
    return writers


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /status HTTP/1.1\r\nHost: x\r\nX-Drip: "])
def test_silent_sockets_shut_nobody_out(tmp_path: Path, sent: bytes) -> None:
    async def act(port: int, service: Service) -> None:
        writers = await sockets(port, 220, sent)
        assert (await get(port))[0] == 200
        for writer in writers:
            writer.transport.abort()

    served(tmp_path, act, CONNECTION_LIMITS)


def test_more_silent_sockets_than_there_is_room_for(tmp_path: Path) -> None:
    async def act(port: int, service: Service) -> None:
        writers = await sockets(port, 60)
        assert [(await get(port))[0] for _ in range(3)] == [200] * 3
        for writer in writers:
            writer.transport.abort()

    served(tmp_path, act, replace(CONNECTION_LIMITS, connections=20, first_byte=3600.0))


@pytest.mark.parametrize(
    ("sent", "bounds"),
    [
        (b"", replace(CONNECTION_LIMITS, first_byte=0.05)),
        (b"GET /sta", replace(CONNECTION_LIMITS, header=0.05)),
        (GET + b"GET /sta", replace(CONNECTION_LIMITS, header=0.05)),
    ],
)
def test_a_connection_without_a_request_ends_soon(tmp_path: Path, sent: bytes, bounds: ConnectionLimits) -> None:
    async def act(port: int, service: Service) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        try:
            data = await asyncio.wait_for(reader.read(), 60)  # ends because the server ends it
        except ConnectionError:
            data = b""
        assert data.count(b"HTTP/1.1") <= 1
        writer.close()

    served(tmp_path, act, bounds)


def test_slow_bodies_make_room_and_the_rest_hear_that_it_is_busy(tmp_path: Path) -> None:
    post = b"POST /commitments HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"

    async def act(port: int, service: Service) -> None:
        writers = await sockets(port, 4, post)
        statuses = []
        for _ in range(2000):
            status, data = await get(port)
            statuses.append(status)
            if status == 503:
                break
        assert statuses[-1] == 503
        assert json.loads(data.partition(b"\r\n\r\n")[2])["error"]["code"] == "busy"
        for writer in writers:
            writer.transport.abort()

    served(tmp_path, act, replace(CONNECTION_LIMITS, requests=54, kept=50, body=3600.0))

    async def again(port: int, service: Service) -> None:
        writers = await sockets(port, 4, post)
        assert (await get(port))[0] == 200
        for writer in writers:
            writer.transport.abort()

    served(tmp_path / "again", again, replace(CONNECTION_LIMITS, requests=54, kept=50, body=0.0))


def test_an_answer_that_nobody_takes_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(port: int, service: Service) -> None:
        monkeypatch.setattr(service, "status", lambda: b" " * 50_000_000)
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(connection, ("127.0.0.1", port))
            await loop.sock_sendall(connection, GET)
            ended = select.poll()
            ended.register(connection, select.POLLRDHUP)
            until = loop.time() + 60
            while not ended.poll(0):  # nothing is read
                assert loop.time() < until, "the connection is kept for whoever reads nothing"
                await asyncio.sleep(0.02)
            with suppress(ConnectionError):
                left = await asyncio.wait_for(loop.sock_recv(connection, 50_000_000), 60)
                assert len(left) < 50_000_000

    served(tmp_path, act, replace(CONNECTION_LIMITS, look=0.05))


@pytest.mark.parametrize("length", ["²", "٣", "9" * 5000, "1e3", "-1", "+1", " "])
def test_a_length_that_is_none_is_no_trouble_of_ours(tmp_path: Path, length: str) -> None:
    async def act(port: int, service: Service) -> None:
        request = f"POST /commitments HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()
        status, _ = await get(port, request)
        assert 400 <= status < 500

    served(tmp_path, act, CONNECTION_LIMITS)
