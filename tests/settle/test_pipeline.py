"""The pipeline as a whole: settlements are values, hand their clocks on, and refuse a draw without randomness. SPEC 2–6."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.errors import BadInput
from assay.records import Participant, Validator, record
from assay.scheme.load import parse
from assay.settle import Inputs, settle
from assay.settle.inputs import Own

SCHEME = '[scheme]\nname = "g"\n[score]\nkind = "given"\n[consensus]\nmin_validators = 1\n'


def inputs(more: str = "", score: str = "0.5") -> Inputs:
    fields = {"kind": "given", "epoch": 3, "participant": "p", "submission": "s", "observed_at": "2026-01-01T00:00:00Z"}
    return Inputs(
        scheme=parse(SCHEME + more),
        epoch=4,
        participants=(Participant("p", uid=1, submission="s"),),
        validators=(Validator("v", 10), Validator("w", 5)),
        evidence=[record(fields | {"validator": name, "score": score}) for name in ("v", "w")],
    )


def test_a_settlement_is_a_value() -> None:
    settlement, same, other = settle(inputs()), settle(inputs()), settle(inputs(score="0.6"))
    assert settlement == same
    assert hash(settlement) == hash(same)
    assert settlement != other
    assert settlement != settlement.document
    assert (settlement.epoch, settlement.digest) == (4, settlement.document["digest"])


def test_a_settlement_hands_its_clocks_on() -> None:
    first = settle(inputs())
    previous = first.handed_on
    assert (previous.scheme, previous.epoch, previous.task_set) == ("g", 4, None)
    assert previous.clock.participants == {"p": Own(submission="s", best=500_000_000, last=4)}
    later = settle(replace(inputs(score="0.7"), epoch=20, previous=previous))
    assert later.clock.participants == {"p": Own(submission="s", best=700_000_000, last=4)}, "the submission is not new"
    assert later.weights["p"].kept == 700_000_000


def test_an_explanation_is_of_this_settlement() -> None:
    assert settle(inputs()).explain("p").participant == "p"


def test_a_draw_needs_the_randomness_of_the_epoch_of_acceptance() -> None:
    drawn = inputs("assign = 1\n")
    with pytest.raises(BadInput, match=r"no randomness of epoch 3.*randomness\.csv"):
        settle(drawn)
    settled = settle(replace(drawn, randomness={3: bytes(32)}))
    assert settled.seats.drawn is not None
    assert settled.seats.drawn.sum() == 1
    assert settled.seats.totals[0] in (5, 10)


def test_a_settlement_reads_as_tables() -> None:
    assert settle(inputs()).to_arrow().weights.column("participant").to_pylist() == ["p", None]


def test_a_scheme_that_pays_out_has_no_weights() -> None:
    paid = settle(inputs('[reward]\nkind = "payout"\n[payout]\ndeposit = "100"\nthreshold_bps = 5000\n'))
    assert paid.weights == {}
    assert paid.payouts is not None
    assert (paid.document["refund"], paid.document["burn"]) == ("0", None)
