"""A development root, what it certifies, and its collateral: everything that Intel's services give for a real platform.

All keys come from one secret, and all signatures but those of quotes are deterministic: the same secret is the same authority.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding

from assay.enclave.attest.chain import DEVELOPMENT, Chain
from assay.enclave.attest.collateral import Collateral
from assay.enclave.develop.der import platform_extension
from assay.scheme.times import instant_text

__all__ = ["ADVISORY", "CPU_SVN", "QE_SIGNER", "TDX_SVN", "Authority", "derived", "raw_signature"]

CPU_SVN = bytes([3, 3, 2, 2, 4, 1, 0, 5]) + bytes(8)
TDX_SVN = bytes([6, 0, 3]) + bytes(13)
PCE_SVN = 11
FMSPC = bytes.fromhex("0de7e1000000")
QE_SIGNER = sha256(b"assay development quoting enclave").digest()
ADVISORY = "ASSAY-DEVELOPMENT-1"
"""The advisory that stands beside any status but UpToDate."""
DAYS = 30
"""How long collateral is good."""
_SINCE, _UNTIL = datetime(2025, 1, 1, tzinfo=UTC), datetime(2049, 12, 31, tzinfo=UTC)
_NAMES = {
    "root": DEVELOPMENT,
    "platform-ca": "development PCK Platform CA",
    "platform": "development PCK certificate",
    "tcb-signing": "development TCB signing",
}
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256


def derived(secret: bytes, name: str, size: int = 32) -> bytes:
    """Bytes that only who has the secret can name."""
    return HKDF(SHA256(), size, None, f"assay/development/{name}".encode()).derive(secret)


def raw_signature(key: ec.EllipticCurvePrivateKey, message: bytes) -> bytes:
    """An ECDSA signature with SHA-256 as 64 bytes."""
    first, second = decode_dss_signature(key.sign(message, ec.ECDSA(SHA256(), deterministic_signing=True)))
    return first.to_bytes(32, "big") + second.to_bytes(32, "big")


@dataclass(frozen=True)
class Authority:
    """All of it, from one secret. status: what it says of every platform's firmware."""

    secret: bytes
    status: str = "UpToDate"
    revoked: bool = False
    """Whether the platform's certificate is on the list of the revoked."""

    def key(self, name: str) -> ec.EllipticCurvePrivateKey:
        """The key of this name."""
        number = int.from_bytes(derived(self.secret, name, 48), "big") % (_ORDER - 1) + 1
        return ec.derive_private_key(number, ec.SECP256R1())

    @cached_property
    def platform(self) -> Chain:
        """The chain that quotes carry: the platform's certificate, its authority's, the root."""
        extension = platform_extension(
            ppid=derived(self.secret, "ppid", 16), cpu_svn=CPU_SVN, pce_svn=PCE_SVN, pce_id=bytes(2), fmspc=FMSPC
        )
        leaf = self._certificate("platform", "platform-ca", extension)
        return Chain((_der(leaf), _der(self._platform_ca), _der(self._root)))

    def collateral(self, now: int) -> Collateral:
        """What an authority says at a time (seconds since 1970), good from an hour before for DAYS days."""
        since = datetime.fromtimestamp(now, UTC) - timedelta(hours=1)
        until = since + timedelta(days=DAYS)
        dates = {"issueDate": instant_text(since), "nextUpdate": instant_text(until), "tcbEvaluationDataNumber": 17}
        signer = self._certificate("tcb-signing", "root")
        signing = Chain((_der(signer), _der(self._root))).pem.decode()
        tcb_info, qe_identity = _text(self._tcb_info(dates)), _text(_qe_identity(dates))
        return Collateral(
            pck_crl_issuer_chain=Chain(self.platform.certificates[1:]).pem.decode(),
            root_ca_crl=self._crl("root", since, until).hex(),
            pck_crl=self._crl("platform-ca", since, until).hex(),
            tcb_info_issuer_chain=signing,
            tcb_info=tcb_info,
            tcb_info_signature=raw_signature(self.key("tcb-signing"), tcb_info.encode()).hex(),
            qe_identity_issuer_chain=signing,
            qe_identity=qe_identity,
            qe_identity_signature=raw_signature(self.key("tcb-signing"), qe_identity.encode()).hex(),
        )

    @cached_property
    def _root(self) -> x509.Certificate:
        return self._certificate("root", "root", authority=1)

    @cached_property
    def _platform_ca(self) -> x509.Certificate:
        return self._certificate("platform-ca", "root", authority=0)

    def _certificate(
        self, name: str, issuer: str, *extensions: x509.ExtensionType, authority: int | None = None
    ) -> x509.Certificate:
        """A certificate for the key of a name. authority: how many authorities may be below it; None: it is none."""
        key, issuing = self.key(name), self.key(issuer)
        signs = authority is None
        usage = x509.KeyUsage(signs, signs, False, False, False, not signs, not signs, False, False)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(issuer))
            .public_key(key.public_key())
            .serial_number(self._serial(name))
            .not_valid_before(_SINCE)
            .not_valid_after(_UNTIL)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuing.public_key()), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(usage, critical=True)
            .add_extension(x509.BasicConstraints(ca=not signs, path_length=authority), critical=True)
        )
        for one in extensions:
            builder = builder.add_extension(one, critical=False)
        return builder.sign(issuing, SHA256(), ecdsa_deterministic=True)

    def _crl(self, name: str, since: datetime, until: datetime) -> bytes:
        key = self.key(name)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(_named(name))
            .last_update(since)
            .next_update(until)
            .add_extension(x509.CRLNumber(1), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        )
        if self.revoked and name == "platform-ca":
            one = x509.RevokedCertificateBuilder().serial_number(self._serial("platform")).revocation_date(since)
            builder = builder.add_revoked_certificate(one.build())
        return builder.sign(key, SHA256(), ecdsa_deterministic=True).public_bytes(Encoding.DER)

    def _serial(self, name: str) -> int:
        return int.from_bytes(derived(self.secret, f"serial/{name}", 16), "big") | 1

    def _tcb_info(self, dates: dict[str, Any]) -> dict[str, Any]:
        components = {"sgxtcbcomponents": CPU_SVN, "tdxtcbcomponents": TDX_SVN}
        level = {name: [{"svn": svn} for svn in svns] for name, svns in components.items()}
        found = {"tcb": level | {"pcesvn": PCE_SVN}, "tcbDate": instant_text(_SINCE), "tcbStatus": self.status}
        if self.status != "UpToDate":
            found["advisoryIDs"] = [ADVISORY]
        module = {"mrsigner": "00" * 48, "attributes": "00" * 8, "attributesMask": "FF" * 8}
        head = {"id": "TDX", "version": 3, **dates, "fmspc": FMSPC.hex().upper(), "pceId": "0000", "tcbType": 0}
        return head | {"tdxModule": module, "tdxModuleIdentities": [], "tcbLevels": [found]}


def _qe_identity(dates: dict[str, Any]) -> dict[str, Any]:
    level = {"tcb": {"isvsvn": 4}, "tcbDate": instant_text(_SINCE), "tcbStatus": "UpToDate"}
    return {
        "id": "TD_QE",
        "version": 2,
        **dates,
        "miscselect": "00" * 4,
        "miscselectMask": "FF" * 4,
        "attributes": "11" + "00" * 15,
        "attributesMask": "FBFFFFFFFFFFFFFF" + "00" * 8,
        "mrsigner": QE_SIGNER.hex().upper(),
        "isvprodid": 2,
        "tcbLevels": [level],
    }


def _text(content: dict[str, Any]) -> str:
    """Without spaces, as Intel signs it."""
    return json.dumps(content, separators=(",", ":"))


def _named(name: str) -> x509.Name:
    organisation = x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "Assay development, worth nothing")
    return x509.Name([organisation, x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAMES[name])])


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)
