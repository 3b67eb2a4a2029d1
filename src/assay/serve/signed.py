"""Requests that carry a signature of their sender (RFC 9421, RFC 9530): the client signs, the service checks.

A signature covers the method, the whole address and the digest of the body, and states when it was made, by which key, and a
nonce. The key is the identity: there is no password, no session and no cookie. Ed25519 signs as the RFC has it; hotkeys of
Bittensor sign under the extension name `sr25519`.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from http_message_signatures import HTTPMessageSigner, HTTPMessageVerifier
from http_message_signatures.algorithms import HTTPSignatureAlgorithm
from http_message_signatures.exceptions import HTTPMessageSignaturesException, InvalidSignature
from http_message_signatures.resolvers import HTTPSignatureKeyResolver

from assay.errors import BadInput, brief
from assay.ledger.keys import ED25519, SR25519, PrivateKey, PublicKey, public

__all__ = ["SKEW", "WINDOW", "SignedRequest", "check_request", "content_digest", "sign_request"]

WINDOW = timedelta(minutes=5)
"""A signature is accepted for so long after it was made; its nonce is remembered for as long."""
SKEW = timedelta(seconds=30)
"""The largest difference between the clocks of client and service."""
COVERED = ("@method", "@target-uri", "content-digest")
"""The components that a signature covers."""
_NONCE = re.compile("[A-Za-z0-9_-]{16,64}")
_DIGEST = re.compile("sha-256=:([A-Za-z0-9+/]{43}=):")
_SIGN = "sign the request as docs/service.md describes; `assay submit --url` and `assay evidence send` do it"


@dataclass(frozen=True)
class SignedRequest:
    """A request with a correct signature: by whom, when, its nonce, and the SHA-256 that the body must have."""

    key: PublicKey
    created: datetime
    nonce: str
    body_sha256: bytes


@dataclass(frozen=True)
class _Message:
    """A request, as far as the signature library reads it."""

    method: str
    url: str
    headers: dict[str, str]


class _Algorithm(HTTPSignatureAlgorithm):  # type: ignore[misc, unused-ignore]
    """Signatures by the keys of `assay.ledger.keys`."""

    def __init__(self, public_key: PublicKey | None = None, private_key: PrivateKey | None = None) -> None:
        self._public, self._private = public_key, private_key

    def sign(self, message: bytes) -> bytes:
        assert self._private is not None
        return self._private.sign(message)

    def verify(self, signature: bytes, message: bytes) -> None:
        if self._public is None or self._public.kind != self.algorithm_id or not self._public.verifies(signature, message):
            raise InvalidSignature("the signature is not one of this key")


class _Ed25519(_Algorithm):
    algorithm_id = ED25519


class _Sr25519(_Algorithm):
    algorithm_id = SR25519


_ALGORITHMS: Mapping[str, type[_Algorithm]] = {ED25519: _Ed25519, SR25519: _Sr25519}


class _Keys(HTTPSignatureKeyResolver):  # type: ignore[misc, unused-ignore]
    """The key of the signature itself; whose key it is, the caller decides afterwards."""

    def __init__(self, private_key: PrivateKey | None = None) -> None:
        self._private = private_key

    def resolve_public_key(self, key_id: str) -> PublicKey:
        return public(key_id)

    def resolve_private_key(self, key_id: str) -> Any:
        return self._private


def content_digest(sha256: bytes) -> str:
    """The value of the header Content-Digest for a body with this SHA-256 (32 bytes). RFC 9530."""
    return f"sha-256=:{base64.b64encode(sha256).decode()}:"


def sign_request(
    key: PrivateKey, method: str, url: str, sha256: bytes, *, created: datetime | None = None, nonce: str | None = None
) -> dict[str, str]:
    """The headers of a signed request: Content-Digest, Signature-Input, Signature. sha256: of the body, 32 bytes."""
    message = _Message(method, url, {"Content-Digest": content_digest(sha256)})
    signer = HTTPMessageSigner(signature_algorithm=_ALGORITHMS[key.public.kind], key_resolver=_Keys(key))
    signer.sign(
        message,
        key_id=key.public.id,
        created=created or datetime.now(UTC),
        nonce=nonce or secrets.token_urlsafe(24),
        label="assay",
        covered_component_ids=COVERED,
        use_existing_digest=True,
    )
    return message.headers


def check_request(method: str, url: str, headers: Mapping[str, str]) -> SignedRequest:
    """Check the signature of a request, without its body. url: as the service is addressed, see RFC 9421 @target-uri.

    Raises BadInput (stage `signature`) if there is no signature, or it is not right, not of now, or covers too little.
    """
    wanted = ("content-digest", "signature-input", "signature")
    present = {name: headers[name] for name in wanted if name in headers}
    if len(present) < len(wanted):
        missing = next(name for name in wanted if name not in present)
        raise _refused(f"the request is not signed: it has no header {missing}")
    named = re.search('keyid="([^"]{1,100})"', present["signature-input"])
    try:
        key = public(named[1]) if named else None
    except BadInput as error:
        raise _refused(f"keyid: {error.what}") from None
    if key is None:
        raise _refused("the signature names no key (keyid)")
    verifier = HTTPMessageVerifier(signature_algorithm=_ALGORITHMS[key.kind], key_resolver=_Keys())
    verifier.max_clock_skew = SKEW
    try:
        (result,) = verifier.verify(_Message(method, url, present), max_age=WINDOW, require_components=COVERED)
    except HTTPMessageSignaturesException as error:
        raise _refused(f"the signature of {brief(key.id, 80)} is refused: {brief(str(error), 200)[1:-1]}") from None
    nonce, created = result.parameters.get("nonce"), result.parameters["created"]
    if public(str(result.parameters["keyid"])) != key:
        raise _refused("the signature names two keys")
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise _refused("the signature has no nonce of 16 to 64 letters, digits, - and _")
    digest = _DIGEST.fullmatch(present["content-digest"])
    if digest is None:
        raise _refused("Content-Digest is not one SHA-256, as RFC 9530 writes it")
    return SignedRequest(key, datetime.fromtimestamp(int(created), UTC), nonce, base64.b64decode(digest[1]))


def _refused(what: str) -> BadInput:
    return BadInput(what, hint=_SIGN, stage="signature")
