"""A bounty's page as a view: what is asked, by when, how each solution was judged, and where the deposit goes. SPEC 2.3, 5.

Judges' quotes are committed by digest and released to the sponsor alone. A page shows the text of a quote only if the sponsor
published it (`assay rejudge --publish-quotes`), and the text has the digest that the evidence names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC

from assay.exact import BPS, NANO, WEI, coins, half_even
from assay.judge.rubric.stored import published_quotes
from assay.records import Evidence, Rubric
from assay.scheme.advice import deadlines
from assay.scheme.bounty import Bounty, read_bounty
from assay.scheme.model import Payout, RubricScore
from assay.serve.draw import share, when
from assay.serve.links import participant_page
from assay.serve.published import published
from assay.serve.season import Json, Season
from assay.settle.score import accepted, holding
from assay.settle.score.rubric import BASELINE
from assay.settle.story.telling import named, ordinal, plural

__all__ = [
    "Money",
    "bounty",
    "bounty_document",
    "has_bounty",
    "money_of",
    "payout_heading",
    "verdict",
    "verdict_bars",
]

COLUMNS = 12
"""Solutions whose answers stand side by side: the best ones."""
LINES = 14
"""Lines of a problem that are open; a longer one unfolds."""
SHADES = 6
GATE = {"B1": "It is legal", "B2": "It is ethical", "B3": "It is not spam", "B4": "It addresses the problem"}
MEANS = {
    "bounty.commitments_until": "Commitments until",
    "bounty.submissions_until": "Solutions until",
    "payout.scoring_deadline": "Scores until",
}


def has_bounty(season: Season) -> bool:
    """Whether a season judges by a rubric and pays out a deposit."""
    return season.scheme.payout is not None and isinstance(season.scheme.score, RubricScore)


def bounty(season: Season) -> Json:
    """Everything that a bounty's page prints. Raises BadInput if bounty.toml is there and wrong."""
    rules, payout = season.scheme.score, season.scheme.payout
    assert isinstance(rules, RubricScore)
    assert payout is not None
    terms = read_bounty(season.folder) if (season.folder / "bounty.toml").exists() else None
    money = money_of(season)
    targets = published(season.folder)
    return {
        "title": (terms.terms.title or terms.terms.name) if terms is not None else season.scheme.name,
        "deposit": money(payout.deposit),
        "deposit_wei": money.whole(payout.deposit),
        "threshold": payout.threshold_bps,
        "threshold_x": payout.threshold_bps / BPS,
        "deadlines": [*_deadlines(terms, payout)],
        "asked": _asked(terms),
        "judges": "" if terms is None else _judges(terms),
        "enclave": terms is not None and terms.enclave is not None,
        "digest": "" if terms is None else terms.digest,
        "rows": [*_rows(season, money)],
        "unscored": [*_unscored(season)],
        "rubric": _rubric(season, rules),
        "flow": [*_flow(season, payout, money)],
        "strip": [*_strip(season, payout)],
        "heading": payout_heading(season, payout, money),
        "tiers": [*_tiers(season, payout, money)],
        "targets": targets,
        "contract": next((value for target in targets for word, value in target["where"] if word == "Contract"), ""),
    }


def bounty_document(season: Season) -> Json:
    """The page as JSON: what is asked, how each solution was judged, and where the deposit goes, in wei."""
    rules, payout, view = season.scheme.score, season.scheme.payout, bounty(season)
    assert isinstance(rules, RubricScore)
    assert payout is not None
    asked = view["asked"]
    return {
        "epoch": season.settlement.epoch,
        "title": view["title"],
        "bounty": view["digest"],
        "problem": "\n".join(part for part in (asked["text"], asked["more"]) if part) or None,
        "why": asked["why"],
        "deposit": str(payout.deposit),
        "threshold_bps": payout.threshold_bps,
        "deadlines": [{"what": what, "until": until} for what, until in view["deadlines"]],
        "solutions": [
            {name: row[name] for name in ("rank", "key", "name", "verdict", "bps", "address")} | {"paid": row["net"]}
            for row in view["rows"]
        ],
        "unscored": [{name: row[name] for name in ("key", "name", "status", "why", "todo")} for row in view["unscored"]],
        "rubric": [
            {name: row[name] for name in ("id", "label", "what", "weight", "missed")}
            | {
                "answers": {
                    column["key"]: cell["t"] for column, cell in zip(view["rubric"]["columns"], row["cells"], strict=True)
                }
            }
            for row in view["rubric"]["rows"]
        ],
        "payouts": season.document["payouts"],
        "fees": season.document["fees"],
        "refund": season.document["refund"],
        "sent": view["targets"],
    }


class Money:
    """Amounts for people. Of a token, whose decimals are not known here, only the smallest units are shown."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, amount: int | str) -> str:
        """In ether: "1.5 ether"."""
        number, unit = self.parts(amount)
        return f"{number} {unit}"

    def parts(self, amount: int | str) -> tuple[str, str]:
        """The number, and the unit that stands behind it."""
        return (str(amount), f"units of {self._token}") if self._token else (coins(amount, WEI), "ether")

    def whole(self, amount: int | str) -> str:
        """In full: "1500000000000000000 wei"; empty for a token."""
        return "" if self._token else f"{amount} wei"


def money_of(season: Season) -> Money:
    """Return how amounts of a season's deposit are written."""
    return Money(season.token)


def _deadlines(terms: Bounty | None, payout: Payout) -> Iterator[tuple[str, str]]:
    times = deadlines(terms) if terms is not None else {"payout.scoring_deadline": payout.scoring_deadline}
    for field, until in times.items():
        yield MEANS[field], "no deadline" if until is None else when(until.astimezone(UTC))


def _judges(terms: Bounty) -> str:
    panel, fallback = terms.rules.panel, terms.judge.fallback.name
    if panel is None:
        return f"{terms.judge.model.name}, and if it does not answer, {fallback}"
    members = " and ".join(model.name for model in terms.judge.members)
    return f"a panel of {panel.answers} answers by {members}, and if one does not answer, {fallback}"


def _asked(terms: Bounty | None) -> Json:
    """The problem's text, or why it is not here."""
    if terms is None:
        return {"text": "", "more": "", "why": "There is no bounty.toml in this folder, so the problem’s text is not here."}
    if terms.problem is None:
        why = f"The problem is sealed: only the enclave reads it. The digest of its text is {terms.problem_digest}."
        return {"text": "", "more": "", "why": why}
    lines = terms.problem.strip().splitlines()
    more = len(lines) > LINES
    return {"text": "\n".join(lines[:LINES] if more else lines), "more": "\n".join(lines[LINES:]) if more else "", "why": ""}


def _rows(season: Season, money: Money) -> Iterator[Json]:
    """The solutions with an agreed score, best first: verdict, BPS, how they came about, and what is paid."""
    payouts = {row["participant"]: row for row in season.document["payouts"]}
    for rank, key in enumerate(season.document["ranking"], start=1):
        row = season.agreed[key]
        votes = [vote for vote in row["validators"] if not vote["excluded"]]
        paid = payouts.get(key)
        net = "0" if paid is None else paid["net"]
        verdicts = dict.fromkeys(verdict(vote["work"]) for vote in votes)
        yield {
            "rank": rank,
            "key": key,
            "name": season.name(key),
            "href": participant_page(key),
            "verdict": named([*verdicts]),
            "bps": row["bps"],
            "x": row["bps"] / BPS,
            "bars": verdict_bars(votes[0]["work"]) if len(votes) == 1 else [],
            "dots": [vote["work"]["bps"] / BPS for vote in votes] if len(votes) > 1 else [],
            "label": f"{season.name(key)}: {row['bps']} BPS",
            "net": net,
            "paid": "" if net == "0" else money(net),
            "whole": "" if net == "0" else money.whole(net),
            "address": None if paid is None else paid["address"],
        }


def verdict(work: Json) -> str:
    """A judgement in a few words."""
    if not work["gate"]:
        return "baseline not met"
    word = str(work["verdict"]).replace("_", " ").lower()
    return f"{word}, a required check missed" if work["capped"] else word


def verdict_bars(work: Json) -> list[Json]:
    """Return what the answered checks add up to, and what the verdict, or a required check that was missed, changed."""
    base, bps = work["base"] / BPS, work["bps"] / BPS
    bars = [{"c": "mid", "x": 0.0, "w": min(base, bps)}]
    if bps > base:
        bars.append({"c": "up", "x": base, "w": bps - base})
    if bps < base:
        bars.append({"c": "loss", "x": bps, "w": base - bps})
    return bars


def _unscored(season: Season) -> Iterator[Json]:
    for key, chapter in season.without_score.items():
        why, *to_do = chapter.text
        yield {
            "key": key,
            "name": season.name(key),
            "href": participant_page(key),
            "status": chapter.facts["status"],
            "why": why,
            "todo": " ".join(to_do),
        }


def _judgements(season: Season, key: str) -> dict[str, Rubric]:
    """Validator → its judgement of a participant's current submission, if there is one that stands."""
    frame = season.settlement.frame
    records: list[Evidence] = [record for record in season.records(key) if isinstance(record, Rubric)]
    column, column_of = frame.column[key], holding(frame)
    judgements = [record for record in accepted(records, frame) if column_of(record) == column]
    return {record.validator: record for record in judgements if isinstance(record, Rubric)}


def _released(season: Season, judged: Mapping[str, Mapping[str, Rubric]]) -> dict[tuple[str, str], str]:
    """(participant, check) → a quote that was published; of several validators' quotes the first one's."""
    quotes: dict[tuple[str, str], str] = {}
    for key, records in judged.items():
        for record in records.values():
            for name, text in published_quotes(season.folder, record).items():
                quotes.setdefault((key, name), text)
    return quotes


def _rubric(season: Season, rules: RubricScore) -> Json:
    """Every question with its weight, and what the judges answered for each of the best solutions."""
    shown = season.document["ranking"][:COLUMNS]
    judged = {key: _judgements(season, key) for key in shown}
    released = _released(season, judged)
    questions = [(name, GATE[name], "", "", "one NO makes the score 0") for name in BASELINE]
    questions += [
        (check.id, check.label, check.description, f"{check.weight} BPS",
         "a good verdict may give it back" if check.skippable else f"a NO leaves {BPS // 5} BPS at most")
        for check in rules.checks
    ]  # fmt: skip
    rows: list[Json] = []
    for name, label, description, weight, missed in questions:
        cells = [_answers(season, judged[key], key, name, baseline=not weight) for key in shown]
        quotes = [(season.name(key), released[key, name]) for key in shown if (key, name) in released]
        row = {"id": name, "label": label, "what": description, "weight": weight, "missed": missed}
        rows.append(row | {"cells": cells, "quotes": quotes})
    committed = sum(len(record.quotes or {}) for records in judged.values() for record in records.values())
    columns = [{"key": key, "name": season.name(key), "href": participant_page(key)} for key in shown]
    return {
        "columns": columns,
        "rows": rows,
        "more": len(season.document["ranking"]) - len(shown),
        "quotes": _quotes(committed, sum(len(row["quotes"]) for row in rows)),
        "injection": rules.injection is not None,
    }


def _answers(season: Season, judged: Mapping[str, Rubric], key: str, name: str, *, baseline: bool) -> Json:
    """A cell: how many of the validators that count answered YES to a question about a solution."""
    counting = {vote["validator"] for vote in season.agreed[key]["validators"] if not vote["excluded"]}
    answers = []
    for validator, record in judged.items():
        given = record.baseline if baseline else record.checks
        if validator in counting and isinstance(given, dict) and isinstance(given.get(name), bool):
            answers.append(given[name])
    yes = sum(answers)
    shown = "none" if not answers else "pass" if yes == len(answers) else "fail"
    words = "not asked" if not answers else f"{yes} of {len(answers)} yes" if len(answers) > 1 else "yes" if yes else "no"
    return {"o": shown, "t": words}


def _quotes(committed: int, shown: int) -> str:
    """Return what is known of the judges' quotes, in a sentence."""
    if not committed and not shown:
        return "The judgements have no quotes."
    if shown:
        return f"{plural(shown, 'quote')} {'is' if shown == 1 else 'are'} released, below the questions that they answer."
    verb = "is" if committed == 1 else "are"
    return f"{plural(committed, 'quote')} from the solutions {verb} committed by digest, and not released."


def _flow(season: Season, payout: Payout, money: Money) -> Iterator[Json]:
    """Yield where the deposit goes: each paid place, the fees, the refund, and the sum, which is the deposit."""
    document = season.document
    for row in document["payouts"]:
        yield {
            "what": f"{ordinal(row['place'])}: {season.name(row['participant'])}",
            "href": participant_page(row["participant"]),
            "to": row["address"] or "",
            "amount": money(row["net"]),
            "whole": money.whole(row["net"]),
            "fee": money(row["fee"]) if row["fee"] != "0" else "",
        }
    for what, amount, to in (("Fees", document["fees"], ""), ("Back to the sponsor", document["refund"], "")):
        yield {"what": what, "href": "", "to": to, "amount": money(amount or "0"), "whole": money.whole(amount or "0"), "fee": ""}
    whole = {"amount": money(payout.deposit), "whole": money.whole(payout.deposit), "fee": ""}
    yield {"what": "The deposit", "href": "", "to": "", **whole}


def _strip(season: Season, payout: Payout) -> Iterator[Json]:
    """The deposit as a strip: who gets which part of it."""
    document, start = season.document, 0.0
    whole = payout.deposit or 1
    paid = [(season.name(row["participant"]), int(row["net"])) for row in document["payouts"] if row["net"] != "0"]
    if len(paid) > SHADES:
        rest = paid[SHADES - 1 :]
        paid = [*paid[: SHADES - 1], (plural(len(rest), "more place"), sum(amount for _, amount in rest))]
    parts = [(f"e{at}", name, amount) for at, (name, amount) in enumerate(paid, start=1)]
    parts += [("eb", name, int(document[name] or 0)) for name in ("fees", "refund")]
    for cls, name, amount in parts:
        if amount:
            yield {"c": cls, "x": start, "w": amount / whole, "name": name, "pct": share(half_even(amount * NANO, whole))}
            start += amount / whole


def payout_heading(season: Season, payout: Payout, money: Money) -> str:
    """Return who gets the deposit, in a sentence."""
    document = season.document
    paid = [season.name(row["participant"]) for row in document["payouts"] if row["net"] != "0"]
    refund, fees = int(document["refund"] or 0), int(document["fees"] or 0)
    if not payout.deposit:
        return "The deposit is 0, so nothing is paid."
    if not paid:
        return "Nothing is paid: the whole deposit goes back to the sponsor."
    verb = "takes" if len(paid) == 1 else "share"
    what = "the whole deposit" if not refund and not fees else money(sum(int(row["net"]) for row in document["payouts"]))
    fee_part = f"{money(fees)} is kept as a fee" if fees else "nothing is kept as a fee"
    back = f"{money(refund)} goes back to the sponsor" if refund else "nothing goes back"
    return f"{named(paid)} {verb} {what}; {fee_part}, and {back}."


def _tiers(season: Season, payout: Payout, money: Money) -> Iterator[Json]:
    """The tiers: the score of the best solution from which each part is released, and the one that it reached."""
    reached = season.document["tier_bps"]
    for tier in payout.tiers:
        amount = payout.deposit * tier.release_bps // BPS
        yield {
            "from": -(-tier.reach_bps * payout.threshold_bps // BPS),
            "of": share(tier.reach_bps * (NANO // BPS)),
            "part": share(tier.release_bps * (NANO // BPS)),
            "amount": money(amount),
            "whole": money.whole(amount),
            "now": tier.release_bps == reached,
        }
        reached = None if tier.release_bps == reached else reached
