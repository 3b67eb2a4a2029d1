"""What a bounty allows and its sponsor probably did not mean, to be read before anybody works for it; never an error. SPEC 8."""

from __future__ import annotations

from datetime import datetime

from assay.scheme.bounty import Bounty
from assay.scheme.fields import instant_text
from assay.scheme.load import warnings

__all__ = ["CONTEXT", "advice", "deadlines"]

CONTEXT = 100_000
"""Tokens of a solution above which few models can be trusted to read all of it."""


def deadlines(bounty: Bounty) -> dict[str, datetime | None]:
    """Field → the deadline, in the order in which they come; None where there is none."""
    payout = bounty.scheme.payout
    return {
        "bounty.commitments_until": bounty.terms.commitments_until,
        "bounty.submissions_until": bounty.terms.submissions_until,
        "payout.scoring_deadline": None if payout is None else payout.scoring_deadline,
    }


def advice(bounty: Bounty, now: datetime) -> list[str]:
    """One sentence for each thing, with the field that it is about."""
    said = warnings(bounty.scheme)
    said += _times(bounty, now)
    said += _judging(bounty)
    if bounty.terms.sponsor is None:
        said.append(
            "bounty.sponsor is missing, so results and transcripts are sealed to whoever judges alone; "
            "`assay keys new sponsor --kind x25519` makes a key"
        )
    payout = bounty.scheme.payout
    if payout is None:
        said.append('there is no [payout], so nothing is paid; [reward] kind = "payout" wants one')
    elif payout.deposit == 0:
        said.append("payout.deposit is 0, so nobody is paid anything")
    return said


def _times(bounty: Bounty, now: datetime) -> list[str]:
    said = []
    for field, until in deadlines(bounty).items():
        if until is not None and until < now:
            said.append(f"{field} is past: {instant_text(until)}")
        elif until is None and field == "bounty.submissions_until":
            said.append(f"{field} is missing, so solutions may come at any time")
        elif until is None and field == "payout.scoring_deadline" and bounty.scheme.payout is not None:
            said.append(f"{field} is missing, so a solution that nobody judges can hold up the payout for ever")
        elif until is None and bounty.enclave is not None:
            said.append(f"{field} is missing, so a commitment may come after others were seen to hand in")
    return said


def _judging(bounty: Bounty) -> list[str]:
    said, judge, enclave = [], bounty.judge, bounty.enclave
    if judge.fallback.name == judge.model.name:
        said.append("judge.fallback is judge.model, so there is nobody to ask when its answers stay malformed")
    if judge.solution_tokens > CONTEXT:
        said.append(
            f"judge.solution_tokens is {judge.solution_tokens}: see that both models can read that much beside problem and checks"
        )
    if bounty.sealed is not None and enclave is None:
        said.append("problem.sealed without [enclave]: nobody can read the problem, so nobody can judge")
    elif bounty.sealed is not None:
        said.append("the problem is sealed: who takes part must be told in another way what is asked for")
    if enclave is not None and enclave.development:
        said.append("enclave.development is true: a quote of a development root is accepted, which proves nothing")
    if enclave is not None and enclave.unpinned:
        said.append(f"enclave: {', '.join(enclave.unpinned)} not pinned, so any system that logs the same code may judge")
    return said
