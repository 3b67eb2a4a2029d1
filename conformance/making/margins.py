"""Cases of margins: boards so small that every state of every column can be looked at. SPEC 2.1, 3, 5."""

from __future__ import annotations

from typing import Any

from oracle.boards import drawn

from .case import CaseDraft, File, case, refused

Doc = dict[str, Any]


def board(rows: dict[str, dict[str, int | str]], trials: int, stakes: tuple[int, ...] = (1, 1, 1), **more: Any) -> Doc:
    """Participants by name, and what each validator saw pass; "2+1": two passed, and one is missing."""
    names = [f"v{at}" for at in range(1, len(stakes) + 1)]
    people = []
    for key, seen in rows.items():
        judged: Doc = {}
        for name, count in seen.items():
            passed, _, missing = str(count).partition("+")
            judged[name] = {"passed": int(passed)} | ({"missing": int(missing)} if missing else {})
        people.append({"key": key, "seen": judged})
    validators = [{"key": name, "stake": str(stake)} for name, stake in zip(names, stakes, strict=True)]
    return {"trials": trials, "validators": validators, "participants": people, **more}


def row(*counts: int | str) -> dict[str, int | str]:
    return {f"v{at}": count for at, count in enumerate(counts, 1)}


def least(name: str, given: Doc, **verdicts: Doc) -> CaseDraft:
    return case(name, given, {"verdicts": verdicts})


def twice(field: str) -> Doc:
    """A board whose first validator, or participant, is there twice."""
    given = board({"a": row(3, 3, 2), "b": row(1, 1, 1)}, 4)
    return given | {field: [given[field][0], *given[field]]}


PLAIN: Doc = {"outliers": {"method": "none"}}
ONE: Doc = {"min_validators": 1, "outliers": {"method": "none"}}
TWO: Doc = {"min_validators": 2, "min_stake": "0", "outliers": {"method": "none"}}
PAYS: Doc = {"deposit": "1000", "threshold_bps": 5000}
MARGINS = [
    least(
        "one flip ties, and the earlier submission stays first",
        board({"a": row(3, 3, 3), "b": row(3, 3, 2)}, 4, consensus=PLAIN),
        winner={"flips": 2, "missing": None, "stake": "1"},
        order={"flips": 2, "missing": None, "stake": "1"},
    ),
    least(
        "the later submission loses a tie",
        board({"b": row(3, 3, 2), "a": row(3, 3, 3)}, 4, consensus=PLAIN),
        winner={"flips": 1, "missing": None, "stake": "1"},
        order={"flips": 1, "missing": None, "stake": "1"},
    ),
    least(
        "nobody to be beaten by",
        board({"a": row(3, 3, 3)}, 4, consensus=PLAIN),
        winner={"flips": None, "missing": None, "stake": None},
        order={"flips": None, "missing": None, "stake": None},
    ),
    least("nobody has a score", board({"a": row(3, 3)}, 4), winner={"flips": None, "missing": None, "stake": None}),
    case(
        "the validator with the most stake is flipped",
        board({"a": row(4, 0, 0), "b": row(0, 4, 4)}, 4, (9, 1, 1), consensus=PLAIN),
    ),
    case("an outlier is pulled out", board({"a": row(4, 4, 4, 1), "b": row(3, 3, 4, 4)}, 4, (1, 1, 1, 1))),
    case("a score of no weight flips nothing", board({"a": row(2), "b": row(1)}, 2, (1,), consensus=ONE)),
    least(
        "a missing trial lets a participant in",
        board({"a": row(3, 3, 3), "b": row("3+1", 4, 4)}, 4, consensus=PLAIN),
        winner={"missing": 1},
        order={"missing": 1},
    ),
    case("missing trials of two participants", board({"a": row("2+1", 4, 4), "b": row(3, 3, "1+2")}, 4, consensus=TWO)),
    case("missing trials that change nothing", board({"a": row(4, 4, "3+1"), "b": row(0, 0, 0)}, 4, consensus=TWO)),
    case("a tier is lost", board({"a": row(3, 3, 2), "b": row(1, 1, 1)}, 4, consensus=PLAIN, payout=PAYS)),
    case("a tier is held by two", board({"a": row(2, 2, 2), "b": row(2, 2, 2)}, 4, consensus=PLAIN, payout=PAYS)),
    case("below the lowest tier", board({"a": row(0, 0, 1), "b": row(0, 0, 0)}, 4, consensus=PLAIN, payout=PAYS)),
    case(
        "the median by stake",
        board({"a": row(3, 3, 1), "b": row(2, 2, 4)}, 4, (2, 2, 3), consensus=PLAIN | {"combine": "stake-median"}),
    ),
    case("the seeds' outliers", board({"a": row(4, 4, 4), "b": row(4, 4, 0)}, 4)),
    *(case(f"drawn {seed}", drawn(seed)) for seed in range(1, 25)),
    refused("more trials than there are", board({"a": row(5, 1, 1)}, 4), "4 trials, and 5 of them passed"),
    refused("a validator without a trial", board({"a": row("0+4", 1, 1)}, 4), "it is left out instead"),
    refused("a validator twice", twice("validators"), "its stake would be unclear"),
    refused("a participant twice", twice("participants"), "its results would be unclear"),
    refused("an unknown validator", board({"a": {"v9": 1}}, 4), "it is not among the validators"),
]

FILES = [File("margin", "margin", "How little changes the winner, the tier or the order of a board (SPEC 2.1, 3, 5).", MARGINS)]
