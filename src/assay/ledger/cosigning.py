"""Check cosignatures of witnesses on a checkpoint, and the policy that says which of them a reader demands. SPEC 6, Witnesses.

A witness signs a checkpoint after it has seen that the log only grew (C2SP tlog-cosignature). A reader that demands cosignatures
of enough witnesses cannot be shown another log than everybody else: the witnesses would have to lie together. A policy file (C2SP
tlog-policy) names them:

    log example.org/term-challenge+1a2b3c4d+Ab…
    witness north example.net/north+5e6f7a8b+BC… https://witness.example.net
    witness south example.edu/south+9c0d1e2f+BD… https://south.example.edu/witness
    group two-of-them 2 north south
    quorum two-of-them

Ed25519 (type 0x04) and ML-DSA-44 (type 0x06) are checked.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from assay.errors import MISSING, BadInput, brief
from assay.folder.files import load
from assay.ledger import check
from assay.ledger.check import NAME, CheckError, Checkpoint, Ed25519Key, LogKey
from assay.ledger.keys import PrivateKey

__all__ = [
    "ED25519",
    "ML_DSA_44",
    "Policy",
    "PolicyWitness",
    "WitnessKey",
    "Witnessed",
    "check_policy",
    "cosign",
    "cosignatures",
    "merged",
    "parse_policy",
    "read_policy",
    "signature_lines",
    "text_of",
]

STAGE = "witnesses"
ED25519, ML_DSA_44 = 0x04, 0x06
"""Types of a witness's key."""
_SIZES = {ED25519: (32, 64), ML_DSA_44: (1312, 2420)}
"""Type → bytes of a public key, and of a signature."""
_LATEST = 2**63 - 1
POLICY_BYTES = 2**20


@dataclass(frozen=True)
class WitnessKey:
    """A witness's name and public key. kind: ED25519 or ML_DSA_44. Raises CheckError for a key that cannot be trusted."""

    name: str
    kind: int
    raw: bytes

    def __post_init__(self) -> None:
        if self.kind == ED25519:
            Ed25519Key(self.raw)

    @classmethod
    def parse(cls, text: str) -> WitnessKey:
        """The key in a vkey NAME+HEX+BASE64; raises CheckError for another format or type, or hex digits that do not fit."""
        match = re.fullmatch(f"({NAME})[+]([^+]*)[+]([A-Za-z0-9+/=]+)", text)
        data = b"" if match is None else check.unbase64(match[3], "key")
        if match is None or not data or len(data) - 1 != _SIZES.get(data[0], (-1,))[0]:
            raise CheckError("key", "it is not the vkey NAME+HEX+BASE64 of a witness, type 4 (Ed25519) or 6 (ML-DSA-44)")
        key = cls(match[1], data[0], data[1:])
        if match[2] != key.hint.hex():
            raise CheckError("key", "the hex digits of the vkey do not fit its name and key", key.hint.hex(), match[2])
        return key

    def __str__(self) -> str:
        return f"{self.name}+{self.hint.hex()}+{base64.b64encode(bytes([self.kind]) + self.raw).decode()}"

    @property
    def hint(self) -> bytes:
        """The four bytes by which a signed note names the key."""
        return hashlib.sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.raw).digest()[:4]

    def time_of(self, signature: bytes, text: str) -> int | None:
        """The time of this witness's cosignature on a checkpoint's text, in seconds since 1970; None if the cosignature is wrong.

        Raises CheckError for ML-DSA-44 where the installed `cryptography` cannot check it.
        """
        if len(signature) != 8 + _SIZES[self.kind][1] or (time := int.from_bytes(signature[:8], "big")) > _LATEST:
            return None
        if self.kind == ED25519:
            return time if Ed25519Key(self.raw).verifies(signature[8:], _message(text, time)) else None
        return time if _ml_dsa(self.raw, signature[8:], _subtree(self.name, Checkpoint.parse(text, STAGE), time)) else None


def _message(text: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def _subtree(name: str, checkpoint: Checkpoint, time: int) -> bytes:
    """The structure that an ML-DSA-44 cosignature signs."""
    parts = [b"subtree/v1\n\0", _sized(name), time.to_bytes(8, "big"), _sized(checkpoint.origin), bytes(8)]
    return b"".join([*parts, checkpoint.size.to_bytes(8, "big"), checkpoint.root])


def _sized(text: str) -> bytes:
    data = text.encode()
    if len(data) > 255:
        raise CheckError(
            STAGE, "a name is longer than an ML-DSA-44 cosignature can sign", "at most 255 bytes", f"{len(data)} bytes"
        )
    return bytes([len(data)]) + data


def _ml_dsa(raw: bytes, signature: bytes, message: bytes) -> bool:
    try:
        from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PublicKey

        MLDSA44PublicKey.from_public_bytes(raw).verify(signature, message)
    except InvalidSignature:
        return False
    except (ImportError, UnsupportedAlgorithm):
        what = "the installed cryptography cannot check ML-DSA-44 cosignatures; install a newer one"
        raise CheckError(MISSING, what) from None
    return True


def cosign(text: str, name: str, signer: PrivateKey, time: int) -> str:
    """The line with which a witness signs the text of a checkpoint, with its Ed25519 key at a time."""
    key = WitnessKey(name, ED25519, signer.public.raw)
    signature = key.hint + time.to_bytes(8, "big") + signer.sign(_message(text, time))
    return f"— {name} {base64.b64encode(signature).decode()}\n"


def text_of(note: bytes) -> str:
    """The text of a signed note, without checking any signature; raises CheckError for something else."""
    text, _ = _split(note)
    return text


def _split(note: bytes) -> tuple[str, list[str]]:
    """The text of a note, and its signature lines, at least one."""
    whole = note[: check.NOTE_BYTES].decode("utf-8", "ignore")
    body, blank, rest = whole.rpartition("\n\n")
    *lines, end = rest.split("\n")
    if whole.encode() != note or not blank or not body or end or not 0 < len(lines) <= check.SIGNATURES:
        raise CheckError(STAGE, "it is not a signed note: text, an empty line, lines with a signature each")
    return f"{body}\n", lines


def signature_lines(answer: bytes) -> list[str]:
    """The signature lines in a witness's answer, each with its line end; raises CheckError for something else."""
    text = answer[: check.NOTE_BYTES].decode("utf-8", "replace")
    *lines, end = text.split("\n")
    if end or not 0 < len(lines) <= check.SIGNATURES:
        raise CheckError(STAGE, "it is not one signature line or more", found=text[:200])
    for line in lines:
        _parts(line)
    return [f"{line}\n" for line in lines]


def _parts(line: str) -> tuple[str, bytes]:
    """Name, and key id with signature, of a signature line."""
    dash, name, encoded = [*line.split(" ", 2), "", ""][:3]
    data = check.unbase64(encoded, STAGE)
    if dash != "—" or not re.fullmatch(NAME, name) or len(data) < 5:
        raise CheckError(STAGE, "it is not a line with a signature", "— NAME BASE64", line)
    return name, data


def cosignatures(note: bytes, witnesses: Iterable[WitnessKey]) -> dict[WitnessKey, int]:
    """Witness → when it cosigned this note, in seconds since 1970; the last time, if it did so twice. Others are ignored.

    Raises CheckError for a wrong cosignature under the name and key of one of these witnesses, and for what is no note.
    """
    text, lines = _split(note)
    known = {(key.name, key.hint): key for key in witnesses}
    times = dict[WitnessKey, int]()
    for line in lines:
        name, data = _parts(line)
        key = known.get((name, data[:4]))
        if key is None:
            continue
        time = key.time_of(data[4:], text)
        if time is None:
            raise CheckError(STAGE, "a cosignature is wrong", f"a cosignature of {key.name}", line[:200])
        times[key] = max(time, times.get(key, 0))
    return times


def merged(note: bytes, lines: Iterable[str]) -> bytes:
    """The note with these signature lines after its own, each once. A key's newer line takes the place of its older one."""
    text, before = _split(note)
    by_key = {_name_and_hint(line): line for line in (*before, *(line.removesuffix("\n") for line in lines))}
    return "".join([text, "\n", *(f"{line}\n" for line in by_key.values())]).encode()


def _name_and_hint(line: str) -> tuple[str, bytes]:
    name, data = _parts(line)
    return name, data[:4]


@dataclass(frozen=True)
class PolicyWitness:
    """A witness of a policy: its key, and where it takes checkpoints ("" if the policy does not say)."""

    key: WitnessKey
    url: str = ""


@dataclass(frozen=True)
class Policy:
    """A policy: the logs that are known, the witnesses, and which of them must have cosigned.

    witnesses: by the name that the file gives them. groups: name → the least number of members, and the members. quorum: the
    name of a witness or a group, or "none".
    """

    logs: tuple[LogKey, ...]
    witnesses: Mapping[str, PolicyWitness]
    groups: Mapping[str, tuple[int, tuple[str, ...]]]
    quorum: str
    urls: Mapping[str, str] = field(default_factory=dict)
    """Origin of a log → its URL, where the file has one."""

    def reached(self, cosigned: Set[str]) -> bool:
        """Whether these witnesses, by their names in the file, are a quorum."""
        seen = {name for name in self.witnesses if name in cosigned}
        for name, (threshold, members) in self.groups.items():  # members stand before their group
            if sum(member in seen for member in members) >= threshold:
                seen.add(name)
        return self.quorum == "none" or self.quorum in seen

    def keys(self) -> list[WitnessKey]:
        """The keys of all witnesses."""
        return [witness.key for witness in self.witnesses.values()]

    def names(self, keys: Iterable[WitnessKey]) -> list[str]:
        """The names of these keys in the file, in its order."""
        wanted = set(keys)
        return [name for name, witness in self.witnesses.items() if witness.key in wanted]


def read_policy(path: Path) -> Policy:
    """The policy in a file; raises BadInput, with the line."""
    return parse_policy(load(path, POLICY_BYTES, hint="give a policy file: lines with log, witness, group, and one quorum"), path)


def parse_policy(data: bytes, path: Path | None = None) -> Policy:
    """The policy in the bytes of a file; raises BadInput, with the line."""
    reading = _PolicyReader(path)
    for number, line in enumerate(data.decode("utf-8", "surrogateescape").split("\n"), start=1):
        reading.take(number, line)
    return reading.policy()


@dataclass
class _PolicyReader:
    """The lines of a policy file that were read so far."""

    path: Path | None
    number: int = 0
    logs: list[LogKey] = field(default_factory=list)
    urls: dict[str, str] = field(default_factory=dict)
    witnesses: dict[str, PolicyWitness] = field(default_factory=dict)
    groups: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    quorum: str = ""

    def take(self, number: int, line: str) -> None:
        """Read one line."""
        self.number = number
        if re.search("[\0-\x08\x0b-\x1f\x7f]", line):
            raise self._refused("it has a control character", "only tabs may be in it")
        words = [word for word in re.split("[ \t]+", line) if word]
        if not words or words[0].startswith("#"):
            return
        kinds = {"log": self._log, "witness": self._witness, "group": self._group, "quorum": self._quorum}
        if words[0] not in kinds:
            raise self._refused(f"{brief(words[0])} is none of log, witness, group, quorum", "begin the line with one of them")
        kinds[words[0]](words[1:])

    def policy(self) -> Policy:
        """The policy of all lines."""
        if not self.quorum:
            raise BadInput("has no line with a quorum", file=self.path, hint="end it with: quorum NAME, or quorum none")
        return Policy(tuple(self.logs), dict(self.witnesses), dict(self.groups), self.quorum, dict(self.urls))

    def _refused(self, what: str, hint: str) -> BadInput:
        return BadInput(what, file=self.path, line=self.number, hint=hint)

    def _log(self, words: Sequence[str]) -> None:
        if not 1 <= len(words) <= 2:
            raise self._refused("a log has a key, and perhaps a URL", "log VKEY [URL]")
        try:
            key = LogKey.parse(words[0])
        except CheckError as error:
            raise self._refused(f"the log's key is wrong: {error.what}", "copy it from the log's ledger.toml") from None
        if any(key.raw == other.raw for other in self.logs):
            raise self._refused(f"the key of {key.name} is in the file twice", "name each log once")
        self.logs.append(key)
        if words[1:]:
            self.urls[key.name] = words[1]

    def _witness(self, words: Sequence[str]) -> None:
        if not 2 <= len(words) <= 3:
            raise self._refused("a witness has a name, a key, and perhaps a URL", "witness NAME VKEY [URL]")
        self._check_new(words[0])
        try:
            key = WitnessKey.parse(words[1])
        except CheckError as error:
            raise self._refused(f"the key of {brief(words[0])} is wrong: {error.what}", "ask the witness for it") from None
        if any(key.raw == other.key.raw for other in self.witnesses.values()):
            raise self._refused(f"the key of {brief(words[0])} is in the file twice", "name each witness once")
        self.witnesses[words[0]] = PolicyWitness(key, *words[2:])

    def _group(self, words: Sequence[str]) -> None:
        if len(words) < 3:
            raise self._refused("a group has a name, how many, and its members", "group NAME any|all|NUMBER NAME …")
        name, how_many, *members = words
        self._check_new(name)
        if strange := next((member for member in members if member not in self.witnesses and member not in self.groups), None):
            raise self._refused(f"{brief(strange)} is not a witness or group above", "define it before this line")
        if twice := next((member for member in members if member in self.members or members.count(member) > 1), None):
            raise self._refused(f"{brief(twice)} is a member twice", "each name can be in one group, once")
        most = len(members)
        threshold = {"any": 1, "all": most}.get(how_many) or (int(how_many) if re.fullmatch("[1-9][0-9]{0,5}", how_many) else 0)
        if not 1 <= threshold <= most:
            raise self._refused(
                f"{brief(how_many)} is not any, all, or a number from 1 to {most}", "say how many must have signed"
            )
        self.members.update(members)
        self.groups[name] = threshold, tuple(members)

    def _quorum(self, words: Sequence[str]) -> None:
        if len(words) != 1 or not (words[0] in self.witnesses or words[0] in self.groups or words[0] == "none"):
            raise self._refused("the quorum is not a witness or group above, or none", "quorum NAME")
        if self.quorum:
            raise self._refused("there is a second quorum", "leave one")
        self.quorum = words[0]

    def _check_new(self, name: str) -> None:
        if name == "none" or name in self.witnesses or name in self.groups:
            raise self._refused(f"the name {brief(name)} is taken", "give each witness and group its own name")


@dataclass(frozen=True)
class Witnessed:
    """The witnesses that cosigned a checkpoint, by their names in the policy, with the times: seconds since 1970."""

    checkpoint: Checkpoint
    times: Mapping[str, int]

    @property
    def newest(self) -> int | None:
        """The time of the newest cosignature; None if there is none."""
        return max(self.times.values(), default=None)


def check_policy(policy: Policy, note: bytes, key: LogKey) -> Witnessed:
    """The witnesses of a checkpoint that `key` signed; CheckError unless the policy names the log, and they are a quorum."""
    if policy.logs and all((log.raw, log.name) != (key.raw, key.name) for log in policy.logs):
        raise CheckError(STAGE, "the policy does not name this log", ", ".join(map(str, policy.logs)), str(key))
    checkpoint = check.check_checkpoint(note, [key], STAGE)
    times = cosignatures(note, policy.keys())
    names = {name: times[policy.witnesses[name].key] for name in policy.names(times)}
    if not policy.reached(names.keys()):
        have = ", ".join(names) or "no witness of the policy"
        what = "too few witnesses of the policy cosigned the checkpoint"
        raise CheckError(STAGE, what, f"the quorum {policy.quorum}", have)
    return Witnessed(checkpoint, names)
