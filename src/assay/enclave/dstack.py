"""Talks to dstack's guest API through its SDK (keys and quotes), and reads or makes app-compose.json, whose hash dstack measures.

The endpoint is the Unix socket that dstack puts into the container, or the one that `DSTACK_SIMULATOR_ENDPOINT` names. It gives
out keys, so it must be on this machine. Every failure is a `DstackError`: an infrastructure error, which the caller retries and
which never becomes a score. Its message does not repeat dstack's answer, because that may be a key.

The compose hash is the SHA-256 of the bytes of app-compose.json as it is deployed. dstack logs it, and a bounty pins it. dstack's
tools write the file in one form (sorted keys, no spaces), and their SDK hashes that form. The same content in another form has
another hash.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

from assay.enclave.attest import Attestation, Collateral, EnclaveStatement, JudgementStatement, events_of, report_data
from assay.enclave.attest.quote import QUOTE_BYTES, read_quote
from assay.errors import AssayError, BadInput, Refused
from assay.folder import strict
from assay.folder.files import decode, load

if TYPE_CHECKING:
    from dstack_sdk import DstackClient


COMPOSE_BYTES = 1_000_000
"""Bytes of app-compose.json, and of docker-compose.yml."""
ENVIRONMENT = ("ASSAY_LLM_API_KEY",)
"""The only variable that an operator may set without changing the hash: the key of the model service."""
_IMAGE = re.compile(r"^[ \t]*(?:-[ \t]+)?[\"']?image[\"']?[ \t]*:[ \t]*(.*?)[ \t]*(?:#.*)?$", re.MULTILINE)
_ANYWHERE = re.compile(r"\bimage[\"']?[ \t]*:")
_BUILD = re.compile(r"^[ \t]*[\"']?build[\"']?[ \t]*:", re.MULTILINE)
_PINNED = re.compile(r"[a-z0-9][a-z0-9._/:-]*@sha256:([0-9a-f]{64})")


def read_compose(file: Path, name: str = "assay-enclave") -> bytes:
    """The bytes of app-compose.json: unchanged, or made from a docker-compose.yml. Raises BadInput.

    Every image must be pinned by its digest: otherwise the hash would not say what runs.
    """
    data = load(file, COMPOSE_BYTES, hint="give app-compose.json, or docker-compose.yml")
    text = decode(data, file)
    if not text.lstrip().startswith("{"):
        check_images(text, file)
        return app_compose(text, name)
    try:
        document = strict.parse(text)
    except BadInput as error:
        raise error.at(file=file) from None
    inner = document.get("docker_compose_file") if isinstance(document, dict) else None
    if not isinstance(inner, str):
        hint = "dstack's tools write it; it holds docker-compose.yml as a text"
        raise BadInput("has no docker_compose_file", file=file, hint=hint)
    check_images(inner, file)
    return data


def compose_hash(data: bytes) -> str:
    """SHA-256 of app-compose.json, in hex."""
    return sha256(data).hexdigest()


def app_compose(docker_compose: str, name: str) -> bytes:
    """An app-compose.json for a docker-compose.yml, in the form that dstack's SDK hashes; raises BadInput without the extra."""
    content: dict[str, Any] = {
        "manifest_version": 2,
        "name": name,
        "runner": "docker-compose",
        "docker_compose_file": docker_compose,
        "kms_enabled": True,
        "gateway_enabled": True,
        "public_logs": False,
        "public_sysinfo": True,
        "public_tcbinfo": True,
        "local_key_provider_enabled": False,
        "allowed_envs": list(ENVIRONMENT),
        "no_instance_id": False,
        "secure_time": True,
    }
    try:
        from dstack_sdk.get_compose_hash import AppCompose, to_deterministic_json
    except ImportError:
        hint = "install it: pip install 'assay[tee]'"
        raise BadInput("app-compose.json is written by a library that is not installed", hint=hint) from None
    return to_deterministic_json(AppCompose.from_dict(content)).encode()


def check_images(docker_compose: str, file: Path | str | None = None) -> list[str]:
    """The images of a docker-compose.yml; raises BadInput if one is not pinned by its digest, or built on the spot."""
    if _BUILD.search(docker_compose):
        raise BadInput("builds an image when it starts", file=file, hint="build it before, and name it by its digest")
    images = [image.strip("\"'") for image in _IMAGE.findall(docker_compose)]
    if not images or len(images) != len(_ANYWHERE.findall(docker_compose)):
        hint = "give each service a line of its own: image: NAME@sha256:…"
        raise BadInput("names no image, or one in the middle of a line", file=file, field="image", hint=hint)
    for image in images:
        pinned = _PINNED.fullmatch(image)
        if pinned is None:
            raise BadInput(
                f"{image[:200]!r} is not pinned", file=file, field="image", hint="write NAME@sha256:… in place of a tag"
            )
        if set(pinned[1]) == {"0"}:
            hint = "put the digest of the image that you built there; the README beside it says how"
            raise BadInput(f"{image[:200]!r} is a placeholder", file=file, field="image", hint=hint)
    return images


SECONDS = 30.0
"""Seconds of one exchange, connecting included. A real machine needs a second or two for a quote."""
_KEY = 32
_T = TypeVar("_T")


class DstackError(AssayError):
    """dstack does not answer, or its answer is malformed. This is an infrastructure error, and it is retried."""


@dataclass(frozen=True)
class Quoted:
    """A quote of the requested report data, the log that leads to RTMR3 (JSON), and dstack's description of the machine."""

    quote: bytes
    event_log: str
    vm_config: str


@dataclass(frozen=True)
class Info:
    """dstack's description of what it runs; only a quote proves it. All fields but the last two are hex."""

    app_id: str
    instance_id: str
    compose_hash: str
    os_image_hash: str
    app_name: str
    key_provider: str


class Dstack:
    """dstack's guest API. Raises BadInput for an endpoint that is not on this machine, DstackError for every other failure."""

    def __init__(self, endpoint: str | None = None, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._client = _client(endpoint, seconds)
        self._client.__enter__()  # what it returns is not the client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections. It cannot be used afterwards."""
        self._client.__exit__(None, None, None)

    def get_key(self, path: str, purpose: str) -> bytes:
        """The 32 bytes that dstack derives for this app and path, the same whenever and wherever it runs.

        dstack only signs the purpose: with one path, every purpose has the same key. Name each key by a path of its own.
        """
        key = self._asked("GetKey", lambda: bytes.fromhex(self._client.get_key(path, purpose).key))
        if len(key) != _KEY:
            raise DstackError(f"dstack gave a key of {len(key)} bytes rather than {_KEY}")
        return key

    def quote(self, data: bytes) -> Quoted:
        """A quote that binds these 64 bytes."""
        if len(data) != 64:
            raise ValueError("report data are 64 bytes")
        answer = self._asked("GetQuote", lambda: self._client.get_quote(data))
        if len(answer.quote) > 2 * QUOTE_BYTES:
            raise DstackError(f"dstack gave a quote of more than {QUOTE_BYTES} bytes")
        try:
            quote = bytes.fromhex(answer.quote)
            quoted = read_quote(quote).report.report_data
        except (ValueError, Refused) as error:
            raise DstackError(f"dstack gave no quote: {error}") from None
        if quoted != data:
            raise DstackError("dstack gave a quote of something else than it was asked for")
        return Quoted(quote, answer.event_log, answer.vm_config)

    def attest(self, statement: EnclaveStatement | JudgementStatement, collateral: Collateral | None = None) -> Attestation:
        """The attestation of a statement, with the given collateral. Raises DstackError."""
        quoted = self.quote(report_data(statement))
        try:
            log = events_of(quoted.event_log)
        except BadInput as error:
            raise DstackError(f"dstack's log cannot be read: {error.what}") from None
        return Attestation(
            statement=statement, quote=quoted.quote.hex(), event_log=log, vm_config=quoted.vm_config, collateral=collateral
        )

    def info(self) -> Info:
        """dstack's description of what it runs."""
        answer = self._asked("Info", self._client.info)
        names = ("app_id", "instance_id", "compose_hash", "os_image_hash", "app_name")
        return Info(**{name: getattr(answer, name) for name in names}, key_provider=answer.key_provider_info)

    def _asked(self, what: str, ask: Callable[[], _T]) -> _T:
        import httpx

        try:
            return ask()
        except httpx.TimeoutException:
            raise DstackError(f"dstack did not answer {what} within {self._seconds:g} seconds") from None
        except httpx.HTTPStatusError as error:
            raise DstackError(f"dstack refused {what} with status {error.response.status_code}") from None
        except httpx.HTTPError as error:
            raise DstackError(f"dstack cannot be reached for {what} ({error})") from None
        except (ValueError, TypeError, KeyError, RecursionError):  # pydantic's and json's errors are ValueErrors
            raise DstackError(f"dstack's answer to {what} is malformed") from None


def _client(endpoint: str | None, seconds: float) -> DstackClient:
    """The SDK's client with bounded answers. The SDK itself bounds only the time without a byte."""
    try:
        from dstack_sdk import DstackClient
        from dstack_sdk.dstack_client import get_endpoint
    except ImportError:
        hint = "install it: pip install 'assay[tee]'"
        raise BadInput("dstack is asked through a library that is not installed", hint=hint) from None
    where = get_endpoint(endpoint).removeprefix("unix:")
    _check(where)
    try:
        client = DstackClient(where, timeout=seconds)
    except FileNotFoundError as error:
        raise DstackError(f"there is no dstack here: {error}", hint="give its socket with --dstack") from None
    from assay.enclave.transport import PeerTransport

    inner: Any = client.async_client
    inner.sync_transport = PeerTransport(seconds, None if "://" in where else where)
    return client


def _check(endpoint: str) -> None:
    """Refuse an endpoint on another machine."""
    if "://" not in endpoint:
        return
    hint = "give the path of dstack's socket, or http://127.0.0.1:PORT of a simulator"
    try:
        parts = urlsplit(endpoint)
        host = parts.hostname or ""
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local or parts.scheme not in ("http", "https"):
        raise BadInput(f"{endpoint[:100]!r} is not dstack on this machine, and keys come from there", field="dstack", hint=hint)
