"""`assay explain`: how a participant's numbers came about, step by step, or why it has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.keys import complete

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.competition import Competition
    from assay.records import Evidence
    from assay.settle import Settlement
    from assay.settle.story import Explanation

    Shown = tuple[Settlement, str, Callable[[str], list[Evidence] | None]]
    """A settlement, a remark beside its story, and a function that gives single records if it was computed from sums."""

__all__ = ["explain"]


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

    --json has the same as canonical JSON; `margins` are the sentences about how firmly the verdicts hold, where they are known.

    \b
    Examples:
      assay explain my-competition miner-a
      assay explain my-competition miner-a --epoch 12 --json
      assay explain epoch-12 miner-a --key log.vkey
    """
    from assay.cli.board import token_of
    from assay.cli.keys import find
    from assay.cli.output import emit
    from assay.cli.show import note, sentence, show
    from assay.settle.inputs import Scored

    exported = _is_bundle(folder)
    settlement, remark, records = _settlement(folder, epoch, previous, key, exported=exported, as_json=as_json)
    whom = find(participant, settlement.inputs.participants)
    known = records(whom) if isinstance(settlement.inputs.evidence, Scored) else None
    story = settlement.explain(whom, known, token="" if exported else token_of(folder))
    about = {} if exported else settlement.inputs.scheme.kind.about(settlement, folder, whom)
    firm = _firm(folder, settlement, whom, "" if as_json else f"It takes some time to compute: assay margin {folder}")
    copied = {} if exported else _copied(folder, settlement, whom)
    if emit(story.document() | about | copied | ({"margins": firm} if firm else {}), as_json):
        return

    names = (entry.name for entry in settlement.inputs.participants if entry.key == whom and entry.name != whom)
    show(*_rendered(story, next(names, ""), firm))
    if stands := copied.get("copies"):
        show(sentence(f"Near-copies, {stands['state']}: {stands['why']} {stands['todo']}".rstrip()))
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
    """The settlement of a competition's folder; the remark says if this epoch or a later one is open."""
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
    if epoch is not None and competition.has_ledger and _is_open(competition, epoch):
        remark = f"Epoch {epoch} is not settled: this is how it stands, and it may change."

    def records(participant: str) -> list[Evidence] | None:
        if not competition.has_ledger:
            return _rows_about(folder, settlement, participant)
        from assay.ledger.settling import records_about

        with competition.ledger as ledger:
            return records_about(ledger, settlement, participant)

    return settlement, remark, records


def _is_open(competition: Competition, epoch: int) -> bool:
    """Whether the ledger has no receipt of this epoch yet."""
    with competition.ledger as ledger, ledger.counted() as view:
        last = view.settled_epoch()
    return last is None or epoch > last


def _rows_about(folder: Path, settlement: Settlement, participant: str) -> list[Evidence]:
    """The records about a participant, or its submission, in a folder's Parquet files."""
    scheme, frame = settlement.inputs.scheme, settlement.frame
    submission = frame.submissions[frame.column[participant]] if scheme.kind.record.shared_key else ""
    wanted = {"submission": [submission]} if submission else {"participant": [participant]}
    paths = sorted((folder / "evidence").glob("*.parquet"))
    records = scheme.kind.parquet.records(paths, scheme, wanted)
    return [record for record in records if record.epoch <= settlement.epoch]


def _firm(folder: Path, settlement: Settlement, key: str, otherwise: str) -> list[str]:
    """Sentences about how firmly the verdicts hold, and about the range of this participant's score if trials are missing.

    otherwise: what is said if that is not known.
    """
    from assay.serve import margins

    if not margins.has_margins(settlement):
        return []
    known = margins.of_settlement(folder, settlement)
    sentences = [*margins.sentences(known, settlement, otherwise)]
    for row in (known or {"scores": ()})["scores"]:
        if row["participant"] == key:
            many = f"{row['missing']} of its trials {'is' if row['missing'] == 1 else 'are'} missing"
            sentences.append(f"{many}. Whatever the outcome, its score is {margins.shown_range(row)}.")
    return sentences


def _copied(folder: Path, settlement: Settlement, key: str) -> dict[str, Any]:
    """The near-copies that a service found, and the decision about them, as `copies`; empty where there are none."""
    from assay.judge.holds import standings

    (submission,) = (participant.submission for participant in settlement.inputs.participants if participant.key == key)
    stands = standings(folder, settlement.inputs.scheme, [(key, submission)]).get((key, submission))
    return {} if stands is None or stands.state == "clear" else {"copies": stands.document()}


def _show_beside(folder: Path, settlement: Settlement, key: str, about: dict[str, Any]) -> None:
    """Show what the folder has beside the numbers: judgements by the fallback model, attestation, trials."""
    from assay.cli.show import command, sentence, show

    kind = settlement.inputs.scheme.kind
    for text in kind.sentences(about):
        show(sentence(text))
    if further := kind.look(folder, key):
        show(command(further[0], *further[1]))


def _rendered(story: Explanation, name: str, firm: Sequence[str]) -> Iterator[RenderableType]:
    from assay.cli.show import heading, note, rendered, sentence

    yield heading(f"{story.scheme} {story.version} · epoch {story.epoch}" + (f" · {name}" if name else ""))
    yield sentence(story.summary)
    yield from rendered(story.chapters)
    if firm:
        yield ""
        yield heading("How firmly this holds")
        yield from (sentence(text, indent=3) for text in firm)
    yield ""
    yield note(f"Digest {story.settlement}")
