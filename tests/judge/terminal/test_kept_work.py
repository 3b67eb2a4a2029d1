"""Kept work: the same tree gives the same archive, the tests run on it again, and what a liar packs makes nothing elsewhere."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.judge import tree
from assay.judge.terminal import agent as agents
from assay.judge.terminal.kept_work import OtherWork, pack_work, unpack_work
from assay.judge.terminal.record import WORK_FILE, TrialStore, kept, read_record
from assay.judge.terminal.run import run
from assay.judge.terminal.trial import Keeping, TrialSetup, image_of, run_tests_again
from assay.records import Tests
from assay.records import record as read
from judge_kit import bubblewrap, make_task, outcome, sh, try_
from run_kit import QUICK, competition, lines

BOUNDS = tree.Bounds(bytes=1 << 20, files=100)


def work(folder: Path) -> list[Path]:
    """A folder with what trees have, and a file."""
    (folder / "app" / "in").mkdir(parents=True)
    (folder / "app" / "in" / "run").write_bytes(b"#!/bin/sh\n")
    (folder / "app" / "in" / "run").chmod(0o755)
    os.link(folder / "app" / "in" / "run", folder / "app" / "again")
    (folder / "app" / "out").symlink_to("in/run")
    (folder / "file").write_bytes(b"x" * 100)
    for path in (folder / "app" / "in" / "run", folder / "app" / "in", folder / "app", folder / "file"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return [folder / "app", folder / "none", folder / "file"]


def test_the_same_work_gives_the_same_archive_and_comes_back(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    digests = [pack_work(work(folder), folder / "w", 10_000) for folder in (first, second)]
    assert digests[0] == digests[1] == f"sha256:{hashlib.sha256((first / 'w').read_bytes()).hexdigest()}"
    with unpack_work(first / "w", digests[0], tmp_path / "out", BOUNDS) as place:
        assert sorted(path.name for path in place.iterdir()) == ["0", "2"]
        assert tree.digest(place / "0") == tree.digest(first / "app")
        assert (place / "0" / "out").readlink() == Path("in/run")
        assert (place / "0" / "again").samefile(place / "0" / "in" / "run")
        assert (place / "2").read_bytes() == b"x" * 100
    assert not (tmp_path / "out").exists()


def test_work_that_is_too_large_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(tree.TooMuch, match="more than 50 bytes"):
        pack_work(work(tmp_path / "a"), tmp_path / "w", 50)
    assert not (tmp_path / "w").exists()


def test_missing_and_changed_work_is_told(tmp_path: Path) -> None:
    digest = pack_work(work(tmp_path / "a"), tmp_path / "w", 10_000)
    with pytest.raises(OtherWork, match="not here"), unpack_work(tmp_path / "none", digest, tmp_path / "out", BOUNDS):
        pass
    (tmp_path / "w").write_bytes((tmp_path / "w").read_bytes() + b"x")
    with (
        pytest.raises(OtherWork, match="another than the record names"),
        unpack_work(tmp_path / "w", digest, tmp_path / "out", BOUNDS),
    ):
        pass


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info, bytes(size)


@pytest.mark.parametrize(
    "members",
    [
        [member("../out-of-it")],
        [member("0", tarfile.DIRTYPE), member("0/../../out-of-it")],
        [member("0", tarfile.SYMTYPE, "/"), member("0/tmp/out-of-it")],
        [member("0", tarfile.DIRTYPE), member("0/a", tarfile.SYMTYPE, ".."), member("0/a/out-of-it")],
        [member("0", size=2 << 20)],
        [member("0", tarfile.DIRTYPE), *(member(f"0/{number}") for number in range(200))],
        [member("0/" + "d/" * 3000 + "x")],
        [],
    ],
)
def test_hostile_archives_are_refused_and_make_nothing(tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    data = gzip.compress(packed.getvalue() if members else b"not a tar" * 100)
    (tmp_path / "w").write_bytes(data)
    inner = tmp_path / "deep" / "er"
    inner.mkdir(parents=True)
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    with pytest.raises((OtherWork, OSError)), unpack_work(tmp_path / "w", digest, inner / "out", BOUNDS):
        pass
    assert not list(tmp_path.rglob("out*"))


def test_the_tests_run_again_on_kept_work_alone(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", tests="test -f /app/done && test ! -e /agent && echo again\n")
    setup = TrialSetup(bubblewrap(), keep_work=1 << 20)
    image = image_of(setup.sandbox, task)
    claims = {}
    for name, script in (("good", "touch done"), ("bad", "true")):
        tried = try_(tmp_path, task, sh(script), setup, name=name)
        assert tried.kept_work is not None
        claims[name] = tried.kept_work
        (tmp_path / f"{name}-again").mkdir()
        again = run_tests_again(setup, task, image, (tmp_path / name / WORK_FILE, tried.kept_work), tmp_path / f"{name}-again")
        assert outcome(again) == outcome(tried)
        assert not (tmp_path / f"{name}-again" / ".scratch").exists()
    assert (tmp_path / "good-again" / "tests" / "stdout.txt").read_text() == "again\n"
    with pytest.raises(OtherWork):
        run_tests_again(setup, task, image, (tmp_path / "good" / WORK_FILE, claims["bad"]), tmp_path / "good-again")
    shared = make_task(tmp_path / "s", mode="shared")
    with pytest.raises(BadInput, match="shared mode"):
        run_tests_again(setup, shared, image, (tmp_path / "good" / WORK_FILE, claims["good"]), tmp_path / "good-again")


def test_work_is_kept_only_if_the_tests_ran_on_it_and_it_fits(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t")
    talks = TrialSetup(bubblewrap(), keeping=Keeping(output=1000), keep_work=1 << 20)
    over = try_(tmp_path, task, sh("touch done; head -c 9999 /dev/zero"), talks, name="over")
    assert (outcome(over), over.kept_work) == (("fail", "agent-output"), None)
    assert over.work is not None
    small = try_(tmp_path, make_task(tmp_path / "u"), agents.BUILT_IN["oracle"], TrialSetup(bubblewrap(), keep_work=20), name="s")
    assert (small.verdict.outcome, small.kept_work) == ("pass", None)
    assert any("not kept" in note for note in small.notes)
    assert try_(tmp_path, task, sh("true"), TrialSetup(bubblewrap()), name="off").kept_work is None
    assert not list(tmp_path.rglob(WORK_FILE))


def test_a_run_keeps_work_where_the_scheme_says_so_and_drops_it_later(tmp_path: Path) -> None:
    place = competition(tmp_path, tasks=1)
    (scheme := place / "scheme.toml").write_text(scheme.read_text() + '\n[evidence]\nkeep = "work"\nepochs = 2\n')
    run(place, "val-1", QUICK)
    for line in lines(place):
        about = read(line)
        assert isinstance(about, Tests)
        file = kept(place, about)[WORK_FILE]
        assert line["work"] == f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
        assert read_record(file.parent / "result.json").digests.kept_work == line["work"]
    assert len(lines(place)) == 2
    store, submissions = TrialStore(place, "val-1"), [line["submission"] for line in lines(place)]
    epoch = lines(place)[0]["epoch"]
    assert store.drop_work(epoch, ()) == 0
    assert store.drop_work(epoch + 1, submissions[:1]) == 1
    assert len(list(store.root.glob(f"*/*/*/{WORK_FILE}"))) == 1
