"""Stores solutions, judgements and sealed transcripts, so that a crash loses none and counts none twice. SPEC 2, 6, 7.

    solutions/<hex>.json                     a solution under its digest, readable by its owner alone
    judging/<validator>/.lock, <hex>.json    the running run; judgements that are being stored, by submission
    judgements/<hex>.json                    the document of a judgement, under its digest, which evidence names as `attestation`
    transcripts/<hex>.sealed                 the judgement's transcript, sealed
    quotes/<hex>.json                        the quotes of a judgement that were published, with the blind of their digests
    evidence/run-<validator>.jsonl           one line for each judged or unjudged solution; none if the judgement is missing

First the transcript is written, then one file with the document and the record. The rest can be made from that file, so the next
run finishes what a crash interrupted.

A transcript is canonical JSON {"schema": "assay.sealed-transcript/1", "bounty", "judgement", "sealed": {public key: base64}}. The
plaintext is the canonical JSON {"blind": hex, "transcript": text}, sealed to each key separately. It opens only as the transcript
of this judgement of this bounty. Its readers are the validator who judged, and the sponsor if the bounty names their key.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
from collections.abc import Callable, Container, Iterable, Mapping
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
from assay.judge.rubric import asking, panel
from assay.judge.rubric.judgement import TRANSCRIPT_BYTES, Judgement, make_record, quote_digest, why_fallback
from assay.judge.rubric.solution import SOLUTION_BYTES, Solution, parse_solution, read_solution
from assay.ledger import keys
from assay.ledger.keys import X25519, PrivateKey, PublicKey, open_sealed, seal
from assay.records import Participant, Rubric
from assay.records import record as read_record
from assay.scheme.bounty import Bounty, read_bounty
from assay.scheme.fields import Digest, Section, instant_text
from assay.scheme.reading import validate

TRANSCRIPT_KEY = "transcripts"
"""Name of the judge's own key in the folder of keys."""
SPONSOR_KEY = "sponsor"
"""Default name of a sponsor's key, to which an enclave seals its releases."""


def transcript_keys(name: str | None, ask: Callable[[], str] | None = None) -> list[PrivateKey]:
    """The keys that may open a transcript: the named key, or the default keys of a judge and of a sponsor."""
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
            if not keys.path_of(name).exists():  # otherwise another process has just made it
                raise
    key = keys.load(name, ask)
    if key.public.kind != X25519:
        what, hint = f"is a key that signs ({key.public.kind})", "transcripts are sealed to an x25519 key: move this one away"
        raise BadInput(what, file=keys.path_of(name), hint=hint)
    return key


SEALED_TRANSCRIPT_SCHEMA: Literal["assay.sealed-transcript/1"] = "assay.sealed-transcript/1"
MOST_KEYS = 8
"""Most keys that one transcript may be sealed to."""


class _SealedTranscript(Section):
    schema_: Annotated[Literal["assay.sealed-transcript/1"], Field(alias="schema")]
    bounty: Digest
    judgement: Digest
    sealed: Annotated[dict[str, str], Field(min_length=1, max_length=MOST_KEYS)]


@dataclass(frozen=True)
class Transcript:
    """An opened transcript: its bytes, and the blind of the quotes' digests."""

    data: bytes = field(repr=False)
    blind: bytes = field(repr=False)


def seal_transcript(transcript: Transcript, to: list[PublicKey], *, bounty: str, judgement: str) -> bytes:
    """The bytes of a sealed transcript. bounty, judgement: their digests."""
    inner = canonical({"blind": transcript.blind.hex(), "transcript": transcript.data.decode()})
    whole = {key.id: base64.b64encode(seal(inner, key, _hpke_info(bounty, judgement))).decode() for key in to}
    return canonical({"schema": SEALED_TRANSCRIPT_SCHEMA, "bounty": bounty, "judgement": judgement, "sealed": whole})


def open_transcript(file: Path, *keys: PrivateKey, bounty: str, judgement: str) -> Transcript:
    """The transcript in a file. Raises BadInput if it is another one, sealed to none of these keys, or damaged."""
    data = load(file, MOST_KEYS * 2 * TRANSCRIPT_BYTES, hint="the validator who judged keeps the transcripts: `assay run`")
    try:
        sealed = validate(_SealedTranscript, strict.parse(decode(data, file)))
        if (sealed.bounty, sealed.judgement) != (bounty, judgement):
            raise BadInput("is the transcript of another judgement", hint="restore the file that belongs to it")
        key = next((each for each in keys if each.public.id in sealed.sealed), None)
        if key is None:
            hint = f"it is sealed to {', '.join(sorted(sealed.sealed))}; say which key opens it with --key"
            raise BadInput(f"is not sealed to {' or '.join(str(each.public) for each in keys)}", hint=hint)
        mine = sealed.sealed[key.public.id]
        return _parse_transcript(open_sealed(base64.b64decode(mine, validate=True), key, _hpke_info(bounty, judgement)))
    except BadInput as error:
        raise error.at(file=file) from None
    except ValueError:  # of base64
        raise BadInput("is damaged", file=file, hint="restore it from a copy") from None


def _parse_transcript(inner: bytes) -> Transcript:
    document: Any = json.loads(inner)  # it was sealed to us; the replay checks its content
    return Transcript(document["transcript"].encode(), bytes.fromhex(document["blind"]))


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
    """The epoch in which the ledger accepted it; None without a ledger."""

    @property
    def changed(self) -> bool:
        """Whether it is another submission than before."""
        return self.before != self.solution.digest


def submit_solution(
    competition: Path, participant: str, source: Path, *, at: datetime | None = None, epoch: int | None = None
) -> SubmittedSolution:
    """Make a solution (a text file, or a folder of them) the current submission of a participant.

    Raises BadInput for a bad, large or late solution, and if the bounty takes only sealed solutions; for epoch and
    further errors see `assay.judge.submitting`.
    """
    bounty, when = read_bounty(competition), at or datetime.now(UTC)
    row = submitting.find(competition, participant)
    if bounty.enclave is not None or bounty.problem is None:
        hint = "`assay commit` and `assay seal` hand in a solution that nobody else reads"
        raise BadInput("takes sealed solutions only: an enclave judges them", file=bounty.file, field="enclave", hint=hint)
    solution = _fitting(bounty, bounty.problem, source)
    before = row.submission
    until = bounty.terms.submissions_until
    if until is not None and when > until and before != solution.digest:
        what = f"no solution is taken any more: the deadline was {instant_text(until)}"
        raise BadInput(
            what, file=bounty.file, field="bounty.submissions_until", hint="the solution that was handed in before still counts"
        )
    file = solution_file(competition, solution.digest)
    private_folder(file.parent)
    write_bytes(file, solution.data, private=True)
    return SubmittedSolution(solution, file, before, row.enter(solution.digest, at=when, epoch=epoch))


def _fitting(bounty: Bounty, problem: str, source: Path) -> Solution:
    try:
        solution = read_solution(source)
        asking.check_case(bounty, problem, solution)
    except BadInput as error:
        raise error.at(file=source) from None
    return solution


def find_solution(competition: Path, participant: Participant) -> Solution | None:
    """The solution that a participant handed in; None if it is not here. Raises BadInput if its file has another."""
    file = solution_file(competition, participant.submission) if _DIGEST_TEXT.fullmatch(participant.submission) else None
    if file is None or not file.exists():
        return None
    hint = "hand it in again, or restore its file"
    try:
        solution = parse_solution(load(file, 8 * SOLUTION_BYTES, hint=hint))
    except BadInput as error:
        raise error.at(file=file) from None
    if solution.digest != participant.submission:
        raise BadInput(f"is not what {participant.key!r} handed in: its digest is {solution.digest}", file=file, hint=hint)
    return solution


def put_solution(competition: Path, submission: str, source: Path) -> None:
    """Store the solution with a digest; source: a folder with its file. Raises BadInput if it is another solution."""
    file = solution_file(competition, submission)
    data = load(source / file.name, 8 * SOLUTION_BYTES, hint="get it again")
    solution = parse_solution(data)
    if solution.digest != submission:
        raise BadInput(f"is not the submission {submission}: its digest is {solution.digest}", file=source, hint="get it again")
    private_folder(file.parent)
    write_bytes(file, data, private=True)


def solution_file(competition: Path, digest: str) -> Path:
    """The file of the solution with a digest (`sha256:…`)."""
    return competition / SOLUTIONS / f"{digest.removeprefix('sha256:')}.json"


def private_folder(folder: Path) -> None:
    """Make a folder that only its owner may read. Raises BadInput if that fails, or if others may read it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode & 0o777
    except OSError as error:
        hint = "check permissions and space"
        raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint=hint) from None
    if mode & 0o077:
        raise BadInput(
            f"other users may read it (mode {mode:04o})", file=folder, hint=f"let only yourself read it: chmod 700 {folder}"
        )


JUDGEMENTS, TRANSCRIPTS, JUDGING = "judgements", "transcripts", "judging"
BLIND = 32
"""Bytes of the secret that protects short quotes: their digests alone could be guessed."""
DOCUMENT_BYTES = 16_000_000


def digest_hex(digest: str) -> str:
    """The hex digits of a digest."""
    return digest.removeprefix("sha256:")


class JudgementStore:
    """One validator's judgements in a competition's folder; to: the keys to which transcripts are sealed."""

    def __init__(self, competition: Path, validator: str, bounty: str, to: list[PublicKey]) -> None:
        self.competition, self.validator, self.bounty, self.to = competition, validator, bounty, to
        self.root = competition / JUDGING / run_files.segment(validator)
        self.evidence = run_files.evidence_file(competition, validator)

    def lock(self) -> AbstractContextManager[int]:
        """Hold the validator's lock. Raises RunBusy, and BadInput if nothing can be written."""
        return run_files.held(self.root, self.validator)

    def clear(self) -> None:
        """Remove what a killed run was writing, and mend the evidence, while the lock is held. Raises BadInput."""
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
        """Store a judgement; when this returns, it is evidence. Raises BadInput and OSError if it cannot be written."""
        blind = secrets.token_bytes(BLIND)
        document = judgement.document(blind)
        named = digest(document)
        record = make_record(
            judgement, epoch=epoch, validator=self.validator, participant=participant, observed_at=at, blind=blind
        )
        transcript = Transcript(judgement.transcript, blind)
        data = seal_transcript(transcript, self.to, bounty=self.bounty, judgement=named)
        write_bytes(self.competition / TRANSCRIPTS / f"{digest_hex(named)}.sealed", data, private=True)
        pending = self.root / f"{digest_hex(judgement.submission)}.json"
        write_bytes(pending, canonical({"record": record.document(), "judgement": document}))
        self._finish(pending, record, document)
        return record

    def recover(self, done: Container[str]) -> list[str]:
        """Finish what a crash interrupted, and return the submissions that got their evidence now.

        done: submissions that have evidence. Raises BadInput if nothing can be written.
        """
        try:
            return self._recovered(done)
        except OSError as error:
            hint = "check permissions and space"
            raise BadInput(f"cannot be written ({error.strerror})", file=self.evidence, hint=hint) from None

    def _recovered(self, done: Container[str]) -> list[str]:
        finished = []
        for pending in sorted(self.root.glob("*.json")):
            try:
                content: Any = strict.parse(decode(load(pending, DOCUMENT_BYTES, hint=""), pending))
                record, document = read_record(content["record"]), content["judgement"]
            except (BadInput, KeyError, TypeError):  # this program writes it whole or not at all, so it is not ours
                pending.unlink(missing_ok=True)
                continue
            whole = isinstance(record, Rubric) and record.attestation == digest(document) and record.validator == self.validator
            if isinstance(record, Rubric) and whole and document.get("bounty") == self.bounty and record.submission not in done:
                self._finish(pending, record, document)
                finished.append(record.submission)
            pending.unlink(missing_ok=True)
        return finished

    def _finish(self, pending: Path, record: Rubric, document: dict[str, Any]) -> None:
        write_bytes(self.competition / JUDGEMENTS / f"{digest_hex(str(record.attestation))}.json", canonical(document) + b"\n")
        run_files.append(self.evidence, canonical(record.document()) + b"\n")
        pending.unlink(missing_ok=True)

    def forget_unjudged(self) -> int:
        """Remove this validator's own `unjudged` records from its evidence, to judge them again. Returns their number."""
        try:
            lines = self.evidence.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return 0
        remaining = [line for line in lines if strict.parse(line.decode()).get("outcome") != "unjudged"]
        if len(remaining) < len(lines):
            write_bytes(self.evidence, b"".join(remaining))
        return len(lines) - len(remaining)


@dataclass(frozen=True)
class ByFallback:
    """A judgement by the fallback model: participant, validator, model, and the reason in words."""

    participant: str
    validator: str
    model: str
    why: str


def by_fallback(competition: Path, participants: Iterable[Participant], records: Iterable[object]) -> list[ByFallback]:
    """The fallback model's judgements of current submissions, if their documents are here."""
    current = {record.key: record.submission for record in participants}
    judgements = []
    for record in records:
        if not isinstance(record, Rubric) or record.attestation is None:
            continue
        if record.submission and record.submission != current.get(record.participant):
            continue
        try:
            document = document_of(competition, record.attestation)
        except BadInput:  # an exported epoch has no documents
            continue
        for answer in panel.answer_documents(document):
            if why := why_fallback(answer):
                judgements.append(ByFallback(record.participant, record.validator, str(answer["model"]), why))
    return judgements


QUOTES = "quotes"
QUOTES_SCHEMA = "assay.quotes/1"
QUOTES_BYTES = 4_000_000


class _PublishedQuotes(Section):
    schema_: Annotated[Literal["assay.quotes/1"], Field(alias="schema")]
    judgement: Digest
    blind: Annotated[str, Field(pattern="^([0-9a-f]{2}){0,64}$")]
    quotes: dict[str, str]


def publish_quotes(competition: Path, judgement: str, quotes: Mapping[str, str], blind: bytes) -> Path:
    """Write the quotes of a judgement (by its digest) for everybody, with what proves them. Returns the file; raises BadInput."""
    path = competition / QUOTES / f"{digest_hex(judgement)}.json"
    document = {"schema": QUOTES_SCHEMA, "judgement": judgement, "blind": blind.hex(), "quotes": dict(quotes)}
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=path.parent, hint="check the folder's permissions") from None
    write_bytes(path, canonical(document) + b"\n")
    return path


def published_quotes(competition: Path, record: Rubric) -> dict[str, str]:
    """Check → the quote that was published for a record of evidence; only those whose digest the record has."""
    path = competition / QUOTES / f"{digest_hex(record.attestation or '')}.json"
    if not path.is_file() or not record.quotes:
        return {}
    try:
        published = validate(_PublishedQuotes, strict.parse(decode(load(path, QUOTES_BYTES, hint=""), path)))
    except BadInput:
        return {}
    blind = bytes.fromhex(published.blind)
    return {name: text for name, text in published.quotes.items() if quote_digest(text, blind) == record.quotes.get(name)}


def document_of(competition: Path, attestation: str) -> dict[str, Any]:
    """The document of a judgement. Raises BadInput if it is not here, or has another digest."""
    file = competition / JUDGEMENTS / f"{digest_hex(attestation)}.json"
    document: Any = strict.parse(
        decode(load(file, DOCUMENT_BYTES, hint="the validator who judged keeps the judgements: `assay run`"), file)
    )
    if not isinstance(document, dict) or digest(document) != attestation:
        raise BadInput("is not the judgement that the evidence names", file=file, hint="restore it from a copy")
    return document
