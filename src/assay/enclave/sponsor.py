"""The sponsor's side: opens the sealed results, asks for the release of the winners' solutions, and checks and stores them.

    results.sealed              the judgements and their cost, sealed to the sponsor
    release.sealed              the winners' solutions, sealed to the sponsor
    solutions/HEX.json          each solution, under its digest, as `assay submit` stores it (0600)
    transcripts/HEX.sealed      the questions to the model and its answers, under the judgement's digest: `assay rejudge` reads it

Released solutions are checked against what was published: a solution by its digest, quotes and transcripts by the digests in the
judgements.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from assay.enclave.sealing import SealedFile
from assay.enclave.service.results import RELEASE_SCHEMA, SPONSOR_SCHEMA
from assay.errors import BadInput, Refused
from assay.exact import canonical
from assay.folder import strict
from assay.folder.files import decode, load, write_bytes
from assay.judge.rubric import stored
from assay.judge.rubric.judgement import quote_digest
from assay.judge.rubric.solution import Solution, parse_solution
from assay.judge.rubric.stored import TRANSCRIPTS, Transcript, digest_hex, document_of
from assay.judge.rubric.stored import seal_transcript as sealed_transcript
from assay.ledger import check, config
from assay.ledger.access import open_ledger, stored_settlement
from assay.ledger.keys import PrivateKey
from assay.scheme.bounty import Bounty
from assay.scheme.fields import Digest, Key, Section
from assay.scheme.reading import validate

_Hex = Annotated[str, Field(pattern="^[0-9a-f]{64}$", repr=False)]
_Text = Annotated[str, Field(repr=False)]


class _SolutionDocument(Section):
    participant: Key
    submission: Digest
    judgement: Digest
    solution: _Text
    salt: _Hex
    quotes: Annotated[dict[str, str], Field(repr=False)]
    reasons: Annotated[dict[str, str], Field(repr=False)]
    transcript: _Text


class _ReleaseDocument(Section):
    bounty: Digest
    settlement: Digest
    solutions: Annotated[tuple[_SolutionDocument, ...], Field(strict=False)]


@dataclass(frozen=True)
class ReleasedSolution:
    """A winner's solution, with quotes and reasons by check."""

    participant: str
    judgement: str
    solution: Solution = field(repr=False)
    quotes: dict[str, str] = field(repr=False)
    reasons: dict[str, str] = field(repr=False)
    transcript: Transcript = field(repr=False)


def open_results(bounty: Bounty, sealed: SealedFile, key: PrivateKey) -> list[dict[str, Any]]:
    """The judgements in sealed results, one row each. Raises BadInput if they are of another sponsor or bounty."""
    content = _open_file(bounty, sealed, "results", SPONSOR_SCHEMA, key)
    rows: list[dict[str, Any]] = content["judgements"]
    return rows


def release_request(competition: Path, epoch: int | None, receipt: Path | None, settlement: Path | None) -> bytes:
    """The body of a release request, from the two files, the epoch, or the ledger's last settled epoch. Raises BadInput."""
    if receipt is not None or settlement is not None:
        if receipt is None or settlement is None:
            raise BadInput("a receipt goes with its settlement", field="--settlement", hint="give --receipt and --settlement")
        both = {"receipt": receipt, "settlement": settlement}
        return canonical({name: _json(path) for name, path in both.items()})
    if not config.exists(competition):
        hint = "`assay ledger init` makes one; or give --receipt and --settlement"
        raise BadInput("has no ledger, and a release needs a receipt", file=competition, hint=hint)
    with open_ledger(competition) as ledger:
        with ledger.store.reading() as view:
            last = view.settled_epoch()
        chosen = ledger.receipt(epoch if epoch is not None else last or 0)
        with ledger.store.reading() as view:
            document = stored_settlement(view, chosen.epoch)[0].document
        return canonical({"receipt": ledger.document(chosen), "settlement": strict.parse(document.decode())})


def open_release(bounty: Bounty, sealed: SealedFile, key: PrivateKey) -> list[ReleasedSolution]:
    """The solutions in a release, checked against the judgements in the folder. Raises BadInput and Refused."""
    content = _open_file(bounty, sealed, "release", RELEASE_SCHEMA, key)
    try:
        release = validate(_ReleaseDocument, {name: value for name, value in content.items() if name != "schema"})
    except BadInput as error:
        raise BadInput(
            "is not what an enclave releases", field=error.field, hint="the enclave runs another version of assay"
        ) from None
    return [_check_solution(bounty.file.parent, solution) for solution in release.solutions]


def write_released(bounty: Bounty, solutions: list[ReleasedSolution], key: PrivateKey) -> list[Path]:
    """Write released solutions and transcripts, readable by the owner alone; returns the files. Raises BadInput."""
    competition, written = bounty.file.parent, []
    for released in solutions:
        for path, data in (
            (stored.solution_file(competition, released.solution.digest), released.solution.data),
            (
                competition / TRANSCRIPTS / f"{digest_hex(released.judgement)}.sealed",
                sealed_transcript(released.transcript, [key.public], bounty=bounty.digest, judgement=released.judgement),
            ),
        ):
            stored.private_folder(path.parent)
            write_bytes(path, data, private=True)
            written.append(path)
    return written


def _open_file(bounty: Bounty, sealed: SealedFile, kind: str, schema: str, key: PrivateKey) -> dict[str, Any]:
    if sealed.kind != kind or sealed.bounty != bounty.digest:
        raise BadInput(f"is {sealed.kind} of bounty {sealed.bounty}", hint=f"wanted are {kind} of {bounty.digest}")
    content = strict.parse(decode(sealed.open(key), None))
    if not isinstance(content, dict) or content.get("schema") != schema or content.get("bounty") != bounty.digest:
        raise BadInput(f"does not hold the {kind}", hint="another version of the enclave answered")
    return content


def _check_solution(competition: Path, released: _SolutionDocument) -> ReleasedSolution:
    document = document_of(competition, released.judgement)
    blind = bytes.fromhex(released.salt)
    try:
        solution = parse_solution(base64.b64decode(released.solution, validate=True))
    except ValueError:
        raise BadInput("is not base64", field="solution", hint="another version of the enclave answered") from None
    data = released.transcript.encode()
    for what, wanted, actual in (
        ("solution", released.submission, solution.digest),
        ("submission", document["submission"], released.submission),
        ("quotes", document["quotes"], {name: quote_digest(text, blind) for name, text in released.quotes.items()}),
        ("transcript", document["transcript"], f"sha256:{sha256(data).hexdigest()}"),
    ):
        if wanted != actual:
            raise Refused("release", f"another {what} than was published", participant=released.participant)
    return ReleasedSolution(
        released.participant, released.judgement, solution, released.quotes, released.reasons, Transcript(data, blind)
    )


def _json(path: Path) -> Any:
    data = load(path, check.RECEIPT_BYTES * 16, hint="`assay receipt` and `assay settle --json` make them")
    try:
        return strict.parse(decode(data, path))
    except BadInput as error:
        raise error.at(file=path) from None
