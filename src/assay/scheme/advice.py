"""Warnings about a bounty: what is allowed but probably not intended. They are for the sponsor, and never an error. SPEC 8."""

from __future__ import annotations

from datetime import datetime

from assay.scheme.bounty import Bounty
from assay.scheme.clock import by_time
from assay.scheme.fields import instant_text
from assay.scheme.load import warnings

__all__ = ["CONTEXT", "advice", "deadlines"]

CONTEXT = 100_000
"""Few models read a solution of more tokens reliably."""


def deadlines(bounty: Bounty) -> dict[str, datetime | None]:
    """Field → its deadline, in the order of time; None if it is not set."""
    payout = bounty.scheme.payout
    return {
        "bounty.commitments_until": bounty.terms.commitments_until,
        "bounty.submissions_until": bounty.terms.submissions_until,
        "payout.scoring_deadline": None if payout is None else payout.scoring_deadline,
    }


def advice(bounty: Bounty, now: datetime) -> list[str]:
    """One sentence for each warning; it names the field."""
    warned = warnings(bounty.scheme)
    warned += _times(bounty, now)
    warned += _judging(bounty)
    if bounty.terms.sponsor is None:
        warned.append(
            "bounty.sponsor is missing, so results and transcripts are sealed only to the judges; "
            "`assay keys new sponsor --kind x25519` makes a key"
        )
    payout = bounty.scheme.payout
    if payout is None:
        warned.append('there is no [payout], so nothing is paid; [reward] kind = "payout" needs one')
    elif payout.deposit == 0:
        warned.append("payout.deposit is 0, so nothing is paid")
    return warned


def _times(bounty: Bounty, now: datetime) -> list[str]:
    warned = []
    for field, until in deadlines(bounty).items():
        if until is not None and until < now:
            warned.append(f"{field} is past: {instant_text(until)}")
        elif until is None and field == "bounty.submissions_until":
            warned.append(f"{field} is missing, so solutions may come at any time")
        elif until is None and field == "payout.scoring_deadline" and bounty.scheme.payout is not None:
            warned.append(f"{field} is missing, so a solution that is never judged can delay the payout forever")
        elif until is None and bounty.enclave is not None:
            warned.append(f"{field} is missing, so a commitment can come after other participants were seen to hand in")
    clock, open_until = bounty.scheme.epoch, bounty.open_until
    if bounty.scheme.payout is not None and clock is not None and clock.every is not None and open_until is not None:
        end = by_time(clock, 1)
        if end.moment < open_until:
            warned.append(
                f"epoch: epoch 1 ends at {end.text}, and until {instant_text(open_until)} something may be handed in; "
                "a payout is final: an operator's node settles after that, and `assay settle` whenever it is asked to"
            )
    return warned


def _judging(bounty: Bounty) -> list[str]:
    warned, judge, enclave = [], bounty.judge, bounty.enclave
    if judge.fallback.name == judge.model.name:
        warned.append(
            "judge.fallback is the same as judge.model, so there is no other model to ask when its answers stay malformed"
        )
    if judge.solution_tokens > CONTEXT:
        warned.append(
            f"judge.solution_tokens is {judge.solution_tokens}: check that both models can read so much, with problem and checks"
        )
    if bounty.sealed is not None and enclave is None:
        warned.append("problem.sealed without [enclave]: no judge can read the problem")
    elif bounty.sealed is not None:
        warned.append("the problem is sealed: tell the participants in another way what it asks for")
    if enclave is not None and enclave.development:
        warned.append("enclave.development is true: quotes of a development root are accepted, and these prove nothing")
    if enclave is not None and enclave.unpinned:
        warned.append(f"enclave: {', '.join(enclave.unpinned)} not pinned, so any system that logs the same code may judge")
    return warned
