"""`assay enclave collateral`: what it takes to verify a quote offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["collateral", "quote_in"]


def collateral(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="An attestation, dstack's reply, or a bare quote (bytes, or hex).", show_default=False
        ),
    ],
    source: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="A service that keeps collateral (PCCS); otherwise Intel's own.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")] = None,
) -> None:
    """Fetch the collateral of a quote: what Intel says now of its platform, good for a month or so.

    It is signed by Intel, so it does not matter who gives it. With it, `assay enclave verify --collateral` works offline. Nobody
    but the service learns that you asked; it learns which model of platform.

    \b
    Example:
      assay enclave collateral attestation.json -o collateral.json
    """
    from assay.cli.output import json_bytes, put
    from assay.enclave.attest.document import ATTESTATION_BYTES
    from assay.enclave.attest.fetch import INTEL, fetch
    from assay.folder.text import load

    data = load(file, ATTESTATION_BYTES, hint="give an attestation, or a quote")
    put(json_bytes(fetch(quote_in(data, file), source or INTEL).document()), output)


def quote_in(data: bytes, file: Path) -> bytes:
    """The quote in the bytes of a file, be it an attestation, dstack's reply, bytes or hex; raises BadInput."""
    from assay.enclave.attest.document import parse, reply_in

    if (reply := reply_in(data, file)) is not None:
        return reply.quote
    if data.lstrip().startswith(b"{"):
        return bytes.fromhex(parse(data, file).quote)
    try:
        return bytes.fromhex(data.decode("ascii").strip().removeprefix("0x"))
    except ValueError:
        return data
