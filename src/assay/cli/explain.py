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
    from assay.settle.story.judgements import PanelFlips

    Shown = tuple[Settlement, str, Callable[[str], list[Evidence] | None]]
    """A settlement, a remark beside its story, and a function that gives single records if it was computed from sums."""

__all__ = ["explain", "judging", "judging_in_words"]


Participant = Annotated[
    str,
    typer.Argument(
        metavar="PARTICIPANT",
        help="Its key, the short form on the board, its name, or a beginning that is unique.",
        autocompletion=complete,
        show_default=False,
    ),
]
Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="The competition's folder, or what `assay export epoch` wrote.", show_default=False),
]
_EPOCH = "The epoch; otherwise the highest that has evidence. With a ledger: the last one settled."
Epoch = Annotated[int | None, typer.Option(metavar="N", help=_EPOCH, min=0)]
Previous = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The settlement (JSON) of an earlier epoch. Decay continues from it.")
]
_KEY = "For an exported epoch: the log's public key, or a file that has it: ledger.toml."
Key = Annotated[str | None, typer.Option(metavar="KEY", help=_KEY)]
Json = Annotated[bool, typer.Option("--json", help="The story and its numbers as canonical JSON.")]


def explain(
    folder: Folder,
    participant: Participant,
    epoch: Epoch = None,
    previous: Previous = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Explain each number of one participant.

    Shows in this order: which validators judged the submission and what they saw, which tasks or checks failed, which scores
    were left out and how far off they were, the quorum, the agreed score, the share that the strategy gave, the part that the
    cap moved, when decay began or would begin, the weight or payout, and the score that would take the next place. If there is
    no agreed score, it shows the reason, what is missing, and what to do. For a bounty it also shows which judgements the
    fallback model made, and the attestation of the machine on which the judge ran.

    If DIR is an exported epoch, it is verified first. If anything in it is wrong, nothing is explained.

    \b
    Examples:
      assay explain my-competition miner-a
      assay explain my-competition miner-a --epoch 12 --json
      assay explain epoch-12 miner-a --key log.vkey
    """
    from assay.cli.board import token_of
    from assay.cli.keys import find
    from assay.cli.output import emit
    from assay.cli.show import note, show
    from assay.settle.inputs import Scored

    exported = _is_bundle(folder)
    settlement, remark, records = _settlement(folder, epoch, previous, key, exported=exported, as_json=as_json)
    whom = find(participant, settlement.inputs.participants)
    known = records(whom) if isinstance(settlement.inputs.evidence, Scored) else None
    story = settlement.explain(whom, known, token="" if exported else token_of(folder))
    about = {} if exported else settlement.inputs.scheme.kind.about(settlement, folder, whom)
    if emit(story.document() | about, as_json):
        return

    names = (entry.name for entry in settlement.inputs.participants if entry.key == whom and entry.name != whom)
    show(*_rendered(story, next(names, "")))
    if not exported:
        _show_beside(folder, settlement, whom, about)
    if remark:
        show(note(remark))


def _settlement(
    folder: Path, epoch: int | None, previous: Path | None, key: str | None, *, exported: bool, as_json: bool
) -> Shown:
    """The settlement to explain; with --json a refusal is printed as JSON too."""
    from assay.cli.errors import refuse
    from assay.errors import Refused

    try:
        return (_verified if exported else _settled)(folder, epoch, previous, key)
    except Refused as refused:
        refuse(refused, as_json=as_json)


def _is_bundle(folder: Path) -> bool:
    """Whether `assay export` wrote the folder; otherwise it is a competition's."""
    from assay.ledger.bundle import INPUTS
    from assay.ledger.verify.subnet_bundle import is_joint

    if folder.is_dir() and not (folder / "scheme.toml").exists() and is_joint(folder):
        from assay.errors import BadInput

        raise BadInput("is of a subnet", file=folder, hint="explain one of its competitions: the folders in competitions/")
    return (folder / INPUTS).exists() and not (folder / "scheme.toml").exists()


def _verified(folder: Path, epoch: int | None, previous: Path | None, key: str | None) -> Shown:
    """The settlement of an exported epoch, after everything in it was verified. Raises Refused."""
    from assay.cli.ledger.verify import log_key
    from assay.cli.output import Working
    from assay.errors import BadInput
    from assay.ledger.verify import verify
    from assay.ledger.verify.recompute import records_about

    with Working(f"verifying {folder}"):
        verified = verify(folder, key=None if key is None else log_key(key))
    assert verified.settlement is not None  # that of a bundle is always computed again
    settlement = verified.settlement
    if previous is not None:
        raise BadInput("an exported epoch includes the settlement before it", field="--previous", hint="leave it out")
    if epoch not in (None, settlement.epoch):
        raise BadInput(f"is of epoch {settlement.epoch}", file=folder, field="--epoch", hint="leave it out, or export that epoch")
    whose = "" if key is not None else " The log's key was not checked: give its public key with --key."
    remark = f"Verified first: receipt, log, evidence, signatures, settlement.{whose}"
    return settlement, remark, lambda participant: records_about(folder, verified, participant)


def _settled(folder: Path, epoch: int | None, previous: Path | None, key: str | None) -> Shown:
    """The settlement of a competition's folder; the remark says if a later epoch is open."""
    from assay.cli.output import Working
    from assay.competition import open_competition
    from assay.errors import BadInput

    if key is not None:
        raise BadInput("is only for an exported epoch", field="--key", hint="leave it out")
    competition = open_competition(folder)
    with Working(f"settling {folder}"):
        settlement = competition.settle(epoch, previous=previous)
    newest = competition.newest if epoch is None else None
    open_ = newest is not None and newest > settlement.epoch
    remark = f"Epoch {newest} has evidence and is not settled: --epoch {newest} shows how it stands." if open_ else ""

    def records(participant: str) -> list[Evidence] | None:
        if not competition.has_ledger:
            return _rows_about(folder, settlement, participant)
        from assay.ledger.settling import records_about

        with competition.ledger as ledger:
            return records_about(ledger, settlement, participant)

    return settlement, remark, records


def _rows_about(folder: Path, settlement: Settlement, participant: str) -> list[Evidence]:
    """The records about a participant, or its submission, in a folder's Parquet files."""
    scheme, frame = settlement.inputs.scheme, settlement.frame
    submission = frame.submissions[frame.column[participant]] if scheme.kind.record.shared_key else ""
    wanted = {"submission": [submission]} if submission else {"participant": [participant]}
    paths = sorted((folder / "evidence").glob("*.parquet"))
    found = scheme.kind.parquet.records(paths, scheme, wanted)
    return [record for record in found if record.epoch <= settlement.epoch]


def _show_beside(folder: Path, settlement: Settlement, key: str, about: dict[str, Any]) -> None:
    """Show what the folder has beside the numbers: judgements by the fallback model, attestation, trials."""
    from assay.cli.show import command, sentence, show

    kind = settlement.inputs.scheme.kind
    for text in kind.told(about):
        show(sentence(text))
    if further := kind.look(folder, key):
        show(command(further[0], *further[1]))


def _rendered(story: Explanation, name: str) -> Iterator[RenderableType]:
    from assay.cli.show import heading, note, rendered, sentence

    yield heading(f"{story.scheme} {story.version} · epoch {story.epoch}" + (f" · {name}" if name else ""))
    yield sentence(story.summary)
    yield from rendered(story.chapters)
    yield ""
    yield note(f"Digest {story.settlement}")


def judging(folder: Path, settlement: Settlement, key: str) -> dict[str, Any]:
    """For a rubric: which judgements the fallback model made, and what attests the place where the judge ran."""
    from assay.settle.inputs import Scored

    if isinstance(settlement.inputs.evidence, Scored):
        return {}
    from assay.judge.rubric.stored import by_fallback

    participants = [participant for participant in settlement.inputs.participants if participant.key == key]
    fallback = [
        {"validator": judgement.validator, "model": judgement.model, "why": judgement.why}
        for judgement in by_fallback(folder, participants, settlement.inputs.evidence)
    ]
    records = _counted(settlement, settlement.inputs.evidence, key)
    flips = _flips(settlement, settlement.inputs.evidence, key)
    panels = {} if flips is None else {"panels": flips.document() | {"sentences": flips.sentences()}}
    return {"fallback": fallback, "attestation": _attestation(folder, records)} | panels


def _flips(settlement: Settlement, evidence: Iterable[object], key: str) -> PanelFlips | None:
    """The flip rates of a participant's panels whose judgement does not count; the story has the others."""
    from assay.records import Rubric
    from assay.settle.story.judgements import flips_of

    (row,) = (row for row in settlement.document["agreed"] if row["participant"] == key)
    whose = {vote["validator"] for vote in row["not_counted"]}
    first: dict[str, Rubric] = {}
    for record in evidence:
        if not isinstance(record, Rubric) or record.validator not in whose:
            continue
        if record.submission == row["submission"] and (record.submission or record.participant == key):
            first.setdefault(record.validator, record)
    return flips_of(first.values(), settlement.inputs.scheme.score)


def _counted(settlement: Settlement, evidence: Iterable[object], key: str) -> list[Rubric]:
    """The records that a participant's agreed score rests on: of each validator that counts, the first that is not too old."""
    from assay.records import Rubric

    (row,) = (row for row in settlement.document["agreed"] if row["participant"] == key)
    validators = {vote["validator"] for vote in row["validators"] if not vote["excluded"]}
    age = settlement.inputs.scheme.consensus.max_age_epochs
    counted: dict[str, Rubric] = {}
    for record in evidence:
        if not isinstance(record, Rubric) or record.validator not in validators:
            continue
        old = age is not None and record.epoch < settlement.inputs.epoch - age
        if not old and record.submission == row["submission"] and (record.submission or record.participant == key):
            counted.setdefault(record.validator, record)
    return list(counted.values())


def _attestation(folder: Path, records: list[Rubric]) -> dict[str, Any]:
    """The attestation of the machine that judged a participant: the digest of a document with the quote; or why there is none."""
    from assay.judge.rubric.stored import JUDGEMENTS
    from assay.scheme.bounty import read_bounty

    nothing: dict[str, Any] = {"digest": None, "files": []}
    bounty = read_bounty(folder) if (folder / "bounty.toml").exists() else None
    if bounty is None or bounty.enclave is None:
        return nothing | {"why": "there is no enclave; the chain gets 0 instead of a digest"}
    from assay.enclave.proofs import find_proof
    from assay.errors import BadInput

    try:
        proof = find_proof(bounty, records)
    except BadInput as error:
        return nothing | {"why": str(error)}
    if proof is None:
        return nothing | {"why": "it was not judged"}
    return {"digest": proof.digest, "files": [f"{JUDGEMENTS}/{file.name}" for file in proof.files], "why": None}


def judging_in_words(about: dict[str, Any]) -> Iterator[str]:
    """The facts that `judging` gives, in sentences."""
    for judgement in about.get("fallback", ()):
        validator, model, why = (judgement[name] for name in ("validator", "model", "why"))
        yield f"The fallback model {model} made the judgement by {validator}, because {why}."
    yield from about.get("panels", {}).get("sentences", ())
    if about:
        yield _in_words(about["attestation"])


def _in_words(attestation: dict[str, Any]) -> str:
    if attestation["digest"] is None:
        return f"Nothing attests where its judge ran: {attestation['why']}."
    check = "`assay enclave verify FILE --bounty DIR` checks the quote"
    return f"Where its judge ran is attested by {attestation['digest']}, in {', '.join(attestation['files'])}: {check}."
