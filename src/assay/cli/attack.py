"""`assay attack`: search for what gains from a scheme without playing fair, and play a found attack again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.init import presets
from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.rules.attack import Arena, Played
    from assay.rules.search import KnobCost, SearchResult
    from assay.scheme.model import Scheme

__all__ = ["Stakes", "attack", "points", "stakes_of", "table"]

Json = dict[str, Any]
SHOWN = 3000
"""The stake of the coalition that a table of presets shows, BPS."""

Validators = Annotated[int, typer.Option(metavar="N", help="Validators, all with the same stake [20; 1 if one is enough].")]
_STAKES = "A validators.csv with the stakes, as `assay registry pull` writes it."
Stakes = Annotated[Path | None, typer.Option(metavar="FILE", help=_STAKES)]
_OUTPUT = "Write the cheapest attack found as a scenario."
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help=_OUTPUT)]


def attack(
    scheme: Annotated[
        str | None,
        typer.Argument(metavar="[PRESET|FILE|DIR]", help="The rules.", autocompletion=presets, show_default=False),
    ] = None,
    validators: Validators = 0,
    stakes: Stakes = None,
    items: Annotated[int, typer.Option(metavar="N", help="Tasks × trials that each validator judges [80 for tests].")] = 0,
    seed: Annotated[int, typer.Option(metavar="N", help="Of what honest validators see.", min=0, max=2**32)] = 0,
    knobs: Annotated[bool, typer.Option("--knobs", help="Also what each changed field costs attackers and the honest.")] = False,
    as_json: AsJson = False,
    output: Output = None,
    replay: Annotated[Path | None, typer.Option(metavar="FILE", help="Play a scenario again; no scheme is named.")] = None,
    every: Annotated[bool, typer.Option("--table", help="Attack every preset, and print a Markdown table.")] = False,
) -> None:
    """Search for attacks on a scheme: what coalitions of validators, participants and sponsors gain.

    The attacked field has eight participants with known skills and a jury of validators. Coalitions of growing stake try every
    number for their participant and about each rival, and silence, before and after the others have signed. Participants try
    near-copies under more keys, copies of the best, and releasing an improvement in steps. Sponsors of a bounty try to get their
    deposit back with the help of judges. Each attack is played by the kernel; all figures are exact for the field.

    --output writes the cheapest attack that gains at least 1 % as a scenario; --replay plays it again, and must come to the
    same numbers.

    \b
    Examples:
      assay attack my-competition
      assay attack term-challenge --knobs
      assay attack cswon --stakes my-competition/validators.csv --output cheapest.json
      assay attack --replay cheapest.json
      assay attack --table
    """
    given = {"a scheme": scheme is not None, "--replay": replay is not None, "--table": every}
    if sum(given.values()) != 1:
        raise typer.BadParameter("name a scheme, or use --replay or --table", param_hint="PRESET|FILE|DIR")
    if replay is not None:
        _replay(replay, as_json)
        return
    from assay.cli.output import Working, put
    from assay.cli.schemes import scheme_of

    if every:
        with Working("attacking the presets"):
            put(table().encode(), None)
        return
    rules = scheme_of(str(scheme))
    _check(rules)
    with Working("searching for attacks"):
        attacks, changed = _searched(rules, validators, stakes_of(stakes), items, seed, knobs=knobs)
    if output is not None:
        _write(attacks, output)
    document = attacks.document() | ({"knobs": [_knob(cost) for cost in changed]} if knobs else {})
    if emit(document, as_json):
        return
    from assay.cli.show import show

    show(*_shown(attacks, changed))


def _searched(
    rules: Scheme, validators: int, stakes: Sequence[int], items: int, seed: int, *, knobs: bool
) -> tuple[SearchResult, list[KnobCost]]:
    """The attacks found on the field of a scheme, and, with knobs, the cost of each changed field."""
    from assay.rules.search import costs, field_of, search
    from assay.rules.seasons import World, season

    field = field_of(rules, validators=validators, stakes=stakes, items=items, seed=seed)
    attacks = search(field)
    jury_stakes = field.jury.stakes
    return attacks, costs(field, season(World(validators=len(jury_stakes), stakes=jury_stakes))) if knobs else []


def stakes_of(path: Path | None) -> tuple[int, ...]:
    """The stakes above 0 in a validators.csv, rao; none without a path. Raises BadInput."""
    if path is None:
        return ()
    from assay.errors import BadInput
    from assay.folder import csvs, registry
    from assay.folder.files import Place

    rows = registry.validators(csvs.read(path, csvs.VALIDATORS), Place(path), columns=1)
    amounts = tuple(row.stake for row in rows if row.stake)
    if not amounts:
        raise BadInput("no validator has stake", file=path, hint="give the stakes in rao")
    return amounts


def _check(scheme: Scheme) -> None:
    from assay.errors import BadInput

    if scheme.reward.kind == "ranking":
        raise BadInput("a ranking pays nobody, so no attack gains anything", field="reward.kind", hint="use a scheme that pays")


def _write(attacks: SearchResult, output: Path) -> None:
    from assay.cli.output import json_bytes, put
    from assay.errors import CannotSettle
    from assay.rules.attack import scenario

    if attacks.cheapest is None:
        raise CannotSettle("no attack that was found gains 1 %, so nothing was written", hint="leave --output out")
    put(json_bytes(scenario(attacks.field, attacks.cheapest)), output)


def _replay(path: Path, as_json: bool) -> None:
    from assay.errors import AssayError
    from assay.folder import strict
    from assay.folder.files import decode, load
    from assay.rules.attack import replayed

    text = decode(load(path, 2**22, hint="give a file that `assay attack --output` wrote"), path)
    try:
        field, played = replayed(strict.parse(text))
    except AssayError as error:
        error.file = path
        raise
    if emit({"attack": played.attack.document(), "result": played.document(), "replayed": True}, as_json):
        return
    from assay.cli.show import note, sentence, show

    show(sentence(described(field, played)), note("The same numbers as in the file."))


def points(nanos: int) -> str:
    """Nanos as points of a hundred with a sign: "+5.03"; for the reader."""
    from assay.exact import BPS, NANO, half_even, text

    count = half_even(abs(nanos), NANO // BPS)
    return f"{'−' if nanos < 0 and count else '+' if count else ''}{text(count, 2)}"


def described(field: Arena, played: Played) -> str:
    """One attack in a sentence."""
    from assay.settle.story.telling import percent, plural

    attack = played.attack
    stake = percent(played.stake)
    gain = f"{percent(played.before)} becomes {percent(max(0, played.after))}"
    match attack.kind:
        case "coalition":
            own, rivals = (attack.lies[at] != (-1,) for at in (field.attacker, 0))
            what = "its participant and the rivals" if own and rivals else "its participant" if own else "the rivals"
            when = ", after the others have signed" if attack.last else ""
            return f"A coalition with {stake} of the stake lies about {what}{when}: {gain}."
        case "sponsor":
            return f"The sponsor, with judges of {stake} of the stake, lets no solution pass; of the deposit comes back: {gain}."
        case "sybils":
            return f"A participant hands in near-copies under {plural(attack.keys, 'key')}: {gain}."
        case "copy":
            return f"The weakest participant hands in near-copies of the best under {plural(attack.keys, 'key')}: {gain}."
        case "release":
            again = ", and then the same again and again" if attack.again else ""
            steps = f"in {plural(attack.steps, 'step')}, {plural(attack.gap, 'epoch')} apart{again}"
            return f"A participant releases its improvement {steps}: {gain}."
    return f"A participant hands in at the last block of an epoch: {gain} (mean of 60 epochs)."


def _knob(cost: KnobCost) -> Json:
    from assay.exact import text

    exact = {"shift": text(max(0, cost.shift)), "profit": text(cost.profit), "sybils": text(max(0, cost.keys))}
    floats = {"honest_left_out": f"{cost.hurt:.4f}", "to_skill": f"{cost.to_skill:.4f}"}
    return {"field": cost.field, "value": cost.value} | exact | floats


def _shown(attacks: SearchResult, changed: Sequence[KnobCost]) -> Iterator[RenderableType]:
    from assay.cli.show import Column, grid, heading, note, sentence
    from assay.settle.story.telling import percent

    field, rows = attacks.field, attacks.by_stake
    yield heading(f"Attacks on {field.scheme.name} {field.scheme.scheme.version}")
    jury = field.jury
    yield note(f"{len(field.rates)} participants, {len(jury.stakes)} validators, {jury.items} items, seed {jury.seed}")
    yield ""
    yield grid(
        [
            Column("coalition", [percent(row.stake) for row in rows], right=True),
            Column("validators", [str(row.members) for row in rows], right=True),
            Column("score, blind", [points(row.shift_blind) for row in rows], right=True),
            Column("score, last", [points(row.shift_last) for row in rows], right=True),
            Column("profit", [points(row.best.profit) for row in rows], right=True),
        ]
    )
    yield note(
        "In points of a hundred: how far the agreed score of the coalition's participant (60) rises, and what share it gains."
    )
    yield ""
    for name, stake in (("Any score from 60 up to 90", attacks.takeover), ("Nobody has a quorum", attacks.denial)):
        yield sentence(f"{name}: {'no coalition that was tried' if stake is None else f'from {percent(stake)} of the stake on'}.")
    for played in attacks.others:
        yield sentence(f"{described(field, played)} {'' if played.profit > 0 else 'It gains nothing.'}".rstrip())
    cheapest = attacks.cheapest
    yield sentence("Cheapest that gains 1 %: " + ("none was found." if cheapest is None else described(field, cheapest)))
    if changed:
        yield ""
        yield from _knobs(changed)


def _knobs(changed: Sequence[KnobCost]) -> Iterator[RenderableType]:
    from assay.cli.show import Column, grid, note

    yield grid(
        [
            Column("field", [cost.field for cost in changed], style="bold"),
            Column("value", [cost.value for cost in changed]),
            Column("score", [points(cost.shift) for cost in changed], right=True),
            Column("profit", [points(cost.profit) for cost in changed], right=True),
            Column("sybils", [points(cost.keys) for cost in changed], right=True),
            Column("honest out", [f"{100 * cost.hurt:.1f} %" for cost in changed], right=True),
            Column("to skill", [f"{100 * cost.to_skill:.1f} %" for cost in changed], right=True),
        ]
    )
    yield note(
        "Score and profit: a coalition with 30 % of the stake. Sybils: eight keys. Honest out: judgements in which an honest "
        "validator is left out, in a simulated season; to skill: what is given out by skill (both are floats)."
    )


HEADS = (
    "preset",
    "judges",
    "score, blind",
    "score, last",
    "profit",
    "takeover",
    "no quorum",
    "sybils",
    "copy",
    "release",
    "sponsor",
)


def table(names: Sequence[str] = ("agonaut", "bounty-challenge", "cswon", "term-challenge"), draws: int = 0) -> str:
    """Presets, attacked, as a Markdown table; with the competitions of `platform`, that subnet too. draws: fewer panels."""
    from dataclasses import replace

    from assay.rules.attack import Arena
    from assay.rules.search import field_of, search
    from assay.scheme.load import parse, presets
    from assay.scheme.reading import parse_toml, validate
    from assay.scheme.subnet import SubnetFile

    lines = [f"| {' | '.join(HEADS)} |", "|---|" + "--:|" * (len(HEADS) - 1)]
    texts, known = presets(), {}
    for name in names:
        field = field_of(parse(texts[name], file=name))
        known[name] = search(Arena(replace(field.jury, draws=draws)) if draws else field)
        lines.append(f"| {' | '.join(_cells(name, known[name]))} |")
    members = validate(SubnetFile, parse_toml(texts["platform"], "platform")).competitions
    if all(member.path in known for member in members):
        lines.append(f"| {' | '.join(_joined([(known[member.path], member.share) for member in members]))} |")
    return "\n".join(lines) + "\n"


def _cells(name: str, attacks: SearchResult) -> list[str]:
    from assay.settle.story.telling import percent

    row = attacks.at(SHOWN)
    best = {played.attack.kind: played for played in attacks.others}
    kinds = [points(max(0, best[kind].profit)) if kind in best else "–" for kind in ("sybils", "copy", "release", "sponsor")]
    third = ["–"] * 3 if row is None else [points(row.shift_blind), points(row.shift_last), points(row.best.profit)]
    least = ["–" if stake is None else percent(stake) for stake in (attacks.takeover, attacks.denial)]
    return [name, str(len(attacks.field.jury.stakes)), *third, *least, *kinds]


def _joined(parts: Sequence[tuple[SearchResult, int]]) -> list[str]:
    """The subnet of several competitions: what each gains, times the part of the emission that the competition has."""
    from assay.exact import NANO

    def joined(profits: Sequence[int]) -> str:
        return points(sum(max(0, profit) * share for profit, (_, share) in zip(profits, parts, strict=True)) // NANO)

    third = [0 if (row := attacks.at(SHOWN)) is None else row.best.profit for attacks, _ in parts]
    best = [{played.attack.kind: played.profit for played in attacks.others} for attacks, _ in parts]
    kinds = [joined([profits[kind] for profits in best]) for kind in ("sybils", "copy", "release")]
    return ["platform", "20", "–", "–", joined(third), "–", "–", *kinds, "–"]
