"""What a run says beside its counts: who is not linked, what counts for nothing, where GitHub tells another history now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from assay.judge.issues.accounts import ACCOUNTS, Link
from assay.judge.issues.cells import Cell
from assay.judge.issues.counting import Counts
from assay.judge.issues.kept import Kept
from assay.judge.issues.linking import Links
from assay.records import Participant, Points

__all__ = ["Four", "otherwise", "reading", "unlinked", "words"]

SAID = 5
"""How many of many things a sentence names."""

Four = tuple[int, int, int, int]
"""valid, invalid, revoked_valid, revoked_invalid."""


def unlinked(found: Links, links: Sequence[Link], everybody: Sequence[Participant]) -> Iterator[str]:
    """Whose link is not right, and why; who has none. everybody: whose it is asked of."""
    keys = [one.key for one in everybody]
    for participant, why in found.refused.items():
        if participant in keys:
            yield f"No account is linked for {participant}: {why}"
    named = {link.participant for link in links}
    if without := [key for key in keys if key not in named]:
        yield f"Not in {ACCOUNTS.name}: {_several(without)}."


def reading(told: Kept) -> Iterator[str]:
    """What of a repository counts for nothing."""
    strange = Counter(one.event.by or "somebody who is gone" for issue in told.issues for one in issue.ignored)
    if strange:
        names = _several(f"{name} ({count})" for name, count in sorted(strange.items()))
        yield f"{told.repository}: labels that count for nothing, by {names}."
    for what, numbers in (
        ("deleted or moved away; what they counted stays", [one.number for one in told.issues if one.gone]),
        ("came from another repository, and count nowhere", [one.number for one in told.issues if one.moved]),
    ):
        if numbers:
            yield f"{told.repository}: {what}: {_several(f'#{number}' for number in numbers)}."


def otherwise(repository: str, done: Mapping[Cell, Four], counted: Mapping[str, Mapping[int, Counts]]) -> Iterator[str]:
    """Where an epoch that has its record would now come out in another way."""
    for cell, before in sorted(done.items(), key=lambda one: (one[0].participant, one[0].epoch)):
        if cell.repository == repository and cell.participant in counted:
            now = counted[cell.participant].get(cell.epoch, Counts())
            if (now.valid, now.invalid, now.revoked_valid, now.revoked_invalid) != before:
                what = f"GitHub tells epoch {cell.epoch} of {cell.participant} otherwise now; its record stays"
                yield f"{repository}: {what}."


def words(one: Points) -> str:
    """What a record says, for people: "5 valid, 1 invalid, starred"."""
    parts = [f"{one.valid} valid", f"{one.invalid} invalid"]
    parts += [f"{one.revoked_valid} valid revoked"] if one.revoked_valid else []
    parts += [f"{one.revoked_invalid} invalid revoked"] if one.revoked_invalid else []
    return ", ".join([*parts, *(["starred"] if one.starred else [])])


def _several(names: Iterable[str]) -> str:
    """The first few names of many."""
    listed = list(names)
    return ", ".join(listed[:SAID]) + (f" and {len(listed) - SAID} more" if len(listed) > SAID else "")
