"""Which alarms stand at a node, by its facts alone: each begins with its facts, and is over without them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assay.node.alarms import CODES, FREE, ROWS, SeasonFacts, Unjudged, ValidatorFacts, of_operator, of_validator
from assay.publish.alarms import Alarm, StandingAlarms

NOW = datetime(2026, 11, 2, 10, tzinfo=UTC)
LONG_AGO, JUST_NOW = "2026-11-02T09:00:00Z", "2026-11-02T09:59:00Z"
DIR = Path("arena")


def of(role: str, content: dict[str, Any], **how: Any) -> list[Alarm]:
    """The alarms of a node that works, on a disk with room."""
    how = {"working": True, "free": 2 * FREE} | how
    if role == "validator":
        return of_validator(DIR, content, NOW, **how)
    facts, targets = how.pop("facts", None), how.pop("targets", ())
    return of_operator(DIR, content | {"role": "operator"}, facts, targets, NOW, **how)


@pytest.mark.parametrize(
    ("role", "content", "code", "what", "hint"),
    [
        (
            "validator",
            {"trouble": {"what": "no key; take it", "hint": "take it", "since": LONG_AGO}},
            "trouble",
            "no key$",
            "^take it$",
        ),
        (
            "validator",
            {"away": True, "trouble": {"what": "silence", "since": LONG_AGO}},
            "service-away",
            "since .*Z: silence",
            "^$",
        ),
        ("validator", {"away": True, "trouble": {"what": "silence", "since": "no time"}}, "service-away", "silence", "^$"),
        ("validator", {"ahead": 42}, "clock", "at least 42 seconds ahead of the service's", "timedatectl"),
        ("validator", {"ahead": -42}, "clock", "at least 42 seconds behind the service's", "timedatectl"),
        ("validator", {"refused": ["b1: old"]}, "batch-refused", "refuses a batch: b1: old$", "stays"),
        ("validator", {"missing": list("abcde")}, "result-missing", "a, b, c and 2 more$", "every ten minutes"),
        ("validator", {"absent": ["m1: gone"]}, "submission-absent", "m1: gone", "tried again"),
        (
            "validator",
            {"uncalibrated": ["t3: its tests fail; mend it"]},
            "task-uncalibrated",
            "machine: t3: its tests fail$",
            "^mend it$",
        ),
        ("validator", {"uncalibrated": ["t3: fails"]}, "task-uncalibrated", "t3: fails$", "solution"),
        ("validator", {"conflicts": "2 records contradict; look"}, "contradiction", "2 records contradict$", "^look$"),
        ("validator", {"conflicts": "2 records contradict"}, "contradiction", "2 records contradict$", "one folder"),
        (
            "validator",
            {"telling": {"--webhook": {"what": "no", "since": LONG_AGO}}},
            "not-told",
            "told by --webhook: no",
            "again",
        ),
        ("operator", {"trouble": {"what": "no chain", "hint": "", "since": LONG_AGO}}, "trouble", "no chain", "^$"),
        (
            "operator",
            {"service": {"address": "http://h:1", "up": False}},
            "service-down",
            "http://h:1 does not run",
            "restarts it",
        ),
        (
            "operator",
            {"held": {"epoch": 4, "what": "nobody has", "hint": "wait"}},
            "epoch-held",
            "epoch 4 cannot .* nobody has",
            "^wait$",
        ),
        ("operator", {"telling": {"--on-alarm": {"what": "no", "since": LONG_AGO}}}, "not-told", "told by --on-alarm", "again"),
    ],
)
def test_what_a_node_notes_is_an_alarm_with_what_to_do(
    role: str, content: dict[str, Any], code: str, what: str, hint: str
) -> None:
    (alarm,) = of(role, content)
    assert (alarm.code, code in CODES[role]) == (code, True)
    assert re.search(what, alarm.what)
    assert re.search(hint, alarm.hint)
    assert of(role, dict.fromkeys(content)) == []


@pytest.mark.parametrize("role", ["validator", "operator"])
def test_a_node_that_is_well_has_no_alarm_and_one_that_does_not_run_has_one(role: str) -> None:
    fine = {"away": True, "trouble": {"what": "silence", "since": JUST_NOW}, "ahead": 5, "service": {"up": True}}
    assert of(role, fine) == []
    (alarm,) = of(role, {"url": "there"}, working=False)
    assert alarm.sentence.startswith(f"the node does not run; start it again: assay node {role} ")
    assert of(role, {"once": True}, working=False) == []
    (alarm,) = of(role, {}, free=FREE - 1)
    assert (alarm.code, alarm.what) == ("disk", "the disk is almost full: 1023 MiB are free")
    assert of(role, {}, free=None) == []


def test_of_many_alarms_of_a_code_some_are_named_and_the_others_counted() -> None:
    rows = of("validator", {"uncalibrated": [f"t{number}: fails" for number in range(ROWS + 3)]})
    assert (len(rows), rows[-1].what) == (ROWS + 1, "task-uncalibrated: 3 more")


def season(*heard: int | None, **changes: Any) -> SeasonFacts:
    """Validators val-1, val-2 … with 10, 20, 30 … of stake, heard of so many minutes ago."""
    rows = tuple(
        ValidatorFacts(f"val-{number}", 10 * number, None if ago is None else NOW - timedelta(minutes=ago))
        for number, ago in enumerate(heard, start=1)
    )
    facts = SeasonFacts(7, NOW - timedelta(days=1), rows, min_validators=2)
    return replace(facts, **changes)


def coded(facts: SeasonFacts) -> dict[str, str]:
    return {f"{alarm.code} {alarm.about}".strip(): alarm.what for alarm in of("operator", {}, facts=facts)}


def test_a_late_validator_is_named_with_its_stake_and_comes_back() -> None:
    assert coded(season(0, 5, 4)) == {}
    assert coded(season(0, 6, 0)) == {
        "validator-late val-2": "val-2 was not heard of since 2026-11-02T09:54:00Z, and has 33.3 % of the stake"
    }
    assert coded(season(0, None, 0)) == {"validator-late val-2": "val-2 was never heard of, and has 33.3 % of the stake"}
    assert coded(season(0, None, 0, since=NOW)) == {}, "the service has only begun to listen"
    (*_, alarm) = [row for row in of("operator", {}, facts=season(9, 9)) if row.code == "validator-late"]
    assert "look at the service first" in alarm.hint


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        (season(0, 9, 9), "the quorum of epoch 7 is in danger: 1 of the 2 validators that a quorum needs are heard of"),
        (
            season(0, 0, 9, min_stake=501_000_000),
            "the quorum of epoch 7 is in danger: those that are heard of have 50.0 % of the stake, and a quorum needs 51.6 %",
        ),
        (season(0, 0, 9, min_stake=500_000_000), None),
        (season(0, 0, min_validators=3), None),  # nobody is missing: the rules ask for more than there is
    ],
)
def test_a_quorum_in_danger_is_an_alarm_before_the_epoch_ends(facts: SeasonFacts, what: str | None) -> None:
    assert coded(facts).get("quorum") == what


def test_what_validators_tell_and_what_nobody_judges_reaches_the_operator() -> None:
    troubled = ValidatorFacts("val-2", 20, NOW, troubles=(("task-uncalibrated", "t3 does not calibrate"), ("disk", "it is full")))
    waits = (Unjudged("m1", 5), Unjudged("m2", 0, NOW - timedelta(hours=2)))
    alarms = coded(season(0, validators=(troubled,), min_validators=1, unjudged=waits))
    assert alarms == {
        "validator-tells val-2 task-uncalibrated 0": "val-2 tells: t3 does not calibrate",
        "validator-tells val-2 disk 1": "val-2 tells: it is full",
        "unjudged m1": "nobody has judged the submission of m1 since epoch 5, and others were judged",
        "unjudged m2": "nobody has judged the submission of m2 since 2026-11-02T08:00:00Z, and others were judged",
    }
    silent = ValidatorFacts("val-2", 20, NOW - timedelta(hours=1), troubles=troubled.troubles)
    assert not any("tells" in key for key in coded(season(0, validators=(silent,))))
    assert coded(season(wrong="the disk is gone")) == {"ledger": "the season cannot be looked at: the disk is gone"}


def test_what_a_watch_raises_is_the_operators_alarm_once_for_all_competitions() -> None:
    alarms = [{"code": "nothing-set", "what": "nothing was set", "hint": "settle"}]
    rows = [{"target": "finney", "at": "2126-11-23T12:00:00Z", "alarms": alarms}]
    (alarm,) = of("operator", {}, targets=rows)
    assert alarm == Alarm("target-nothing-set", "finney: nothing was set", "settle", "finney")
    assert of("operator", {}, targets=rows, whole=False, working=False, free=0) == []


def test_an_alarm_keeps_its_time_while_its_words_change_and_is_over_by_itself() -> None:
    standing = StandingAlarms()
    late, other = (Alarm("validator-late", "…", "", name) for name in ("val-1", "val-2"))
    assert standing.follow([late], 10).begun == ((late, 10),)
    longer = Alarm("validator-late", "for longer", "", "val-1")
    change = standing.follow([longer, other], 20)
    assert (change.begun, change.over, standing.alarms) == (((other, 20),), (), ((longer, 10), (other, 20)))
    assert standing.follow([other], 30).over == ((longer, 10),)
