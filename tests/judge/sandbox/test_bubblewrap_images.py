"""The images of bubblewrap boxes: built Dockerfiles, root file systems, and the host."""

import os
import textwrap
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import boxes
from assay.errors import BadInput
from assay.judge import tree
from assay.judge.sandbox import InfrastructureError, bubblewrap, choose, root
from assay.judge.sandbox.bubblewrap import Bubblewrap
from assay.judge.sandbox.images import KEPT
from assay.judge.sandbox.root import Rooted
from boxes import LIMITS, Shell
from small_root import small_root

scratch = pytest.fixture(scope="module")(boxes.scratch)
own = pytest.fixture(boxes.scratch)
sandbox = pytest.fixture(scope="module")(boxes.sandbox)
sh = pytest.fixture(boxes.sh)


def _context(folder: Path, text: str) -> Path:
    environment = folder / "environment"
    environment.mkdir(exist_ok=True)
    (environment / "Dockerfile").write_text(textwrap.dedent(text))
    return environment


def test_a_dockerfile_is_built_and_kept(sandbox: Bubblewrap, sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = _context(
        tmp_path,
        """
        FROM debian:12
        ARG WHO=world
        ENV GREETING="hello ${WHO}"
        WORKDIR /work/here
        COPY data/ ./data/
        COPY one.sh /bin-of-ours/
        RUN echo "$GREETING" > greeting && chmod 700 data && id -u > who
        RUN mkdir -p /srv/x && ln -s /work/here/greeting /srv/x/link
        """,
    )
    (environment / "data" / "deep").mkdir(parents=True)
    (environment / "data" / "deep" / "file").write_text("one\n")
    (environment / "data" / "link").symlink_to("deep/file")
    (environment / "one.sh").write_text("#!/bin/sh\necho ran\n")
    (environment / "one.sh").chmod(0o755)
    image = sandbox.image(environment, any_base=True)
    assert (image.workdir, image.env) == ("/work/here", {"GREETING": "hello world"})
    with sandbox.open(image, LIMITS) as box:
        output = sh(box, "pwd; cat greeting who data/link /srv/x/link; /bin-of-ours/one.sh; echo $GREETING; stat -c %a data")
        assert output.out == "/work/here\nhello world\n1000\none\nhello world\nran\nhello world\n700\n", output.err
        sh(box, "echo changed > greeting")
    with sandbox.open(image, LIMITS) as box:
        assert sh(box, "cat greeting").out == "hello world\n"
    with monkeypatch.context() as patch:
        patch.setattr(Bubblewrap, "open", lambda *args: pytest.fail("it was built again"))
        assert sandbox.image(environment, any_base=True) == image
    (environment / "data" / "deep" / "file").write_text("two\n")
    other = sandbox.image(environment, any_base=True)
    assert other.digest != image.digest
    (environment / "data" / "deep" / "file").write_text("one\n")
    assert sandbox.image(environment, any_base=True) == image


def test_an_image_that_nobody_asks_for_is_cleared(own: Path, tmp_path: Path) -> None:
    environment = _context(tmp_path, "FROM debian:12\nWORKDIR /app\nRUN echo old > old\n")
    with closing(Bubblewrap(folder=own)) as user, closing(Bubblewrap(folder=own)) as other:
        image = user.image(environment, any_base=True)
        assert isinstance(image, Rooted)
        assert image.tree is not None
        place = image.tree.parent
        long_ago = time.time() - KEPT - 60
        os.utime(place, (long_ago, long_ago))
        other.images.sweep()
        assert place.is_dir(), "somebody may be using it"
        assert user.image(environment, any_base=True) == image
        user.images.close()
        other.images.sweep()
        assert place.is_dir(), "it was asked for just now"
        os.utime(place, (long_ago, long_ago))
        assert other.images.sweep() >= 1
        assert not place.exists()
        assert not place.with_name(f"{place.name}.lock").exists()
        assert other.images.sweep() == 0
        assert other.image(environment, any_base=True).digest == image.digest


def test_a_dockerfile_that_fails_is_trouble_with_its_line(sandbox: Bubblewrap, tmp_path: Path) -> None:
    environment = _context(tmp_path, "FROM x\n\nRUN echo before; echo broken >&2; exit 3\n")
    for _twice in range(2):
        with pytest.raises(InfrastructureError, match=r"Dockerfile:3: RUN ended with exit code 3: before / broken;"):
            sandbox.image(environment, any_base=True)
    _context(tmp_path, "FROM x\nCOPY Dockerfile /usr/local/bin/\n")
    with pytest.raises(InfrastructureError, match=r"Dockerfile:2: .*cannot be written in a box"):
        sandbox.image(environment, any_base=True)
    _context(tmp_path, "FROM x\nADD https://example.org/x /x\n")
    with pytest.raises(BadInput, match="Dockerfile:2: ADD"):
        sandbox.image(environment, any_base=True)
    assert not [
        path for path in (sandbox.scratch.folder / "images").iterdir() if path.is_dir() and not (path / "image.json").exists()
    ]


def test_an_image_that_is_not_there_is_refused_by_name(sandbox: Bubblewrap, tmp_path: Path) -> None:
    what = (
        r"no root file system of the image 'ubuntu:24\.04'; add it: assay sandbox base add ubuntu:24\.04; or judge in containers"
    )
    with pytest.raises(BadInput, match=what):
        sandbox.image(tmp_path, name="ubuntu:24.04")
    environment = _context(tmp_path, "# As it is published.\nFROM ubuntu:24.04\nWORKDIR /app\n")
    with pytest.raises(BadInput, match=rf"Dockerfile:2: bubblewrap has {what}"):
        sandbox.image(environment)
    assert sandbox.image(environment, any_base=True).workdir == "/app"


def test_a_root_file_system_of_ones_own(scratch: Path, sh: Shell, tmp_path: Path) -> None:
    top = scratch / "root-file-system"
    small_root(top)
    with closing(Bubblewrap(folder=scratch, bases={"mine": top})) as sandbox:
        image = sandbox.image(name="mine")
        assert image.digest == tree.digest(top)
        with sandbox.open(image, LIMITS) as box:
            output = sh(
                box,
                "while read x; do echo $x; done < /etc/mine; echo x > /etc/mine; echo x > /usr/x; echo /usr/*; pwd",
                shell="sh",
            )
            assert output.out == "mine\n/usr/bin /usr/lib /usr/lib64\n/app\n" or output.out.startswith("mine\n/usr/bin"), (
                output.err
            )
            assert "x" not in output.out.split("\n")[1].split("/")
        assert (top / "etc" / "mine").read_text() == "mine\n"
        environment = _context(tmp_path, "FROM mine\nRUN echo built > /built; read x < /etc/mine; echo $x >> /built\n")
        with sandbox.open(sandbox.image(environment), LIMITS) as box:
            assert sh(box, "while read x; do echo $x; done < /built", shell="sh").out == "built\nmine\n"
    with pytest.raises(InfrastructureError, match="not a root file system"):
        root.of_folder(tmp_path)


@pytest.mark.parametrize("name", ["bubblewrap", "none"])
def test_choose(name: str, scratch: Path) -> None:
    if name == "none":
        with pytest.raises(BadInput, match="choose one of bubblewrap, containers"):
            choose(name)
    else:
        assert choose(name, folder=scratch).name == name


def test_an_image_that_is_too_large_for_a_frozen_copy_is_nobodys_fault(
    scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "_ROOM", 1000)
    (tmp_path / "usr").mkdir()
    (tmp_path / "large").write_bytes(os.urandom(6000))
    with (
        closing(Bubblewrap(folder=scratch)) as sandbox,
        sandbox.open(root.of_folder(tmp_path), replace(LIMITS, disk=1000)) as box,
        pytest.raises(InfrastructureError, match="the image is too large"),
        sandbox.freeze(box),
    ):
        pass
