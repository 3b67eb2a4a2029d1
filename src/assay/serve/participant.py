"""A participant's page as a view: why this weight, what passes the one above, when decay begins, what each validator saw.

Every sentence is the story's (`assay.settle.story`); every length is a number of the settlement. SPEC 2–5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from assay.exact import NANO, WEI, coins, half_even, nanos, text
from assay.records import Evidence, Tests
from assay.serve.draw import fraction, percent, share, when
from assay.serve.history import EpochRow
from assay.serve.links import participant_page
from assay.serve.season import Json, Season
from assay.settle.reward import burnt
from assay.settle.score import accepted, holding
from assay.settle.story import Explanation
from assay.settle.story.telling import ordinal, plural

__all__ = ["outcomes", "participant", "shown_outcome"]

_STEP: Json = {"scale": "", "ticks": (), "last": False, "quiet": False, "exact": False}
"""What a step of the waterfall is where it says nothing else."""
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
ROUND = tuple(NANO * percents // 100 for percents in (1, 2, 5, 10, 20, 40, 60))
"""Right ends of a scale of shares."""
BARS = 60
"""Epochs that a history draws one by one; of more, so many of the last."""


def participant(season: Season, key: str) -> Json:
    """Everything that the page of a participant prints; raises BadInput for a stranger."""
    story = season.story(key)
    row, person = season.agreed[key], season.participants[key]
    chapters = {chapter.name: chapter for chapter in story.chapters}
    view: Json = {
        "key": key,
        "name": season.name(key),
        "uid": person.uid,
        "submission": row["submission"],
        "submitted": "" if person.submitted_at is None else when(person.submitted_at),
        "status": story.status,
        "summary": story.summary,
        "chapters": [{"title": chapter.title, "text": [*chapter.text], "table": chapter.table} for chapter in story.chapters],
        "rank": None,
        "steps": [],
        "next": None,
        "decay": None,
        "matrix": _matrix(season, key),
        "history": _history(season, key),
        "story": story.document(),
    }
    if story.status != "agreed":
        return view
    view |= _place(season, key, story)
    view["steps"] = [_STEP | step for step in _steps(season, key, story)]
    above = chapters["next-place"]
    first = above.facts.get("above") is None
    view["next"] = {
        "title": "First place" if first else f"To pass {season.name(above.facts['above'])}",
        "text": [*above.text],
        "href": None if first else participant_page(above.facts["above"]),
        "after": [] if first else [*_after(above.facts)],
        "failed": [] if first else _failed(story),
    }
    if "decay" in chapters:
        view["decay"] = _decay(season, key, story)
    return view


def _place(season: Season, key: str, story: Explanation) -> Json:
    """Rank, score, and what it gets, as the page's large numbers."""
    row, rank = season.agreed[key], story["rank"].facts
    view: Json = {
        "rank": ordinal(rank["rank"]),
        "of": rank["of"],
        "score": row["score"] if row["bps"] is None else str(row["bps"]),
        "unit": "" if row["bps"] is None else "BPS",
        "reward": None,
    }
    if season.scheme.payout is not None:
        net = str(story["payout"].facts.get("net", "0"))
        view["reward"] = {"name": "Paid", "value": coins(net, WEI), "of": "ether", "whole": f"{net} wei"}
    elif "weight" in [chapter.name for chapter in story.chapters]:
        view["reward"] = {"name": "Weight", "value": str(story["weight"].facts["u16"]), "of": "of 65535", "whole": ""}
    return view


def _steps(season: Season, key: str, story: Explanation) -> Iterator[Json]:
    """The waterfall from tasks to the weight: on a scale of scores first, then on one of shares."""
    yield from _score_steps(season, key)
    if season.document["weights"]:
        yield from _share_steps(season, key, story)


def _score_steps(season: Season, key: str) -> Iterator[Json]:
    row = season.agreed[key]
    scale: Json = {"scale": "score, 0 to 1", "ticks": [(at, f"{at:g}") for at in TICKS], "grid": TICKS}
    tasks = _tasks(season, key)
    if tasks:
        full = sum(amount == 1 for amount in tasks)
        width = 1 / len(tasks)
        marks = [
            _bar("seg" if amount == 1 else "seg half" if amount else "seg0", at * width + 0.002, width - 0.004)
            for at, amount in enumerate(sorted(tasks, reverse=True))
        ]
        yield scale | {
            "name": "Tasks",
            "why": f"{full} passed on every counted {'run' if not season.scheme.stakes else 'validator’s runs'}",
            "marks": marks if len(tasks) <= 40 else [_bar("seg", 0, full / len(tasks))],
            "val": f"{full} of {len(tasks)}",
        }
        scale = {"grid": TICKS}
    votes = row["validators"]
    counted = [vote for vote in votes if not vote["excluded"]]
    left = len(votes) - len(counted)
    yield scale | {
        "name": "Scores",
        "why": f"{plural(len(votes), 'whole run')}{f', {left} left out' if left else ''}",
        "marks": [*_dots(votes)],
        "val": "" if not counted else _range([vote["score"] for vote in counted]),
    }
    how = {"stake-mean": "mean, by stake", "stake-median": "median, by stake", "mean": "mean"}[season.scheme.consensus.combine]
    yield {
        "grid": TICKS,
        "name": "Agreed score",
        "why": f"{how}, of what counts",
        "marks": [_bar("mid", 0, fraction(row["score"]))],
        "val": row["score"] if row["bps"] is None else f"{row['bps']} BPS",
        "exact": True,
    }


def _dots(votes: Sequence[Json]) -> Iterator[Json]:
    """A dot for each vote, those with one score above each other; hollow where it is left out."""
    seen: dict[str, int] = {}
    same = {vote["score"]: sum(other["score"] == vote["score"] for other in votes) for vote in votes}
    for vote in votes:
        number = seen[vote["score"]] = seen.get(vote["score"], -1) + 1
        high = min(same[vote["score"]], 5)
        place = 50 + 11 * (min(number, 4) - (high - 1) / 2) * (1 if high > 1 else 0)
        yield {"tag": "circle", "cls": "vx" if vote["excluded"] else "v", "x": fraction(vote["score"]), "y": place / 100}


def _range(scores: Sequence[str]) -> str:
    low, high = min(scores, key=nanos), max(scores, key=nanos)
    return low if low == high else f"{low}–{high}"


def _share_steps(season: Season, key: str, story: Explanation) -> Iterator[Json]:
    weight = next(row for row in season.document["weights"] if row["participant"] == key)
    strategy, capped, share_ = (nanos(weight[name]) for name in ("strategy", "capped", "share"))
    rules = season.scheme.reward
    everybody = [nanos(row["strategy"]) for row in season.document["weights"]]
    largest = max([strategy, capped, rules.cap if rules.cap < NANO else 0, *everybody])
    top = _top(largest)
    ticks = [step * top / 4 for step in range(5)] if top < NANO else [at * NANO for at in TICKS]
    grid = [tick / top for tick in ticks]
    yield {
        "scale": "share of the emission",
        "ticks": [(tick / top, share(round(tick))) for tick in ticks],
        "grid": grid,
        "name": "Share",
        "why": f"by the {rules.strategy} strategy",
        "marks": [_bar("mid", 0, strategy / top)],
        "val": percent(strategy),
    }
    chapters = {chapter.name for chapter in story.chapters}
    if "cap" in chapters:
        moved = capped - strategy
        line = [{"tag": "line", "cls": "cap", "x": rules.cap / top}] if rules.cap <= top else []
        change = [_bar("loss" if moved < 0 else "mid", min(strategy, capped) / top, abs(moved) / top)] if moved else []
        yield {
            "grid": grid,
            "name": "Cap",
            "why": f"nobody gets more than {share(rules.cap)}",
            "marks": [*change, *line],
            "val": "no change" if not moved else percent(moved) if moved < 0 else f"+{percent(moved)}",
            "quiet": not moved,
        }
    lost = capped - share_
    at = capped
    if "decay" in chapters and weight["uid"] is not None:
        decayed = half_even(capped * (NANO - nanos(weight["kept"])), NANO)
        stale = plural(weight["stale"], "stale epoch") if weight["stale"] else "nothing is stale"
        yield _loss(grid, "Decay", stale, at, decayed, top)
        at -= decayed
        lost -= decayed
        if "warm-up" in chapters:
            yield _loss(grid, "Warm-up", f"{share(weight['warm'])} is kept", at, lost, top)
    elif weight["uid"] is None and lost:
        yield _loss(grid, "No uid", "its share burns", at, lost, top)
    yield {
        "grid": grid,
        "name": "Weight",
        "why": f"{percent(share_)} of 65535",
        "marks": [_bar("fill", 0, share_ / top)],
        "val": str(weight["u16"]),
        "last": True,
    }


def _loss(grid: Sequence[float], name: str, why: str, at: int, amount: int, top: int) -> Json:
    """A step that takes something away, hatched; quiet where it takes nothing."""
    return {
        "grid": grid,
        "name": name,
        "why": why,
        "marks": [_bar("loss", (at - amount) / top, amount / top)] if amount else [],
        "val": f"−{percent(amount)}" if amount else "no change",
        "quiet": not amount,
    }


def _top(largest: int) -> int:
    """The right end of the scale of shares: the least round number above all of them."""
    return next((top for top in ROUND if largest <= top), NANO)


def _bar(cls: str, start: float, width: float) -> Json:
    """A bar of a step, from 0 to 1."""
    return {"tag": "rect", "cls": cls, "x": start, "w": width}


def _after(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the next place would bring, as the story computed it."""
    yield "Score", str(facts["least"]) if facts["least"] is not None else "none is enough"
    if "share" in facts:
        yield "Share", percent(str(facts["share"]))
        yield "Weight", str(facts["u16"])
    if "net" in facts:
        yield "Paid", f"{coins(str(facts['net']), WEI)} ether"


def _failed(story: Explanation) -> list[str]:
    """The names of the tasks or checks that nobody who counts saw passed, the first eight."""
    chapter = next((chapter for chapter in story.chapters if chapter.name == "failed"), None)
    if chapter is None:
        return []
    counting = {vote["validator"] for vote in story["evidence"].facts["validators"] if not vote["excluded"]}
    rows = chapter.facts.get("tasks") or chapter.facts.get("checks") or []
    named = []
    for row in rows:
        by = {one["validator"] if isinstance(one, dict) else one for one in row["validators"]}
        if counting <= by:
            named.append(str(row.get("task") or row.get("check")))
    return named[:8]


def _decay(season: Season, key: str, story: Explanation) -> Json | None:
    """The curve of what is kept over epochs, where it stands now, and the story's sentences."""
    facts, rules = story["decay"].facts, season.scheme.decay
    if rules is None or facts["curve"] == "none":
        return None
    begins, epoch = facts["begins"], season.settlement.epoch
    title = f"Decay began in epoch {begins}" if facts["stale"] else f"Decay begins in epoch {begins}"
    first = facts["last"]
    floor = NANO - rules.max_burn
    steps = [(at, NANO - burnt(first, at, rules)[1]) for at in range(first, first + rules.grace_epochs + 400)]
    last = next((at for at, kept in steps if kept <= floor), first + rules.grace_epochs + 20)
    end = max(last + 2, epoch + 1)
    span = end - first
    shown = [(at, kept) for at, kept in steps if at <= end]
    lines = []
    for (at, kept), (_, then) in pairwise(shown):
        cls = "past" if at < epoch else "next"
        left, right, height = (at - first) / span, (at + 1 - first) / span, 1 - kept / NANO
        lines.append({"c": cls, "x1": left, "x2": right, "y1": height, "y2": height})
        if then != kept:
            lines.append({"c": cls, "x1": right, "x2": right, "y1": height, "y2": 1 - then / NANO})
    return {
        "title": title,
        "label": f"{share(facts['kept'])} is kept in epoch {epoch}",
        "lines": lines,
        "x": (epoch - first) / span,
        "y": 1 - fraction(facts["kept"]),
        "from": f"epoch {first}",
        "to": str(end),
        "text": [*story["decay"].text],
    }


def _standing(season: Season, key: str) -> list[Tests]:
    """The trials about a participant's current submission that stand; none where only sums are known."""
    records = [record for record in season.records(key) if isinstance(record, Tests)]
    frame = season.settlement.frame
    column, column_of = frame.column[key], holding(frame)
    about: list[Evidence] = [record for record in accepted(records, frame) if column_of(record) == column]
    return [record for record in about if isinstance(record, Tests)]


def outcomes(season: Season, key: str) -> dict[tuple[str, str], list[str]]:
    """(task, validator) → the outcomes of its trials, in their order."""
    trials = season.scheme.kind.trials(season.scheme.score) or 1
    found: dict[tuple[str, str], list[str]] = {}
    for record in sorted(_standing(season, key), key=lambda record: record.trial):
        if record.trial <= trials:
            found.setdefault((record.task, record.validator), []).append(record.outcome)
    return found


def _tasks(season: Season, key: str) -> list[float]:
    """Of each task the part of the counted trials that passed; empty where that is not known."""
    seen = outcomes(season, key)
    if not seen:
        return []
    counting = [vote["validator"] for vote in season.agreed[key]["validators"] if not vote["excluded"]]
    rates = []
    for task in season.settlement.inputs.tasks:
        runs = [outcome for validator in counting for outcome in seen.get((task, validator), [])]
        rates.append(runs.count("pass") / len(runs) if runs else 0.0)
    return rates


def _matrix(season: Season, key: str) -> Json | None:
    """Tasks × validators: what each saw, the tasks that fail first; None where no single records say."""
    seen = outcomes(season, key)
    if not seen:
        return None
    row = season.agreed[key]
    votes = {vote["validator"]: vote for vote in row["validators"]}
    others = {one["validator"]: one for one in row["not_counted"]}
    trials = season.scheme.kind.trials(season.scheme.score) or 1
    total = int(row["needed_stake_of"]) or 1
    columns = []
    for validator in season.validators.values():
        vote, other = votes.get(validator.key), others.get(validator.key)
        if vote is None and other is None and not any(of == validator.key for _, of in seen):
            continue
        out = vote is not None and vote["excluded"]
        state = "not counted" if vote is None else "counts"
        if out and vote is not None:
            measure = vote["modified_z"] if vote["modified_z"] is not None else vote["z_squared"]
            state = f"left out, {'|M|' if vote['modified_z'] is not None else 'z²'} {measure}"
        columns.append(
            {
                "key": validator.key,
                "name": season.called[validator.key],
                "stake": f"{share(half_even(validator.stake * NANO, total))} of stake" if season.scheme.stakes else "",
                "score": "–" if vote is None else vote["score"],
                "state": state,
                "cls": "out" if out or vote is None else "",
                "counts": vote is not None and not out,
            }
        )
    rows = [_task_row(task, columns, seen, trials) for task in season.settlement.inputs.tasks]
    rows.sort(key=lambda row: (row["passed"], row["task"].encode()))
    return {"cols": columns, "rows": rows}


def _task_row(task: str, columns: Sequence[Json], seen: Mapping[tuple[str, str], list[str]], trials: int) -> Json:
    """A row of the matrix: what each validator saw of a task, and how many of the counted trials passed."""
    cells, passed, counted = [], 0, 0
    for column in columns:
        runs = seen.get((task, column["key"]), [])
        if column["counts"]:
            passed += runs.count("pass")
            counted += trials
        count = f"{runs.count('pass')} of {trials}" if trials > 1 and runs else ""
        cells.append({"o": shown_outcome(runs, trials), "cls": column["cls"], "n": count})
    return {"task": task, "cells": cells, "sum": f"{passed} of {counted}", "passed": passed}


def shown_outcome(runs: Sequence[str], trials: int) -> str:
    """What a cell shows of a task's trials by one validator."""
    real = [outcome for outcome in runs if outcome != "error"]
    if not runs:
        return "none"
    if len(real) < trials:
        return "missing"
    if all(outcome == "pass" for outcome in real):
        return "pass"
    return "timeout" if all(outcome == "timeout" for outcome in real) else "fail"


def _history(season: Season, key: str) -> Json | None:
    """Score and share by epoch, drawn and as a table; None where there is one epoch only."""
    if len(season.epochs) < 2:
        return None
    rows = [*_epochs(season, key)]
    drawn = rows[-BARS:]
    span = plural(len(drawn), "epoch")
    scores = [_column(at, len(drawn), row, row["sv"], row["score"]) for at, row in enumerate(drawn)]
    charts = [_chart("Score", "agreed, 0 to 1", "1", scores, drawn, f"Agreed score of the last {span}")]
    if season.document["weights"]:
        top = _top(max([row["before"] for row in drawn] or [0]))
        bars = []
        for at, row in enumerate(drawn):
            bars.append(_column(at, len(drawn), row, row["share_n"] / top, row["share"]))
            if row["before"] > row["share_n"]:
                lost = row["before"] - row["share_n"]
                burnt_ = _column(at, len(drawn), row, lost / top, f"{percent(lost)} burnt")
                bars.append(burnt_ | {"c": "loss", "y": 1 - row["before"] / top})
        charts.append(_chart("Share", "of the emission; hatched: burnt", share(top), bars, drawn, f"Share of the last {span}"))
    return {"charts": charts, "rows": rows, "weights": bool(season.document["weights"])}


def _column(at: int, count: int, row: Json, height: float, value: str) -> Json:
    """The column of an epoch in a chart of so many."""
    width = 1 / count
    cls = "b now" if row["now"] else "b"
    text = f"epoch {row['epoch']}: {value}"
    return {"c": cls, "x": (at + 0.05) * width, "w": width * 0.9, "y": 1 - height, "h": height, "t": text}


def _chart(title: str, sub: str, top: str, bars: list[Json], rows: Sequence[Json], label: str) -> Json:
    return {"title": title, "sub": sub, "top": top, "bars": bars, "xs": _labels(rows), "label": label}


def _labels(rows: Sequence[Json]) -> list[str]:
    """Epochs below the bars: each of a few, or the first and the last."""
    return [str(row["epoch"]) for row in rows] if len(rows) <= 16 else [str(rows[0]["epoch"]), str(rows[-1]["epoch"])]


def _epochs(season: Season, key: str) -> Iterator[Json]:
    for epoch, rows in season.history():
        row = rows.get(key) or EpochRow("no record", None, None)
        yield {
            "epoch": epoch,
            "now": epoch == season.settlement.epoch,
            "rank": "–" if row.rank is None else str(row.rank),
            "score": "–" if row.score is None else text(row.score),
            "sv": 0.0 if row.score is None else fraction(row.score),
            "state": row.status,
            "kept": "–" if row.kept is None else share(row.kept),
            "share": "–" if row.share is None else percent(row.share),
            "share_n": row.share or 0,
            "before": row.capped or 0,
            "u16": "–" if row.u16 is None else str(row.u16),
        }
