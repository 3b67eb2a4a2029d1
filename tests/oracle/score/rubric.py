"""SPEC 2.3: baseline gate, weighted checks, verdict, unskippable cap; integer BPS throughout."""

from fractions import Fraction
from typing import Any

from .verdict import Verdict

Doc = dict[str, Any]

BASELINE = ("B1", "B2", "B3", "B4")
VERDICTS = ("EXCEPTIONAL", "ELEGANT", "COHERENT", "MINOR_ISSUES", "FLAWED", "FUNDAMENTALLY_BROKEN")


def skippable(check: Doc) -> bool:
    """Whether a check may be missed, in either spelling. SPEC 2.3."""
    if "skippable" in check:
        return bool(check["skippable"])
    return not check["unskippable"]


def well_formed(record: Doc, checks: list[Doc]) -> bool:
    """Whether everything that is required has an answer of the right type; checks only past the gate. SPEC 2.3."""
    baseline = record.get("baseline") or {}
    if any(not isinstance(baseline.get(name), bool) for name in BASELINE):
        return False
    if not all(baseline[name] for name in BASELINE):
        return True
    answers = record.get("checks") or {}
    return all(isinstance(answers.get(check["id"]), bool) for check in checks) and record.get("verdict") in VERDICTS


def after_verdict(verdict: str, base: int, missed: int, whole: int) -> int:
    """Rule 3: the verdict applied to the base. SPEC 2.3."""
    if verdict == "EXCEPTIONAL":
        return base + missed
    if verdict == "ELEGANT":
        return base + missed // 2
    if verdict == "COHERENT":
        return base
    if verdict == "MINOR_ISSUES":
        return base - base // 10
    if verdict == "FLAWED":
        return base - base // 5
    return min(base, whole // 5)


def work(record: Doc, checks: list[Doc]) -> Doc:
    """The final BPS of a well-formed judgement and how it came about. `capped`: an unskippable check is NO. SPEC 2.3."""
    if not all(record["baseline"][name] for name in BASELINE):
        return {"base": 0, "missed_skippable": 0, "verdict": None, "gate": False, "capped": False, "bps": 0}
    answers = record["checks"]
    whole = sum(check["weight"] for check in checks)
    base = sum(check["weight"] for check in checks if answers[check["id"]])
    missed = sum(check["weight"] for check in checks if not answers[check["id"]] and skippable(check))
    final = after_verdict(record["verdict"], base, missed, whole)
    capped = any(not answers[check["id"]] and not skippable(check) for check in checks)
    if capped:
        final = min(final, whole // 5)
    final = min(whole, max(0, final))
    return {
        "base": base,
        "missed_skippable": missed,
        "verdict": record["verdict"],
        "gate": True,
        "capped": capped,
        "bps": final,
    }


def differs(record: Doc, panel: Doc) -> bool:
    """Whether a well-formed judgement has other answers than its panel decides."""
    if any(record["baseline"][name] != panel["baseline"][name] for name in BASELINE):
        return True
    if panel["checks"] is None:
        return False
    return record["verdict"] != panel["verdict"] or any(record["checks"][name] != side for name, side in panel["checks"].items())


def verdict(records: list[Doc], rules: Doc) -> Verdict:
    """BPS / 10 000 of the one judgement of this validator; malformed is unjudged, never zero. SPEC 2.3.

    A scheme may have a judgement that suspects an injection count as unjudged too.
    """
    (record,) = records
    checks = rules["checks"]
    panel = None
    if rules.get("panel") is not None:
        from .panel import decided

        panel = decided(record.get("panel") or [], rules)
        if panel["why"] == "panel-split":
            return Verdict(why_not="panel-split")
    if record.get("outcome", "judged") == "unjudged" or not well_formed(record, checks):
        return Verdict(why_not="unjudged")
    if panel is not None and (panel["why"] is not None or differs(record, panel)):
        return Verdict(why_not="unjudged")
    if record.get("injection_suspected") and rules.get("injection") == "unjudged":
        return Verdict(why_not="injection-suspected")
    done = work(record, checks)
    if panel is not None:
        done |= {name: sum(rate[name] for rate in panel["questions"]) for name in ("votes", "flips")}
    return Verdict(Fraction(done["bps"], 10_000), done)
