"""`assay explain`: how a participant's numbers came about, step by step, or why it has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.keys import complete

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.records import Evidence, Rubric
    from assay.settle import Settlement
    from assay.settle.story import Explanation

    Shown = tuple[Settlement, str, Callable[[str], list[Evidence] | None]]
    """A settlement, what to say beside its story, and whence to take single records where it was computed from sums."""

__all__ = ["explain", "judging", "judging_in_words"]


def explain(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The competition's folder, or what `assay export epoch` wrote.", show_default=False),
    ],
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
        int | None,
        typer.Option(
            metavar="N", help="The epoch; otherwise the highest that has evidence. With a ledger: the last one settled.", min=0
        ),
    ] = None,
    previous: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The settlement (JSON) of an earlier epoch, which decay goes on from.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Of an exported epoch: the log's public key, or a file that has it: ledger.toml."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The story and its numbers as canonical JSON.")] = False,
) -> None:
    """Explain each number of one participant.

    Which validators judged it and what they saw, which tasks or checks failed by name, who was left out and how far off it was,
    quorum, agreed score, what the strategy gave, what the cap moved, since when it decays or from which epoch on it would, the
    weight or payout, and what score would take the next place. Without an agreed score: why not, what is missing, and what to do.
    Of a bounty: who judged where the first model could not, and the attestation of where the judge ran, held against the
    judgement and the submission that it is of.

    An exported epoch is verified first, and not explained if anything of it is not right.

    \b
    Examples:
      assay explain my-competition miner-a
      assay explain my-competition miner-a --epoch 12 --json
      assay explain epoch-12 miner-a --key log.vkey
    """
    from assay.cli.keys import find
    from assay.cli.output import emit
    from assay.cli.show import note, show
    from assay.errors import Refused
    from assay.settle.inputs import Scored

    exported = _is_bundle(folder)
    try:
        if exported:
            settlement, remark, records = _verified(folder, epoch, previous, key)
        else:
            settlement, remark, records = _settled(folder, epoch, previous, key)
    except Refused as refused:
        if as_json:
            from assay.cli.output import refused_json

            emit(refused_json(refused))
            raise typer.Exit(refused.exit_code) from None
        raise
    whom = find(participant, settlement.inputs.participants)
    told = settlement.explain(whom, records(whom) if isinstance(settlement.inputs.evidence, Scored) else None)
    about = {} if exported else settlement.inputs.scheme.kind.about(settlement, folder, whom)
    if emit(told.document() | about, as_json):
        return

    names = (one.name for one in settlement.inputs.participants if one.key == whom and one.name != whom)
    show(*_told(told, next(names, "")))
    if not exported:
        _beside(folder, settlement, whom, about)
    if remark:
        show(note(remark))


def _is_bundle(folder: Path) -> bool:
    """Whether a folder is what `assay export` wrote rather than a competition's."""
    from assay.ledger.bundle import INPUTS
    from assay.ledger.verify.subnet_bundle import is_joint

    if folder.is_dir() and not (folder / "scheme.toml").exists() and is_joint(folder):
        from assay.errors import BadInput

        raise BadInput("is of a subnet", file=folder, hint="explain one of its competitions: the folders in competitions/")
    return (folder / INPUTS).exists() and not (folder / "scheme.toml").exists()


def _verified(folder: Path, epoch: int | None, previous: Path | None, key: str | None) -> Shown:
    """The settlement of an exported epoch, everything of it verified. Raises Refused."""
    from assay.cli.ledger.verify import log_key
    from assay.cli.progress import Working
    from assay.errors import BadInput
    from assay.ledger.verify import verify
    from assay.ledger.verify.recompute import records_about

    with Working(f"verifying {folder}"):
        found = verify(folder, key=None if key is None else log_key(key))
    assert found.settlement is not None  # of a bundle it is always computed again
    settlement = found.settlement
    if previous is not None:
        raise BadInput("an exported epoch has the settlement before it", field="--previous", hint="leave it out")
    if epoch not in (None, settlement.epoch):
        raise BadInput(f"is of epoch {settlement.epoch}", file=folder, field="--epoch", hint="leave it out, or export that epoch")
    whose = "" if key is not None else " Whose receipt it is was not checked: give the log's public key with --key."
    remark = f"Verified before it was explained: receipt, log, evidence, signatures, settlement.{whose}"
    return settlement, remark, lambda participant: records_about(folder, found, participant)


def _settled(folder: Path, epoch: int | None, previous: Path | None, key: str | None) -> Shown:
    """The settlement that a competition's folder gives; what is said beside it is that a later epoch is open."""
    from assay.cli.progress import Working
    from assay.competition import open_competition
    from assay.errors import BadInput

    if key is not None:
        raise BadInput("is for an exported epoch", field="--key", hint="leave it out")
    competition = open_competition(folder)
    with Working(f"settling {folder}"):
        settlement = competition.settle(epoch, previous=previous)
    newest = competition.newest if epoch is None else None
    open_ = newest is not None and newest > settlement.epoch
    remark = f"Epoch {newest} has evidence and is not settled: --epoch {newest} shows how it stands." if open_ else ""

    def records(participant: str) -> list[Evidence] | None:
        if not competition.has_ledger:
            return None
        from assay.ledger.settling import records_about

        with competition.ledger as ledger:
            return records_about(ledger, settlement, participant)

    return settlement, remark, records


def _beside(folder: Path, settlement: Settlement, key: str, about: dict[str, Any]) -> None:
    """What the folder has beside the numbers: who judged by the fallback, what attests it, the trials."""
    from assay.cli.show import command, sentence, show

    kind = settlement.inputs.scheme.kind
    for said in kind.told(about):
        show(sentence(said))
    if further := kind.look(folder, key):
        show(command(further[0], *further[1]))


def _told(told: Explanation, name: str) -> Iterator[RenderableType]:
    from assay.cli.chapters import rendered
    from assay.cli.show import heading, note, sentence

    yield heading(f"{told.scheme} {told.version} · epoch {told.epoch}" + (f" · {name}" if name else ""))
    yield sentence(told.summary)
    yield from rendered(told.chapters)
    yield ""
    yield note(f"Digest {told.settlement}")


def judging(folder: Path, settlement: Settlement, key: str) -> dict[str, Any]:
    """Of a rubric: who judged instead of the first model, and what attests where the judge ran."""
    from assay.settle.inputs import Scored

    if isinstance(settlement.inputs.evidence, Scored):
        return {}
    from assay.judge.rubric.stored import by_fallback

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
    from assay.judge.rubric.stored import JUDGEMENTS
    from assay.scheme.bounty import read_bounty

    nothing: dict[str, Any] = {"digest": None, "files": []}
    bounty = read_bounty(folder) if (folder / "bounty.toml").exists() else None
    if bounty is None or bounty.enclave is None:
        return nothing | {"why": "there is no enclave, and a chain is told 0 for it"}
    from assay.enclave.proofs import find_proof
    from assay.errors import BadInput

    try:
        found = find_proof(bounty, records)
    except BadInput as error:
        return nothing | {"why": str(error)}
    if found is None:
        return nothing | {"why": "it was not judged"}
    return {"digest": found.digest, "files": [f"{JUDGEMENTS}/{one.name}" for one in found.files], "why": None}


def judging_in_words(about: dict[str, Any]) -> Iterator[str]:
    """The same in sentences."""
    for one in about.get("fallback", ()):
        yield f"The judgement by {one['validator']} is the fallback model's, {one['model']}, because {one['why']}."
    if about:
        yield _in_words(about["attestation"])


def _in_words(attestation: dict[str, Any]) -> str:
    if attestation["digest"] is None:
        return f"Nothing attests where its judge ran: {attestation['why']}."
    check = "`assay enclave verify FILE --bounty DIR` checks the quote"
    return f"Where its judge ran is attested by {attestation['digest']}, in {', '.join(attestation['files'])}: {check}."
