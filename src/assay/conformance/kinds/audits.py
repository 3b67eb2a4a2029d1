"""Kinds of case for audits: what follows from a case and what was seen, and a signed audit of an epoch. docs/auditing.md."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from assay import folder
from assay.conformance.kinds.proofs import Text, VerifyCase, refusing, write_bundle
from assay.conformance.kinds.stages import kind
from assay.errors import BadInput, CannotSettle
from assay.exact import canonical
from assay.ledger import audit_log, auditing, bundle, eligible
from assay.ledger.auditing import AuditedEpoch
from assay.ledger.batch import StoredRecord
from assay.ledger.check import LogKey
from assay.ledger.verify.claims import read_receipt
from assay.records import Evidence, record
from assay.scheme.fields import Digest, Hex32, Key, Section
from assay.scheme.model import AuditRules, TestsScore
from assay.settle import Settlement, settle

__all__ = ["audit", "audit_receipt"]

Json = dict[str, Any]
FIELDS = ("claims", "trials", "untested", "judged", "draws", "martingale", "overstated", "verdict")
"""What a case compares of a statement: what its draw, what was seen and the rules decide."""
_Outcomes = Annotated[tuple[Literal["pass", "fail", "timeout"], ...], Field(strict=False)]


class _SeenTrial(Section):
    participant: Key
    validator: Key
    task: Key
    trial: Annotated[int, Field(ge=1)] = 1
    seen: _Outcomes


class _Audit(Section):
    case: dict[str, Any]
    receipt: Digest
    randomness: Hex32
    seen: Annotated[tuple[_SeenTrial, ...], Field(strict=False)] = ()


@kind(_Audit)
def audit(given: _Audit) -> Json:
    """A case of kind tests, the digest of its receipt, the randomness of the draw (hex), and what was `seen` of trials that do
    not show what is claimed: the claims, which trials are drawn, the martingale after each draw, and the verdict. Every other
    trial is seen as it is claimed."""
    inputs = folder.parse_case(given.case)
    if not isinstance(inputs.scheme.score, TestsScore):
        raise BadInput("is not of the kind tests", field="case", hint="only trials are audited")
    settlement = settle(inputs)
    epoch = _audited(settlement, given.case, bytes.fromhex(given.receipt.removeprefix("sha256:")))
    other = {(row.participant, row.validator, row.task, row.trial): list(row.seen) for row in given.seen}
    seen = {}
    for trial in epoch.trials:
        about = (trial.participant, trial.validator, trial.task, trial.trial)
        seen[trial.record] = other.get(about, [epoch.records[trial.record].outcome])
    stated = auditing.predicate_of(epoch, auditing.given(given.randomness), seen)
    return {name: stated[name] for name in FIELDS}


def _audited(settlement: Settlement, case: Json, receipt: bytes) -> AuditedEpoch:
    """The epoch of a case, as if it had that receipt."""
    counted = tuple(auditing.counted_trials(settlement, _behind(settlement, case)))
    plan = auditing.plan_of(settlement, [trial for trial, _ in counted])
    if not plan.claims:
        raise CannotSettle("nobody is paid in this epoch, so there is nothing to confirm")
    document, rules = settlement.document, settlement.inputs.scheme.audit or AuditRules()
    predicate = {"competition": document["scheme"]["name"], "epoch": document["epoch"], "settlement": document["digest"]}
    records, manifest = {stored.digest: stored for _, stored in counted}, tuple(settlement.inputs.manifest)
    return AuditedEpoch(predicate, receipt, "", 0, None, rules, tuple(trial for trial, _ in counted), plan, records, manifest)


def _behind(settlement: Settlement, case: Json) -> Iterator[tuple[str, Evidence]]:
    """(participant, record) of those that results rest on."""
    stored_records = list[StoredRecord]()
    for at, row in enumerate(case.get("evidence", ())):
        body = canonical(record({name: value for name, value in row.items() if name != "seq"}).document())
        stored_records.append(StoredRecord(row.get("seq", at), sha256(body).digest(), body))
    stored_records.sort(key=lambda stored: stored.seq)
    parsed = {stored.digest: record(json.loads(stored.body)) for stored in stored_records}
    inputs = eligible.inputs_document(settlement.inputs)
    upto = [stored for stored in stored_records if parsed[stored.digest].epoch <= settlement.document["epoch"]]
    for name, _, stored in eligible.records_behind_results(upto, inputs, settlement.document, ()):
        yield name, parsed[stored.digest]


class _AuditReceipt(Section):
    audit: Text
    auditor: str | None = None
    epoch: VerifyCase
    policy: Text | None = None


@refusing
@kind(_AuditReceipt)
def audit_receipt(given: _AuditReceipt) -> Json:
    """The text of a signed audit, the key of the auditor's log (vkey; else the one that it names itself), the `epoch` that it is
    of, as for `verify`, and perhaps the policy of its witnesses: the verdict, and who was wrong how often; refused if the audit
    does not follow."""
    with tempfile.TemporaryDirectory() as name:
        root, file, policy = Path(name) / "epoch", Path(name) / "a.audit", Path(name) / "policy"
        root.mkdir()
        file.write_bytes(given.audit.encode())
        policy.write_bytes((given.policy or "").encode())
        write_bundle(root, given.epoch)
        _write_log(root, given.epoch)
        signed = audit_log.read_audit(file, None if given.auditor is None else LogKey.parse(given.auditor))
        epoch = auditing.audited_epoch(root, given.epoch.key, None if given.policy is None else policy)
        stated = auditing.check_statement(epoch, signed.payload)
    judged = Counter(row["validator"] for row in stated["judged"])
    false = Counter(row["validator"] for row in stated["judged"] if row["state"] == "false")
    wrong = [
        {"validator": who, "judged": count, "wrong": false[who]}
        for who, count in sorted(judged.items(), key=lambda item: item[0].encode())
    ]
    return {
        **{field: stated[field] for field in ("competition", "epoch", "verdict")},
        "judged": len(stated["judged"]),
        "counted": stated["trials"]["counted"],
        "validators": wrong,
        "digest": signed.digest,
        "index": str(signed.index),
        "size": str(signed.size),
    }


def _write_log(root: Path, given: VerifyCase) -> None:
    """The log's folder: its entries are the receipts, its checkpoint is in the proof of the last one."""
    files = sorted((root / bundle.RECEIPTS).iterdir(), key=lambda path: int(path.stem.partition("-")[2]))
    parsed = [read_receipt(path.read_bytes(), LogKey.parse(given.key), path)[0] for path in files]
    for path, data in bundle.log_files([receipt.digest for receipt in parsed], parsed[-1].proof.checkpoint).items():
        (root / bundle.LOG / path).parent.mkdir(parents=True, exist_ok=True)
        (root / bundle.LOG / path).write_bytes(data)
