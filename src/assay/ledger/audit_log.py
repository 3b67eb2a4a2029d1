"""Keep signed audits in a log of their own, and check one from its file. docs/auditing.md.

    DIR/audits/log/                        checkpoint and tiles, for any web server
    DIR/audits/epoch-12-1a2b3c4d.audit     assay.audit/1: the signed statement, and the proof that it is in the log

A file is on the disk before the log has its entry. If a crash came between, the next audit first brings the log up to the file.
So the log's key never signs two trees of one size.

Audits that came with an imported bundle lie there too, without entries in the log: only the log's own auditor can add to it.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from assay.errors import BadInput, Refused
from assay.exact import canonical, nanos, text
from assay.folder.files import alone, load, write_bytes
from assay.ledger import check, log
from assay.ledger.auditing import PREDICATE, stated_predicate
from assay.ledger.check import CheckError, Envelope, LogKey, LogProof, leaf_hash
from assay.ledger.keys import PrivateKey, sign_envelope
from assay.ledger.log import Log
from assay.ledger.merkle import Tree
from assay.ledger.verify.report import stage

__all__ = [
    "AUDITS",
    "FORMAT",
    "SignedAudit",
    "append",
    "carried",
    "false_claims",
    "kept",
    "marks",
    "present",
    "read_audit",
    "summary",
    "take_in",
]

AUDITS, FORMAT = "audits", "assay.audit/1"
STAGE = "audit"
_SHAPE = {"schema": FORMAT.replace(".", "[.]"), "envelope": object, "proof": check.WORD}


@dataclass(frozen=True)
class SignedAudit:
    """A checked audit: the auditor's log, where the audit is in it, and the signed payload."""

    path: Path
    key: LogKey
    index: int
    size: int
    payload: bytes

    @property
    def digest(self) -> str:
        """`sha256:…` of the payload: what the registry names where the scheme leaves a validator out."""
        return f"sha256:{sha256(self.payload).hexdigest()}"

    @property
    def predicate(self) -> dict[str, Any]:
        """The predicate of the statement; it follows from the evidence only when `auditing.check_statement` has made it again."""
        stated: dict[str, Any] = json.loads(self.payload)["predicate"]
        return stated


def append(folder: Path, origin: str, signer: PrivateKey, payload: bytes) -> Path:
    """Sign a statement into the log of a folder, which is made if it is not there, and return the file of the audit.

    The same statement again changes nothing. Raises BadInput for a log of another key or name, for one that lacks entries before
    those of its files, and for a folder that cannot be written.
    """
    key = log.log_key(origin, signer.public)
    tiles = folder / "log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint="give another folder") from None
    with alone(folder):
        if not log.is_log(tiles):
            Log.create(tiles, key, log.sign_checkpoint(0, check.EMPTY_ROOT, key, signer))
        audits = Log(tiles, key)
        _bring_up(folder, audits)
        entries, entry = list(audits.entries()), sha256(payload).digest()
        path = folder / _name(payload)
        if entry in entries:
            return path
        note = log.sign_checkpoint(audits.size + 1, audits.root_with([entry]), key, signer)
        proof = Tree([leaf_hash(other) for other in (*entries, entry)]).inclusion(audits.size, audits.size + 1)
        envelope = sign_envelope(payload, signer)
        document = {"schema": FORMAT, "envelope": envelope, "proof": log.proof_text(proof, note)}
        write_bytes(path, canonical(document) + b"\n")
        audits.publish(note, audits.size, [entry])
    return path


def _name(payload: bytes) -> str:
    """The name of an audit's file; its digits are the first of the payload's digest."""
    return f"epoch-{json.loads(payload)['predicate']['epoch']}-{sha256(payload).hexdigest()[:8]}.audit"


def _bring_up(folder: Path, audits: Log) -> None:
    """Add to the log the entries of files that a crash kept out of it; BadInput for a file whose entry has none before it."""
    own = list[SignedAudit]()
    for path in folder.glob("*.audit"):
        with suppress(Refused):
            own.append(read_audit(path, audits.key))
    for there in sorted(own, key=lambda audit: audit.index):
        if there.index == audits.size:
            note = LogProof.parse(json.loads(there.path.read_bytes())["proof"]).checkpoint
            audits.publish(note, there.index, [sha256(there.payload).digest()])
        elif there.index > audits.size:  # another entry in its place would be a second tree of one size
            what = f"is entry {there.index} of {audits.key.name}, but the log here has only {audits.size}"
            hint = f"bring {audits.folder} back from a copy, or sign into another folder and log: --output, --origin"
            raise BadInput(what, file=there.path, hint=hint)


def read_audit(path: Path, key: LogKey | None = None) -> SignedAudit:
    """The audit in a file: signed by the auditor's key, and in its log. key: None: the one that the file names itself.

    Raises Refused for the first fault, and BadInput if the file cannot be read.
    """
    data = load(path, check.RECEIPT_BYTES, hint="give the file that `assay audit run` wrote")
    try:
        document = check.parse_json(data, STAGE, check.RECEIPT_BYTES)
        if bad := check.misfit(document, _SHAPE):
            raise CheckError(STAGE, f"it does not have the format {FORMAT}: {bad} does not fit")
        envelope, proof = Envelope.parse(document["envelope"], STAGE), LogProof.parse(document["proof"], STAGE)
        known = key or _named(envelope, proof)
        check.check_envelope(envelope, [known], STAGE)
        now = check.check_checkpoint(proof.checkpoint, [known], STAGE)
        leaf = leaf_hash(sha256(envelope.payload).digest())
        check.check_inclusion(now.root, now.size, proof.index, leaf, proof.hashes, STAGE)
        statement = check.parse_json(envelope.payload, STAGE)
        if not isinstance(statement, dict) or statement.get("predicateType") != PREDICATE:
            raise CheckError(STAGE, f"it is not a statement {PREDICATE}")
    except CheckError as refused:
        raise Refused(refused.stage, refused.what, expected=refused.expected, found=refused.found, file=path) from None
    return SignedAudit(path, known, proof.index, now.size, envelope.payload)


def _named(envelope: Envelope, proof: LogProof) -> LogKey:
    """The key that the file itself names; anybody can make one."""
    name, digits = proof.checkpoint.partition(b"\n")[0].decode(), envelope.signatures[0][0].removeprefix("ed25519:")
    try:
        return LogKey(bytes.fromhex(digits), name)
    except ValueError:
        raise CheckError(STAGE, "it does not name the key that signed it", "ed25519:…", digits[:100]) from None


def summary(predicate: dict[str, Any]) -> str:
    """An audit in one sentence: `Audited at 5 % risk: 73 of 400 trials judged again; the outcome is confirmed.`"""
    what = {
        "confirmed": "the outcome is confirmed",
        "recounted": "these are all that could overstate it, and it stands",
        "refused": "the outcome is not confirmed",
    }[predicate["verdict"]]
    judged, counted, risk = len(predicate["judged"]), predicate["trials"]["counted"], text(nanos(predicate["risk"]) * 100)
    return f"Audited at {risk} % risk: {judged} of {counted} trials judged again; {what}."


def false_claims(predicate: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Validator → how many of its claims were false, of how many that were judged again; only those with a false one."""
    judged = Counter(row["validator"] for row in predicate["judged"])
    false = Counter(row["validator"] for row in predicate["judged"] if row["state"] == "false")
    return {name: (count, judged[name]) for name, count in sorted(false.items())}


def present(folder: Path) -> list[SignedAudit]:
    """Every audit in a folder's audits/ that is signed and in the log which it names; other files are passed over."""
    audits = list[SignedAudit]()
    for path in sorted((folder / AUDITS).glob("*.audit")):
        with suppress(Refused, BadInput):
            audits.append(_shaped(read_audit(path)))
    return audits


def _shaped(audit: SignedAudit) -> SignedAudit:
    """The same audit; raises Refused if its statement has not the shape of an audit's."""
    with stage(STAGE):
        stated_predicate(audit.payload)
    return audit


def kept(folder: Path) -> list[SignedAudit]:
    """The audits in a folder's audits/ by the key of its own log, oldest first; files of another key are passed over."""
    note = folder / AUDITS / "log" / log.SHOWN
    audits = present(folder) if note.exists() else []
    own = {key for key in {audit.key for audit in audits} if _is_by(note, key)}
    return sorted((audit for audit in audits if audit.key in own), key=lambda audit: audit.index)


def _is_by(note: Path, key: LogKey) -> bool:
    """Whether a key signed the checkpoint in a file."""
    try:
        check.check_checkpoint(load(note, check.NOTE_BYTES, hint=""), [key])
    except (CheckError, BadInput):
        return False
    return True


def carried(folder: Path, receipt: str, inputs: bytes) -> dict[str, bytes]:
    """The audits that the bundle of an epoch carries: name → bytes. Those of its receipt, and those that its inputs mark.

    receipt: the digest of its payload. inputs: the inputs document.
    """
    audits = present(folder)
    marked = marks(inputs) if audits else frozenset[str]()
    return {
        audit.path.name: audit.path.read_bytes()
        for audit in audits
        if audit.predicate["receipt"] == receipt or audit.digest in marked
    }


def marks(inputs: bytes) -> frozenset[str]:
    """The digests of the audits that the validators of an inputs document are marked with."""
    return frozenset(row["failed_audit"] for row in json.loads(inputs)["validators"] if "failed_audit" in row)


def take_in(folder: Path, source: Path) -> list[SignedAudit]:
    """Copy the audits in a verified bundle's audits/ to those of a folder, as far as they are not there; return the new ones.

    They are not added to the folder's log, which is their auditor's. Raises Refused for a file that is no signed audit; BadInput.
    """
    audits, place = [_shaped(read_audit(path)) for path in sorted(source.glob("*.audit"))], folder / AUDITS
    if not audits:
        return []
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=place, hint="check permissions") from None
    new = list[SignedAudit]()
    with alone(place):
        for audit in audits:
            path = place / _name(audit.payload)
            if not path.exists():
                write_bytes(path, audit.path.read_bytes())
                new.append(replace(audit, path=path))
    return new
