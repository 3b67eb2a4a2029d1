"""What a node keeps and runs without a cluster: parcels by their digest, archives of folders, and the process of a station."""

from __future__ import annotations

import io
import os
import pickle
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.engine.parcels import ParcelShelf
from assay.engine.ray_node import Bucket
from assay.engine.station import Talk
from assay.errors import BadInput
from assay.judge import tree
from assay.judge.sandbox import InfrastructureError
from assay.judge.stations import ErrandDone, Gate, StationSpec, Turn, pack, unpack
from ray_kit import folder_of, until

# Parcels


def test_a_parcel_is_fetched_once_and_mended_if_it_is_damaged(tmp_path: Path) -> None:
    parcel, asked = folder_of(tmp_path / "task"), list[int]()

    def fetch() -> bytes:
        asked.append(1)
        return pack(parcel.folder)

    place = ParcelShelf(tmp_path / "shelf").get(parcel.digest, fetch)
    assert tree.digest(place) == parcel.digest
    assert os.access(place / "run.sh", os.X_OK)
    assert ParcelShelf(tmp_path / "shelf").get(parcel.digest, fetch) == place
    assert len(asked) == 1
    (place / "run.sh").write_text("something else\n")
    assert tree.digest(ParcelShelf(tmp_path / "shelf").get(parcel.digest, fetch)) == parcel.digest
    assert len(asked) == 2


def test_a_parcel_that_is_another_is_refused(tmp_path: Path) -> None:
    parcel, other = folder_of(tmp_path / "one"), folder_of(tmp_path / "two", "rm\n")
    with pytest.raises(InfrastructureError, match="something else"):
        ParcelShelf(tmp_path / "shelf").get(parcel.digest, lambda: pack(other.folder))


def test_an_archive_is_the_folder(tmp_path: Path) -> None:
    parcel = folder_of(tmp_path / "one")
    (parcel.folder / "locked").mkdir()
    (parcel.folder / "locked" / "same").hardlink_to(parcel.folder / "run.sh")
    (parcel.folder / "locked").chmod(0o500)
    (tmp_path / "there").mkdir()
    unpack(pack(parcel.folder), tmp_path / "there")
    assert tree.digest(tmp_path / "there") == tree.digest(parcel.folder)
    unpack(b"", tmp_path / "there")


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    return entry


@pytest.mark.parametrize(
    "members",
    [
        [member("../out.txt")],
        [member("/tmp/out.txt")],
        [member("sub/../../out.txt")],
        [member("link", tarfile.SYMTYPE, "/etc")],
        [member("link", tarfile.SYMTYPE, "../there-too")],
        [member("here", tarfile.SYMTYPE, "."), member("link", tarfile.SYMTYPE, "here/..")],
        [member("out", tarfile.LNKTYPE, "../secret")],
        [member("pipe", tarfile.FIFOTYPE)],
    ],
)
def test_an_archive_puts_nothing_outside(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "there").mkdir()
    file = io.BytesIO()
    with tarfile.TarFile(fileobj=file, mode="w") as archive:
        for entry in members:
            archive.addfile(entry)
    with pytest.raises(BadInput, match="cannot be unpacked"):
        unpack(file.getvalue(), tmp_path / "there")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "there"]


def test_a_file_in_the_place_of_a_link_goes_nowhere(tmp_path: Path) -> None:
    """A link is made last, so what is written by way of its name is refused, or is no link."""
    (tmp_path / "there").mkdir()
    (tmp_path / "out").mkdir()
    file = io.BytesIO()
    with tarfile.TarFile(fileobj=file, mode="w") as archive:
        for entry in (member("sub", tarfile.SYMTYPE, "../out"), member("sub/x.txt")):
            archive.addfile(entry)
    with pytest.raises((BadInput, OSError)):
        unpack(file.getvalue(), tmp_path / "there")
    assert list((tmp_path / "out").iterdir()) == []


# A station's process


HELLO = pickle.dumps("hello")


class Echo:
    """A station for tests: replies with what it is told, asks the gate, fails, or waits."""

    def __init__(self, settings: str, home: Path, gate: Gate) -> None:
        if settings == "refuse":
            raise InfrastructureError("no sandbox here")
        self.marker, self.gate = Path(settings), gate
        self.marker.write_text(str(os.getpid()))

    def carry_out(self, payload: Any, places: dict[str, Path], folder: Path, seconds: float) -> ErrandDone:
        if payload == "wait":
            time.sleep(600)
        if payload == "fail":
            raise BadInput("it is wrong")
        (folder / "out.txt").write_text("kept")
        if payload == "pause":
            self.gate.pause(7.0)
        return ErrandDone((payload, self.gate.turn().seconds, sorted(places)), cpu=1.0)

    def close(self) -> None:
        self.marker.unlink()


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]))
    for folder in tmp_path.parents[:3]:
        if folder.owner() == tmp_path.owner() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o011)
    tmp_path.chmod(0o711)
    return tmp_path


def test_a_station_carries_out_and_ends_with_its_talk(scratch: Path) -> None:
    paused: list[float] = []
    gate = SimpleNamespace(turn=lambda _ticket: Turn(0.25, ("", 0.0)), pause=paused.append)
    marker = scratch / "station"
    talk = Talk(pickle.dumps(StationSpec("test_stations:Echo", str(marker))))
    outcome = talk.carry_out(HELLO, {"task": scratch}, 60, gate)
    assert outcome.reply == ("hello", 0.25, ["task"])
    assert (talk.carry_out(pickle.dumps("pause"), {}, 60, gate).reply[0], paused) == ("pause", [7.0])
    (scratch / "back").mkdir()
    unpack(outcome.files, scratch / "back")
    assert (scratch / "back" / "out.txt").read_text() == "kept"
    failed = talk.carry_out(pickle.dumps("fail"), {}, 60, gate)
    assert (failed.trouble, failed.final) == ("it is wrong", True)
    pid = int(marker.read_text())
    talk.close()
    assert not marker.exists()
    assert not list((scratch / "scratch").glob("run-*"))
    until(lambda: not Path(f"/proc/{pid}").exists() or "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text())


def test_a_station_ends_in_the_middle_of_an_errand(scratch: Path) -> None:
    marker = scratch / "station"
    talk = Talk(pickle.dumps(StationSpec("test_stations:Echo", str(marker))))
    talk._connection.send((pickle.dumps("wait"), {}, 600))
    while not marker.exists():
        time.sleep(0.01)
    talk.close()
    assert not marker.exists()


def test_a_station_that_cannot_be_opened_says_why(scratch: Path) -> None:
    outcome = Talk(pickle.dumps(StationSpec("test_stations:Echo", "refuse"))).carry_out(HELLO, {}, 60, Bucket(None))
    assert (outcome.trouble, outcome.refused, outcome.final) == ("no sandbox here", True, False)
