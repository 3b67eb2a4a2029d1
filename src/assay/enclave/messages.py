"""Messages between participants and an enclave: signed statements, rejections, and the client that exchanges them. SPEC 6.

A statement is an in-toto statement in a DSSE envelope, and has exactly one spelling. A rejection has a code for machines and a
sentence for people; neither contains any plaintext. The service is asked at `unix:PATH` or `http(s)://HOST`, bounded in time and
size; its refusals arrive as `Rejected`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from assay.errors import AssayError, BadInput, Unreachable, brief
from assay.exact import canonical
from assay.ledger import check
from assay.ledger.keys import PrivateKey, PublicKey, sign_envelope
from assay.peers import NoAnswer, Overrun, Packed, Words, peer, reading


def join_parts(*parts: str | bytes) -> bytes:
    """The parts (text as UTF-8), each after its length (8 bytes, big-endian); the first names what it is for."""
    raw = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join(len(part).to_bytes(8, "big") + part for part in raw)


class Code(StrEnum):
    """Reasons of a rejection. A rejected request changes nothing at the enclave, except for the two final ones."""

    MALFORMED = "malformed"
    """It is not what its schema says."""
    TOO_LARGE = "too-large"
    """More bytes than are read, or (final) a solution with more tokens than the bounty allows."""
    OTHER_BOUNTY = "other-bounty"
    """It is about another bounty."""
    UNKNOWN_PARTICIPANT = "unknown-participant"
    """participants.csv has no such row."""
    NO_KEY = "no-key"
    """The participant's key is a name, not a public key, so it cannot sign."""
    BAD_SIGNATURE = "bad-signature"
    """The participant did not sign it."""
    LATE = "late"
    """By the enclave's clock, when it was there whole."""
    SECOND_COMMITMENT = "second-commitment"
    """The participant has committed to something else."""
    NO_COMMITMENT = "no-commitment"
    """There is no commitment of this participant."""
    NOT_OPENED = "not-opened"
    """It was sealed to another key, for another bounty or by another participant, or was changed."""
    NOT_COMMITTED = "not-committed"
    """Salt and solution are not what was committed to."""
    SECOND_SOLUTION = "second-solution"
    """The participant has handed in another one."""
    NO_SOLUTION = "no-solution"
    """(Final.) What was committed to and sealed is not a solution."""
    NOT_YET = "not-yet"
    """There are no results before the time for solutions is over and everything is judged, or the scoring deadline."""
    UNKNOWN = "unknown"
    """There is nothing of this name."""
    NO_SPONSOR = "no-sponsor"
    """The bounty names no key to seal it to."""
    NOT_SETTLED = "not-settled"
    """Receipt and settlement are not those of this bounty, or do not rest on what was judged here."""
    STARTING = "starting"
    """The enclave has no keys yet: dstack does not answer."""
    BUSY = "busy"
    """Too much at once; or the request did not arrive whole in time."""
    INTERNAL = "internal"
    """The enclave's own trouble."""


class Rejected(AssayError):
    """The enclave rejects a request; the code is the reason."""

    def __init__(self, code: Code, what: str, *, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.code = code


ENVELOPE_BYTES = check.ENVELOPE_BYTES
"""Bytes of one."""


@dataclass(frozen=True)
class StatementKind:
    """A kind of statement: `predicateType`, the name of its one subject, and the shape of its predicate (see `check.misfit`)."""

    type: str
    subject: str
    shape: Any
    most: int = ENVELOPE_BYTES

    def make(self, digest: str, predicate: dict[str, Any], signer: PrivateKey) -> SignedStatement:
        """A statement about what has this digest (`sha256:…`), signed."""
        document = {
            "_type": check.STATEMENT,
            "subject": [{"name": self.subject, "digest": {"sha256": digest.removeprefix("sha256:")}}],
            "predicateType": self.type,
            "predicate": predicate,
        }
        return SignedStatement(canonical(sign_envelope(canonical(document), signer)), digest, predicate)

    def read(self, data: bytes) -> SignedStatement:
        """The statement in the bytes of an envelope, whoever signed it; raises `check.CheckError` for anything else."""
        found = check.parse_json(data, self.subject, self.most)
        payload = check.Envelope.parse(found, self.subject).payload
        said = check.parse_json(payload, self.subject, self.most)
        shape = {
            "_type": check.STATEMENT.replace(".", r"\."),
            "subject": [{"name": self.subject, "digest": {"sha256": "[0-9a-f]{64}"}}],
            "predicateType": self.type,
            "predicate": self.shape,
        }
        bad = check.misfit(said, shape)
        if bad or len(said["subject"]) != 1:
            raise check.CheckError(self.subject, "it does not state what it should", found=f"another {bad or 'subject'}")
        if canonical(said) != payload:
            raise check.CheckError(self.subject, "the statement is not in its canonical form")
        return SignedStatement(canonical(found), f"sha256:{said['subject'][0]['digest']['sha256']}", said["predicate"])


@dataclass(frozen=True)
class SignedStatement:
    """A signed statement: the envelope (canonical JSON), the digest of its subject, and what it says of it."""

    envelope: bytes
    digest: str
    predicate: dict[str, Any]

    def check_by(self, key: PublicKey, stage: str) -> None:
        """Refuse it unless this key signed it; raises `check.CheckError`, and BadInput for a key that takes a missing extra."""
        found = check.Envelope.parse(check.parse_json(self.envelope, stage, 2 * ENVELOPE_BYTES), stage)
        check.check_envelope(found, [key], stage)

    def is_by(self, key: PublicKey) -> bool:
        """Whether this key signed it."""
        try:
            self.check_by(key, "statement")
        except (check.CheckError, BadInput):
            return False
        return True


ANSWER_BYTES = 2**30
"""Bytes of one answer: of results with every judgement's quote, or of a release."""
ANSWER_PARTS = 8_000_000
"""Brackets, commas and strings of one answer: a judgement's quote and log have some five hundred."""
CLIENT_SECONDS = 120.0
"""For an exchange in all, and for each wait in it."""
CLIENT_RATE = 65_536
"""Bytes that give an exchange one second more: what is large may take its time, what drips may not."""
_REFUSAL = 65_536
_PRINTABLE = Words()


class EnclaveClient:
    """An enclave at its address; raises BadInput for one that cannot be an address. A context manager.

    seconds: for an exchange in all, before what its bytes add to it.
    """

    def __init__(self, url: str, *, seconds: float = CLIENT_SECONDS) -> None:
        self.url, uds, self._base = url, None, url.rstrip("/")
        if url.startswith("unix:"):
            uds, self._base = url.removeprefix("unix:"), "http://enclave"
        elif not url.startswith(("http://", "https://")) or not _is_url(url):
            raise BadInput(f"{brief(url)} is no address", field="url", hint="give unix:PATH or http://HOST:PORT")
        self._peer = peer(self._base, extra="tee", seconds=seconds, idle=seconds, rate=CLIENT_RATE, uds=uds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._peer.close()

    def get(self, path: str, most: int = ANSWER_BYTES) -> bytes:
        """The answer at a path; raises Rejected if the enclave refuses, Unreachable if it does not answer."""
        return self._asked("GET", path, None, most)

    def post(self, path: str, body: bytes, most: int = ANSWER_BYTES) -> bytes:
        """The answer to a body; raises as `get`."""
        return self._asked("POST", path, body, most)

    def _asked(self, how: str, path: str, body: bytes | None, most: int) -> bytes:
        hint = "is it an enclave's service?"
        try:
            answer = self._peer.ask(how, f"{self._base}{path}", body=body, most=most)
            reading.bounded(answer.body.decode("utf-8", "replace"), ANSWER_PARTS)
        except Overrun as error:
            raise Unreachable(f"{self.url} answered with {error.why}", hint=hint) from None
        except Packed as error:
            raise Unreachable(f"{self.url} does not answer ({error.why})", hint=hint) from None
        except NoAnswer as error:
            hint = "is it running there? What was taken stays taken: asking again does no harm"
            raise Unreachable(f"{self.url} does not answer ({error.why})", hint=hint) from None
        if answer.status == 200:
            return answer.body
        raise _refusal(answer.body) or Unreachable(f"{self.url} answered with status {answer.status}", hint=hint)


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return bool(parts.hostname) and url.isascii() and url.isprintable() and " " not in url


def _refusal(data: bytes) -> Rejected | None:
    """The refusal in an answer; None if it is not an enclave's refusal."""
    try:
        said = reading.parsed(data[:_REFUSAL], parts=100)["error"]
        return Rejected(Code(said["code"]), _PRINTABLE(said["what"], 1000), hint=_PRINTABLE(said["hint"], 1000))
    except (NoAnswer, KeyError, TypeError, ValueError):
        return None
