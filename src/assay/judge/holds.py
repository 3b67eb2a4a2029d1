"""Holds: what follows from a near-copy, and who decided about it. No score becomes 0 by it. docs/near-copies.md.

copies.jsonl    who released or confirmed which submission, when and why: it only grows
held.csv        in a validator's copy of the folder: what the service holds; then nothing is compared there
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from assay.errors import BadInput, suggest
from assay.folder import csvs, strict
from assay.folder.files import alone, stamp
from assay.judge.copies import CopyRow, Entered, add_rows, compare_new, compared, failure, history, of_ledger, survey, whole_lines
from assay.records import Participant
from assay.scheme.fields import instant, instant_text
from assay.scheme.model import Scheme

__all__ = ["DECISIONS", "CopyStanding", "decide", "decisions", "held", "standing", "standings"]

DECISIONS = "copies.jsonl"
Json = dict[str, Any]
Decision = Literal["release", "confirm"]
HoldState = Literal["pending", "clear", "flagged", "held", "released", "confirmed", "not-compared"]
_WHY = {"absent": "its files are not here", "too-large": "it is too large to compare"}


@dataclass(frozen=True)
class CopyStanding:
    """The state of a submission as a near-copy. why: a sentence; todo: what its participant can do.

    failed: it was not compared yet because that failed; it is pending, and tried again.
    """

    state: HoldState
    why: str = ""
    todo: str = ""
    near: tuple[Json, ...] = ()
    decision: Json | None = None
    failed: bool = False

    @property
    def judged(self) -> bool:
        """Whether it is given to validators where near-copies are held."""
        return self.state not in ("pending", "held")

    def document(self) -> Json:
        """As JSON; of a decision its reason and time, and not the name."""
        decided = None if self.decision is None else {name: self.decision[name] for name in ("decision", "reason", "at")}
        return {"state": self.state, "why": self.why, "todo": self.todo, "near": [*self.near], "decision": decided}


def standing(scheme: Scheme, row: CopyRow | None, decision: Json | None, failed: str = "") -> CopyStanding:
    """The state that follows from a comparison (None: not done yet) and a decision, by the scheme's `copies`.

    failed: why the last comparison failed, if it did.
    """
    holds = scheme.submission is not None and scheme.submission.copies == "hold"
    near = () if row is None else row.near
    if decision is not None and decision["decision"] == "release":
        return CopyStanding("released", f"The organiser released it: {_ended(decision['reason'])}", "", near, decision)
    if decision is not None:
        why = f"The organiser confirmed that it is a copy: {_ended(decision['reason'])}"
        todo = "Hand in work of your own." if holds else ""
        return CopyStanding("held" if holds else "confirmed", why, todo, near, decision)
    if row is None and failed:
        why = f"Not compared with earlier submissions: {failed.rstrip('.')}; it is tried again."
        todo = "Validators get it once it was compared; the operator sees why it fails." if holds else ""
        return CopyStanding("pending", why, todo, failed=True)
    if row is None:
        why = "It is being compared with earlier submissions"
        return CopyStanding("pending", f"{why}; validators get it then." if holds else f"{why}.")
    if row.state != "compared":
        return CopyStanding("not-compared", f"It was not compared with earlier submissions: {_WHY[row.state]}.")
    if not near:
        return CopyStanding("clear")
    why = _told(near[0]) + ("" if row.pairs == 1 else f" {row.pairs - 1} more earlier submissions have much in common with it.")
    if not holds:
        return CopyStanding("flagged", why, "It counts; the organiser looks at the passages.", near)
    todo = "Ask the organiser to release it, with your reason, or hand in work of your own."
    return CopyStanding("held", f"{why} It is not judged meanwhile; this is no score of 0.", todo, near)


def _told(near: Json) -> str:
    """ "It has 57 of 90 fingerprints in common with the submission of alice of 2026-11-01 10:00 UTC." """
    earlier, prints = near["earlier"], near["fingerprints"]
    when = "" if earlier["at"] is None else f" of {instant(earlier['at']):%Y-%m-%d %H:%M} UTC"
    if near["submission"] == earlier["submission"]:
        return f"It is the submission of {earlier['participant']}{when}, byte by byte."
    much = f"{prints['common']} of {prints['own']} fingerprints"
    return f"It has {much} in common with the submission of {earlier['participant']}{when}."


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def standings(
    folder: Path, scheme: Scheme, keys: Iterable[tuple[str, str]], *, comparing: bool = False
) -> dict[tuple[str, str], CopyStanding]:
    """The standing of submissions by (participant, submission), as the files of the folder have it now; nothing is compared.

    comparing: a service compares what is not compared yet; else there is no standing of it. Empty if the scheme has no `copies`.
    Raises BadInput.
    """
    if scheme.submission is None or scheme.submission.copies is None:
        return {}
    rows, decided, failed = compared(folder), decisions(folder), failure(folder)
    return {
        key: standing(scheme, rows.get(key), decided.get(key), failed)
        for key in keys
        if key[1] and (comparing or failed or key in rows or key in decided)
    }


def held(folder: Path, scheme: Scheme, participants: Sequence[Participant]) -> dict[str, str]:
    """Participant → why its submission is not judged, if `copies = "hold"`: a near-copy that is not released. Raises BadInput."""
    if scheme.submission is None or scheme.submission.copies != "hold":
        return {}
    if (folder / csvs.HELD.name).exists():
        listed = (row.fields for row in csvs.read(folder / csvs.HELD.name, csvs.HELD))
        rows = {(row["participant"], row["submission"]): row["why"] for row in listed}
        return {
            participant.key: rows[participant.key, participant.submission]
            for participant in participants
            if (participant.key, participant.submission) in rows
        }
    entries = of_ledger(folder, participants)
    if entries is not None:
        compare_new(folder, scheme, entries)
        known = standings(folder, scheme, [(participant.key, participant.submission) for participant in participants])
    else:
        decided = decisions(folder)
        surveyed = _surveyed(folder, scheme, history(participants))
        known = {key: standing(scheme, row, decided.get(key)) for key, row in surveyed.items()}
    return {key: stands.why for (key, _), stands in known.items() if not stands.judged}


def _surveyed(folder: Path, scheme: Scheme, entries: Sequence[Entered]) -> dict[tuple[str, str], CopyRow]:
    rows = {entry.key: CopyRow(*entry.key, "compared", "") for entry in entries}
    for pair in survey(folder, scheme, entries).found:
        rows[pair.later.key] = rows[pair.later.key].with_near(pair.document())
    return rows


def decisions(folder: Path) -> Mapping[tuple[str, str], Json]:
    """(participant, submission) → the last decision, with its reason. Raises BadInput for a file that was changed."""
    place = folder / DECISIONS
    return _decisions(place, stamp(place)) if place.exists() else {}


@lru_cache(maxsize=64)
def _decisions(place: Path, _state: tuple[object, ...]) -> Mapping[tuple[str, str], Json]:
    rows: dict[tuple[str, str], Json] = {}
    for number, line in enumerate(whole_lines(place), start=1):
        row = strict.parse(line)
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in _FIELDS):
            hint = "assay copies DIR --release KEY or --confirm KEY writes these lines"
            raise BadInput("is no decision", file=place, line=number, hint=hint)
        rows[row["participant"], row["submission"]] = {"decision": "release"} | row
    return rows


_FIELDS = ("participant", "submission", "by", "reason", "at")


def decide(folder: Path, participants: Sequence[Participant], key: str, decision: Decision, *, by: str, reason: str) -> Json:
    """Releases a participant's submission, or confirms it as a copy, and writes down who did so and why. Raises BadInput."""
    person = next((participant for participant in participants if participant.key == key and participant.submission), None)
    if person is None:
        raise BadInput(
            f"no submission of {key[:80]!r}", hint=suggest(key, [participant.key for participant in participants], "name its key")
        )
    if not by.strip() or not reason.strip():
        raise BadInput("a decision needs a name and a reason", hint="give both: --by NAME --reason TEXT")
    row = {"participant": key, "submission": person.submission, "decision": decision, "by": by, "reason": reason}
    row["at"] = instant_text(datetime.now(UTC).replace(microsecond=0))
    with alone(folder):
        decisions(folder)  # nothing is added to a file that cannot be read
        add_rows(folder / DECISIONS, [row])
    return row
