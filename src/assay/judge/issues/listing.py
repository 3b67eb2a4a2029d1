"""Lists over several pages, whole or not at all.

Page after page is read while others write: an issue that is deleted moves all after it one place to the front, and one of them
from a page that is still to be read to one that was read already. So a list of several pages is read until two readings in a
row agree; what has not changed costs nothing (304). That nothing is there twice is asked of each reading.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from pydantic import TypeAdapter

from assay.judge.issues.answers import Unread, taken
from assay.judge.issues.client import JSON, GitHub

__all__ = ["PAGES", "READINGS", "listed"]

PER_PAGE = 100
PAGES = 1000
"""Pages of one list."""
READINGS = 5
"""How often a list is read until two readings agree."""

T = TypeVar("T")


def listed(
    github: GitHub,
    path: str,
    adapter: TypeAdapter[list[T]],
    key: Callable[[T], Hashable],
    params: Mapping[str, str] | None = None,
    accept: str = JSON,
    follow: bool = True,
) -> list[T]:
    """All that a list has, in its order; key: what two entries never share. Raises as `GitHub.get` does, and Unread."""
    before: list[T] | None = None
    for _ in range(READINGS):
        found, pages = _reading(github, path, adapter, {**(params or {}), "per_page": str(PER_PAGE)}, accept, follow)
        once = len({key(one) for one in found}) == len(found)
        if once and (pages == 1 or found == before):
            return found
        before = found if once else None
    raise Unread(f"{path}: the list changes while it is read")


def _reading(
    github: GitHub, path: str, adapter: TypeAdapter[list[T]], params: Mapping[str, str], accept: str, follow: bool
) -> tuple[list[T], int]:
    found: list[T] = []
    address: str | None = path
    pages = 0
    while address is not None:
        if pages == PAGES:
            raise Unread(f"{path}: the list has more than {PAGES} pages")
        said = params if pages == 0 else None
        got = github.get(address, said, accept=accept, follow=follow)
        page = taken(adapter, got.body, path)
        if got.kept and got.next is None and len(page) >= PER_PAGE:  # when it was kept, there may have been no next page yet
            got = github.get(address, said, accept=accept, fresh=True, follow=follow)
            page = taken(adapter, got.body, path)
        found += page
        address, pages = got.next, pages + 1
    return found, pages
