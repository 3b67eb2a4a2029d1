"""Imports the results of other harnesses: Terminal-Bench, Harbor, Inspect AI, lm-evaluation-harness, and CSV tables."""

from assay.imports import harbor, inspect_ai, lm_eval, tables, terminal_bench
from assay.imports.trials import ImportOptions, Trial, Trials
from assay.imports.write import ImportedCompetition, competition

__all__ = [
    "ImportOptions",
    "Imported",
    "ImportedCompetition",
    "Options",
    "Trial",
    "Trials",
    "competition",
    "harbor",
    "inspect_ai",
    "lm_eval",
    "tables",
    "terminal_bench",
]

Imported = ImportedCompetition
"""The name of `ImportedCompetition` in earlier versions."""
Options = ImportOptions
"""The name of `ImportOptions` in earlier versions."""
