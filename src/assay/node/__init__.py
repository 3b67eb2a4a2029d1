"""What a validator leaves running: a copy of a competition's folder that follows its service.

    pull  ─▶  rules, registry, tasks, submissions   ─▶  assay run  ─▶  evidence/  ─▶  push  ─▶  the service's ledger

`fetch` brings what is to be judged, `spool` signs and sends what was judged, and `validator` does both again and again.
Everything that a node must remember is in files of the folder: `evidence/`, `batches/`, and `node/`, which holds offsets and
notes. A node that is killed goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from assay.judge import run_files

__all__ = ["FOLDER", "working"]

FOLDER = "node"
"""The folder of what a node remembers, in the competition's folder."""


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
