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


def report_wait(why: str, seconds: float) -> None:
    """Says on stderr why GitHub makes the command wait, and for how long."""
    from assay.cli.errors import printable
    from assay.cli.judging.live import duration

    typer.echo(printable(f"{why}; again in {duration(seconds)}"), err=True)


def chosen(folder: Path, participant: str | None, validator: str | None) -> tuple[list[CountLine], str]:
    """The requested lines, and the validator that counted; raises BadInput if there are none."""
    from assay.cli.keys import find, validator_of
    from assay.errors import BadInput
    from assay.folder import csvs, registry
    from assay.folder.files import Place
    from assay.judge.github import stored
    from assay.scheme.load import read

    scheme = read(folder / "scheme.toml")
    whose = stored.chosen_validator(folder, None if validator is None else validator_of(folder, validator))
    file = folder / csvs.PARTICIPANTS.name
    participants = registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), scheme)
    keys = () if participant is None else (find(participant, participants),)
    lines = stored.count_lines(folder, whose, keys)
    if not lines:
        about = f" about {keys[0]!r}" if keys else ""
        raise BadInput(f"there is no evidence of {whose!r}{about}", file=folder / "evidence", hint="run `assay run` first")
    return lines, whose


def all_lines(lines: Sequence[CountLine], folder: Path) -> Iterator[RenderableType]:
    """A line for each participant and repository."""
    from assay.cli.judging.live import table
    from assay.cli.show import command
    from assay.judge.github.stored import table_rows

    yield table(table_rows(lines))
    yield ""
    yield command("Issue by issue", "assay", "issues", "show", folder, lines[0].participant)


def one_participant(lines: Sequence[CountLine]) -> Iterator[RenderableType]:
    """Each repository of one participant: the account, the issues, the labels that do not count, the records."""
    from assay.cli.show import heading, note, sentence
    from assay.scheme.fields import instant_text

    for number, line in enumerate(lines):
        if number:
            yield ""
        yield heading(f"{line.participant} in {line.repository}")
        if line.reading is None:
            yield sentence("The issues that were read are not stored here, only the records.")
        else:
            account = next((row for row in line.reading.accounts if row.participant == line.participant), None)
            if account is not None:
                since = account.starred_at
                star = f", has starred it since {instant_text(since)}" if since else ", has not starred it"
                yield sentence(f"Account {account.login} ({account.account}){star}.")
            yield sentence(f"Read on {instant_text(line.reading.read_at)}.")
        yield ""
        yield from _issues(line.issues)
        yield _records(line)
        for epoch in line.differs:
            yield note(f"GitHub's history of epoch {epoch} is different now; the record stays.")


def _issues(issues: Sequence[StoredIssue]) -> Iterator[RenderableType]:
    from assay.cli.show import Column, grid, heading
    from assay.scheme.fields import instant_text

    def label(event: StoredEvent) -> str:
        return f"{'+' if event.added else '−'}{event.label}"

    counted = [(issue, change) for issue in issues for change in issue.changes]
    if counted:
        yield grid(
            [
                Column("issue", [f"#{issue.number}" for issue, _ in counted], right=True),
                Column("epoch", [str(change.epoch) for _, change in counted], right=True),
                Column("counts", [_counts(change) for _, change in counted]),
                Column("label", [label(change.event) for _, change in counted], kind="crop"),
                Column("by", [change.event.by or "?" for _, change in counted], kind="crop"),
                Column("when", [instant_text(change.event.at) for _, change in counted]),
                Column("where", [issue.url + _remark(issue) for issue, _ in counted], spare=1),
            ]
        )
        yield ""
    ignored = [(issue, item) for issue in issues for item in issue.ignored]
    if ignored:
        why = {"maintainer": "not a maintainer", "author": "the author"}
        yield heading("Labels that do not count")
        yield grid(
            [
                Column("issue", [f"#{issue.number}" for issue, _ in ignored], right=True),
                Column("label", [label(item.event) for _, item in ignored], kind="crop"),
                Column("by", [item.event.by or "?" for _, item in ignored], kind="crop"),
                Column("when", [instant_text(item.event.at) for _, item in ignored]),
                Column("why", [why[item.why] for _, item in ignored]),
            ]
        )
        yield ""


def _remark(issue: StoredIssue) -> str:
    return " (gone)" if issue.gone else ""


def _counts(change: StoredChange) -> str:
    """The counts of a change in its epoch: "valid", "valid revoked, invalid", "nothing"."""
    parts = [f"{change.before} revoked"] if change.before in ("valid", "invalid") else []
    parts += [change.after] if change.after in ("valid", "invalid") else []
    return ", ".join(parts) or f"nothing ({change.after or 'undecided'})"


def _records(line: CountLine) -> RenderableType:
    from assay.cli.show import Column, grid

    names = ("valid", "invalid", "revoked_valid", "revoked_invalid")
    columns = [Column("epoch", [str(record.epoch) for record in line.records], right=True)]
    columns += [
        Column(name.replace("_", " "), [str(getattr(record, name)) for record in line.records], right=True) for name in names
    ]
    return grid([*columns, Column("starred", ["yes" if record.starred else "no" for record in line.records])])


def document(lines: Sequence[CountLine], validator: str) -> dict[str, Any]:
    """The counts as JSON."""
    return {
        "validator": validator,
        "counts": [
            {
                "participant": line.participant,
                "repository": line.repository,
                "records": [record.document() for record in line.records],
                "issues": [issue.model_dump(mode="json", exclude_none=True) for issue in line.issues],
                "differs": list(line.differs),
            }
            for line in lines
        ],
    }


app = typer.Typer(
    name="issues",
    help="GitHub issues: link an account, and show which issues counted for whom.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)]


@app.command()
def link(
    competition: Annotated[Path, typer.Option(metavar="DIR", help="The competition's folder.", show_default=False)],
    key: Annotated[str, typer.Option(metavar="NAME", help="The participant's key: `assay keys list`.", show_default=False)],
    login: Annotated[str, typer.Option(metavar="LOGIN", help="The name of the account on GitHub.", show_default=False)],
    participant: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The participant, if participants.csv names them otherwise."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the statement by which a participant links a GitHub account.

    It is signed with the participant's key. The account then publishes it, in a gist or in a comment on an issue, and the address
    of that goes into accounts.csv. The statement has the account's id, so another account cannot take over its name.

    \b
    Examples:
      assay issues link --competition my-competition --key robin --login robin-codes
      assay issues link --competition my-competition --key robin --login robin-codes | gh gist create --public -
    """
    from assay.cli.ledger.keys import asking
    from assay.judge.github import accounts
    from assay.ledger import keys

    signer = keys.load(key, asking())
    statement = accounts.make_statement(competition, signer, login, participant, report_wait)
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
    """Show the id of an account or a repository for issues.toml. Names change, and others can take them; ids stay.

    \b
    Examples:
      assay issues id my-competition kestrel
      assay issues id my-competition PlatformNetwork/bounty-challenge
    """
    from assay.judge.github import accounts, rules

    api = rules.read_api_url(folder)
    look_up = accounts.look_up_repository if "/" in name else accounts.look_up_account
    number = look_up(api, name, report_wait).id
    if emit({"name": name, "id": number}, as_json):
        return
    typer.echo(str(number))


@app.command()
def show(
    folder: Folder,
    participant: Annotated[
        str | None, typer.Argument(metavar="[PARTICIPANT]", help="Key, short form, name, or its beginning; otherwise all.")
    ] = None,
    validator: Annotated[
        str | None, typer.Option(metavar="NAME", help="The validator that counted: a key or a name; otherwise the only one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a validator counted: for all participants, or for one participant issue by issue.

    For each issue it shows the epochs in which the verdict changed, the label that decided, who set it and when. It also lists
    labels that do not count, because the author or an account that may not decide set them.

    \b
    Examples:
      assay issues show my-competition
      assay issues show my-competition robin --validator heron
    """

    lines, whose = chosen(folder, participant, validator)
    if emit(document(lines, whose), as_json):
        return
    from assay.cli.show import show as print_

    print_(*(all_lines(lines, folder) if participant is None else one_participant(lines)))
