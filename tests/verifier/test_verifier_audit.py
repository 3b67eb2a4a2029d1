"""The second verifier and audits: it makes the draw, the martingale and the verdict again, as Assay does. docs/auditing.md."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import audit_kit
import joint_kit
import ledger_kit
import verifier_kit
from assay.errors import Refused
from assay.ledger import audit_log, auditing, beacon, keys
from assay.ledger.auditing import AuditedEpoch, AuditRandomness, audited_epoch
from assay.ledger.verify import verify
from depth import depth
from verifier_kit import node, run

AUDITOR = keys.read(b"55" * 32)
ORIGIN = "example.org/small/audits"
SOURCE = {"round": audit_kit.ROUND, "randomness": audit_kit.RANDOMNESS, "signature": audit_kit.SIGNATURE}
CHANGED = Path(__file__).with_name("changed.mjs")
Predicate = dict[str, Any]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return audit_kit.witnessed(tmp_path_factory.mktemp("audit") / "small")


@pytest.fixture(scope="module")
def policy(bundle: Path) -> Path:
    return bundle.parent / "witnesses.policy"


@pytest.fixture(scope="module")
def epoch(bundle: Path, policy: Path) -> AuditedEpoch:
    return audited_epoch(bundle, str(ledger_kit.KEY), policy)


def with_a_lie(epoch: AuditedEpoch, randomness: AuditRandomness) -> Predicate:
    """An audit that finds one false claim."""
    first = auditing.next_trials(epoch, randomness.value, {})[0]
    return auditing.predicate_of(epoch, randomness, audit_kit.carried_out(epoch, randomness.value, lambda trial: trial == first))


@pytest.fixture(scope="module")
def predicate(epoch: AuditedEpoch) -> Predicate:
    return with_a_lie(epoch, auditing.of_beacon(beacon.parse_round(json.dumps(SOURCE).encode(), epoch.round)))


def signed(place: Path, stated: Predicate) -> Path:
    return audit_log.append(place, ORIGIN, AUDITOR, auditing.statement_of(stated))


def checked(bundle: Path, policy: Path, audit: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return run(bundle, "--key", str(ledger_kit.KEY), "--policy", policy, "--audit", audit, *more)


def test_an_audit_is_computed_again(bundle: Path, policy: Path, predicate: Predicate, tmp_path: Path) -> None:
    audit = signed(tmp_path / "audits", predicate)
    process = checked(bundle, policy, audit)
    assert process.returncode == 0, process.stdout + process.stderr
    assert (
        f"audited at 5 % risk: {len(predicate['judged'])} of 120 trials judged again; the outcome is confirmed" in process.stdout
    )
    assert "whose audit it is" in process.stdout
    key = str(audit_log.read_audit(audit).key)
    shown = json.loads(checked(bundle, policy, audit, "--auditor", key, "--json").stdout)
    assert shown["audits"] == [predicate]
    assert [row["checked"] for row in shown["stages"] if row["stage"] == "audit"] == [True, False]


@pytest.mark.full
def test_an_audit_beside_a_bundle_or_within_it_or_alone(bundle: Path, predicate: Predicate, tmp_path: Path) -> None:
    audit = signed(tmp_path / "audits", predicate)
    alone = run(audit)
    assert alone.returncode == 0, alone.stderr
    assert "drop it together with the bundle" in alone.stdout
    with tarfile.open(tmp_path / "epoch.tar", "w") as archive:
        archive.add(bundle, arcname="epoch-3")
        archive.add(audit, arcname=f"epoch-3/audits/{audit.name}")
    with tarfile.open(tmp_path / "beside.tar", "w") as archive:
        archive.add(bundle, arcname="epoch-3")
        archive.add(audit, arcname="epoch-3/mine.audit")
    policy, missing = ("--policy", bundle.parent / "witnesses.policy"), "give the policy of its witnesses"
    within = run(tmp_path / "epoch.tar")  # a reader of a bundle that carries it need not have the policy
    assert (within.returncode, missing in within.stdout) == (0, True), within.stderr
    assert f"{len(predicate['judged'])} of 120 trials judged again" in within.stdout
    beside = run(tmp_path / "beside.tar")
    assert (beside.returncode, missing in beside.stderr) == (1, True)
    for archived in ("epoch.tar", "beside.tar"):
        process = run(tmp_path / archived, *policy)
        assert (process.returncode, missing in process.stdout) == (0, False), process.stderr


@pytest.mark.full
def test_every_field_of_a_carried_audit_is_red_in_both(bundle: Path, predicate: Predicate, tmp_path: Path) -> None:
    place = Path(shutil.copytree(bundle, tmp_path / "epoch-3"))
    audit = signed(tmp_path / "audits", predicate)
    (place / "audits").mkdir()
    shutil.copy(audit, place / "audits")
    every = [change for change in verifier_kit.changes(place) if change.path.startswith("audits/")]
    assert len(every) > 200
    some = every[:: depth(len(every) // 20, 1)]
    lines = ['{"path": null}', *(change.line() for change in some)]
    words = [node(), str(CHANGED), str(place), str(ledger_kit.KEY), "bulk"]
    done = subprocess.run(words, input="\n".join(lines), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    unchanged, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert unchanged["verified"], unchanged
    assert [answer["stage"] for answer in answers] == ["audit"] * len(some)
    for change in some:
        (place / change.path).write_bytes(change.data)
        with pytest.raises(Refused) as refused:
            verify(place, key=str(ledger_kit.KEY))
        assert refused.value.stage == "audit", change.where


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return f"{value[:-1]}{'1' if value[-1] == '0' else '0'}" if value[-1:].isalnum() else f"{value}0"
    return 1 if value is None else [*value, *value[-1:]] if isinstance(value, list) and value else [1]


def changes(stated: Predicate) -> dict[str, Predicate]:
    """Each field of the statement changed; of lists the first row's fields too, but what was seen: that is the auditor's word."""
    statements = {}
    for name, value in stated.items():
        if name == "software":
            continue
        statements[name] = stated | {name: _other(value)}
        row = value[0] if isinstance(value, list) and value else value
        for field in (field for field in row if field != "seen") if isinstance(row, dict) else ():
            inner = row | {field: _other(row[field])}
            statements[f"{name}.{field}"] = stated | {name: [inner, *value[1:]] if isinstance(value, list) else inner}
    return statements


def test_a_changed_field_is_red_in_both(bundle: Path, policy: Path, epoch: AuditedEpoch, tmp_path: Path) -> None:
    names, lines = list[str](), list[str]()
    for number, (name, stated) in enumerate(changes(with_a_lie(epoch, auditing.given("ab" * 32))).items()):
        with pytest.raises(Refused):
            auditing.check_statement(epoch, auditing.statement_of(stated))
        audit = signed(tmp_path / str(number), stated)
        names.append(name)
        lines.append(json.dumps({"path": "other.audit", "data": base64.b64encode(audit.read_bytes()).decode()}))
    words = [node(), str(CHANGED), str(bundle), str(ledger_kit.KEY), "plain", policy.read_text()]
    done = subprocess.run(words, input="\n".join(lines), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    stages = [json.loads(line)["stage"] for line in done.stdout.splitlines()]
    assert len(names) > 20
    assert dict(zip(names, stages, strict=True)) == dict.fromkeys(names, "audit")


@pytest.mark.full
def test_a_validator_is_left_out_for_an_audit_that_saw_its_lies(tmp_path: Path) -> None:
    place = tmp_path / "small"
    audit_kit.witnessed(place, audit_kit.LEAVES_OUT)
    lies = {
        ledger_kit.V1: (0, "claims that were judged again were false"),
        ledger_kit.V2: (1, "saw no false claim"),
    }
    for liar, (code, why) in lies.items():
        path, digest = audit_kit.signed_audit(place, partial(audit_kit.is_of, liar))
        where = audit_kit.marked(place, ledger_kit.V1, digest, tmp_path / digest[-8:])
        shutil.move(where / "audits", tmp_path / f"audits-{code}")  # the export has it
        assert "which is not here" in run(where).stdout
        process = run(where, "--audit", path)
        assert (process.returncode, why in process.stdout + process.stderr) == (code, True), process.stdout + process.stderr
    assert "is left out: an audit saw false claims of it" in run("explain", where, "m1").stdout


def test_the_audits_in_a_subnets_export_are_checked(tmp_path: Path) -> None:
    """Epoch 4 has an earlier split, so its `earlier.jsonl` is read too."""
    audit_kit.subnet(tmp_path)
    cases: list[tuple[int, list[object], str]] = [
        (3, [], "small: when the receipt was witnessed, which fixes the draw: give the policy of its witnesses"),
        (3, ["--policy", tmp_path / "one" / "witnesses.policy"], "small: audited at 5 % risk: "),
        (4, [], f"small: {ledger_kit.V1} is left out: "),
    ]
    for epoch, policy, words in cases:
        process = run(tmp_path / f"emission-{epoch}", "--key", joint_kit.KEY, *policy)
        assert (process.returncode, words in process.stdout) == (0, True), process.stdout + process.stderr
        assert ("give the policy" in process.stdout) == (epoch == 3 and not policy)
    for epoch in (3, 4):
        [path] = (tmp_path / f"emission-{epoch}").rglob("*.audit")
        path.write_bytes(path.read_bytes().replace(b"index 0", b"index 1"))
        process = run(tmp_path / f"emission-{epoch}", "--key", joint_kit.KEY)
        assert (process.returncode, "audit" in process.stderr) == (1, True), process.stdout + process.stderr
