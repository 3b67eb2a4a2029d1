"""A solution: text files under relative paths, one digest for one content, and a refusal for anything else. SPEC 2, 2.3."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.exact import canonical
from assay.judge.rubric.solution import SOLUTION_BYTES, SOLUTION_FILES, Solution, parse_solution, read_solution

FILES_OF_TEXT = st.dictionaries(
    st.from_regex(r"[a-zé_][a-z0-9 ._-]{0,8}(/[a-z][a-z0-9]{0,5}){0,2}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    min_size=1,
    max_size=5,
).filter(lambda files: any(text.strip() for text in files.values()))


@given(FILES_OF_TEXT)
def test_its_bytes_are_canonical_and_lead_back(files: dict[str, str]) -> None:
    solution = Solution(files)
    assert parse_solution(solution.data) == solution
    assert json.loads(solution.data) == {"schema": "assay.solution/1", "files": files}
    assert Solution(dict(reversed(list(files.items())))).digest == solution.digest
    assert list(solution.files) == sorted(files, key=str.encode)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../a",
        "a/../b",
        "a/..",
        "./a",
        "a/.",
        "a//b",
        "a\\b",
        "a\nb",
        "a\x00",
        "a\x7f",
        "a\u202eb",
        "a\u200bb",
        "x" * 201,
    ],
)
def test_a_path_that_is_none(path: str) -> None:
    with pytest.raises(BadInput, match="is not the path of a file"):
        Solution({path: "text"})


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({}, "has from 1 to"),
        ({f"f{number}": "x" for number in range(SOLUTION_FILES + 1)}, "has from 1 to"),
        ({"a": " \n\t"}, "is empty"),
        ({"a": "x" * (SOLUTION_BYTES + 1)}, "bytes, the most are"),
        ({"a": "\ud800"}, "lone surrogate"),
        ({"a": b"bytes"}, "is not a text"),
        ({"a": None}, "is not a text"),
    ],
)
def test_what_is_no_solution(files: dict[str, Any], what: str) -> None:
    with pytest.raises(BadInput, match=what):
        Solution(files)


def _data(**changed: Any) -> bytes:
    return canonical({"schema": "assay.solution/1", "files": {"a": "x"}, **changed})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        _data() + b"\n",
        _data(schema="assay.solution/2"),
        _data(more=1),
        _data(files=[]),
        _data(files={}),
        _data(files={"/a": "x"}),
        _data(files={"a": 1}),
        b'{"files":{"a":"x","a":"y"},"schema":"assay.solution/1"}',
        b'{"files":{"a":"\\u0078"},"schema":"assay.solution/1"}',
        b'{"files":{"a":"\\ud800"},"schema":"assay.solution/1"}',
        b" " * (8 * SOLUTION_BYTES + 1),
    ],
)
def test_bytes_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        parse_solution(data)


def test_a_file_or_a_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "a.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "deep" / "er" / "b.md").write_bytes("é\r\n".encode())
    assert dict(read_solution(tmp_path).files) == {"a.py": "x = 1\n", "deep/er/b.md": "é\r\n"}
    assert dict(read_solution(tmp_path / "a.py").files) == {"a.py": "x = 1\n"}


def test_what_is_no_text_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        read_solution(tmp_path / "nothing")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(BadInput, match="is not UTF-8 text") as refusal:
        read_solution(tmp_path)
    assert refusal.value.file == tmp_path / "image.png"


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc/passwd"), os.mkfifo], ids=["link", "pipe"])
def test_a_link_or_a_pipe_is_not_followed(make: Any, tmp_path: Path) -> None:
    make(tmp_path / "odd")
    with pytest.raises(BadInput, match="is a link or a device"):
        read_solution(tmp_path)


def test_what_is_too_much_is_not_read(tmp_path: Path) -> None:
    for number in range(SOLUTION_FILES + 1):
        (tmp_path / f"f{number}").write_text("x", encoding="utf-8")
    with pytest.raises(BadInput, match="has more than"):
        read_solution(tmp_path)
    large = tmp_path / "large"
    large.mkdir()
    (large / "a").write_text("x" * (SOLUTION_BYTES - 1), encoding="utf-8")
    (large / "b").write_text("xx", encoding="utf-8")
    with pytest.raises(BadInput, match="is larger than 1 bytes") as refusal:
        read_solution(large)
    assert refusal.value.file == large / "b"
