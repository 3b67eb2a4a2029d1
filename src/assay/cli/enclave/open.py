"""`assay open`: open a sealed file, with the key that it is sealed to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["open_"]


def open_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sealed file (assay.sealed/1).", show_default=False)],
    key: Annotated[str, typer.Option(metavar="NAME", help="The key file that opens it: `assay keys new --kind x25519`.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file, for you alone.")
    ] = None,
) -> None:
    """Open what is sealed to a key of yours.

    That is results and released solutions, which are sealed to a sponsor's key. A solution is sealed to its enclave, whose key
    never leaves it: nobody else opens that.

    \b
    Examples:
      assay open my-bounty/results.sealed --key sponsor
      assay open my-bounty/release.sealed --key sponsor -o release.json
    """
    from assay.cli.ledger.keys import asking
    from assay.enclave import sealed
    from assay.errors import BadInput
    from assay.folder import write_bytes
    from assay.folder.text import load
    from assay.ledger import keys

    data = load(file, sealed.SEALED_BYTES, hint="give a file that was sealed")
    opener = keys.load(key, asking())
    try:
        found = sealed.parse(data).open(opener)
    except BadInput as error:
        raise error.at(file=file) from None
    if output is None:
        typer.echo(found, nl=False)
    else:
        write_bytes(output, found, private=True)
