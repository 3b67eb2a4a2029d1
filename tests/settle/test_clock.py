"""The clocks of decay and what they burn: SPEC 4, Decay."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from assay.exact import NANO, nanos, text
from assay.records import History
from assay.scheme.model import Decay
from assay.settle import reward as decay_module
from assay.settle.inputs import Clock, Own
from assay.settle.reward import _power, burnt, each
from assay.settle.rewarding import AgreedScore, advance


def decay(**fields: Any) -> Decay:
    return Decay.model_validate(fields)


def at(epoch: int, *agreed: AgreedScore, before: Clock | None = None, rules: Decay | None = None, **more: Any) -> Clock:
    return advance(
        before=before,
        previous_task_set=more.get("previous_task_set"),
        task_set=more.get("task_set"),
        epoch=epoch,
        agreed=agreed,
        history=more.get("history", ()),
        rules=rules or decay(),
    )


def agreed_score(score: str, submission: str = "s1", key: str = "a", last_reset_epoch: int | None = None) -> AgreedScore:
    return AgreedScore(key, submission, nanos(score), last_reset_epoch)


# What is burnt.


def test_published_decay(shared: Path) -> None:
    cases = json.loads((shared / "vectors" / "decay.json").read_text())["cases"]
    assert cases
    for case in cases:
        rules = decay(curve=case["curve"])
        assert NANO - burnt(case["stale_since"], case["epoch"], rules)[1] == nanos(case["kept"]), case


def test_nothing_burns_without_a_curve_or_a_start() -> None:
    assert burnt(0, 1000, decay(curve="none")) == (0, 0)
    assert burnt(None, 1000, decay()) == (0, 0)
    assert burnt(1000, 1000, decay(curve="exponential")) == (0, 0)


def test_stale_epochs_start_after_the_grace() -> None:
    assert burnt(5, 15, decay()) == (0, 0)
    assert burnt(5, 16, decay()) == (1, NANO // 20)
    assert burnt(0, 2, decay(grace_epochs=0, curve="exponential", rate="0.5", max_burn="1")) == (2, 3 * NANO // 4)


def test_the_exponential_curve_rounds_half_to_even() -> None:
    rules = decay(curve="exponential", grace_epochs=0, rate="0.5", max_burn="1")
    # 0.5^10 = 0.0009765625: the burnt 0.9990234375 is a tie at the ninth digit.
    assert burnt(0, 10, rules) == (10, 999_023_438)
    assert burnt(0, 12, rules) == (12, 999_755_859)
    # 0.5^30 is just below a nano, 0.5^31 just below half of one.
    assert burnt(0, 30, rules)[1] == NANO - 1
    assert burnt(0, 31, rules)[1] == NANO


def test_rates_of_nothing_and_of_everything() -> None:
    for stale in (1, 63, 64, 65, 10**9):
        assert burnt(0, stale, decay(curve="exponential", grace_epochs=0, rate="0", max_burn="1")) == (stale, 0)
        assert burnt(0, stale, decay(curve="exponential", grace_epochs=0, rate="1", max_burn="1")) == (stale, NANO)
        assert burnt(0, stale, decay(curve="exponential", grace_epochs=0, rate="1", max_burn="30%")) == (stale, 3 * NANO // 10)


def test_a_huge_number_of_epochs_is_no_trouble() -> None:
    rules = decay(curve="exponential", grace_epochs=0, rate="0.000000001", max_burn="1")
    # (1 − 1e-9)^1e9 = e^-1·(1 − 0.5e-9 + …): 1 − 0.36787944098…
    assert burnt(0, 10**9, rules) == (10**9, 632_120_559)
    assert burnt(0, 2**53 - 1, rules) == (2**53 - 1, NANO)
    assert burnt(0, 2**53 - 1, decay(curve="exponential")) == (2**53 - 11, 8 * NANO // 10)
    assert burnt(0, 2**53 - 1, decay()) == (2**53 - 11, 8 * NANO // 10)


@given(
    rate=st.integers(0, NANO) | st.integers(0, 20).map(lambda n: n * NANO // 20) | st.integers(0, 1000),
    stale=st.integers(0, 400),
    most=st.integers(0, NANO),
    curve=st.sampled_from(["linear", "exponential"]),
)
@example(rate=1, stale=65, most=NANO, curve="exponential")
@example(rate=NANO - 1, stale=65, most=NANO, curve="exponential")
def test_burnt_is_what_the_fractions_say(rate: int, stale: int, most: int, curve: str) -> None:
    rules = decay(curve=curve, grace_epochs=3, rate=text(rate), max_burn=text(most))
    share = Fraction(rate, NANO)
    lost = share * stale if curve == "linear" else 1 - (1 - share) ** stale
    expected = round(min(lost, Fraction(most, NANO)) * NANO)
    assert burnt(7, 10 + stale, rules) == (stale, expected)


def test_rounding_takes_more_bits_where_the_first_do_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def coarse(kept: int, times: int, bits: int) -> tuple[int, int]:
        asked.append(bits)
        return _power(kept, times, bits) if len(asked) > 2 else (0, 1 << bits)

    monkeypatch.setattr(decay_module, "_power", coarse)
    assert burnt(0, 110, decay(curve="exponential", max_burn="1")) == (100, round((1 - Fraction(95, 100) ** 100) * NANO))
    assert [b // asked[0] for b in asked] == [1, 2, 4]


@given(kept=st.integers(1, NANO - 1), times=st.integers(0, 200), bits=st.integers(1, 100))
def test_a_long_power_is_enclosed(kept: int, times: int, bits: int) -> None:
    low, high = _power(kept, times, bits)
    assert Fraction(low, 1 << bits) <= Fraction(kept, NANO) ** times <= Fraction(high, 1 << bits)
    assert high - low <= 3 * times + 1


def test_each_is_burnt_of_each() -> None:
    lasts = [3, None, 3, 0]
    assert each(lasts, 15, decay()) == [burnt(last, 15, decay()) for last in lasts]


# The participants' own clocks.


def test_the_first_agreed_epoch_starts_a_participants_clock_unless_the_registry_knows_better() -> None:
    assert at(12, agreed_score("0.5")).participants == {"a": Own("s1", nanos("0.5"), 12)}
    assert at(12, agreed_score("0.5", last_reset_epoch=0)).participants["a"].last == 0
    # With an earlier settlement the registry's word does not count.
    assert at(12, agreed_score("0.5", last_reset_epoch=3), before=Clock()).participants["a"].last == 12


@pytest.mark.parametrize(
    ("reset", "submission", "score", "best", "last"),
    [
        ("improvement", "s2", "0.6", "0.6", 9),
        ("improvement", "s2", "0.5", "0.5", 4),  # new, but no better
        ("improvement", "s2", "0.4", "0.5", 4),
        ("improvement", "s1", "0.6", "0.6", 4),  # better, but the same
        ("improvement", "", "0.6", "0.6", 9),  # without a digest, every one is new
        ("update", "s2", "0.4", "0.5", 9),
        ("update", "s1", "0.6", "0.6", 4),
        ("update", "", "0.4", "0.5", 9),
    ],
)
def test_what_resets_a_participants_clock(reset: str, submission: str, score: str, best: str, last: int) -> None:
    before = Clock(participants={"a": Own("s1", nanos("0.5"), 4)})
    after = at(9, agreed_score(score, submission), before=before, rules=decay(reset=reset))
    assert after.participants == {"a": Own(submission, nanos(best), last)}


def test_an_empty_submission_is_new_even_after_an_empty_one() -> None:
    before = Clock(participants={"a": Own("", nanos("0.5"), 4)})
    assert at(9, agreed_score("0.6", ""), before=before).participants["a"].last == 9


def test_a_participant_that_is_not_agreed_keeps_its_clock() -> None:
    gone = Own("s9", nanos("0.9"), 2)
    before = Clock(participants={"gone": gone})
    assert at(9, agreed_score("0.5"), before=before).participants == {"gone": gone, "a": Own("s1", nanos("0.5"), 9)}


def test_a_new_task_set_restarts_both_clocks() -> None:
    before = Clock(nanos("0.9"), 2, "s1", {"a": Own("s1", nanos("0.9"), 2), "b": Own("s3", 1, 1)})
    after = at(9, agreed_score("0.4"), before=before, previous_task_set="t1", task_set="t2")
    assert after == Clock(nanos("0.4"), 9, "s1", {"a": Own("s1", nanos("0.4"), 9)})
    nobody = at(9, before=before, previous_task_set="t1", task_set="t2")
    assert nobody == Clock()


@pytest.mark.parametrize(("was", "now"), [("t1", "t1"), (None, "t2"), ("t1", None), (None, None)])
def test_a_task_set_that_is_not_known_restarts_nothing(was: str | None, now: str | None) -> None:
    before = Clock(nanos("0.9"), 2, "s1", {"a": Own("s1", nanos("0.9"), 2)})
    assert at(9, agreed_score("0.4"), before=before, previous_task_set=was, task_set=now) == before


# The competition's clock.


def test_the_first_positive_top_score_sets_the_record() -> None:
    assert at(9, agreed_score("0")).record is None
    assert at(9).last is None
    after = at(9, agreed_score("0.5", "s1", "a"), agreed_score("0.4", "s2", "b"))
    assert (after.record, after.last, after.submission) == (nanos("0.5"), 9, "s1")


@pytest.mark.parametrize(
    ("mode", "record", "score", "resets"),
    [
        ("relative", "0.5", "0.51", True),
        ("relative", "0.5", "0.509999999", False),
        ("absolute", "0.5", "0.52", True),
        ("absolute", "0.5", "0.519999999", False),
        ("relative", "0.99", "1", True),  # 1 for the first time
        ("relative", "1", "1", False),
        ("absolute", "0.99", "1", True),
        ("absolute", "0.99", "0.999999999", False),
    ],
)
def test_what_resets_the_competitions_clock(mode: str, record: str, score: str, resets: bool) -> None:
    before = Clock(nanos(record), 3, "s1")
    after = at(9, agreed_score(score, "s2"), before=before, rules=decay(improvement_mode=mode))
    expected = (nanos(score), 9, "s2") if resets else (nanos(record), 3, "s1")
    assert (after.record, after.last, after.submission) == expected


def test_only_a_new_submission_moves_the_record() -> None:
    before = Clock(nanos("0.5"), 3, "s1", {"b": Own("s2", nanos("0.5"), 3)})
    # s1 holds the record, s2 is what b had already; neither is new, however good it is now.
    assert at(9, agreed_score("0.9", "s1", "a"), agreed_score("0.8", "s2", "b"), before=before).record == nanos("0.5")
    # The best of the new ones is looked at, not the best of all.
    after = at(
        9,
        agreed_score("0.9", "s1", "a"),
        agreed_score("0.8", "s2", "b"),
        agreed_score("0.6", "s3", "c"),
        agreed_score("0.55", "s4", "d"),
        before=before,
    )
    assert (after.record, after.last, after.submission) == (nanos("0.6"), 9, "s3")
    # What b had, taken up by c, is new for c.
    assert at(9, agreed_score("0.8", "s2", "c"), before=before).record == nanos("0.8")
    # Without a digest every one is new, even after one without.
    before = Clock(nanos("0.5"), 3, "", {"b": Own("", nanos("0.5"), 3)})
    assert at(9, agreed_score("0.8", "", "b"), before=before).record == nanos("0.8")


def test_a_best_new_submission_that_improves_too_little_leaves_the_record() -> None:
    before = Clock(nanos("0.5"), 3, "s1")
    assert at(9, agreed_score("0.505", "s2"), agreed_score("0.4", "s3", "b"), before=before) == Clock(
        nanos("0.5"), 3, "s1", {"a": Own("s2", nanos("0.505"), 9), "b": Own("s3", nanos("0.4"), 9)}
    )


def row(epoch: int, score: str, submission: str = "", task_set: str = "") -> History:
    return History(epoch, nanos(score), submission, task_set)


def test_history_is_replayed_in_the_order_of_epochs() -> None:
    history = [row(4, "0.52", "s2"), row(1, "0", "s0"), row(2, "0.5", "s1"), row(3, "0.9", "s1"), row(9, "1", "s9")]
    after = at(9, history=history)
    # Epoch 1 has no positive score; 3 is the record's own submission; 9 is not before 9.
    assert (after.record, after.last, after.submission) == (nanos("0.52"), 4, "s2")


def test_history_does_not_count_after_a_settlement() -> None:
    assert at(9, before=Clock(), history=[row(2, "0.5", "s1")]).record is None


def test_history_without_submissions_takes_every_one_as_new() -> None:
    assert at(9, history=[row(2, "0.5"), row(3, "0.6")]).last == 3


def test_history_forgets_the_record_of_another_task_set_and_keeps_one_it_knows() -> None:
    history = [row(1, "0.9", "s1", "t1"), row(2, "0.9", "s1"), row(3, "0.3", "s2", "t2")]
    after = at(9, history=history)
    assert (after.record, after.last) == (nanos("0.3"), 3)
    assert at(9, agreed_score("0.2", "s3"), history=history[:2], task_set="t2").record == nanos("0.2")
    assert at(9, agreed_score("0.2", "s3"), history=history[:2], task_set="t1").record == nanos("0.9")
    # The submission that is settled may hold the record already.
    assert at(9, agreed_score("1", "s1"), history=history[:1], task_set="t1").last == 1


# The same rules once more, in the words of SPEC 4, over whole histories.


def slow_run(epochs: list[list[tuple[str, str, int]]], rules: Decay) -> tuple[dict[str, int], int | None]:
    """Last reset of each participant and of the competition: epochs of (key, submission, score), ranked."""
    best: dict[str, int] = {}
    last: dict[str, int] = {}
    had: dict[str, str] = {}
    record, holder, when = 0, "", None
    for epoch, ranked in enumerate(epochs):
        if not record:
            if ranked and ranked[0][2] > 0:
                record, holder, when = ranked[0][2], ranked[0][1], epoch
        else:
            fresh = [(s, score) for key, s, score in ranked if s not in {holder, had.get(key)}]
            if fresh:
                share = Fraction(rules.improvement, NANO)
                relative = rules.improvement_mode == "relative"
                goal = record * (1 + share) if relative else record + rules.improvement
                if fresh[0][1] >= goal or (fresh[0][1] == NANO and record < NANO):
                    record, holder, when = fresh[0][1], fresh[0][0], epoch
        for key, submission, score in ranked:
            improved = key in had and submission != had[key] and (rules.reset == "update" or score > best[key])
            if key not in last or improved:
                last[key] = epoch
            best[key] = max(best.get(key, 0), score)
            had[key] = submission
    return last, when


@given(
    epochs=st.lists(
        st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 3).map("s{}".format), st.integers(0, 10))), max_size=8
    ),
    reset=st.sampled_from(["improvement", "update"]),
    mode=st.sampled_from(["relative", "absolute"]),
)
def test_epoch_after_epoch_the_clocks_are_what_the_words_say(
    epochs: list[dict[str, tuple[str, int]]], reset: str, mode: str
) -> None:
    rules = decay(reset=reset, improvement_mode=mode, improvement="10%")
    ranked = [
        sorted(((key, s, tenth * NANO // 10) for key, (s, tenth) in epoch.items()), key=lambda r: (-r[2], r[0]))
        for epoch in epochs
    ]
    clock: Clock | None = None
    for epoch, rows in enumerate(ranked):
        clock = at(epoch, *(AgreedScore(*r) for r in rows), before=clock, rules=rules)
    last, when = slow_run(ranked, rules)
    if clock is not None:
        assert {key: own.last for key, own in clock.participants.items()} == last
        assert clock.last == when
