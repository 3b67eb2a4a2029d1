"""`assay init`: a competition to start from, with a small invented sample, so that it can be settled at once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import AsJson, emit
from assay.cli.schemes import presets
from assay.errors import BadInput

__all__ = ["init"]


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is new or empty.", show_default=False)],
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The rules to start from: `assay scheme list` shows them.",
            autocompletion=presets,
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Make a competition from a preset.

    Writes the rules, registries and a small sample of evidence, which can be settled at once. Then put your own in its
    place: participants.csv, validators.csv, tasks.txt, evidence/.

    \b
    Examples:
      assay init --preset term-challenge my-competition
      assay init --preset platform my-subnet
    """
    from assay.cli.samples import files_of
    from assay.scheme.load import parse
    from assay.scheme.load import presets as known

    texts = known()
    if preset not in texts:
        import difflib

        close = difflib.get_close_matches(preset, texts, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"the presets are {', '.join(texts)}"
        raise BadInput(f"there is no preset {preset[:80]!r}", field="--preset", hint=hint)
    files = files_of(preset, texts)
    place(folder, files)
    if as_json:
        emit({"folder": str(folder), "preset": preset, "files": list(files)})
        return

    from assay.cli.show import Column, command, grid, heading, note, show

    ranks = preset != "platform" and parse(texts[preset]).reward.kind == "ranking"
    judges = "runs" if ranks else "validators"
    first = ("emission", folder / "my-subnet.toml") if preset == "platform" else ("settle", folder)
    show(
        heading(f"{folder}, from the preset {preset}"),
        grid([Column("file", [*files]), Column("what it is", [_about(name, ranks=ranks) for name in files], kind="text")]),
        "",
        note(f"Participants, {judges}, tasks and evidence are an invented sample. Put your own in their place."),
        command("Next", "assay", *first),
    )


def _about(name: str, *, ranks: bool = False) -> str:
    """What a file is for; in a ranking, where nobody has a stake, whoever judges is a run."""
    return {
        "my-subnet.toml": "the competitions of the subnet and their shares",
        "scheme.toml": "the rules, each with what it does",
        "bounty.toml": "what the sponsor asks for, the checks, what is paid",
        "problem.md": "the problem, in the sponsor's words",
        "participants.csv": "who takes part, with which submission",
        "validators.csv": "the runs: each tried every task" if ranks else "who judges, with how much stake",
        "tasks.txt": "the task set",
        "issues.toml": "whose labels decide on issues, and when an epoch is",
        "accounts.csv": "where participants link their GitHub accounts",
        "README.md": "how records of evidence are written",
        "sample.jsonl": "the sample: delete it when you have your own",
    }[name.rpartition("/")[2]]


def place(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files (path in the folder → text) into a folder that is new or empty: all of them or none; raises BadInput."""
    target = Path(os.path.abspath(folder))
    try:
        if target.exists() and not target.is_dir():
            raise BadInput("is a file", file=folder, hint="name a folder that is new or empty")
        if target.is_dir() and any(target.iterdir()):
            raise BadInput("is not empty", file=folder, hint="name a folder that is new or empty; nothing is written over")
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            _write(made, files)
            _move(made, target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise BadInput(
            f"cannot be made ({error.strerror})", file=folder, hint="check the permissions and the space left"
        ) from None


def _write(made: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    umask = os.umask(0)
    os.umask(umask)
    made.chmod(0o777 & ~umask)


def _move(made: Path, target: Path) -> None:
    """The folder to its place. One that is there and empty stays the same folder: somebody's shell may be in it."""
    if not target.exists():
        made.rename(target)
        return
    moved: list[Path] = []
    try:
        for path in sorted(made.iterdir()):
            moved.append(path.rename(target / path.name))
    except OSError:
        for path in moved:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise
