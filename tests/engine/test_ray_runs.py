"""Runs on a real Ray cluster of two nodes: whatever is killed, each trial counts once, and nothing is left.

A cluster takes long to start, and tests that run beside each other cannot share one. So `make test` has one test here, of several
parts. `make full` kills a node, the driver or the database fifty times in a thousand trials; it judges rubrics and workflows too.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

import archive_kit
import assay
import bounty_run_kit
import node_kit
import postgres
import workflow_run_kit
from assay.engine import ray_node
from assay.engine.ray_engine import RayEngine
from assay.judge.rubric.scripted import ScriptedFault
from assay.judge.running import RunOptions
from assay.judge.stations import StationSpec
from assay.judge.terminal.competition import submit_agent
from assay.judge.terminal.run import run
from assay.ledger import keys
from cli_kit import output
from depth import depth
from judge_kit import bubblewrap, make_agent, make_competition, make_task
from ledger_kit import ORIGIN, SIGNER, V1, VALIDATORS, opened
from ray_kit import Cluster, Run, cluster, evidence, until
from service_kit import running
from workflow_chaos import reply_of, serving, well

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def nodes() -> Iterator[Cluster]:
    """Two nodes, each of which can hold boxes."""
    bubblewrap()
    with cluster(cpus=depth(1, 2)) as started:  # Ray starts a process for each before anybody needs it
        yield started


TOML = "cpus = 1\n"
AGENTS = {"ann": "sleep {pause}\necho hello > out.txt\n", "bob": "sleep {pause}\n"}
"""One agent solves every task after a pause, and one does nothing."""


def competition(folder: Path, *, tasks: int, trials: int, pause: float = 0.2) -> Path:
    """A competition of two agents, with the validator whose key is `val-1`, and no ledger yet."""
    for number in range(tasks):
        make_task(folder / "tasks" / f"t{number}", toml=TOML, solution=None)
    make_competition(folder, dict.fromkeys(AGENTS, ""), trials=trials)
    (folder / "validators.csv").write_text(f"key,stake,name\n{V1},100,val-1\n")
    for name, script in AGENTS.items():
        make_agent(folder.parent / f"{folder.name}-{name}", script.format(pause=pause))
        submit_agent(folder, name, str(folder.parent / f"{folder.name}-{name}"))
    return folder


def with_keys(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The keys of the validator and of the log, for all that is started from here."""
    monkeypatch.setenv("ASSAY_KEYS", str(folder))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    keys.save("val-1", VALIDATORS[V1])
    keys.save("log", SIGNER)


def outcomes(folder: Path) -> Counter[tuple[str, ...]]:
    """How often there is a record of each trial, with its outcome."""
    lines = [json.loads(line) for file in (folder / "evidence").glob("*.jsonl") for line in file.read_bytes().splitlines()]
    return Counter((line["participant"], line["task"], str(line["trial"]), line["outcome"]) for line in lines)


def in_ledger(folder: Path) -> Counter[tuple[str, ...]]:
    """The same of the records that count in its ledger: of two of one trial the first."""
    with opened(folder) as ledger, ledger.store.reading() as view:
        later = {conflict.record.seq for conflict in view.conflicts()}
        rows = [json.loads(record.body) for record in view.records() if record.seq not in later]
    return Counter((row["participant"], row["task"], str(row.get("trial", 1)), row["outcome"]) for row in rows)


@dataclass
class Season:
    """A run of two drivers, one of which is alive at a time, on two nodes and one ledger in PostgreSQL; and who dies in it.

    places: the folders of the drivers, each as if on a machine of its own.
    """

    nodes: Cluster
    database: postgres.Cluster
    places: list[Path]
    kills: list[tuple[int, str]]
    """After how many records who is killed: `node`, `driver` or `database`. After that, the next one begins at once."""
    killed: Counter[str] = field(default_factory=Counter)
    _turn: int = 0

    def driver(self) -> Run:
        """The driver in the folder whose turn it is."""
        place = self.places[self._turn % len(self.places)]
        return self.nodes.run(place, "--sign", "val-1", "--jobs", depth("2", "4"), validator=None)

    def _reached(self, goal: int, going: Run) -> bool:
        return sum(map(evidence, self.places)) >= goal or going.process.poll() is not None

    def carry_out(self) -> None:
        """Kill whoever is to be killed, until everything is judged."""
        going = self.driver()
        for goal, victim in self.kills:
            until(partial(self._reached, goal, going))
            self.killed[victim] += 1
            print(f"{sum(map(evidence, self.places))} records: the {victim} is killed", flush=True)
            if victim == "node":
                self.nodes.lose(self.nodes.nodes[-1])
                self.nodes.start()
            elif victim == "database":
                self.database.restart(postgres.CRASH)
            else:
                going.kill()
                self._turn += 1
                going = self.driver()
        for number in range(len(self.places)):  # what a driver wrote just before it was killed is signed when it goes on
            assert json.loads(going.end())["errors"] == []
            if number + 1 < len(self.places):
                self._turn += 1
                going = self.driver()


def each_counts_once(nodes: Cluster, database: postgres.Cluster, place: Path, kills: list[tuple[int, str]], **size: int) -> None:
    """A season whose trials all count once, are settled as a local run's, and leave nothing behind."""
    drivers = size.pop("drivers", 1)
    here = competition(place / "here", pause=0.0, **size)
    places = [place / f"there-{number}" for number in range(drivers)]
    for there in places:
        shutil.copytree(here, there)
    output("ledger", "init", places[0], "--origin", ORIGIN, "--key", "log", "--database", database.database())
    for there in places[1:]:
        shutil.copy(places[0] / "ledger.toml", there)
    season = Season(nodes, database, places, kills)
    season.carry_out()
    counts = in_ledger(places[0])
    assert set(counts.values()) == {1}
    assert len({trial[:3] for trial in counts}) == len(counts)
    assert len(counts) == 2 * size["tasks"] * size["trials"]
    if nodes.left():  # of a machine that came back after the end of the run: the next run clears it, though nothing is missing
        until(nodes.is_complete, "a node did not come back")
        season.driver().end()
    until(lambda: not nodes.left(), f"there is something left: {nodes.left()}")
    assert not [path for there in places for path in there.glob("trials/*/.partial/*")]
    run(here, V1, RunOptions(jobs=2))
    local, far = assay.open(here).settle(), json.loads(output("settle", places[0], "--dry-run", "--json"))
    assert far["digest"] == local.digest
    lines = sum(map(evidence, places))
    print(f"{len(counts)} trials, killed {dict(season.killed)}; {lines} records written; digest as locally: {far['digest']}")


def test_in_short(
    nodes: Cluster, postgresql: postgres.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    with_keys(monkeypatch, tmp_path / "keys")
    with subtests.test("40 trials, into a ledger; a node, the driver and the database die"):
        kills = [(6, "database"), (14, "node"), (26, "driver")]
        each_counts_once(nodes, postgresql, tmp_path / "season", kills, tasks=1, trials=20)
    with subtests.test("a validator's node"):
        a_validators_node(nodes, tmp_path / "node")
    with subtests.test("an archive"):
        an_archive(nodes, tmp_path / "archive")


def a_validators_node(nodes: Cluster, place: Path) -> None:
    """It fetches from a service, judges on the nodes, and sends."""
    theirs = node_kit.operator(
        place / "theirs" / "small", tasks=("t1", "t2"), agents={"m1": node_kit.RIGHT, "m2": node_kit.WRONG}
    )
    with running(theirs) as service:
        words = ("node", "validator", place / "mine", "--url", f"{service.address}/small", "--key", node_kit.KEY, "--once")
        printed = output(*words, "--engine", "ray", "--address", nodes.address)
    assert "judged 4 of 4 (2 fail, 2 pass)" in " ".join(printed.split())
    assert [row[:3] for row in sorted(node_kit.stored(theirs))] == [
        *((1, "t1", "fail"), (1, "t1", "pass"), (1, "t2", "fail"), (1, "t2", "pass"))
    ]


def an_archive(nodes: Cluster, place: Path) -> None:
    """It is verified and settled on the nodes as on this machine."""
    archives, far = archive_kit.template(place), ("--engine", "ray", "--address", nodes.address)
    verifying = ("verify", "--all", str(archives / "lines"), "--key", archive_kit.KEY, "--key", archive_kit.OTHER_KEYS[0])
    settling = ("settle", "--archive", f"{archives}/columns/**/*.parquet")
    for words in depth((settling,), (verifying, settling)):
        words = (*words, "--workers", depth("1", "0"), "--json")
        assert json.loads(output(*words, *far)) == json.loads(output(*words))


@pytest.mark.full
def test_a_thousand_trials_and_fifty_kills(
    nodes: Cluster, postgresql: postgres.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_keys(monkeypatch, tmp_path / "keys")
    rolls = random.Random(21)
    goals = sorted(rolls.sample(range(1, 960), 50))
    kills = [(goal, rolls.choice(("node", "driver", "database"))) for goal in goals]
    each_counts_once(nodes, postgresql, tmp_path / "season", kills, tasks=10, trials=50, drivers=2)


@pytest.mark.full
def test_stop_leaves_nothing_and_goes_on(nodes: Cluster, tmp_path: Path) -> None:
    folder = competition(tmp_path / "c", tasks=1, trials=4, pause=2.0)
    make_agent(tmp_path / "slow", "sleep 7200\n")
    submit_agent(folder, "bob", str(tmp_path / "slow"))
    going: Run = nodes.run(folder)
    assert going.reaches(1)
    assert going.stop() == 130  # and not when the slow agent ends
    before = evidence(folder)
    until(lambda: not nodes.left(), f"there is something left: {nodes.left()}")
    assert json.loads(nodes.run(folder, "--participant", "ann").end())["judged"] == 4 - before
    assert set(outcomes(folder).values()) == {1}


@pytest.mark.full
def test_one_bucket_gives_the_turns_of_both_nodes(nodes: Cluster) -> None:
    def asked(run: str) -> list[float]:
        gate = ray_node._RemoteGate(run)
        gate.pause(100.0)
        return [gate.turn().seconds for _ in range(5)]

    ray_engine = RayEngine(nodes.address)
    try:
        ray = ray_engine._ray
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        crew = ray_engine.crew(StationSpec("somewhere:Station", None, rate=60))
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        tasks = [ray.remote(asked).options(num_cpus=0, scheduling_strategy=affinity(node, soft=False)) for node in alive]
        turns = sorted(itertools.chain.from_iterable(ray.get([task.remote(crew._run) for task in tasks])))
        crew.close(now=False)
    finally:
        ray_engine.close()
    assert len(turns) == 5 * len(alive) == 10
    assert all(95 < turn < 115 for turn in turns)  # the pause that one asked for holds for both, then they go one by one
    assert turns[-1] - turns[0] > 7


@pytest.mark.full
def test_rubrics_are_judged_on_nodes(nodes: Cluster, tmp_path: Path) -> None:
    here, there = bounty_run_kit.make_run(tmp_path / "here"), bounty_run_kit.make_run(tmp_path / "there")
    with bounty_run_kit.scripted(ScriptedFault(kind="429", times=1)) as server:
        going = nodes.run(there, "--model-url", server.url)
        assert json.loads(going.end())["outcomes"] == {"judged": 3}
        bounty_run_kit.judged(here, server.url)
    local, far = (assay.open(folder).settle() for folder in (here, there))
    assert far.document["agreed"] == local.document["agreed"]
    assert bounty_run_kit.outcomes(there) == bounty_run_kit.outcomes(here)


@pytest.mark.full
def test_workflows_are_judged_on_nodes(nodes: Cluster, tmp_path: Path) -> None:
    with serving(do=well("done"), fail=reply_of({"error": "no"}), ping=well("done")) as server:
        folder = workflow_run_kit.competition(
            tmp_path, server, {"ann": workflow_run_kit.plan(), "bob": workflow_run_kit.plan("fail")}
        )
        assert json.loads(nodes.run(folder).end())["outcomes"] == {"invalid": 2, "ran": 2}
    assert {who: what for (who, _), what in workflow_run_kit.outcomes(folder).items()} == {"ann": "ran", "bob": "invalid"}


@pytest.mark.full
def test_a_run_that_stops_when_it_is_decided_does_so_on_nodes(nodes: Cluster, tmp_path: Path) -> None:
    """Whoever stays below the floor is judged no further, but for what is under way; it pays as a full run does."""
    folders = here, there = tmp_path / "here", tmp_path / "there"
    for folder in folders:
        competition(folder, tasks=4, trials=10, pause=0.0)
        with (folder / "scheme.toml").open("a", encoding="utf-8") as file:
            file.write('[reward]\nmin_score = "0.5"\n[decay]\ncurve = "none"\n')
    report = json.loads(nodes.run(there, "--until", "paid").end())
    run(here, V1, RunOptions(jobs=2))
    assert report["errors"] == []
    assert report["decided"]["decided"]
    assert report["decided"]["spared"] == 80 - report["judged"] > 0
    judged = Counter(participant for participant, *_ in outcomes(there).elements())
    assert judged["ann"] == 40
    assert 20 < judged["bob"] < 40
    local, far = (
        {who: weight.u16 for who, weight in assay.open(folder).settle().weights.items() if weight.u16} for folder in folders
    )
    assert far == local != {}
    again = json.loads(nodes.run(there, "--until", "paid").end())
    assert (again["judged"], again["decided"]["spared"]) == (0, report["decided"]["spared"])
    until(lambda: not nodes.left(), f"there is something left: {nodes.left()}")
