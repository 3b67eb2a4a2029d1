"""A TDX quote as bytes that have one reading: parsed by the library, and exact where the library is generous.

    header 48 │ body 584 │ length │ signature data              (version 4; in version 5, type and length stand before the body)
    signature data: signature 64 │ attestation key 64 │ type 6, length │ certification data
    certification data: report of the quoting enclave 384 │ its signature 64 │ length, data │ type 5, length │ certificates, PEM

The library takes lengths that do not fill each other, and leaves what follows the end. Some machines pad quotes with zeros, which
is allowed; anything else behind the end is refused, so that every bit of a verified quote is the one that was signed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from assay.enclave.attest.chain import Chain
from assay.enclave.attest.library import dcap
from assay.errors import Refused

__all__ = ["QUOTE_BYTES", "Quote", "read_quote"]

QUOTE_BYTES = 16_384
"""Bytes of one quote; one of TDX has about 5,000, padded to 8,000 at most."""
_STAGE = "quote"
_HEADER, _REPORT = 48, 584
_QE_REPORT, _KEY = 64 + 64, 384 + 64
_OUTER, _INNER = 6, 5
_CERTIFICATES = 3
"""Of a PCK chain: the platform's, the CA's, the root's."""


@dataclass(frozen=True)
class Quote:
    """A quote, not verified. `report` has the fields of a TD report (the library's `TdReport10` or a later one)."""

    raw: bytes
    version: int
    report: Any
    chain: Chain
    size: int
    """Bytes without padding."""

    @property
    def debug(self) -> bool:
        """Whether the host may look into the TD: any of the attributes' first eight bits."""
        return bool(self.report.td_attributes[0])

    @property
    def measurements(self) -> dict[str, str]:
        """mrtd and rtmr0 to rtmr3, in hex."""
        names = {"mrtd": "mr_td", "rtmr0": "rt_mr0", "rtmr1": "rt_mr1", "rtmr2": "rt_mr2", "rtmr3": "rt_mr3"}
        return {name: getattr(self.report, field).hex() for name, field in names.items()}


def read_quote(raw: bytes) -> Quote:
    """The quote in these bytes; raises Refused (stage `quote`, or `certificates` for its chain)."""
    if len(raw) > QUOTE_BYTES:
        raise Refused(_STAGE, "it is too large", expected=f"at most {QUOTE_BYTES} bytes", found=f"{len(raw)} bytes")
    try:
        parsed = dcap().parse_quote(raw)
    except ValueError as error:
        raise Refused(_STAGE, f"it is no quote: {' '.join(str(error).split())}") from None
    if not parsed.is_tdx():
        raise Refused(_STAGE, "it is of another kind of enclave", expected="TDX", found=parsed.quote_type())
    pem, size = _walked(raw, parsed.header.version)
    return Quote(raw, parsed.header.version, parsed.report, Chain.of(pem, _CERTIFICATES, "certificates", "the quote's"), size)


def _walked(raw: bytes, version: int) -> tuple[bytes, int]:
    """The certificates and where the quote ends, every length followed to its end; raises Refused."""
    reader = _Reader(raw)
    reader.take(_HEADER)
    if version == 5:
        reader.number(2)
        reader.take(reader.number(4))
    else:
        reader.take(_REPORT)
    signed = _Reader(reader.take(reader.number(4)))
    signed.take(_QE_REPORT)
    signed.typed(_OUTER)
    certified = _Reader(signed.take(signed.number(4)))
    certified.take(_KEY)
    certified.take(certified.number(2))
    certified.typed(_INNER)
    pem = certified.take(certified.number(4))
    certified.done()
    signed.done()
    if raw[reader.at :].strip(b"\0"):
        raise Refused(_STAGE, "something follows its end")
    return pem, reader.at


@dataclass
class _Reader:
    """Bytes that are taken from the front."""

    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise Refused(_STAGE, "a length in it is beyond its end")
        found, self.at = self.data[self.at : end], end
        return found

    def number(self, size: int) -> int:
        (found,) = struct.unpack({2: "<H", 4: "<I"}[size], self.take(size))
        return int(found)

    def typed(self, wanted: int) -> None:
        found = self.number(2)
        if found != wanted:
            raise Refused(_STAGE, "its certification data are of a type that is not used", expected=wanted, found=found)

    def done(self) -> None:
        if self.at != len(self.data):
            raise Refused(_STAGE, "a length in it leaves something over")
