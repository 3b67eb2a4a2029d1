"""Views as pages: one HTML file for each, with its JSON beside it. Nothing in a page is taken for HTML but Assay's own templates.

A page asks for nothing elsewhere, has no inline style and no inline script, and reads the same without JavaScript.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from assay.errors import BadInput, CannotSettle
from assay.exact import canonical
from assay.scheme.fields import instant_text
from assay.scheme.load import read as read_scheme
from assay.scheme.model import Scheme
from assay.serve.board import board, csv_rows, lede, outliers
from assay.serve.bounty import bounty, bounty_document, has_bounty
from assay.serve.draw import cut, pc, short, when
from assay.serve.epoch import epoch, epoch_document, steps, table_csv, table_names
from assay.serve.links import api_address, beside, participant_page, task_page, verifier_link
from assay.serve.live import LiveState, closes_at, live
from assay.serve.participant import participant
from assay.serve.ranking import Asked, Query, board_page, page_numbers
from assay.serve.season import Json, Season
from assay.serve.start import start, start_document
from assay.serve.task import task, task_document, tasks
from assay.serve.timeline import history_rows
from assay.serve.validators import validators, validators_document

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = [
    "POLICY",
    "VERIFIER_POLICY",
    "Query",
    "assets",
    "live_page",
    "logs_page",
    "names",
    "page",
    "pages",
    "participant_page",
    "render",
    "start_page",
    "task_page",
    "verifier_files",
    "whole_board",
]

_BOARD = re.compile(r"board-([1-9][0-9]{0,5})\.html")
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'"
)
"""The content security policy of every page: nothing from elsewhere, nothing inline."""
VERIFIER_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'"
)
"""The Content-Security-Policy of the verifier at a service: it also computes digests in WebAssembly, in a worker."""


def names(season: Season) -> Iterator[str]:
    """The name of every file of a season. Participants' names depend on their keys alone."""
    yield from _single(season)
    yield from (board_page(number) for number in page_numbers(len(season.document["ranking"])) if number > 1)
    for name in (*season.by_page, *season.tasks.pages):
        yield name
        yield beside(name, "json")
    if len(season.epochs) > 1:
        yield from (beside(name, "csv") for name in season.by_page)


def page(season: Season, name: str, query: Query | None = None) -> bytes:
    """One file of a season, drawn without the others; raises KeyError for a name that `names` does not have.

    query: what a reader asks of a service, as the URL has it; None for a static file. Raises CannotSettle without the extra
    `serve`.
    """
    single = _single(season)
    if name in single:
        return single[name](season, query)
    if (numbered := _BOARD.fullmatch(name)) and int(numbered[1]) in page_numbers(len(season.document["ranking"]))[1:]:
        return _board(season, query, int(numbered[1]))
    stem, _, ending = name.rpartition(".")
    key, of = season.by_page.get(f"{stem}.html"), season.tasks.pages.get(f"{stem}.html")
    if key is not None and ending == "html":
        return _participant(season, key)
    if key is not None and ending == "json":
        return canonical(season.story(key).document())
    if key is not None and ending == "csv" and len(season.epochs) > 1:
        return _csv(history_rows(season, key))
    if of is not None and ending == "html":
        return _task(season, of)
    if of is not None and ending == "json":
        return canonical(task_document(season, of))
    raise KeyError(name)


def pages(season: Season) -> Iterator[tuple[str, bytes]]:
    """Every file of a season: name → content. Raises CannotSettle without the extra `serve`."""
    for name in names(season):
        yield name, page(season, name)


def _single(season: Season) -> dict[str, Callable[[Season, Query | None], bytes]]:
    """The files that a season has once: name → the function that draws it."""
    files: dict[str, Callable[[Season, Query | None], bytes]] = {
        "index.html": _board,
        "board.json": lambda season, query: canonical(season.document),
        "board.csv": lambda season, query: _csv(csv_rows(season)),
        "validators.html": _validators,
        "validators.json": lambda season, query: canonical(validators_document(season)),
        "epoch.html": _epoch,
        "epoch.json": lambda season, query: canonical(epoch_document(season)),
        "start.html": _start,
        "start.json": lambda season, query: canonical(start_document(_doors(season))),
    }
    for table in table_names(season.document):
        files[f"{table}.csv"] = lambda season, query, table=table: table_csv(season.document, table)  # type: ignore[misc]
    if has_bounty(season):
        files["bounty.html"] = _bounty
        files["bounty.json"] = lambda season, query: canonical(bounty_document(season))
    if season.tasks.names:
        files["tasks.html"] = _tasks
        files["tasks.json"] = lambda season, query: canonical([task_document(season, name) for name in season.tasks.names])
    if (proof := season.proof) is not None:
        files["epoch.receipt"] = lambda season, query: canonical(proof.receipt)
    return files


def _board(season: Season, query: Query | None, number: int = 1) -> bytes:
    return _board_of(season, Asked.of(query, number))


def whole_board(season: Season) -> bytes:
    """The board with every row on one page, for a file that has no other page."""
    return _board_of(season, Asked(whole=True))


def _board_of(season: Season, asked: Asked) -> bytes:
    view = _page(season, "board", season.scheme.name, board=board(season, asked), outliers=outliers(season))
    return render("board.html", view)


def _participant(season: Season, key: str) -> bytes:
    person, name = participant(season, key), participant_page(key)
    title = f"{person['name']} · {season.scheme.name}"
    files = {"json": beside(name, "json"), "csv": beside(name, "csv"), "proof": None, "check": None}
    if season.address is not None and season.proof is not None:
        what = f"participants/{quote(key, safe='')}/proof"
        files["proof"] = api_address(season.address, season.settlement.epoch, what)
        files["check"] = verifier_link(season.root, season.address, season.settlement.epoch, what)
    return render("participant.html", _page(season, "participant", title, p=person, **files))


def _bounty(season: Season, query: Query | None) -> bytes:
    return render("bounty.html", _page(season, "bounty", f"Bounty · {season.scheme.name}", b=bounty(season)))


def _tasks(season: Season, query: Query | None) -> bytes:
    return render("tasks.html", _page(season, "tasks", f"Tasks · {season.scheme.name}", v=tasks(season)))


def _task(season: Season, name: str) -> bytes:
    beside_it = beside(task_page(name), "json")
    return render("task.html", _page(season, "tasks", f"{name} · {season.scheme.name}", t=task(season, name), json=beside_it))


def _validators(season: Season, query: Query | None) -> bytes:
    title = f"{'Validators' if season.scheme.stakes else 'Runs'} · {season.scheme.name}"
    return render("validators.html", _page(season, "validators", title, v=validators(season)))


def _epoch(season: Season, query: Query | None) -> bytes:
    title = f"Epoch {season.settlement.epoch} · {season.scheme.name}"
    return render("epoch.html", _page(season, "epoch", title, e=epoch(season)))


def _start(season: Season, query: Query | None) -> bytes:
    return render("start.html", _page(season, "start", f"Start here · {season.scheme.name}", s=_doors(season)))


def logs_page(season: Season, view: Json) -> bytes:
    """Return the released logs of a submission, which only a service has. view: of `assay.serve.logs.log_view`."""
    title = f"{view['task'] or 'Logs'} · {season.scheme.name}"
    return render("logs.html", _page(season, "participant", title, v=view, json=view["json"]))


def _doors(season: Season) -> Json:
    return start(season.folder, [*_single(season)], season.address, season.settlement.epoch, settled=season.proof is not None)


def start_page(folder: Path, season: Season | None, address: str, *, as_json: bool = False) -> bytes:
    """Return where to start, while there may be no season yet: of a competition's folder that a service has at an address."""
    season = None if season is None else replace(season, address=address)
    view = start(folder, (), address) if season is None else _doors(season)
    if as_json:
        return canonical(start_document(view))
    scheme = read_scheme(folder / "scheme.toml")
    common = _bare(scheme) if season is None else _common(season)
    return render("start.html", common | _titled("start", f"Start here · {scheme.name}", s=view))


def live_page(scheme: Scheme, season: Season | None, state: LiveState, events: str, now: datetime | None = None) -> bytes:
    """Return what is judged now. season: None where nothing can be settled yet.

    events: where server-sent events (`evidence`, `heartbeat`, `settled`) say when to look again, seen from the page; "" without
    a ledger, which has no events.
    """
    title = _titled("live", f"Live · {scheme.name}", v=live(season, state, now), events=events)
    return render("live.html", (_bare(scheme) if season is None else _common(season)) | title)


def _titled(page: str, title: str, **view: object) -> Json:
    """Return what one page prints. json: the page's data; `PAGE.json` by default."""
    return {"page": page, "title": title, "json": f"{page}.json", **view}


def _bare(scheme: Scheme) -> Json:
    """Return the content of the head and the foot for a competition that cannot be settled yet."""
    return {
        "policy": POLICY,
        "root": "",
        "description": f"{scheme.name}: nothing is settled yet.",
        "nav": [("live.html", "Live", "live"), ("start.html", "Start here", "start")],
        "comp": {"name": scheme.name, "version": scheme.scheme.version, "epoch": None, "digest": "", "receipt": False},
    }


def _page(season: Season, page: str, title: str, **view: object) -> Json:
    """Return what one page prints, with what is common to all."""
    return _common(season) | _titled(page, title, **view)


def assets() -> Iterator[tuple[str, bytes]]:
    """The files that pages name: style, script, icon, fonts with their licences."""
    root = files("assay.serve") / "static"
    yield from _below(root, "")


def verifier_files() -> Iterator[tuple[str, bytes]]:
    """The page of the second verifier, by the names that pages link: `verifier/index.html` and what it loads.

    A wheel has it in `assay/verifier_page`, a checkout in `verifier/`. Raises BadInput where neither is there.
    """
    package = files("assay")
    for root in (package / "verifier_page", Path(str(package)).parents[1] / "verifier"):
        if (root / "index.html").is_file():
            yield "verifier/index.html", (root / "index.html").read_bytes()
            for folder in ("lib", "page", "vendor"):
                for name, content in _below(root / folder, ""):
                    # Files below a folder come from whoever made the vendored ones, and TOML is only for the command.
                    if "/" not in name and name != "toml.js" and (name == "LICENSE" or name.endswith((".js", ".css"))):
                        yield f"verifier/{folder}/{name}", content
            return
    raise BadInput(
        "has no page of the verifier", file=Path(str(package)), hint="install Assay's wheel again, or use a whole checkout"
    )


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
    """Return what the head and the foot of every page print."""
    scheme, number = season.scheme, season.settlement.epoch
    return {
        "policy": POLICY,
        "root": season.root,
        "description": lede(season),
        "nav": [
            ("index.html", "Board", "board"),
            *([("bounty.html", "Bounty", "bounty")] if has_bounty(season) else []),
            *([("tasks.html", "Tasks", "tasks")] if season.tasks.names else []),
            ("validators.html", "Validators" if scheme.stakes else "Runs", "validators"),
            ("epoch.html", f"Epoch {number}", "epoch"),
            *([(f"{season.root}live.html", "Live", "live")] if season.address is not None else []),
            ("start.html", "Start here", "start"),
        ],
        "comp": {
            "name": scheme.name,
            "version": scheme.scheme.version,
            "epoch": number,
            "digest": season.settlement.digest,
            "lede": lede(season),
            "receipt": season.proof is not None,
            "newest": season.newest,
            "epochs": len(season.epochs),
            "steps": steps(season),
            "closes": _closes(season),
        },
    }


def _closes(season: Season) -> Json | None:
    """The moment when the open epoch closes, at a service, for programs and for people. An earlier epoch's pages omit it."""
    if season.address is None or season.root:
        return None
    shown = season.settlement.epoch
    closes = closes_at(season.scheme, shown if season.proof is None else shown + 1, datetime.now(UTC))
    if closes is None:
        return None
    return {"iso": instant_text(closes), "text": when(closes.astimezone(UTC))}


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
