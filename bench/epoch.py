"""An epoch as `assay export epoch --parquet` writes it: signed, settled, under a receipt. Made in seconds, by no database."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assay.exact import canonical
from assay.folder.evidence import Gathered
from assay.folder.previous import previous_of
from assay.ledger import batch, binding, bundle, check, eligible, evidence, keys, log, merkle, statements
from assay.ledger.batch import BatchStatement, StoredRecord
from assay.ledger.check import LogKey
from assay.ledger.evidence import BoundRecords
from assay.settle import pipeline
from assay.settle.inputs import Previous

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


def make(folder: Path, validators: int, participants: int, kind: str = "tests") -> BenchEpoch:
    """Validators × participants × 89 tasks, each validator's records in batches of 11 runs, in a new folder.

    kind: `tests`, or `given`: a score for each validator and participant.
    """
    judges = [keys.new() for _ in range(validators)]
    people = [f"miner-{number:03}" for number in range(participants)]
    submissions = {person: "sha256:" + hashlib.sha256(person.encode()).hexdigest() for person in people}
    document = rules(NAME, people, submissions, judges, kind)
    given = eligible.settled_from(document, epoch=EPOCH, evidence=lambda _: Gathered(), previous=None)
    document = eligible.inputs_document(given)
    rows: list[tuple[int, bytes]] = []
    leaves: list[bytes] = []
    signed = []
    bodies = _bodies if kind == "tests" else _scores
    (folder / bundle.EVIDENCE).mkdir(parents=True)
    (folder / bundle.RECEIPTS).mkdir()
    with (folder / bundle.BATCHES).open("wb") as file:
        for first in range(0, participants, RUNS):
            for at, judge in enumerate(judges):
                some = people[first : first + RUNS]
                members = sorted(
                    (hashlib.sha256(body).digest(), body)
                    for body in bodies(at, judge.public.raw.hex(), first, [(person, submissions[person]) for person in some])
                )
                digests = [digest for digest, _ in members]
                validator, root = judge.public.raw.hex(), batch.root_of(digests)
                names = tuple(sorted(submissions[person] for person in some))
                statement = BatchStatement(ORIGIN, NAME, EPOCH, kind, validator, given.task_set, len(members), root, names)
                payload = canonical(statement.document())
                envelope = keys.sign_envelope(payload, judge)
                seq = len(rows) + 1
                file.write(b'{"envelope":%b,"members":[[%d,%d]]}\n' % (canonical(envelope), seq, seq + len(members) - 1))
                rows += [(seq + index, body) for index, (_, body) in enumerate(members)]
                leaves += [evidence.evidence_leaf(seq + index, digest) for index, digest in enumerate(digests)]
                parsed = check.Envelope.parse(envelope, "batch")
                signed.append((judge.public, parsed.signatures[0][1], check.pae(check.IN_TOTO, payload)))
    evidence.write_parquet(folder / bundle.EVIDENCE / f"epoch-{EPOCH}.parquet", rows)
    key = _settle(folder, document, f"sha256:{merkle.root(leaves).hex()}", rows)
    return BenchEpoch(folder, key, len(rows), signed)


def season(folder: Path, name: str, validators: int, participants: int, epochs: Sequence[int]) -> int:
    """Settled epochs of one competition with a log of its own, as `assay export archive --parquet` writes them; its records."""
    judges, signer = [keys.new() for _ in range(validators)], keys.new()
    people = [f"miner-{number:03}" for number in range(participants)]
    submissions = {person: "sha256:" + hashlib.sha256(f"{name}/{person}".encode()).hexdigest() for person in people}
    document = rules(name, people, submissions, judges)
    given = eligible.settled_from(document, epoch=epochs[0], evidence=lambda _: Gathered(), previous=None)
    document, key = eligible.inputs_document(given), log.log_key(f"example.org/{name}", signer.public)
    rows, digests, paths, entries = list[tuple[int, bytes]](), list[bytes](), list[Path](), list[bytes]()
    previous: tuple[int, str] | None = None
    before: Previous | None = None
    for epoch in epochs:
        place, first_seq = folder / f"epoch-{epoch}", len(rows)
        place.mkdir(parents=True)
        with (place / bundle.BATCHES).open("wb") as file:
            for first, (at, judge) in itertools.product(range(0, participants, RUNS), enumerate(judges)):
                some = [(person, submissions[person]) for person in people[first : first + RUNS]]
                validator = judge.public.raw.hex()
                members = sorted((hashlib.sha256(body).digest(), body) for body in _bodies(at, validator, first, some, epoch))
                root, names = (
                    batch.root_of([digest for digest, _ in members]),
                    tuple(sorted(submission for _, submission in some)),
                )
                statement = BatchStatement(key.name, name, epoch, "tests", validator, given.task_set, len(members), root, names)
                signed = canonical(keys.sign_envelope(canonical(statement.document()), judge))
                file.write(b'{"envelope":%b,"members":[[%d,%d]]}\n' % (signed, len(rows) + 1, len(rows) + len(members)))
                rows += [(len(rows) + number, body) for number, (_, body) in enumerate(members, start=1)]
        mine = rows[first_seq:]
        paths.append(place / f"epoch-{epoch}.parquet")
        evidence.write_parquet(paths[-1], mine)
        held = tuple(paths)
        inputs = eligible.settled_from(document, epoch=epoch, evidence=lambda _, held=held: held, previous=before)  # type: ignore[misc]
        settled = pipeline.settle(inputs).document
        digests += [hashlib.sha256(body).digest() for _, body in mine]
        bound = BoundRecords([seq for seq, _ in rows], digests)
        payload = statements.receipt_statement(
            settled,
            inputs=eligible.inputs_digest(document),
            evidence=(evidence.evidence_root([seq for seq, _ in mine], digests[first_seq:]), len(mine)),
            records=binding.bind_parquet(paths, document, settled, np.empty(0, np.int64), bound),
            previous=previous,
            version="0",
        )
        entries.append(hashlib.sha256(payload).digest())
        tree = merkle.Tree([check.leaf_hash(entry) for entry in entries])
        checkpoint = log.sign_checkpoint(len(entries), tree.root(), key, signer)
        envelope = canonical(keys.sign_envelope(payload, signer))
        receipt = statements.receipt_file(envelope, tree.inclusion(len(entries) - 1), checkpoint)
        (place / f"epoch-{epoch}.receipt").write_bytes(receipt)
        (place / bundle.INPUTS).write_bytes(canonical(document) + b"\n")
        (place / bundle.SETTLEMENT).write_bytes(canonical(settled) + b"\n")
        previous, before = (epoch, f"sha256:{entries[-1].hex()}"), previous_of(settled)
    return len(rows)


def rules(
    name: str, people: Sequence[str], submissions: Mapping[str, str], judges: Sequence[keys.PrivateKey], kind: str = "tests"
) -> eligible.Json:
    """The inputs of a competition with these participants and validators, and 89 tasks."""
    return {
        "scheme": {"scheme": {"name": name}, "score": {"kind": kind}},
        "participants": [
            {"key": person, "uid": uid, "submission": submissions[person]} for uid, person in enumerate(people, start=1)
        ],
        "validators": [{"key": judge.public.raw.hex(), "stake": str(1000 + at)} for at, judge in enumerate(judges)],
        "tasks": [f"task-{task:03}" for task in range(TASKS)] if kind == "tests" else [],
        "history": [],
        "randomness": [],
    }


def _bodies(at: int, validator: str, first: int, runs: list[tuple[str, str]], epoch: int = EPOCH) -> Iterator[bytes]:
    for index, (participant, submission) in enumerate(runs, start=first):
        for task in range(TASKS):
            outcome = "pass" if hash((index, task)) % 100 < 20 + index % 70 else "fail"
            minute, second = divmod((at * 7919 + index * 104729 + task * 13) % 86400, 60)
            yield (
                f'{{"epoch":{epoch},"kind":"tests","observed_at":"2026-11-02T{minute // 60:02}:{minute % 60:02}:{second:02}Z",'
                f'"outcome":"{outcome}","participant":"{participant}","submission":"{submission}","task":"task-{task:03}",'
                f'"trial":1,"validator":"{validator}"}}'
            ).encode()


def _scores(at: int, validator: str, first: int, runs: list[tuple[str, str]], epoch: int = EPOCH) -> Iterator[bytes]:
    for index, (participant, submission) in enumerate(runs, start=first):
        score = f"0.{index % 90 + 10}{(at * 7919 + index * 104729) % 997 + 1:04}".rstrip("0")
        yield (
            f'{{"epoch":{epoch},"kind":"given","observed_at":"2026-11-02T09:00:00Z","participant":"{participant}",'
            f'"score":"{score}","submission":"{submission}","validator":"{validator}"}}'
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
