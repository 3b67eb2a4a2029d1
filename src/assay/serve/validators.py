"""The validators' page as a view: who judged how much, who agrees with whom, who was left out, and who was late. SPEC 3."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import combinations

from assay.exact import NANO, half_even
from assay.scheme.fields import instant_text
from assay.serve.board import audited
from assay.serve.draw import NARROW, fraction, share, when
from assay.serve.links import participant_page, task_page
from assay.serve.season import Json, Season
from assay.settle.story.telling import plural

__all__ = ["validators", "validators_document"]

MOST = 10
"""Tasks that are named as those on which validators disagree most."""
PAIRS = 12
"""Validators up to which every pair has a cell of its own."""
EPOCHS = 12
"""Epochs, the last ones, of which a page counts who was left out."""
LATE = 20
"""Lines about who was late."""
LATE_FIELDS = ("validator", "participant", "records", "epoch", "first")
Seen = Mapping[str, Mapping[tuple[str, str], list[str]]]
"""Participant → (task, validator) → the outcomes of its trials."""


def validators(season: Season) -> Json:
    """Everything that the validators' page prints."""
    seen, times = season.tasks.seen, _times(season)
    agreement = _agreement(season, seen)
    return {
        "rows": [*_coverage(season, seen, times)],
        "by_stake": season.scheme.stakes,
        "has_times": times is not None and bool(times.last),
        "agreement": agreement,
        "with_others": [] if agreement else [*_with_others(season, seen)],
        "disagreed": [*_disagreed(season, seen)],
        "grid": _grid(season),
        "outliers": [*_outliers(season)],
        "audited": [*audited(season)],
        "rule": _rule(season),
        "over_epochs": _over_epochs(season),
        "late": _late(season, times),
    }


def validators_document(season: Season) -> Json:
    """The page as JSON: coverage, agreement, the tasks that divide, every score with whether it counts, and who was late."""
    seen, times = season.tasks.seen, _times(season)
    pairs, late, over = _pairs(season, seen), _late(season, times), _over_epochs(season)
    names = ("key", "name", "judged", "of", "missing", "left_out", "late")
    rows = [row | {"judged": row["done"], "left_out": row["out"]} for row in _coverage(season, seen, times)]
    with_others = [] if pairs else [*_with_others(season, seen)]
    return {
        "epoch": season.settlement.epoch,
        "validators": [
            {name: row[name] for name in names} | {"stake": str(season.validators[row["key"]].stake), "last": row["last_at"]}
            for row in rows
        ],
        "agreement": {
            "pairs": [{"validators": [*pair], "same": same, "both": both} for pair, (same, both) in (pairs or {}).items()],
            "with_others": [{"validator": row["key"], "same": row["n"], "both": row["of"]} for row in with_others],
        },
        "tasks": [{"task": row["task"], "differ": row["n"], "pairs": row["of"]} for row in _disagreed(season, seen)],
        "rule": _rule(season),
        "scores": [
            {name: agreed[name] for name in ("participant", "status", "score", "mean", "median", "validators", "not_counted")}
            for agreed in season.agreed.values()
        ],
        "left_out": {
            "epochs": [] if over is None else over["epochs"],
            "validators": [
                {"key": row["key"]}
                | {name: [cell[short] for cell in row["cells"]] for name, short in (("left_out", "out"), ("of", "of"))}
                for row in ([] if over is None else over["rows"])
            ],
        },
        "late": late | {"rows": [{name: row[name] for name in LATE_FIELDS} for row in late["rows"]]},
    }


@dataclass
class _Times:
    """The times of each validator's records: the last of them, and those whose epoch is after others' about the same thing."""

    last: dict[str, datetime] = field(default_factory=dict)
    late: Counter[tuple[str, str, int, int]] = field(default_factory=Counter)
    """(validator, participant, epoch, the first epoch in which anybody judged the same) → how many records."""


def _times(season: Season) -> _Times | None:
    """The times at which the settlement's records came; None where they are too many, or only sums are known."""
    if not season.is_small:
        return None
    times, closed = _Times(), {*season.epochs[:-1]}
    lasting = "epoch" not in season.scheme.kind.record.parts
    for key in season.participants:
        first: dict[tuple[object, ...], int] = {}
        came: dict[tuple[str, tuple[object, ...]], int] = {}
        for record in season.records(key):
            times.last[record.validator] = max(record.observed_at, times.last.get(record.validator, record.observed_at))
            if lasting:
                about = tuple(getattr(record, part) for part in record.parts)
                first[about] = min(record.epoch, first.get(about, record.epoch))
                came[record.validator, about] = min(record.epoch, came.get((record.validator, about), record.epoch))
        for (validator, about), epoch in came.items():
            if epoch > first[about] and first[about] in closed:
                times.late[validator, key, epoch, first[about]] += 1
    return times


def _late(season: Season, times: _Times | None) -> Json:
    """The evidence that came after the close of the epoch in which others had judged the same, by validator."""
    if season.past is None:
        return {"rows": [], "more": 0, "why": "Without a ledger no epoch is ever closed, so nobody can be late."}
    if "epoch" in season.scheme.kind.record.parts:
        why = "This evidence is about one epoch each. A ledger refuses it when that epoch is closed, so none of it is late."
        return {"rows": [], "more": 0, "why": why}
    if times is None:
        return {"rows": [], "more": 0, "why": "There are too many records to look when each of them came."}
    if not times.late:
        why = (
            f"Nobody was late up to epoch {season.settlement.epoch}. Evidence that arrives after an epoch has closed counts from "
            "the next one on, and is listed here."
        )
        return {"rows": [], "more": 0, "why": why}
    order = sorted(times.late.items(), key=lambda item: (-item[0][2], -item[1], item[0][0].encode(), item[0][1].encode()))
    rows = [
        {
            "name": season.called[validator],
            "about": season.name(key),
            "href": participant_page(key),
            "text": f"{plural(count, 'record')} in epoch {epoch}; others judged the same in epoch {first}",
            "validator": validator,
            "participant": key,
            "records": count,
            "epoch": epoch,
            "first": first,
        }
        for (validator, key, epoch, first), count in order[:LATE]
    ]
    return {"rows": rows, "more": len(order) - len(rows), "why": ""}


def _over_epochs(season: Season) -> Json | None:
    """Return how many of each validator's scores were left out, epoch by epoch; None where there is one epoch, or no stakes."""
    if len(season.epochs) < 2 or not season.scheme.stakes:
        return None
    before = season.epochs[:-1][-(EPOCHS - 1) :]
    documents = [*(() if season.past is None else season.past.documents(before)), season.document]
    rows = []
    for validator in season.validators:
        cells = []
        for document in documents:
            votes = [vote for row in document["agreed"] for vote in row["validators"] if vote["validator"] == validator]
            out = sum(vote["excluded"] for vote in votes)
            rate = out / len(votes) if votes else 0.0
            level = 1 if not out else 2 if rate < 0.25 else 3 if rate < 0.5 else 4
            cells.append({"out": out, "of": len(votes), "q": level})
        row = {"key": validator, "name": season.called[validator], "cells": cells}
        rows.append(row | {"sum": sum(cell["out"] for cell in cells)})
    return {"epochs": [document["epoch"] for document in documents], "rows": rows, "any": any(row["sum"] for row in rows)}


def _coverage(season: Season, seen: Seen, times: _Times | None) -> Iterator[Json]:
    """Of each validator: stake, trials judged of all there are, missing ones, how often it was left out or late."""
    trials = season.scheme.kind.trials(season.scheme.score) or 1
    tasks = len(season.settlement.inputs.tasks)
    inputs = [key for key, row in season.agreed.items() if row["status"] != "duplicate" and season.participants[key].submission]
    whole = tasks * trials * len(inputs)
    total = sum(validator.stake for validator in season.validators.values()) or 1
    for validator in season.validators.values():
        votes = [vote for row in season.document["agreed"] for vote in row["validators"] if vote["validator"] == validator.key]
        others = [
            left_out
            for row in season.document["agreed"]
            for left_out in row["not_counted"]
            if left_out["validator"] == validator.key
        ]
        done = sum(
            sum(outcome != "error" for outcome in runs)
            for outcomes in seen.values()
            for (_, judge), runs in outcomes.items()
            if judge == validator.key
        )
        of_tasks = bool(whole) and any(seen.values())
        last = None if times is None else times.last.get(validator.key)
        yield {
            "name": season.called[validator.key],
            "key": validator.key,
            "stake": share(half_even(validator.stake * NANO, total)),
            "done": done if of_tasks else len(votes),
            "of": whole if of_tasks else len(season.agreed),
            "cov": min(1.0, done / whole) if of_tasks else len(votes) / max(1, len(season.agreed)),
            "missing": sum(other.get("missing") or 0 for other in others),
            "out": sum(vote["excluded"] for vote in votes),
            "late": 0 if times is None else sum(count for (judge, *_), count in times.late.items() if judge == validator.key),
            "last": "–" if last is None else when(last),
            "last_at": None if last is None else instant_text(last),
        }


def _agreement(season: Season, seen: Seen) -> Json | None:
    """Return how often each pair saw the same outcome, of the trials that both judged; None where no single records say."""
    pairs = _pairs(season, seen)
    if pairs is None:
        return None
    keys = [key for key in season.validators if any(key in pair for pair in pairs)]
    cells: dict[tuple[str, str], Json] = {}
    for (a, b), (same, both) in pairs.items():
        rate = same / both if both else 0.0
        cells[a, b] = cells[b, a] = {
            "pct": f"{100 * rate:.0f}{NARROW}%" if both else "–",
            "same": same,
            "n": both,
            "q": 4 if rate >= 0.9 else 3 if rate >= 0.75 else 2 if rate >= 0.6 else 1,
        }
    return {
        "names": [season.called[key] for key in keys],
        "rows": [{"name": season.called[a], "cells": [cells.get((a, b)) for b in keys]} for a in keys],
    }


def _pairs(season: Season, seen: Seen) -> dict[tuple[str, str], tuple[int, int]] | None:
    """Pair of validators → of the trials that both judged, how many had the same outcome, and how many there are."""
    keys = [key for key in season.validators if any(judge == key for outcomes in seen.values() for _, judge in outcomes)]
    if len(keys) < 2 or len(keys) > PAIRS:
        return None
    by_judge = _by_judge(seen)
    return {(a, b): _alike(by_judge[a], by_judge[b]) for a, b in combinations(keys, 2)}


def _by_judge(seen: Seen) -> dict[str, dict[tuple[str, str], list[str]]]:
    """Validator → (participant, task) → the outcomes of its trials."""
    by_judge: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(dict)
    for who, outcomes in seen.items():
        for (task, judge), runs in outcomes.items():
            by_judge[judge][who, task] = runs
    return by_judge


def _alike(mine: Mapping[tuple[str, str], list[str]], theirs: Mapping[tuple[str, str], list[str]]) -> tuple[int, int]:
    """Of the trials that two validators both judged, how many had the same outcome, and how many there are."""
    same = both = 0
    for place, runs in mine.items():
        for own, other in zip(runs, theirs.get(place, ()), strict=False):
            if "error" not in (own, other):
                both += 1
                same += (own == "pass") == (other == "pass")
    return same, both


def _with_others(season: Season, seen: Seen) -> Iterator[Json]:
    """Yield how often each of many validators saw what another saw of the same trial, the one that differs most first."""
    totals: dict[str, list[int]] = {}
    for outcomes in seen.values():
        by_task: dict[str, dict[str, list[str]]] = defaultdict(dict)
        for (task, judge), runs in outcomes.items():
            by_task[task][judge] = runs
        for judges in by_task.values():
            for trial in range(max(map(len, judges.values()))):
                outcome = {judge: runs[trial] for judge, runs in judges.items() if trial < len(runs)}
                votes = {judge: what == "pass" for judge, what in outcome.items() if what != "error"}
                passed, count = sum(votes.values()), len(votes)
                for judge, vote in votes.items():
                    total = totals.setdefault(judge, [0, 0])
                    total[0] += (passed if vote else count - passed) - 1
                    total[1] += count - 1
    rates = [(same / both, key, same, both) for key, (same, both) in totals.items() if both]
    for rate, key, same, both in sorted(rates, key=lambda row: (row[0], row[1].encode())):
        yield {"key": key, "name": season.called[key], "w": rate, "n": same, "of": both}


def _disagreed(season: Season, seen: Seen) -> Iterator[Json]:
    """The tasks on which most pairs of validators saw different outcomes of one submission."""
    apart: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    for outcomes in seen.values():
        by_task: dict[str, list[bool]] = {}
        for (task, _), runs in outcomes.items():
            real = [outcome for outcome in runs if outcome != "error"]
            if real:
                by_task.setdefault(task, []).append(2 * real.count("pass") > len(real))
        for task, votes in by_task.items():
            passed, count = sum(votes), len(votes)
            pairs[task] += count * (count - 1) // 2
            apart[task] += passed * (count - passed)
    for task, count in sorted(apart.items(), key=lambda item: (-item[1] / max(1, pairs[item[0]]), item[0].encode()))[:MOST]:
        if count:
            yield {"task": task, "href": task_page(task), "n": count, "of": pairs[task], "w": count / pairs[task]}


def _grid(season: Season) -> Json | None:
    """Participants × validators: each score, whether it counts, and the agreed one."""
    if len(season.validators) > 2 * PAIRS or not season.validators:
        return None
    rows = []
    for key, agreed in season.agreed.items():
        votes = {vote["validator"]: vote for vote in agreed["validators"]}
        others = {left_out["validator"]: left_out for left_out in agreed["not_counted"]}
        cells = []
        for validator in season.validators:
            if vote := votes.get(validator):
                out = vote["excluded"]
                cells.append({"t": vote["score"], "sub": "left out" if out else "", "cls": "out" if out else ""})
            elif other := others.get(validator):
                missing = f"{other['missing']} missing" if other.get("missing") else str(other["reason"]).replace("-", " ")
                cells.append({"t": "", "sub": missing, "cls": ""})
            else:
                cells.append({"t": "", "sub": "not judged", "cls": ""})
        score = agreed["score"] if agreed["status"] == "agreed" else "–"
        rows.append({"name": season.name(key), "href": participant_page(key), "cells": cells, "agreed": score})
    return {"names": [season.called[key] for key in season.validators], "rows": rows}


def _outliers(season: Season) -> Iterator[Json]:
    """Every score that was left out, drawn against the others and their median."""
    for row in season.document["agreed"]:
        for vote in row["validators"]:
            if not vote["excluded"]:
                continue
            middle = row["median"] if row["median"] is not None else row["mean"]
            square = "M²" if season.scheme.consensus.outliers.scale is not None else "z²"
            measure = f"|M| {vote['modified_z']}" if vote["modified_z"] is not None else f"{square} {vote['z_squared']}"
            yield {
                "v": season.called[vote["validator"]],
                "p": season.name(row["participant"]),
                "href": participant_page(row["participant"]),
                "m": measure,
                "x": fraction(vote["score"]),
                "med": fraction(middle),
                "others": [fraction(other["score"]) for other in row["validators"] if not other["excluded"]],
                "s": vote["score"],
                "middle": middle,
                "label": f"{vote['score']} against {middle}",
            }


def _rule(season: Season) -> str:
    """Return how far is too far, as the story says it of somebody who was left out; else the method's name."""
    rules = season.scheme.consensus.outliers
    if rules.method == "none":
        return "The scheme looks for no outliers."
    threshold = rules.threshold / NANO
    if rules.scale is not None:
        return (
            f"A score is left out when M² is above {threshold * threshold:g}: the square of its distance from the median, "
            "counted in median absolute deviations or, if that is larger, in the noise of this number of trials. "
            "The line is the median."
        )
    if rules.method == "modified-z":
        return (
            f"A score is left out when |M| is above {threshold:g}: 0.6745 times its distance from the median, counted in median "
            "absolute deviations. The line is the median."
        )
    return (
        f"A score is left out when z² is above {threshold * threshold:g}: the square of its distance from the mean, counted in "
        "standard deviations. The line is the mean."
    )
