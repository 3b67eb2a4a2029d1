"""An operator's node and the witnesses of its logs: it asks by itself, and closes epochs as ever while they are away."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

import ledger_kit
import small_folder
from assay.ledger import config, cosigning, keys, settling
from assay.ledger.check import Checkpoint, LogKey
from assay.ledger.verify import verify
from assay.node import status, witnesses
from assay.node.alarms import of_operator
from assay.node.closing import Closer
from cli_kit import output
from ledger_kit import KEY, SIGNER
from test_closing import CLOCK, HOUR, START, Hand, season
from test_operator import SUBNET_SEED, key
from witness_kit import dead, serving, write_policy


def shown(place: Path) -> int:
    return Checkpoint.parse(cosigning.text_of((place / "log/checkpoint").read_bytes())).size


def test_each_epoch_is_cosigned_and_then_exported(tmp_path: Path) -> None:
    place = season(tmp_path)
    hand = Hand(place, export=tmp_path / "epochs")
    with serving(tmp_path, 1, [KEY]) as first, serving(tmp_path, 2, [KEY]) as two:
        policy = write_policy(place / config.POLICY, 2, first, two, log=KEY)
        for epoch in (1, 2):
            ledger_kit.add(place, ledger_kit.records(epoch=epoch))
            assert hand.look(epoch * HOUR) == list(range(1, epoch + 1))
            assert shown(place) == epoch
            assert verify(tmp_path / f"epochs/epoch-{epoch}", key=str(KEY), policy=policy).recomputed
    assert hand.messages.count("settled epoch 1: 2 agreed scores") == 1
    assert any(line.endswith("cosigned the log of 2 entries") for line in hand.messages)
    assert "unwitnessed" not in hand.status or hand.status["unwitnessed"] is None


def test_epochs_close_while_the_witnesses_are_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = season(tmp_path)
    hand = Hand(place, export=tmp_path / "epochs")
    write_policy(place / config.POLICY, 1, dead(1))
    for epoch in (1, 2):
        ledger_kit.add(place, ledger_kit.records(epoch=epoch))
        hand.look(epoch * HOUR)
    assert hand.look(2 * HOUR + 1) == [1, 2]
    assert shown(place) == 0
    assert not (tmp_path / "epochs").exists()
    assert hand.due.at == START.timestamp() + 2 * HOUR + 1 + witnesses.AGAIN_SECONDS
    row = hand.status["unwitnessed"][KEY.name]
    assert row["what"].startswith("the log of 1 entry waits for its witnesses (w1: ")
    assert [line for line in hand.messages if "waits for its witnesses" in line] == [row["what"]], "it is told once"
    assert "unwitnessed" in _alarms(place)
    monkeypatch.setattr(witnesses, "AGAIN_SECONDS", 0.0)
    again = Hand(place, export=tmp_path / "epochs")  # a node that was started anew
    again.look(2 * HOUR + 2)
    assert [line for line in again.messages if "waits for its witnesses" in line] == []
    assert again.status["unwitnessed"][KEY.name]["since"] == row["since"]
    with serving(tmp_path, 1, [KEY]) as witness:
        write_policy(place / config.POLICY, 1, witness)
        again.look(2 * HOUR + 70)
        assert shown(place) == 2
        again.look(2 * HOUR + 71)
    assert sorted(path.name for path in (tmp_path / "epochs").iterdir()) == ["epoch-2"]
    assert verify(tmp_path / "epochs/epoch-2", key=str(KEY), policy=place / config.POLICY).recomputed
    assert again.status["unwitnessed"] is None
    assert "unwitnessed" not in _alarms(place)


def _alarms(place: Path) -> list[str]:
    alarms = of_operator(place, status.content_of(place), None, [], datetime.now(UTC), working=True, free=None)
    return [alarm.code for alarm in alarms]


def test_a_policy_that_is_wrong_is_told(tmp_path: Path) -> None:
    place = season(tmp_path)
    hand = Hand(place)
    (place / config.POLICY).write_text("quorum w1\n")
    ledger_kit.add(place, ledger_kit.records(epoch=1))
    assert hand.look(HOUR) == [1]
    assert "not a witness or group above" in hand.status["unwitnessed"][KEY.name]["what"]
    (place / config.POLICY).unlink()
    Hand(place).look(HOUR + 1)
    assert status.content_of(place)["unwitnessed"] is None
    assert shown(place) == 1


def test_a_fork_is_an_alarm(tmp_path: Path) -> None:
    place = season(tmp_path)
    hand = Hand(place)
    with serving(tmp_path, 1, [KEY]) as witness:
        write_policy(place / config.POLICY, 1, witness)
        other = ledger_kit.ledger_folder(tmp_path / "other")
        write_policy(other / config.POLICY, 1, witness)
        ledger_kit.add(other, ledger_kit.records(epoch=1, outcome="fail"))
        with ledger_kit.opened(other) as ledger:
            settling.settle(ledger, SIGNER, 1)
        assert "1 checkpoint is cosigned" in output("ledger", "witness", other)
        ledger_kit.add(place, ledger_kit.records(epoch=1))
        hand.look(HOUR)
    row = hand.status["unwitnessed"][KEY.name]
    assert "another history" in row["what"]
    [file] = row["forked"]
    assert json.loads(Path(file).read_bytes())["schema"] == "assay.fork/1"


@pytest.mark.full
def test_a_subnet_has_witnesses_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path))
    key(tmp_path / "split.key", SUBNET_SEED)
    signer = keys.read(SUBNET_SEED)
    folders = []
    for name in ("one", "two"):
        scheme = small_folder.SCHEME.replace('name = "small"', f'name = "{name}"') + CLOCK
        people = "key,uid,submission,submitted_at\nm1,1,s1,2026-11-01T09:00:00Z\nm2,2,s2,2026-11-01T10:00:00Z\n"
        folders.append(
            ledger_kit.ledger_folder(tmp_path / name, origin=f"example.org/{name}", scheme_toml=scheme, participants_csv=people)
        )
        ledger_kit.add(folders[-1], ledger_kit.records(epoch=1))
    subnet = tmp_path / "subnet.toml"
    subnet.write_text('competitions = [{path = "one", share = "0.5"}, {path = "two", share = "0.5"}]\n')
    output("ledger", "init", subnet, "--origin", "example.org/subnet", "--key", "split")
    log = LogKey.parse(config.read(subnet).key)
    messages = list[str]()
    closer = Closer(
        folders,
        dict.fromkeys(folders, SIGNER) | {subnet: signer},
        messages.append,
        subnet=subnet,
        clock=lambda: START.timestamp() + HOUR,
    )
    with serving(tmp_path, 1, [log]) as witness:
        policy = write_policy(tmp_path / "subnet.witnesses.policy", 1, witness, log=log)
        closer.carry_out(wait=False)
    assert "subnet: w1 cosigned the log of 1 entry" in messages
    output("export", "emission", subnet, "1", "-o", tmp_path / "emission")
    report = verify(tmp_path / "emission", key=str(log), policy=policy)
    assert "witnesses" in [stage.stage for stage in report.checked]
    text = output("verify", tmp_path / "emission", "--key", str(log), "--policy", policy, columns=200)
    assert "cosigned by w1" in text
    assert "Not proven" not in text
    assert "Not proven" in output("verify", tmp_path / "emission", "--key", str(log), columns=200)
