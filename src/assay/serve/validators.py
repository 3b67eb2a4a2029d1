"""The validators' page as a view: who judged how much, who agrees with whom, who was left out. SPEC 3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from assay.exact import NANO, half_even
from assay.serve.draw import NARROW, fraction, share
from assay.serve.links import participant_page
from assay.serve.matrix import outcomes
from assay.serve.season import Json, Season

__all__ = ["validators"]

MOST = 10
"""Tasks that are named as those on which validators disagree most."""
PAIRS = 12
"""Validators up to which every pair has a cell of its own."""


def validators(season: Season) -> Json:
    """Everything that the validators' page prints."""
    seen = {key: outcomes(season, key) for key in season.participants}
    agreement = _agreement(season, seen)
    return {
        "rows": [*_coverage(season, seen)],
        "by_stake": season.scheme.stakes,
        "agreement": agreement,
        "disagreed": [*_disagreed(season, seen)] if agreement else [],
        "grid": _grid(season),
        "outliers": [*_outliers(season)],
        "rule": _rule(season),
    }


def _coverage(season: Season, seen: dict[str, dict[tuple[str, str], list[str]]]) -> Iterator[Json]:
    """Of each validator: stake, trials judged of all there are to judge, missing ones, and how often it was left out."""
    trials = season.scheme.kind.trials(season.scheme.score) or 1
    tasks = len(season.settlement.inputs.tasks)
    inputs = [key for key, row in season.agreed.items() if row["status"] != "duplicate" and season.participants[key].submission]
    whole = tasks * trials * len(inputs)
    total = sum(validator.stake for validator in season.validators.values()) or 1
    for validator in season.validators.values():
        votes = [vote for row in season.document["agreed"] for vote in row["validators"] if vote["validator"] == validator.key]
        others = [one for row in season.document["agreed"] for one in row["not_counted"] if one["validator"] == validator.key]
        done = sum(
            sum(outcome != "error" for outcome in runs)
            for found in seen.values()
            for (_, judge), runs in found.items()
            if judge == validator.key
        )
        of_tasks = bool(whole) and any(seen.values())
        yield {
            "name": season.called[validator.key],
            "key": validator.key,
            "stake": share(half_even(validator.stake * NANO, total)),
            "done": done if of_tasks else len(votes),
            "of": whole if of_tasks else len(season.agreed),
            "cov": min(1.0, done / whole) if of_tasks else len(votes) / max(1, len(season.agreed)),
            "missing": sum(one.get("missing") or 0 for one in others),
            "out": sum(vote["excluded"] for vote in votes),
        }


def _agreement(season: Season, seen: dict[str, dict[tuple[str, str], list[str]]]) -> Json | None:
    """How often each pair saw the same outcome, of the trials that both judged; None where no single records say."""
    keys = [key for key in season.validators if any(judge == key for found in seen.values() for _, judge in found)]
    if len(keys) < 2 or len(keys) > PAIRS:
        return None
    by_judge: dict[str, dict[tuple[str, str], list[str]]] = {key: {} for key in keys}
    for who, found in seen.items():
        for (task, judge), runs in found.items():
            by_judge.get(judge, {})[who, task] = runs
    cells: dict[tuple[str, str], Json] = {}
    for a, b in combinations(keys, 2):
        same = both = 0
        for place, runs in by_judge[a].items():
            for one, other in zip(runs, by_judge[b].get(place, ()), strict=False):
                if "error" not in (one, other):
                    both += 1
                    same += (one == "pass") == (other == "pass")
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


def _disagreed(season: Season, seen: dict[str, dict[tuple[str, str], list[str]]]) -> Iterator[Json]:
    """The tasks on which most pairs of validators saw different outcomes of one submission."""
    apart: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    for found in seen.values():
        by_task: dict[str, list[bool]] = {}
        for (task, _), runs in found.items():
            real = [outcome for outcome in runs if outcome != "error"]
            if real:
                by_task.setdefault(task, []).append(2 * real.count("pass") > len(real))
        for task, votes in by_task.items():
            passed, count = sum(votes), len(votes)
            pairs[task] += count * (count - 1) // 2
            apart[task] += passed * (count - passed)
    for task, count in sorted(apart.items(), key=lambda item: (-item[1] / max(1, pairs[item[0]]), item[0].encode()))[:MOST]:
        if count:
            yield {"task": task, "n": count, "of": pairs[task], "w": count / pairs[task]}


def _grid(season: Season) -> Json | None:
    """Participants × validators: each score, whether it counts, and the agreed one."""
    if len(season.validators) > 2 * PAIRS or not season.validators:
        return None
    rows = []
    for key, agreed in season.agreed.items():
        votes = {vote["validator"]: vote for vote in agreed["validators"]}
        others = {one["validator"]: one for one in agreed["not_counted"]}
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
            measure = f"|M| {vote['modified_z']}" if vote["modified_z"] is not None else f"z² {vote['z_squared']}"
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
    """How far is too far, as the story says it of somebody who was left out; else the method's name."""
    rules = season.scheme.consensus.outliers
    if rules.method == "none":
        return "The scheme looks for no outliers."
    threshold = rules.threshold / NANO
    if rules.method == "modified-z":
        return (
            f"A score is left out when |M| is above {threshold:g}: 0.6745 times its distance from the median, counted in median "
            "absolute deviations. The line is the median."
        )
    return (
        f"A score is left out when z² is above {threshold * threshold:g}: the square of its distance from the mean, counted in "
        "standard deviations. The line is the mean."
    )
