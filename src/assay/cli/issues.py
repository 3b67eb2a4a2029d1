"""`assay issues`: link an account to a participant, look up GitHub ids, and show what counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.judge.github.stored import CountLine, StoredChange, StoredEvent, StoredIssue


def told(why: str, seconds: float) -> None:
    """On stderr: why, and when it is tried again."""
    from assay.cli.errors import printable
    from assay.cli.judging.live import duration

    typer.echo(printable(f"{why}; again in {duration(seconds)}"), err=True)


def chosen(folder: Path, participant: str | None, validator: str | None) -> tuple[list[CountLine], str]:
    """The lines that are asked for, and whose count it is; raises BadInput if there are none."""
    from assay.cli.keys import find, validator_of
    from assay.errors import BadInput
    from assay.folder import csvs, registry
    from assay.folder.files import Place
    from assay.judge.github import stored
    from assay.scheme.load import read

    scheme = read(folder / "scheme.toml")
    whose = stored.chosen_validator(folder, None if validator is None else validator_of(folder, validator))
    file = folder / csvs.PARTICIPANTS.name
    people = registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), scheme)
    keys = () if participant is None else (find(participant, people),)
    found = stored.count_lines(folder, whose, keys)
    if not found:
        who = f" of {keys[0]!r}" if keys else ""
        raise BadInput(f"{whose!r} has no records{who}", file=folder / "evidence", hint="`assay run` makes them")
    return found, whose


def everybody(found: Sequence[CountLine], folder: Path) -> Iterator[RenderableType]:
    """A line for each participant and repository."""
    from assay.cli.judging.live import table
    from assay.cli.show import command
    from assay.judge.github.stored import table_rows

    yield table(table_rows(found))
    yield ""
    yield command("Issue by issue", "assay", "issues", "show", folder, found[0].participant)


def one(found: Sequence[CountLine], folder: Path) -> Iterator[RenderableType]:
    """Each repository of one participant: the account, the issues, what counts for nothing, the records."""
    from assay.cli.show import heading, note, sentence
    from assay.scheme.fields import instant_text

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


def _issues(issues: Sequence[StoredIssue]) -> Iterator[RenderableType]:
    from assay.cli.show import Column, grid, heading
    from assay.scheme.fields import instant_text

    def label(event: StoredEvent) -> str:
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


def _remark(one: StoredIssue) -> str:
    return " (gone)" if one.gone else ""


def _counts(change: StoredChange) -> str:
    """What an epoch counts of a change: "valid", "valid revoked, invalid", "nothing"."""
    parts = [f"{change.before} revoked"] if change.before in ("valid", "invalid") else []
    parts += [change.after] if change.after in ("valid", "invalid") else []
    return ", ".join(parts) or f"nothing ({change.after or 'undecided'})"


def _records(line: CountLine) -> RenderableType:
    from assay.cli.show import Column, grid

    names = ("valid", "invalid", "revoked_valid", "revoked_invalid")
    columns = [Column("epoch", [str(one.epoch) for one in line.records], right=True)]
    columns += [Column(name.replace("_", " "), [str(getattr(one, name)) for one in line.records], right=True) for name in names]
    return grid([*columns, Column("starred", ["yes" if one.starred else "no" for one in line.records])])


def document(found: Sequence[CountLine], validator: str) -> dict[str, Any]:
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


app = typer.Typer(
    name="issues", help="Issues: accounts linked, and what counted for whom.", no_args_is_help=True, rich_markup_mode=None
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)]


@app.command()
def link(
    competition: Annotated[Path, typer.Option(metavar="DIR", help="The competition's folder.", show_default=False)],
    key: Annotated[str, typer.Option(metavar="NAME", help="The participant's key: `assay keys list`.", show_default=False)],
    login: Annotated[str, typer.Option(metavar="LOGIN", help="The name of the account on GitHub.", show_default=False)],
    participant: Annotated[
        str | None, typer.Option(metavar="KEY", help="The participant, if he is not called by that key in participants.csv.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the statement by which a participant links a GitHub account.

    It is signed with the participant's key. The account then publishes it, in a gist or in a comment on an issue; where that is
    goes into accounts.csv. The account is known by its id, so that another one under its name is not taken for it.

    \b
    Examples:
      assay issues link --competition my-competition --key robin --login robin-codes
      assay issues link --competition my-competition --key robin --login robin-codes | gh gist create --public -
    """
    from assay.cli.ledger.keys import asking
    from assay.judge.github import accounts as making
    from assay.ledger import keys

    signer = keys.load(key, asking())
    statement = making.make_statement(competition, signer, login, participant, told)
    if emit({"login": login, "statement": statement}, as_json):
        return
    typer.echo(statement, nl=False)
    typer.echo(f"Publish it as {login}, in a gist or in a comment on an issue, and give its address for accounts.csv.", err=True)


@app.command("id")
def id_(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="An account, or a repository as OWNER/NAME.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show the id of an account or a repository, which issues.toml goes by: names change, and can be taken by others.

    \b
    Examples:
      assay issues id my-competition kestrel
      assay issues id my-competition PlatformNetwork/bounty-challenge
    """
    from assay.judge.github import accounts, rules

    api = rules.read_api_url(folder)
    found = accounts.look_up_repository(api, name, told) if "/" in name else accounts.look_up_account(api, name, told)
    if emit({"name": name, "id": found.id}, as_json):
        return
    typer.echo(str(found.id))


@app.command()
def show(
    folder: Folder,
    participant: Annotated[
        str | None, typer.Argument(metavar="[PARTICIPANT]", help="Key, short form, name, or a beginning; otherwise all.")
    ] = None,
    validator: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose count: a key or a name; otherwise the only one there is.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a validator counted: for everybody, or for one participant issue by issue.

    Of an issue: each epoch in which the verdict on it changed, the label that decided, who set it and when. Labels that count
    for nothing, since a stranger or the author himself set them, are listed too.

    \b
    Examples:
      assay issues show my-competition
      assay issues show my-competition robin --validator heron
    """

    found, whose = chosen(folder, participant, validator)
    if emit(document(found, whose), as_json):
        return
    from assay.cli.show import show as print_

    print_(*(everybody(found, folder) if participant is None else one(found, folder)))
