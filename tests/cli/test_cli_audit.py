"""`assay audit`: one of three validators lies about two trials, and is found; infrastructure errors blame nobody."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
from assay.judge.terminal.record import TrialStore
from assay.ledger import beacon, keys
from assay.peers.http import Peer, PeerAnswer
from audit_kit import POLICY, RANDOMNESS, ROUND, ROUND_TIME, SIGNATURE, VKEY, WITNESS
from cli_kit import output, refused, run
from judge_kit import bubblewrap, make_agent, make_competition, make_task
from ledger_kit import SIGNER, V1, V2, V3, VALIDATORS

GIVEN = ("--randomness", "ab" * 32)
RULES = '\n[evidence]\nkeep = "work"\n[audit]\nplaces = 1\n'


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four tasks, of which ann solves two and bob one, judged by one validator and kept by three; nothing is signed yet."""
    bubblewrap()
    place = tmp_path_factory.mktemp("audit") / "c"
    for number in range(4):
        make_task(place / "tasks" / f"t{number}", instruction=f"Task {number}: write hello into out.txt.\n")
    make_competition(place, {"ann": "", "bob": ""})
    (place / "scheme.toml").write_text((place / "scheme.toml").read_text() + RULES)
    names = "".join(f"{name},{stake},val-{stake}\n" for stake, name in ((100, V1), (200, V2), (400, V3)))
    (place / "validators.csv").write_text(f"key,stake,name\n{names}")
    for who, solved in (("ann", "[01]"), ("bob", "0")):
        make_agent(place.parent / who, f'if grep -q "Task {solved}:" /instruction.md; then echo hello > out.txt; fi\n')
        run("submit", place, who, place.parent / who)
    run("run", place, "--validator", V1, "-q", code=None)
    for other in (V2, V3):
        shutil.copytree(TrialStore(place, V1).root, TrialStore(place, other).root)
    return place


def signed(judged: Path, place: Path, lies: set[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settled competition, in which the third validator says of bob that it passed these tasks."""
    monkeypatch.setenv("ASSAY_KEYS", str(place.parent / "keys"))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    keys.save("log", SIGNER)
    shutil.copytree(judged, place)
    [file] = (place / "evidence").glob("*.jsonl")
    seen = [json.loads(line) for line in file.read_text().splitlines()]
    shutil.rmtree(place / "evidence")
    run("ledger", "init", place, "--origin", ledger_kit.ORIGIN, "--key", "log")
    rows = [row | {"validator": name} for name in VALIDATORS for row in seen]
    for row in rows:
        if row["validator"] == V3 and row["participant"] == "bob" and row["task"] in lies:
            assert row["outcome"] == "fail"
            row["outcome"] = "pass"
    ledger_kit.add(place, rows)
    run("settle", place)
    return place


def audited(place: Path, *words: str | Path, code: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run("audit", "run", place, *GIVEN, *words, "--json", code=code).stdout)
    return document


def test_a_validator_that_lies_about_two_trials_is_found(judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = signed(judged, tmp_path / "c", {"t1", "t2"}, monkeypatch)
    plan = json.loads(output("audit", "draw", place, *GIVEN, "--json"))
    assert (plan["counted"], plan["draws"], plan["round"]) == (24, None, None)
    assert "all of them are judged again" in " ".join(output("audit", "draw", place, *GIVEN).split())
    audit = audited(place, code=1)
    false = [row for row in audit["judged"] if row["state"] == "false"]
    assert [(row["validator"], row["participant"], row["task"], row["seen"]) for row in false] == [
        (V3, "bob", task, ["fail"] * 3) for task in ("t1", "t2")
    ]
    assert audit["verdict"] == "refused"  # the two trials are why bob is first
    run("export", "epoch", place, "1", "-o", tmp_path / "epoch-1")
    printed = output("audit", "verify", audit["file"], tmp_path / "epoch-1", "--key", str(ledger_kit.KEY))
    assert f"{len(audit['judged'])} of 24 trials judged again" in " ".join(printed.split())
    assert "nothing shows that it was not chosen" in printed
    whole = Path(audit["file"])
    whole.write_bytes(whole.read_bytes().replace(b"index 0", b"index 7"))
    assert "beyond the tree" in refused("audit", "verify", whole, tmp_path / "epoch-1", code=1)


@pytest.mark.full
def test_an_honest_epoch_is_confirmed_and_faults_blame_nobody(
    judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = signed(judged, tmp_path / "c", set(), monkeypatch)
    (place / "tasks").rename(tmp_path / "tasks")
    assert "nobody is blamed" in refused("audit", "run", place, *GIVEN, code=1)
    assert not list((place / "audits").glob("*.audit"))
    [lost] = TrialStore(place, V3).root.glob("ann@*")
    lost.rename(tmp_path / "lost")
    (tmp_path / "more").mkdir()
    audit = audited(place, "--tasks", tmp_path / "tasks", "--work", tmp_path / "more", "--jobs", "2", code=1)
    wrong = [(row["validator"], row["participant"], row["state"]) for row in audit["judged"] if row["state"] != "held"]
    assert (wrong, audit["verdict"]) == ([(V3, "ann", "missing")] * 2, "refused")
    (tmp_path / "lost").rename(lost)
    audit = audited(place, "--tasks", tmp_path / "tasks", "-o", tmp_path / "again")
    assert ({row["state"] for row in audit["judged"]}, audit["verdict"]) == ({"held"}, "confirmed")
    assert "judged again" in output("audit", "run", place, *GIVEN, "--tasks", tmp_path / "tasks")


@pytest.mark.full
def test_drand_decides_once_the_epoch_is_witnessed(judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = signed(judged, tmp_path / "c", set(), monkeypatch)
    assert "no round of drand is fixed" in refused("audit", "draw", place)
    (place / "witnesses.policy").write_text(POLICY)
    assert "too few witnesses" in refused("audit", "draw", place, code=1)
    with ledger_kit.opened(place) as ledger:
        from assay.ledger import cosigning

        note = ledger.receipt(1).checkpoint
        line = cosigning.cosign(cosigning.text_of(note), VKEY.name, WITNESS, ROUND_TIME - 600)
        ledger.cosigned(cosigning.merged(note, [line]), 1)
    asked: list[str] = []
    body = json.dumps({"round": ROUND, "randomness": RANDOMNESS, "signature": SIGNATURE}).encode()

    def ask(_peer: Peer, _method: str, url: str | None = None, **_: object) -> PeerAnswer:
        asked.append(str(url))
        return PeerAnswer(404 if len(asked) == 1 else 200, (), body)

    monkeypatch.setattr(Peer, "ask", ask)
    plan = json.loads(output("audit", "draw", place, "--json"))
    assert plan["round"] == ROUND
    assert plan["trials"]
    assert asked == [address + beacon.path_of(ROUND) for address in beacon.ADDRESSES]
    monkeypatch.setattr("time.time", lambda: ROUND_TIME - 1.0)
    assert "comes at 2023-08-23 15:59:24 UTC" in output("audit", "draw", place)
