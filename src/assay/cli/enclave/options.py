"""Options and helpers that the commands for sealing and for enclaves share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.enclave.attest import Attestation, Collateral, EnclaveStatement
    from assay.enclave.submission import ParticipantFiles
    from assay.scheme.bounty import Bounty


Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The bounty's folder: scheme.toml and bounty.toml.", show_default=False)
]
UrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="The enclave's service: http://HOST:PORT or unix:PATH.")
]
CollateralOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The quote's collateral; replaces the attestation's own.")
]
AtOption = Annotated[str | None, typer.Option(metavar="TIME", help="The time to verify at; otherwise now.")]


def verification_time(text: str | None) -> int:
    """The option's time, otherwise the clock's, in seconds since 1970. Raises BadInput."""
    import time

    from assay.errors import BadInput
    from assay.scheme.fields import instant

    if text is None:
        return int(time.time())
    try:
        return int(instant(text).timestamp())
    except BadInput as error:
        raise error.at(field="--at") from None


def given_collateral(file: Path | None) -> Collateral | None:
    """The collateral in a file, if one is named; raises BadInput."""
    from assay.enclave.attest import read_collateral

    return None if file is None else read_collateral(file)


def enclave_keys(
    bounty: Bounty, attestation: Attestation, *, at: int, collateral: Collateral | None, verify: bool
) -> EnclaveStatement:
    """The keys of the bounty's enclave. Raises Refused if they do not verify; without `verify`, warns on stderr instead."""
    from assay.cli.errors import warn
    from assay.enclave import proofs

    if not verify:
        warn(["the attestation is not verified: whoever made it can read what you seal to it, with or without an enclave"])
        return proofs.stated_keys(bounty, attestation)
    statement, checked = proofs.check_enclave(bounty, attestation, now=at, collateral=collateral)
    if checked.development:
        warn(["the enclave is of a development root, which proves nothing: its operator can read what is sealed to it"])
    return statement


def keep_answer(place: ParticipantFiles, file: Path, answer: bytes) -> Path:
    """Store the enclave's signed statement about a file, and return its path."""
    from assay.folder import write_bytes

    path = place.taken(file)
    write_bytes(path, answer + b"\n")
    return path


def print_values(rows: Mapping[str, object], *, as_json: bool) -> None:
    """Print names and values, as text or as JSON."""
    if as_json:
        from assay.cli.output import emit

        emit({name: value if value is None else str(value) for name, value in rows.items()})
        return
    from assay.cli.errors import printable

    for name, value in rows.items():
        if value is not None:
            typer.echo(printable(f"{name:11}  {value}"))
