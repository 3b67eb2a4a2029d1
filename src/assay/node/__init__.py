"""The nodes that validators and operators leave running.

    pull  ─▶  rules, registry, tasks, submissions   ─▶  assay run  ─▶  evidence/  ─▶  push  ─▶  the service's ledger

A validator's node keeps a copy of the competition's folder up to date, judges what is new, and sends it. Read in this order:
`fetch`, `spool`, `heartbeat`, `round`, `validator`.

An operator's node serves the season, closes its epochs, and publishes them: `clock`, `chain`, `closing`, `operator`. Both have
`children`, `status`, `alarms`, `season_facts`, `page`, `carriers` and `herald`: its processes, and how it says what is wrong.

Everything that a node must remember is in files, so it may be killed at any moment. Beside `evidence/` and `batches/`, those of
DIR/node:

- `id`: who a validator's node is, so that only one works with a key
- `signed.json`: up to which offset each file of a validator's evidence is signed
- `clock.json`: when which epoch ended, by which clock, and when the next one ends
- `pulled.json`: which tables and which task set a validator fetched last
- `status.json`: how the node is, what it saw of each target, and which alarms stand; `status.html` and `status.prom` show it
- `.lock`: held by the process that works in the folder
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.folder.files import NODE_FOLDER
from assay.folder.strict import load_note
from assay.judge import run_files

if TYPE_CHECKING:
    from assay.judge.stations import ErrandEngine
    from assay.kind import Kind

__all__ = ["CLOCK", "FOLDER", "SIGNED", "NodeOptions", "is_signed", "working"]

FOLDER = NODE_FOLDER
"""The folder of what a node remembers, in the competition's folder."""
SIGNED = "signed.json"
"""In it: up to which offset each file of evidence is signed."""
CLOCK = "clock.json"
"""In it: when an epoch ended by which clock; in a subnet's first folder also when the next one is due."""


def is_signed(folder: Path) -> bool:
    """Whether all whole lines in evidence/ are signed, as far as sizes tell. A file that cannot be read is left for a round."""
    ends = {(name.rpartition(" ")[0], end) for name, end in load_note(folder / FOLDER / SIGNED).items() if type(end) is int}
    with suppress(OSError):
        return all((file.name, file.stat().st_size) in ends for file in (folder / "evidence").glob("*.jsonl"))
    return False


@dataclass(frozen=True)
class NodeOptions:
    """The options that a node judges with. settings: what the judge of a kind gets of the options that only this kind has.

    engine: opens the engine that judges, for the time of one round; None in it is this machine.
    take_over: work although another node works with the same key; that one is told to stop.
    """

    jobs: int | None = None
    attempts: int = 3
    settings: Callable[[Kind], Any] = lambda kind: None
    engine: Callable[[], AbstractContextManager[ErrandEngine | None]] = nullcontext
    take_over: bool = False


@contextmanager
def working(folder: Path, validator: str) -> Iterator[None]:
    """Hold the lock of a validator's folder: only one pull, push or node works there at a time. Raises RunBusy, BadInput."""
    with ExitStack() as stack:
        try:
            stack.enter_context(run_files.held(folder / FOLDER, validator))
        except run_files.RunBusy as error:
            hint = "wait for it to end, or stop it"
            raise run_files.RunBusy("another pull, push or node works in this folder", file=folder, hint=hint) from error
        yield
