"""`assay compare`: a competition's rules beside others: simulated, attacked, and over the competition's own past."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.attack import points
from assay.cli.backtest import signed
from assay.cli.init import presets
from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from assay.rules.backtest import Backtest
    from assay.rules.search import SearchResult
    from assay.rules.simulate import SeasonOutcome

__all__ = ["compare"]

Json = dict[str, Any]


def compare(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    scheme: Annotated[
        str, typer.Option(metavar="PRESET|FILE|DIR", help="The other rules.", autocompletion=presets, show_default=False)
    ],
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the page: one file that needs no other.")] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the season and of what honest validators see.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare a competition's rules with others: simulation, attack and back-test side by side.

    Does what assay simulate, assay attack and assay backtest do, for both schemes, and shows the figures that decide between
    them. --html writes a page with plots.

    \b
    Examples:
      assay compare my-competition --scheme new.toml
      assay compare my-competition --scheme new.toml --html what-these-rules-do.html
    """
    from assay.cli.output import Working, put
    from assay.cli.schemes import scheme_of
    from assay.cli.simulate import document, world_of
    from assay.competition import open_competition
    from assay.rules.search import field_of, search
    from assay.rules.seasons import World, season
    from assay.rules.simulate import simulate

    competition, other = open_competition(folder), scheme_of(scheme)
    schemes = (competition.scheme, other)
    with Working("settling the past, simulating and attacking"):
        backtest = competition.backtest(other)
        worlds = [world_of(rules, World(seed=seed)) for rules in schemes]
        outcomes = [simulate(rules, season(world)) for rules, world in zip(schemes, worlds, strict=True)]
        attacks = [search(field_of(rules, seed=seed)) for rules in schemes]
    if html is not None:
        from assay.serve.rules_page import Simulated, alone

        tried = [Simulated(rules, world, outcome) for rules, world, outcome in zip(schemes, worlds, outcomes, strict=True)]
        put(alone(tried, attacks, backtest), html)
    if emit(
        lambda: {
            "schema": "assay.comparison/1",
            "backtest": backtest.document,
            "simulations": [
                document(rules, world, outcome, []) for rules, world, outcome in zip(schemes, worlds, outcomes, strict=True)
            ],
            "attacks": [attack.document() for attack in attacks],
        },
        as_json,
    ):
        return
    from assay.cli.show import show

    show(*_shown(folder, backtest, outcomes, attacks))


def _shown(
    folder: Path, backtest: Backtest, outcomes: Sequence[SeasonOutcome], attacks: Sequence[SearchResult]
) -> Iterator[RenderableType]:
    from assay.cli.show import Column, grid, heading, note
    from assay.settle.story.telling import percent

    yield heading(f"{folder.resolve().name}: its rules beside {backtest.new.name} {backtest.new.scheme.version}")
    yield ""
    thirds = [attack.at(3000) for attack in attacks]
    rows = [
        ("simulated: goes to skill", [f"{100 * outcome.to_skill:.2f} %" for outcome in outcomes]),
        ("simulated: honest validators left out", [f"{100 * outcome.panels_hurt:.2f} %" for outcome in outcomes]),
        ("simulated: burns", [f"{100 * outcome.burnt:.2f} %" for outcome in outcomes]),
        ("attacked: score raised by 30 % of the stake", ["–" if row is None else points(row.shift_blind) for row in thirds]),
        ("attacked: profit of 30 % of the stake", ["–" if row is None else points(row.best.profit) for row in thirds]),
        ("attacked: takeover from", ["–" if attack.takeover is None else percent(attack.takeover) for attack in attacks]),
    ]
    yield grid(
        [
            Column("figure", [name for name, _ in rows]),
            Column("now", [values[0] for _, values in rows], right=True),
            Column("other", [values[1] for _, values in rows], right=True),
        ]
    )
    yield ""
    changes = [*backtest.changes, backtest.rest]
    yield grid(
        [
            Column("back-test", [change.participant or "burns" for change in changes], kind="key", style="bold"),
            Column("change, points", [signed(change.gain) for change in changes], right=True),
        ]
    )
    yield note(f"Digest of the back-test {backtest.document['digest']}")
