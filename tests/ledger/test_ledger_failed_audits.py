"""Validators that a scheme leaves out because an audit saw their false claims: the receipt names the audit. docs/auditing.md."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import audit_kit
import ledger_kit
from assay.errors import Refused
from assay.ledger.verify import verify

LIAR = ledger_kit.V1
Lies = Callable[[Any], bool]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("failed") / "small"
    audit_kit.witnessed(place, audit_kit.LEAVES_OUT)
    return place


def test_the_receipt_names_the_audit_that_leaves_a_validator_out(place: Path, tmp_path: Path) -> None:
    path, digest = audit_kit.signed_audit(place, lambda trial: trial.validator == LIAR)
    where = audit_kit.marked(place, LIAR, digest, tmp_path / "epoch-4")
    marked = [row.get("failed_audit") for row in json.loads((where / "inputs.json").read_bytes())["validators"]]
    assert marked.count(digest) == 1
    report = verify(where, key=str(ledger_kit.KEY))
    assert report.settlement is not None
    for row in report.settlement.document["agreed"]:
        assert [(other["validator"], other["reason"]) for other in row["not_counted"]] == [(LIAR, "audit-failed")]
    results = [result for result in report.checked if result.stage == "audit"]
    assert [result.done for result in results] == [True]  # the export has the audit
    assert f"{LIAR} is left out" in results[0].what
    assert "were false" in results[0].what
    assert (where / "audits" / path.name).read_bytes() == path.read_bytes()
    shutil.rmtree(where / "audits")
    results = [result for result in verify(where, key=str(ledger_kit.KEY)).checked if result.stage == "audit"]
    assert [(result.done, "not in the bundle" in result.what) for result in results] == [(False, True)]


@pytest.mark.parametrize(
    ("lies", "epoch", "why"),
    [
        (lambda trial: trial.validator != LIAR, 3, "saw no false claim"),
        (lambda trial: trial.validator == LIAR, 99, "no earlier epoch"),
    ],
    ids=["another's lies", "a later epoch"],
)
def test_an_audit_that_does_not_say_so_is_refused(place: Path, tmp_path: Path, lies: Lies, epoch: int, why: str) -> None:
    path, digest = audit_kit.signed_audit(place, lies, epoch)
    where = audit_kit.marked(place, LIAR, digest, tmp_path / "epoch")
    assert path.name in [there.name for there in (where / "audits").iterdir()]
    with pytest.raises(Refused, match=why):
        verify(where, key=str(ledger_kit.KEY))


def test_a_mark_without_the_option_is_kept_and_not_looked_at(tmp_path: Path) -> None:
    place = tmp_path / "small"
    audit_kit.witnessed(place, audit_kit.LEAVES_OUT.replace('failed = "leave-out"\n', ""))
    _, digest = audit_kit.signed_audit(place, lambda trial: trial.validator == LIAR)
    where = audit_kit.marked(place, LIAR, digest, tmp_path / "epoch-4")
    results = [result for result in verify(where, key=str(ledger_kit.KEY)).checked if result.stage == "audit"]
    assert [(result.done, "leaves nobody out" in result.what) for result in results] == [(False, True)]
