"""Signing what a competition's folder has: the evidence of one validator, in batches. SPEC 6."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from assay.records import Evidence
from assay.scheme.load import read as read_scheme

__all__ = ["By", "file_name", "sign_folder", "validator_of", "write"]

By = Literal["submission", "epoch"]


def sign_folder(
    folder: Path, signer: PrivateKey, *, epoch: int | None = None, by: By = "submission", origin: str | None = None
) -> list[Batch]:
    """The signed batches of the evidence/*.jsonl that the signer's validator wrote, in one epoch or in all.

    by: a batch for each epoch and submission (one run of one submission), or for each epoch. origin: that of the log for whose
    ledger they are; None: the one that ledger.toml names. Raises BadInput if neither names one, if the key is no validator's, if
    nothing is to be signed, and for what is wrong with the folder or a record.
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
    found = read_records(sorted((folder / "evidence").glob("*.jsonl")), known).records
    mine = [one for one in found if one.validator == validator and epoch in (None, one.epoch)]
    if not mine:
        of = "" if epoch is None else f" of epoch {epoch}"
        raise BadInput(
            f"there are no records{of} by {validator!r}",
            file=folder / "evidence",
            hint="`assay run` writes them; .jsonl is signed",
        )
    task_set = tasks.read(folder / "tasks.txt", scheme.score.trials).digest if scheme.score.kind == "tests" else None
    groups: dict[tuple[int, str], list[Evidence]] = {}
    for one in mine:
        groups.setdefault((one.epoch, one.submission if by == "submission" else ""), []).append(one)
    return [
        batch.make(group, origin=origin, competition=scheme.name, task_set=task_set, signer=signer, validator=validator)
        for _, group in sorted(groups.items())
    ]


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
