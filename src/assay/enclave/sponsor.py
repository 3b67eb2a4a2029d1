"""A sponsor's side: the sealed results, and the winners' solutions once they are released.

    results.sealed              what was judged and what it took, sealed to the sponsor
    release.sealed              the winners' solutions, sealed to the sponsor
    solutions/HEX.json          each of them, under its digest, as `assay submit` keeps them (0600)
    transcripts/HEX.sealed      what the model was asked and said, under the judgement's digest: `assay rejudge` reads it

What is released is checked against what was published: solutions by their digests, quotes and transcripts by those in the
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


class _Solution(Section):
    participant: Key
    submission: Digest
    judgement: Digest
    solution: _Text
    salt: _Hex
    quotes: Annotated[dict[str, str], Field(repr=False)]
    reasons: Annotated[dict[str, str], Field(repr=False)]
    transcript: _Text


class _Release(Section):
    bounty: Digest
    settlement: Digest
    solutions: Annotated[tuple[_Solution, ...], Field(strict=False)]


@dataclass(frozen=True)
class ReleasedSolution:
    """A winner's solution, with quotes and reasons by check."""

    participant: str
    judgement: str
    solution: Solution = field(repr=False)
    quotes: dict[str, str] = field(repr=False)
    reasons: dict[str, str] = field(repr=False)
    transcript: Transcript = field(repr=False)


def open_results(bounty: Bounty, found: SealedFile, key: PrivateKey) -> list[dict[str, Any]]:
    """The judgements in sealed results, a row each; raises BadInput if they are not this sponsor's, of this bounty."""
    said = _open_file(bounty, found, "results", SPONSOR_SCHEMA, key)
    rows: list[dict[str, Any]] = said["judgements"]
    return rows


def release_request(competition: Path, epoch: int | None, receipt: Path | None, settlement: Path | None) -> bytes:
    """The body of a release request: the ledger's last settled epoch, a given epoch, or two files. Raises BadInput."""
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


def open_release(bounty: Bounty, found: SealedFile, key: PrivateKey) -> list[ReleasedSolution]:
    """The solutions in a release, checked against the judgements in the folder; raises BadInput, and Refused."""
    said = _open_file(bounty, found, "release", RELEASE_SCHEMA, key)
    try:
        made = validate(_Release, {name: value for name, value in said.items() if name != "schema"})
    except BadInput as error:
        raise BadInput("is not what an enclave releases", field=error.field, hint="another version of it answered") from None
    return [_check_solution(bounty.file.parent, one) for one in made.solutions]


def write_released(bounty: Bounty, found: list[ReleasedSolution], key: PrivateKey) -> list[Path]:
    """Put released solutions and transcripts in the folder, for the owner alone; returns the files. Raises BadInput."""
    competition, written = bounty.file.parent, []
    for one in found:
        for path, data in (
            (stored.solution_file(competition, one.solution.digest), one.solution.data),
            (
                competition / TRANSCRIPTS / f"{digest_hex(one.judgement)}.sealed",
                sealed_transcript(one.transcript, [key.public], bounty=bounty.digest, judgement=one.judgement),
            ),
        ):
            stored.private_folder(path.parent)
            write_bytes(path, data, private=True)
            written.append(path)
    return written


def _open_file(bounty: Bounty, found: SealedFile, kind: str, schema: str, key: PrivateKey) -> dict[str, Any]:
    if found.kind != kind or found.bounty != bounty.digest:
        raise BadInput(f"is {found.kind} of bounty {found.bounty}", hint=f"wanted are {kind} of {bounty.digest}")
    said = strict.parse(decode(found.open(key), None))
    if not isinstance(said, dict) or said.get("schema") != schema or said.get("bounty") != bounty.digest:
        raise BadInput(f"holds no {kind}", hint="another version of the enclave answered")
    return said


def _check_solution(competition: Path, one: _Solution) -> ReleasedSolution:
    document = document_of(competition, one.judgement)
    blind = bytes.fromhex(one.salt)
    try:
        solution = parse_solution(base64.b64decode(one.solution, validate=True))
    except ValueError:
        raise BadInput("is not base64", field="solution", hint="another version of the enclave answered") from None
    data = one.transcript.encode()
    for what, wanted, given in (
        ("solution", one.submission, solution.digest),
        ("submission", document["submission"], one.submission),
        ("quotes", document["quotes"], {name: quote_digest(text, blind) for name, text in one.quotes.items()}),
        ("transcript", document["transcript"], f"sha256:{sha256(data).hexdigest()}"),
    ):
        if wanted != given:
            raise Refused("release", f"another {what} than was published", participant=one.participant)
    return ReleasedSolution(one.participant, one.judgement, solution, one.quotes, one.reasons, Transcript(data, blind))


def _json(path: Path) -> Any:
    data = load(path, check.RECEIPT_BYTES * 16, hint="`assay receipt` and `assay settle --json` make them")
    try:
        return strict.parse(decode(data, path))
    except BadInput as error:
        raise error.at(file=path) from None
