"""Results of other harnesses as a competition: Terminal-Bench, Harbor, Inspect AI, lm-evaluation-harness, any table of trials."""

from assay.imports import harbor, inspect_ai, lm_eval, tables, terminal_bench
from assay.imports.trials import Options, Trial, Trials
from assay.imports.write import Imported, competition

__all__ = ["Imported", "Options", "Trial", "Trials", "competition", "harbor", "inspect_ai", "lm_eval", "tables", "terminal_bench"]
