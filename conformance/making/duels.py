"""Cases of duels: a challenger against a king, pair by pair, in the order that a receipt gives. SPEC 7, `[duel]`."""

from __future__ import annotations

from random import Random
from typing import Any

from oracle.duel import order

from .case import CaseDraft, File, case, refused

Doc = dict[str, Any]
SEED = "sha256:" + "0123456789abcdef" * 4
NAMES = {"+": ("pass", "fail"), "-": ("fail", "pass"), "=": ("pass", "pass"), "0": ("timeout", "fail"), "e": ("error", "pass")}
"""What challenger and king do: better, worse, both pass, neither, and an error."""


def given(outcomes: str, pairs: int, *, trials: int = 1, challengers: int = 1, seed: str = SEED, **rules: Any) -> Doc:
    """A duel of so many tasks in which the pairs, in the duel's own order, go like this; "." has no record."""
    document: Doc = {"duel": rules, "receipt": seed, "challenger": "sha256:c", "king": "sha256:k", "trials": trials}
    document |= {"tasks": [f"t{number}" for number in range(1, pairs // trials + 1)], "challengers": challengers}
    rows = [
        {"task": task, "trial": trial, "challenger": NAMES[letter][0], "king": NAMES[letter][1]}
        for (task, trial), letter in zip(order(document), outcomes, strict=False)
        if letter != "."
    ]
    return document | {"results": rows}


def fought(name: str, outcomes: str, pairs: int, winner: str | None, by: str | None, steps: int, **more: Any) -> CaseDraft:
    expect: Doc = {"winner": winner, "by": by, "pairs": pairs, "path": [{}] * steps}
    return case(name, given(outcomes, pairs, **more), expect)


def mixed(seed: int, pairs: int, ahead: float, **more: Any) -> CaseDraft:
    r = Random(seed)
    outcomes = "".join(r.choices("+-=0", [ahead, 0.3, 0.3, 0.2], k=pairs))
    return case(f"drawn {seed}", given(outcomes, pairs, **more))


DRAWN: list[tuple[float, Doc]] = [
    (0.3, {}),
    (0.5, {}),
    (0.2, {}),
    (0.4, {"margin": "5%"}),
    (0.6, {"margin": "12.5%", "challengers": 3}),
    (0.3, {"trials": 5}),
]
DUELS = [
    fought("nothing judged yet", "", 4, None, None, 0),
    fought("one pair is all there is: better", "+", 1, "challenger", "certainty", 1),
    fought("one pair is all there is: equal is not better", "=", 1, "king", "certainty", 1),
    fought("the full count, to the last pair", "+-+-+", 5, "challenger", "certainty", 5),
    fought("the king stays if both are equal", "+-+-", 4, "king", "certainty", 4),
    fought("certain before the end", "+++", 5, "challenger", "certainty", 3),
    fought("the king, before the end", "---", 5, "king", "certainty", 3),
    fought("equal is enough for the king", "-=-=", 6, "king", "certainty", 4),
    fought("wealth decides", "+" * 12, 40, "challenger", "wealth", 7),
    fought("wealth of the king decides", "-" * 12, 40, "king", "wealth", 7),
    fought("what comes after the end is not looked at", "+" * 40, 40, "challenger", "wealth", 7),
    fought("a smaller alpha takes longer", "+" * 20, 40, "challenger", "wealth", 13, alpha="0.001"),
    fought("four challengers share alpha", "+" * 20, 40, "challenger", "wealth", 9, challengers=4),
    fought("but not what the king needs", "-" * 12, 40, "king", "wealth", 7, challengers=4),
    fought("pairs that are alike move little", "=" * 30, 40, None, None, 30),
    fought("a margin", "+" * 12, 40, None, None, 12, margin="50%"),
    fought("a margin that is not a whole number of pairs", "+" * 3 + "=" * 7, 10, "king", "certainty", 10, margin="0.35"),
    fought("above the margin", "+" * 4 + "=" * 6, 10, "challenger", "certainty", 10, margin="0.35", alpha="0.000000001"),
    fought("exactly the margin is not above", "+" * 4 + "=" * 6, 10, "king", "certainty", 10, margin="0.4", alpha="0.000000001"),
    fought("an error is waited for", "++e+", 10, None, None, 2),
    fought("a trial that is missing is waited for", "++.+", 10, None, None, 2),
    fought("the mean that is left is at its bound", "--++", 6, None, None, 4, alpha="0.000000001"),
    fought("at its bound, and the last one decides", "++--++", 6, "challenger", "certainty", 6, alpha="0.000000001"),
    fought("several trials of a task", "+" * 12, 40, "challenger", "wealth", 7, trials=4),
    case("another receipt, another order", given("+-+", 8, seed="sha256:" + "f" * 64), {"path": [{}] * 3}),
    *(mixed(seed, 60, ahead, **more) for seed, (ahead, more) in enumerate(DRAWN)),
    refused("a margin of 1", given("", 4, margin="1"), "nobody can be better by more than everything"),
    refused("alpha of 0", given("", 4, alpha="0"), "certain is certain, and takes all pairs"),
    refused("alpha of 1", given("", 4, alpha="100%"), "it would decide nothing"),
    refused("another order", given("", 4, order="task"), "the order is drawn from the receipt"),
    refused("no task", given("", 4) | {"tasks": []}, "there is a pair at least"),
    refused("a task twice", given("", 4) | {"tasks": ["t1", "t1"]}, "each task once"),
    refused("a trial twice", given("+", 1) | {"results": given("+", 1)["results"] * 2}, "each trial once"),
    refused("no receipt", given("", 4) | {"receipt": "sha256:0"}, "a digest has 64 digits"),
    refused("nobody shares alpha", given("", 4) | {"challengers": 0}, "there is one challenger at least"),
]

FILES = [File("duel", "duel", "A challenger against a king: the order of the pairs, the path, who wins (SPEC 7).", DUELS)]
