"""The random cases: they are valid, they reach every rule, and what must hold of any settlement holds of theirs."""

import functools
import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given

from oracle import emission, settle
from oracle.cases import case_of, cases, chain, chain_of, emissions, minimise, removals, without
from oracle.defaults import filled
from oracle.evidence import key_of
from oracle.numbers import fraction
from oracle.pipeline import settle_exactly
from oracle.random_scheme import KINDS

Doc = dict[str, Any]


def settled_in_turn(steps: list[Doc]) -> list[Doc]:
    """The settlements of a chain, each fed to the next case as `previous`."""
    documents: list[Doc] = []
    for case in steps:
        case["previous"] = documents[-1] if documents else None
        documents.append(settle(case))
    return documents


def without_names(record: Doc) -> Doc:
    return {name: value for name, value in record.items() if name not in ("participant", "seq")}


@given(cases())
def test_cases_are_valid(case: Doc) -> None:
    rules = filled(case["scheme"])
    participants, validators = case["participants"], case["validators"]
    for rows in (participants, validators):
        assert len({row["key"] for row in rows}) == len(rows)
    uids = [row["uid"] for row in participants if row["uid"] is not None]
    assert len(set(uids)) == len(uids)
    assert rules["decay"]["burn_uid"] not in uids
    assert rules["reward"]["excess"] != "drop" or rules["reward"]["encoding"] == "round"
    epoch = case["epoch"] if case["epoch"] is not None else max(record["epoch"] for record in case["evidence"])
    for row in participants:
        assert (row["last_reset_epoch"] or 0) <= epoch
        assert (row["accepted_epoch"] or 0) <= epoch
    seen: dict[Any, Doc] = {}
    for record in case["evidence"]:
        assert record["participant"] in {row["key"] for row in participants}
        assert record["validator"] in {row["key"] for row in validators}
        first = seen.setdefault(key_of(record), record)
        assert ("seq" in record) == ("seq" in case["evidence"][0])
        assert "seq" in record or without_names(first) == without_names(record)


@given(cases())
def test_nothing_is_lost(case: Doc) -> None:
    exact = settle_exactly(case)
    document, rules = exact.document, filled(case["scheme"])
    assert {row["participant"] for row in document["agreed"]} == {row["key"] for row in case["participants"]}
    assert document["ranking"] == [row["participant"] for row in document["agreed"] if row["status"] == "agreed"]
    if rules["reward"]["kind"] == "payout":
        paid = sum(int(row["net"]) + int(row["fee"]) for row in document["payouts"])
        assert paid + int(document["refund"]) == int(rules["payout"]["deposit"])
        assert int(document["fees"]) == sum(int(row["fee"]) for row in document["payouts"])
        return
    assert sum((share for _, _, share in exact.shares), Fraction(0)) + exact.burn + exact.unallocated == 1
    assert all(share == 0 for _, uid, share in exact.shares if uid is None)
    if rules["reward"]["encoding"] == "exact-sum":
        assert sum(row["u16"] for row in document["weights"]) + document["burn"]["u16"] == 65535
    assert max([row["chain_u16"] for row in document["weights"]] + [document["burn"]["chain_u16"]]) == 65535


@given(cases())
def test_nobody_is_above_the_cap(case: Doc) -> None:
    limit = fraction(filled(case["scheme"])["reward"]["cap"])
    document = settle(case)
    for row in document["weights"]:
        assert fraction(row["capped"]) <= limit
        assert fraction(row["share"]) <= fraction(row["capped"])


@given(chain())
def test_settlements_of_a_chain_keep_their_clocks(steps: list[Doc]) -> None:
    documents = settled_in_turn(steps)
    for before, after in itertools.pairwise(documents):
        assert before["epoch"] < after["epoch"]
        best = {row["participant"]: fraction(row["best"]) for row in before["clock"]["participants"]}
        if before["task_set"] == after["task_set"]:
            now = {row["participant"]: fraction(row["best"]) for row in after["clock"]["participants"]}
            assert all(now[key] >= value for key, value in best.items())
        if after["clock"]["last"] is not None:
            assert after["clock"]["last"] <= after["epoch"]


@given(emissions())
def test_an_emission_split_gives_everything_out(case: Doc) -> None:
    document = emission(case)
    subnet = case["subnet"]
    assert sum(int(row["emission"]) for row in document["competitions"]) <= int(subnet["emission"])
    if subnet["encoding"] == "exact-sum":
        assert sum(row["u16"] for row in document["weights"]) + document["burn"]["u16"] == 65535
    whole = sum((fraction(row["share"]) for row in [*document["weights"], document["burn"]]), Fraction(0))
    assert abs(whole - 1) <= Fraction(len(document["weights"]) + 1, 10**9)


def test_a_seed_is_a_case() -> None:
    for kind in KINDS:
        assert case_of(5, kind) == case_of(5, kind)
        assert chain_of(5, kind)[0]["participants"] == case_of(5, kind)["participants"]


def what_happened(case: Doc, document: Doc) -> set[tuple[str, Any]]:
    """The rules that a settlement touched."""
    rules = filled(case["scheme"])
    facts: set[tuple[str, Any]] = {("kind", rules["score"]["kind"]), ("method", rules["outliers"]["method"])}
    facts |= {("combine", rules["consensus"]["combine"]), ("epoch left out", case["epoch"] is None)}
    for row in document["agreed"]:
        facts |= {("status", row["status"]), ("reason", row["reason"]), ("majority", row["flagged_majority"])}
        facts |= {("not counted", item["reason"]) for item in row["not_counted"]}
        facts |= {("excluded", item["excluded"]) for item in row["validators"]}
    if document["burn"] is None:
        return facts | {("tier", document["tier_bps"]), ("places", len(document["payouts"]))}
    if document["weights"]:
        for name in ("strategy", "cap", "excess", "encoding"):
            facts.add((name, rules["reward"][name]))
        facts |= {("curve", rules["decay"]["curve"]), ("clock", rules["decay"]["clock"])}
        facts |= {("reset", rules["decay"]["reset"]), ("improvement_mode", rules["decay"]["improvement_mode"])}
        facts |= {("burnt", name) for name in ("strategy", "cap", "decay", "unregistered") if document["burn"][name] != "0"}
        facts |= {("unallocated", document["unallocated"] != "0"), ("decayed", any(row["stale"] for row in document["weights"]))}
    return facts


@functools.cache
def happenings() -> Counter[tuple[str, Any]]:
    """How often each rule was touched in some hundred chains of fixed seeds."""
    counted: Counter[tuple[str, Any]] = Counter()
    for kind in KINDS:
        for seed in range(120):
            steps = chain_of(seed, kind)
            for case, document in zip(steps, settled_in_turn(steps), strict=True):
                counted.update(what_happened(case, document))
    return counted


REACHED: dict[str, list[Any]] = {
    "kind": list(KINDS),
    "status": ["duplicate", "unjudged", "incomplete", "no-quorum", "agreed"],
    "reason": ["no-evidence", "too-few-validators", "too-little-stake", "stake-after-outliers", "missing-trials"],
    "not counted": ["not-assigned", "no-stake", "stake-below-minimum", "unjudged", "incomplete", "no-tasks"],
    "excluded": [True],
    "majority": [True],
    "method": ["modified-z", "z", "none"],
    "combine": ["stake-mean", "stake-median", "mean"],
    "strategy": ["linear", "direct", "softmax", "winner-takes-all", "quadratic", "ranked"],
    "excess": ["redistribute", "drop", "burn"],
    "encoding": ["round", "exact-sum", "max-upscale"],
    "curve": ["linear", "exponential", "none"],
    "clock": ["participant", "competition"],
    "reset": ["improvement", "update"],
    "improvement_mode": ["relative", "absolute"],
    "burnt": ["strategy", "cap", "decay", "unregistered"],
    "unallocated": [True],
    "decayed": [True],
    "tier": [0, 2500, 5000, 10000],
    "places": [1, 2, 3],
    "epoch left out": [True],
}


@pytest.mark.full
@pytest.mark.no_cover
def test_random_cases_reach_every_rule() -> None:
    times = happenings()
    assert not {(rule, value) for rule, values in REACHED.items() for value in values if times[rule, value] < 3}


@pytest.mark.no_cover
def test_a_failing_case_is_cut_down_to_what_it_needs() -> None:
    def fails(case: Doc) -> bool:
        try:
            return any(row["status"] == "agreed" for row in settle(case)["agreed"])
        except (KeyError, ValueError, TypeError, ZeroDivisionError):
            return False

    case = minimise(next(case for seed in range(99) if fails(case := case_of(seed, "given"))), fails)
    assert len(case["participants"]) == 1
    assert fails(case)
    assert not any(fails(without(case, path)) for path in removals(case))
