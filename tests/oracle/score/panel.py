"""SPEC 2.3, docs/rubric.md "Panels": what k answers about one solution decide, question by question, with fractions."""

from fractions import Fraction
from typing import Any

from .rubric import BASELINE, VERDICTS, well_formed

Doc = dict[str, Any]


def votes_of(panel: list[Doc], rules: Doc) -> list[Doc]:
    """The answers that are votes; none if there are more than k."""
    if len(panel) > rules["panel"]["answers"]:
        return []
    return [answer for answer in panel if answer.get("outcome", "judged") == "judged" and well_formed(answer, rules["checks"])]


def stance(vote: Doc, question: str, *, of: str) -> Any:
    """What a vote says to a question; None where it takes no side."""
    if of == "baseline":
        return vote["baseline"][question]
    if not all(vote["baseline"][name] for name in BASELINE):
        return None
    return vote["verdict"] if of == "verdict" else vote["checks"][question]


def majority(sides: list[Any], k: int) -> bool | None:
    """The side of more than half of k."""
    for side in (True, False):
        if Fraction(sides.count(side), k) > Fraction(1, 2):
            return side
    return None


def middle(words: list[Any], k: int) -> str | None:
    """The verdict that more than half of k give or are better than, and more than half give or are worse than."""
    places = [VERDICTS.index(word) for word in words if word is not None]
    for at, word in enumerate(VERDICTS):
        better = sum(1 for place in places if place <= at)
        worse = sum(1 for place in places if place >= at)
        if min(Fraction(better, k), Fraction(worse, k)) > Fraction(1, 2):
            return word
    return None


def decided(panel: list[Doc], rules: Doc) -> Doc:
    """What the panel decides: the answers, why there are none, and the flips of each question and each answer."""
    k = rules["panel"]["answers"]
    numerator, denominator = rules["panel"].get("max_disagreement", "1/1").split("/")
    bound, votes = Fraction(int(numerator), int(denominator)), votes_of(panel, rules)
    questions = [("baseline", name) for name in BASELINE]
    baseline = {name: majority([stance(vote, name, of="baseline") for vote in votes], k) for name in BASELINE}
    answers: dict[tuple[str, str], Any] = {("baseline", name): side for name, side in baseline.items()}
    met = all(side is True for side in baseline.values())
    if met:
        for check in rules["checks"]:
            questions.append(("checks", check["id"]))
            answers["checks", check["id"]] = majority([stance(vote, check["id"], of="checks") for vote in votes], k)
        questions.append(("verdict", "verdict"))
        answers["verdict", "verdict"] = middle([stance(vote, "", of="verdict") for vote in votes], k)
    undecided = [name for of, name in questions if answers[of, name] is None]
    rates, above = [], False
    own = [[0, 0] for _ in panel]
    for of, name in questions:
        if answers[of, name] is None:
            continue
        flips = count = 0
        for at, answer in enumerate(panel):
            side = stance(answer, name, of=of) if answer in votes else None
            if side is not None:
                differs = side != answers[of, name]
                count, flips = count + 1, flips + differs
                own[at] = [own[at][0] + differs, own[at][1] + 1]
        rates.append({"name": name, "flips": flips, "votes": count})
        above = above or Fraction(flips, count) > bound
    if Fraction(len(votes), k) <= Fraction(1, 2):
        undecided = []
        why: str | None = "unjudged"
    else:
        why = "panel-split" if undecided or above else None
    whole = why is None
    return {
        "why": why,
        "undecided": undecided,
        "baseline": baseline if whole else None,
        "checks": {check["id"]: answers["checks", check["id"]] for check in rules["checks"]} if whole and met else None,
        "verdict": answers["verdict", "verdict"] if whole and met else None,
        "questions": rates,
        "judges": [
            {"name": answer["judge"], "flips": flips, "votes": n} for answer, (flips, n) in zip(panel[:k], own, strict=False)
        ],
    }
