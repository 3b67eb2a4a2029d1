"""A file is written whole or not at all."""

import os
from pathlib import Path

import pytest

from assay import folder
from assay.errors import BadInput
from assay.folder.files import write_all


def test_new_and_again(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    folder.write_text(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    folder.write_bytes(path, b"\x00")
    assert path.read_bytes() == b"\x00"
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_mode_of_the_old_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    path.chmod(0o640)
    folder.write_text(path, "new")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "there/a.json")
    folder.write_text(link, "x")
    assert link.is_symlink()
    assert (tmp_path / "there/a.json").read_text() == "x"


def test_a_pipe_or_a_device_is_written_into(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        folder.write_text(path, "x")
        assert reader.read() == b"x"
    assert path.is_fifo()
    device, terminal = os.openpty()
    folder.write_text(Path(os.ttyname(terminal)), "y")
    assert os.read(device, 1) == b"y"
    os.close(device)
    os.close(terminal)


def test_the_old_file_stays_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match=r"a\.json: cannot be written \(No space left on device\)"):
        folder.write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        folder.write_text(tmp_path / "none/a.json", "x")


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    with pytest.raises(BadInput, match="cannot be written"):
        folder.write_text(tmp_path / "a.json", "x")
    assert os.listdir(tmp_path) == ["a.json"]


def test_several_files_are_put_in_place_when_all_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path in paths[:2]:
        path.write_text("old")
    write, left = os.fsync, [2]

    def full(number: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        write(number)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match=r"c: cannot be written \(No space left on device\)"):
        write_all([(path, b"new") for path in paths])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old", "b": "old"}
    left[0] = 100
    write_all([(path, b"new") for path in paths])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new", "b": "new", "c": "new"}
    paths[1].unlink()
    paths[1].mkdir()
    with pytest.raises(BadInput, match=r"b: cannot be written"):
        write_all([(path, b"newer") for path in paths])
    assert paths[2].read_text() == "new"
