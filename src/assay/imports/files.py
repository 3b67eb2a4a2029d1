"""Reading folders that somebody else's harness wrote: no symbolic link followed, bounded sizes, JSON checked by type."""

from __future__ import annotations

import decimal
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import BadInput

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_ENTRIES",
    "Found",
    "find",
    "inside",
    "json_object",
    "kind_of",
    "listed",
    "optional_text",
    "parsed",
    "text_of",
]

MAX_BYTES = 64_000_000
"""One file of results is refused above this size."""
MAX_ENTRIES = 1_000_000
"""A folder with more files and folders than this, in all, is refused."""
MAX_DEPTH = 12
"""How many folders deep results are looked for."""


@dataclass
class Found:
    """What a walk saw and left out: symbolic links, which are never followed, and folders that are too deep."""

    entries: int = 0
    links: int = 0
    deep: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of it."""
        links = f"{self.links} symbolic link{'s' if self.links > 1 else ''} not followed"
        deep = f"{self.deep} folder{'s' if self.deep > 1 else ''} more than {MAX_DEPTH} deep not looked into"
        return tuple(note for note, count in ((links, self.links), (deep, self.deep)) if count)


def find(root: Path, name: str, visit: Callable[[Path], bool], *, skip: frozenset[str] = frozenset()) -> Found:
    """Calls `visit` for every file called `name` in a folder, shallow ones first, in the order of their names; raises BadInput.

    Where `visit` says True, nothing below that folder is looked at: what lies there was written by the agent, not by the harness.
    Folders named in `skip`, and symbolic links, are not entered.
    """
    if not root.is_dir():
        what = "is not a folder" if root.exists() else "no such folder"
        raise BadInput(what, file=root, hint="give the folder that the harness wrote its results to")
    found, level = Found(), [root]
    for _ in range(MAX_DEPTH):
        below: list[Path] = []
        for folder in level:
            files, folders = _entries(folder, found)
            if not (name in files and visit(folder / name)):
                below += [folder / entry for entry in folders if entry not in skip]
        level = below
    found.deep = len(level)
    return found


def listed(src: Path, pattern: str) -> tuple[list[Path], Found]:
    """The files of a folder, or below it, whose names match; a file stands for itself. Raises BadInput."""
    if src.is_file():
        return [src], Found()
    if not src.is_dir():
        raise BadInput("no such file or folder", file=src, hint="give what the harness wrote its results to")
    found, level, files = Found(), [src], list[Path]()
    for _ in range(MAX_DEPTH):
        below: list[Path] = []
        for folder in level:
            names, folders = _entries(folder, found)
            files += [folder / name for name in sorted(names, key=os.fsencode) if re.fullmatch(pattern, name)]
            below += [folder / entry for entry in folders]
        level = below
    found.deep = len(level)
    return files, found


def _entries(folder: Path, found: Found) -> tuple[set[str], list[str]]:
    files, folders = set(), []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.entries += 1
                if found.entries > MAX_ENTRIES:
                    raise BadInput(f"has more than {MAX_ENTRIES} files and folders", file=folder, hint="import it in parts")
                if entry.is_symlink():
                    found.links += 1
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    files.add(entry.name)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=folder, hint="check its permissions") from None
    return files, sorted(folders, key=os.fsencode)


def json_object(path: Path, limit: int = 0) -> dict[str, Any]:
    """The JSON object in a file, numbers with a point as Decimal; raises BadInput. No binary float is made of a reward."""
    limit = limit or MAX_BYTES
    try:
        if path.stat().st_size > limit:
            raise BadInput(f"is larger than {limit} bytes", file=path, hint="is this a file of results?")
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=path, hint="check its permissions") from None
    return parsed(data, path)


def parsed(data: bytes, path: Path | str) -> dict[str, Any]:
    """The JSON object in some bytes of a file, numbers with a point as Decimal; raises BadInput."""
    source = ""
    try:
        source = data.decode("utf-8")
        content = json.loads(source, parse_float=decimal.Decimal, parse_constant=decimal.Decimal)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise BadInput("is not UTF-8", file=path, line=line, hint="JSON is UTF-8") from None
    except json.JSONDecodeError as error:
        broken = "ends in the middle" if error.pos >= len(source.rstrip()) else f"is not JSON: {error.msg}"
        raise BadInput(
            broken, file=path, line=error.lineno, hint="was the run stopped while it wrote? remove the file or run the task again"
        ) from None
    except RecursionError:
        raise BadInput("is nested too deeply", file=path, hint="is this a file of results?") from None
    except (ValueError, ArithmeticError):
        raise BadInput("has a number too long to read", file=path, hint="is this a file of results?") from None
    if not isinstance(content, dict):
        raise BadInput(f"holds {kind_of(content)} where an object is expected", file=path, hint="is this a file of results?")
    return content


def text_of(content: dict[str, Any], name: str, path: Path | str, *, prefix: str = "") -> str:
    """A field that must be there, as text; raises BadInput naming it."""
    found = optional_text(content, name, path, prefix=prefix)
    if found is None:
        raise BadInput("is missing", file=path, field=prefix + name, hint="is this a file of results of that harness?")
    return found


def optional_text(content: dict[str, Any], name: str, path: Path | str, *, prefix: str = "") -> str | None:
    """A field that may be absent or null, else text; raises BadInput naming it."""
    value = content.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadInput(f"is {kind_of(value)}, not text", file=path, field=prefix + name, hint="correct it or leave the trial out")
    if not value:
        raise BadInput("is empty", file=path, field=prefix + name, hint="correct it or leave the trial out")
    return value


def inside(content: dict[str, Any], name: str, path: Path | str, prefix: str = "") -> dict[str, Any]:
    """An object that may be absent or null, which is as good as empty; raises BadInput naming it."""
    value = content.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        what, hint = f"is {kind_of(value)}, not an object", "is this a file of results of that harness?"
        raise BadInput(what, file=path, field=prefix + name, hint=hint)
    return value


def kind_of(value: object) -> str:
    """What a JSON value is, in a word or two."""
    kinds = {bool: "a boolean", int: "a number", decimal.Decimal: "a number", str: "text", list: "a list", dict: "an object"}
    return "null" if value is None else kinds.get(type(value), type(value).__name__)
