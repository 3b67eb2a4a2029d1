"""The commands by name. The module of a command is imported only when the command runs, so `assay --help` imports none."""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Any

import typer
import typer.main
from typer.core import TyperGroup

__all__ = ["COMMANDS", "Loaded"]

COMMANDS = {
    "init": ("init:init", "Make a competition from a preset."),
    "bounty": ("bounty:app", "Bounties: write, check, fund and pay them."),
    "run": ("judging.run:run", "Judge the submissions that have no evidence yet, then show the leaderboard."),
    "duel": ("judging.duel:duel", "Judge challengers against a king, until it is certain who is better."),
    "settle": ("settle:settle", "Settle an epoch: evidence into scores, weights or payouts."),
    "publish": ("publishing:publish", "Publish a settled epoch: scores to the oracle of a chain, weights to a subnet."),
    "attempts": ("publishing:attempts", "Show what was sent to chains, with the outcomes."),
    "registry": ("registry:app", "Fetch participants and validators from a chain."),
    "explain": ("explain:explain", "Explain each number of one participant."),
    "report": ("report:report", "Write a competition's pages as static files: the board, participants, validators, the epoch."),
    "serve": ("serve:serve", "Serve a season: its pages, and the API with which people hand in and validators send evidence."),
    "emission": ("emission:emission", "Combine the competitions of a subnet into one split of its weights."),
    "submit": ("judging.submit:submit", "Make an agent, a solution or a planner the current submission of a participant."),
    "register": ("participants:register", "Register your key as a participant of a competition that somebody serves."),
    "submissions": (
        "participants:submissions",
        "List your own submissions to a competition that somebody serves, and how far they are.",
    ),
    "invite": ("participants:invite", "Let somebody register as a participant: print a code for them."),
    "pull": (
        "following:pull",
        "Fetch what a validator judges: rules, registry, tasks and submissions of a competition that somebody serves.",
    ),
    "push": (
        "following:push",
        "Sign what was judged, and send all batches that the service of the competition does not have.",
    ),
    "node": ("node:app", "Leave a validator or an operator running, and see how it is."),
    "rejudge": ("judging.rejudge:rejudge", "Replay a judgement from its kept transcript, or ask the models again."),
    "issues": ("issues:app", "GitHub issues: link an account, and show which issues counted for whom."),
    "trial": (
        "judging.trial:trial",
        "Run one agent on one task, and show what it prints; or on a folder of tasks, and show its score.",
    ),
    "trials": ("judging.trials:trials", "List trials: those that were judged here, and those known only from evidence."),
    "logs": ("judging.trials:logs", "Show what one trial printed, and how it ended."),
    "tasks": ("judging.tasks:app", "Check, list and pin task sets in Harbor's format."),
    "workflow": ("workflow:app", "Check workflow plans and run them, and prepare the tasks they are for."),
    "sandbox": ("judging.sandbox:app", "Check the sandboxes in which agents run, and prepare their root file systems."),
    "model": ("judging.models:app", "Serve a scripted model, for demonstrations and tests."),
    "import": ("imports:app", "Import results of other harnesses as a competition, or exported epochs into a ledger."),
    "export": ("judging.export:app", "Export epochs of a ledger as files, or trials in the format of other harnesses."),
    "scheme": ("schemes:app", "List the presets, and show or check the rules of a competition."),
    "simulate": ("simulate:simulate", "Try rules on a season that is drawn: how much of what is given out goes to skill."),
    "attack": ("attack:attack", "Search for attacks on a scheme: what coalitions of validators, participants and sponsors gain."),
    "compare": ("compare:compare", "Compare a competition's rules with others: simulation, attack and back-test side by side."),
    "yuma": ("yuma:yuma", "Preview a Yuma epoch before weights are set: consensus, vtrust, incentive and dividends."),
    "backtest": ("backtest:backtest", "Settle the past again under other rules, and show who gains and who loses."),
    "margin": (
        "margin:margin",
        "Show how little would have to be different for another verdict: winner, payout tier, order of the ranking.",
    ),
    "keys": ("ledger.keys:app", "Make and show keys: they sign evidence and logs, or open sealed files."),
    "copies": (
        "judging.copies:copies",
        "Show near-copies among submissions with their passages, and decide about them.",
    ),
    "evidence": ("ledger.evidence:app", "Sign evidence, add it to a ledger or send it to a service, and list what was accepted."),
    "receipt": ("ledger.epochs:receipt", "Print the receipt of an epoch, or a participant's own proof."),
    "verify": ("ledger.verify:verify", "Check a receipt, and compute its settlement again."),
    "commit": ("enclave.sealing:commit", "Commit to a solution before anybody sees it."),
    "seal": ("enclave.sealing:seal", "Seal a solution so that only the bounty's enclave can read it."),
    "open": ("enclave.sealing:open_", "Open a file that is sealed to your key."),
    "enclave": ("enclave.app:app", "Run an enclave that judges sealed solutions, and check what an enclave proves."),
    "ledger": ("ledger.ledger:app", "Make, check, back up and move the ledger of a competition or subnet."),
    "audit": ("ledger.audit:app", "Judge drawn trials of a settled epoch again, until its outcome is confirmed."),
    "witness": ("ledger.witnesses:app", "Be a witness of logs: cosign their checkpoints as long as they only grow."),
    "config": ("config:app", "Show where each option's value comes from, and check before a start what would stop it."),
    "conformance": ("conformance:app", "Run the test cases that every implementation must pass."),
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


LONGEST_LINE = 400
"""Characters of a command's first sentence, above which the list of commands cuts it."""


class CommandGroup(TyperGroup):
    """A group of commands. Its help shows the first sentence of each command whole, on several lines if it is long."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands in the help."""
        listed = ((name, self.commands[name]) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(LONGEST_LINE)) for name, command in listed if not command.hidden]
            )


def _load(name: str) -> Any:
    path, attribute = COMMANDS[name][0].split(":")
    module = import_module(f"assay.cli.{path}")
    function = getattr(module, attribute)
    if isinstance(function, typer.Typer):
        function.info.cls = CommandGroup
        return typer.main.get_group(function)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, cls=getattr(module, "COMMAND", None))(function)
    return typer.main.get_command(single)
