"""`assay explain`: how a participant's numbers came about, step by step, or why it has none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.keys import complete

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.records import Participant
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
    not, what is missing, and what to do.

    \b
    Examples:
      assay explain my-competition miner-a
      assay explain my-competition miner-a --epoch 12 --json
    """
    from assay.cli.keys import find
    from assay.cli.progress import Working
    from assay.competition import open_competition
    from assay.settle.inputs import Scored

    with Working(f"settling {folder}"):
        settlement = open_competition(folder).settle(epoch, previous=previous)
        key = find(participant, settlement.inputs.participants)
        told = settlement.explain(key)
    if as_json:
        from assay.cli.output import json_bytes, put

        put(json_bytes(told.document()), None)
        return

    from assay.cli.show import command, sentence, show

    names = (one.name for one in settlement.inputs.participants if one.key == key and one.name != key)
    show(*_told(told, next(names, "")))
    if settlement.inputs.scheme.score.kind == "rubric" and not isinstance(settlement.inputs.evidence, Scored):
        from assay.judge.rubric.keep import by_fallback

        mine = [one for one in settlement.inputs.participants if one.key == key]
        for one in by_fallback(folder, mine, settlement.inputs.evidence):
            show(sentence(f"The judgement by {one.validator} is the fallback model's, {one.model}, because {one.why}."))
        show(sentence(_attested(folder, mine, settlement.inputs.evidence)))
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


def _attested(folder: Path, participants: list[Participant], records: Iterable[object]) -> str:
    """What attests where a participant was judged, as a chain is told: the digest of a document with the quote, or nothing."""
    from assay.judge.rubric.keep import JUDGEMENTS
    from assay.records import Rubric
    from assay.scheme.bounty import read_bounty

    current = {one.key: one.submission for one in participants}
    mine = [one for one in records if isinstance(one, Rubric) and current.get(one.participant) == one.submission]
    judgements = [(one.validator, one.attestation) for one in mine if one.outcome == "judged"]
    bounty = read_bounty(folder) if (folder / "bounty.toml").exists() else None
    if bounty is None or bounty.enclave is None:
        return "Nothing attests where its judge ran: there is no enclave, and a chain is told 0 for it."
    from assay.enclave.proofs import proof
    from assay.errors import BadInput

    try:
        found = proof(bounty, judgements)
    except BadInput as error:
        return f"What attests where its judge ran is not here: {error}."
    if found is None:
        return "Nothing attests where its judge ran: it was not judged."
    files = ", ".join(f"{JUDGEMENTS}/{one.name}" for one in found.files)
    check = "`assay enclave verify FILE --bounty DIR` checks the quote"
    return f"Where its judge ran is attested by {found.digest}, in {files}: {check}."
