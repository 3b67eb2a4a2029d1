"""`assay simulate`: a scheme over seasons that are drawn, with participants whose skill is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.attack import Stakes, stakes_of
from assay.cli.init import presets
from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.rules.seasons import World
    from assay.rules.simulate import Knob, SeasonOutcome
    from assay.scheme.model import Scheme

__all__ = ["document", "simulate", "world_of"]

Json = dict[str, Any]
SCHEMA = "assay.simulation/1"

_KNOBS = "Also with one field after the other changed, over the same season."
Knobs = Annotated[bool, typer.Option("--knobs", help=_KNOBS)]
_HTML = "Write a page with plots: one file that needs no other."
Html = Annotated[Path | None, typer.Option(metavar="FILE", help=_HTML)]


def simulate(
    scheme: Annotated[
        str, typer.Argument(metavar="PRESET|FILE|DIR", help="The rules.", autocompletion=presets, show_default=False)
    ],
    participants: Annotated[int, typer.Option(metavar="N", help="Participants at a time.")] = 32,
    validators: Annotated[int, typer.Option(metavar="M", help="Validators; with --stakes as many as have stake.")] = 8,
    epochs: Annotated[int, typer.Option(metavar="E", help="Epochs.")] = 200,
    seed: Annotated[int, typer.Option(metavar="S", help="Every draw follows from it.", min=0)] = 0,
    stakes: Stakes = None,
    tasks: Annotated[int, typer.Option(metavar="N", help="Tasks.")] = 80,
    updates: Annotated[float, typer.Option(metavar="P", help="Chance of a new submission in an epoch.")] = 0.1,
    churn: Annotated[float, typer.Option(metavar="P", help="Chance that a newcomer replaces a participant.")] = 0.01,
    flaky: Annotated[float, typer.Option(metavar="P", help="Part of the tasks that pass by a coin half of the time.")] = 0.1,
    noise: Annotated[float, typer.Option(metavar="P", help="How often a validator sees an outcome the other way round.")] = 0.01,
    late: Annotated[float, typer.Option(metavar="P", help="Chance that a validator needs another epoch to judge.")] = 0.3,
    knobs: Knobs = False,
    as_json: AsJson = False,
    html: Html = None,
) -> None:
    """Try rules on a season that is drawn: how much of what is given out goes to skill.

    The season has participants of known skill, tasks that may be flaky, and honest validators that see with noise.

    Consensus, clocks of decay, shares and payouts are computed by the kernel that settles epochs. The season and the figures
    about it are binary floats, for the reader. All validators are honest: assay attack has the others.

    "To skill" is the part of what is given out that goes where it would go if every skill were known and judged at once.

    \b
    Examples:
      assay simulate my-competition
      assay simulate term-challenge --knobs --html rules.html
      assay simulate cswon --stakes my-competition/validators.csv --participants 256 --epochs 1000
    """
    from assay.cli.output import Working, put
    from assay.cli.schemes import scheme_of
    from assay.rules import simulate as simulating
    from assay.rules.seasons import World, season

    rules = scheme_of(scheme)
    amounts = stakes_of(stakes)
    world = World(participants, len(amounts) or validators, epochs, seed, tasks, 1, amounts, updates, churn, flaky, noise, late)
    world = world_of(rules, world)
    with Working("simulating"):
        drawn = season(world)
        result = simulating.simulate(rules, drawn)
        others = [(knob, simulating.simulate(knob.scheme, drawn)) for knob in simulating.knobs(rules)] if knobs or html else []
    if html is not None:
        from assay.serve.rules_page import Simulated, alone

        put(alone([Simulated(rules, world, result, [(f"{knob.field} = {knob.value}", other) for knob, other in others])]), html)
    if emit(lambda: document(rules, world, result, others), as_json):
        return
    from assay.cli.show import show

    show(*_shown(rules, world, result, others if knobs else []))


def world_of(scheme: Scheme, world: World) -> World:
    """The world with as many trials of each task as the scheme says. Raises BadInput if a number is out of range."""
    world = replace(world, trials=scheme.kind.trials(scheme.score) or 1)
    world.check()
    return world


def document(scheme: Scheme, world: World, result: SeasonOutcome, others: Sequence[tuple[Knob, SeasonOutcome]]) -> Json:
    """The simulation as JSON; every figure is a float, written as a decimal string."""
    from dataclasses import asdict

    fields: Json = {
        name: [str(stake) for stake in value] if name == "stakes" else f"{value:g}" if isinstance(value, float) else value
        for name, value in asdict(world).items()
    }
    return {
        "schema": SCHEMA,
        "scheme": {"name": scheme.name, "version": scheme.scheme.version, "digest": scheme.digest},
        "world": fields,
        "outcome": result.document(),
        "knobs": [{"field": knob.field, "value": knob.value, **outcome.document()} for knob, outcome in others],
    }


def _shown(
    scheme: Scheme, world: World, result: SeasonOutcome, others: Sequence[tuple[Knob, SeasonOutcome]]
) -> Iterator[RenderableType]:
    from assay.cli.show import Column, grid, heading, note

    yield heading(f"{scheme.name} {scheme.scheme.version}, simulated: {world.epochs} epochs, seed {world.seed}")
    yield note(f"{world.participants} participants, {world.validators} honest validators, {world.tasks} tasks")
    yield ""
    what = [
        ("goes to skill", _percent(result.to_skill)),
        ("rank correlation of skill and share", f"{result.correlation:.3f}"),
        ("judgements in which an honest validator is left out", _percent(result.panels_hurt)),
        ("scores of honest validators left out", _percent(result.scores_hurt)),
        ("participants with an agreed score", _percent(result.agreed)),
        ("burns, or is not paid", _percent(result.burnt)),
        ("largest share", _percent(result.largest)),
        ("epochs until a newcomer has its place, median", _wait(result)),
        ("newcomers who never got it", f"{result.never} of {result.never + len(result.waits)}"),
    ]
    yield grid([Column("figure (float)", [name for name, _ in what]), Column("", [value for _, value in what], right=True)])
    if not others:
        yield note("What each field changes: --knobs.")
        return
    yield ""
    rows = [("as it is", "", result), *((knob.field, knob.value, outcome) for knob, outcome in others)]
    yield grid(
        [
            Column("field", [name for name, _, _ in rows], style="bold"),
            Column("value", [value for _, value, _ in rows]),
            Column("to skill", [_percent(outcome.to_skill) for *_, outcome in rows], right=True),
            Column("rank", [f"{outcome.correlation:.3f}" for *_, outcome in rows], right=True),
            Column("honest out", [_percent(outcome.panels_hurt) for *_, outcome in rows], right=True),
            Column("burns", [_percent(outcome.burnt) for *_, outcome in rows], right=True),
            Column("wait", [_wait(outcome) for *_, outcome in rows], right=True, spare=1),
        ]
    )


def _percent(part: float) -> str:
    return f"{100 * part:.2f} %"


def _wait(result: SeasonOutcome) -> str:
    return "–" if result.wait is None else f"{result.wait:g}"
