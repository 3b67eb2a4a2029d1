"""Take signed batches and submissions into the ledger, and remember which batches were acknowledged. SPEC 6.

`accept` checks a batch completely, then stores all of it in one transaction, or nothing. Refused are: a validator who is not in
the registry, a signature that is not its own, evidence for another log, competition, kind or task set, batches of version 1
(which name no log), records about participants who are not in the registry, and anything new of a settled epoch. The batch is
durable and acknowledged when `accept` returns. The same batch or record once more adds nothing, unless the copy that is there was
put into the database without the intake (`assay.ledger.counting`).

`hand_in` stores what a participant submitted, and in which epoch. `replaced` names those whose row in participants.csv is out of
date.

acknowledged.jsonl, beside ledger.toml, makes sure that an accepted batch cannot vanish unseen. For each batch, a line is written
and flushed to the disk before the validator gets an answer:

    {"batch":"sha256:…","digest":"sha256:…","epoch":3,"validator":"…"}

`digest` is taken over the digest of the line before ("" for the first line) and this line without it, so no line can be changed
or left out, except at the end. The owner of a shared database can delete or change a batch of an open epoch. This file is not
in the database: `assay ledger check` compares the two, and nothing is settled while a batch is missing. If several machines take
batches in, each has a file.

A batch that is lost for good is given up by one more line, with "lost" after the epoch; then it is no longer missed. If a line
cannot be written, the batch stays in the database but is not acknowledged; handing it in again acknowledges it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
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
from assay.ledger.store import Accepted, Damaged, Store, StoredBatch, StoreError, Submission, View
from assay.scheme.fields import instant
from assay.scheme.load import read as read_scheme

AcknowledgedRow = dict[str, object]
ACKNOWLEDGED = "acknowledged.jsonl"
_SHAPE = {"batch": check.DIGEST, "digest": check.DIGEST, "epoch": int, "lost?": "for good", "validator": check.WORD}
_HINT = "restore the file from a copy, or move it away, and compare what validators were answered with `assay evidence list`"


def acknowledge(path: Path, taken: Sequence[tuple[Batch, bool]]) -> None:
    """Write the lines of batches that the database has, unless they have one, and flush once. Raises BadInput if that fails.

    taken: each batch, and whether it is new: it was not there before, so it has no line.
    """
    rows = list[tuple[AcknowledgedRow, str]]()
    for batch, new in taken:
        statement = batch.statement
        row: AcknowledgedRow = {"batch": batch.digest, "epoch": statement.epoch, "validator": statement.validator}
        rows.append((row, "" if new else f'"batch":"{batch.digest}"'))
    which = f"the batch {taken[0][0].digest} is" if len(taken) == 1 else f"{len(taken)} batches are"
    hint = f"correct this, then hand {'the batch' if len(taken) == 1 else 'these batches'} in again"
    _append_rows(path, rows, f"{which} stored, but not acknowledged", hint)


def give_up_batch(path: Path, batches: Collection[str]) -> None:
    """Note that acknowledged batches, named by digest, are lost for good; raises BadInput if one was never acknowledged."""
    answered = {str(row["batch"]): row for _, row in _read_rows(path)}
    for name in batches:
        if name not in answered:
            raise BadInput(f"batch {brief(name, 80)} was never acknowledged here", file=path, hint="name one that is missing")
    for name in batches:
        if "lost" not in answered[name]:
            row = answered[name] | {"lost": "for good"}
            del row["digest"]
            _append_rows(path, [(row, "")], "nothing was given up", "correct this, then run the command again")


def missing_batches(path: Path, batches: Container[str]) -> tuple[int, list[tuple[int, AcknowledgedRow]]]:
    """The number of batches acknowledged and not given up, and the lines (from 1) of those that are not among `batches`.

    Without a file, none were. Raises BadInput for a line that is not as it was written.
    """
    last = {row["batch"]: (number, row) for number, row in _read_rows(path)}
    lasting = [entry for entry in last.values() if "lost" not in entry[1]]
    return len(lasting), [(number, row) for number, row in lasting if row["batch"] not in batches]


def check_acknowledged(
    path: Path,
    batches: Container[str],
    aside: Mapping[str, str] = {},
    came_later: Callable[[str], bool] = lambda _: False,
) -> int:
    """The number of batches acknowledged and not given up; all of them must be among `batches`. 0 without a file.

    aside: batch → why it does not count. came_later: whether a batch that is missing came after `batches` were read.
    Raises Damaged, which names the first batch that is missing or does not count, and BadInput for a line that is not as it was
    written.
    """
    count, gone = missing_batches(path, batches)
    for number, row in gone:
        if came_later(str(row["batch"])):
            continue
        whose = f"of {row['validator']}, epoch {row['epoch']}"
        why = aside.get(str(row["batch"]))
        how = "the ledger no longer has it" if why is None else f"it does not count: {why}"
        what = f"batch {row['batch']} {whose}, was acknowledged, but {how}"
        hint = "restore the database from a copy, or ask the validator for the batch and add it again"
        hint += f"; to continue without it for good: assay ledger lost {path.parent} {row['batch']}"
        raise Damaged(what, file=path, line=number, hint=hint)
    return count


def unseen_batches(path: Path, view: View, key: str) -> list[StoredBatch]:
    """The batches of open epochs that could be deleted unseen: they have no line, and the log's key signed no verdict on them.

    A ledger that was migrated from an earlier version has such batches until its next receipt. key: the log's public key.
    """
    answered = {str(row["batch"]) for _, row in _read_rows(path)}
    settled, signed = view.settled_epoch(), BatchVerdicts(view, key).before.batches
    open_ = view.batches(0 if settled is None else settled + 1)
    return [stored for stored in open_ if stored.id > signed and stored.digest not in answered]


def _append_rows(path: Path, rows: Sequence[tuple[AcknowledgedRow, str]], what: str, hint: str) -> None:
    """Add a line for each row, unless a line has the text beside the row, if there is one; flush once."""
    try:
        with path.open("a+b") as file:
            lock(file.fileno())
            before, lines_before = _end_of_file(file, path, whole=any(known for _, known in rows))
            lines = list[bytes]()
            for row, known in rows:
                if known and known.encode() in lines_before:
                    continue
                before = _row_digest(before, row)
                lines.append(canonical(row | {"digest": before}) + b"\n")
            if lines:
                file.write(b"".join(lines))
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror}): {what}", file=path, hint=hint) from None


def _read_rows(path: Path) -> Iterator[tuple[int, AcknowledgedRow]]:
    """The lines with their numbers; none without a file. Raises BadInput for a line that is not as it was written."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=path, hint=_HINT) from None
    before = ""
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):  # an unfinished last line was never answered
        row = _read_row(line, Place(path, number), before)
        before = str(row["digest"])
        yield number, row


def _end_of_file(file: BinaryIO, path: Path, *, whole: bool) -> tuple[str, bytes]:
    """The digest of the last line, "" if there is no line; and the lines, all of them or only the last ones.

    A line that a crash left unfinished is cut off.
    """
    size = file.seek(0, os.SEEK_END)
    begin = 0 if whole else max(0, size - 2**16)
    file.seek(begin)
    data = file.read()
    whole_lines = data[: data.rfind(b"\n") + 1]
    if len(whole_lines) < len(data):
        file.truncate(begin + len(whole_lines))
    lines = whole_lines.split(b"\n")[:-1]
    return (str(_read_row(lines[-1], Place(path), None)["digest"]) if lines else ""), whole_lines


def _read_row(line: bytes, place: Place, before: str | None) -> AcknowledgedRow:
    """A line, checked to follow a line with the digest `before` (None: any line). Raises BadInput."""
    row = parse(line, place)
    if check.misfit(row, _SHAPE) or not isinstance(row, dict):
        raise place.refuse("is not an acknowledgement", hint=_HINT)
    if before is not None and row["digest"] != _row_digest(before, {name: row[name] for name in row if name != "digest"}):
        raise place.refuse("was changed, or does not follow the line before: its digest differs", field="digest", hint=_HINT)
    return row


def _row_digest(before: str, row: AcknowledgedRow) -> str:
    return digest(row | {"before": before})


@dataclass(frozen=True)
class IntakeRules:
    """The rules that a ledger accepts evidence by: its competition, kind and task set (None: any), by whom, about whom.

    answers: the file in which acknowledged batches are noted; None: they are not. age: after so many epochs a record counts no
    more, so a later one does not contradict it; None: it always does.
    """

    competition: str
    kind: str
    validators: Mapping[str, PublicKey | BadInput]
    participants: Set[str]
    task_set: str | None = None
    answers: Path | None = None
    age: int | None = None


def intake_rules(folder: Path, *, may_be_empty: bool = False) -> IntakeRules:
    """The rules that a competition's folder sets; raises BadInput, with file and line, for what is wrong in the folder.

    may_be_empty: whether validators.csv may have no rows yet, see `keys_of`.
    """
    scheme = read_scheme(folder / "scheme.toml")
    people = folder / "participants.csv"
    participants = registry.participants(csvs.read(people, csvs.PARTICIPANTS), Place(people), scheme)
    trials = scheme.kind.trials(scheme.score)
    return IntakeRules(
        competition=scheme.name,
        kind=scheme.score.kind,
        validators=keys_of(folder, len(participants), may_be_empty=may_be_empty),
        participants=frozenset(participant.key for participant in participants),
        task_set=None if trials is None else registry.read_tasks(folder / "tasks.txt", trials).digest,
        answers=folder / ACKNOWLEDGED if config.exists(folder) else None,
        age=scheme.consensus.max_age_epochs,
    )


def keys_of(folder: Path, columns: int = 1, *, may_be_empty: bool = False) -> dict[str, PublicKey | BadInput]:
    """Validator, as the registry spells it → its public key, or why it is not a key; raises BadInput if a key occurs twice.

    may_be_empty: for a competition that is still being made, since an enclave has a key only when it runs.
    """
    path = folder / "validators.csv"
    rows = csvs.read(path, csvs.VALIDATORS)
    if may_be_empty and not rows:
        return {}
    keys: dict[str, PublicKey | BadInput] = {}
    spelt: dict[PublicKey, str] = {}
    for validator, row in zip(registry.validators(rows, Place(path), columns), rows, strict=True):
        try:
            key = keys[validator.key] = public(validator.key)
        except BadInput as error:
            keys[validator.key] = error
            continue
        if spelt.setdefault(key, validator.key) != validator.key:
            raise row.place.refuse(f"is the same key as {spelt[key]!r}", field="key", hint="keep one of the two rows")
    return keys


Source = Batch | Path | bytes
Verdict = Accepted | BadInput
GROUP, GROUP_BYTES = 64, 2**24
"""The most batches that are stored in one transaction, and the bytes after which no other joins them."""


def accept(store: Store, source: Source, known: IntakeRules) -> Accepted:
    """Check, store and acknowledge a batch; when this returns, it is durable. Raises BadInput, with the file, and StoreError."""
    (verdict,) = accept_all(store, [source], known)
    if isinstance(verdict, BadInput):
        raise verdict
    return verdict


def accept_all(store: Store, sources: Iterable[Source], known: IntakeRules) -> Iterator[Verdict]:
    """Check, store and acknowledge batches, and give the verdict on each, in their order: a refused one stops no other.

    A verdict is what `accept` returns or raises for the batch, and is given when the batch is durable. Batches are stored in
    groups, since a transaction and a flush cost more than the records of a batch. Raises StoreError; the batches whose verdicts
    were not given may be stored then, and can be handed in again.
    """
    group, size = list[tuple[Path | None, Batch | BadInput]](), 0
    for source in sources:
        file = source if isinstance(source, Path) else None
        try:
            batch = source if isinstance(source, Batch) else batches.read(source)
            _check_source(store, batch, known)
        except BadInput as error:
            error.at(file=file)
            group.append((file, error))
        else:
            group.append((file, batch))
            size += sum(map(len, batch.bodies))
        if len(group) == GROUP or size > GROUP_BYTES:
            yield from _accept_group(store, group, known)
            group, size = [], 0
    yield from _accept_group(store, group, known)


def _check_source(store: Store, batch: Batch, known: IntakeRules) -> None:
    if store.meta.competition != known.competition:
        what = f"the ledger is of {store.meta.competition!r}, but the scheme is called {known.competition!r}"
        raise BadInput(what, field="scheme.name", hint="a ledger belongs to one competition: give the scheme its former name")
    check_batch(batch, known)


def _accept_group(store: Store, group: Sequence[tuple[Path | None, Batch | BadInput]], known: IntakeRules) -> Sequence[Verdict]:
    """The verdicts on checked batches, which are stored and acknowledged together; one that was refused keeps its verdict.

    If the database refuses the group, each is stored by itself, so that it refuses one of them only.
    """
    verdicts = [checked for _, checked in group if isinstance(checked, BadInput)]
    if len(verdicts) == len(group):
        return verdicts
    try:
        return _accept_together(store, group, known)
    except (BadInput, StoreError) as error:
        if len(group) > 1:
            return [verdict for entry in group for verdict in _accept_group(store, [entry], known)]
        if isinstance(error, StoreError):
            raise
        error.at(file=group[0][0])
        return [error]


def _accept_together(
    store: Store, group: Sequence[tuple[Path | None, Batch | BadInput]], known: IntakeRules
) -> Sequence[Verdict]:
    """The verdicts on a group, in one transaction. Raises BadInput, StoreError."""
    verdicts, taken = list[Verdict](), list[tuple[Batch, bool]]()
    with store.writing() as tx:
        judge, last = BatchVerdicts(tx, store.meta.key), tx.look([batch.digest for _, batch in group if isinstance(batch, Batch)])
        for file, batch in group:
            if isinstance(batch, BadInput):
                verdicts.append(batch)
                continue
            new = not any(map(judge.counts, tx.numbers_named(batch.digest)))
            try:
                if new:
                    _check_new(batch, store.meta.origin, last)
            except BadInput as error:
                error.at(file=file)
                verdicts.append(error)
                continue
            verdicts.append(tx.add_batch(batch, counts=judge.counts, age=known.age))
            taken.append((batch, new))
    if known.answers is not None and taken:
        acknowledge(known.answers, taken)
    return verdicts


def _check_new(batch: Batch, origin: str, last: int | None) -> None:
    """Raise BadInput for a new batch that is for another log, or of a settled epoch."""
    statement = batch.statement
    if statement.version == 1:
        what = "the batch is of version 1, which names no log: it would count in every ledger of a competition of this name"
        raise BadInput(what, field="predicateType", hint="sign the evidence again: assay evidence sign")
    if statement.origin != origin:
        whose = "no log" if statement.origin is None else f"the log {brief(statement.origin)}"
        raise BadInput(
            f"the batch is for {whose}, the ledger's is {origin!r}",
            field="origin",
            hint="give it to the ledger that it was signed for, or sign the evidence for this one",
        )
    if last is not None and statement.epoch <= last:
        again = f"assay evidence sign DIR --key KEY --epoch {last + 1} --from {statement.epoch}"
        hint = f"its validator can sign it for the epoch that is open: {again}"
        raise BadInput(f"epoch {statement.epoch} is settled, the last is {last}", field="epoch", hint=hint)


def check_batch(batch: Batch, known: IntakeRules) -> None:
    """Raise BadInput for a batch that these rules do not allow, or that its validator did not sign."""
    statement = batch.statement
    for field, ours in (("competition", known.competition), ("kind", known.kind)):
        theirs = getattr(statement, field)
        if theirs != ours:
            raise BadInput(
                f"is {brief(theirs)}, but the ledger's is {ours!r}",
                field=field,
                hint="give it to the ledger that it was signed for",
            )
    if None not in (statement.task_set, known.task_set) and statement.task_set != known.task_set:
        raise BadInput(
            f"was judged on the task set {statement.task_set}, but the competition's is {known.task_set}",
            field="task_set",
            hint="judge on the tasks of tasks.txt, or correct tasks.txt",
        )
    key = known.validators.get(statement.validator)
    if key is None:
        raise BadInput(
            f"there is no validator {brief(statement.validator)}",
            field="validator",
            hint="it must be in validators.csv, spelt the same",
        )
    if isinstance(key, BadInput):
        raise BadInput(key.what, field="validator", hint=key.hint)
    batches.check_signature(batch, key)
    unknown = batch.participants - known.participants
    if unknown:
        raise BadInput(
            f"there is no participant {brief(min(unknown))}", field="participant", hint="it must be in participants.csv"
        )


def hand_in(store: Store, participant: str, submission: str, *, epoch: int | None = None, submitted_at: str = "") -> Submission:
    """Store what a participant submitted, accepted in an open epoch, and return it as it is stored. SPEC 2, 3.0.

    epoch: None is the epoch that is judged now, see `_judged_now`. If it is the participant's latest submission already, nothing
    changes. Raises BadInput for a settled epoch, and StoreError.
    """
    with store.writing() as tx:
        known, last = tx.submission_of(participant), tx.settled_epoch()
        if known is not None and known.submission == submission:
            return known
        if epoch is not None and last is not None and epoch <= last:
            what = f"epoch {epoch} is settled, the last is {last}"
            raise BadInput(what, field="epoch", hint="name an open epoch, or none")
        chosen = _judged_now(tx, BatchVerdicts(tx, store.meta.key), last) if epoch is None else epoch
        accepted = Submission(participant, submission, chosen, submitted_at)
        tx.add_submission(accepted)
    return accepted


def open_epoch(store: Store) -> int:
    """The epoch in which a submission that comes now is accepted, see `_judged_now`. Raises StoreError."""
    with store.reading() as view:
        return _judged_now(view, BatchVerdicts(view, store.meta.key), view.settled_epoch())


def _judged_now(view: View, judge: BatchVerdicts, last: int | None) -> int:
    """The epoch that is judged now: the last of the consecutive epochs with counting evidence, from the first open epoch on.

    Before the first settlement, the first open epoch is the lowest with counting evidence, or 1. Consecutive, because one batch
    with a far future epoch must not delay everybody's submissions until then.
    """

    def counts(epoch: int) -> bool:
        return any(judge.counts(number) for number in view.numbers_of(epoch))

    epoch = next(filter(counts, view.epochs()), 1) if last is None else last + 1
    while counts(epoch + 1):
        epoch += 1
    return epoch


def replaced(view: View, folder: Path) -> list[Submission]:
    """The ledger's submissions that are newer than those in a folder's participants.csv; raises BadInput.

    A row without a submission is not out of date: the ledger's submission counts there. Neither is a row with a later time.
    """
    newer, latest = [], view.submissions()
    for row in csvs.read(folder / "participants.csv", csvs.PARTICIPANTS):
        submitted, ours = latest.get(str(row.fields["key"])), str(row.fields.get("submission", ""))
        if submitted is None or not ours or submitted.submission == ours or not submitted.submitted_at:
            continue
        since = str(row.fields.get("submitted_at", ""))
        if not since or instant(since) < instant(submitted.submitted_at):
            newer.append(submitted)
    return newer
