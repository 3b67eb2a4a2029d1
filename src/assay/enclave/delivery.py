"""Carries to an enclave what participants sent to a service: commitments first, then sealed solutions.

    sealed/HEX.commitment         a signed commitment, under the SHA-256 of its bytes
    sealed/HEX.sealed             a sealed solution
    sealed/HEX.taken.json         the enclave's signed statement that it accepted the file
    sealed/HEX.refused.json       why the enclave will never accept it

`assay enclave deliver` cannot open the files; only the enclave can. A file with an answer is not sent again; a file without
an answer is sent each time, and the enclave gives a repeated request its first answer. The time that counts is the enclave's,
when the file arrives there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.enclave import sealing
from assay.enclave.messages import EnclaveClient, Rejected, RejectionCode
from assay.enclave.service.intake import sealed_limit
from assay.enclave.submission import check_taken
from assay.errors import BadInput, Refused
from assay.exact import canonical
from assay.folder import write_bytes
from assay.folder.files import load
from assay.scheme.bounty import Bounty

__all__ = ["FOLDER", "Delivered", "SealedUpload", "answer_file", "deliver", "parse_upload", "refusal", "upload_file"]

FOLDER = "sealed"
"""The folder of what only an enclave can open, beside bounty.toml."""
UploadKind = Literal["commitment", "sealed"]
FINAL = frozenset(
    {
        RejectionCode.LATE,
        RejectionCode.TOO_LARGE,
        RejectionCode.SECOND_COMMITMENT,
        RejectionCode.SECOND_SOLUTION,
        RejectionCode.NO_SOLUTION,
        RejectionCode.BAD_SIGNATURE,
    }
)
"""The reasons for a refusal that no later request changes."""


@dataclass(frozen=True)
class SealedUpload:
    """The head of a file: whether it is a commitment or a sealed solution, and of which participant."""

    kind: UploadKind
    participant: str


@dataclass(frozen=True)
class Delivered:
    """The state of a file after a delivery: taken or refused (now, or before), or waiting and why."""

    file: Path
    upload: SealedUpload
    state: Literal["taken", "refused", "waiting"]
    why: str = ""


def upload_file(folder: Path, digest: str, kind: UploadKind) -> Path:
    """Return where a commitment or a sealed solution is kept, by the digest `sha256:…` of its bytes."""
    return folder / FOLDER / f"{digest.removeprefix('sha256:')}.{kind}"


def answer_file(file: Path, state: Literal["taken", "refused"]) -> Path:
    """Return where the enclave's answer about a file is kept."""
    return file.with_suffix(f".{state}.json")


def parse_upload(bounty: Bounty, data: bytes) -> SealedUpload:
    """Return what a file is, without opening it. Raises BadInput if it is neither, or of another bounty."""
    if len(data) > sealed_limit(bounty):
        raise BadInput(f"is larger than {sealed_limit(bounty)} bytes", hint="the bounty limits a solution's tokens")
    try:
        commitment = sealing.read_commitment(data)
    except Rejected as refused:
        if refused.code != RejectionCode.MALFORMED:
            raise BadInput(refused.what, hint=refused.hint) from None
    else:
        return _of(bounty, commitment.bounty, SealedUpload("commitment", commitment.participant))
    try:
        sealed = sealing.parse_sealed(data, most=sealed_limit(bounty))
    except BadInput as error:
        where = f"{error.field}: " if error.field else ""
        what = f"is neither a sealed solution nor a commitment: {where}{error.what}"
        raise BadInput(what, hint="`assay seal` and `assay commit` make them") from None
    if sealed.kind != "solution" or sealed.participant is None:
        raise BadInput(f"is sealed as {sealed.kind}, not as a solution", hint="`assay seal` makes a sealed solution")
    return _of(bounty, sealed.bounty, SealedUpload("sealed", sealed.participant))


def _of(bounty: Bounty, digest: str, upload: SealedUpload) -> SealedUpload:
    if digest != bounty.digest:
        hint = "bounty.toml and scheme.toml must be those of the competition"
        raise BadInput(f"is for another bounty than {bounty.digest}", hint=hint)
    return upload


def deliver(bounty: Bounty, client: EnclaveClient, signer: str) -> Iterator[Delivered]:
    """Hand every file in DIR/sealed to the enclave, and keep its answers. signer: the key with which the enclave signs.

    Raises Unreachable if the enclave does not answer, Refused for an answer that this enclave did not sign. A file
    that cannot be read waits, and holds up no other one.
    """
    folder = bounty.file.parent / FOLDER
    kinds: tuple[tuple[UploadKind, str], ...] = (("commitment", "/commitments"), ("sealed", "/submissions"))
    for kind, path in kinds:
        for file in sorted(folder.glob(f"[0-9a-f]*.{kind}"), key=lambda file: (file.stat().st_mtime_ns, file.name)):
            try:
                data = load(file, sealed_limit(bounty), hint="remove it: the service did not write it")
                upload = parse_upload(bounty, data)
            except BadInput as error:  # the others have deadlines, and do not wait for it
                yield Delivered(file, SealedUpload(kind, ""), "waiting", str(error))
                continue
            yield _delivered(bounty, client, signer, file, upload, path, data)


def _delivered(
    bounty: Bounty, client: EnclaveClient, signer: str, file: Path, upload: SealedUpload, path: str, data: bytes
) -> Delivered:
    if answer_file(file, "taken").exists():
        return Delivered(file, upload, "taken")
    refused = answer_file(file, "refused")
    if refused.exists():
        return Delivered(file, upload, "refused", refusal(refused))
    try:
        answer = client.post(path, data)
    except Rejected as rejected:
        why = f"{rejected.what}; {rejected.hint}" if rejected.hint else rejected.what
        if rejected.code not in FINAL:
            return Delivered(file, upload, "waiting", why)
        write_bytes(refused, canonical({"code": rejected.code.value, "what": rejected.what, "hint": rejected.hint}) + b"\n")
        return Delivered(file, upload, "refused", why)
    try:
        check_taken(answer, bounty, upload.participant, signer, {"sealed": "submission"}.get(upload.kind, upload.kind))
    except Refused as error:
        error.participant = upload.participant
        raise
    write_bytes(answer_file(file, "taken"), answer + b"\n")
    return Delivered(file, upload, "taken")


def refusal(file: Path) -> str:
    """The reason why the enclave refused a file, by its kept answer."""
    try:
        answer = json.loads(file.read_bytes())
        return f"{answer['what']}; {answer['hint']}" if answer["hint"] else str(answer["what"])
    except (OSError, ValueError, KeyError, TypeError):
        return "its answer cannot be read"
