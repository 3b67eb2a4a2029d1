"""Tables, sentences and stories for people. A key is shortened in the middle or shown whole, never wrapped; no cursor moves."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import typer
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from assay.cli.errors import printable

if TYPE_CHECKING:
    from rich.style import StyleType

    from assay.settle.story.telling import Chapter
    from assay.settle.story.telling import Table as StoryTable

__all__ = [
    "TOP",
    "Column",
    "command",
    "console",
    "first",
    "grid",
    "heading",
    "note",
    "rendered",
    "rest",
    "sentence",
    "shorten",
    "show",
    "stages",
]

TOP = 32
"""Rows of a board, unless --top asks for more or fewer."""

PIPED = 200
"""The width if the output goes to a file or another program: it shows whole keys."""
READABLE = 100
"""Sentences are not wider than this."""
GAP = 2
"""Spaces between columns: one of padding, one of the box."""
_UNIT = re.compile(" (?!%)")
"""The places where a line may break: not between a number and its %."""
KEY, CROP, TEXT = 13, 8, 24
"""The least that a column of each kind shrinks to before another column is left out."""


@dataclass(frozen=True)
class Column:
    """A column of text.

    `kind`: a `key` is shortened in the middle, a name is `crop`ped, `text` is wrapped, anything else stays `whole`.
    `spare`: left out where there is no room, the highest first; 0 never is.
    """

    heading: str
    cells: Sequence[str]
    right: bool = False
    kind: Literal["whole", "key", "crop", "text"] = "whole"
    spare: int = 0
    style: StyleType = ""

    @property
    def natural(self) -> int:
        """The width that shows everything."""
        return max(map(cell_len, (self.heading, *self.cells)))

    @property
    def least(self) -> int:
        """The width that it may be shrunk to."""
        return min(self.natural, {"whole": self.natural, "key": KEY, "crop": CROP, "text": TEXT}[self.kind])

    @property
    def taken(self) -> int:
        """The width that it has then: in a text no word is broken."""
        words = (word for cell in self.cells for word in _with_percent(cell).split()) if self.kind == "text" else ()
        return max((self.least, *map(cell_len, words)))


def console() -> Console:
    """The terminal, or what stands in for it; colours only on a terminal."""
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPED
    return Console(width=wide, highlight=False, markup=False, emoji=False, legacy_windows=False)


def show(*parts: RenderableType) -> None:
    """Print the parts, all of them or, if one cannot be rendered, none."""
    terminal = console()
    with terminal.capture() as rendered:
        for part in parts:
            terminal.print(part, crop=False, overflow="ignore", no_wrap=isinstance(part, Table) or None)
    typer.echo("\n".join(line.rstrip() for line in rendered.get().splitlines()))


def heading(text: str) -> Text:
    """A title."""
    return Text(printable(text), style="bold")


def sentence(text: str, indent: int = 0, style: StyleType = "") -> Text:
    """A paragraph, wrapped between words."""
    width = min(console().width, READABLE)
    lines: list[str] = []
    line = ""
    for word in _UNIT.split(printable(text)):
        longer = f"{line} {word}" if line else word
        if line and cell_len(longer) > width - indent:
            lines.append(line)
            longer = word
        line = longer
    return Text("\n".join(" " * indent + row for row in (*lines, line)), style=style, no_wrap=True, overflow="ignore")


def note(text: str) -> Text:
    """A sentence below a table, less loud."""
    return sentence(text, style="dim")


def command(what: str, *words: str | Path) -> Text:
    """The command to type next, to be copied: never wrapped, and on a line of its own if it is long."""
    typed = shlex.join(map(str, words))
    apart = "\n  " if len(what) + 2 + len(typed) > min(console().width, READABLE) else " "
    return Text(f"{printable(what)}:{apart}{printable(typed)}", style="dim", no_wrap=True, overflow="ignore")


def grid(columns: Iterable[Column], *, width: int | None = None, styles: Sequence[StyleType] = ()) -> Table:
    """The columns as a table that fits the width: columns to spare are left out, names cropped, keys shortened, text wrapped."""
    room = console().width if width is None else width
    fitted = _fitted([_clean(column) for column in columns], room)
    widths = [max(cell_len(line) for cell in (column.heading, *column.cells) for line in cell.split("\n")) for column in fitted]
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
        collapse_padding=False,
        width=_needed(widths),  # also where a long word needs more than the room: rich would take it from the other columns
    )
    for column, least in zip(fitted, widths, strict=True):
        wraps = column.kind == "text"
        table.add_column(
            column.heading,
            no_wrap=not wraps,
            overflow="fold" if wraps else "ignore",
            width=least,
            style=column.style,
        )
    for at, row in enumerate(zip(*(column.cells for column in fitted), strict=True)):
        table.add_row(*(Text(cell) for cell in row), style=styles[at] if at < len(styles) else None)
    return table


def first(columns: Iterable[Column], top: int, rows: int) -> list[Column]:
    """The columns without the cells of rows from number `top` up to `rows`; what is below those, such as a sum, stays."""
    return [replace(column, cells=[*column.cells[: min(top, rows)], *column.cells[rows:]]) for column in columns]


def rest(top: int, rows: int) -> list[Text]:
    """A note on a table that was cut to its first rows; nothing if it was not."""
    return [note(f"The first {top} of {rows}. All of them: --top {rows}.")] if rows > top else []


class _Stage(Protocol):
    @property
    def stage(self) -> str: ...
    @property
    def what(self) -> str: ...
    @property
    def done(self) -> bool: ...


def stages(rows: Sequence[_Stage]) -> Table:
    """The stages that were checked, a row each; with a dash, those that were not looked at.

    A digest that does not fit is shortened in the middle; --json has the whole of it.
    """
    done = Column("", ["✓" if row.done else "–" for row in rows])
    stage = Column("stage", [row.stage for row in rows])
    room = max(KEY, console().width - done.natural - stage.natural - 2 * GAP)
    what = [" ".join(_shorter(word, room) for word in printable(row.what).split(" ")) for row in rows]
    return grid([done, stage, Column("what", what, kind="text")])


def _clean(column: Column) -> Column:
    return replace(column, cells=[printable(cell) for cell in column.cells])


def _fitted(columns: list[Column], room: int) -> list[Column]:
    """The columns with their cells cut to the widths that fit."""
    while _needed([column.taken for column in columns]) > room and any(column.spare for column in columns):
        columns.remove(max(columns, key=lambda column: column.spare))
    widths = [column.taken for column in columns]
    if _needed(widths) > room:
        widths = [column.least for column in columns]
    for kind in ("key", "crop", "text"):
        for at, column in enumerate(columns):
            if column.kind == kind:
                widths[at] = min(column.natural, widths[at] + max(0, room - _needed(widths)))
    cut = [_cut(column, width) for column, width in zip(columns, widths, strict=True)]
    return [_to_the_right(column) if column.right else column for column in cut]


def _to_the_right(column: Column) -> Column:
    """Padded on the left; rich does not justify what may not be wrapped."""
    width = column.natural
    return replace(
        column,
        heading=column.heading.rjust(width),
        cells=[" " * (width - cell_len(cell)) + cell for cell in column.cells],
    )


def _needed(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _cut(column: Column, width: int) -> Column:
    match column.kind:
        case "key":
            short = shorten(column.cells, width)
            return replace(column, cells=[short[cell] for cell in column.cells])
        case "crop":
            cut = [cell if cell_len(cell) <= width else set_cell_size(cell, width - 1).rstrip() + "…" for cell in column.cells]
            return replace(column, cells=cut)
        case "text":
            return replace(column, cells=_wrapped(column.cells, width))
    return column


def _wrapped(cells: Sequence[str], width: int) -> list[str]:
    import textwrap

    def fill(cell: str) -> str:
        filled = textwrap.fill(_with_percent(cell), width, break_long_words=False, break_on_hyphens=False)
        return filled.replace("\N{NO-BREAK SPACE}%", " %")

    return [fill(cell) for cell in cells]


def _with_percent(cell: str) -> str:
    """A number and its % stay together."""
    return cell.replace(" %", "\N{NO-BREAK SPACE}%")


def shorten(keys: Iterable[str], width: int) -> dict[str, str]:
    """Key → the key, or its beginning and end around "…", short enough for the width unless two would look the same."""
    whole = list(dict.fromkeys(keys))
    while True:
        labels = {key: _shorter(key, width) for key in whole}
        if len(set(labels.values())) == len(whole):
            return labels
        width += 2


def _shorter(key: str, width: int) -> str:
    if len(key) <= width:
        return key
    tail = (width - 1) // 2
    return f"{key[: width - 1 - tail]}…{key[len(key) - tail :]}"


_INDENT = 3
_RIGHT = frozenset(
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
_SPARE = {"in TAO": 1, "fee": 2, "gross": 3}
"""Columns that are left out if there is no room, the highest first: they repeat a value in other units, or show a step."""
_WORDS = frozenset({"what it asks", "a NO", "the base", "what it must be", "which", "until", "failed at", "NO by", "success at"})
"""Columns of sentences."""


def rendered(chapters: Iterable[Chapter]) -> Iterator[RenderableType]:
    """The chapters, one below the other, each after an empty line."""
    for number, chapter in enumerate(chapters, start=1):
        yield ""
        yield heading(f"{number}. {chapter.title}")
        for paragraph in chapter.text:
            yield sentence(paragraph, indent=_INDENT)
        if chapter.table is not None:
            yield _Indented(_table(chapter.table))


class _Indented:
    """A table moved to the right, whole: rich's own padding would cut what is wider than the terminal, such as a digest."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        width = self.table.width or options.max_width
        indent = max(0, min(_INDENT, options.max_width - width))
        for line in terminal.render_lines(self.table, options.update(width=width), pad=False):
            yield Segment(" " * indent)
            yield from line
            yield Segment.line()


def _table(table: StoryTable) -> Table:
    votes = not {"validator", "run"}.isdisjoint(table.columns)
    columns = [
        Column(
            name,
            [row[at] for row in table.rows],
            right=name in _RIGHT or (name in {"counts", "needed"} and not votes),
            kind="key"
            if name in {"validator", "run"}
            else "text"
            if name in _WORDS or (votes and name in {"counts", "saw"})
            else "crop"
            if name == "task"
            else "whole",
            spare=_SPARE.get(name, 0),
        )
        for at, name in enumerate(table.columns)
    ]
    return grid(columns, width=console().width - _INDENT)
