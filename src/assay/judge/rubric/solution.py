"""Reads a solution: the text files that a participant hands in, and the digest that is their submission. SPEC 2, 2.3.

Its document is {"schema": "assay.solution/1", "files": {path: text}}; the bytes are its canonical JSON, the digest is over them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from assay.errors import BadInput, brief
from assay.exact import canonical
from assay.folder.files import load

SOLUTION_SCHEMA = "assay.solution/1"
SOLUTION_FILES = 200
"""Most files of a solution."""
SOLUTION_BYTES = 1_000_000
"""Most bytes of all texts together. Usually the bounty's `solution_tokens` is the smaller bound."""
_PATH = re.compile(r"(?!/)(?!.*(?:^|/)\.{1,2}(?:/|$))[^\x00-\x1f\x7f\\]{1,200}", re.ASCII)


@dataclass(frozen=True)
class Solution:
    """The files of a solution: path → text, in the order of the paths' UTF-8 bytes. Raises BadInput for bad files."""

    files: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.files or len(self.files) > SOLUTION_FILES:
            raise BadInput(
                f"a solution has from 1 to {SOLUTION_FILES} files, this {len(self.files)}", hint="hand in text files alone"
            )
        for path, text in self.files.items():
            if not (isinstance(path, str) and _PATH.fullmatch(path) and path.isprintable() and "//" not in path):
                raise BadInput(f"{brief(path)} is not the path of a file", hint="use a relative path, with / between its parts")
            if not isinstance(text, str):
                raise BadInput(f"{brief(path)} is not a text", hint="hand in text files alone")
        if self.tokens > SOLUTION_BYTES:
            raise BadInput(
                f"the solution has {self.tokens} bytes, the most are {SOLUTION_BYTES}", hint="leave out what need not be read"
            )
        if not any(text.strip() for text in self.files.values()):
            raise BadInput("the solution is empty", hint="hand in at least one file with text")
        object.__setattr__(self, "files", dict(sorted(self.files.items(), key=lambda row: row[0].encode())))

    @property
    def tokens(self) -> int:
        """The bytes of all texts: a tokenizer of bytes makes at most as many tokens. Raises BadInput for a lone surrogate."""
        try:
            return sum(len(text.encode()) for text in self.files.values())
        except UnicodeEncodeError:
            raise BadInput("the solution has an invalid character (a lone surrogate)", hint="save the file as UTF-8") from None

    @cached_property
    def data(self) -> bytes:
        """The bytes of the solution: canonical JSON."""
        return canonical({"schema": SOLUTION_SCHEMA, "files": dict(self.files)})

    @cached_property
    def digest(self) -> str:
        """`sha256:…` over the bytes: the submission."""
        return f"sha256:{sha256(self.data).hexdigest()}"


def read_solution(path: Path) -> Solution:
    """The solution in a text file, or in a folder of text files. Raises BadInput with the file for anything else."""
    if not path.is_dir():
        return Solution({path.name: _text(path, SOLUTION_BYTES)})
    files: dict[str, str] = {}
    left = SOLUTION_BYTES
    for entry in sorted(path.rglob("*")):
        if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            raise BadInput("is a link or a device", file=entry, hint="hand in text files alone")
        if entry.is_file():
            if len(files) == SOLUTION_FILES:
                raise BadInput(
                    f"has more than {SOLUTION_FILES} files", file=path, hint="hand in only the files that the judge has to read"
                )
            text = _text(entry, left)
            left -= len(text.encode())
            files[entry.relative_to(path).as_posix()] = text
    return Solution(files)


def parse_solution(data: bytes) -> Solution:
    """The solution in these bytes. Raises BadInput unless they are exactly its canonical form."""
    what = "these are not the bytes of a solution"
    if len(data) > 8 * SOLUTION_BYTES:
        raise BadInput(what, hint="`assay seal` makes them")
    try:
        document: Any = json.loads(data)
        files = document["files"]
        solution = Solution(files if isinstance(files, dict) else {})
        if solution.data == data:
            return solution
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise BadInput(what, hint="`assay seal` makes them")


def _text(path: Path, most: int) -> str:
    data = load(path, most, hint="give the file or the folder of the solution")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8 text", file=path, hint="a model reads only text: remove files that are not text") from None
