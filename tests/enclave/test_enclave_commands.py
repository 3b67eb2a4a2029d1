"""The commands of sealing and of the enclave: what they refuse, and in which words; what a client makes of a strange answer."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import seal_kit as kit
from assay.enclave import sealing, submission
from assay.enclave.messages import EnclaveClient, Rejected, RejectionCode
from assay.enclave.service.process import Listener, open_listener
from assay.enclave.service.state import TAKEN_STATEMENT
from assay.errors import BadInput, Refused, Unreachable
from assay.ledger import keys
from assay.scheme.bounty import read_bounty
from cli_kit import output, refused, run


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bounty, an answer beside it, and keys."""
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    for name in ("ASSAY_PASSPHRASE", "ASSAY_LLM_BASE_URL", "ASSAY_LLM_API_KEY", "DSTACK_SIMULATOR_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for number, key in enumerate(kit.PEOPLE.values(), start=1):
        keys.save(f"p{number}", key)
    keys.save("sponsor", kit.SPONSOR)
    (tmp_path / "answer.md").write_text("Merge sort, in n log n.")
    return kit.bounty_folder(tmp_path / "bounty")


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    return tmp_path / "answer.md"


def attestation(place: Path) -> Path:
    """The attestation of the tests' machine for the bounty."""
    bounty = read_bounty(place)
    path = place / "attestation.json"
    path.write_bytes(kit.local().attest(kit.identity(bounty).statement).data)
    return path


# Committing


def test_a_commitment_is_made_once_and_kept(place: Path, answer: Path) -> None:
    first = json.loads(output("commit", place, answer, "--key", "p1", "--json"))
    again = json.loads(output("commit", place, answer, "--key", "p1", "--json"))
    assert first == again
    assert first["participant"] == kit.P1
    assert first["taken"] is None
    salt, envelope = Path(first["salt"]), Path(first["file"])
    assert (salt.stat().st_mode & 0o777, salt.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    secret = sealing.read_secret(salt.read_bytes())
    assert secret.commitment == first["commitment"] == sealing.read_commitment(envelope.read_bytes()).digest
    assert secret.salt not in json.dumps(first)
    printed = output("commit", place, answer, "--key", "p1", columns=500)
    assert f"commitment   {first['commitment']}\n" in printed
    answer.write_text("Another answer.")
    assert "is of another solution; a participant commits once" in refused("commit", place, answer, "--key", "p1")
    assert "salt.json: is of another solution" in refused("commit", place, answer, "--key", "p1")
    text = (place / "bounty.toml").read_text()
    (place / "bounty.toml").write_text(text.replace('title = "Sorting"', 'title = "Sorted"'))
    assert "is of another bounty" in refused("commit", place, answer, "--key", "p1")


def test_a_participant_signs_with_its_own_key(place: Path, answer: Path) -> None:
    assert "is not the key that signs" in refused("commit", place, answer, "--key", "p1", "--participant", kit.P2)
    assert "cannot commit, since nobody can sign for it" in refused(
        "commit", place, answer, "--key", "p1", "--participant", "miner-7"
    )
    assert "is not the key that signs" in refused("commit", place, answer, "--key", "sponsor", "--participant", kit.P1)
    assert "is a key for sealing" in refused("commit", place, answer, "--key", "sponsor")
    spelt = f"ed25519:{kit.P1}"
    (place / "participants.csv").write_text(f"key,name\nminer-7,M\n{spelt},p1\n")
    assert json.loads(output("commit", place, answer, "--key", "p1", "--json"))["participant"] == spelt
    (place / "participants.csv").unlink()
    assert json.loads(output("commit", place, answer, "--key", "p2", "--json"))["participant"] == kit.P2


def test_what_would_not_be_judged_is_not_committed_to(place: Path, answer: Path) -> None:
    answer.write_text("x" * 1001)
    assert "the bounty allows 1000" in refused("commit", place, answer, "--key", "p1")
    answer.write_bytes(b"\xff")
    assert "is not UTF-8 text" in refused("commit", place, answer, "--key", "p1")
    assert not (place / "sealing").exists()


# Sealing


def test_sealing_says_what_it_needs(place: Path, answer: Path, tmp_path: Path) -> None:
    assert "say what to seal" in refused("seal", place)
    assert "say what to seal" in refused("seal", place, answer, "--problem", answer)
    assert "nothing was committed to from here" in refused("seal", place, answer)
    run("commit", place, answer, "--key", "p1")
    assert "nothing says to which key to seal" in refused("seal", place, answer)
    assert "does not name an enclave" in refused("seal", place, answer, "--attestation", attestation(place))
    run("commit", place, answer, "--key", "p2")
    assert "several participants committed from here" in refused("seal", place, answer, "--attestation", attestation(place))
    other = tmp_path / "other.md"
    other.write_text("Another answer.")
    words = ("seal", place, other, "--participant", kit.P1, "--attestation", attestation(place))
    assert "is not the one that was committed to" in refused(*words)
    assert "nothing was committed to from here" in refused("seal", place, answer, "--participant", kit.P3)
    assert "is of '" in refused("seal", place, answer, "--participant", f"ed25519:{kit.P1}")


def test_without_the_network_a_solution_is_left_to_be_sent(place: Path, answer: Path) -> None:
    run("commit", place, answer, "--key", "p1")
    words = ("seal", place, answer, "--attestation", attestation(place))
    done = run(*words, "--no-verify", "--json")
    assert "is not verified" in done.stderr
    printed = json.loads(done.stdout)
    bounty = read_bounty(place)
    sealed = sealing.parse_sealed(Path(printed["file"]).read_bytes())
    secret = submission.files_of(bounty, kit.P1).secret()
    assert secret is not None
    opened = sealing.open_solution(sealed, kit.identity(bounty).seal, secret.commitment)
    assert opened.solution.files == {"answer.md": answer.read_text()}
    assert printed["taken"] is None


def test_an_attestation_of_something_else_is_refused(place: Path, answer: Path, tmp_path: Path) -> None:
    run("commit", place, answer, "--key", "p1")
    bounty = read_bounty(place)
    identity = kit.identity(bounty)
    file = tmp_path / "attestation.json"
    file.write_bytes(kit.local().attest(identity.judged(bounty.digest)).data)
    words = ("seal", place, answer, "--attestation", file, "--no-verify")
    assert "it is not about an enclave" in run(*words, columns=500, code=1).stderr
    other = read_bounty(kit.bounty_folder(tmp_path / "other", tokens=999))
    file.write_bytes(kit.local().attest(kit.identity(other).statement).data)
    assert "it is of another bounty" in run(*words, columns=500, code=1).stderr


def test_a_problem_is_sealed_only_where_it_is_said_to_be(place: Path, tmp_path: Path) -> None:
    problem = tmp_path / "problem.md"
    problem.write_text("How is a list sorted?")
    line = output("seal", place, "--problem", problem, columns=500).strip()
    words = ("seal", place, "--problem", problem, "--attestation", attestation(place), "--no-verify")
    assert "does not say that it is sealed" in run(*words, code=2, columns=500).stderr
    text = (place / "bounty.toml").read_text()
    (place / "bounty.toml").write_text(text.replace('problem = "Write down how to sort a list."', line))
    words = ("seal", place, "--problem", problem, "--attestation", attestation(place), "--no-verify")
    sealed = sealing.parse_sealed(Path(json.loads(run(*words, "--json").stdout)["file"]).read_bytes())
    assert sealed.open(kit.identity(read_bounty(place)).seal) == problem.read_bytes()
    for data, why in ((b"\xff", "is not UTF-8"), (b" \n", "is empty"), (b"x" * 64_001, "is larger than 64000 bytes")):
        problem.write_bytes(data)
        assert why in refused("seal", place, "--problem", problem)


def test_what_the_enclave_signed_is_looked_at(place: Path) -> None:
    bounty = read_bounty(place)
    identity = kit.identity(bounty)
    predicate = {"what": "submission", "bounty": bounty.digest, "participant": kit.P1, "at": "2030-01-01T00:00:00Z"}
    right = TAKEN_STATEMENT.make(bounty.digest, predicate, identity.signer).envelope
    submission.check_taken(right, bounty, kit.P1, identity.signer.public.id)
    for answer, participant in (
        (b"{}", kit.P1),
        (TAKEN_STATEMENT.make(bounty.digest, predicate, kit.LOG).envelope, kit.P1),
        (right, kit.P2),
        (TAKEN_STATEMENT.make(bounty.digest, predicate | {"what": "refused"}, identity.signer).envelope, kit.P1),
    ):
        with pytest.raises(Refused, match="taken: the answer is"):
            submission.check_taken(answer, bounty, participant, identity.signer.public.id)


# Opening


def test_who_has_the_key_opens(place: Path, tmp_path: Path) -> None:
    bounty = read_bounty(place)
    file = tmp_path / "results.sealed"
    file.write_bytes(sealing.seal_bytes("results", b'{"a":1}', kit.SPONSOR.public, bounty=bounty.digest).file)
    assert output("open", file, "--key", "sponsor") == '{"a":1}'
    run("open", file, "--key", "sponsor", "-o", tmp_path / "open.json")
    assert (tmp_path / "open.json").read_bytes() == b'{"a":1}'
    assert (tmp_path / "open.json").stat().st_mode & 0o777 == 0o600
    keys.save("other", keys.new(keys.X25519))
    assert "results.sealed: does not open with x25519:" in refused("open", file, "--key", "other")
    assert "cannot open: it signs" in refused("open", file, "--key", "p1")
    file.write_bytes(b"{}")
    assert "is not a sealed file" in refused("open", file, "--key", "sponsor")


# Serving


def test_serving_says_what_it_needs(place: Path) -> None:
    assert "no model is named that could judge" in refused("enclave", "serve", place)
    words = ("enclave", "serve", place, "--model-url", "http://127.0.0.1:1/v1")
    assert "is not an address" in refused(*words, "--listen", "nowhere")
    text = (place / "bounty.toml").read_text()
    (place / "bounty.toml").write_text(text.replace(f"submissions_until = {kit.SUBMIT_UNTIL}\n", ""))
    assert "bounty.submissions_until: is missing, and an enclave needs it" in refused(*words)
    zero = f"x25519:{'0' * 64}"
    (place / "bounty.toml").write_text(text.replace(kit.SPONSOR.public.id, zero))
    assert "bounty.toml: bounty.sponsor: " in refused(*words)
    (place / "bounty.toml").write_text(text)
    (place / "participants.csv").unlink()
    assert "participants.csv: no such file" in refused(*words)


def test_where_a_service_listens(tmp_path: Path) -> None:
    path = tmp_path / "enclave.sock"
    first = open_listener(f"unix:{path}")
    assert (path.stat().st_mode & 0o777, first.loopback) == (0o600, True)
    first.socket.close()  # as if it was killed: the file stays
    second = open_listener(f"unix:{path}")
    second.close()
    assert not path.exists()
    path.write_text("")
    with pytest.raises(BadInput, match=r"cannot listen at unix:.*is another process listening there"):
        open_listener(f"unix:{path}")
    local = open_listener("127.0.0.1:0")
    assert local.words.startswith("http://127.0.0.1:")
    assert local.loopback
    with pytest.raises(BadInput, match=r"cannot listen at 127\.0\.0\.1:"):
        open_listener(local.words.removeprefix("http://"))
    local.close()
    wide = Listener("0.0.0.0:0")
    assert not wide.loopback
    wide.close()
    six = open_listener("[::1]:0")
    assert six.words.startswith("http://[::1]:")
    six.close()
    for wrong in ("", "8300", ":8300", "host:", "host:70000", "host:x"):
        with pytest.raises(BadInput, match="is not an address"):
            open_listener(wrong)


# Asking


@contextmanager
def answering(status: int, data: bytes) -> Iterator[str]:
    """A server on loopback that answers everything so."""

    class RequestHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), RequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("url", ["", "enclave.sock", "ftp://127.0.0.1", "http://[::", "http://a b"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises((BadInput, Unreachable)), EnclaveClient(url) as client:
        client.get("/status")


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"<html>", b'{"error":{"code":"nonsense","what":"","hint":""}}'])
def test_an_answer_that_is_no_enclaves_is_said_to_be_none(data: bytes) -> None:
    with answering(502, data) as url, EnclaveClient(url) as client, pytest.raises(Unreachable, match="answered with status 502"):
        client.get("/status")


def test_a_refusal_is_as_it_was_meant_and_an_answer_is_bounded() -> None:
    refusal = json.dumps({"error": {"code": "late", "what": "it is late", "hint": "come earlier"}}).encode()
    with (
        answering(410, refusal) as url,
        EnclaveClient(url) as client,
        pytest.raises(Rejected, match="it is late; come earlier") as caught,
    ):
        client.get("/status")
    assert caught.value.code == RejectionCode.LATE
    with answering(200, b"x" * 100) as url, EnclaveClient(url) as client:
        assert len(client.get("/status", 100)) == 100
        with pytest.raises(Unreachable, match="answered with more than 99 bytes"):
            client.get("/status", 99)


def test_an_enclave_that_is_not_there_is_said_to_be_away(tmp_path: Path, place: Path, answer: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        for url in (f"unix:{tmp_path}/none.sock", f"http://127.0.0.1:{free.getsockname()[1]}"):
            message = refused("commit", place, answer, "--key", "p1", "--url", url, code=1)
            assert "does not answer" in message
            assert "a repeated request gets the same answer" in message
            assert "does not answer" in refused("enclave", "collect", place, "--from", url, code=1)
