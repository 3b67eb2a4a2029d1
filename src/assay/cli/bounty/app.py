"""`assay bounty`: what a sponsor asks for, told back to him."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.bounty import chain
from assay.cli.errors import warn

__all__ = ["app"]

app = typer.Typer(
    name="bounty", help="Bounties: what is asked for, how it is judged and paid.", no_args_is_help=True, rich_markup_mode=None
)


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="The bounty and what it comes to, as canonical JSON.")] = False,
) -> None:
    """Explain a bounty back in words: what is asked, by when, how it is judged, what is paid for what.

    Warns of what is allowed and probably not meant. The digest is over all of it: commitments, sealed solutions and judgements
    name it, so a bounty that is changed is another bounty.

    \b
    Examples:
      assay bounty check my-bounty
      assay bounty check my-bounty --json | jq -r .digest
    """
    from datetime import UTC, datetime

    from assay.cli.bounty.telling import chapters, document
    from assay.scheme.advice import advice
    from assay.scheme.bounty import read_bounty

    bounty = read_bounty(folder)
    _check_keys(bounty.terms.sponsor, bounty.terms.log, bounty.file)
    now = datetime.now(UTC)
    said = advice(bounty, now)
    if as_json:
        from assay.cli.output import json_bytes, put

        put(json_bytes(document(bounty, now, said)), None)
        return
    warn(f"{bounty.file}: {one}" for one in said)

    from assay.cli.chapters import rendered
    from assay.cli.show import heading, note, show

    show(heading(bounty.terms.title or bounty.terms.name), *rendered(chapters(bounty, now)), "", note(f"Digest {bounty.digest}"))


def _check_keys(sponsor: str | None, log: str | None, file: Path) -> None:
    """Refuse a key to which nothing can be sealed, and a log's key that is none; raises BadInput."""
    from assay.errors import BadInput
    from assay.ledger import keys
    from assay.ledger.check import LogKey
    from assay.ledger.refusal import as_bad_input

    try:
        if sponsor is not None:
            keys.sealing(sponsor)
    except BadInput as error:
        raise error.at(file=file, field="bounty.sponsor") from None
    if log is not None:
        with as_bad_input("copy it from ledger.toml, or from the log's operator", file=file, field="bounty.log"):
            LogKey.parse(log)


for _command in (chain.oracle, chain.create, chain.fund, chain.show, chain.commit, chain.settle, chain.claim, chain.refund):
    app.command()(_command)
