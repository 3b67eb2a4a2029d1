"""A participant's page as a view: why this weight, what passes the one above, when decay begins, what each validator saw.

Every sentence is the story's (`assay.settle.story`); every length is a number of the settlement. SPEC 2–5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from assay.exact import NANO, half_even, nanos
from assay.scheme.model import Release
from assay.serve import margins
from assay.serve.bounty import Money, money_of
from assay.serve.copies import alike, copies_of
from assay.serve.draw import fraction, percent, share, when
from assay.serve.links import participant_page
from assay.serve.margins import shown_range
from assay.serve.matrix import matrix, pass_rates
from assay.serve.season import Json, Season
from assay.serve.timeline import history, round_top
from assay.settle.reward import burnt
from assay.settle.story import Explanation
from assay.settle.story.telling import ordinal, plural

__all__ = ["participant"]

_STEP: Json = {"scale": "", "ticks": (), "last": False, "quiet": False, "exact": False}
"""The defaults of a step in the waterfall."""
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


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
        "todo": "",
        "matrix": matrix(season, key),
        "tasks": len(season.settlement.inputs.tasks),
        "links": {task: page for page, task in season.tasks.pages.items()},
        "history": history(season, key),
        "logs": _logs(season, row["submission"]),
        "story": story.document(),
        "copies": copies_of(season, key),
        "alike": [*alike(season, key)],
        "reach": _reach(season, key),
    }
    view["held"] = story.status != "agreed" and any(
        copy["state"] == "held" and copy["submission"] == person.submission for copy in view["copies"]
    )
    if story.status != "agreed":
        return view | ({"status": "held"} if view["held"] else {})
    view |= _place(season, key, story)
    view["steps"] = [_STEP | step for step in _steps(season, key, story)]
    above = chapters["next-place"]
    first = above.facts.get("above") is None
    view["next"] = {
        "title": "First place" if first else f"To overtake {season.name(above.facts['above'])}",
        "text": [*above.text],
        "href": None if first else participant_page(above.facts["above"]),
        "after": [] if first else [*_after(above.facts, money_of(season))],
        "failed": [] if first else _failed(story),
    }
    if "weight" in chapters:
        view["todo"] = next((text for text in chapters["weight"].text if text.startswith("To do: ")), "")
    if "decay" in chapters:
        view["decay"] = _decay(season, key, story)
    return view


def _logs(season: Season, submission: str | None) -> Json | None:
    """Return who may read what the trials printed, and where; None where there are no trials of tasks."""
    if not submission or season.scheme.kind.trials(season.scheme.score) is None:
        return None
    rule = (season.scheme.release or Release()).logs
    command = f"assay logs --url {season.address or 'ADDRESS'} \\\n  "
    view: Json = {"command": "", "href": "", "who": "This competition releases no logs: [release] logs in its scheme says so."}
    if rule == "own":
        view["who"] = "Only the participant may read what the trials of this submission printed, with the key that handed it in."
        view["command"] = f"{command}--key my-key --submission {submission}"
    elif rule == "after-epoch":
        view["who"] = "Everybody may read what the trials of this submission printed once their epoch is settled."
        view["command"] = f"{command}--submission {submission}"
        view["href"] = season.released_logs(submission)
    if rule != "never":
        view["who"] += " Trials of hidden tasks are never released."
    return view


def _reach(season: Season, key: str) -> str:
    """A sentence: between which scores every outcome of its missing trials leads; empty where none is missing."""
    row = next((row for row in (margins.of(season) or {"scores": ()})["scores"] if row["participant"] == key), None)
    if row is None:
        return ""
    many = plural(row["missing"], "trial is", "trials are")
    return f"{many} missing. Whatever the outcome, the agreed score is {shown_range(row)}."


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
        number, unit = money_of(season).parts(net)
        view["reward"] = {"name": "Paid", "value": number, "of": unit, "whole": money_of(season).whole(net)}
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
    tasks = pass_rates(season, key)
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
    how = {
        "stake-mean": "mean, by stake",
        "stake-median": "median, by stake",
        "mean": "mean",
        "clip": "clipped mean, by stake",
        "trimmed": "trimmed mean, by stake",
    }[season.scheme.consensus.combine]
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
    top = season.once("scale", lambda: _scale(season))
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


def _scale(season: Season) -> int:
    """The right end of the scale of shares, the same for everybody: the largest share, and the cap if it is near."""
    shares = [nanos(row[name]) for row in season.document["weights"] for name in ("strategy", "capped")]
    largest, cap = max(shares), season.scheme.reward.cap
    return round_top(max(largest, cap) if cap < NANO and cap <= 4 * largest else largest)


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


def _bar(cls: str, start: float, width: float) -> Json:
    """A bar of a step, from 0 to 1."""
    return {"tag": "rect", "cls": cls, "x": start, "w": width}


def _after(facts: Mapping[str, Any], money: Money) -> Iterator[tuple[str, str]]:
    """Yield what the next place would bring, as the story computed it."""
    yield "Score", str(facts["least"]) if facts["least"] is not None else "none is enough"
    if "share" in facts:
        yield "Share", percent(str(facts["share"]))
        yield "Weight", str(facts["u16"])
    if "net" in facts:
        yield "Paid", money(str(facts["net"]))


def _failed(story: Explanation) -> list[str]:
    """The names of the tasks or checks that nobody who counts saw passed, the first eight."""
    chapter = next((chapter for chapter in story.chapters if chapter.name == "failed"), None)
    if chapter is None:
        return []
    counting = {vote["validator"] for vote in story["evidence"].facts["validators"] if not vote["excluded"]}
    rows = chapter.facts.get("tasks") or chapter.facts.get("checks") or []
    named = []
    for row in rows:
        by = {validator["validator"] if isinstance(validator, dict) else validator for validator in row["validators"]}
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
