"""`assay issues`: link an account, look up ids, show what counted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import AsJson, emit

__all__ = ["app"]

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
    from assay.cli.issues.waiting import told
    from assay.cli.ledger.keys import asking
    from assay.judge.issues import link as making
    from assay.ledger import keys

    signer = keys.load(key, asking())
    statement = making.statement(competition, signer, login, participant, told)
    if as_json:
        emit({"login": login, "statement": statement})
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
    from assay.cli.issues.waiting import told
    from assay.judge.issues import lookup, rules

    api = rules.api(folder)
    found = lookup.repository(api, name, told) if "/" in name else lookup.account(api, name, told)
    if as_json:
        emit({"name": name, "id": found.id})
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
    from assay.cli.issues.showing import chosen, document, everybody, one

    found, whose = chosen(folder, participant, validator)
    if as_json:
        emit(document(found, whose))
        return
    from assay.cli.show import show as print_

    print_(*(everybody(found, folder) if participant is None else one(found, folder)))
