"""Checks attestations against what a bounty pins, and finds the proof of a score. SPEC 7.

A judgement's own document attests nothing: a run without an enclave writes the same document. Its attestation
(`assay.attestation/1`) does: it contains the quote of the machine that judged and the digest of that document. The proof of
several judgements is the list of their attestations, `assay.attestations/1`: canonical JSON, closed, `attestations`: their
digests, ascending.

Each step from a record to the quote is checked: the record names the document, and both have the same submission and answers.
The attestation states that document, this bounty and the validator's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.enclave.attest import Attestation, Collateral, EnclaveStatement, JudgementStatement, VerifiedQuote, verify
from assay.enclave.attest.document import read_attestation
from assay.errors import BadInput, Refused
from assay.exact import canonical, digest
from assay.folder import write_bytes
from assay.judge.rubric import judgement as judgements
from assay.judge.rubric.panel import panel_differs
from assay.judge.rubric.stored import JUDGEMENTS, digest_hex, document_of
from assay.ledger.keys import public
from assay.records import Rubric
from assay.scheme.bounty import Bounty, Measurements


def pinned_measurements(bounty: Bounty) -> Measurements:
    """The measurements that the bounty pins for its enclave; raises BadInput if it has no enclave."""
    if bounty.enclave is None:
        hint = "pin one: [enclave] compose_hash = …, which `assay enclave compose-hash` prints"
        raise BadInput("does not name an enclave", file=bounty.file, field="enclave", hint=hint)
    return bounty.enclave


def check_enclave(
    bounty: Bounty, attestation: Attestation, *, now: int, collateral: Collateral | None = None
) -> tuple[EnclaveStatement, VerifiedQuote]:
    """Verify the keys of the bounty's enclave. Raises Refused and BadInput. now: seconds since 1970."""
    statement = stated_keys(bounty, attestation)
    return statement, verify(attestation, policy=pinned_measurements(bounty), now=now, collateral=collateral)


def stated_keys(bounty: Bounty, attestation: Attestation) -> EnclaveStatement:
    """The keys that an attestation states for a bounty, not verified; raises Refused if it is about something else."""
    statement = attestation.statement
    if not isinstance(statement, EnclaveStatement):
        raise Refused("statement", "it is not about an enclave", expected="enclave", found=statement.type)
    _check_equal("bounty", "it is of another bounty", bounty.digest, statement.bounty)
    return statement


def check_judgement(
    bounty: Bounty, attestation: Attestation, judgement: str, signer: str, *, now: int, collateral: Collateral | None = None
) -> VerifiedQuote:
    """Verify that this very judgement (its digest) was made in the bounty's enclave; raises Refused and BadInput."""
    statement = attestation.statement
    if not isinstance(statement, JudgementStatement):
        raise Refused("statement", "it is not about a judgement", expected="judgement", found=statement.type)
    _check_equal("bounty", "it is of another bounty", bounty.digest, statement.bounty)
    _check_equal("judgement", "it is of another judgement", judgement, statement.judgement)
    _check_equal("signer", "it names another signer", signer, statement.signer)
    return verify(attestation, policy=pinned_measurements(bounty), now=now, collateral=collateral)


def contradiction(document: Mapping[str, Any], record: Rubric, bounty: Bounty) -> str | None:
    """The first field in which a judgement's document differs from the record that names it; None if they agree."""
    panel = bounty.rules.panel is not None
    wanted = {
        "schema": judgements.PANEL_SCHEMA if panel else judgements.JUDGEMENT_SCHEMA,
        "bounty": bounty.digest,
        "submission": record.submission,
        "outcome": record.outcome,
        "baseline": record.baseline,
        "checks": record.checks,
        "verdict": record.verdict,
        "injection_suspected": record.injection_suspected,
    }
    differing = next((name for name, value in wanted.items() if canonical(document.get(name)) != canonical(value)), None)
    return "panel" if differing is None and panel and panel_differs(document, record) else differing


def _check_equal(stage: str, what: str, expected: str, got: str) -> None:
    if expected != got:
        raise Refused(stage, what, expected=expected, found=got)


PROOF_SCHEMA = "assay.attestations/1"


@dataclass(frozen=True)
class ScoreProof:
    """The proof of a score: `digest` is published on a chain, `files` contain the quotes."""

    digest: str
    files: tuple[Path, ...]
    listed: dict[str, Any] | None = None
    """The list of attestations; None for a single judgement."""


def write_attestations(folder: Path, listed: dict[str, Any]) -> None:
    """Write a list into a bounty's folder, beside the attestations that it names. Raises BadInput."""
    write_bytes(folder / JUDGEMENTS / f"{digest_hex(digest(listed))}.attestations.json", canonical(listed) + b"\n")


def find_proof(bounty: Bounty | None, records: Iterable[Rubric]) -> ScoreProof | None:
    """The proof of the judgements behind these records; None if the bounty has no enclave, or no solution was judged.

    The quote is not verified: `assay enclave verify` does. Raises BadInput if a document or an attestation is missing or about
    something else (another submission, for example): a bounty with an enclave has no score without its proof.
    """
    if bounty is None or bounty.enclave is None:
        return None
    attestation_files = {}
    for record in records:
        if record.outcome == "judged":
            name, file = _attestation_of(bounty, record)
            attestation_files[name] = file
    if not attestation_files:
        return None
    names = sorted(attestation_files)
    files = tuple(attestation_files[name] for name in names)
    if len(names) == 1:
        return ScoreProof(names[0], files)
    listed = {"schema": PROOF_SCHEMA, "attestations": names}
    return ScoreProof(digest(listed), files, listed)


def _attestation_of(bounty: Bounty, record: Rubric) -> tuple[str, Path]:
    """The digest and the file of the attestation of a record's judgement; raises BadInput if they do not agree."""
    folder, judgement, validator = bounty.file.parent, record.attestation, record.validator
    if judgement is None:
        what = f"the score of {record.participant} by {validator} rests on no judgement, and an enclave is to judge"
        hint = "an enclave names the judgement's document in its evidence, so find out who signed this evidence"
        raise BadInput(what, file=bounty.file, field="enclave", hint=hint)
    file = folder / JUDGEMENTS / f"{digest_hex(judgement)}.attestation.json"
    if not file.exists():
        hint = "`assay enclave collect` fetches it; a score is published only if its enclave proves it"
        raise BadInput("is missing, and bounty.toml says that an enclave judges", file=file, hint=hint)
    document = read_attestation(file)
    statement = document.statement
    stated = (statement.bounty, statement.judgement, statement.signer) if isinstance(statement, JudgementStatement) else ()
    if stated != (bounty.digest, judgement, public(validator).id):
        what = f"is not about the judgement {judgement} of this bounty by {validator}"
        raise BadInput(what, file=file, hint="`assay enclave collect` fetches the right one")
    wrong = contradiction(document_of(folder, judgement), record, bounty)
    if wrong is not None:
        what = f"attests a judgement with another {wrong} than the record of {record.participant} by {validator} that names it"
        raise BadInput(
            what, file=file, hint="an enclave's record agrees with its judgement, so find out who signed this evidence"
        )
    return document.digest, file
