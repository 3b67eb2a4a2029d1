"""The risk-limiting audit in fractions, as docs/auditing.md says it: nothing is rounded. It shares nothing with `assay.rules`."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil, floor
from typing import Any

from .defaults import filled
from .numbers import GIGA, fraction
from .pipeline import settle
from .receipts import digest, rests_on

Doc = dict[str, Any]
PLACE = ("participant", "validator", "task", "trial")
GAMMA = Fraction(11, 10)


def bound(effect: Fraction, margins: Sequence[int]) -> Fraction:
    """By which part of the smallest of these margins (nanos) a trial can overstate it."""
    return max(effect / margin for margin in margins)


def draw(sizes: Sequence[int], randomness: bytes, receipt: bytes) -> Iterator[int]:
    """The index that each draw takes: a walk along the sizes."""
    seed = hashlib.sha256(b"assay-audit/1" + bytes(1) + randomness + receipt).digest()
    number = 0
    while True:
        number += 1
        h = int(hashlib.sha256(seed + number.to_bytes(8, "big")).hexdigest(), 16)
        point = Fraction(h * sum(sizes), 2**256)
        for index, size in enumerate(sizes):
            if point < size:
                yield index
                break
            point -= size


def martingale(bounds: Sequence[Fraction], drawn: Sequence[int], wrong: Sequence[bool]) -> list[Fraction]:
    """Its exact value after each draw, by the exact bounds: 1 over the P-value of Kaplan and Markov."""
    total, value, values = GAMMA * sum(bounds), Fraction(1), []
    for index in drawn:
        taint = 1 / GAMMA if wrong[index] else Fraction(0)
        value *= (1 - taint) / (1 - 1 / total)
        values.append(value)
    return values


def audit(given: Doc) -> Doc:
    """The answer to a case of kind audit: what the statement says of claims, draws, what was seen, and the verdict."""
    case = copy.deepcopy(given["case"])
    settlement, scheme = settle(case), filled(case["scheme"])
    rules = {"risk": "5%", "places": None} | scheme["audit"]
    scores = {row["participant"]: int(fraction(row["score"]) * GIGA) for row in settlement["agreed"] if row["score"] is not None}
    claims = _claims(scheme, settlement["ranking"], scores, rules["places"])
    rows = [row | {"seq": row.get("seq", at)} for at, row in enumerate(case["evidence"]) if row["epoch"] <= settlement["epoch"]]
    counted = [trial for row in settlement["agreed"] for trial in _trials(case, scheme, row, rests_on(settlement, rows))]
    counted.sort(key=lambda trial: (*(trial[name].encode() for name in ("participant", "validator", "task")), trial["trial"]))
    drawn_from, untested = list[Doc](), dict[str, int]()
    for trial in counted:
        side = "above" if trial["claimed"] == "pass" else "below"
        margins = [max(1, claim["margin"]) for claim in claims if claim[side] == trial["participant"]]
        if margins and (trial["claimed"] == "pass" or trial["work"]):
            drawn_from.append(trial | {"size": ceil(GIGA * bound(trial["effect"], margins))})
        elif margins:
            untested[trial["validator"]] = untested.get(trial["validator"], 0) + 1
    other = {tuple(row.get(name, 1) for name in PLACE): row["seen"] for row in given.get("seen", [])}
    for trial in drawn_from:
        trial["seen"] = other.get(tuple(trial[name] for name in PLACE), [trial["claimed"]])
        trial["state"] = _state(trial["claimed"], trial["seen"])
    randomness, receipt = bytes.fromhex(given["randomness"]), bytes.fromhex(given["receipt"].split(":")[1])
    walk = draw([trial["size"] for trial in drawn_from], randomness, receipt)
    draws, path, confirmed = _path(claims, drawn_from, walk, fraction(rules["risk"]))
    judged = [drawn_from[at] for at in dict.fromkeys(draws)] if confirmed else drawn_from
    overstated = [] if confirmed else [_overstated(claim, drawn_from) for claim in claims]
    ended = "recounted" if all(row["stands"] for row in overstated) else "refused"
    shown = [*PLACE, "record", "claimed", "seen", "state"]
    return {
        "claims": claims,
        "trials": {
            "counted": len(counted),
            "drawn_from": len(drawn_from),
            "size": str(sum(trial["size"] for trial in drawn_from)),
        },
        "untested": [{"validator": name, "trials": untested[name]} for name in sorted(untested, key=str.encode)],
        "judged": [{name: trial[name] for name in shown} for trial in judged],
        "draws": draws,
        "martingale": [str(value) for value in path],
        "overstated": overstated,
        "verdict": "confirmed" if confirmed else ended,
    }


def _claims(scheme: Doc, ranking: list[str], scores: dict[str, int], places: int | None) -> list[Doc]:
    def beats(key: str, other: str) -> Doc:
        return {"above": key, "below": other, "margin": scores[key] - scores[other] - 4}

    def reaches(key: str, mark: int) -> Doc:
        return {"above": key, "below": None, "margin": scores[key] - mark - 3}

    def below(key: str, mark: int) -> Doc:
        return {"above": None, "below": key, "margin": mark - scores[key] - 4}

    reward, claims = scheme["reward"], list[Doc]()
    if reward["kind"] == "payout":
        rules = scheme["payout"]
        marks = [ceil(Fraction(tier["reach_bps"] * rules["threshold_bps"] * GIGA, 10**8)) for tier in rules["tiers"]]
        many = len(rules["split"])
        paid = [key for key in ranking[:many] if scores[key] >= min(marks)]
        others = [key for key in ranking if key not in paid]
        claims += [beats(paid[at], paid[at + 1]) for at in range(len(paid) - 1)]
        if paid:
            claims += [reaches(paid[0], max(mark for mark in marks if mark <= scores[paid[0]])), reaches(paid[-1], min(marks))]
        full = len(paid) == many
        claims += [beats(paid[-1], other) if full else below(other, min(marks)) for other in others]
        missed = [mark for mark in marks if paid and mark > scores[ranking[0]]]
        return claims + ([below(key, min(missed)) for key in ranking] if missed else [])
    floor_ = max(1, int(fraction(reward["min_score"]) * GIGA))
    paid = [key for key in ranking if scores[key] >= floor_]
    alike = reward["kind"] == "weights" and reward["strategy"] == "winner-takes-all"
    inside = paid[: len(paid) if places is None else places][: reward["top"] if alike else len(paid)]
    outside = [key for key in ranking if key not in inside]
    claims += [] if alike else [beats(inside[at], inside[at + 1]) for at in range(len(inside) - 1)]
    last = inside if alike else inside[-1:]
    claims += [beats(key, other) for key in last for other in outside]
    if fraction(reward["min_score"]) > 0:
        claims += [reaches(key, floor_) for key in last]
        if len(inside) == len(paid) and (not alike or len(inside) < reward["top"]):
            claims += [below(key, floor_) for key in outside]
    return claims


def _trials(case: Doc, scheme: Doc, row: Doc, rests: dict[str, list[Doc]]) -> list[Doc]:
    """The trials of one participant that count."""
    tasks = {line.split()[0] for line in case["tasks"]}
    counting = {vote["validator"]: int(vote["stake"]) for vote in row["validators"] if not vote["excluded"]}
    combine, trials = scheme["consensus"]["combine"], list[Doc]()
    for rest in rests[row["participant"]]:
        if row["status"] != "agreed" or rest["validator"] not in counting or rest["outcome"] == "error":
            continue
        if rest["task"] not in tasks or rest["trial"] > scheme["score"]["trials"]:
            continue
        share = Fraction(1)
        if combine == "stake-mean" and scheme["score"].get("passed_by") != "all":
            share = Fraction(counting[rest["validator"]], sum(counting.values()))
        if combine == "mean" and scheme["score"].get("passed_by") != "all":
            share = Fraction(1, len(counting))
        about = {"participant": row["participant"], "claimed": rest["outcome"], "work": "work" in rest}
        about |= {name: rest[name] for name in ("validator", "task", "trial")}
        about["record"] = digest({name: value for name, value in rest.items() if name != "seq"})
        trials.append(about | {"effect": GIGA * share / (len(tasks) * scheme["score"]["trials"])})
    return trials


def _state(claimed: str, seen: list[str]) -> str:
    right = [(outcome == "pass") == (claimed == "pass") for outcome in seen]
    return "missing" if not seen else "held" if all(right) else "flaky" if any(right) else "false"


def _path(claims: list[Doc], trials: list[Doc], walk: Iterator[int], risk: Fraction) -> tuple[list[int], list[int], bool]:
    """Draws, the value after each in units of 10^-18, and whether it was enough; nothing at all for a recount at once."""
    unit, total = 10**18, Fraction(sum(trial["size"] for trial in trials), GIGA)
    if any(claim["margin"] <= 0 for claim in claims):
        return [], [], False
    if GAMMA * total <= 1:
        return [], [], True
    held, clean = GAMMA * total / (GAMMA * total - 1), unit
    for _ in trials:
        clean = floor(clean * held) if clean * risk < unit else clean
    if clean * risk < unit:
        return [], [], False
    value, draws, values = unit, list[int](), list[int]()
    while len(draws) < len(trials) and value * risk < unit:
        at = next(walk)
        value = floor(value * held * (1 if trials[at]["state"] in ("held", "flaky") else 1 - 1 / GAMMA))
        draws.append(at)
        values.append(value)
    return draws, values, value * risk >= unit


def _overstated(claim: Doc, trials: list[Doc]) -> Doc:
    total = Fraction(0)
    for trial in trials:
        if trial["state"] in ("false", "missing"):
            sign = {claim["above"]: 1, claim["below"]: -1}.get(trial["participant"], 0)
            total += sign * trial["effect"] * (1 if trial["claimed"] == "pass" else -1)
    return {
        "above": claim["above"],
        "below": claim["below"],
        "nanos": str(ceil(total)),
        "stands": total <= 0 or total < claim["margin"],
    }
