"""Submitting an agent: its files are kept by digest, which is then the participant's submission. SPEC 2, 7."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.folder.write import write_text
from assay.judge import submitting
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
    """The agent with its files in agents/."""
    assert agent.folder is not None
    return agents.load(
        submitting.placed(
            competition / AGENTS,
            agent.folder,
            agent.digest,
            lambda folder: agents.load(folder).digest,
            bounds=agents.BOUNDS,
            refused="an agent is files, folders, and links that stay inside",
        )
    )
