"""Tasks, what who plans is sent of them, and which of them a round asks. SPEC 2.2, 3.0."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.judge.workflow import tasks
from assay.judge.workflow.tasks import WorkflowTask
from test_workflow_quality import RUFF

TASK = """type = "{type}"
instruction = "Do it."
budget = "0.05"
max_seconds = "2.5"
min_steps = 2

[input]
question = "why?"

[services.s]
do = "how"

[quality]
"""
SECRET = "the secret reference"
QUALITY = {
    "rag": ("", {"reference.txt": SECRET}),
    "data_transform": ("", {"reference.json": json.dumps({"k": SECRET})}),
    "agent": (f'[[quality.checks]]\nkind = "keyword"\ntext = "{SECRET}"\n', {}),
    "code": (
        f'lint = {{ruff = "{RUFF}"}}\n[[quality.cases]]\nname = "{SECRET}"\ncommand = ["x"]\nstdout = "{SECRET}"\n',
        {"tests/drive.py": SECRET},
    ),
}


def task_folder(
    folder: Path, kind: str = "rag", *, change: tuple[str, str] = ("", ""), files: dict[str, str] | None = None
) -> Path:
    """A task in a folder; files: more, or instead ("" is none)."""
    more, own = QUALITY[kind]
    folder.mkdir(parents=True)
    whole = TASK.replace("{type}", kind) + more
    assert change[0] in whole
    (folder / "task.toml").write_text(whole.replace(*change), encoding="utf-8")
    for name, text in (own | (files or {})).items():
        if text:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", QUALITY)
def test_who_plans_gets_everything_but_the_reference(tmp_path: Path, kind: str) -> None:
    task = tasks.read_task(task_folder(tmp_path / "t1", kind))
    package = task.package(5)
    assert SECRET.encode() not in task.package_bytes(5)
    assert {name: package[name] for name in ("task", "type", "budget", "max_seconds", "min_steps", "input", "services")} == {
        "task": "t1",
        "type": kind,
        "budget": "0.05",
        "max_seconds": "2.5",
        "min_steps": 2,
        "input": {"question": "why?"},
        "services": {"s": {"do": "how"}},
    }
    assert package["limits"] == {"nodes": 100, "edges": 1000, "bytes": 256_000, "depth": 16, "retries": 5}
    assert tasks.read_task(tmp_path / "t1").package_digest(5) == task.package_digest(5)
    assert task.allowed == {"s": frozenset({"do"})}


@pytest.mark.parametrize(
    ("kind", "change", "files", "message"),
    [
        ("rag", ("", ""), {"reference.txt": ""}, "reference.txt: no such file; a task without a reference cannot be judged"),
        ("rag", ("", ""), {"reference.txt": "…"}, "reference.txt: the reference has 0 tokens"),
        ("data_transform", ("", ""), {"reference.json": ""}, "a task without a reference cannot be judged"),
        ("data_transform", ("", ""), {"reference.json": "{"}, "reference.json: is not JSON"),
        ("data_transform", ("", ""), {"schema.json": '{"type": "array"}'}, "schema.json: the reference does not fit it"),
        ("agent", ('kind = "keyword"\ntext = "the secret reference"\n', ""), {}, "quality.checks[0].kind: is missing"),
        ("agent", ("[[quality.checks]]\n", "checks = []\n[other]\n"), {}, "there is no field 'other'"),
        ("agent", ('text = "the secret reference"', 'text = ""'), {}, "task.toml:16: quality.checks[0].text"),
        ("code", ('command = ["x"]', "command = []"), {}, "task.toml:17: quality.cases[0].command: is empty"),
        ("code", (f'lint = {{ruff = "{RUFF}"}}', ""), {}, "quality.lint: is missing"),
        ("rag", ('type = "rag"', 'type = "poem"'), {}, "task.toml:1: type: is 'poem'; use one of 'code'"),
        ("rag", ('budget = "0.05"', 'budget = "0"'), {}, "task.toml:3: budget: is 0; it must be more than 0"),
        ("rag", ('max_seconds = "2.5"', 'max_seconds = "0"'), {}, "max_seconds: is 0"),
        ("rag", ('max_seconds = "2.5"', 'max_seconds = "3601"'), {}, "max_seconds: is more than an hour"),
        ("rag", ('budget = "0.05"', "budget = 0.05"), {}, "task.toml:3: budget: a JSON float (0.05) is not a decimal string"),
        ("rag", ('question = "why?"', "question = 0.5"), {}, "task.toml:8: input.question: is a float"),
        ("rag", ('question = "why?"', "question = [{at = 2026-01-01}]"), {}, "input.question[0].at: is a date"),
        ("rag", ("[services.s]\ndo", "[services]\ndo"), {}, "services.do: is 'how'"),
        ("rag", ("", ""), {"input.json": "{}"}, "input: input.json exists too"),
        ("rag", ("min_steps = 2", "min_steps = 0"), {}, "task.toml:5: min_steps"),
        ("rag", ("[quality]", "[quality]\nchecks = []"), {}, "quality.checks: there is no field 'checks' here"),
    ],
)
def test_a_task_that_cannot_be_judged_is_refused(
    tmp_path: Path, kind: str, change: tuple[str, str], files: dict[str, str], message: str
) -> None:
    with pytest.raises(BadInput) as refused:
        tasks.read_task(task_folder(tmp_path / "t1", kind, change=change, files=files))
    assert message in str(refused.value)


def test_an_empty_checklist_is_refused(tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "t1", "rag", change=('type = "rag"', 'type = "agent"'))
    with pytest.raises(BadInput, match=r"quality\.checks: is missing"):
        tasks.read_task(folder)
    file = folder / "task.toml"
    file.write_text(file.read_text(encoding="utf-8") + "checks = []\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"quality\.checks: is empty"):
        tasks.read_task(folder)


def test_an_input_may_be_a_file(tmp_path: Path) -> None:
    change = ('[input]\nquestion = "why?"\n', "")
    folder = task_folder(tmp_path / "t1", change=change, files={"input.json": '[1, {"k": "é"}]'})
    assert tasks.read_task(folder).input == [1, {"k": "é"}]
    (folder / "input.json").write_text("[0.5]", encoding="utf-8")
    with pytest.raises(BadInput, match=r"input\.json: \[0\]: is a float"):
        tasks.read_task(folder)


def test_the_limits_of_a_task_are_those_of_its_plans(tmp_path: Path) -> None:
    change = ("[quality]", "[limits]\nnodes = 2\nbytes = 5000\n[quality]")
    rules = tasks.read_task(task_folder(tmp_path / "t1", change=change)).rules(3)
    assert (rules.bounds.nodes, rules.bounds.edges, rules.bounds.bytes, rules.max_retries) == (2, 1000, 5000, 3)
    assert (rules.max_nanoseconds, rules.output) == (2_500_000_000, "")


def competition(folder: Path, *names: str) -> list[WorkflowTask]:
    pinned = [tasks.read_task(task_folder(folder / "tasks" / name)) for name in names]
    (folder / "tasks.txt").write_text(tasks.manifest_text(pinned), encoding="utf-8")
    return pinned


def test_tasks_are_pinned_by_their_files(tmp_path: Path) -> None:
    first, two = competition(tmp_path, "a", "b")
    pinned = tasks.read_tasks(tmp_path)
    assert pinned.digests == {"a": first.digest, "b": two.digest}
    assert pinned.task("b").digest == two.digest
    assert [task.id for task in tasks.everything(tmp_path / "tasks")] == ["a", "b"]
    (tmp_path / "tasks" / "b" / "reference.txt").write_text("another", encoding="utf-8")
    assert pinned.task("a").id == "a"
    with pytest.raises(BadInput, match="the files of the task 'b' are not the pinned files"):
        pinned.task("b")
    with pytest.raises(BadInput, match="has no tasks"):
        tasks.everything(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a", "the task 'a' is not pinned by a digest"),
        (f"a sha256:{'0' * 64} shared", "the task 'a' is not pinned by a digest"),
        (f"../a sha256:{'0' * 64}", "'../a' is not the name of a folder"),
        ("", "has no tasks"),
    ],
)
def test_a_set_that_is_not_pinned_is_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "tasks.txt").write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(BadInput, match=message.replace("(", r"\(")):
        tasks.read_tasks(tmp_path)


names = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8), unique=True, max_size=20)


@given(names, st.binary(min_size=32, max_size=32), st.integers(1, 20))
def test_those_with_the_lowest_hash_are_drawn(names: list[str], randomness: bytes, count: int) -> None:
    drawn = tasks.draw_round(names, randomness, count)
    assert drawn == sorted(drawn, key=str.encode)
    assert len(drawn) == min(count, len(names))
    hashes = {name: sha256(randomness + b"\0" + name.encode()).hexdigest() for name in names}
    left = set(names) - set(drawn)
    assert all(hashes[name] < hashes[other] for name in drawn for other in left)
    assert set(tasks.draw_round(names[::-1], randomness, count)) == set(drawn)  # the order of the file does not matter


def drawing(folder: Path, count: Any, rows: str = "epoch,hex\n7," + "ab" * 32 + "\n9," + "cd" * 32 + "\n") -> None:
    (folder / "round.toml").write_text(f"tasks = {count}\n", encoding="utf-8")
    (folder / "randomness.csv").write_text(rows, encoding="utf-8")


def test_a_round_is_drawn_by_the_randomness_of_its_epoch(tmp_path: Path) -> None:
    competition(tmp_path, *"abcdef")
    pinned = tasks.read_tasks(tmp_path)
    everything = tasks.read_round(tmp_path, pinned, 3)
    assert (list(everything.tasks), everything.randomness, tasks.latest_round(tmp_path)) == (list("abcdef"), None, None)
    drawing(tmp_path, 2)
    drawn = tasks.read_round(tmp_path, pinned, 7)
    assert list(drawn.tasks) == tasks.draw_round("abcdef", bytes.fromhex("ab" * 32), 2)
    assert drawn.tasks == {name: pinned.digests[name] for name in drawn.tasks}
    assert drawn.document()["randomness"] == "ab" * 32
    assert tasks.latest_round(tmp_path) == 9
    with pytest.raises(BadInput, match="there is no randomness of epoch 8"):
        tasks.read_round(tmp_path, pinned, 8)
    drawing(tmp_path, 7)
    with pytest.raises(BadInput, match="7 tasks are to be drawn, and there are 6"):
        tasks.read_round(tmp_path, pinned, 7)
    drawing(tmp_path, 0)
    with pytest.raises(BadInput, match=r"round\.toml:1: tasks"):
        tasks.read_round(tmp_path, pinned, 7)
