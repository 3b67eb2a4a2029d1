"""`rag`: ROUGE-L F1 of the output against a reference, by the library rouge-score. SPEC 2.2.

F1 = 2·L / (m + n): L is the longest common subsequence of the two texts' tokens, m and n are how many tokens they have. The
library finds tokens and L; the fraction is made of the three integers, so that no float decides it.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from assay.errors import BadInput
from assay.judge.workflow import values
from assay.judge.workflow.libraries import library
from assay.judge.workflow.limits import ROUGE_OUTPUT, ROUGE_REFERENCE
from assay.judge.workflow.quality.scored import Scored, share

__all__ = ["check_reference", "score", "tokens"]

SETTINGS = {"measure": "rougeL", "tokenizer": "DefaultTokenizer", "use_stemmer": False}


def tokens(text: str) -> list[str]:
    """The tokens of a text: its runs of a–z and 0–9, lower-cased. Other scripts have none."""
    found: list[str] = library("rouge_score.tokenize").tokenize(text, None)  # what the default tokenizer does, and loads sooner
    return found


def check_reference(reference: str) -> None:
    """Refuse a reference that nothing can be like, or that takes too long to compare with; raises BadInput."""
    count = len(tokens(reference))
    if not 0 < count <= ROUGE_REFERENCE:
        hint = "tokens are runs of a to z and 0 to 9"
        raise BadInput(f"the reference has {count} tokens; it must have from 1 to {ROUGE_REFERENCE}", hint=hint)


def score(reference: str, output: Any) -> Scored:
    """The quality of an output; 0 for one that has no token, or too many to be worth comparing."""
    text = values.shown(output)
    mine, wanted = tokens(text), tokens(reference)
    how = {"tool": f"rouge-score {version('rouge-score')}", **SETTINGS, "reference_tokens": len(wanted), "tokens": len(mine)}
    if not mine:
        return Scored(0, how)
    if len(mine) > ROUGE_OUTPUT:
        return Scored(0, how | {"note": f"more than {ROUGE_OUTPUT} tokens"})
    tokenizer = library("rouge_score.tokenizers").DefaultTokenizer(use_stemmer=SETTINGS["use_stemmer"])
    scorer = library("rouge_score.rouge_scorer").RougeScorer([SETTINGS["measure"]], tokenizer=tokenizer)
    found = scorer.score(reference, text)[SETTINGS["measure"]]
    common = round(found.precision * len(mine))  # precision is L / n, so this is L, whatever the float lost
    return Scored(share(2 * common, len(mine) + len(wanted)), how | {"common": common})
