"""`python -m bench` runs every measurement, `python -m bench subnet` those that are named.

    python -m bench --write docs/performance.md            puts what they print into the page, in place of what was there
    python -m bench --write docs/performance.md --full bulk judging ledger verify receipts

--full is for the measurements that have a long form: archive, bulk, duel, judging, ledger, verify, receipts, verifier.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import sys
from pathlib import Path
from typing import TextIO

from bench import page

MEASUREMENTS = (
    "subnet",
    "simulate",
    "startup",
    "bulk",
    "judging",
    "engine",
    "workflow",
    "ledger",
    "sizes",
    "standing",
    "verify",
    "archive",
    "receipts",
    "serve",
    "polling",
    "node",
    "witness",
    "duel",
    "margin",
    "until",
    "verifier",
)
LONG = frozenset({"archive", "bulk", "duel", "judging", "ledger", "verify", "receipts", "verifier"})


class _Both(io.StringIO):
    """Keeps what is printed, and shows it as well."""

    def __init__(self, shown: TextIO) -> None:
        super().__init__()
        self._shown = shown

    def write(self, text: str) -> int:
        self._shown.write(text)
        self._shown.flush()
        return super().write(text)


def measured(name: str, *, full: bool = False) -> tuple[str, str]:
    """Runs one; what it printed, and why it failed, if it did."""
    sys.argv = [name, *(["--full"] if full and name in LONG else [])]
    failed = ""
    with contextlib.redirect_stdout(_Both(sys.stdout)) as kept:
        try:
            importlib.import_module(f"bench.{name}").main()
        except SystemExit as error:
            failed = str(error)
            print(failed)
    return kept.getvalue(), failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(MEASUREMENTS)}; all if none is named")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="a page with a pair of marks for each")
    parser.add_argument("--full", action="store_true", help="as long as it takes to be sure")
    chosen = parser.parse_args()
    names = chosen.names or list(MEASUREMENTS)
    if unknown := [name for name in names if name not in MEASUREMENTS]:
        parser.error(f"there is no measurement {unknown[0]!r}; there are: {', '.join(MEASUREMENTS)}")
    if chosen.write is not None:
        for name in names:
            page.put(chosen.write.read_text(encoding="utf-8"), name, "")  # before hours are spent on what has no place there
    status = 0
    for name in names:
        print(f"\n== {name}", flush=True)
        printed, failed = measured(name, full=chosen.full)
        status = 1 if failed else status
        if chosen.write is not None:
            chosen.write.write_text(page.put(chosen.write.read_text(encoding="utf-8"), name, printed), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
