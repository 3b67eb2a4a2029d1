"""A log and its witnesses over HTTP, ours and other software's: a quorum, slow, dead and lying ones, forks, kills. SPEC 6."""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import witness_kit as kit
from assay.errors import BadInput
from assay.ledger import bundle, check, config, cosigning, keys, settling
from assay.ledger import log as note
from assay.ledger.check import CheckError, Checkpoint
from assay.ledger.cosigning import read_policy
from assay.ledger.forks import check_fork
from assay.ledger.verify import verify
from assay.publish.witnesses import FORKS, CosignedCheckpoint, LogWitnesses, policy_of
from crash_kit import Warm
from depth import FULL
from ledger_kit import KEY, SIGNER, add, copied, ledger_folder, opened, records
from witness_kit import RunningWitness, dead, other_software, saying, serving, vkey, write_policy


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A competition whose log has a witness: one that does not answer, until a test writes another policy."""
    folder = ledger_folder(tmp_path / "small")
    write_policy(folder / config.POLICY, 1, dead(9))
    return folder


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[list[RunningWitness]]:
    with ExitStack() as stack:
        yield [stack.enter_context(serving(tmp_path, number, [KEY])) for number in (1, 2, 3)]


def settle(place: Path, epoch: int, **changes: Any) -> None:
    add(place, records(epoch=epoch, **changes))
    with opened(place) as ledger:
        settling.settle(ledger, SIGNER, epoch)


def ask(place: Path, seconds: float = 20.0) -> list[CosignedCheckpoint]:
    with opened(place) as ledger:
        policy = policy_of(ledger)
        assert policy is not None
        return [*LogWitnesses(policy, seconds=seconds).bring_up(ledger)]


def shown(place: Path) -> int:
    return Checkpoint.parse(cosigning.text_of((place / "log/checkpoint").read_bytes())).size


def test_a_quorum_of_ours_cosigns_epoch_after_epoch(place: Path, ours: list[RunningWitness]) -> None:
    policy = write_policy(place / config.POLICY, 3, *ours, log=KEY)
    for size, epoch in enumerate((3, 4, 5), start=1):
        settle(place, epoch)
        assert shown(place) == size - 1
        [asked] = ask(place)
        assert (asked.size, asked.reached, sorted(asked.cosigned), asked.failed) == (size, True, ["w1", "w2", "w3"], {})
        assert shown(place) == size
    cosigning.check_policy(read_policy(policy), (place / "log/checkpoint").read_bytes(), KEY)
    assert ask(place) == []
    for witness in ours:
        name = hashlib.sha256(KEY.name.encode()).hexdigest()
        last = kit.fetched(f"{witness.url}/{name}/checkpoint")
        assert check.check_checkpoint(last, [KEY]).size == 3
        assert kit.fetched(f"{witness.url}/").decode().startswith("witness example.net/w")


def test_checkpoints_that_waited_are_cosigned_one_after_the_other(place: Path, ours: list[RunningWitness]) -> None:
    write_policy(place / config.POLICY, 2, *ours)
    settle(place, 3)
    ask(place)
    for epoch in (4, 5, 6):
        settle(place, epoch)
    assert [asked.size for asked in ask(place)] == [2, 3, 4]
    with opened(place) as ledger, ledger.store.reading() as view:
        assert all(view.witnessed(size) is not None for size in (1, 2, 3, 4))


# Other software


def test_three_witnesses_of_other_software(place: Path, tmp_path: Path) -> None:
    """PyPI's aics-witness, quorum 2: one is slow, one is dead; then the split view of the log is refused."""
    with ExitStack() as stack:
        real = [
            stack.enter_context(other_software(tmp_path / f"other{number}", f"witness.example.com/w{number}", [KEY]))
            for number in (1, 2)
        ]
        hung = stack.enter_context(hanging(3))
        policy = write_policy(place / config.POLICY, 2, *real, hung, dead(4), log=KEY)
        for size, epoch in enumerate((3, 4), start=1):
            settle(place, epoch)
            begun = time.monotonic()
            [asked] = ask(place, seconds=30)
            assert time.monotonic() - begun < 25  # it did not wait for the one that hangs
            assert (asked.reached, set(asked.cosigned)) == (True, {"w1", "w2"})
            assert shown(place) == size
        with opened(place) as ledger:
            bundle.export(ledger, 4, tmp_path / "epoch-4")
        assert verify(tmp_path / "epoch-4", key=str(KEY), policy=policy).recomputed
        # Two ledgers under one key, one trial flipped: both bundles verify, and only one of them is witnessed.
        forked = ledger_folder(tmp_path / "forked" / "small")
        shutil.copy(policy, forked / config.POLICY)
        for epoch in (3, 4):
            settle(forked, epoch, outcome="fail")
        first, refused = ask(forked, seconds=5)
        assert not first.reached
        assert not refused.reached
        assert all("has signed 2 entries" in first.failed[name] for name in ("w1", "w2"))
        assert all("another history" in refused.failed[name] for name in ("w1", "w2"))
        assert shown(forked) == 0


def test_a_fork_is_kept_as_evidence_and_proven(place: Path, tmp_path: Path, ours: list[RunningWitness]) -> None:
    write_policy(place / config.POLICY, 2, *ours)
    settle(place, 3)
    ask(place)
    forked = ledger_folder(tmp_path / "forked" / "small")
    shutil.copy(place / config.POLICY, forked / config.POLICY)
    settle(forked, 3, outcome="fail")
    [refused] = ask(forked)
    assert not refused.reached
    assert all("it has seen another history of this log (status 422)" in why for why in refused.failed.values())
    path = refused.evidence[0]
    assert path.parent == forked / FORKS
    small, large = check_fork(path.read_bytes()).checkpoints()
    assert (small.size, large.size) == (1, 1)


def test_a_log_that_was_rolled_back_is_told(place: Path, tmp_path: Path, ours: list[RunningWitness]) -> None:
    write_policy(place / config.POLICY, 2, *ours)
    settle(place, 3)
    back = copied(place, tmp_path / "back" / "small")
    ask(place)
    settle(place, 4)
    ask(place)
    [asked] = ask(back)
    assert not asked.reached
    assert all(
        f"it has signed 2 entries of this log already; both checkpoints are in {back}" in why for why in asked.failed.values()
    )
    assert {document["schema"] for document in kit.documents(back / FORKS)} == {"assay.checkpoints/1"}


def test_the_client_of_other_software_takes_our_witness(place: Path, tmp_path: Path) -> None:
    """aics-witness' feeder: it keeps sizes, retries 409, and checks the line that it gets."""
    for epoch in (3, 4, 5):
        settle(place, epoch)
    sizes = {}
    with opened(place) as ledger:
        for epoch in (3, 4, 5):
            receipt = ledger.receipt(epoch)
            (tmp_path / f"{receipt.position + 1}.note").write_bytes(receipt.checkpoint)
        for old in range(4):
            for new in range(old, 4):
                sizes[f"{old} {new}"] = [hash_.hex() for hash_ in ledger.log.consistency(old, new)]
    (tmp_path / "proofs.json").write_text(json.dumps(sizes))
    with serving(tmp_path, 1, [KEY]) as witness:
        done = _other_client(tmp_path, witness, "1", "3", "3")
        assert done.stdout.split() == ["1", "3", "3"], done.stderr
        assert "WitnessAhead" in _other_client(tmp_path, witness, "2").stderr
        other = ledger_folder(tmp_path / "forked")
        settle(other, 3, outcome="fail")
        settle(other, 4)
        settle(other, 5)
        (tmp_path / "3.note").write_bytes((other / "log/checkpoint").read_bytes())
        assert "WitnessRejected" in _other_client(tmp_path, witness, "3").stderr


CLIENT = """
import json, pathlib, sys
from aics_witness.feeder import WitnessClient
url, vkey, *sizes = sys.argv[1:]
proofs = json.loads(pathlib.Path("proofs.json").read_text())
client = WitnessClient(url, vkey)
for size in sizes:
    note = pathlib.Path(f"{size}.note").read_text()
    line = client.submit(note, lambda old, new: [bytes.fromhex(one) for one in proofs[f"{old} {new}"]])
    assert line.startswith("\\u2014 example.net/w1 ")
    print(size)
"""


def _other_client(place: Path, witness: RunningWitness, *sizes: str) -> subprocess.CompletedProcess[str]:
    command = [str(kit.OTHERS / "python"), "-c", CLIENT, witness.url, witness.vkey, *sizes]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=120)


# Slow, dead and lying ones


@contextmanager
def hanging(number: int) -> Iterator[RunningWitness]:
    """A witness that takes a request, and answers only when the test is over."""
    over = threading.Event()

    def wait(_: bytes) -> tuple[int, bytes, str]:
        over.wait(60)
        return 503, b"", "text/plain"

    with saying(number, wait) as witness:
        try:
            yield witness
        finally:
            over.set()


def lines(number: int, body: bytes) -> bytes:
    """What an honest witness of this number says to a request."""
    text = cosigning.text_of(body.partition(b"\n\n")[2])
    return cosigning.cosign(text, f"example.net/w{number}", kit.signer(number), int(time.time())).encode()


LIES = {
    "nothing": (200, b"", "text/plain", "its answer is no cosignature"),
    "words": (200, b"yes\n", "text/plain", "its answer is no cosignature"),
    "a lot": (200, b"x" * 300_000, "text/plain", "more than 262144 bytes"),
    "a size each time": (409, b"0\n", "text/x.tlog.size", "it names another size each time"),
    "a size beyond": (409, b"99\n", "text/x.tlog.size", "it has signed 99 entries of this log already; it does not show which"),
    "no size": (409, b"-1\n", "text/x.tlog.size", "another history"),
    "a size as text": (409, b"0\n", "text/plain", "another history"),
    "another root": (422, b"no\n", "text/plain", "another history of this log (status 422); it does not show which"),
    "a stranger": (404, b"unknown\x1b[31m\n", "text/plain", "it answers with status 404: unknown"),
    "an error": (500, b"", "text/plain", "it answers with status 500"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lie", LIES)
def test_a_witness_that_lies_delays_nothing_but_the_quorum(lie: str, place: Path, ours: list[RunningWitness]) -> None:
    status, body, kind, says = LIES[lie]
    settle(place, 3)
    with saying(4, lambda _: (status, body, kind)) as liar:
        write_policy(place / config.POLICY, 1, liar)
        [asked] = ask(place)
        assert not asked.reached
        assert says in asked.failed["w1"]
        assert "\x1b" not in asked.failed["w1"]
        assert not (place / FORKS).exists()
        write_policy(place / config.POLICY, 2, liar, *ours)
        [asked] = ask(place)
        assert asked.reached
    assert shown(place) == 1
    assert b"example.net/w4" not in (place / "log/checkpoint").read_bytes()


def test_a_cosignature_of_another_checkpoint_or_key_does_not_count(place: Path) -> None:
    settle(place, 3)
    elsewhere = note.sign_checkpoint(1, bytes(32), KEY, SIGNER)
    other = lines(2, b"old 0\n\n" + elsewhere)
    for number, answer in ((1, lambda body: lines(2, body)), (2, lambda _: other)):
        with saying(number, lambda body, answer=answer: (200, answer(body), "text/plain")) as liar:  # type: ignore[misc]
            write_policy(place / config.POLICY, 1, liar)
            [asked] = ask(place)
            assert "no cosignature" in asked.failed["w1"]
    assert shown(place) == 0


def test_other_lines_of_an_answer_are_left_out(place: Path) -> None:
    settle(place, 3)
    with saying(1, lambda body: (200, lines(1, body) + lines(7, body), "text/plain")) as witness:
        write_policy(place / config.POLICY, 1, witness)
        assert ask(place)[0].reached
    data = (place / "log/checkpoint").read_bytes()
    assert b"example.net/w1" in data
    assert b"example.net/w7" not in data


def test_what_a_liar_shows_as_evidence_is_checked(place: Path) -> None:
    """Only what the log's key signed is evidence."""
    settle(place, 3)
    for shows in (
        b"anything",
        note.sign_checkpoint(9, bytes(32), note.log_key(KEY.name, keys.from_seed(bytes(32)).public), keys.from_seed(bytes(32))),
    ):
        with saying(1, lambda _: (422, b"", "text/plain"), lambda shows=shows: shows) as liar:  # type: ignore[misc]
            write_policy(place / config.POLICY, 1, liar)
            [asked] = ask(place)
            assert "it does not show which" in asked.failed["w1"]
    own = (place / "log/signed").read_bytes()
    with saying(1, lambda _: (422, b"", "text/plain"), lambda: own) as liar:
        write_policy(place / config.POLICY, 1, liar)
        [asked] = ask(place)
        assert asked.failed["w1"].endswith("(status 422)")
    assert not (place / FORKS).exists()


def test_dead_and_silent_ones_are_named(place: Path) -> None:
    settle(place, 3)
    with hanging(1) as hung:
        write_policy(place / config.POLICY, 1, hung, dead(2))
        [asked] = ask(place, seconds=1.0)
    assert not asked.reached
    assert asked.failed.keys() == {"w1", "w2"}
    assert shown(place) == 0


def test_a_size_that_a_witness_passed_is_passed_over(place: Path) -> None:
    """It signed a later checkpoint of ours already, and signs no older one any more."""
    honest = [False]

    def says(body: bytes) -> tuple[int, bytes, str]:
        size = Checkpoint.parse(cosigning.text_of(body.partition(b"\n\n")[2])).size
        known = 3 if honest[0] else size
        if body.startswith(b"old %d\n" % known) and size == known:
            return 200, lines(1, body), "text/plain"
        return 409, b"%d\n" % known, "text/x.tlog.size"

    with saying(1, says) as witness:
        write_policy(place / config.POLICY, 1, witness)
        settle(place, 3)
        assert ask(place)[0].reached
        settle(place, 4)
        settle(place, 5)
        honest[0] = True
        assert [(asked.size, asked.reached) for asked in ask(place)] == [(2, False), (3, True)]
    assert shown(place) == 3


# The policy


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"log {note.log_key('example.org/other', keys.from_seed(bytes(32)).public)}\nquorum none\n", "does not name this log"),
        (f"witness w1 {vkey(1)}\nquorum w1\n", "only 0 of its 1 witnesses have a URL"),
        (f"witness w1 {vkey(1)} example.net/w1\nquorum w1\n", "the URL of w1 is not one"),
        ("quorum w1\n", "not a witness or group above"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(text: str, says: str, place: Path) -> None:
    with opened(place) as ledger:
        ledger.config.policy.unlink()
        assert policy_of(ledger) is None
        ledger.config.policy.write_text(text)
        with pytest.raises(BadInput, match=says):
            policy_of(ledger)


# The server


def test_the_server_refuses_what_is_too_large_or_no_method(ours: list[RunningWitness]) -> None:
    url = ours[0].url
    for path, body, status in (("/add-checkpoint", b"x" * 2_000_000, 413), ("/add-checkpoint", b"", 400), ("/nothing", b"", 404)):
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(url + path, data=body, method="POST"), timeout=10)
        with refused.value as answer:
            assert answer.status == status
    for path in ("/add-checkpoint", f"/{'0' * 64}/checkpoint", f"/{hashlib.sha256(KEY.name.encode()).hexdigest()}/checkpoint"):
        with pytest.raises(HTTPError) as refused:
            urlopen(url + path, timeout=10)
        with refused.value as answer:
            assert answer.status in (404, 405)


def test_a_witness_that_cannot_keep_its_state_signs_nothing(
    place: Path, tmp_path: Path, ours: list[RunningWitness], capsys: pytest.CaptureFixture[str]
) -> None:
    write_policy(place / config.POLICY, 1, ours[0])
    settle(place, 3)
    (tmp_path / "w1" / hashlib.sha256(KEY.name.encode()).hexdigest()).write_bytes(b"not ours")
    [asked] = ask(place)
    assert "status 503: the witness cannot keep its state now" in asked.failed["w1"]
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{ours[0].url}/{hashlib.sha256(KEY.name.encode()).hexdigest()}/add", timeout=10)
    with refused.value as answer:
        assert answer.status == 404
    assert "bring it back from a copy" in capsys.readouterr().err


# Kills


def worker(folder: str, epochs: int) -> int:
    """Settle epoch after epoch, and have each cosigned, as an operator does; returns the last."""
    place = Path(folder)
    with opened(place) as ledger:
        with ledger.store.reading() as view:
            last = view.settled_epoch() or 2
        policy = policy_of(ledger)
        assert policy is not None
        asking = LogWitnesses(policy, seconds=10)
        for _ in asking.bring_up(ledger):
            pass
        for epoch in range(last + 1, last + 1 + epochs):
            add(place, records(epoch=epoch))
            settling.settle(ledger, SIGNER, epoch)
            for _ in asking.bring_up(ledger):
                pass
    return last + epochs


KILLS = 200 if FULL else 5


def test_no_kill_shows_an_older_checkpoint_or_one_without_its_quorum(
    place: Path, tmp_path: Path, ours: list[RunningWitness]
) -> None:
    policy = write_policy(place / config.POLICY, 2, *ours, log=KEY)
    rules, over, wrong, looks = read_policy(policy), threading.Event(), list[str](), 0

    def look() -> None:
        nonlocal looks
        size = 0
        while not over.is_set():
            data = (place / "log/checkpoint").read_bytes()
            now = check.check_checkpoint(data, [KEY])
            if now.size < size:
                wrong.append(f"{now.size} after {size}")
            if now.size:
                cosigning.check_policy(rules, data, KEY)
            size, looks = now.size, looks + 1

    def safely() -> None:
        try:
            look()
        except (BadInput, CheckError, OSError) as error:
            wrong.append(repr(error))

    reader = threading.Thread(target=safely)
    reader.start()
    random_seconds = random.Random(22)
    warm = Warm(tmp_path, "test_witnesses")
    try:
        killed = sum(warm.killed(worker, str(place), 1000, after=random_seconds.uniform(0.02, 0.6)) for _ in range(KILLS))
        last = warm.ask(worker, str(place), 1)
    finally:
        warm.close()
        over.set()
        reader.join()
    assert wrong == []
    assert killed == KILLS
    assert looks > 0
    assert shown(place) == last - 2
    with opened(place) as ledger, ledger.store.reading() as view:
        assert all(view.witnessed(size) is not None for size in range(1, last - 1))
        bundle.export(ledger, last, tmp_path / "last")
    assert verify(tmp_path / "last", key=str(KEY), policy=policy).recomputed
    print(f"{last - 2} epochs, {looks} looks, {killed} kills", file=sys.stderr)
    assert os.listdir(place / "log")
