"""The commands by name. The module of a command is imported only when the command runs, so `assay --help` imports none."""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Any

import typer
import typer.main

__all__ = ["COMMANDS", "Loaded"]

COMMANDS = {
    "init": ("init:init", "Make a competition from a preset."),
    "bounty": ("bounty:app", "Bounties: write, check, fund and pay them."),
    "run": ("judging.run:run", "Judge what has no evidence yet, then settle."),
    "settle": ("settle:settle", "Settle an epoch: evidence into scores, weights or payouts."),
    "publish": ("publishing:publish", "Publish a settled epoch: scores to the oracle of a chain, weights to a subnet."),
    "attempts": ("publishing:attempts", "Show what was sent to chains, with the outcomes."),
    "registry": ("registry:app", "Participants and validators from a chain."),
    "explain": ("explain:explain", "Explain each number of one participant."),
    "report": ("report:report", "Write a competition's pages as static files: the board, participants, validators, the epoch."),
    "emission": ("emission:emission", "Join the competitions of a subnet."),
    "submit": ("judging.submit:submit", "Make an agent, a solution or a planner the current submission of a participant."),
    "rejudge": ("judging.rejudge:rejudge", "Replay a judgement from its kept transcript, or ask the models again."),
    "issues": ("issues:app", "Issues: accounts linked, and what counted for whom."),
    "trial": (
        "judging.trial:trial",
        "Run one agent on one task, and show what it prints; or on a folder of tasks, and show its score.",
    ),
    "trials": ("judging.trials:trials", "List the trials that were judged here, and those that came as evidence."),
    "logs": ("judging.trials:logs", "Show what one trial printed, and how it ended."),
    "tasks": ("judging.tasks:app", "Task sets in Harbor's format."),
    "workflow": ("workflow:app", "Plans of workflows, and the tasks they are for."),
    "sandbox": ("judging.sandbox:app", "Where agents run."),
    "model": ("judging.models:app", "A scripted model, for demonstrations and tests."),
    "import": ("imports:app", "Results of other harnesses as a competition, and exported epochs."),
    "export": ("judging.export:app", "Epochs of a ledger as files, and trials in the shape of other harnesses."),
    "scheme": ("schemes:app", "Presets, and the rules of a competition."),
    "keys": ("ledger.keys:app", "Keys that sign evidence and logs, or open what is sealed."),
    "evidence": ("ledger.evidence:app", "Signed evidence."),
    "receipt": ("ledger.epochs:receipt", "The receipt of an epoch, or a participant's own proof."),
    "verify": ("ledger.verify:verify", "Check a receipt, and compute its settlement again."),
    "commit": ("enclave.sealing:commit", "Commit to a solution before anybody sees it."),
    "seal": ("enclave.sealing:seal", "Seal a solution so that only the bounty's enclave can read it."),
    "open": ("enclave.sealing:open_", "Open a file that is sealed to your key."),
    "enclave": ("enclave.app:app", "Enclaves that judge sealed solutions, and what they prove."),
    "ledger": ("ledger.ledger:app", "A competition's ledger."),
    "conformance": ("conformance:app", "Cases that any implementation can run."),
}
"""Name → its module and function, and its line in the list of commands."""


class Loaded(UserDict[str, Any]):
    """The commands: their names are known at once; a command is loaded when it is looked up."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COMMANDS))

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if command is None:
            command = self[name] = _load(name)
        return command


def _load(name: str) -> Any:
    path, attribute = COMMANDS[name][0].split(":")
    module = import_module(f"assay.cli.{path}")
    function = getattr(module, attribute)
    if isinstance(function, typer.Typer):
        return typer.main.get_group(function)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, cls=getattr(module, "COMMAND", None))(function)
    return typer.main.get_command(single)
