"""Generated cases: competitions from seeds, so that rules meet each other as nobody would think of. SPEC 2–5.

A seed is taken if its settlement shows something that those before it have not shown often enough; chains give each case the
settlement before it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from assay.conformance import answer
from oracle.cases import case_of, chain_of, emission_of
from oracle.random_scheme import KINDS

from .case import CaseDraft, File, case
from .shows import shows

Doc = dict[str, Any]

SINGLE, CHAINS, SPLITS = 44, 7, 24
ENOUGH = 3
"""How often a thing is shown before it is no longer looked for."""
SMALL = 3


def names(features: set[str]) -> str:
    return ", ".join(sorted(features)[:4])


def single(kind: str) -> list[CaseDraft]:
    """Cases without an earlier settlement."""
    seen: Counter[str] = Counter()
    drafts: list[CaseDraft] = []
    for seed in range(10_000):
        given = case_of(seed, kind, 1 + seed % SMALL)
        features = shows(given, answer("settle", given))
        rare = {feature for feature in features if seen[feature] < ENOUGH}
        if rare:
            seen.update(features)
            drafts.append(case(f"{kind} {seed}: {names(rare)}", given))
        if len(drafts) == SINGLE:
            break
    return drafts


def chained(kind: str) -> list[CaseDraft]:
    """Cases that follow a settlement."""
    drafts = []
    for seed in range(CHAINS):
        before: Doc | None = None
        for step, given in enumerate(chain_of(seed, kind, 1 + seed % SMALL, 3)):
            given["previous"] = before
            before = answer("settle", given)
            if step:
                drafts.append(
                    case(
                        f"{kind} chain {seed}, step {step + 1}: epoch {before['epoch']} after {given['previous']['epoch']}", given
                    )
                )
    return drafts


def splits() -> list[CaseDraft]:
    """Emission splits."""
    drafts = []
    for seed in range(SPLITS):
        given = emission_of(seed, 2)
        competitions = [{"share": competition["share"], "case": competition["case"]} for competition in given["competitions"]]
        shown = f"{len(competitions)} competitions, {given['subnet']['encoding']}"
        shown += ", unearned to the others" if "unearned" in given["subnet"] else ""
        drafts.append(case(f"split {seed}: {shown}", {"subnet": given["subnet"], "competitions": competitions}))
    return drafts


FILES = [
    *(
        File(
            f"settle-{kind}",
            "settle",
            f"Generated settlements of kind {kind}, on their own and one after another (SPEC 2–5).",
            [*single(kind), *chained(kind)],
        )
        for kind in KINDS
    ),
    File("emission-generated", "emission", "Generated emission splits (SPEC 4, Emission split).", splits()),
]
