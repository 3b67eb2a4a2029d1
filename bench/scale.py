"""The needs of a network of a given size: machines, storage, writes, log, money, and the first limit: `python -m bench.scale`.

    python -m bench.scale                                               10^9 trials a day, 10^5 participants
    python -m bench.scale --trials-a-day 2e7 --participants 500
    python -m bench.scale --set prices.core_hour=0.013 --set load.competitions=1
    python -m bench.scale --sources                                     where each figure comes from

Nothing is measured here. All figures stand in bench/scale.toml with their sources; --figures FILE replaces some of them.
"""

from __future__ import annotations

import argparse
import heapq
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from assay.engine.ray_node import Bucket
from assay.judge.stations import Ticket

__all__ = ["SLEEP", "Figures", "Scale", "add_options", "asks_per_turn", "chosen", "report"]

FIGURES = Path(__file__).with_suffix(".toml")
DAY, GIB, MONTH = 86400, 2**30, 30.4
SLEEP = 1e-4
"""Seconds that a station sleeps at least."""


@dataclass(frozen=True)
class Figures:
    """The figures by their names `table.name`, and the source of each."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]

    def value(self, name: str) -> float:
        """A figure; raises KeyError."""
        return float(self.values[name])

    def points(self, name: str) -> list[tuple[float, float]]:
        """A figure that is a list of pairs."""
        return [(float(first), float(second)) for first, second in self.values[name]]

    def assumed(self) -> Iterator[str]:
        """The names of the figures that nobody measured."""
        return (name for name, source in self.sources.items() if source.startswith(("assumed", "given")))


def read(path: Path = FIGURES) -> Figures:
    """The figures of a file; raises SystemExit where one is no figure."""
    values, sources = {}, {}
    for table, rows in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for name, row in rows.items():
            if not isinstance(row, dict) or set(row) != {"value", "source"}:
                raise SystemExit(f'{path}: {table}.{name}: write {{value = …, source = "…"}}')
            values[f"{table}.{name}"], sources[f"{table}.{name}"] = row["value"], row["source"]
    return Figures(values, sources)


def changed(figures: Figures, changes: Iterable[str]) -> Figures:
    """The figures with some replaced, each as NAME=NUMBER; raises SystemExit for a name that there is not."""
    values, sources = dict(figures.values), dict(figures.sources)
    for change in changes:
        name, _, text = change.partition("=")
        if not isinstance(values.get(name), (int, float)):
            raise SystemExit(f"--set {change}: there is no figure {name!r}; --sources lists them")
        try:
            values[name], sources[name] = float(text), "given on the command line"
        except ValueError:
            raise SystemExit(f"--set {change}: {text!r} is not a number") from None
    return Figures(values, sources)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose figures."""
    parser.add_argument(
        "--figures", type=Path, metavar="FILE", help="replaces figures of bench/scale.toml; written in the same way"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER", help="replaces one figure")
    parser.add_argument("--cpu", action="store_true", help="also print the processor time of this program")


def chosen(options: argparse.Namespace) -> Figures:
    """The figures that the options choose."""
    figures = read()
    if options.figures is not None:
        other = read(options.figures)
        figures = Figures({**figures.values, **other.values}, {**figures.sources, **other.sources})
    return changed(figures, options.set)


class Limit(NamedTuple):
    """One part that there is one of. most: trials a day that it takes. then: what to do."""

    part: str
    most: float
    then: str


class Row(NamedTuple):
    """A line of the table: what, how much, in which unit."""

    what: str
    amount: float
    unit: str


class Scale:
    """A network of so many trials a day and participants, computed from figures. A trial makes one record."""

    def __init__(self, figures: Figures, trials: float, participants: float) -> None:
        self._of, self.trials, self.participants = figures.value, trials, participants
        self.rate = trials / DAY
        self.epochs = figures.value("load.competitions") * figures.value("load.epochs_a_day")

    def judging(self) -> list[Row]:
        """The machines that judge."""
        of = self._of
        seconds = of("trials.seconds") + (of("measured.trial_cpu_ms") + of("measured.ray_overhead_ms")) / 1e3
        ours, cores = self.rate * of("measured.trial_cpu_ms") / 1e3, self.rate * of("trials.seconds") * of("trials.cores")
        slots = self.rate * seconds
        by_cores = (ours + cores) / of("load.busy") / of("nodes.cores")
        by_memory = slots * of("trials.memory_gib") / of("nodes.memory_gib")
        return [
            Row("trials a second", self.rate, ""),
            Row("trials under way at one time", slots, ""),
            Row("cores that agents and tests use", cores, "cores"),
            Row("cores that Assay uses for them", ours, "cores"),
            Row("nodes by cores", by_cores, "nodes"),
            Row("nodes by memory", by_memory, "nodes"),
            Row("nodes at the mean", max(by_cores, by_memory), "nodes"),
            Row("drivers at the peak, results in a folder", self.rate * of("load.peak") / self.driver(leases=False), "drivers"),
            Row(
                "drivers at the peak, with leases in a ledger", self.rate * of("load.peak") / self.driver(leases=True), "drivers"
            ),
        ]

    def driver(self, *, leases: bool) -> float:
        """Trials a second of one driver: one durable insert for each; with leases two more, for a claim and its end."""
        return 1e3 / self._of("measured.insert_ms") / (3 if leases else 1)

    def ledger(self) -> list[Row]:
        """Intake, storage and writes, of all ledgers together."""
        of, records = self._of, self.trials
        days = of("load.days_in_database")
        return [
            Row("batches a second, each a transaction", self.rate / of("measured.batch_records"), ""),
            Row(
                "the same in each ledger, at the peak",
                self.rate * of("load.peak") / of("measured.batch_records") / of("load.competitions"),
                "",
            ),
            Row("cores of the ledgers' intake", self.rate * of("measured.intake_us") / 1e6, "cores"),
            Row(
                "workers of the services at the peak",
                self.rate * of("load.peak") * of("measured.service_batch_ms") / of("measured.batch_records") / 1e3,
                "workers",
            ),
            Row("lease transactions a second, if drivers share", 2 * self.rate, ""),
            Row("PostgreSQL grows by, a day", records * of("measured.postgres_bytes") / GIB, "GiB"),
            Row("its write-ahead log, a day", records * of("measured.postgres_wal_bytes") / GIB, "GiB"),
            Row(f"PostgreSQL with {days:.0f} days in it", records * of("measured.postgres_bytes") * days / GIB, "GiB"),
            Row("the same in SQLite", records * of("measured.sqlite_bytes") * days / GIB, "GiB"),
            Row("archive in Parquet, a day, one copy", records * of("measured.parquet_bytes") / GIB, "GiB"),
            Row("settlements, a day", self.participants * of("load.epochs_a_day") * of("measured.settlement_bytes") / GIB, "GiB"),
        ]

    def settling(self) -> list[Row]:
        """Settling, the log, and verifying."""
        of = self._of
        return [
            Row("epochs a day, each with a receipt", self.epochs, ""),
            Row("the logs grow by, a day", self.epochs * of("measured.log_bytes") / 1024, "KiB"),
            Row("written to them, a day", self.epochs * of("measured.log_append_bytes") / 2**20, "MiB"),
            Row("receipts, a day", self.epochs * of("measured.receipt_bytes") / 2**20, "MiB"),
            Row("cores that settle from ledgers", self.settle_cores(), "cores"),
            Row("of it once for each epoch", self.epochs * of("measured.settle_epoch_s") / DAY, "cores"),
            Row(
                "cores that settle from Parquet instead",
                (self.trials * of("measured.settle_bulk_us") / 1e6 + self.epochs * of("measured.settle_epoch_s")) / DAY,
                "cores",
            ),
            Row("agreed scores and weights, an epoch of all", self.participants * of("measured.consensus_us") / 1e3, "ms"),
            Row("cores of one auditor who verifies all", self.verify_cores(), "cores"),
        ]

    def settle_cores(self) -> float:
        """Cores that settle all epochs from the ledgers, records and the fixed part of each epoch."""
        of = self._of
        return (self.trials * of("measured.settle_ledger_us") / 1e6 + self.epochs * of("measured.settle_epoch_s")) / DAY

    def verify_cores(self) -> float:
        """Cores that verify all epochs."""
        of = self._of
        return (self.trials * of("measured.verify_us") / 1e6 + self.epochs * of("measured.verify_epoch_s")) / DAY

    def costs(self) -> list[Row]:
        """USD a day, by part; the last row is the sum of Assay's own, which is in the rows before."""
        of, hour = self._of, self._of("prices.core_hour")
        rows = {row.what: row.amount for row in [*self.judging(), *self.ledger(), *self.settling()]}
        days = of("load.days_in_database")
        nodes = rows["nodes at the mean"] * of("nodes.cores") * 24 * hour
        judge = rows["cores that Assay uses for them"] / of("load.busy") * 24 * hour
        tokens = (
            self.trials
            / 1e6
            * (
                of("trials.tokens_in") * of("prices.tokens_in_million")
                + of("trials.tokens_out") * of("prices.tokens_out_million")
            )
        )
        intake = (
            rows["cores of the ledgers' intake"] * of("load.peak") * of("prices.database_core_hour")
            + rows["workers of the services at the peak"] * hour
        ) * 24
        disk = rows[f"PostgreSQL with {days:.0f} days in it"] * of("prices.disk_gib_month") / MONTH
        kept = rows["archive in Parquet, a day, one copy"] * of("load.archive_copies") * of("prices.object_gib_month") * 12
        settle = (self.settle_cores() + self.verify_cores()) * 24 * hour
        drivers = rows["drivers at the peak, with leases in a ledger"] * 24 * hour
        return [
            Row("the agents' model tokens", tokens, "USD"),
            Row("nodes, agents and tests in them", nodes, "USD"),
            Row("of it what Assay uses", judge, "USD"),
            Row("drivers, a core each", drivers, "USD"),
            Row("intake: databases' cores and services", intake, "USD"),
            Row(f"databases' disks, {days:.0f} days in them", disk, "USD"),
            Row("archive: a day's records kept for a year", kept, "USD"),
            Row("settling, and one auditor", settle, "USD"),
            Row(
                "Assay in all: the five above, and its part of the nodes", judge + drivers + intake + disk + kept + settle, "USD"
            ),
            Row("the same for 1,000 trials", (judge + drivers + intake + disk + kept + settle) / self.trials * 1e3, "USD"),
        ]

    def limits(self) -> list[Limit]:
        """The parts that there may be only one of, by the trials a day that each takes; the first to break is first."""
        of = self._of
        parts = [
            Limit("a driver with leases", self.driver(leases=True) * DAY, "more drivers, each with participants of its own"),
            Limit("a driver without leases", self.driver(leases=False) * DAY, "the same"),
            Limit(
                "a worker of a service",
                DAY * 1e3 / of("measured.service_batch_ms") * of("measured.batch_records"),
                "more workers, then more hosts, with PostgreSQL",
            ),
            Limit(
                "a ledger settled on one core",
                DAY * 1e6 / of("measured.settle_ledger_us"),
                "more competitions, or settle --archive",
            ),
            Limit("a ledger's writer", DAY * 1e6 / of("measured.intake_us"), "a ledger for each competition"),
            Limit("an auditor with one core", DAY * 1e6 / of("measured.verify_us"), "verify --all with more processes"),
        ]
        return sorted(parts, key=lambda limit: limit.most)


def _number(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:,.3g}"


def report(figures: Figures, trials: float, participants: float) -> Iterator[str]:
    """The lines that are printed."""
    scale = Scale(figures, trials, participants)
    yield f"{trials:,.0f} trials a day, {participants:,.0f} participants, {figures.value('load.competitions'):,.0f} competitions"
    parts = (
        ("judging", scale.judging()),
        ("the ledgers", scale.ledger()),
        ("settling, log, audit", scale.settling()),
        ("cost a day", scale.costs()),
    )
    for name, rows in parts:
        yield f"\n{name}"
        for row in rows:
            yield f"  {row.what:58}{_number(row.amount):>16} {row.unit}".rstrip()
    yield f"\n{'what breaks first, if there is one of it':42}{'trials a day':>16}   needed   then"
    for limit in scale.limits():
        needed = _number(max(1.0, trials * figures.value("load.peak") / limit.most))
        yield f"  {limit.part:40}{limit.most:16,.0f} {needed:>8}   {limit.then}"


def asks_per_turn(waiting: int, rate: int) -> float:
    """The number of times that the engine's bucket is asked for each turn it gives, if so many stations wait. rate: a minute."""
    now, asked = 0.0, 0
    bucket = Bucket(rate, lambda: now)
    asking: list[tuple[float, int, Ticket | None]] = [(0.0, number, None) for number in range(waiting)]
    while asking:
        now, number, ticket = heapq.heappop(asking)
        asked += 1
        left, ticket = bucket.turn(ticket)
        if left > 0:
            heapq.heappush(asking, (now + max(left, SLEEP), number, ticket))
    return asked / waiting


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials-a-day", type=float, default=1e9, metavar="N")
    parser.add_argument("--participants", type=float, default=1e5, metavar="N")
    parser.add_argument("--sources", action="store_true", help="print each figure and where it comes from")
    add_options(parser)
    options = parser.parse_args(words)
    figures = chosen(options)
    if not (options.trials_a_day > 0 and options.participants > 0):
        parser.error("give more than 0 trials and participants")
    if options.sources:
        for name, source in figures.sources.items():
            value = figures.values[name]
            print(f"{name:32}{value if isinstance(value, (int, float)) else '…':>12}   {source}")
        return
    print("\n".join(report(figures, options.trials_a_day, options.participants)))


if __name__ == "__main__":
    main()
