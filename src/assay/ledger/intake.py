"""acknowledged.jsonl beside ledger.toml: what was answered for, so that a batch that was taken in cannot vanish unseen. SPEC 6.

A line for each batch, written and flushed to the disk when the batch is in the database, before whoever handed it in hears of it:

    {"batch":"sha256:…","digest":"sha256:…","epoch":3,"validator":"…"}

`digest` is taken over the digest of the line before ("" for the first) and this line without it, so that no line can be changed
or left out but at the end. The owner of a shared database can delete a batch of an open epoch, or change it. This file is not in
the database: `assay ledger check` holds the one against the other, and nothing is settled while a batch is missing. A ledger that
takes batches in on several machines has a file on each.

A batch that is lost for good is given up by one more line, with "lost" after the epoch: from then on nobody misses it.

If the line cannot be written, the batch is kept and nobody is answered. Handed in again it is answered, with one line.

Taking a signed batch into the store: everything is checked, then all of it is kept in one transaction, or nothing. SPEC 6.

Refused are: a validator who is not in the registry, a signature that is not its own, evidence for another log, of another
competition, kind or task set, batches of version 1, which name no log, records about participants who are not in the registry,
and anything new of an epoch that is settled. When `accept` returns, the batch is durable, and written down as acknowledged
(`assay.ledger.intake`). The same batch or record once more is known, and adds nothing; what only somebody has put into the
database past the intake is not (`assay.ledger.counting`).

`hand_in` keeps what a participant submitted, and in which epoch that was; `replaced` says whom participants.csv is behind with.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from assay.errors import BadInput, brief
from assay.exact import canonical, digest
from assay.folder import csvs, registry
from assay.folder.evidence import parse
from assay.folder.files import Place, lock
from assay.ledger import batch as batches
from assay.ledger import check, config
from assay.ledger.batch import Batch
from assay.ledger.counting import BatchVerdicts
from assay.ledger.keys import PublicKey, public
from assay.ledger.store import Accepted, Damaged, Store, StoredBatch, Submission, View
from assay.scheme.fields import instant
from assay.scheme.load import read as read_scheme

AcknowledgedRow = dict[str, object]
ACKNOWLEDGED = "acknowledged.jsonl"
_SHAPE = {"batch": check.DIGEST, "digest": check.DIGEST, "epoch": int, "lost?": "for good", "validator": check.WORD}
_HINT = "restore the file from a copy, or move it away, and compare what validators were answered with `assay evidence list`"


def acknowledge(path: Path, batch: Batch, *, new: bool) -> None:
    """Write the line of a batch that the database has, and flush it; nothing, if it has one. Raises BadInput if that fails.

    new: the batch was not there before, so that it has no line.
    """
    said = batch.statement
    row = {"batch": batch.digest, "epoch": said.epoch, "validator": said.validator}
    what = f"the batch {batch.digest} is kept, and not acknowledged"
    _append_row(path, row, f'"batch":"{batch.digest}"' if not new else "", what, "correct that, and hand the batch in again")


def give_up_batch(path: Path, batches: Collection[str]) -> None:
    """Write down of batches, by digest, that they were acknowledged and are lost for good; raises BadInput if one was not."""
    answered = {str(row["batch"]): row for _, row in _read_rows(path)}
    for name in batches:
        if name not in answered:
            raise BadInput(f"batch {brief(name, 80)} was never acknowledged here", file=path, hint="name one that is missing")
    for name in batches:
        if "lost" not in answered[name]:
            row = answered[name] | {"lost": "for good"}
            del row["digest"]
            _append_row(path, row, "", "nothing was given up", "correct that, then do it again")


def missing_batches(path: Path, batches: Container[str]) -> tuple[int, list[tuple[int, AcknowledgedRow]]]:
    """How many batches were acknowledged and not given up, and the lines (from 1) of those that are not among these.

    None were without a file. Raises BadInput for a line that is not as it was written.
    """
    last = {row["batch"]: (number, row) for number, row in _read_rows(path)}
    kept = [one for one in last.values() if "lost" not in one[1]]
    return len(kept), [(number, row) for number, row in kept if row["batch"] not in batches]


def check_acknowledged(path: Path, batches: Container[str], aside: Mapping[str, str] = {}) -> int:
    """How many batches were acknowledged and not given up, all of which count: they are among these; 0 without a file.

    aside: batch → why it does not count. Raises Damaged for one that does not, which it names, and BadInput for a line that is
    not as it was written.
    """
    count, gone = missing_batches(path, batches)
    for number, row in gone:
        whose = f"of {row['validator']}, epoch {row['epoch']}"
        why = aside.get(str(row["batch"]))
        how = "the ledger has it no more" if why is None else f"it does not count: {why}"
        what = f"batch {row['batch']} {whose}, was acknowledged, and {how}"
        hint = "restore the database from a copy, or ask the validator for the batch and add it again"
        hint += f"; to go on without it for good: assay ledger lost {path.parent} {row['batch']}"
        raise Damaged(what, file=path, line=number, hint=hint)
    return count


def unseen_batches(path: Path, view: View, key: str) -> list[StoredBatch]:
    """The batches of open epochs that could be deleted unseen: no line is of them, and the log's key signed nothing of them.

    Such are in a ledger of an earlier version that was brought forward, until its next receipt. key: the log's public key.
    """
    answered = {str(row["batch"]) for _, row in _read_rows(path)}
    settled, signed = view.settled_epoch(), BatchVerdicts(view, key).before.batches
    open_ = view.batches(0 if settled is None else settled + 1)
    return [one for one in open_ if one.id > signed and one.digest not in answered]


def _append_row(path: Path, row: AcknowledgedRow, known: str, what: str, hint: str) -> None:
    """Add a line; nothing, where one has the text `known`."""
    try:
        with path.open("a+b") as file:
            lock(file.fileno())
            before = _end_of_file(file, path, known)
            if before is not None:
                file.write(canonical(row | {"digest": _row_digest(before, row)}) + b"\n")
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror}): {what}", file=path, hint=hint) from None


def _read_rows(path: Path) -> Iterator[tuple[int, AcknowledgedRow]]:
    """The lines, with their numbers; none without a file. Raises BadInput for one that is not as it was written."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=path, hint=_HINT) from None
    before = ""
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):  # what is after the last line end was never answered
        row = _read_row(line, Place(path, number), before)
        before = str(row["digest"])
        yield number, row


def _end_of_file(file: BinaryIO, path: Path, known: str) -> str | None:
    """The digest of the last line, "" if there is none; None if a line has the text `known`, unless that is empty.

    What a crash left of a line is cut off.
    """
    size = file.seek(0, os.SEEK_END)
    begin = 0 if known else max(0, size - 2**16)
    file.seek(begin)
    data = file.read()
    kept = data[: data.rfind(b"\n") + 1]
    if len(kept) < len(data):
        file.truncate(begin + len(kept))
    if known and known.encode() in kept:
        return None
    lines = kept.split(b"\n")[:-1]
    return str(_read_row(lines[-1], Place(path), None)["digest"]) if lines else ""


def _read_row(line: bytes, place: Place, before: str | None) -> AcknowledgedRow:
    """A line, as it was written; after a line with the digest `before`, None: after any. Raises BadInput."""
    row = parse(line, place)
    if check.misfit(row, _SHAPE) or not isinstance(row, dict):
        raise place.refuse("is no acknowledgement", hint=_HINT)
    if before is not None and row["digest"] != _row_digest(before, {name: row[name] for name in row if name != "digest"}):
        raise place.refuse("is not what was written here after the line before: another digest", field="digest", hint=_HINT)
    return row


def _row_digest(before: str, row: AcknowledgedRow) -> str:
    return digest(row | {"before": before})


@dataclass(frozen=True)
class IntakeRules:
    """What a ledger takes in: of which competition and kind, on which task set (None: any), by whom, about whom.

    answers: the file in which it is written down what was acknowledged; None: it is not.
    """

    competition: str
    kind: str
    validators: Mapping[str, PublicKey | BadInput]
    participants: Set[str]
    task_set: str | None = None
    answers: Path | None = None


def intake_rules(folder: Path) -> IntakeRules:
    """The terms that a competition's folder sets; raises BadInput for what is wrong in it, with file and line."""
    scheme = read_scheme(folder / "scheme.toml")
    people = folder / "participants.csv"
    participants = registry.participants(csvs.read(people, csvs.PARTICIPANTS), Place(people), scheme)
    trials = scheme.kind.trials(scheme.score)
    return IntakeRules(
        competition=scheme.name,
        kind=scheme.score.kind,
        validators=keys_of(folder, len(participants)),
        participants=frozenset(one.key for one in participants),
        task_set=None if trials is None else registry.read_tasks(folder / "tasks.txt", trials).digest,
        answers=folder / ACKNOWLEDGED if config.exists(folder) else None,
    )


def keys_of(folder: Path, columns: int = 1, *, may_be_empty: bool = False) -> dict[str, PublicKey | BadInput]:
    """Validator as the registry spells it → its public key, or why it is none; raises BadInput for a key that is there twice.

    It may be empty where a competition is still being made: an enclave has its key from the day on which it runs.
    """
    path = folder / "validators.csv"
    rows = csvs.read(path, csvs.VALIDATORS)
    if may_be_empty and not rows:
        return {}
    found: dict[str, PublicKey | BadInput] = {}
    spelt: dict[PublicKey, str] = {}
    for one, row in zip(registry.validators(rows, Place(path), columns), rows, strict=True):
        try:
            key = found[one.key] = public(one.key)
        except BadInput as error:
            found[one.key] = error
            continue
        if spelt.setdefault(key, one.key) != one.key:
            raise row.place.refuse(f"is the same key as {spelt[key]!r}", field="key", hint="keep one of the two rows")
    return found


def accept(store: Store, source: Batch | Path | bytes, known: IntakeRules) -> Accepted:
    """Check a batch, keep it, write it down; when this returns, it is durable. Raises BadInput, with the file, and StoreError."""
    file = source if isinstance(source, Path) else None
    batch = source if isinstance(source, Batch) else batches.read(source)
    try:
        if store.meta.competition != known.competition:
            what = f"the ledger is of {store.meta.competition!r}, the scheme is called {known.competition!r}"
            raise BadInput(what, field="scheme.name", hint="a ledger keeps to one competition: call the scheme as before")
        check_batch(batch, known)
        with store.writing() as tx:
            judge = BatchVerdicts(tx, store.meta.key)
            new = not any(judge.counts(one.id) for one in tx.named(batch.digest))
            if new:
                _check_new(batch, store.meta.origin, tx.settled_epoch())
            found = tx.add_batch(batch, counts=judge.counts)
    except BadInput as error:
        raise error.at(file=file) from None
    if known.answers is not None:
        acknowledge(known.answers, batch, new=new)
    return found


def _check_new(batch: Batch, origin: str, last: int | None) -> None:
    """Refuse a batch that the ledger does not have yet and that is for another log, or of a settled epoch; raises BadInput."""
    said = batch.statement
    if said.version == 1:
        what = "the batch is of version 1, which names no log: it would count in every ledger of a competition of this name"
        raise BadInput(what, field="predicateType", hint="sign the evidence again: assay evidence sign")
    if said.origin != origin:
        whose = "no log" if said.origin is None else f"the log {brief(said.origin)}"
        raise BadInput(
            f"the batch is for {whose}, the ledger's is {origin!r}",
            field="origin",
            hint="give it to the ledger that it was signed for, or sign the evidence for this one",
        )
    if last is not None and said.epoch <= last:
        again = f"assay evidence sign DIR --key KEY --epoch {last + 1} --from {said.epoch}"
        hint = f"its validator can sign it for the epoch that is open: {again}"
        raise BadInput(f"epoch {said.epoch} is settled, the last is {last}", field="epoch", hint=hint)


def check_batch(batch: Batch, known: IntakeRules) -> None:
    """Refuse a batch that these terms do not allow, or that its validator did not sign; raises BadInput."""
    said = batch.statement
    for field, ours in (("competition", known.competition), ("kind", known.kind)):
        theirs = getattr(said, field)
        if theirs != ours:
            raise BadInput(
                f"is {brief(theirs)}, the ledger's is {ours!r}", field=field, hint="give it to the ledger that it is for"
            )
    if None not in (said.task_set, known.task_set) and said.task_set != known.task_set:
        raise BadInput(
            f"was judged on the task set {said.task_set}, the competition's is {known.task_set}",
            field="task_set",
            hint="judge on the tasks of tasks.txt, or correct that",
        )
    key = known.validators.get(said.validator)
    if key is None:
        raise BadInput(
            f"there is no validator {brief(said.validator)}",
            field="validator",
            hint="it must be in validators.csv, spelt the same",
        )
    if isinstance(key, BadInput):
        raise BadInput(key.what, field="validator", hint=key.hint)
    batches.check_signature(batch, key)
    unknown = {one.participant for one in batch.records} - known.participants
    if unknown:
        raise BadInput(
            f"there is no participant {brief(min(unknown))}", field="participant", hint="it must be in participants.csv"
        )


def hand_in(store: Store, participant: str, submission: str, *, epoch: int | None = None, submitted_at: str = "") -> Submission:
    """Keep what a participant submitted, accepted in an epoch that is open, and return it as it is kept. SPEC 2, 3.0.

    epoch: None is the one that is judged now, see `_judged_now`. What is its latest submission already stays as it was. Raises
    BadInput for an epoch that is settled, and StoreError.
    """
    with store.writing() as tx:
        known, last = tx.submissions().get(participant), tx.settled_epoch()
        if known is not None and known.submission == submission:
            return known
        if epoch is not None and last is not None and epoch <= last:
            what = f"epoch {epoch} is settled, the last is {last}"
            raise BadInput(what, field="epoch", hint="name an epoch that is open, or none")
        chosen = _judged_now(tx, BatchVerdicts(tx, store.meta.key), last) if epoch is None else epoch
        made = Submission(participant, submission, chosen, submitted_at)
        tx.add_submission(made)
    return made


def _judged_now(view: View, judge: BatchVerdicts, last: int | None) -> int:
    """The last of the epochs that follow one another, from the one after the last settled on, and have evidence that counts.

    Before the first settlement they begin with the lowest that has some, or with 1. One batch that is labelled with an epoch at
    which nobody is must not put off what everybody hands in until then.
    """

    def counts(epoch: int) -> bool:
        return any(judge.counts(number) for number in view.numbers_of(epoch))

    epoch = next(filter(counts, view.epochs()), 1) if last is None else last + 1
    while counts(epoch + 1):
        epoch += 1
    return epoch


def replaced(view: View, folder: Path) -> list[Submission]:
    """What participants handed in, by the ledger, after what a folder's participants.csv has of them; raises BadInput.

    A row without a submission is not behind: there the ledger's counts. Nor is one of a later time, or of none that is said.
    """
    found, latest = [], view.submissions()
    for row in csvs.read(folder / "participants.csv", csvs.PARTICIPANTS):
        there, ours = latest.get(str(row.fields["key"])), str(row.fields.get("submission", ""))
        if there is None or not ours or there.submission == ours or not there.submitted_at:
            continue
        since = str(row.fields.get("submitted_at", ""))
        if not since or instant(since) < instant(there.submitted_at):
            found.append(there)
    return found
