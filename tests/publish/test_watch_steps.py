"""A watch step by step: publishers of every kind, a ledger that is busy, what it writes down of itself."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import ledger_kit
from assay.cli import watching as command
from assay.errors import BadInput, Unreachable
from assay.judge.running import Stop
from assay.ledger import settling, store
from assay.publish import publishers
from assay.publish.journal import Journal, history, last_published
from assay.publish.outcome import Confirmed, Outcome, Refusal, TooEarly, Unknown
from assay.publish.publishers import Comparison, PublishPlan, Pulse, Tell
from assay.publish.settled_epoch import SettledEpoch
from assay.publish.watch import TargetWatch, WatchEvent, WatchReport, metrics, page
from watch_kit import StatusPage
from watch_kit import metrics as read_metrics

START = 2_000_000_000.0
NASTY = '<script>alert("1")</script>\x1b[2J & "more"'


@dataclass
class PublisherChain:
    """A publisher and its chain in one: it takes what it is sent, or answers what it is told to."""

    journal: Journal | None = None
    has: list[int] = field(default_factory=list)
    answers: list[Outcome | Exception] = field(default_factory=list)

    def plan(self, epoch: SettledEpoch) -> PublishPlan:
        return PublishPlan("local", epoch.epoch, epoch.receipt, {}, ())

    def compare(self, plan: PublishPlan) -> Comparison:
        return Comparison({}, self.confirm(plan) if plan.epoch in self.has else None)

    def confirm(self, plan: PublishPlan) -> Outcome:
        return Confirmed(plan.epoch) if plan.epoch in self.has else Unknown("it is not there")

    def send(self, plan: PublishPlan, tell: Tell) -> Outcome:
        outcome = self.answers.pop(0) if self.answers else Confirmed(plan.epoch)
        if isinstance(outcome, Exception):
            raise outcome
        if self.journal is not None:
            self.journal.note(plan.subject, plan.digest, outcome)
        if isinstance(outcome, Confirmed):
            self.has.append(plan.epoch)
        return outcome


@dataclass
class Every(PublisherChain):
    every_epoch = True


@dataclass
class Beating(PublisherChain):
    """A chain with a tempo of 10 blocks, a second each."""

    says: Refusal | Unknown | None = None
    beat: Pulse | Refusal | Exception = field(default_factory=lambda: Pulse(100, 100, 10, 1.0))

    def confirm(self, plan: PublishPlan) -> Outcome:
        return self.says or super().confirm(plan)

    def pulse(self) -> Pulse | Refusal:
        if isinstance(self.beat, Exception):
            raise self.beat
        return self.beat


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    (folder / "publish.toml").write_text('[targets.local]\nkind = "evm"\n')
    return folder


def settle(place: Path, *epochs: int) -> None:
    for epoch in epochs:
        ledger_kit.add(place, ledger_kit.records(epoch=epoch))
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, ledger_kit.SIGNER, epoch)


@dataclass
class Steps:
    """A watch whose clock goes on when it is told to."""

    place: Path
    chain: PublisherChain
    patience: float | None = None
    send: bool = True

    def __post_init__(self) -> None:
        self.now, self.events = START, list[WatchEvent]()
        self.watch = TargetWatch(
            publishers.read_target(self.place, "local"),
            self.chain,
            self.events.append,
            10.0,
            self.patience,
            self.send,
            clock=lambda: self.now,
        )

    def step(self, later: float = 0.0) -> WatchReport:
        self.now += later
        return self.watch.step()

    def names(self) -> list[str]:
        """What was told since it was last asked."""
        names = [event.name for event in self.events]
        self.events.clear()
        return names


def test_the_newest_alone_or_each_in_its_turn(place: Path) -> None:
    settle(place, 3)
    newest, each = Steps(place, PublisherChain()), Steps(place, Every())
    for steps in (newest, each):
        assert steps.step().rest == 10
    settle(place, 4, 5, 6)
    while newest.step().rest == 0 or each.step().rest == 0:
        pass
    assert newest.chain.has == [3, 6]
    assert each.chain.has == [3, 4, 5, 6]


def test_what_a_publisher_writes_down_is_known_after_a_restart(place: Path) -> None:
    settle(place, 3)
    chain = PublisherChain(publishers.read_target(place, "local").journal())
    Steps(place, chain).step()
    again = Steps(place, chain)
    report = again.step()
    assert (report.facts.published, report.facts.waiting, chain.has) == (3, None, [3])
    assert dict(report.entries) == {"confirmed": 1}


def test_one_that_failed_is_tried_later_and_told_once(place: Path) -> None:
    settle(place, 3)
    steps = Steps(
        place, PublisherChain(answers=[Unknown("gone"), Unknown("gone"), Unreachable("gone"), TooEarly(7, "time", "wait")])
    )
    assert (steps.step().rest, steps.names()) == (10, ["settled", "outcome"])
    assert (steps.step(9).rest, steps.names()) == (1, [])
    assert (steps.step(1).rest, steps.names()) == (10, [])
    assert (steps.step(20).rest, steps.names()) == (10, [])
    assert (steps.step(40).exit_code, steps.names()) == (0, ["outcome"])
    assert (steps.step(10).exit_code, steps.names()) == (0, ["outcome"])
    assert steps.chain.has == [3]


def test_two_tempos_without_anything_set(place: Path) -> None:
    settle(place, 3)
    chain = Beating()
    steps = Steps(place, chain)
    chain.beat = Pulse(119, 100, 10, 1.0)
    assert (steps.step().exit_code, chain.has) == (0, [3])
    chain.beat = Pulse(121, 100, 10, 1.0)
    report = steps.step(2)
    assert (report.exit_code, [alarm.what for alarm, _ in report.alarms]) == (
        3,
        ["nothing was set for 21 blocks, and the tempo is 10"],
    )
    steps.names()
    assert (steps.step(2).alarms[0][1], steps.names()) == (report.at, [])  # it stands since then, and is told once
    chain.beat = Unreachable("gone")
    assert (steps.step(2).alarms[0][1], steps.names()) == (report.at, ["away"])  # and is not over because nobody answers
    values = read_metrics(metrics(report))
    assert (values["block"], values["last_set_block"], values["last_set_timestamp_seconds"]) == (121, 100, report.at - 21)
    assert values["alarm alarm=nothing-set"] == 1
    chain.beat = Pulse(122, 122, 10, 1.0)
    assert (steps.step().exit_code, steps.names()) == (0, ["back", "alarm-over"])


def test_a_key_for_which_the_chain_has_no_place(place: Path) -> None:
    settle(place, 3)
    chain = Beating()
    steps = Steps(place, chain)
    assert steps.step().exit_code == 0
    chain.beat = Refusal("c", "the hotkey is gone", "register it")
    report = steps.step(1)
    assert (report.exit_code, [alarm.code for alarm, _ in report.alarms]) == (3, ["shut-out"])
    shown = StatusPage(page(report, 60))
    assert (shown.alarms, "the hotkey is gone" in shown.text, "All is well" in shown.text) == (1, True, False)
    chain.beat = Unreachable("gone")
    assert "shut-out" in [alarm.code for alarm, _ in steps.step(1).alarms]  # silence mends nothing
    chain.beat = Pulse(101, 101, 10, 1.0)
    assert steps.step(1).exit_code == 0


def test_what_is_published_is_looked_for_once_a_tempo(place: Path) -> None:
    settle(place, 3)
    chain = Beating()
    steps = Steps(place, chain)
    steps.step()
    chain.says = Refusal("overwritten", "the chain has others now", "find out who")
    chain.beat = Pulse(109, 109, 10, 1.0)
    assert steps.step(9).exit_code == 0  # it was just confirmed, and is not asked for at every look
    report = steps.step(1)
    ((alarm, _),) = report.alarms
    assert (report.exit_code, alarm.code, alarm.hint) == (3, "undone", "find out who")
    assert alarm.what == "epoch 3 was published, but the chain does not have it any more: the chain has others now"
    assert chain.has == [3]  # and not sent again
    chain.beat = Unreachable("gone")
    assert [alarm.code for alarm, _ in steps.step(1).alarms] == ["undone"]
    chain.says, chain.beat = None, Pulse(110, 110, 10, 1.0)
    assert steps.step(1).exit_code == 0


def test_what_was_published_before_the_watch_is_looked_for_at_once(place: Path) -> None:
    settle(place, 3)
    chain = Beating(publishers.read_target(place, "local").journal())
    Steps(place, chain).step()
    chain.says = Refusal("overwritten", "the chain has others now")
    assert [alarm.code for alarm, _ in Steps(place, chain).step().alarms] == ["undone"]
    chain.says = Unknown("not now")
    assert Steps(place, chain).step().exit_code == 0


def test_a_node_that_is_away_for_two_tempos(place: Path) -> None:
    settle(place, 3)
    chain = Beating(answers=[Refusal("c", "no")])
    steps = Steps(place, chain)
    assert steps.step().exit_code == 3
    chain.answers, chain.beat = [Unknown("never asked")], Unreachable("gone", hint="look there")
    settle(place, 4)
    report = steps.step(1)
    assert (report.exit_code, report.rest, report.facts.settled, report.facts.pulse) == (1, 10, 4, None)
    assert "does not answer; the watch asks again" in StatusPage(page(report, 60)).text
    steps.names()
    report = steps.step(21)
    assert (report.exit_code, steps.names()) == (3, ["alarm", "alarm"])  # nothing was set either, by the clock
    assert report.alarms[1][0].hint == "look there"
    assert read_metrics(metrics(report))["reachable"] == 0
    chain.answers, chain.beat = [], Pulse(140, 139, 10, 1.0)
    assert (steps.step().exit_code, chain.has) == (0, [4])


def test_a_ledger_that_is_busy_is_waited_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(place, 3)
    steps = Steps(place, PublisherChain(publishers.read_target(place, "local").journal()))
    assert store.open.__kwdefaults__ is not None
    monkeypatch.setitem(store.open.__kwdefaults__, "wait", 0.05)
    with closing(sqlite3.connect(place / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        report = steps.step()
        assert report.exit_code == 1
        assert isinstance(report.memory.outcome, Unknown)
        assert "another program kept it locked" in report.memory.outcome.what
        other.execute("ROLLBACK")
    assert steps.step(10).exit_code == 0
    assert steps.chain.has == [3]


def test_a_ledger_that_is_broken_alarms_until_it_is_mended(place: Path) -> None:
    settle(place, 3)
    steps = Steps(place, PublisherChain())
    text = (place / "ledger.toml").read_text()
    (place / "ledger.toml").write_text("nonsense")
    report = steps.step()
    assert (report.exit_code, steps.names()) == (3, ["alarm"])
    assert "ledger.toml:1" in report.alarms[0][0].what
    (place / "ledger.toml").write_text(text)
    assert (steps.step(10).exit_code, steps.chain.has) == (0, [3])


def test_a_clock_that_was_set_back(place: Path) -> None:
    settle(place, 3)
    steps = Steps(place, PublisherChain(answers=[Unknown("gone"), Unknown("gone")]), patience=100)
    steps.step()
    year = 365 * 86_400
    report = steps.step(-year)
    assert (report.facts.since, report.facts.begun, report.memory.at) == (steps.now, steps.now, steps.now)
    assert [alarm.code for alarm, _ in steps.step(101).alarms] == []  # it was due, and is there
    assert steps.chain.has == [3]
    settle(place, 4)
    steps.chain.answers = [Unknown("gone")] * 9
    steps.step()
    steps.step(-year)
    assert [alarm.code for alarm, _ in steps.step(101).alarms] == ["late"]


def test_a_fault_of_the_program_is_an_alarm_and_ends_nothing(place: Path, tmp_path: Path) -> None:
    settle(place, 3)
    chain = Beating(answers=[KeyError("SECRET")], beat=ZeroDivisionError("SECRET"))
    steps, stop, files = Steps(place, chain), Stop(), [tmp_path / "a.prom", tmp_path / "a.html"]
    for what, count in (("ZeroDivisionError", 0), ("KeyError", 1)):
        report = command._loop(steps.watch, stop, files, once=True)
        ((alarm, _),) = report.alarms
        assert (report.exit_code, alarm.code, len(chain.answers)) == (3, "broken", 1 - count)
        assert f"{what} at line" in alarm.what
        shown = StatusPage(files[1].read_text())
        assert (shown.alarms, what in shown.text, "SECRET" in shown.text) == (1, True, False)
        assert read_metrics(files[0].read_text())["alarm alarm=broken"] == 1
        chain.beat = Pulse(100, 100, 10, 1.0)
    assert not any("SECRET" in f"{event.what}{event.outcome}" for event in steps.events)
    assert (steps.step(10).exit_code, chain.has) == (0, [3])


def test_without_leave_to_send_nothing_is_sent(place: Path) -> None:
    settle(place, 3)
    steps = Steps(place, PublisherChain(), send=False)
    assert (steps.step().exit_code, steps.chain.has) == (0, [])
    assert [event.outcome.state for event in steps.events if event.outcome is not None] == ["planned"]
    steps.chain.has.append(3)
    assert steps.step(10).facts.published == 3


def test_late(place: Path) -> None:
    settle(place, 3)
    steps = Steps(place, PublisherChain(answers=[Unknown("gone")] * 9), patience=100)
    assert steps.step().exit_code == 1
    assert steps.step(100).exit_code == 1
    assert steps.step(1).alarms[0][0].what == "epoch 3 is settled, but for 101 seconds it has not been published"


# What it writes


def test_what_others_said_is_text_on_the_page(place: Path) -> None:
    settle(place, 3)
    chain = PublisherChain(publishers.read_target(place, "local").journal(), answers=[Refusal("c", NASTY, NASTY)])
    shown = StatusPage(page(Steps(place, chain).step(), 60))
    assert shown.alarms == 1
    assert shown.text.count("<script>alert") >= 2
    assert ("\x1b" in shown.text, "\\x1b[2J" in shown.text) == (False, True)
    assert {"http-equiv": "refresh", "content": "60"} in shown.metas
    assert any("default-src 'none'" in str(meta.get("content")) for meta in shown.metas)


def test_bytes_that_are_no_text_are_written_out_on_the_page(place: Path) -> None:
    settle(place, 3)
    chain = Beating(answers=[Unknown("odd \ud800")], beat=Refusal("c", "\ud800"))
    assert "odd \\ud800" in page(Steps(place, chain).step(), 60).encode().decode()


def test_what_is_confirmed_stays_so_when_a_command_finds_out_nothing(place: Path) -> None:
    settle(place, 3)
    journal = publishers.read_target(place, "local").journal()
    entry = {"subject": "epoch 3", "plan": "p", "at": "2026-01-01T00:00:00Z"}
    for state in ("planned", "sent", "confirmed"):
        journal.add(entry | {"state": state, "attempt": 1})
    for outcome in (Unknown("the node is away"), TooEarly(9, "block", "w"), Refusal("wrong-chain", "w")):
        journal.note("epoch 3", "p", outcome)
    (attempt,) = history(journal.read())
    assert (attempt.states, attempt.last["state"], last_published([attempt])) == (
        ["planned", "sent", "confirmed"],
        "confirmed",
        3,
    )
    # What reading back came to, or another attempt, does say something of it.
    journal.note("epoch 3", "p", Refusal("already-submitted", "w"), 1)
    (attempt,) = history(journal.read())
    assert (attempt.states[-2:], last_published([attempt])) == (["confirmed", "refused"], None)
    journal.note("epoch 3", "p", Unknown("the node is away"))
    assert history(journal.read())[0].states[-1] == "unknown"


def test_the_page_says_what_it_waits_for(place: Path) -> None:
    assert "nothing yet" in StatusPage(page(Steps(place, PublisherChain()).step(), 0.1)).text
    settle(place, 3)
    steps = Steps(place, Beating(answers=[Unknown("the node is behind")]))
    text = StatusPage(page(steps.step(), 60)).text
    assert "epoch 3, since 2033-05-18T03:33:20Z: unknown, the node is behind" in text
    assert "Nothing is wrong; something is under way." in text
    assert "block 100; the chain is at block 100, its tempo is 10" in text


def test_a_file_that_cannot_be_written_later_does_not_end_it(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    steps, stop = Steps(place, PublisherChain()), Stop()
    real, count = steps.watch.step, 0

    def step() -> WatchReport:
        nonlocal count
        count += 1
        folder.rename(tmp_path / "gone") if count == 2 else None
        stop.asked = int(count == 4)
        report = real()
        return WatchReport(**{name: getattr(report, name) for name in report.__dataclass_fields__} | {"rest": 0.0})

    steps.watch.step = step  # type: ignore[method-assign]
    command._loop(steps.watch, stop, [folder / "assay.prom", None], once=False)
    assert steps.names() == ["file"]
    with pytest.raises(BadInput, match="cannot be written"):
        command._loop(steps.watch, stop, [folder / "assay.prom", None], once=False)


def test_lines_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Callable[[], None]] = [
        lambda: command._say(WatchEvent("error", "outcome", epoch=3, outcome=Refusal("c", NASTY)), as_json=False),
        lambda: command._say(WatchEvent("info", "outcome", epoch=3, outcome=TooEarly(9, "block", "wait")), as_json=True),
        lambda: command._say(WatchEvent("info", "outcome", epoch=3, outcome=TooEarly(2**62, "time", "wait")), as_json=False),
    ]
    for call in calls:
        call()
    out, err = capsys.readouterr()
    first, last = (line.partition(" ")[2] for line in err.splitlines())
    assert first == 'error   epoch 3: refused (c): <script>alert("1")</script>\\x1b[2J & "more"'
    assert last == f"info    epoch 3: too early: wait; from second {2**62} on"  # which is no date
    assert '"outcome":{"at":9,"state":"too-early","unit":"block","what":"wait"}' in out
    assert out.count("\n") == 1
