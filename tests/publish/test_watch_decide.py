"""What a watch decides, row by row: no clock, no chain."""

from dataclasses import replace

import pytest

from assay.publish.decisions import ALARMS, Away, ChainCheck, Facts, Memory, Publish, Rest, alarms, decide, waiting
from assay.publish.outcome import Confirmed, Outcome, Planned, Refusal, Sent, TooEarly, Unknown
from assay.publish.publishers import Pulse

NOW = 1_000_000.0
EVERY = 60.0
PULSE = Pulse(now=1000, last=900, tempo=100, seconds=12.0)
FACTS = Facts(settled=3, published=None, waiting=3, since=NOW, begun=NOW, pulse=None)


@pytest.mark.parametrize(
    ("settled", "published", "begun", "newest", "every"),
    [
        ([], None, None, None, None),
        ([3], None, None, 3, 3),
        ([1, 2, 3], None, None, 3, 3),  # what was settled before there was a target is not sent after all
        ([1, 2, 3], None, 2, 3, 2),
        ([1, 2, 3], 1, 1, 3, 2),
        ([1, 4, 9], 1, 1, 9, 4),
        ([1, 2, 3], 3, 1, None, None),
        ([1, 2], 3, 1, None, None),  # a ledger that was put back
        ([1, 2], None, 5, 2, 2),
        ([0], None, 0, 0, 0),
        ([0, 1], 0, 0, 1, 1),
    ],
)
def test_what_waits(settled: list[int], published: int | None, begun: int | None, newest: int | None, every: int | None) -> None:
    assert waiting(settled, published, begun, every_epoch=False) == newest
    assert waiting(settled, published, begun, every_epoch=True) == every


def after(outcome: Outcome, times: int = 1, ago: float = 0.0, epoch: int = 3) -> Memory:
    """What is remembered when the last of so many tries came to this, so many seconds ago."""
    memory = Memory()
    for _ in range(times):
        memory = memory.tried(epoch, outcome, NOW - ago)
    return memory


@pytest.mark.parametrize(
    ("memory", "pulse", "rest"),
    [
        (Memory(), None, 0),
        (after(Refusal("c", "w"), epoch=2), None, 0),  # another epoch's outcome says nothing of this one
        # Refused, or not known: later and later, and looked at every round meanwhile.
        (after(Refusal("c", "w")), None, 60),
        (after(Refusal("c", "w"), ago=59), None, 1),
        (after(Refusal("c", "w"), ago=60), None, 0),
        (after(Refusal("c", "w"), 2, ago=60), None, 60),
        (after(Refusal("c", "w"), 2, ago=119), None, 1),
        (after(Unknown("w"), 3, ago=239), None, 1),
        (after(Unknown("w"), 3, ago=240), None, 0),
        (after(Unknown("w"), 1000, ago=3599), None, 1),
        (after(Unknown("w"), 1000, ago=3600), None, 0),
        (after(Planned(), ago=60), None, 0),
        # The chain has it, not deep enough: a round later, however often.
        (after(Sent("0x"), 9, ago=59), None, 1),
        (after(Sent("0x"), 9, ago=60), None, 0),
        # Too early, by a time.
        (after(TooEarly(int(NOW) + 10, "time", "w")), None, 10),
        (after(TooEarly(int(NOW) + 1000, "time", "w")), None, 60),
        (after(TooEarly(int(NOW), "time", "w"), ago=5), None, 0),
        (after(TooEarly(int(NOW) - 100, "time", "w")), None, 60),  # the chain's clock is behind ours
        (after(TooEarly(int(NOW) + 10**6, "time", "w"), ago=3600), None, 0),  # ours is behind the chain's
        # Too early, by a block.
        (after(TooEarly(1003, "block", "w"), ago=60), PULSE, 36),
        (after(TooEarly(2000, "block", "w"), ago=60), PULSE, 60),
        (after(TooEarly(2000, "block", "w"), ago=3600), PULSE, 0),
        (after(TooEarly(1000, "block", "w"), ago=60), PULSE, 0),
        (after(TooEarly(1000, "block", "w")), PULSE, 12),  # not again in the same block
        (after(TooEarly(1003, "block", "w"), ago=50), None, 10),  # where the chain does not say how fast it is
        # In the chain, locked: about when the chain opens it.
        (after(Sent("0x", 1003), ago=60), PULSE, 36),
        (after(Sent("0x", 2000), ago=3600), PULSE, 0),
        (after(Sent("0x", 1003), ago=50), None, 10),
        # Of a time to come, since the clock was set back: now.
        (after(Refusal("c", "w"), ago=-1), None, 0),
        (after(Unknown("w"), 1000, ago=-(10.0**9)), None, 0),
        (after(TooEarly(int(NOW) + 10**6, "time", "w"), ago=-1), None, 0),
        (after(Sent("0x"), ago=-1), None, 0),
        # Something does not answer: less and less often.
        (Memory().silent("gone", "go", NOW), None, 60),
        (Memory().silent("gone", "go", NOW - 200), None, 100),
        (Memory().silent("gone", "go", NOW - 9999), None, 600),
        (Memory(broken="it"), None, 60),
    ],
)
def test_what_is_done(memory: Memory, pulse: Pulse | None, rest: float) -> None:
    decision = decide(replace(FACTS, pulse=pulse), memory, NOW, EVERY)
    assert decision == (Rest(rest) if rest else Publish(3))


def test_where_nothing_waits_it_rests() -> None:
    assert decide(replace(FACTS, waiting=None), after(Confirmed(1)), NOW, EVERY) == Rest(EVERY)


def test_what_is_remembered() -> None:
    failed = after(Unknown("w"), 3)
    assert failed.failures == 3
    assert failed.tried(4, Unknown("w"), NOW).failures == 1
    for fine in (Confirmed(1), TooEarly(1, "block", "w"), Sent("0x")):
        assert failed.tried(3, fine, NOW).failures == 0
    away = Memory().heard(PULSE, NOW).silent("one", "", NOW).silent("two", "", NOW + 5)
    assert (away.away, away.pulse) == (Away(NOW, "two", ""), PULSE)
    assert away.silent("three", "", NOW - 9).away == Away(NOW - 9, "three", "")  # the clock was set back
    assert away.heard(None, NOW + 9) == Memory(pulse=PULSE, pulse_at=NOW)


def codes(facts: Facts, memory: Memory, patience: float | None = None, now: float = NOW) -> list[str]:
    return [alarm.code for alarm in alarms(facts, memory, now, patience)]


@pytest.mark.parametrize(
    ("last", "now", "expected"),
    [
        (800, 1000, []),  # two tempos, to the block
        (799, 1000, ["nothing-set"]),
        (1000, 1000, []),
        (None, 1000, []),
    ],
)
def test_nothing_set_for_two_tempos(last: int | None, now: int, expected: list[str]) -> None:
    pulse = replace(PULSE, last=last, now=now)
    for epoch in (3, None):
        assert codes(replace(FACTS, waiting=epoch, pulse=pulse), Memory(pulse=pulse)) == expected


def test_nothing_set_ever_since_it_was_first_tried() -> None:
    pulse = replace(PULSE, last=None)
    for ago, expected in ((2 * 100 * 12 + 11, []), (2 * 100 * 12 + 12, ["nothing-set"])):
        assert codes(replace(FACTS, begun=NOW - ago, pulse=pulse), Memory()) == expected


def test_nothing_set_goes_by_the_clock_while_nothing_is_heard() -> None:
    heard = Memory().heard(PULSE, NOW - 1200)  # a hundred blocks ago
    for memory in (heard.silent("gone", "go", NOW), replace(heard, broken="it")):
        assert "nothing-set" not in codes(FACTS, memory)
        assert "nothing-set" in codes(FACTS, memory, now=NOW + 12)
        assert "nothing-set" not in codes(FACTS, memory, now=0.0)  # the clock was set back


def test_what_is_to_be_done_depends_on_whether_something_waits() -> None:
    pulse = replace(PULSE, last=1)
    (kept,) = alarms(replace(FACTS, pulse=pulse), Memory(), NOW, None)
    (idle,) = alarms(replace(FACTS, pulse=pulse, waiting=None), Memory(), NOW, None)
    assert (kept.hint, idle.hint) == ("see what keeps epoch 3 from the chain", "settle the next epoch")


def test_away_for_two_tempos() -> None:
    known, unknown = Memory().heard(replace(PULSE, last=1000), NOW), Memory()
    for seconds, expected in ((2400, []), (2401, ["unreachable"])):
        assert codes(FACTS, known.silent("gone", "go", NOW - seconds)) == expected
        assert codes(FACTS, unknown.silent("gone", "go", NOW - seconds)) == []
    assert codes(replace(FACTS, waiting=None), unknown.silent("gone", "go", NOW - 11), patience=10) == ["unreachable"]


def test_away_from_the_beginning_for_an_hour() -> None:
    for seconds, expected in ((3600, []), (3601, ["unreachable"])):
        assert codes(FACTS, Memory().silent("gone", "go", NOW - seconds)) == expected


def test_a_refusal_alarms_until_something_else_waits() -> None:
    refused = after(Refusal("c", "the round has other scores", "find out whose"))
    (alarm,) = alarms(FACTS, refused, NOW, None)
    assert (alarm.code, alarm.what, alarm.hint) == (
        "refused",
        "epoch 3 is refused: the round has other scores",
        "find out whose",
    )
    assert codes(replace(FACTS, waiting=4), refused) == []
    assert codes(replace(FACTS, waiting=None), refused) == []
    (without,) = alarms(FACTS, after(Refusal("c", "w")), NOW, None)
    assert "`assay publish`" in without.hint
    for fine in (Unknown("w"), Sent("0x"), TooEarly(1, "block", "w"), Planned()):
        assert codes(FACTS, after(fine)) == []


def test_late_by_patience() -> None:
    for ago, expected in ((100, []), (101, ["late"])):
        assert codes(replace(FACTS, since=NOW - ago), Memory(), patience=100) == expected
        assert codes(replace(FACTS, since=NOW - ago, waiting=None), Memory(), patience=100) == []
    # What the chain takes only from a time on does not wait before it; a block is no time.
    old = replace(FACTS, since=NOW - 10_000)
    assert codes(old, after(TooEarly(int(NOW) - 100, "time", "w")), patience=100) == []
    assert codes(old, after(TooEarly(int(NOW) - 101, "time", "w")), patience=100) == ["late"]
    assert codes(old, after(TooEarly(1, "block", "w")), patience=100) == ["late"]
    # Nor does what is locked, until a tempo after the chain should have opened it.
    for opens, late in ((PULSE.now - PULSE.tempo, []), (PULSE.now - PULSE.tempo - 1, ["late"])):
        assert codes(replace(old, pulse=PULSE), after(Sent("0x", opens)), patience=100) == late
    assert codes(old, after(Sent("0x", 1)), patience=100) == []
    assert codes(old, after(Sent("0x")), patience=100) == ["late"]


def test_several_at_once_and_every_code_is_known() -> None:
    facts = replace(FACTS, published=2, since=0.0, pulse=replace(PULSE, last=0))
    memory = replace(
        after(Refusal("c", "w")),
        shut=Refusal("c", "w"),
        checked=ChainCheck(2, 0.0, Refusal("c", "w")),
        away=Away(0.0, "gone", "go"),
        broken="ledger.toml",
    )
    assert sorted(codes(facts, memory, patience=1)) == sorted(ALARMS)
