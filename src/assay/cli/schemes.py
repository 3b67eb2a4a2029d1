"""`assay scheme`: list and print presets, check a scheme, and print the JSON schema of scheme files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.errors import warn
from assay.cli.init import presets
from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from assay.scheme.model import Scheme

__all__ = ["app", "scheme_of"]

app = typer.Typer(
    name="scheme",
    help="List the presets, and show or check the rules of a competition.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the presets that ship with Assay.

    \b
    Example:
      assay scheme list
    """
    from assay.cli.show import Column, grid, show
    from assay.scheme.load import presets as known

    texts = known()
    if emit({"presets": [{"name": name, "what": _first_sentence(text)} for name, text in texts.items()]}, as_json):
        return
    columns = [
        Column("preset", [*texts], style="bold"),
        Column("what it is", [_first_sentence(text) for text in texts.values()], kind="text"),
    ]
    show(grid(columns))


def _first_sentence(text: str) -> str:
    """The comment that a preset opens with."""
    return text.splitlines()[0].lstrip("# ").rstrip()


@app.command()
def show(
    which: Annotated[
        str, typer.Argument(metavar="PRESET|FILE|DIR", help="A preset, a scheme file or a folder.", autocompletion=presets)
    ],
    as_json: Annotated[
        bool,
        typer.Option("--json", help="With every default filled in, as canonical JSON: the text whose digest is the scheme's."),
    ] = False,
) -> None:
    """Print a preset or scheme file; with --json its full meaning.

    \b
    Examples:
      assay scheme show term-challenge
      assay scheme show my-competition --json
    """
    from assay.cli.output import emit, put

    if emit(lambda: scheme_of(which).document(), as_json):
        return
    put(_text(which).encode(), None)


@app.command()
def check(
    which: Annotated[
        str, typer.Argument(metavar="PRESET|FILE|DIR", help="A preset, a scheme file or a folder.", autocompletion=presets)
    ],
    as_json: AsJson = False,
) -> None:
    """Check a scheme file: print its digest, or its first fault.

    \b
    Example:
      assay scheme check my-competition/scheme.toml
    """
    from assay.scheme.load import warnings

    scheme = scheme_of(which)
    remarks = [*warnings(scheme), *_of_ledger(which, scheme)]
    by_chance = _by_chance(which, scheme)
    if as_json:
        named = {"name": scheme.name, "version": scheme.scheme.version, "digest": scheme.digest}
        emit(named | {"score": scheme.score.kind, "reward": scheme.reward.kind, "warnings": remarks, **by_chance})
        return
    warn(remarks)
    typer.echo(f"{scheme.name} {scheme.scheme.version}: {scheme.score.kind} into {scheme.reward.kind}")
    typer.echo(scheme.digest)
    if by_chance:
        from assay.cli.honest import in_a_sentence

        typer.echo(in_a_sentence(by_chance["honest"]))


def _by_chance(which: str, scheme: Scheme) -> dict[str, Any]:
    """The effect of the rule about outliers on honest validators at this scheme's number of trials; nothing if there is none."""
    trials = scheme.kind.trials(scheme.score)
    if trials is None or scheme.consensus.outliers.method == "none" or scheme.score.scores_jointly():
        return {}
    from assay.cli.honest import HonestQuestion, summary

    tasks, validators = _counts(which)
    return {"honest": summary(HonestQuestion(scheme, tasks * trials, validators, 0))}


@app.command()
def honest(
    which: Annotated[
        str, typer.Argument(metavar="PRESET|FILE|DIR", help="A preset, a scheme file or a folder.", autocompletion=presets)
    ],
    tasks: Annotated[int | None, typer.Option(min=1, max=100_000, help="How many tasks; without it, the folder's.")] = None,
    validators: Annotated[int | None, typer.Option(min=3, max=64, help="How many validators; without it, the folder's.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="What decides the draws.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show how often a scheme leaves out honest validators, and how often one that lies.

    \b
    Examples:
      assay scheme honest my-competition
      assay scheme honest term-challenge --tasks 80 --validators 5
    """
    from assay.cli.honest import HonestQuestion, document, tables
    from assay.cli.show import show
    from assay.errors import BadInput

    scheme = scheme_of(which)
    trials = scheme.kind.trials(scheme.score)
    if trials is None:
        hint = 'it is about schemes with [score] kind = "tests"'
        raise BadInput(f"the scores of {scheme.name!r} are no shares of trials", field="score.kind", hint=hint)
    here = _counts(which)
    asked = HonestQuestion(scheme, (tasks or here[0]) * trials, validators or here[1], seed)
    if not emit(lambda: document(asked), as_json):
        show(*tables(asked))


def _counts(which: str) -> tuple[int, int]:
    """The number of tasks and of validators with stake in a scheme's folder; those of the seeds where there is no folder."""
    from assay.cli.honest import TASKS, VALIDATORS
    from assay.errors import AssayError
    from assay.folder import csvs, registry
    from assay.folder.files import Place

    path, counts = _path(which), [TASKS, VALIDATORS]
    if path is None:
        return TASKS, VALIDATORS
    with suppress(AssayError):  # what is wrong with these files is said by those who need them
        counts[0] = len(registry.read_tasks(path.parent / "tasks.txt", 1).ids)
    with suppress(AssayError):
        file = path.parent / "validators.csv"
        rows = csvs.read(file, csvs.VALIDATORS)
        counts[1] = sum(validator.stake > 0 for validator in registry.validators(rows, Place(file), 0))
    return counts[0], max(3, counts[1])


@app.command()
def schema() -> None:
    """Print the JSON schema of scheme files, for editors.

    \b
    Example:
      assay scheme schema > scheme.schema.json
    """
    import json

    from assay.conformance.schemas import schemas, with_kinds_here

    typer.echo(json.dumps(with_kinds_here(schemas()["scheme.schema.json"]), indent=2, ensure_ascii=False))


def _of_ledger(which: str, scheme: Scheme) -> Iterator[str]:
    """Warnings that need the ledger beside a scheme: the open epoch ends late. A ledger that does not answer gives none."""
    from datetime import UTC, datetime

    from assay.errors import AssayError
    from assay.scheme.clock import ends_late

    path = _path(which)
    if path is None or scheme.epoch is None or scheme.epoch.every is None:
        return
    from assay.ledger import config
    from assay.ledger.access import open_store
    from assay.ledger.closing_cost import next_epoch

    with suppress(AssayError):
        if config.exists(path.parent):
            with open_store(config.read(path.parent)) as store, store.reading() as view:
                epoch = next_epoch(view) or 1
            if late := ends_late(scheme.epoch, epoch, datetime.now(UTC)):
                yield late


def _path(which: str) -> Path | None:
    """The file; None if it is a preset."""
    from assay.errors import BadInput
    from assay.scheme.load import presets as known

    path = Path(which)
    if path.is_dir():
        return path / "scheme.toml"
    if path.is_file() or path.suffix == ".toml":
        return path
    if which in known():
        return None
    raise BadInput(f"{which[:80]!r} is neither a file nor a preset", hint=f"the presets are {', '.join(known())}")


def _text(which: str) -> str:
    from assay.scheme.load import presets as known
    from assay.scheme.reading import read_toml

    path = _path(which)
    return known()[which] if path is None else read_toml(path)[1]


def scheme_of(which: str) -> Scheme:
    """The scheme of a preset, a file or a folder; raises BadInput if it is none of them or cannot be read."""
    from assay.errors import BadInput
    from assay.scheme.load import parse, read
    from assay.scheme.load import presets as known

    path = _path(which)
    if path is not None:
        return read(path)
    if which == "platform":
        raise BadInput("the preset 'platform' is a subnet file, not a scheme", hint="its competitions have schemes of their own")
    return parse(known()[which], file=which)
