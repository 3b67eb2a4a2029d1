"""Every client of Assay against the same hostile peer: an error of its own, soon, without much memory, and fit to be printed."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from assay.enclave import messages as enclave
from assay.enclave.attest.collateral import fetch_collateral
from assay.enclave.attest.document import ATTESTATION_BYTES, parse_attestation
from assay.enclave.dstack import Dstack
from assay.errors import AssayError, Unreachable
from assay.judge.github import client as github
from assay.judge.github.client import AnswerCache, GitHub, parse_answer
from assay.judge.rubric.judgement import JudgeLimits
from assay.judge.running import Stop
from assay.judge.workflow.call import CallFailed, ServiceCall, ServiceHost, opened, read
from assay.judge.workflow.planner import NoPlan, Planner, ask_planner
from assay.judge.workflow.services import Planners, Services
from assay.publish.bittensor.node import BittensorNode
from assay.publish.rpc import HttpRpc, RpcError, WebSocketRpc
from enclave_kit import MACHINE
from hostile_kit import BEHAVIOURS, EVIL, GIVE_UP, SOCKETS, HostileConnection, frame, grown, hostile, is_plain, upgraded
from rubric_kit import asked, make_case
from test_issues_client import ISSUES

MIB = 2**20
SECRET = "ghp_s3cr3ts3cr3t"
SECONDS = 0.3
"""A deadline that is waited for in vain here; a quick answer has longer."""
LONG = 30.0
BOMB = b"[" + b"[]," * 1_200_000 + b"[]]"
ENDLESS = ("silent", "drips its body", "drips its header", "drips headers", "early hints without end")


def seconds(name: str) -> float:
    return SECONDS if name in ENDLESS else LONG


@contextmanager
def no_harm(*kinds: type[Exception]) -> Iterator[None]:
    """What is done within ends with one of these errors, soon, in plain words, without the secret and without much memory."""
    before, began = grown(), time.monotonic()
    with pytest.raises(kinds or AssayError) as error:
        yield
    assert time.monotonic() - began < GIVE_UP / 2
    assert grown() - before < 150 * MIB
    words = str(error.value)
    assert is_plain(words), ascii(words)
    assert SECRET not in words


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_github(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(github, "WHOLE_SECONDS", seconds(name))
    messages: list[str] = []
    with hostile(BEHAVIOURS[name]) as there, no_harm():
        cache = AnswerCache(tmp_path / "cache")
        asking = GitHub(there.url, SECRET, cache, Stop(), attempts=1, delay=0, tell=lambda why, _: messages.append(why))
        with asking as client:
            # A body that is JSON is for who reads it; a 200 without a date is refused before.
            parse_answer(ISSUES, client.get("/x").body, "/x")
    assert is_plain("".join(messages))
    assert SECRET not in "".join(messages)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("body", [BOMB, b"[" * 1_000_000, b"[" + b'"",' * 1_200_000 + b'""]'])
def test_github_s_bombs(body: bytes) -> None:
    with no_harm():
        parse_answer(ISSUES, body, "/x")


def test_a_token_that_github_repeats_is_neither_shown_nor_kept(tmp_path: Path) -> None:
    def asking(url: str, cache: AnswerCache | None = None) -> bytes:
        with GitHub(url, SECRET, cache, Stop(), attempts=1, delay=0, tell=lambda *_: None) as client:
            return client.get("/x").body

    date = "Date: Sun, 06 Nov 1994 08:49:37 GMT"
    with hostile(lambda line: line.answer(line.head, "200 OK", date, 'ETag: "1"')) as there:
        assert SECRET.encode() in asking(there.url, AnswerCache(tmp_path / "cache"))
    assert not any(SECRET.encode() in path.read_bytes() for path in (tmp_path / "cache").iterdir())
    for header in (f"Location: http://{SECRET}/{EVIL[-1]}", f"Location: http://[{SECRET}"):

        def moved(line: HostileConnection, header: str = header) -> None:
            line.answer(b"", "301 Moved", date, header)

        with hostile(moved) as there, no_harm():
            asking(there.url)


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_an_enclave(name: str, unix: bool, tmp_path: Path) -> None:
    path = tmp_path / "s" if unix else None
    with hostile(BEHAVIOURS[name], path) as there, no_harm():
        ask_enclave(f"unix:{path}" if unix else there.url, seconds(name))


def ask_enclave(url: str, within: float = LONG) -> None:
    with enclave.EnclaveClient(url, seconds=within) as client:
        parse_attestation(client.get("/attestation", ATTESTATION_BYTES))


def test_an_enclave_s_results_that_are_a_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enclave, "ANSWER_PARTS", 1_000_000)
    with hostile(lambda line: line.answer(BOMB)) as there, no_harm(), enclave.EnclaveClient(there.url) as client:
        client.get("/results")


def test_what_an_enclave_says_is_printable() -> None:
    words = {"code": "late", "what": EVIL, "hint": EVIL}
    with hostile(lambda line: line.answer(json.dumps({"error": words}).encode(), "410 Gone")) as there, no_harm():
        ask_enclave(there.url)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_dstack(name: str, unix: bool, tmp_path: Path) -> None:
    path = tmp_path / "s" if unix else None
    with hostile(BEHAVIOURS[name], path) as there, no_harm(), Dstack(str(path or there.url), seconds=seconds(name)) as dstack:
        dstack.get_key("path", "purpose")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_service_of_collateral(name: str) -> None:
    """The library asks for it in a child, whose memory and time are bounded."""
    with hostile(BEHAVIOURS[name]) as there, no_harm():
        fetch_collateral(MACHINE.quote(bytes(64)), there.url, seconds=2.0 if name in ENDLESS else LONG)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_an_evm_node(name: str) -> None:
    with hostile(BEHAVIOURS[name]) as there, no_harm(AssayError, RpcError):
        url = there.url.replace("//", f"//user:{SECRET}@") + f"/{SECRET}"
        HttpRpc(url, seconds=seconds(name), tries=2).ask("eth_chainId")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", [*BEHAVIOURS, *(f"open, {name}" for name in SOCKETS)])
def test_a_subtensor_node(name: str) -> None:
    behave = BEHAVIOURS.get(name) or SOCKETS[name.removeprefix("open, ")]
    late = name in ENDLESS or name.removeprefix("open, ") in (
        "silent",
        "drips a message",
        "a message without end",
        "other answers without end",
    )
    with hostile(behave) as there, no_harm(AssayError, RpcError):
        wire = WebSocketRpc(there.url.replace("http", "ws"), seconds=SECONDS if late else LONG)
        try:
            wire.ask("system_chain")
        finally:
            wire.close()


def test_metadata_that_are_a_bomb() -> None:
    """A million empty tuples as types: six bytes each on the wire, hundreds in memory."""
    count = 1_000_000
    empty_tuple = bytes([0, 0, 0, 5 - 1, 0, 0])  # id, path, parameters, a tuple, of nothing, no words
    bomb = b"meta" + bytes([14]) + (count * 4 + 2).to_bytes(4, "little") + empty_tuple * count
    answers = {
        "chain_getBlockHash": f"0x{'11' * 32}",
        "chain_getHeader": {"number": "0x1", "parentHash": f"0x{'22' * 32}"},
        "state_getRuntimeVersion": {"specName": "node-subtensor", "specVersion": 1, "transactionVersion": 1},
        "state_call": None,
        "state_getMetadata": f"0x{bomb.hex()}",
    }

    def behave(line: HostileConnection) -> None:
        while True:
            request = line.message()
            line.send(frame(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answers[request["method"]]}).encode()))

    with hostile(upgraded(behave, read=False)) as there, no_harm():
        node = BittensorNode(there.url.replace("http", "ws"), seconds=LONG)
        try:
            node.runtime()
        finally:
            node.close()


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_model_that_judges(name: str, tmp_path: Path) -> None:
    """The model has failed, or nobody was there: nothing is judged by what came."""
    limits = JudgeLimits(seconds=seconds(name), tries=1, first_pause=0.0, longest_pause=0.0, patience=0.0)
    with hostile(BEHAVIOURS[name]) as there, no_harm():
        judgement = asked(make_case(tmp_path), f"{there.url}/v1", limits=limits, api_key=SECRET)
        assert judgement.outcome != "judged"
        raise Unreachable(json.dumps(judgement.document()))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_service_of_workflows(name: str) -> None:
    async def ask(url: str) -> None:
        spec = {"kind": "http", "url": url, "actions": ["do"], "health": "do", "max_cost": "1", "answer_bytes": 64_000_000}
        services = Services.model_validate({"services": {"s": spec}})
        async with opened(services, ["s"], ServiceHost(Path(), {}, None)) as ready, asyncio.timeout(seconds(name)):
            read(await ready["s"].ask(ServiceCall(b"{}", LONG)), 1)

    with hostile(BEHAVIOURS[name]) as there, no_harm(CallFailed, TimeoutError):
        asyncio.run(ask(there.url))


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_planner(name: str) -> None:
    rules = Planners.model_validate({"seconds": str(seconds(name)), "private": True})
    planner = Planner("p", "1", "sha256:00", Path(), url="")
    with hostile(BEHAVIOURS[name]) as there, no_harm(NoPlan):
        data = asyncio.run(ask_planner(replace(planner, url=there.url), "t", b"{}", MIB, rules, None))
        raise NoPlan(f"{len(data)} bytes, which are for who reads plans")
