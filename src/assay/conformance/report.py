"""What came of a run: how many cases passed, and which failed, where. SPEC 6."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.conformance.compare import Difference

__all__ = ["Failure", "FileReport", "Report"]


@dataclass(frozen=True)
class Failure:
    """A case that failed: its name, why in one sentence, and the first place where the answer differs, if it is one."""

    case: str
    why: str
    difference: Difference | None = None

    def __str__(self) -> str:
        return f"{self.case}: {self.why}"


@dataclass(frozen=True)
class FileReport:
    """What came of one case file."""

    path: Path
    kind: str
    about: str
    cases: int
    failures: tuple[Failure, ...]
    unsupported: int = 0
    """Cases that the implementation says it does not have: neither passed nor failed."""
    refusals: int = 0
    """Of the cases that passed, those that had to be refused."""
    shown: tuple[tuple[Any, Any], ...] = ()
    """What was expected and what came, where a single case was asked for."""

    @property
    def passed(self) -> int:
        """How many cases passed; a failure beside the cases (an exit code, say) does not count here."""
        return max(0, self.cases - self.unsupported - len(self.failures))

    def lines(self) -> list[str]:
        """A line for the file, a line for each failure under it."""
        apart = f", {self.unsupported} unsupported" if self.unsupported else ""
        said = [f"{self.path.name}: {self.passed} of {self.cases}{apart}"]
        for wanted, got in self.shown:
            said += ["expected", *_indented(wanted), "got", *_indented(got)]
        return said + [f"  FAILED {failure}" for failure in self.failures]


@dataclass(frozen=True)
class Report:
    """What came of a folder of case files; the run is good if nothing failed."""

    directory: Path
    command: str | None
    files: tuple[FileReport, ...]

    @property
    def cases(self) -> int:
        """How many cases there are."""
        return sum(one.cases for one in self.files)

    @property
    def failed(self) -> int:
        """How many failures there are."""
        return sum(len(one.failures) for one in self.files)

    @property
    def good(self) -> bool:
        """Whether nothing failed."""
        return self.failed == 0

    def document(self) -> dict[str, Any]:
        """The report for programs: what `lines` says, file by file."""
        files = [
            {"file": one.path.name, "kind": one.kind, "cases": one.cases, "passed": one.passed, "refusals": one.refusals}
            | {"unsupported": one.unsupported, "failures": [{"case": bad.case, "why": bad.why} for bad in one.failures]}
            | (
                {"shown": [{"expected": json.dumps(want), "got": json.dumps(got)} for want, got in one.shown]}
                if one.shown
                else {}
            )
            for one in self.files
        ]
        return {"good": self.good, "cases": self.cases, "failed": self.failed, "files": files}

    def lines(self) -> list[str]:
        """The report as text: a line a file, a line a failure under it, and the sum at the end.

        Outputs and refusals that are right are counted apart where not all is: to refuse everything is no achievement.
        """
        said = [line for one in self.files for line in one.lines()]
        unsupported, refusals = sum(one.unsupported for one in self.files), sum(one.refusals for one in self.files)
        outputs = sum(one.passed for one in self.files) - refusals
        end = "all pass" if self.good else f"{self.failed} failed"
        if unsupported or not self.good:
            end = f"{outputs} outputs and {refusals} refusals right, {unsupported} unsupported, {self.failed} failed"
        return [*said, f"{self.cases} cases in {len(self.files)} files: {end}"]


def _indented(value: Any) -> list[str]:
    return [f"  {line}" for line in json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True).split("\n")]
