"""What a validator counted, for people: each participant in each repository, with the issues behind the numbers. SPEC 2.4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInput
from assay.judge import entries
from assay.judge.entries import known
from assay.judge.issues import kept
from assay.judge.issues.kept import Kept, KeptIssue
from assay.records import Evidence, Points
from assay.scheme.load import read as read_scheme
from assay.scheme.model import PointsScore

__all__ = ["Line", "here", "lines", "rows", "validators"]

NAMED = 12
"""Issues that one row names."""


@dataclass(frozen=True)
class Line:
    """A participant in a repository: the validator's records by epoch, and the issues that were read."""

    participant: str
    repository: str
    records: tuple[Points, ...]
    issues: tuple[KeptIssue, ...]
    kept: Kept | None

    def total(self, name: str) -> int:
        """The sum of a count over all epochs."""
        return sum(getattr(one, name) for one in self.records)

    @property
    def starred(self) -> bool:
        """What the record of the latest epoch says."""
        return self.records[-1].starred

    @property
    def differs(self) -> tuple[int, ...]:
        """Epochs whose record is another than the issues, as they were read last, would give."""
        if self.kept is None:
            return ()
        return tuple(one.epoch for one in self.records if _counted(one) != _of(self.issues, one.epoch))


def _counted(one: Points) -> tuple[int, int, int, int]:
    return one.valid, one.invalid, one.revoked_valid, one.revoked_invalid


def _of(issues: Sequence[KeptIssue], epoch: int) -> tuple[int, int, int, int]:
    found = [change for one in issues for change in one.changes if change.epoch == epoch]
    afters, befores = [change.after for change in found], [change.before for change in found]
    return afters.count("valid"), afters.count("invalid"), befores.count("valid"), befores.count("invalid")


def validators(folder: Path) -> list[str]:
    """The validators who have read issues in a competition's folder, by the names that files give."""
    return sorted({found.validator for path in (folder / "issues").glob("[!.]*/*.json") if (found := kept.read(path))})


def here(folder: Path, said: str | None) -> str:
    """The validator whose reading is meant: the one that is said, or the only one here. Raises BadInput."""
    there = validators(folder)
    if said is not None:
        known(said, there, folder / "issues", "validator who has read issues here")
        return said
    if len(there) != 1:
        what = f"{len(there)} validators have read issues here" if there else "nobody has read issues here yet"
        hint = f"say whose with --validator: {', '.join(there[:5])}" if there else "`assay run DIR --validator NAME` reads them"
        raise BadInput(what, file=folder / "issues", field="validator" if there else "", hint=hint)
    return there[0]


def lines(folder: Path, validator: str, participants: Sequence[str] = ()) -> list[Line]:
    """What a validator's evidence says, by participant and repository in the order of the files; raises BadInput.

    participants: only these, if there are any.
    """
    scheme = read_scheme(folder / "scheme.toml")
    if not isinstance(scheme.score, PointsScore):
        what = f"is {scheme.score.kind!r}, and issues are counted for points"
        raise BadInput(what, file=folder / "scheme.toml", field="score.kind", hint="name a competition of kind points")
    who = entries.read(folder, scheme, validator, participants)
    of: dict[tuple[str, str], list[Points]] = {}
    for one in sorted(entries.written(who, _same).done, key=lambda one: one.epoch):
        if isinstance(one, Points):
            of.setdefault((one.participant, one.repository), []).append(one)
    found = []
    read = {name: kept.read(kept.place(folder, validator, name)) for name in scheme.score.repositories}
    for person in who.participants:
        for name, reading in read.items():
            records = of.get((person.key, name))
            if records and (not participants or person.key in participants):
                mine = tuple(one for one in (reading.issues if reading else ()) if one.participant == person.key)
                found.append(Line(person.key, name, tuple(records), mine, reading))
    return found


def _same(one: Evidence) -> Evidence:
    return one


def rows(found: Sequence[Line]) -> list[Mapping[str, str]]:
    """The lines as a table."""
    return [
        {
            "participant": one.participant,
            "repo": one.repository,
            "valid": str(one.total("valid")),
            "invalid": str(one.total("invalid")),
            "revoked": str(one.total("revoked_valid") + one.total("revoked_invalid")),
            "star": "yes" if one.starred else "no",
            "issues": _issues(one.issues),
        }
        for one in found
    ]


def _issues(issues: Sequence[KeptIssue]) -> str:
    """The numbers of issues by the verdict that stands: "valid #1 #2, invalid #6"."""
    by: dict[str, list[int]] = {}
    for one in issues:
        if one.changes:
            by.setdefault(one.changes[-1].after or "undecided", []).append(one.number)
    order = ("valid", "invalid", "duplicate", "undecided")
    return ", ".join(f"{verdict} {_numbers(by[verdict])}" for verdict in order if verdict in by)


def _numbers(found: Sequence[int]) -> str:
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return " ".join(f"#{number}" for number in found[:NAMED]) + more
