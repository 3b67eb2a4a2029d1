"""The parts of the containers sandbox that need no engine."""

import io
import os
import struct
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.judge import tree
from assay.judge.sandbox import InfrastructureError, Limits, choose, containers
from assay.judge.sandbox.containers import command, engine, usage
from assay.judge.sandbox.containers.command import Output
from assay.judge.sandbox.containers.engine import STDERR, STDOUT, Engine, FrameReader, connect, default_url
from assay.judge.sandbox.containers.usage import WriteWatch
from assay.judge.sandbox.images import add_image
from assay.judge.sandbox.usage import Sockets

LIMITS = Limits(seconds=60, memory=1 << 20, processes=4, disk=1000, output=1000, files=10)


def frame(kind: int, data: bytes) -> bytes:
    return struct.pack(">BxxxL", kind, len(data)) + data


@given(
    frames=st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=40)), max_size=8),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_frames_are_the_same_however_they_were_cut(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    whole = b"".join(frame(kind, data) for kind, data in frames)
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    reader = FrameReader()
    got: dict[int, bytes] = {STDOUT: b"", STDERR: b""}
    for begin, end in zip(places, [*places[1:], len(whole)], strict=True):
        for kind, data in reader.feed(whole[begin:end]):
            got[kind] += data
    assert got == {which: b"".join(data for kind, data in frames if kind == which) for which in got}


@pytest.mark.parametrize("data", [b"Error: no such", frame(3, b"x"), b"\x01\x00\x00\x01\x00\x00\x00\x01x"])
def test_what_are_no_frames_is_trouble(data: bytes) -> None:
    with pytest.raises(InfrastructureError, match="cannot be read"):
        list(FrameReader().feed(data))


def test_output_is_kept_up_to_its_bound(tmp_path: Path) -> None:
    output = Output(tmp_path / "out", tmp_path / "err", 10)
    for kind, data in ((STDOUT, b"12345"), (STDERR, b"678"), (STDOUT, b"9abc"), (STDERR, b"d")):
        output.keep(kind, data)
    output.close()
    assert ((tmp_path / "out").read_bytes(), (tmp_path / "err").read_bytes(), output.dropped) == (b"123459a", b"678", 3)


def test_output_does_not_go_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "other")
    with pytest.raises(InfrastructureError):
        Output(tmp_path / "out", tmp_path / "err", 10)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(("name", "machine"), [("amd64", 62), ("x86_64", 62), ("arm64", 183), ("aarch64", 183)])
def test_the_first_process_is_a_small_program(name: str, machine: int) -> None:
    program = command.program(name)
    assert program[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", program, 18) == (machine,)
    assert struct.unpack_from("<QQ", program, 64 + 32) == (len(program), len(program))
    assert len(program) < 700


def test_the_arm_program_is_the_one_that_was_disassembled() -> None:
    # prctl(4, 0), then rt_sigaction; looked at with a disassembler when it was written, and unlikely to be run where tests are.
    words = struct.unpack_from("<8I", command.program("arm64"), 120)
    assert words == (0xD28014E8, 0xF2A00008, 0xD2800080, 0xF2A00000, 0xD2800001, 0xF2A00001, 0xD4000001, 0xD28010C8)
    assert struct.pack("<I", 0x54FFFE81) in command.program("arm64")  # b.ne back to the wait


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="runs the program for x86-64")
def test_the_program_runs_until_it_is_killed(tmp_path: Path) -> None:
    # Not as the first of its namespace: then its kill reaches everybody, so it must never get the signal here.
    place = tmp_path / "init"
    place.write_bytes(command.program("x86_64"))
    place.chmod(0o755)
    with subprocess.Popen([place], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
        finally:
            process.kill()
        assert process.communicate()[0] == b""


def test_an_unknown_processor_is_trouble() -> None:
    with pytest.raises(InfrastructureError, match="riscv64"):
        command.program("riscv64")


def test_whose_it_is() -> None:
    label = engine.mine()[engine.LABEL]
    host, boot, space, pid, born = label.split("/")
    with subprocess.Popen(["true"]) as process:
        process.wait()
    gone = f"{host}/{boot}/{space}/{process.pid}/{int(born) - 1}"
    assert not engine.dead({engine.LABEL: label})
    assert engine.dead({engine.LABEL: gone})
    assert engine.dead({engine.LABEL: f"{host}/{boot}/{space}/{pid}/{int(born) + 1}"}), "the number is somebody else's now"
    assert engine.dead({engine.LABEL: f"{host}/another-boot/{space}/{pid}/{born}"})
    for unknown in (f"other/{boot}/{space}/1/0", f"{host}/{boot}/other/1/0", "", "a/b/c/d/e", f"{host}/{boot}"):
        assert not engine.dead({engine.LABEL: unknown})
    assert not engine.dead(None)


def test_the_engine_that_is_meant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///named")
    assert default_url() == "unix:///named"
    monkeypatch.setenv("CONTAINER_HOST", "unix:///podmans")
    assert default_url() == "unix:///named"
    monkeypatch.delenv("DOCKER_HOST")
    assert default_url() == "unix:///podmans"
    monkeypatch.delenv("CONTAINER_HOST")
    monkeypatch.setattr("assay.judge.sandbox.containers.engine._SOCKETS", (str(tmp_path / "none"),))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(InfrastructureError, match="no container engine"):
        default_url()
    (tmp_path / "podman").mkdir()
    (tmp_path / "podman" / "podman.sock").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_url() == f"unix://{tmp_path}/podman/podman.sock"


def test_what_is_no_socket_is_trouble(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="cannot be reached"):
        connect(f"unix://{tmp_path}")


_DOCKER = Engine("unix:///x", "Docker 28.0", "1.50", "x86_64", "2", "runc", ("io.containerd.runc.v2", "runc", "runsc"))


def test_a_runtime_is_one_that_the_engine_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.judge.sandbox.containers.connect", lambda _url: _DOCKER)
    assert "runtime runsc at unix:///x" in choose("containers", runtime="runsc").describe()
    with pytest.raises(BadInput, match=r"Docker 28.0 does not know the runtime 'runcs'; it has .*runc, runsc"):
        choose("containers", runtime="runcs")
    monkeypatch.setattr("assay.judge.sandbox.containers.connect", lambda _url: replace(_DOCKER, title="Podman 5.0"))
    with pytest.raises(BadInput, match=r"Podman would run containers with runc, not runsc; set runtime"):
        choose("containers", runtime="runsc")


def test_containers_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    for needs_docker in (lambda: choose("containers"), lambda: add_image("ubuntu:24.04")):
        with pytest.raises(BadInput, match="needs the Python package docker"):
            needs_docker()


@pytest.mark.parametrize("option", ["engine", "runtime"])
def test_bubblewrap_has_no_engine(option: str) -> None:
    with pytest.raises(BadInput, match=f"--{option}: only containers have one; add --sandbox containers"):
        choose("bubblewrap", **{option: "unix:///x"})  # type: ignore[arg-type]


class _Files:
    every = 0.0
    sockets: Sockets | None = None

    def __init__(self, *used: tuple[int, int]) -> None:
        self._used = list(used)

    def used(self, bounds: tree.Bounds | None = None) -> tuple[int, int]:
        return self._used.pop(0)

    def close(self) -> None:
        return


@pytest.mark.parametrize(("after", "over"), [((1100, 15), False), ((1101, 15), True), ((1100, 16), True), ((0, 0), False)])
def test_only_what_a_command_wrote_counts(after: tuple[int, int], over: bool) -> None:
    assert WriteWatch(_Files((100, 5), after), LIMITS).look(now=True) is over


def test_processes_leave_room_for_the_engines_own() -> None:
    assert usage.process_limit(LIMITS) == 32
    assert usage.process_limit(Limits(1, 1, 100, 1, 1)) == 101


def test_groups_of_another_process_are_not_the_containers() -> None:
    assert usage.groups_of(os.getpid(), "f" * 64) is None
    assert usage.groups_of(0, "f" * 64) is None


def test_a_build_sees_what_dockerignore_leaves_and_its_own_two_files(tmp_path: Path) -> None:
    for name in ("Dockerfile", "a.txt", "b.log", "keep.log"):
        (tmp_path / name).write_text(name)
    (tmp_path / ".dockerignore").write_text("*.log\n!keep.log\nDockerfile\n.dockerignore\n")
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    file = io.BytesIO()
    first = containers._context(tmp_path, containers.BUILD, file)
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        assert archive.getnames() == [".dockerignore", "Dockerfile", "a.txt", "keep.log", "link"]
        assert archive.getmember("link").issym()
    os.utime(tmp_path / "a.txt", (0, 0))
    assert containers._context(tmp_path, containers.BUILD, io.BytesIO()) == first
    (tmp_path / "b.log").write_text("changed")
    assert containers._context(tmp_path, containers.BUILD, io.BytesIO()) == first
    (tmp_path / "a.txt").chmod(0o755)
    assert containers._context(tmp_path, containers.BUILD, io.BytesIO()) != first
    (tmp_path / "a.txt").chmod(0o644)
    assert containers._context(tmp_path, containers.BUILD, io.BytesIO()) == first
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("/etc/group")
    assert containers._context(tmp_path, containers.BUILD, io.BytesIO()) != first
    with pytest.raises(BadInput, match="more than 2 files"):
        containers._context(tmp_path, Limits(1, 1, 1, 1 << 20, 1, files=2), io.BytesIO())
