"""Check a receipt with this file, Python and `cryptography` alone: copy the file, read it, run it. SPEC 6.

    python check.py epoch-12.receipt --key "example.org/log+1a2b3c4d+Ab…" [--checkpoint seen-before [--consistency hashes]]

The checks run in this order. The first failure is raised as `CheckError`, and nothing after it is checked:

- receipt: strict JSON; a DSSE envelope signed by one of the keys; the bytes whose signature was checked are the bytes that are
  parsed; they are an in-toto statement about one settlement.
- log: the SHA-256 of these bytes is an entry of the log, shown by an RFC 6962 proof up to the root of a checkpoint that one of
  the keys signed (C2SP tlog-proof, tlog-checkpoint, signed-note).
- consistency: if a checkpoint seen at another time is given, the smaller tree is the beginning of the larger (RFC 9162, 2.1.4.2).

The settlement is not recomputed: that needs the evidence, and `assay verify`. Nothing here imports the rest of Assay. The rest of
Assay checks with the functions of this file.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

RECEIPT_BYTES = 4 * 2**20
ENVELOPE_BYTES = 2**20  # of a payload too
NOTE_BYTES = 2**20  # of a log proof too
SIGNATURES = 64  # on one envelope or note
HASHES = 64  # of one proof: no tree of fewer than 2^63 leaves has a longer one
LARGEST = 2**53 - 1  # of the counts in a statement

IN_TOTO = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
FORMAT = "assay.receipt/1"
PREDICATE = "assay:receipt/v2"
FIRST = "assay:receipt/v1"  # results in it do not bind the records that they rest on
PROOF = "c2sp.org/tlog-proof@v1"
EMPTY_ROOT = hashlib.sha256().digest()
ED25519 = b"\x01"  # the type of a key in a signed note

# Character classes, written out: what Python calls a space, or printable, depends on its version of Unicode.
SPACES = "\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
NAME = f"[^{SPACES}+]+"  # of a log
UNPRINTABLE = "\0-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff"

Json = dict[str, Any]


class CheckError(Exception):
    """A check failed: at which stage, what is wrong, and, if known, what was expected and what was found."""

    def __init__(self, stage: str, what: str, expected: object = None, found: object = None) -> None:
        super().__init__(stage, what, expected, found)
        self.stage, self.what, self.expected, self.found = stage, what, expected, found

    def __str__(self) -> str:
        sides = {"expected": self.expected, "found": self.found}.items()
        values = ", ".join(f"{name} {str(value)[:200]}" for name, value in sides if value is not None)
        return f"{self.stage}: {self.what}" + (f" ({values})" if values else "")


def parse_json(data: bytes, stage: str, most: int = ENVELOPE_BYTES) -> Any:
    """The value of strict JSON: at most `most` bytes of UTF-8, no key twice, no NaN, no lone surrogate, not too deep."""

    def unique(pairs: list[tuple[str, Any]]) -> Json:
        if len(value := dict(pairs)) != len(pairs):
            raise ValueError("a key occurs twice in one object")
        return value

    def constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    if len(data) > most:
        raise CheckError(stage, "it is too large", f"at most {most} bytes", f"{len(data)} bytes")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # fails for half a pair of surrogates, which is not text
    except (ValueError, RecursionError) as error:
        plain = {UnicodeDecodeError: "bytes that are not UTF-8", RecursionError: "brackets too deep inside one another"}
        raise CheckError(stage, "it is not strict JSON", found=plain.get(type(error), error)) from None
    return value


def unbase64(text: object, stage: str, *, either: bool = False) -> bytes:
    """The bytes of canonical base64 with padding; with `either`, also in the URL-safe alphabet, but not in a mix of both."""
    if isinstance(text, str):
        standard = text.translate({45: "+", 95: "/"}) if either and not re.search("[+/]", text) else text
        try:
            data = base64.b64decode(standard, validate=True)
        except ValueError:
            data = b""
        if base64.b64encode(data).decode() == standard:  # otherwise it has spaces, no padding, or bits after the end
            return data
    raise CheckError(stage, "it is not canonical base64", found=text)


def number(text: str, stage: str) -> int:
    """A decimal number below 2^63 without leading zeros."""
    if not re.fullmatch("0|[1-9][0-9]{0,18}", text) or int(text) >= 2**63:
        raise CheckError(stage, "it is not a number from 0 to 2^63 - 1 without leading zeros", found=text)
    return int(text)


def misfit(value: Any, shape: Any, at: str = "the document") -> str:
    """The name of the field where a JSON value first differs from a shape; "" if it does not.

    A shape is one of: a dict, for an object with these fields and no others (a field whose name ends in ? may be missing); a list
    of one shape, for a list of such values; a tuple, for any of its shapes; a text, for a string that the pattern matches whole;
    int, for a count up to LARGEST; None, for null; object, for anything.
    """
    if isinstance(shape, dict):
        inner = {key.removesuffix("?"): inner_shape for key, inner_shape in shape.items()}
        if not isinstance(value, dict) or not inner.keys() & shape.keys() <= value.keys() <= inner.keys():
            return at
        return next((bad for key in inner if key in value and (bad := misfit(value[key], inner[key], key))), "")
    if isinstance(shape, list):
        return at if not isinstance(value, list) or any(misfit(item, shape[0]) for item in value) else ""
    if isinstance(shape, tuple):
        return "" if any(not misfit(value, choice) for choice in shape) else at
    if isinstance(shape, str):
        return "" if isinstance(value, str) and re.fullmatch(shape, value) else at
    fits = shape is object or (type(value) is int and 0 <= value <= LARGEST if shape is int else value is None)
    return "" if fits else at


class Key(Protocol):
    """A public key; two keys with the same `id` are the same key."""

    @property
    def id(self) -> str:
        """The name of the key: its kind and 64 hex digits, as `ed25519:…`."""

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this key made this signature of this message."""


SomeKey = TypeVar("SomeKey", bound=Key)

_P = 2**255 - 19
_EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826  # the y of a point of order 8
_WEAK = {0, 1, _P - 1, _EIGHTH, _P - _EIGHTH}  # the y of all points of small order: for such a key, anybody can sign


_loaded = lru_cache(maxsize=1024)(Ed25519PublicKey.from_public_bytes)


@dataclass(frozen=True)
class Ed25519Key:
    """An Ed25519 public key, 32 bytes. Raises CheckError for one that anybody can sign for, or a second spelling of another."""

    raw: bytes

    def __post_init__(self) -> None:
        y = int.from_bytes(self.raw, "little") % 2**255
        if len(self.raw) != 32 or y >= _P or y in _WEAK:
            raise CheckError("key", "it is not an Ed25519 public key that can be trusted", found=self.raw.hex())

    @property
    def id(self) -> str:
        """`ed25519:` and 64 hex digits."""
        return f"ed25519:{self.raw.hex()}"

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this key made this signature of this message."""
        try:
            _loaded(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class Envelope:
    """A decoded DSSE envelope: type and bytes of the payload, and the signatures, each as (keyid, signature)."""

    payload_type: str
    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]

    @classmethod
    def parse(cls, document: object, stage: str) -> Envelope:
        """The envelope in a JSON object; both alphabets of base64 are read, and fields unknown to DSSE are ignored."""
        fields = document if isinstance(document, dict) else {}
        kind, signatures = fields.get("payloadType"), fields.get("signatures")
        if not isinstance(kind, str) or not isinstance(signatures, list) or not 0 < len(signatures) <= SIGNATURES:
            raise CheckError(stage, f"it is not a DSSE envelope with 1 to {SIGNATURES} signatures")
        if any(not isinstance(signature, dict) or not isinstance(signature.get("keyid", ""), str) for signature in signatures):
            raise CheckError(stage, "a signature is not an object with a sig and perhaps a keyid")
        pairs = [(signature.get("keyid", ""), unbase64(signature.get("sig"), stage, either=True)) for signature in signatures]
        return cls(kind, unbase64(fields.get("payload"), stage, either=True), tuple(pairs))


def pae(payload_type: str, payload: bytes) -> bytes:
    """The bytes that a DSSE signature signs: the payload and its type, each after its length in bytes."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def check_envelope(envelope: Envelope, keys: Iterable[SomeKey], stage: str, threshold: int = 1) -> list[SomeKey]:
    """The keys that signed an in-toto payload, each once; raises CheckError if they are fewer than `threshold` (at least 1).

    The keyid is not signed, so it decides nothing: each key is tried on each signature, and signatures of other keys are ignored.
    """
    if envelope.payload_type != IN_TOTO:
        raise CheckError(stage, "the payload is of another type", IN_TOTO, envelope.payload_type)
    message, known = pae(envelope.payload_type, envelope.payload), {key.id: key for key in keys}
    good = [key for key in known.values() if any(key.verifies(signature, message) for _, signature in envelope.signatures)]
    if len(good) < max(1, threshold):
        seen = ", ".join(
            f"a signature with the keyid {keyid}" if keyid else "a signature without a keyid" for keyid, _ in envelope.signatures
        )
        raise CheckError(stage, "it is not signed by the key", f"{threshold} of {', '.join(known) or 'no key at all'}", seen)
    return good


def leaf_hash(entry: bytes) -> bytes:
    """The hash of an entry: SHA-256(0x00 ‖ entry)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash over two subtrees: SHA-256(0x01 ‖ left ‖ right)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def check_inclusion(root: bytes, size: int, index: int, leaf: bytes, proof: Sequence[bytes], stage: str = "log") -> None:
    """Raise CheckError unless the proof leads from leaf `index` to the root of a tree of `size` leaves. RFC 9162, 2.1.3.2."""
    if not 0 <= index < size:
        raise CheckError(stage, "the entry is beyond the tree", f"an index below {size}", index)
    node = leaf
    for step, left in _climb(index, size - 1, proof, stage):
        node = node_hash(step, node) if left else node_hash(node, step)
    if node != root:
        raise CheckError(stage, "the proof does not lead to the root", root.hex(), node.hex())


def check_consistency(old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]) -> None:
    """Raise CheckError unless the proof shows that the tree of `old` leaves begins the tree of `new`. RFC 9162, 2.1.4.2."""
    stage, first, second, at, last = "consistency", old_root, old_root, 0, 0
    if not 0 <= old <= new:
        raise CheckError(stage, "the tree has become smaller", f"at least {old} leaves", new)
    if old == 0:  # every tree continues the empty one, which is no part of its root
        first, second = EMPTY_ROOT, new_root if new else EMPTY_ROOT
    elif old < new:
        at, last = old - 1, new - 1
        while at % 2:  # up to the highest whole subtree at the end of the old tree
            at, last = at >> 1, last >> 1
        if at:  # it is a part of both trees, and the proof begins with it
            first, proof = b"".join(proof[:1]), proof[1:]
            second = first
    for step, left in _climb(at, last, proof, stage):
        first = node_hash(step, first) if left else first
        second = node_hash(step, second) if left else node_hash(second, step)
    if first != old_root:
        raise CheckError(stage, f"the first {old} entries were changed", old_root.hex(), first.hex())
    if second != new_root:
        raise CheckError(
            stage, f"the proof does not lead from the first {old} entries to the {new}", new_root.hex(), second.hex()
        )


def _climb(at: int, last: int, proof: Sequence[bytes], stage: str) -> Iterator[tuple[bytes, bool]]:
    """Each hash of a proof from a node up to the root, and whether it is on the left; `last`: the last node of that level.

    Raises CheckError for a proof that ends before the root, or continues after it.
    """
    steps = iter(proof)
    while last:
        left = bool(at % 2) or at == last
        while left and at % 2 == 0:  # without a neighbour on this level, it moves up unchanged
            at, last = at >> 1, last >> 1
        if (step := next(steps, None)) is None:
            raise CheckError(stage, "the proof ends before the root", found=f"{len(proof)} hashes")
        yield step, left
        at, last = at >> 1, last >> 1
    if next(steps, None) is not None:
        raise CheckError(stage, "the proof continues after the root", found=f"{len(proof)} hashes")


@dataclass(frozen=True)
class LogKey(Ed25519Key):
    """A log's name and public key: a vkey of C2SP signed-note, `NAME+HEX+BASE64`."""

    name: str

    @classmethod
    def parse(cls, text: str) -> LogKey:
        """The key in a vkey; raises CheckError for another format or algorithm, or hex digits that do not fit name and key."""
        match = re.fullmatch(f"({NAME})[+]([^+]*)[+]([A-Za-z0-9+/]{{44}})", text)
        if match is None or (data := base64.b64decode(match[3]))[:1] != ED25519:
            raise CheckError("key", "it is not a vkey NAME+HEX+BASE64 of an Ed25519 key")  # not quoted: it may be the private key
        key = cls(data[1:], match[1])
        if match[2] != key.hint.hex():
            raise CheckError("key", "the hex digits of the vkey do not fit its name and key", key.hint.hex(), match[2])
        return key

    def __str__(self) -> str:
        return f"{self.name}+{self.hint.hex()}+{base64.b64encode(ED25519 + self.raw).decode()}"

    @property
    def hint(self) -> bytes:
        """The four bytes by which a signed note names the key."""
        return hashlib.sha256(self.name.encode() + b"\n" + ED25519 + self.raw).digest()[:4]


def check_note(note: bytes, keys: Iterable[LogKey], stage: str = "log") -> tuple[str, list[LogKey]]:
    """The text of a signed note, and the keys that signed it, at least one. Signatures of unknown keys are ignored."""
    text = note[:NOTE_BYTES].decode("utf-8", "ignore")
    body, _, signatures = text.rpartition("\n\n")
    *lines, end = signatures.split("\n")
    whole = text.encode() == note and not re.search(
        "[\x00-\x09\x0b-\x1f]", text
    )  # otherwise too long, not UTF-8, or control characters
    if not whole or not body or end or not 0 < len(lines) <= SIGNATURES:
        raise CheckError(stage, "it is not a signed note: text, an empty line, lines with a signature each")
    known, good = {(key.name, key.hint): key for key in keys}, []
    for line in lines:
        dash, name, encoded = [*line.split(" ", 2), "", ""][:3]
        signature = unbase64(encoded, stage)
        if dash != "—" or not re.fullmatch(NAME, name) or len(signature) < 5:
            raise CheckError(stage, "it is not a line with a signature", "— NAME BASE64", line)
        key = known.get((name, signature[:4]))
        if key is not None and not key.verifies(signature[4:], f"{body}\n".encode()):
            raise CheckError(stage, "a signature of the note is wrong", f"a signature of {key}", line)
        good += [] if key is None or key in good else [key]
    if not good:
        raise CheckError(stage, "the note is not signed by the key", ", ".join(map(str, known.values())), lines[0])
    return f"{body}\n", good


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint: the log's name, how many entries it has, the root over them."""

    origin: str
    size: int
    root: bytes

    @classmethod
    def parse(cls, text: str, stage: str = "log") -> Checkpoint:
        """The checkpoint in the text of a note; text after the third line is ignored."""
        *lines, end = text.split("\n")
        if end or len(lines) < 3 or not all(lines):
            raise CheckError(stage, "it is not a checkpoint: a name, a size, a root, each on a line", found=text)
        checkpoint = cls(lines[0], number(lines[1], stage), unbase64(lines[2], stage))
        if len(checkpoint.root) != 32 or (checkpoint.size == 0 and checkpoint.root != EMPTY_ROOT):
            raise CheckError(stage, f"it is not a root of {checkpoint.size} entries", found=lines[2])
        return checkpoint


def check_checkpoint(note: bytes, keys: Iterable[LogKey], stage: str = "log") -> Checkpoint:
    """The checkpoint in a signed note; raises CheckError unless a key with the name of the log signed it."""
    text, signers = check_note(note, keys, stage)
    checkpoint = Checkpoint.parse(text, stage)
    if checkpoint.origin not in [key.name for key in signers]:
        raise CheckError(stage, "the checkpoint is of another log", signers[0].name, checkpoint.origin)
    return checkpoint


@dataclass(frozen=True)
class LogProof:
    """The place of an entry in a log: its index, the hashes from the leaf up, and the signed checkpoint that they lead to."""

    index: int
    hashes: tuple[bytes, ...]
    checkpoint: bytes

    @classmethod
    def parse(cls, text: str, stage: str = "log") -> LogProof:
        """The proof in the text of a C2SP tlog-proof; its `extra` line is not signed, so it is parsed and ignored."""
        head, blank, checkpoint = text.partition("\n\n")
        first, *lines = head.split("\n")
        if lines and lines[0].startswith("extra "):
            unbase64(lines.pop(0).removeprefix("extra "), stage)
        if len(text) > NOTE_BYTES or first != PROOF or not blank or not lines or not lines[0].startswith("index "):
            raise CheckError(stage, f"it is not a {PROOF}")
        return cls(number(lines[0].removeprefix("index "), stage), parse_hashes(lines[1:], stage), checkpoint.encode("utf-8"))


def parse_hashes(lines: Sequence[str], stage: str) -> tuple[bytes, ...]:
    """The hashes of a proof, each in base64."""
    hashes = tuple(unbase64(line, stage) for line in lines[: HASHES + 1])
    if len(hashes) > HASHES or any(len(hash_) != 32 for hash_ in hashes):
        raise CheckError(stage, f"it is not a proof of at most {HASHES} hashes, 32 bytes each")
    return hashes


DIGEST, WORD, BLOCK = "sha256:[0-9a-f]{64}", "(?s:.+)", "0x[0-9a-f]{64}"
_STATEMENT = {
    "_type": re.escape(STATEMENT),
    "subject": [{"name": WORD, "digest": {"sha256": "[0-9a-f]{64}"}}],
    "predicateType": f"{FIRST}|{PREDICATE}",
    "predicate": {
        "competition": WORD,
        "epoch": int,
        **dict.fromkeys(("scheme", "inputs", "settlement"), DIGEST),
        "task_set": (None, DIGEST),
        "evidence": {"root": DIGEST, "count": int},
        "results": {"root": DIGEST, "count": int},
        "previous": (None, {"epoch": int, "receipt": DIGEST}),
        "software": {"name": WORD, "version": WORD},
        "registry?": {  # of which block of a chain uids and stakes are
            **dict.fromkeys(("chain", "hash"), BLOCK),
            **dict.fromkeys(("netuid", "mechanism", "block", "spec_version"), int),
            "rows": DIGEST,
        },
    },
}


@dataclass(frozen=True)
class Receipt:
    """A parsed receipt, not checked yet: envelope, predicate, SHA-256 of the payload, proof, version."""

    envelope: Envelope
    predicate: Json
    digest: bytes
    proof: LogProof
    version: int

    @classmethod
    def parse(cls, data: bytes, stage: str = "receipt") -> Receipt:
        """The receipt in the bytes of a file."""
        document = parse_json(data, stage, RECEIPT_BYTES)
        if bad := misfit(document, {"schema": re.escape(FORMAT), "envelope": object, "proof": WORD}):
            raise CheckError(stage, f"it does not have the format {FORMAT}: {bad} does not fit")
        envelope = Envelope.parse(document["envelope"], stage)
        statement = parse_json(envelope.payload, stage)
        if bad := misfit(statement, _STATEMENT):
            raise CheckError(stage, f"its statement is not a receipt's: {bad} does not fit")
        predicate = statement["predicate"]
        about = [
            {"name": f"{predicate['competition']} epoch {predicate['epoch']}", "digest": {"sha256": predicate["settlement"][7:]}}
        ]
        if statement["subject"] != about:
            raise CheckError(stage, "its subject is not the settlement in its statement", about, statement["subject"])
        proof, version = LogProof.parse(document["proof"], "log"), 1 if statement["predicateType"] == FIRST else 2
        return cls(envelope, predicate, hashlib.sha256(envelope.payload).digest(), proof, version)


def check_receipt(receipt: Receipt, keys: Sequence[LogKey], seen: bytes | None = None, proof: Sequence[bytes] = ()) -> Checkpoint:
    """Check a receipt and return its checkpoint; also against a signed checkpoint `seen` at another time, if given."""
    check_envelope(receipt.envelope, keys, "receipt")
    now = check_checkpoint(receipt.proof.checkpoint, keys)
    check_inclusion(now.root, now.size, receipt.proof.index, leaf_hash(receipt.digest), receipt.proof.hashes)
    if seen is not None:
        then = check_checkpoint(seen, keys, "consistency")
        if then.origin != now.origin:
            raise CheckError("consistency", "the checkpoint that was seen is of another log", now.origin, then.origin)
        old, new = sorted((then, now), key=lambda checkpoint: checkpoint.size)
        check_consistency(old.size, old.root, new.size, new.root, proof)
    return now


def _plain(text: str) -> str:
    """The text without control sequences for a terminal: even a signed receipt may contain any text."""
    return re.sub(f"[{UNPRINTABLE}]", lambda match: ascii(match[0])[1:-1], text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 0 if every check passes, 1 at the first that fails, 2 if a file cannot be read."""
    parser = argparse.ArgumentParser(description="Check a receipt offline, without its evidence: `assay verify` checks that too.")
    parser.add_argument("receipt", type=Path)
    parser.add_argument("--key", action="append", required=True, help="the log's public key; may be given several times")
    parser.add_argument("--checkpoint", type=Path, help="a signed checkpoint of the log, seen at another time")
    parser.add_argument("--consistency", type=Path, help="the proof between the two, by `assay ledger consistency`")
    options = parser.parse_args(arguments)
    try:
        seen = options.checkpoint.read_bytes() if options.checkpoint else None
        lines = options.consistency.read_text("utf-8").split() if options.consistency else []
        receipt = Receipt.parse(options.receipt.read_bytes())
        log = check_receipt(receipt, [LogKey.parse(key) for key in options.key], seen, parse_hashes(lines, "consistency"))
    except CheckError as refused:
        sys.stderr.write(f"refused: {_plain(str(refused))}\n")
        return 1
    except (OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"cannot read: {error}\n")
        return 2
    predicate, at = receipt.predicate, receipt.predicate.get("registry")
    block = f"it says: registry of subnet {at['netuid']} at block {at['block']}, {at['hash']}, of {at['chain']}\n" if at else ""
    sys.stdout.write(
        f"checked: signature; entry {receipt.proof.index} of {log.size} in {log.origin}{'; consistency' if seen else ''}\n"
        f"it says: {_plain(predicate['competition'])} epoch {predicate['epoch']}, settlement {predicate['settlement']}\n"
        f"{block}not checked: that this follows from the evidence, which `assay verify` recomputes\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
