"""A subnet of two competitions with ledgers, for tests: its split signed, exported, to be copied and changed."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import small_folder
from assay.ledger import access, keys, log, settling, subnet_bundle
from assay.ledger.access import open_ledger
from ledger_kit import SIGNER

OTHER = keys.read(b"78" * 32)
ORIGINS = {"one": "example.org/small", "two": "x.example.org/small"}
SIGNERS = {"one": SIGNER, "two": OTHER}
SUBNET = keys.read(b"90" * 32)
ORIGIN = "example.org/my-subnet"
KEY = str(log.log_key(ORIGIN, SUBNET.public))
KEYS = [str(log.log_key(ORIGINS[name], SIGNERS[name].public)) for name in ORIGINS]
EPOCH = 3
PEOPLE = "key,uid,name,submission\nm1,1,,s1\nm2,2,,s2\n"
Json = dict[str, Any]


def competition(place: Path, kind: str, *epochs: int) -> Path:
    """A competition with a ledger of its own, and evidence of these epochs."""
    small_folder.make(place, kind, validators_csv=ledger_kit.NAMES, participants_csv=PEOPLE, evidence=None)
    access.make_ledger(place, ORIGINS[place.name], SIGNERS[place.name])
    for epoch in epochs:
        rows = ledger_kit.records(kind, epoch=epoch)
        if kind == "given":
            rows = [row | {"score": "0.5" if row["participant"] == "m1" else "0"} for row in rows]
        ledger_kit.add(place, rows)
    return place


def settle(place: Path, epoch: int = EPOCH) -> str:
    """Settles; the receipt's digest."""
    with open_ledger(place) as ledger:
        settled = settling.settle(ledger, SIGNERS[place.name], epoch)
        assert settled.receipt is not None
        return settled.receipt.digest


def subnet(place: Path, *members: str, **logs: str) -> Path:
    rows = "".join(
        f'[[competitions]]\npath = "{name}"\nshare = "{share}"\n' + (f'log = "{logs[name]}"\n' if name in logs else "")
        for name, share in (member.split() for member in members)
    )
    path = place / "my-subnet.toml"
    path.write_text(f'emission = "1000"\n{rows}', encoding="utf-8")
    return path


def with_log(path: Path) -> Path:
    """The subnet file, given a log of its own."""
    access.make_ledger(path, ORIGIN, SUBNET, name="subnet-log")
    return path


def signed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two competitions with ledgers, both settled at epoch 3, the first at 4 too; the split of 3, signed and exported."""
    place = tmp_path_factory.mktemp("joint")
    for name, kind in (("one", "tests"), ("two", "given")):
        competition(place / name, kind, EPOCH)
        settle(place / name)
    path = with_log(subnet(place, "one 60%", "two 40%"))
    assert subnet_bundle.sign(path, SUBNET).new
    subnet_bundle.export(path, EPOCH, place / "emission-3")
    ledger_kit.add(place / "one", ledger_kit.records("tests", epoch=4, trial=2))
    settle(place / "one", 4)
    return place


def exported(place: Path, tmp_path: Path) -> Path:
    """A copy of what was exported, to be changed."""
    return Path(shutil.copytree(place / "emission-3", tmp_path / "emission-3"))


def receipts(place: Path) -> list[Json]:
    rows = []
    for name in ORIGINS:
        with open_ledger(place / name) as ledger:
            row = {"competition": "small", "epoch": EPOCH, "digest": ledger.receipt(EPOCH).digest}
            rows.append(row | {"log": str(ledger.key)})
    return rows
