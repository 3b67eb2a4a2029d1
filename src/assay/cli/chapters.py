"""A story's chapters on a terminal: numbered titles, sentences, and tables below them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table as Grid

    from assay.settle.story.telling import Chapter, Table

__all__ = ["rendered"]

INDENT = 3
RIGHT = frozenset(
    {
        "stake",
        "weight",
        "from BPS",
        "released",
        "share",
        "gross",
        "fee",
        "paid",
        "wei",
        "smallest units",
        "in TAO",
        "in ether",
        "BPS",
        "with one of those missed",
    }
)
"""Columns of numbers."""
SPARE = {"in TAO": 1, "fee": 2, "gross": 3}
"""Columns that are left out if there is no room, the highest first: they repeat a value in other units, or show a step."""
WORDS = frozenset({"what it asks", "a NO", "the base", "what it must be", "which", "until", "failed at", "NO by", "success at"})
"""Columns of sentences."""


def rendered(chapters: Iterable[Chapter]) -> Iterator[RenderableType]:
    """The chapters, one below the other, each after an empty line."""
    from assay.cli.show import heading, sentence

    for number, chapter in enumerate(chapters, start=1):
        yield ""
        yield heading(f"{number}. {chapter.title}")
        for said in chapter.text:
            yield sentence(said, indent=INDENT)
        if chapter.table is not None:
            yield _Indented(_table(chapter.table))


class _Indented:
    """A table moved to the right, whole: rich's own padding would cut what is wider than the terminal, such as a digest."""

    def __init__(self, table: Grid) -> None:
        self.table = table

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        width = self.table.width or options.max_width
        indent = max(0, min(INDENT, options.max_width - width))
        for line in terminal.render_lines(self.table, options.update(width=width), pad=False):
            yield Segment(" " * indent)
            yield from line
            yield Segment.line()


def _table(table: Table) -> Grid:
    from assay.cli.show import Column, console, grid

    votes = not {"validator", "run"}.isdisjoint(table.columns)
    columns = [
        Column(
            name,
            [row[at] for row in table.rows],
            right=name in RIGHT or (name in {"counts", "needed"} and not votes),
            kind="key"
            if name in {"validator", "run"}
            else "text"
            if name in WORDS or (votes and name in {"counts", "saw"})
            else "crop"
            if name == "task"
            else "whole",
            spare=SPARE.get(name, 0),
        )
        for at, name in enumerate(table.columns)
    ]
    return grid(columns, width=console().width - INDENT)
