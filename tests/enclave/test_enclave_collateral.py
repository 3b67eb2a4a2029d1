"""Fetching collateral: the development authority's, through the protocol of Intel's service, and a service that has none."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote as escaped

import pytest

from assay.enclave.attest import verify
from assay.enclave.attest.collateral import fetch_collateral
from assay.errors import BadInput, Refused, Unreachable
from cli_kit import output, refused, run
from enclave_kit import AUTHORITY, MACHINE, NOW, attested, policy

QUOTE = MACHINE.quote(bytes(64))


@pytest.fixture
def service() -> Iterator[str]:
    """Intel's service, version 4, for the development platform; below /none, one that knows no platform."""
    given = AUTHORITY.collateral(NOW)
    answers = {
        "/sgx/certification/v4/pckcrl": ("SGX-PCK-CRL-Issuer-Chain", given.pck_crl_issuer_chain, bytes.fromhex(given.pck_crl)),
        "/sgx/certification/v4/rootcacrl": ("", "", given.root_ca_crl.encode()),
        "/tdx/certification/v4/tcb": (
            "TCB-Info-Issuer-Chain",
            given.tcb_info_issuer_chain,
            f'{{"tcbInfo":{given.tcb_info},"signature":"{given.tcb_info_signature}"}}'.encode(),
        ),
        "/tdx/certification/v4/qe/identity": (
            "SGX-Enclave-Identity-Issuer-Chain",
            given.qe_identity_issuer_chain,
            f'{{"enclaveIdentity":{given.qe_identity},"signature":"{given.qe_identity_signature}"}}'.encode(),
        ),
    }

    class CollateralHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, chain, body = answers.get(self.path.partition("?")[0], ("", "", b""))
            self.send_response(200 if body else 404)
            if name:
                self.send_header(name, escaped(chain))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), CollateralHandler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_it_is_what_the_authority_says(service: str) -> None:
    collateral = fetch_collateral(QUOTE, service)
    assert collateral.document() == AUTHORITY.collateral(NOW).document()
    assert verify(attested(collateral=collateral), policy=policy(), now=NOW)


def test_the_command(service: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(attested(collateral=None).data)
    (tmp_path / "q.bin").write_bytes(QUOTE)
    for name in ("a.json", "q.bin"):
        run("enclave", "collateral", tmp_path / name, "--from", service, "-o", tmp_path / "c.json")
        printed = output("enclave", "collateral", tmp_path / name, "--from", service)
        assert json.loads(printed) == json.loads((tmp_path / "c.json").read_bytes()) == AUTHORITY.collateral(NOW).document()


def test_a_service_that_has_none_or_is_not_there(service: str, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="gave no collateral"):
        fetch_collateral(QUOTE, f"{service}/none")
    with pytest.raises(Unreachable, match="within 0 seconds"):
        fetch_collateral(QUOTE, service, seconds=0)
    (tmp_path / "q.bin").write_bytes(QUOTE)
    assert "gave no collateral" in refused("enclave", "collateral", tmp_path / "q.bin", "--from", "http://127.0.0.1:1", code=1)


def test_what_is_asked_wrongly(service: str) -> None:
    with pytest.raises(BadInput, match="is not the address of a service"):
        fetch_collateral(QUOTE, "ftp://example.org")
    with pytest.raises(Refused, match="it is not a quote"):
        fetch_collateral(b"nothing", service)
