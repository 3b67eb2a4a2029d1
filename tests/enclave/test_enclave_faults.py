"""Whatever is killed, and whenever: a bounty ends with each solution judged once or unjudged, never with a wrong zero."""

import json
import resource
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import seal_kit as kit
import serve_kit
from assay.enclave.attest import read_collateral
from assay.enclave.attest.document import parse_attestation
from assay.enclave.collect import CheckedResults, check_results
from assay.enclave.messages import EnclaveClient, Rejected, RejectionCode
from assay.records import Rubric
from assay.settle.score.rubric import judge
from depth import depth
from serve_kit import BPS, GOOD, HALF, POEM, SLOW, EnclaveWorld, wait

# httpcore leaves the socket of a connection that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
TEXTS = dict(zip(kit.PEOPLE, (GOOD, SLOW, POEM, HALF), strict=True))


def given_out(world: EnclaveWorld, at: Any = kit.CLOSED) -> CheckedResults:
    """The results, verified, once they are given out."""
    world.at(at)
    wait(lambda: world.status().get("state") == "given-out", "the results")
    with EnclaveClient(world.url) as client:
        attestation, data = parse_attestation(client.get("/attestation")), client.get("/results")
    collateral = read_collateral(world.collateral)
    now = collateral.window().start
    return check_results(world.bounty, attestation, data, now=now, collateral=collateral)


def scores(world: EnclaveWorld, results: CheckedResults) -> dict[str, int | None]:
    """Participant → BPS; None where it is unjudged."""
    assert results.batch is not None
    rules, bps = world.bounty.rules, dict[str, int | None]()
    for record in results.batch.records:
        assert isinstance(record, Rubric)
        grade = judge(record.baseline, record.checks, record.verdict, rules) if record.outcome == "judged" else None
        bps[record.participant] = None if grade is None else grade.bps
    return bps


WHOLE: dict[str, int | None] = {participant: BPS[text] for participant, text in TEXTS.items()}


def judged(world: EnclaveWorld) -> int:
    """Judgements on the disk."""
    return len(list((world.place / "enclave/judgements").glob("*.json")))


def quoted(world: EnclaveWorld) -> int:
    """Quotes of judgements on the disk."""
    return len(list((world.place / "enclave/quotes").glob("*.json")))


def restart(world: EnclaveWorld) -> None:
    """Kill the enclave, and start it again."""
    world.enclave.stop()
    world.enclave.start()
    world.ready()


@pytest.mark.full
def test_the_enclave_may_be_killed_after_every_step(tmp_path: Path) -> None:
    with serve_kit.world(tmp_path) as world:
        signed, sealed = kit.handed(world.bounty, kit.P1, kit.solution(GOOD), world.to)
        taken = world.post("/commitments", signed.envelope)
        restart(world)
        assert world.post("/commitments", signed.envelope) == taken
        received = world.post("/submissions", sealed.file)
        restart(world)
        assert world.post("/submissions", sealed.file) == received
        wait(lambda: quoted(world) == 1, "a judgement")
        kept = [path.read_bytes() for path in (world.place / "enclave/judgements").iterdir()]
        restart(world)
        results = given_out(world)
        assert scores(world, results) == {kit.P1: BPS[GOOD]}
        before = (world.place / "enclave/results.json").read_bytes()
        restart(world)
        assert given_out(world).statement == results.statement
        assert (world.place / "enclave/results.json").read_bytes() == before
        assert [path.read_bytes() for path in (world.place / "enclave/judgements").iterdir()] == kept


def test_the_enclave_may_be_killed_while_it_judges(tmp_path: Path) -> None:
    script = serve_kit.SCRIPT + '[[faults]]\nkind = "slow"\nseconds = 0.2\n'
    with serve_kit.world(tmp_path, script=script) as world:
        for participant, text in TEXTS.items():
            world.hand_in(participant, text)
        seen: dict[str, bytes] = {}
        for count in depth((1,), (1, 3)):
            wait(partial(_some, judged, world, count), "judgements")
            restart(world)
            now = {path.name: path.read_bytes() for path in (world.place / "enclave/judgements").iterdir()}
            assert seen.items() <= now.items()
            seen = now
        assert scores(world, given_out(world)) == WHOLE


def _some(counted: Callable[[EnclaveWorld], int], world: EnclaveWorld, least: int) -> bool:
    return counted(world) >= least


@pytest.mark.full
def test_the_model_may_be_killed_and_come_back(tmp_path: Path) -> None:
    with serve_kit.world(tmp_path) as world:
        world.hand_in(kit.P1, GOOD)
        wait(lambda: quoted(world) == 1, "the first")
        world.model.stop()
        world.hand_in(kit.P2, SLOW)
        wait(lambda: world.status()["troubles"], "trouble")
        world.at(kit.CLOSED)
        with pytest.raises(Rejected, match="results are published after"), EnclaveClient(world.url) as client:
            client.get("/results")
        world.model.start()
        assert scores(world, given_out(world)) == {kit.P1: BPS[GOOD], kit.P2: BPS[SLOW]}


@pytest.mark.full
def test_a_model_that_stays_away_leaves_unjudged_what_it_did_not_see(tmp_path: Path) -> None:
    with serve_kit.world(tmp_path) as world:
        world.hand_in(kit.P1, GOOD)
        wait(lambda: quoted(world) == 1, "the first")
        world.model.stop()
        world.hand_in(kit.P2, SLOW)
        wait(lambda: world.status()["troubles"], "trouble")
        assert scores(world, given_out(world, kit.OVER)) == {kit.P1: BPS[GOOD], kit.P2: None}


FAULTS = """
[[faults]]
kind = "401"
times = 3
[[faults]]
kind = "429"
times = 2
each = true
[[faults]]
kind = "cut"
phase = "baseline"
times = 1
after = 2
[[faults]]
kind = "close"
phase = "checks"
times = 1
after = 2
[[faults]]
kind = "500"
phase = "verdict"
times = 1
after = 2
[[faults]]
kind = "huge"
solution = "half"
times = 1
after = 3
"""


@pytest.mark.full
def test_a_model_that_fails_in_every_way_is_asked_again(tmp_path: Path) -> None:
    with serve_kit.world(tmp_path, script=serve_kit.SCRIPT + FAULTS) as world:
        for participant, text in TEXTS.items():
            world.hand_in(participant, text)
        assert scores(world, given_out(world)) == WHOLE
        assert serve_kit.API_KEY not in world.enclave.log.read_text()


@pytest.mark.full
def test_answers_that_stay_malformed_are_no_answers_and_hold_nobody_up(tmp_path: Path) -> None:
    script = serve_kit.SCRIPT + '[[faults]]\nkind = "not-json"\nsolution = "slow"\n'
    with serve_kit.world(tmp_path, script=script) as world:
        for participant, text in TEXTS.items():
            world.hand_in(participant, text)
        results = given_out(world)
        assert scores(world, results) == WHOLE | {kit.P2: None}
        assert {row.participant: row.state for row in results.rows}[kit.P2] == "unjudged"


@pytest.mark.full
def test_dstack_may_be_killed_and_come_back(tmp_path: Path) -> None:
    with serve_kit.world(tmp_path) as world:
        world.dstack.stop()
        world.hand_in(kit.P1, GOOD)
        wait(lambda: judged(world) == 1 and world.status()["troubles"], "trouble")
        assert quoted(world) == 0
        world.enclave.stop()
        world.enclave.start()
        wait(lambda: world.status().get("state") == "starting", "a start")
        with pytest.raises(Rejected) as caught, EnclaveClient(world.url) as client:
            client.get("/results")
        assert caught.value.code == RejectionCode.STARTING
        world.start_dstack()
        world.ready()
        assert scores(world, given_out(world)) == {kit.P1: BPS[GOOD]}


@pytest.mark.full
def test_a_dstack_that_stays_away_leaves_it_unjudged(tmp_path: Path) -> None:
    with serve_kit.world(tmp_path) as world:
        attestation = EnclaveClient(world.url)
        with attestation as client:
            kept = client.get("/attestation")
        world.dstack.stop()
        world.hand_in(kit.P1, GOOD)
        wait(lambda: judged(world) == 1, "a judgement")
        assert scores(world, given_out(world, kit.OVER)) == {kit.P1: None}
        with EnclaveClient(world.url) as client:
            assert client.get("/attestation") == kept


# The network


@contextmanager
def connected(world: EnclaveWorld) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(serve_kit.MINUTE)
        connection.connect(str(world.listen))
        yield connection


def raw(world: EnclaveWorld, data: bytes, *, close: bool = False) -> bytes:
    """What is answered to bytes; close: the connection is closed after them."""
    with connected(world) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(data)
            if close:
                return b""
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
            return answer
        return b""


def head(path: str, length: int, how: str = "POST") -> bytes:
    return f"{how} {path} HTTP/1.1\r\nHost: enclave\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n".encode()


@pytest.mark.full
def test_what_does_not_arrive_whole_is_not_taken(tmp_path: Path) -> None:
    with serve_kit.world(tmp_path) as world:
        signed, sealed = kit.handed(world.bounty, kit.P1, kit.solution(GOOD), world.to)
        for path, body in (("/commitments", signed.envelope), ("/submissions", sealed.file)):
            for part in (0, 1, len(body) // 2, len(body) - 1):
                raw(world, head(path, len(body)) + body[:part], close=True)
            assert world.status()["received"] == 0
            world.post(path, body)
        assert world.status()["committed"] == 1
        _refused_bodies(world)
        wait(lambda: judged(world) == 1, "a judgement")
        assert scores(world, given_out(world)) == {kit.P1: BPS[GOOD]}


def _refused_bodies(world: EnclaveWorld) -> None:
    """What nobody should send is answered shortly, with a code, and changes nothing."""
    kept = {path: path.read_bytes() for path in (world.place / "enclave/submissions").iterdir()}
    codes = {
        head("/commitments", 2**60): 413,
        head("/submissions", 10**9): 413,
        head("/release", 2**40): 413,
        head("/commitments", 2) + b"{}": 400,
        head("/submissions", 2) + b"{}": 400,
        head("/release", 2) + b"{}": 409,
        head("/nothing", 2) + b"{}": 404,
        head("/results", 2, "DELETE") + b"{}": 405,
        b"nonsense\r\n\r\n": 400,
        head("/submissions/nobody", 0, "GET"): 404,
        head("/docs", 0, "GET"): 404,
        head("/openapi.json", 0, "GET"): 404,
        b"POST /commitments HTTP/1.1\r\nHost: enclave\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"100001\r\n" + b"x" * 0x100001: 413,
    }
    for data, code in codes.items():
        answer = raw(world, data)
        assert answer.startswith(f"HTTP/1.1 {code} ".encode()), (data[:60], answer[:200])
        assert b"Traceback" not in answer
    assert {path: path.read_bytes() for path in (world.place / "enclave/submissions").iterdir()} == kept
    text = json.loads(raw(world, head("/commitments", 2) + b"{}").partition(b"\r\n\r\n")[2])
    assert text["error"]["code"] == "malformed"


# The process


@pytest.mark.full
def test_a_crash_leaves_no_core_an_end_is_clean_and_one_serves(tmp_path: Path) -> None:
    with serve_kit.world(tmp_path) as world:
        world.hand_in(kit.P1, GOOD)
        wait(lambda: judged(world) == 1, "a judgement")
        pid = world.enclave.running.pid if world.enclave.running else 0
        soft, hard = resource.prlimit(pid, resource.RLIMIT_CORE)
        assert (soft, hard) == (0, 0)
        second = subprocess.run(world.enclave.words, capture_output=True, timeout=serve_kit.MINUTE, check=False, text=True)
        assert second.returncode == 1
        assert "is being served already" in second.stderr
        assert world.enclave.stop(signal.SIGABRT) == -signal.SIGABRT
        assert list(world.cwd.iterdir()) == []
        assert "Fatal Python error" not in world.enclave.log.read_text()
        world.enclave.start()
        world.ready()
        assert world.enclave.stop(signal.SIGTERM) == 0
        assert not world.listen.exists()
        assert "Traceback" not in world.enclave.log.read_text()
        (file,) = (world.place / "enclave/commitments").iterdir()
        file.write_bytes(file.read_bytes().replace(b'"taken"', b'"token"'))
        changed = subprocess.run(world.enclave.words, capture_output=True, timeout=serve_kit.MINUTE, check=False, text=True)
        assert changed.returncode == 1
        assert "was changed after the enclave wrote it" in changed.stderr
        assert "Traceback" not in changed.stderr
