"""A simulated year for tests: many short epochs, in which everything that happens to a subnet happens, by a seed.

    operator ── service          kept running as systemd would, and killed, whole or in parts
    val-1, val-2, val-3          real nodes that are killed, sleep, leave the registry and join again
    val-1 elsewhere              a second node with the first one's key: it is to stand still
    liar                         a fourth validator, which signs the opposite of what is true
    participants                 improve, copy one another, and stop
    PostgreSQL                   crashes

With `Wires`, each of them stands in a network namespace of its own, with delay, loss and partitions; and clocks jump.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import judge_kit
import postgres
import season_kit
import small_folder
from assay.errors import Unreachable
from assay.folder.files import write_text
from assay.ledger import batch, config, intake, keys
from assay.node.spool import waiting
from assay.records import record
from assay.serve.client import Client
from assay.serve.evidence import BATCHES
from ledger_kit import NAMES as REGISTRY
from ledger_kit import VALIDATORS
from season_kit import LONG, NAMES, KeptProcess, SeasonParticipants
from test_closing import settled
from wires import Wires
from wrong_clock import WrongClock

LIAR = keys.read(b"99" * 32)
ROW = f"{LIAR.public.raw.hex()},100,liar"
TASKS = ("t1", "t2")
LAST = 2**53 - 1
"""No epoch is later."""
LEVELS = ("true\n", "echo hello > /app/out.txt\n", "echo hello > /app/out.txt\necho hello > /app/two.txt\n")
"""What an agent does that passes no task, the first, both."""
TWO = "grep -qx hello /app/two.txt || exit 1\necho 1 > /logs/verifier/reward.txt\n"


@dataclass
class Year:
    """A season whose processes are kept running, and to which things happen. place: the operator's folder."""

    place: Path
    people: SeasonParticipants
    node: KeptProcess
    judges: list[KeptProcess]
    second: KeptProcess
    database: postgres.Cluster
    chance: random.Random
    wires: Wires | None = None
    clocks: dict[str, WrongClock] = field(default_factory=dict)
    """The clocks of the operator and of one validator, if they jump."""
    happened: Counter[str] = field(default_factory=Counter)
    levels: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Participant → what the agent can do, and which agent of that kind it is."""
    truth: dict[str, int] = field(default_factory=dict)
    """Submission → what it can do."""
    lies: list[batch.Batch] = field(default_factory=list)
    registry: list[str] = field(default_factory=REGISTRY.splitlines)
    """The lines of validators.csv when nobody has left."""
    asleep: set[str] = field(default_factory=set)
    later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    """What is made good again, and when."""

    def __post_init__(self) -> None:
        self.people.meanwhile = lambda: self.keep_running(0.2)

    @property
    def processes(self) -> list[KeptProcess]:
        return [self.node, *self.judges, self.second]

    def live(self, epochs: int) -> None:
        """Let something happen in each epoch until so many are settled; then everything is made good."""
        events = [self.improve, self.copy, self.lie, self.kill, self.kill_parts, self.sleep, self.leave, self.crash]
        if self.wires is not None:
            events += [self.partition, self.slow]
        if self.clocks:
            events += [self.jump, self.lose_time]
        order = [self.join, *events]  # each happens once at least, and then as it comes
        self._pass_epoch()
        while len(settled(self.place)) < epochs or order:
            event = order.pop(0) if order else self.chance.choice(events)
            if not order and not all(process.kills for process in self.processes):
                order.append(self.kill)  # everybody is killed once at least
            event()
            self.happened[event.__name__] += 1
            self._pass_epoch()
        self.make_good(everything=True)

    def _pass_epoch(self) -> None:
        """Wait until another epoch is settled: so a slow machine has as much time as it needs between two events."""
        before, end = len(settled(self.place)), time.monotonic() + LONG
        while len(settled(self.place)) == before:
            assert time.monotonic() < end, f"epoch {before + 1} is not settled"
            self.keep_running(0.3)

    def keep_running(self, seconds: float) -> None:
        """What systemd does, for some seconds: what has ended is begun again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for process in self.processes:
                if process.ended() and process.name not in self.asleep:
                    process.start()
            self.make_good()
            time.sleep(0.1)

    def make_good(self, *, everything: bool = False) -> None:
        due = [row for row in self.later if everything or row[0] <= time.monotonic()]
        self.later = [row for row in self.later if row not in due]
        for _, act in due:
            act()

    def _for_a_while(self, act: Callable[[], None], longest: float = 8) -> None:
        self.later.append((time.monotonic() + self.chance.uniform(1, longest), act))

    # What participants do

    def begin(self) -> None:
        """Everybody hands in an agent."""
        for participant in self.people.keys:
            self._hand_in(participant, 0, len(self.levels))

    def improve(self) -> None:
        participant = self.chance.choice([*self.people.keys][:-1])  # the last one has stopped
        level, number = self.levels[participant]
        self._hand_in(participant, min(level + 1, 2), number + 100)

    def copy(self) -> None:
        """Somebody hands in what another one has."""
        first, second = self.chance.sample([*self.people.keys][:-1], 2)
        self._hand_in(first, *self.levels[second])

    def _hand_in(self, participant: str, level: int, number: int) -> None:
        folder = self.place.parent / "agents" / f"agent-{level}-{number}"
        if not folder.exists():
            judge_kit.make_agent(folder, f"# {number}\n{LEVELS[level]}")
        self.people.hand_in(participant, folder)
        self.levels[participant] = level, number
        self.truth[self.people.acknowledged[-1]["submission"]] = level

    # What validators do

    def lie(self) -> None:
        """The liar signs the opposite of what is true of a submission, and sends it until the service has it.

        The first lie is about the participant who has stopped: that submission stands until the end. About one submission it
        lies once, whoever hands it in again: of two records of one trial only the first counts, which is another test's matter.
        """
        stopped = self.people.latest(LAST)[[*self.people.keys][-1]]
        lied = {record.submission for sent in self.lies for record in sent.records}
        entry = next((row for row in [stopped, *reversed(self.people.acknowledged)] if row["submission"] not in lied), None)
        if entry is None:
            return
        end = time.monotonic() + LONG
        outcome = "fail" if self.truth[entry["submission"]] else "pass"
        while True:
            with suppress(Unreachable), Client(self.people.url, LIAR) as client:
                lie = self._lie(client.get("work")["epoch"], entry, outcome)
                (answer,) = client.send("POST", "evidence", lie.data, BATCHES)["batches"]
                if answer["outcome"] != "refused":  # as it is if the epoch was closed meanwhile
                    self.lies.append(lie)
                    return
            assert time.monotonic() < end, "the service takes nothing of the liar"
            self.people.meanwhile()

    def _lie(self, epoch: int, entry: season_kit.Json, outcome: str) -> batch.Batch:
        terms, origin, mine = intake.intake_rules(self.place), config.read(self.place).origin, LIAR.public.raw.hex()
        about = {"participant": entry["participant"], "submission": entry["submission"], "outcome": outcome}
        rows = [small_folder.record(validator=mine, epoch=epoch, task=task, **about) for task in TASKS]
        name, tasks = terms.competition, terms.task_set
        return batch.make(map(record, rows), origin=origin, competition=name, task_set=tasks, signer=LIAR, validator=mine)

    def sleep(self) -> None:
        judge = self.chance.choice(self.judges)
        if judge.name not in self.asleep and not judge.ended():
            self.asleep.add(judge.name)
            judge.stop()
            self._for_a_while(lambda: self.asleep.discard(judge.name))

    def join(self) -> None:
        """The liar is entered in the registry."""
        self.registry.append(ROW)
        self._write_registry()

    def leave(self) -> None:
        """A validator is taken out of the registry, and entered again later."""
        self._write_registry(without=self.chance.choice([*VALIDATORS][1:]))
        self._for_a_while(self._write_registry)

    def _write_registry(self, without: str = "") -> None:
        rows = [row for row in self.registry if row.partition(",")[0] != without]
        write_text(self.place / "validators.csv", "\n".join([*rows, ""]))

    # What machines do

    def kill(self) -> None:
        """Kill one of those that were killed least, so that it is everybody's turn."""
        there = [process for process in self.processes if not process.ended()]
        least = min((process.kills for process in there), default=0)
        if there:
            self.chance.choice([process for process in there if process.kills == least]).kill()

    def kill_parts(self) -> None:
        process = self.chance.choice([self.node, *self.judges])
        if not process.ended():
            process.kill_parts()

    def crash(self) -> None:
        self.database.restart(postgres.CRASH)

    def partition(self) -> None:
        assert self.wires is not None
        wires, name = self.wires, self.chance.choice(NAMES)
        wires.cut(name, off=True)
        self._for_a_while(lambda: wires.cut(name, off=False))

    def slow(self) -> None:
        assert self.wires is not None
        wires, name = self.wires, self.chance.choice(list(self.wires.names))
        wires.disturb(name, *wires.trouble)
        self._for_a_while(lambda: wires.disturb(name))

    def jump(self) -> None:
        """The operator's clock jumps, forward or back; later it is right again, which is another jump."""
        self._jump("operator", self.chance.choice((-20, -5, 5, 20)))

    def lose_time(self) -> None:
        """A validator's clock is wrong by an hour: the service takes nothing that it signs, until it is right again."""
        self._jump(NAMES[2], self.chance.choice((-3600, 3600)), 30)

    def _jump(self, name: str, seconds: int, longest: float = 8) -> None:
        self.clocks[name].set(seconds)
        self._for_a_while(lambda: self.clocks[name].set(0), longest)

    # The end

    def has_everything(self) -> bool:
        """Whether all three have judged everything, and sent it; everything is kept running meanwhile."""
        self.keep_running(0.5)
        judged = season_kit.all_judged(self.place, self.people, len(TASKS))
        return judged and not any(waiting(self.place.parent / name) for name in NAMES)


def competition(root: Path, database: str, people: Sequence[str], every: str) -> Path:
    """The operator's folder: two tasks, participants who have handed in nothing, three validators."""
    place = root / "small"
    judge_kit.make_task(place / "tasks" / "t1")
    judge_kit.make_task(place / "tasks" / "t2", tests=TWO, solution="echo hello > /app/two.txt\n")
    judge_kit.make_competition(place, {})
    scheme = (place / "scheme.toml").read_text().replace("min_validators = 1", "min_validators = 2")
    (place / "scheme.toml").write_text(f"{scheme}[submission]\nper_epoch = 100\n")
    rows = [f"{key},{uid},," for uid, key in enumerate(people, 1)]
    (place / "participants.csv").write_text("\n".join(["key,uid,submission,submitted_at", *rows, ""]))
    season_kit.with_ledger(place, database)
    season_kit.clock_from_now(place, every, "1s")
    return place
