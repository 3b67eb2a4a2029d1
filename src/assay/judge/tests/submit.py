"""Submitting an agent: its files are kept by digest, and participants.csv says whose it is, and since when. SPEC 2, 7.

Where the competition has a ledger, it is told first; what stops after that is made up for when it is submitted again.
"""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from assay.errors import BadInput
from assay.folder import csvs
from assay.folder.text import decode, load
from assay.folder.write import write_text
from assay.judge import tree
from assay.judge.tests import agent as agents
from assay.judge.tests.agent import Agent
from assay.judge.tests.contest import AGENTS
from assay.judge.tests.store import short
from assay.scheme.times import instant_text

if TYPE_CHECKING:
    from assay.ledger.store import Submission

__all__ = ["Submitted", "submit"]


@dataclass(frozen=True)
class Submitted:
    """What was done."""

    agent: Agent
    folder: Path | None
    """Where the agent's files are now; None for a built-in one, which has none."""
    before: str
    """The participant's submission until now; empty if there was none."""
    epoch: int | None = None
    """In which epoch the ledger has it as accepted; None without a ledger."""

    @property
    def changed(self) -> bool:
        """Whether it is another submission than before."""
        return self.before != self.agent.digest


def submit(competition: Path, participant: str, said: str, *, at: datetime | None = None, epoch: int | None = None) -> Submitted:
    """Makes an agent (a folder, a command line, oracle or noop) the current submission of a participant; raises BadInput.

    epoch: in which it is accepted, for a competition with a ledger; None is the latest that is open. The same submission once
    more changes nothing, and keeps its time: it ranks ties. Raises StoreError where the ledger cannot be written.
    """
    file = competition / csvs.PARTICIPANTS.name
    header, rows = _rows(file)
    row = next((row for row in rows if row.get("key", "").strip() == participant), None)
    if row is None:
        known = ", ".join(row.get("key", "") for row in rows[:5])
        raise BadInput(
            f"there is no participant {participant[:80]!r}", file=file, hint=f"add a row for it first; there is {known}"
        )
    agent = agents.find(said)
    before = row.get("submission", "").strip()
    if agent.folder is None and agent != agents.BUILT_IN.get(agent.name):
        with TemporaryDirectory(prefix="assay-agent-") as made:
            folder = Path(made) / agents.FILE
            write_text(folder, f"name = {json.dumps(agent.name)}\ncommand = {json.dumps(agent.command)}\n")
            agent = _placed(competition, agents.load(folder.parent))
    elif agent.folder is not None:
        agent = _placed(competition, agent)
    when = instant_text((at or datetime.now(UTC)).replace(microsecond=0))
    if before == agent.digest:
        when = row.get("submitted_at", "")
    kept = _handed_in(competition, participant, agent.digest, epoch, when)
    found = Submitted(agent, agent.folder, before, None if kept is None else kept.epoch)
    if found.changed:
        for name in ("submission", "submitted_at"):
            if name not in header:
                header.append(name)
        if "accepted_epoch" in header:
            row["accepted_epoch"] = ""  # that was the earlier one's
        row["submission"], row["submitted_at"] = agent.digest, when if kept is None else kept.submitted_at
        text = io.StringIO()
        writer = csv.DictWriter(text, header, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(file, text.getvalue())
    return found


def _handed_in(competition: Path, participant: str, submission: str, epoch: int | None, when: str) -> Submission | None:
    """What the competition's ledger has of it now; None if there is no ledger."""
    if not (competition / "ledger.toml").exists():
        if epoch is not None:
            raise BadInput("the competition has no ledger to say it to", field="epoch", hint="leave it out")
        return None
    from assay.ledger.intake import hand_in
    from assay.ledger.opened import open_ledger

    with open_ledger(competition) as ledger:
        return hand_in(ledger.store, participant, submission, epoch=epoch, submitted_at=when)


def _placed(competition: Path, agent: Agent) -> Agent:
    """The agent with its files in agents/, copied there whole or not at all."""
    assert agent.folder is not None
    target = competition / AGENTS / short(agent.digest)
    if target.is_dir() and agents.load(target).digest == agent.digest:
        return agents.load(target)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        target.parent.mkdir(exist_ok=True)
        try:
            copied = tree.copy(agent.folder, beside, bounds=agents.BOUNDS)
            if copied.left:
                hint = "an agent is files, folders, and links that stay inside"
                raise BadInput(f"{', '.join(copied.names)} cannot be submitted", file=agent.folder, hint=hint)
            tree.remove(target)
            os.rename(beside, target)
        finally:
            tree.remove(beside)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=target, hint="check permissions and space") from None
    return agents.load(target)


def _rows(file: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and rows as they are, after they were read as the competition reads them. Raises BadInput."""
    csvs.read(file, csvs.PARTICIPANTS)
    text = decode(load(file, 64_000_000, hint="make it first"), file)
    rows = [[cell.strip(" \t") for cell in row] for row in csv.reader(io.StringIO(text, newline="")) if any(row)]
    header = rows[0]
    return header, [dict(zip(header, row, strict=True)) for row in rows[1:]]
