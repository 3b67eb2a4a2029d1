"""A simulated year: nothing acknowledged is lost, no epoch is skipped, and nobody has to intervene, whatever happens."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

import judge_kit
import ledger_kit
import node_kit
import postgres
import season_kit
import wrong_clock
import year_kit
from assay.ledger import keys
from cli_kit import output
from node_kit import until
from season_kit import LONG, NAMES, SeasonParticipants, settlements
from test_closing import settled
from wires import Wires
from wrong_clock import WrongClock
from year_kit import Year

ROOT = Path(__file__).parents[2]
EARLIER = "58f78f1e"
"""A commit of which one validator is."""


@pytest.fixture
def cluster() -> Iterator[postgres.Cluster]:
    with postgres.cluster() as server:
        yield server


def year(root: Path, cluster: postgres.Cluster, seed: int, wires: Wires | None, *, long: bool) -> Year:
    """The season and its processes; nothing is begun yet."""
    signers = {key.public.raw.hex(): key for key in (keys.read(b"%d" % number * 32) for number in range(41, 47))}
    place = year_kit.competition(root, cluster.database(), [*signers], "1s")
    host, port = "127.0.0.1" if wires is None else wires.host["operator"], season_kit.free_port()
    url, clocks = f"http://{host}:{port}/small", dict[str, WrongClock]()
    if long:
        clock = wrong_clock.library(root)
        clocks = {name: WrongClock(clock, root / f"{name}.clock") for name in ("operator", NAMES[2])}
    old = earlier(root) if long else None

    def prefix(name: str) -> list[str]:
        words = [] if wires is None else wires.prefix(name)
        if name in clocks:
            words += clocks[name].prefix
        if name == NAMES[1] and old is not None:
            words += ["env", f"PYTHONPATH={old}"]
        return words

    judges = [season_kit.validator(root / name, url, name, prefix=prefix(name)) for name in NAMES]
    second = season_kit.validator(root / "elsewhere", url, NAMES[0], prefix=prefix(NAMES[0]))
    node = season_kit.operator(place, port, "--host", host, "--catch-up", prefix=prefix("operator"))
    people = SeasonParticipants(url, signers)
    return Year(place, people, node, judges, second, cluster, random.Random(seed), wires, clocks)


def earlier(root: Path) -> Path | None:
    """The sources of an earlier version; None outside a checkout that has them."""
    place = root / "earlier"
    place.mkdir(exist_ok=True)
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", EARLIER, "src"], capture_output=True, check=False)
    if packed.returncode:
        return None
    subprocess.run(["tar", "-x", "-C", str(place)], input=packed.stdout, check=True)
    return place / "src"


def live(season: Year, epochs: int) -> float:
    """Begin everything, let the year pass, and end everything in order; returns the seconds."""
    begun = time.monotonic()
    with ExitStack() as stack:
        for process in season.processes:
            process.start()
            stack.callback(process.end)
        season.begin()
        season.live(epochs)
        until(season.has_everything, "everything that was judged is sent", 3 * LONG)
        last = len(settled(season.place))
        until(lambda: len(settled(season.place)) > last, "and settled", 3 * LONG)
        for process in [*season.judges, season.second, season.node]:
            process.stop()
    return time.monotonic() - begun


def check(season: Year, by_hand: Sequence[int]) -> None:
    """Everything that was acknowledged is there once; every epoch is settled; by hand it comes to the same."""
    place, people = season.place, season.people
    acknowledged = {(row["participant"], row["submission"], row["epoch"]) for row in people.acknowledged}
    assert acknowledged <= season_kit.submitted(place)
    batches = [*season_kit.sent([place.parent / name for name in (*NAMES, "elsewhere")]), *season.lies]
    assert {batch.digest for batch in batches} <= season_kit.batches_in(place)
    epochs = settled(place)
    assert epochs == list(range(1, len(epochs) + 1))
    theirs = settlements(place)
    assert season_kit.by_hand(place, place.parent / "hand", people, batches, by_hand) == {n: theirs[n] for n in by_hand}
    assert node_kit.conflicts(place) == 0, "of two nodes with one key, nothing is counted twice"
    printed = (season.judges[0].out.read_text(), season.second.out.read_text())
    assert any("another node works with this key" in text for text in printed), "of two nodes with one key, one is told"
    output("ledger", "check", place)
    output("export", "epoch", place, str(epochs[-1]), "--output", place.parent / "export")
    output("verify", place.parent / "export")


def lies_caught(season: Year) -> int:
    """How many scores of the liar's were left out as outliers, in all epochs."""
    rows = [row for text in settlements(season.place).values() for row in json.loads(text)["agreed"]]
    liar = year_kit.LIAR.public.raw.hex()
    return sum(1 for row in rows for vote in row["validators"] if vote["validator"] == liar and vote["excluded"])


def report(season: Year, seconds: float, note: str) -> str:
    """What happened, as Markdown."""
    with ledger_kit.opened(season.place) as ledger, ledger.store.reading() as view:
        records, batches = view.count(), view.last_batch()
    rows = {
        "epochs settled, in their order": len(settled(season.place)),
        "submissions acknowledged, all in the ledger": len(season.people.acknowledged),
        "batches in the ledger, with records": f"{batches}, {records}",
        "records that contradict an earlier one": node_kit.conflicts(season.place),
        "lies sent; scores of the liar left out as outliers": f"{len(season.lies)}; {lies_caught(season)}",
        "times that a validator said that its clock is wrong": _clock_alarms(season),
        "kills": ", ".join(f"{process.name} {process.kills}" for process in season.processes),
        "what happened": ", ".join(f"{name} {count}" for name, count in sorted(season.happened.items())),
        "things lost, epochs skipped, interventions": "0, 0, 0",
        "an earlier version": note,
        "the network": "loopback" if season.wires is None else f"namespaces, partitions, {' '.join(season.wires.trouble)}",
        "seconds": round(seconds),
    }
    return "\n".join(
        ["# A simulated year", "", "| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items()), ""]
    )


def _clock_alarms(season: Year) -> int:
    return sum("alarm: " in line and "this machine's clock" in line for line in season.judges[2].out.read_text().splitlines())


@pytest.mark.slow
@pytest.mark.full
def test_a_short_year(tmp_path: Path, cluster: postgres.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_kit.bubblewrap()
    monkeypatch.setenv("ASSAY_KEYS", str(season_kit.keys_in(tmp_path / "keys")))
    season = year(tmp_path, cluster, 1, None, long=False)
    seconds = live(season, 20)
    check(season, settled(season.place))
    assert lies_caught(season) > 0
    sys.stdout.write(report(season, seconds, "none"))


@pytest.mark.slow
@pytest.mark.full
def test_a_year(tmp_path: Path, cluster: postgres.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_kit.bubblewrap()
    assert os.geteuid() == 0, "network namespaces and `tc netem` need root: run it as root"
    monkeypatch.setenv("ASSAY_KEYS", str(season_kit.keys_in(tmp_path / "keys")))
    with Wires(("operator", *NAMES)) as wires:
        season = year(tmp_path, cluster, int(os.environ.get("ASSAY_YEAR_SEED", "1")), wires, long=True)
        seconds = live(season, int(os.environ.get("ASSAY_YEAR_EPOCHS", "500")))
    epochs = settled(season.place)
    check(season, [*epochs[::50], epochs[-1]])
    assert lies_caught(season) > 0
    assert all(process.kills for process in season.processes), "everybody was killed"
    note = f"val-2 ran {EARLIER}" if (tmp_path / "earlier" / "src").exists() else "not tried: this is no checkout with its commit"
    place = ROOT / "build" / "year.md"
    place.parent.mkdir(exist_ok=True)
    place.write_text(report(season, seconds, note))
