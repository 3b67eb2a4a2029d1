"""The second verifier as a program of Node, and every way to change one field of a bundle."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
VERIFIER = ROOT / "verifier"
COMMAND = VERIFIER / "bin" / "assay-verify.js"
CONFORMANCE = ROOT / "conformance"


def node() -> str:
    """The program; without it nothing here can be said, so the test fails."""
    path = shutil.which("node")
    if path is None:
        pytest.fail("node is not installed: `tools/system tests` installs it")
    return path


def run(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """`assay-verify WORDS`."""
    return subprocess.run(
        [node(), str(COMMAND), *map(str, words)], input=stdin, capture_output=True, text=True, timeout=600, check=False
    )


@dataclass(frozen=True)
class Change:
    """One file of a bundle with one thing in it changed; `red`: it has to be refused."""

    path: str
    where: str
    data: bytes
    red: bool = True

    def line(self) -> str:
        return json.dumps({"path": self.path, "data": base64.b64encode(self.data).decode()})


def _other(value: Any) -> Any:
    """A value of the same type that is another."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if value is None:
        return "x"
    if value and value[-1] in "0123456789abcdef":
        return value[:-1] + ("1" if value[-1] == "0" else "0")
    return value[:-1] + ("A" if value[-1:] != "A" else "B") if value.endswith("=") or value else "x"


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list) and value:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _leaves(value[key], (*path, key))
    else:
        yield path


def _replaced(value: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        return ["x"] if value in ({}, []) else _other(value)
    inner = _replaced(value[path[0]], path[1:])
    if isinstance(value, dict):
        return {**value, path[0]: inner}
    return [*value[: path[0]], inner, *value[path[0] + 1 :]]


def _written(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def _document(path: str, value: Any) -> Iterator[Change]:
    """Each leaf changed, each field of the outermost object taken out, and one added."""
    for leaf in _leaves(value):
        yield Change(path, ".".join(map(str, leaf)), _written(_replaced(value, leaf)))
    for field in value:
        yield Change(path, f"without {field}", _written({key: inner for key, inner in value.items() if key != field}))
    yield Change(path, "one field more", _written({**value, "more": 1}))


def _payload(path: str, row: dict[str, Any], whole: Any) -> Iterator[Change]:
    """What is signed inside an envelope, changed under the old signature. `whole(row)` gives the file's bytes."""
    statement = json.loads(base64.b64decode(row["envelope"]["payload"]))
    for leaf in _leaves(statement):
        payload = base64.b64encode(_written(_replaced(statement, leaf))).decode()
        yield Change(
            path, "payload." + ".".join(map(str, leaf)), whole({**row, "envelope": {**row["envelope"], "payload": payload}})
        )


def _lines(path: str, data: bytes) -> Iterator[Change]:
    """Each line changed in each field, left out, twice, and swapped with the next."""
    rows = [json.loads(line) for line in data.splitlines()]

    def whole(at: int, row: Any) -> bytes:
        # A record keeps its spelling: canonical, with `seq` as the last field.
        texts = [_line(row if number == at else other) for number, other in enumerate(rows)]
        return b"".join(text + b"\n" for text in texts)

    for at, row in enumerate(rows):
        for leaf in _leaves(row):
            yield Change(path, f"line {at + 1}, {'.'.join(map(str, leaf))}", whole(at, _replaced(row, leaf)))
        if "envelope" in row:
            yield from _payload(path, row, lambda changed, at=at: whole(at, changed))
        lines = data.splitlines(keepends=True)
        yield Change(path, f"without line {at + 1}", b"".join(lines[:at] + lines[at + 1 :]))
        yield Change(path, f"line {at + 1} twice", b"".join([*lines[: at + 1], *lines[at:]]))


def _line(row: Any) -> bytes:
    if "seq" not in row:
        return _written(row)
    body = _written({key: value for key, value in row.items() if key != "seq"})
    return body[:-1] + b',"seq":' + _written(row["seq"]) + b"}"


def _bytes(path: str, data: bytes) -> Iterator[Change]:
    """A bit of every eighth byte, cut off, and longer."""
    for at in range(0, len(data), 8):
        changed = bytearray(data)
        changed[at] ^= 1
        yield Change(path, f"a bit of byte {at}", bytes(changed))
    yield Change(path, "cut off", data[:-1])
    yield Change(path, "longer", data + b"x")


def changes(bundle: Path) -> list[Change]:
    """Every field of every file of a bundle changed, one at a time."""
    candidates: list[Change] = []
    for file in sorted(path for path in bundle.rglob("*") if path.is_file()):
        path, data = file.relative_to(bundle).as_posix(), file.read_bytes()
        if path.endswith(".jsonl"):
            candidates += _lines(path, data)
        elif path.endswith(".json"):
            candidates += _document(path, json.loads(data))
        elif path.endswith((".receipt", ".audit")):
            receipt = json.loads(data)
            candidates += [*_document(path, receipt), *_payload(path, receipt, _written)]
            candidates += [
                Change(path, f"proof, {byte.where}", _written({**receipt, "proof": byte.data.decode("utf-8", "replace")}))
                for byte in _bytes(path, receipt["proof"].encode())
            ]
        else:
            candidates += _bytes(path, data)
    return [change for change in candidates if change.data != (bundle / change.path).read_bytes()]
