"""The containers sandbox as a whole: every check holds; images, freezing, sweeping, and failures of the engine."""

import subprocess
import sys
import threading
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

import boxes
from assay.cli import app
from assay.errors import BadInput
from assay.judge.sandbox import InfrastructureError, Ran, images
from assay.judge.sandbox.bubblewrap import Bubblewrap
from assay.judge.sandbox.check import check
from assay.judge.sandbox.containers import Containers
from assay.judge.sandbox.containers.engine import mine
from assay.judge.terminal import agent as agents
from assay.judge.terminal.tasks import read_task
from assay.judge.terminal.trial import TrialSetup, image_of
from assay.judge.tree import TooMuch
from container_kit import LIMITS, LONG, ContainerBench, plain, sh, wait_for
from judge_kit import make_competition, make_task, try_
from podman import podman, sandbox, serving

containers = pytest.fixture(scope="module")(sandbox)
bench = pytest.fixture(plain)
scratch = pytest.fixture(boxes.scratch)


def there(kind: str, name: str) -> bool:
    return bool(
        podman(kind, "ls", *(["--all"] if kind == "container" else []), "--quiet", "--no-trunc", "--filter", f"id={name}")
    )


def image_there(digest: str) -> bool:
    return digest in podman("image", "ls", "--all", "--quiet", "--no-trunc").split()


def context(folder: Path, dockerfile: str, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text(dockerfile)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_holds_what_any_sandbox_must(containers: Containers) -> None:
    wrong = [(requirement.name, requirement.why) for requirement in check(containers) if not requirement.ok]
    assert wrong == []


@pytest.mark.full
def test_an_images_files_become_a_root_file_system_for_bubblewrap(
    containers: Containers, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_STATE", str(scratch / "state"))
    name, url = "localhost/assay-base:12", containers._engine.url
    done = CliRunner().invoke(app, ["sandbox", "base", "add", name, "--engine", url], prog_name="assay")
    assert done.exit_code == 0, done.output
    [(label, owner)] = mine().items()  # other processes use the engine too
    assert not podman("container", "ls", "--all", "--quiet", "--filter", f"label={label}={owner}").strip()
    task = make_task(tmp_path / "t", base="", dockerfile=f"FROM {name}\nWORKDIR /app\n")
    with closing(Bubblewrap(folder=scratch)) as sandbox, sandbox.open(image_of(sandbox, task), LIMITS) as box:
        output = sh(box, tmp_path, "git --version && python3 -c 'print(1)' && cat /etc/debian_version && touch /usr/x")
    assert output.out.splitlines()[1:2] == ["1"], output.err
    assert output.ran.exit_code == 1, "its /usr is read-only"
    done = CliRunner().invoke(app, ["sandbox", "base", "add", "localhost/none:1", "--engine", url], prog_name="assay")
    assert done.exit_code == 1
    assert "there is no image localhost/none:1" in done.stderr
    assert [image.name for image in images.added()] == [name]


def test_says_what_it_is(containers: Containers) -> None:
    assert containers.describe().startswith("Podman ")


def test_nothing_is_left_of_a_closed_box(containers: Containers, tmp_path: Path) -> None:
    with containers.open(containers.image(), LIMITS) as box:
        assert there("container", box.id)
        assert sh(box, tmp_path, "echo hello").out == "hello\n"
    assert not there("container", box.id)


def test_boxes_of_several_threads_do_not_disturb_each_other(containers: Containers, tmp_path: Path) -> None:
    image, outputs = containers.image(), {}

    def work(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        with containers.open(image, LIMITS) as box:
            for _ in range(3):
                sh(box, folder, f"echo {number} >> /tmp/all")
            outputs[number] = sh(box, folder, "cat /tmp/all").out

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {number: f"{number}\n" * 3 for number in range(3)}


def test_builds_a_dockerfile_and_pins_the_image(containers: Containers, tmp_path: Path) -> None:
    own = uuid.uuid4().hex
    text = "FROM localhost/assay-base:12\nENV COLOUR=blue\nWORKDIR /work\nCOPY . /work\nRUN cat /work/a > /work/made\n"
    folder = context(tmp_path / "environment", text, a=own, b="left out")
    (folder / ".dockerignore").write_text("b\n")
    image = containers.image(folder)
    assert image.digest.startswith("sha256:")
    assert image_there(image.digest)
    assert (image.env["COLOUR"], image.workdir) == ("blue", "/work")
    with containers.open(image, LIMITS) as box:
        assert sh(box, tmp_path, 'pwd; echo "$COLOUR"; cat made; ls').out == f"/work\nblue\n{own}Dockerfile\na\nmade\n"
    assert containers.image(folder).digest == image.digest
    (folder / "a").write_text(own + "x")
    assert containers.image(folder).digest != image.digest
    # By its name, or by what it is pinned to; and a name that the engine has goes before the Dockerfile.
    assert containers.image(name=image.digest) == image
    assert containers.image(folder, name=image.digest) == image
    assert containers.image(folder, name=f"localhost/none-{own}").digest != image.digest


def test_a_link_in_the_context_is_not_followed(containers: Containers, tmp_path: Path) -> None:
    own = uuid.uuid4().hex
    (tmp_path / "secret").write_text(own)
    folder = context(tmp_path / "environment", "FROM localhost/assay-base:12\nCOPY . /work\n", a=own)
    (folder / "link").symlink_to(tmp_path / "secret")
    with containers.open(containers.image(folder), LIMITS) as box:
        output = sh(box, tmp_path, "cat /work/link")
    assert own not in output.out
    assert output.ran.exit_code == 1


def test_a_build_that_fails_says_why(containers: Containers, tmp_path: Path) -> None:
    folder = context(tmp_path / "environment", f"FROM localhost/assay-base:12\nRUN echo {uuid.uuid4().hex}; exit 3\n")
    with pytest.raises(InfrastructureError, match="could not be built"):
        containers.image(folder)


def test_a_context_that_is_too_large_is_refused(containers: Containers, tmp_path: Path) -> None:
    folder = context(tmp_path / "environment", "FROM localhost/assay-base:12\n", a="x" * 2000)
    with pytest.raises(BadInput, match="more than 1000 bytes"):
        containers.image(folder, limits=LIMITS.__class__(60, 1 << 30, 10, 1000, 1000))


TB2 = """version = "1.0"

[metadata]
author_name = "Someone"
difficulty = "easy"
category = "file-operations"
tags = ["file-operations"]

[verifier]
timeout_sec = 900.0

[agent]
timeout_sec = 900.0

[environment]
build_timeout_sec = 600.0
docker_image = "@IMAGE@"
cpus = 1
memory = "2G"
storage = "10G"
"""
TB2_TESTS = """#!/bin/bash
if [ "$PWD" = "/" ]; then
    echo "Error: No working directory set."
    exit 1
fi
python3 /tests/test_outputs.py

if [ $? -eq 0 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""


def test_a_task_of_terminal_bench_2_runs_as_it_is(containers: Containers, tmp_path: Path) -> None:
    image = f"registry.example/assay-test/{uuid.uuid4().hex}:20251031"
    make_task(
        tmp_path / "hello",
        tests=TB2_TESTS,
        dockerfile=f"FROM localhost/none-{uuid.uuid4().hex}:24.04\n\nWORKDIR /app\n",
        files={
            "task.toml": TB2.replace("@IMAGE@", image),
            "tests/test_outputs.py": 'from pathlib import Path\nassert Path("/app/out.txt").read_text().strip() == "hello"\n',
        },
    )
    task = read_task(tmp_path / "hello")
    with pytest.raises(InfrastructureError, match=f"could not be built: .*the engine has no image {image} either"):
        image_of(containers, task)
    podman("tag", "localhost/assay-base:12", image)
    try:
        for agent, wanted in (("oracle", "pass"), ("noop", "fail")):
            tried = try_(tmp_path, task, agents.BUILT_IN[agent], TrialSetup(containers), name=agent)
            assert tried.verdict.outcome == wanted, tried
            assert tried.image == containers.image().digest
    finally:
        podman("untag", "localhost/assay-base:12", image)


def test_an_image_that_is_not_there_is_trouble(containers: Containers) -> None:
    with pytest.raises(InfrastructureError, match="there is no image"):
        containers.image(name=f"localhost/none-{uuid.uuid4().hex}")


def test_an_image_that_was_removed_is_trouble(containers: Containers, tmp_path: Path) -> None:
    image = containers.image(context(tmp_path / "environment", f"FROM localhost/assay-base:12\nENV OWN={uuid.uuid4().hex}\n"))
    podman("image", "rm", "--force", image.digest)
    with pytest.raises(InfrastructureError, match="could not be made"), containers.open(image, LIMITS):
        pass


def test_a_frozen_copy_is_gone_in_the_end(containers: Containers, bench: ContainerBench) -> None:
    bench.sh("echo before > /srv/file; mkdir -m 0 /srv/closed")
    with containers.freeze(bench.box) as image:
        assert image_there(image.digest)
        assert image.workdir == bench.box.image.workdir
        bench.sh("echo after > /srv/file")
        for _ in range(2):
            with containers.open(image, LIMITS) as box:
                assert (
                    sh(box, bench.folder, "cat /srv/file; ls -d /srv/closed; echo changed > /srv/file").out
                    == "before\n/srv/closed\n"
                )
    assert not image_there(image.digest)


_DIES = """
import os, sys
from pathlib import Path
from assay.judge.sandbox.containers import Containers
from container_kit import LIMITS
sandbox = Containers(sys.argv[1])
box = sandbox.open(sandbox.image(), LIMITS)
inner = box.__enter__()
frozen = sandbox.freeze(inner)
print(inner.id, frozen.__enter__().digest, flush=True)
os._exit(0)
"""


@pytest.mark.full
def test_sweeps_what_the_dead_left_and_nothing_of_the_living(containers: Containers, bench: ContainerBench) -> None:
    # The service that the other one used has to be this one: both look at the same containers anyway.
    with serving() as url:
        path = ":".join(entry for entry in sys.path if entry)
        ran = subprocess.run(
            [sys.executable, "-c", _DIES, url], env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
            capture_output=True, check=False,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr.decode()
    container, digest = ran.stdout.decode().split()
    with containers.freeze(bench.box) as image:
        containers.sweep()
        assert not there("container", container)
        assert not image_there(digest)
        assert there("container", bench.box.id)
        assert image_there(image.digest)
    assert bench.sh("echo alive").out == "alive\n"


def test_a_container_that_is_killed_is_trouble(containers: Containers, tmp_path: Path) -> None:
    caught: list[Ran | InfrastructureError] = []

    def work() -> None:
        try:
            caught.append(sh(box, tmp_path, f"echo started; {LONG}").ran)
        except InfrastructureError as error:
            caught.append(error)

    with containers.open(containers.image(), LIMITS) as box:
        thread = threading.Thread(target=work)
        thread.start()
        wait_for(tmp_path / "stdout", "started")
        podman("kill", box.id)
        thread.join()
        assert isinstance(caught[0], InfrastructureError), caught
        with pytest.raises(InfrastructureError):
            sh(box, tmp_path, "true")


def test_a_container_that_is_removed_is_trouble(containers: Containers, tmp_path: Path) -> None:
    with containers.open(containers.image(), LIMITS) as box:
        podman("rm", "--force", "--time", "0", box.id)
        with pytest.raises(InfrastructureError):
            sh(box, tmp_path, "true")
        with pytest.raises(InfrastructureError):
            box.put(tmp_path, "/srv/x")
        with pytest.raises(InfrastructureError):
            box.take("/etc", tmp_path / "etc", most_bytes=1 << 20, most_files=1000)
    # Closing what is gone is no trouble.


def test_an_engine_that_is_gone_is_trouble(tmp_path: Path) -> None:
    with serving() as url:
        own = Containers(url)
        opened = own.open(own.image(), LIMITS)
        box = opened.__enter__()
    try:
        with pytest.raises(InfrastructureError):
            sh(box, tmp_path, "true")
        with pytest.raises(InfrastructureError):
            opened.__exit__(None, None, None)
        with pytest.raises(InfrastructureError, match="cannot be reached"):
            Containers(url)
    finally:
        podman("rm", "--force", "--time", "0", box.id)


@pytest.mark.full
def test_a_runtime_that_would_not_be_used_is_refused() -> None:
    with serving() as url:
        assert "runtime runc" in Containers(url, runtime="runc").describe()
        with pytest.raises(BadInput, match="not runsc"):
            Containers(url, runtime="runsc")
        with pytest.raises(BadInput, match="does not know the runtime 'run'"):
            Containers(url, runtime="run")


@pytest.mark.full
def test_the_engine_and_its_runtime_are_chosen_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/socket")
    make_task(tmp_path / "tasks" / "t", dockerfile="FROM localhost/assay-base:12\nWORKDIR /app\n")
    folder = make_competition(tmp_path, {"ann": agents.BUILT_IN["oracle"].digest})
    runner, judge = CliRunner(), ["--sandbox", "containers", "--engine"]
    with serving() as url:
        refused = runner.invoke(app, ["run", str(folder), "--validator", "val-1", *judge, url, "--runtime", "nosuch"])
        assert refused.exit_code == 2, refused.output
        assert "--runtime: Podman" in refused.stderr
        assert not (folder / "trials").exists()
        done = runner.invoke(app, ["run", str(folder), "--validator", "val-1", *judge, url, "--runtime", "runc"])
    assert done.exit_code == 0, done.output
    assert "1 trial judged (1 pass)." in done.stdout


def test_only_a_local_socket_is_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(BadInput, match="not a local socket"):
        Containers()
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/socket")
    with pytest.raises(InfrastructureError, match="cannot be reached"):
        Containers()


def test_a_take_over_its_bounds_leaves_nothing(bench: ContainerBench, tmp_path: Path) -> None:
    bench.sh("mkdir /srv/a; head -c 5000 /dev/urandom > /srv/a/b")
    with pytest.raises(TooMuch):
        bench.box.take("/srv/a", tmp_path / "got", most_bytes=4999, most_files=10)
    assert not (tmp_path / "got").exists()
    assert bench.box.take("/srv/a", tmp_path / "got", most_bytes=5000, most_files=2)
