"""Reading scheme files: TOML in, a `Scheme` or one helpful refusal out. SPEC 7."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from assay import exact
from assay.errors import BadInput, brief
from assay.scheme.fields import PRINTABLE
from assay.scheme.files import opened, present
from assay.scheme.model import Scheme

__all__ = ["BOUNTY", "MAX_BYTES", "line_of", "parse", "presets", "read", "read_toml", "refusal", "validate", "warnings"]

MAX_BYTES = 1_000_000
"""A scheme file is refused above this size."""

BOUNTY = "bounty.toml"
"""The file of a bounty, beside its scheme; `assay.scheme.bounty` reads the whole of it."""
SECTIONS = ("problem", "bounty", "checks", "payout", "judge", "enclave")
"""What it may hold."""

BOM = b"\xef\xbb\xbf"
M = TypeVar("M", bound=BaseModel)


def read(path: Path) -> Scheme:
    """The scheme in a TOML file, checks and payout from a `bounty.toml` beside it if there is one; raises BadInput. SPEC 7."""
    content, source = read_toml(path)
    bounty = path.with_name(BOUNTY)
    score = content.get("score")
    if present(bounty) and isinstance(score, dict) and score.get("kind") == "rubric":
        return _with_bounty(content, source, path, bounty)
    return validate(Scheme, content, file=path, source=source)


def _with_bounty(content: dict[str, Any], source: str, path: Path, bounty: Path) -> Scheme:
    extra, text = read_toml(bounty)
    score = content["score"]
    for name in extra:
        if name not in SECTIONS:
            close = difflib.get_close_matches(name[:80], SECTIONS, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"use {', '.join(SECTIONS)}"
            raise BadInput(f"there is no {name[:80]!r} here", file=bounty, line=line_of(text, [name]), field=name, hint=hint)
    for name, already in (("checks", "checks" in score), ("payout", "payout" in content)):
        if name in extra and already:
            what, hint = f"stands in {path.name} too", "keep it in one of the two files"
            raise BadInput(what, file=bounty, line=line_of(text, [name]), field=name, hint=hint)
    merged = content | {"score": score | {key: extra[key] for key in ("checks",) if key in extra}}
    merged |= {key: extra[key] for key in ("payout",) if key in extra}
    try:
        return validate(Scheme, merged, file=path, source=source)
    except BadInput as error:
        field = error.field.removeprefix("score.")
        if field == "score" and "checks" in extra:
            field = "checks"  # what is wrong with a rubric as a whole is wrong with its checks
        section = re.split(r"[.\[]", field)[0]
        if section in extra or (section == "checks" and "checks" not in score):
            error.file, error.field, error.line = bounty, field, line_of(text, _parts(field))
        raise


def _parts(field: str) -> list[int | str]:
    """The path that `_path` wrote: `checks[3].weight` is checks, 3, weight."""
    return [int(part[1:-1]) if part.startswith("[") else part for part in re.findall(r"\[\d+\]|[^.\[\]]+", field)]


def parse(source: str, *, file: Path | str | None = None) -> Scheme:
    """The scheme in a TOML text; raises BadInput."""
    return validate(Scheme, _toml(source, file), file=file, source=source)


def presets() -> dict[str, str]:
    """The schemes that ship with the package: name → text of the file."""
    folder = resources.files("assay.scheme") / "presets"
    found = {
        item.name.removesuffix(".toml"): item.read_text(encoding="utf-8")
        for item in folder.iterdir()
        if item.name.endswith(".toml")
    }
    return dict(sorted(found.items()))


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
        raise BadInput(f"cannot be read ({why})", file=path, hint="check its permissions and that it is a file") from None
    return _toml(source, path), source


def _toml(source: str, file: Path | str | None) -> dict[str, Any]:
    try:
        return tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        what = re.sub(r" \(at .*\)$", "", str(error))
        line = int(found[1]) if found else source.count("\n") + 1
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
        raise refusal(error, model, file=file, source=source) from None


def refusal(error: ValidationError, model: type[BaseModel], *, file: Path | str | None = None, source: str = "") -> BadInput:
    """What pydantic found first, as one BadInput: field path, line in the file, and a did-you-mean for keys it does not know."""
    faults = error.errors(include_url=False)
    fault = min(faults, key=lambda f: f["type"] != "extra_forbidden")  # a typo explains the "missing" beside it
    path = [part for place, part in enumerate(fault["loc"]) if place > 1 or part not in KINDS]
    what, hint = fault["msg"], ""
    if fault["type"] == "extra_forbidden":
        known = _fields(model, fault["loc"])
        close = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
        what = f"there is no field {str(path[-1])[:80]!r} here"
        hint = f"did you mean {close[0]!r}?" if close else f"the fields are {', '.join(known)}"
    elif fault["type"] == "assay":
        what, _, hint = fault["msg"].partition("; ")
    elif fault["type"] == "missing":
        what, hint = "is missing", "add it"
    elif fault["type"] == "literal_error":
        what, hint = f"is {brief(fault['input'])}", f"use one of {fault['ctx']['expected']}"
    elif fault["type"].startswith("union_tag"):
        path.append("kind")
        tags = re.findall("'([^']*)'", fault.get("ctx", {}).get("expected_tags", "")) or KINDS
        what, hint = "is missing or unknown", f"use one of {', '.join(sorted(tags))}"
    elif fault["type"] in NOT_A:
        what, hint = f"is {brief(fault['input'])}", f"it must be {NOT_A[fault['type']]}"
    elif fault["type"] == "string_pattern_mismatch" and fault["ctx"]["pattern"] == PRINTABLE:
        what, hint = (
            f"{brief(fault['input'])} has a character that cannot be printed",
            "write it in one line, without it",
        )
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
KINDS = frozenset({"tests", "workflow", "rubric", "points", "given"})


def line_of(source: str, path: Sequence[int | str]) -> int | None:
    """The line (from 1) of a TOML text on which a field, or else its section, stands; None if neither is found."""
    section: list[str] = []
    best, depth, repeated = None, 0, 0
    wanted = [str(part) for part in path if isinstance(part, str)]
    index = next((part for part in path if isinstance(part, int)), 0)
    for number, row in enumerate(source.splitlines(), start=1):
        head = re.match(r"(\[\[?)([^\[\]]+)\]", row.lstrip())  # linear, whatever the row
        if head:
            section = [part.strip().strip("\"'") for part in head[2].split(".")]
            repeated = repeated + 1 if head[1] == "[[" and section == wanted[: len(section)] else 0
            here = section
        else:
            found = re.match(r"\s*([A-Za-z0-9_\-]+|\"[^\"]*\"|'[^']*')\s*=", row)
            if not found:
                continue
            here = [*section, found[1].strip("\"'")]
        if here == wanted[: len(here)] and len(here) > depth and (not repeated or repeated == index + 1):
            best, depth = number, len(here)
    return best


def _fields(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """The names that may stand at a path of a model."""
    here: Any = model
    for part in loc[: len(loc) - 1]:
        if isinstance(part, int):
            continue
        if isinstance(here, type) and issubclass(here, BaseModel) and part in here.model_fields:
            here = _models(here.model_fields[part].annotation)
        elif isinstance(here, list):
            here = next((m for m in here if part in _tags(m)), here)
        if isinstance(here, list) and len(here) == 1:
            here = here[0]
    one = here[0] if isinstance(here, list) and here else here
    return list(one.model_fields) if isinstance(one, type) and issubclass(one, BaseModel) else []


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


def warnings(scheme: Scheme) -> list[str]:
    """What is allowed and yet probably not meant: shown by the loader, never an error. SPEC 3, 8."""
    said = []
    outliers = scheme.consensus.outliers
    blind = outliers.threshold**2 // exact.NANO**2 + 1  # |z| of n is at most √(n − 1); of fewer than three nobody is flagged
    if outliers.method == "z" and blind >= max(3, scheme.consensus.min_validators):
        said.append(
            f'consensus.outliers: method = "z" with threshold = "{exact.text(outliers.threshold)}" cannot flag anyone '
            f'among {blind} validators or fewer; "modified-z" can'
        )
    assign, least = scheme.consensus.assign, scheme.consensus.min_validators
    if assign is not None and assign < least:
        said.append(f"consensus: assign = {assign} draws fewer than min_validators = {least}, so nobody can have an agreed score")
    if scheme.score.kind == "rubric" and all(check.skippable for check in scheme.score.checks):
        said.append("score.checks: every check is skippable, so an EXCEPTIONAL verdict gives full marks for nothing")
    if scheme.decay is not None and scheme.decay.curve != "none" and scheme.decay.rate == 0:
        said.append("decay.rate is 0, so nothing ever decays")
    return said
