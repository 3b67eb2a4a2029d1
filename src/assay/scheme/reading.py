"""Reading TOML that people write: a file becomes a model, or one helpful refusal with field and line. SPEC 7."""

from __future__ import annotations

import errno
import re
import stat
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from assay import kind as kinds
from assay.errors import BadInput, brief, suggest

__all__ = [
    "MAX_BYTES",
    "check_file",
    "line_of",
    "opened",
    "parse_toml",
    "present",
    "read_toml",
    "refusal",
    "union_tag",
    "validate",
]


def opened(path: Path) -> BinaryIO:
    """Open the file for reading; raises OSError as `check_file` does."""
    check_file(path)
    return path.open("rb")


def check_file(path: Path) -> None:
    """Raise OSError for a pipe or a device, which might never end, unless its path begins with /dev."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode) and path.parts[:2] != ("/", "dev"):
        raise OSError(errno.EINVAL, "it is a pipe or a device")


def present(path: Path) -> bool:
    """Whether something has that name. A broken link counts: it is refused when it is read, not taken for a missing file."""
    return path.exists() or path.is_symlink()


MAX_BYTES = 1_000_000
"""A larger file of rules is refused."""

BOM = b"\xef\xbb\xbf"
M = TypeVar("M", bound=BaseModel)


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """The content and the text of a TOML file; raises BadInput if it is missing, too large, not UTF-8 or not TOML."""
    try:
        with opened(path) as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise BadInput(
                f"is larger than {MAX_BYTES} bytes", file=path, hint="a file of rules is a few kilobytes; is this the right one?"
            )
        source = data.removeprefix(BOM).decode("utf-8")
    except FileNotFoundError:
        raise BadInput(
            "no such file", file=path, hint="`assay init --preset NAME DIR` makes a competition to start from"
        ) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise BadInput("is not UTF-8", file=path, line=line, hint="save the file as UTF-8") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(
            f"cannot be read ({why})", file=path, hint="check the path, its permissions, and that it is a file"
        ) from None
    return parse_toml(source, path), source


def parse_toml(source: str, file: Path | str | None) -> dict[str, Any]:
    """The content of a TOML text; raises BadInput."""
    try:
        return tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at line ([0-9]+), column [0-9]+\)", str(error))
        what = re.sub(r" \(at .*\)$", "", str(error))
        line = int(match[1]) if match else source.count("\n") + 1
        raise BadInput(
            f"is not TOML: {what}", file=file, line=line, hint="fix the line; https://toml.io shows how it is written"
        ) from None
    except ValueError:  # int() has a limit of its own
        raise BadInput("has an integer of thousands of digits", file=file, hint="write large amounts in quotes") from None
    except RecursionError:
        raise BadInput("is nested too deeply", file=file, hint="a scheme has two levels") from None


def validate(model: type[M], content: Any, *, file: Path | str | None = None, source: str = "") -> M:
    """The content as a model; raises BadInput for its first fault, with the field, its line and what to do."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise refusal(error, model, file=file, source=source, content=content) from None


def refusal(
    error: ValidationError, model: type[BaseModel], *, file: Path | str | None = None, source: str = "", content: Any = None
) -> BadInput:
    """What pydantic found first, as one BadInput: field path, line in the file, and a did-you-mean for keys it does not know."""
    faults = error.errors(include_url=False)
    fault = min(faults, key=lambda f: f["type"] != "extra_forbidden")  # a typo explains the "missing" beside it
    path = [*fault["loc"]]
    what, hint = fault["msg"], ""
    if fault["type"] == "extra_forbidden":
        known = _fields(model, fault["loc"], content)
        what = f"there is no field {str(path[-1])[:80]!r} here"
        hint = suggest(str(path[-1]), known, f"the fields are {', '.join(known)}")
    elif fault["type"] == "assay":
        what, _, hint = fault["msg"].partition("; ")
    elif fault["type"] == "missing":
        what, hint = "is missing", "add it"
    elif fault["type"] == "literal_error":
        what, hint = f"is {brief(fault['input'])}", f"use one of {fault['ctx']['expected']}"
    elif fault["type"].startswith("union_tag"):
        path.append("kind")
        what, hint = UNKNOWN, _one_of(re.findall("'([^']*)'", fault.get("ctx", {}).get("expected_tags", "")))
    elif fault["type"] in NOT_A:
        what, hint = f"is {brief(fault['input'])}", f"it must be {NOT_A[fault['type']]}"
    elif fault["type"] == "too_short":
        what, hint = "is empty", "put at least one in"
    elif fault["type"] == "too_long":
        what, hint = f"has more than {fault['ctx']['max_length']} entries", "remove some"
    else:
        what = f"{brief(fault['input'])}: {fault['msg'][0].lower()}{fault['msg'][1:]}"
    return BadInput(what, file=file, line=line_of(source, path), field=_path(path), hint=hint)


NOT_A = {
    "tuple_type": "a list",
    "list_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
} | dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "a section with fields of its own")
UNKNOWN = "is missing or unknown"


def union_tag(field: str) -> BadInput:
    """The refusal of a record whose kind is missing or unknown."""
    return BadInput(UNKNOWN, field=field, hint=_one_of(()))


def _one_of(tags: Sequence[str]) -> str:
    return f"use one of {', '.join(sorted(tags or kinds.names()))}"


def line_of(source: str, path: Sequence[int | str]) -> int | None:
    """The line (from 1) of a TOML text on which a field, or else its section, stands; None if neither is found."""
    section: list[str] = []
    best, depth, repeated = None, 0, 0
    wanted = [str(part) for part in path if isinstance(part, str)]
    index = next((part for part in path if isinstance(part, int)), 0)
    for number, row in enumerate(source.split("\n"), start=1):
        head = re.match(r"(\[\[?)([^\[\]]+)\]", row.lstrip())  # linear, whatever the row
        if head:
            section = [part.strip().strip("\"'") for part in head[2].split(".")]
            repeated = repeated + 1 if head[1] == "[[" and section == wanted[: len(section)] else 0
            here = section
        else:
            match = re.match(r"\s*([A-Za-z0-9_\-]+|\"[^\"]*\"|'[^']*')\s*=", row)
            if not match:
                continue
            here = [*section, match[1].strip("\"'")]
        if here == wanted[: len(here)] and len(here) > depth and (not repeated or repeated == index + 1):
            best, depth = number, len(here)
    return best


def _fields(model: type[BaseModel], loc: Sequence[int | str], content: Any) -> list[str]:
    """The field names at a path of a model; the content says which model if a kind decides it."""
    here: Any = model
    for part in loc[: len(loc) - 1]:
        if isinstance(part, int):
            continue
        content = content.get(part) if isinstance(content, dict) else None
        if isinstance(here, type) and issubclass(here, BaseModel) and part in here.model_fields:
            here = _models(here.model_fields[part].annotation)
        elif isinstance(here, list):
            here = next((m for m in here if part in _tags(m)), here)
        if isinstance(here, list) and len(here) > 1 and isinstance(content, dict) and kinds.known(content.get("kind")):
            here = kinds.find(content["kind"]).rules
        if isinstance(here, list) and len(here) == 1:
            here = here[0]
    section_model = here[0] if isinstance(here, list) and here else here
    return list(section_model.model_fields) if isinstance(section_model, type) and issubclass(section_model, BaseModel) else []


def _models(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _tags(model: Any) -> tuple[str, ...]:
    kind = model.model_fields.get("kind")
    return get_args(kind.annotation) if kind else ()


def _path(path: Sequence[int | str]) -> str:
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else str(part)
    return out
