"""Validators that a scheme leaves out because an audit saw their false claims: the receipt names the audit. docs/auditing.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import audit_kit
import ledger_kit
import small_folder
from assay.errors import Refused
from assay.ledger import audit_log, auditing, bundle, keys, settling
from assay.ledger.verify import verify

AUDITOR = keys.read(b"55" * 32)
LIAR = ledger_kit.V1
Lies = Callable[[Any], bool]


def audit_of(place: Path, lies: Lies, epoch: int = 3) -> tuple[Path, str]:
    """An audit of epoch 3, in which these claims are false, and the digest of its payload."""
    seen = auditing.audited_epoch(place / "epoch-3", str(ledger_kit.KEY))
    randomness = auditing.given("ab" * 32)
    predicate = auditing.predicate_of(seen, randomness, audit_kit.carried_out(seen, randomness.value, lies))
    payload = auditing.statement_of(predicate | {"epoch": epoch})
    path = audit_log.append(place / "audits", "example.org/small/audits", AUDITOR, payload)
    return path, f"sha256:{sha256(payload).hexdigest()}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("failed") / "small"
    audit_kit.witnessed(place, audit_kit.RULES + 'failed = "leave-out"\n[consensus]\nmin_validators = 2\n')
    return place


def settled(place: Path, digest: str, target: Path) -> Path:
    """The bundle of the next epoch, in which the registry names the audit."""
    header, *rows = (place / "validators.csv").read_text().splitlines()
    if "failed_audit" not in header:
        header += ",failed_audit"
        rows = [f"{row}," for row in rows]
    rows = [f"{row.rpartition(',')[0]},{digest}" if row.startswith(LIAR) else row for row in rows]
    (place / "validators.csv").write_text("\n".join([header, *rows, ""]))
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        epoch = view.settled_epochs()[-1] + 1
    row = small_folder.record(validator=ledger_kit.V2, participant="m1", submission="s1", task="t00", epoch=epoch)
    ledger_kit.add(place, [row])
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, epoch)
        bundle.export(ledger, epoch, target)
    return target


def test_the_receipt_names_the_audit_that_leaves_a_validator_out(place: Path, tmp_path: Path) -> None:
    path, digest = audit_of(place, lambda trial: trial.validator == LIAR)
    where = settled(place, digest, tmp_path / "epoch-4")
    marked = [row.get("failed_audit") for row in json.loads((where / "inputs.json").read_bytes())["validators"]]
    assert marked.count(digest) == 1
    report = verify(where, key=str(ledger_kit.KEY))
    assert report.settlement is not None
    for row in report.settlement.document["agreed"]:
        assert [(other["validator"], other["reason"]) for other in row["not_counted"]] == [(LIAR, "audit-failed")]
    told = [result for result in report.checked if result.stage == "audit"]
    assert [(result.done, "not in the bundle" in result.what) for result in told] == [(False, True)]
    (where / "audits").mkdir()
    (where / "audits" / path.name).write_bytes(path.read_bytes())
    told = [result for result in verify(where, key=str(ledger_kit.KEY)).checked if result.stage == "audit"]
    assert [result.done for result in told] == [True]
    assert f"{LIAR} is left out" in told[0].what
    assert "were false" in told[0].what


@pytest.mark.parametrize(
    ("lies", "epoch", "why"),
    [
        (lambda trial: trial.validator != LIAR, 3, "saw no false claim"),
        (lambda trial: trial.validator == LIAR, 99, "no earlier epoch"),
    ],
    ids=["another's lies", "a later epoch"],
)
def test_an_audit_that_does_not_say_so_is_refused(place: Path, tmp_path: Path, lies: Lies, epoch: int, why: str) -> None:
    path, digest = audit_of(place, lies, epoch)
    where = settled(place, digest, tmp_path / "epoch")
    (where / "audits").mkdir()
    (where / "audits" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(Refused, match=why):
        verify(where, key=str(ledger_kit.KEY))
