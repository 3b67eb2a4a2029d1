"""The routes of everybody: competitions, epochs, boards, explanations, records, receipts, proofs, downloads and the log.

All are GET, and HEAD. Lists come in pages: `limit` rows, and `next` (also as a header Link) is the address of the following one.
Every answer has an ETag. The answers about a settled epoch do not change any more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from assay.errors import brief
from assay.exact import LARGEST, canonical
from assay.judge import tree
from assay.ledger import config
from assay.ledger.log import ENTRY_BYTES, WIDTH, tile_path
from assay.serve import shapes
from assay.serve.downloads import MadeFile, Workshop, file_answer, open_made
from assay.serve.epochs import EpochReader
from assay.serve.http import JSON, PROBLEMS, HttpProblem, answer, look
from assay.serve.shapes import document, download, example
from assay.serve.site import ServedCompetition, Site
from assay.tables import TABLES

__all__ = ["CHECKPOINT", "EpochNumber", "Segment", "log_file", "routes"]

Json = dict[str, Any]
CSV, PARQUET, TAR, OCTETS, TEXT = (
    "text/csv; charset=utf-8",
    "application/vnd.apache.parquet",
    "application/x-tar",
    "application/octet-stream",
    "text/plain; charset=utf-8",
)
KEEP = 60
"""Seconds for which an answer about a settled epoch may be used without asking again."""
LIMIT = 1000
"""Rows of a page."""
CHECKPOINT = "checkpoint"
"""The file of a log's folder that says how large it is, signed."""
TILE_BYTES = WIDTH * (ENTRY_BYTES + 2)
_TILE = re.compile(r"tile/(entries|[0-9]{1,2})/((?:x[0-9]{3}/){0,5})([0-9]{3})(?:\.p/([0-9]{1,3}))?", re.ASCII)

Segment = Annotated[str, Path(description="The competition's part of the address.", examples=["term-challenge"])]
EpochNumber = Annotated[int, Path(ge=0, le=LARGEST, description="A settled epoch.", examples=[12])]
ParticipantKey = Annotated[str, Path(min_length=1, max_length=256, description="A participant's key.", examples=["atlas"])]
Limit = Annotated[int, Query(ge=1, le=LIMIT, description="The most rows of a page.", examples=[100])]
After = Annotated[str, Query(max_length=256, description="The cursor out of `next`; leave it out for the first page.")]
AfterNumber = Annotated[int, Query(ge=0, le=LARGEST, description="The cursor out of `next`; leave it out for the first page.")]


def routes(site: Site, workshop: Workshop) -> APIRouter:
    """The routes of everybody."""
    router = APIRouter(tags=["public"], responses=PROBLEMS)
    known = {segment: EpochReader(served) for segment, served in site.competitions.items()}

    def epochs_of(segment: str) -> EpochReader:
        site.competition(segment)
        return known[segment]

    _competitions(router, site, known, epochs_of)
    _epochs(router, epochs_of, workshop)
    _of_one_epoch(router, epochs_of, workshop)
    _downloads(router, epochs_of, workshop)
    _log(router, site)
    return router


Find = Callable[[str], EpochReader]


def _competitions(router: APIRouter, site: Site, known: dict[str, EpochReader], epochs_of: Find) -> None:
    """Competitions, and who takes part in one."""

    @router.get("/v1/competitions", response_model=shapes.Competitions)
    async def competitions(request: Request) -> Response:
        """The competitions that are served here, each with the epoch that is open and the last one settled."""
        rows = await look(request, lambda: [competition.summary() for competition in known.values()])
        return answer(request, canonical({"competitions": rows}), JSON)

    @router.get("/v1/{segment}", response_model=shapes.CompetitionDetail)
    async def competition(request: Request, segment: Segment) -> Response:
        """One competition: its rules as JSON, how many take part, and the public key of its log."""
        return answer(request, canonical(await look(request, epochs_of(segment).competition)), JSON)

    @router.get("/v1/{segment}/participants", response_model=shapes.Participants)
    async def participants(request: Request, segment: Segment, after: After = "", limit: Limit = 100) -> Response:
        """The participants by key, each with its current submission."""
        rows = await look(request, epochs_of(segment).participant_rows)
        return _page(request, "participants", _following(rows, "key", after), limit, "key")

    @router.get("/v1/{segment}/validators", response_model=shapes.Validators)
    async def validators(request: Request, segment: Segment, after: After = "", limit: Limit = 100) -> Response:
        """The validators by key, each with its stake in rao and its last heartbeat: what it judges now."""
        rows = await look(request, epochs_of(segment).validator_rows)
        return _page(request, "validators", _following(rows, "key", after), limit, "key")


def _epochs(router: APIRouter, epochs_of: Find, workshop: Workshop) -> None:
    """The settled epochs of a competition, and the rows of one."""

    @router.get("/v1/{segment}/epochs", response_model=shapes.EpochList)
    async def epochs(
        request: Request,
        segment: Segment,
        after: Annotated[int | None, Query(ge=0, le=LARGEST, description="The cursor out of `next`.")] = None,
        limit: Limit = 100,
    ) -> Response:
        """The settled epochs, the newest first, each with the digest of its receipt and its place in the log."""
        rows = await look(request, epochs_of(segment).settled)
        rows = [row for row in rows if after is None or row["epoch"] < after]
        return _page(request, "epochs", rows, limit, "epoch")

    @router.get("/v1/{segment}/epochs/{epoch}", responses=document("settlement"))
    async def settlement(request: Request, segment: Segment, epoch: EpochNumber) -> Response:
        """The settlement: everything that was computed for the epoch, as `assay settle --json` prints it."""
        epochs = epochs_of(segment)
        data = await _drawn(workshop, epochs, ("/v1", "settlement", epoch), lambda: epochs.document(epoch))
        return answer(request, data, JSON, seconds=KEEP)

    @router.get("/v1/{segment}/epochs/{epoch}/board", response_model=shapes.Board)
    async def board(
        request: Request, segment: Segment, epoch: EpochNumber, after: AfterNumber = 0, limit: Limit = 256
    ) -> Response:
        """The board: rank, score, interval and what is earned, best first. Numbers are exact, intervals are not."""
        epochs = epochs_of(segment)
        drawn = await _drawn(workshop, epochs, ("/v1", "board", epoch), lambda: canonical(epochs.board(epoch)))
        rows = json.loads(drawn)
        return _page(request, "rows", rows[after:], limit, "place", seconds=KEEP, more={"epoch": epoch})

    @router.get("/v1/{segment}/epochs/{epoch}/records", response_model=shapes.Records)
    async def records(
        request: Request, segment: Segment, epoch: EpochNumber, after: AfterNumber = 0, limit: Limit = 100
    ) -> Response:
        """The records of evidence that count, in the order of their acceptance, each with its seq."""
        lines = await look(request, epochs_of(segment).records, epoch, after, limit + 1)
        following = next_page(request, str(lines[limit - 1][0])) if len(lines) > limit else None
        listed = b",".join(line for _, line in lines[:limit])
        body = b'{"epoch":%d,"next":%b,"records":[%b]}' % (epoch, canonical(following), listed)
        return answer(request, body, JSON, seconds=KEEP, headers=_link(following))


def _of_one_epoch(router: APIRouter, epochs_of: Find, workshop: Workshop) -> None:
    """Receipts, explanations and proofs."""

    @router.get("/v1/{segment}/epochs/{epoch}/receipt", responses=document("receipt"))
    async def receipt(request: Request, segment: Segment, epoch: EpochNumber) -> Response:
        """The receipt: the signed statement about the epoch, and the proof that it is in the log. `assay verify` checks it."""
        return answer(request, await look(request, epochs_of(segment).receipt, epoch), JSON, seconds=KEEP)

    @router.get("/v1/{segment}/epochs/{epoch}/participants/{key:path}/proof", responses=document("proof"))
    async def proof(request: Request, segment: Segment, epoch: EpochNumber, key: ParticipantKey) -> Response:
        """A participant's own proof: its result, the records that it rests on, and the proof that both are under receipts."""
        epochs = epochs_of(segment)
        proved = await _drawn(workshop, epochs, ("/v1", "proof", epoch, key), lambda: epochs.proof(epoch, key))
        return answer(request, proved, JSON, seconds=KEEP)

    @router.get("/v1/{segment}/epochs/{epoch}/participants/{key:path}", responses=document("explanation"))
    async def explanation(request: Request, segment: Segment, epoch: EpochNumber, key: ParticipantKey) -> Response:
        """The reasons for a participant's numbers, or for having none, step by step: as `assay explain --json` prints them."""
        epochs = epochs_of(segment)
        data = await _drawn(workshop, epochs, ("/v1", "explanation", epoch, key), lambda: epochs.explanation(epoch, key))
        return answer(request, data, JSON, seconds=KEEP)


def _downloads(router: APIRouter, epochs_of: Find, workshop: Workshop) -> None:
    """Whole epochs as files."""

    @router.get("/v1/{segment}/epochs/{epoch}/bundle", responses=download(TAR), response_class=Response)
    async def bundle(request: Request, segment: Segment, epoch: EpochNumber) -> Response:
        """The bundle, as a tar of what `assay export epoch` writes: unpack it, and `assay verify` checks everything in it."""
        epochs = epochs_of(segment)
        name = await look(request, epochs.bundle_name, epoch)
        file = await workshop.file(epochs.served.folder, name, lambda path: epochs.write_bundle(epoch, path))
        return await _send(request, file, TAR, f"{segment}-epoch-{epoch}.tar")

    @router.get("/v1/{segment}/epochs/{epoch}/evidence.parquet", responses=download(PARQUET), response_class=Response)
    async def parquet(request: Request, segment: Segment, epoch: EpochNumber) -> Response:
        """The evidence of the epoch as Parquet, for DuckDB, polars and pandas. Only where records can be in bulk."""
        epochs = epochs_of(segment)
        position = await look(request, epochs.position, epoch)
        file = await workshop.file(
            epochs.served.folder, f"evidence-{epoch}-{position}.parquet", lambda path: epochs.write_parquet(epoch, path)
        )
        return await _send(request, file, PARQUET, f"{segment}-evidence-{epoch}.parquet")

    @router.get(
        "/v1/{segment}/epochs/{epoch}/{table}.csv", responses=download(CSV, example("weights.csv")), response_class=Response
    )
    async def table(
        request: Request,
        segment: Segment,
        epoch: EpochNumber,
        table: Annotated[str, Path(max_length=32, description=f"One of {', '.join(TABLES)}.", examples=["weights"])],
    ) -> Response:
        """A table of the settlement as CSV: exact numbers, a header line, and for weights the burn as the last row."""
        data = await look(request, epochs_of(segment).table, epoch, table)
        return answer(request, data, CSV, seconds=KEEP, headers=_named(f"{segment}-{table}-{epoch}.csv"))


def _log(router: APIRouter, site: Site) -> None:
    """The files of the log, under the paths of C2SP tlog-tiles, and nothing else of its folder."""

    @router.get("/{segment}/log/checkpoint", responses=download(TEXT, example("checkpoint")), response_class=Response)
    async def checkpoint(request: Request, segment: Segment) -> Response:
        """The signed checkpoint of the log (C2SP tlog-checkpoint): its size and root."""
        served = site.competition(segment)
        note = await look(request, log_file, served, CHECKPOINT)
        return answer(request, note, TEXT, seconds=1)

    @router.get("/{segment}/log/tile/{path:path}", responses=download(OCTETS), response_class=Response)
    async def tile(
        request: Request,
        segment: Segment,
        path: Annotated[str, Path(max_length=80, description="LEVEL/N, LEVEL/N.p/W, entries/N.", examples=["0/000.p/2"])],
    ) -> Response:
        """A tile of the log (C2SP tlog-tiles): 256 hashes, or entries. A full tile never changes."""
        name, full = _tile(request.scope["path"].partition("/log/")[2])  # a router passes over a line break at the end
        data = await look(request, log_file, site.competition(segment), name)
        return answer(request, data, OCTETS, seconds=KEEP, forever=full)


async def _drawn(workshop: Workshop, epochs: EpochReader, name: tuple[object, ...], draw: Callable[[], bytes]) -> bytes:
    """Return what `draw` gives: as it was drawn since the competition last changed, or drawn now."""
    served = epochs.served
    if (drawn := await run_in_threadpool(served.cached, name)) is not None:
        return drawn
    return await workshop.once((served.segment, *name), lambda: served.drawn(name, draw))


def _tile(path: str) -> tuple[str, bool]:
    """The name of a tile in the log's folder, and whether it is a full one. Raises HttpProblem (404) for every other name."""
    parts = _TILE.fullmatch(path)
    if parts is not None:
        level, before, last, width = parts.groups()
        index = int("".join(re.findall("[0-9]+", before)) + last)
        with_width = WIDTH if width is None else int(width)
        try:
            name = tile_path(level if level == "entries" else int(level), index, with_width)
        except ValueError:
            name = ""
        if name == path and not (width is not None and with_width == WIDTH):
            return name, width is None
    raise HttpProblem(404, f"the log has no {brief(path, 80)}", hint="see https://c2sp.org/tlog-tiles")


def log_file(served: ServedCompetition, name: str) -> bytes:
    """A file of the log's folder, without following a link below it. Raises HttpProblem: 404, or 503 if it is lost."""
    served.books()
    try:
        data = tree.peek(config.read(served.folder).tiles, name, most=TILE_BYTES)
    except tree.TreeError:
        data = None
    if data is None and name == CHECKPOINT:  # every log has one from its first day
        hint = "its operator puts the log's folder back; assay ledger check says what is missing"
        raise HttpProblem(503, "the log's checkpoint cannot be read", hint=hint, stage="log", retry=60)
    if data is None:
        raise HttpProblem(404, f"the log has no {name}", hint="its checkpoint says how large it is")
    return data


def _following(rows: list[Json], name: str, after: str) -> list[Json]:
    """The rows after a cursor, in the order of the bytes of a field."""
    return [row for row in rows if row[name].encode() > after.encode()] if after else rows


def _page(
    request: Request,
    name: str,
    rows: Sequence[Json],
    limit: int,
    cursor: str,
    *,
    seconds: int = 0,
    more: Json | None = None,
) -> Response:
    """A page of rows, and the address of the following one. cursor: the field whose value in the last row leads there."""
    following = next_page(request, str(rows[limit - 1][cursor])) if len(rows) > limit else None
    body = {name: list(rows[:limit]), "next": following} | (more or {})
    return answer(request, canonical(body), JSON, seconds=seconds, headers=_link(following))


def next_page(request: Request, cursor: str) -> str:
    """The address of the following page."""
    query = {name: value for name, value in request.query_params.items() if name in ("limit", "task")} | {"after": cursor}
    return f"{quote(request.url.path)}?{urlencode(query)}"


def _link(following: str | None) -> dict[str, str]:
    return {} if following is None else {"Link": f'<{following}>; rel="next"'}


def _named(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


async def _send(request: Request, cached: MadeFile, media: str, name: str) -> Response:
    file = await run_in_threadpool(open_made, cached)
    headers = _named(name) | {"Cache-Control": f"public, max-age={KEEP}"}
    return file_answer(request, file, cached.size, media, cached.sha256, headers)
