"""A bounty in words: what is asked, by when, what an answer is worth, what is paid, and who judges. SPEC 2.3, 5."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from assay.exact import BPS, NANO
from assay.scheme.advice import deadlines
from assay.scheme.bounty import Bounty, Model
from assay.scheme.measured import UP_TO_DATE
from assay.scheme.model import Check, Payout
from assay.scheme.times import instant_text
from assay.settle.payout import pay
from assay.settle.score.rubric import BASELINE, FIFTH, VERDICTS, judge
from assay.settle.story.telling import Chapter, Table, named, ordinal, part, plural

__all__ = ["chapters", "document"]

Json = dict[str, Any]

LINES = 20
"""Of a problem, shown; the rest is in its file."""
_MEANS = {
    "bounty.commitments_until": "commitments",
    "bounty.submissions_until": "solutions",
    "payout.scoring_deadline": "judgements: what is unjudged then is left out",
}
_RULES = {
    "EXCEPTIONAL": "all points missed on skippable checks come back",
    "ELEGANT": "half of them come back",
    "COHERENT": "stays as it is",
    "MINOR_ISSUES": "loses a tenth",
    "FLAWED": "loses a fifth",
    "FUNDAMENTALLY_BROKEN": f"is at most {FIFTH}",
}


def chapters(bounty: Bounty, now: datetime) -> Iterator[Chapter]:
    """The story, chapter by chapter."""
    yield _asked(bounty)
    yield _when(bounty, now)
    yield _checks(bounty)
    yield _verdicts(bounty)
    if bounty.scheme.payout is not None:
        yield _released(bounty.scheme.payout)
        yield _places(bounty.scheme.payout)
    yield _judges(bounty)


def document(bounty: Bounty, now: datetime, warnings: list[str]) -> Json:
    """The bounty, its digest and the numbers of the story as JSON."""
    told = {chapter.name: {**chapter.facts} for chapter in chapters(bounty, now)}
    return {"bounty": bounty.document(), "digest": bounty.digest, "warnings": warnings, **told}


def _asked(bounty: Bounty) -> Chapter:
    facts = {"digest": bounty.problem_digest, "sealed": bounty.problem is None}
    if bounty.problem is None:
        said = ["The problem is sealed: only the enclave reads it. The digest of its text is", f"{bounty.problem_digest}."]
    else:
        lines = bounty.problem.strip().splitlines()
        more = len(lines) - LINES
        said = [*lines[:LINES], *([f"… and {plural(more, 'more line')}."] if more > 0 else [])]
    return Chapter(name="problem", title="What is asked", text=tuple(said), facts=facts)


def _when(bounty: Bounty, now: datetime) -> Chapter:
    times = deadlines(bounty)
    rows = tuple(
        (_MEANS[field], "no deadline" if until is None else instant_text(until) + (", which is past" if until < now else ""))
        for field, until in times.items()
    )
    facts = {field: None if until is None else instant_text(until) for field, until in times.items()}
    return Chapter(name="deadlines", title="By when", text=(), facts=facts, table=Table(("which", "until"), rows))


def _checks(bounty: Bounty) -> Chapter:
    rules = bounty.rules
    hard = [check.id for check in rules.checks if not check.skippable]
    said = [
        f"First four questions, {named([*BASELINE])}: is it legal, ethical, no spam, on the problem? One NO, and the score is 0.",
        f"Then {plural(len(rules.checks), 'check')}, each YES or NO, for {BPS} BPS in all. "
        + (f"Not to be missed: {named(hard, 20)}." if hard else "Each of them may be missed."),
    ]
    if rules.injection is not None:
        said.append("A solution that seems to speak to its judge counts as unjudged, until a person has looked.")
    rows = tuple((check.id, _question(check), str(check.weight), _missed(check)) for check in rules.checks)
    facts = {"unskippable": hard, "injection": rules.injection}
    table = Table(("check", "what it asks", "weight", "a NO"), rows)
    return Chapter(name="checks", title="How a solution is scored", text=tuple(said), facts=facts, table=table)


def _question(check: Check) -> str:
    return ": ".join(one for one in (check.label, check.description) if one)


def _missed(check: Check) -> str:
    return "a good verdict may give it back" if check.skippable else f"leaves {FIFTH} at most"


def _verdicts(bounty: Bounty) -> Chapter:
    """What each verdict makes of a solution that misses the last skippable checks, and of one that misses another as well."""
    rules = bounty.rules
    soft = [check for check in rules.checks if check.skippable]
    hard = [check for check in rules.checks if not check.skippable]
    missed = [check.id for check in soft[-min(2, len(rules.checks) - 1) :]] if len(rules.checks) > 1 else []
    met = dict.fromkeys(BASELINE, True)
    columns = [missed] + ([[*missed, hard[0].id]] if hard else [])
    found = {
        verdict: [judge(met, {check.id: check.id not in lost for check in rules.checks}, verdict, rules) for lost in columns]
        for verdict in VERDICTS
    }
    bps = {verdict: [0 if one is None else one.bps for one in row] for verdict, row in found.items()}
    base = next(one.base for one in found["COHERENT"] if one is not None)
    without = f"all but {named(missed)}" if missed else "everything"
    said = [f"Last a verdict on the whole. A solution that meets {without} has a base of {base} BPS:"]
    names = ("verdict", "the base", "BPS", *((f"and without {hard[0].id}",) if hard else ()))
    rows = tuple((verdict, _RULES[verdict], *map(str, bps[verdict])) for verdict in VERDICTS)
    facts = {"missed": missed, "base": base, "bps": {verdict: row[0] for verdict, row in bps.items()}}
    return Chapter(name="verdicts", title="What the verdict does", text=tuple(said), facts=facts, table=Table(names, rows))


def _released(rules: Payout) -> Chapter:
    tiers = [
        {
            "from_bps": -(-tier.reach_bps * rules.threshold_bps // BPS),
            "of_threshold_bps": tier.reach_bps,
            "released": str(rules.deposit * tier.release_bps // BPS),
        }
        for tier in rules.tiers
    ]
    rows = tuple(
        (str(one["from_bps"]), part(tier.reach_bps, BPS), part(tier.release_bps, BPS), str(one["released"]))
        for one, tier in zip(tiers, rules.tiers, strict=True)
    )
    said = (
        f"The deposit is {rules.deposit}, the threshold {rules.threshold_bps} BPS.",
        f"The best score decides; below {tiers[-1]['from_bps']} BPS all of it goes back.",
    )
    table = Table(("from BPS", "of the threshold", "of the deposit", "released"), rows)
    facts = {"deposit": str(rules.deposit), "threshold_bps": rules.threshold_bps, "tiers": tiers}
    return Chapter(name="release", title="What is released", text=said, facts=facts, table=table)


def _places(rules: Payout) -> Chapter:
    """The places, if all is released and each of them is taken."""
    found = pay([NANO] * len(rules.split), rules)
    rows = tuple(
        (ordinal(row.place), part(share, BPS), str(row.gross), str(row.fee), str(row.net))
        for row, share in zip(found.rows, rules.split, strict=True)
    )
    said = (
        "A place is paid only if its own score reaches the lowest tier. What is not paid goes back.",
        f"If {found.released} is released, less a fee of {part(rules.fee_bps, BPS)}:",
    )
    facts = {
        "places": [{"place": row.place, "gross": str(row.gross), "fee": str(row.fee), "net": str(row.net)} for row in found.rows],
        "fees": str(found.fees),
        "refund": str(found.refund),
    }
    table = Table(("place", "share", "gross", "fee", "paid"), rows)
    return Chapter(name="places", title="Who is paid", text=said, facts=facts, table=table)


def _served(model: Model) -> str:
    """How a service is asked for a model."""
    forms = {"json_schema": "by a JSON schema", "json_object": "as a JSON object", "text": "as JSON in plain text"}
    also = f" or as {named([*model.names], 6)}" if model.names else ""
    return (
        f"{model.name} must be served under that name{also}. It answers {forms[model.format]}, "
        f"with {model.max_tokens} tokens and {plural(model.timeout, 'second')} at most."
    )


def _judges(bounty: Bounty) -> Chapter:
    judge, enclave, rules = bounty.judge, bounty.enclave, bounty.scheme.consensus
    said = [
        f"{judge.model.name} answers; where its answers stay malformed, or it cannot be had, {judge.fallback.name}.",
        "Where the answers of both stay malformed, the solution is unjudged, never zero.",
        *dict.fromkeys(map(_served, (judge.model, judge.fallback))),
        f"A solution may have {judge.solution_tokens} tokens, each byte of its UTF-8 counted as one; a larger one is refused.",
        f"{plural(rules.min_validators, 'validator')} must judge it"
        + (f", who hold {part(rules.min_stake, NANO)} of the stake." if rules.min_stake else "."),
    ]
    if enclave is None:
        said.append("There is no enclave: whoever judges reads the solutions.")
        return Chapter(name="judges", title="Who judges", text=tuple(said), facts={"enclave": None})
    values = {name: getattr(enclave, name) for name in ("compose_hash", "mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3")}
    pinned = {name: value for name, value in values.items() if value is not None}
    allowed = named([*dict.fromkeys((UP_TO_DATE, *enclave.tcb))], 6)
    said.append(f"An enclave judges sealed solutions, which nobody else reads. Its platform is {allowed}, and it measures as:")
    table = Table(("measurement", "what it must be"), tuple(pinned.items()))
    facts = {"enclave": pinned, "tcb": [*enclave.tcb], "development": enclave.development}
    return Chapter(name="judges", title="Who judges", text=tuple(said), facts=facts, table=table)
