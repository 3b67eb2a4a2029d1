"""Fetching a quote's collateral, from Intel or from who keeps it for others. It is signed, so it does not matter from whom."""

from __future__ import annotations

import asyncio
from typing import Any

from assay.enclave.attest.collateral import Collateral
from assay.enclave.attest.library import dcap
from assay.enclave.attest.quote import read_quote
from assay.errors import AssayError, BadInput
from assay.folder import strict
from assay.scheme.reading import validate

__all__ = ["INTEL", "SECONDS", "Unreachable", "fetch"]

INTEL = "https://api.trustedservices.intel.com"
SECONDS = 60.0
"""For all of it."""


class Unreachable(AssayError):
    """The service does not answer, or has nothing for this platform."""


def fetch(quote: bytes, url: str = INTEL, *, seconds: float = SECONDS) -> Collateral:
    """The collateral of a quote now; nothing of it is checked yet. Raises Unreachable, Refused for what is no quote, BadInput."""
    if not url.startswith(("https://", "http://")):
        raise BadInput(f"{url[:100]!r} is not the address of a service", field="--from", hint=f"for example {INTEL}")
    read_quote(quote)

    async def asked() -> Any:
        return await asyncio.wait_for(dcap().get_collateral(url, quote), seconds)

    try:
        return validate(Collateral, strict.parse(asyncio.run(asked()).to_json()))
    except TimeoutError:
        raise Unreachable(f"{url} did not answer within {seconds:g} seconds", hint="try again, or another service") from None
    except ValueError as error:
        why = " ".join(str(error).split())[:300]
        raise Unreachable(f"{url} gave no collateral: {why}", hint="try again, or another service") from None
    except BadInput as error:
        raise Unreachable(f"{url} gave collateral that is none: {error}") from None
