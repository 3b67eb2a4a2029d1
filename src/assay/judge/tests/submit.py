"""Submitting an agent: its files are kept by digest, which is then the participant's submission. SPEC 2, 7."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.errors import BadInput
from assay.folder.write import write_text
from assay.judge import submitting, tree
from assay.judge.keeping import short
from assay.judge.tests import agent as agents
from assay.judge.tests.agent import Agent
from assay.judge.tests.contest import AGENTS

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
    more changes nothing. Raises StoreError where the ledger cannot be written.
    """
    row = submitting.find(competition, participant)
    agent, before = agents.find(said), row.submission
    if agent.folder is None and agent != agents.BUILT_IN.get(agent.name):
        with TemporaryDirectory(prefix="assay-agent-") as made:
            folder = Path(made) / agents.FILE
            write_text(folder, f"name = {json.dumps(agent.name)}\ncommand = {json.dumps(agent.command)}\n")
            agent = _placed(competition, agents.load(folder.parent))
    elif agent.folder is not None:
        agent = _placed(competition, agent)
    accepted = row.enter(agent.digest, at=at, epoch=epoch)
    return Submitted(agent, agent.folder, before, accepted)


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
