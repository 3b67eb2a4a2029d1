"""Be a witness of logs: sign a checkpoint only if the log grew from the one signed before. SPEC 6, Witnesses; C2SP tlog-witness.

A witness keeps the last checkpoint of each log. It is on the disk before the cosignature is given away, so a witness that was
killed never signs an older tree or another one of the same size. Its folder has one file a log:

    <SHA-256 of the log's name>    the checkpoint as it was cosigned last

`Witness.add` answers as the HTTP interface does, by a status and a body; `assay.serve.witness` is the server.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from assay.errors import BadInput
from assay.folder.files import alone, load, write_bytes
from assay.ledger import check
from assay.ledger.check import CheckError, Checkpoint, LogKey
from assay.ledger.cosigning import ED25519, WitnessKey, cosign, cosignatures, merged, text_of
from assay.ledger.keys import PrivateKey, as_bad_input

__all__ = ["REQUEST_BYTES", "Witness", "WitnessAnswer", "request_body"]

REQUEST_BYTES = 2**20
PROOF_LINES = 63
_BACK = "bring it back from a copy: without it the witness could sign an older tree"
SIZE_TYPE, NOTE_TYPE = "text/x.tlog.size", "text/plain; charset=utf-8"


@dataclass(frozen=True)
class WitnessAnswer:
    """The answer to a request: HTTP status, body, its type."""

    status: int
    body: bytes
    kind: str = NOTE_TYPE


class _Declined(Exception):
    """The witness does not cosign; the answer says why."""

    def __init__(self, status: int, what: str, kind: str = NOTE_TYPE) -> None:
        super().__init__(what)
        self.answer = WitnessAnswer(status, f"{what}\n".encode(), kind)


def request_body(old: int, proof: Iterable[bytes], note: bytes) -> bytes:
    """The body of a request: the size that the witness signed last, the proof from there, and the checkpoint."""
    import base64

    lines = [f"old {old}\n", *(f"{base64.b64encode(hash_).decode()}\n" for hash_ in proof), "\n"]
    return "".join(lines).encode() + note


class Witness:
    """A witness of some logs, with its state in a folder. Threads and processes may share the folder.

    name: under which it signs. logs: the logs that it witnesses. Raises BadInput for a name that a witness cannot have, a key
    that is not Ed25519, a folder that cannot be written, and a state that it did not sign.
    """

    def __init__(
        self, folder: Path, name: str, signer: PrivateKey, logs: Iterable[LogKey], clock: Callable[[], float] = time.time
    ) -> None:
        self.folder, self.name, self._signer, self._clock = folder, name, signer, clock
        if signer.public.kind != "ed25519":
            raise BadInput(f"{signer.public} is not an Ed25519 key", hint="make one: assay keys new NAME")
        if not re.fullmatch(check.NAME, name) or len(name.encode()) > 255:
            raise BadInput(
                "is not the name of a witness", field="name", hint="use a host and a path, such as example.org/witness"
            )
        self.logs: Mapping[str, LogKey] = {key.name: key for key in logs}
        if own := next((key.name for key in self.logs.values() if key.raw == signer.public.raw), None):
            raise BadInput(f"the witness has the key of the log {own}", hint="make a key for the witness: assay keys new NAME")
        with as_bad_input("give the witness a key of its own"):
            self.key = WitnessKey(name, ED25519, signer.public.raw)
        self._busy = Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint="give another folder") from None
        for origin in self.logs:
            self.last(origin)

    def file(self, origin: str) -> Path:
        """The file with the state of a log."""
        return self.folder / hashlib.sha256(origin.encode()).hexdigest()

    def note(self, origin: str) -> bytes | None:
        """The checkpoint that was cosigned last, with the cosignature; None before the first."""
        path = self.file(origin)
        if not path.exists():
            return None
        return load(path, check.NOTE_BYTES, hint=_BACK)

    def last(self, origin: str) -> Checkpoint | None:
        """The checkpoint that was cosigned last; None before the first. Raises BadInput for a file that we did not sign."""
        note = self.note(origin)
        if note is None:
            return None
        with as_bad_input(_BACK, file=self.file(origin)):
            if not cosignatures(note, [self.key]):
                raise CheckError("witnesses", f"it is not cosigned by {self.name}")
            checkpoint = Checkpoint.parse(text_of(note), "witnesses")
            if checkpoint.origin != origin:
                raise CheckError("witnesses", "it is of another log", origin, checkpoint.origin)
            return checkpoint

    def add(self, body: bytes) -> WitnessAnswer:
        """Check a request, and cosign its checkpoint: status 200 and the line, or what the specification says instead.

        Raises BadInput if the state cannot be read or written: then nothing was signed.
        """
        try:
            return self._add(body)
        except _Declined as declined:
            return declined.answer

    def _add(self, body: bytes) -> WitnessAnswer:
        old, proof, note = _read(body)
        try:
            new = Checkpoint.parse(text_of(note), "checkpoint")
        except CheckError as error:
            raise _Declined(400, str(error)) from None
        key = self.logs.get(new.origin)
        if key is None:
            raise _Declined(404, "this witness does not know the log")
        try:
            check.check_checkpoint(note, [key])
        except CheckError as error:
            raise _Declined(403, str(error)) from None
        if old > new.size:
            raise _Declined(400, f"the old size {old} is above the checkpoint's {new.size}")
        with self._busy, alone(self.folder):
            before = self.last(new.origin) or Checkpoint(new.origin, 0, check.EMPTY_ROOT)
            if old != before.size:
                return WitnessAnswer(409, f"{before.size}\n".encode(), SIZE_TYPE)
            _check_grown(before, new, proof)
            line = cosign(text_of(note), self.name, self._signer, int(self._clock()))
            only = merged(_without_others(note, key), [line])
            write_bytes(self.file(new.origin), only)
        return WitnessAnswer(200, line.encode())


def _without_others(note: bytes, key: LogKey) -> bytes:
    """The note with the log's own signature alone: other signatures come from anybody."""
    text, _, lines = note.decode().rpartition("\n\n")
    mine = [line for line in lines.split("\n") if line.startswith(f"— {key.name} ") and _hint(line) == key.hint]
    return "".join([text, "\n\n", *(f"{line}\n" for line in mine[:1])]).encode()


def _hint(line: str) -> bytes:
    return check.unbase64(line.split(" ", 2)[2], "checkpoint")[:4]


def _check_grown(before: Checkpoint, new: Checkpoint, proof: tuple[bytes, ...]) -> None:
    """Decline unless the proof shows that the new tree begins with the one before. From no leaves, it is empty."""
    try:
        if before.size == 0 and proof:
            raise CheckError("consistency", "the proof from size 0 is not empty")
        check.check_consistency(before.size, before.root, new.size, new.root, proof)
    except CheckError as error:
        raise _Declined(422, str(error)) from None


def _read(body: bytes) -> tuple[int, tuple[bytes, ...], bytes]:
    """The old size, the proof and the checkpoint in a request."""
    head, blank, note = body.partition(b"\n\n")
    try:
        first, *lines = head.decode("ascii").split("\n")
        if not blank or not first.startswith("old ") or len(lines) > PROOF_LINES or len(body) > REQUEST_BYTES:
            raise CheckError("request", f"it is not: old SIZE, at most {PROOF_LINES} hashes, an empty line, a checkpoint")
        return check.number(first.removeprefix("old "), "request"), check.parse_hashes(lines, "request"), note
    except UnicodeDecodeError:
        raise _Declined(400, "the lines before the checkpoint are not ASCII") from None
    except CheckError as error:
        raise _Declined(400, str(error)) from None
