"""Pages say that an epoch was audited, and who was wrong how often."""

from __future__ import annotations

from pathlib import Path

import audit_kit
import ledger_kit
from assay.ledger import audit_log, auditing
from assay.ledger.auditing import audited_epoch
from assay.serve.board import audited, board
from assay.serve.season import read
from assay.serve.validators import validators


def test_the_board_and_the_validators_page_tell_of_an_audit(tmp_path: Path) -> None:
    bundle = audit_kit.witnessed(tmp_path / "small")
    epoch, place = audited_epoch(bundle), bundle.parent
    assert list(audited(read(place))) == []
    randomness, seen = auditing.given("ab" * 32), dict[str, list[str]]()
    while wanted := auditing.next_trials(epoch, randomness.value, seen):
        for trial in wanted:
            lie = trial.validator == ledger_kit.V1 and not any(outcomes == ["fail"] * 3 for outcomes in seen.values())
            seen[trial.record] = ["fail"] * 3 if lie and trial.passed else ["pass" if trial.passed else "fail"]
    predicate = auditing.predicate_of(epoch, randomness, seen)
    assert predicate["verdict"] == "confirmed"
    audit_log.append(place / audit_log.AUDITS, "example.org/small/audits", ledger_kit.SIGNER, auditing.statement_of(predicate))
    season = read(place)
    judged = sum(row["validator"] == ledger_kit.V1 for row in predicate["judged"])
    sentences = [
        f"Audited at 5 % risk: {len(predicate['judged'])} of 120 trials judged again; the outcome is confirmed.",
        f"val-1 was wrong in 1 of {judged} trials of its own that were judged again.",
    ]
    assert list(audited(season)) == sentences
    assert [note for note in board(season)["notes"] if note in sentences] == sentences
    assert validators(season)["audited"] == sentences
