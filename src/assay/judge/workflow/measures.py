"""Chooses the measure of quality by a task's type, and reads its reference. SPEC 2.2.

A task without a reference, or with an empty checklist, is refused when it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import Field

from assay.errors import BadInput
from assay.folder.files import decode, load
from assay.judge.sandbox import Sandbox
from assay.judge.workflow import limits, values
from assay.judge.workflow.quality import (
    ChecklistItem,
    CodeRules,
    QualityScore,
    check_reference,
    check_ruff,
    check_schema,
    score_checklist,
    score_code,
    score_data,
    score_rag,
)
from assay.scheme.fields import Section
from assay.scheme.reading import line_of, validate

S = TypeVar("S", bound=Section)
_TAG = re.compile(r"^(checks\[[0-9]+\])\.(?:keyword|json_key|regex)\b")
"""Pydantic puts the kind of a check into the path of its fields; the file has no such part."""
_PART = re.compile(r"[^.\[\]]+")
REFERENCE, SCHEMA, TESTS = "reference", "schema.json", "tests"


class Measure(Protocol):
    """A measure of quality."""

    @property
    def boxed(self) -> bool:
        """Whether it needs a sandbox."""

    def ready(self) -> None:
        """Refuses, before the first output, a setting that would make every output an error; raises BadInput."""

    def public(self) -> dict[str, Any]:
        """The part that a planner sees: criteria, and nothing of the reference."""

    def score(self, output: Any, sandbox: Sandbox | None) -> QualityScore:
        """The quality of an output; raises InfrastructureError."""


class _CriteriaTable(Section):
    criteria: Annotated[str, Field(max_length=100_000)] = ""


class _ChecklistTable(Section):
    criteria: Annotated[str, Field(max_length=100_000)] = ""
    checks: Annotated[tuple[ChecklistItem, ...], Field(strict=False, min_length=1, max_length=limits.CHECKS)]


def read_measure(kind: str, table: dict[str, Any], folder: Path, *, file: Path, source: str) -> Measure:
    """The measure of a task of this type; raises BadInput with file, line and field."""

    def section(model: type[S]) -> S:
        try:
            return validate(model, table, file=file)
        except BadInput as error:
            field = _TAG.sub(r"\1", error.field)
            error.field = f"quality.{field}" if field else "quality"
            error.line = line_of(source, [int(part) if part.isdigit() else part for part in _PART.findall(error.field)])
            raise

    if kind == "code":
        tests = folder / TESTS
        return _CodeMeasure(section(CodeRules), tests if tests.is_dir() else None)
    if kind == "agent":
        checklist = section(_ChecklistTable)
        return _AgentMeasure(checklist.checks, checklist.criteria)
    criteria = section(_CriteriaTable).criteria
    if kind == "rag":
        file = folder / f"{REFERENCE}.txt"
        reference = decode(_load(file), file)
        try:
            check_reference(reference)
        except BadInput as error:
            raise error.at(file=file) from None
        return _RagMeasure(reference, criteria)
    return _read_data_measure(folder, criteria)


def _read_data_measure(folder: Path, criteria: str) -> Measure:
    reference = _load_json(folder / f"{REFERENCE}.json")
    file = folder / SCHEMA
    if not file.exists():
        return _DataMeasure(reference, None, criteria)
    schema = _load_json(file)
    try:
        check_schema(schema, reference)
    except BadInput as error:
        raise error.at(file=file) from None
    return _DataMeasure(reference, schema, criteria)


def _load(file: Path) -> bytes:
    return load(file, limits.TASK_BYTES, hint="a task without a reference cannot be judged: write what the output should be")


def _load_json(file: Path) -> Any:
    try:
        return values.parse(_load(file))
    except BadInput as error:
        raise error.at(file=file) from None


@dataclass(frozen=True)
class _CodeMeasure:
    rules: CodeRules
    tests: Path | None
    boxed = True

    def ready(self) -> None:
        check_ruff(self.rules.lint)

    def public(self) -> dict[str, Any]:
        lint = {"ruff": self.rules.lint.ruff, "select": list(self.rules.lint.select)}
        return {"criteria": self.rules.criteria, "file": self.rules.file, "cases": len(self.rules.cases), "lint": lint}

    def score(self, output: Any, sandbox: Sandbox | None) -> QualityScore:
        if sandbox is None:
            raise BadInput("tests of code need a sandbox", field="sandbox")
        return score_code(self.rules, self.tests, output, sandbox)


@dataclass(frozen=True)
class _RagMeasure:
    reference: str
    criteria: str
    boxed = False

    def ready(self) -> None:
        pass

    def public(self) -> dict[str, Any]:
        return {"criteria": self.criteria, "measure": "ROUGE-L F1"}

    def score(self, output: Any, sandbox: Sandbox | None) -> QualityScore:
        return score_rag(self.reference, output)


@dataclass(frozen=True)
class _AgentMeasure:
    checks: tuple[ChecklistItem, ...]
    criteria: str
    boxed = False

    def ready(self) -> None:
        pass

    def public(self) -> dict[str, Any]:
        return {"criteria": self.criteria, "checks": len(self.checks)}

    def score(self, output: Any, sandbox: Sandbox | None) -> QualityScore:
        return score_checklist(self.checks, output)


@dataclass(frozen=True)
class _DataMeasure:
    reference: Any
    schema: Any
    criteria: str
    boxed = False

    def ready(self) -> None:
        pass

    def public(self) -> dict[str, Any]:
        public = {"criteria": self.criteria}
        return public if self.schema is None else public | {"schema": values.dumps(self.schema).decode()}

    def score(self, output: Any, sandbox: Sandbox | None) -> QualityScore:
        return score_data(self.reference, self.schema, output)
