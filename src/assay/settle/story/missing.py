"""Why a participant has no agreed score, what is missing, and who can mend it. SPEC 3."""

from __future__ import annotations

from assay.exact import NANO
from assay.settle.story.telling import Case, Chapter, Json, named, part, percent, plural

__all__ = ["left_out", "needed_stake", "why_not"]


def needed_stake(case: Case) -> int:
    """The least stake (rao) that is a quorum for this participant. SPEC 3.1."""
    return -(-int(case.row["needed_stake_of"]) * case.scheme.consensus.min_stake // NANO)


def left_out(case: Case, one: Json) -> str:
    """Why a validator with evidence does not count for this participant. SPEC 3.0, 3.1."""
    if one["reason"] == "incomplete":
        trials = getattr(case.scheme.score, "trials", 1) * case.tasks
        return f"{one['missing']} of {trials} missing"
    return {
        "not-assigned": "not drawn for this submission",
        "no-stake": "has no stake",
        "stake-below-minimum": f"stake below {case.scheme.consensus.min_validator_stake}",
        "unjudged": "unjudged or malformed",
        "injection-suspected": "an injection is suspected, which this scheme does not score",
        "no-tasks": "its own service failed in every task",
    }[one["reason"]]


def why_not(case: Case) -> Chapter:
    """The status, its reason, and what to do."""
    row = case.row
    why, do = {
        "same-submission": _duplicate,
        "malformed-or-unjudged": _unjudged,
        "missing-trials": _incomplete,
        "no-evidence": _no_evidence,
        "too-few-validators": _too_few,
        "too-little-stake": _too_little,
        "stake-after-outliers": _after_outliers,
    }[row["reason"]](case)
    return Chapter(
        name="status",
        title="Why there is no agreed score",
        text=(why, do),
        facts={"status": row["status"], "reason": row["reason"], "duplicate_of": row["duplicate_of"]},
    )


def _duplicate(case: Case) -> tuple[str, str]:
    first = case.row["duplicate_of"]
    return (
        f"{first} handed in the same submission earlier; it counts for the earliest only.",
        "To do: hand in a submission of your own.",
    )


def _unjudged(case: Case) -> tuple[str, str]:
    who = [case.called[one["validator"]] for one in case.row["not_counted"] if one["reason"] == "unjudged"]
    wary = [case.called[one["validator"]] for one in case.row["not_counted"] if one["reason"] == "injection-suspected"]
    if wary:
        return (
            f"{named(wary)} found signs that the solution speaks to the judge; by the scheme it then counts as unjudged.",
            "To do: a person reads the solution. A new one without these signs is judged anew.",
        )
    return (
        f"{named(who)} could not judge it: a judgement is unjudged or malformed, which is never a zero.",
        "To do: these validators judge it again, with the fallback model if need be.",
    )


def _incomplete(case: Case) -> tuple[str, str]:
    lacking = [one for one in case.row["not_counted"] if one["reason"] == "incomplete"]
    who = named([f"{case.called[one['validator']]} ({one['missing']})" for one in lacking])
    return (
        f"Trials are missing from {who}; an incomplete run does not count, and errors are never failures.",
        "To do: run the missing trials again, and add what they come to."
        if case.alike
        else "To do: these validators run the missing trials; then the quorum is reached.",
    )


def _no_evidence(case: Case) -> tuple[str, str]:
    rules, drawn = case.scheme.consensus, case.row["needed_stake_of"]
    if rules.assign is not None and drawn == "0":
        return (
            "Nobody has been drawn to judge it: there is no evidence that says in which epoch it was accepted.",
            "To do: nothing yet, if it was handed in only now; otherwise see that accepted_epoch or evidence is there.",
        )
    if others := case.row["not_counted"]:
        who = named([f"{case.called[one['validator']]} ({left_out(case, one)})" for one in others])
        return (
            f"{'Runs' if case.alike else 'Validators'} have evidence about it, but none of it counts: {who}.",
            f"To do: {plural(rules.min_validators, case.judge)}{'' if case.alike else ' with stake'} must judge it whole.",
        )
    if not case.participant.submission and case.scheme.score.kind != "points":
        return (
            "It has no submission in participants.csv, and nobody has evidence about it.",
            "To do: hand in a submission.",
        )
    return (
        f"No {case.judge} has evidence about its current submission.",
        f"To do: {plural(rules.min_validators, case.judge)} must judge it. Evidence about earlier submissions does not count.",
    )


def _too_few(case: Case) -> tuple[str, str]:
    has, needed = len(case.row["validators"]), case.scheme.consensus.min_validators
    return (
        f"{plural(has, case.judge)} {'counts' if has == 1 else 'count'}, {needed} are needed.",
        f"To do: {plural(needed - has, f'more {case.judge}')} must judge the whole submission.",
    )


def _too_little(case: Case) -> tuple[str, str]:
    stake, needed = int(case.row["stake"]), needed_stake(case)
    share, least = part(stake, int(case.row["needed_stake_of"])), percent(case.scheme.consensus.min_stake)
    return (
        f"The validators that count hold {stake}, {share} of the stake; {least} is needed, {needed}.",
        f"To do: validators with at least {needed - stake} more must judge it.",
    )


def _after_outliers(case: Case) -> tuple[str, str]:
    rest = sum(int(vote["stake"]) for vote in case.row["validators"] if not vote["excluded"])
    return (
        f"Without the outliers the validators hold {rest}; {needed_stake(case)} is needed, and the scheme asks again (recheck).",
        "To do: more validators judge it, or those that were left out look into why they differ.",
    )
