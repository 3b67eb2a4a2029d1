"""How long bulk evidence takes against DuckDB's bare GROUP BY over the same files, and how much memory.

    python bench/bulk.py            64 validators × 256 participants × 89 tasks: 1.46 M records
    python bench/bulk.py --full     and 128 competitions of that size: 187 M records

The data is made once, under build/bench/. Both are measured in one process, in turns: once to warm up, then the best of
several counts. The whole is from the files to the settlements, `bare` the query alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import duckdb

from assay.folder import bulk
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
    scored = bulk.tally_many(paths, {name: (frame(one), rules) for name, one in given.items()})
    for name, one in given.items():
        result = settle(replace(one, evidence=scored[name]))
        assert len(result.order) == PARTICIPANTS
    return sum(int(one.counting.sum()) for one in scored.values())


def measure(competitions: int, times: int) -> tuple[float, float, float]:
    """(seconds bare, seconds whole, GiB) in a process of its own."""
    command = [sys.executable, __file__, "--one", str(competitions), "--times", str(times)]
    bare_best, whole_best, gib = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return bare_best, whole_best, gib


def one(competitions: int, times: int) -> None:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="128 competitions as well")
    parser.add_argument("--times", type=int, default=5, help="how often each is run")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        return one(chosen.one, chosen.times)
    print(f"{'records':>12}  {'bare':>8}  {'whole':>8}  {'ratio':>6}  {'memory':>9}")
    for competitions in (1, 128) if chosen.full else (1,):
        make(competitions)
        base, ours, gib = measure(competitions, chosen.times)
        records = competitions * VALIDATORS * PARTICIPANTS * TASKS
        ok = "" if ours / base <= LIMIT_RATIO and gib < LIMIT_GIB else f"   above {LIMIT_RATIO}x or {LIMIT_GIB} GiB"
        print(f"{records:>12,}  {base:>7.3f}s  {ours:>7.3f}s  {ours / base:>5.2f}x  {gib:>5.2f} GiB{ok}", flush=True)
    return None


if __name__ == "__main__":
    main()
