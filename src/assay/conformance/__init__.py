"""Conformance: cases that any implementation can run, each an input and what must come out of it. SPEC 6.

    report = run(Path("conformance"))                               # answered by Assay itself
    report = run(Path("conformance"), "node validator.js --cases")  # by another implementation
    report.good, report.lines()

The cases are in the folder `conformance/` of the project; `docs/conformance.md` explains how to run and read them.
"""

from assay.conformance.cases import Case, CaseFile, Difference, Failure, FileReport, RunReport, differences, files, read
from assay.conformance.kinds import KINDS, CaseKind
from assay.conformance.runner import answer, run, serve

__all__ = [
    "KINDS",
    "Case",
    "CaseFile",
    "CaseKind",
    "Difference",
    "Failure",
    "FileReport",
    "RunReport",
    "answer",
    "differences",
    "files",
    "read",
    "run",
    "serve",
]
