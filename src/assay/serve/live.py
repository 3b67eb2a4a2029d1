"""The page of what is judged now, as a view: by whom, how far it is, when it will be done, and what was finished last.

The validators' word about themselves is not evidence and not proven: no number rests on it. A service collects it from
heartbeats; see `LiveState`. Times are the service's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from assay.records import Record, Rubric, Tests
from assay.scheme.clock import by_time
from assay.scheme.fields import instant_text
from assay.scheme.model import Scheme
from assay.serve.draw import seconds, when
from assay.serve.links import participant_page, task_page
from assay.serve.season import Json, Season
from assay.settle.story.telling import plural

__all__ = ["Finished", "Judging", "LiveState", "closes_at", "live", "live_document"]

SILENT = timedelta(seconds=90)
"""A validator that was not heard of for so long is shown as silent: it may have stopped."""
LAST = 12
"""Results that are listed as the last finished."""
TASKS = 4
"""Tasks of one run that are named."""


@dataclass(frozen=True, slots=True)
class Judging:
    """One thing that a validator judges now: its key, what it judges, how much of that is done, since when, and last heard of.

    task: empty where the kind has no tasks. done, total: trials (or solutions) of this submission. since, seen: with a zone.
    """

    validator: str
    participant: str
    submission: str
    task: str
    done: int
    total: int
    since: datetime
    seen: datetime


@dataclass(frozen=True, slots=True)
class Finished:
    """A result that came: who judged, what, with which outcome, and when."""

    validator: str
    participant: str
    task: str
    outcome: str
    at: datetime


@dataclass(frozen=True, slots=True)
class LiveState:
    """The state of the open epoch, as a service knows it: submissions being judged, seconds until it closes, and those waiting.

    waiting: participants whose current submission nobody judges yet. finished: the last results, in any order; without them the
    page looks into the season. why: participant → why no validator gets its submission: it is held, or not compared yet.
    """

    epoch: int
    judging: tuple[Judging, ...]
    closes_in: int | None
    waiting: tuple[str, ...]
    finished: tuple[Finished, ...] = ()
    why: Mapping[str, str] = field(default_factory=dict)


def closes_at(scheme: Scheme, epoch: int, now: datetime) -> datetime | None:
    """The moment when an open epoch ends, as the operator's node closes it; None if time does not say it, or is over. SPEC 6."""
    clock = scheme.epoch
    if clock is None or clock.every is None:
        return None
    end = by_time(clock, epoch).moment
    return end if end > now else None


def live(season: Season | None, state: LiveState, now: datetime | None = None) -> Json:
    """Everything that the page prints. season: for names and links; None where nothing can be settled yet."""
    moment = datetime.now(UTC) if now is None else now
    runs = [*_runs(season, state, moment)]
    silent = {run["validator"] for run in runs if run["silent"]}
    busy = {run["validator"] for run in runs} - silent
    closes = None if state.closes_in is None else moment + timedelta(seconds=state.closes_in)
    return {
        "epoch": state.epoch,
        "runs": runs,
        "lede": _lede(len(busy), len([run for run in runs if not run["silent"]]), len(silent), len(state.waiting)),
        "closes_in": state.closes_in,
        "closes_at": "" if closes is None else f"{closes.astimezone(UTC):%H:%M}",
        "waiting": [_person(season, key) | {"why": state.why.get(key, "")} for key in state.waiting],
        "finished": [*_finished(season, state, moment)],
        "at": f"{moment.astimezone(UTC):%H:%M:%S}",
    }


def live_document(season: Season | None, state: LiveState, now: datetime | None = None) -> Json:
    """The page as JSON: what is judged, what waits and what was finished, by keys, with times of RFC 3339."""
    moment = (datetime.now(UTC) if now is None else now).replace(microsecond=0)
    closes = None if state.closes_in is None else moment + timedelta(seconds=state.closes_in)
    finished = sorted(state.finished or _last_records(season), key=lambda result: result.at, reverse=True)[:LAST]
    return {
        "epoch": state.epoch,
        "at": instant_text(moment),
        "closes_in": state.closes_in,
        "closes_at": None if closes is None else instant_text(closes),
        "judging": [
            {name: getattr(run, name) for name in ("validator", "participant", "submission", "task", "done", "total")}
            | {"since": instant_text(run.since), "seen": instant_text(run.seen), "silent": _is_silent([run], moment)}
            for run in state.judging
        ],
        "waiting": [*state.waiting],
        "why": {key: state.why[key] for key in state.waiting if key in state.why},
        "finished": [
            {name: getattr(result, name) for name in ("validator", "participant", "task", "outcome")}
            | {"at": instant_text(result.at)}
            for result in finished
        ],
    }


def _lede(busy: int, runs: int, silent: int, waiting: int) -> str:
    if not runs:
        first = "Nothing is judged now."
    else:
        first = f"{plural(busy, 'validator')} {'judges' if busy == 1 else 'judge'} {plural(runs, 'submission')}."
    more = [f"{plural(silent, 'validator')} {'is' if silent == 1 else 'are'} silent."] if silent else []
    more += [f"{plural(waiting, 'submission')} {'waits' if waiting == 1 else 'wait'}."] if waiting else []
    return " ".join([first, *more])


def _runs(season: Season | None, state: LiveState, now: datetime) -> Iterator[Json]:
    """One row for each validator and submission: its tasks, how far it is, when it will be done; the silent ones last."""
    groups: dict[tuple[str, str, str], list[Judging]] = {}
    for judging in state.judging:
        groups.setdefault((judging.validator, judging.participant, judging.submission), []).append(judging)
    order = sorted(groups.items(), key=lambda item: (_is_silent(item[1], now), item[0]))
    for (validator, participant, submission), group in order:
        done, total = max(each.done for each in group), max(each.total for each in group)
        since, seen = min(each.since for each in group), max(each.seen for each in group)
        tasks = list(dict.fromkeys(each.task for each in group if each.task))
        known = () if season is None else season.tasks.names
        yield {
            "validator": validator,
            "name": _judge(season, validator),
            "person": _person(season, participant),
            "submission": submission,
            "tasks": [{"name": task, "href": task_page(task) if task in known else None} for task in tasks[:TASKS]],
            "more": max(0, len(tasks) - TASKS),
            "done": done,
            "total": total,
            "share": min(1.0, done / total) if total else 0.0,
            "silent": _is_silent(group, now),
            "seen": when(seen.astimezone(UTC)),
            "ago": seconds(max(0.0, (now - seen).total_seconds())),
            "since": when(since.astimezone(UTC)),
            "eta": _eta(done, total, since, seen, now),
        }


def _is_silent(group: Sequence[Judging], now: datetime) -> bool:
    return now - max(each.seen for each in group) > SILENT


def _eta(done: int, total: int, since: datetime, seen: datetime, now: datetime) -> str:
    """Return how long the rest takes if it goes on as it went until the validator was last heard of."""
    if total <= 0:
        return "not known"
    if done >= total:
        return "done"
    took = (seen - since).total_seconds()
    if done <= 0 or took <= 0:
        return "not known yet"
    left = took / done * (total - done) - (now - seen).total_seconds()
    return f"about {seconds(left if left < 120 else round(left / 60) * 60)}" if left > 1 else "any moment"


def _person(season: Season | None, key: str) -> Json:
    """A participant's name and page; its key alone where it is not in the season yet."""
    known = season is not None and key in season.participants
    name = season.name(key) if season is not None and known else key if len(key) <= 24 else f"{key[:8]}…{key[-6:]}"
    return {"name": name, "href": participant_page(key) if known else None}


def _judge(season: Season | None, key: str) -> str:
    return season.called.get(key, f"{key[:8]}…" if len(key) > 24 else key) if season is not None else key[:24]


def _finished(season: Season | None, state: LiveState, now: datetime) -> Iterator[Json]:
    results = state.finished or _last_records(season)
    for result in sorted(results, key=lambda result: result.at, reverse=True)[:LAST]:
        ago = (now - result.at).total_seconds()
        known = () if season is None else season.tasks.names
        yield {
            "name": _judge(season, result.validator),
            "person": _person(season, result.participant),
            "task": result.task,
            "href": task_page(result.task) if result.task in known else None,
            "outcome": result.outcome,
            "icon": result.outcome if result.outcome in ("pass", "fail", "timeout") else "dash",
            "at": when(result.at.astimezone(UTC)),
            "ago": f"{seconds(ago)} ago" if 0 <= ago < 86_400 else when(result.at.astimezone(UTC)),
        }


def _last_records(season: Season | None) -> tuple[Finished, ...]:
    """The last results that the season itself has; none where it is too large to look."""
    return tuple(
        Finished(record.validator, key, getattr(record, "task", ""), _outcome(record), record.observed_at)
        for key, record in (() if season is None else season.latest)
    )


def _outcome(record: Record) -> str:
    """A record in a word: its outcome, a verdict, or only that it came."""
    if isinstance(record, Rubric) and isinstance(record.verdict, str):
        return record.verdict.replace("_", " ").lower()
    return record.outcome if isinstance(record, Tests) else str(getattr(record, "outcome", "judged"))
