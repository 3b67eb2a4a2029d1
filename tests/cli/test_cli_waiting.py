"""A payout waits for judgements until its scoring deadline, and no longer. SPEC 5."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import ledger_kit
import small_folder
from assay.ledger import keys
from cli_kit import output, refused, rewrite
from ledger_kit import SIGNER

SCHEME = (
    small_folder.SCHEMES["rubric"]
    + '[consensus]\nmin_validators = 1\nmin_stake = "0"\n[reward]\nkind = "payout"\n'
    + '[payout]\ndeposit = "1000"\nscoring_deadline = 2999-01-01T00:00:00Z\n'
)
LATER, PAST = "2999-01-01", "2020-01-01"
WAITS = "m2 has no agreed score yet, and judging goes on until 2999-01-01T00:00:00Z; judge what is missing"


def evidence(*records: Mapping[str, object]) -> str:
    return small_folder.lines([small_folder.record("rubric", **record) for record in records])


ONE = {"participant": "m1", "submission": "s1"}
UNJUDGED = {"participant": "m2", "submission": "s2", "outcome": "unjudged"}


@pytest.mark.parametrize("records", [(ONE,), (ONE, UNJUDGED)], ids=["missing", "unjudged"])
def test_before_the_deadline_nobody_is_settled_without(tmp_path: Path, records: tuple[Mapping[str, object], ...]) -> None:
    place = small_folder.make(tmp_path / "c", "rubric", scheme_toml=SCHEME, evidence=evidence(*records))
    out = tmp_path / "settlement.json"
    assert WAITS in refused("settle", place, "--output", out, code=1)
    assert not out.exists()
    early = json.loads(output("settle", place, "--early", "--json"))
    rewrite(place / "scheme.toml", LATER, PAST)
    after = json.loads(output("settle", place, "--json"))
    assert (
        early["payouts"]
        == after["payouts"]
        == [{"participant": "m1", "address": None, "place": 1, "gross": "1000", "fee": "0", "net": "1000"}]
    )  # an unjudged one does not hold the others up, and is no zero
    assert [row["score"] for row in after["agreed"]] == ["1", None]


def test_who_handed_nothing_in_or_the_same_is_not_waited_for(tmp_path: Path) -> None:
    rows = ["key,submission,submitted_at", "m1,s1,2026-11-02T09:00:00Z", "m2,s1,2026-11-03T09:00:00Z", "m3,,"]
    people = "".join(f"{row}\n" for row in rows)
    place = small_folder.make(tmp_path / "c", "rubric", scheme_toml=SCHEME, participants_csv=people, evidence=evidence(ONE))
    statuses = {row["participant"]: row["status"] for row in json.loads(output("settle", place, "--json"))["agreed"]}
    assert statuses == {"m1": "agreed", "m2": "duplicate", "m3": "no-quorum"}


def test_with_everybody_judged_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    records = (ONE, {"participant": "m2", "submission": "s2", "baseline": {"B1": False, "B2": True, "B3": True, "B4": True}})
    place = small_folder.make(tmp_path / "c", "rubric", scheme_toml=SCHEME, evidence=evidence(*records))
    assert json.loads(output("settle", place, "--json"))["ranking"] == ["m1", "m2"]


def test_a_ledger_keeps_nothing_before_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    keys.save("small-log", SIGNER)
    place = ledger_kit.ledger_folder(tmp_path / "small", "rubric", scheme_toml=SCHEME)
    ledger_kit.add(place, [record for record in ledger_kit.records("rubric") if record["participant"] == "m1"])
    assert WAITS in refused("settle", place, "--key", "small-log", code=1)
    assert "no epoch is settled yet" in refused("receipt", place, code=1)
    assert "Nothing was stored" in output("settle", place, "--dry-run")
    assert "entry 0 of" in output("settle", place, "--key", "small-log", "--early", columns=200)
    assert "as it was settled before" in output("settle", place, columns=200)  # what is settled is settled
    rewrite(place / "scheme.toml", LATER, PAST)
    ledger_kit.add(place, [record for record in ledger_kit.records("rubric", epoch=4) if record["participant"] == "m1"])
    assert "entry 1 of" in output("settle", place, "--key", "small-log", columns=200)
