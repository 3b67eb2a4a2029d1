"""Measures the quality of a plan's output in nanos, with one of four measures that ask no model. SPEC 2.2.

`agent`: the share of a checklist that the output meets. Items are keywords, keys of its JSON, and regular expressions.

`data_transform`: 1 if the output is structurally equal to the reference, else the share of equal fields.

- A field is a string, number, boolean, null, or an empty list or object, at its path. The share is of all paths in either value.
- If there is a schema, an output that does not fit it has quality 0. The reference always fits it.
- Numbers are compared exactly, as decimals. Patterns have a time limit. Nothing is fetched.

`rag`: ROUGE-L F1 of the output against a reference, by the library rouge-score.

- F1 = 2·L / (m + n). L is the longest common subsequence of the two texts' tokens, and m and n are the numbers of tokens.
- The library finds the tokens and L. The fraction is computed from the three integers, so no float decides it.

`code`: 0.7 × the share of passed tests + 0.3 × lint, for the files in a plan's output.

- The output is a text, which becomes the file that the task names, or an object of paths and texts.
- A test is a command in a box of its own with those files in /app. It passes if it ends with 0 and prints what is expected. The
  expected output never enters the box, so no program can find it there.
- Lint is 1 − 0.05 for each finding of ruff. The task names the version of ruff, because another version finds other things.
"""

from __future__ import annotations

import decimal
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput
from assay.exact import NANO, half_even
from assay.judge.sandbox import InfrastructureError, Limits, Sandbox
from assay.judge.workflow import limits, values
from assay.judge.workflow.call import box_limits, run_once
from assay.judge.workflow.limits import ROUGE_OUTPUT, ROUGE_REFERENCE
from assay.records import Amount
from assay.scheme.fields import Key, Section


@dataclass(frozen=True)
class QualityScore:
    """Quality in nanos, 0 … 1. `how`: the tool, settings and counts that it was computed from: JSON without floats. SPEC 2.2."""

    nanos: int
    how: dict[str, Any] = field(default_factory=dict)


NOTHING = QualityScore(0, {"output": "none"})
"""The quality of a plan without an output."""


def library(name: str) -> Any:
    """A module of the extra `workflow`; raises BadInput if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise BadInput(f"{name} is not installed", hint="pip install 'assay[workflow]'") from None


def share(part: int, whole: int) -> int:
    """part / whole as nanos, half to even."""
    return half_even(part * NANO, whole)


CheckText = Annotated[str, Field(min_length=1, max_length=4096)]


class Keyword(Section):
    """Met if the text is in the output, ignoring case."""

    kind: Literal["keyword"]
    text: CheckText


class JsonKey(Section):
    """Met if the output, as JSON, has a value at a path such as `result.items.0`, which must equal `equals` if that is set."""

    kind: Literal["json_key"]
    path: CheckText
    equals: str | int | bool | None = None


class Regex(Section):
    """Met if the expression matches somewhere in the output within its time limit. Flags are part of it, as in `(?i)`."""

    kind: Literal["regex"]
    pattern: CheckText

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        regex = library("regex")
        try:
            regex.compile(pattern)
        except regex.error as error:
            raise PydanticCustomError("assay", "is not a regular expression: {why}", {"why": str(error)}) from None
        return pattern


ChecklistItem = Annotated[Keyword | JsonKey | Regex, Field(discriminator="kind")]


def score_checklist(checks: tuple[ChecklistItem, ...], output: Any) -> QualityScore:
    """The quality of an output; `how` says for each item, in their order, whether it was met."""
    text, value = values.shown(output), _parsed(output)
    results = [_check_item(item, text, value) for item in checks]
    how: dict[str, Any] = {"met": [word for word, _ in results]}
    if any(isinstance(check, Regex) for check in checks):
        how["tool"] = f"regex {version('regex')}, {limits.REGEX_SECONDS:g} s each"
    return QualityScore(share(sum(met for _, met in results), len(checks)), how)


def _check_item(item: ChecklistItem, text: str, value: Any) -> tuple[str, bool]:
    """The verdict on an item: a word, and True if the item is met."""
    if isinstance(item, Keyword):
        met = item.text.casefold() in text.casefold()
    elif isinstance(item, JsonKey):
        try:
            at_path = values.at(value, tuple(item.path.split(".")))
        except LookupError:
            met = False
        else:
            met = "equals" not in item.model_fields_set or values.equal(at_path, item.equals)
    else:
        try:
            met = library("regex").search(item.pattern, text, timeout=limits.REGEX_SECONDS) is not None
        except TimeoutError:
            return "too slow", False
    return ("yes" if met else "no"), met


def _parsed(output: Any) -> Any:
    """The value of a text that is JSON; anything else as it is."""
    if not isinstance(output, str):
        return output
    try:
        return values.parse(output.encode())
    except BadInput:
        return output


_EXACT = decimal.Context(prec=4 * limits.NUMBER, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
_REFUSED = frozenset({"patternProperties", "$dynamicRef", "$recursiveRef"})


def check_schema(schema: Any, reference: Any) -> None:
    """Refuses what is not a schema, a schema with parts elsewhere, and one that the reference does not fit; raises BadInput."""
    if not isinstance(schema, dict):
        raise BadInput("is not a JSON object")
    for key, value in _keywords(schema):
        if key in _REFUSED or (key == "$ref" and not str(value).startswith("#")):
            raise BadInput(f"{key} {str(value)[:80]!r} cannot be used here", hint="write the schema in one file, without it")
    errors = library("jsonschema.exceptions")
    try:
        _class(schema).check_schema(schema)
    except errors.SchemaError as error:
        raise BadInput(f"is not a JSON Schema: {error.message[:200]}") from None
    why = fits(schema, reference)
    if why:
        raise BadInput(f"the reference does not fit it: {why}")


def fits(schema: Any, output: Any) -> str:
    """The reason why an output does not fit a schema; empty if it fits."""
    referencing = library("referencing")
    with decimal.localcontext(_EXACT):
        try:
            errors = _class(schema)(schema, registry=referencing.Registry()).iter_errors(output)
            first = next(iter(errors), None)
        except TimeoutError:
            return "a pattern took too long"
        except (RecursionError, referencing.exceptions.Unresolvable) as error:
            return f"it cannot be followed: {type(error).__name__}"
    return "" if first is None else f"{first.json_path}: {first.message}"[:200]


def score_data(reference: Any, schema: Any, output: Any) -> QualityScore:
    """The quality of an output. schema: None for no schema. A text that is JSON is parsed, unless the reference is a text."""
    if isinstance(output, str) and not isinstance(reference, str):
        try:
            output = values.parse(output.encode())
        except BadInput:
            return QualityScore(0, {"note": "a text that is not JSON"})
    how: dict[str, Any] = {}
    if schema is not None:
        how["tool"] = f"jsonschema {version('jsonschema')}"
        why = fits(schema, output)
        if why:
            return QualityScore(0, how | {"schema": why})
    actual, expected = dict(values.leaves(output)), dict(values.leaves(reference))
    equal = sum(path in actual and actual[path] == leaf for path, leaf in expected.items())
    fields = len(actual.keys() | expected.keys())
    return QualityScore(share(equal, fields), how | {"equal_fields": equal, "fields": fields})


def _class(schema: Any) -> Any:
    """The validator class for a schema's draft, with our own numbers, patterns and uniqueness."""
    jsonschema = library("jsonschema")
    draft = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    checker = draft.TYPE_CHECKER.redefine_many({"number": _is_number, "integer": _is_integer})
    return jsonschema.validators.extend(draft, {"pattern": _pattern, "uniqueItems": _unique}, type_checker=checker)


def _is_number(_checker: object, value: object) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_integer(_checker: object, value: object) -> bool:
    return _is_number(_checker, value) and value == int(value)  # type: ignore[call-overload]


def _pattern(_validator: object, pattern: str, value: object, _schema: object) -> Iterator[Any]:
    if isinstance(value, str) and library("regex").search(pattern, value, timeout=limits.REGEX_SECONDS) is None:
        yield library("jsonschema").ValidationError("does not match the pattern")


def _unique(_validator: object, wanted: bool, value: object, _schema: object) -> Iterator[Any]:
    if wanted and isinstance(value, list) and len({frozenset(values.leaves(item)) for item in value}) < len(value):
        yield library("jsonschema").ValidationError("has equal elements")


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        yield from schema.items()
    for inner in (schema.values() if isinstance(schema, dict) else schema) if isinstance(schema, dict | list) else ():
        yield from _keywords(inner)


SETTINGS = {"measure": "rougeL", "tokenizer": "DefaultTokenizer", "use_stemmer": False}


def tokens(text: str) -> list[str]:
    """The tokens of a text: its runs of a–z and 0–9, lower-cased. Text in other scripts has no tokens."""
    words: list[str] = library("rouge_score.tokenize").tokenize(text, None)  # as the default tokenizer, but faster to import
    return words


def check_reference(reference: str) -> None:
    """Refuses a reference without tokens, or with so many that comparing takes too long; raises BadInput."""
    count = len(tokens(reference))
    if not 0 < count <= ROUGE_REFERENCE:
        hint = "tokens are runs of a to z and 0 to 9"
        raise BadInput(f"the reference has {count} tokens; it must have from 1 to {ROUGE_REFERENCE}", hint=hint)


def score_rag(reference: str, output: Any) -> QualityScore:
    """The quality of an output; 0 for an output without tokens, or with more than `ROUGE_OUTPUT`."""
    text = values.shown(output)
    actual, expected = tokens(text), tokens(reference)
    how = {"tool": f"rouge-score {version('rouge-score')}", **SETTINGS, "reference_tokens": len(expected), "tokens": len(actual)}
    if not actual:
        return QualityScore(0, how)
    if len(actual) > ROUGE_OUTPUT:
        return QualityScore(0, how | {"note": f"more than {ROUGE_OUTPUT} tokens"})
    tokenizer = library("rouge_score.tokenizers").DefaultTokenizer(use_stemmer=SETTINGS["use_stemmer"])
    scorer = library("rouge_score.rouge_scorer").RougeScorer([SETTINGS["measure"]], tokenizer=tokenizer)
    rouge = scorer.score(reference, text)[SETTINGS["measure"]]
    common = round(rouge.precision * len(actual))  # precision is L / n, so rounding gives exactly L
    return QualityScore(share(2 * common, len(actual) + len(expected)), how | {"common": common})


APP, TESTS, LINT = "/app", "/tests", "/lint/ruff"
MEMORY_MB = 512
_FINE = 20
"""The number of findings at which lint is 0."""
_PATH = re.compile(r"(?!/)(?!.*(?:^|/)\.{1,2}(?:/|$))(?!.*//)[A-Za-z0-9_.][A-Za-z0-9_./-]{0,199}(?<!/)", re.ASCII)
_LINT_SECONDS = 60.0
_COMMAND: tuple[str, ...] = (LINT, "check", "--isolated", "--no-cache", "--ignore-noqa", "--exit-zero", "--statistics")
_COMMAND += ("--output-format", "json", "--target-version", "py311")

FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.][A-Za-z0-9_./-]{0,199}$")]
LongText = Annotated[str, Field(max_length=1_000_000)]
Word = Annotated[str, Field(pattern=r"^[^\x00]*$")]
Rule = Annotated[str, Field(pattern=r"^[A-Z]+[0-9]*$")]


class CodeTest(Section):
    """One test: a command in /app, its input, and the output that it must print; white space at the end does not count."""

    name: Key
    command: Annotated[tuple[Word, ...], Field(strict=False, min_length=1, max_length=100)]
    stdin: LongText = ""
    stdout: LongText
    seconds: Amount = 10 * NANO


class Lint(Section):
    """The version of ruff, and its rules."""

    ruff: Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+){1,3}$")]
    select: Annotated[tuple[Rule, ...], Field(strict=False, min_length=1, max_length=100)] = ("E", "F", "W")


class CodeRules(Section):
    """The table [quality] of a task of type code."""

    file: FileName = "solution.py"
    lint: Lint
    cases: Annotated[tuple[CodeTest, ...], Field(strict=False, min_length=1, max_length=limits.TESTS)]
    criteria: LongText = ""


def check_ruff(lint: Lint) -> Path:
    """The ruff that is installed here; raises BadInput if there is none, or another version than the task names."""
    program = _ruff()
    if program is None:
        raise BadInput("ruff is not installed", hint=f"pip install 'assay[workflow]' ruff=={lint.ruff}")
    installed = _version(program)
    if installed != lint.ruff:
        what = f"the task wants ruff {lint.ruff}, and {installed} is installed"
        hint = f"pip install ruff=={lint.ruff}: another version finds other things"
        raise BadInput(what, field="quality.lint.ruff", hint=hint)
    return program


def score_code(rules: CodeRules, tests: Path | None, output: Any, sandbox: Sandbox) -> QualityScore:
    """The quality of an output. tests: a folder that the commands see at /tests. Raises InfrastructureError."""
    files = _files(output, rules.file)
    if isinstance(files, str):
        return QualityScore(0, {"note": files})
    with tempfile.TemporaryDirectory(prefix="assay-code-") as folder:
        app = Path(folder) / "app"
        for path, text in files.items():
            place = app / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode())
        put = {APP: app} | ({} if tests is None else {TESTS: tests})
        results = [_run_test(case, put, sandbox) for case in rules.cases]
        findings = _count_findings(rules.lint, app, sorted(path for path in files if path.endswith(".py")), sandbox)
    passed = results.count("passed")
    how: dict[str, Any] = {
        "tool": f"ruff {rules.lint.ruff}",
        "select": list(rules.lint.select),
        "cases": {case.name: word for case, word in zip(rules.cases, results, strict=True)},
        "findings": findings,
    }
    return QualityScore(code_quality(passed, len(results), _FINE if findings is None else findings), how)


def code_quality(passed: int, tests: int, findings: int) -> int:
    """0.7·passed/tests + 0.3·max(0, 1 − 0.05·findings) in nanos, half to even, rounded once. SPEC 2.2."""
    clean = max(0, _FINE - findings)
    return half_even(NANO * (140 * passed + 3 * clean * tests), 200 * tests)


def _files(output: Any, name: str) -> dict[str, str] | str:
    """The files of an output; or why it has none."""
    files = {name: output} if isinstance(output, str) else output
    if not isinstance(files, dict) or not files or len(files) > limits.CODE_FILES:
        return f"neither a text nor an object of 1 to {limits.CODE_FILES} texts"
    for path, text in files.items():
        if not isinstance(text, str) or _PATH.fullmatch(path) is None:
            return "an object with something else than relative paths and texts"
    return "a path that is a file and a folder" if _nested(files) else files


def _nested(files: dict[str, str]) -> bool:
    folders = {"/".join(parts[:end]) for path in files for parts in [path.split("/")] for end in range(1, len(parts))}
    return bool(folders & files.keys())


def _run_test(case: CodeTest, put: dict[str, Path], sandbox: Sandbox) -> str:
    """Runs one test; returns "passed" or why it did not pass."""
    bounds = box_limits(case.seconds / NANO, MEMORY_MB, limits.OUTPUT_BYTES)
    ran, data = run_once(
        sandbox,
        sandbox.image(),
        case.command,
        bounds,
        stdin=case.stdin.encode(),
        put=put,
        env={},
        cwd=APP,
        most=limits.OUTPUT_BYTES,
    )
    if ran.stopped is not None:
        return f"bound on {ran.stopped}"
    if ran.exit_code:
        return f"exit code {ran.exit_code}"
    return "passed" if data.rstrip() == case.stdout.encode().rstrip() else "another output"


def _count_findings(lint: Lint, app: Path, names: list[str], sandbox: Sandbox) -> int | None:
    """The number of ruff's findings in the Python files; None if the files made it run into a limit."""
    if not names:
        return 0
    command = (*_COMMAND, "--select", ",".join(lint.select), "--", *names)
    bounds = Limits(_LINT_SECONDS, MEMORY_MB << 20, 64, 256 << 20, limits.OUTPUT_BYTES)
    ran, data = run_once(
        sandbox,
        sandbox.image(),
        command,
        bounds,
        stdin=b"",
        put={APP: app, LINT: check_ruff(lint)},
        env={"RAYON_NUM_THREADS": "2"},
        cwd=APP,
        most=limits.OUTPUT_BYTES,
    )
    if ran.stopped is not None:
        return None
    if ran.exit_code:
        raise InfrastructureError(f"ruff ended with {ran.exit_code}")
    try:
        return sum(int(row["count"]) for row in json.loads(data or b"[]"))  # ruff prints nothing if it finds nothing
    except (ValueError, TypeError, KeyError):
        raise InfrastructureError("the output of ruff cannot be read") from None


@cache
def _ruff() -> Path | None:
    beside = Path(sys.executable).with_name("ruff")
    program = str(beside) if beside.is_file() else shutil.which("ruff")
    return None if program is None else Path(program)


@cache
def _version(program: Path) -> str:
    try:
        words = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError) as error:
        raise InfrastructureError(f"ruff does not start: {error}", file=program) from error
    return words[1] if len(words) > 1 else ""
