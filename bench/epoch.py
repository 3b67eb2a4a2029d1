"""An epoch as `assay export epoch --parquet` writes it: signed, settled, under a receipt. Made in seconds, by no database."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.exact import canonical
from assay.folder.evidence import Gathered
from assay.ledger import batch, bundle, check, eligible, evidence, keys, log, merkle, statements
from assay.ledger.batch import BatchStatement, StoredRecord
from assay.ledger.check import LogKey
from assay.settle import pipeline

NAME, EPOCH, TASKS, RUNS = "bench", 12, 89, 11
"""RUNS: of one validator in one batch, 979 records."""
ORIGIN = "example.org/bench"


@dataclass(frozen=True)
class BenchEpoch:
    """The bundle, the log's key, and what a bare loop needs: (key, signature, signed bytes) of each batch."""

    folder: Path
    key: LogKey
    records: int
    signed: list[tuple[keys.PublicKey, bytes, bytes]]

    @property
    def parquet(self) -> Path:
        return self.folder / bundle.EVIDENCE / f"epoch-{EPOCH}.parquet"


def make(folder: Path, validators: int, participants: int) -> BenchEpoch:
    """Validators × participants × 89 tasks, each validator's records in batches of 11 runs, in a new folder."""
    judges = [keys.new() for _ in range(validators)]
    people = [f"miner-{number:03}" for number in range(participants)]
    submissions = {one: "sha256:" + hashlib.sha256(one.encode()).hexdigest() for one in people}
    document = {
        "scheme": {"scheme": {"name": NAME}, "score": {"kind": "tests"}},
        "participants": [{"key": one, "uid": uid, "submission": submissions[one]} for uid, one in enumerate(people, start=1)],
        "validators": [{"key": one.public.raw.hex(), "stake": str(1000 + at)} for at, one in enumerate(judges)],
        "tasks": [f"task-{task:03}" for task in range(TASKS)],
        "history": [],
        "randomness": [],
    }
    given = eligible.settled_from(document, epoch=EPOCH, evidence=lambda _: Gathered(), previous=None)
    document = eligible.inputs_document(given)
    rows: list[tuple[int, bytes]] = []
    leaves: list[bytes] = []
    signed = []
    (folder / bundle.EVIDENCE).mkdir(parents=True)
    (folder / bundle.RECEIPTS).mkdir()
    with (folder / bundle.BATCHES).open("wb") as file:
        for first in range(0, participants, RUNS):
            for at, judge in enumerate(judges):
                some = people[first : first + RUNS]
                found = sorted(
                    (hashlib.sha256(body).digest(), body)
                    for body in _bodies(at, judge.public.raw.hex(), first, [(one, submissions[one]) for one in some])
                )
                digests = [digest for digest, _ in found]
                validator, root = judge.public.raw.hex(), batch.root_of(digests)
                names = tuple(sorted(submissions[one] for one in some))
                said = BatchStatement(ORIGIN, NAME, EPOCH, "tests", validator, given.task_set, len(found), root, names)
                payload = canonical(said.document())
                made = keys.sign_envelope(payload, judge)
                seq = len(rows) + 1
                file.write(b'{"envelope":%b,"members":[[%d,%d]]}\n' % (canonical(made), seq, seq + len(found) - 1))
                rows += [(seq + index, body) for index, (_, body) in enumerate(found)]
                leaves += [evidence.evidence_leaf(seq + index, digest) for index, digest in enumerate(digests)]
                parsed = check.Envelope.parse(made, "batch")
                signed.append((judge.public, parsed.signatures[0][1], check.pae(check.IN_TOTO, payload)))
    evidence.write_parquet(folder / bundle.EVIDENCE / f"epoch-{EPOCH}.parquet", rows)
    key = _settle(folder, document, f"sha256:{merkle.root(leaves).hex()}", rows)
    return BenchEpoch(folder, key, len(rows), signed)


def _bodies(at: int, validator: str, first: int, runs: list[tuple[str, str]]) -> Iterator[bytes]:
    for index, (participant, submission) in enumerate(runs, start=first):
        for task in range(TASKS):
            outcome = "pass" if hash((index, task)) % 100 < 20 + index % 70 else "fail"
            minute, second = divmod((at * 7919 + index * 104729 + task * 13) % 86400, 60)
            yield (
                f'{{"epoch":{EPOCH},"kind":"tests","observed_at":"2026-11-02T{minute // 60:02}:{minute % 60:02}:{second:02}Z",'
                f'"outcome":"{outcome}","participant":"{participant}","submission":"{submission}","task":"task-{task:03}",'
                f'"trial":1,"validator":"{validator}"}}'
            ).encode()


def _settle(folder: Path, document: eligible.Json, root: str, rows: list[tuple[int, bytes]]) -> LogKey:
    """The rest of the bundle: settlement, receipt, and a log that has it as its first entry."""
    signer = keys.new()
    key = log.log_key(ORIGIN, signer.public)
    settled = settle(folder, document)
    held = (StoredRecord(seq, hashlib.sha256(body).digest(), body) for seq, body in rows)
    payload = statements.receipt_statement(
        settled,
        inputs=eligible.inputs_digest(document),
        evidence=(root, len(rows)),
        records=eligible.bind_results(held, document, settled, ()),
        previous=None,
        version="0",
    )
    entry = hashlib.sha256(payload).digest()
    tree = merkle.Tree([check.leaf_hash(entry)])
    checkpoint = log.sign_checkpoint(1, tree.root(), key, signer)
    files = {
        bundle.INPUTS: canonical(document) + b"\n",
        bundle.SETTLEMENT: canonical(settled) + b"\n",
        f"{bundle.RECEIPTS}/epoch-{EPOCH}.receipt": statements.receipt_file(
            canonical(keys.sign_envelope(payload, signer)), tree.inclusion(0), checkpoint
        ),
        **{f"{bundle.LOG}/{path}": data for path, data in bundle.log_files([entry], checkpoint).items()},
    }
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return key


def settle(folder: Path, document: eligible.Json) -> eligible.Json:
    """The plain settlement of the same Parquet file, with nothing of a ledger."""
    path = folder / bundle.EVIDENCE / f"epoch-{EPOCH}.parquet"
    return pipeline.settle(eligible.settled_from(document, epoch=EPOCH, evidence=lambda _: (path,), previous=None)).document
