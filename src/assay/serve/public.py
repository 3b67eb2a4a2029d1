"""The routes of everybody: competitions, epochs, boards, records, receipts, proofs, the log, feeds and health."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from assay.exact import canonical
from assay.serve.http import JSON, PROBLEMS, answer
from assay.serve.site import Site

__all__ = ["routes"]


def routes(site: Site) -> APIRouter:
    """The routes of everybody."""
    router = APIRouter(prefix="/v1", tags=["public"], responses=PROBLEMS)

    @router.get("/competitions")
    async def competitions(request: Request) -> Response:
        """The competitions that are served here."""
        rows = [
            {"name": served.name, "board": f"/{segment}/", "api": f"/v1/{segment}/"}
            for segment, served in site.competitions.items()
        ]
        return answer(request, canonical({"competitions": rows}), JSON)

    return router
