"""The board of a settlement: a table of weights, of payouts, or of places in a ranking that pays nobody. SPEC 2.1.

A board only reads the settlement. Confidence intervals and the sign ≈ stand beside the scores and change no place. In a ranking
equal scores share a place, written "2=".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from assay.cli.show import TOP, Column, command, first, grid, heading, note, rest, sentence
from assay.exact import BPS, NANO, WEI, coins, nanos
from assay.scheme.model import Payout, Reward
from assay.serve import margins
from assay.settle import Settlement
from assay.settle.story import called, without_score
from assay.settle.story.telling import named, part, percent, percents, plural
from assay.uncertainty import Standing

Json = dict[str, Any]

COLUMNS = ("place", "participant", "name", "score", "low", "high", "tied_with_next", "passed", "trials", "tasks", "runs")
"""The fields of a row, in the order of `--csv`."""


def rows(settlement: Settlement) -> list[Json]:
    """A row for each participant with an agreed score, best first; without an interval `low`, `high` and the counts are None."""
    names = {participant.key: participant.name for participant in settlement.inputs.participants}
    ranked = settlement.document["agreed"][: len(settlement.ranking)]
    sure = settlement.inputs.scheme.kind.standings(settlement) or {}
    listed: list[Json] = []
    for at, agreed in enumerate(ranked, start=1):
        key = agreed["participant"]
        equal = bool(listed) and _value(agreed) == _value(ranked[at - 2])
        row = {"place": listed[-1]["place"] if equal else at, "participant": key, "name": names[key], "score": agreed["score"]}
        row["runs"] = sum(not vote["excluded"] for vote in agreed["validators"])
        if key in sure:
            standing = sure[key]
            counts = {name: getattr(standing, name) for name in ("tied_with_next", "passed", "trials", "tasks")}
            row |= counts | {"low": standing.low, "high": standing.high}
        listed.append({name: row.get(name) for name in COLUMNS})
    return listed


def plain(row: Json) -> Json:
    """The row as text: booleans as JSON writes them, intervals to four digits."""
    shown = {name: f"{value:.4f}" for name, value in row.items() if isinstance(value, float)}
    return row | shown | {name: str(value).lower() for name, value in row.items() if isinstance(value, bool)}


def settlement_csv(settlement: Settlement) -> bytes:
    """The rows of the ranking, of weights or of payouts; the last row of these, without a participant, burns or is refunded."""
    from assay.folder.csvs import dumped
    from assay.settle.document import BURNT, PAYOUTS, WEIGHTS
    from assay.tables import flat

    document = settlement.document
    if settlement.inputs.scheme.reward.kind == "ranking":
        return dumped(COLUMNS, [plain(row) for row in rows(settlement)])
    if document["burn"] is None:
        return dumped(tuple(flat(PAYOUTS)), [*document["payouts"], {"net": document["refund"]}])
    burn = {name: document["burn"][name] for name in BURNT}
    return dumped(tuple(flat(WEIGHTS)), [*document["weights"], burn])


def _value(row: Json) -> object:
    return row["score"] if row["bps"] is None else row["bps"]


def columns(board_rows: list[Json], interval: str) -> list[Column]:
    """The rows as columns of a table; `interval` is the heading of the intervals."""
    shared = Counter(row["place"] for row in board_rows)
    several = max((row["runs"] for row in board_rows), default=0) > 1
    columns = [
        Column("#", [f"{row['place']}{'=' if shared[row['place']] > 1 else ''}" for row in board_rows]),
        Column("participant", [row["participant"] for row in board_rows], kind="key", style="bold"),
        Column("name", [row["name"] for row in board_rows], kind="crop", spare=3),
        Column("score", [row["score"] for row in board_rows]),
        Column(interval, [_interval(row) for row in board_rows], right=True, spare=1),
        Column("passed", [_passed(row) for row in board_rows], right=True, spare=2),
        Column("runs", [str(row["runs"]) for row in board_rows], right=True, spare=2),
    ]
    wanted = {
        "name": any(row["name"] for row in board_rows),
        interval: any(row["low"] is not None for row in board_rows),
        "passed": any(row["trials"] for row in board_rows),
        "runs": several,
    }
    return [column for column in columns if wanted.get(column.heading, True)]


def _interval(row: Json) -> str:
    """The interval of the pass rate, and the mark of a neighbour that is not clearly behind."""
    if row["low"] is None or row["high"] is None:
        return "–  "
    return f"{100 * row['low']:.1f}–{100 * row['high']:.1f} % {'≈' if row['tied_with_next'] else ' '}"


def _passed(row: Json) -> str:
    return f"{row['passed']} of {row['trials']}" if row["trials"] else "–"


BURNT = "burn"
ALIKE = 8
"""Up to this many participants without a score for the same reason have a line each; more share one line."""
INTERVAL = "95 % interval"
TIED = "≈ The tasks do not show that this participant is better than the next one."


def board(settlement: Settlement, folder: Path, top: int = TOP) -> Iterator[RenderableType]:
    """Title, ranking, participants without a score and the reasons, notes, and the digest that two people can compare.

    top: how many rows each table shows.
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
        yield from _payouts(settlement, scheme.payout, token_of(folder), top)
    known = margins.of_settlement(folder, settlement) if margins.has_margins(settlement) else None
    yield from _others(settlement, known, top)
    yield from _outliers(settlement)
    yield from _firm(settlement, known, folder)
    for text in scheme.kind.notes(settlement, folder):
        yield ""
        yield sentence(text)
    yield ""
    yield note(f"Digest {settlement.digest}")
    for row in document["agreed"][:1]:
        yield command("How a number came about", "assay", "explain", folder, row["participant"])


def _firm(settlement: Settlement, known: Json | None, folder: Path) -> Iterator[RenderableType]:
    """The sentences about how firmly the verdicts hold, and the ranges of scores with missing trials."""
    sentences = [
        *margins.sentences(known, settlement, f"How firmly this holds takes some time to compute: assay margin {folder}")
    ]
    reach = (known or {"scores": ()})["scores"]
    if reach:
        rows = [f"{row['participant']} {margins.shown_range(row)} ({row['missing']} missing)" for row in reach[:ALIKE]]
        more = f"; and of {len(reach) - ALIKE} more participants" if len(reach) > ALIKE else ""
        sentences.append(f"Scores with missing trials: {'; '.join(rows)}{more}.")
    if sentences:
        yield ""
        yield from map(sentence, sentences)


def _names(settlement: Settlement) -> dict[str, str]:
    return {participant.key: participant.name for participant in settlement.inputs.participants}


def _weights(settlement: Settlement, top: int) -> Iterator[RenderableType]:
    document, rules = settlement.document, settlement.inputs.scheme.reward
    rows, burn, names = document["weights"], document["burn"], _names(settlement)
    sure = settlement.inputs.scheme.kind.standings(settlement)
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
        columns.append(Column(INTERVAL, [*(_interval_board(sure[row["participant"]]) for row in rows), ""], right=True, spare=1))
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
    """Places and scores, without payment."""
    board_rows = rows(settlement)
    if not board_rows:
        yield sentence("No participant has an agreed score.")
        return
    table = grid(first(columns(board_rows, INTERVAL), top, len(board_rows)))
    yield table
    yield from rest(top, len(board_rows))
    if all(row["low"] is None for row in board_rows):
        yield from _apart(_doubts(settlement, None, True))
    elif any(str(column.header).strip() == INTERVAL for column in table.columns) and any(
        row["tied_with_next"] for row in board_rows
    ):
        yield from _apart([note(TIED)])


def _apart(*notes: Iterable[RenderableType]) -> Iterator[RenderableType]:
    """The notes below a table, an empty line before them; nothing where there are none."""
    for number, note_ in enumerate(chain(*notes)):
        if number == 0:
            yield ""
        yield note_


def _interval_board(standing: Standing) -> str:
    """The interval of the pass rate, and the mark of a neighbour that is not clearly behind."""
    if standing.low is None or standing.high is None:
        return "–  "
    return f"{100 * standing.low:.1f}–{100 * standing.high:.1f} % {'≈' if standing.tied_with_next else ' '}"


def _remarks(settlement: Settlement, rules: Reward) -> Iterator[RenderableType]:
    """Notes on what the table cannot show: the source of the burn, the cap, missing uids."""
    document = settlement.document
    rows, burn = document["weights"], document["burn"]
    if rows and not any(nanos(row["strategy"]) for row in rows):
        yield sentence("No participant has a share in the reward, so everything burns.")
    elif not rows:
        yield sentence("No participant has an agreed score, so everything burns.")
    else:
        reasons = (
            ("strategy", f"by the {rules.strategy} strategy"),
            ("cap", "by the cap"),
            ("decay", "by decay"),
            ("warm_up", "by warm-up"),
            ("unregistered", "because participants have no uid"),
        )
        burnt = [f"{percent(burn[name])} {why}" for name, why in reasons if nanos(burn.get(name, "0"))]
        if burnt:
            yield sentence(f"Burnt: {', '.join(burnt)}.")
    if nanos(document["unallocated"]):
        yield sentence(f"Unallocated: {percent(document['unallocated'])}, above the cap.")
    capped = [row["participant"] for row in rows if nanos(row["capped"]) < nanos(row["strategy"])]
    if capped:
        yield sentence(f"Held at the cap of {percent(rules.cap)}: {named(capped)}.")
    missing = [row["participant"] for row in rows if row["uid"] is None]
    if missing:
        yield sentence(f"No uid on the subnet yet, so the share burns: {named(missing)}.")


def _doubts(settlement: Settlement, sure: Mapping[str, Standing] | None, any_rows: bool) -> Iterator[RenderableType]:
    """A note that says what ≈ means, or why there are no intervals."""
    why = settlement.inputs.scheme.kind.doubts(settlement.inputs.scheme.score)
    if why is None or not any_rows:
        return
    if sure is None:
        yield note(f"No intervals: {why}.")
    elif any(standing.tied_with_next for standing in sure.values()):
        yield note(TIED)


def _others(settlement: Settlement, known: Json | None, top: int) -> Iterator[RenderableType]:
    """The participants without an agreed score, and why. known: as `margins.compute` gives it."""
    missing = without_score(settlement)
    if not missing:
        return
    names = _names(settlement)
    spared = (known or {"spared": {}})["spared"]
    reasons = {
        key: (str(chapter.facts["status"]), " ".join(filter(None, (chapter.text[0], spared.get(key)))))
        for key, chapter in missing.items()
    }
    same: dict[tuple[str, str], list[str]] = {}
    for key, reason in reasons.items():
        same.setdefault(reason, []).append(key)
    rows = [(key, *reason) for key, reason in reasons.items() if len(same[reason]) <= ALIKE]
    yield ""
    yield heading("No agreed score (this is not a score of 0)")
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
    """The validators whose scores were left out, with the participants they scored."""
    out: dict[str, list[str]] = {}
    names = called(settlement.inputs.validators)
    for row in settlement.document["agreed"]:
        for vote in row["validators"]:
            if vote["excluded"]:
                out.setdefault(names[vote["validator"]], []).append(row["participant"])
    if out:
        yield ""
        parts = [f"from {validator} for {named(participants, 4)}" for validator, participants in sorted(out.items())]
        yield sentence(f"Scores left out as outliers: {'; '.join(parts)}.")


def token_of(folder: Path) -> str:
    """The token of the deposit, as people read it, if the folder's publish.toml names one; empty for ether."""
    if not (folder / "publish.toml").exists():
        return ""
    from assay.publish.evm.settings import deposit_token

    return deposit_token(folder)


def _payouts(settlement: Settlement, rules: Payout, token: str, top: int) -> Iterator[RenderableType]:
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
        yield sentence("No participant has an agreed score, so the deposit is refunded.")
    yield ""
    if ranked:
        columns = [
            Column("#", [str(place) for place in range(1, len(ranked) + 1)], right=True),
            Column("participant", [row["participant"] for row in ranked], kind="key", style="bold"),
        ]
        if any(names[row["participant"]] for row in ranked):
            columns.append(Column("name", [names[row["participant"]] for row in ranked], kind="crop", spare=3))
        bps = settlement.inputs.scheme.kind.in_bps
        columns += [
            Column("BPS" if bps else "score", [str(row["bps"]) if bps else row["score"] for row in ranked], right=bps),
            Column("gross", amounts("gross"), right=True, spare=3),
            Column("fee", amounts("fee"), right=True, spare=1),
            Column("paid", amounts("net"), right=True),
            *([] if token else [_in_ether(amounts("net"), spare=2)]),
            Column("to", [_address(paid.get(row["participant"])) for row in ranked], kind="key", spare=4),
        ]
        yield grid(first(columns, top, len(ranked)))
        yield from rest(top, len(ranked))
        yield ""
    sums = [("deposit", str(rules.deposit)), ("fees", document["fees"]), ("refund", document["refund"])]
    in_ether = [] if token else [_in_ether([amount for _, amount in sums])]
    yield grid([Column("", [name for name, _ in sums]), Column("amount", [amount for _, amount in sums], right=True), *in_ether])
    if token:
        yield ""
        yield sentence(f"Amounts are in smallest units of the token {token}.")
    unpaid = [row["participant"] for row in document["payouts"] if row["address"] is None and row["net"] != "0"]
    if unpaid:
        yield ""
        yield sentence(f"participants.csv has no address to pay to: {named(unpaid)}.")


def _in_ether(amounts: Iterable[str], spare: int = 0) -> Column:
    return Column("in ether", [coins(amount, WEI) if amount else "" for amount in amounts], right=True, spare=spare)


def _address(row: Json | None) -> str:
    return "" if row is None or row["net"] == "0" else row["address"] or "–"
