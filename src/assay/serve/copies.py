"""Near-copies and equal outcomes as views: of whom, since when, which passages match, what was decided. docs/near-copies.md.

What is shown is what is known now, also on the pages of an earlier epoch: a comparison may end, and an organiser may decide,
after an epoch was settled. Only names of files and lines are shown, never what stands in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from assay.judge.holds import CopyStanding, standings
from assay.records import Participant
from assay.scheme.fields import instant
from assay.serve import margins
from assay.serve.draw import when
from assay.serve.links import participant_page
from assay.serve.season import Json, Season

__all__ = ["alike", "copies_of", "copy_rows", "copy_standings", "short_word"]

PASSAGES = 3
"""Passages of a pair that the board shows; the participant's page shows all that are kept."""
ROWS = 50
"""Near-copies that a board lists."""
_WORDS = {
    "pending": "being compared",
    "flagged": "near-copy, flagged",
    "held": "near-copy, held",
    "released": "near-copy, released",
    "confirmed": "confirmed as a copy",
    "not-compared": "not compared",
}


def copy_standings(season: Season, people: Iterable[Participant]) -> dict[str, CopyStanding]:
    """Participant → what is known now of the submission that it has here, as a near-copy. Raises BadInput."""
    keys = [(person.key, person.submission) for person in people]
    if season.scheme.kind.record.by_participant:
        return {}
    standing_of = standings(season.folder, season.scheme, keys, comparing=season.address is not None and season.past is not None)
    return {key: stands for (key, _), stands in standing_of.items()}


def short_word(stands: CopyStanding | None) -> str:
    """A few words for a row of the board; empty where there is nothing to say."""
    return "" if stands is None or stands.state == "clear" else _word(stands)


def _word(stands: CopyStanding) -> str:
    return _WORDS["not-compared" if stands.failed else stands.state]


def copy_rows(season: Season, standing_of: dict[str, CopyStanding], people: Iterable[Participant]) -> list[Json]:
    """The near-copies that a board lists, those that are held first: who, of whom, the passages, and the dates."""
    named = {person.key: person for person in people}
    rows = [
        _view(season, named[key], stands, PASSAGES)
        for key, stands in standing_of.items()
        if stands.near or stands.failed or stands.state in ("held", "confirmed", "not-compared")
    ]
    order = ("held", "confirmed", "flagged", "released", "not-compared", "pending")
    return sorted(rows, key=lambda row: order.index(row["state"]))[:ROWS]


def copies_of(season: Season, key: str) -> list[Json]:
    """The copies that a participant's page shows: of the submission that was settled, and of one that it handed in since."""
    person = season.participants[key]
    since = [person_since for person_since in season.waiting if person_since.key == key]
    views = []
    for handed_in in (person, *since):
        stands = copy_standings(season, [handed_in]).get(key)
        if stands is not None and (stands.near or stands.failed or stands.state not in ("clear", "pending")):
            views.append(_view(season, handed_in, stands, None))
    return views


def _view(season: Season, person: Participant, stands: CopyStanding, most: int | None) -> Json:
    known = season.participants
    return {
        "key": person.key,
        "name": season.name(person.key) if person.key in known else person.name or person.key,
        "href": participant_page(person.key) if person.key in known else "",
        "submission": person.submission,
        "at": when(person.submitted_at),
        "state": stands.state,
        "words": _word(stands),
        "why": stands.why,
        "todo": stands.todo,
        "near": [_pair(season, near, most) for near in (stands.near if most is None else stands.near[:1])],
    }


def _pair(season: Season, near: Json, most: int | None) -> Json:
    earlier, prints = near["earlier"], near["fingerprints"]
    key = earlier["participant"]
    passages = [
        {
            "mine": _place(passage["file"], passage["lines"]),
            "theirs": _place(passage["earlier_file"], passage["earlier_lines"]),
        }
        for passage in near["passages"]
    ]
    same = [{"mine": f"{file['file']}, all bytes", "theirs": file["earlier_file"]} for file in near["same_files"]]
    return {
        "name": season.name(key) if key in season.participants else key,
        "href": participant_page(key) if key in season.participants else "",
        "submission": earlier["submission"],
        "at": "" if earlier["at"] is None else when(instant(earlier["at"])),
        "common": f"{prints['common']} of {prints['own']}",
        "passages": passages[:most],
        "more": max(0, len(passages) - (len(passages) if most is None else most)),
        "same": same[:most],
    }


def _place(file: str, lines: list[int]) -> str:
    return f"{file}:{lines[0]}–{lines[1]}"


def alike(season: Season, key: str | None = None) -> Iterator[str]:
    """A sentence for each pair with equal outcomes; key: only those of one participant. None where that is not known yet."""
    for pair in (margins.of(season) or {"equal_outcomes": ()})["equal_outcomes"]:
        if key is None or key in pair["participants"]:
            first, other = (season.name(name) for name in pair["participants"])
            yield (
                f"{first} and {other} passed exactly the same {pair['passed']} of {pair['tasks']} tasks: by chance at most once "
                f"in {pair['ways']}, and {pair['pairs']} pairs were compared. It is a reason to look, and holds nobody."
            )
