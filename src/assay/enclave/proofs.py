"""What attests a score: the published attestations of the judgements it rests on, or nothing. SPEC 7.

A judgement's own document attests nothing: a plain run writes it just so. Its attestation (`assay.attestation/1`) does, which
holds the quote of the machine that judged, and the digest of that document. Of several judgements it is the list of theirs,
`assay.attestations/1`: canonical JSON, closed, `attestations`: their digests, ascending.

From a record to the quote each step is held: the record names the document, which is about the record's submission and answers
as it does; the attestation states that document, this bounty and the validator's key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.enclave.attest import JudgementStatement
from assay.enclave.attest.document import read
from assay.enclave.attested import contradiction
from assay.errors import BadInput
from assay.exact import canonical, digest
from assay.folder import write_bytes
from assay.judge.rubric.keep import JUDGEMENTS, document_of, hexed
from assay.ledger.keys import public
from assay.records import Rubric
from assay.scheme.bounty import Bounty

__all__ = ["SCHEMA", "Proof", "proof", "put"]

SCHEMA = "assay.attestations/1"


@dataclass(frozen=True)
class Proof:
    """What attests a score: `digest` is the one that a chain is told, `files` hold the quotes."""

    digest: str
    files: tuple[Path, ...]
    listed: dict[str, Any] | None = None
    """The list, where it is of several judgements."""


def put(folder: Path, listed: dict[str, Any]) -> None:
    """Put a list into a bounty's folder, beside the attestations that it names; raises BadInput."""
    write_bytes(folder / JUDGEMENTS / f"{hexed(digest(listed))}.attestations.json", canonical(listed) + b"\n")


def proof(bounty: Bounty | None, records: Iterable[Rubric]) -> Proof | None:
    """What attests the judgements that these records tell of; None where the bounty has no enclave, or nobody was judged.

    The quote is not verified: `assay enclave verify` does. Raises BadInput if a document or an attestation is missing or about
    something else, another submission say: a bounty with an enclave has no score without.
    """
    if bounty is None or bounty.enclave is None:
        return None
    found = {}
    for record in records:
        if record.outcome == "judged":
            name, file = _attestation(bounty, record)
            found[name] = file
    if not found:
        return None
    names = sorted(found)
    files = tuple(found[name] for name in names)
    if len(names) == 1:
        return Proof(names[0], files)
    listed = {"schema": SCHEMA, "attestations": names}
    return Proof(digest(listed), files, listed)


def _attestation(bounty: Bounty, record: Rubric) -> tuple[str, Path]:
    """The digest and the file of what attests the judgement of a record; raises BadInput if it does not."""
    folder, judgement, validator = bounty.file.parent, record.attestation, record.validator
    if judgement is None:
        what = f"the score of {record.participant} by {validator} rests on no judgement, and an enclave is to judge"
        hint = "who signed such evidence? an enclave names the judgement's document in it"
        raise BadInput(what, file=bounty.file, field="enclave", hint=hint)
    file = folder / JUDGEMENTS / f"{hexed(judgement)}.attestation.json"
    if not file.exists():
        hint = "`assay enclave collect` brings it; nothing is published of a score that its enclave does not prove"
        raise BadInput("is missing, and bounty.toml says that an enclave judges", file=file, hint=hint)
    document = read(file)
    said = document.statement
    stated = (said.bounty, said.judgement, said.signer) if isinstance(said, JudgementStatement) else ()
    if stated != (bounty.digest, judgement, public(validator).id):
        what = f"is not about the judgement {judgement} of this bounty by {validator}"
        raise BadInput(what, file=file, hint="`assay enclave collect` brings the one that is")
    wrong = contradiction(document_of(folder, judgement), record, bounty)
    if wrong is not None:
        what = f"attests a judgement with another {wrong} than the record of {record.participant} by {validator} that names it"
        raise BadInput(what, file=file, hint="who signed such evidence? an enclave's record says what its judgement says")
    return document.digest, file
