"""Signing what a competition's folder has: the evidence of one validator, in batches. SPEC 6.

Evidence of an epoch that was settled before anybody handed it in can be signed for one that is open. Only the label `epoch` of
a record changes then: not what was seen, nor when. The files of the folder stay as they are. A batch states the task set that its
records were judged on. For late evidence that is the one with which the ledger settled the epoch; where no ledger says it, the
batch states none. Late evidence of another task set than today's can count in no epoch that is open, so it is not signed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from assay.errors import AssayError, BadInput
from assay.folder import csvs, registry
from assay.folder.evidence import Registry
from assay.folder.evidence import read as read_records
from assay.folder.files import load, write_all
from assay.ledger import batch, check, config
from assay.ledger.access import open_store
from assay.ledger.batch import Batch
from assay.ledger.counting import BatchVerdicts
from assay.ledger.keys import PrivateKey, PublicKey, public
from assay.ledger.store import View
from assay.records import Evidence, record
from assay.scheme.load import read as read_scheme
from assay.settle.story.telling import named

__all__ = ["By", "Late", "file_name", "late_in", "of_open", "published", "settled_on", "sign_folder", "validator_of", "write"]

_RECEIPTS = ("epoch-*.receipt", "receipts/epoch-*.receipt", "*/receipts/epoch-*.receipt")
By = Literal["submission", "epoch"]


@dataclass
class Late:
    """Evidence that was not handed in while its epoch was open: what is signed for `epoch` instead, chosen by `choose`.

    former: the closed epoch that the records are labelled with; None: all that `view`, the ledger, has settled. judge: which of
    its batches count; what others put there past the intake was not handed in. task_set_of: the task set with which an epoch was
    settled, None where that is not known. chosen: how many records were signed so. outdated: how many were not, since they were
    judged on another task set than today's.
    """

    epoch: int
    former: int | None = None
    view: View | None = None
    judge: BatchVerdicts | None = None
    task_set_of: Callable[[int], str | None] = lambda _: None
    chosen: int = 0
    outdated: int = 0

    def choose(self, records: Sequence[Evidence], task_set: str | None) -> dict[str | None, list[Evidence]]:
        """Task set → the late records that were judged on it, labelled with the open epoch. None: not known, or there is none.

        What the open epoch has already stays out, and so does what was judged on another task set than today's `task_set`.
        """
        taken = {one.slot for one in records if one.epoch == self.epoch}
        late: list[tuple[str | None, Evidence]] = []
        outdated: list[Evidence] = []
        for one in records:
            if one.epoch >= self.epoch or self.former not in (None, one.epoch):
                continue
            relabelled = record(one.document() | {"epoch": self.epoch})
            # Of a record whose key has the epoch in it, only its validator can say that it may stand for another epoch.
            if relabelled.slot in taken or (self.former is None and relabelled.slot != one.slot):
                continue
            judged_on = None if task_set is None else self.task_set_of(one.epoch)
            if judged_on == task_set or judged_on is None:
                taken.add(relabelled.slot)
                late.append((judged_on, relabelled))
            else:
                outdated.append(relabelled)
        self.outdated += len(self._not_handed_in(outdated))
        missing = set(map(id, self._not_handed_in([one for _, one in late])))
        chosen: dict[str | None, list[Evidence]] = {}
        for judged_on, one in late:
            if id(one) in missing:
                chosen.setdefault(judged_on, []).append(one)
        self.chosen += len(missing)
        return chosen

    def _not_handed_in(self, records: Sequence[Evidence]) -> list[Evidence]:
        return list(records) if self.view is None or self.judge is None else self.view.without_slots(records, self.judge.counts)


def late_in(view: View, key: str) -> Late | None:
    """What is late by what a ledger has settled, and has not of it; None where nothing is settled yet. key: the log's."""
    settled = view.settled_epoch()
    task_set_of = cache(lambda epoch: _task_set_of(view, epoch))
    return None if settled is None else Late(settled + 1, view=view, judge=BatchVerdicts(view, key), task_set_of=task_set_of)


def published(said: config.Config) -> int | None:
    """The last epoch that a receipt in the folder says is settled, for who has no ledger; None if no receipt of its log is there.

    It is looked for where people put what is published: epoch-N.receipt beside ledger.toml, in receipts/, in an exported epoch.
    """
    found = {path for glob in _RECEIPTS for path in said.folder.glob(glob)}
    for path in sorted(found, key=lambda path: (len(path.name), path.name), reverse=True):
        try:
            receipt = check.Receipt.parse(load(path, check.RECEIPT_BYTES, hint="export it again"))
            check.check_receipt(receipt, [check.LogKey.parse(said.key)])
        except (AssayError, check.CheckError):
            continue  # of another log, or cut off: it says nothing
        return int(receipt.predicate["epoch"])
    return None


def of_open(epochs: Sequence[int], settled: int | None) -> str:
    """Which epochs what is signed is for, and how a validator without the ledger learns which one is open. SPEC 6, Epochs.

    settled: the last one by a receipt that is here, None if none is.
    """
    of = f"{'Epoch' if len(epochs) == 1 else 'Epochs'} {named(list(map(str, epochs)))}"
    if settled is not None:
        return f"{of}; by the newest receipt here epoch {settled} is settled. If the operator settled more, say --epoch N."
    return (
        f"{of}. Which epoch is open is not known here: ask the operator, or put their newest receipt beside ledger.toml "
        "(epoch-N.receipt). If it is another one: --epoch N."
    )


def settled_on(folder: Path, epoch: int) -> str | None:
    """The task set with which a folder's ledger settled an epoch; None if it did not, or if there is no ledger to read."""
    try:
        with open_store(config.read(folder)) as database, database.reading() as view:
            return _task_set_of(view, epoch)
    except AssayError:
        return None  # a validator often has only the folder: then it is not known


def _task_set_of(view: View, epoch: int) -> str | None:
    settled = view.settlement(epoch)
    return None if settled is None else json.loads(settled.document)["task_set"]


def sign_folder(
    folder: Path,
    signer: PrivateKey,
    *,
    epoch: int | None = None,
    late: Late | None = None,
    by: By = "submission",
    origin: str | None = None,
) -> list[Batch]:
    """The signed batches of the evidence/*.jsonl that the signer's validator wrote, in one epoch or in all.

    late: with it also what was not handed in in time, and nothing of epochs before `late.epoch`. by: a batch for each epoch and
    submission (one run of one submission), or for each epoch. origin: that of the log for whose ledger they are; None: the one
    that ledger.toml names. Raises BadInput if neither names one, if the key is no validator's, if nothing is to be signed, if all
    that is late was judged on another task set than today's, and for what is wrong with the folder or a record.
    """
    origin = _origin(folder) if origin is None else origin
    scheme = read_scheme(folder / "scheme.toml")
    rows = csvs.read(folder / "validators.csv", csvs.VALIDATORS)
    validator = validator_of(signer.public, {row.fields["key"]: row.place.line for row in rows}, folder / "validators.csv")
    participants = csvs.read(folder / "participants.csv", csvs.PARTICIPANTS)
    known = Registry(
        scheme.score.kind,
        frozenset(row.fields["key"] for row in rows),
        frozenset(row.fields["key"] for row in participants),
    )
    written = read_records(sorted((folder / "evidence").glob("*.jsonl")), known).records
    mine = [one for one in written if one.validator == validator]
    wanted = [one for one in mine if epoch in (None, one.epoch) and (late is None or one.epoch >= late.epoch)]
    trials = scheme.kind.trials(scheme.score)
    task_set = None if trials is None else registry.read_tasks(folder / "tasks.txt", trials).digest
    judged_on = {task_set: wanted}
    for former, records in ({} if late is None else late.choose(mine, task_set)).items():
        judged_on[former] = judged_on.get(former, []) + records
    if not any(judged_on.values()) and (late is None or late.view is None):
        raise _nothing(folder, validator, mine, epoch, late)
    groups: dict[tuple[int, str, str | None], list[Evidence]] = {}
    for former, records in judged_on.items():
        for one in records:
            groups.setdefault((one.epoch, one.submission if by == "submission" else "", former), []).append(one)
    return [
        batch.make(group, origin=origin, competition=scheme.name, task_set=former, signer=signer, validator=validator)
        for (_, _, former), group in sorted(groups.items(), key=lambda item: (item[0][:2], item[0][2] or ""))
    ]


def _nothing(folder: Path, validator: str, mine: Sequence[Evidence], epoch: int | None, late: Late | None) -> BadInput:
    """That there is nothing to sign, and what there is instead."""
    asked = epoch if late is None else late.former
    if late is not None and late.outdated:
        what = f"all records of epoch {asked} by {validator!r} were judged on another task set than that of tasks.txt now"
        return BadInput(what, file=folder / "evidence", hint="judge again on these tasks: `assay run`")
    earlier = max((one.epoch for one in mine if epoch is not None and one.epoch < epoch), default=None)
    hint = "`assay run` writes them; .jsonl is signed"
    if late is None and earlier is not None:
        count = sum(1 for one in mine if one.epoch == earlier)
        hint = f"there are {count} of epoch {earlier}; if it was closed before they were handed in, add --from {earlier}"
    of = "" if asked is None else f" of epoch {asked}"
    return BadInput(f"there are no records{of} by {validator!r}", file=folder / "evidence", hint=hint)


def _origin(folder: Path) -> str:
    """The log that ledger.toml names; raises BadInput where there is none."""
    if not config.exists(folder):
        what = "no such file, so it is not known for which log the evidence is signed: a batch counts in the ledger of one log"
        raise BadInput(what, file=folder / config.FILE, hint="name the log as its operator publishes it: --origin NAME")
    return config.read(folder).origin


def validator_of(key: PublicKey, validators: Mapping[str, int | None], file: Path) -> str:
    """The key as the registry spells it; validators: spelling → line. Raises BadInput if it is not there, or twice."""
    spelt = [text for text in validators if _is(key, text)]
    if not spelt:
        raise BadInput(
            f"none of the validators has the key {key}", file=file, hint="its column `key` is the public key: assay keys show"
        )
    if len(spelt) > 1:
        raise BadInput(
            f"{spelt[1]!r} is the same key as {spelt[0]!r}", file=file, line=validators[spelt[1]], hint="remove one of the two"
        )
    return spelt[0]


def _is(key: PublicKey, text: str) -> bool:
    try:
        return public(text) == key
    except BadInput:
        return False  # a validator that has only a name signs nothing


def file_name(found: Batch) -> str:
    """A name for the batch's file: its epoch, and the beginning of its digest, so that the same evidence has the same name."""
    return f"epoch-{found.statement.epoch}-{found.digest[7:19]}.batch"


def write(batches: Iterable[Batch], folder: Path) -> list[Path]:
    """Put each batch into a file of its own name, in a folder that is made if it is not there; raises BadInput."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint="choose another folder with -o") from None
    files = [(folder / file_name(one), one.data) for one in batches]
    write_all(files)
    return [path for path, _ in files]
