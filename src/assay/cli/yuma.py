"""`assay yuma`: what Yuma consensus makes of weights before they are set: trust and dividends of each validator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.publish.bittensor.metagraph import Metagraph, YumaPreview
    from assay.rules.yuma import Neurons, YumaEpoch, YumaRules

__all__ = ["preview_of", "yuma"]

Json = dict[str, Any]
SCHEMA = "assay.yuma/1"
BYTES = 2**26
RULES = ("kappa", "bonds_penalty", "bonds_moving_average", "alpha_low", "alpha_high", "steepness")
SWITCHES = ("yuma3", "liquid")


def yuma(
    metagraph: Annotated[
        Path | None, typer.Argument(metavar="[METAGRAPH.json]", help="The subnet before the epoch.", show_default=False)
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Read it from a node of the chain instead, with --netuid.")
    ] = None,
    netuid: Annotated[int | None, typer.Option(metavar="N", help="With --url: the subnet.", min=1, max=4095)] = None,
    mechanism: Annotated[int, typer.Option(metavar="N", help="With --url: the subnet's mechanism.", min=0, max=15)] = 0,
    block: Annotated[str, typer.Option(metavar="N", help="With --url: a final block; otherwise the last.")] = "finalized",
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
    the subnet's hyperparameters; the documentation lists them. With --url and --netuid they are read from the chain, all at one
    block. With --weights, the epoch is computed twice: as it is there, and with the weights that the competition's settlement
    gives. `assay publish --preview` does both for a target of publish.toml.

    \b
    Examples:
      assay yuma metagraph.json
      assay yuma metagraph.json --weights my-competition --uid 7
      assay yuma --url wss://entrypoint-finney.opentensor.ai:443 --netuid 5 --weights my-competition --uid 7
    """
    if (weights is None) != (uid is None) or (epoch is not None and weights is None):
        raise typer.BadParameter("--weights and --uid go together; --epoch needs both", param_hint="--weights")
    if (metagraph is None) == (url is None) or (url is None) != (netuid is None):
        raise typer.BadParameter("give a file, or --url with --netuid", param_hint="METAGRAPH.json")
    from assay.rules import yuma as rules_of_chain

    chain = None
    if metagraph is not None:
        neurons, rules = _read(metagraph)
    else:
        chain = _of_chain(str(url), netuid or 0, mechanism, block)
        neurons, rules = chain.neurons, chain.rules
    epochs = [rules_of_chain.epoch(neurons, rules)]
    if weights is not None and uid is not None:
        epochs.append(_with_weights(neurons, rules, chain, weights, uid, epoch))
    preview: Json = {"schema": SCHEMA, "epochs": [_document(each) for each in epochs]}
    if emit(preview | ({} if chain is None else _where(chain)), as_json):
        return
    from assay.cli.show import show

    show(*_shown(neurons, epochs, uid))
    if chain is not None:
        show(*_notes(chain))


def _with_weights(
    neurons: Neurons, rules: YumaRules, chain: Metagraph | None, folder: Path, uid: int, epoch: int | None
) -> YumaEpoch:
    """The epoch with the weights that a competition's settlement gives, as those of a uid. Raises BadInput."""
    from dataclasses import replace

    from assay.competition import open_competition
    from assay.errors import AssayError, BadInput
    from assay.rules import yuma as rules_of_chain

    if uid >= len(neurons.stakes):
        raise BadInput(f"there are {len(neurons.stakes)} neurons", field="--uid", hint="uids count from 0")
    row = _set(open_competition(folder).settle(epoch).document, len(neurons.stakes), folder)
    rows = [row if at == uid else list(before) for at, before in enumerate(neurons.weights)]
    changed = replace(neurons, weights=rows) if chain is None else chain.with_weights(uid, dict(enumerate(row)))
    try:
        return rules_of_chain.epoch(changed, rules)
    except AssayError as error:
        error.at(file=folder)
        raise


def preview_of(folder: Path, to: str, epoch: int | None, *, as_json: bool) -> None:
    """`assay publish --preview`: the next epoch of a target's subnet without and with the weights of a settled epoch."""
    from assay.cli.publishing import planned
    from assay.errors import BadInput

    publisher, plan = planned(folder, to, epoch)
    act = getattr(publisher, "preview", None)
    if act is None:
        raise BadInput(f"{to} is no subnet of Bittensor", field="--preview", hint="leave --preview out to see what would be sent")
    preview: YumaPreview = act(plan)
    epochs, graph = [preview.before, preview.after], preview.metagraph
    head: Json = {"schema": SCHEMA, "target": plan.target, "epoch": plan.epoch, "uid": preview.uid}
    if emit(head | {"epochs": [_document(each) for each in epochs]} | _where(graph), as_json):
        return
    from assay.cli.show import note, show

    show(*_shown(graph.neurons, epochs, preview.uid), *_notes(graph))
    if graph.subnet.commit_reveal:
        show(note("The subnet opens commitments some epochs later: the weights count from then on."))


def _of_chain(url: str, netuid: int, mechanism: int, block: str) -> Metagraph:
    """The metagraph of a subnet, all at one block. Raises BadInput and Unreachable."""
    from assay.cli.registry import block_of
    from assay.errors import BadInput
    from assay.publish.bittensor.metagraph import read_metagraph
    from assay.publish.bittensor.node import BittensorNode
    from assay.publish.bittensor.subnet import read_subnet
    from assay.publish.outcome import Refusal

    node = BittensorNode(url)
    try:
        subnet = read_subnet(node, netuid, mechanism, block_of(node, block))
        if isinstance(subnet, Refusal):
            raise BadInput(subnet.what, hint=subnet.hint)
        return read_metagraph(node, subnet)
    finally:
        node.close()


def _where(graph: Metagraph) -> Json:
    there = graph.subnet
    block = {"number": there.block.number, "hash": there.block.hash}
    return {"netuid": there.netuid, "mechanism": there.mechanism, "block": block, "due": graph.due}


def _notes(graph: Metagraph) -> Iterator[RenderableType]:
    from assay.cli.show import note

    there, due = graph.subnet, f"the next epoch is due about {graph.due}"
    yield note(f"Subnet {there.netuid}, mechanism {there.mechanism}, at block {there.block.number}; {due}.")


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
    fields: Json = {name: _number(content[name], name, 10**6) for name in RULES if name in content}
    for name in ("alpha_low", "alpha_high"):
        if name in fields:
            fields[name] = of_ratio(fields[name], U16)
    fields |= {name: content[name] is True for name in SWITCHES if name in content}
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
    return neurons, YumaRules(**fields)


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


def _document(epoch: YumaEpoch) -> Json:
    names = ("consensus", "trust", "incentive", "dividends")
    return {name: epoch.u16(name) for name in names} | {"bonds": epoch.bonds}


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
    for epoch, head in zip(epochs, heads, strict=False):
        trust, dividends = epoch.u16("trust"), epoch.u16("dividends")
        columns.append(Column(f"vtrust{head}", [part(trust[at]) for at in validators], right=True))
        columns.append(Column(f"dividends{head}", [part(dividends[at]) for at in validators], right=True))
    yield heading(f"Yuma epoch of {len(neurons.stakes)} neurons, before weights are set")
    yield ""
    yield grid(columns)
    yield note("As the chain would store it. --json has consensus, incentive and bonds, too.")
