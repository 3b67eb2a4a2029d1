"""Task sets: task.toml in its spellings, what is refused by name, the pin and what changed since."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.folder import registry as listed
from assay.judge import tree
from assay.judge.terminal import competition, tasks
from assay.judge.terminal.competition import Changes, Manifest, Pin
from assay.judge.terminal.tasks import Task

DOCKERFILE = "FROM localhost/assay-base:12\nWORKDIR /app\n"


def make(folder: Path, toml: str = "", *, dockerfile: str | None = DOCKERFILE) -> Path:
    """A task with the least that it needs."""
    for name in ("environment", "solution", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text(toml)
    (folder / "instruction.md").write_text("Write a file.\n")
    if dockerfile is not None:
        (folder / "environment" / "Dockerfile").write_text(dockerfile)
    (folder / "solution" / "solve.sh").write_text("#!/bin/bash\ntouch /app/x\n")
    (folder / "tests" / "test.sh").write_text("#!/bin/bash\ntest -e /app/x\n")
    return folder


def load(tmp_path: Path, toml: str = "", *, dockerfile: str | None = DOCKERFILE) -> Task:
    return tasks.read_task(make(tmp_path / "one", toml, dockerfile=dockerfile))


def test_what_is_not_said_is_what_is_common(tmp_path: Path) -> None:
    task = load(tmp_path)
    environment = task.settings.environment
    assert (task.id, task.mode, task.workdir, task.kept) == ("one", "separate", "/app", ("/app",))
    assert (task.settings.agent.timeout_sec, task.settings.verifier.timeout_sec, environment.build_timeout_sec) == (600, 600, 600)
    assert (environment.cpus, task.memory, task.disk) == (2, 4 << 30, 20_000 << 20)
    assert (task.env, task.notes) == ({}, ())
    assert task.instruction == "Write a file.\n"
    assert task.digest == tree.digest(task.folder)


WHOLE = """
schema_version = "1.4"
source = "registry"
artifacts = ["/app/out", "/srv/x/", {source = "/var/log/y", destination = "y", exclude = ["*.tmp"]}]
[task]
name = "org/one"
authors = [{name = "A"}]
[metadata]
difficulty = "easy"
anything = {goes = [1, 2.5]}
[agent]
timeout_sec = 12.5
[verifier]
timeout_sec = 30
environment_mode = "snapshot"
env = {LEVEL = "${LEVEL:-3}", PLAIN = "$x"}
[environment]
build_timeout_sec = 60
docker_image = "registry.example/one@sha256:00"
os = "linux"
cpus = 1
memory_mb = 512
storage_mb = 100
gpus = 0
gpu_types = ["T4"]
mcp_servers = []
workdir = "/work/dir/"
network_mode = "no-network"
allowed_hosts = []
[environment.env]
TZ = "UTC"
[solution.env]
KEY = "v"
"""


def test_every_field_that_is_known(tmp_path: Path) -> None:
    task = load(tmp_path, WHOLE, dockerfile=None)
    assert (task.mode, task.workdir, task.kept) == ("snapshot", "/work/dir", ("/work/dir", "/app/out", "/srv/x", "/var/log/y"))
    assert (task.memory, task.disk, task.settings.agent.timeout_sec) == (512 << 20, 100 << 20, 12.5)
    assert (task.env, task.verifier_env, task.solution_env) == ({"TZ": "UTC"}, {"LEVEL": "3", "PLAIN": "$x"}, {"KEY": "v"})
    assert (task.plan, task.dockerfile) == (None, None)
    assert [note.field for note in task.notes] == ["artifacts.2.destination", "artifacts.2.exclude"]
    assert task.settings.environment.docker_image == "registry.example/one@sha256:00"


@pytest.mark.parametrize(
    ("size", "mebibytes"),
    [("2G", 2048), ("512M", 512), ("1.5g", 1536), ("2048K", 2), ("1 GB", 1024), ("0.5Gi", 512), ("1T", 1 << 20)],
)
def test_older_spellings(tmp_path: Path, size: str, mebibytes: int) -> None:
    toml = f'version = "1.0"\n[environment]\nmemory = "{size}"\nstorage = "{size}"\nallow_internet = false\n'
    settings = load(tmp_path, toml).settings
    assert (settings.schema_version, settings.environment.network_mode) == ("1.0", "no-network")
    assert (settings.environment.memory_mb, settings.environment.storage_mb) == (mebibytes, mebibytes)


def test_where_the_agent_works(tmp_path: Path) -> None:
    assert load(tmp_path / "a", dockerfile="FROM x\nWORKDIR /a\nWORKDIR b\n").workdir == "/a/b"
    assert load(tmp_path / "b", '[environment]\nworkdir = "/c"\n').workdir == "/c"
    assert load(tmp_path / "c", dockerfile="FROM x\n").workdir == "/app"
    task = load(tmp_path / "d", 'artifacts = ["/app/deep", "/appendix", "/appendix"]')
    assert task.kept == ("/app", "/appendix")


REFUSED = {
    "[[steps]]\nname = 'a'\n": ("steps", 1, "several steps"),
    "[environment]\ngpus = 1\n": ("environment.gpus", 2, "GPUs"),
    "[environment]\nos = 'windows'\n": ("environment.os", 2, "windows"),
    "\n[[environment.mcp_servers]]\nname = 'x'\n": ("environment.mcp_servers", 2, "MCP servers"),
    "[environment]\nmcp_servers = [{name = 'x'}]\n": ("environment.mcp_servers", 2, "MCP servers"),
    "[environment.healthcheck]\ncommand = 'x'\n": ("environment.healthcheck", 1, "health check"),
    "[verifier.environment]\ncpus = 1\n": ("verifier.environment", 1, "for the verifier is not supported"),
    "[[verifier.collect]]\ncommand = 'x'\n": ("verifier.collect", 1, "collecting"),
    "[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['x.org']\n": ("agent.network_mode", 2, "allowed hosts"),
    "[environment]\nallowed_hosts = ['x.org']\n": ("environment.allowed_hosts", 2, "allowed hosts"),
    "[environment]\nallow_internet = true\nnetwork_mode = 'allowlist'\n": ("environment.network_mode", 3, "allowed hosts"),
    "[verifier.env]\nKEY = '${SECRET}'\n": ("verifier.env", 1, "SECRET"),
    "[environment]\nworkdir = '/tests/x'\n": ("environment.workdir", 2, "/tests/x"),
    "[environment]\nworkdir = '/'\n": ("environment.workdir", 2, "/"),
    "artifacts = ['/logs']\n": ("artifacts", 1, "/logs"),
    "artifacts = ['/usr/bin']\n": ("artifacts", 1, "/usr/bin"),
    "artifacts = [{source = '/x', service = 'db'}]\n": ("artifacts", 1, "'db'"),
}  # fmt: skip


@pytest.mark.parametrize("toml", REFUSED)
def test_what_is_not_supported_is_refused_by_its_name(tmp_path: Path, toml: str) -> None:
    field, line, what = REFUSED[toml]
    with pytest.raises(BadInput) as caught:
        load(tmp_path, toml)
    assert (caught.value.field, caught.value.line) == (field, line)
    assert what in caught.value.what
    assert caught.value.hint
    assert caught.value.file == tmp_path / "one" / "task.toml"


@pytest.mark.parametrize(
    ("toml", "field", "line"),
    [
        ("schema_version = '2.0'", "schema_version", 1),
        ("schema_version = 1", "schema_version", 1),
        ("[metadata.assay]\nbase = 'some'", "metadata.assay.base", 2),
        ("[agent]\ntimeout_sec = 0", "agent.timeout_sec", 2),
        ("[agent]\ntimeout_sec = inf", "agent.timeout_sec", 2),
        ("[agent]\ntimeout_sec = 1e9", "agent.timeout_sec", 2),
        ("[verifier]\ntimeout_sec = '600'", "verifier.timeout_sec", 2),
        ("[verifier]\nenvironment_mode = 'seperate'", "verifier.environment_mode", 2),
        ("[verifier]\nenv = {'A=B' = 'x'}", "verifier.env.A=B.[key]", 2),
        ("[verifier]\nenv = {A = 1}", "verifier.env.A", 2),
        ("[environment]\nmemory = '2'", "environment", 1),
        ("[environment]\nmemory = 2", "environment", 1),
        ("[environment]\nmemory = '2G'\nmemory_mb = 1", "environment", 1),
        ("[environment]\nmemory_mb = -1", "environment.memory_mb", 2),
        ("[environment]\nmemory_mb = 1.5", "environment.memory_mb", 2),
        ("[environment]\nallow_internet = false\nnetwork_mode = 'public'", "environment", 1),
        ("[environment]\nallow_internet = 'no'", "environment", 1),
        ("[environment]\nnetwork_mode = 'none'", "environment.network_mode", 2),
        ("[environment]\nworkdir = 'app'", "environment.workdir", 2),
        ("[environment]\nworkdir = '/a/../b'", "environment.workdir", 2),
        ("agent = 3", "agent", 1),
        ("this is not toml", "", 1),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(tmp_path: Path, toml: str, field: str, line: int | None) -> None:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, toml)
    assert (caught.value.field, caught.value.line) == (field, line)


def test_what_a_mode_allows(tmp_path: Path) -> None:
    weaker = '[verifier]\nenvironment_mode = "snapshot"\n[environment]\nworkdir = "/"\n'
    assert load(tmp_path / "a", weaker).workdir == "/"
    with pytest.raises(BadInput, match="work directory /usr cannot be given"):
        load(tmp_path / "b", dockerfile="FROM x\nWORKDIR /usr\n")


def test_what_has_no_effect_is_noted_with_its_line(tmp_path: Path) -> None:
    task = load(
        tmp_path,
        "colour = 1\n[agent]\ntimout_sec = 3\nuser = 'root'\n"
        "[environment]\nallow_internet = true\nskills_dir = '/s'\n[metadata]\nx = 1\n",
    )
    assert [(note.rule, note.field, note.line) for note in task.notes] == [
        ("unknown-key", "colour", 1),
        ("unknown-key", "agent.timout_sec", 3),
        ("no-effect", "agent.user", 4),
        ("no-effect", "environment.skills_dir", 7),
        ("no-effect", "environment.network_mode", 5),
    ]
    assert "timeout_sec" in task.notes[1].do


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        (lambda t: (t / "task.toml").unlink(), "task.toml", "no such file"),
        (lambda t: (t / "instruction.md").write_text(" \n"), "instruction.md", "is empty"),
        (lambda t: (t / "instruction.md").write_bytes(b"ok\n\xff"), "instruction.md:2", "not UTF-8"),
        (lambda t: (t / "tests" / "test.sh").unlink(), "tests/test.sh", "no such file"),
        (lambda t: shutil.rmtree(t / "tests"), "tests/test.sh", "no such file"),
        (lambda t: (t / "environment" / "Dockerfile").unlink(), "environment/Dockerfile", "no such file"),
        (lambda t: (t / "environment" / "Dockerfile").write_text("RUN x\n"), "environment/Dockerfile", "no FROM"),
        (lambda t: (t / "tests" / "compose.yml").write_text("x"), "tests/compose.yml", "several containers"),
        (lambda t: (t / "tests" / "Dockerfile").write_text("x"), "tests/Dockerfile", "for the verifier is not supported"),
        (lambda t: os.mkfifo(t / "tests" / "pipe"), "tests/pipe", "is a fifo"),
        (lambda t: (t / "tests" / "out").symlink_to("../../x"), "tests/out", "leads out"),
        (lambda t: (t / "tests" / "etc").symlink_to("/etc"), "tests/etc", "leads out"),
    ],
)  # fmt: skip
def test_a_task_that_cannot_be_judged_is_refused_when_it_is_loaded(
    tmp_path: Path, change: Callable[[Path], object], where: str, what: str
) -> None:
    folder = make(tmp_path / "one")
    change(folder)
    with pytest.raises(BadInput) as caught:
        tasks.read_tasks(tmp_path)
    assert caught.value.where == str(folder / where)
    assert what in caught.value.what


def test_links_inside_a_task_are_fine(tmp_path: Path) -> None:
    folder = make(tmp_path / "one")
    (folder / "tests" / "input").symlink_to("../environment")
    assert tasks.read_task(folder).id == "one"


def test_a_task_of_terminal_bench_1_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "task.yaml").write_text("x: 1")
    with pytest.raises(BadInput, match="Terminal-Bench 1"):
        tasks.read_tasks(tmp_path)


def test_a_set_is_sorted_and_says_what_it_passed_over(tmp_path: Path) -> None:
    for name in ("b", "a", "Z"):
        make(tmp_path / name)
    (tmp_path / "notes").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("x")
    task_set = tasks.read_tasks(tmp_path)
    assert [task.id for task in task_set] == ["Z", "a", "b"]
    assert task_set.passed_over == (tmp_path / "notes",)
    assert task_set["a"].folder == tmp_path / "a"
    assert len(tasks.read_tasks(tmp_path / "a")) == 1
    with pytest.raises(BadInput, match="there is no task 'aa'; did you mean 'a'"):
        task_set["aa"]


def test_ids_are_unique_and_printable(tmp_path: Path) -> None:
    make(tmp_path / "x" / "one")
    make(tmp_path / "y" / "one")
    with pytest.raises(BadInput, match="there twice"):
        tasks.read_tasks(tmp_path / "x", tmp_path / "y")
    for name in ("a b", "#a", "a\u200bb", "a\nb", "x" * 250):
        folder = make(tmp_path / name)
        if len(name) < 100:
            with pytest.raises(BadInput, match="not a task id"):
                tasks.read_task(folder)
    (tmp_path / "linked").symlink_to(tmp_path / "x" / "one")
    with pytest.raises(BadInput, match="is a link"):
        tasks.read_task(tmp_path / "linked")


def test_a_folder_without_tasks_is_no_set(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no tasks"):
        tasks.read_tasks(tmp_path)
    (tmp_path / "c" / "tasks").mkdir(parents=True)
    with pytest.raises(BadInput, match=f"has no tasks; the tasks of a competition are in {tmp_path}/c/tasks"):
        tasks.read_tasks(tmp_path / "c")
    with pytest.raises(BadInput, match="cannot be read"):
        tasks.read_tasks(tmp_path / "none")


@pytest.fixture
def two(tmp_path: Path) -> Path:
    make(tmp_path / "set" / "b")
    make(tmp_path / "set" / "a", '[verifier]\nenvironment_mode = "shared"\n')
    return tmp_path / "set"


def test_a_pin_is_written_and_read_back_and_has_the_digest_of_the_settlement(tmp_path: Path, two: Path) -> None:
    task_set = tasks.read_tasks(two)
    pinned = competition.pin_tasks(task_set)
    competition.write_manifest(pinned, tmp_path / "tasks.txt")
    assert (tmp_path / "tasks.txt").read_text().splitlines()[1:] == [
        f"a {task_set['a'].digest} shared",
        f"b {task_set['b'].digest}",
    ]
    assert competition.read_manifest(tmp_path / "tasks.txt") == pinned
    assert pinned.digest == listed.read_tasks(tmp_path / "tasks.txt", 1).digest
    assert Manifest(pinned.pins[::-1]).digest == pinned.digest
    assert [task.id for task in competition.chosen(pinned, task_set)] == ["a", "b"]
    assert [task.id for task in competition.chosen(Manifest((Pin("b"),)), task_set)] == ["b"]


def test_what_changed_since_the_pin(two: Path) -> None:
    before = competition.pin_tasks(tasks.read_tasks(two))
    assert not competition.compare_manifest(before, before)
    (two / "b" / "tests" / "test.sh").chmod(0o755)
    (two / "a" / "task.toml").write_text("")
    make(two / "c")
    after = competition.pin_tasks(tasks.read_tasks(two))
    assert competition.compare_manifest(before, after) == Changes(added=("c",), changed=("a", "b"), moded=("a",))
    assert competition.compare_manifest(after, before).removed == ("c",)
    listed_only = Manifest((Pin("a"), Pin("gone")))
    assert competition.compare_manifest(listed_only, after) == Changes(added=("b", "c"), removed=("gone",), unpinned=("a",))
    with pytest.raises(BadInput, match=r"files of the task .* are not those that were pinned"):
        competition.chosen(before, tasks.read_tasks(two))
    with pytest.raises(BadInput, match="'gone' is not in the set"):
        competition.chosen(listed_only, tasks.read_tasks(two))


def test_a_pin_in_another_mode_is_not_the_same_task(two: Path) -> None:
    task_set = tasks.read_tasks(two)
    with pytest.raises(BadInput, match="pinned as separate, and is shared"):
        competition.chosen(Manifest((Pin("a", task_set["a"].digest),)), task_set)


def test_no_empty_pin_is_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no tasks"):
        competition.write_manifest(Manifest(()), tmp_path / "tasks.txt")
    assert not (tmp_path / "tasks.txt").exists()
