"""`assay explain`: how a participant's numbers came about, step by step, or why it has none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.keys import complete

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.records import Rubric
    from assay.settle import Settlement
    from assay.settle.story import Explanation

__all__ = ["explain"]


def explain(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    participant: Annotated[
        str,
        typer.Argument(
            metavar="PARTICIPANT",
            help="Its key, the short form on the board, its name, or a beginning that is unique.",
            autocompletion=complete,
            show_default=False,
        ),
    ],
    epoch: Annotated[
        int | None, typer.Option(metavar="N", help="The epoch; otherwise the highest that has evidence.", min=0)
    ] = None,
    previous: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The settlement (JSON) of an earlier epoch, which decay goes on from.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The story and its numbers as canonical JSON.")] = False,
) -> None:
    """Explain each number of one participant.

    Which validators judged it and what they saw, who was left out and how far off it was, quorum, agreed score, what the
    strategy gave, what the cap moved, what decayed and since when, and the weight or payout. Without an agreed score: why
    not, what is missing, and what to do. Of a bounty: who judged where the first model could not, and the attestation of where
    the judge ran, held against the judgement and the submission that it is of.

    \b
    Examples:
      assay explain my-competition miner-a
      assay explain my-competition miner-a --epoch 12 --json
    """
    from assay.cli.keys import find
    from assay.cli.progress import Working
    from assay.competition import open_competition

    with Working(f"settling {folder}"):
        settlement = open_competition(folder).settle(epoch, previous=previous)
        key = find(participant, settlement.inputs.participants)
        told = settlement.explain(key)
    judging = _judging(folder, settlement, key)
    if as_json:
        from assay.cli.output import json_bytes, put

        put(json_bytes(told.document() | judging), None)
        return

    from assay.cli.show import command, sentence, show

    names = (one.name for one in settlement.inputs.participants if one.key == key and one.name != key)
    show(*_told(told, next(names, "")))
    for one in judging.get("fallback", ()):
        show(sentence(f"The judgement by {one['validator']} is the fallback model's, {one['model']}, because {one['why']}."))
    if judging:
        show(sentence(_in_words(judging["attestation"])))
    if settlement.inputs.scheme.score.kind == "tests" and (folder / "trials").is_dir():
        show(command("Which of its trials passed here", "assay", "trials", folder, "--participant", key))


def _told(told: Explanation, name: str) -> Iterator[RenderableType]:
    from assay.cli.chapters import rendered
    from assay.cli.show import heading, note, sentence

    yield heading(f"{told.scheme} {told.version} · epoch {told.epoch}" + (f" · {name}" if name else ""))
    yield sentence(told.summary)
    yield from rendered(told.chapters)
    yield ""
    yield note(f"Digest {told.settlement}")


def _judging(folder: Path, settlement: Settlement, key: str) -> dict[str, Any]:
    """Of a rubric: who judged instead of the first model, and what attests where the judge ran. Nothing of other kinds."""
    from assay.settle.inputs import Scored

    if settlement.inputs.scheme.score.kind != "rubric" or isinstance(settlement.inputs.evidence, Scored):
        return {}
    from assay.judge.rubric.keep import by_fallback

    mine = [one for one in settlement.inputs.participants if one.key == key]
    fallback = [
        {"validator": one.validator, "model": one.model, "why": one.why}
        for one in by_fallback(folder, mine, settlement.inputs.evidence)
    ]
    return {"fallback": fallback, "attestation": _attestation(folder, _counted(settlement, settlement.inputs.evidence, key))}


def _counted(settlement: Settlement, evidence: Iterable[object], key: str) -> list[Rubric]:
    """The records that a participant's agreed score rests on: of each validator who counts, the first that is not too old."""
    from assay.records import Rubric

    (row,) = (one for one in settlement.document["agreed"] if one["participant"] == key)
    validators = {one["validator"] for one in row["validators"] if not one["excluded"]}
    age = settlement.inputs.scheme.consensus.max_age_epochs
    found: dict[str, Rubric] = {}
    for one in evidence:
        if not isinstance(one, Rubric) or one.validator not in validators:
            continue
        old = age is not None and one.epoch < settlement.inputs.epoch - age
        if not old and one.submission == row["submission"] and (one.submission or one.participant == key):
            found.setdefault(one.validator, one)
    return list(found.values())


def _attestation(folder: Path, records: list[Rubric]) -> dict[str, Any]:
    """What attests where a participant was judged, as a chain is told: the digest of a document with the quote, or why none."""
    from assay.judge.rubric.keep import JUDGEMENTS
    from assay.scheme.bounty import read_bounty

    nothing: dict[str, Any] = {"digest": None, "files": []}
    bounty = read_bounty(folder) if (folder / "bounty.toml").exists() else None
    if bounty is None or bounty.enclave is None:
        return nothing | {"why": "there is no enclave, and a chain is told 0 for it"}
    from assay.enclave.proofs import proof
    from assay.errors import BadInput

    try:
        found = proof(bounty, records)
    except BadInput as error:
        return nothing | {"why": str(error)}
    if found is None:
        return nothing | {"why": "it was not judged"}
    return {"digest": found.digest, "files": [f"{JUDGEMENTS}/{one.name}" for one in found.files], "why": None}


def _in_words(attestation: dict[str, Any]) -> str:
    if attestation["digest"] is None:
        return f"Nothing attests where its judge ran: {attestation['why']}."
    check = "`assay enclave verify FILE --bounty DIR` checks the quote"
    return f"Where its judge ran is attested by {attestation['digest']}, in {', '.join(attestation['files'])}: {check}."
