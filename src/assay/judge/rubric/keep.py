"""Where a validator's judgements are kept, so that a crash at any moment loses none and counts none twice. SPEC 2.3, 6.

    judging/<validator>/.lock, <hex>.json    the run that is going on; judgements on their way to their place, by submission
    judgements/<hex>.json                    the document of a judgement, under its digest, which evidence names as `attestation`
    transcripts/<hex>.sealed                 its transcript, sealed
    evidence/run-<validator>.jsonl           one line for each solution that is judged or unjudged; none for what is missing

First the transcript, then one file with the document and the record, from which the rest can be made: the next run makes up for
what a crash left undone.
"""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.exact import canonical, digest
from assay.folder import strict
from assay.folder.text import decode, load
from assay.folder.write import clear, write_bytes
from assay.judge import keeping
from assay.judge.rubric.judgement import Judgement, record, why_fallback
from assay.judge.rubric.sealed import Transcript, sealed
from assay.judge.rubric.solutions import private_folder
from assay.ledger.keys import PublicKey
from assay.records import Participant, Rubric
from assay.records import record as read_record

__all__ = ["BLIND", "JUDGEMENTS", "TRANSCRIPTS", "ByFallback", "Keep", "by_fallback", "document_of", "hexed"]

JUDGEMENTS, TRANSCRIPTS, JUDGING = "judgements", "transcripts", "judging"
BLIND = 32
"""Bytes of the secret that keeps short quotes from being guessed by their digests."""
DOCUMENT_BYTES = 16_000_000


def hexed(found: str) -> str:
    """The hex digits of a digest."""
    return found.removeprefix("sha256:")


class Keep:
    """What one validator keeps in a competition's folder; to: the keys to which transcripts are sealed."""

    def __init__(self, competition: Path, validator: str, bounty: str, to: list[PublicKey]) -> None:
        self.competition, self.validator, self.bounty, self.to = competition, validator, bounty, to
        self.root = competition / JUDGING / keeping.segment(validator)
        self.evidence = keeping.evidence_file(competition, validator)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the validator's lock; raises Busy, and BadInput where nothing can be written."""
        with keeping.held(self.root, self.validator):
            private_folder(self.competition / TRANSCRIPTS)
            try:
                (self.competition / JUDGEMENTS).mkdir(exist_ok=True)
                for folder in (self.root, self.competition / TRANSCRIPTS):
                    clear(folder)
                keeping.mend(self.evidence)
            except OSError as error:
                hint = "check permissions and space"
                raise BadInput(f"cannot be written ({error.strerror})", file=error.filename, hint=hint) from None
            yield

    def add(self, judgement: Judgement, *, participant: str, epoch: int, at: datetime) -> Rubric:
        """Keeps a judgement; when this returns it is evidence. Raises BadInput and OSError where it cannot be written."""
        blind = secrets.token_bytes(BLIND)
        document = judgement.document(blind)
        named = digest(document)
        found = record(judgement, epoch=epoch, validator=self.validator, participant=participant, observed_at=at, blind=blind)
        transcript = Transcript(judgement.transcript, blind)
        data = sealed(transcript, self.to, bounty=self.bounty, judgement=named)
        write_bytes(self.competition / TRANSCRIPTS / f"{hexed(named)}.sealed", data, private=True)
        pending = self.root / f"{hexed(judgement.submission)}.json"
        write_bytes(pending, canonical({"record": found.document(), "judgement": document}))
        self._finish(pending, found, document)
        return found

    def recover(self, done: Container[str]) -> list[str]:
        """Finishes what a crash left undone; done: submissions that have evidence. Returns the submissions that have it now.

        Raises BadInput where it cannot be written.
        """
        try:
            return self._recovered(done)
        except OSError as error:
            hint = "check permissions and space"
            raise BadInput(f"cannot be written ({error.strerror})", file=self.evidence, hint=hint) from None

    def _recovered(self, done: Container[str]) -> list[str]:
        found = []
        for pending in sorted(self.root.glob("*.json")):
            try:
                content: Any = strict.parse(decode(load(pending, DOCUMENT_BYTES, hint=""), pending))
                one, document = read_record(content["record"]), content["judgement"]
            except (BadInput, KeyError, TypeError):  # it is written whole or not at all; whatever else it is, it is not ours
                pending.unlink(missing_ok=True)
                continue
            whole = isinstance(one, Rubric) and one.attestation == digest(document) and one.validator == self.validator
            if isinstance(one, Rubric) and whole and document.get("bounty") == self.bounty and one.submission not in done:
                self._finish(pending, one, document)
                found.append(one.submission)
            pending.unlink(missing_ok=True)
        return found

    def _finish(self, pending: Path, found: Rubric, document: dict[str, Any]) -> None:
        write_bytes(self.competition / JUDGEMENTS / f"{hexed(str(found.attestation))}.json", canonical(document) + b"\n")
        keeping.append(self.evidence, canonical(found.document()) + b"\n")
        pending.unlink(missing_ok=True)

    def forget_unjudged(self) -> int:
        """Takes this validator's own `unjudged` records out of its file of evidence, to judge again; returns how many."""
        try:
            lines = self.evidence.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return 0
        kept = [line for line in lines if strict.parse(line.decode()).get("outcome") != "unjudged"]
        if len(kept) < len(lines):
            write_bytes(self.evidence, b"".join(kept))
        return len(lines) - len(kept)


@dataclass(frozen=True)
class ByFallback:
    """A judgement that counts and is the fallback model's: of whom, by whom, which model, and why in words."""

    participant: str
    validator: str
    model: str
    why: str


def by_fallback(competition: Path, participants: Iterable[Participant], records: Iterable[object]) -> list[ByFallback]:
    """The judgements of current submissions that the fallback model made, as far as their documents are here."""
    current = {one.key: one.submission for one in participants}
    found = []
    for one in records:
        if not isinstance(one, Rubric) or one.attestation is None:
            continue
        if one.submission and one.submission != current.get(one.participant):
            continue
        try:
            document = document_of(competition, one.attestation)
        except BadInput:  # it is not here: an exported epoch has evidence alone
            continue
        why = why_fallback(document)
        if why:
            found.append(ByFallback(one.participant, one.validator, str(document["model"]), why))
    return found


def document_of(competition: Path, attestation: str) -> dict[str, Any]:
    """The document of a judgement; raises BadInput if it is not here, or not what the evidence names."""
    file = competition / JUDGEMENTS / f"{hexed(attestation)}.json"
    found: Any = strict.parse(decode(load(file, DOCUMENT_BYTES, hint="judgements are kept by who judged: `assay run`"), file))
    if not isinstance(found, dict) or digest(found) != attestation:
        raise BadInput("is not the judgement that the evidence names", file=file, hint="get it back from a copy")
    return found
