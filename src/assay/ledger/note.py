"""Signing what a log says of itself: checkpoints as signed notes, and proofs with them (C2SP). SPEC 6."""

from __future__ import annotations

import base64
import re

from assay.characters import allowed
from assay.errors import BadInput, brief
from assay.ledger.check import NAME, PROOF, LogKey
from assay.ledger.keys import ED25519, PrivateKey, PublicKey
from assay.ledger.merkle import Proof
from assay.ledger.refusal import as_bad_input

__all__ = ["log_key", "proof_text", "sign_checkpoint", "sign_note"]


def log_key(origin: str, key: PublicKey) -> LogKey:
    """The vkey of a log of that name; raises BadInput if the name cannot be one, or if the key is not Ed25519."""
    if key.kind != ED25519:
        raise BadInput(f"{key} is not an Ed25519 key", hint="logs sign with Ed25519: assay keys new")
    if not allowed(origin) or not re.fullmatch(NAME, origin):
        raise BadInput(f"{brief(origin)} cannot be the name of a log", hint="use a host and a path, such as example.org/my-log")
    with as_bad_input("give the public key of the log"):
        return LogKey(key.raw, origin)


def sign_note(text: str, key: LogKey, signer: PrivateKey) -> bytes:
    """The text, which ends a line, as a note signed under the name of the log; ValueError if the signer's key is another."""
    if signer.public.raw != key.raw or not text.endswith("\n"):
        raise ValueError("the note is not one that this key can sign")
    signature = base64.b64encode(key.hint + signer.sign(text.encode())).decode()
    return f"{text}\n— {key.name} {signature}\n".encode()


def sign_checkpoint(size: int, root: bytes, key: LogKey, signer: PrivateKey) -> bytes:
    """The signed checkpoint of a log with `size` entries; its origin is the name of the key."""
    return sign_note(f"{key.name}\n{size}\n{base64.b64encode(root).decode()}\n", key, signer)


def proof_text(proof: Proof, checkpoint: bytes) -> str:
    """A C2SP tlog-proof: the place of an entry, up to the root of the signed checkpoint, whose size is the proof's."""
    hashes = "".join(f"{base64.b64encode(one).decode()}\n" for one in proof.hashes)
    return f"{PROOF}\nindex {proof.index}\n{hashes}\n{checkpoint.decode()}"
