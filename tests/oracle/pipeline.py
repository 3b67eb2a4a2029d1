"""Case -> settlement: SPEC 2 to 5 in order, into the document "assay.settlement/1"."""

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import rfc8785

from . import clocks, reward
from .assign import assigned
from .clocks import Agreed
from .consensus import agree, duplicate_row
from .defaults import filled
from .evidence import bears_on, duplicates, standing
from .numbers import fraction, instant, show, utf8
from .payout import RankedPlace, pay
from .score import judged

Doc = dict[str, Any]

NO_WEIGHTS: Doc = {"weights": [], "burn": None, "unallocated": "0"}
NO_PAYOUT: Doc = {"released": None, "tier_bps": None, "payouts": [], "fees": None, "refund": None}


@dataclass
class ExactSettlement:
    """A settlement, and beside it the shares before anything is rounded: (participant, uid, share) in ranking order."""

    document: Doc
    shares: list[tuple[str, int | None, Fraction]]
    burn: Fraction
    unallocated: Fraction


def complete(case: Doc) -> Doc:
    """The case with missing keys as empty and an empty submission as ""."""
    result = {name: case.get(name) or [] for name in ("participants", "validators", "tasks", "history", "randomness", "evidence")}
    result |= {"scheme": case["scheme"], "previous": case.get("previous"), "epoch": case.get("epoch")}
    result["participants"] = [p | {"submission": p.get("submission") or ""} for p in result["participants"]]
    result["evidence"] = [record | {"submission": record.get("submission") or ""} for record in result["evidence"]]
    if result["epoch"] is None:
        result["epoch"] = max(record["epoch"] for record in result["evidence"])
    return result


def task_set_digest(tasks: list[str]) -> str:
    """SHA-256 over the RFC 8785 form of the sorted lines of the task set. SPEC 6."""
    lines: Any = sorted(tasks, key=utf8)
    return "sha256:" + hashlib.sha256(rfc8785.dumps(lines)).hexdigest()


def agreed_rows(case: Doc, rules: Doc) -> tuple[list[Doc], dict[str, Fraction]]:
    """A row for every participant, in the settlement's order, and the agreed scores. SPEC 2, 3."""
    kind, epoch = rules["score"]["kind"], case["epoch"]
    stands = standing(case["evidence"], epoch, rules["consensus"]["max_age_epochs"])
    twins = duplicates(case["participants"], kind)
    rows: list[tuple[Any, Doc]] = []
    scores = {}
    for participant in case["participants"]:
        key = participant["key"]
        if key in twins:
            row = duplicate_row(twins[key], case["validators"])
        else:
            own = [record for record in stands if bears_on(record, participant)]
            verdicts = judged(kind, own, stands, rules["score"], case["tasks"], epoch)
            trials = len(case["tasks"]) * rules["score"].get("trials", 1)
            drawn = assigned(participant, case, rules, epoch)
            row, score = agree(verdicts, drawn, case["validators"], rules, trials, tuple(case["tasks"]))
            if score is not None:
                scores[key] = score
        order: Any = (1, utf8(key))
        if row["status"] == "agreed":
            best_first = -row["bps"] if kind == "rubric" else -scores[key]
            order = (0, best_first, instant(participant.get("submitted_at")), utf8(key))
        rows.append((order, {"participant": key, "submission": participant["submission"]} | row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])], scores


def tasks_seen(row: Doc) -> int:
    """In how many tasks a participant was seen: the lower median of what those validators say whose scores count."""
    counts = sorted(vote["work"]["tasks"] for vote in row["validators"] if not vote["excluded"])
    return int(counts[(len(counts) - 1) // 2])


def weights(
    ranked: list[Agreed], lasts: dict[str, int | None], seen: dict[str, int] | None, case: Doc, rules: Doc
) -> ExactSettlement:
    """Agreed scores -> weights, burn, unallocated. SPEC 4; `seen`: tasks of each, where there is a warm-up."""
    settings, decay = rules["reward"], rules["decay"]
    uids = {p["key"]: p.get("uid") for p in case["participants"]}
    inside = [item for item in ranked if reward.takes_part(item.score, settings)]
    by_strategy, burn_strategy = reward.strategy([item.score for item in inside], settings)
    by_cap, burn_cap, unallocated = reward.cap(by_strategy, fraction(settings["cap"]), settings["excess"])
    strategy_of = {item.participant: share for item, share in zip(inside, by_strategy, strict=True)}
    capped_of = {item.participant: share for item, share in zip(inside, by_cap, strict=True)}
    burn_decay = burn_warm_up = burn_unregistered = Fraction(0)
    shares = []
    rows = []
    for item in ranked:
        key, last = item.participant, lasts[item.participant]
        capped = capped_of.get(key, Fraction(0))
        tau = clocks.stale(case["epoch"], last, decay)
        kept = 1 - clocks.burned(tau, decay)
        share = capped * kept
        burn_decay += capped - share
        warm: Doc = {}
        if seen is not None:
            warmth = min(Fraction(1), Fraction(seen[key], rules["score"]["warm_up"]))
            burn_warm_up += share * (1 - warmth)
            share *= warmth
            warm = {"tasks_seen": seen[key], "warm": show(warmth)}
        if uids[key] is None:
            burn_unregistered += share
            share = Fraction(0)
        shares.append(share)
        row: Doc = {"participant": key, "uid": uids[key], "score": show(item.score)}
        row |= {"strategy": show(strategy_of.get(key, Fraction(0))), "capped": show(capped)}
        rows.append(row | {"last": last, "stale": tau, "kept": show(kept), "share": show(share)} | warm)
    burn = burn_strategy + burn_cap + burn_decay + burn_warm_up + burn_unregistered
    u16, burn_u16 = reward.encode(shares, burn, settings["encoding"])
    chain, burn_chain = reward.encode(shares, burn, "max-upscale")
    for row, value, chain_value in zip(rows, u16, chain, strict=True):
        row |= {"u16": value, "chain_u16": chain_value}
    burn_row: Doc = {"uid": decay["burn_uid"], "share": show(burn), "u16": burn_u16, "chain_u16": burn_chain}
    burn_row |= {"strategy": show(burn_strategy), "cap": show(burn_cap)}
    burn_row |= {"decay": show(burn_decay), "unregistered": show(burn_unregistered)}
    burn_row |= {} if seen is None else {"warm_up": show(burn_warm_up)}
    exact = [(item.participant, uids[item.participant], share) for item, share in zip(ranked, shares, strict=True)]
    return ExactSettlement({"weights": rows, "burn": burn_row, "unallocated": show(unallocated)}, exact, burn, unallocated)


def payouts(ranking: list[Doc], scores: dict[str, Fraction], case: Doc, rules: Doc) -> Doc:
    """Agreed scores -> payouts; BPS of a rubric, the exact score times 10 000 of other kinds. SPEC 5."""
    addresses = {p["key"]: p.get("address") or None for p in case["participants"]}
    places = []
    for row in ranking:
        bps = 10_000 * scores[row["participant"]] if row["bps"] is None else Fraction(row["bps"])
        places.append(RankedPlace(row["participant"], addresses[row["participant"]], bps))
    return pay(places, rules["payout"])


def settle_exactly(case: Doc) -> ExactSettlement:
    """The settlement of a case, with exact shares beside it."""
    case = complete(case)
    rules = filled(case["scheme"])
    epoch, decay = case["epoch"], rules["decay"]
    task_set = task_set_digest(case["tasks"]) if rules["score"]["kind"] == "tests" else None
    rows, scores = agreed_rows(case, rules)
    ranking = [row for row in rows if row["status"] == "agreed"]
    ranked = [Agreed(row["participant"], row["submission"], scores[row["participant"]]) for row in ranking]
    states = clocks.participant_clocks(ranked, case, decay, epoch, task_set)
    record = clocks.competition_clock(ranked, case, decay, epoch, task_set)
    document: Doc = {
        "schema": "assay.settlement/1",
        "scheme": {"name": rules["scheme"]["name"], "version": rules["scheme"]["version"]},
        "epoch": epoch,
        "task_set": task_set,
        "total_stake": str(sum(int(validator["stake"]) for validator in case["validators"])),
        "agreed": rows,
        "ranking": [row["participant"] for row in ranking],
        "clock": clocks.clock_document(record, states),
    }
    if rules["reward"]["kind"] == "ranking":
        return ExactSettlement(document | NO_WEIGHTS | NO_PAYOUT, [], Fraction(0), Fraction(0))
    if rules["reward"]["kind"] == "payout":
        return ExactSettlement(document | NO_WEIGHTS | payouts(ranking, scores, case, rules), [], Fraction(0), Fraction(0))
    lasts = {
        item.participant: states[item.participant].last if decay["clock"] == "participant" else record.last for item in ranked
    }
    warms = rules["score"].get("warm_up") is not None
    seen = {row["participant"]: tasks_seen(row) for row in ranking} if warms else None
    result = weights(ranked, lasts, seen, case, rules)
    result.document = document | result.document | NO_PAYOUT
    return result


def settle(case: Doc) -> Doc:
    """A case -> the settlement document, without `digest` and `scheme.digest`. SPEC 2 to 7."""
    return settle_exactly(case).document
