"""When an operator's node closes an epoch, and when it waits: on real ledgers, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import audit_kit
import bounty_kit
import ledger_kit
import small_folder
from assay.errors import BadInput, CannotSettle
from assay.ledger import settling
from assay.node import status
from assay.node.clock import SteadyClock
from assay.node.closing import Closer
from assay.scheme import clock
from assay.scheme.model import EpochClock
from cli_kit import output, rewrite
from ledger_kit import SIGNER, V1, V2

START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = 3600
CLOCK = '[epoch]\nevery = "1h"\nstart = "2026-11-01T00:00:00Z"\ngrace = "10m"\n'


class Hand:
    """An operator's closer whose time the test sets; what it tells."""

    def __init__(self, place: Path, **options: Any) -> None:
        self.place, self.at, self.messages = place, 0.0, list[str]()
        self.closer = Closer([place], {place: SIGNER}, self.messages.append, clock=lambda: START.timestamp() + self.at, **options)

    def look(self, at: float) -> list[int]:
        """Which epochs are settled after a look so many seconds after the start of epoch 1."""
        self.at = at
        self.due = self.closer.carry_out(wait=False)
        return settled(self.place)

    @property
    def status(self) -> Mapping[str, Any]:
        return status.note(self.place)


def settled(place: Path) -> list[int]:
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        return view.settled_epochs()


def season(place: Path, rules: str = CLOCK) -> Path:
    return ledger_kit.ledger_folder(place / "small", scheme_toml=small_folder.SCHEME + rules)


def test_an_epoch_is_closed_when_it_has_ended_and_all_are_judged(tmp_path: Path) -> None:
    place = season(tmp_path)
    hand = Hand(place)
    ledger_kit.add(place, ledger_kit.records(epoch=1))
    assert hand.look(HOUR - 1) == []
    assert hand.due.at == START.timestamp() + HOUR
    assert hand.status["closes"] == "2026-11-01T01:00:00Z"
    assert hand.look(HOUR) == [1]
    assert hand.due.at == START.timestamp() + 2 * HOUR
    assert "settled epoch 1: 2 agreed scores" in hand.messages


def test_it_waits_for_validators_until_the_grace_time_is_over(tmp_path: Path) -> None:
    place = season(tmp_path)
    hand = Hand(place)
    records = ledger_kit.records(epoch=1)
    ledger_kit.add(place, [row for row in records if row["validator"] != V2 or row["participant"] == "m1"])
    assert hand.look(HOUR) == []
    assert hand.status["silent"] == []
    assert hand.look(HOUR + 599) == []
    assert hand.messages == ["epoch 1: waits for the validators' next results: m2 has no agreed score"], "it is told once"
    assert hand.look(HOUR + 600) == [1]


def test_what_comes_in_the_grace_time_closes_it(tmp_path: Path) -> None:
    place = season(tmp_path)
    hand = Hand(place)
    records = ledger_kit.records(epoch=1)
    ledger_kit.add(place, [row for row in records if row["validator"] == V1])
    assert hand.look(HOUR + 1) == []
    ledger_kit.add(place, records)
    assert hand.look(HOUR + 2) == [1]


def test_a_bounty_is_paid_when_nothing_can_be_handed_in_any_more(tmp_path: Path) -> None:
    place = tmp_path / "small"
    until = 'name = "haiku"\ncommitments_until = 2026-11-01T02:00:00Z\nsubmissions_until = 2026-11-01T03:00:00Z\n'
    bounty = bounty_kit.make_bounty(tmp_path / "bounty", ('name = "haiku"\n', until))
    rules = (bounty / "scheme.toml").read_text() + CLOCK
    ledger_kit.ledger_folder(place, "rubric", scheme_toml=rules, bounty_toml=(bounty / "bounty.toml").read_text())
    hand = Hand(place)
    records = ledger_kit.records("rubric", epoch=1, checks={"C1": True, "C2": True})
    ledger_kit.add(place, records)
    assert hand.look(HOUR + 600) == hand.look(3 * HOUR - 1) == []
    assert hand.due.at == START.timestamp() + 3 * HOUR
    assert hand.status["state"] == "waiting for the deadline of the bounty, 2026-11-01T03:00:00Z"
    assert hand.messages == [
        "epoch 1: submissions are taken until 2026-11-01T03:00:00Z, and a payout is final: it is settled after that"
    ], "it is told once"
    rewrite(place / "participants.csv", "s2", "s3")
    assert hand.look(3 * HOUR) == [], "what came at the last moment is judged in the grace time after it"
    assert "m2 has no agreed score" in hand.messages[-1]
    assert hand.look(3 * HOUR + 600)[:1] == [1]


@pytest.mark.parametrize("burns", [False, True])
def test_an_epoch_in_which_nobody_has_a_score(tmp_path: Path, burns: bool) -> None:
    place = season(tmp_path, CLOCK + ('empty = "burn"\n' if burns else ""))
    hand = Hand(place)
    ledger_kit.add(place, ledger_kit.records(epoch=1, validators=[V1]))
    assert hand.look(HOUR + 599) == []
    assert "held" not in hand.status or hand.status["held"] is None
    if burns:
        assert hand.look(HOUR + 600) == [1]
        assert "settled epoch 1 without an agreed score: all of it burns" in hand.messages[-1]
        return
    assert hand.look(HOUR + 600) == []
    assert hand.status["held"]["epoch"] == 1
    assert "Nobody has an agreed score in epoch 1" in hand.status["held"]["what"]
    assert hand.look(5 * HOUR) == []
    ledger_kit.add(place, ledger_kit.records(epoch=1))
    assert hand.look(5 * HOUR + 1) == [1, 2, 3, 4, 5]
    assert hand.status["held"] is None


def test_the_status_follows_while_several_epochs_are_closed(tmp_path: Path) -> None:
    """Or an alarm says for as long as it takes that an epoch which is settled cannot be closed."""
    place = season(tmp_path)
    hand, seen = Hand(place), list[tuple[object, object]]()
    hand.look(HOUR - 1)
    hand.look(HOUR + 600)
    assert hand.status["held"]["epoch"] == 1
    status.note(place, trouble={"what": "the disk was full"})
    ledger_kit.add(place, ledger_kit.records(epoch=1))
    hand.closer.tell = lambda line: seen.append((hand.status["held"], hand.status["trouble"]))
    assert hand.look(5 * HOUR) == [1, 2, 3, 4, 5]
    assert seen == [(None, None)] * 5


def test_after_a_day_away_every_epoch_is_closed_in_its_order_as_by_hand(tmp_path: Path) -> None:
    place = season(tmp_path)
    ledger_kit.add(place, ledger_kit.records(epoch=1))
    ledger_kit.add(place, ledger_kit.records(epoch=4, trial=2))
    hand = Hand(place)
    hand.look(0)
    assert hand.look(24 * HOUR) == list(range(1, 25))
    by_hand = season(tmp_path / "hand")
    ledger_kit.add(by_hand, ledger_kit.records(epoch=1))
    ledger_kit.add(by_hand, ledger_kit.records(epoch=4, trial=2))
    with ledger_kit.opened(by_hand) as theirs, ledger_kit.opened(place) as ledger:
        for epoch in range(1, 25):
            settling.settle(theirs, SIGNER, epoch)
            assert theirs.receipt(epoch).digest == ledger.receipt(epoch).digest


def test_a_clock_that_is_set_back_closes_nothing_twice_and_skips_nothing(tmp_path: Path) -> None:
    place = season(tmp_path)
    ledger_kit.add(place, ledger_kit.records(epoch=1))
    hand = Hand(place)
    hand.look(0)
    assert hand.look(3 * HOUR) == [1, 2, 3]
    assert hand.look(HOUR) == [1, 2, 3]
    assert hand.due.at == START.timestamp() + 4 * HOUR
    assert hand.look(4 * HOUR) == [1, 2, 3, 4]


@pytest.mark.full
def test_a_clock_that_is_new_closes_several_epochs_only_if_it_is_told_to(tmp_path: Path) -> None:
    place = season(tmp_path)
    ledger_kit.add(place, ledger_kit.records(epoch=1))
    with pytest.raises(CannotSettle, match=r"epochs 1 to 2 have ended by .*, and no node has closed one by it yet"):
        Hand(place).look(2 * HOUR)
    assert settled(place) == []
    assert Hand(place, catch_up=True).look(2 * HOUR) == [1, 2]
    assert Hand(place).look(24 * HOUR) == list(range(1, 25)), "it is known now"
    rewrite(place / "scheme.toml", "2026-11-01T00", "2025-11-01T00")
    with pytest.raises(CannotSettle, match="epochs 25 to 8784 have ended"):
        Hand(place).look(24 * HOUR)


def test_without_a_clock_epochs_are_closed_by_hand(tmp_path: Path) -> None:
    place = season(tmp_path, "")
    ledger_kit.add(place, ledger_kit.records(epoch=1))
    hand = Hand(place)
    assert hand.look(1e9) == []
    assert hand.due.at is None


def test_what_is_settled_is_exported_once_also_after_a_crash(tmp_path: Path) -> None:
    place, there = season(tmp_path), tmp_path / "exports"
    ledger_kit.add(place, ledger_kit.records(epoch=1))
    Hand(place).look(0)
    assert Hand(place).look(2 * HOUR) == [1, 2]
    hand = Hand(place, export=there)
    hand.look(2 * HOUR)
    assert [path.name for path in there.iterdir()] == ["epoch-2"], "the first time, only the newest"
    Hand(place).look(4 * HOUR)  # as one that was killed before it exported
    hand.look(4 * HOUR)
    assert sorted(path.name for path in there.iterdir()) == ["epoch-2", "epoch-3", "epoch-4"]
    output("verify", there / "epoch-4", "--key", str(ledger_kit.KEY))


def test_an_audit_that_comes_after_the_export_is_added_to_it(tmp_path: Path) -> None:
    place, there = tmp_path / "small", tmp_path / "exports"
    audit_kit.witnessed(place, audit_kit.RULES + CLOCK)
    hand = Hand(place, export=there)
    hand.look(0)
    assert not (there / "epoch-3" / "audits").exists()
    audit, _ = audit_kit.signed_audit(place, lambda _: False)
    hand.look(0)
    assert (there / "epoch-3" / "audits" / audit.name).read_bytes() == audit.read_bytes()
    assert f"added {audit.name} to {there / 'epoch-3'}" in hand.messages
    assert "trials judged again" in output("verify", there / "epoch-3", "--key", str(ledger_kit.KEY))


def test_blocks_need_a_chain(tmp_path: Path) -> None:
    place = season(tmp_path, "[epoch]\ntempo = 360\n")
    ledger_kit.add(place, ledger_kit.records(epoch=1))
    with pytest.raises(BadInput, match="no chain is named"):
        Hand(place).look(0)


def test_the_ends_of_epochs_by_time_and_by_blocks() -> None:
    hourly = EpochClock.model_validate({"every": "1h", "start": "2026-11-01T00:00:00Z"})
    end = clock.by_time(hourly, 3)
    assert (end.at, end.until) == (START.timestamp() + 3 * HOUR, START.timestamp() + 3 * HOUR + 360)
    tempo = EpochClock.model_validate({"tempo": 360, "grace": "61s"})
    assert clock.by_blocks(tempo, 2, 1000) == clock.EpochEnd(2, 1360, 1366, "block")
    assert clock.by_blocks(EpochClock.model_validate({"tempo": 360}), 2, 0).until == 396
    assert end.text == "2026-11-01T03:00:00Z"
    now = START + timedelta(hours=1)
    assert clock.ends_late(hourly, 3, now) == ""
    assert 'with start = "2026-10-31T22:00:00Z" it ends in one epoch' in clock.ends_late(hourly, 4, now)
    assert clock.ends_late(tempo, 4, now) == ""
    assert "ends at 9999-12-31T23:59:59Z" in clock.ends_late(hourly, 2**53, now)
    assert clock.by_time(hourly, 2**53).text == "9999-12-31T23:59:59Z", "somebody sent evidence of an epoch far away"


def test_a_clock_that_jumped_is_believed_only_when_it_stays_so() -> None:
    wall, steady = [1000.0], [0.0]
    steady_clock = SteadyClock(lambda: wall[0], lambda: steady[0])

    def later(seconds: float, by: float = 0.0) -> float:
        steady[0] += seconds
        wall[0] += seconds + by
        return steady_clock()

    assert later(10) == 1010
    assert later(10, 30) == 1050, "the network corrects it by half a minute"
    assert (later(1, 86_400), steady_clock.jumped) == (1051, 86_400)
    assert later(500) == 1551
    assert (later(1, -86_400), steady_clock.jumped) == (1552, 0), "it was put right"
    later(1, -7200)
    assert later(599) == 2152
    assert (later(1), steady_clock.jumped) == (2153 - 7200, 0)


def test_validators_have_the_grace_time_once_more_when_the_node_was_away(tmp_path: Path) -> None:
    place = season(tmp_path)
    records = ledger_kit.records(epoch=1)
    ledger_kit.add(place, [row for row in records if row["participant"] == "m1"])
    Hand(place).look(0)
    hand = Hand(place, since=START.timestamp() + 5 * HOUR)
    assert hand.look(5 * HOUR + 599) == []
    assert hand.look(5 * HOUR + 600) == [1, 2, 3, 4, 5]


def test_a_held_epoch_can_be_let_burn_without_a_new_clock(tmp_path: Path) -> None:
    place = season(tmp_path)
    hand = Hand(place)
    ledger_kit.add(place, ledger_kit.records(epoch=1, validators=[V1]))
    hand.look(0)
    assert hand.look(3 * HOUR) == []
    rewrite(place / "scheme.toml", 'grace = "10m"', 'grace = "5m"\nempty = "burn"')
    assert hand.look(3 * HOUR + 300) == [1, 2, 3]
