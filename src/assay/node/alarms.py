"""The alarms that stand at a node: pure functions from facts to alarms, each with what is wrong and what to do.

An alarm is there as long as its facts are, and goes away with them. The status is all there is to know of a validator's node; an
operator's node looks at the season as well (`SeasonFacts`). SPEC 3 says what a quorum is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.exact import NANO
from assay.publish.alarms import Alarm
from assay.scheme.fields import instant, instant_text

__all__ = ["CODES", "SILENT", "SeasonFacts", "Unjudged", "ValidatorFacts", "of_operator", "of_validator", "percent"]

Json = dict[str, Any]
CODES = {
    "validator": (
        "not-running",
        "trouble",
        "service-away",
        "clock",
        "batch-refused",
        "result-missing",
        "submission-absent",
        "task-uncalibrated",
        "contradiction",
        "disk",
        "not-told",
    ),
    "operator": (
        "not-running",
        "trouble",
        "service-down",
        "part-down",
        "clock",
        "epoch-held",
        "validator-late",
        "quorum",
        "unjudged",
        "validator-tells",
        "ledger",
        "unwitnessed",
        "disk",
        "not-told",
    ),
}
"""The codes of each role's alarms; those of a target that is published to are the watch's, after `target-`."""
SILENT = timedelta(minutes=5)
"""A service or a validator that was not heard of for so long is named."""
UNSEEN = timedelta(minutes=20)
"""A watch that has not looked for so long is named: it may wait ten minutes for a chain."""
FREE = 2**30
"""Bytes on the disk below which that is named."""
SHOWN = 3
"""Of what is alike in one alarm, so many are named."""
ROWS = 20
"""Alarms of one code that are listed; the others are counted."""
SKEW = 5
"""Seconds by which a clock may be wrong."""


@dataclass(frozen=True, slots=True)
class ValidatorFacts:
    """A validator of the registry, as the service hears of it. stake: in rao. heard: its last heartbeat.

    busy: it said that it is judging. troubles: (code, what) of what it said is wrong on its machine.
    """

    name: str
    stake: int
    heard: datetime | None = None
    busy: bool = False
    troubles: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A submission that counts and of which no validator has sent evidence: whose, and since which epoch and time it waits."""

    participant: str
    epoch: int
    at: datetime | None = None


@dataclass(frozen=True)
class SeasonFacts:
    """The facts that the service and the ledger have about the open epoch.

    since: the time at which the service began to listen. min_validators, min_stake (in nanos of the whole): of a quorum.
    unjudged: only while there is evidence of other submissions. wrong: why this could not be read; then the rest is empty.
    """

    epoch: int
    since: datetime
    validators: tuple[ValidatorFacts, ...] = ()
    min_validators: int = 1
    min_stake: int = 0
    unjudged: tuple[Unjudged, ...] = ()
    wrong: str = ""


def of_validator(folder: Path, content: Mapping[str, Any], now: datetime, *, working: bool, free: int | None) -> list[Alarm]:
    """List the alarms of a validator's node. free: bytes on the disk; None if nobody knows.

    content: its status. Of both roles these fields are read: `role`, `url` and `once` (how it was begun), `trouble` ({what, hint,
    since}, or None), `away` (whether the trouble is that the service does not answer), `telling` (carrier → {what, since}). Of a
    validator's also `ahead` (seconds), `refused`, `missing` and `absent` (sentences), `uncalibrated` ("TASK: what; hint") and
    `conflicts` ("what; hint"). A field that is not there says that nothing is wrong.
    """
    alarms = [*_of_process(folder, content, now, working=working), *_of_clock(content)]
    for name, code, what, hint in _LISTS:
        rows = [str(row) for row in content.get(name) or ()]
        if rows:
            more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
            alarms.append(Alarm(code, f"{what}: {', '.join(rows[:SHOWN])}{more}", hint))
    for row in content.get("uncalibrated") or ():
        task, _, why = str(row).partition(": ")
        what, _, hint = why.rpartition("; ")
        shown = f"a task does not calibrate on this machine: {task}: {what or hint}"
        alarms.append(Alarm("task-uncalibrated", shown, hint if what else "see what its solution and its tests do here", task))
    if content.get("conflicts"):
        what, _, hint = str(content["conflicts"]).rpartition("; ")
        alarms.append(Alarm("contradiction", what or hint, hint if what else "use the key in one folder only"))
    return [*_few(alarms), *_of_disk(free), *_untold(content)]


_LISTS = (
    ("refused", "batch-refused", "the service refuses a batch", "correct what it says; the batch stays and is sent again"),
    ("missing", "result-missing", "a result is missing", "it is judged again every ten minutes; DIR/trials has its logs"),
    ("absent", "submission-absent", "a submission could not be fetched", "it is tried again; else tell the service's operator"),
)


def of_operator(
    folder: Path,
    content: Mapping[str, Any],
    facts: SeasonFacts | None,
    targets: Sequence[Mapping[str, Any]],
    now: datetime,
    *,
    working: bool,
    free: int | None,
    whole: bool = True,
) -> list[Alarm]:
    """List the alarms of an operator's node. facts: None if nobody looked.

    content: its status, with the fields of both roles that `of_validator` names, and `service` ({address, up}, or None) and
    `held` ({epoch, what, hint} of an epoch that cannot be closed, or None). targets: what each watch noted: {target, alarms}.
    whole: False for a further competition of a subnet: what the node has in common for all is told of the first.
    """
    alarms: list[Alarm] = []
    if whole:
        alarms += _of_process(folder, content, now, working=working)
        service = content.get("service")
        if working and isinstance(service, dict) and not service.get("up"):
            hint = "the node restarts it by itself; its output says why it ended"
            alarms.append(Alarm("service-down", f"the service at {service.get('address')} does not run", hint))
        alarms += _of_parts(content) if working else ()
    held = content.get("held")
    if isinstance(held, dict):
        what = f"epoch {held.get('epoch')} cannot be closed: {held.get('what')}"
        alarms.append(Alarm("epoch-held", what, str(held.get("hint", "")), str(held.get("epoch"))))
    if facts is not None:
        alarms += _of_season(facts, now)
    if whole:
        alarms += [*_of_witnesses(content), *_of_targets(content, targets, now)]
    return [*_few(alarms), *(_of_disk(free) if whole else ()), *_untold(content)]


def _of_parts(content: Mapping[str, Any]) -> Iterator[Alarm]:
    """Alarms for the parts of an operator's node that do not stay up, and for the clock that it goes by."""
    for name, how in sorted((content.get("down") or {}).items()):
        yield Alarm("part-down", f"{name} {how}", "it is restarted by itself; the node's output says why it ended", name)
    jumped = content.get("jumped")
    if isinstance(jumped, int) and jumped:
        way = f"{abs(jumped)} seconds {'forward' if jumped > 0 else 'back'}"
        hint = "set it by the network: timedatectl set-ntp true; for ten minutes epochs end by the clock of before"
        yield Alarm("clock", f"this machine's clock jumped {way}", hint)


def _of_witnesses(content: Mapping[str, Any]) -> Iterator[Alarm]:
    """The logs whose newest checkpoint waits for its witnesses: nobody is shown it until then."""
    for log, row in sorted((content.get("unwitnessed") or {}).items()):
        hint = "they are asked again each minute; see who runs them, or change witnesses.policy"
        if row.get("forked"):
            hint = f"two histories of this log were signed: stop, and compare {', '.join(row['forked'][:SHOWN])}"
        yield Alarm("unwitnessed", f"{log}: since {row.get('since')} {row.get('what')}", hint, log)


def _of_targets(content: Mapping[str, Any], targets: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[Alarm]:
    """The alarms that the watches have; and a watch that has not looked for long."""
    for target in targets:
        name = str(target.get("target"))
        for row in target.get("alarms") or ():
            yield Alarm(f"target-{row.get('code')}", f"{name}: {row.get('what')}", str(row.get("hint", "")), name)
        if not content.get("once") and _is_over(target.get("at"), now, UNSEEN):
            what = f"{name}: its watch has not looked since {target.get('at')}"
            yield Alarm("target-silent", what, "the chain's node may not answer; restart this node if it lasts", name)


# Alarms of both roles


def _of_process(folder: Path, content: Mapping[str, Any], now: datetime, *, working: bool) -> Iterator[Alarm]:
    if not working and not content.get("once"):
        again = f"assay node validator {folder} --url {content.get('url')} --key NAME"
        if content.get("role") == "operator":
            again = f"assay node operator {content.get('url')}"
        yield Alarm("not-running", "the node does not run", f"start it again: {again}")
    trouble = content.get("trouble")
    if not isinstance(trouble, dict):
        return
    away = bool(content.get("away"))
    if away and not _is_over(trouble.get("since"), now, SILENT):
        return
    hint = str(trouble.get("hint", ""))
    what = str(trouble.get("what")).removesuffix(f"; {hint}")
    yield Alarm("service-away" if away else "trouble", f"since {trouble.get('since')}: {what}", hint)


def _of_clock(content: Mapping[str, Any]) -> Iterator[Alarm]:
    ahead = content.get("ahead")
    if isinstance(ahead, int) and abs(ahead) > SKEW:
        which = "ahead of" if ahead > 0 else "behind"
        what = f"this machine's clock is at least {abs(ahead)} seconds {which} the service's"
        hint = "set it by the network: timedatectl set-ntp true; if this clock is right, tell the service's operator"
        yield Alarm("clock", what, hint)


def _of_disk(free: int | None) -> Iterator[Alarm]:
    if free is not None and free < FREE:
        yield Alarm("disk", f"the disk is almost full: {free // 2**20} MiB are free", "make room")


def _untold(content: Mapping[str, Any]) -> Iterator[Alarm]:
    for name, row in sorted((content.get("telling") or {}).items()):
        what = f"since {row.get('since')}, alarms could not be told by {name}: {row.get('what')}"
        hint = "it is tried again; correct what it says, or start the node with another --on-alarm or --webhook"
        yield Alarm("not-told", what, hint, name)


def _few(alarms: Iterable[Alarm]) -> Iterator[Alarm]:
    """The alarms, at most ROWS of each code, and how many more of it there are."""
    counts = dict[str, int]()
    for alarm in alarms:
        counts[alarm.code] = counts.get(alarm.code, 0) + 1
        if counts[alarm.code] <= ROWS:
            yield alarm
    for code, count in counts.items():
        if count > ROWS:
            yield Alarm(code, f"{code}: {count - ROWS} more", "correct the first ones; then the others are named", "more")


# The season


def _of_season(facts: SeasonFacts, now: datetime) -> Iterator[Alarm]:
    if facts.wrong:
        yield Alarm(
            "ledger", f"the season cannot be looked at: {facts.wrong}", "correct that; until then nobody is told of validators"
        )
        return
    total = sum(row.stake for row in facts.validators)
    late = [row for row in facts.validators if now - (row.heard or facts.since) > SILENT]
    for row in late:
        since = "was never heard of" if row.heard is None else f"was not heard of since {instant_text(row.heard)}"
        hint = f"ask who runs it; there, `assay node status DIR` says what is wrong{_unserved(facts, now)}"
        yield Alarm("validator-late", f"{row.name} {since}, and has {percent(row.stake, total)} of the stake", hint, row.name)
    yield from _quorum(facts, [row for row in facts.validators if row not in late], total)
    for waiting in facts.unjudged:
        since = f"epoch {waiting.epoch}" if waiting.at is None else instant_text(waiting.at)
        what = f"nobody has judged the submission of {waiting.participant} since {since}, and others were judged"
        hint = "it may err on every machine: see what validators tell, and trials/ of one of them; nobody is scored for that"
        yield Alarm("unjudged", what, hint, waiting.participant)
    for row in facts.validators:
        for number, (code, what) in enumerate(row.troubles if row not in late else ()):
            hint = f"{row.name} corrects it; `assay node status DIR` on that machine says how"
            yield Alarm("validator-tells", f"{row.name} tells: {what}", hint, f"{row.name} {code} {number}")


def _unserved(facts: SeasonFacts, now: datetime) -> str:
    """A hint that the service is at fault, which is likelier than that all validators are late at one time; "" otherwise."""
    silent = all(now - (row.heard or facts.since) > SILENT for row in facts.validators)
    return "; nobody is heard of, so look at the service first" if silent and len(facts.validators) > 1 else ""


def _quorum(facts: SeasonFacts, heard: Sequence[ValidatorFacts], total: int) -> Iterator[Alarm]:
    """An alarm if the validators heard of lately could not agree on a score."""
    least = -(-facts.min_stake * total // NANO)
    stake = sum(row.stake for row in heard)
    short = []
    if len(heard) < facts.min_validators:
        short.append(f"{len(heard)} of the {facts.min_validators} validators that a quorum needs are heard of")
    if stake < least:
        short.append(
            f"those that are heard of have {percent(stake, total)} of the stake, and a quorum needs {percent(least, total)}"
        )
    # If all are heard of, the rules ask for more than there is, which is no failure of today.
    if short and len(heard) < len(facts.validators):
        missing = [row.name for row in facts.validators if row not in heard]
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        what = f"the quorum of epoch {facts.epoch} is in danger: {'; '.join(short)}"
        yield Alarm("quorum", what, f"bring back {', '.join(missing[:SHOWN])}{more}, or the epoch ends without scores")


def percent(part: int, total: int) -> str:
    """Write a part of a total as a percentage with one decimal, cut: 29.9 % is not shown as the 30 % that is needed."""
    tenths = 0 if not total else part * 1000 // total
    return f"{tenths // 10}.{tenths % 10} %"


def _is_over(since: object, now: datetime, limit: timedelta) -> bool:
    try:
        return now - instant(since) > limit
    except BadInput:
        return True
