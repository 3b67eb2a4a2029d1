"""The time and memory that bulk evidence takes, against DuckDB's bare GROUP BY over the same files.

    python bench/bulk.py            64 validators × 256 participants × 89 tasks: 1.46 M records; and the other kinds
    python bench/bulk.py --full     and 128 competitions of that size: 187 M records

The data is made once, under build/bench/. Both are measured in one process, in turns: once to warm up, then the best of
several counts. The whole is from the files to the settlements, `bare` the query alone.

The second table is in seconds of processor time, of all threads, so that what else the machine does matters less:

- workflow as Parquet, beside DuckDB's scan of the columns that the formula needs, summed by validator and participant;
- workflow as lines of JSON, beside `json.loads` of each line and the formula of SPEC 2.2 in plain Python floats;
- judgements by rubric, in both forms;
- reading lines alone, beside the reader that makes one record of one line;
- the settlement of a small folder, called again and again, beside the kernel alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from assay import folder
from assay.folder import bulk, evidence, lines
from assay.folder.files import Place
from assay.records import Participant, Validator
from assay.scheme.load import parse
from assay.scheme.model import TestsScore
from assay.settle.inputs import Inputs, frame
from assay.settle.pipeline import settle

FOLDER = Path(__file__).parents[1] / "build" / "bench" / "bulk"
VALIDATORS, PARTICIPANTS, TASKS, EPOCH = 64, 256, 89, 12
LIMIT_RATIO, LIMIT_GIB = 3.0, 4.0


def submission(competition: int, participant: int) -> str:
    return "sha256:" + hashlib.sha256(f"{competition}/{participant}".encode()).hexdigest()


def make(competitions: int) -> list[Path]:
    """The files, one per competition, runs in the order in which they arrived; made if they are not there."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    paths = [FOLDER / f"competition-{index:03}.parquet" for index in range(competitions)]
    for index, path in enumerate(paths):
        if path.exists():
            continue
        beside = path.with_suffix(".tmp")
        duckdb.sql(f"""COPY (
            SELECT 'tests' AS kind, 'competition-{index:03}' AS competition, {EPOCH}::BIGINT AS epoch,
                format('validator-{{:02}}', v) AS validator, format('miner-{{:03}}', p) AS participant,
                'sha256:' || sha256(format('{index}/{{}}', p)) AS submission, format('task-{{:03}}', t) AS task,
                CASE WHEN hash({index}, v, p, t) % 1000 < 3 THEN 'timeout'
                     WHEN hash({index}, p, t) % 100 < 20 + p % 70 THEN 'pass' ELSE 'fail' END AS outcome,
                1 AS trial, TIMESTAMP '2026-11-01' + to_seconds((hash({index}, v, p) % 86400)::BIGINT) AS observed_at
            FROM (SELECT v, p, t FROM range({VALIDATORS}) a(v), range({PARTICIPANTS}) b(p), range({TASKS}) c(t)
                  ORDER BY hash({index}, v, p), t))
            TO '{beside}' (FORMAT parquet, COMPRESSION zstd)""")
        beside.rename(path)
    return paths


def bare(paths: list[Path]) -> int:
    """The yardstick."""
    names = ", ".join(f"'{path}'" for path in paths)
    query = f"SELECT competition, validator, participant, count(*) FROM read_parquet([{names}]) GROUP BY 1, 2, 3"
    return len(duckdb.execute(query).fetchnumpy()["competition"])


def inputs(index: int) -> Inputs:
    """The rules and the registry of one competition."""
    participants = (Participant(f"miner-{p:03}", uid=p + 1, submission=submission(index, p)) for p in range(PARTICIPANTS))
    return Inputs(
        scheme=parse(f'[scheme]\nname = "competition-{index:03}"\n[score]\nkind = "tests"\n'),
        epoch=EPOCH,
        participants=tuple(participants),
        validators=tuple(Validator(f"validator-{v:02}", stake=1000 + v) for v in range(VALIDATORS)),
        tasks=tuple(f"task-{t:03}" for t in range(TASKS)),
    )


def whole(paths: list[Path]) -> int:
    """Files to settlements: every trial counted once, every score agreed, every weight encoded."""
    given = {f"competition-{index:03}": inputs(index) for index in range(len(paths))}
    rules = TestsScore(kind="tests")
    scored = bulk.tally_many(paths, {name: (frame(competition), rules) for name, competition in given.items()})
    for name, competition in given.items():
        result = settle(replace(competition, evidence=scored[name]))
        assert len(result.order) == PARTICIPANTS
    return sum(int(tally.counting.sum()) for tally in scored.values())


def measure(competitions: int, times: int) -> tuple[float, float, float]:
    """(seconds bare, seconds whole, GiB) in a process of its own."""
    command = [sys.executable, __file__, "--one", str(competitions), "--times", str(times)]
    bare_best, whole_best, gib = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return bare_best, whole_best, gib


def measure_here(competitions: int, times: int) -> None:
    """One measurement in this process: both in turns, so that what else the machine does falls on both."""
    paths = make(competitions)
    seconds: dict[str, list[float]] = {"bare": [], "whole": []}
    for turn in range(times + 1):
        for name, run in (("bare", bare), ("whole", whole)):
            begin = time.perf_counter()
            assert run(paths) == competitions * VALIDATORS * PARTICIPANTS
            if turn:
                seconds[name].append(time.perf_counter() - begin)
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps([min(seconds["bare"]), min(seconds["whole"]), gib]))


KINDS = FOLDER.parent / "kinds"
LINES_VALIDATORS, ASKED, RUBRIC_PARTICIPANTS = 3, 100, 1_563
HEAD = "[scheme]\nname = 'bench'\n[score]\nkind = '{}'\n"
CHECKS = ", ".join(f"{{id = 'c{at}', weight = 1250, skippable = {str(at > 3).lower()}}}" for at in range(8))
SCHEMES = {"workflow": HEAD.format("workflow"), "rubric": f"{HEAD.format('rubric')}checks = [{CHECKS}]\n"}
AMOUNT = "DECIMAL(18, 9)"
WORKFLOW = f"""SELECT 'workflow' AS kind, {EPOCH}::BIGINT AS epoch, format('validator-{{{{:02}}}}', v) AS validator,
    format('miner-{{{{:04}}}}', p) AS participant, 'sha256:' || sha256(format('{{{{}}}}', p)) AS submission,
    format('task-{{{{:03}}}}', t) AS task, TIMESTAMP '2026-11-01' + to_seconds((hash(v, p, t) % 86400)::BIGINT) AS observed_at,
    ((hash(v, p, t, 1) % 1000) / 1000)::{AMOUNT} AS quality, 3 + (hash(v, p, t, 2) % 3)::INTEGER AS steps_completed,
    5 AS steps_total, ((hash(v, p, t, 3) % 100000) / 1000000)::{AMOUNT} AS cost, 0.1::{AMOUNT} AS budget,
    ((hash(v, p, t, 4) % 100000) / 1000)::{AMOUNT} AS seconds, 120::{AMOUNT} AS max_seconds,
    (hash(v, p, t, 5) % 3)::INTEGER AS retries, 1 AS declared_retries, (hash(v, p, t, 6) % 2)::INTEGER AS timeouts,
    0 AS hard_failures, 'ran' AS outcome
    FROM (SELECT v, p, t FROM range({{}}) a(v), range({PARTICIPANTS}) b(p), range({ASKED}) c(t) ORDER BY hash(v, p), t)"""
RUBRIC = f"""SELECT 'rubric' AS kind, {EPOCH}::BIGINT AS epoch, format('validator-{{:02}}', v) AS validator,
    format('miner-{{:04}}', p) AS participant, 'sha256:' || sha256(format('{{}}', p)) AS submission,
    TIMESTAMP '2026-11-01' + to_seconds((hash(v, p) % 86400)::BIGINT) AS observed_at,
    {{'B1': true, 'B2': true, 'B3': hash(v, p) % 50 > 0, 'B4': true}} AS baseline,
    {{{", ".join(f"'c{at}': hash(v, p, {at}) % 4 > 0" for at in range(8))}}} AS checks,
    list_extract(['EXCEPTIONAL', 'ELEGANT', 'COHERENT', 'MINOR_ISSUES', 'FLAWED'], 1 + (hash(p, v) % 5)::INTEGER) AS verdict,
    {{'c1': format('page {{}} says so', hash(v, p) % 1000), 'c2': 'as it is written'}} AS quotes
    FROM range({VALIDATORS}) a(v), range({RUBRIC_PARTICIPANTS}) b(p)"""
SUMMED: tuple[str, ...] = ("quality", "steps_completed", "steps_total", "cost", "budget", "seconds", "max_seconds")
SUMMED += ("retries", "declared_retries", "timeouts", "hard_failures")


def folder_of(kind: str, form: str, validators: int, participants: int, query: str) -> Path:
    """A competition's folder with its evidence as Parquet or as lines of JSON; made if it is not there."""
    place = KINDS / f"{kind}-{form}-{validators}-{participants}"
    if place.exists():
        return place
    beside = place.with_suffix(".tmp")
    shutil.rmtree(beside, ignore_errors=True)
    (beside / "evidence").mkdir(parents=True)
    (beside / "scheme.toml").write_text(SCHEMES[kind])
    names = (f"miner-{p:04},{p + 1},sha256:{hashlib.sha256(str(p).encode()).hexdigest()}" for p in range(participants))
    (beside / "participants.csv").write_text("\n".join(["key,uid,submission", *names, ""]))
    keys = (f"validator-{v:02},{1000 + v}" for v in range(validators))
    (beside / "validators.csv").write_text("\n".join(["key,stake", *keys, ""]))
    target = beside / "evidence" / f"a.{form}"
    if form == "parquet":
        duckdb.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")
    else:
        table: Any = duckdb.execute(query).to_arrow_table()
        with target.open("w") as file:
            for batch in table.to_batches():
                file.writelines(json.dumps(jsonable(row), separators=(",", ":")) + "\n" for row in batch.to_pylist())
    beside.rename(place)
    return place


def jsonable(row: dict[str, object]) -> dict[str, object]:
    """A row as its line of JSON has it."""
    line = dict(row)
    for name, value in row.items():
        if isinstance(value, Decimal):
            line[name] = format(value.normalize(), "f")
        elif isinstance(value, datetime):
            line[name] = f"{value.isoformat()}Z"
    return line


def grouped(place: Path) -> int:
    """DuckDB's scan of what the formula needs, grouped: sums, and not even the formula."""
    sums = ", ".join(f"sum({name})" for name in SUMMED)
    query = f"SELECT validator, participant, count(*), {sums} FROM '{place}/evidence/a.parquet' GROUP BY 1, 2"
    return len(duckdb.execute(query).fetchnumpy()["validator"])


def in_floats(place: Path) -> int:
    """The mean score of each validator for each participant: SPEC 2.2 in plain Python floats, over `json.loads`."""
    tasks: dict[tuple[str, str], list[tuple[int, str, float]]] = {}
    with (place / "evidence/a.jsonl").open("rb") as file:
        for line in file:
            row = json.loads(line)
            success = float(row["quality"]) * row["steps_completed"] / row["steps_total"]
            cost = latency = 0.0
            if success > 0.7:
                cost = max(0.0, 1 - float(row["cost"]) / float(row["budget"]))
                latency = max(0.0, 1 - float(row["seconds"]) / float(row["max_seconds"]))
            unplanned = max(0, row["retries"] - row["declared_retries"])
            trouble = 0.1 * unplanned + 0.2 * row["timeouts"] + 0.5 * row["hard_failures"]
            score = 0.5 * success + 0.25 * cost + 0.15 * latency + 0.1 * min(1.0, max(0.0, 1 - trouble))
            tasks.setdefault((row["validator"], row["participant"]), []).append((row["epoch"], row["task"], score))
    means = {}
    for key, rows in tasks.items():
        window = sorted(rows)[-100:]
        means[key] = sum(score for _, _, score in window) / len(window)
    return len(means)


def settled(place: Path) -> int:
    """From the folder to the settlement."""
    return int(settle(folder.read(place)).scored.counting.sum())


def read_alone(place: Path) -> int:
    """Every line by itself: strict JSON, a record, its names looked up."""
    registry = names_of(place)
    gathered = evidence.Gathered()
    path = place / "evidence/a.jsonl"
    with path.open("rb") as file:
        for number, line in evidence.lines(file, path):
            at = Place(path, number)
            item = evidence.parsed(line, at)
            registry.check(item, at)
            gathered.records.append(item)
            gathered.places.append(at)
    return len(gathered.records)


def read_arrays(place: Path) -> int:
    """The same lines as arrays."""
    return len(lines.read([place / "evidence/a.jsonl"], names_of(place)).columns)


@cache
def names_of(place: Path) -> evidence.Registry:
    competition = folder.read(place)
    validators, participants = (frozenset(row.key for row in rows) for rows in (competition.validators, competition.participants))
    return evidence.Registry(competition.scheme.score.kind, validators, participants, competition.scheme.score)


def cpu(times: int, *runs: Callable[[], object]) -> list[float]:
    """The least seconds of processor time of each, in turns, after one to warm up."""
    spent: list[list[float]] = [[] for _ in runs]
    for turn in range(times + 1):
        for at, run in enumerate(runs):
            begin = time.process_time()
            run()
            if turn:
                spent[at].append(time.process_time() - begin)
    return [min(seconds) for seconds in spent]


def kinds(times: int) -> None:
    """The second table."""
    parquet = folder_of("workflow", "parquet", VALIDATORS, PARTICIPANTS, WORKFLOW.format(VALIDATORS))
    as_lines = folder_of("workflow", "jsonl", LINES_VALIDATORS, PARTICIPANTS, WORKFLOW.format(LINES_VALIDATORS))
    judged = [folder_of("rubric", form, VALIDATORS, RUBRIC_PARTICIPANTS, RUBRIC) for form in ("parquet", "jsonl")]
    small = Path(__file__).parents[1] / "examples" / "season"
    ready = folder.read(small)

    def row(what: str, ours: float, beside: str, base: float, aim: str, *, ms: bool = False) -> None:
        scale, unit = (1000, "ms") if ms else (1, "s ")
        print(
            f"{what:46} {ours * scale:7.3f} {unit} {base * scale:8.3f} {unit} {ours / base:7.2f}   {beside} (aim: {aim})",
            flush=True,
        )

    print(f"{'processor time':46} {'ours':>10} {'beside':>11} {'ratio':>7}")
    ours, base = cpu(times, lambda: settled(parquet), lambda: grouped(parquet))
    row(
        f"workflow, {VALIDATORS * PARTICIPANTS * ASKED:,} rows of Parquet, settled",
        ours,
        "DuckDB's scan and sums",
        base,
        "at most 3",
    )
    ours, base = cpu(times, lambda: settled(as_lines), lambda: in_floats(as_lines))
    count = LINES_VALIDATORS * PARTICIPANTS * ASKED
    row(f"workflow, {count:,} lines of JSON, settled", ours, "json.loads and floats", base, "at most 0.5")
    for place in judged:
        (ours,) = cpu(times, lambda place=place: settled(place))  # type: ignore[misc]
        what = (
            f"rubric, {VALIDATORS * RUBRIC_PARTICIPANTS:,} judgements, {next((place / 'evidence').iterdir()).suffix[1:]}, settled"
        )
        row(what, ours, "two seconds", 2.0, "at most 1")
    ours, base = cpu(1, lambda: read_arrays(as_lines), lambda: read_alone(as_lines))
    row(f"reading {count:,} lines of workflow", ours, "each line alone", base, "at most 0.2")
    ours, base = cpu(30, lambda: settled(small), lambda: settle(ready))
    row("examples/season, settled from its folder", ours, "the kernel alone; at most 4 ms", base, "4 ms", ms=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="128 competitions as well")
    parser.add_argument("--times", type=int, default=5, help="how often each is run")
    parser.add_argument("--one", dest="competitions", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.competitions:
        return measure_here(chosen.competitions, chosen.times)
    print(f"{'records':>12}  {'bare':>8}  {'whole':>8}  {'ratio':>6}  {'memory':>9}")
    for competitions in (1, 128) if chosen.full else (1,):
        make(competitions)
        base, ours, gib = measure(competitions, chosen.times)
        records = competitions * VALIDATORS * PARTICIPANTS * TASKS
        ok = "" if ours / base <= LIMIT_RATIO and gib < LIMIT_GIB else f"   above {LIMIT_RATIO}x or {LIMIT_GIB} GiB"
        print(f"{records:>12,}  {base:>7.3f}s  {ours:>7.3f}s  {ours / base:>5.2f}x  {gib:>5.2f} GiB{ok}", flush=True)
    print()
    kinds(chosen.times)
    return None


if __name__ == "__main__":
    main()
