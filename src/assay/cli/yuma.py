"""`assay yuma`: what Yuma consensus makes of weights before they are set: trust and dividends of each validator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.rules.yuma import Neurons, YumaEpoch, YumaRules

__all__ = ["yuma"]

Json = dict[str, Any]
SCHEMA = "assay.yuma/1"
BYTES = 2**26
RULES = ("kappa", "bonds_penalty", "bonds_moving_average", "alpha_low", "alpha_high", "steepness")
SWITCHES = ("yuma3", "liquid")


def yuma(
    metagraph: Annotated[Path, typer.Argument(metavar="METAGRAPH.json", help="The subnet before the epoch.", show_default=False)],
    weights: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A competition: its weights are put in place of those of --uid.")
    ] = None,
    uid: Annotated[int | None, typer.Option(metavar="N", help="Whose weights they are to be.", min=0)] = None,
    epoch: Annotated[int | None, typer.Option(metavar="N", help="With --weights: the epoch.", min=0)] = None,
    as_json: AsJson = False,
) -> None:
    """Preview a Yuma epoch before weights are set: consensus, vtrust, incentive and dividends.

    Computes with the chain's numbers (32 bits after the point), so the result is what the chain would store. Bonds are legacy
    ones, those of Yuma 3, or those with liquid alpha, as the file says.

    METAGRAPH.json has the neurons in the order of their uids, each with stake, permit, weights and bonds as pairs [uid, u16], and
    the subnet's hyperparameters; the documentation lists them. With --weights, the epoch is computed twice: as the file has it,
    and with the weights that the competition's settlement gives.

    \b
    Examples:
      assay yuma metagraph.json
      assay yuma metagraph.json --weights my-competition --uid 7
    """
    if (weights is None) != (uid is None) or (epoch is not None and weights is None):
        raise typer.BadParameter("--weights and --uid go together; --epoch needs both", param_hint="--weights")
    from dataclasses import replace

    from assay.errors import AssayError, BadInput
    from assay.rules import yuma as rules_of_chain

    neurons, rules = _read(metagraph)
    epochs = [rules_of_chain.epoch(neurons, rules)]
    if weights is not None and uid is not None:
        from assay.competition import open_competition

        if uid >= len(neurons.stakes):
            raise BadInput(f"there are {len(neurons.stakes)} neurons", field="--uid", hint="uids count from 0")
        row = _set(open_competition(weights).settle(epoch).document, len(neurons.stakes), weights)
        rows = [row if at == uid else list(before) for at, before in enumerate(neurons.weights)]
        try:
            epochs.append(rules_of_chain.epoch(replace(neurons, weights=rows), rules))
        except AssayError as error:
            error.at(file=weights)
            raise
    if emit(lambda: {"schema": SCHEMA, "epochs": [_document(found) for found in epochs]}, as_json):
        return
    from assay.cli.show import show

    show(*_shown(neurons, epochs, uid))


def _read(path: Path) -> tuple[Neurons, YumaRules]:
    """The neurons and hyperparameters in a file; raises BadInput with the field."""
    from assay.errors import BadInput
    from assay.folder import strict
    from assay.folder.files import decode, load

    try:
        return _subnet(strict.parse(decode(load(path, BYTES, hint="give the metagraph as JSON"), path)))
    except BadInput as error:
        error.at(file=path)
        raise


def _subnet(content: Any) -> tuple[Neurons, YumaRules]:
    from assay.errors import BadInput, suggest
    from assay.rules.fixed import U16, of_ratio
    from assay.rules.yuma import Neurons, YumaRules

    if not isinstance(content, dict) or not isinstance(content.get("neurons"), list):
        raise BadInput("is no metagraph", field="neurons", hint='write {"neurons": [{"stake": "100", "permit": true, …}]}')
    known = ("neurons", "owner", *RULES, *SWITCHES)
    for name in content:
        if name not in known:
            raise BadInput(f"there is no field {name[:80]!r} here", hint=suggest(name, known, f"use {', '.join(known)}"))
    said: Json = {name: _number(content[name], name, 10**6) for name in RULES if name in content}
    for name in ("alpha_low", "alpha_high"):
        if name in said:
            said[name] = of_ratio(said[name], U16)
    said |= {name: content[name] is True for name in SWITCHES if name in content}
    rows, n = content["neurons"], len(content["neurons"])
    for at, row in enumerate(rows):
        if not isinstance(row, dict) or not {"stake"} <= set(row) <= {"stake", "permit", "weights", "bonds"}:
            raise BadInput("has stake, permit, weights and bonds, and nothing else", field=f"neurons[{at}]")
    neurons = Neurons(
        stakes=[_stake(row["stake"], f"neurons[{at}].stake") for at, row in enumerate(rows)],
        weights=[_pairs(row.get("weights", []), n, f"neurons[{at}].weights") for at, row in enumerate(rows)],
        permits=[row.get("permit") is True for row in rows],
        bonds=[_pairs(row.get("bonds", []), n, f"neurons[{at}].bonds") for at, row in enumerate(rows)],
        owner=None if content.get("owner") is None else _number(content["owner"], "owner", n - 1),
    )
    return neurons, YumaRules(**said)


def _number(value: Any, field: str, most: int) -> int:
    from assay.errors import BadInput

    if type(value) is not int or not 0 <= value <= most:
        raise BadInput(f"is no whole number from 0 to {most}", field=field)
    return value


def _stake(value: Any, field: str) -> int:
    from assay.errors import BadInput
    from assay.exact import whole

    try:
        return whole(value, 64)
    except BadInput as error:
        error.at(field=field)
        raise


def _pairs(value: Any, n: int, field: str) -> list[int]:
    """A row of u16 from pairs [uid, number]."""
    from assay.errors import BadInput
    from assay.rules.fixed import U16

    row = [0] * n
    if not isinstance(value, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in value):
        raise BadInput("is no list of pairs", field=field, hint="write [[uid, number], …]")
    for uid, number in value:
        row[_number(uid, field, n - 1)] = _number(number, field, U16)
    return row


def _set(document: Mapping[str, Any], n: int, folder: Path) -> list[int]:
    """The weights that the settlement gives the chain, by uid."""
    from assay.errors import CannotSettle

    row = [0] * n
    paid = [*document["weights"], document["burn"]] if document.get("weights") is not None and document.get("burn") else []
    for weight in paid:
        if weight["uid"] is not None and weight["chain_u16"]:
            if weight["uid"] >= n:
                raise CannotSettle(f"uid {weight['uid']} has a weight, and the metagraph has {n} neurons", file=folder)
            row[weight["uid"]] = weight["chain_u16"]
    if not any(row):
        raise CannotSettle("its settlement has no weights", file=folder, hint="use a competition that settles into weights")
    return row


def _document(found: YumaEpoch) -> Json:
    names = ("consensus", "trust", "incentive", "dividends")
    return {name: found.u16(name) for name in names} | {"bonds": found.bonds}


def _shown(neurons: Neurons, epochs: Sequence[YumaEpoch], uid: int | None) -> Iterator[RenderableType]:
    from assay.cli.show import Column, grid, heading, note
    from assay.exact import half_even
    from assay.rules.fixed import U16
    from assay.settle.story.telling import percent

    def part(value: int) -> str:
        return percent(half_even(value * 10**9, U16))

    validators = [at for at, permit in enumerate(neurons.permits) if permit and neurons.stakes[at]]
    columns = [Column("validator, uid", [str(at) for at in validators], right=True, style="bold")]
    heads = ("", "") if uid is None else (" now", f" with the weights of {uid}")
    for found, head in zip(epochs, heads, strict=False):
        trust, dividends = found.u16("trust"), found.u16("dividends")
        columns.append(Column(f"vtrust{head}", [part(trust[at]) for at in validators], right=True))
        columns.append(Column(f"dividends{head}", [part(dividends[at]) for at in validators], right=True))
    yield heading(f"Yuma epoch of {len(neurons.stakes)} neurons, before weights are set")
    yield ""
    yield grid(columns)
    yield note("As the chain would store it. --json has consensus, incentive and bonds, too.")
