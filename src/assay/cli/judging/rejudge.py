"""`assay rejudge`: a judgement replayed from its transcript, or asked for again to see what changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.judging.models import FallbackOption, ModelOption, PriceOption, UrlOption
from assay.cli.keys import complete
from assay.cli.output import emit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.judge.rubric.asking import Models
    from assay.judge.rubric.replay import JudgementRound, StoredJudgement

__all__ = ["rejudge"]

Json = dict[str, Any]


_Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The bounty's folder.", show_default=False)]
_Participant = Annotated[
    str,
    typer.Argument(
        metavar="PARTICIPANT", help="Its key, name, or the beginning of its key.", autocompletion=complete, show_default=False
    ),
]
_Validator = Annotated[
    str | None, typer.Option(metavar="NAME", help="Whose judgement, where there are several: a key or a name.")
]
_Key = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The key that opens the transcript [transcripts, or sponsor].", show_default=False),
]
_Ask = Annotated[bool, typer.Option("--ask", help="Ask the models again, instead of replaying alone.")]
_Times = Annotated[int, typer.Option(metavar="N", help="How often to ask: to measure how often it is the same.", min=1)]
_Publish = Annotated[
    bool, typer.Option("--publish-quotes", help="Show everybody what the judge quoted from the solution: on the bounty's page.")
]
_AsJson = Annotated[bool, typer.Option("--json", help="As canonical JSON.")]


def rejudge(
    folder: _Folder,
    participant: _Participant,
    validator: _Validator = None,
    key: _Key = None,
    ask: _Ask = False,
    times: _Times = 1,
    model_url: UrlOption = None,
    model: ModelOption = None,
    fallback: FallbackOption = None,
    price: PriceOption = None,
    publish: _Publish = False,
    as_json: _AsJson = False,
) -> None:
    """Replay a judgement from its kept transcript, or ask the models again.

    The replay needs no network. It makes every question again and compares it, reads every answer again, and computes the score.
    The score must be the one in the evidence.

    --ask asks the models again. It shows every answer that changed, with the score before and after; --times measures how often
    the result is the same. Evidence and settlements do not change.

    A judgement of an enclave can be replayed after its release: `assay enclave release`. Then its evidence is in the ledger.

    --publish-quotes writes the judge's quotes into DIR/quotes, if the replay holds. The evidence has the digest of each quote,
    which proves it. Parts of the solution become public.

    Ends with 0, also if answers changed; 1 if the transcript does not fit, or no model answers.

    \b
    Examples:
      assay rejudge my-bounty agent-7
      assay rejudge my-bounty agent-7 --ask --times 10
      assay rejudge my-bounty agent-7 --publish-quotes
    """
    from assay.cli.keys import find, validator_of
    from assay.cli.ledger.keys import asking
    from assay.cli.show import sentence, show
    from assay.judge.rubric import replay
    from assay.judge.rubric.run import RubricOptions, models_of
    from assay.judge.rubric.stored import document_of, publish_quotes, transcript_keys
    from assay.settle.story.telling import plural

    named = None if validator is None else validator_of(folder, validator)
    stored = replay.find_judgement(folder, lambda everybody: find(participant, everybody), named)
    before = replay.replay_stored(folder, stored, *transcript_keys(key, asking()))
    published: Path | None = None
    if publish:
        published = publish_quotes(folder, str(stored.record.attestation), before.judgement.quotes, before.blind)
    rounds: list[JudgementRound] = []
    if ask:
        given = {"model_url": model_url, "model": model, "fallback": fallback, "price": price}
        rounds = _ask_again(stored, before, models_of(stored.bounty, RubricOptions.of(given)), times, quiet=as_json)
    document = _document(stored, before, rounds) | ({} if published is None else {"quotes": str(published)})
    if not emit(document, as_json):
        show(*_report(stored, before, rounds, document_of(folder, str(stored.record.attestation))))
        if published is not None:
            show(sentence(f"{plural(len(before.judgement.quotes), 'quote')} published in {published}."))


def _ask_again(
    stored: StoredJudgement, before: JudgementRound, models: Models, times: int, *, quiet: bool
) -> list[JudgementRound]:
    """Ask the models so many times, with a line for each."""
    import asyncio

    from assay.cli.judging.live import duration
    from assay.cli.output import Working
    from assay.judge.rubric import replay

    def tell(answers: JudgementRound) -> None:
        if not quiet:
            took = answers.judgement.measured
            seconds = "" if took is None else f", {duration(took.milliseconds / 1000)}"
            typer.echo(f"asked  {_bps(answers.bps)}, {len(answers.changes)} changed{seconds}", err=True)

    with Working(f"asking {times} times" if times > 1 else "asking"):
        return asyncio.run(replay.ask_again(stored, before.judgement, models, times, tell))


def _bps(bps: int | None) -> str:
    return "unjudged" if bps is None else f"{bps} BPS"


def _document(stored: StoredJudgement, before: JudgementRound, rounds: Sequence[JudgementRound]) -> Json:
    document: Json = {
        "participant": stored.participant.key,
        "submission": stored.participant.submission,
        "validator": stored.record.validator,
        "judgement": stored.record.attestation,
        "answers": before.judgement.answers,
        "bps": before.bps,
        "asked": [
            {
                "answers": each.judgement.answers,
                "bps": each.bps,
                "model": each.judgement.model,
                "changes": [{"name": row.name, "before": row.before, "after": row.after} for row in each.changes],
                "milliseconds": None if each.judgement.measured is None else each.judgement.measured.milliseconds,
                "cost": None if each.judgement.measured is None else each.judgement.measured.cost,
            }
            for each in rounds
        ],
    }
    if before.flips is not None:
        document["panel"] = before.flips.document()
        for row, each in zip(document["asked"], rounds, strict=True):
            row["panel"] = None if each.flips is None else each.flips.document()
    if rounds:
        document["same_answers"] = sum(not each.changes for each in rounds)
        document["same_bps"] = sum(each.bps == before.bps for each in rounds)
    return document


def _report(
    stored: StoredJudgement, before: JudgementRound, rounds: Sequence[JudgementRound], document: Json
) -> Iterator[RenderableType]:
    from assay.cli.show import Column, grid, note, sentence
    from assay.settle.story.telling import plural

    who, judged = stored.participant.key, f"the judgement by {stored.record.validator}"
    yield sentence(f"{who}: replayed, {judged} comes out as it is in the evidence, {_bps(before.bps)}.")
    yield sentence(_took(document))
    yield from map(sentence, () if before.flips is None else before.flips.sentences())
    if not rounds:
        yield note("No model was asked: --ask asks again.")
        return
    changes: dict[tuple[str, str, str], int] = {}
    for each in rounds:
        for row in each.changes:
            named = row.name, _answer(row.before), _answer(row.after)
            changes[named] = changes.get(named, 0) + 1
    same, equal = sum(not each.changes for each in rounds), sum(each.bps == before.bps for each in rounds)
    yield sentence(f"Asked {plural(len(rounds), 'time')}: {same} with the same answers, {equal} with the same score.")
    if changes:
        yield ""
        yield grid(
            [
                Column("answer", [name for name, _, _ in changes], kind="crop"),
                Column("before", [old for _, old, _ in changes]),
                Column("after", [new for _, _, new in changes]),
                Column("how often", [f"{count} of {len(rounds)}" for count in changes.values()], right=True),
            ]
        )
        yield ""
        flips = [each.flips for each in rounds if each.flips is not None]
        yield from (sentence(f"Asked again: {line}") for line in (flips[-1].sentences() if flips else ()))
        scores = [_bps(fromkey) for fromkey in dict.fromkeys(each.bps for each in rounds)]
        yield sentence(f"Score before: {_bps(before.bps)}; after: {', '.join(scores)}.")
    yield note("Evidence and settlements stay as they are.")


def _took(document: Json) -> str:
    """The answering model, the time it took, and its cost, by the judgement's document."""
    from assay.cli.judging.live import duration
    from assay.exact import text
    from assay.judge.rubric.judgement import why_fallback
    from assay.settle.story.telling import plural

    names = dict.fromkeys(each["answered"] for each in document["exchanges"] if each["answered"])
    measured = document["measured"]
    line = f"Answered by {', '.join(names) or 'nobody'}"
    if measured is not None:
        counts, cost = measured["usage"].values(), measured["cost"]
        line += f": {plural(measured['tries'], 'request')}, {duration(measured['milliseconds'] / 1000)}"
        line += ", tokens unknown" if None in counts else f", {sum(counts)} tokens"
        line += "" if cost is None else f", cost {text(cost, 6)}"
    why = why_fallback(document)
    return f"{line}." + (f" The fallback model judged, because {why}." if why else "")


def _answer(answer: object) -> str:
    return (
        {True: "YES", False: "NO", None: "–"}.get(answer, str(answer))
        if answer is None or isinstance(answer, bool)
        else str(answer)
    )
