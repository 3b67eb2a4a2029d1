"""What is asked of dstack, against the development endpoint and against one that misbehaves: trouble, never anything else."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from assay.enclave import transport
from assay.enclave.attest import verify
from assay.enclave.develop.server import serve_in_thread
from assay.enclave.dstack import Dstack, DstackError
from assay.errors import AssayError, BadInput
from enclave_kit import AUTHORITY, MACHINE, NOW, STATEMENT, policy


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "dstack.sock"
    with serve_in_thread(path, MACHINE, lambda: NOW):
        yield path


def get(path: Path, ask: Callable[[Dstack], Any], seconds: float = 60.0) -> Any:
    """What the endpoint answers."""
    with Dstack(str(path), seconds=seconds) as dstack:
        return ask(dstack)


def test_a_key_is_of_its_path(socket: Path) -> None:
    with Dstack(str(socket)) as dstack:
        first = dstack.get_key("seal/bounty", "sealing")
        assert len(first) == 32
        assert first == dstack.get_key("seal/bounty", "sealing")
        assert first == dstack.get_key("seal/bounty", "signing")  # as in dstack: the purpose makes no other key
        assert first != dstack.get_key("sign/bounty", "sealing")


def test_an_attestation_is_made_and_verified(socket: Path) -> None:
    with Dstack(f"unix:{socket}") as dstack:
        attestation = dstack.attest(STATEMENT, AUTHORITY.collateral(NOW))
    assert verify(attestation, policy=policy(), now=NOW).statement == STATEMENT.model_dump()


def test_what_it_is(socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSTACK_SIMULATOR_ENDPOINT", str(socket))
    with Dstack() as dstack:
        info = dstack.info()
    assert info.compose_hash == MACHINE.compose_hash.hex()
    assert info.app_id == MACHINE.app_id.hex()
    assert "not a KMS" in info.key_provider


def test_where_there_is_no_dstack(tmp_path: Path, socket: Path) -> None:
    with pytest.raises(DstackError, match="there is no dstack here"):
        Dstack(str(tmp_path / "none.sock"))
    (tmp_path / "plain").write_bytes(b"")
    with pytest.raises(DstackError, match="cannot be reached"):
        get(tmp_path / "plain", lambda dstack: dstack.info())
    with pytest.raises(ValueError, match="64 bytes"):
        get(socket, lambda dstack: dstack.quote(b"short"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("endpoint", ["http://10.0.0.1:8090", "https://example.org", "ftp://127.0.0.1", "http://[::", "http://"])
def test_keys_come_from_this_machine_alone(endpoint: str) -> None:
    with pytest.raises(BadInput, match="is not dstack on this machine"):
        Dstack(endpoint)
    for local in ("http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"):
        Dstack(local).close()


@contextmanager
def answering(path: Path, answer: bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> Iterator[None]:
    """An endpoint that answers everything so; an answer whose headers name another length it does not end."""
    done = threading.Event()

    class DstackHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(answer))} | (headers or {})).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)
            self.wfile.flush()
            if headers and "Content-Length" in headers:
                done.wait(60)

        def address_string(self) -> str:
            return ""

        def log_message(self, *_: Any) -> None:
            pass

    class SocketServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass

    server = SocketServer(str(path), DstackHandler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        server.shutdown()
        thread.join()
        server.server_close()


SECRET = "5ec2e7" * 10
QUOTE = MACHINE.quote(b"\1" * 64)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "malformed"),
        (b"not json", "malformed"),
        (b"[]", "malformed"),
        (b"null", "malformed"),
        (b"{}", "malformed"),
        (b"[" * 100_000, "malformed"),
        (f'{{"key": "zz{SECRET}", "signature_chain": []}}'.encode(), "malformed"),
        (f'{{"key": ["{SECRET}"], "signature_chain": []}}'.encode(), "malformed"),
        (f'{{"key": "{SECRET}", "signature_chain": []}}'.encode(), "a key of 30 bytes rather than 32"),
    ],
)
def test_an_answer_that_is_none_is_trouble_and_not_repeated(tmp_path: Path, answer: bytes, words: str) -> None:
    with answering(tmp_path / "s", answer), pytest.raises(DstackError, match=words) as error:
        get(tmp_path / "s", lambda dstack: dstack.get_key("a", "b"))
    assert SECRET not in str(error.value)
    assert isinstance(error.value, AssayError)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"quote": QUOTE.hex(), "event_log": "[]"}, "something else than it was asked for"),
        ({"quote": "00", "event_log": "[]"}, "gave no quote"),
        ({"quote": "zz", "event_log": "[]"}, "gave no quote"),
        ({"quote": "00" * 20_000, "event_log": "[]"}, "more than 16384 bytes"),
        ({"quote": QUOTE.hex()}, "malformed"),
    ],
)
def test_a_quote_that_is_none(tmp_path: Path, fields: dict[str, str], words: str) -> None:
    with answering(tmp_path / "s", json.dumps(fields).encode()), pytest.raises(DstackError, match=words):
        get(tmp_path / "s", lambda dstack: dstack.quote(b"\2" * 64))


def test_a_log_that_is_none(tmp_path: Path) -> None:
    from assay.enclave.attest import report_data

    answer = {"quote": MACHINE.quote(report_data(STATEMENT)).hex(), "event_log": "{"}
    with answering(tmp_path / "s", json.dumps(answer).encode()), pytest.raises(DstackError, match="log cannot be read"):
        get(tmp_path / "s", lambda dstack: dstack.attest(STATEMENT))


def test_refusals_and_redirects(tmp_path: Path) -> None:
    for status in (302, 400, 404, 500, 503):
        where = {"Location": "http://example.org/"}
        with answering(tmp_path / "s", b"{}", status=status, headers=where), pytest.raises(DstackError, match=f"status {status}"):
            get(tmp_path / "s", lambda dstack: dstack.get_key("a", "b"))
        (tmp_path / "s").unlink()


def test_an_answer_that_is_too_large_or_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "ANSWER_BYTES", 1000)
    with answering(tmp_path / "s", b" " * 1001), pytest.raises(DstackError, match="cannot be reached"):
        get(tmp_path / "s", lambda dstack: dstack.info())
    (tmp_path / "s").unlink()
    with answering(tmp_path / "s", b"{}", headers={"Content-Encoding": "gzip"}), pytest.raises(DstackError, match="packed"):
        get(tmp_path / "s", lambda dstack: dstack.info())


def test_an_answer_that_does_not_come_or_does_not_end(tmp_path: Path) -> None:
    with (
        answering(tmp_path / "s", b"{", headers={"Content-Length": "100"}),
        pytest.raises(DstackError, match="did not answer Info within"),
    ):
        get(tmp_path / "s", lambda dstack: dstack.info(), seconds=0.1)


def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "dstack_sdk", None)
    with pytest.raises(BadInput, match=r"pip install 'assay\[tee\]'"):
        Dstack("/nowhere")
