"""From the agreed score to the weight: share, cap, decay, warm-up, registration, encoding. SPEC 4."""

from __future__ import annotations

from collections.abc import Iterator

from assay.exact import NANO, nanos, text
from assay.scheme.model import Decay
from assay.settle.story.telling import Case, Chapter, ordinal, percent, plural

__all__ = ["chapters"]


def chapters(case: Case) -> Iterator[Chapter]:
    """What the strategy gave, what the cap moved, what decayed and since when, and the weight."""
    yield _strategy(case)
    if _takes_part(case):
        yield _cap(case)
        yield _decay(case, case.scheme.decay or Decay())
        if case.scheme.score.kind == "workflow" and case.scheme.score.warm_up is not None:
            yield _warm_up(case, case.scheme.score.warm_up)
    yield _weight(case)


def _takes_part(case: Case) -> bool:
    score = nanos(case.weight["score"])
    return score > 0 and score >= case.scheme.reward.min_score


def _strategy(case: Case) -> Chapter:
    rules, weight = case.scheme.reward, case.weight
    others = [row for row in case.document["weights"] if nanos(row["score"]) >= max(1, rules.min_score)]
    if _takes_part(case):
        said = (_shared(case, len(others), text(sum(nanos(row["score"]) for row in others))),)
    elif nanos(weight["score"]) == 0:
        said = ("A score of 0 takes no part in the reward.",)
    else:
        said = (f"The score is below min_score, {text(rules.min_score)}, so it takes no part in the reward.",)
    return Chapter(
        name="strategy",
        title="Share",
        text=said,
        facts={"strategy": rules.strategy, "share": weight["strategy"], "takes_part": _takes_part(case), "of": len(others)},
    )


def _shared(case: Case, count: int, total: str) -> str:
    """What the strategy gave, with the numbers it went by. SPEC 4, Strategy."""
    rules, score, rank = case.scheme.reward, case.weight["score"], case.rank
    share = f"{case.weight['strategy']} ({percent(case.weight['strategy'])})"
    match rules.strategy:
        case "linear":
            return f"Linear: its score {score} of {total}, the sum of the {plural(count, 'score')} that take part, is {share}."
        case "direct" if nanos(total) <= NANO:
            return f"Direct: the score itself is the share, {share}, as all scores together ({total}) are not more than 1."
        case "direct":
            return f"Direct: its score {score} of {total}, the sum of all scores, which is more than 1: {share}."
        case "softmax":
            return f"Softmax at temperature {text(rules.temperature)} over {plural(count, 'score')}: {share}."
        case "winner-takes-all" if rank <= rules.top:
            return f"Winner takes all: the first {min(rules.top, count)} of the ranking get equal shares: {share}."
        case "winner-takes-all":
            return f"Winner takes all: only the first {rules.top} of the ranking get a share; {ordinal(rank)} gets none."
        case "quadratic":
            return f"Quadratic: the square of its score {score} over the sum of the squares of {plural(count, 'score')}: {share}."
        case _:
            return f"Ranked: place {rank} of {count} gets {count - rank + 1} of {count * (count + 1) // 2} parts: {share}."


def _cap(case: Case) -> Chapter:
    rules, weight = case.scheme.reward, case.weight
    before, after = nanos(weight["strategy"]), nanos(weight["capped"])
    cap = percent(rules.cap)
    if after < before:
        went = {"redistribute": "went to those below it", "drop": "stays unallocated", "burn": "burns"}[rules.excess]
        if rules.excess == "redistribute" and nanos(case.document["burn"]["cap"]):
            went = "went to those below it as far as they could take it, and the rest burns"
        said = f"Nobody may have more than {cap}: {text(before - after)} above it {went}. {weight['capped']} is left."
    elif after > before:
        raised = f"raises this share by {text(after - before)} to {weight['capped']}"
        said = f"Others are above the cap of {cap}; what they may not keep {raised}."
    else:
        said = f"The cap of {cap} changes nothing here."
    return Chapter(
        name="cap",
        title="Cap",
        text=(said,),
        facts={"cap": text(rules.cap), "excess": rules.excess, "before": weight["strategy"], "after": weight["capped"]},
    )


def _decay(case: Case, rules: Decay) -> Chapter:
    weight, epoch = case.weight, case.document["epoch"]
    last, stale, kept = weight["last"], weight["stale"], nanos(weight["kept"])
    begins = last + rules.grace_epochs + 1
    if rules.curve == "none":
        said: tuple[str, ...] = ("Nothing decays under this scheme.",)
    else:
        whose = "The competition's" if rules.clock == "competition" else "Its"
        ago = f"{plural(epoch - last, 'epoch')} ago" if last != epoch else "which is this one"
        since = f"{whose} clock last started anew in epoch {last}, {ago}; the first {rules.grace_epochs} are free."
        if stale:
            lost = f"{plural(stale, 'stale epoch')} at {percent(rules.rate)} ({rules.curve}, at most {percent(rules.max_burn)})"
            since += f" {lost}, from epoch {begins} on: {percent(NANO - kept)} burns, {percent(kept)} is kept."
        else:
            since += f" Everything is kept. Decay begins in epoch {begins}, unless the clock starts anew before."
        said = (since, _anew(case, rules))
    return Chapter(
        name="decay",
        title="Decay",
        text=said,
        facts={
            "curve": rules.curve,
            "clock": rules.clock,
            "grace_epochs": rules.grace_epochs,
            "rate": text(rules.rate),
            "max_burn": text(rules.max_burn),
            "last": last,
            "stale": stale,
            "kept": weight["kept"],
            "begins": None if rules.curve == "none" else begins,
        },
    )


def _anew(case: Case, rules: Decay) -> str:
    """What would start the clock anew. SPEC 4, Decay."""
    if rules.clock == "competition":
        record = nanos(case.document["clock"]["record"])
        least = record + rules.improvement
        if rules.improvement_mode == "relative":
            least = -(-record * (NANO + rules.improvement) // NANO)
        reaching = f"reaches {text(min(NANO, least))} (the record is {text(record)})"
        return f"A new submission of anyone that {reaching} starts it anew for all."
    if rules.reset == "update":
        return "A new submission starts it anew."
    own = next(one for one in case.document["clock"]["participants"] if one["participant"] == case.participant.key)
    return f"A new submission with a score above its own best, {own['best']}, starts it anew."


def _warm_up(case: Case, whole: int) -> Chapter:
    seen, warm = case.weight["tasks_seen"], case.weight["warm"]
    said = f"It was seen in {plural(seen, 'task')}; a whole share takes {whole}. "
    said += "Everything is kept." if seen >= whole else f"So {percent(warm)} is kept, and the rest burns."
    return Chapter(name="warm-up", title="Warm-up", text=(said,), facts={"warm_up": whole, "tasks_seen": seen, "warm": warm})


def _weight(case: Case) -> Chapter:
    weight, rules = case.weight, case.scheme.reward
    said = [f"The share that is left is {weight['share']} ({percent(weight['share'])})."]
    if weight["uid"] is None:
        said = [
            "It has no uid, so it is not registered, and its share burns.",
            "To do: register the key and fill in its uid.",
            *said,
        ]
    chain = f"on chain, where the largest weight is 65535, {weight['chain_u16']}"
    said.append(f"Encoded ({rules.encoding}) it is {weight['u16']} of 65535; {chain}.")
    return Chapter(
        name="weight",
        title="Weight",
        text=tuple(said),
        facts={key: weight[key] for key in ("uid", "share", "u16", "chain_u16")} | {"encoding": rules.encoding},
    )
