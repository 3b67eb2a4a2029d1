"""`assay enclave verify`: what an attestation proves, stage by stage, or the first thing that is not right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from assay.enclave.attest import Collateral, Verified
    from assay.scheme.measured import Measured

__all__ = ["policy_of", "verify"]


def verify(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An attestation, or a bare quote (bytes, or hex).", show_default=False)
    ],
    compose_hash: Annotated[str | None, typer.Option(metavar="HEX", help="SHA-256 of the app-compose.json to run.")] = None,
    mrtd: Annotated[str | None, typer.Option(metavar="HEX", help="The firmware's measurement.")] = None,
    rtmr0: Annotated[str | None, typer.Option(metavar="HEX", help="The virtual hardware's.")] = None,
    rtmr1: Annotated[str | None, typer.Option(metavar="HEX", help="The kernel's.")] = None,
    rtmr2: Annotated[str | None, typer.Option(metavar="HEX", help="The root file system's.")] = None,
    rtmr3: Annotated[str | None, typer.Option(metavar="HEX", help="That of all that dstack logged.")] = None,
    tcb: Annotated[
        list[str] | None, typer.Option(metavar="STATUS", help="A TCB status to accept beside UpToDate; may be repeated.")
    ] = None,
    collateral: Annotated[Path | None, typer.Option(metavar="FILE", help="The quote's collateral, in place of its own.")] = None,
    report_data: Annotated[str | None, typer.Option(metavar="HEX", help="The 64 bytes that a bare quote must carry.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="The time to verify at; otherwise now.")] = None,
    development: Annotated[bool, typer.Option("--development", help="Accept a development root, which proves nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As canonical JSON.")] = False,
) -> None:
    """Check what an enclave's attestation proves: a real machine, up to date, that runs this program and states these keys.

    It works offline, with the collateral in the attestation or beside it. Says what was checked, or the first stage that is not
    right, what was expected and what was found. What could not be looked at is said too.

    Ends with 0 if everything that was looked at is right, 1 if something is not.

    \b
    Examples:
      assay enclave verify attestation.json --compose-hash 8f7c…
      assay enclave verify quote.bin --rtmr3 0000… --collateral collateral.json --at 2025-07-01T00:00:00Z
    """
    from assay.errors import Refused

    pins = {
        "compose_hash": compose_hash,
        "mrtd": mrtd,
        "rtmr0": rtmr0,
        "rtmr1": rtmr1,
        "rtmr2": rtmr2,
        "rtmr3": rtmr3,
    }
    policy = policy_of(pins, tcb or [], development=development)
    try:
        found = _checked(file, policy, _collateral(collateral), report_data, _time(at))
    except Refused as refused:
        if as_json:
            from assay.cli.output import json_bytes, put, refused_json

            put(json_bytes(refused_json(refused)), None)
            raise typer.Exit(refused.exit_code) from None
        raise
    if as_json:
        from assay.cli.output import json_bytes, put

        put(json_bytes(found.document()), None)
        return
    _show(found)


def policy_of(pins: dict[str, str | None], tcb: list[str], *, development: bool) -> Measured:
    """What must be measured, by the options; raises BadInput that names the option."""
    from assay.errors import BadInput
    from assay.scheme.load import validate
    from assay.scheme.measured import Measured

    given: dict[str, Any] = {name: value for name, value in pins.items() if value is not None}
    if not {"compose_hash", "rtmr3"} & given.keys():
        what = "nothing says which program must run there"
        raise BadInput(what, hint="give --compose-hash (`assay enclave compose-hash` prints it) or --rtmr3")
    try:
        return validate(Measured, given | {"development": development} | ({"tcb": tcb} if tcb else {}))
    except BadInput as error:
        error.field = f"--{error.field.partition('[')[0].replace('_', '-')}"
        raise


def _time(said: str | None) -> int:
    """Seconds since 1970; the clock's, if none are said."""
    import time

    from assay.errors import BadInput
    from assay.scheme.times import instant

    if said is None:
        return int(time.time())
    try:
        return int(instant(said).timestamp())
    except BadInput as error:
        raise error.at(field="--at") from None


def _collateral(file: Path | None) -> Collateral | None:
    from assay.enclave.attest import read_collateral

    return None if file is None else read_collateral(file)


def _checked(file: Path, policy: Measured, collateral: Collateral | None, report_data: str | None, now: int) -> Verified:
    """Verify what is in the file; raises BadInput and Refused."""
    from assay.enclave.attest import verify as check
    from assay.enclave.attest import verify_quote
    from assay.enclave.attest.document import ATTESTATION_BYTES, parse
    from assay.errors import BadInput
    from assay.folder.text import load

    data = load(file, ATTESTATION_BYTES, hint="give an attestation, or a quote")
    if data.lstrip().startswith(b"{"):
        if report_data is not None:
            raise BadInput("an attestation says itself what it binds", field="--report-data", hint="leave it out")
        return check(parse(data, file), policy=policy, now=now, collateral=collateral)
    wanted = None if report_data is None else _bytes(report_data)
    return verify_quote(_quote(data), policy=policy, now=now, collateral=collateral, report_data=wanted)


def _quote(data: bytes) -> bytes:
    """The bytes of a quote, which may be written in hex."""
    try:
        return bytes.fromhex(data.decode("ascii").strip().removeprefix("0x"))
    except ValueError:
        return data


def _bytes(text: str) -> bytes:
    from assay.errors import BadInput

    try:
        found = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        found = b""
    if len(found) != 64:
        raise BadInput("is not 64 bytes in hex", field="--report-data", hint="write 128 hex digits")
    return found


def _show(found: Verified) -> None:
    from assay.cli.show import Column, grid, heading, sentence, show, stages

    about = found.statement["type"] if found.statement else "quote"
    how = "of a development root, so it proves nothing" if found.development else "verified"
    show(heading(f"{about}: {how}"), stages(found.checked), "")
    if found.development:
        show(sentence("Anybody can make such an attestation. Never seal anything to it that is worth something."), "")
    bound = {name: value for name, value in (found.statement or {"report data": found.report_data}).items() if name != "type"}
    facts = bound | found.logged
    show(grid([Column("", list(facts)), Column("what it says", list(facts.values()), kind="key")]))
