"""Parses a TDX quote and its certificate chain strictly: each has exactly one form.

    header 48 │ body 584 │ length │ signature data              (version 4; in version 5, type and length stand before the body)
    signature data: signature 64 │ attestation key 64 │ type 6, length │ certification data
    certification data: report of the quoting enclave 384 │ its signature 64 │ length, data │ type 5, length │ certificates, PEM

The library parses quotes, and checks signatures, validity and revocation. It accepts inner lengths that do not add up, and
ignores bytes after the end. Some machines pad quotes with zeros, which is allowed here; anything else after the end is refused.
The library also starts from its own copy of the root and reads PEM generously: it would accept a chain with any root, or with
other line ends. Those are refused here too. So every bit of a verified quote is a bit that was signed.
"""

from __future__ import annotations

import base64
import re
import struct
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from assay.errors import BadInput, Refused


def load_library() -> Any:
    """`dcap_qvl`; raises BadInput where the extra is not installed."""
    try:
        import dcap_qvl
    except ImportError:
        hint = "install it: pip install 'assay[tee]'"
        raise BadInput("quotes of enclaves need a library that is not installed", hint=hint) from None
    return dcap_qvl


INTEL_ROOT = "sha256:44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3"
"""The fingerprint (of the DER) of Intel's SGX Root CA, which also certifies platforms with TDX."""
DEVELOPMENT_ROOT = "Assay development root, not Intel"
"""The name of every development root."""
_CERTIFICATE = re.compile(b"-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/=\n]+)-----END CERTIFICATE-----\n?")
_LINE = 64


@dataclass(frozen=True)
class CertificateChain:
    """Certificates (DER), leaf first."""

    certificates: tuple[bytes, ...]

    @classmethod
    def of(cls, pem: bytes, length: int, stage: str, whose: str) -> CertificateChain:
        """The chain of `length` certificates in plain PEM. Raises Refused. Zero bytes after the end are allowed."""
        text = pem.rstrip(b"\0")
        certificates = []
        for body in _CERTIFICATE.findall(text):
            try:
                certificates.append(base64.b64decode(body.replace(b"\n", b""), validate=True))
            except ValueError:
                break
        chain = cls(tuple(certificates))
        if chain.pem.rstrip(b"\n") != text.removesuffix(b"\n"):
            raise Refused(stage, f"{whose} are not certificates in plain PEM")
        if len(certificates) != length:
            raise Refused(stage, f"{whose} are too few or too many", expected=length, found=len(certificates))
        return chain

    @property
    def pem(self) -> bytes:
        """The chain in PEM, with lines of 64 characters that end with a line feed."""
        return b"".join(_pem(certificate) for certificate in self.certificates)

    @property
    def root(self) -> bytes:
        """The last certificate (DER)."""
        return self.certificates[-1]

    @property
    def intel(self) -> bool:
        """Whether it ends at Intel's root."""
        return self.fingerprint == INTEL_ROOT

    @property
    def development(self) -> bool:
        """Whether it ends at a root that says itself that it is for development."""
        return DEVELOPMENT_ROOT.encode() in self.root

    @property
    def fingerprint(self) -> str:
        """`sha256:…` of the root."""
        return f"sha256:{sha256(self.root).hexdigest()}"


def _pem(certificate: bytes) -> bytes:
    text = base64.b64encode(certificate)
    lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
    return b"\n".join((b"-----BEGIN CERTIFICATE-----", *lines, b"-----END CERTIFICATE-----", b""))


QUOTE_BYTES = 16_384
"""Bytes of one quote; one of TDX has about 5,000, padded to 8,000 at most."""
_STAGE = "quote"
_HEADER, _REPORT = 48, 584
_QE_REPORT, _KEY = 64 + 64, 384 + 64
_OUTER, _INNER = 6, 5
_CERTIFICATES = 3
"""The certificates of a PCK chain: the platform's, the CA's, the root's."""


@dataclass(frozen=True)
class Quote:
    """A quote, not verified. `report` has the fields of a TD report (the library's `TdReport10` or a later one)."""

    raw: bytes
    version: int
    report: Any
    chain: CertificateChain
    size: int
    """The size in bytes, without padding."""

    @property
    def debug(self) -> bool:
        """Whether the host may look into the TD: one of the attributes' first eight bits is set."""
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
        parsed = load_library().parse_quote(raw)
    except ValueError as error:
        raise Refused(_STAGE, f"it is not a quote: {' '.join(str(error).split())}") from None
    if not parsed.is_tdx():
        raise Refused(_STAGE, "it is a quote of another kind of enclave", expected="TDX", found=parsed.quote_type())
    pem, size = _certification_data(raw, parsed.header.version)
    return Quote(
        raw, parsed.header.version, parsed.report, CertificateChain.of(pem, _CERTIFICATES, "certificates", "the quote's"), size
    )


def _certification_data(raw: bytes, version: int) -> tuple[bytes, int]:
    """The certificates, and where the quote ends. Every length must lead exactly to its end; raises Refused."""
    reader = _ByteReader(raw)
    reader.take(_HEADER)
    if version == 5:
        reader.number(2)
        reader.take(reader.number(4))
    else:
        reader.take(_REPORT)
    signed = _ByteReader(reader.take(reader.number(4)))
    signed.take(_QE_REPORT)
    signed.typed(_OUTER)
    certified = _ByteReader(signed.take(signed.number(4)))
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
class _ByteReader:
    """Reads bytes from the front. Raises Refused at the end."""

    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise Refused(_STAGE, "a length in it is beyond its end")
        taken, self.at = self.data[self.at : end], end
        return taken

    def number(self, size: int) -> int:
        (value,) = struct.unpack({2: "<H", 4: "<I"}[size], self.take(size))
        return int(value)

    def typed(self, wanted: int) -> None:
        kind = self.number(2)
        if kind != wanted:
            raise Refused(_STAGE, "its certification data are of a type that is not used", expected=wanted, found=kind)

    def done(self) -> None:
        if self.at != len(self.data):
            raise Refused(_STAGE, "a length in it leaves something over")
