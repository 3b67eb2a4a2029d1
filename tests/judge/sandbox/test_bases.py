"""Root file systems for bubblewrap: adding them from archives and engines, finding them, refusing a missing one. SPEC 2.1."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.errors import BadInput
from assay.judge import tree
from assay.judge.sandbox import InfrastructureError, Ran, bubblewrap, images, supervise
from assay.judge.sandbox.bubblewrap import Bubblewrap
from assay.judge.terminal import agent as agents
from boxes import LIMITS, Shell
from boxes import scratch as scratch_
from boxes import sh as sh_
from judge_kit import make_task, try_
from small_root import small_root

scratch = pytest.fixture(scratch_)
sh = pytest.fixture(sh_)


@pytest.fixture
def state(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place that the users of boxes can get to."""
    monkeypatch.setenv("ASSAY_STATE", str(scratch / "state"))
    return scratch / "state"


def archive(folder: Path, *, mode: str = "w:gz") -> Path:
    """A small root file system, as an engine exports it."""
    top = folder / "top"
    small_root(top)
    with tarfile.open(folder / "root.tar", mode) as tar:  # type: ignore[call-overload]
        for name in sorted(os.listdir(top)):
            tar.add(top / name, name)
        device = tarfile.TarInfo("dev/null")
        device.type = tarfile.CHRTYPE
        tar.addfile(device)
    return folder / "root.tar"


def run(*words: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"}, prog_name="assay")
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result.output


def test_a_task_starts_from_the_image_that_it_names(state: Path, scratch: Path, sh: Shell, tmp_path: Path) -> None:
    images.add_archive("tiny:1.0", archive(tmp_path))
    environment = tmp_path / "environment"
    environment.mkdir()
    (environment / "Dockerfile").write_text("FROM tiny:1.0\nWORKDIR /work\nRUN echo built > made\n")
    with closing(Bubblewrap(folder=scratch)) as sandbox, sandbox.open(sandbox.image(environment), LIMITS) as box:
        output = sh(box, "read x < /etc/mine; read y < made; echo $x $y; cd /usr; echo bin/*", shell="sh")
        assert output.out == "mine built\nbin/sh\n", output.err  # nothing of the host's /usr
    (environment / "Dockerfile").write_text("FROM tiny:2.0\n")
    with (
        closing(Bubblewrap(folder=scratch)) as sandbox,
        pytest.raises(BadInput, match=r"no root file system of the image 'tiny:2\.0'"),
    ):
        sandbox.image(environment)


def test_what_ran_in_a_root_file_system_that_was_removed_is_trouble(
    state: Path, scratch: Path, sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its programs vanish one by one: tests that do not find theirs would fail whoever solved the task."""
    images.add_archive("tiny:1.0", archive(tmp_path))

    def supervised(task: supervise.BoxCommand) -> Ran:
        ran = supervise.supervise(task)
        images.remove("tiny:1.0")
        return ran

    with closing(Bubblewrap(folder=scratch)) as sandbox, sandbox.open(sandbox.image(name="tiny:1.0"), LIMITS) as box:
        assert sh(box, "echo ran", shell="sh").out == "ran\n"
        monkeypatch.setattr(bubblewrap, "supervise", supervised)
        with pytest.raises(InfrastructureError, match="was removed while a command ran in it"):
            sh(box, "echo ran", shell="sh")


def test_the_commands(state: Path, tmp_path: Path) -> None:
    assert "There are no root file systems" in run("sandbox", "base", "list")
    file = archive(tmp_path)
    assert run("sandbox", "base", "add", "docker.io/library/tiny", "--from-archive", file).startswith("tiny:latest is sha256:")
    assert "tiny:latest" in run("sandbox", "base", "list")
    assert "there is a root file system of tiny already" in run("sandbox", "base", "add", "tiny", "--from-archive", file, code=2)
    assert "tiny:latest is removed" in run("sandbox", "base", "remove", "tiny:latest")
    assert "there is no root file system of 'tiny'" in run("sandbox", "base", "remove", "tiny", code=2)
    refused = run("sandbox", "base", "add", "x", "--from-archive", file, "--engine", "unix:///x", code=2)
    assert "an archive needs no engine" in refused
    assert [path.name for path in (state / "bases").iterdir()] == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["tiny", "tiny:latest", "docker.io/tiny", "docker.io/library/tiny:latest", "library/tiny"])
def test_one_image_has_several_spellings(state: Path, tmp_path: Path, name: str) -> None:
    added = images.add_archive("tiny", archive(tmp_path))
    image = images.find(name)
    assert image is not None
    assert image.digest == added.digest == tree.digest(added.folder / "tree")
    for other in ("tiny:1", "elsewhere.org/tiny", "tiny@sha256:" + "0" * 64, "", ".", "..", "x" * 300):
        assert images.find(other) is None


def test_what_an_archive_holds_is_made_as_it_was(state: Path, tmp_path: Path) -> None:
    file = archive(tmp_path, mode="w")
    with tarfile.open(file, "a") as tar:
        for name, kind, target, mode in (
            ("usr/set", tarfile.REGTYPE, "", 0o4755),
            ("usr/link", tarfile.SYMTYPE, "/usr/set", 0),
            ("usr/hard", tarfile.LNKTYPE, "usr/set", 0),
            ("usr/to-link", tarfile.LNKTYPE, "usr/link", 0),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, target, mode
            member.size = 2 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"hi"))
    top = images.add_archive("tiny", file).folder / "tree"
    assert (top / "usr/hard").read_bytes() == b"hi"
    assert stat.S_IMODE((top / "usr/set").stat().st_mode) == 0o755, "no program of it gives rights"
    assert os.readlink(top / "usr/to-link") == os.readlink(top / "usr/link") == "/usr/set"
    assert not (top / "dev/null").exists()


EVIL = [("../out", tarfile.REGTYPE, ""), ("a/../../out", tarfile.REGTYPE, ""), ("hard", tarfile.LNKTYPE, "../../base.json")]


@pytest.mark.parametrize(("name", "kind", "target"), EVIL)
def test_no_name_of_an_archive_leads_out_of_it(state: Path, tmp_path: Path, name: str, kind: bytes, target: str) -> None:
    file = archive(tmp_path, mode="w")
    with tarfile.open(file, "a") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        tar.addfile(member)
    with pytest.raises(BadInput, match="leads out of it"):
        images.add_archive("evil", file)
    assert list((state / "bases").iterdir()) == []


def test_a_link_of_an_archive_is_not_followed(state: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name, kind, target in (("usr", tarfile.DIRTYPE, ""), ("up", tarfile.SYMTYPE, str(tmp_path / "outside"))):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, target, 0o755
            tar.addfile(member)
        tar.addfile(tarfile.TarInfo("up/file"))
    with pytest.raises(BadInput):
        images.add_archive("evil", tmp_path / "x.tar")
    assert list((tmp_path / "outside").iterdir()) == []


def test_what_is_no_root_file_system_is_refused(state: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no archive at all\n" * 100)
    with pytest.raises(BadInput, match="is not an archive that Assay can read"):
        images.add_archive("tiny", tmp_path / "text")
    with pytest.raises(BadInput, match="cannot be read"):
        images.add_archive("tiny", tmp_path / "none")
    with tarfile.open(tmp_path / "layers.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("manifest.json"))
    with pytest.raises(BadInput, match="has no folder usr"):
        images.add_archive("tiny", tmp_path / "layers.tar")
    for name in ("", "a b", "a\nb", ".hidden"):
        with pytest.raises(BadInput, match="is not an image's name"):
            images.add_archive(name, tmp_path / "layers.tar")
    assert not list((state / "bases").glob("*"))


def test_a_damaged_one_is_trouble_and_not_another_image(state: Path, tmp_path: Path) -> None:
    added = images.add_archive("tiny", archive(tmp_path))
    tree.remove(added.folder / "tree")
    with pytest.raises(InfrastructureError, match="is damaged"):
        images.find("tiny")
    (added.folder / "base.json").write_text("{")
    with pytest.raises(InfrastructureError, match="is damaged"):
        images.find("tiny")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's boxes run as others")
def test_a_place_that_boxes_cannot_get_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    monkeypatch.setenv("ASSAY_STATE", str(tmp_path / "closed" / "state"))
    with pytest.raises(BadInput, match="cannot enter this folder"):
        images.add_archive("tiny", archive(tmp_path))


def test_a_whole_trial_in_it(state: Path, tmp_path: Path) -> None:
    """The tests' own tool is in the image and not on the host: the image decides, not the host."""
    top = tmp_path / "top"
    small_root(top, "/bin/bash")
    (top / "usr/bin/judge-of-ours").write_text('#!/bin/bash\nread x < /app/out.txt; [ "$x" = hello ]\n')
    (top / "usr/bin/judge-of-ours").chmod(0o755)
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        tar.add(top, ".")
    images.add_archive("own:1", tmp_path / "root.tar")
    task = make_task(tmp_path / "t", base="", dockerfile="FROM own:1\nWORKDIR /app\n", tests="judge-of-ours\n")
    tried = try_(tmp_path, task, agents.BUILT_IN["oracle"])
    assert tried.verdict.outcome == "pass", tried.message
