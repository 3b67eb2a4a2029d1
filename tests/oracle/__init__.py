"""A slow, obvious oracle of Assay's settlement, written from the specification with `fractions.Fraction`.

It shares no code with the package and never imports it. It trusts its input: a case must be valid (what SPEC
refuses, it does not refuse). Loops and dicts, exact rationals throughout, rounding only where SPEC 1 rounds.

    settle(case)    -> the settlement document ("assay.settlement/1") without `digest` and without `scheme.digest`.
    emission(case)  -> the emission split of a subnet (SPEC 4), without `digest`.

A settle case: {"scheme", "epoch", "participants", "validators", "tasks", "history", "randomness", "evidence", "previous"};
missing keys mean empty (or null for `epoch` and `previous`). Defaults of SPEC 7 are filled in here.

An emission case: {"subnet": {"encoding", "burn_uid", "emission", "unearned"}, "competitions": [{"name", "share", "case"}]}, each
`case` being a settle case: the competitions are settled inside, because the split needs their exact shares.

Random valid cases are in `oracle.cases`: `cases()`, `chain()` and `emissions()` are Hypothesis strategies.
"""

from .pipeline import settle
from .split import emission

__all__ = ["emission", "settle"]
