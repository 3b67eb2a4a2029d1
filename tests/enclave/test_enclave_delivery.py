"""Sealed solutions over the service: handed in there, delivered to the enclave, judged, collected, and on the board."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest

import seal_kit as kit
import serve_kit
from assay.enclave import delivery, sealing
from assay.enclave.messages import EnclaveClient, SignedStatement
from assay.enclave.sealing import SealedFile
from assay.enclave.service.lifecycle import Service
from assay.enclave.service.state import TAKEN_STATEMENT
from assay.errors import Refused
from assay.ledger import access, keys
from assay.scheme.bounty import Bounty, read_bounty
from assay.serve.signed import sign_request
from cli_kit import output, refused, run
from serve_kit import GOOD, SLOW, EnclaveWorld, wait
from service_kit import Answer, Running, listing, running

# httpcore leaves the socket of a connection that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
PUT = "/v1/sorting/submissions"
SEALED = {"Content-Type": "application/vnd.assay.sealed"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    for number, key in enumerate(kit.PEOPLE.values(), start=1):
        keys.save(f"p{number}", key)
    return tmp_path


def words(*given: str | Path) -> str:
    return " ".join(output(*given, columns=200).split())


@pytest.mark.full
def test_what_is_sealed_and_sent_to_the_service_gets_onto_the_board(tmp_path: Path) -> None:
    with serve_kit.world(tmp_path) as world:
        world.with_ledger()
        with running(world.place) as service:
            _hand_in(world, service, tmp_path)
            world.at(kit.CLOSED)
            wait(lambda: world.status()["state"] == "given-out", "the results")
            collateral = ("--collateral", world.collateral)
            run("enclave", "collect", world.place, "--from", world.url, *collateral)
            assert states(service, "p1") == ["judged", "committed"]
            run("settle", world.place, "--epoch", "1", "--key", "log")
            assert states(service, "p1") == ["scored", "committed"]
            board = service.ask("GET", "/sorting/board.json").json
            assert {row["participant"]: row["bps"] for row in board["agreed"]} == {
                kit.P1: 10000,
                kit.P2: 8000,
                kit.P3: None,
                kit.P4: None,
            }


def _hand_in(world: EnclaveWorld, service: Running, tmp_path: Path) -> None:
    """Two participants commit, seal and hand in, without reaching the enclave; the operator delivers."""
    attestation = tmp_path / "attestation.json"
    with EnclaveClient(world.url) as client:
        attestation.write_bytes(client.get("/attestation"))
    deliver = ("enclave", "deliver", world.place, "--to", world.url, "--collateral", world.collateral)
    assert "Nobody handed in anything sealed." in words(*deliver)
    for number, text in ((1, GOOD), (2, SLOW)):
        mine = kit.bounty_folder(tmp_path / f"desk-{number}")
        (mine / "bounty.toml").write_bytes((world.place / "bounty.toml").read_bytes())
        (mine / "answer.md").write_text(text)
        run("commit", mine, mine / "answer.md", "--key", f"p{number}")
        run("seal", mine, mine / "answer.md", "--attestation", attestation, "--collateral", world.collateral)
        (sealed,) = mine.glob("sealing/*/solution.sealed")
        submit = ("submit", "--url", f"{service.address}/sorting", "--key", f"p{number}", "--sealed", sealed)
        assert "The operator delivers it to the enclave" in words(*submit)
        before = listing(world.place)
        assert "is your submission" in words(*submit)
        assert listing(world.place) == before
    assert states(service, "p1") == ["received", "received"]
    assert b"Merge sort" not in b"".join(listing(world.place).values())
    assert "4 of 4 files taken by the enclave." in words(*deliver)
    assert "4 of 4 files taken by the enclave." in words(*deliver)
    assert states(service, "p1") == ["being-judged", "committed"]
    assert world.status()["received"] == 2


def states(service: Running, key: str) -> list[str]:
    answer = json.loads(output("submissions", "--url", f"{service.address}/sorting", "--key", key, "--json"))
    return [row["state"] for row in answer["submissions"]]


class DirectService:
    """The service of an enclave without the network between."""

    def __init__(self, service: Service) -> None:
        self.service, self.asked = service, 0

    def post(self, path: str, body: bytes) -> bytes:
        self.asked += 1
        return self.service.commit(body) if path == "/commitments" else self.service.submit(body)


def kept(bounty: Bounty, signed: SignedStatement, sealed: SealedFile | None = None) -> None:
    """What the service keeps of a commitment and a sealed solution, with the newline that the command writes."""
    for kind, data in (("commitment", signed.envelope + b"\n"), ("sealed", None if sealed is None else sealed.file)):
        if data is not None:
            file = delivery.upload_file(bounty.file.parent, kit.digest_of(data), kind)  # type: ignore[arg-type]
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(data)


def test_a_refusal_is_kept_if_it_is_final_and_else_it_is_asked_again(tmp_path: Path) -> None:
    house = kit.House(kit.bounty_folder(tmp_path / "bounty"))
    bounty = house.bounty
    identity = kit.identity(bounty)

    async def act(service: Service) -> None:
        door = DirectService(service)

        def states() -> list[tuple[str, str]]:
            done = delivery.deliver(bounty, cast(EnclaveClient, door), identity.signer.public.id)
            return [(row.upload.kind, row.state) for row in done]

        signed, sealed = kit.handed(bounty, kit.P1, kit.solution(), identity.seal.public)
        kept(bounty, signed)
        (tmp_path / "bounty" / "sealed" / f"{'0' * 64}.commitment").write_bytes(b"{")
        assert sorted(states()) == [("commitment", "taken"), ("commitment", "waiting")], "a damaged file holds up no other"
        (tmp_path / "bounty" / "sealed" / f"{'0' * 64}.commitment").unlink()
        _, stray = kit.handed(bounty, kit.P2, kit.solution("Bubble sort."), identity.seal.public)
        _, stray_commitment = kit.committed(bounty, kit.P2, kit.solution("Bubble sort."))
        kept(bounty, signed, stray)
        assert states() == [("commitment", "taken"), ("sealed", "waiting")], "it has not committed"
        kept(bounty, signed, sealed)
        house.clock.now = kit.BETWEEN
        kept(bounty, stray_commitment)
        assert sorted(states()) == [
            ("commitment", "refused"),
            ("commitment", "taken"),
            ("sealed", "taken"),
            ("sealed", "waiting"),
        ]
        asked = door.asked
        assert len(states()) == 4
        assert door.asked == asked + 1, "only what waits is sent again"
        (refused,) = (tmp_path / "bounty" / "sealed").glob("*.refused.json")
        assert "commitments were accepted until" in delivery.refusal(refused)

    house.run(act)


def test_an_answer_that_the_enclave_did_not_sign_is_not_kept(tmp_path: Path) -> None:
    bounty = kit.bounty_in(tmp_path / "bounty")
    identity = kit.identity(bounty)
    signed, _ = kit.handed(bounty, kit.P1, kit.solution(), identity.seal.public)
    kept(bounty, signed)

    class Liar:
        def post(self, path: str, body: bytes) -> bytes:
            predicate = {"what": "commitment", "bounty": bounty.digest, "participant": kit.P1, "at": "2029-01-01T00:00:00Z"}
            return TAKEN_STATEMENT.make(signed.digest, predicate, kit.LOG).envelope

    with pytest.raises(Refused, match="the answer is not the enclave's"):
        list(delivery.deliver(bounty, cast(EnclaveClient, Liar()), identity.signer.public.id))
    assert not list((tmp_path / "bounty" / "sealed").glob("*.taken.json"))


def test_a_delivery_that_repeats_goes_on_when_the_enclave_answers_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bounty = kit.bounty_in(tmp_path / "bounty")
    words_ = ("enclave", "deliver", bounty.file.parent, "--to", f"unix:{tmp_path}/enclave.sock")
    slept: list[int] = []

    def sleep(seconds: int) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert "does not answer" in refused(*words_, code=1)
    printed = " ".join(run(*words_, "--every", "60").stderr.split())
    assert printed.count("does not answer") == printed.count("the next try is in 60 s") == 2
    assert slept == [60, 60]


ENCLAVE = f'\n[enclave]\ncompose_hash = "{"ab" * 32}"\ndevelopment = true\n'


@contextmanager
def served(place: Path, **options: Any) -> Iterator[tuple[Running, Bounty]]:
    """A bounty with an enclave that is not there, behind a service."""
    folder = kit.bounty_folder(place, more=ENCLAVE, **options)
    keys.save("log", kit.LOG)
    access.make_ledger(folder, "example.org/sorting", kit.LOG, name="log")
    with running(folder) as service:
        yield service, read_bounty(folder)


def put(service: Running, participant: str, body: bytes) -> Answer:
    headers = sign_request(kit.PEOPLE[participant], "PUT", f"{service.address}{PUT}", sha256(body).digest())
    return service.ask("PUT", PUT, body, headers | SEALED)


def test_what_no_enclave_of_the_bounty_would_take_is_refused_by_the_service(tmp_path: Path) -> None:
    with served(tmp_path / "bounty") as (service, bounty):
        to = kit.identity(bounty).seal.public
        signed, sealed = kit.handed(bounty, kit.P1, kit.solution(), to)
        other = read_bounty(kit.bounty_folder(tmp_path / "other", tokens=999))
        foreign, foreign_sealed = kit.handed(other, kit.P1, kit.solution(), to)
        results = sealing.seal_bytes("results", b"{}", kit.SPONSOR.public, bounty=bounty.digest).file
        predicate = {"bounty": bounty.digest, "participant": kit.P1}
        forged = sealing.COMMITMENT_STATEMENT.make(signed.digest, predicate, kit.PEOPLE[kit.P2])
        before = listing(service.site.competition("sorting").folder)
        for participant, body, sentence in (
            (kit.P1, b"garbage", "is neither a sealed solution nor a commitment"),
            (kit.P1, b"", "is neither a sealed solution nor a commitment"),
            (kit.P1, foreign.envelope, "is for another bounty"),
            (kit.P1, foreign_sealed.file, "is for another bounty"),
            (kit.P1, results, "is sealed as results"),
            (kit.P1, bytes(1_100_000), "is larger than"),
            (kit.P2, signed.envelope, "signs the request"),
            (kit.P2, sealed.file, "signs the request"),
            (kit.P1, forged.envelope, "the participant did not sign it"),
        ):
            answer = put(service, participant, body)
            assert (answer.status, sentence in answer.json["detail"]) == (400, True), answer
        assert listing(service.site.competition("sorting").folder) == before
        for body in (signed.envelope, sealed.file, signed.envelope):
            assert put(service, kit.P1, body).status in (200, 201)


def test_a_commitment_and_its_solution_are_one_submission(tmp_path: Path) -> None:
    with served(tmp_path / "bounty") as (service, bounty):
        scheme = bounty.file.with_name("scheme.toml")
        scheme.write_text(f"{scheme.read_text()}\n[submission]\nper_epoch = 1\n")
        bounty = read_bounty(scheme.parent)
        to = kit.identity(bounty).seal.public
        handed = [kit.handed(bounty, kit.P1, kit.solution(text), to) for text in ("Merge sort.", "Bubble sort.")]
        bodies = [body for signed, sealed in handed for body in (signed.envelope, sealed.file)]
        answers = [put(service, kit.P1, body) for body in bodies]
        assert [answer.status for answer in answers] == [201, 201, 429, 429]
        assert "1 commitments were handed in in epoch 1, and 1 are the most" in answers[2].json["detail"]
        assert "1 submissions were handed in" in answers[3].json["detail"]
        assert put(service, kit.P1, bodies[1]).status == 200


def test_nothing_sealed_is_taken_after_its_deadline(tmp_path: Path) -> None:
    past = {kit.COMMIT_UNTIL: "2026-01-01T00:00:00Z"}
    with served(tmp_path / "bounty", changes=past) as (service, bounty):
        signed, sealed = kit.handed(bounty, kit.P1, kit.solution(), kit.identity(bounty).seal.public)
        late = put(service, kit.P1, signed.envelope)
        assert (late.status, late.json["detail"]) == (409, "commitments were accepted until 2026-01-01T00:00:00Z")
        assert put(service, kit.P1, sealed.file).status == 201
        words = ("submit", "--url", f"{service.address}/sorting", "--key", "p1", "--sealed", tmp_path / "nothing")
        assert "no such file" in refused(*words)
