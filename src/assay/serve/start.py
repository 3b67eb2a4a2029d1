"""The first steps: a door for each kind of visitor, with the commands to paste, filled in with the service's address and key.

In a report, which no service serves, only what works offline is shown; what needs the operator says so.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from assay.ledger import config
from assay.scheme.load import read as read_scheme
from assay.scheme.model import RubricScore
from assay.serve.links import api_address
from assay.serve.season import Json

__all__ = ["start", "start_document"]

Step = tuple[str, str]
"""A step: a sentence that says what to do, and the commands for it, a line each; there may be none."""


def start(folder: Path, pages: Container[str] = (), address: str | None = None, epoch: int = 1, *, settled: bool = False) -> Json:
    """Everything that the page prints. Raises BadInput if the folder's rules or its ledger.toml cannot be read.

    pages: the names of the pages that there are. address: of this competition at its service,
    `https://assay.example.org/term-challenge`; None in a report. epoch: for the examples. settled: it is closed, so
    the next one is judged.
    """
    doors = _Doors(folder, address, epoch, epoch + 1 if settled else epoch)
    listed = [doors.participant(), doors.validator(), doors.developer(), doors.auditor(), doors.maintainer()]
    listed.insert(2 if doors.scheme.payout is not None else len(listed), doors.sponsor())
    for number, door in enumerate(listed):
        door["id"] = f"door-{number}"
        door["link"] = door["link"] if door["link"][0] in pages else None
        for place, step in enumerate(door["steps"]):
            step["id"] = f"cmd-{number}-{place}"
    return {"doors": listed, "address": address, "key": doors.key}


def start_document(view: Json) -> Json:
    """The doors that `start` gives, as JSON: each with its steps, without what only a page needs."""
    doors = [
        {"who": door["who"], "what": door["what"], "page": None if door["link"] is None else door["link"][0]}
        | {"steps": [{"text": step["text"], "command": step["command"]} for step in door["steps"]]}
        for door in view["doors"]
    ]
    return {"address": view["address"], "key": view["key"], "doors": doors}


class _Doors:
    """The doors of one competition; each is a method."""

    def __init__(self, folder: Path, address: str | None, epoch: int, judged: int) -> None:
        self.scheme = read_scheme(folder / "scheme.toml")
        settings = config.read(folder) if config.exists(folder) else None
        self.origin, self.key = ("", "") if settings is None else (settings.origin, settings.key)
        self._address, self._epoch, self._open = address, epoch, judged
        self._rubric = isinstance(self.scheme.score, RubricScore)
        self._tasks = self.scheme.kind.trials(self.scheme.score) is not None

    def participant(self) -> Json:
        """Hand in, and see why."""
        what = "solution.md" if self._rubric else "my-agent/"
        steps: list[Step] = [("Make a key. Its file stays on your machine.", "assay keys new my-key")]
        if self._address is None:
            steps += [
                ("Send the operator the public key, and what you hand in.", "assay keys show my-key --public"),
                ("The operator makes it your submission:", f"assay submit my-competition my-name {what}"),
            ]
        else:
            look = f"assay submissions --url {self._address} \\\n  --key my-key"
            register = f"assay register --url {self._address} \\\n  --key my-key"
            steps += [
                ("Register it. If you were given an invitation, add --code and the code.", register),
                ("Hand in, as often as the rules allow.", f"assay submit --url {self._address} \\\n  --key my-key {what}"),
                ("See how far it is: received, being judged, judged, scored.", look),
                ("When its epoch is settled, your own page says why your number is what it is, and what would raise it.", ""),
            ]
        thing = "a solution" if self._rubric else "an agent"
        return _door("You take part", f"Hand in {thing}, and see what it scores and why.", ("index.html", "The board"), steps)

    def validator(self) -> Json:
        """Judge, sign, and send."""
        key = (
            "Make a key, and give the operator its public part, and the name val-1 for it.",
            "assay keys new val-1\nassay keys show val-1 --public",
        )
        judge = f"assay run my-copy --validator val-1 --epoch {self._open}"
        if self._address is not None and self._tasks:
            at = f"my-copy \\\n  --url {self._address} --key val-1"
            node = "Leave a node running. It fetches what is new, judges it in sandboxes, signs what it saw, and sends it."
            steps: list[Step] = [
                key,
                (node, f"assay node validator {at}"),
                ("See how it is, and what to do if something is wrong.", "assay node status my-copy"),
                ("Or do one round by hand: fetch, judge, send.", f"assay pull {at}\n{judge}\nassay push {at}"),
            ]
        else:
            origin = f" \\\n  --origin {self.origin}" if self.origin else ""
            copy = "Ask the operator for a copy of the competition’s folder, and keep it: it knows what you judged. "
            copy += f"Judge there what has no evidence yet, for the open epoch, {self._open}."
            sent = (
                "Send the batches to the operator, who adds them:",
                "assay evidence add my-competition my-copy/batches/*.batch",
            )
            if self._address is not None:
                sent = ("Send it.", f"assay evidence send {self._address} \\\n  --key val-1 my-copy/batches/*.batch")
            signed = "Sign what you saw. A batch counts in this log alone."
            steps = [key, (copy, judge), (signed, f"assay evidence sign my-copy --key val-1{origin}"), sent]
        what = "Judge submissions, sign what you saw, and count by your stake."
        return _door("You validate", what, ("validators.html", "Who judged how much"), steps)

    def sponsor(self) -> Json:
        """Pay this bounty, or write one."""
        if self.scheme.payout is not None and self._rubric:
            rules = "Read a bounty’s rules in words: what is asked, by when, what is released."
            steps: list[Step] = [
                (rules, "assay bounty check my-bounty"),
                ("Pay the deposit into its contract, which opens it.", "assay bounty fund my-bounty --to sepolia --yes"),
            ]
        else:
            steps = [
                ("Write a bounty: a problem, checks with weights, a deposit.", "assay init --preset agonaut my-bounty"),
                ("Read it in words before anybody else does.", "assay bounty check my-bounty"),
                ("Open its contract; then pay the deposit into it.", "assay bounty create my-bounty --to sepolia --yes"),
            ]
        what = "The best score releases a sponsor’s deposit, to the wei."
        return _door("You pay for a solution", what, ("bounty.html", "The bounty"), steps)

    def auditor(self) -> Json:
        """Check what is published."""
        receipt, bundle = (
            f"assay verify epoch.receipt \\\n  --key {self.key}",
            f"assay verify epoch-{self._epoch} \\\n  --key {self.key}",
        )
        if self._address is not None:
            receipt = f"curl -O {self._address}/epoch.receipt\n{receipt}"
            bundle = f"curl {api_address(self._address, self._epoch, 'bundle')} | tar -x\n{bundle}"
        steps: list[Step] = [
            ("Check one receipt: its signature, and its place in the log.", receipt),
            ("Compute a whole epoch again from its signed evidence, offline.", bundle),
            ("Get the key from somewhere else than this page: whoever forges a page forges the key on it.", ""),
        ]
        if not self.key:
            why = "There is no ledger, so there is no receipt. Anyone with the folder gets the same digest."
            steps = [(why, "assay settle my-competition --json")]
        what = "Nothing here must be believed. Every number follows from the evidence."
        return _door("You check the numbers", what, ("epoch.html", "The receipt"), steps)

    def developer(self) -> Json:
        """Try before handing in."""
        if self._tasks:
            trial = "assay trial my-competition/tasks"
            steps: list[Step] = [
                (
                    "Try your agent on the tasks before you hand it in, if you have them. Nothing becomes evidence.",
                    f"{trial} my-agent/",
                ),
                ("Look at one task closely.", f"{trial}/some-task my-agent/ --output last"),
            ]
        elif self._rubric:
            steps = [("Read the rubric in words, with what each verdict does.", "assay bounty check my-bounty")]
        else:
            invented = "assay init --preset term-challenge my-try\nassay settle my-try"
            steps = [("Make a competition with an invented sample, and settle it.", invented)]
        if self._address is None:
            steps.append(("See what would pass the one above you.", "assay explain my-competition my-name"))
        else:
            steps.append(("Your page on the board says what would pass the one above you.", ""))
            steps.append(("Pages have their numbers as JSON beside them.", f"curl {self._address}/board.json"))
        what = "Try it on your own machine first, under the same rules."
        return _door("You build agents", what, ("tasks.html", "The tasks"), steps)

    def maintainer(self) -> Json:
        """Publish a benchmark."""
        steps: list[Step] = [
            (
                "Bring the results of another harness: a table, Harbor, Inspect AI, lm-evaluation-harness.",
                "assay import csv trials.csv my-benchmark",
            ),
            (
                "Check that every task judges correctly, and pin the set.",
                "assay tasks check my-benchmark/tasks\nassay tasks pin my-benchmark",
            ),
            ("Publish the board as static files, on any web host.", "assay report my-benchmark -o site"),
        ]
        what = "Publish results with intervals, ties and a receipt."
        return _door("You keep a benchmark", what, ("index.html", "A board"), steps)


def _door(who: str, what: str, link: tuple[str, str], steps: list[Step]) -> Json:
    return {"who": who, "what": what, "link": link, "steps": [{"text": text, "command": command} for text, command in steps]}
