"""The pages of tasks as views: who passes a task, how much it separates, whether validators agree, how long it takes.

Everything is counted from the trials that stand. Only kinds with a task set whose single records are known have these pages.
Nothing here reaches a score: a task that separates nobody counts like any other. SPEC 2.1.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING

from assay.exact import NANO, half_even
from assay.records import Tests
from assay.rules.task_health import TaskHealth, TrialCount, task_health
from assay.serve.draw import NARROW, rest_text, seconds
from assay.serve.links import participant_page, task_page
from assay.serve.matrix import outcomes, shown_outcome
from assay.settle.inputs import Scored
from assay.settle.story.telling import named, plural
from assay.uncertainty import separation

if TYPE_CHECKING:
    from assay.judge.terminal.record import TrialRecord
    from assay.serve.season import Json, Season

__all__ = ["TaskGrid", "task", "task_document", "tasks"]

COLUMNS = 12
"""With at most so many validators each has a column of its own."""
ROWS = 100
"""Participants that a task's page lists; the JSON beside it has all."""
NAMED = 12
"""Participants about whom validators differ that are named."""
KEPT = 10_000
"""Kept trials that are read for durations. If there are more, none are shown."""
LONG = 20
"""With more tasks than this the overview is dense."""
FEW = 20
"""With fewer participants than this a correlation is only a hint."""
_NOBODY: Mapping[str, Sequence[Mapping[str, object]]] = {"validators": []}
SEPARATES, NOTHING = 0.3, 0.1
"""The correlation from which a task separates, and the one below which it says nothing: the usual limits of test theory."""


@dataclass(frozen=True)
class Duration:
    """The duration of a kept trial: its outcome, and the seconds of the agent's command and of the tests."""

    participant: str
    outcome: str
    agent: float
    tests: float


class TaskGrid:
    """The trials that stand, by task. `names` is empty where a season has no tasks or no single records.

    Trials are counted when a page first needs them: a board needs only the names.
    """

    def __init__(self, season: Season) -> None:
        inputs = season.settlement.inputs
        known = season.past is not None or not isinstance(inputs.evidence, Scored)
        has = known and season.scheme.kind.trials(season.scheme.score) is not None
        self._season = season
        self.names: tuple[str, ...] = inputs.tasks if has else ()
        self.ranked: list[str] = season.document["ranking"]

    @cached_property
    def seen(self) -> dict[str, dict[tuple[str, str], list[str]]]:
        """Participant → (task, validator) → the outcomes of its trials, in their order."""
        return {key: outcomes(self._season, key) for key in self._season.participants}

    @cached_property
    def pages(self) -> dict[str, str]:
        """The name of each task's page → the task."""
        return {task_page(name): name for name in self.names}

    @cached_property
    def rows(self) -> list[Json]:
        """The rows of the overview, one for each task, the hardest first."""
        rows = [_row(self._season, name) for name in self.names]
        return sorted(rows, key=lambda row: (row["share"], row["name"].encode()))

    @cached_property
    def images(self) -> dict[str, set[str]]:
        """Task → the digests of what its boxes started from, where the evidence says it."""
        images: dict[str, set[str]] = {}
        for key in self.seen:
            for record in self._season.records(key):
                if isinstance(record, Tests) and record.image:
                    images.setdefault(record.task, set()).add(record.image)
        return images

    @cached_property
    def counted(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Task → ranked participant → how many of the trials passed that its score counts, and how many there are."""
        counts: dict[str, dict[str, tuple[int, int]]] = {name: {} for name in self.names}
        for key in self.ranked:
            counting = [vote["validator"] for vote in self._season.agreed[key]["validators"] if not vote["excluded"]]
            for name in self.names:
                runs = [outcome for validator in counting for outcome in self.seen[key].get((name, validator), ())]
                counts[name][key] = runs.count("pass"), len(runs) - runs.count("error")
        return counts

    @cached_property
    def health(self) -> dict[str, TaskHealth]:
        """Task → its health, by every trial that stands but those of validators left out of a participant's agreed score."""
        counts: dict[str, list[TrialCount]] = {name: [] for name in self.names}
        for key, seen in self.seen.items():
            out = {vote["validator"] for vote in self._season.agreed.get(key, _NOBODY)["validators"] if vote["excluded"]}
            runs: dict[str, list[str]] = {}
            for (name, validator), outcomes_ in seen.items():
                if validator not in out:
                    runs.setdefault(name, []).extend(outcomes_)
            for name, row in counts.items():
                own = runs.get(name, [])
                passed, errors = own.count("pass"), own.count("error")
                row.append(TrialCount(passed, len(own) - passed - errors, errors))
        return {health.task: health for health in task_health(counts)}

    @cached_property
    def separations(self) -> dict[str, float | None]:
        """Task → how much it separates; see `assay.uncertainty.separation`."""
        rates = [[half_even(passed * NANO, runs) if runs else 0 for passed, runs in self._of(key)] for key in self.ranked]
        return dict(zip(self.names, separation(rates) if rates else [None] * len(self.names), strict=True))

    def _of(self, key: str) -> Iterator[tuple[int, int]]:
        return (self.counted[name][key] for name in self.names)

    def votes(self, name: str, key: str) -> dict[str, bool]:
        """Validator → whether most of its trials of a task passed, for one participant; without those that only had errors."""
        votes = {}
        for validator in self._season.validators:
            real = [outcome for outcome in self.seen[key].get((name, validator), ()) if outcome != "error"]
            if real:
                votes[validator] = 2 * real.count("pass") > len(real)
        return votes

    def pairs(self, name: str) -> tuple[int, int]:
        """Of all pairs of validators that both tried a participant on a task, how many saw the same; and how many there are."""
        same = pairs = 0
        for key in self.seen:
            votes = [*self.votes(name, key).values()]
            passed, count = sum(votes), len(votes)
            pairs += count * (count - 1) // 2
            same += (passed * (passed - 1) + (count - passed) * (count - passed - 1)) // 2
        return same, pairs

    @cached_property
    def durations(self) -> Mapping[str, list[Duration]] | None:
        """Task → the durations of the trials about current submissions that this folder keeps; None if there are too many."""
        from assay.judge.terminal.record import FILE, stored_trials

        folder = self._season.folder
        if len([*islice((folder / "trials").glob(f"[!.]*/[!.]*/*/*/{FILE}"), KEPT + 1)]) > KEPT:
            return None
        durations: dict[str, list[Duration]] = {}
        for _, record in stored_trials(folder):
            person = self._season.participants.get(record.participant)
            if record.epoch > self._season.settlement.epoch:  # an open epoch is shown to nobody
                continue
            if person is not None and person.submission == record.submission and (took := _duration(record)) is not None:
                durations.setdefault(record.task, []).append(took)
        return durations


def _duration(record: TrialRecord) -> Duration | None:
    """Return how long a trial took; None for an error, whose time says nothing about the task."""
    if record.outcome == "error" or record.agent is None:
        return None
    tests = 0.0 if record.tests is None else float(record.tests.wall_seconds)
    return Duration(record.participant, record.outcome, float(record.agent.wall_seconds), tests)


def tasks(season: Season) -> Json:
    """The overview of all tasks: the hardest first."""
    table = season.tasks
    rows = table.rows
    everybody = [row["name"] for row in rows if row["every"] == row["of"]]
    nobody = [row["name"] for row in rows if row["none"] == row["of"]]
    return {
        "rows": rows,
        "ranked": len(table.ranked),
        "lede": _overview(len(rows), len(everybody), len(nobody)) if table.ranked else "Nobody has an agreed score yet.",
        "has_seconds": any(row["seconds"] for row in rows),
        "sick": any(row["health"] for row in rows),
        "long": len(rows) > LONG,
        "judges": "validators" if season.scheme.stakes else "runs",
        "meaning": _meaning(len(table.ranked)),
    }


def _overview(count: int, everybody: int, nobody: int) -> str:
    sentences = [f"{plural(number, 'task')} {'is' if number == 1 else 'are'} passed by {whom}" for number, whom in
            ((everybody, "everybody"), (nobody, "nobody")) if number]  # fmt: skip
    if not sentences:
        return f"Each of the {plural(count, 'task')} is passed by some participants and not by others."
    rest = count - everybody - nobody
    verb = "decides" if rest == 1 else "decide"
    return f"{', and '.join(sentences)}. The other {rest} {verb} the order." if rest else f"{', and '.join(sentences)}."


def _row(season: Season, name: str) -> Json:
    table = season.tasks
    results = [*table.counted[name].values()]
    passed, runs = sum(passed for passed, _ in results), sum(count for _, count in results)
    same, pairs = table.pairs(name)
    took = [duration.agent for duration in (table.durations or {}).get(name, ())]
    return {
        "name": name,
        "href": task_page(name),
        "passed": passed,
        "runs": runs,
        "share": passed / runs if runs else 0.0,
        "every": sum(passed == count > 0 for passed, count in results),
        "none": sum(passed == 0 for passed, _ in results),
        "of": len(results),
        "r": _signed(table.separations[name]),
        "word": _word(table.separations[name]),
        "same": same,
        "pairs": pairs,
        "agree": f"{half_even(100 * same, pairs)}{NARROW}%" if pairs else "–",
        "seconds": seconds(median(took)) if took else "",
        "health": [*table.health[name].words],
    }


def task(season: Season, name: str) -> Json:
    """Everything that the page of a task prints. Raises KeyError for a task that the season does not have."""
    table = season.tasks
    order = [each["name"] for each in table.rows]
    if name not in order:
        raise KeyError(name)
    at = order.index(name)
    row = table.rows[at]
    wide = len(season.validators) > COLUMNS
    keys = [*table.ranked, *(key for key in season.agreed if key not in table.counted[name] and table.seen[key])]
    return row | {
        "lede": _lede(row, len(season.agreed)),
        "place": at + 1,
        "count": len(order),
        "before": order[at - 1] if at else None,
        "after": order[at + 1] if at + 1 < len(order) else None,
        "links": {each: task_page(each) for each in order},
        "columns": [] if wide else [season.called[key] for key in season.validators],
        "people": [_person(season, name, key, wide) for key in keys[:ROWS]],
        "more": max(0, len(keys) - ROWS),
        "separates": _separates(season, name),
        "health": [_why(word, table.health[name]) for word in row["health"]],
        "agreement": _agreement(season, name),
        "durations": _durations(season, name),
        "facts": [*_facts(season, name)],
        "command": f"assay tasks check {shlex.quote(f'tasks/{name}')}",
        "judges": "validators" if season.scheme.stakes else "runs",
    }


def _lede(row: Json, everybody: int) -> str:
    some = row["of"] - row["every"] - row["none"]
    if not row["of"]:
        return f"None of {plural(everybody, 'participant')} has an agreed score, so nothing counts yet."
    parts = [f"{row['every']} passed it every time"] if row["every"] else []
    parts += [f"{some} {'sometimes' if parts else 'passed it sometimes'}"] if some else []
    parts += [f"{row['none']} {'never' if parts else 'never passed it'}"] if row["none"] else []
    return f"Of {plural(row['of'], 'participant')} with an agreed score, {named(parts)}."


def _person(season: Season, name: str, key: str, wide: bool) -> Json:
    """A participant's row: what each validator saw, and how many of the trials that count passed."""
    table, agreed = season.tasks, season.agreed[key]
    trials = season.scheme.kind.trials(season.scheme.score) or 1
    counts = {vote["validator"] for vote in agreed["validators"] if not vote["excluded"]}
    cells = []
    for validator in () if wide else season.validators:
        runs = table.seen[key].get((name, validator), [])
        count = f"{runs.count('pass')} of {trials}" if trials > 1 and runs else ""
        cells.append({"o": shown_outcome(runs, trials), "n": count, "cls": "" if validator in counts else "out"})
    passed, runs_ = table.counted[name].get(key, (0, 0))
    return {
        "key": key,
        "name": season.name(key),
        "href": participant_page(key),
        "status": agreed["status"],
        "score": agreed["score"] if agreed["status"] == "agreed" else "",
        "cells": cells,
        "logs": _logs(season, name, key),
        "sum": f"{passed} of {runs_}" if runs_ else "–",
        "share": passed / runs_ if runs_ else 0.0,
    }


def _logs(season: Season, name: str, key: str) -> str:
    """The page on which everybody may read what a participant's trials of a task printed; empty if only the participant may."""
    person = season.participants.get(key)
    page = "" if person is None else season.released_logs(person.submission or "", name)
    if not page:
        return ""
    from assay.serve.logs import is_hidden  # it needs the database, as a service does; a report does not

    return "" if is_hidden(season.folder, name) else page


def _separates(season: Season, name: str) -> Json:
    """The correlation of passing this task with the rest of the score: the number, its meaning, a dot for each participant."""
    table = season.tasks
    value, count = table.separations[name], len(table.ranked)
    dots = []
    others = [other for other in table.names if other != name]
    for key in table.ranked:
        passed, runs = table.counted[name][key]
        rest = [table.counted[other][key] for other in others]
        rate = sum(part / of for part, of in rest if of) / len(rest) if rest else 0.0
        own = passed / runs if runs else 0.0
        cls = "v" if own == 1 else "vh2" if own else "vx"
        dots.append({"x": rate, "y": 0.86 - 0.72 * own, "cls": cls, "t": f"{season.name(key)}: {passed} of {runs}"})
    why = ""
    if value is None:
        results = {half_even(passed * NANO, runs) for passed, runs in table.counted[name].values() if runs}
        why = (
            f"A correlation needs three participants with an agreed score; there {'is' if count == 1 else 'are'} {count}."
            if count < 3
            else "Everybody has the same result here, so this task cannot separate anybody."
            if len(results) < 2
            else "Everybody has the same score on the other tasks, so there is nothing to compare with."
        )
    word = _word(value)
    title = f"T{word[1:]}" if word.startswith("the ") else f"It {word}"
    return {"r": _signed(value), "title": title, "why": why, "dots": dots, "meaning": _meaning(count)}


def _meaning(count: int) -> str:
    """Return what the number of a separation says, and what it cannot say."""
    few = f" Of {plural(count, 'participant')} it is a hint, not a finding." if count < FEW else ""
    return (
        "The number is the correlation between passing this task and the share of the other tasks passed: +1 if only the better "
        f"participants pass it, 0 if passing says nothing about the rest, below 0 if the weaker ones pass it more often.{few}"
    )


def _word(value: float | None) -> str:
    """The correlation in words."""
    if value is None:
        return "cannot separate"
    if value >= SEPARATES:
        return "separates"
    return "separates little" if value >= NOTHING else "does not separate" if value > -NOTHING else "the weaker pass it"


def _signed(value: float | None) -> str:
    """A correlation with two decimals and its sign; a dash where there is none."""
    if value is None:
        return "–"
    count = round(100 * value)
    return f"{'−' if count < 0 else '+' if count else ''}{abs(count) // 100}.{abs(count) % 100:02}"


def _why(word: str, health: TaskHealth) -> Json:
    """A word about a task's health, with the counts that it follows from."""
    dead = "nobody ever passed it" if health.passed + health.failed else f"all {health.errors} trials were errors"
    counts = {
        "dead": f"{dead}, so it separates no participants",
        "flaky": f"{health.differing} of {health.pairs} pairs of one participant’s trials ended differently, more than a quarter",
        "never-separating": f"all {health.participants} participants passed the same share of their trials",
        "negative": "those who pass it pass less of the other tasks than those who do not: "
        f"{rest_text(health.rest_passers, health.rest_failers)}",
    }
    return {"word": word.capitalize(), "why": counts[word]}


def _agreement(season: Season, name: str) -> Json:
    """Pairs of validators with the same outcome, and for which participants they differ: the most divided first."""
    table = season.tasks
    same, pairs = table.pairs(name)
    differ = []
    for key in season.agreed:
        votes = table.votes(name, key)
        passed = [season.called[validator] for validator, vote in votes.items() if vote]
        failed = [season.called[validator] for validator, vote in votes.items() if not vote]
        if passed and failed:
            many = len(season.validators) > COLUMNS
            sides = [plural(len(side), "of them", "of them") if many else named(side) for side in (passed, failed)]
            row = {"name": season.name(key), "href": participant_page(key), "passed": sides[0], "failed": sides[1]}
            differ.append((min(len(passed), len(failed)), row))
    differ.sort(key=lambda pair: -pair[0])
    return {
        "same": same,
        "pairs": pairs,
        "differ": [row for _, row in differ[:NAMED]],
        "more": max(0, len(differ) - NAMED),
    }


def _durations(season: Season, name: str) -> Json:
    """Return how long kept trials took, by outcome, and a dot for each; or why that is not known."""
    table = season.tasks
    if table.durations is None:
        return {"rows": [], "why": f"More than {KEPT} trials are kept here, so their durations are not read for a page."}
    durations = table.durations.get(name, [])
    if not durations:
        return {
            "rows": [],
            "why": "Evidence has no durations. Only a folder with kept trials knows them, and this one has none.",
        }
    top = _round_up(max(duration.agent for duration in durations))
    rows = []
    for outcome in ("pass", "fail", "timeout"):
        took = sorted(duration.agent for duration in durations if duration.outcome == outcome)
        if took:
            numbers = [seconds(took[0]), seconds(median(took)), seconds(took[-1])]
            rows.append({"outcome": outcome, "count": len(took), "numbers": numbers, "dots": [each / top for each in took]})
    tests = median(duration.tests for duration in durations)
    return {
        "rows": rows,
        "top": seconds(top),
        "half": seconds(top / 2),
        "tests": seconds(tests),
        "count": len(durations),
        "why": "",
    }


def _round_up(value: float) -> float:
    """The right end of a scale of seconds: the least round number above."""
    steps = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 36000, 86400)
    return float(next((step for step in steps if value <= step), value))


def _facts(season: Season, name: str) -> Iterator[tuple[str, str]]:
    """The facts that the rules and the folder state about a task: pinned digest, how its tests see the work, solution, images."""
    words: Sequence[str] = next((line.split(" ") for line in season.settlement.inputs.manifest if line.split(" ")[0] == name), ())
    pinned = next((word for word in words[1:] if word.startswith("sha256:")), None)
    yield "Pinned", pinned or "no: tasks.txt has only its name, so validators may have run different files"
    mode = words[-1] if len(words) > 1 and words[-1] in ("shared", "snapshot") else "separate"
    seen = {
        "separate": "what the agent left as results, and nothing else",
        "shared": "the agent’s own box: they can meet what it left behind",
        "snapshot": "a copy of the agent’s box: they can meet what it left behind",
    }
    yield "Tests see", seen[mode]
    plain = name not in (".", "..") and "/" not in name
    if plain and (folder := season.folder / "tasks" / name).is_dir():
        solved = (folder / "solution" / "solve.sh").exists()
        yield "Solution", "there is a reference solution" if solved else "none, so it is not known that the task can be solved"
    else:
        yield "Solution", "the task’s files are not in this folder"
    images = sorted(season.tasks.images.get(name, ()))
    if images:
        yield "Images", images[0] if len(images) == 1 else f"{len(images)} different ones, which may be why validators differ"


def task_document(season: Season, name: str) -> Json:
    """A task as JSON: what each validator saw of each participant, what counts, and how much it separates."""
    table = season.tasks
    value = table.separations[name]
    same, pairs = table.pairs(name)
    by_person: list[Json] = []
    for key, seen in table.seen.items():
        passed, runs = table.counted[name].get(key, (None, None))
        by = {validator: runs_seen for (of, validator), runs_seen in seen.items() if of == name}
        if by:
            by_person.append({"participant": key, "passed": passed, "counted": runs, "outcomes": by})
    return {
        "task": name,
        "epoch": season.settlement.epoch,
        "participants": by_person,
        "separation": None if value is None else f"{value:.4f}",
        "agreement": {"same": same, "pairs": pairs},
        "health": table.health[name].document(),
    }
