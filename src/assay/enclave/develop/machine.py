"""One TD of the development endpoint: what it measures as, its log, its quotes, and the keys that dstack would derive for it."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256, sha384
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from assay.enclave.attest import events
from assay.enclave.attest.events import Event
from assay.enclave.develop.authority import CPU_SVN, QE_SIGNER, TDX_SVN, Authority, derived, raw_signature
from assay.exact import canonical

__all__ = ["COMPOSE", "Machine", "event"]

COMPOSE = b'{"manifest_version":2,"name":"assay-development","runner":"docker-compose"}'
"""The app-compose.json of a machine that was not given one."""
PROVIDER = {"id": "", "name": "assay development, not a KMS"}
_VENDOR = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")  # Intel's quoting enclaves; the library knows no other
_DEBUG = 0x01
_SEPT_VE_DISABLE = 0x10  # of the fourth byte; the library asks for it
_K256_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def event(name: str, payload: bytes, version: int = 1) -> Event:
    """An event as dstack logs it, with its digest."""
    found = Event.model_validate(
        {"imr": 3, "event_type": events.RUNTIME, "event": name, "event_payload": payload.hex(), "version": version}
    )
    return found.model_copy(update={"digest": found.computed().hex()})


def _register(name: str) -> bytes:
    return sha384(f"assay development {name}".encode()).digest()


@dataclass(frozen=True)
class Machine:
    """A TD with its app-compose.json. Everything in it can be named, so that a test can make one that lies."""

    authority: Authority
    compose: bytes = COMPOSE
    debug: bool = False
    version: int = 4
    """Of the quote: 4, or 5."""
    changes: dict[str, bytes] = field(default_factory=dict)
    """Fields of the TD report that are other than they would be."""

    @property
    def compose_hash(self) -> bytes:
        """SHA-256 of app-compose.json: what dstack logs, and what a bounty pins."""
        return sha256(self.compose).digest()

    @property
    def app_id(self) -> bytes:
        """20 bytes, of the compose hash, as dstack has it where no other was chosen."""
        return self.compose_hash[:20]

    @property
    def instance_id(self) -> bytes:
        """20 bytes."""
        return sha256(derived(self.authority.secret, "instance", 20) + self.app_id).digest()[:20]

    @cached_property
    def log(self) -> tuple[Event, ...]:
        """What dstack logs when it starts."""
        return (
            event("system-preparing", b""),
            event("app-id", self.app_id),
            event(events.COMPOSE, self.compose_hash),
            event("instance-id", self.instance_id),
            event("boot-mr-done", b""),
            event("os-image-hash", sha256(b"assay development image").digest()),
            event("key-provider", canonical(PROVIDER)),
            event("system-ready", b""),
        )

    def log_text(self) -> str:
        """The log as `/GetQuote` gives it."""
        return json.dumps([one.document() for one in self.log])

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
            "rt_mr3": events.replay(self.log),
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
        found = derived(app, f"path/{path}")
        chain = [
            _signed(app, f"{purpose}:{_public(found).hex()}".encode()),
            _signed(derived(self.authority.secret, "kms"), b"dstack-kms-issued:" + self.app_id + _public(app)),
        ]
        return found, chain

    def info(self) -> dict[str, Any]:
        """What `/Info` answers."""
        measured = {
            "mrtd": self.report["mr_td"],
            **{f"rtmr{number}": self.report[f"rt_mr{number}"] for number in range(4)},
            "mr_aggregated": sha256(b"".join(self.report.values())).digest(),
            "os_image_hash": sha256(b"assay development image").digest(),
            "compose_hash": self.compose_hash,
            "device_id": sha256(derived(self.authority.secret, "device")).digest(),
        }
        texts = {name: value.hex() for name, value in measured.items()}
        log = [one.document() for one in self.log]
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


def _public(secret: bytes) -> bytes:
    return _k256(secret).public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


def _signed(secret: bytes, message: bytes) -> bytes:
    """65 bytes like dstack's; over SHA-256 rather than Keccak, and so of no use on a chain."""
    return raw_signature(_k256(secret), message) + b"\0"
