"""Views as pages: one HTML file for each, with its JSON beside it. Nothing in a page is taken for HTML but Assay's own templates.

A page asks for nothing elsewhere, has no inline style and no inline script, and reads the same without JavaScript.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from assay.errors import CannotSettle
from assay.exact import canonical
from assay.serve.board import board, csv_rows, lede, outliers, page_of
from assay.serve.draw import cut, pc, short
from assay.serve.epoch import epoch
from assay.serve.participant import participant
from assay.serve.season import Json, Season
from assay.serve.validators import validators

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["POLICY", "assets", "pages", "render"]

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'"
)
"""The content security policy of every page: nothing from elsewhere, nothing inline."""


def pages(season: Season) -> Iterator[tuple[str, bytes]]:
    """Every page of a season: file name → content, HTML and JSON. Raises CannotSettle without the extra `serve`."""
    common, scheme = _common(season), season.scheme
    yield "index.html", render("board.html", common | _page("board", scheme.name, board=board(season), outliers=outliers(season)))
    yield "board.json", canonical(season.document)
    yield "board.csv", _csv(csv_rows(season))
    for key in season.participants:
        name, person = page_of(season, key), participant(season, key)
        beside = name.replace(".html", ".json")
        title = f"{person['name']} · {scheme.name}"
        yield name, render("participant.html", common | _page("participant", title, p=person, json=beside))
        yield beside, canonical(person["story"])
    judges = "Validators" if scheme.stakes else "Runs"
    yield (
        "validators.html",
        render("validators.html", common | _page("validators", f"{judges} · {scheme.name}", v=validators(season))),
    )
    title = f"Epoch {season.settlement.epoch} · {scheme.name}"
    yield "epoch.html", render("epoch.html", common | _page("epoch", title, e=epoch(season)))
    if season.proof is not None:
        yield "epoch.receipt", canonical(season.proof.receipt)


def _page(page: str, title: str, **view: object) -> Json:
    """What one page prints beside what is common to all."""
    return {"page": page, "title": title, **view}


def assets() -> Iterator[tuple[str, bytes]]:
    """The files that pages name: style, script, icon, fonts with their licences."""
    root = files("assay.serve") / "static"
    yield from _below(root, "")


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.read_bytes()


def render(template: str, context: Json) -> bytes:
    """A page of a template, as UTF-8."""
    return _environment().get_template(template).render(context).encode()


def _common(season: Season) -> Json:
    """What the head and the foot of every page print."""
    scheme, number = season.scheme, season.settlement.epoch
    return {
        "policy": POLICY,
        "description": lede(season),
        "nav": [
            ("index.html", "Board", "board"),
            ("validators.html", "Validators" if scheme.stakes else "Runs", "validators"),
            ("epoch.html", f"Epoch {number}", "epoch"),
        ],
        "comp": {
            "name": scheme.name,
            "version": scheme.scheme.version,
            "epoch": number,
            "digest": season.settlement.digest,
            "lede": lede(season),
            "receipt": season.proof is not None,
            "newest": season.newest,
            "epochs": len(season.history),
        },
    }


def _csv(rows: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise CannotSettle("Jinja2, which draws the pages, is not installed", hint="pip install 'assay[serve]'") from None
    environment = Environment(loader=PackageLoader("assay.serve"), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"cut": cut, "pc": pc, "short": short}
    return environment
