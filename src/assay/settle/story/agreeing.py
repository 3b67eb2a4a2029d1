"""From evidence to the agreed score, or to why there is none. SPEC 2, 3."""

from __future__ import annotations

from collections.abc import Iterator

from assay.exact import nanos, text
from assay.settle.story.missing import left_out, needed_stake, why_not
from assay.settle.story.telling import Case, Chapter, Json, Table, named, ordinal, part, percent, plural

__all__ = ["chapters"]


def chapters(case: Case, failed: Chapter | None) -> Iterator[Chapter]:
    """Status if there is no score; what was seen and what failed, quorum, outliers, score and rank as far as it came."""
    if not case.agreed:
        yield why_not(case)
    if case.row["status"] == "duplicate":
        return
    if case.row["validators"] or case.row["not_counted"]:
        yield _evidence(case)
        if failed is not None:
            yield failed
        yield _quorum(case)
    if case.quorum and not case.alike:
        yield _outliers(case)
    if case.agreed:
        yield _score(case)
        yield _rank(case)


def _evidence(case: Case) -> Chapter:
    votes, others = case.row["validators"], case.row["not_counted"]
    column = "modified_z" if any(vote["modified_z"] is not None for vote in votes) else "z_squared"
    has_z = any(vote[column] is not None for vote in votes)
    heading = ("|M|",) if column == "modified_z" else ("z²",)
    rows = [
        (
            case.called[vote["validator"]],
            *(() if case.alike else (vote["stake"],)),
            _saw(case, vote["work"]),
            vote["score"],
            *((vote[column] or "–",) if has_z else ()),
            "no: outlier" if vote["excluded"] else "yes, though flagged" if vote["flagged"] else "yes",
        )
        for vote in votes
    ]
    blank = ("–",) * (2 + has_z + (not case.alike))
    rows += [(case.called[one["validator"]], *blank, f"no: {left_out(case, one)}") for one in others]
    count = len(votes)
    said = f"{plural(count, case.judge)} {'has' if count == 1 else 'have'} a whole score of the current submission"
    if case.participant.submission:
        said += f", {case.participant.submission}"
    more = "1 more has" if len(others) == 1 else f"{len(others)} more have"
    return Chapter(
        name="evidence",
        title=f"What the {case.judge}s saw",
        text=(f"{said}.", *([f"{more} evidence about it that does not count."] if others else [])),
        facts={"submission": case.row["submission"], "validators": _facts(case, votes), "not_counted": others},
        table=Table(
            (case.judge, *(() if case.alike else ("stake",)), "saw", "score", *(heading if has_z else ()), "counts"), tuple(rows)
        ),
    )


def _facts(case: Case, votes: list[Json]) -> list[Json]:
    """The votes as they stand in the settlement; without stakes where those decide nothing."""
    return [{name: value for name, value in vote.items() if name != "stake"} for vote in votes] if case.alike else votes


def _saw(case: Case, work: Json) -> str:
    """A validator's work in a few words. SPEC 2."""
    match case.scheme.score.kind:
        case "tests":
            return f"{work['passed']} of {work['trials']} passed"
        case "workflow":
            return f"mean of {plural(work['tasks'], 'task')}"
        case "points":
            return f"{work['valid']} valid, {work['invalid']} invalid, {work['starred']} starred: {plural_points(work['points'])}"
        case "given":
            return f"given in epoch {work['epoch']}"
        case "rubric" if not work["gate"]:
            return "baseline not met"
        case _:
            capped = ", unskippable check missed" if work["capped"] else ""
            return f"base {work['base']}, {work['verdict']}{capped}: {work['bps']}"


def plural_points(points: str) -> str:
    """ "1 point", "12.5 points"."""
    return f"{points} point" if points == "1" else f"{points} points"


def _quorum(case: Case) -> Chapter:
    rules, row = case.scheme.consensus, case.row
    count, stake, total = len(row["validators"]), int(row["stake"]), int(row["needed_stake_of"])
    if case.alike:
        return _enough_runs(case, count)
    needed = needed_stake(case)
    of = "the stake of the assigned validators" if rules.assign is not None else "all stake in the registry"
    table = Table(
        ("", "counts", "needed", "enough"),
        (
            ("validators", str(count), str(rules.min_validators), "yes" if count >= rules.min_validators else "no"),
            ("stake", str(stake), str(needed), "yes" if stake >= needed else "no"),
            ("share of stake", part(stake, total), percent(rules.min_stake), "yes" if stake >= needed else "no"),
        ),
    )
    held = "There is a quorum" if case.quorum else "There is no quorum"
    return Chapter(
        name="quorum",
        title="Quorum",
        text=(f"{held}. The share is of {of}, {total}.",),
        facts={
            "validators": count,
            "min_validators": rules.min_validators,
            "stake": row["stake"],
            "needed_stake": str(needed),
            "needed_stake_of": row["needed_stake_of"],
            "min_stake": text(rules.min_stake),
            "held": case.quorum,
        },
        table=table,
    )


def _enough_runs(case: Case, count: int) -> Chapter:
    least = case.scheme.consensus.min_validators
    said = f"{plural(count, 'run')} {'counts' if count == 1 else 'count'}; {least} {'is' if least == 1 else 'are'} needed."
    return Chapter(
        name="quorum", title="Enough runs", text=(said,), facts={"runs": count, "min_runs": least, "held": case.quorum}
    )


def _outliers(case: Case) -> Chapter:
    rules, row = case.scheme.consensus.outliers, case.row
    flagged = [vote["validator"] for vote in row["validators"] if vote["flagged"]]
    excluded = [vote["validator"] for vote in row["validators"] if vote["excluded"]]
    text_ = [_measure(case)]
    if excluded:
        who = named([case.called[key] for key in excluded])
        text_.append(f"{who} {'is' if len(excluded) == 1 else 'are'} too far from the others and left out.")
    elif flagged:
        verb = "is" if len(flagged) == 1 else "are"
        why = "together the flagged hold half or more of the stake that takes part, so nobody is left out"
        text_.append(f"{named([case.called[key] for key in flagged])} {verb} flagged, but {why}.")
    elif row["median"] is not None or row["mean"] is not None:
        text_.append("Nobody is too far from the others.")
    return Chapter(
        name="outliers",
        title="Outliers",
        text=tuple(text_),
        facts={
            "method": rules.method,
            "threshold": text(rules.threshold),
            "mad_floor": text(rules.mad_floor),
            "median": row["median"],
            "mad": row["mad"],
            "mean": row["mean"],
            "flagged": flagged,
            "excluded": excluded,
            "flagged_majority": row["flagged_majority"],
        },
    )


def _measure(case: Case) -> str:
    """How far is too far, with this participant's numbers. SPEC 3.2."""
    rules, row = case.scheme.consensus.outliers, case.row
    if rules.method == "none":
        return "The scheme looks for no outliers."
    if row["median"] is not None:
        scale = max(nanos(row["mad"]), rules.mad_floor)
        if not scale:
            return f"The median is {row['median']} and MAD is 0: without a mad_floor nobody can be flagged."
        return (
            f"The median is {row['median']}, MAD is {row['mad']} (at least {text(rules.mad_floor)} is used). "
            f"|M| = 0.6745 × |score − median| / {text(scale)}; above {text(rules.threshold)} it is an outlier."
        )
    if row["mean"] is not None:
        squared = text(rules.threshold * rules.threshold, 18)
        return f"The mean is {row['mean']}; a score is an outlier where z² = ((score − mean) / σ)² is above {squared}."
    return "There are fewer than three scores, so nobody can be an outlier."


def _score(case: Case) -> Chapter:
    row, rules = case.row, case.scheme.consensus
    rest = [vote for vote in row["validators"] if not vote["excluded"]]
    how = {
        "stake-mean": "mean, weighted by stake,",
        "stake-median": "median by stake",
        "mean": "plain mean",
    }[rules.combine]
    scores = "one score that counts" if len(rest) == 1 else f"{len(rest)} scores that count"
    return Chapter(
        name="score",
        title="Agreed score",
        text=(f"The {how} of the {scores} is {case.shown_score}.",),
        facts={
            "score": row["score"],
            "bps": row["bps"],
            "combine": rules.combine,
            "validators": [vote["validator"] for vote in rest],
        },
    )


def _rank(case: Case) -> Chapter:
    ranking, place = case.document["ranking"], case.rank
    by = "score" if case.row["bps"] is None else "bps"
    scores = {row["participant"]: row[by] for row in case.document["agreed"]}
    shares = case.scheme.reward.kind == "ranking"
    near = ranking if shares else ranking[max(0, place - 2) : place + 1]
    equal = [key for key in near if key != case.participant.key and scores[key] == case.row[by]]
    shown = case.place if shares else place
    text_ = [f"{ordinal(shown)} of {plural(len(ranking), 'participant')} with an agreed score."]
    if equal:
        have = f"{named(equal)} {'has' if len(equal) == 1 else 'have'} the same score"
        text_.append(
            f"{have}, so they share the place." if shares else f"{have}: the earlier submission is first, then the key decides."
        )
    return Chapter(
        name="rank",
        title="Rank",
        text=tuple(text_),
        facts={"rank": shown, "of": len(ranking), "equal": equal},
    )
