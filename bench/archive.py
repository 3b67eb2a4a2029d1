"""An archive of 128 small subnets, verified and settled as a whole, beside DuckDB's bare scan of the same Parquet.

    python -m bench archive           128 subnets × 2 epochs × 4 validators × 11 participants × 89 tasks: 1.0 M records
    python -m bench archive --full    × 44 participants: 4.0 M records

`bare`     DuckDB's SELECT competition, validator, participant, count(*) … GROUP BY over all files
`verify`   `assay verify --all`: receipts and chains, records under their roots, batches' signatures, settlements again
`settle`   `assay settle --archive`: every settlement again, with nothing of signatures

Each in a process of its own, with one worker: CPU seconds of all its threads and children, because wall time on a busy machine
says little; and the peak of its memory. `few` is a verification of 8 of the subnets: the memory must not grow with their number.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb

from assay.archive import LocalWorkers, settle_all, verify_all
from bench import epoch

FOLDER = Path(__file__).parents[1] / "build" / "bench" / "archive"
SUBNETS, FEW, VALIDATORS, EPOCHS = 128, 8, 4, (12, 13)


def make(participants: int) -> tuple[Path, int]:
    """The archive, made once; and its records."""
    folder = FOLDER / str(participants)
    records = SUBNETS * len(EPOCHS) * VALIDATORS * participants * epoch.TASKS
    if not (folder / "whole").exists():
        shutil.rmtree(folder, ignore_errors=True)
        for number in range(SUBNETS):
            name = f"subnet-{number:03}"
            epoch.season(folder / "making" / name, name, VALIDATORS, participants, EPOCHS)
        for name in sorted(path.name for path in (folder / "making").iterdir())[:FEW]:
            shutil.copytree(folder / "making" / name, folder / "few" / name)
        (folder / "making").rename(folder / "whole")
    return folder, records


def bare(folder: Path) -> None:
    """The yardstick."""
    query = f"SELECT filename, validator, participant, count(*) FROM read_parquet('{folder}/**/*.parquet', filename = true)"
    answer = duckdb.execute(f"{query} GROUP BY 1, 2, 3").fetchnumpy()
    assert len(answer["filename"])


def one(what: str, folder: Path) -> None:
    """One measurement, in this process."""
    if what == "bare":
        bare(folder)
    elif what == "settle":
        rows, _ = settle_all(f"{folder}/**/*.parquet", engine=LocalWorkers(1))
        assert all(row.archived == row.settlement for row in rows)
    elif what == "verify":
        assert verify_all(str(folder), engine=LocalWorkers(1)).verified
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps([sum(each.ru_utime + each.ru_stime for each in used), used[0].ru_maxrss / 2**10]))


def measure(what: str, folder: Path) -> tuple[float, float]:
    """CPU seconds beyond those of a process that only imports, and MiB."""
    command = [sys.executable, "-m", "bench.archive", "--one", what, "--folder", str(folder)]
    seconds, mib = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return seconds, mib


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="4.0 M records")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        return one(chosen.one, chosen.folder)
    folder, records = make(44 if chosen.full else 11)
    nothing, _ = measure("nothing", folder)
    print(f"{SUBNETS} subnets × {len(EPOCHS)} epochs, {records:,} records; CPU seconds beyond those of starting, one worker")
    print(f"{'':10} {'seconds':>9} {'rows/s':>11} {'to bare':>8} {'memory':>9}")
    base = 0.0
    for name, place, rows in (
        ("bare", folder / "whole", records),
        ("verify", folder / "whole", records),
        ("settle", folder / "whole", records),
        ("few", folder / "few", records * FEW // SUBNETS),
    ):
        taken, mib = measure("verify" if name == "few" else name, place)
        taken -= nothing
        base = base or taken
        ratio = f"{taken / base:7.1f}×" if name != "few" else ""
        print(f"{name:10} {taken:9.2f} {rows / taken:11,.0f} {ratio:>8} {mib:5.0f} MiB", flush=True)
    return None


if __name__ == "__main__":
    main()
