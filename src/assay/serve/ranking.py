"""The rows of a board that a reader asked for: found, sorted, and a page of them at a time.

The request comes from the query of a URL, so anything may stand in it: a part that cannot be read counts as not asked. A static
file has no query. Its pages are files of their own, in the order of the ranking.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

__all__ = ["AT_ONCE", "Asked", "Query", "board_page", "page_numbers", "select"]

Json = dict[str, Any]
Query = Mapping[str, str]
AT_ONCE = 256
"""Rows of one page of a board."""
WORDS = 200
"""Characters of a search that are looked for."""
SORTS: Mapping[str, tuple[Callable[[Json], Any], bool]] = {
    "rank": (lambda row: row["at"], False),
    "name": (lambda row: (row["name"].casefold(), row["key"]), False),
    "score": (lambda row: row["value"], True),
    "low": (lambda row: -1.0 if row["low"] is None else row["low"], True),
    "kept": (lambda row: row.get("kept_n", 0), True),
    "share": (lambda row: row.get("share_n", 0), True),
    "weight": (lambda row: row.get("u16", 0), True),
    "paid": (lambda row: int(row.get("net", 0)), True),
    "runs": (lambda row: row["runs"], True),
}
"""Column → the value that it is sorted by, and whether its largest comes first."""


@dataclass(frozen=True)
class Asked:
    """A reader's request to a board: search, order, and the part to show."""

    find: str = ""
    sort: str = "rank"
    down: bool = False
    start: int = 1
    """A row on the page, counted from 1 in what was found and sorted."""
    served: bool = False
    """A service answers: links carry what is asked. Otherwise the board is a static file."""
    whole: bool = False
    """Every row stands on one page."""

    @classmethod
    def of(cls, query: Query | None, page: int = 1) -> Asked:
        """Return what a query asks; without a query, a page of a static board."""
        first = 1 + AT_ONCE * (page - 1)
        if query is None:
            return cls(start=first)
        sort = query.get("sort", "rank")
        sort = sort if sort in SORTS else "rank"
        down = {"asc": False, "desc": True}.get(query.get("order", ""), SORTS[sort][1])
        start = query.get("from", "")
        start_at = int(start) if re.fullmatch("[0-9]{1,9}", start) else first
        return cls(" ".join(query.get("find", "").split())[:WORDS], sort, down, max(1, start_at), served=True)

    @property
    def as_ranked(self) -> bool:
        """Whether neighbours on the page are neighbours in the ranking."""
        return self.sort == "rank" and not self.down and not self.find

    def link(self, **changes: str) -> str:
        """The query that asks for the same with changes: "?find=at&sort=score"."""
        asked = {"find": self.find, "sort": self.sort if self.sort != "rank" else "", "order": "", "from": ""}
        if self.down != SORTS[self.sort][1]:
            asked["order"] = "desc" if self.down else "asc"
        asked |= changes
        words = {name: value for name, value in asked.items() if value}
        return f"?{urlencode(words)}" if words else "index.html"

    def heads(self) -> dict[str, Json]:
        """Column → the link that sorts by it (empty in a static board), and how the board is sorted by it now."""
        heads: dict[str, Json] = {}
        for name, (_, largest_first) in SORTS.items():
            current = name == self.sort
            down = not self.down if current else largest_first
            order = "" if down == largest_first else "desc" if down else "asc"
            href = self.link(sort="" if name == "rank" else name, order=order) if self.served else ""
            heads[name] = {"href": href, "sort": ("descending" if self.down else "ascending") if current else ""}
        return heads


def board_page(number: int) -> str:
    """The file name of a page of a static board."""
    return "index.html" if number == 1 else f"board-{number}.html"


def page_numbers(rows: int) -> range:
    """The pages of a static board of so many rows."""
    return range(1, 1 + max(1, -(-rows // AT_ONCE)))


def matches(row: Json, words: str) -> bool:
    """Whether a search finds a row: by a part of its name or key, or by its uid."""
    return words.lower() in row["words"]


def select(rows: Sequence[Json], asked: Asked) -> tuple[list[Json], Json]:
    """The rows of the page that was asked for, and its pager: what it shows of how many, and the links to other pages."""
    matching = [row for row in rows if matches(row, asked.find)] if asked.find else [*rows]
    if asked.sort != "rank" or asked.down:
        matching.sort(key=SORTS[asked.sort][0], reverse=asked.down)
    at_once = max(1, len(matching)) if asked.whole else AT_ONCE
    first = 1 + (min(asked.start, max(1, len(matching))) - 1) // at_once * at_once
    shown = matching[first - 1 : first - 1 + at_once]
    pages = []
    for number in page_numbers(len(matching)) if not asked.whole else (1,):
        begin = 1 + AT_ONCE * (number - 1)
        href = asked.link(**{"from": str(begin) if number > 1 else ""}) if asked.served else board_page(number)
        pages.append({"number": number, "href": href, "now": begin <= first < begin + at_once})
    now = next(at for at, page in enumerate(pages) if page["now"])
    return shown, {
        "first": first if shown else 0,
        "last": first - 1 + len(shown),
        "found": len(matching),
        "whole": len(shown) == len(rows),
        "pages": pages if len(pages) > 1 else [],
        "before": pages[now - 1]["href"] if now else "",
        "after": pages[now + 1]["href"] if now + 1 < len(pages) else "",
    }
