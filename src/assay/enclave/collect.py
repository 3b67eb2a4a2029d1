"""From an enclave's results to a competition's folder: registry, judgements, evidence. All is checked before it is written.

    participants.csv                      submission, and submitted_at = when the enclave had the commitment
    validators.csv                        the enclave's key, if there is no validator yet
    judgements/HEX.json                   the judgement that a record's `attestation` names
    judgements/HEX.attestation.json       its quote: `assay enclave verify` checks it
    judgements/enclave.attestation.json   that of the enclave's keys
    judgements/submissions.json           what became of each commitment, signed by the enclave
    batches/, and the ledger              the signed evidence; without a ledger its records, in evidence/

Done again it changes nothing.
"""

from __future__ import annotations

from pathlib import Path

from assay.enclave.results import Row, Verdicts
from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import csvs, write_bytes, write_text
from assay.judge import submitting
from assay.judge.rubric.keep import JUDGEMENTS, hexed
from assay.ledger import config, intake, signing
from assay.ledger.batch import Batch
from assay.ledger.keys import public
from assay.ledger.opened import open_ledger
from assay.scheme.bounty import Bounty

__all__ = ["write"]

STAKE = "1"
"""Of an enclave that is the only validator: what it ran is attested, not voted on."""


def write(bounty: Bounty, found: Verdicts) -> list[Path]:
    """Put results that are right into the bounty's folder, and return the files; raises BadInput and StoreError."""
    competition, with_ledger = bounty.file.parent, config.exists(bounty.file.parent)
    rows = [row for row in found.rows if row.submission is not None]
    for row in rows:
        submitting.find(competition, row.participant)
    validators = _validators(competition, found)
    written = _documents(competition, found)
    if validators is not None:
        write_text(competition / csvs.VALIDATORS.name, validators)
        written.append(competition / csvs.VALIDATORS.name)
    for row in rows:
        _enter(competition, row, found.epoch if with_ledger else None)
    if rows:
        written.append(competition / csvs.PARTICIPANTS.name)
    if found.batch is not None:
        written.append(_evidence(competition, found.batch, with_ledger=with_ledger))
    return written


def _enter(competition: Path, row: Row, epoch: int | None) -> None:
    assert row.submission is not None  # the caller saw to it
    submitting.find(competition, row.participant).enter(row.submission, at=row.committed_at, epoch=epoch, exact=True)


def _documents(competition: Path, found: Verdicts) -> list[Path]:
    folder = competition / JUDGEMENTS
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint="check the folder and its permissions") from None
    files = {
        "enclave.attestation.json": found.attestation.data,
        "submissions.json": found.statement.envelope + b"\n",
    }
    for name, document in found.judgements.items():
        files[f"{hexed(name)}.json"] = canonical(document) + b"\n"
        files[f"{hexed(name)}.attestation.json"] = found.attestations[name].data
    for name, data in files.items():
        write_bytes(folder / name, data)
    return [folder / name for name in files]


def _validators(competition: Path, found: Verdicts) -> str | None:
    """validators.csv with the enclave as the only one; None if it has it. Raises BadInput if it has only others."""
    file = competition / csvs.VALIDATORS.name
    key = public(found.stated.signer).raw.hex()
    if file.exists() and csvs.read(file, csvs.VALIDATORS):
        if key in intake.keys_of(competition):
            return None
        hint = f"add a row with its key and a stake: {key},{STAKE},enclave"
        raise BadInput("does not have the enclave among the validators", file=file, hint=hint)
    return f"key,stake,name\n{key},{STAKE},enclave\n"


def _evidence(competition: Path, found: Batch, *, with_ledger: bool) -> Path:
    """The batch in batches/ and in the ledger, or its records in evidence/."""
    name = signing.file_name(found)
    path = competition / "batches" / name if with_ledger else competition / "evidence" / f"enclave-{name[:-6]}.jsonl"
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        what = f"cannot be made ({error.strerror})"
        raise BadInput(what, file=path.parent, hint="check the folder and its permissions") from None
    if not with_ledger:
        write_bytes(path, b"".join(body + b"\n" for body in found.bodies))
        return path
    write_bytes(path, found.data)
    with open_ledger(competition) as ledger:
        intake.accept(ledger.store, found, intake.terms(competition))
    return path
