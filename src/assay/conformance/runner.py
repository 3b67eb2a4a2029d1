"""Running cases: by Assay itself, or by another implementation. SPEC 6."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.conformance import cases as case_files
from assay.conformance import outside
from assay.conformance.cases import Case, CaseFile
from assay.conformance.compare import differences
from assay.conformance.kinds import KINDS
from assay.conformance.outside import Failed
from assay.conformance.report import Failure, FileReport, Report
from assay.errors import MISSING, AssayError, BadInput

__all__ = ["REFUSED", "UNSUPPORTED", "answer", "refusal", "run"]

REFUSED = {"refused": True}
"""The answer to an input from which nothing follows."""
UNSUPPORTED = {"unsupported": True}
"""The answer of an implementation that does not have this kind, or this part of it: neither right nor wrong."""


def answer(kind: str, given: Any) -> Any:
    """What Assay answers to the input of a case; raises BadInput or CannotSettle where it refuses, or the kind is unknown."""
    found = KINDS.get(kind)
    if found is None:
        raise BadInput(f"there is no kind {str(kind)[:60]!r}", field="kind", hint=f"use one of {', '.join(KINDS)}")
    return found.answer(given)


def run(directory: Path, command: str | None = None, *, seconds: float = outside.SECONDS, case: str | None = None) -> Report:
    """Every case of a folder or a file, answered by Assay or by a command that is started once a file. SPEC 6.

    Raises BadInput for a file that is no case file and a command that cannot run. `seconds`: how long an answer may take.
    `case`: only those of that name; the report then shows what was expected and what came.
    """
    found = case_files.files(directory)
    if case is not None:
        found = [replace(one, cases=tuple(each for each in one.cases if each.name == case)) for one in found]
        found = [one for one in found if one.cases]
        if not found:
            raise BadInput(f"there is no case {case[:80]!r}", file=directory, hint="give the name as the report has it")
    words = None if command is None else outside.words(command)
    asked = ((one, _own(one) if words is None else _other(words, one, seconds)) for one in found)
    reports = [_ran(one, answers, shown=case is not None) for one, answers in asked]
    return Report(directory, command, tuple(reports))


def _own(file: CaseFile) -> Iterator[Any]:
    for one in file.cases:
        try:
            yield answer(file.kind, one.input)
        except AssayError as error:
            yield refusal(error)


def _other(words: list[str], file: CaseFile, seconds: float) -> Iterator[Any]:
    return outside.answers(words, file.kind, [one.text for one in file.cases], seconds)


def refusal(error: AssayError) -> dict[str, Any]:
    """The answer to an input that is refused: the code is compared, the words are for people."""
    if error.reason_code == MISSING:
        return UNSUPPORTED
    return {**REFUSED, "code": error.reason_code, "why": str(error)}


def _ran(file: CaseFile, answers: Iterable[Any], *, shown: bool) -> FileReport:
    failures: list[Failure] = []
    pairs: list[tuple[Any, Any]] = []
    refusals = unsupported = 0
    asked = iter(file.cases)
    for given in answers:
        one = next(asked, None)
        if one is None:
            failures.append(Failure("(after the last case)", given.why))
            continue
        if shown:
            wanted = {**REFUSED, "code": one.code, "why": one.why} if one.refused else one.output
            pairs.append((wanted, {"failed": given.why} if isinstance(given, Failed) else given))
        if given == UNSUPPORTED:
            unsupported += 1
        elif (failure := _judged(one, given)) is not None:
            failures.append(failure)
        else:
            refusals += one.refused
    cases = len(file.cases)
    return FileReport(file.path, file.kind, file.about, cases, tuple(failures), unsupported, refusals, tuple(pairs))


def _judged(one: Case, given: Any) -> Failure | None:
    if isinstance(given, Failed):
        return Failure(one.name, given.why)
    refused = isinstance(given, dict) and given.get("refused") is True
    if one.refused and refused:
        code = given.get("code", one.code)
        right = code == one.code or not one.code
        return (
            None if right else Failure(one.name, f"it is refused for {str(code)[:80]!r}, and must be for {one.code!r}: {one.why}")
        )
    if one.refused:
        return Failure(one.name, f"it must be refused: {one.why}")
    if refused:
        why = given.get("why")
        return Failure(one.name, f"it is refused ({why})" if isinstance(why, str) else "it is refused, and must not be")
    for difference in differences(one.output, given):
        return Failure(one.name, str(difference), difference)
    return None
