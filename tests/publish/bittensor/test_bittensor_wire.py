"""JSON-RPC over a websocket: what comes of each way in which the other side can fail."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

pytest.importorskip("websockets")

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve
from websockets.utils import accept_key

from assay.errors import BadInput, Unreachable
from assay.publish import rpc
from assay.publish.bittensor.settings import open_to_anybody
from assay.publish.rpc import RpcError, WebSocketRpc

SECRET = ("wss://user:secret@ho℀st", "wss://[secret", f"wss://user:secret@{'a' * 70}.example", "wss://user:secret@a..b")
"""What looks like an address, and is none."""
Answer = Callable[[ServerConnection, dict[str, Any]], None]


class ScriptedWire:
    """A server that does with each question what the next answer says, and the last again and again."""

    def __init__(self, *answers: Answer, status: int = 101) -> None:
        self.asked: list[str] = []
        self.connections = 0
        self._answers, self._status = list(answers), status
        self._server = serve(self._handle, "127.0.0.1", 0, process_request=self._door, max_size=None)
        self.url = f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}"
        self.thread = threading.Thread(target=self._server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self.thread.join()

    def _door(self, connection: ServerConnection, request: Request) -> Response | None:
        return None if self._status == 101 else connection.respond(self._status, "no\n")

    def _handle(self, connection: ServerConnection) -> None:
        self.connections += 1
        with suppress(ConnectionClosed):
            for message in connection:
                request = json.loads(message)
                self.asked.append(request["method"])
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                answer(connection, request)


@contextmanager
def scripted(*answers: Answer, status: int = 101, seconds: float = 20.0) -> Iterator[tuple[ScriptedWire, WebSocketRpc]]:
    server = ScriptedWire(*answers, status=status)
    wire = WebSocketRpc(server.url, seconds=seconds)
    try:
        yield server, wire
    finally:
        wire.close()
        server.close()


def well(connection: ServerConnection, request: dict[str, Any]) -> None:
    connection.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": [request["method"], request["params"]]}))


def drop(connection: ServerConnection, request: dict[str, Any]) -> None:
    connection.socket.shutdown(socket.SHUT_RDWR)


def silent(connection: ServerConnection, request: dict[str, Any]) -> None:
    """No answer."""


def sends(*messages: str | bytes) -> Answer:
    def answer(connection: ServerConnection, request: dict[str, Any]) -> None:
        for message in messages:
            connection.send(message)

    return answer


def test_an_answer_comes_over_one_connection() -> None:
    with scripted(well) as (server, wire):
        assert wire.ask("one", 1, None) == ["one", [1, None]]
        assert wire.ask("two") == ["two", []]
        assert server.connections == 1


def test_what_was_not_asked_is_passed_over() -> None:
    def beside(connection: ServerConnection, request: dict[str, Any]) -> None:
        for number in (request["id"] + 7, request["id"] - 1, "x", None, [1]):
            connection.send(json.dumps({"jsonrpc": "2.0", "id": number, "result": "another's"}))
        connection.send(json.dumps({"jsonrpc": "2.0", "method": "chain_newHead", "params": {}}))
        well(connection, request)
        well(connection, request)  # a second time

    with scripted(beside) as (server, wire):
        assert wire.ask("one") == ["one", []]
        assert wire.ask("two") == ["two", []]
        assert server.connections == 1


def test_a_refusal_has_its_code_and_data() -> None:
    def refuse(connection: ServerConnection, request: dict[str, Any]) -> None:
        error = {"code": 1010, "message": "Invalid Transaction", "data": "Custom error: 4"}
        connection.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}))

    with scripted(refuse) as (server, wire):
        with pytest.raises(RpcError) as caught:
            wire.ask("one")
        assert (caught.value.code, caught.value.message, caught.value.data) == (1010, "Invalid Transaction", "Custom error: 4")
        assert server.asked == ["one"]


@pytest.mark.parametrize(
    "broken",
    [drop, sends("nonsense"), sends("[1]"), sends(b"\xff\xfe"), sends("[" * 100_000), sends('{"id": ' + "9" * 5000 + "}")],
    ids=["drops", "not JSON", "a list", "not text", "deep", "long number"],
)
def test_what_may_be_asked_twice_is_on_a_new_connection(broken: Answer) -> None:
    with scripted(broken, well) as (server, wire):
        assert wire.ask("one") == ["one", []]
        assert (server.asked, server.connections) == (["one", "one"], 2)


@pytest.mark.parametrize("broken", [drop, sends("nonsense")])
def test_after_the_second_time_it_is_not_asked_again(broken: Answer) -> None:
    with scripted(broken) as (server, wire):
        with pytest.raises(Unreachable, match=r"^127\.0\.0\.1:[0-9]+ does not answer one \("):
            wire.ask("one")
        assert server.asked == ["one", "one"]


def test_what_may_not_be_asked_twice_is_asked_once_on_a_new_connection() -> None:
    with scripted(well, drop, well) as (server, wire):
        wire.ask("before")
        with pytest.raises(Unreachable):
            wire.ask("submit", twice=False)
        assert (server.asked, server.connections) == (["before", "submit"], 2)
        assert wire.ask("after") == ["after", []]


def test_an_answer_without_result_is_none() -> None:
    def empty(connection: ServerConnection, request: dict[str, Any]) -> None:
        connection.send(json.dumps({"jsonrpc": "2.0", "id": request["id"]}))

    with scripted(empty) as (_, wire), pytest.raises(Unreachable, match="neither result nor error"):
        wire.ask("one")


def test_a_question_has_one_deadline() -> None:
    with scripted(silent, seconds=3.0) as (server, wire):
        with pytest.raises(Unreachable, match=r"3 seconds were not enough"):
            wire.ask("one")
        assert server.asked == ["one"]  # all of the time went to a new connection


def test_an_old_connection_that_died_leaves_time_for_a_new_one() -> None:
    with scripted(well, silent, well, seconds=6.0) as (server, wire):
        wire.ask("before")
        assert wire.ask("one") == ["one", []]
        assert (server.asked, server.connections) == (["before", "one", "one"], 2)


def test_a_server_that_does_not_speak_has_the_deadline_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        wire = WebSocketRpc(f"ws://127.0.0.1:{listening.getsockname()[1]}", seconds=0.2)
        with pytest.raises(Unreachable, match=r"0\.2 seconds were not enough"):
            wire.ask("one")


def test_a_server_that_does_not_read_has_the_deadline_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def shake_hands() -> None:
            peers.append(listening.accept()[0])
            key = peers[0].recv(10_000).decode().split("Sec-WebSocket-Key: ")[1].split("\r\n")[0]
            head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            peers[0].sendall(f"{head}Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n".encode())

        peers: list[socket.socket] = []
        thread = threading.Thread(target=shake_hands)
        thread.start()
        wire = WebSocketRpc(f"ws://127.0.0.1:{listening.getsockname()[1]}", seconds=1.0)
        with pytest.raises(Unreachable, match="1 seconds were not enough"):
            wire.ask("one", "x" * 50_000_000)  # more than what lies between holds
        thread.join()
        peers[0].close()


def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "ANSWER_BYTES", 1000)
    with scripted(sends(json.dumps({"id": 1, "result": "x" * 1000}))) as (server, wire):
        with pytest.raises(Unreachable, match="connection closed"):
            wire.ask("one")
        assert server.connections == 2


@pytest.mark.parametrize("part", ["[],", "{},", "0,", '{"a":0},'])
def test_the_parts_of_an_answer_have_a_bound(part: str) -> None:
    """A list of a few bytes takes some sixty when it is read."""
    few, many = (f'{{"id": {number}, "result": [{part * count}0]}}' for number, count in ((1, 50_000), (2, 200_000)))
    with scripted(sends(few), sends(many)) as (_, wire):
        assert len(wire.ask("one")) == 50_001
        with pytest.raises(Unreachable, match="more than 200000 parts"):
            wire.ask("two")


def test_no_server_and_no_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(Unreachable, match="connection refused"):
        WebSocketRpc(f"ws://127.0.0.1:{port}").ask("one")
    for url in ("http://x", "ws://", "ws://x:99999", "ws://x\n", "x", "ws://ü", *SECRET):
        with pytest.raises(BadInput, match=r"^is not the address of a node; write") as caught:
            WebSocketRpc(url)
        assert caught.value.__cause__ is None
        assert not open_to_anybody(url) or url.startswith("ws://")


def test_where_a_node_sends_us_on_to_may_be_no_address() -> None:
    def on(connection: ServerConnection, request: Request) -> Response:
        answer = connection.respond(302, "")
        answer.headers["Location"] = "ws://a..b/"
        return answer

    with serve(lambda _: None, "127.0.0.1", 0, process_request=on) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with pytest.raises(Unreachable, match="does not answer one"):
            WebSocketRpc(f"ws://127.0.0.1:{server.socket.getsockname()[1]}").ask("one")
        server.shutdown()
        thread.join()


def test_who_is_not_let_in_is_told_and_sees_no_secret() -> None:
    with scripted(well, status=401) as (server, _):
        wire = WebSocketRpc(server.url.replace("ws://", "ws://user:secret@") + "/v1?key=secret")
        with pytest.raises(BadInput, match="does not let us in") as caught:
            wire.ask("one")
        assert "secret" not in str(caught.value)
    with scripted(well, status=429) as (_, wire), pytest.raises(Unreachable, match="status 429"):
        wire.ask("one")
