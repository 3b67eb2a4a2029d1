"""What the commands of sealing and of the enclave share: options, and whose keys they take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.enclave.attest import Attestation, Collateral, EnclaveStatement
    from assay.enclave.handing_in import Place
    from assay.scheme.bounty import Bounty

__all__ = ["AtOption", "CollateralOption", "Folder", "UrlOption", "collateral_in", "enclaves_keys", "kept", "seconds_of", "tell"]

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The bounty's folder: scheme.toml and bounty.toml.", show_default=False)
]
UrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="The enclave's service: http://HOST:PORT or unix:PATH.")
]
CollateralOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The quote's collateral, in place of the attestation's own.")
]
AtOption = Annotated[str | None, typer.Option(metavar="TIME", help="The time to verify at; otherwise now.")]


def seconds_of(said: str | None) -> int:
    """Seconds since 1970; the clock's, if none are said. Raises BadInput."""
    import time

    from assay.errors import BadInput
    from assay.scheme.times import instant

    if said is None:
        return int(time.time())
    try:
        return int(instant(said).timestamp())
    except BadInput as error:
        raise error.at(field="--at") from None


def collateral_in(file: Path | None) -> Collateral | None:
    """The collateral in a file, if one is named; raises BadInput."""
    from assay.enclave.attest import read_collateral

    return None if file is None else read_collateral(file)


def enclaves_keys(
    bounty: Bounty, found: Attestation, *, at: int, collateral: Collateral | None, verify: bool
) -> EnclaveStatement:
    """The keys of the bounty's enclave, verified unless that is waived; raises Refused. What is risked is said on stderr."""
    from assay.cli.errors import warn
    from assay.enclave import attested

    if not verify:
        warn(["the attestation is not verified: whoever gave it can read what is sealed to it, enclave or not"])
        return attested.stated(bounty, found)
    said, checked = attested.check_enclave(bounty, found, now=at, collateral=collateral)
    if checked.development:
        warn(["the enclave is of a development root, which proves nothing: its operator can read what is sealed to it"])
    return said


def kept(place: Place, file: Path, answer: bytes) -> Path:
    """Keep what the enclave signed of a file, and return where."""
    from assay.folder import write_bytes

    path = place.taken(file)
    write_bytes(path, answer + b"\n")
    return path


def tell(rows: Mapping[str, object], *, as_json: bool) -> None:
    """Names and values, for people or as JSON."""
    if as_json:
        from assay.cli.output import json_bytes, put

        put(json_bytes({name: value if value is None else str(value) for name, value in rows.items()}), None)
        return
    from assay.cli.errors import printable

    for name, value in rows.items():
        if value is not None:
            typer.echo(printable(f"{name:11}  {value}"))
