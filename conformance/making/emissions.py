"""Cases of signed splits, also forged ones. What must be refused ends in `_fail`. SPEC 4 (Emission split), 6."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import oracle
from assay.conformance import answer
from oracle import envelopes, receipts, trees

from .case import CaseDraft, File, case
from .epochs import LOG, text
from .proofs import ONE, TWO, fail
from .splits import X, Y, split

__all__ = ["FILES"]

Doc = dict[str, Any]
Change = Callable[[Doc], Any]

SUBNET = "example.org/subnet"
KEY = trees.vkey(SUBNET, LOG)
LOGS = [("example.org/c1", ONE), ("example.org/c2", TWO)]
KEYS = [trees.vkey(*log) for log in LOGS]
RULES: Doc = {"encoding": "round", "burn_uid": 0, "emission": "1000", "unearned": "burn"}
GIVEN = split(("0.6", X), ("0.3", Y), **RULES)


def competition(at: int, log: tuple[str, Ed25519PrivateKey], **changes: Any) -> Doc:
    """The receipt of a competition, in its log, and the case that it is of."""
    world = GIVEN["competitions"][at]["case"] | changes
    settlement = answer("settle", copy.deepcopy(world))
    signed = envelopes.receipt(world["scheme"]["scheme"]["name"], world["epoch"], settlement["digest"], log[1])
    return {"receipt": text(receipts.receipts([signed], *log)[0]), "case": world}


PARTS = [competition(at, log) for at, log in enumerate(LOGS)]


def payload_of(part: Doc) -> Doc:
    statement: Doc = json.loads(base64.b64decode(json.loads(part["receipt"])["envelope"]["payload"]))
    return statement


def digested(document: Doc) -> Doc:
    bare = {name: value for name, value in document.items() if name != "digest"}
    return bare | {"digest": receipts.digest(bare)}


def stated(change: Change = lambda _: None, *, subnet: Doc = RULES) -> Doc:
    """What the subnet's owner signs; change: of the predicate, before digests are taken."""
    emission = oracle.emission(copy.deepcopy({**GIVEN, "subnet": subnet} | {"competitions": NAMED}))
    for row, part in zip(emission["competitions"], PARTS, strict=True):
        row["settlement"] = payload_of(part)["predicate"]["settlement"]
    rows = [
        {"competition": f"c{at + 1}", "epoch": emission["epoch"], "digest": digest_of(part), "log": KEYS[at]}
        for at, part in enumerate(PARTS)
    ]
    whole = {"schema": "assay.emission/1", **emission, "receipts": rows}
    predicate: Doc = {"subnet": "net", "epoch": emission["epoch"], "rules": subnet, "split": whole, "previous": None}
    predicate |= {"software": {"name": "assay", "version": "0.1.0"}}
    predicate = copy.deepcopy(predicate)
    change(predicate)
    return predicate | {"split": digested(predicate["split"])}


NAMED = [entry | {"name": f"c{at}"} for at, entry in enumerate(GIVEN["competitions"], start=1)]


def digest_of(part: Doc) -> str:
    payload = base64.b64decode(json.loads(part["receipt"])["envelope"]["payload"])
    return f"sha256:{hashlib.sha256(payload).hexdigest()}"


def signed(
    predicate: Doc, key: Ed25519PrivateKey = LOG, kind: str = "assay:emission/v1", origin: str = SUBNET, **more: Any
) -> Doc:
    """The file: an envelope around the statement, in a log that has it alone."""
    digest = predicate["split"]["digest"].removeprefix("sha256:")
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": f"{predicate['subnet']} epoch {predicate['epoch']}", "digest": {"sha256": digest}}],
        "predicateType": kind,
        "predicate": predicate,
    } | more
    body = envelopes.plain(statement)
    document = receipts.receipts([(envelopes.dsse(body, key), hashlib.sha256(body).digest())], origin, key)[0]
    return document | {"schema": "assay.emission-receipt/1"}


GOOD = signed(stated())


def holds(name: str, document: Doc = GOOD, **more: Any) -> CaseDraft:
    payload = base64.b64decode(document["envelope"]["payload"])
    predicate = json.loads(payload)["predicate"]
    expect = {name: predicate[name] for name in ("subnet", "epoch")} | {"split": predicate["split"]["digest"]}
    expect |= {"receipts": predicate["split"]["receipts"], "index": "0", "size": "1"}
    expect |= {"digest": f"sha256:{hashlib.sha256(payload).hexdigest()}"}
    return case(name, {"receipt": text(document), "key": KEY, **more}, expect)


def refuses(name: str, why: str, document: Doc = GOOD, **more: Any) -> CaseDraft:
    return fail(name, {"receipt": text(document), "key": KEY, **more}, why)


def forged(name: str, why: str, change: Change, **more: Any) -> CaseDraft:
    """What the subnet's own key signed, and does not hold together, or does not follow."""
    return refuses(name, why, signed(stated(change)), **more)


def under_old_signature(change: Change) -> Doc:
    statement = json.loads(base64.b64decode(GOOD["envelope"]["payload"]))
    change(predicate := statement["predicate"])
    predicate["split"] = digested(predicate["split"])
    statement["subject"][0]["digest"]["sha256"] = predicate["split"]["digest"].removeprefix("sha256:")
    payload = base64.b64encode(envelopes.plain(statement)).decode()
    return GOOD | {"envelope": GOOD["envelope"] | {"payload": payload}}


def shares(predicate: Doc) -> None:
    predicate["split"]["competitions"][0] |= {"share": "0.7", "emission": "700"}


def row(at: int, **changes: Any) -> Change:
    return lambda predicate: predicate["split"]["receipts"][at].update(changes)


FILE = RULES | {"competitions": [{"path": "a", "share": "60%"}, {"path": "b", "share": "0.3"}]}
WITH_LOGS = FILE | {"competitions": [entry | {"log": log} for entry, log in zip(FILE["competitions"], KEYS, strict=True)]}
OTHERS = RULES | {"unearned": "others"}
WHOLE: Doc = {"competitions": PARTS}

CASES = [
    holds("signed by the subnet's key, in its log"),
    holds("it follows from the settlements of its competitions", **WHOLE),
    holds("divided as the subnet file says", subnet=FILE),
    holds("the subnet file names the logs", subnet=WITH_LOGS, **WHOLE),
    holds("what nobody earned goes to the others", signed(stated(subnet=OTHERS)), **WHOLE),
    holds(
        "after another",
        signed(stated(lambda predicate: predicate.update(previous={"epoch": 4, "receipt": "sha256:" + "ab" * 32}))),
    ),
    refuses("another key", "the subnet's key did not sign it", key=KEYS[0]),
    refuses("another name of the log", "a key is of one log", key=trees.vkey("example.org/other", LOG)),
    refuses("signed by a competition's key", "the subnet's key did not sign it", signed(stated(shares), ONE)),
    refuses("parts changed under the old signature", "the statement is signed", under_old_signature(shares)),
    refuses(
        "another log under the old signature",
        "the statement is signed",
        under_old_signature(row(1, log=trees.vkey("example.org/c3", TWO))),
    ),
    refuses(
        "another program under the old signature",
        "the statement is signed",
        under_old_signature(lambda predicate: predicate["software"].update(version="0.1.1")),
    ),
    refuses("a receipt of a settlement in its place", "it is no split", json.loads(PARTS[0]["receipt"]), key=KEYS[0]),
    refuses("the statement of another type", "it is no split", signed(stated(), kind="assay:receipt/v1")),
    refuses("another schema", "it is no signed split", GOOD | {"schema": "assay.receipt/1"}),
    refuses("a split of the subject of another", "the subject is the split", signed(stated(), subject=[])),
    forged("another epoch than its split", "a split is of one epoch", lambda predicate: predicate.update(epoch=6)),
    forged("a receipt of another epoch", "a split is of one epoch", row(0, epoch=4)),
    forged("a competition without a receipt", "each has one", lambda predicate: predicate["split"]["receipts"].pop()),
    forged("no competitions", "there is one at least", lambda predicate: predicate["split"].update(competitions=[], receipts=[])),
    forged("no receipts", "each has one", lambda predicate: predicate["split"].pop("receipts")),
    forged("one log twice", "a copy of one competition in the place of another", row(1, log=KEYS[0])),
    forged("one receipt twice", "a copy of one competition in the place of another", row(1, digest=digest_of(PARTS[0]))),
    forged("the subnet's own log as a competition's", "it holds splits", row(1, log=KEY)),
    forged("a log that is no key", "a log is named by its key", row(1, log="example.org/c2")),
    forged("a field too many", "what is signed is closed", lambda predicate: predicate.update(colour="red")),
    forged(
        "parts above 1",
        "they are of one whole",
        lambda predicate: predicate["split"]["competitions"][0].update(share="0.8"),
        **WHOLE,
    ),
    forged("parts changed, and the weights left", "the weights follow from the parts", shares, **WHOLE),
    forged("a weight changed", "it does not follow", lambda predicate: predicate["split"]["weights"][0].update(u16=1), **WHOLE),
    forged("another emission", "the rao follow from it", lambda predicate: predicate["rules"].update(emission="1001"), **WHOLE),
    forged(
        "another encoding",
        "the weights follow from it",
        lambda predicate: predicate["rules"].update(encoding="max-upscale"),
        **WHOLE,
    ),
    refuses("the first competition in the place of the second", "its key is another", competitions=[PARTS[0], PARTS[0]]),
    refuses("two competitions exchanged", "each has its place", competitions=PARTS[::-1]),
    refuses("one competition is left out", "all are given, or none", competitions=PARTS[:1]),
    refuses(
        "the second competition forged with the first one's key",
        "a key is bound to its competition",
        competitions=[PARTS[0], competition(1, (LOGS[1][0], ONE))],
    ),
    refuses(
        "another receipt of the same log",
        "the split names the receipt",
        competitions=[PARTS[0], competition(1, LOGS[1], evidence=GIVEN["competitions"][1]["case"]["evidence"][:3])],
    ),
    refuses(
        "another case than the receipt is of",
        "the receipt names the settlement",
        competitions=[PARTS[0], PARTS[1] | {"case": PARTS[0]["case"]}],
    ),
    refuses(
        "other parts than the subnet file's",
        "the file was announced",
        subnet=FILE | {"competitions": WITH_LOGS["competitions"][::-1]},
    ),
    refuses("another burn UID than the subnet file's", "the file was announced", subnet=FILE | {"burn_uid": 1}),
    refuses(
        "fewer competitions than the subnet file's",
        "the file was announced",
        signed(stated()),
        subnet=FILE | {"competitions": FILE["competitions"][:1]},
    ),
    refuses("no JSON", "it is no signed split", "{"),  # type: ignore[arg-type]
]

FILES = [
    File(
        "emission-receipt",
        "emission-receipt",
        "Signed splits of a subnet: whose they are, what they name, whether they follow, and forged ones (SPEC 4, 6).",
        CASES,
    )
]
