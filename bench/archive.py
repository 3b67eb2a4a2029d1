"""An archive of 128 small subnets, verified and settled as a whole, beside DuckDB's bare scan of the same Parquet.

    python -m bench archive               128 subnets × 2 epochs × 4 validators × 11 participants × 89 tasks: 1.0 M records
    python -m bench archive --full        × 44 participants: 4.0 M records; and copies of one large epoch, up to 187 M records
    python -m bench archive --copies 1 4  only copies of the large epoch, so many

`bare`     DuckDB's SELECT competition, validator, participant, count(*) … GROUP BY over all files
`verify`   `assay verify --all`: receipts and chains, records under their roots, batches' signatures, settlements again
`settle`   `assay settle --archive`: every settlement again, with nothing of signatures

Each in a process of its own, with one worker: CPU seconds of all threads, without imports, because wall time on a busy machine
says little; and the peak of its memory. `few` is a verification of 8 of the subnets: the memory must not grow with their number.

The large epoch has 64 validators × 256 participants × 89 tasks, 1.46 M records. Its copies are hard links, so 128 of them need
the disk of one. Each is verified whole; only the report says at the end that they are of one log.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb

from assay.archive import LocalWorkers, settle_all, verify_all
from assay.archive.workers import PRELOADED
from bench import epoch

FOLDER = Path(__file__).parents[1] / "build" / "bench" / "archive"
SUBNETS, FEW, VALIDATORS, EPOCHS = 128, 8, 4, (12, 13)
LARGE, COPIES = (64, 256), (1, 16, 128)
"""Validators and participants of the large epoch; how many copies of it."""


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


def copies(count: int) -> tuple[Path, int]:
    """An archive with so many copies of the large epoch; and its records."""
    first, folder = FOLDER / "large", FOLDER / f"copies-{count}"
    if not first.exists():
        shutil.rmtree(FOLDER / "making", ignore_errors=True)
        epoch.season(FOLDER / "making", "large", *LARGE, EPOCHS[:1])
        (FOLDER / "making").rename(first)
    shutil.rmtree(folder, ignore_errors=True)
    for number in range(count):
        shutil.copytree(first, folder / f"subnet-{number:03}", copy_function=os.link)
    return folder, count * LARGE[0] * LARGE[1] * epoch.TASKS


def verify_copies(folder: Path) -> None:
    """Verify copies of one epoch; all that may be wrong with them is that they are copies."""
    first, *others = verify_all(str(folder), engine=LocalWorkers(1)).verdicts
    assert first.fault is None, first.fault
    assert all(other.held and other.fault is not None and other.fault.what.startswith("its log is that of") for other in others)


def measure_here(what: str, folder: Path) -> None:
    """One measurement, in this process: CPU seconds of the work without imports, and the peak of memory in MiB."""
    for name in PRELOADED:
        importlib.import_module(name)
    before = _used()
    if what == "bare":
        bare(folder)
    elif what == "settle":
        rows, _ = settle_all(f"{folder}/**/*.parquet", engine=LocalWorkers(1))
        assert all(row.archived == row.settlement for row in rows)
    elif what == "copies":
        verify_copies(folder)
    elif what == "verify":
        assert verify_all(str(folder), engine=LocalWorkers(1)).verified
    print(json.dumps([_used() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10]))


def _used() -> float:
    """CPU seconds of this process and its children, so far."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def measure(what: str, folder: Path) -> tuple[float, float]:
    """CPU seconds and MiB, of a process of its own."""
    command = [sys.executable, "-m", "bench.archive", "--one", what, "--folder", str(folder)]
    seconds, mib = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return seconds, mib


def small(participants: int) -> None:
    """Print the measurements of many small epochs."""
    folder, records = make(participants)
    print(f"{SUBNETS} subnets × {len(EPOCHS)} epochs, {records:,} records; CPU seconds, one worker")
    print(f"{'':10} {'seconds':>9} {'rows/s':>11} {'to bare':>8} {'memory':>9}")
    base = 0.0
    for name, place, rows in (
        ("bare", folder / "whole", records),
        ("verify", folder / "whole", records),
        ("settle", folder / "whole", records),
        ("few", folder / "few", records * FEW // SUBNETS),
    ):
        taken, mib = measure("verify" if name == "few" else name, place)
        base = base or taken
        ratio = f"{taken / base:7.1f}×" if name != "few" else ""
        print(f"{name:10} {taken:9.2f} {rows / taken:11,.0f} {ratio:>8} {mib:5.0f} MiB", flush=True)


def large(counts: Sequence[int]) -> None:
    """Print the measurements of a few large epochs, as `small` does."""
    print(f"copies of an epoch of {LARGE[0]} validators × {LARGE[1]} participants × {epoch.TASKS} tasks, verified; one worker")
    print(f"{'records':>12} {'seconds':>9} {'rows/s':>11} {'memory':>9}")
    for count in counts:
        folder, records = copies(count)
        taken, mib = measure("copies", folder)
        print(f"{records:12,} {taken:9.2f} {records / taken:11,.0f} {mib:5.0f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="4.0 M records, and up to 187 M of large epochs")
    parser.add_argument("--copies", type=int, nargs="+", default=(), metavar="N", help="only so many copies of the large epoch")
    parser.add_argument("--one", dest="only", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.only:
        return measure_here(chosen.only, chosen.folder)
    if not chosen.copies:
        small(44 if chosen.full else 11)
    if chosen.copies or chosen.full:
        large(chosen.copies or COPIES)
    return None


if __name__ == "__main__":
    main()
