"""The routes of participants: register, hand in, look at one's own submissions."""

from __future__ import annotations

from fastapi import APIRouter

from assay.serve.http import PROBLEMS
from assay.serve.site import Site

__all__ = ["routes"]


def routes(site: Site) -> APIRouter:
    """The routes of participants."""
    return APIRouter(prefix="/v1", tags=["participants"], responses=PROBLEMS)
