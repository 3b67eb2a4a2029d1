"""The page "what these rules do": simulation, attack and back-test of one or two schemes side by side, as one file.

Every figure comes from `assay.rules`. Plots place figures by floats; what decides money is exact, and has its digest beside it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from assay.exact import NANO, share_text, text
from assay.serve.draw import percent
from assay.serve.pages import assets, render

if TYPE_CHECKING:
    from assay.rules.backtest import Backtest, ShareChange
    from assay.rules.search import SearchResult
    from assay.rules.seasons import World
    from assay.rules.simulate import SeasonOutcome
    from assay.scheme.model import Scheme

__all__ = ["Simulated", "alone"]

Json = dict[str, Any]
POLICY = "default-src 'none'; style-src data:; img-src data:; base-uri 'none'; form-action 'none'"
STYLE = b"""
.vals th,.vals td{height:44px}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(18rem,1fr));gap:var(--s4);margin-top:var(--s4)}
.plots figure{margin:0}
.plots figcaption{font-weight:600;margin-bottom:.5rem}
.lines{width:100%;height:auto;display:block;overflow:visible}
.lines text{font:11px var(--sans);fill:var(--ink-3)}
.lines .rule{stroke:var(--line);fill:none}
.lines .l0,.lines .l1,.lines .l2{fill:none;stroke:var(--ink-2);stroke-width:1.75}
.lines .l1{stroke:var(--accent)}
.lines .l2{stroke-dasharray:4 3}
.swatch{display:inline-block;width:1.25rem;height:0;border-top:2px solid var(--ink-2);vertical-align:middle;margin-right:.4rem}
.swatch.l1{border-color:var(--accent)}
.swatch.l2{border-top-style:dashed}
.gain{color:var(--accent)}
.loss{color:var(--bad)}
"""
WIDTH, HEIGHT, LEFT, BELOW = 360, 190, 38, 22
WINDOW = 10
"""Epochs over which a line is smoothed."""


@dataclass(frozen=True)
class Simulated:
    """A scheme, the season that it was tried on, what came of it, and of schemes that differ from it in one field."""

    scheme: Scheme
    world: World
    outcome: SeasonOutcome
    knobs: Sequence[tuple[str, SeasonOutcome]] = ()


def alone(simulated: Sequence[Simulated], attacks: Sequence[SearchResult] = (), backtest: Backtest | None = None) -> bytes:
    """The page of one scheme, or of two side by side, as one file. Raises CannotSettle without the extra `serve`."""
    files = dict(assets())
    names = [f"{run.scheme.name} {run.scheme.scheme.version}" for run in simulated]
    if len(set(names)) < len(names):
        names = ["now", "changed"]
    view: Json = {
        "policy": POLICY,
        "style": base64.b64encode(_without_fonts(files["style.css"]) + STYLE).decode(),
        "icon": base64.b64encode(files["icon.svg"]).decode(),
        "title": simulated[0].scheme.name,
        "names": names,
        "digests": [run.scheme.digest for run in simulated],
        "changed": _changed([run.scheme for run in simulated]),
        "world": simulated[0].world,
        "figures": list(_figures([run.outcome for run in simulated])),
        "plots": list(_plots(names, [run.outcome for run in simulated])),
        "knobs": [_knob(name, outcome) for name, outcome in (("as it is", simulated[0].outcome), *simulated[0].knobs)]
        if simulated[0].knobs
        else [],
        "attacks": [] if not attacks else list(_attacks(attacks)),
        "profit": _profit(names, attacks),
        "backtest": None if backtest is None else _backtest(backtest),
    }
    return render("rules.html", view)


def _without_fonts(style: bytes) -> bytes:
    return re.sub(rb"@font-face\{[^}]*\}", b"", style)


def _changed(schemes: Sequence[Scheme]) -> list[Json]:
    """The fields in which two schemes differ."""
    flat = [dict(_flat(scheme.document(), "")) for scheme in schemes]
    if len(flat) < 2:
        return []
    names = [name for name in {**flat[0], **flat[1]} if flat[0].get(name) != flat[1].get(name)]
    return [{"field": name, "values": [side.get(name, "–") for side in flat]} for name in names]


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else name)
    else:
        yield path, str(value)


def _figures(outcomes: Sequence[SeasonOutcome]) -> Iterator[Json]:
    rows = (
        ("goes to skill", "to_skill", True),
        ("rank correlation of skill and share", "correlation", False),
        ("judgements in which an honest validator is left out", "panels_hurt", True),
        ("participants with an agreed score", "agreed", True),
        ("burns, or is not paid", "burnt", True),
        ("largest share", "largest", True),
    )
    for label, name, is_part in rows:
        values = [getattr(outcome, name) for outcome in outcomes]
        yield {"label": label, "values": [f"{100 * value:.2f} %" if is_part else f"{value:.3f}" for value in values]}
    waits = ["–" if outcome.wait is None else f"{outcome.wait:g}" for outcome in outcomes]
    yield {"label": "epochs until a newcomer has its place, median", "values": waits}


def _plots(names: Sequence[str], outcomes: Sequence[SeasonOutcome]) -> Iterator[Json]:
    skills = [(name, outcome.by_skill[0].tolist()) for name, outcome in zip(names, outcomes, strict=True)]
    ideal = (f"{names[-1]}, if skills were known", outcomes[-1].by_skill[1].tolist())
    yield _plot("Mean share by tenth of skill", [*skills, ideal], "least skilled", "most skilled")
    for at, title in ((0, "To skill, by epoch"), (1, "Burns or is not paid, by epoch")):
        lines = [(name, _smooth(outcome.by_epoch[at].tolist())) for name, outcome in zip(names, outcomes, strict=True)]
        yield _plot(title, lines, "epoch 0", f"epoch {len(outcomes[0].by_epoch[at]) - 1}")


def _smooth(values: list[float]) -> list[float]:
    return [sum(values[max(0, at - WINDOW + 1) : at + 1]) / min(at + 1, WINDOW) for at in range(len(values))]


def _plot(title: str, lines: Sequence[tuple[str, list[float]]], first: str, last: str) -> Json:
    """Lines of parts of one over equal steps, from 0 up to what is needed."""
    top = max(0.01, *(value for _, values in lines for value in values))
    ticks = [top * part / 4 for part in range(5)]

    def y(value: float) -> float:
        return round((HEIGHT - BELOW) * (1 - value / top) + 6, 1)

    drawn = []
    for number, (name, values) in enumerate(lines):
        step = (WIDTH - LEFT) / max(1, len(values) - 1)
        points = " ".join(f"{LEFT + at * step:.1f},{y(value)}" for at, value in enumerate(values))
        drawn.append({"name": name, "cls": f"l{min(number, 2)}", "points": points})
    digits = 0 if top >= 0.2 else 1 if top >= 0.02 else 2
    marks = [{"y": y(tick), "text": f"{100 * tick:.{digits}f}%"} for tick in ticks]
    place = {"w": WIDTH, "h": HEIGHT + 8, "left": LEFT, "base": HEIGHT + 4}
    label = "; ".join(f"{name}: {100 * values[0]:.1f} % to {100 * values[-1]:.1f} %" for name, values in lines)
    return {"title": title, "lines": drawn, "marks": marks, "first": first, "last": last, "label": label} | place


def _knob(name: str, outcome: SeasonOutcome) -> Json:
    return {"name": name, "width": max(0.0, outcome.to_skill), "to_skill": f"{100 * outcome.to_skill:.2f} %"} | {
        "hurt": f"{100 * outcome.panels_hurt:.2f} %",
        "burnt": f"{100 * outcome.burnt:.2f} %",
        "rank": f"{outcome.correlation:.3f}",
    }


def _profit(names: Sequence[str], attacks: Sequence[SearchResult]) -> Json | None:
    """Profit of the best lies by the coalition's stake."""
    rows = [[max(0.0, row.best.profit / NANO) for row in attack.by_stake] for attack in attacks]
    if not rows or min(map(len, rows)) < 2:
        return None
    stakes = [row.stake for row in attacks[0].by_stake]
    ends = [f"{percent(text(stake))} of the stake" for stake in (stakes[0], stakes[-1])]
    return _plot("Profit of a coalition, by its stake", list(zip(names, rows, strict=True)), *ends)


def _attacks(attacks: Sequence[SearchResult]) -> Iterator[Json]:
    """The attacks of each kind, side by side."""
    yield {
        "label": "how far 30 % of the stake raises a score, one lie told blind",
        "values": [_at(attack, "shift_blind") for attack in attacks],
    }
    yield {"label": "the same, told after the others have signed", "values": [_at(attack, "shift_last") for attack in attacks]}
    kinds = {played.attack.kind: None for attack in attacks for played in attack.others}
    for kind in kinds:
        best = [next((played for played in attack.others if played.attack.kind == kind), None) for attack in attacks]
        yield {
            "label": f"profit of {kind}",
            "values": ["–" if attack is None else percent(max(0, attack.profit)) for attack in best],
        }
    for label, name in (("least stake for any score up to 90", "takeover"), ("least stake that leaves no quorum", "denial")):
        stakes = [getattr(attack, name) for attack in attacks]
        yield {"label": label, "values": ["none found" if stake is None else percent(stake) for stake in stakes]}


def _at(attacks: SearchResult, name: str) -> str:
    row = attacks.at(3000)
    return "–" if row is None else percent(getattr(row, name))


def _backtest(comparison: Backtest) -> Json:
    rows = [_row(change.participant, change) for change in comparison.changes]
    return {
        "epochs": len(comparison.epochs),
        "first": comparison.epochs[0].epoch,
        "last": comparison.epochs[-1].epoch,
        "rows": [*rows, _row("nobody (burns, fees, refund)", comparison.rest)],
        "digest": comparison.document["digest"],
    }


def _row(name: str, change: ShareChange) -> Json:
    gain = change.gain
    cls = "gain" if gain > 0 else "loss" if gain < 0 else ""
    sign = "+" if gain > 0 else "−" if gain < 0 else ""
    return {"name": name, "old": _part(change.old), "new": _part(change.new), "gain": sign + _part(abs(gain)), "cls": cls}


def _part(share: Fraction) -> str:
    return percent(share_text(share))
