"""Asks the witnesses of a season's logs after epochs are closed, and notes which checkpoints wait for them. SPEC 6, Witnesses.

A log without a policy file has no witnesses. While a quorum is missing, epochs are closed as ever; only what everybody is shown,
and the export, wait. Witnesses that were not a quorum are asked again each minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.errors import AssayError
from assay.ledger.access import Ledger
from assay.node import status
from assay.publish.witnesses import CosignedCheckpoint, LogWitnesses, policy_of
from assay.settle.story.telling import plural

__all__ = ["AGAIN_SECONDS", "SeasonWitnesses", "is_shown"]

AGAIN_SECONDS = 60.0
"""Between two attempts, while there is no quorum."""
_ALL_SECONDS = 10.0
"""For all witnesses at one checkpoint: the next epoch waits as long."""


@dataclass
class SeasonWitnesses:
    """The witnesses of all logs of a node. folder: the one whose status notes what waits. tell: prints a line for people."""

    folder: Path
    tell: Callable[[str], None]
    waiting: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name of a log → what its newest checkpoint waits for: size, what, since."""
    _again: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = status.content_of(self.folder).get("unwitnessed")
        self.waiting = {name: row for name, row in rows.items() if isinstance(row, dict)} if isinstance(rows, dict) else {}

    def look(self, ledger: Ledger, name: str) -> None:
        """Have the log of a ledger cosigned, as far as its witnesses do. name: how people call it; "" for the only one."""
        log = ledger.key.name
        if time.monotonic() < self._again.get(log, 0.0):
            return
        if is_shown(ledger):
            self._note(log, None)
            return
        try:
            policy = policy_of(ledger)
            asked = None
            for asked in () if policy is None else LogWitnesses(policy, seconds=_ALL_SECONDS).bring_up(ledger):
                if asked.reached:
                    what = f"{', '.join(asked.cosigned)} cosigned the log of {_entries_of(asked.size)}"
                    self.tell(f"{name}: {what}" if name else what)
            row = None if asked is None or asked.reached else _missing(asked)
        except AssayError as error:
            row = {"size": 0, "what": str(error)}
        if row is not None:
            self._again[log] = time.monotonic() + AGAIN_SECONDS
            if log not in self.waiting or row.get("forked") != self.waiting[log].get("forked"):
                self.tell(f"{name}: {row['what']}" if name else str(row["what"]))
        self._note(log, row)

    def _note(self, log: str, row: Mapping[str, Any] | None) -> None:
        before = self.waiting.get(log)
        if before is None and row is None:
            return
        if row is None:
            del self.waiting[log]
        else:
            self.waiting[log] = {**row, "since": (before or {}).get("since") or status.now_text()}
        status.note(self.folder, unwitnessed=self.waiting or None)


def is_shown(ledger: Ledger, position: int | None = None) -> bool:
    """Whether everybody is shown the log with the receipt at this place (None: the last), as far as witnesses decide it."""
    if not ledger.config.policy.exists():
        return True
    with ledger.store.reading() as view:
        if position is None:
            return ledger.unwitnessed(view) is None
        return view.witnessed(position + 1) is not None


def _entries_of(size: int) -> str:
    """ "1 entry", "2 entries"."""
    return plural(size, "entry", "entries")


def _missing(asked: CosignedCheckpoint) -> dict[str, Any]:
    failed = "; ".join(f"{name}: {why}" for name, why in asked.failed.items())
    what = f"the log of {_entries_of(asked.size)} waits for its witnesses ({failed})"
    return {"size": asked.size, "what": what[:2000], "forked": [str(path) for path in asked.evidence]}
