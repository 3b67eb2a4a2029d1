"""Chapters of a story on a terminal: numbered titles, sentences, tables below them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.settle.story.telling import Chapter, Table

__all__ = ["rendered"]

INDENT = 3
RIGHT = frozenset({"stake", "weight", "from BPS", "released", "share", "gross", "fee", "paid", "BPS", "with one of those missed"})
"""Columns of numbers."""
WORDS = frozenset({"what it asks", "a NO", "the base", "what it must be", "which", "until"})
"""Columns of sentences."""


def rendered(chapters: Iterable[Chapter]) -> Iterator[RenderableType]:
    """The chapters, one below the other, each after an empty line."""
    from rich.padding import Padding

    from assay.cli.show import heading, sentence

    for number, chapter in enumerate(chapters, start=1):
        yield ""
        yield heading(f"{number}. {chapter.title}")
        for said in chapter.text:
            yield sentence(said, indent=INDENT)
        if chapter.table is not None:
            yield Padding(_table(chapter.table), (0, 0, 0, INDENT), expand=False)


def _table(table: Table) -> RenderableType:
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
            else "whole",
        )
        for at, name in enumerate(table.columns)
    ]
    return grid(columns, width=console().width - INDENT)
