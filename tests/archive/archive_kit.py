"""What the tests of archives share: competitions with settled epochs, their archive, and the bundles that it is as good as."""

import json
import shutil
from pathlib import Path

import ledger_kit
from assay.archive import export_epochs
from assay.errors import Refused
from assay.ledger import bundle, check, log, settling
from assay.ledger.verify import verify
from ledger_kit import SIGNER, V1

EPOCHS = (3, 4, 9)
KEY = str(ledger_kit.KEY)
OTHER_ORIGIN = "example.org/other"
OTHER_KEYS = (str(log.log_key(OTHER_ORIGIN, SIGNER.public)),)
Told = tuple[str, str, str] | None
"""Stage, sentence and participant of a refusal; None: verified."""


def competition(place: Path, kind: str = "tests", **changes: str) -> Path:
    """Three settled epochs; evidence of the last one was accepted before the second was settled."""
    ledger_kit.ledger_folder(place, kind, **changes)
    for epoch in EPOCHS:
        ledger_kit.add(place, ledger_kit.records(kind, epoch=epoch))
        if epoch == EPOCHS[0] and kind == "tests":
            ledger_kit.add(place, ledger_kit.records(kind, epoch=EPOCHS[-1], validators=[V1], trial=2))
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, SIGNER, epoch, skip=True)
    return place


def template(place: Path) -> Path:
    """A folder with the competition `small`, its archives `lines` and `columns`, and `bundle-N`, the export of each epoch."""

    def make(folder: Path) -> None:
        small = competition(folder / "small")
        with ledger_kit.opened(small) as ledger:
            export_epochs(ledger, str(folder / "lines"), "subnet-1/small")
            export_epochs(ledger, str(folder / "columns"), "subnet-1/small", as_parquet=True)
            for epoch in EPOCHS:
                bundle.export(ledger, epoch, folder / f"bundle-{epoch}")
        other = competition(folder / "other", "given", origin=OTHER_ORIGIN)
        with ledger_kit.opened(other) as ledger:
            export_epochs(ledger, str(folder / "lines"), "other")
            export_epochs(ledger, str(folder / "columns"), "other")

    return ledger_kit.once(place, ("archive",), make)


def as_bundle(competition_: Path, epoch: int, target: Path) -> Path:
    """The bundle of an epoch, put together from an archive's folders in the plainest way."""
    (target / bundle.EVIDENCE).mkdir(parents=True)
    (target / bundle.RECEIPTS).mkdir()
    epochs = [each for each in EPOCHS if each <= epoch and (competition_ / f"epoch-{each}").is_dir()]
    lines, entries, checkpoint = b"", [], b""
    for each in epochs:
        folder = competition_ / f"epoch-{each}"
        for path in folder.glob(f"epoch-{each}.*"):
            shutil.copy(path, target / (bundle.RECEIPTS if path.suffix == ".receipt" else bundle.EVIDENCE))
        if (folder / bundle.BATCHES).exists():
            lines += (folder / bundle.BATCHES).read_bytes()
        try:
            receipt = check.Receipt.parse((folder / f"epoch-{each}.receipt").read_bytes())
            entries.append(receipt.digest)
            checkpoint = receipt.proof.checkpoint
        except (OSError, check.CheckError):
            entries.append(bytes(32))
    (target / bundle.BATCHES).write_bytes(lines)
    for name, source in ((bundle.INPUTS, epoch), (bundle.SETTLEMENT, epoch), (bundle.PREVIOUS, epochs[-2] if epochs[1:] else 0)):
        path = competition_ / f"epoch-{source}" / (bundle.SETTLEMENT if name == bundle.PREVIOUS else name)
        if path.exists():
            shutil.copy(path, target / name)
    for name, data in bundle.log_files(entries, checkpoint).items():
        (target / bundle.LOG / name).parent.mkdir(parents=True, exist_ok=True)
        (target / bundle.LOG / name).write_bytes(data)
    return target


def one_by_one(competition_: Path, epoch: int, place: Path) -> Told:
    """What `assay.verify` says to the bundle of an epoch."""
    target = as_bundle(competition_, epoch, place / f"made-{epoch}")
    try:
        verify(target, key=KEY)
    except Refused as refused:
        return refused.stage, refused.what, refused.participant
    finally:
        shutil.rmtree(target)
    return None


def edit(path: Path, line: int, field: str, value: object) -> None:
    """Change one field of one line of JSON, as somebody would who changes a number in a file."""
    lines = path.read_bytes().splitlines(keepends=True)
    document = json.loads(lines[line])
    document[field] = value
    lines[line] = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    path.write_bytes(b"".join(lines))
