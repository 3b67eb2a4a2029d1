"""Results for programs: canonical JSON, CSV, and files that are written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.errors import told
from assay.exact import canonical

if TYPE_CHECKING:
    from assay.errors import Refused
    from assay.settle import Settlement

__all__ = ["AsJson", "emit", "json_bytes", "put", "refused_json", "settlement_csv"]

Json = dict[str, Any]
AsJson = Annotated[bool, typer.Option("--json", help="As one line of canonical JSON.")]


def json_bytes(document: Json) -> bytes:
    """The document as one line of canonical JSON (RFC 8785)."""
    return canonical(document) + b"\n"


def emit(document: Json | Callable[[], Json], as_json: bool = True) -> bool:
    """Print a command's result for programs, one document on stdout, if `as_json`; returns whether it did.

    document: may be a function, where only a program needs it made.
    """
    if as_json:
        put(json_bytes(document() if callable(document) else document), None)
    return as_json


def refused_json(error: Refused) -> Json:
    """What is not right, as `--json` of a command that verifies has it."""
    plain = {
        name: None if value is None else told(value) for name, value in (("expected", error.expected), ("found", error.found))
    }
    place = {"file": None if error.file is None else str(error.file), "line": error.line}
    return {
        "verified": False,
        "stage": error.stage,
        "participant": error.participant or None,
        "what": error.what,
        **plain,
        **place,
    }


def settlement_csv(settlement: Settlement) -> bytes:
    """The rows of the ranking, or of weights or payouts; the last of those, without a participant, is what burns or returns."""
    from assay.folder.csvs import dumped
    from assay.settle.document import BURNT, PAYOUTS, WEIGHTS
    from assay.tables import flat

    document = settlement.document
    if settlement.inputs.scheme.reward.kind == "ranking":
        from assay.cli import board

        return dumped(board.COLUMNS, [board.plain(row) for row in board.rows(settlement)])
    if document["burn"] is None:
        return dumped(tuple(flat(PAYOUTS)), [*document["payouts"], {"net": document["refund"]}])
    burn = {name: document["burn"][name] for name in BURNT}
    return dumped(tuple(flat(WEIGHTS)), [*document["weights"], burn])


def put(data: bytes, file: Path | None) -> None:
    """The bytes into a file, or onto stdout where there is none or it is "-"."""
    if file is None or str(file) == "-":
        typer.echo(data, nl=False)
    else:
        from assay.folder import write_bytes

        write_bytes(file, data)
