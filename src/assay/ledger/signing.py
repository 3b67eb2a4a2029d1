"""Signing what a competition's folder has: the evidence of one validator, in batches. SPEC 6.

Evidence of an epoch that was settled before anybody handed it in can be signed for one that is open. Only the label `epoch` of
a record changes then: not what was seen, nor when. The files of the folder stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.errors import BadInput
from assay.folder import csvs, tasks
from assay.folder.evidence import Registry
from assay.folder.evidence import read as read_records
from assay.folder.write import write_all
from assay.ledger import batch, config
from assay.ledger.batch import Batch
from assay.ledger.keys import PrivateKey, PublicKey, public
from assay.ledger.sound import Judge
from assay.ledger.store import View
from assay.records import Evidence, record
from assay.scheme.load import read as read_scheme

__all__ = ["By", "Late", "file_name", "late_in", "sign_folder", "validator_of", "write"]

By = Literal["submission", "epoch"]


@dataclass
class Late:
    """Evidence that was not handed in while its epoch was open: what is signed for `epoch` instead, chosen by `choose`.

    former: the closed epoch that the records are labelled with; None: all that `view`, the ledger, has settled. judge: which of
    its batches count; what others put there past the intake was not handed in. chosen: how many records were signed so.
    """

    epoch: int
    former: int | None = None
    view: View | None = None
    judge: Judge | None = None
    chosen: int = 0

    def choose(self, records: Sequence[Evidence]) -> list[Evidence]:
        """The records that are late, labelled with the open epoch; what is there of that epoch already stays out."""
        taken = {one.slot for one in records if one.epoch == self.epoch}
        found: list[Evidence] = []
        for one in records:
            if one.epoch >= self.epoch or self.former not in (None, one.epoch):
                continue
            relabelled = record(one.document() | {"epoch": self.epoch})
            # Of a record whose key has the epoch in it, only its validator can say that it may stand for another epoch.
            if relabelled.slot not in taken and (self.former is not None or relabelled.slot == one.slot):
                taken.add(relabelled.slot)
                found.append(relabelled)
        found = found if self.view is None or self.judge is None else self.view.without_slots(found, self.judge.counts)
        self.chosen += len(found)
        return found


def late_in(view: View, key: str) -> Late | None:
    """What is late by what a ledger has settled, and has not of it; None where nothing is settled yet. key: the log's."""
    settled = view.settled_epoch()
    return None if settled is None else Late(settled + 1, view=view, judge=Judge(view, key))


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
    that ledger.toml names. Raises BadInput if neither names one, if the key is no validator's, if nothing is to be signed, and
    for what is wrong with the folder or a record.
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
    wanted += [] if late is None else late.choose(mine)
    if not wanted and (late is None or late.view is None):
        raise _nothing(folder, validator, mine, epoch, late)
    task_set = tasks.read(folder / "tasks.txt", scheme.score.trials).digest if scheme.score.kind == "tests" else None
    groups: dict[tuple[int, str], list[Evidence]] = {}
    for one in wanted:
        groups.setdefault((one.epoch, one.submission if by == "submission" else ""), []).append(one)
    return [
        batch.make(group, origin=origin, competition=scheme.name, task_set=task_set, signer=signer, validator=validator)
        for _, group in sorted(groups.items())
    ]


def _nothing(folder: Path, validator: str, mine: Sequence[Evidence], epoch: int | None, late: Late | None) -> BadInput:
    """That there is nothing to sign, and what there is instead."""
    asked = epoch if late is None else late.former
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
