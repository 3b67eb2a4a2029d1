"""The report of a competition: its pages as static files, a folder for any web host or one file for the board alone."""

from __future__ import annotations

import base64
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from pathlib import Path

from assay.errors import BadInput
from assay.serve.links import other_epochs
from assay.serve.pages import assets, pages, verifier_files, whole_board
from assay.serve.season import Season

__all__ = ["write_file", "write_folder"]

MARK = "assay-report"
"""A file that says that a folder is a report, so that a later report may replace it."""
_LINK = re.compile(rb'<a [^>]*href="(?:participant-[^"]*|task-[^"]*|\w+)\.(?:html|json|csv)[^"]*"[^>]*>(.*?)</a>', re.DOTALL)
_NAV = re.compile(rb'<nav aria-label="Pages of this competition">.*?</nav>\n|<p class="get">.*?</p>\n', re.DOTALL)
_OTHERS = re.compile(
    rb'<link rel="(?:preload|alternate)"[^>]*>\n|<script src="assay.js"[^>]*></script>\n|<p><a href="board.json">[^<]*</a></p>\n'
)
"""The parts of a page that name other files, which a report in one file does not have."""
_FONT = re.compile(rb"@font-face\{[^}]*\}")


def write_folder(
    season: Season,
    target: Path,
    progress: Callable[[str], None] = lambda name: None,
    earlier: Callable[[int], Season] | None = None,
) -> int:
    """Write every page and its JSON to a folder; an earlier report there is replaced whole. Returns how many files there are.

    earlier: reads the season at an epoch; if given, each epoch before the one shown gets a folder of its own, `epoch-N`.
    Raises BadInput if something else is there; then nothing is written.
    """
    target = target.resolve()  # `new/../competition` is there as soon as `new` is
    _check_target(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        staging.chmod(0o755)
        count = 0
        mark = (MARK, b"written by `assay report`, which replaces it whole\n")
        for name, content in chain(assets(), verifier_files(), _every(season, earlier), (mark,)):
            place = staging / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            progress(name)
            count += 1
        _replace(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return count - 1


def _every(season: Season, earlier: Callable[[int], Season] | None) -> Iterator[tuple[str, bytes]]:
    """The pages of an epoch, and those of the epochs before it in folders of their own."""
    *before, shown = season.epochs
    if earlier is None or not before:
        yield from pages(season)
        return
    yield from pages(replace(season, others=other_epochs(before, shown, inside=False)))
    for epoch in before:
        others = other_epochs(season.epochs, epoch, inside=True)
        for name, content in pages(replace(earlier(epoch), others=others, root="../")):
            yield f"epoch-{epoch}/{name}", content


def _check_target(target: Path) -> None:
    """Raise BadInput if the target exists, and is neither a report nor an empty folder."""
    if target.exists() and not (target / MARK).is_file() and not (target.is_dir() and not any(target.iterdir())):
        raise BadInput("exists, and is not a report", file=target, hint="name a new folder, or one with an earlier report")


def _replace(staging: Path, target: Path) -> None:
    """Put a finished folder where the target is. Raises BadInput if something else has come there meanwhile."""
    _check_target(target)
    if not target.exists():
        os.replace(staging, target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
    os.replace(target, old / "report")
    os.replace(staging, target)
    shutil.rmtree(old)


def write_file(season: Season, target: Path) -> None:
    """Write the board to one HTML file that needs no other, with every row.

    Style, script and icon are in it, and it has no links to other pages. Its policy allows this script alone, by its digest.
    """
    if target.is_dir():
        raise BadInput("is a folder", file=target, hint="name a file that ends in .html")
    board = whole_board(season)
    files = dict(assets())
    script = files["assay.js"]
    digest = base64.b64encode(sha256(script).digest())
    style = _FONT.sub(b"", files["style.css"])
    encoded = base64.b64encode(style)
    icon = base64.b64encode(files["icon.svg"])
    board = _OTHERS.sub(b"", board)
    board = board.replace(b"</body>", b"<script>" + script + b"</script>\n</body>")
    board = board.replace(b"script-src &#39;self&#39;", b"script-src &#39;sha256-" + digest + b"&#39;")
    board = board.replace(b'href="style.css"', b'href="data:text/css;base64,' + encoded + b'"')
    board = board.replace(b'href="icon.svg"', b'href="data:image/svg+xml;base64,' + icon + b'"')
    board = board.replace(b"style-src &#39;self&#39;", b"style-src data:").replace(b"img-src &#39;self&#39;", b"img-src data:")
    board = _NAV.sub(b"", board).replace(b'<a class="brand" href="index.html">', b'<a class="brand">')
    board = _LINK.sub(rb"<span>\1</span>", board)
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(f".{target.name}.part")
    half.write_bytes(board)
    os.replace(half, target)
