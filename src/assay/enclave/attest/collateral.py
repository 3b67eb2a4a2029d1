"""Reads, checks and fetches collateral: Intel's signed statements about platforms, quoting enclaves and revoked keys.

Collateral is valid for about a month. Its form is the library's QuoteCollateralV3 as JSON, with byte strings in hex. The library
checks every signature. This module checks that all parts belong together and that they are valid at the requested time.

`fetch_collateral` gets it from Intel or from a cache (PCCS). Collateral is signed, so it does not matter who serves it. The
library does not bound the bytes that it reads and unpacks, so it runs in a child process.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cryptography import x509
from pydantic import Field

from assay.enclave.attest.quote import CertificateChain, load_library, read_quote
from assay.errors import BadInput, Refused, Unreachable
from assay.folder import strict
from assay.folder.files import decode, load
from assay.peers import NoAnswer, Silent, Words
from assay.peers.confined import Confined
from assay.scheme.fields import Section, instant, instant_text
from assay.scheme.reading import validate

COLLATERAL_BYTES = 2 * 2**20
"""Bytes of one file."""
_STAGE = "collateral"
_PART = 2**19
_Pem = Annotated[str, Field(max_length=65_536)]
_Json = Annotated[str, Field(max_length=_PART)]
_Hex = Annotated[str, Field(pattern="^([0-9a-f]{2})*$", max_length=2 * _PART)]
_Signature = Annotated[str, Field(pattern="^[0-9a-f]{128}$")]


@dataclass(frozen=True)
class ValidityWindow:
    """The time in which all parts are valid: from `start` (seconds since 1970, inclusive) until `end` (exclusive)."""

    start: int
    end: int

    def words(self) -> str:
        """The two times, for people."""
        return f"from {_time(self.start)} until {_time(self.end)}"


class Collateral(Section):
    """The data that an offline verification needs besides the quote."""

    pck_crl_issuer_chain: _Pem
    root_ca_crl: _Hex
    pck_crl: _Hex
    tcb_info_issuer_chain: _Pem
    tcb_info: _Json
    tcb_info_signature: _Signature
    qe_identity_issuer_chain: _Pem
    qe_identity: _Json
    qe_identity_signature: _Signature
    pck_certificate_chain: _Pem | None = None
    """The platform's own chain, which some services add. It is not used: the quote has one."""

    def document(self) -> dict[str, Any]:
        """The fields that verification uses, as JSON."""
        return self.model_dump(mode="json", exclude={"pck_certificate_chain"})

    def text(self) -> str:
        """The JSON that the library reads."""
        return json.dumps(self.document())

    def chains(self) -> dict[str, CertificateChain]:
        """The certificates that sign it, by field; raises Refused."""
        fields = ("pck_crl_issuer_chain", "tcb_info_issuer_chain", "qe_identity_issuer_chain")
        return {name: CertificateChain.of(getattr(self, name).encode(), 2, _STAGE, f"those of {name}") for name in fields}

    def check(self, platform: CertificateChain) -> None:
        """Check that it is signed under the same root as the platform's chain. Raises Refused."""
        chains = self.chains()
        if chains["pck_crl_issuer_chain"].certificates != platform.certificates[1:]:
            raise Refused(_STAGE, "pck_crl_issuer_chain is not of the authority that certified the platform")
        for name, chain in chains.items():
            if chain.root != platform.root:
                raise Refused(_STAGE, f"{name} ends at another root than the quote's certificates")

    def window(self) -> ValidityWindow:
        """The time in which both JSON texts and both revocation lists are valid; raises Refused if it cannot be read.

        Certificates are valid for years; the library checks them.
        """
        times = [_signed_times(self.tcb_info, "tcb_info"), _signed_times(self.qe_identity, "qe_identity")]
        try:
            for name in ("root_ca_crl", "pck_crl"):
                crl = x509.load_der_x509_crl(bytes.fromhex(getattr(self, name)))
                if crl.next_update_utc is None:
                    raise ValueError(f"{name} does not say until when it is valid")
                times.append((crl.last_update_utc, crl.next_update_utc))
        except (ValueError, x509.InvalidVersion) as error:
            raise Refused(_STAGE, f"it cannot be read: {error}") from None
        return ValidityWindow(max(int(start.timestamp()) for start, _ in times), min(int(end.timestamp()) for _, end in times))

    def good_at(self, now: int) -> ValidityWindow:
        """The time in which it is valid; raises Refused if `now` (seconds since 1970) is outside of it."""
        window = self.window()
        if now < window.start:
            raise Refused(_STAGE, "it is not valid yet", expected=f"a time {window.words()}", found=_time(now))
        if now >= window.end:
            raise Refused(_STAGE, "it has expired", expected=f"a time {window.words()}", found=_time(now))
        return window


def _time(seconds: int) -> str:
    return instant_text(datetime.fromtimestamp(seconds, UTC))


def _signed_times(text: str, name: str) -> tuple[datetime, datetime]:
    """issueDate and nextUpdate of a signed JSON; raises Refused."""
    try:
        document = strict.parse(text)
        if not isinstance(document, dict):
            raise BadInput("is not an object")
        return instant(document.get("issueDate")), instant(document.get("nextUpdate"))
    except BadInput as error:
        raise Refused(_STAGE, f"{name} {error.what}") from None


def read_collateral(file: Path) -> Collateral:
    """The collateral in a JSON file; raises BadInput."""
    data = load(file, COLLATERAL_BYTES, hint="give the collateral of the quote, as JSON")
    try:
        document = strict.parse(decode(data, file))
    except BadInput as error:
        raise error.at(file=file) from None
    return validate(Collateral, document, file=file)


INTEL_SERVICE = "https://api.trustedservices.intel.com"
FETCH_SECONDS = 60.0
"""Seconds for the whole request."""
_WORDS = Words()


class CollateralLibrary:
    """The library that fetches collateral; it runs in the child process."""

    def __init__(self, url: str, quote: bytes) -> None:
        self.url, self.quote, self.dcap = url, quote, load_library()

    def collateral(self) -> str:
        """The collateral as JSON; raises ValueError."""

        async def asked() -> str:
            return str((await self.dcap.get_collateral(self.url, self.quote)).to_json())

        return asyncio.run(asked())


def fetch_collateral(quote: bytes, url: str = INTEL_SERVICE, *, seconds: float = FETCH_SECONDS) -> Collateral:
    """Fetch the current collateral of a quote, unchecked. Raises Unreachable, BadInput, and Refused for an invalid quote."""
    if not url.startswith(("https://", "http://")):
        raise BadInput(
            f"{_WORDS(url, 100)!r} is not the address of a service", field="--from", hint=f"for example {INTEL_SERVICE}"
        )
    read_quote(quote)
    until = time.monotonic() + seconds
    hint = "try again, or another service"
    try:
        with Confined(f"{__name__}:CollateralLibrary", url, quote, seconds=seconds, most=COLLATERAL_BYTES) as library:
            text = library.call("collateral", seconds=until - time.monotonic())
        return validate(Collateral, strict.parse(text))
    except Silent:
        raise Unreachable(f"{url} did not answer within {seconds:g} seconds", hint=hint) from None
    except (NoAnswer, ValueError) as error:
        why = _WORDS(" ".join(str(error).split()), 300)
        raise Unreachable(f"{url} gave no collateral: {why}", hint=hint) from None
    except BadInput as error:
        raise Unreachable(f"{url} sent invalid collateral: {error}") from None
