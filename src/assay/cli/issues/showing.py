"""What a validator counted, as tables: everybody in a line each, or one participant issue by issue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.judge.issues.kept import KeptChange, KeptEvent, KeptIssue
    from assay.judge.issues.shown import Line

__all__ = ["chosen", "document", "everybody", "one"]


def chosen(folder: Path, participant: str | None, validator: str | None) -> tuple[list[Line], str]:
    """The lines that are asked for, and whose count it is; raises BadInput if there are none."""
    from assay.cli.keys import find, validator_of
    from assay.errors import BadInput
    from assay.folder import csvs, registry
    from assay.folder.places import Place
    from assay.judge.issues import shown
    from assay.scheme.load import read

    scheme = read(folder / "scheme.toml")
    whose = shown.here(folder, None if validator is None else validator_of(folder, validator))
    file = folder / csvs.PARTICIPANTS.name
    people = registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), scheme)
    keys = () if participant is None else (find(participant, people),)
    found = shown.lines(folder, whose, keys)
    if not found:
        who = f" of {keys[0]!r}" if keys else ""
        raise BadInput(f"{whose!r} has no records{who}", file=folder / "evidence", hint="`assay run` makes them")
    return found, whose


def everybody(found: Sequence[Line], folder: Path) -> Iterator[RenderableType]:
    """A line for each participant and repository."""
    from assay.cli.judging.words import table
    from assay.cli.show import command
    from assay.judge.issues.shown import rows

    yield table(rows(found))
    yield ""
    yield command("Issue by issue", "assay", "issues", "show", folder, found[0].participant)


def one(found: Sequence[Line], folder: Path) -> Iterator[RenderableType]:
    """Each repository of one participant: the account, the issues, what counts for nothing, the records."""
    from assay.cli.show import heading, note, sentence
    from assay.scheme.times import instant_text

    for number, line in enumerate(found):
        if number:
            yield ""
        yield heading(f"{line.participant} in {line.repository}")
        if line.kept is None:
            yield sentence("What was read is not kept here; the records are all there is.")
        else:
            mine = next((one for one in line.kept.accounts if one.participant == line.participant), None)
            if mine is not None:
                star = f", has starred it since {instant_text(mine.starred_at)}" if mine.starred_at else ", has not starred it"
                yield sentence(f"Account {mine.login} ({mine.account}){star}.")
            yield sentence(f"Read on {instant_text(line.kept.read_at)}.")
        yield ""
        yield from _issues(line.issues)
        yield _records(line)
        for epoch in line.differs:
            yield note(f"GitHub tells epoch {epoch} otherwise now; its record stays.")


def _issues(issues: Sequence[KeptIssue]) -> Iterator[RenderableType]:
    from assay.cli.show import Column, grid, heading
    from assay.scheme.times import instant_text

    def label(event: KeptEvent) -> str:
        return f"{'+' if event.added else '−'}{event.label}"

    counted = [(one, change) for one in issues for change in one.changes]
    if counted:
        yield grid(
            [
                Column("issue", [f"#{one.number}" for one, _ in counted], right=True),
                Column("epoch", [str(change.epoch) for _, change in counted], right=True),
                Column("counts", [_counts(change) for _, change in counted]),
                Column("label", [label(change.event) for _, change in counted], kind="crop"),
                Column("by", [change.event.by or "?" for _, change in counted], kind="crop"),
                Column("when", [instant_text(change.event.at) for _, change in counted]),
                Column("where", [one.url + _remark(one) for one, _ in counted], spare=1),
            ]
        )
        yield ""
    strange = [(one, other) for one in issues for other in one.ignored]
    if strange:
        why = {"maintainer": "not a maintainer", "author": "the author himself"}
        yield heading("Labels that count for nothing")
        yield grid(
            [
                Column("issue", [f"#{one.number}" for one, _ in strange], right=True),
                Column("label", [label(other.event) for _, other in strange], kind="crop"),
                Column("by", [other.event.by or "?" for _, other in strange], kind="crop"),
                Column("when", [instant_text(other.event.at) for _, other in strange]),
                Column("why", [why[other.why] for _, other in strange]),
            ]
        )
        yield ""


def _remark(one: KeptIssue) -> str:
    return " (gone)" if one.gone else ""


def _counts(change: KeptChange) -> str:
    """What an epoch counts of a change: "valid", "valid revoked, invalid", "nothing"."""
    parts = [f"{change.before} revoked"] if change.before in ("valid", "invalid") else []
    parts += [change.after] if change.after in ("valid", "invalid") else []
    return ", ".join(parts) or f"nothing ({change.after or 'undecided'})"


def _records(line: Line) -> RenderableType:
    from assay.cli.show import Column, grid

    names = ("valid", "invalid", "revoked_valid", "revoked_invalid")
    columns = [Column("epoch", [str(one.epoch) for one in line.records], right=True)]
    columns += [Column(name.replace("_", " "), [str(getattr(one, name)) for one in line.records], right=True) for name in names]
    return grid([*columns, Column("starred", ["yes" if one.starred else "no" for one in line.records])])


def document(found: Sequence[Line], validator: str) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "validator": validator,
        "counts": [
            {
                "participant": line.participant,
                "repository": line.repository,
                "records": [one.document() for one in line.records],
                "issues": [one.model_dump(mode="json", exclude_none=True) for one in line.issues],
                "differs": list(line.differs),
            }
            for line in found
        ],
    }
