"""`assay enclave verify` checks an attestation in stages; `assay enclave collateral` fetches what that needs offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.enclave.options import AtOption, CollateralOption

if TYPE_CHECKING:
    from assay.enclave.attest import Attestation, Collateral, VerifiedQuote
    from assay.scheme.bounty import Measurements


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

    Intel signs it, so it does not matter who serves it. With it, `assay enclave verify --collateral` works offline. Only the
    service learns that you asked, and about which model of platform.

    \b
    Example:
      assay enclave collateral attestation.json -o collateral.json
    """
    from assay.cli.output import json_bytes, put
    from assay.enclave.attest.collateral import INTEL_SERVICE, fetch_collateral
    from assay.enclave.attest.document import ATTESTATION_BYTES
    from assay.folder.files import load

    data = load(file, ATTESTATION_BYTES, hint="give an attestation, or a quote")
    put(json_bytes(fetch_collateral(quote_in(data, file), source or INTEL_SERVICE).document()), output)


def quote_in(data: bytes, file: Path) -> bytes:
    """The quote in a file: an attestation, dstack's reply, bytes or hex. Raises BadInput."""
    from assay.enclave.attest.document import parse_attestation, parse_reply

    if (reply := parse_reply(data, file)) is not None:
        return reply.quote
    if data.lstrip().startswith(b"{"):
        return bytes.fromhex(parse_attestation(data, file).quote)
    try:
        return bytes.fromhex(data.decode("ascii").strip().removeprefix("0x"))
    except ValueError:
        return data


SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE|URL",
        help="An attestation, dstack's reply to GetQuote, a bare quote (bytes, or hex), or a service's address.",
        show_default=False,
    ),
]
BountyOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="A bounty's folder: use its pins, and require an attestation about it.")
]
TcbOption = Annotated[
    list[str] | None, typer.Option(metavar="STATUS", help="A TCB status to accept beside UpToDate; may be repeated.")
]


def verify(
    source: SourceArgument,
    bounty: BountyOption = None,
    compose_hash: Annotated[str | None, typer.Option(metavar="HEX", help="SHA-256 of the app-compose.json to run.")] = None,
    mrtd: Annotated[str | None, typer.Option(metavar="HEX", help="The firmware's measurement.")] = None,
    rtmr0: Annotated[str | None, typer.Option(metavar="HEX", help="The virtual hardware's measurement.")] = None,
    rtmr1: Annotated[str | None, typer.Option(metavar="HEX", help="The kernel's measurement.")] = None,
    rtmr2: Annotated[str | None, typer.Option(metavar="HEX", help="The root file system's measurement.")] = None,
    rtmr3: Annotated[str | None, typer.Option(metavar="HEX", help="The register of all events that dstack logged.")] = None,
    tcb: TcbOption = None,
    collateral: CollateralOption = None,
    report_data: Annotated[str | None, typer.Option(metavar="HEX", help="The 64 bytes that a bare quote must carry.")] = None,
    at: AtOption = None,
    development: Annotated[bool, typer.Option("--development", help="Accept a development root, which proves nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As canonical JSON.")] = False,
) -> None:
    """Check what an enclave's attestation proves: a real machine, up to date, that runs this program and states these keys.

    It works offline, with the collateral in the attestation or in a file. It prints the checked stages; or the first stage that
    is not right, with the expected and the actual value. It also prints what it could not check. With --bounty it uses that
    bounty's pins, and the attestation must be about that bounty. The attestation of a judgement must be of a judgement in its
    folder; the submission is printed too.

    The exit code is 0 if everything that was checked is right, and 1 if not.

    \b
    Examples:
      assay enclave verify http://127.0.0.1:8300 --bounty my-bounty
      assay enclave verify attestation.json --compose-hash 8f7c…
      assay enclave verify getquote.json --compose-hash 8f7c… --collateral collateral.json --report-data 5d1e…
      assay enclave verify quote.bin --rtmr3 0000… --collateral collateral.json --at 2025-07-01T00:00:00Z
    """
    from assay.cli.enclave.options import given_collateral, verification_time
    from assay.cli.errors import refuse
    from assay.cli.output import emit
    from assay.errors import BadInput, Refused

    pins = {"compose_hash": compose_hash, "mrtd": mrtd, "rtmr0": rtmr0, "rtmr1": rtmr1, "rtmr2": rtmr2, "rtmr3": rtmr3}
    policy = policy_of(pins, tcb or [], development=development) if bounty is None else None
    if bounty is not None and (tcb or development or report_data or any(pins.values())):
        raise BadInput("with --bounty nothing else is pinned", field="--bounty", hint="bounty.toml says what must be measured")
    try:
        verified, about = _check_source(source, policy, bounty, given_collateral(collateral), report_data, verification_time(at))
    except Refused as refused:
        refuse(refused, as_json=as_json)
    if as_json:
        emit(verified.document() | about)
    else:
        _show(verified, about)


def policy_of(pins: dict[str, str | None], tcb: list[str], *, development: bool) -> Measurements:
    """The measurements that the options pin. Raises BadInput that names the option."""
    from assay.errors import BadInput
    from assay.scheme.bounty import Measurements
    from assay.scheme.reading import validate

    fields: dict[str, Any] = {name: value for name, value in pins.items() if value is not None}
    if not {"compose_hash", "rtmr3"} & fields.keys():
        what = "nothing says which program must run there"
        raise BadInput(what, hint="give --compose-hash (`assay enclave compose-hash` prints it) or --rtmr3")
    try:
        return validate(Measurements, fields | {"development": development} | ({"tcb": tcb} if tcb else {}))
    except BadInput as error:
        error.field = f"--{error.field.partition('[')[0].replace('_', '-')}"
        raise


def _check_source(
    source: str,
    policy: Measurements | None,
    bounty: Path | None,
    collateral: Collateral | None,
    report_data: str | None,
    now: int,
) -> tuple[VerifiedQuote, dict[str, str]]:
    """Verify the attestation or quote of a file or a service, by a policy or a bounty. Raises BadInput and Refused.

    Returns also, for a judgement in the bounty's folder, its `submission`.
    """
    from assay.enclave.attest import verify as check
    from assay.enclave.attest import verify_quote
    from assay.enclave.attest.document import parse_attestation, parse_reply
    from assay.errors import BadInput

    data, file = _data(source)
    reply = parse_reply(data, file)
    if reply is None and data.lstrip().startswith(b"{"):
        if report_data is not None:
            raise BadInput("an attestation states what it binds", field="--report-data", hint="leave it out")
        attestation = parse_attestation(data, file)
        if policy is None:
            assert bounty is not None  # one of the two is there
            return _of_bounty(bounty, attestation, collateral, now)
        return check(attestation, policy=policy, now=now, collateral=collateral), {}
    if policy is None:
        raise BadInput("is a bare quote, which does not name a bounty", file=file, hint="leave --bounty out, and give the pins")
    wanted = None if report_data is None else _bytes(report_data)
    if reply is None:
        return verify_quote(quote_in(data, Path(file)), policy=policy, now=now, collateral=collateral, report_data=wanted), {}
    of_reply = verify_quote(reply.quote, policy=policy, now=now, collateral=collateral, report_data=wanted, events=reply.events)
    reply.check(of_reply.report_data)
    return of_reply, {}


def _data(source: str) -> tuple[bytes, str]:
    """The bytes, and the name of their source. Raises BadInput and Unreachable."""
    from assay.enclave.attest.document import ATTESTATION_BYTES
    from assay.enclave.messages import EnclaveClient
    from assay.folder.files import load

    if source.startswith(("http://", "https://", "unix:")):
        with EnclaveClient(source) as client:
            return client.get("/attestation", ATTESTATION_BYTES), f"{source}/attestation"
    return load(Path(source), ATTESTATION_BYTES, hint="give an attestation, or a quote"), source


def _of_bounty(
    folder: Path, attestation: Attestation, collateral: Collateral | None, now: int
) -> tuple[VerifiedQuote, dict[str, str]]:
    """Verify an attestation of the bounty's enclave, or of a judgement in its folder. Raises Refused."""
    from assay.enclave import proofs
    from assay.enclave.attest import JudgementStatement
    from assay.errors import Refused
    from assay.judge.rubric.stored import document_of
    from assay.scheme.bounty import read_bounty

    terms = read_bounty(folder)
    statement = attestation.statement
    if not isinstance(statement, JudgementStatement):
        return proofs.check_enclave(terms, attestation, now=now, collateral=collateral)[1], {}
    document = document_of(folder, statement.judgement)  # checked against its digest
    if document.get("bounty") != terms.digest:
        raise Refused("judgement", "it is of another bounty", expected=terms.digest, found=document.get("bounty"))
    verified = proofs.check_judgement(terms, attestation, statement.judgement, statement.signer, now=now, collateral=collateral)
    return verified, {"submission": str(document.get("submission"))}


def _bytes(text: str) -> bytes:
    from assay.errors import BadInput

    try:
        data = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        data = b""
    if len(data) != 64:
        raise BadInput("is not 64 bytes in hex", field="--report-data", hint="write 128 hex digits")
    return data


def _show(verified: VerifiedQuote, about: dict[str, str]) -> None:
    from assay.cli.show import Column, grid, heading, sentence, show, stages

    what = verified.statement["type"] if verified.statement else "quote"
    how = "of a development root, so it proves nothing" if verified.development else "verified"
    show(heading(f"{what}: {how}"), stages(verified.checked), "")
    if verified.development:
        show(sentence("Anybody can make such an attestation. Never seal anything valuable to it."), "")
    bound = {
        name: value for name, value in (verified.statement or {"report data": verified.report_data}).items() if name != "type"
    }
    facts = bound | about | verified.logged
    show(grid([Column("", list(facts)), Column("what it says", list(facts.values()), kind="key")]))
