"""Collateral: what Intel says of platforms, quoting enclaves and revoked keys, signed, and good for a month or so.

It is the library's QuoteCollateralV3 as JSON, byte strings in hex. The library checks every signature; here it is seen to that
all of it belongs together, and that it is good at the time that is asked about.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cryptography import x509
from pydantic import Field

from assay.enclave.attest.chain import Chain
from assay.errors import BadInput, Refused
from assay.folder import strict
from assay.folder.text import decode, load
from assay.scheme.fields import Section
from assay.scheme.reading import validate
from assay.scheme.times import instant, instant_text

__all__ = ["COLLATERAL_BYTES", "Collateral", "Window", "read_collateral"]

COLLATERAL_BYTES = 2 * 2**20
"""Bytes of one file."""
_STAGE = "collateral"
_PART = 2**19
_Pem = Annotated[str, Field(max_length=65_536)]
_Json = Annotated[str, Field(max_length=_PART)]
_Hex = Annotated[str, Field(pattern="^([0-9a-f]{2})*$", max_length=2 * _PART)]
_Signature = Annotated[str, Field(pattern="^[0-9a-f]{128}$")]


@dataclass(frozen=True)
class Window:
    """From when (seconds since 1970, inclusive) until when (exclusive) all of it is good."""

    start: int
    end: int

    def words(self) -> str:
        """The two times, for people."""
        return f"from {_time(self.start)} until {_time(self.end)}"


class Collateral(Section):
    """What is needed beside a quote to verify it offline."""

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
    """Services give the platform's own chain too. It is not used: the quote has one."""

    def document(self) -> dict[str, Any]:
        """What is used of it, as JSON."""
        return self.model_dump(mode="json", exclude={"pck_certificate_chain"})

    def text(self) -> str:
        """The JSON that the library reads."""
        return json.dumps(self.document())

    def chains(self) -> dict[str, Chain]:
        """The certificates that sign it, by field; raises Refused."""
        fields = ("pck_crl_issuer_chain", "tcb_info_issuer_chain", "qe_identity_issuer_chain")
        return {name: Chain.of(getattr(self, name).encode(), 2, _STAGE, f"those of {name}") for name in fields}

    def check(self, platform: Chain) -> None:
        """See that it is signed under the same root as the platform's chain; raises Refused."""
        found = self.chains()
        if found["pck_crl_issuer_chain"].certificates != platform.certificates[1:]:
            raise Refused(_STAGE, "pck_crl_issuer_chain is not of the authority that certified the platform")
        for name, chain in found.items():
            if chain.root != platform.root:
                raise Refused(_STAGE, f"{name} ends at another root than the quote's certificates")

    def window(self) -> Window:
        """When both JSON texts and both lists of revoked keys are good; raises Refused if that cannot be read.

        Certificates are good for years; the library checks that they are.
        """
        times = [_said(self.tcb_info, "tcb_info"), _said(self.qe_identity, "qe_identity")]
        try:
            for name in ("root_ca_crl", "pck_crl"):
                crl = x509.load_der_x509_crl(bytes.fromhex(getattr(self, name)))
                if crl.next_update_utc is None:
                    raise ValueError(f"{name} does not say until when it is good")
                times.append((crl.last_update_utc, crl.next_update_utc))
        except (ValueError, x509.InvalidVersion) as error:
            raise Refused(_STAGE, f"it cannot be read: {error}") from None
        return Window(max(int(start.timestamp()) for start, _ in times), min(int(end.timestamp()) for _, end in times))

    def good_at(self, now: int) -> Window:
        """When it is good; raises Refused if that is not at `now` (seconds since 1970)."""
        window = self.window()
        if now < window.start:
            raise Refused(_STAGE, "it is not valid yet", expected=f"a time {window.words()}", found=_time(now))
        if now >= window.end:
            raise Refused(_STAGE, "it has expired", expected=f"a time {window.words()}", found=_time(now))
        return window


def _time(seconds: int) -> str:
    return instant_text(datetime.fromtimestamp(seconds, UTC))


def _said(text: str, name: str) -> tuple[datetime, datetime]:
    """issueDate and nextUpdate of a signed JSON; raises Refused."""
    try:
        found = strict.parse(text)
        if not isinstance(found, dict):
            raise BadInput("is no object")
        return instant(found.get("issueDate")), instant(found.get("nextUpdate"))
    except BadInput as error:
        raise Refused(_STAGE, f"{name} {error.what}") from None


def read_collateral(file: Path) -> Collateral:
    """The collateral in a JSON file; raises BadInput."""
    data = load(file, COLLATERAL_BYTES, hint="give the collateral of the quote, as JSON")
    try:
        found = strict.parse(decode(data, file))
    except BadInput as error:
        raise error.at(file=file) from None
    return validate(Collateral, found, file=file)
