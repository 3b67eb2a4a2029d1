"""The pages that only a service has: what is judged now, and where to start, also before anything was settled; released logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from assay.errors import BadInput, CannotSettle
from assay.exact import canonical
from assay.judge.holds import standings
from assay.ledger.intake import open_epoch
from assay.records import Participant
from assay.scheme.fields import instant
from assay.serve.live import Judging, LiveState, live_document
from assay.serve.logs import ON_A_PAGE, log_view, released
from assay.serve.notebook import Heartbeat, Json
from assay.serve.pages import live_page, logs_page, start_page
from assay.serve.season import Season, handed_in
from assay.serve.site import ServedCompetition
from assay.serve.uploads import closes_in

__all__ = ["CURRENT", "current_page"]

CURRENT = ("live.html", "live.json", "start.html", "start.json", "logs.html")
"""The names of these pages."""
EVENTS = "events"
"""The address of the service's event stream, seen from a page."""


def current_page(served: ServedCompetition, name: str, query: Mapping[str, str]) -> bytes:
    """A page of CURRENT, or its JSON, as it is now. Raises BadInput if the folder is wrong, StoreError.

    Of the page of logs also CannotSettle and HttpProblem: 404 for what is not there, 403 for what is not released, 409 without a
    ledger.
    """
    if name == "logs.html":
        submission, task = query.get("submission", ""), query.get("task") or None
        shown = served.season()
        logs = released(served, submission, None, task, most=None if task is None else ON_A_PAGE)
        return logs_page(shown, log_view(logs, shown, submission, task))
    season, as_json = _season(served), name.endswith(".json")
    if name.startswith("start"):
        return start_page(served.folder, season, served.address, as_json=as_json)
    state = live_state(served, season)
    if as_json:
        return canonical(live_document(season, state))
    return live_page(served.scheme, season, state, EVENTS if served.store is not None else "")


def live_state(served: ServedCompetition, season: Season | None) -> LiveState:
    """Return what is judged now, from heartbeats, and whose submission nobody judged yet. Without a ledger nobody says it."""
    beats = () if served.notebook is None else served.notebook.heartbeats()
    judging = tuple(row for beat in beats for row in _judging(beat))
    shown = 1 if season is None else season.settlement.epoch
    at_work = {row.participant for row in judging}
    new = handed_in(served.folder, None if season is None else season.settlement)
    epoch = shown if served.store is None else open_epoch(served.store)
    waiting = [participant for participant in new if participant.key not in at_work]
    return LiveState(
        epoch,
        judging,
        closes_in(served.scheme, epoch),
        tuple(participant.key for participant in waiting),
        why=_why(served, waiting),
    )


def _why(served: ServedCompetition, waiting: Sequence[Participant]) -> dict[str, str]:
    """Participant → why no validator gets its submission, where near-copies are held. Raises BadInput."""
    rules = served.scheme.submission
    if rules is None or rules.copies != "hold" or served.scheme.kind.record.by_participant:
        return {}
    keys = [(participant.key, participant.submission) for participant in waiting]
    known = standings(served.folder, served.scheme, keys, comparing=served.store is not None)
    return {key: f"{stands.why} {stands.todo}".rstrip() for (key, _), stands in known.items() if not stands.judged}


def _season(served: ServedCompetition) -> Season | None:
    try:
        return served.season()
    except CannotSettle:
        return None


def _judging(beat: Heartbeat) -> list[Judging]:
    """Return what a heartbeat says, one row for each thing that is judged."""
    return [
        Judging(
            validator=beat.validator,
            participant=entry["participant"],
            submission=entry["submission"],
            task=entry["task"],
            done=entry["done"],
            total=entry["total"],
            since=_since(entry, beat.at),
            seen=beat.at,
        )
        for entry in beat.judging
    ]


def _since(entry: Json, otherwise: datetime) -> datetime:
    """The time when judging began, as the validator says; if it is not stated, or later than now, that of the last heartbeat."""
    try:
        return min(instant(entry["since"]), otherwise)
    except BadInput:
        return otherwise
