"""The leaderboard of a settlement, for people. It only reads the settlement; the intervals beside the scores change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from assay.cli import ranking
from assay.cli.runs import standings
from assay.cli.show import TOP, WEI, Column, coins, command, first, grid, heading, note, rest, sentence
from assay.exact import BPS, NANO, nanos
from assay.folder.tasks import unsolved, weaker
from assay.scheme.model import Payout, Reward
from assay.settle import Settlement
from assay.settle.inputs import Scored
from assay.settle.story import called, without_score
from assay.settle.story.telling import named, part, percent, percents, plural
from assay.uncertainty import NEEDS, Standing, available

__all__ = ["board"]

Json = dict[str, Any]
BURNT = "burn"
ALIKE = 8
"""So many without a score for the same reason have a line each; of more, one tells of all."""
INTERVAL = "95 % interval"
TIED = "≈ the tasks do not show that this one is better than the one below."


def board(settlement: Settlement, folder: Path, top: int = TOP) -> Iterator[RenderableType]:
    """Title, ranking, those without a score and why, notes, and the digest that two people can compare.

    top: of each table so many rows.
    """
    document, scheme = settlement.document, settlement.inputs.scheme
    agreed, everybody = len(settlement.ranking), len(document["agreed"])
    yield heading(f"{scheme.name} {scheme.scheme.version} · epoch {settlement.epoch}")
    yield sentence(f"{agreed} of {plural(everybody, 'participant')} {'has' if agreed == 1 else 'have'} an agreed score.")
    yield ""
    if scheme.reward.kind == "ranking":
        yield from _ranking(settlement, top)
    elif scheme.payout is None:
        yield from _weights(settlement, top)
    else:
        yield from _payouts(settlement, scheme.payout, top)
    yield from _others(settlement, top)
    yield from _outliers(settlement)
    yield from _weaker(settlement, folder)
    yield from _fallback(settlement, folder)
    yield ""
    yield note(f"Digest {settlement.digest}")
    for row in document["agreed"][:1]:
        yield command("How a number came about", "assay", "explain", folder, row["participant"])


def _names(settlement: Settlement) -> dict[str, str]:
    return {participant.key: participant.name for participant in settlement.inputs.participants}


def _weights(settlement: Settlement, top: int) -> Iterator[RenderableType]:
    document, rules = settlement.document, settlement.inputs.scheme.reward
    rows, burn, names = document["weights"], document["burn"], _names(settlement)
    sure = standings(settlement)
    decays = settlement.inputs.scheme.decay is not None and settlement.inputs.scheme.decay.curve != "none"
    columns = [
        Column("#", [*(str(place) for place in range(1, len(rows) + 1)), ""], right=True),
        Column("participant", [*(row["participant"] for row in rows), BURNT], kind="key", style="bold"),
    ]
    if any(names[row["participant"]] for row in rows):
        columns.append(Column("name", [*(names[row["participant"]] for row in rows), ""], kind="crop", spare=3))
    columns += [
        Column("uid", [*("–" if row["uid"] is None else str(row["uid"]) for row in rows), str(burn["uid"])], right=True, spare=2),
        Column("score", [*(row["score"] for row in rows), ""]),
    ]
    if sure is not None:
        columns.append(Column(INTERVAL, [*(_interval(sure[row["participant"]]) for row in rows), ""], right=True, spare=1))
    if decays:
        columns.append(Column("kept", [*percents([row["kept"] for row in rows]), ""], right=True))
    columns += [
        Column("share", percents([row["share"] for row in (*rows, burn)]), right=True),
        Column("u16", [*(str(row["u16"]) for row in rows), str(burn["u16"])], right=True),
    ]
    table = grid(first(columns, top, len(rows)), styles=[*("" for _ in rows[:top]), "dim"])
    yield table
    yield from rest(top, len(rows))
    shown = any(INTERVAL in str(column.header) for column in table.columns)
    yield from _apart(_remarks(settlement, rules), _doubts(settlement, {} if sure and not shown else sure, bool(rows)))


def _ranking(settlement: Settlement, top: int) -> Iterator[RenderableType]:
    """Places and scores, and nothing of payment."""
    found = ranking.rows(settlement)
    if not found:
        yield sentence("Nobody has an agreed score.")
        return
    table = grid(first(ranking.columns(found, INTERVAL), top, len(found)))
    yield table
    yield from rest(top, len(found))
    if all(row["low"] is None for row in found):
        yield from _apart(_doubts(settlement, None, True))
    elif any(str(column.header).strip() == INTERVAL for column in table.columns) and any(row["tied_with_next"] for row in found):
        yield from _apart([note(TIED)])


def _apart(*notes: Iterable[RenderableType]) -> Iterator[RenderableType]:
    """The notes below a table, an empty line before them; nothing where there are none."""
    for number, said in enumerate(chain(*notes)):
        if number == 0:
            yield ""
        yield said


def _interval(standing: Standing) -> str:
    """The interval of the pass rate, and the mark of a neighbour that is not clearly behind."""
    if standing.low is None or standing.high is None:
        return "–  "
    return f"{100 * standing.low:.1f}–{100 * standing.high:.1f} % {'≈' if standing.tied_with_next else ' '}"


def _remarks(settlement: Settlement, rules: Reward) -> Iterator[RenderableType]:
    """What the table cannot say by itself: where the burn comes from, the cap, missing uids."""
    document = settlement.document
    rows, burn = document["weights"], document["burn"]
    if rows and not any(nanos(row["strategy"]) for row in rows):
        yield sentence("Nobody takes part in the reward, so everything burns.")
    elif not rows:
        yield sentence("Nobody has an agreed score, so everything burns.")
    else:
        reasons = (
            ("strategy", f"the {rules.strategy} strategy"),
            ("cap", "the cap"),
            ("decay", "decay"),
            ("warm_up", "warm-up"),
            ("unregistered", "no uid"),
        )
        found = [f"{percent(burn[name])} by {why}" for name, why in reasons if nanos(burn.get(name, "0"))]
        if found:
            yield sentence(f"Burnt: {named(found)}.".replace("by no uid", "for want of a uid"))
    if nanos(document["unallocated"]):
        yield sentence(f"Unallocated: {percent(document['unallocated'])}, cut off by the cap.")
    capped = [row["participant"] for row in rows if nanos(row["capped"]) < nanos(row["strategy"])]
    if capped:
        yield sentence(f"Held at the cap of {percent(rules.cap)}: {named(capped)}.")
    missing = [row["participant"] for row in rows if row["uid"] is None]
    if missing:
        yield sentence(f"Not registered (no uid), so the share burns: {named(missing)}.")


def _doubts(settlement: Settlement, sure: dict[str, Standing] | None, any_rows: bool) -> Iterator[RenderableType]:
    """What ≈ is, or why there are no intervals."""
    if settlement.inputs.scheme.score.kind != "tests" or not any_rows:
        return
    if sure is None:
        yield note(
            f"No intervals: {NEEDS}." if not available() else "No intervals: there are too many records, or only sums of them."
        )
    elif any(standing.tied_with_next for standing in sure.values()):
        yield note(TIED)


def _others(settlement: Settlement, top: int) -> Iterator[RenderableType]:
    """Those without an agreed score, and why."""
    missing = without_score(settlement)
    if not missing:
        return
    names = _names(settlement)
    reasons = {key: (str(chapter.facts["status"]), chapter.text[0]) for key, chapter in missing.items()}
    same: dict[tuple[str, str], list[str]] = {}
    for key, reason in reasons.items():
        same.setdefault(reason, []).append(key)
    rows = [(key, *reason) for key, reason in reasons.items() if len(same[reason]) <= ALIKE]
    yield ""
    yield heading("No agreed score, which is not a score of 0")
    if rows:
        columns = [
            Column("participant", [key for key, _, _ in rows], kind="key", style="bold"),
            Column("status", [status for _, status, _ in rows]),
            Column("why", [why for _, _, why in rows], kind="text"),
        ]
        if any(names[key] for key, _, _ in rows):
            columns.insert(1, Column("name", [names[key] for key, _, _ in rows], kind="crop", spare=1))
        yield grid(first(columns, top, len(rows)))
        yield from rest(top, len(rows))
    for (status, why), keys in same.items():
        if len(keys) > ALIKE:
            called = [names[key] or key for key in keys]
            yield sentence(f"{plural(len(keys), 'participant')} ({status}): {named(called, ALIKE)}. {why}")


def _outliers(settlement: Settlement) -> Iterator[RenderableType]:
    """Which validators were left out of whose score."""
    out: dict[str, list[str]] = {}
    names = called(settlement.inputs.validators)
    for row in settlement.document["agreed"]:
        for vote in row["validators"]:
            if vote["excluded"]:
                out.setdefault(names[vote["validator"]], []).append(row["participant"])
    if out:
        yield ""
        said = [f"by {validator} of {named(participants, 4)}" for validator, participants in sorted(out.items())]
        yield sentence(f"Scores left out as outliers: {'; '.join(said)}.")


def _weaker(settlement: Settlement, folder: Path) -> Iterator[RenderableType]:
    """That scores rest on tests which an agent may have tampered with. SPEC 2.1."""
    if settlement.inputs.scheme.score.kind != "tests" or not settlement.ranking:
        return
    found = weaker(folder / "tasks.txt")
    if found:
        modes = [(mode, [task for task, its in found.items() if its == mode]) for mode in sorted({*found.values()})]
        which = "; ".join(f"{mode}: {named(tasks, 4)}" for mode, tasks in modes)
        share = f"{len(found)} of {plural(len(settlement.inputs.tasks), 'task')} {'is' if len(found) == 1 else 'are'}"
        yield ""
        yield sentence(f"Weaker scores: {share} verified in the agent's own files ({which}).")
    if without := unsolved(folder):
        share = f"{len(without)} of {plural(len(settlement.inputs.tasks), 'task')} {'has' if len(without) == 1 else 'have'}"
        yield ""
        yield sentence(f"Not shown to be solvable: {share} no reference solution ({named(without, 4)}).")


def _fallback(settlement: Settlement, folder: Path) -> Iterator[RenderableType]:
    """That scores are of the fallback model's answers, and why. SPEC 2.3."""
    inputs = settlement.inputs
    if inputs.scheme.score.kind != "rubric" or isinstance(inputs.evidence, Scored):
        return
    from assay.judge.rubric.keep import by_fallback

    whom: dict[tuple[str, str], list[str]] = {}
    for one in by_fallback(folder, inputs.participants, inputs.evidence):
        whom.setdefault((one.model, one.why), []).append(one.participant)
    for (model, why), participants in sorted(whom.items()):
        yield ""
        yield sentence(f"The fallback model {model} judged {named(sorted({*participants}))}, because {why}.")


def _payouts(settlement: Settlement, rules: Payout, top: int) -> Iterator[RenderableType]:
    document, names = settlement.document, _names(settlement)
    ranked = document["agreed"][: len(settlement.ranking)]
    paid = {row["participant"]: row for row in document["payouts"]}

    def amounts(name: str) -> list[str]:
        return [paid[row["participant"]][name] if row["participant"] in paid else "" for row in ranked]

    if ranked:
        best = nanos(ranked[0]["score"]) if ranked[0]["bps"] is None else ranked[0]["bps"] * (NANO // BPS)
        reached = part(best, rules.threshold_bps * (NANO // BPS))
        released = f"{part(document['tier_bps'], BPS)} of the deposit is released"
        yield sentence(f"The best score is {reached} of the threshold of {rules.threshold_bps} BPS: {released}.")
    else:
        yield sentence("Nobody has an agreed score, so the deposit is refunded.")
    yield ""
    if ranked:
        columns = [
            Column("#", [str(place) for place in range(1, len(ranked) + 1)], right=True),
            Column("participant", [row["participant"] for row in ranked], kind="key", style="bold"),
        ]
        if any(names[row["participant"]] for row in ranked):
            columns.append(Column("name", [names[row["participant"]] for row in ranked], kind="crop", spare=3))
        rubric = settlement.inputs.scheme.score.kind == "rubric"
        columns += [
            Column("BPS" if rubric else "score", [str(row["bps"]) if rubric else row["score"] for row in ranked], right=rubric),
            Column("gross", amounts("gross"), right=True, spare=3),
            Column("fee", amounts("fee"), right=True, spare=1),
            Column("paid", amounts("net"), right=True),
            Column("in ether", [coins(amount, WEI) if amount else "" for amount in amounts("net")], right=True, spare=2),
            Column("to", [_address(paid.get(row["participant"])) for row in ranked], kind="key", spare=4),
        ]
        yield grid(first(columns, top, len(ranked)))
        yield from rest(top, len(ranked))
        yield ""
    sums = [("deposit", str(rules.deposit)), ("fees", document["fees"]), ("refund", document["refund"])]
    in_ether = Column("in ether", [coins(amount, WEI) for _, amount in sums], right=True)
    yield grid([Column("", [name for name, _ in sums]), Column("amount", [amount for _, amount in sums], right=True), in_ether])
    homeless = [row["participant"] for row in document["payouts"] if row["address"] is None and row["net"] != "0"]
    if homeless:
        yield ""
        yield sentence(f"participants.csv has no address to pay to: {named(homeless)}.")


def _address(row: Json | None) -> str:
    return "" if row is None or row["net"] == "0" else row["address"] or "–"
