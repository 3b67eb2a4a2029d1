"""A participant's history as a view: score and share by epoch, drawn and as a table.

Up to `BARS` epochs, each is a column. A longer history is a line through the epochs that matter to it: the first, the last, and
between them the lowest and the highest, so that no peak and no fall gets lost. The CSV beside the page has every epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assay.exact import BPS, NANO, text
from assay.serve.draw import fraction, percent, share
from assay.serve.history import EpochRow
from assay.serve.season import Json, Season
from assay.settle.story.telling import plural

__all__ = ["history", "history_rows", "round_top", "thinned"]

BARS = 60
"""Epochs up to which a history has a column for each, and points of the line of a longer one."""
NEWEST = 30
"""Epochs in the table."""
ROUND = tuple(NANO // BPS * bps for bps in (4, 8, 20, 40, 100, 200, 500, 1000, 2000, 4000, 6000))
"""Right ends of a scale of shares: a quarter of each has two decimals."""
Known = tuple[int, EpochRow]


def round_top(largest: int) -> int:
    """The end of a scale of shares (nanos): the least round number that is not below the largest."""
    return next((top for top in ROUND if largest <= top), NANO)


def history(season: Season, key: str) -> Json | None:
    """The charts and the table of a participant's epochs; None where there is one epoch only."""
    if len(season.epochs) < 2:
        return None
    known = [*_known(season, key)]
    now = season.settlement.epoch
    draw = _columns if len(known) <= BARS else _lines
    return {
        "charts": draw(known, now, weights=bool(season.document["weights"])),
        "rows": [_row(epoch, row) for epoch, row in reversed(known[-NEWEST:])],
        "more": max(0, len(known) - NEWEST),
        "weights": bool(season.document["weights"]),
    }


def history_rows(season: Season, key: str) -> list[list[str]]:
    """Every epoch of a participant as rows of text under headings, oldest first; empty where it has no value."""
    rows = [["epoch", "status", "rank", "score", "kept", "share", "u16"]]
    for epoch, row in _known(season, key):
        amounts = ["" if amount is None else text(amount) for amount in (row.score, row.kept, row.share)]
        whole = ["" if number is None else str(number) for number in (row.rank, row.u16)]
        rows.append([str(epoch), row.status, whole[0], *amounts, whole[1]])
    return rows


def _known(season: Season, key: str) -> Iterator[Known]:
    for epoch, rows in season.history():
        yield epoch, rows.get(key) or EpochRow("no record", None, None)


def _row(epoch: int, row: EpochRow) -> Json:
    """An epoch in the table."""
    return {
        "epoch": epoch,
        "rank": "–" if row.rank is None else str(row.rank),
        "score": "–" if row.score is None else text(row.score),
        "state": row.status,
        "kept": "–" if row.kept is None else share(row.kept),
        "share": "–" if row.share is None else percent(row.share),
        "u16": "–" if row.u16 is None else str(row.u16),
    }


def _columns(known: Sequence[Known], now: int, *, weights: bool) -> list[Json]:
    """A column for each epoch."""
    span = plural(len(known), "epoch")
    width = 1 / len(known)
    scores, shares = [], []
    top = round_top(max(row.capped or 0 for _, row in known))
    for at, (epoch, row) in enumerate(known):
        cls = "b now" if epoch == now else "b"
        place = {"c": cls, "x": (at + 0.05) * width, "w": width * 0.9}
        if row.score is not None:
            scores.append(_bar(place, fraction(row.score), f"epoch {epoch}: {text(row.score)}"))
        if row.share is not None:
            shares.append(_bar(place, row.share / top, f"epoch {epoch}: {percent(row.share)}"))
        if lost := (row.capped or 0) - (row.share or 0):
            burnt = _bar(place, lost / top, f"epoch {epoch}: {percent(lost)} burnt")
            shares.append(burnt | {"c": "loss", "y": 1 - (row.capped or 0) / top})
    names = [str(epoch) for epoch, _ in known] if len(known) <= 16 else [str(known[0][0]), str(known[-1][0])]
    charts = [_chart("Score", "agreed, 0 to 1", "1", names, f"Agreed score of {span}") | {"bars": scores}]
    if weights:
        chart = _chart("Share", "of the emission; hatched: burnt", share(top), names, f"Share of {span}")
        charts.append(chart | {"bars": shares})
    return charts


def _bar(place: Json, height: float, title: str) -> Json:
    return place | {"y": 1 - height, "h": height, "t": title}


def _lines(known: Sequence[Known], _: int, *, weights: bool) -> list[Json]:
    """A line through the epochs that matter."""
    span = plural(len(known), "epoch")
    names = [str(known[0][0]), str(known[-1][0])]
    scores = [row.score for _, row in known]
    chart = _chart("Score", "agreed, 0 to 1", "1", names, f"Agreed score of {span}")
    charts = [chart | {"line": _line(known, scores, NANO), "end": _end(scores, NANO)}]
    if weights:
        shares, capped = [row.share for _, row in known], [row.capped for _, row in known]
        top = round_top(max([amount for amount in capped if amount is not None], default=0))
        burnt = any(row.capped != row.share for _, row in known)
        chart = _chart(
            "Share", f"of the emission{'; dotted: before burning' if burnt else ''}", share(top), names, f"Share of {span}"
        )
        chart |= {"line": _line(known, shares, top), "end": _end(shares, top)}
        charts.append(chart | ({"before": _line(known, capped, top)} if burnt else {}))
    return charts


def _chart(title: str, sub: str, top: str, names: Sequence[str], label: str) -> Json:
    return {
        "title": title,
        "sub": sub,
        "top": top,
        "bars": [],
        "line": "",
        "before": "",
        "end": None,
        "xs": names,
        "label": label,
    }


def _line(known: Sequence[Known], values: Sequence[int | None], top: int) -> str:
    """The path of a line on 1000 × 1000; it breaks where there is no value."""
    first, span = known[0][0], known[-1][0] - known[0][0]
    path, broken = [], True
    for at in thinned(values, BARS):
        value = values[at]
        if value is None:
            broken = True
            continue
        x, y = round(1000 * (known[at][0] - first) / span), round(1000 * (1 - value / top))
        path.append(f"M{x} {y}" if broken else f"L{x} {y}")
        broken = False
    return "".join(path)


def _end(values: Sequence[int | None], top: int) -> float | None:
    """Return where the line ends, from the top; None if its last epoch has no value."""
    return None if values[-1] is None else 1 - values[-1] / top


def thinned(values: Sequence[int | None], most: int) -> list[int]:
    """The places of at most so many values: the first, the last, and of each part between the lowest, the highest and a gap."""
    count = len(values)
    if count <= most:
        return [*range(count)]
    parts = (most - 2) // 3
    chosen = {0, count - 1}
    for part in range(parts):
        places = range(1 + part * (count - 2) // parts, 1 + (part + 1) * (count - 2) // parts)
        known = [(value, at) for at in places if (value := values[at]) is not None]
        if known:
            chosen |= {min(known)[1], max(known)[1]}
        chosen |= {*[at for at in places if values[at] is None][:1]}
    return sorted(chosen)
