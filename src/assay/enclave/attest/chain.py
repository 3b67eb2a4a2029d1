"""Chains of certificates in PEM, leaf first, root last: one spelling, and one of two kinds of root.

Signatures, validity and revocation are the library's to check. It starts from its own copy of the root and reads PEM generously,
so it would take chains with anything for a root, or with other line ends. Those are refused here: of what is verified, no bit can
be another.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from hashlib import sha256

from assay.errors import Refused

__all__ = ["DEVELOPMENT", "INTEL", "Chain"]

INTEL = "sha256:44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3"
"""The fingerprint (of the DER) of Intel's SGX Root CA, which platforms with TDX are certified under too."""
DEVELOPMENT = "Assay development root, not Intel"
"""The name of every development root."""
_CERTIFICATE = re.compile(b"-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/=\n]+)-----END CERTIFICATE-----\n?")
_LINE = 64


@dataclass(frozen=True)
class Chain:
    """Certificates (DER), leaf first."""

    certificates: tuple[bytes, ...]

    @classmethod
    def of(cls, pem: bytes, length: int, stage: str, whose: str) -> Chain:
        """The chain of `length` certificates in PEM, spelled as PEM is; raises Refused. Zero bytes after the end are allowed."""
        text = pem.rstrip(b"\0")
        found = []
        for body in _CERTIFICATE.findall(text):
            try:
                found.append(base64.b64decode(body.replace(b"\n", b""), validate=True))
            except ValueError:
                break
        made = cls(tuple(found))
        if made.pem.rstrip(b"\n") != text.removesuffix(b"\n"):
            raise Refused(stage, f"{whose} are not certificates in plain PEM")
        if len(found) != length:
            raise Refused(stage, f"{whose} are too few or too many", expected=length, found=len(found))
        return made

    @property
    def pem(self) -> bytes:
        """The chain in PEM, with lines of 64 characters that end with a line feed."""
        return b"".join(_pem(one) for one in self.certificates)

    @property
    def root(self) -> bytes:
        """The last certificate (DER)."""
        return self.certificates[-1]

    @property
    def intel(self) -> bool:
        """Whether it ends at Intel's root."""
        return self.fingerprint == INTEL

    @property
    def development(self) -> bool:
        """Whether it ends at a root that says itself that it is for development."""
        return DEVELOPMENT.encode() in self.root

    @property
    def fingerprint(self) -> str:
        """`sha256:…` of the root."""
        return f"sha256:{sha256(self.root).hexdigest()}"


def _pem(certificate: bytes) -> bytes:
    text = base64.b64encode(certificate)
    lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
    return b"\n".join((b"-----BEGIN CERTIFICATE-----", *lines, b"-----END CERTIFICATE-----", b""))
