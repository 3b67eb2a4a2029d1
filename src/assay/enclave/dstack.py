"""What the enclave asks of dstack, through its SDK: keys, quotes, and what it is. With bounds, and nothing taken on trust.

The endpoint is the Unix socket that dstack puts into the container, or what `DSTACK_SIMULATOR_ENDPOINT` names. Keys come out of
it, so it is this machine or nothing.

Whatever goes wrong is Trouble: the world's error, to be tried again by who asked, and never anybody's zero. What dstack answered
is not repeated in it, since that may be a key.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

from assay.enclave.attest import Attestation, Collateral, EnclaveStatement, JudgementStatement, events_of, report_data
from assay.enclave.attest.quote import QUOTE_BYTES, read_quote
from assay.errors import AssayError, BadInput, Refused

if TYPE_CHECKING:
    from dstack_sdk import DstackClient

__all__ = ["SECONDS", "Dstack", "Info", "Quoted", "Trouble"]

SECONDS = 30.0
"""For an exchange in all, connecting included: a quote takes a real machine a second or two."""
_KEY = 32
_T = TypeVar("_T")


class Trouble(AssayError):
    """dstack does not answer, or not as it should: nobody's fault who is judged. It is tried again."""


@dataclass(frozen=True)
class Quoted:
    """A quote of the report data that were asked for, the log that leads to RTMR3 (JSON), and dstack's words on the machine."""

    quote: bytes
    event_log: str
    vm_config: str


@dataclass(frozen=True)
class Info:
    """What dstack says it runs; only a quote proves it. All but the two texts in hex."""

    app_id: str
    instance_id: str
    compose_hash: str
    os_image_hash: str
    app_name: str
    key_provider: str


class Dstack:
    """dstack's guest API. Raises BadInput for an endpoint that cannot be one, Trouble for all else."""

    def __init__(self, endpoint: str | None = None, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._client = _client(endpoint, seconds)
        self._client.__enter__()  # what it returns is not the client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections; it cannot be asked again."""
        self._client.__exit__(None, None, None)

    def get_key(self, path: str, purpose: str) -> bytes:
        """The 32 bytes that dstack derives for this app and path, the same whenever and wherever it runs.

        dstack only signs the purpose: with one path, every purpose has the same key. Name each key by a path of its own.
        """
        key = self._asked("GetKey", lambda: bytes.fromhex(self._client.get_key(path, purpose).key))
        if len(key) != _KEY:
            raise Trouble(f"dstack gave a key of {len(key)} bytes rather than {_KEY}")
        return key

    def quote(self, data: bytes) -> Quoted:
        """A quote that binds these 64 bytes."""
        if len(data) != 64:
            raise ValueError("report data are 64 bytes")
        answer = self._asked("GetQuote", lambda: self._client.get_quote(data))
        if len(answer.quote) > 2 * QUOTE_BYTES:
            raise Trouble(f"dstack gave a quote of more than {QUOTE_BYTES} bytes")
        try:
            quote = bytes.fromhex(answer.quote)
            found = read_quote(quote).report.report_data
        except (ValueError, Refused) as error:
            raise Trouble(f"dstack gave no quote: {error}") from None
        if found != data:
            raise Trouble("dstack gave a quote of something else than it was asked for")
        return Quoted(quote, answer.event_log, answer.vm_config)

    def attest(self, statement: EnclaveStatement | JudgementStatement, collateral: Collateral | None = None) -> Attestation:
        """The attestation of a statement, with collateral if there is some; raises Trouble."""
        found = self.quote(report_data(statement))
        try:
            log = events_of(found.event_log)
        except BadInput as error:
            raise Trouble(f"dstack's log cannot be read: {error.what}") from None
        return Attestation(
            statement=statement, quote=found.quote.hex(), event_log=log, vm_config=found.vm_config, collateral=collateral
        )

    def info(self) -> Info:
        """What dstack says it runs."""
        answer = self._asked("Info", self._client.info)
        names = ("app_id", "instance_id", "compose_hash", "os_image_hash", "app_name")
        return Info(**{name: getattr(answer, name) for name in names}, key_provider=answer.key_provider_info)

    def _asked(self, what: str, ask: Callable[[], _T]) -> _T:
        import httpx

        try:
            return ask()
        except httpx.TimeoutException:
            raise Trouble(f"dstack did not answer {what} within {self._seconds:g} seconds") from None
        except httpx.HTTPStatusError as error:
            raise Trouble(f"dstack refused {what} with status {error.response.status_code}") from None
        except httpx.HTTPError as error:
            raise Trouble(f"dstack cannot be reached for {what} ({error})") from None
        except (ValueError, TypeError, KeyError, RecursionError):  # pydantic's and json's errors are ValueErrors
            raise Trouble(f"dstack's answer to {what} is malformed") from None


def _client(endpoint: str | None, seconds: float) -> DstackClient:
    """The SDK's client, with answers that are bounded: the SDK bounds only the time without a byte."""
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
        raise Trouble(f"there is no dstack here: {error}", hint="give its socket with --dstack") from None
    from assay.enclave.bounded import Bounded

    inner: Any = client.async_client
    inner.sync_transport = Bounded(seconds, None if "://" in where else where)
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
