"""Sign a validator's evidence in a competition's folder, as batches; late evidence, for an epoch that is open. SPEC 6.

Evidence is late if its epoch was settled before anybody handed it in. It can be signed for an open epoch. Then only the label
`epoch` of a record changes, not the observation or its time, and the files of the folder stay as they are.

A batch states the task set that its records were judged on. For late evidence, that is the task set with which the ledger settled
the epoch; if no ledger says it, the batch states none. Late evidence of another task set than today's can count in no open epoch,
so it is not signed.
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
    """Evidence that was not handed in while its epoch was open; `choose` selects what is signed for `epoch` instead.

    former: the closed epoch that the records are labelled with; None: all epochs that `view`, the ledger, has settled. judge:
    which of its batches count; records in other batches were not handed in. task_set_of: the task set with which an epoch was
    settled, None if unknown. chosen: how many records were selected. outdated: how many were not, because they were judged on
    another task set than today's.
    """

    epoch: int
    former: int | None = None
    view: View | None = None
    judge: BatchVerdicts | None = None
    task_set_of: Callable[[int], str | None] = lambda _: None
    chosen: int = 0
    outdated: int = 0

    def choose(self, records: Sequence[Evidence], task_set: str | None) -> dict[str | None, list[Evidence]]:
        """Task set (None: unknown, or none) → the late records that were judged on it, labelled with the open epoch.

        Left out are records that the open epoch has already, and records of another task set than today's `task_set`.
        """
        taken = {item.slot for item in records if item.epoch == self.epoch}
        late: list[tuple[str | None, Evidence]] = []
        outdated: list[Evidence] = []
        for item in records:
            if item.epoch >= self.epoch or self.former not in (None, item.epoch):
                continue
            relabelled = record(item.document() | {"epoch": self.epoch})
            # If the epoch is part of a record's slot, only its validator can say that it may count for another epoch.
            if relabelled.slot in taken or (self.former is None and relabelled.slot != item.slot):
                continue
            judged_on = None if task_set is None else self.task_set_of(item.epoch)
            if judged_on == task_set or judged_on is None:
                taken.add(relabelled.slot)
                late.append((judged_on, relabelled))
            else:
                outdated.append(relabelled)
        self.outdated += len(self._not_handed_in(outdated))
        missing = set(map(id, self._not_handed_in([item for _, item in late])))
        chosen: dict[str | None, list[Evidence]] = {}
        for judged_on, item in late:
            if id(item) in missing:
                chosen.setdefault(judged_on, []).append(item)
        self.chosen += len(missing)
        return chosen

    def _not_handed_in(self, records: Sequence[Evidence]) -> list[Evidence]:
        return list(records) if self.view is None or self.judge is None else self.view.without_slots(records, self.judge.counts)


def late_in(view: View, key: str) -> Late | None:
    """The late evidence by a ledger: of epochs that it settled, and not in it; None if nothing is settled. key: the log's."""
    settled = view.settled_epoch()
    task_set_of = cache(lambda epoch: _task_set_of(view, epoch))
    return None if settled is None else Late(settled + 1, view=view, judge=BatchVerdicts(view, key), task_set_of=task_set_of)


def published(settings: config.Config) -> int | None:
    """The last settled epoch by the receipts in the folder, for a validator without the ledger; None if there is no receipt.

    Receipts are looked for where people put published ones: beside ledger.toml, in receipts/, and in exported epochs.
    """
    paths = {path for glob in _RECEIPTS for path in settings.folder.glob(glob)}
    for path in sorted(paths, key=lambda path: (len(path.name), path.name), reverse=True):
        try:
            receipt = check.Receipt.parse(load(path, check.RECEIPT_BYTES, hint="export it again"))
            check.check_receipt(receipt, [check.LogKey.parse(settings.key)])
        except (AssayError, check.CheckError):
            continue  # it is of another log, or damaged
        return int(receipt.predicate["epoch"])
    return None


def of_open(epochs: Sequence[int], settled: int | None) -> str:
    """A sentence: the epochs that the batches are for, and how a validator without the ledger learns which one is open.

    settled: the last settled epoch by a receipt in the folder, None if there is none. SPEC 6, Epochs.
    """
    of = f"{'Epoch' if len(epochs) == 1 else 'Epochs'} {named(list(map(str, epochs)))}"
    if settled is not None:
        return f"{of}; the newest receipt here says that epoch {settled} is settled. If the operator settled more, use --epoch N."
    return (
        f"{of}. Which epoch is open is not known here: ask the operator, or put their newest receipt beside ledger.toml "
        "(epoch-N.receipt). For another epoch, use --epoch N."
    )


def settled_on(folder: Path, epoch: int) -> str | None:
    """The task set with which a folder's ledger settled an epoch; None if it did not, or if the ledger cannot be read."""
    try:
        with open_store(config.read(folder)) as database, database.reading() as view:
            return _task_set_of(view, epoch)
    except AssayError:
        return None  # a validator often has only the folder


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
    """The signed batches of the signer's records in evidence/*.jsonl, of one epoch or of all.

    late: also sign late evidence, and nothing else of epochs before `late.epoch`. by: a batch for each epoch and submission (one
    run of one submission), or for each epoch. origin: of the log for whose ledger the batches are; None: the one that ledger.toml
    names. Raises BadInput if no log is named, if the key is not a validator's, if there is nothing to sign, if all late evidence
    was judged on another task set than today's, and for a fault in the folder or a record.
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
    mine = [item for item in written if item.validator == validator]
    wanted = [item for item in mine if epoch in (None, item.epoch) and (late is None or item.epoch >= late.epoch)]
    trials = scheme.kind.trials(scheme.score)
    task_set = None if trials is None else registry.read_tasks(folder / "tasks.txt", trials).digest
    judged_on = {task_set: wanted}
    for former, records in ({} if late is None else late.choose(mine, task_set)).items():
        judged_on[former] = judged_on.get(former, []) + records
    if not any(judged_on.values()) and (late is None or late.view is None):
        raise _nothing(folder, validator, mine, epoch, late)
    groups: dict[tuple[int, str, str | None], list[Evidence]] = {}
    for former, records in judged_on.items():
        for late_record in records:
            groups.setdefault((late_record.epoch, late_record.submission if by == "submission" else "", former), []).append(
                late_record
            )
    return [
        batch.make(group, origin=origin, competition=scheme.name, task_set=former, signer=signer, validator=validator)
        for (_, _, former), group in sorted(groups.items(), key=lambda item: (item[0][:2], item[0][2] or ""))
    ]


def _nothing(folder: Path, validator: str, mine: Sequence[Evidence], epoch: int | None, late: Late | None) -> BadInput:
    """The error that there is nothing to sign; its hint says what there is instead."""
    asked = epoch if late is None else late.former
    if late is not None and late.outdated:
        what = f"all records of epoch {asked} by {validator!r} were judged on another task set than that of tasks.txt now"
        return BadInput(what, file=folder / "evidence", hint="judge again on these tasks: `assay run`")
    earlier = max((item.epoch for item in mine if epoch is not None and item.epoch < epoch), default=None)
    hint = "`assay run` writes them; only .jsonl files are signed"
    if late is None and earlier is not None:
        count = sum(1 for item in mine if item.epoch == earlier)
        hint = f"there are {count} of epoch {earlier}; if it was settled before they were handed in, add --from {earlier}"
    of = "" if asked is None else f" of epoch {asked}"
    return BadInput(f"there are no records{of} by {validator!r}", file=folder / "evidence", hint=hint)


def _origin(folder: Path) -> str:
    """The log that ledger.toml names; raises BadInput without a ledger.toml."""
    if not config.exists(folder):
        what = "no such file, so the log is unknown for which the evidence is signed: a batch counts in the ledger of one log"
        raise BadInput(what, file=folder / config.FILE, hint="name the log as its operator publishes it: --origin NAME")
    return config.read(folder).origin


def validator_of(key: PublicKey, validators: Mapping[str, int | None], file: Path) -> str:
    """The key as the registry spells it. validators: spelling → line. Raises BadInput if it is missing, or occurs twice."""
    spelt = [text for text in validators if _is(key, text)]
    if not spelt:
        raise BadInput(
            f"no validator has the key {key}",
            file=file,
            hint="enter it in the column `key`: `assay keys show NAME --public` prints it",
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
        return False  # a validator without a key signs nothing


def file_name(signed: Batch) -> str:
    """A name for the batch's file: its epoch and the beginning of its digest, so the same evidence has the same name."""
    return f"epoch-{signed.statement.epoch}-{signed.digest[7:19]}.batch"


def write(batches: Iterable[Batch], folder: Path) -> list[Path]:
    """Write each batch to a file in a folder, which is made if it is missing; returns the paths. Raises BadInput."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", file=folder, hint="choose another folder with -o") from None
    files = [(folder / file_name(signed), signed.data) for signed in batches]
    write_all(files)
    return [path for path, _ in files]
