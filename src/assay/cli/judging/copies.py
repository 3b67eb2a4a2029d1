"""`assay copies`: near-copies among the submissions of a competition, with the passages that match. docs/near-copies.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    from assay.judge.copies import Entered, NearCopy, SourceSurvey
    from assay.rules.near_copies import Alike

    Decisions = Mapping[tuple[str, str], Mapping[str, str]]

__all__ = ["copies"]

PASSAGES = 20
"""Passages of a pair that are shown; --json has all."""


def copies(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    participant: Annotated[str | None, typer.Option(metavar="KEY", help="Only this one's, with the passages.")] = None,
    baseline: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="Common code that is left out. May be repeated.")
    ] = None,
    release: Annotated[str | None, typer.Option(metavar="KEY", help="Say that this one's submission is no copy.")] = None,
    confirm: Annotated[str | None, typer.Option(metavar="KEY", help="Say that this one's submission is a copy.")] = None,
    by: Annotated[str, typer.Option(metavar="NAME", help="Who decides it.", show_default=False)] = "",
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; the participant reads it.", show_default=False)] = "",
    as_json: AsJson = False,
) -> None:
    """Show near-copies among submissions with their passages, and decide about them.

    It flags, and never decides: names, comments, white space and the order of functions do not matter to it, so look at the
    passages. Left out are the folders baseline/ and tasks/ of DIR, and what --baseline names. Nothing that was handed in is run.
    With a ledger, each submission is compared with all that others ever handed in earlier; else only current ones are known.

    With [submission] copies = "hold", a near-copy is not judged until --release; --confirm holds a submission for good, also one
    that was not flagged. The last decision counts. Each is one line of copies.jsonl, which only grows.

    \b
    Examples:
      assay copies my-competition
      assay copies my-competition --participant miner-7
      assay copies my-competition --release miner-7 --by alice --reason "same author, told us before"
      assay copies my-competition --confirm miner-7 --by alice --reason "the planner is miner-2's"
    """
    from assay.cli.output import Working
    from assay.cli.show import sentence, show
    from assay.errors import BadInput
    from assay.folder import csvs, registry
    from assay.folder.files import Place
    from assay.judge import copies as near
    from assay.judge import holds
    from assay.judge.entries import counting
    from assay.scheme.load import read

    scheme = read(folder / "scheme.toml")
    file = folder / csvs.PARTICIPANTS.name
    people = registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), scheme)
    if release is not None and confirm is not None:
        raise BadInput("a submission is released or confirmed", field="--confirm", hint="give one of --release and --confirm")
    if (key := release if release is not None else confirm) is not None:
        row = holds.decide(folder, people, key, "confirm" if release is None else "release", by=by, reason=reason)
        if not emit(row, as_json):
            what = f"is released by {by}" if release is not None else f"is confirmed as a copy by {by}"
            show(sentence(f"The submission of {key} {what}: {reason}"))
        return
    with Working("comparing submissions"):
        entries = near.of_ledger(folder, people)
        if entries is not None and scheme.submission is not None and scheme.submission.copies is not None:
            near.compare_new(folder, scheme, entries)  # what a service compares beside its requests
        survey = near.survey(folder, scheme, near.history(counting(people)) if entries is None else entries, baseline or ())
        equal = _equal(folder)
        held = holds.held(folder, scheme, counting(people))
    decided = holds.decisions(folder)
    if emit(lambda: _document(survey, equal, held, decided), as_json):
        return
    show(*_shown(survey, equal, held, decided, participant))


def _equal(folder: Path) -> dict[tuple[str, str], Alike]:
    """Pairs of participants whose outcomes are too alike; none where there is no evidence yet."""
    from assay.errors import CannotSettle
    from assay.rules.near_copies import equal_outcomes
    from assay.serve.season import read

    try:
        season = read(folder)
    except CannotSettle:
        return {}
    outcomes: dict[str, dict[str, bool]] = {}
    for name in season.tasks.names:
        for key, (passed, runs) in season.tasks.counted[name].items():
            if runs:
                outcomes.setdefault(key, {})[name] = 2 * passed > runs
    return {pair: alike for pair, alike in equal_outcomes(outcomes).items() if alike.notable}


def _document(
    survey: SourceSurvey, equal: dict[tuple[str, str], Alike], held: dict[str, str], decided: Decisions
) -> dict[str, object]:
    return {
        "schema": "assay.copies/1",
        "compared": survey.compared,
        "absent": [*survey.absent],
        "too_large": [*survey.too_large],
        "near": [copy.document() | {"held": copy.later.participant in held} for copy in survey.found],
        "equal_outcomes": [
            {"participants": [*pair], "tasks": alike.tasks, "passed": alike.passed, "ways": str(alike.ways), "pairs": alike.pairs}
            for pair, alike in equal.items()
        ],
        "released": [row for row in decided.values() if row["decision"] == "release"],
        "confirmed": [row for row in decided.values() if row["decision"] == "confirm"],
    }


def _shown(
    survey: SourceSurvey, equal: dict[tuple[str, str], Alike], held: dict[str, str], decided: Decisions, wanted: str | None
) -> Iterator[RenderableType]:
    from assay.cli.show import Column, grid, note, sentence
    from assay.settle.story.telling import plural

    def state(copy: NearCopy) -> str:
        decision = decided.get(copy.later.key, {}).get("decision")
        return {"release": "released", "confirm": "confirmed"}.get(
            str(decision), "held" if copy.later.participant in held else ""
        )

    near = [match for match in survey.found if wanted in (None, match.later.participant)]
    yield sentence(f"{plural(survey.compared, 'submission')} compared; {plural(len(near), 'pair')} to look at.")
    if near:
        yield ""
        yield grid(
            [
                Column("participant", [match.later.participant for match in near], kind="key", style="bold"),
                Column("handed in", [_when(match.later) for match in near], spare=1),
                Column("earlier", [match.earlier.participant for match in near], kind="key"),
                Column("handed in", [_when(match.earlier) for match in near], spare=1),
                Column("common", [f"{match.pair.common} of {match.pair.prints}, {match.pair.other_prints}" for match in near]),
                Column("", [state(match) for match in near]),
            ]
        )
        yield note("Common: fingerprints that both have, of those of the participant and of the earlier one.")
    for copy in near if wanted is not None else ():
        yield ""
        yield sentence(f"{copy.later.participant} and {copy.earlier.participant}:")
        for passage in copy.pair.passages[:PASSAGES]:
            here, there = (f"{file}:{a}-{b}" for file, (a, b) in
                           ((passage.file, passage.lines), (passage.other, passage.other_lines)))  # fmt: skip
            yield sentence(f"{here} is {there} of {copy.earlier.participant}", indent=2)
        for mine, theirs in copy.same_files:
            yield sentence(f"{mine} has the bytes of {theirs}", indent=2)
    for (a, b), alike in equal.items():
        if wanted in (None, a, b):
            yield sentence(
                f"{a} and {b} passed the same {alike.passed} of {alike.tasks} tasks: by chance at most once in {alike.ways}; "
                f"{plural(alike.pairs, 'pair was', 'pairs were')} compared."
            )
    for names, why in ((survey.absent, "whose files are not here"), (survey.too_large, "too large to compare")):
        if names:
            yield note(f"Not compared: {', '.join(names[:10])}, {why}.")


def _when(entry: Entered) -> str:
    from assay.serve.draw import when

    return when(entry.at)
