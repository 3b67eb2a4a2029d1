"""Assay turns evidence about submissions into scores, weights and payouts that anyone can recompute to the bit.

    import assay
    competition = assay.open("my-competition")      # scheme, registry, evidence; validated
    result = competition.settle(epoch=12)           # pure: a Settlement, with every intermediate value
    result.ranking[0], result.weights["miner-7"].u16
    print(result.explain("miner-7"))                # the same story that the command line tells
    result.to_arrow().weights                       # tables for polars, pandas, DuckDB
    assay.verify("epoch-12", key="example.org/…")   # an exported epoch: everything is checked and computed again

Each stage can be used by itself, for example `assay.settle.consensus.agree`. Importing `assay` is cheap: what a name needs is
imported when the name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.competition import Competition, emission
    from assay.competition import open_competition as open
    from assay.errors import AssayError, BadInput, CannotSettle, Refused
    from assay.ledger.verify import Verified, verify
    from assay.scheme.model import Scheme
    from assay.settle import Settlement
    from assay.settle.emission import Emission
    from assay.settle.story import Explanation

    __version__: str

__all__ = [
    "AssayError",
    "BadInput",
    "CannotSettle",
    "Competition",
    "Emission",
    "Explanation",
    "Refused",
    "Scheme",
    "Settlement",
    "Verified",
    "__version__",
    "emission",
    "open",
    "verify",
]

_HOMES = {
    "AssayError": "assay.errors",
    "BadInput": "assay.errors",
    "CannotSettle": "assay.errors",
    "Competition": "assay.competition",
    "Emission": "assay.settle.emission",
    "Explanation": "assay.settle.story",
    "Refused": "assay.errors",
    "Scheme": "assay.scheme.model",
    "Settlement": "assay.settle",
    "Verified": "assay.ledger.verify",
    "emission": "assay.competition",
    "open": "assay.competition:open_competition",
    "verify": "assay.ledger.verify",
}
"""Public name → the module that has it; after a colon its name there, if that differs."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("assay")
    elif name in _HOMES:
        module, _, own = _HOMES[name].partition(":")
        value = getattr(importlib.import_module(module), own or name)
    else:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
