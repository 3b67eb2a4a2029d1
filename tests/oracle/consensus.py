"""SPEC 3: quorum, outliers, combination; one row of `agreed` per participant."""

from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

from .numbers import fraction, mean, median, nanos, show, show_or_null, utf8
from .score import Verdict

Doc = dict[str, Any]


@dataclass
class Opinion:
    """One counting validator's score of a participant, and what the outlier test said of it."""

    validator: str
    stake: int
    score: Fraction
    work: Doc
    flagged: bool = False
    excluded: bool = False
    modified_z: Fraction | None = None
    z_squared: Fraction | None = None

    def row(self) -> Doc:
        """As the settlement shows it."""
        return {
            "validator": self.validator,
            "score": show(self.score),
            "stake": str(self.stake),
            "flagged": self.flagged,
            "excluded": self.excluded,
            "modified_z": show_or_null(self.modified_z),
            "z_squared": show_or_null(self.z_squared),
            "work": self.work,
        }


def failed_audits(rules: Doc, validators: list[Doc]) -> set[str]:
    """Validators that the scheme leaves out, because an audit saw their false claims."""
    leaves_out = (rules.get("audit") or {}).get("failed") == "leave-out"
    return {validator["key"] for validator in validators if leaves_out and validator.get("failed_audit")}


def why_not_counted(validator: str, stake: int, verdict: Verdict, drawn: set[str] | None, least: int, failed: bool) -> str | None:
    """The first reason that keeps a validator out, None for one that counts (or has nothing to say). SPEC 3.0, 3.1."""
    if drawn is not None and validator not in drawn:
        return "not-assigned"
    if stake == 0:
        return "no-stake"
    if stake < least:
        return "stake-below-minimum"
    return "audit-failed" if failed else verdict.why_not


def quorum(stakes: list[int], whole: int, consensus: Doc) -> bool:
    """Enough validators, and together enough of the total stake. SPEC 3.1."""
    return len(stakes) >= consensus["min_validators"] and sum(stakes) >= fraction(consensus["min_stake"]) * whole


def flag(opinions: list[Opinion], outliers: Doc, trials: int) -> Doc:
    """Marks the outliers and excludes them, unless they hold half the stake; returns what is shown of it. SPEC 3.2."""
    shown: Doc = {"median": None, "mad": None, "mean": None, "flagged_majority": False}
    if len(opinions) < 3 or outliers["method"] == "none":
        return shown
    scores = [opinion.score for opinion in opinions]
    threshold = fraction(outliers["threshold"])
    if outliers["method"] == "modified-z":
        middle = median(scores)
        mad = median([abs(score - middle) for score in scores])
        scale = max(mad, fraction(outliers["mad_floor"]))
        shown |= {"median": show(middle), "mad": show(mad)}
        noise = middle * (1 - middle) / trials if outliers.get("scale") == "noise" else None
        for opinion in opinions:
            if noise is not None:
                away = Fraction(6745, 10_000) ** 2 * (opinion.score - middle) ** 2
                squared = max(scale**2, Fraction(6745, 10_000) ** 2 * noise)
                if squared > 0:
                    opinion.z_squared = away / squared
                    opinion.flagged = away > threshold**2 * squared
            elif scale > 0:
                opinion.modified_z = Fraction(6745, 10_000) * abs(opinion.score - middle) / scale
                opinion.flagged = opinion.modified_z > threshold
    else:
        centre = mean(scores)
        variance = mean([(score - centre) ** 2 for score in scores])
        shown |= {"mean": show(centre)}
        for opinion in opinions:
            if variance > 0:
                opinion.z_squared = (opinion.score - centre) ** 2 / variance
                opinion.flagged = opinion.z_squared > threshold**2
    flagged = sum(opinion.stake for opinion in opinions if opinion.flagged)
    if 2 * flagged >= sum(opinion.stake for opinion in opinions):
        shown["flagged_majority"] = True
    else:
        for opinion in opinions:
            opinion.excluded = opinion.flagged
    return shown


def combine(opinions: list[Opinion], consensus: Doc) -> Fraction:
    """The agreed score, exact. SPEC 3.3."""
    whole = sum(opinion.stake for opinion in opinions)
    method = consensus["combine"]
    if method == "clip":
        kappa = fraction(consensus["kappa"])
        reached = [
            opinion.score
            for opinion in opinions
            if sum(other.stake for other in opinions if other.score >= opinion.score) >= kappa * whole
        ]
        ceiling = max(reached)
        return sum((opinion.stake * min(opinion.score, ceiling) for opinion in opinions), Fraction(0)) / whole
    if method == "trimmed":
        low, high = fraction(consensus["trim"]) * whole, (1 - fraction(consensus["trim"])) * whole
        total, begin = Fraction(0), Fraction(0)
        for opinion in sorted(opinions, key=lambda opinion: opinion.score):
            end = begin + opinion.stake
            part: Fraction = min(high, end) - max(low, begin)
            total += max(Fraction(0), part) * opinion.score
            begin = end
        return total / (high - low)
    if method == "mean":
        return mean([opinion.score for opinion in opinions])
    if method == "stake-median":
        heaped = 0
        for opinion in sorted(opinions, key=lambda opinion: opinion.score):
            heaped += opinion.stake
            if 2 * heaped >= whole:
                return opinion.score
    return sum((opinion.stake * opinion.score for opinion in opinions), Fraction(0)) / whole


def without_quorum(
    counting: list[int], not_counted: list[Doc], stakes: dict[str, int], whole: int, rules: Doc
) -> tuple[str, str]:
    """Status and reason where the counting validators are no quorum. SPEC 3 Status."""
    consensus = rules["consensus"]
    for reasons, status, code in (
        (("unjudged", "injection-suspected", "panel-split"), "unjudged", "malformed-or-unjudged"),
        (("incomplete",), "incomplete", "missing-trials"),
    ):
        more = [stakes[row["validator"]] for row in not_counted if row["reason"] in reasons]
        if more and quorum(counting + more, whole, consensus):
            return status, code
    if not counting:
        return "no-quorum", "no-evidence"
    if len(counting) < consensus["min_validators"]:
        return "no-quorum", "too-few-validators"
    return "no-quorum", "too-little-stake"


def agree(
    verdicts: dict[str, Verdict],
    drawn: set[str] | None,
    validators: list[Doc],
    rules: Doc,
    trials: int = 1,
    tasks: tuple[str, ...] = (),
) -> tuple[Doc, Fraction | None]:
    """What the validators agree on for one participant: the row without its names, and the exact score. SPEC 3.

    trials: of how many each score is the share that passed. tasks: the task set.
    """
    consensus = rules["consensus"]
    stakes = {validator["key"]: int(validator["stake"]) for validator in validators}
    least = int(consensus["min_validator_stake"])
    failed = failed_audits(rules, validators)
    whole = sum(stake for key, stake in stakes.items() if drawn is None or key in drawn)
    opinions: list[Opinion] = []
    not_counted: list[Doc] = []
    for key in sorted(verdicts, key=utf8):
        verdict = verdicts[key]
        reason = why_not_counted(key, stakes[key], verdict, drawn, least, key in failed)
        if reason is not None:
            missing = verdict.missing if reason == "incomplete" else 0
            not_counted.append({"validator": key, "reason": reason, "missing": missing})
        elif verdict.score is not None:
            opinions.append(Opinion(key, stakes[key], verdict.score, verdict.work))

    if rules["score"].get("passed_by", "each") == "all":  # SPEC 3.0
        seen_by_all = [task for task in tasks if all(task in verdicts[opinion.validator].whole for opinion in opinions)]
        for opinion in opinions:
            opinion.score = nanos(Fraction(len(seen_by_all), len(tasks)))
    counting = [opinion.stake for opinion in opinions]
    row: Doc = {"score": None, "bps": None, "status": "agreed", "reason": None, "duplicate_of": None}
    row |= {"stake": str(sum(counting)), "needed_stake_of": str(whole)}
    row |= {"median": None, "mad": None, "mean": None, "flagged_majority": False}
    exact: Fraction | None = None
    if not quorum(counting, whole, consensus):
        row["status"], row["reason"] = without_quorum(counting, not_counted, stakes, whole, rules)
    else:
        row |= flag(opinions, rules["outliers"], trials)
        remaining = [opinion for opinion in opinions if not opinion.excluded]
        left = sum(opinion.stake for opinion in remaining)
        if consensus["recheck"] and left < fraction(consensus["min_stake"]) * whole:
            row["status"], row["reason"] = "no-quorum", "stake-after-outliers"
        else:
            exact = combine(remaining, consensus)
            row["score"] = show(exact)
            if rules["score"]["kind"] == "rubric":
                row["bps"] = floor(10_000 * exact)
    row["validators"] = [opinion.row() for opinion in opinions]
    row["not_counted"] = not_counted
    return row, None if exact is None else nanos(exact)


def duplicate_row(original: str, validators: list[Doc]) -> Doc:
    """The row of a participant whose submission counts for somebody else. SPEC 2, 3 Status."""
    row: Doc = {"score": None, "bps": None, "status": "duplicate", "reason": "same-submission", "duplicate_of": original}
    row |= {"stake": "0", "needed_stake_of": str(sum(int(validator["stake"]) for validator in validators))}
    row |= {"median": None, "mad": None, "mean": None, "flagged_majority": False}
    return row | {"validators": [], "not_counted": []}
