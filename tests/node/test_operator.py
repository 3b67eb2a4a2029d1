"""`assay node operator` as people leave it running: real processes, kills, a simulated chain, a subnet of two competitions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import ledger_kit
import small_folder
import weights_kit
from assay.errors import BadInput
from assay.folder.files import write_text
from assay.folder.strict import load_note
from assay.ledger import batch, config, intake, keys
from assay.ledger.access import receipt_predicate
from assay.node import status
from assay.node.closing import Closer
from assay.records import record
from assay.scheme.fields import instant_text
from cli_kit import output, refused, run
from ledger_kit import SIGNER
from node_kit import until
from subtensor import Simulator
from test_closing import settled
from test_serve_process import children

EVERY = 3


def season(place: Path, *, every: int = EVERY, ago: int = 0) -> Path:
    """A competition whose epoch 1 began some seconds ago, with evidence of epoch 1; the log's key is a file beside it."""
    start = instant_text(datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=ago))
    rules = f'[epoch]\nevery = "{every}s"\nstart = "{start}"\ngrace = "1s"\n'
    folder = ledger_kit.ledger_folder(place / "small", scheme_toml=small_folder.SCHEME + rules)
    ledger_kit.add(folder, ledger_kit.records(epoch=1))
    key(place / "log.key", SIGNER_SEED)
    return folder


SIGNER_SEED, SUBNET_SEED = b"77" * 32, b"78" * 32


def key(file: Path, seed: bytes) -> None:
    file.write_bytes(seed)
    file.chmod(0o600)


@contextmanager
def node(place: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """An operator's node in a process of its own, and the file of what it prints."""
    out = place.with_suffix(".out")
    command = [sys.executable, "-m", "assay", "node", "operator", str(place), "--key", "log", "--port", "0", *options]
    environment = os.environ | {"ASSAY_KEYS": str(place.parent)}
    with out.open("a") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, text=True, env=environment)
    try:
        yield process, out
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()


def address(out: Path) -> str:
    """Where the competition's pages are, as the node says it last."""
    addresses = [line.split()[-1] for line in out.read_text().splitlines() if "serving at" in line]
    return addresses[-1] if addresses else ""


def healthy(out: Path) -> bool:
    return answers(address(out).removesuffix("small/") + "healthz")


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_one_process_serves_a_season_and_closes_its_epochs_whatever_is_killed(tmp_path: Path) -> None:
    place = season(tmp_path, ago=2 * EVERY)
    with node(place, "--catch-up") as (process, out):
        until(lambda: address(out) and healthy(out), "the service answers")
        until(lambda: len(settled(place)) >= 3, "two epochs had ended, and a third ends")
        assert address(out).endswith("/small/"), "the link that the operator shares"
        until(lambda: answers(address(out)), "it leads to the board")
        service, here = children(process.pid), address(out)
        for child in service:
            os.kill(child, signal.SIGKILL)
        until(lambda: healthy(out), "the service is begun again")
        assert address(out) == here
        process.kill()
        process.wait()
    epochs = settled(place)
    assert epochs == list(range(1, len(epochs) + 1))
    before = len(settled(place))
    with node(place) as (process, out):
        until(lambda: out.read_text().count("serving at") == 2, "the next node waits for the processes of the one before")
        until(lambda: len(settled(place)) > before, "a node that was killed goes on when it is begun again")
        process.terminate()
        assert process.wait(60) == 0
    epochs = settled(place)
    assert epochs == list(range(1, len(epochs) + 1))
    assert output("ledger", "check", place)


@pytest.mark.full
def test_a_second_operator_and_a_folder_without_a_key_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = season(tmp_path, every=3600)
    assert "does not say which key signs" in refused("node", "operator", place)
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path))
    with node(place, "--no-serve") as (_process, _out):
        until(lambda: "due" in load_note(place / "node" / "clock.json"), "the clock has looked")
        assert "works in this folder" in refused("node", "operator", place, "--key", "log", "--once", code=1)
    (place / "ledger.toml").unlink()
    assert "has no ledger" in refused("node", "operator", place, "--key", "log")


def test_once_closes_what_is_due_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path))
    place = season(tmp_path, every=60, ago=200)
    words = ("node", "operator", place, "--key", "log", "--once", "--export", tmp_path / "out")
    assert "epochs 1 to 3 have ended by [epoch]" in run(*words, code=1, columns=10_000).stderr
    text = output(*words, "--catch-up")
    assert "settled epoch 3" in text
    assert settled(place) == [1, 2, 3]
    assert (tmp_path / "out" / "epoch-3" / "settlement.json").exists()


@pytest.mark.full
def test_a_service_that_cannot_be_begun_ends_the_node(tmp_path: Path) -> None:
    place = season(tmp_path, every=3600)
    write_text(place / "scheme.toml", "")
    with node(place) as (process, out):
        assert process.wait(120) == 2, out.read_text()


@pytest.fixture
def chain(shared: Path) -> Iterator[Simulator]:
    with weights_kit.subnet(finality=0) as simulator:
        yield simulator


VAL = keys.read(weights_kit.secret("//Val").encode(), kind=keys.SR25519)


def miners(place: Path, chain: Simulator, rules: str, name: str = "small") -> Path:
    """A competition of the miners of the simulated subnet, from whose registry it takes uids and stakes; nothing is settled."""
    scheme = weights_kit.SCHEME.replace('"small"', f'"{name}"') + rules
    people = [f"{weights_kit.hotkey(uri)},s{uri.strip('/')}" for uri in weights_kit.SCORES]
    folder = ledger_kit.ledger_folder(
        place / name,
        "given",
        origin=f"example.org/{name}",
        scheme_toml=scheme,
        participants_csv="\n".join(["key,submission", *people, ""]),
        validators_csv=f"key,stake\n{VAL.public.id},1\n",
        tasks_txt=None,
    )
    return folder


def scores(place: Path, epoch: int) -> None:
    """What //Val gives each miner."""
    rows = [
        small_folder.record(
            "given",
            validator=VAL.public.id,
            epoch=epoch,
            participant=weights_kit.hotkey(uri),
            submission=f"s{uri.strip('/')}",
            score=score,
        )
        for uri, score in weights_kit.SCORES.items()
    ]
    terms, origin = intake.intake_rules(place), config.read(place).origin
    signed_batch = batch.make(
        [record(row) for row in rows], origin=origin, competition=terms.competition, task_set=terms.task_set, signer=VAL,
        validator=VAL.public.id,
    )  # fmt: skip
    with ledger_kit.opened(place) as ledger:
        intake.accept(ledger.store, signed_batch, terms)


def blocks(place: Path) -> list[tuple[int, int]]:
    """Each settled epoch with the block of its registry, as its receipt says it."""
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        return [(receipt.epoch, receipt_predicate(receipt)["registry"]["block"]) for receipt in view.receipts()]


@pytest.mark.full
def test_epochs_end_by_the_blocks_of_a_chain(tmp_path: Path, chain: Simulator) -> None:
    place = weights_kit.publish_toml(miners(tmp_path, chain, "[epoch]\ntempo = 20\n"), chain)
    messages = list[str]()
    closer = Closer([place], {place: SIGNER}, messages.append, target=(place, "sn"))
    first = chain.chain.head.number
    closer.carry_out(wait=False)
    scores(place, 1)
    chain.step(19)
    assert closer.carry_out(wait=False).at is not None
    assert settled(place) == []
    chain.step(3)
    closer.carry_out(wait=False)
    assert blocks(place) == [(1, first + 20)], "the registry is of the block at which the epoch ended"
    chain.step(60)
    closer.carry_out(wait=False)
    assert blocks(place) == [(1, first + 20), (2, first + 40), (3, first + 60), (4, first + 80)]
    (place / "node" / "clock.json").unlink()
    chain.step(20)
    closer.carry_out(wait=False)
    assert blocks(place)[-1] == (5, first + 100), "without its note it goes on from the receipt"


@pytest.mark.full
def test_the_competitions_of_a_subnet_are_closed_at_one_block_and_its_split_is_signed(tmp_path: Path, chain: Simulator) -> None:
    rules = "[epoch]\ntempo = 20\n"
    folders = [miners(tmp_path, chain, rules, name) for name in ("one", "two")]
    weights_kit.publish_toml(tmp_path, chain)
    subnet = tmp_path / "subnet.toml"
    subnet.write_text('competitions = [{path = "one", share = "0.5"}, {path = "two", share = "0.5"}]\n')
    key(tmp_path / "split.key", SUBNET_SEED)
    output("ledger", "init", subnet, "--origin", "example.org/subnet", "--key", tmp_path / "split.key")
    signers = dict.fromkeys(folders, SIGNER) | {subnet: keys.read(SUBNET_SEED)}
    closer = Closer(folders, signers, lambda line: None, subnet=subnet, target=(tmp_path, "sn"), export=tmp_path / "out")
    closer.carry_out(wait=False)
    scores(folders[0], 1)
    chain.step(21)
    closer.carry_out(wait=False)
    assert [settled(folder) for folder in folders] == [[1], []], "the second has no scores yet"
    scores(folders[1], 1)
    chain.step(22)
    closer.carry_out(wait=False)
    assert [settled(folder) for folder in folders] == [[1, 2], [1, 2]]
    assert blocks(folders[0])[1] == blocks(folders[1])[1]
    with ledger_kit.opened(subnet) as ledger, ledger.store.reading() as view:
        assert view.settled_epochs() == [1, 2]
    assert sorted(path.name for path in (tmp_path / "out" / "one").iterdir()) == ["epoch-1", "epoch-2"]


@pytest.mark.full
def test_what_is_settled_is_published_by_the_same_process(tmp_path: Path) -> None:
    with weights_kit.subnet(finality=0, block_time=0.25) as chain:
        place = weights_kit.publish_toml(miners(tmp_path, chain, "[epoch]\ntempo = 20\n"), chain)
        key(tmp_path / "log.key", SIGNER_SEED)
        scores(place, 1)
        with node(place, "--no-serve", "--registry", "sn") as (process, out):
            until(lambda: settled(place), "an epoch is settled")
            until(lambda: chain.get("SubtensorModule.Weights", weights_kit.NETUID, weights_kit.ME), "weights are on the chain")
            process.terminate()
            assert process.wait(60) == 0, out.read_text()
        assert dict(chain.get("SubtensorModule.Weights", weights_kit.NETUID, weights_kit.ME)) == weights_kit.WEIGHTS
        (target,) = json.loads(run("node", "status", place, "--json", code=None).stdout)["targets"]
        assert (target["target"], target["published"] in settled(place)) == ("sn", True), out.read_text()


def test_each_epoch_has_one_block_although_its_competitions_close_at_different_times(tmp_path: Path, chain: Simulator) -> None:
    start = instant_text(datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1))
    rules = f'[epoch]\nevery = "1h"\nstart = "{start}"\n'
    folders = [miners(tmp_path, chain, rules, name) for name in ("one", "two")]
    weights_kit.publish_toml(tmp_path, chain)
    messages = list[str]()
    closer = Closer(folders, dict.fromkeys(folders, SIGNER), messages.append, target=(tmp_path, "sn"))
    scores(folders[0], 1)
    closer.carry_out(wait=False)
    assert [settled(folder) for folder in folders] == [[1], []]
    chain.step(30)
    scores(folders[1], 1)
    again = Closer(folders, dict.fromkeys(folders, SIGNER), messages.append, target=(tmp_path, "sn"))
    again.carry_out(wait=False)
    assert [settled(folder) for folder in folders] == [[1], [1]]
    assert blocks(folders[0]) == blocks(folders[1])


def test_a_competition_that_cannot_be_settled_holds_up_no_other(tmp_path: Path) -> None:
    folders = [season(tmp_path / name, every=3600, ago=3600) for name in ("one", "two")]
    write_text(folders[0] / "scheme.toml", "[scheme]\nname =")
    messages = list[str]()
    closer = Closer(folders, dict.fromkeys(folders, SIGNER), messages.append)
    with pytest.raises(BadInput, match=r"scheme\.toml"):
        closer.carry_out(wait=False)
    assert settled(folders[1]) == [1]
    assert "scheme.toml" in status.note(folders[0])["trouble"]["what"]
    assert status.note(folders[1])["trouble"] is None


@pytest.mark.full
def test_a_target_that_is_wrong_is_an_alarm_and_the_season_goes_on(tmp_path: Path) -> None:
    place = season(tmp_path)
    write_text(place / "publish.toml", '[targets.wrong]\nkind = "nothing"\n')
    with node(place, "--catch-up") as (process, _out):
        until(lambda: len(settled(place)) >= 2, "epochs are closed")
        until(lambda: "target-broken" in [alarm.code for alarm, _ in status.read_status(place).alarms], "it is an alarm")
        assert process.poll() is None


def test_once_ends_with_3_while_a_target_has_an_alarm(tmp_path: Path, chain: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    keys.save("log", SIGNER)
    place = weights_kit.publish_toml(miners(tmp_path, chain, "[epoch]\ntempo = 20\n"), chain)
    words = ("node", "operator", place, "--key", "log", "--no-serve", "--once", "--registry", "sn")
    run(*words)
    (place / "hotkey").write_text(weights_kit.secret("//Nobody"))
    run(*words, code=3)
