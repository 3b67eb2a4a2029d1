"""A development TD and the authority that certifies it: they give what a real platform and Intel's services give.

The machine has measurements, a log, quotes, and the keys that dstack would derive for it. The authority has the certificates and
the collateral, under a development root. The little DER encoder writes one extension, in which Intel describes a platform.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256, sha384
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import ObjectIdentifier, UnrecognizedExtension

from assay.enclave.attest import document
from assay.enclave.attest.collateral import Collateral
from assay.enclave.attest.document import LogEvent
from assay.enclave.attest.quote import DEVELOPMENT_ROOT, CertificateChain
from assay.exact import canonical
from assay.scheme.fields import instant_text

SGX = "1.2.840.113741.1.13.1"


def platform_extension(*, ppid: bytes, cpu_svn: bytes, pce_svn: int, pce_id: bytes, fmspc: bytes) -> UnrecognizedExtension:
    """The extension of a PCK certificate. cpu_svn: 16 bytes, ppid: 16, fmspc: 6, pce_id: 2."""
    components = [(f"2.{number}", _integer(svn)) for number, svn in enumerate(cpu_svn, start=1)]
    tcb = [*components, ("2.17", _integer(pce_svn)), ("2.18", _octets(cpu_svn))]
    fields = [
        ("1", _octets(ppid)),
        ("2", _sequence(*(_pair(name, value) for name, value in tcb))),
        ("3", _octets(pce_id)),
        ("4", _octets(fmspc)),
        ("5", _tagged(0x0A, b"\0")),  # standard, as of a platform with one package
    ]
    return UnrecognizedExtension(ObjectIdentifier(SGX), _sequence(*(_pair(name, value) for name, value in fields)))


def _pair(name: str, value: bytes) -> bytes:
    return _sequence(_name(f"{SGX}.{name}"), value)


def _tagged(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 0x80 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def _sequence(*parts: bytes) -> bytes:
    return _tagged(0x30, b"".join(parts))


def _octets(value: bytes) -> bytes:
    return _tagged(0x04, value)


def _integer(value: int) -> bytes:
    return _tagged(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _name(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    return _tagged(0x06, b"".join(_base128(number) for number in (40 * first + second, *rest)))


def _base128(number: int) -> bytes:
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(number & 0x7F | 0x80)
    return bytes(reversed(groups))


CPU_SVN = bytes([3, 3, 2, 2, 4, 1, 0, 5]) + bytes(8)
TDX_SVN = bytes([6, 0, 3]) + bytes(13)
PCE_SVN = 11
FMSPC = bytes.fromhex("0de7e1000000")
QE_SIGNER = sha256(b"assay development quoting enclave").digest()
ADVISORY = "ASSAY-DEVELOPMENT-1"
"""The advisory that accompanies every status except UpToDate."""
DAYS = 30
"""Days for which collateral is valid."""
_SINCE, _UNTIL = datetime(2025, 1, 1, tzinfo=UTC), datetime(2049, 12, 31, tzinfo=UTC)
_NAMES = {
    "root": DEVELOPMENT_ROOT,
    "platform-ca": "development PCK Platform CA",
    "platform": "development PCK certificate",
    "tcb-signing": "development TCB signing",
}
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256


def derived(secret: bytes, name: str, size: int = 32) -> bytes:
    """Bytes that only a holder of the secret can compute."""
    return HKDF(SHA256(), size, None, f"assay/development/{name}".encode()).derive(secret)


def raw_signature(key: ec.EllipticCurvePrivateKey, message: bytes) -> bytes:
    """An ECDSA signature with SHA-256 as 64 bytes."""
    first, second = decode_dss_signature(key.sign(message, ec.ECDSA(SHA256(), deterministic_signing=True)))
    return first.to_bytes(32, "big") + second.to_bytes(32, "big")


@dataclass(frozen=True)
class Authority:
    """The certifying authority, derived from one secret. status: of every platform's firmware."""

    secret: bytes
    status: str = "UpToDate"
    revoked: bool = False
    """Whether the platform's certificate is on the revocation list."""

    def key(self, name: str) -> ec.EllipticCurvePrivateKey:
        """The key of this name."""
        number = int.from_bytes(derived(self.secret, name, 48), "big") % (_ORDER - 1) + 1
        return ec.derive_private_key(number, ec.SECP256R1())

    @cached_property
    def platform(self) -> CertificateChain:
        """The chain that quotes carry: the platform's certificate, its authority's, the root."""
        extension = platform_extension(
            ppid=derived(self.secret, "ppid", 16), cpu_svn=CPU_SVN, pce_svn=PCE_SVN, pce_id=bytes(2), fmspc=FMSPC
        )
        leaf = self._certificate("platform", "platform-ca", extension)
        return CertificateChain((_der(leaf), _der(self._platform_ca), _der(self._root)))

    def collateral(self, now: int) -> Collateral:
        """The authority's collateral at a time (seconds since 1970), valid from an hour before for DAYS days."""
        since = datetime.fromtimestamp(now, UTC) - timedelta(hours=1)
        until = since + timedelta(days=DAYS)
        dates = {"issueDate": instant_text(since), "nextUpdate": instant_text(until), "tcbEvaluationDataNumber": 17}
        signer = self._certificate("tcb-signing", "root")
        signing = CertificateChain((_der(signer), _der(self._root))).pem.decode()
        tcb_info, qe_identity = _text(self._tcb_info(dates)), _text(_qe_identity(dates))
        return Collateral(
            pck_crl_issuer_chain=CertificateChain(self.platform.certificates[1:]).pem.decode(),
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
        """A certificate for the key of a name. authority: the number of authorities allowed below it; None: not an authority."""
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
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
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
            revoked = x509.RevokedCertificateBuilder().serial_number(self._serial("platform")).revocation_date(since)
            builder = builder.add_revoked_certificate(revoked.build())
        return builder.sign(key, SHA256(), ecdsa_deterministic=True).public_bytes(Encoding.DER)

    def _serial(self, name: str) -> int:
        return int.from_bytes(derived(self.secret, f"serial/{name}", 16), "big") | 1

    def _tcb_info(self, dates: dict[str, Any]) -> dict[str, Any]:
        components = {"sgxtcbcomponents": CPU_SVN, "tdxtcbcomponents": TDX_SVN}
        level = {name: [{"svn": svn} for svn in svns] for name, svns in components.items()}
        tcb_level = {"tcb": level | {"pcesvn": PCE_SVN}, "tcbDate": instant_text(_SINCE), "tcbStatus": self.status}
        if self.status != "UpToDate":
            tcb_level["advisoryIDs"] = [ADVISORY]
        module = {"mrsigner": "00" * 48, "attributes": "00" * 8, "attributesMask": "FF" * 8}
        head = {"id": "TDX", "version": 3, **dates, "fmspc": FMSPC.hex().upper(), "pceId": "0000", "tcbType": 0}
        return head | {"tdxModule": module, "tdxModuleIdentities": [], "tcbLevels": [tcb_level]}


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
    """JSON without spaces, as Intel signs it."""
    return json.dumps(content, separators=(",", ":"))


def _named(name: str) -> x509.Name:
    organisation = x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "Assay development, worth nothing")
    return x509.Name([organisation, x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAMES[name])])


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


DEVELOPMENT_COMPOSE = b'{"manifest_version":2,"name":"assay-development","runner":"docker-compose"}'
"""The app-compose.json of a machine that has no other."""
PROVIDER = {"id": "", "name": "assay development, not a KMS"}
_VENDOR = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")  # Intel's quoting enclaves; the library knows no other
_DEBUG = 0x01
_SEPT_VE_DISABLE = 0x10  # of the fourth byte; the library asks for it
_K256_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def runtime_event(name: str, payload: bytes, version: int = 1) -> LogEvent:
    """An event as dstack logs it, with its digest."""
    event = LogEvent.model_validate(
        {"imr": 3, "event_type": document.RUNTIME_EVENT, "event": name, "event_payload": payload.hex(), "version": version}
    )
    return event.model_copy(update={"digest": event.computed().hex()})


def _register(name: str) -> bytes:
    return sha384(f"assay development {name}".encode()).digest()


@dataclass(frozen=True)
class Machine:
    """A TD with its app-compose.json. Everything in it can be named, so that a test can make one that lies."""

    authority: Authority
    compose: bytes = DEVELOPMENT_COMPOSE
    debug: bool = False
    version: int = 4
    """Version of the quote: 4 or 5."""
    changes: dict[str, bytes] = field(default_factory=dict)
    """Fields of the TD report that are other than they would be."""

    @property
    def compose_hash(self) -> bytes:
        """SHA-256 of app-compose.json: what dstack logs, and what a bounty pins."""
        return sha256(self.compose).digest()

    @property
    def app_id(self) -> bytes:
        """The first 20 bytes of the compose hash: dstack's default."""
        return self.compose_hash[:20]

    @property
    def instance_id(self) -> bytes:
        """The instance's id, 20 bytes."""
        return sha256(derived(self.authority.secret, "instance", 20) + self.app_id).digest()[:20]

    @cached_property
    def log(self) -> tuple[LogEvent, ...]:
        """The events that dstack logs when it starts."""
        return (
            runtime_event("system-preparing", b""),
            runtime_event("app-id", self.app_id),
            runtime_event(document.COMPOSE_EVENT, self.compose_hash),
            runtime_event("instance-id", self.instance_id),
            runtime_event("boot-mr-done", b""),
            runtime_event("os-image-hash", sha256(b"assay development image").digest()),
            runtime_event("key-provider", canonical(PROVIDER)),
            runtime_event("system-ready", b""),
        )

    def log_text(self) -> str:
        """The log as `/GetQuote` gives it."""
        return json.dumps([event.document() for event in self.log])

    @cached_property
    def report(self) -> dict[str, bytes]:
        """The fields of a TD report in their order, but for report_data."""
        attributes = bytes([_DEBUG if self.debug else 0, 0, 0, _SEPT_VE_DISABLE]) + bytes(4)
        fields = {
            "tee_tcb_svn": TDX_SVN,
            "mr_seam": _register("TDX module"),
            "mr_signer_seam": bytes(48),
            "seam_attributes": bytes(8),
            "td_attributes": attributes,
            "xfam": bytes.fromhex("e702060000000000"),
            "mr_td": _register("firmware"),
            "mr_config_id": bytes([1]) + self.compose_hash + bytes(15),
            "mr_owner": bytes(48),
            "mr_owner_config": bytes(48),
            "rt_mr0": _register("virtual hardware"),
            "rt_mr1": _register("kernel"),
            "rt_mr2": _register("root file system"),
            "rt_mr3": document.replay_log(self.log),
        }
        return fields | self.changes

    def quote(self, report_data: bytes) -> bytes:
        """A quote of 64 bytes of report data (fewer are filled up with zeros), signed as a platform's quoting enclave signs."""
        header = struct.pack("<HHIHH16s20s", self.version, 2, 0x81, 0, 0, _VENDOR, bytes(20))
        body = b"".join(self.report.values()) + report_data.ljust(64, b"\0")
        if self.version == 5:
            body = struct.pack("<HI", 2, len(body)) + body
        attesting = self.authority.key("attestation")
        public = attesting.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]
        certified = self._certified(public)
        signed = raw_signature(attesting, header + body) + public + struct.pack("<HI", 6, len(certified)) + certified
        return header + body + struct.pack("<I", len(signed)) + signed

    def _certified(self, attestation_key: bytes) -> bytes:
        """The quoting enclave's report, which binds the attestation key, the platform's signature of it, and its chain."""
        data = bytes(range(32))
        bound = sha256(attestation_key + data).digest() + bytes(32)
        attributes = bytes([0x11]) + bytes(15)
        report = b"".join(
            (CPU_SVN, bytes(4), bytes(28), attributes, sha256(b"assay development").digest(), bytes(32), QE_SIGNER, bytes(96))
        )
        report += struct.pack("<HH", 2, 4) + bytes(60) + bound
        pem = self.authority.platform.pem
        signature = raw_signature(self.authority.key("platform"), report)
        return report + signature + struct.pack("<H", len(data)) + data + struct.pack("<HI", 5, len(pem)) + pem

    def key(self, path: str, purpose: str) -> tuple[bytes, list[bytes]]:
        """The app's key of a path (32 bytes), and signatures in the shape of dstack's: of the key's by the app's, of the app's.

        As in dstack, `purpose` is only signed: another purpose with the same path is the same key.
        """
        app = derived(self.authority.secret, f"app/{self.app_id.hex()}")
        key = derived(app, f"path/{path}")
        chain = [
            _dstack_signature(app, f"{purpose}:{_public_key(key).hex()}".encode()),
            _dstack_signature(derived(self.authority.secret, "kms"), b"dstack-kms-issued:" + self.app_id + _public_key(app)),
        ]
        return key, chain

    def info(self) -> dict[str, Any]:
        """The answer to `/Info`."""
        measured = {
            "mrtd": self.report["mr_td"],
            **{f"rtmr{number}": self.report[f"rt_mr{number}"] for number in range(4)},
            "mr_aggregated": sha256(b"".join(self.report.values())).digest(),
            "os_image_hash": sha256(b"assay development image").digest(),
            "compose_hash": self.compose_hash,
            "device_id": sha256(derived(self.authority.secret, "device")).digest(),
        }
        texts = {name: value.hex() for name, value in measured.items()}
        log = [event.document() for event in self.log]
        tcb = texts | {"event_log": log, "app_compose": self.compose.decode("utf-8", "replace")}
        return {
            "app_id": self.app_id.hex(),
            "instance_id": self.instance_id.hex(),
            "app_cert": "",
            "tcb_info": json.dumps(tcb),
            "app_name": "assay-development",
            **{name: texts[name] for name in ("device_id", "mr_aggregated", "os_image_hash", "compose_hash")},
            "key_provider_info": canonical(PROVIDER).decode(),
            "vm_config": "{}",
        }


def _k256(secret: bytes) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(secret, "big") % (_K256_ORDER - 1) + 1, ec.SECP256K1())


def _public_key(secret: bytes) -> bytes:
    return _k256(secret).public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


def _dstack_signature(secret: bytes, message: bytes) -> bytes:
    """A signature of 65 bytes like dstack's; it uses SHA-256 instead of Keccak, so no chain accepts it."""
    return raw_signature(_k256(secret), message) + b"\0"
