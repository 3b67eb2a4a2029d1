"""The service as one ASGI application: its pages, its API under /v1, and what holds for every request.

    /                          the competitions, or the board of the only one
    /NAME/…                    the pages of a competition; /NAME/epoch-12/… those of an earlier epoch
    /v1/…                      the API; /v1/openapi.json describes it

Every answer says what a browser may do with it; no page takes anything from elsewhere, and nothing that a stranger wrote is
taken for HTML. An error is one problem document (RFC 9457) with the sentences of the command line, and no stack trace.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match

import assay
from assay.errors import AssayError, brief
from assay.exact import LARGEST
from assay.judge.holds import standings
from assay.ledger.keys import PublicKey
from assay.peers.guard import ConnectionGuard
from assay.serve import evidence, feeds, public, submissions, work
from assay.serve.board import waiting
from assay.serve.current import CURRENT, current_page
from assay.serve.describing import describe
from assay.serve.downloads import Workshop
from assay.serve.http import JSON, HttpProblem, KeyTurns, Readers, answer, look, problem
from assay.serve.metrics import Metrics, RequestTally
from assay.serve.pages import POLICY, VERIFIER_POLICY, assets, render, verifier_files
from assay.serve.season import handed_in
from assay.serve.site import ServedCompetition, Site
from assay.serve.watching import Watch

__all__ = ["make_app"]

Asgi = Callable[[Any, Any, Any], Awaitable[None]]
MEDIA = {"json": JSON, "receipt": JSON, "csv": "text/csv", "js": "text/javascript", "html": "text/html; charset=utf-8"}
_POLICY_HEADER = (b"content-security-policy", f"{POLICY}; frame-ancestors 'none'".encode())
_VERIFIER_HEADER = (b"content-security-policy", f"{VERIFIER_POLICY}; frame-ancestors 'none'".encode())
_VERIFIER = re.compile("/[^/]+/verifier/.+")
"""Addresses of the second verifier's page and what it loads; a worker has the policy of its own script."""
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"cross-origin"),
)
ANSWER_SECONDS = 120.0
"""A request must be answered within this time; one that waits for news ends earlier by itself."""
_SEE = "see /v1/openapi.json"
_CLIENT = re.compile(r"assay/([0-9][0-9A-Za-z.+!-]{0,39})(?: |$)", re.ASCII)
"""The User-Agent of Assay's own client."""
DESCRIPTION = """\
Everybody may read. A request that changes something is signed (RFC 9421) by a key: a validator's, from the registry, or a
participant's, from its registration. Errors are problem documents (RFC 9457).
"""


def make_app(
    site: Site,
    *,
    guard: ConnectionGuard | None = None,
    tell: Callable[[str], None] = lambda line: None,
    counts: Path | None = None,
) -> Asgi:
    """The application. guard: decides which connections stay. tell: takes one line for an operator about an internal error.

    counts: the folder in which several worker processes count together.
    """
    app = FastAPI(
        title="Assay",
        summary="Hand in, judge, look and verify: one season of one or several competitions.",
        description=DESCRIPTION,
        version=assay.__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        servers=[{"url": address} for address in site.addresses],
    )
    _problems(app, site, tell)
    metrics, workshop = Metrics(site, counts), Workshop()
    watch = Watch(site, metrics.listen)
    for router in (
        public.routes(site, workshop),
        feeds.routes(site, watch, metrics),
        evidence.routes(site),
        work.routes(site, watch, Workshop()),  # what strangers ask for must not hold validators up
        submissions.routes(site),
    ):
        app.include_router(router)
    _pages(app, site)
    describe(app)
    inner = _bounded(app, site, metrics, guard)
    return inner if guard is None else guard.app(inner, _busy)


def _pages(app: FastAPI, site: Site) -> None:
    """The pages and the files that they name."""
    static = dict(chain(assets(), verifier_files()))

    @app.get("/", include_in_schema=False)
    async def home(request: Request) -> Response:
        if len(site.competitions) == 1:
            return RedirectResponse(f"/{next(iter(site.competitions))}/")
        links = [(f"{segment}/", served.name, "") for segment, served in site.competitions.items()]
        page = {"title": "Competitions", "where": "", "home": "/", "root": links[0][0], "links": links}
        page |= {"what": "", "hint": "", "waiting": []}
        return answer(request, render("message.html", page), MEDIA["html"])

    @app.get("/{segment}/", include_in_schema=False)
    async def board(request: Request, segment: str) -> Response:
        return await drawn(request, site.competition(segment), "index.html", None)

    @app.get("/{segment}/epoch-{epoch}/{name:path}", include_in_schema=False)
    async def earlier(request: Request, segment: str, epoch: str, name: str) -> Response:
        served = site.competition(segment)
        if re.fullmatch("[0-9]{1,16}", epoch, re.ASCII) is None or int(epoch) > LARGEST:
            raise HttpProblem(404, f"there is no epoch {brief(epoch, 80)}", hint="the board names the epochs that are")
        return await drawn(request, served, name or "index.html", int(epoch))

    @app.get("/{segment}/{name:path}", include_in_schema=False)
    async def shown(request: Request, segment: str, name: str) -> Response:
        if segment == "v1":  # an address of the API, with another method
            there = any(route.matches(request.scope)[0] is Match.PARTIAL for route in app.routes)
            raise HTTPException(405 if there else 404)
        return await drawn(request, site.competition(segment), name, None)

    async def drawn(request: Request, served: ServedCompetition, name: str, epoch: int | None) -> Response:
        media = MEDIA.get(name.rpartition(".")[2]) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        if name in static:
            return answer(request, static[name], media, seconds=3600)
        query = dict(request.query_params)
        if name in CURRENT and epoch is None:
            return answer(request, await look(request, current_page, served, name, query), media)
        data = served.cached_page(name, epoch, query, at_once=True)
        if data is None:
            data = await run_in_threadpool(served.cached_page, name, epoch, query)
        if data is None:
            data = await look(request, served.page, name, epoch, query)
        return answer(request, data, media)


def _with_version(request: Request, hint: str) -> str:
    """A hint about what could not be read, with the version to install if the client is of another one."""
    theirs, ours = _CLIENT.match(request.headers.get("user-agent", "")), assay.__version__
    if theirs is None or theirs[1] == ours:
        return hint
    advice = f"this service runs Assay {ours}, and you use {theirs[1]}: install 'assay=={ours}'"
    return f"{hint}; {advice}" if hint else advice


def _problems(app: FastAPI, site: Site, tell: Callable[[str], None]) -> None:
    """Answer every exception with a problem document. Of an internal error only its class and place are told."""

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, AssayError)
        served = site.competitions.get(request.path_params.get("segment", ""))
        if error.field.startswith("body"):  # it could not be read
            error.hint = _with_version(request, error.hint)
        answered = problem(error, folder=None if served is None else served.folder)
        return answered if served is None or not _reads_pages(request) else await look(request, _problem_page, answered, served)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            return problem(HttpProblem(405, f"{request.method} is not possible here", hint=_with_version(request, _SEE)))
        return problem(HttpProblem(error.status_code, "there is nothing at this address", hint=_with_version(request, _SEE)))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][1:]))
        message = first["msg"][:1].lower() + first["msg"][1:]
        return problem(HttpProblem(400, message, field=place, hint=_with_version(request, _SEE)))

    async def broken(request: Request, error: Exception) -> Response:
        assert isinstance(error, OSError)
        tell(f"{type(error).__name__}: {error.strerror}, {request.method} {request.url.path[:200]}")
        what = f"the service cannot use its disk now ({error.strerror})"
        return problem(HttpProblem(503, what, hint="tell its operator, then send it again", stage="disk", retry=30))

    async def internal(request: Request, error: Exception) -> Response:
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        place = "" if last is None else f" at {last.tb_frame.f_code.co_filename}:{last.tb_lineno}"
        tell(f"internal error: {type(error).__name__}{place}, {request.method} {request.url.path[:200]}")
        return problem(HttpProblem(500, "the service has an internal error", hint="tell its operator, then send it again"))

    app.add_exception_handler(AssayError, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(OSError, broken)
    app.add_exception_handler(Exception, internal)


def _bounded(app: Asgi, site: Site, metrics: Metrics, guard: ConnectionGuard | None) -> Asgi:
    """Return the application with what holds for every request.

    The guards are the right host, the headers of every answer, a deadline, and a key's share of the requests. No exception gets
    into the server's log.
    """
    keys: Counter[PublicKey] = Counter()

    readers = Readers()

    async def bounded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        method = scope["method"]
        public_read = method in ("GET", "HEAD") and not any(name == b"signature" for name, _ in scope["headers"])
        if method == "HEAD":  # the server leaves out the body
            scope = scope | {"method": "GET"}

        headers = [_VERIFIER_HEADER if _VERIFIER.fullmatch(scope["path"]) else _POLICY_HEADER, *_HEADERS]
        if public_read:
            headers.append((b"access-control-allow-origin", b"*"))
        count = RequestTally(receive, send, headers)
        turns = KeyTurns(keys)
        try:
            request = Request(scope)
            async with asyncio.timeout(ANSWER_SECONDS) as deadline:
                address = site.origin(request.headers.get("host", ""))
                scope["scheme"] = address.partition("://")[0]  # as the client knows it: redirects lead there
                known = {"address": address, "method": method, "deadline": deadline, "readers": readers, "turns": turns}
                scope.setdefault("state", {}).update(known)
                await app(scope, count.receive, count.send)
            signer = scope["state"].get("signer")
            if guard is not None and signer is not None and 200 <= count.status < 300:
                guard.welcome(scope["state"]["guest"], signer.raw)
        except HttpProblem as error:
            await problem(error)(scope, receive, count.send)
        except TimeoutError:
            if not count.status:
                late = HttpProblem(503, "the answer takes too long", hint="try again later", retry=30)
                await problem(late)(scope, receive, count.send)
        except Exception:  # noqa: BLE001  (it was answered and told; here it would get into a server's log)
            return
        finally:
            turns.give_back()
            metrics.count(scope, method, count)

    return bounded


def _reads_pages(request: Request) -> bool:
    """Whether a person with a browser asks for a page."""
    return (
        request.method in ("GET", "HEAD")
        and not request.url.path.startswith("/v1/")
        and "text/html" in request.headers.get("accept", "")
    )


def _problem_page(answered: Response, served: ServedCompetition) -> Response:
    """A problem of a competition as a page; before the first evidence it shows who handed in."""
    document = json.loads(bytes(answered.body))
    empty = document["type"].endswith(":cannot-settle")
    rows = [*_waiting(served)] if empty else []
    page = {
        "title": "No board yet" if empty else document["title"],
        "where": served.name,
        "home": f"/{served.segment}/",
        "root": f"/{served.segment}/",
        "what": _sentence(document["detail"]),
        "hint": _sentence(document.get("hint", "")),
        "waiting": rows,
        "links": [("start.html", "Start here", "take part, validate")] if empty else [],
    }
    headers = {name: value for name, value in answered.headers.items() if name in ("retry-after", "cache-control")}
    return Response(render("message.html", page), answered.status_code, headers, MEDIA["html"])


def _waiting(served: ServedCompetition) -> Iterator[dict[str, Any]]:
    """The participants that handed in before the first epoch is settled, each with its state as a near-copy."""
    people = handed_in(served.folder)
    keys = [(person.key, person.submission) for person in people]
    known = standings(served.folder, served.scheme, keys, comparing=served.store is not None)
    return waiting(people, {key: stands for (key, _), stands in known.items()})


def _sentence(text: str) -> str:
    return text if not text else f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


async def _busy(scope: Any, receive: Any, send: Any) -> None:
    await problem(HttpProblem(429, "too much is asked at once", hint="try again", retry=1))(scope, receive, send)
