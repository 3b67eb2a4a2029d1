"""The development endpoint: dstack's protocol, the same keys after a restart, and a socket that is its owner's."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from dstack_sdk import DstackClient

from assay.enclave.attest import Attestation, Collateral, events_of, report_data, verify
from assay.enclave.attest.quote import DEVELOPMENT_ROOT
from assay.enclave.develop.machine import Authority, Machine, derived
from assay.enclave.develop.server import COLLATERAL, DevelopmentServer, load_secret, serve_in_thread
from assay.errors import BadInput
from assay.scheme.reading import validate
from enclave_kit import AUTHORITY, MACHINE, NOW, STATEMENT, policy

Json = dict[str, Any]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("develop") / "dstack.sock"
    with serve_in_thread(path, MACHINE, lambda: NOW):
        yield path


@pytest.fixture
def client(endpoint: Path) -> Iterator[httpx.Client]:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(endpoint)), base_url="http://localhost") as http:
        yield http


def test_dstacks_own_client_is_answered(endpoint: Path) -> None:
    sdk = DstackClient(str(endpoint))
    with sdk:
        assert sdk.version().version == "0.5.4"
        info = sdk.info()
        assert info.tcb_info.app_compose == MACHINE.compose.decode()
        assert info.compose_hash == info.tcb_info.compose_hash == MACHINE.compose_hash.hex()
        quoted = sdk.get_quote(report_data(STATEMENT))
        assert quoted.replay_rtmrs()[3] == info.tcb_info.rtmr3
        key = sdk.get_key("a/b", "c", "ed25519")
        assert len(key.decode_key()) == 32
        assert [len(signature) for signature in key.decode_signature_chain()] == [65, 65]
    attestation = Attestation(statement=STATEMENT, quote=quoted.quote, event_log=events_of(quoted.event_log))
    assert verify(attestation, policy=policy(), now=NOW, collateral=AUTHORITY.collateral(NOW))


def test_its_collateral_is_at_a_path_that_is_not_dstacks(client: httpx.Client) -> None:
    assert validate(Collateral, client.get(COLLATERAL).json()) == AUTHORITY.collateral(NOW)
    assert client.get("/collateral").status_code == 404


@pytest.mark.parametrize(
    ("path", "content", "status", "words"),
    [
        ("/GetQuote", b'{"report_data": ""}', 400, "empty"),
        ("/GetQuote", b'{"report_data": "zz"}', 400, "not hex"),
        ("/GetQuote", b'{"report_data": 3}', 400, "not a string"),
        ("/GetQuote", b'{"report_data": "%s"}' % (b"00" * 65), 400, "too long"),
        ("/GetQuote", b"[]", 400, "not an object"),
        ("/GetQuote", b"{", 400, "not JSON"),
        ("/GetQuote", b"[" * 60_000, 400, "not JSON"),
        ("/GetKey", b'{"algorithm": "rsa"}', 400, "Unsupported"),
        ("/GetKey", b" " * 70_000, 400, "too long"),
        ("/Nothing", b"{}", 404, "no such path"),
    ],
)
def test_what_it_cannot_answer(client: httpx.Client, path: str, content: bytes, status: int, words: str) -> None:
    answer = client.post(path, content=content)
    assert answer.status_code == status
    assert words in answer.json()["error"]


def test_an_empty_body_is_an_empty_object(client: httpx.Client) -> None:
    assert client.post("/Info").json()["app_id"] == MACHINE.app_id.hex()
    assert client.post("/GetQuote", content=b'{"report_data": "01"}').json()["report_data"] == "01"


def test_a_client_that_goes_away_disturbs_nobody(endpoint: Path, client: httpx.Client) -> None:
    with socket.socket(socket.AF_UNIX) as rude:
        rude.connect(str(endpoint))
        rude.sendall(b"POST /GetQuote HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
    assert client.post("/Version").status_code == 200


def test_the_socket_is_its_owners(endpoint: Path) -> None:
    assert stat.S_IMODE(endpoint.stat().st_mode) == 0o600


def test_a_socket_that_is_in_use_is_left_and_one_that_is_dead_taken(endpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="an endpoint is running there"):
        DevelopmentServer(endpoint, MACHINE, lambda: NOW)
    dead = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(dead))
    DevelopmentServer(dead, MACHINE, lambda: NOW).server_close()
    assert not dead.exists()
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(BadInput, match="is not a socket"):
        DevelopmentServer(tmp_path / "file", MACHINE, lambda: NOW)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"
    with pytest.raises(BadInput, match="cannot be a socket"):
        DevelopmentServer(tmp_path / "none" / "s", MACHINE, lambda: NOW)
    with pytest.raises(BadInput, match="cannot be a socket"):
        DevelopmentServer(tmp_path / ("long" * 40), MACHINE, lambda: NOW)


def test_everything_says_that_it_is_for_development() -> None:
    leaf, authority, root = (x509.load_der_x509_certificate(certificate) for certificate in AUTHORITY.platform.certificates)
    assert DEVELOPMENT_ROOT in root.subject.rfc4514_string().replace("\\,", ",")
    for certificate in (leaf, authority, root):
        assert "development" in certificate.subject.rfc4514_string()
        assert "Intel" not in certificate.subject.rfc4514_string().replace("not Intel", "")


def test_the_same_secret_is_the_same_authority_and_another_another() -> None:
    again, other = Authority(AUTHORITY.secret), Authority(bytes(32))
    assert again.platform == AUTHORITY.platform
    assert again.collateral(NOW) == AUTHORITY.collateral(NOW)
    assert other.platform.root != AUTHORITY.platform.root
    assert derived(AUTHORITY.secret, "a") != derived(AUTHORITY.secret, "b")


def test_keys_are_the_apps() -> None:
    key, chain = MACHINE.key("path", "purpose")
    assert Machine(AUTHORITY).key("path", "purpose") == (key, chain)
    assert MACHINE.key("path", "other") == (key, [MACHINE.key("path", "other")[1][0], chain[1]])
    assert replace(MACHINE, compose=b"{}").key("path", "purpose")[0] != key
    assert Machine(Authority(bytes(32))).key("path", "purpose")[0] != key


def test_the_secret_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    place = tmp_path / "state"
    first = load_secret(place)
    assert len(first) == 32
    assert load_secret(place) == first
    assert load_secret(None) != load_secret(None)
    file = next(place.iterdir())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    file.chmod(0o644)
    with pytest.raises(BadInput, match="can be read by others"):
        load_secret(place)
    file.chmod(0o600)
    file.write_bytes(b"short")
    with pytest.raises(BadInput, match="is not a secret of 32 bytes"):
        load_secret(place)
    with pytest.raises(BadInput, match="cannot be written"):
        load_secret(file / "below")


def started(place: Path, *words: str) -> tuple[subprocess.Popen[str], list[str]]:
    """A process of the command, once it listens, and what it said."""
    command = [sys.executable, "-m", "assay", "enclave", "develop", "--socket", str(place / "s"), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, [process.stdout.readline() for _ in range(3)]


def asked(place: Path, path: str, body: Json) -> Json:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(place / "s")), base_url="http://localhost", timeout=60) as client:
        answer: Json = client.post(path, json=body).raise_for_status().json()
        return answer


def ended(process: subprocess.Popen[str], number: signal.Signals) -> int:
    process.send_signal(number)
    process.communicate(timeout=60)
    return process.returncode


def test_the_command_and_its_keys_after_a_restart(tmp_path: Path) -> None:
    compose = tmp_path / "app-compose.json"
    compose.write_text('{"name":"mine"}', encoding="utf-8")
    words = ["--state", str(tmp_path / "state"), "--compose", str(compose), "--collateral", str(tmp_path / "collateral.json")]
    keys, quotes = [], []
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        process, lines = started(tmp_path, *words)
        try:
            keys.append(asked(tmp_path, "/GetKey", {"path": "a"})["key"])
            quotes.append(asked(tmp_path, "/GetQuote", {"report_data": report_data(STATEMENT).hex()}))
        finally:
            code = ended(process, number)
        assert code == (-9 if number == signal.SIGKILL else 0)
        assert "not Intel" in lines[2]
        assert (tmp_path / "s").exists() == (number == signal.SIGKILL)  # a dead one is taken over
    assert len(set(keys)) == 1
    given = validate(Collateral, json.loads((tmp_path / "collateral.json").read_text(encoding="utf-8")))
    machine = Machine(Authority(load_secret(tmp_path / "state")), compose.read_bytes())
    for quoted in quotes:  # the last start's collateral is right for the first start's quotes
        attestation = Attestation(statement=STATEMENT, quote=quoted["quote"], event_log=events_of(quoted["event_log"]))
        assert verify(attestation, policy=policy(machine), now=int(time.time()), collateral=given)


@pytest.mark.full
def test_the_command_refuses_what_is_not_there(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "assay", "enclave", "develop", "--socket", str(tmp_path / "s"), "--compose", str(tmp_path / "no")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 2
    assert "no such file" in " ".join(process.stderr.split())
    assert not (tmp_path / "s").exists()
    assert os.listdir(tmp_path) == []
