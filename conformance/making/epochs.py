"""Two settled epochs of a small competition and their receipts, made by the oracle alone. SPEC 6."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import oracle
from oracle import envelopes, receipts, trees

from .defaults import CONSENSUS, DECAY, REWARD
from .proofs import NAME, ONE, TWO

__all__ = ["EPOCHS", "LOG", "SCHEME", "VALIDATORS", "VKEY", "Story", "StoryEpoch", "bundle", "case_of", "record", "story", "text"]

Doc = dict[str, Any]
LOG = Ed25519PrivateKey.from_private_bytes(bytes([3]) * 32)
VKEY = trees.vkey(NAME, LOG)
VALIDATORS = {key.public_key().public_bytes_raw().hex(): key for key in (ONE, TWO)}
A, B = VALIDATORS
EPOCHS = (3, 5)
SCHEME: Doc = {
    "scheme": {"name": "term"},
    "score": {"kind": "given"},
    "consensus": {"min_validators": 2},
    "reward": {"cap": "100%"},
}
DEFAULTS: Doc = {
    "scheme": {"name": "term", "version": "1.0.0"},
    "score": {"kind": "given"},
    "consensus": CONSENSUS | {"min_validators": 2},
    "reward": REWARD | {"cap": "1"},
    "decay": DECAY,
}
"""The scheme as SPEC 7 fills it in."""


def text(document: Any) -> str:
    """A document as its file has it."""
    return envelopes.plain(document).decode()


def record(seq: int, epoch: int, validator: str, participant: str, score: str = "0.5", **changes: Any) -> Doc:
    """A record of kind given in canonical form, with its seq."""
    head = {"kind": "given", "epoch": epoch, "validator": validator, "participant": participant}
    return head | {"submission": f"of {participant}", "observed_at": "2026-01-02T03:04:05Z", "score": score, "seq": seq} | changes


def seen(epoch: int, first: int, scores: Sequence[str]) -> list[Doc]:
    """What both validators say of both participants."""
    pairs = [(validator, participant) for validator in (A, B) for participant in ("m1", "m2")]
    return [record(first + at, epoch, *pair, score) for at, (pair, score) in enumerate(zip(pairs, scores, strict=True))]


def case_of(epoch: int, **changes: Any) -> Doc:
    """The case of an epoch, without evidence and previous settlement."""
    people = [{"key": key, "uid": uid, "submission": f"of {key}"} for uid, key in enumerate(("m1", "m2"), 1)]
    judges = [{"key": A, "stake": "100"}, {"key": B, "stake": "200"}]
    return {"scheme": SCHEME, "epoch": epoch, "participants": people, "validators": judges} | changes


@dataclass
class StoryEpoch:
    """What there is of an epoch before its receipt."""

    epoch: int
    records: list[Doc]
    inputs: Doc
    settlement: Doc
    batches: list[Doc]
    previous: Doc | None


@dataclass
class Story:
    """The epochs, and their receipts."""

    epochs: list[StoryEpoch]
    receipts: list[Doc]
    entries: list[tuple[Doc, bytes]]


def settled(case: Doc, scheme: Doc, records: list[Doc], previous: Doc | None) -> Doc:
    """The oracle's settlement, with its digests."""
    settlement: Doc = oracle.settle(copy.deepcopy(case | {"scheme": scheme, "evidence": records, "previous": previous}))
    settlement["scheme"]["digest"] = receipts.digest(scheme)
    return settlement | {"digest": receipts.digest(settlement)}


Lie = Callable[[int, Doc], Doc]


def story(
    evidence: Sequence[Sequence[Doc]] | None = None,
    lie: Lie | None = None,
    *,
    cases: Callable[[int], Doc] = case_of,
    scheme: Doc = DEFAULTS,
    epochs: Sequence[int] = EPOCHS,
    name: str = "term",
    key: Ed25519PrivateKey = LOG,
    task_set: str | None = None,
    version: int = 2,
) -> Story:
    """The epochs settled one after another; lie: what the operator signs instead of what his receipt ought to state."""
    given = evidence or [seen(3, 1, ("0.5", "0.25", "0.5", "0.3")), seen(5, 5, ("0.75", "0.25", "0.75", "0.3"))]
    done: list[StoryEpoch] = []
    signed: list[tuple[Doc, bytes]] = []
    for epoch, records in zip(epochs, given, strict=False):
        before = done[-1] if done else None
        previous = before.settlement if before else None
        held = [row for each in done for row in each.records] + list(records)
        case = cases(epoch)
        document = receipts.inputs(case, scheme)
        settlement = settled(case, scheme, held, previous)
        batches = [
            receipts.batch_line(own, signer, name, task_set)
            for validator, signer in VALIDATORS.items()
            for at in sorted({row["epoch"] for row in records})
            if (own := [row for row in records if row["validator"] == validator and row["epoch"] == at])
        ]
        done.append(StoryEpoch(epoch, list(records), document, settlement, batches, previous))
        then = (before.epoch, signed[-1][1]) if before else None
        stated = receipts.statement(settlement, document, records, then, held if version > 1 else None)
        claimed = stated | {"competition": name, "epoch": epoch, "settlement": settlement["digest"]}
        claimed = claimed if lie is None else lie(epoch, claimed)
        signed.append(
            envelopes.receipt(
                claimed["competition"],
                claimed["epoch"],
                claimed["settlement"],
                key,
                version,
                **{field: value for field, value in claimed.items() if field not in ("competition", "epoch", "settlement")},
            )
        )
    return Story(done, receipts.receipts(signed, NAME, key), signed)


def bundle(history: Story, upto: int = 0, **changes: Any) -> Doc:
    """The epochs as one JSON document (up to number `upto`, or all), some of it changed."""
    epochs = history.epochs[: upto or None]
    last = epochs[-1]
    whole = {
        "key": VKEY,
        "receipts": {str(epoch.epoch): document for epoch, document in zip(epochs, history.receipts, strict=False)},
        "inputs": last.inputs,
        "settlement": last.settlement,
        "records": {str(epoch.epoch): epoch.records for epoch in epochs},
        "batches": [line for epoch in epochs for line in epoch.batches],
    }
    whole |= {} if last.previous is None else {"previous": last.previous}
    bundled: Doc = json.loads(json.dumps(whole | changes))
    return bundled
