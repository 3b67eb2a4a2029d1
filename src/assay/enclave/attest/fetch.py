"""Fetching a quote's collateral, from Intel or from who keeps it for others. It is signed, so it does not matter from whom.

The library asks by itself, without a bound on what it reads and unpacks, so it does so in a child process.
"""

from __future__ import annotations

import asyncio
import time

from assay.enclave.attest.collateral import COLLATERAL_BYTES, Collateral
from assay.enclave.attest.library import dcap
from assay.enclave.attest.quote import read_quote
from assay.errors import AssayError, BadInput
from assay.folder import strict
from assay.peers import NoAnswer, Silent, Words
from assay.peers.confined import Confined
from assay.scheme.reading import validate

__all__ = ["INTEL", "SECONDS", "Library", "Unreachable", "fetch"]

INTEL = "https://api.trustedservices.intel.com"
SECONDS = 60.0
"""For all of it."""
_WORDS = Words()


class Unreachable(AssayError):
    """The service does not answer, or has nothing for this platform."""


class Library:
    """What asks, in the child."""

    def __init__(self, url: str, quote: bytes) -> None:
        self.url, self.quote, self.dcap = url, quote, dcap()

    def collateral(self) -> str:
        """The collateral as JSON; raises ValueError."""

        async def asked() -> str:
            return str((await self.dcap.get_collateral(self.url, self.quote)).to_json())

        return asyncio.run(asked())


def fetch(quote: bytes, url: str = INTEL, *, seconds: float = SECONDS) -> Collateral:
    """The collateral of a quote now; nothing of it is checked yet. Raises Unreachable, Refused for what is no quote, BadInput."""
    if not url.startswith(("https://", "http://")):
        raise BadInput(f"{_WORDS(url, 100)!r} is not the address of a service", field="--from", hint=f"for example {INTEL}")
    read_quote(quote)
    until = time.monotonic() + seconds
    hint = "try again, or another service"
    try:
        with Confined(f"{__name__}:Library", url, quote, seconds=seconds, most=COLLATERAL_BYTES) as library:
            text = library.call("collateral", seconds=until - time.monotonic())
        return validate(Collateral, strict.parse(text))
    except Silent:
        raise Unreachable(f"{url} did not answer within {seconds:g} seconds", hint=hint) from None
    except (NoAnswer, ValueError) as error:
        why = _WORDS(" ".join(str(error).split()), 300)
        raise Unreachable(f"{url} gave no collateral: {why}", hint=hint) from None
    except BadInput as error:
        raise Unreachable(f"{url} gave collateral that is none: {error}") from None
