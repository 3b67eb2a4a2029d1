"""The chapters after the rank: from the agreed score to the weight or payout, and what would take the next place. SPEC 2.1, 4, 5.

The next place asks: the participant hands in something new, later than everybody else; the validators agree on a score of it in
this epoch; everything else stays as it is. What is the least score that takes the place, and what would it bring? The answer is
computed by the same function as the settlement (`rewarded`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from assay.exact import BPS, NANO, nanos, share_text, text
from assay.scheme.model import Decay, Payout
from assay.settle.rewarding import Rewarded, rewarded
from assay.settle.score.trials import score_of
from assay.settle.story.telling import Chapter, Json, Subject, money, money_table, ordinal, part, percent, plural

if TYPE_CHECKING:
    from assay.settle.settlement import Settlement


def weight_chapters(subject: Subject) -> Iterator[Chapter]:
    """The chapters of a weight: the strategy's share, the cap, the decay since the last reset, and the weight."""
    yield _strategy(subject)
    if _takes_part(subject):
        yield _cap(subject)
        yield _decay(subject, subject.scheme.decay or Decay())
        if (whole := subject.scheme.score.whole_share_from()) is not None:
            yield _warm_up(subject, whole)
    yield _weight(subject)


def _takes_part(subject: Subject) -> bool:
    score = nanos(subject.weight["score"])
    return score > 0 and score >= subject.scheme.reward.min_score


def _strategy(subject: Subject) -> Chapter:
    rules, weight = subject.scheme.reward, subject.weight
    others = [row for row in subject.document["weights"] if nanos(row["score"]) >= max(1, rules.min_score)]
    if _takes_part(subject):
        sentences = (_shared(subject, len(others), text(sum(nanos(row["score"]) for row in others))),)
    elif nanos(weight["score"]) == 0:
        sentences = ("A score of 0 has no part in the reward.",)
    else:
        sentences = (f"The score is below min_score, {text(rules.min_score)}, so it has no part in the reward.",)
    return Chapter(
        name="strategy",
        title="Share",
        text=sentences,
        facts={"strategy": rules.strategy, "share": weight["strategy"], "takes_part": _takes_part(subject), "of": len(others)},
    )


def _shared(subject: Subject, count: int, total: str) -> str:
    """The share that the strategy gave, with the numbers it went by. SPEC 4, Strategy."""
    rules, score, rank = subject.scheme.reward, subject.weight["score"], subject.rank
    share = f"{subject.weight['strategy']} ({percent(subject.weight['strategy'])})"
    match rules.strategy:
        case "linear":
            taking = f"{plural(count, 'score')} that {'takes' if count == 1 else 'take'} part"
            return f"Linear: its score {score} of {total}, the sum of the {taking}, is {share}."
        case "direct" if nanos(total) <= NANO:
            return f"Direct: the score itself is the share, {share}, as all scores together ({total}) are not more than 1."
        case "direct":
            return f"Direct: its score {score} of {total}, the sum of all scores, which is more than 1: {share}."
        case "softmax":
            return f"Softmax at temperature {text(rules.temperature)} over {plural(count, 'score')}: {share}."
        case "winner-takes-all" if rank <= rules.top:
            winners = min(rules.top, count)
            which = (
                "the first of the ranking gets all" if winners == 1 else f"the first {winners} of the ranking get equal shares"
            )
            return f"Winner takes all: {which}: {share}."
        case "winner-takes-all":
            which = "the first of the ranking gets" if rules.top == 1 else f"the first {rules.top} of the ranking get"
            return f"Winner takes all: only {which} a share; {ordinal(rank)} gets none."
        case "quadratic":
            return f"Quadratic: the square of its score {score} over the sum of the squares of {plural(count, 'score')}: {share}."
        case _:
            return f"Ranked: place {rank} of {count} gets {count - rank + 1} of {count * (count + 1) // 2} parts: {share}."


def _cap(subject: Subject) -> Chapter:
    rules, weight = subject.scheme.reward, subject.weight
    before, after = nanos(weight["strategy"]), nanos(weight["capped"])
    cap = percent(rules.cap)
    if after < before:
        went = {"redistribute": "went to the shares below it", "drop": "stays unallocated", "burn": "burns"}[rules.excess]
        if rules.excess == "redistribute" and nanos(subject.document["burn"]["cap"]):
            went = "went to the shares below it as far as they could take it, and the rest burns"
        sentence = f"No share may be more than {cap}: the {text(before - after)} above it {went}. {weight['capped']} is left."
    elif after > before:
        raised = f"raises this share by {text(after - before)} to {weight['capped']}"
        sentence = f"Other shares are above the cap of {cap}; their excess {raised}."
    else:
        sentence = f"The cap of {cap} changes nothing."
    return Chapter(
        name="cap",
        title="Cap",
        text=(sentence,),
        facts={"cap": text(rules.cap), "excess": rules.excess, "before": weight["strategy"], "after": weight["capped"]},
    )


def _decay(subject: Subject, rules: Decay) -> Chapter:
    weight, epoch = subject.weight, subject.document["epoch"]
    last, stale, kept = weight["last"], weight["stale"], nanos(weight["kept"])
    begins = last + rules.grace_epochs + 1
    if rules.curve == "none":
        sentences: tuple[str, ...] = ("Under this scheme nothing decays.",)
    else:
        whose = "The competition's" if rules.clock == "competition" else "Its"
        ago = f"{plural(epoch - last, 'epoch')} ago" if last != epoch else "this epoch"
        since = f"{whose} clock was last reset in epoch {last}, {ago}; {_free(rules.grace_epochs)}."
        if stale:
            lost = f"{plural(stale, 'stale epoch')} at {percent(rules.rate)} ({rules.curve}, at most {percent(rules.max_burn)})"
            since += f" {lost}, from epoch {begins} on: {percent(NANO - kept)} burns, {percent(kept)} is kept."
        else:
            since += f" Everything is kept. Decay begins in epoch {begins}, unless the clock is reset before."
        sentences = (since, _reset(subject, rules))
    return Chapter(
        name="decay",
        title="Decay",
        text=sentences,
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


def _free(epochs: int) -> str:
    """The number of epochs after a reset that do not count towards decay, in words."""
    return {0: "no epoch is free", 1: "the first epoch is free"}.get(epochs, f"the first {epochs} epochs are free")


def _reset(subject: Subject, rules: Decay) -> str:
    """The event that would reset the clock. SPEC 4, Decay."""
    if rules.clock == "competition":
        record = nanos(subject.document["clock"]["record"])
        least = record + rules.improvement
        if rules.improvement_mode == "relative":
            least = -(-record * (NANO + rules.improvement) // NANO)
        reaching = f"reaches {text(min(NANO, least))} (the record is {text(record)})"
        return f"If anyone's new submission {reaching}, the clock is reset for all."
    if rules.reset == "update":
        return "A new submission resets the clock."
    own = next(clock for clock in subject.document["clock"]["participants"] if clock["participant"] == subject.participant.key)
    return f"A new submission with a score above its own best, {own['best']}, resets the clock."


def _warm_up(subject: Subject, whole: int) -> Chapter:
    seen, warm = subject.weight["tasks_seen"], subject.weight["warm"]
    sentence = f"It was seen in {plural(seen, 'task')}; a whole share needs {whole}. "
    sentence += "Everything is kept." if seen >= whole else f"So {percent(warm)} is kept, and the rest burns."
    return Chapter(name="warm-up", title="Warm-up", text=(sentence,), facts={"warm_up": whole, "tasks_seen": seen, "warm": warm})


def _weight(subject: Subject) -> Chapter:
    weight, rules = subject.weight, subject.scheme.reward
    sentences = [f"The final share is {weight['share']} ({percent(weight['share'])})."]
    if weight["uid"] is None:
        sentences = [
            "It has no uid on the subnet, so its share burns.",
            "To do: register the key as a hotkey on the subnet; the operator then fills in its uid.",
            *sentences,
        ]
    chain = f"on chain, where the largest weight is 65535, {weight['chain_u16']}"
    sentences.append(f"Encoded ({rules.encoding}), it is {weight['u16']} of 65535; {chain}.")
    return Chapter(
        name="weight",
        title="Weight",
        text=tuple(sentences),
        facts={key: weight[key] for key in ("uid", "share", "u16", "chain_u16")} | {"encoding": rules.encoding},
    )


def payout_chapters(subject: Subject, rules: Payout) -> Iterator[Chapter]:
    """The chapters of a payout: the part of the deposit that the best score releases, and this participant's part of it."""
    yield _release(subject, rules)
    yield _paid(subject, rules)


def _bps(row: Json) -> str:
    """A score in BPS: whole from a rubric, else exact to a hundred-thousandth. SPEC 1, 5."""
    return str(row["bps"]) if row["bps"] is not None else text(nanos(row["score"]), 5)


def _nanos(row: Json) -> int:
    """The nanos that payouts go by: a rubric's are its BPS."""
    return nanos(row["score"]) if row["bps"] is None else int(row["bps"]) * (NANO // BPS)


def _release(subject: Subject, rules: Payout) -> Chapter:
    document = subject.document
    best, tier, deposit = document["agreed"][0], document["tier_bps"], rules.deposit
    ratio = part(_nanos(best), rules.threshold_bps * (NANO // BPS))
    sentence = f"The best score, {_bps(best)} BPS, is {ratio} of the threshold of {rules.threshold_bps} BPS"
    if tier:
        sentence += f": {part(tier, BPS)} of the deposit is released."
    else:
        sentence += f", below the lowest tier ({_lowest(rules)}): the deposit is refunded."
    return Chapter(
        name="release",
        title="What is released",
        text=(sentence,),
        facts={
            "best": best["participant"],
            "threshold_bps": rules.threshold_bps,
            "tier_bps": tier,
            "deposit": str(deposit),
            "released": document["released"],
            "refund": document["refund"],
        },
        table=money_table({"deposit": str(deposit), "released": document["released"]}, subject.token),
    )


def _lowest(rules: Payout) -> str:
    return part(rules.tiers[-1].reach_bps, BPS)


def _paid(subject: Subject, rules: Payout) -> Chapter:
    paid, place = subject.payout, subject.rank
    facts: dict[str, object] = {"place": place, "places": len(rules.split), "fee_bps": rules.fee_bps}
    if paid is None:
        sentences = [f"{ordinal(place)} place is not paid; the prize is for {plural(len(rules.split), 'place')}."]
    elif paid["gross"] == "0":
        sentences = [_nothing(subject, rules)]
    else:
        split, fee = part(rules.split[place - 1], BPS), part(rules.fee_bps, BPS)
        sentences = [
            f"{ordinal(place)} place gets {split} of it, less a fee of {fee}.",
            f"It goes to {paid['address']}."
            if paid["address"]
            else "To do: participants.csv has no address to pay to; fill it in.",
        ]
    if paid is not None:
        facts |= {key: paid[key] for key in ("address", "gross", "fee", "net")}
    amounts = (
        None
        if paid is None or paid["gross"] == "0"
        else money_table({"its part": paid["gross"], "fee": paid["fee"], "paid": paid["net"]}, subject.token)
    )
    return Chapter(name="payout", title="Payout", text=tuple(sentences), facts=facts, table=amounts)


def _nothing(subject: Subject, rules: Payout) -> str:
    """The reason that a place of the split is paid nothing. SPEC 5."""
    if not subject.document["tier_bps"]:
        return "Nothing is released, so nothing is paid."
    if _nanos(subject.row) * BPS < rules.tiers[-1].reach_bps * rules.threshold_bps * (NANO // BPS):
        return (
            f"A place is paid only if its own score reaches {_lowest(rules)} of the threshold; {_bps(subject.row)} BPS does not."
        )
    return "Its part of the released amount is less than the smallest unit, so it is paid nothing."


_MOMENT = timedelta(microseconds=1)
_END = datetime.max.replace(tzinfo=UTC) - _MOMENT


def reaching(settlement: Settlement, subject: Subject) -> Chapter:
    """The next place in the ranking, its holder, and the least score that takes it; or that no score can."""
    if subject.scheme.reward.kind == "ranking":
        return _sharing(settlement, subject)
    place = subject.rank
    if place == 1:
        return _chapter(("It has the first place.",), {"rank": 1, "above": None, "least": None})
    column, other = settlement.order[place - 1], settlement.order[place - 2]
    above = settlement.frame.participants[other]
    theirs = _score_text(settlement, _value(settlement, other))
    facts: Json = {"rank": place, "above": above, "above_score": theirs}
    has = f"The place above, {ordinal(place - 1)}, is held by {subject.person(above)} with {theirs}."
    change = _least(settlement, column, place)
    if change is None:
        never = "No score can take this place: there is no higher score, and of equal scores the earlier submission ranks first."
        return _chapter((has, never), facts | {"least": None})
    value, then = change
    least, at = _score_text(settlement, value), then.order.index(column)
    takes = "takes it" if at == place - 2 else f"takes place {at + 1} at once"
    brings, numbers = _brings(subject, then, at)
    sentence = f"A new submission with an agreed score of {least} or more {takes}: if all else stays the same, {brings}."
    facts |= {"least": least, "place": at + 1} | numbers
    enough, trials = subject.scheme.kind.enough(subject, value)
    return _chapter((has, sentence, *enough), facts | trials)


def _sharing(settlement: Settlement, subject: Subject) -> Chapter:
    """The next place of a ranking in which equal scores share a place: an equal score is enough."""
    if subject.place == 1:
        return _chapter(("It has the first place.",), {"rank": 1, "above": None, "least": None})
    own = _value(settlement, settlement.order[subject.rank - 1])
    better = [column for column in settlement.order if _value(settlement, column) > own]
    value = _value(settlement, better[-1])
    above, least = settlement.frame.participants[better[-1]], _score_text(settlement, value)
    place = 1 + sum(_value(settlement, column) > value for column in better)
    sentence = f"The place above, {ordinal(place)}, is held by {subject.person(above)} with {least}. An equal score shares it."
    enough, trials = subject.scheme.kind.enough(subject, value)
    facts = {"rank": subject.place, "above": above, "above_score": least, "least": least, "place": place}
    return _chapter((sentence, *enough), facts | trials)


def trials_enough(subject: Subject, value: int) -> tuple[tuple[str, ...], Json]:
    """The number of passed trials (or of tasks, where all validators must see them pass) for a score (nanos). SPEC 2.1, 3.0."""
    if subject.scheme.score.scores_jointly():
        passed = _passed(value, subject.tasks)
        sentence = f"It is enough if every {subject.judge} sees all trials of {passed} of {plural(subject.tasks, 'task')} pass."
        return (sentence,), {"tasks_passed": passed, "tasks": subject.tasks}
    trials = subject.tasks * (subject.scheme.kind.trials(subject.scheme.score) or 1)
    passed = _passed(value, trials)
    are = "is" if passed == 1 else "are"
    sentence = f"If every {subject.judge} sees the same, {passed} of {plural(trials, 'trial')} passed {are} enough."
    return (sentence,), {"trials_passed": passed, "trials": trials}


def _chapter(sentences: tuple[str, ...], facts: Json) -> Chapter:
    return Chapter(name="next-place", title="The next place", text=sentences, facts=facts)


def _step(settlement: Settlement) -> int:
    """The least difference between two scores, in nanos."""
    return 1 if settlement.agreement.bps is None else NANO // BPS


def _value(settlement: Settlement, column: int) -> int:
    """The nanos that the ranking goes by: a rubric's are its BPS."""
    bps = settlement.agreement.bps
    return int(settlement.agreement.score[column]) if bps is None else int(bps[column]) * _step(settlement)


def _score_text(settlement: Settlement, value: int) -> str:
    """A score as people of this competition write it."""
    return text(value) if settlement.agreement.bps is None else f"{value // _step(settlement)} BPS"


def _least(settlement: Settlement, column: int, place: int) -> tuple[int, Rewarded] | None:
    """The least score (nanos) with which the participant ranks above this place, and what follows; None if there is none."""
    above, step = _value(settlement, settlement.order[place - 2]), _step(settlement)
    for value in range(above, min(NANO, above + step) + 1, step):
        then = _with(settlement, column, value)
        if then.order.index(column) < place - 1:
            return value, then
    return None


def _with(settlement: Settlement, column: int, value: int) -> Rewarded:
    """The reward if the participant's new submission has this agreed score (nanos)."""
    inputs, agreement = settlement.inputs, settlement.agreement
    scores, bps = agreement.score.copy(), None if agreement.bps is None else agreement.bps.copy()
    scores[column] = value
    if bps is not None:
        bps[column] = value // _step(settlement)
    people = list(inputs.participants)
    own = people[column]
    last = max((participant.submitted_at for participant in people if participant.submitted_at is not None), default=_END)
    when = None if own.submitted_at is None else min(last, _END) + _MOMENT
    people[column] = replace(own, submission="", submitted_at=when)  # an empty one is taken for new by both clocks
    return rewarded(
        replace(inputs, participants=tuple(people)),
        settlement.frame,
        settlement.scored,
        replace(agreement, score=scores, bps=bps),
    )


def _brings(subject: Subject, then: Rewarded, at: int) -> tuple[str, Json]:
    """The worth of the place at this index."""
    if then.payouts is not None:
        net = str(next((paid.net for paid in then.payouts.rows if paid.place == at + 1), 0))
        return f"it would be paid {money(net, subject.token)} after fees", {"net": net}
    assert then.allotment is not None
    share = share_text(then.allotment.share[at])
    u16, chain = then.allotment.u16[at], then.allotment.chain_u16[at]
    return f"its share would be {percent(share)}: weight {u16} of 65535", {"share": share, "u16": u16, "chain_u16": chain}


def _passed(value: int, trials: int) -> int:
    """The least number of passed trials that gives this score (nanos). SPEC 2.1."""
    passed = value * trials // NANO
    return passed + (score_of(passed, trials) < value)
