"""The board as a view: who gets what, how sure the order is, what burns and why, and who has no score. SPEC 3–5.

Three shapes by what the scheme rewards: weights, payouts, or the ranking alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from assay.exact import BPS, NANO, nanos
from assay.judge.holds import CopyStanding
from assay.ledger.audit_log import false_claims, kept, summary
from assay.records import Participant
from assay.serve import margins
from assay.serve.bounty import has_bounty, money_of, payout_heading, verdict, verdict_bars
from assay.serve.copies import alike, copy_rows, copy_standings, short_word
from assay.serve.draw import NARROW, fraction, percent, share, short, spark
from assay.serve.links import participant_page
from assay.serve.margins import shown_range
from assay.serve.ranking import AT_ONCE, Asked, matches, select
from assay.serve.season import Json, Season
from assay.settle.story.telling import named, ordinal, plural

__all__ = ["audited", "board", "csv_rows", "firm", "lede", "outliers", "waiting"]

LONG = 20
"""Rows above which a board is dense and has a find box."""
SHADES = 6
"""The number of shares of the strip that have a shade of their own."""
TREND = 30
"""Epochs that the small line of a share shows: the board of a long season reads no more of them."""


WHOLE = Asked()
"""A static board: the best, in the order of the ranking."""


def board(season: Season, asked: Asked = WHOLE) -> Json:
    """Everything that a page of the board prints; asked: which rows, in which order."""
    rows = season.once("board", lambda: [*_rows(season)])
    copies = copy_standings(season, season.participants.values())
    apart = _apart(rows)
    shown, pager = select(rows, asked)
    unscored = [
        _held_back(row, copies.get(row["key"])) for row in _unscored(season) if not asked.find or matches(row, asked.find)
    ]
    ranked, everybody = len(rows), len(season.agreed)
    reward = season.scheme.reward.kind if season.scheme.payout is None else "payout"
    most = None if asked.whole else AT_ONCE
    view: Json = {
        "reward": reward,
        "rows": [*_drawn(season, shown, asked, copies, steps=bool(apart))],
        "asked": asked,
        "pager": pager,
        "heads": asked.heads(),
        "long": ranked > LONG,
        "agreed": ranked,
        "total": everybody,
        "unscored": unscored[:most],
        "unscored_all": len(unscored),
        "has_ci": any(row["low"] is not None for row in rows),
        "has_trend": reward == "weights" and len(season.epochs) > 1,
        "has_kept": reward == "weights" and _decays(season),
        "has_runs": reward == "ranking" and any(row["runs"] > 1 for row in rows),
        "epochs": min(TREND, len(season.epochs)),
        "tasks": len(season.settlement.inputs.tasks),
        "notes": [*_notes(season, rows, bool(apart) and ranked > LONG)],
        "none_summary": _summary(season),
        "apart": apart,
        "few_cuts": bool(apart) and ranked > LONG,
        "waiting": [*waiting(season.waiting[:most], copy_standings(season, season.waiting))],
        "firm": [*firm(season)],
        "copies": copy_rows(season, copies, season.participants.values()),
        "alike": [*alike(season)],
    }
    view["heading"] = _heading(season, view)
    if reward == "weights":
        view |= _emission(season, rows)
    elif reward == "payout":
        view |= _payout(season, rows)
    return view


def waiting(participants: Iterable[Participant], copies: Mapping[str, CopyStanding] | None = None) -> Iterator[Json]:
    """The participants whose submission is not judged yet: the name of each, when it came (UTC, to the minute), and its state.

    copies: what is known of it as a near-copy, by participant.
    """
    for participant in participants:
        at, stands = participant.submitted_at, (copies or {}).get(participant.key)
        why = "" if stands is None or stands.state == "clear" else f"{stands.why} {stands.todo}".strip()
        row = {"name": participant.name or short(participant.key), "at": "" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"}
        yield row | {"state": short_word(stands) or "handed in", "why": why}


def firm(season: Season) -> Iterator[str]:
    """A sentence for each verdict about how firmly it holds, or that it is not known yet. Empty where no margin is defined."""
    unknown = "How firmly this holds takes long to compute for so many participants: assay margin DIR does."
    if season.address is not None:
        unknown = "How firmly this holds is not known: a service computes it beside its requests once an epoch is settled."
    yield from margins.sentences(margins.of(season), season.settlement, unknown, season.name)


def _held_back(row: Json, stands: CopyStanding | None) -> Json:
    """A participant without a score, whose submission no validator gets: then that is the reason."""
    if stands is None or stands.judged:
        return row
    return row | {"status": "held" if stands.state == "held" else "being compared", "why": stands.why, "todo": stands.todo}


def lede(season: Season) -> str:
    """One sentence: what is judged, by how many, and who is rewarded."""
    inputs, scheme = season.settlement.inputs, season.scheme
    tasks, judges = len(inputs.tasks), len(inputs.validators)
    what = plural(tasks, "task") if tasks else scheme.kind.judges
    if scheme.stakes:
        judged = f"{plural(judges, 'validator')} {'judges' if judges == 1 else 'judge'} {what}"
    else:
        judged = f"{plural(judges, 'run')} of {what}"
    if scheme.payout is not None:
        places = len(scheme.payout.split)
        return f"{judged}. {'The best solution takes' if places == 1 else f'The best {places} solutions share'} the deposit."
    if scheme.reward.kind == "ranking":
        return f"{judged}. Equal scores share a place, and nobody is paid."
    top = scheme.reward.top
    shared = {
        "linear": "Scores share the emission in proportion.",
        "direct": "A score is the share of the emission.",
        "softmax": "Better scores take exponentially more of the emission.",
        "quadratic": "Scores share the emission by their squares.",
        "ranked": "Places share the emission.",
        "winner-takes-all": "The first takes the emission." if top == 1 else f"The first {top} take the emission.",
    }[scheme.reward.strategy]
    return f"{judged}. {shared}"


def _rows(season: Season) -> Iterator[Json]:
    document, sure, money = season.document, season.standings, money_of(season)
    weights = {row["participant"]: row for row in document["weights"]}
    payouts = {row["participant"]: row for row in document["payouts"]}
    ranking = document["ranking"]
    places = [*_places(season, ranking)]
    shared = Counter(places)
    at_of = {key: at for at, key in enumerate(ranking, start=1)}
    for place, at, key in zip(places, range(1, len(ranking) + 1), ranking, strict=True):
        agreed, standing = season.agreed[key], sure.get(key)
        only = season.scheme.reward.kind == "ranking" and season.scheme.payout is None
        row: Json = {
            "key": key,
            "at": at,
            "value": nanos(agreed["score"]),
            "words": _words(season, key),
            "rank": f"{place}{'=' if shared[place] > 1 else ''}" if only else str(at),
            "name": season.name(key),
            "href": participant_page(key),
            "uid": season.participants[key].uid,
            "score": agreed["score"] if agreed["bps"] is None else str(agreed["bps"]),
            "x": fraction(agreed["score"]),
            "low": None if standing is None else standing.low,
            "high": None if standing is None else standing.high,
            "low_t": "" if standing is None or standing.low is None else f"{standing.low:.3f}",
            "high_t": "" if standing is None or standing.high is None else f"{standing.high:.3f}",
            "tied": standing is not None and standing.tied_with_next,
            "apart": standing is not None and not standing.tied_with_next and at < len(ranking),
            "step": None if standing is None or standing.step_from is None else at_of[standing.step_from],
            "passed": None if standing is None else standing.passed,
            "trials": None if standing is None else standing.trials,
            "runs": sum(not vote["excluded"] for vote in agreed["validators"]),
            "note": "",
        }
        if weight := weights.get(key):
            decayed = nanos(weight["kept"]) < NANO
            row |= {"share": percent(weight["share"]), "u16": weight["u16"], "kept": share(weight["kept"]), "decays": decayed}
            row |= {"share_n": nanos(weight["share"]), "kept_n": nanos(weight["kept"])}
            if weight["uid"] is None:
                row["note"] = "no uid, so its share burns"
            elif decayed:
                row["note"] = f"{share(NANO - nanos(weight['kept']))} decays"
        if season.scheme.payout is not None:
            paid = payouts.get(key)
            net = "0" if paid is None else paid["net"]
            row |= {"net": net, "paid": money(net), "wei": money.whole(net), "address": None if paid is None else paid["address"]}
            row |= _judged(season, agreed)
        yield row


def _judged(season: Season, agreed: Json) -> Json:
    """Of a rubric: the verdict in words, and what it did to what the checks add up to."""
    votes = [vote["work"] for vote in agreed["validators"] if not vote["excluded"]]
    if not has_bounty(season) or not votes:
        return {"note": "", "bars": []}
    verdicts = named([*dict.fromkeys(map(verdict, votes))])
    return {"note": verdicts, "bars": verdict_bars(votes[0]) if len(votes) == 1 else []}


def _words(season: Season, key: str) -> str:
    """Return what a search looks at: key, name and uid, a line each."""
    uid = season.participants[key].uid
    return f"{key}\n{season.name(key)}\n{'' if uid is None else uid}".lower()


def _drawn(season: Season, shown: list[Json], asked: Asked, copies: Mapping[str, CopyStanding], *, steps: bool) -> Iterator[Json]:
    """The rows of a page, each with its trend, and with its tie where the next row is its neighbour in the ranking.

    steps: nearly all neighbours are tied, so a row names the place than which it is the first to be clearly worse.
    """
    histories = _shares(season) if season.document["weights"] and len(season.epochs) > 1 else {}
    reach = {row["participant"]: row for row in (margins.of(season) or {"scores": ()})["scores"]}
    label = f"share in {plural(min(TREND, len(season.epochs)), 'epoch')}"
    for number, row in enumerate(shown, start=1):
        neighbour = asked.as_ranked and number < len(shown)
        line = spark(histories[row["key"]], label) if row["key"] in histories else None
        notes = [row["note"], short_word(copies.get(row["key"]))]
        if steps and row["step"] and row["step"] < row["at"] - 1:
            notes.append(f"highest place clearly worse than the {ordinal(row['step'])}")
        if row["key"] in reach:
            notes.append(f"score {shown_range(reach[row['key']])}, whatever missing trials come to")
        note = " · ".join(filter(None, notes))
        yield row | {"note": note, "spark": line, "tied": row["tied"] and neighbour, "cut": row["apart"] and neighbour}


def _places(season: Season, ranking: list[str]) -> Iterator[int]:
    """The place of each: of equal scores the first's."""
    last, place = None, 0
    for at, key in enumerate(ranking, start=1):
        row = season.agreed[key]
        value = row["score"] if row["bps"] is None else row["bps"]
        place = place if value == last else at
        last = value
        yield place


def _shares(season: Season) -> dict[str, list[int | None]]:
    """Participant → its share (nanos) in each of the last epochs."""
    epochs = [rows for _, rows in season.history(TREND)]
    return {key: [rows[key].share if key in rows else None for rows in epochs] for key in season.document["ranking"]}


def _decays(season: Season) -> bool:
    return season.scheme.decay is not None and season.scheme.decay.curve != "none"


def _heading(season: Season, view: Json) -> str:
    """Return how many have a score, and what becomes of the emission or the deposit."""
    count = (
        f"{view['agreed']} of {plural(view['total'], 'participant')} {'has' if view['agreed'] == 1 else 'have'} an agreed score."
    )
    if view["reward"] != "weights":
        return count
    burn, cut_off = season.document["burn"]["share"], nanos(season.document["unallocated"])
    paid = NANO - nanos(burn) - cut_off
    more = f", {percent(burn)} burns" if nanos(burn) else ", nothing burns"
    more += f", {percent(cut_off)} is not allocated" if cut_off else ""
    half = _half(season)
    best = f" Half of what is paid goes to the best {half}." if half and view["long"] else ""
    part = "All" if paid == NANO else percent(paid)
    return f"{count} {part} of the emission is paid{more}.{best}"


def _half(season: Season) -> int:
    """Return how many of the largest shares make half of what is paid."""
    shares = sorted((nanos(row["share"]) for row in season.document["weights"]), reverse=True)
    paid, running = sum(shares), 0
    for at, amount in enumerate(shares, start=1):
        running += amount
        if paid and 2 * running >= paid:
            return at
    return 0


def _emission(season: Season, rows: list[Json]) -> Json:
    """The strip of the emission, its key, and the row of what burns."""
    document = season.document
    shares = [(row["name"], nanos(weight["share"])) for row, weight in zip(rows, document["weights"], strict=True)]
    parts = _groups(shares)
    burn, cut_off = nanos(document["burn"]["share"]), nanos(document["unallocated"])
    strip, start = [], 0
    for number, (name, amount) in enumerate(parts):
        strip.append(_part(f"e{1 + min(number, SHADES - 1)}", start / NANO, amount / NANO, name, percent(amount)))
        start += amount
    why = [*_burnt(season)]
    if burn:
        reasons = " · ".join(f"{word} {percent(amount)}" for amount, word, _ in why)
        strip.append(_part("eb", start / NANO, burn / NANO, "burns", percent(burn), reasons))
    if cut_off:
        strip.append(_part("eu", (start + burn) / NANO, cut_off / NANO, "not allocated", percent(cut_off), "above the cap"))
    return {
        "strip": strip,
        "strip_label": ", ".join(f"{part['name']} {part['pct']}" for part in strip),
        "burn": {
            "uid": document["burn"]["uid"],
            "share": percent(burn),
            "u16": document["burn"]["u16"],
            "why": f"{named([f'{percent(amount)} {because}' for amount, _, because in why])}." if why else "Nothing burns.",
        },
    }


def _part(cls: str, start: float, width: float, name: str, amount: str, why: str = "") -> Json:
    """A part of the strip, and its line in the key."""
    return {"cls": cls, "x": start, "w": width, "name": name, "pct": amount, "why": why}


def _groups(shares: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return who has which part of the strip: each by name, or groups of ranks where there are too many to see."""
    paid = [(name, amount) for name, amount in shares if amount]
    if len(paid) <= SHADES:
        return paid
    if len(paid) <= LONG:
        others = paid[SHADES - 1 :]
        return [*paid[: SHADES - 1], (f"{len(others)} others", sum(amount for _, amount in others))]
    edges = [0, 1, 4, 16, 64, 256, len(paid)]
    groups = []
    for first, last in pairwise(edges):
        last = min(last, len(paid))
        if first < last:
            name = paid[first][0] if last == first + 1 else f"ranks {first + 1}–{last}"
            groups.append((name, sum(amount for _, amount in paid[first:last])))
    return groups


def _burnt(season: Season) -> Iterator[tuple[int, str, str]]:
    """Yield what burns, by reason: nanos, the reason in a word, and who it is because of."""
    document, rules = season.document, season.scheme.reward
    burn, rows = document["burn"], document["weights"]
    decayed = [season.name(row["participant"]) for row in rows if nanos(row["kept"]) < NANO]
    missing = [season.name(row["participant"]) for row in rows if row["uid"] is None and nanos(row["capped"])]
    reasons = (
        ("unregistered", "no uid", _because(missing, "has no uid", "have no uid")),
        ("decay", "decay", _because(decayed, "decays", "decay")),
        ("warm_up", "warm-up", "by warm-up"),
        ("cap", "cap", f"above the cap of {share(rules.cap)}"),
        ("strategy", rules.strategy, f"by the {rules.strategy} strategy" if rows else "because nobody takes part in the reward"),
    )
    for name, word, because in reasons:
        if amount := nanos(burn.get(name, "0")):
            yield amount, word, because


def _because(names: list[str], does: str, do: str) -> str:
    return f"because {named(names)} {does if len(names) == 1 else do}" if names else ""


def _payout(season: Season, rows: list[Json]) -> Json:
    """Return who gets which part of the deposit, and the threshold in the drawing."""
    document, rules, money = season.document, season.scheme.payout, money_of(season)
    assert rules is not None
    whole = rules.deposit or 1
    paid = [row for row in rows if row["net"] != "0"]
    parts = [(f"e{1 + min(at, SHADES - 1)}", row["name"], int(row["net"])) for at, row in enumerate(paid[: SHADES - 1])]
    if rest := paid[SHADES - 1 :]:
        parts.append((f"e{SHADES}", plural(len(rest), "more place"), sum(int(row["net"]) for row in rest)))
    parts += [("eb", name, int(document[name] or 0)) for name in ("fees", "refund")]
    strip, start = [], 0
    for cls, name, amount in parts:
        if amount:
            strip.append(_part(cls, start / whole, amount / whole, name, money(amount)))
            start += amount
    released, best = int(document["released"]), rows[0]["score"] if rows else "none"
    in_bps = bool(rows) and season.agreed[rows[0]["key"]]["bps"] is not None
    return {
        "heading": payout_heading(season, rules, money),
        "strip": strip,
        "strip_label": ", ".join(f"{part['name']} {part['pct']}" for part in strip) or "nothing is paid",
        "deposit": money(rules.deposit),
        "deposit_wei": money.whole(rules.deposit),
        "released": "all of it released" if released == rules.deposit else f"{money(released)} released",
        "threshold": str(rules.threshold_bps),
        "threshold_x": rules.threshold_bps / BPS,
        "in_bps": in_bps,
        "ends": ("0", "5000", "10000") if in_bps else ("0", "0.5", "1"),
        "mark": str(rules.threshold_bps) if in_bps else f"{rules.threshold_bps / BPS:g}",
        "best": best,
    }


def _notes(season: Season, rows: list[Json], few_cuts: bool) -> Iterator[str]:
    """Yield what the tables cannot say by themselves: what ≈ is, why there is no interval, who was left out."""
    if any(row["low"] is not None for row in rows):
        never = "It compares neighbours only, and it never changes a score, a rank or a weight."
        if few_cuts:
            yield f"A thick line below a row says that the tasks separate it from the next one. {never}"
        elif any(row["tied"] for row in rows):
            yield f"≈ joins two neighbours that the tasks do not separate. {never}"
        tasks = plural(len(season.settlement.inputs.tasks), "task")
        yield (
            f"The band is the 95{NARROW}% interval: the pass rates that fit the results of {tasks}. More tasks make it narrower; "
            "more validators do not."
        )
    elif has_bounty(season):
        yield (
            "The bar is what the answered checks add up to. Its stronger end is what the verdict gave back; the hatched end is "
            "what the verdict, or a required check that was missed, took away. The line is the threshold."
        )
    elif (why := season.scheme.kind.doubts(season.scheme.score)) is not None and rows:
        yield f"No intervals: {why}."
    yield from season.scheme.kind.notes(season.settlement, season.folder)
    yield from audited(season)


def audited(season: Season) -> Iterator[str]:
    """The results of the epoch's audits, and how often each validator's claims were false."""
    if season.proof is None:
        return
    for audit in kept(season.folder):
        stated = audit.predicate
        if stated["settlement"] != season.document["digest"]:
            continue
        yield summary(stated)
        for key, (false, judged) in false_claims(stated).items():
            called = season.called.get(key, key)
            yield f"{called} was wrong in {false} of {plural(judged, 'trial')} of its own that were judged again."


def outliers(season: Season) -> list[str]:
    """The validators whose scores were left out, each with the participants scored, a sentence each."""
    out: dict[str, list[str]] = {}
    for row in season.document["agreed"]:
        for vote in row["validators"]:
            if vote["excluded"]:
                out.setdefault(season.called[vote["validator"]], []).append(season.name(row["participant"]))
    return [f"{validator}’s scores of {named(people, 4)}" for validator, people in sorted(out.items())]


def _unscored(season: Season) -> Iterator[Json]:
    """The participants without an agreed score: never a zero, always with the reason and what to do."""
    spared = (margins.of(season) or {"spared": {}})["spared"]
    for key, chapter in season.without_score.items():
        why, *to_do = chapter.text if key not in spared else (f"{chapter.text[0]} {spared[key]}",)
        yield {
            "key": key,
            "name": season.name(key),
            "words": _words(season, key),
            "href": participant_page(key),
            "status": chapter.facts["status"],
            "why": why,
            "todo": " ".join(to_do),
        }


def _summary(season: Season) -> str:
    """The number of participants without a score, by state."""
    states = Counter(str(chapter.facts["status"]) for chapter in season.without_score.values())
    return ", ".join(f"{count} {state}" for state, count in states.most_common())


def _apart(rows: list[Json]) -> str:
    """A sentence for boards where nearly all neighbours are tied: the places that the tasks do separate, if any."""
    pairs = rows[:-1]
    clear = [row for row in pairs if row["apart"]]
    if not pairs or rows[0]["low"] is None or len(clear) * 4 > len(pairs):
        return ""
    if clear:
        places = [f"{ordinal(row['at'])} ({row['name']})" for row in clear]
        return f"The tasks separate neighbours only after {named(places, 6)}."
    steps = [f"the {ordinal(row['step'])} from the {ordinal(row['at'])}" for row in rows if row["step"]]
    if steps:
        return f"The tasks separate no two neighbours, but they separate {named(steps, 4)}."
    return "The tasks do not separate the first from anybody." if len(rows) > LONG else ""


def csv_rows(season: Season) -> list[list[str]]:
    """The board as rows of text under headings, exact numbers as the settlement has them."""
    names = ("rank", "participant", "name", "uid", "score", "low", "high", "tied_with_next", "kept", "share", "u16", "net")
    weights = {row["participant"]: row for row in season.document["weights"]}
    rows = [[*names]]
    for row in season.once("board", lambda: [*_rows(season)]):
        exact = {name: weights.get(row["key"], {}).get(name) for name in ("kept", "share", "u16")}
        cells = row | exact | {"participant": row["key"], "tied_with_next": str(row["tied"]).lower()}
        rows.append(["" if cells.get(name) is None else str(cells[name]) for name in names])
    return rows
