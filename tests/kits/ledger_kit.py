"""A competition with a ledger, for tests: three validators with keys, two participants, a log of its own."""

import functools
import multiprocessing
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

import small_folder
from assay.exact import canonical
from assay.ledger import batch, bundle, config, intake, keys, log, settling, store
from assay.ledger.access import Ledger, open_ledger
from assay.ledger.check import EMPTY_ROOT, LogKey
from assay.ledger.config import Config
from assay.ledger.exchange import proof_for
from assay.ledger.keys import PrivateKey
from assay.ledger.log import Log
from assay.records import Evidence, record
from assay.scheme.load import read as read_scheme

ORIGIN = "example.org/small"
SIGNER = keys.read(b"77" * 32)
"""The log's."""
VALIDATORS: Mapping[str, PrivateKey] = {
    key.public.raw.hex(): key for key in (keys.read(f"{number:02}".encode() * 32) for number in (1, 2, 3))
}
V1, V2, V3 = VALIDATORS
KEY: LogKey = log.log_key(ORIGIN, SIGNER.public)
NAMES = f"key,stake,name\n{V1},100,val-1\n{V2},200,val-2\n{V3},300,\n"


def ledger_folder(
    place: Path, kind: str = "tests", /, database: str = "ledger.db", origin: str = ORIGIN, **changes: str | bytes | None
) -> Path:
    """A competition's folder with an empty ledger; changes as `small_folder.make` has them."""
    key = log.log_key(origin, SIGNER.public)
    small_folder.make(place, kind, **{"validators_csv": NAMES, "evidence": None, **changes})
    (place / "evidence").rmdir()
    settings = Config(place, origin, str(key), database)
    store.create(settings.place, store.Meta(read_scheme(place / "scheme.toml").name, origin, str(key))).close()
    Log.create(settings.tiles, key, log.sign_checkpoint(0, EMPTY_ROOT, key, SIGNER))
    config.write(settings)
    return place


@functools.cache
def _templates() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="assay-templates-")  # removed when the process ends


_NUMBERS = dict[tuple[object, ...], int]()


def once(place: Path, key: tuple[object, ...], make: Callable[[Path], object]) -> Path:
    """The folder that `make` fills, with its ledger: made once a process for each key, then copied to each place."""
    template = Path(_templates().name) / str(_NUMBERS.setdefault(key, len(_NUMBERS))) / place.name
    if not template.exists():
        template.parent.mkdir(exist_ok=True)  # the same folder under another name
        make(template)
    return copied(template, place)


def copied(source: Path, target: Path) -> Path:
    """A copy of a folder, each ledger in which is a ledger by itself: no copy, but at home where it is."""
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    for place in target.rglob("*.db"):
        with closing(sqlite3.connect(place)) as database:
            database.execute("DELETE FROM meta WHERE key = 'home'")
            database.commit()
    return target


def records(
    kind: str = "tests", /, epoch: int = 3, validators: Iterable[str] = VALIDATORS, **changes: Any
) -> list[dict[str, Any]]:
    """The records of each validator about each participant: of kind tests, of both tasks."""
    tasks: Sequence[dict[str, Any]] = [{"task": "t1"}, {"task": "t2"}] if kind in ("tests", "workflow") else [{}]
    return [
        small_folder.record(
            kind,
            **{"epoch": epoch, "validator": validator, "participant": participant, "submission": submission} | task | changes,
        )
        for validator in validators
        for participant, submission in (("m1", "s1"), ("m2", "s2"))
        for task in tasks
    ]


def of_two_kinds(place: Path, first: str, **changes: str) -> Path:
    """A competition that scored another kind in epoch 3, and scores tests from epoch 4 on; both are settled.

    changes: as `small_folder.make` has them, for epoch 4.
    """
    ledger_folder(place, first)
    add(place, records(first, epoch=3))
    with opened(place) as ledger:
        settling.settle(ledger, SIGNER, 3)
    small_folder.make(place, "tests", **{"validators_csv": NAMES, "evidence": None, **changes})
    (place / "evidence").rmdir()
    add(place, records("tests", epoch=4))
    with opened(place) as ledger:
        settling.settle(ledger, SIGNER, 4)
    return place


def batches(place: Path, records: Iterable[Mapping[str, Any]]) -> Iterator[batch.Batch]:
    """A signed batch of each validator's records of each epoch."""
    terms = intake.intake_rules(place)
    origin = config.read(place).origin
    several: dict[tuple[str, int], list[Evidence]] = {}
    for evidence in map(record, records):
        several.setdefault((evidence.validator, evidence.epoch), []).append(evidence)
    for (validator, _), mine in several.items():
        signer = VALIDATORS[validator]
        yield batch.make(
            mine,
            origin=origin,
            competition=terms.competition,
            task_set=terms.task_set,
            signer=signer,
            validator=validator,
        )


def add(place: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Take records into the ledger, signed."""
    with opened(place) as ledger:
        for signed in batches(place, records):
            intake.accept(ledger.store, signed, intake.intake_rules(place))


def two_epochs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two settled epochs, exported each, with receipts, checkpoints and proofs beside them: to be made a fixture."""
    place = ledger_folder(tmp_path_factory.mktemp("two") / "small")
    for epoch in (3, 4):
        add(place, records(epoch=epoch))
        if epoch == 3:
            add(place, records(epoch=4, trial=2))
        with opened(place) as ledger:
            settled = settling.settle(ledger, SIGNER, epoch)
            assert settled.receipt is not None
            (place / f"{epoch}.receipt").write_bytes(canonical(ledger.document(settled.receipt)))
            (place / f"{epoch}.checkpoint").write_bytes(settled.receipt.checkpoint)
            (place / f"{epoch}.proof").write_bytes(canonical(proof_for(ledger, "m1", epoch)))
            bundle.export(ledger, epoch, place / f"epoch-{epoch}")
            bundle.export(ledger, epoch, place / f"columns-{epoch}", as_parquet=True)
    return place


@contextmanager
def opened(place: Path) -> Iterator[Ledger]:
    """The open ledger of a folder."""
    with open_ledger(place) as ledger:
        yield ledger


def processes() -> ForkServerContext:
    """New processes from one that has imported the ledger once; copies of this one would share its connections."""
    context = multiprocessing.get_context("forkserver")
    # Modules of the tests cannot be named: their folder is not on the path yet, and what is not found is passed over.
    context.set_forkserver_preload(["assay.ledger.audit", "assay.ledger.settling", "psycopg", "pyarrow", "pytest"])
    return context
