"""The chapters up to the rank: what was seen, what failed, quorum, outliers, agreed score; or why there is none. SPEC 2, 3.

A participant without an agreed score is told the reason, what is missing, and who can do something about it. A chapter names the
tasks or checks that the records that count did not see passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from assay.exact import NANO, RAO, coins, nanos, text
from assay.records import Evidence, Rubric, Tests, Workflow
from assay.scheme.model import WorkflowScore
from assay.settle.inputs import Scored
from assay.settle.score import accepted, holding
from assay.settle.score import workflow as windows
from assay.settle.story.telling import Chapter, Json, Subject, Table, named, ordinal, part, percent, plural

if TYPE_CHECKING:
    from assay.settle.settlement import Settlement


def needed_stake(subject: Subject) -> int:
    """The least stake (rao) that is a quorum for this participant. SPEC 3.1."""
    return -(-int(subject.row["needed_stake_of"]) * subject.scheme.consensus.min_stake // NANO)


def left_out(subject: Subject, evidence: Json) -> str:
    """The reason that a validator with evidence does not count for this participant. SPEC 3.0, 3.1."""
    if evidence["reason"] == "incomplete":
        trials = (subject.scheme.kind.trials(subject.scheme.score) or 1) * subject.tasks
        return f"{evidence['missing']} of {trials} missing"
    return {
        "not-assigned": "not drawn for this submission",
        "no-stake": "has no stake",
        "stake-below-minimum": f"stake below {subject.stake(subject.scheme.consensus.min_validator_stake)}",
        "audit-failed": "left out: an audit saw false claims of it",
        "unjudged": "unjudged or malformed",
        "injection-suspected": "an injection is suspected; this scheme then gives no score",
        "panel-split": "the answers of the panel differ too much",
        "no-tasks": "the validator's own service failed in every task",
    }[evidence["reason"]]


def why_not(subject: Subject) -> Chapter:
    """The status, its reason, and what to do."""
    row = subject.row
    why, do = {
        "same-submission": _duplicate,
        "malformed-or-unjudged": _unjudged,
        "missing-trials": _incomplete,
        "no-evidence": _no_evidence,
        "too-few-validators": _too_few,
        "too-little-stake": _too_little,
        "stake-after-outliers": _after_outliers,
    }[row["reason"]](subject)
    return Chapter(
        name="status",
        title="Why there is no agreed score",
        text=(why, do),
        facts={"status": row["status"], "reason": row["reason"], "duplicate_of": row["duplicate_of"]},
    )


def _duplicate(subject: Subject) -> tuple[str, str]:
    first = subject.person(subject.row["duplicate_of"])
    return (
        f"{first} handed in the same submission earlier, and a submission counts only for the earliest participant.",
        "To do: hand in a submission of your own.",
    )


def _unjudged(subject: Subject) -> tuple[str, str]:
    def validators(reason: str) -> list[str]:
        return [subject.called[row["validator"]] for row in subject.row["not_counted"] if row["reason"] == reason]

    if wary := validators("injection-suspected"):
        return (
            f"{named(wary)} found signs that the solution speaks to the judge; under this scheme it then counts as unjudged.",
            "To do: a person must read the solution. A new solution without these signs is judged again.",
        )
    if split := validators("panel-split"):
        what = "a question has no majority, or more of its votes differ than the scheme allows"
        return (
            f"The answers of the panel of {named(split)} differ too much: {what}. That is never scored as 0.",
            "To do: a person must read the answers. A clearer rubric or a larger panel decides more.",
        )
    return (
        f"{named(validators('unjudged'))} could not judge it: the judgement is missing or malformed, which is never scored as 0.",
        "To do: these validators must judge it again, with the fallback model if necessary.",
    )


def _incomplete(subject: Subject) -> tuple[str, str]:
    lacking = [validator for validator in subject.row["not_counted"] if validator["reason"] == "incomplete"]
    who = named([f"{subject.called[validator['validator']]} ({validator['missing']})" for validator in lacking])
    return (
        f"Trials are missing from {who}. An incomplete run does not count; infrastructure errors are never scored as failures.",
        "To do: run the missing trials, and add their results."
        if subject.alike
        else "To do: these validators must run the missing trials; then the quorum is reached.",
    )


def _no_evidence(subject: Subject) -> tuple[str, str]:
    rules, drawn = subject.scheme.consensus, subject.row["needed_stake_of"]
    if rules.assign is not None and drawn == "0":
        return (
            "No validator was drawn to judge it: nothing says in which epoch it was accepted.",
            "To do: wait, if it was handed in just now; otherwise fill in accepted_epoch, or add evidence.",
        )
    if others := subject.row["not_counted"]:
        who = named([f"{subject.called[evidence['validator']]} ({left_out(subject, evidence)})" for evidence in others])
        return (
            f"{'Runs' if subject.alike else 'Validators'} have evidence about it, but none of it counts: {who}.",
            f"To do: {plural(rules.min_validators, subject.judge)}{'' if subject.alike else ' with stake'} must judge all of it.",
        )
    if not subject.participant.submission and not subject.scheme.kind.record.by_participant:
        return (
            "It has no submission in participants.csv, and there is no evidence about it.",
            "To do: hand in a submission.",
        )
    return (
        f"No {subject.judge} has evidence about its current submission, in this epoch or before.",
        f"To do: {plural(rules.min_validators, subject.judge)} must judge it. Evidence about earlier submissions does not count.",
    )


def _too_few(subject: Subject) -> tuple[str, str]:
    has, needed = len(subject.row["validators"]), subject.scheme.consensus.min_validators
    return (
        f"{plural(has, subject.judge)} {'counts' if has == 1 else 'count'}; {needed} are needed.",
        f"To do: {plural(needed - has, f'more {subject.judge}')} must judge the whole submission.",
    )


def _too_little(subject: Subject) -> tuple[str, str]:
    stake, needed = int(subject.row["stake"]), needed_stake(subject)
    share, least = part(stake, int(subject.row["needed_stake_of"])), percent(subject.scheme.consensus.min_stake)
    quorum = subject.stake(needed)
    return (
        f"The validators that count hold {subject.stake(stake)}, {share} of the stake; {least} is needed, {quorum}.",
        f"To do: validators with at least {subject.stake(needed - stake)} more must judge it.",
    )


def _after_outliers(subject: Subject) -> tuple[str, str]:
    rest = subject.stake(sum(int(vote["stake"]) for vote in subject.row["validators"] if not vote["excluded"]))
    needed = subject.stake(needed_stake(subject))
    return (
        f"Without the outliers the validators hold {rest}. The scheme checks the quorum again (recheck): {needed} is needed.",
        "To do: more validators must judge it, or the validators that were left out must find out why their scores differ.",
    )


def chapters(subject: Subject, failed: Chapter | None) -> Iterator[Chapter]:
    """The status if there is no score; then evidence, failures, quorum, outliers, score and rank, as far as they exist."""
    if not subject.agreed:
        yield why_not(subject)
    if subject.row["status"] == "duplicate":
        return
    if subject.row["validators"] or subject.row["not_counted"]:
        yield _evidence(subject)
        if failed is not None:
            yield failed
        yield _quorum(subject)
    if subject.quorum and not subject.alike:
        yield _outliers(subject)
    if subject.agreed:
        yield _score(subject)
        yield _rank(subject)


def _evidence(subject: Subject) -> Chapter:
    votes, others = subject.row["validators"], subject.row["not_counted"]
    column = "modified_z" if any(vote["modified_z"] is not None for vote in votes) else "z_squared"
    has_z = any(vote[column] is not None for vote in votes)
    heading = ("|M|",) if column == "modified_z" else ("z²",)
    rows = [
        (
            subject.called[vote["validator"]],
            *(() if subject.alike else (vote["stake"],)),
            *((coins(vote["stake"], RAO),) if subject.in_tao else ()),
            subject.scheme.kind.saw(vote["work"]),
            vote["score"],
            *((vote[column] or "–",) if has_z else ()),
            "no: outlier" if vote["excluded"] else "yes, though flagged" if vote["flagged"] else "yes",
        )
        for vote in votes
    ]
    blank = ("–",) * (2 + has_z + (not subject.alike) + subject.in_tao)
    rows += [(subject.called[evidence["validator"]], *blank, f"no: {left_out(subject, evidence)}") for evidence in others]
    stake = () if subject.alike else ("stake", "in TAO") if subject.in_tao else ("stake",)
    count = len(votes)
    sentence = f"{plural(count, subject.judge)} {'has' if count == 1 else 'have'} a whole score of the current submission"
    if subject.participant.submission:
        sentence += f", {subject.participant.submission}"
    more = "1 more has" if len(others) == 1 else f"{len(others)} more have"
    return Chapter(
        name="evidence",
        title=f"What the {subject.judge}s saw",
        text=(
            f"{sentence}.",
            *subject.chosen_rules(),
            *([f"{more} evidence about it that does not count."] if others else []),
        ),
        facts={"submission": subject.row["submission"], "validators": _facts(subject, votes), "not_counted": others},
        table=Table((subject.judge, *stake, "saw", "score", *(heading if has_z else ()), "counts"), tuple(rows)),
    )


def _facts(subject: Subject, votes: list[Json]) -> list[Json]:
    """The votes as the settlement has them; without stakes if stakes decide nothing."""
    return [{name: value for name, value in vote.items() if name != "stake"} for vote in votes] if subject.alike else votes


def _quorum(subject: Subject) -> Chapter:
    rules, row = subject.scheme.consensus, subject.row
    count, stake, total = len(row["validators"]), int(row["stake"]), int(row["needed_stake_of"])
    if subject.alike:
        return _enough_runs(subject, count)
    needed = needed_stake(subject)
    of = "the stake of the assigned validators" if rules.assign is not None else "all stake in the registry"
    table = Table(
        ("", "counts", "needed", "enough"),
        (
            ("validators", str(count), str(rules.min_validators), "yes" if count >= rules.min_validators else "no"),
            *_stakes(subject, stake, needed),
            ("share of stake", part(stake, total), percent(rules.min_stake), "yes" if stake >= needed else "no"),
        ),
    )
    quorum = "There is a quorum" if subject.quorum else "There is no quorum"
    return Chapter(
        name="quorum",
        title="Quorum",
        text=(f"{quorum}. The share is of {of}, {subject.stake(total)}.",),
        facts={
            "validators": count,
            "min_validators": rules.min_validators,
            "stake": row["stake"],
            "needed_stake": str(needed),
            "needed_stake_of": row["needed_stake_of"],
            "min_stake": text(rules.min_stake),
            "held": subject.quorum,
        },
        table=table,
    )


def _stakes(subject: Subject, stake: int, needed: int) -> list[tuple[str, str, str, str]]:
    """The rows of the stake that counts and the stake that is needed: in rao, and in TAO where that is shown."""
    enough = "yes" if stake >= needed else "no"
    if not subject.in_tao:
        return [("stake", str(stake), str(needed), enough)]
    return [
        ("stake, rao", str(stake), str(needed), enough),
        ("stake, TAO", coins(stake, RAO), coins(needed, RAO), enough),
    ]


def _enough_runs(subject: Subject, count: int) -> Chapter:
    least = subject.scheme.consensus.min_validators
    sentence = f"{plural(count, 'run')} {'counts' if count == 1 else 'count'}; {least} {'is' if least == 1 else 'are'} needed."
    return Chapter(
        name="quorum", title="Enough runs", text=(sentence,), facts={"runs": count, "min_runs": least, "held": subject.quorum}
    )


def _outliers(subject: Subject) -> Chapter:
    rules, row = subject.scheme.consensus.outliers, subject.row
    flagged = [vote["validator"] for vote in row["validators"] if vote["flagged"]]
    excluded = [vote["validator"] for vote in row["validators"] if vote["excluded"]]
    text_ = [_measure(subject)]
    if excluded:
        who = named([subject.called[key] for key in excluded])
        text_.append(f"{who} {'is' if len(excluded) == 1 else 'are'} too far from the others and left out.")
    elif flagged:
        verb = "is" if len(flagged) == 1 else "are"
        why = "together the flagged hold half or more of the stake that takes part, so no score is left out"
        text_.append(f"{named([subject.called[key] for key in flagged])} {verb} flagged, but {why}.")
    elif row["median"] is not None or row["mean"] is not None:
        text_.append("No score is too far from the others.")
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


def _measure(subject: Subject) -> str:
    """The distance at which a score is an outlier, with this participant's numbers. SPEC 3.2."""
    rules, row = subject.scheme.consensus.outliers, subject.row
    if rules.method == "none":
        return "The scheme does not look for outliers."
    if row["median"] is not None:
        scale = max(nanos(row["mad"]), rules.mad_floor)
        if rules.scale is not None:
            return (
                f"The median m is {row['median']}, MAD is {row['mad']} (at least {text(rules.mad_floor)} is used). The scale is "
                f"the MAD, or 0.6745 × √(m(1 − m)/n) if that is larger: the noise of n = {subject.trials} trials. M² = "
                f"(0.6745 × (score − m) / scale)²; above {text(rules.threshold * rules.threshold, 18)} it is an outlier."
            )
        if not scale:
            return f"The median is {row['median']} and MAD is 0: without a mad_floor no score can be flagged."
        return (
            f"The median is {row['median']}, MAD is {row['mad']} (at least {text(rules.mad_floor)} is used). "
            f"|M| = 0.6745 × |score − median| / {text(scale)}; above {text(rules.threshold)} it is an outlier."
        )
    if row["mean"] is not None:
        squared = text(rules.threshold * rules.threshold, 18)
        return f"The mean is {row['mean']}; a score is an outlier where z² = ((score − mean) / σ)² is above {squared}."
    return "There are fewer than three scores, so none can be an outlier."


def _score(subject: Subject) -> Chapter:
    row, rules = subject.row, subject.scheme.consensus
    rest = [vote for vote in row["validators"] if not vote["excluded"]]
    how = {
        "stake-mean": "mean, weighted by stake,",
        "stake-median": "median by stake",
        "mean": "plain mean",
        "clip": "mean, weighted by stake and clipped at what enough stake reaches,",
        "trimmed": "trimmed mean, weighted by stake,",
    }[rules.combine]
    scores = "one score that counts" if len(rest) == 1 else f"{len(rest)} scores that count"
    return Chapter(
        name="score",
        title="Agreed score",
        text=(f"The {how} of the {scores} is {subject.shown_score}.",),
        facts={
            "score": row["score"],
            "bps": row["bps"],
            "combine": rules.combine,
            "validators": [vote["validator"] for vote in rest],
        },
    )


def _rank(subject: Subject) -> Chapter:
    ranking, place = subject.document["ranking"], subject.rank
    by = "score" if subject.row["bps"] is None else "bps"
    scores = {row["participant"]: row[by] for row in subject.document["agreed"]}
    shares = subject.scheme.reward.kind == "ranking"
    near = ranking if shares else ranking[max(0, place - 2) : place + 1]
    equal = [key for key in near if key != subject.participant.key and scores[key] == subject.row[by]]
    shown = subject.place if shares else place
    text_ = [f"{ordinal(shown)} of {plural(len(ranking), 'participant')} with an agreed score."]
    if equal:
        have = f"{named([subject.person(key) for key in equal])} {'has' if len(equal) == 1 else 'have'} the same score"
        text_.append(
            f"{have}, so they share the place." if shares else f"{have}: the earlier submission is first, then the key decides."
        )
    return Chapter(
        name="rank",
        title="Rank",
        text=tuple(text_),
        facts={"rank": shown, "of": len(ranking), "equal": equal},
    )


R = TypeVar("R", Tests, Rubric)

MOST = 20
"""Rows that people see; programs get all."""


def failing(settlement: Settlement, subject: Subject, records: Sequence[Evidence] | None = None) -> Chapter | None:
    """The tasks or checks that some validator whose score counts did not see passed; None if there are no single records.

    records: those about this participant, if the settlement was computed from sums.
    """
    evidence = settlement.inputs.evidence if records is None else records
    if isinstance(evidence, Scored) or not subject.row["validators"]:
        return None
    return subject.scheme.kind.failing(settlement, subject, evidence)


def votes_of(subject: Subject) -> list[str]:
    """The keys of the validators that have a whole score of this participant."""
    return [vote["validator"] for vote in subject.row["validators"]]


def counting_records(settlement: Settlement, subject: Subject, records: Sequence[R]) -> list[R]:
    """The records about this participant's submission by validators whose score counts. SPEC 3.0."""
    column, column_of, votes = settlement.frame.column[subject.participant.key], holding(settlement.frame), {*votes_of(subject)}
    return accepted([record for record in records if record.validator in votes and column_of(record) == column], settlement.frame)


def tests(settlement: Settlement, subject: Subject, records: Sequence[Evidence]) -> Chapter:
    """Tasks with a trial that did not pass for some validator. SPEC 2.1."""
    trials, tasks = subject.scheme.kind.trials(subject.scheme.score) or 1, settlement.inputs.tasks
    outcomes: dict[str, dict[str, list[str]]] = {task: {} for task in tasks}
    for record in counting_records(settlement, subject, [record for record in records if isinstance(record, Tests)]):
        if record.task in outcomes and record.trial <= trials and record.outcome != "error":
            outcomes[record.task].setdefault(record.validator, []).append(record.outcome)
    facts: list[Json] = []
    rows = []
    for task, seen in outcomes.items():
        by = [
            {"validator": key, "passed": of_validator.count("pass"), "timeout": of_validator.count("timeout"), "trials": trials}
            for key in votes_of(subject)
            if (of_validator := seen.get(key, [])).count("pass") < trials
        ]
        if by:
            facts.append({"task": task, "validators": by})
            passed = sum(outcomes.count("pass") for outcomes in seen.values())
            rows.append(
                (task, f"{passed} of {trials * len(votes_of(subject))}", ", ".join(_failed(subject, counts) for counts in by))
            )
    sentence = (
        f"{plural(len(rows), 'task')} of {len(tasks)} {'was' if len(rows) == 1 else 'were'} not passed in every trial by every "
        f"{subject.judge}."
        if rows
        else f"Every {subject.judge} saw every task passed."
    )
    return failed_chapter("Tasks that were not passed", sentence, {"tasks": facts}, ("task", "passed", "failed at"), rows)


def _failed(subject: Subject, trials: Json) -> str:
    """A validator, how often the task failed there if there is more than one trial, and how often it ran out of time."""
    failed, late = trials["trials"] - trials["passed"], trials["timeout"]
    parts = [f"{failed} of {trials['trials']}"] if trials["trials"] > 1 else []
    parts += [] if not late else ["out of time"] if late == failed else [f"{late} out of time"]
    who = subject.called[trials["validator"]]
    return f"{who} ({', '.join(parts)})" if parts else who


def workflow_tasks(settlement: Settlement, subject: Subject, records: Sequence[Evidence]) -> Chapter:
    """Tasks of the window in which success was not above the gate for some validator. SPEC 2.2."""
    frame, rules = settlement.frame, subject.scheme.score
    assert isinstance(rules, WorkflowScore)
    failed: dict[tuple[int, str], list[Json]] = {}
    count: set[tuple[int, str]] = set()
    tasks_of = windows.windows(
        [record for record in records if isinstance(record, Workflow)], frame, rules, settlement.scored.left_out
    )
    for key in votes_of(subject):
        for record in tasks_of[frame.row[key], frame.column[subject.participant.key]]:
            of = (record.epoch, record.task)
            count.add(of)
            parts = windows.task(record, rules)
            if not windows.succeeded(record, rules):
                row = {"validator": key, "success": text(parts.success), "score": text(parts.score), "outcome": record.outcome}
                failed.setdefault(of, []).append(row)
    rows, facts = [], []
    for epoch, task in sorted(failed, key=lambda of: (of[0], of[1].encode())):
        by = failed[epoch, task]
        facts.append({"epoch": epoch, "task": task, "validators": by})
        how = [
            f"{subject.called[row['validator']]} ({'invalid' if row['outcome'] == 'invalid' else row['success']})" for row in by
        ]
        rows.append((task, str(epoch), ", ".join(how)))
    gate = text(rules.gate)
    sentence = (
        f"In {len(rows)} of {plural(len(count), 'task')} success was not above {gate} for every {subject.judge}, so cost and "
        f"time add nothing to the score there."
        if rows
        else f"In every task success was above {gate}."
    )
    return failed_chapter("Tasks that failed", sentence, {"tasks": facts}, ("task", "epoch", "success at"), rows)


def failed_chapter(title: str, sentence: str, facts: Json, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Chapter:
    """The chapter `failed`: all rows as facts, the first of them as a table."""
    more = [] if len(rows) <= MOST else [f"The first {MOST} are shown; --json shows all."]
    table = Table(columns, tuple(rows[:MOST])) if rows else None
    return Chapter(name="failed", title=title, text=(sentence, *more), facts=facts, table=table)
