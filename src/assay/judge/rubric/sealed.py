"""Transcripts, sealed to who may read them: the validator who judged, and the sponsor where the bounty has a key of his. SPEC 6.

A file is canonical JSON {"schema": "assay.sealed-transcript/1", "bounty", "judgement", "sealed": {public key: base64}}. What is
sealed, to each key anew, is the canonical JSON {"blind": hex, "transcript": text}; it opens only as the transcript of this
judgement of this bounty.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import strict
from assay.folder.text import decode, load
from assay.judge.rubric.limits import TRANSCRIPT_BYTES
from assay.ledger.keys import PrivateKey, PublicKey
from assay.ledger.keys.seal import open_sealed, seal
from assay.scheme.fields import Section
from assay.scheme.reading import validate

__all__ = ["SCHEMA", "Transcript", "opened", "sealed"]

SCHEMA: Literal["assay.sealed-transcript/1"] = "assay.sealed-transcript/1"
KEYS = 8
"""Keys that one transcript may be sealed to."""
_Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]


class _File(Section):
    schema_: Annotated[Literal["assay.sealed-transcript/1"], Field(alias="schema")]
    bounty: _Digest
    judgement: _Digest
    sealed: Annotated[dict[str, str], Field(min_length=1, max_length=KEYS)]


@dataclass(frozen=True)
class Transcript:
    """What was sealed: the transcript's bytes, and the blind of the quotes' digests."""

    data: bytes = field(repr=False)
    blind: bytes = field(repr=False)


def sealed(transcript: Transcript, to: list[PublicKey], *, bounty: str, judgement: str) -> bytes:
    """The bytes of the file; bounty, judgement: their digests."""
    inner = canonical({"blind": transcript.blind.hex(), "transcript": transcript.data.decode()})
    whole = {key.id: base64.b64encode(seal(inner, key, _info(bounty, judgement))).decode() for key in to}
    return canonical({"schema": SCHEMA, "bounty": bounty, "judgement": judgement, "sealed": whole})


def opened(file: Path, *keys: PrivateKey, bounty: str, judgement: str) -> Transcript:
    """The transcript in a file; raises BadInput where it is of something else, sealed to none of these keys, or damaged."""
    data = load(file, KEYS * 2 * TRANSCRIPT_BYTES, hint="transcripts are kept by who judged: `assay run`")
    try:
        found = validate(_File, strict.parse(decode(data, file)))
        if (found.bounty, found.judgement) != (bounty, judgement):
            raise BadInput("is the transcript of another judgement", hint="get the file back that belongs to it")
        key = next((each for each in keys if each.public.id in found.sealed), None)
        if key is None:
            hint = f"it is sealed to {', '.join(sorted(found.sealed))}; say which key opens it with --key"
            raise BadInput(f"is not sealed to {' or '.join(str(each.public) for each in keys)}", hint=hint)
        mine = found.sealed[key.public.id]
        return _read(open_sealed(base64.b64decode(mine, validate=True), key, _info(bounty, judgement)))
    except BadInput as error:
        raise error.at(file=file) from None
    except ValueError:  # of base64
        raise BadInput("is damaged", file=file, hint="get it back from a copy") from None


def _read(inner: bytes) -> Transcript:
    found: Any = json.loads(inner)  # it was sealed for us; what it says is checked where it is replayed
    return Transcript(found["transcript"].encode(), bytes.fromhex(found["blind"]))


def _info(bounty: str, judgement: str) -> bytes:
    return b"\x00".join((SCHEMA.encode(), bounty.encode(), judgement.encode()))
