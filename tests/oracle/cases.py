"""Random valid cases for the settlement, from one seed each, as Hypothesis strategies and as plain functions.

    cases(kind=None)   one case, without `previous`
    chain(kind=None)   two to four cases of the same competition, in ascending epochs, without `previous`: feed the
                       settlement of each to the next as its `previous`
    emissions()        one emission case: one to three competitions of a subnet

`case_of(seed, kind, size)`, `chain_of(...)` and `emission_of(seed, size)` build the same without Hypothesis, quickly enough for
thousands. What SPEC refuses is never built: `drop` comes with `round` only, the burn UID is nobody's, different records for
one key have `seq`. A seed says everything, so a failing example is named by (kind, seed, size); `size` (1 to 6) bounds
validators and participants, and shrinks. `minimise(case, fails)` cuts a failing case down to what it needs.
"""

import copy
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import strategies as st

from .random_scheme import KINDS
from .score.panel import decided
from .score.rubric import BASELINE, VERDICTS
from .world import PARTICIPANTS, World

Doc = dict[str, Any]

MAX_SIZE = 6
SHARES = [["1"], ["0.5", "0.5"], ["70%", "20%"], ["0.333333333", "0.333333333", "0.333333334"], ["0.6", "0.05", "0.1"], ["15%"]]
EMISSIONS = ["1000000000", "7", "1", "361000000001", "100"]


def case_of(seed: int, kind: str, size: int = MAX_SIZE) -> Doc:
    """The case of a seed."""
    return World(Random(f"{kind}/{seed}"), kind, size).case()


def suspecting(case: Doc, seed: int) -> Doc:
    """A case of kind rubric in which some judgements suspect an injection, by a scheme to which that may or may not matter.

    It draws from a source of its own, so that the cases that are made without it stay what they are.
    """
    r = Random(f"suspecting/{seed}")
    case = copy.deepcopy(case)
    if r.random() < 0.8:
        case["scheme"]["score"]["injection"] = "unjudged"
    suspicions: dict[Any, Any] = {}
    for record in case["evidence"]:
        slot = record["validator"], record["submission"] or record["participant"]
        record |= suspicions.setdefault(slot, r.choice([{}, {"injection_suspected": False}, {"injection_suspected": True}]))
    return case


def panelled(case: Doc, seed: int) -> Doc:
    """A case of kind rubric in which panels judge, drawn from a source of its own, as above.

    Of each judgement some answers differ, are malformed, unjudged, missing or too many; now and then a record has other answers
    than its panel decides.
    """
    r = Random(f"panelled/{seed}")
    case = copy.deepcopy(case)
    rules = case["scheme"]["score"]
    rules["panel"] = {"answers": r.choice([2, 3, 3, 4, 5])}
    if r.random() < 0.7:
        rules["panel"]["max_disagreement"] = r.choice(["0/1", "1/5", "1/4", "1/3", "1/2", "2/6"])
    known: dict[Any, Any] = {}
    for record in case["evidence"]:
        slot = record["validator"], record["submission"] or record["participant"]
        judgement = {name: record.pop(name) for name in ("outcome", "baseline", "checks", "verdict") if name in record}
        if slot not in known or ("seq" in record and r.random() < 0.1):
            known[slot] = _panel(r, judgement, rules)
        record |= copy.deepcopy(known[slot])
    return case


def _panel(r: Random, judgement: Doc, rules: Doc) -> Doc:
    """A record's answers: those of a panel, and what it decides."""
    count = rules["panel"]["answers"] + r.choices([0, -1, 1], [90, 7, 3])[0]
    panel = [answer_like(r, judgement, rules) for _ in range(count)]
    decision = decided(panel, rules)
    names = ("baseline", "checks", "verdict")
    answers: Doc = (
        {"outcome": "unjudged"} if decision["why"] else {name: decision[name] for name in names if decision[name] is not None}
    )
    if r.random() < 0.05:
        answers = judgement
    return answers | ({"panel": panel} if r.random() < 0.97 else {})


def answer_like(r: Random, judgement: Doc, rules: Doc) -> Doc:
    """An answer of a panel that is like a judgement, more or less."""
    answer: Doc = copy.deepcopy(judgement)
    if isinstance(answer.get("checks"), dict) and r.random() < 0.4:
        answer["checks"][r.choice(rules["checks"])["id"]] = r.random() < 0.5
    if r.random() < 0.3:
        answer["verdict"] = r.choice(VERDICTS)
    if r.random() < 0.1:
        answer |= r.choice(
            [{"outcome": "unjudged"}, {"verdict": None}, {"baseline": dict.fromkeys(BASELINE, True) | {"B4": False}}]
        )
    return {name: value for name, value in answer.items() if value is not None} | {"judge": r.choice(["large", "small"])}


def combining(case: Doc, seed: int) -> Doc:
    """A case whose scheme clips or trims and, if its kind is tests, counts in noise; drawn from a source of its own, as above."""
    r = Random(f"combining/{seed}")
    case = copy.deepcopy(case)
    rules = case["scheme"].setdefault("consensus", {})
    rules |= r.choice(
        [
            {"combine": "clip"},
            {"combine": "clip", "kappa": r.choice(["0.000000001", "10%", "0.333333333", "50%", "0.9", "100%"])},
            {"combine": "trimmed"},
            {"combine": "trimmed", "trim": r.choice(["0", "0.000000001", "10%", "0.333333333", "49%", "0.499999999"])},
        ]
    )
    if case["scheme"]["score"]["kind"] == "tests" and r.random() < 0.8:
        known = rules.get("outliers", {})
        rules["outliers"] = {name: known[name] for name in ("threshold", "mad_floor") if name in known} | {"scale": "noise"}
    return case


def choosing(case: Doc, seed: int) -> Doc:
    """A case whose scheme reads SPEC 2.1 or 2.4 in the other way that it allows; drawn from a source of its own, as above."""
    r = Random(f"choosing/{seed}")
    case = copy.deepcopy(case)
    score = case["scheme"]["score"]
    if score["kind"] == "tests":
        score["passed_by"] = "each" if r.random() < 0.1 else "all"
        case["scheme"].get("consensus", {}).get("outliers", {}).pop("scale", None)
        return case
    score |= r.choice([{"invalid": "subtract"}, {"invalid": "gate", "stars_alone": True}, {"invalid": "subtract"}])
    if r.random() < 0.5:
        score["stars_alone"] = r.random() < 0.8
    if score.get("stars_alone") and "0" in (score.get("star_points"), score.get("star_max")):
        del score["stars_alone"]
    return case


def warming(case: Doc, seed: int) -> Doc:
    """A case of kind workflow by a scheme with a warm-up, drawn from a source of its own, as in `suspecting`."""
    r = Random(f"warming/{seed}")
    case = copy.deepcopy(case)
    if case["scheme"].get("reward", {}).get("kind") != "payout":
        case["scheme"]["score"]["warm_up"] = r.randint(1, min(case["scheme"]["score"].get("window", 100), 8))
    return case


def chain_of(seed: int, kind: str, size: int = MAX_SIZE, length: int = 3) -> list[Doc]:
    """The successive cases of a seed."""
    world = World(Random(f"{kind}/{seed}"), kind, size)
    cases = [world.case()]
    while len(cases) < length:
        world.advance()
        case = world.case()
        case["epoch"] = world.epoch
        cases.append(case)
    return cases


def emission_of(seed: int, size: int = MAX_SIZE) -> Doc:
    """The emission case of a seed: competitions share the epoch, the burn UID and the participants' uids."""
    r = Random(seed)
    burn_uid = r.choice([0, 0, 7])
    free = r.sample([uid for uid in range(20) if uid != burn_uid], len(PARTICIPANTS))
    uids = {key: uid if r.random() < 0.85 else None for key, uid in zip(PARTICIPANTS, free, strict=True)}
    subnet = {"epoch": r.randint(0, 30), "burn_uid": burn_uid, "uids": uids}
    competitions = []
    for i, share in enumerate(r.choice(SHARES)):
        world = World(r, r.choice(KINDS), size, subnet=subnet)
        case = world.case()
        case["scheme"]["scheme"]["name"] = f"competition-{i + 1}"
        competitions.append({"name": f"competition-{i + 1}", "share": share, "case": case})
    encoding = r.choice(["round", "exact-sum", "max-upscale"])
    rules: Doc = {"encoding": encoding, "burn_uid": burn_uid, "emission": r.choice(EMISSIONS)}
    return {"subnet": rules | r.choice([{}, {"unearned": "others"}]), "competitions": competitions}


def seeds() -> st.SearchStrategy[int]:
    """Seeds; a small one is as good as a large one, so shrinking them is harmless."""
    return st.integers(0, 2**48)


def kinds(kind: str | None) -> st.SearchStrategy[str]:
    """The kind asked for, or any."""
    return st.sampled_from(KINDS) if kind is None else st.just(kind)


def cases(kind: str | None = None) -> st.SearchStrategy[Doc]:
    """One valid case of a kind (any, if None), without `previous`."""
    return st.builds(case_of, seeds(), kinds(kind), st.integers(1, MAX_SIZE))


def chain(kind: str | None = None) -> st.SearchStrategy[list[Doc]]:
    """Cases of one competition for epochs N < N' < …; each settlement is meant to be the `previous` of the next case."""
    return st.builds(chain_of, seeds(), kinds(kind), st.integers(1, MAX_SIZE), st.integers(2, 4))


def emissions() -> st.SearchStrategy[Doc]:
    """One valid emission case."""
    return st.builds(emission_of, seeds(), st.integers(1, MAX_SIZE))


def removals(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a JSON document that could be left out, the larger first."""
    inner = list(document.items()) if isinstance(document, dict) else list(enumerate(document))
    paths = [(*path, key) for key, _ in reversed(inner)]
    for key, value in inner:
        if isinstance(value, dict | list):
            paths += removals(value, (*path, key))
    return sorted(paths, key=len)


def without(case: Doc, path: tuple[Any, ...]) -> Doc:
    """A copy of the case with one thing left out."""
    smaller = copy.deepcopy(case)
    place: Any = smaller
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return smaller


def minimise(case: Doc, fails: Callable[[Doc], bool]) -> Doc:
    """The case with everything left out that it can spare and still fail; `fails` returns False for an invalid case."""
    shrunk = True
    while shrunk:
        shrunk = False
        for path in removals(case):
            smaller = without(case, path)
            if fails(smaller):
                case, shrunk = smaller, True
                break
    return case
