"""The rubric judge's files: solutions, judgements, sealed transcripts. A crash loses none and counts none twice. SPEC 2, 6, 7.

    solutions/<hex>.json                     a solution that was handed in, under its digest, readable by its owner alone
    judging/<validator>/.lock, <hex>.json    the run in progress; judgements on their way to their place, by submission
    judgements/<hex>.json                    the document of a judgement, under its digest, which evidence names as `attestation`
    transcripts/<hex>.sealed                 its transcript, sealed
    evidence/run-<validator>.jsonl           one line for each solution that is judged or unjudged; none for a missing one

First the transcript is written, then one file with the document and the record, from which the rest can be made: the next run
finishes what a crash interrupted.

A transcript is canonical JSON {"schema": "assay.sealed-transcript/1", "bounty", "judgement", "sealed": {public key: base64}}. The
plaintext, sealed to each key separately, is the canonical JSON {"blind": hex, "transcript": text}; it opens only as the
transcript of this judgement of this bounty. Its readers are the validator who judged, and the sponsor if the bounty names a key
of theirs.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
from collections.abc import Callable, Container, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.errors import BadInput
from assay.exact import canonical, digest
from assay.folder import strict
from assay.folder.files import clear, decode, load, write_bytes
from assay.judge import run_files, submitting
from assay.judge.rubric import asking
from assay.judge.rubric.judgement import TRANSCRIPT_BYTES, Judgement, make_record, why_fallback
from assay.judge.rubric.solution import SOLUTION_BYTES, Solution, parse_solution, read_solution
from assay.ledger import keys
from assay.ledger.keys import X25519, PrivateKey, PublicKey, open_sealed, seal
from assay.records import Participant, Rubric
from assay.records import record as read_record
from assay.scheme.bounty import Bounty, read_bounty
from assay.scheme.fields import Digest, Section, instant_text
from assay.scheme.reading import validate

TRANSCRIPT_KEY = "transcripts"
"""Name of the key in the folder of keys."""
SPONSOR_KEY = "sponsor"
"""Default name of a sponsor's key: an enclave seals its releases to it."""


def transcript_keys(name: str | None, ask: Callable[[], str] | None = None) -> list[PrivateKey]:
    """The keys that may open a transcript: the one of this name, or those of one's own judgements and of a sponsor."""
    if name is not None:
        return [transcript_key(name, ask)]
    there = [each for each in (TRANSCRIPT_KEY, SPONSOR_KEY) if keys.path_of(each).exists()]
    return [transcript_key(each, ask) for each in there or [TRANSCRIPT_KEY]]


def transcript_key(name: str = TRANSCRIPT_KEY, ask: Callable[[], str] | None = None, *, make: bool = False) -> PrivateKey:
    """The key that opens transcripts; `make` creates a missing one, encrypted with $ASSAY_PASSPHRASE if set. Raises BadInput."""
    if make and not keys.path_of(name).exists():
        try:
            keys.save(name, keys.new(X25519), os.environ.get("ASSAY_PASSPHRASE", ""))
        except BadInput:
            if not keys.path_of(name).exists():  # else somebody made it at the same moment
                raise
    found = keys.load(name, ask)
    if found.public.kind != X25519:
        what, hint = f"is a key that signs ({found.public.kind})", "transcripts are sealed to an x25519 key: move this one away"
        raise BadInput(what, file=keys.path_of(name), hint=hint)
    return found


SEALED_TRANSCRIPT_SCHEMA: Literal["assay.sealed-transcript/1"] = "assay.sealed-transcript/1"
MOST_KEYS = 8
"""Keys that one transcript may be sealed to."""


class _SealedTranscript(Section):
    schema_: Annotated[Literal["assay.sealed-transcript/1"], Field(alias="schema")]
    bounty: Digest
    judgement: Digest
    sealed: Annotated[dict[str, str], Field(min_length=1, max_length=MOST_KEYS)]


@dataclass(frozen=True)
class Transcript:
    """The plaintext: the transcript's bytes, and the blind of the quotes' digests."""

    data: bytes = field(repr=False)
    blind: bytes = field(repr=False)


def seal_transcript(transcript: Transcript, to: list[PublicKey], *, bounty: str, judgement: str) -> bytes:
    """The bytes of the file; bounty, judgement: their digests."""
    inner = canonical({"blind": transcript.blind.hex(), "transcript": transcript.data.decode()})
    whole = {key.id: base64.b64encode(seal(inner, key, _hpke_info(bounty, judgement))).decode() for key in to}
    return canonical({"schema": SEALED_TRANSCRIPT_SCHEMA, "bounty": bounty, "judgement": judgement, "sealed": whole})


def open_transcript(file: Path, *keys: PrivateKey, bounty: str, judgement: str) -> Transcript:
    """The transcript in a file; raises BadInput where it is of something else, sealed to none of these keys, or damaged."""
    data = load(file, MOST_KEYS * 2 * TRANSCRIPT_BYTES, hint="transcripts are kept by who judged: `assay run`")
    try:
        found = validate(_SealedTranscript, strict.parse(decode(data, file)))
        if (found.bounty, found.judgement) != (bounty, judgement):
            raise BadInput("is the transcript of another judgement", hint="get the file back that belongs to it")
        key = next((each for each in keys if each.public.id in found.sealed), None)
        if key is None:
            hint = f"it is sealed to {', '.join(sorted(found.sealed))}; say which key opens it with --key"
            raise BadInput(f"is not sealed to {' or '.join(str(each.public) for each in keys)}", hint=hint)
        mine = found.sealed[key.public.id]
        return _parse_transcript(open_sealed(base64.b64decode(mine, validate=True), key, _hpke_info(bounty, judgement)))
    except BadInput as error:
        raise error.at(file=file) from None
    except ValueError:  # of base64
        raise BadInput("is damaged", file=file, hint="get it back from a copy") from None


def _parse_transcript(inner: bytes) -> Transcript:
    found: Any = json.loads(inner)  # it was sealed for us; what it says is checked where it is replayed
    return Transcript(found["transcript"].encode(), bytes.fromhex(found["blind"]))


def _hpke_info(bounty: str, judgement: str) -> bytes:
    return b"\x00".join((SEALED_TRANSCRIPT_SCHEMA.encode(), bounty.encode(), judgement.encode()))


SOLUTIONS = "solutions"
_DIGEST_TEXT = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class SubmittedSolution:
    """The result of a submission."""

    solution: Solution
    file: Path
    """The path of its file."""
    before: str
    """The participant's submission until now; empty if there was none."""
    epoch: int | None = None
    """In which epoch the ledger has it as accepted; None without a ledger."""

    @property
    def changed(self) -> bool:
        """Whether it is another submission than before."""
        return self.before != self.solution.digest


def submit_solution(
    competition: Path, participant: str, said: Path, *, at: datetime | None = None, epoch: int | None = None
) -> SubmittedSolution:
    """Make a solution (a text file, or a folder of them) the current submission of a participant.

    Raises BadInput for a bad, too large or late solution, and in a bounty that takes only sealed ones; epoch
    and further errors as of `assay.judge.submitting`.
    """
    bounty, when = read_bounty(competition), at or datetime.now(UTC)
    row = submitting.find(competition, participant)
    if bounty.enclave is not None or bounty.problem is None:
        hint = "`assay commit` and `assay seal` hand in a solution that nobody else reads"
        raise BadInput("takes sealed solutions only: an enclave judges them", file=bounty.file, field="enclave", hint=hint)
    solution = _fitting(bounty, bounty.problem, said)
    before = row.submission
    until = bounty.terms.submissions_until
    if until is not None and when > until and before != solution.digest:
        what = f"no solution is taken any more: the deadline was {instant_text(until)}"
        raise BadInput(what, file=bounty.file, field="bounty.submissions_until", hint="what was handed in before stands")
    file = solution_file(competition, solution.digest)
    private_folder(file.parent)
    write_bytes(file, solution.data, private=True)
    return SubmittedSolution(solution, file, before, row.enter(solution.digest, at=when, epoch=epoch))


def _fitting(bounty: Bounty, problem: str, said: Path) -> Solution:
    try:
        solution = read_solution(said)
        asking.check_case(bounty, problem, solution)
    except BadInput as error:
        raise error.at(file=said) from None
    return solution


def find_solution(competition: Path, participant: Participant) -> Solution | None:
    """The solution that a participant handed in; None if it is not here. Raises BadInput if its file holds something else."""
    file = solution_file(competition, participant.submission) if _DIGEST_TEXT.fullmatch(participant.submission) else None
    if file is None or not file.exists():
        return None
    hint = "hand it in again, or get the file back that was handed in"
    try:
        solution = parse_solution(load(file, 8 * SOLUTION_BYTES, hint=hint))
    except BadInput as error:
        raise error.at(file=file) from None
    if solution.digest != participant.submission:
        raise BadInput(f"is not what {participant.key!r} handed in: its digest is {solution.digest}", file=file, hint=hint)
    return solution


def solution_file(competition: Path, digest: str) -> Path:
    """The file of the solution with a digest (`sha256:…`)."""
    return competition / SOLUTIONS / f"{digest.removeprefix('sha256:')}.json"


def private_folder(folder: Path) -> None:
    """Makes a folder that its owner alone may look into; raises BadInput if it cannot be, or if others may."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode & 0o777
    except OSError as error:
        hint = "check permissions and space"
        raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint=hint) from None
    if mode & 0o077:
        raise BadInput(f"others may look into it (mode {mode:04o})", file=folder, hint=f"make it yours alone: chmod 700 {folder}")


JUDGEMENTS, TRANSCRIPTS, JUDGING = "judgements", "transcripts", "judging"
BLIND = 32
"""Bytes of the secret that keeps short quotes from being guessed by their digests."""
DOCUMENT_BYTES = 16_000_000


def digest_hex(found: str) -> str:
    """The hex digits of a digest."""
    return found.removeprefix("sha256:")


class JudgementStore:
    """One validator's judgements in a competition's folder; to: the keys to which transcripts are sealed."""

    def __init__(self, competition: Path, validator: str, bounty: str, to: list[PublicKey]) -> None:
        self.competition, self.validator, self.bounty, self.to = competition, validator, bounty, to
        self.root = competition / JUDGING / run_files.segment(validator)
        self.evidence = run_files.evidence_file(competition, validator)

    def lock(self) -> AbstractContextManager[int]:
        """Holds the validator's lock; raises RunBusy, and BadInput where nothing can be written."""
        return run_files.held(self.root, self.validator)

    def clear(self) -> None:
        """Takes away what a killed run was writing, and mends the evidence, with the lock held. Raises BadInput."""
        private_folder(self.competition / TRANSCRIPTS)
        try:
            (self.competition / JUDGEMENTS).mkdir(exist_ok=True)
            for folder in (self.root, self.competition / TRANSCRIPTS):
                clear(folder)
            run_files.mend(self.evidence)
        except OSError as error:
            hint = "check permissions and space"
            raise BadInput(f"cannot be written ({error.strerror})", file=error.filename, hint=hint) from None

    def add(self, judgement: Judgement, *, participant: str, epoch: int, at: datetime) -> Rubric:
        """Keeps a judgement; when this returns it is evidence. Raises BadInput and OSError where it cannot be written."""
        blind = secrets.token_bytes(BLIND)
        document = judgement.document(blind)
        named = digest(document)
        found = make_record(
            judgement, epoch=epoch, validator=self.validator, participant=participant, observed_at=at, blind=blind
        )
        transcript = Transcript(judgement.transcript, blind)
        data = seal_transcript(transcript, self.to, bounty=self.bounty, judgement=named)
        write_bytes(self.competition / TRANSCRIPTS / f"{digest_hex(named)}.sealed", data, private=True)
        pending = self.root / f"{digest_hex(judgement.submission)}.json"
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
        write_bytes(self.competition / JUDGEMENTS / f"{digest_hex(str(found.attestation))}.json", canonical(document) + b"\n")
        run_files.append(self.evidence, canonical(found.document()) + b"\n")
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
    """A counting judgement by the fallback model: participant, validator, model, and the reason in words."""

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
    file = competition / JUDGEMENTS / f"{digest_hex(attestation)}.json"
    found: Any = strict.parse(decode(load(file, DOCUMENT_BYTES, hint="judgements are kept by who judged: `assay run`"), file))
    if not isinstance(found, dict) or digest(found) != attestation:
        raise BadInput("is not the judgement that the evidence names", file=file, hint="get it back from a copy")
    return found
