"""What the judging commands share: options, numbers for people, and what is a judge's to give from its own environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from assay.errors import BadInput

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "EngineOption",
    "EnvOption",
    "ReuseOption",
    "RuntimeOption",
    "SandboxName",
    "SandboxOption",
    "duration",
    "given",
    "memory",
    "table",
    "text_lines",
]


class SandboxName(StrEnum):
    """Where agents run."""

    bubblewrap = "bubblewrap"
    containers = "containers"


SandboxOption = Annotated[SandboxName, typer.Option("--sandbox", help="Where agents run.")]
EngineOption = Annotated[
    str | None,
    typer.Option("--engine", metavar="URL", help="The containers' engine, as unix:///…; else DOCKER_HOST or the usual place."),
]
RuntimeOption = Annotated[
    str | None, typer.Option("--runtime", metavar="NAME", help="The containers' runtime, such as runsc; else the engine's own.")
]
ReuseOption = Annotated[
    bool,
    typer.Option("--reuse-boxes/--fresh-boxes", help="Let a box have the folder of an earlier one: faster, and less apart."),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME", help="A variable of yours that agents may be given; can be said several times."),
]


def given(names: Sequence[str] | None) -> dict[str, str]:
    """The variables that agents may be given; raises BadInput for one that is not set."""
    found: dict[str, str] = {}
    for name in names or ():
        value = os.environ.get(name)
        if value is None:
            raise BadInput(f"{name[:80]} is not set", field="--env", hint=f"export {name[:80]}=… first")
        found[name] = value
    return found


def duration(seconds: float) -> str:
    """Seconds for people: 0.42 s, 12 s, 3 min 05 s, 2 h 03 min."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def memory(count: int) -> str:
    """Bytes for people; nothing where a sandbox cannot tell."""
    if not count:
        return ""
    return f"{count / (1 << 20):.1f} MiB" if count < 1 << 30 else f"{count / (1 << 30):.1f} GiB"


def text_lines(data: bytes) -> list[str]:
    """What an agent printed, as lines that cannot move the cursor."""
    from assay.cli.errors import printable

    return [printable(line) for line in data.decode("utf-8", "replace").replace("\t", "    ").split("\n")]


def table(rows: Sequence[Mapping[str, str]]) -> Table:
    """Rows of cells by the name of their column: keys are shortened, numbers to the right, the last column is wrapped."""
    from assay.cli.show import Column, grid

    names = list(rows[0])
    kinds: dict[str, Literal["key", "text"]] = {names[-1]: "text", names[0]: "key"}
    columns = []
    for name in names:
        cells = [row[name] for row in rows]
        if all(cell.isdigit() for cell in cells):
            columns.append(Column(name, cells, right=True))
        else:
            columns.append(Column(name, cells, kind=kinds.get(name, "crop")))
    return grid(columns)
