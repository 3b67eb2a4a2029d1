"""From label events to counts, held against an oracle that looks at each epoch anew, event by event."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.github.counting import CountedIssue, LabelEvent, count_issues, ignored_labels, verdict_changes
from assay.judge.github.rules import IssueRules
from assay.scheme.reading import validate

BEGINS = datetime(2026, 11, 2, tzinfo=UTC)
RULES = validate(
    IssueRules,
    {
        "epochs": {"begins": BEGINS, "seconds": 3600},
        "labels": {"valid": ["valid", "confirmed"], "invalid": ["invalid"], "duplicate": ["duplicate"]},
        "maintainers": {
            "kestrel": 90,
            "merlin": {"id": 91, "since": BEGINS + timedelta(hours=1), "until": BEGINS + timedelta(hours=2)},
        },
        "repositories": {"acme/widget": 700},
    },
)
AUTHOR, KESTREL, MERLIN, STRANGER = 50, 90, 91, 60


def event(label: str, hours: float, by: int | None = KESTREL, *, off: bool = False, id: int = 0) -> LabelEvent:
    return LabelEvent(id or round(hours * 1000) + 1, BEGINS + timedelta(hours=hours), by, "somebody", label, not off)


def issue(*events: LabelEvent, moved: bool = False, author: int = AUTHOR) -> CountedIssue:
    return CountedIssue(1, author, "https://github.com/acme/widget/issues/1", "title", events, moved)


def counts(*events: LabelEvent, **more: bool) -> dict[int, tuple[int, int, int, int]]:
    rows = count_issues([issue(*events, **more)], AUTHOR, RULES)
    return {epoch: (row.valid, row.invalid, row.revoked_valid, row.revoked_invalid) for epoch, row in sorted(rows.items())}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([event("valid", 0.5)], {1: (1, 0, 0, 0)}),
        ([event("invalid", 1)], {2: (0, 1, 0, 0)}),
        ([event("duplicate", 0.5)], {1: (0, 0, 0, 0)}),
        ([event("help wanted", 0.5)], {}),
        ([event("valid", -0.001)], {}),
        ([event("VALID", 0.5)], {1: (1, 0, 0, 0)}),
        ([event("valid", 0.5), event("valid", 2.5, off=True)], {1: (1, 0, 0, 0), 3: (0, 0, 1, 0)}),
        ([event("valid", 0.5), event("invalid", 2.5)], {1: (1, 0, 0, 0), 3: (0, 1, 1, 0)}),
        ([event("invalid", 0.5), event("valid", 2.5)], {1: (0, 1, 0, 0), 3: (1, 0, 0, 1)}),
        ([event("valid", 0.5), event("duplicate", 2.5)], {1: (1, 0, 0, 0), 3: (0, 0, 1, 0)}),
        ([event("valid", 0.5), event("confirmed", 2.5)], {1: (1, 0, 0, 0)}),
        ([event("valid", 0.5), event("invalid", 0.6), event("invalid", 2.5, off=True)], {1: (0, 1, 0, 0), 3: (1, 0, 0, 1)}),
    ],
    ids=[
        "valid",
        "invalid",
        "duplicate",
        "other",
        "before",
        "case",
        "off",
        "worse",
        "better",
        "found double",
        "same",
        "under it",
    ],
)
def test_what_a_label_comes_to(events: list[LabelEvent], expected: dict[int, tuple[int, int, int, int]]) -> None:
    assert counts(*events) == expected


def test_a_label_that_flaps_within_an_epoch_counts_once() -> None:
    flapping = [event("valid", 0.1 + 0.01 * number, off=number % 2 == 1) for number in range(21)]
    assert counts(*flapping) == {1: (1, 0, 0, 0)}
    assert counts(*flapping, event("valid", 0.9, off=True)) == {}
    later = [event("valid", 1.1 + 0.01 * number, off=number % 2 == 0) for number in range(20)]
    assert counts(*flapping, *later) == {1: (1, 0, 0, 0)}


def test_events_of_one_second_go_by_their_id() -> None:
    first, second = event("valid", 0.5, id=1), event("valid", 0.5, off=True, id=2)
    assert counts(second, first) == counts(first, second) == {}
    assert counts(event("valid", 0.5, off=True, id=1), event("valid", 0.5, id=2)) == {1: (1, 0, 0, 0)}


def test_whose_label_it_is_decides() -> None:
    strange = [event("valid", 0.5, by=STRANGER), event("valid", 0.6, by=None), event("valid", 0.7, by=MERLIN)]
    assert counts(*strange) == {}
    assert [(ignored_label.event.actor, ignored_label.why) for ignored_label in ignored_labels(issue(*strange), RULES)] == [
        (STRANGER, "maintainer"),
        (None, "maintainer"),
        (MERLIN, "maintainer"),
    ]
    assert counts(event("valid", 1.5, by=MERLIN)) == {2: (1, 0, 0, 0)}
    assert counts(event("valid", 1.5, by=MERLIN), event("valid", 5, by=MERLIN, off=True)) == {2: (1, 0, 0, 0)}
    assert counts(event("valid", 0.5), event("valid", 2.5, by=STRANGER, off=True)) == {1: (1, 0, 0, 0)}


def test_the_author_decides_nothing_on_his_own_issue_even_as_a_maintainer() -> None:
    own = issue(event("valid", 0.5), author=KESTREL)
    assert count_issues([own], KESTREL, RULES) == {}
    assert [ignored_label.why for ignored_label in ignored_labels(own, RULES)] == ["author"]


def test_what_came_from_another_repository_counts_nowhere() -> None:
    assert counts(event("valid", 0.5), moved=True) == {}


def test_a_verdict_of_before_the_first_epoch_is_not_revoked_in_it() -> None:
    assert counts(event("valid", -1), event("valid", 0.5, off=True)) == {}
    assert counts(event("valid", -1), event("valid", 0.5, off=True), event("valid", 1.5)) == {2: (1, 0, 0, 0)}
    assert ignored_labels(issue(event("valid", -1, by=STRANGER)), RULES) == []


EVENTS = st.lists(
    st.builds(
        lambda label, minutes, by, off, id: LabelEvent(id, BEGINS + timedelta(minutes=minutes), by, "x", label, not off),
        st.sampled_from(["valid", "Confirmed", "invalid", "duplicate", "bug"]),
        st.integers(-60, 300),
        st.sampled_from([KESTREL, KESTREL, MERLIN, STRANGER, AUTHOR, None]),
        st.booleans(),
        st.integers(1, 50),
    ),
    max_size=14,
    unique_by=lambda event: (event.at, event.id),
)


def oracle_verdict(events: list[LabelEvent], until: datetime) -> str | None:
    """The verdict at a moment: look for the last deciding label that was set, and not taken off again since."""
    before = sorted((e for e in events if BEGINS <= e.at < until), key=lambda e: (e.at, e.id))
    verdicts = {"valid": "valid", "confirmed": "valid", "invalid": "invalid", "duplicate": "duplicate"}
    right = [
        e
        for e in before
        if e.label.lower() in verdicts
        and (e.actor == KESTREL or (e.actor == MERLIN and timedelta(hours=1) <= e.at - BEGINS < timedelta(hours=2)))
    ]
    for place in reversed(range(len(right))):
        mine = right[place]
        if mine.added and all(e.added or e.label.lower() != mine.label.lower() for e in right[place + 1 :]):
            return verdicts[mine.label.lower()]
    return None


@given(EVENTS)
def test_each_epoch_counts_the_difference_of_the_verdicts_at_its_ends(events: list[LabelEvent]) -> None:
    by_epoch = counts(*events)
    for epoch in range(1, 7):
        start, end = (oracle_verdict(events, BEGINS + timedelta(hours=hours)) for hours in (epoch - 1, epoch))
        expected = (0, 0, 0, 0)
        if start != end:
            expected = (int(end == "valid"), int(end == "invalid"), int(start == "valid"), int(start == "invalid"))
        assert by_epoch.get(epoch, (0, 0, 0, 0)) == expected


@given(EVENTS, st.integers(1, 6))
def test_what_comes_later_changes_no_epoch_that_is_over(events: list[LabelEvent], epoch: int) -> None:
    end = BEGINS + timedelta(hours=epoch)
    then = counts(*(e for e in events if e.at < end))
    assert then == {number: row for number, row in counts(*events).items() if number <= epoch}


@given(EVENTS)
def test_an_issue_is_never_worth_more_than_one(events: list[LabelEvent]) -> None:
    by_epoch = counts(*events)
    for epoch in range(1, 7):
        rows = [row for number, row in by_epoch.items() if number <= epoch]
        assert sum(row[0] - row[2] for row in rows) in (0, 1)
        assert sum(row[1] - row[3] for row in rows) in (0, 1)
    assert [change.epoch for change in verdict_changes(issue(*events), RULES)] == sorted(by_epoch)
