"""Registration over HTTP: who becomes a participant by which key, and under which name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

import ledger_kit
from assay.judge import submitting
from assay.ledger import keys
from assay.ledger.keys import PrivateKey
from assay.scheme.fields import instant_text
from assay.serve import registration
from assay.serve.registration import code_digest, invite
from assay.serve.signed import sign_request
from service_kit import Answer, Running, running
from test_submissions import ONE, PUT, STRANGER, TWO, agent, folder_of, notebook, packed, served, settle, state


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with served(tmp_path / "small") as started:
        yield started


def register(service: Running, key: PrivateKey, **fields: str) -> Answer:
    return service.signed(key, "POST", "/v1/small/participants", json.dumps(fields).encode())


def invited(service: Running, participant: str | None = None, *, uses: int = 1, days: int = 1, everybody: bool = False) -> str:
    until = datetime.now(UTC) + timedelta(days=days)
    return invite(notebook(service), participant, uses=uses, until=until, everybody=everybody)


def test_a_key_is_registered_by_an_invitation_once(service: Running, tmp_path: Path) -> None:
    before = state(service)
    for code in ("", "wrong"):
        answer = register(service, STRANGER, **({"code": code} if code else {}))
        assert (answer.status, answer.json["type"]) == (403, "urn:assay:problem:invitation")
    assert state(service) == before
    code = invited(service)
    assert len(code) >= 20
    assert notebook(service).invitation(code_digest(code)) is not None
    first = register(service, STRANGER, code=code, name="Newcomer")
    name = STRANGER.public.raw.hex()
    assert (first.status, first.json) == (201, {"participant": name, "new": True, "renamed": False})
    row = submitting.find(folder_of(service), name).row
    assert (row["name"], row["uid"], row["submission"]) == ("Newcomer", "", "")
    after = state(service)
    again = register(service, STRANGER)
    assert (again.status, again.json) == (200, {"participant": name, "new": False, "renamed": False})
    assert state(service) == after
    assert register(service, keys.read(b"77" * 32), code=code).json["detail"] == "the invitation was used"
    answer = service.signed(STRANGER, "PUT", PUT, packed(agent(tmp_path / "agent")))
    assert (answer.status, answer.json["participant"]) == (201, name)


def test_an_invitation_may_name_a_participant(tmp_path: Path) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    with running(folder) as service:
        code = invited(service, "m1")
        assert register(service, ONE, code=code).json == {"participant": "m1", "new": True, "renamed": False}
        second = invited(service, "m1")
        taken = register(service, TWO, code=second)
        assert (taken.status, taken.json["detail"]) == (403, "'m1' has another key")
        gone = register(service, TWO, code=invited(service, "nobody"))
        assert "is no participant any more" in gone.json["detail"]
        assert register(service, TWO, code=invited(service, "m2", days=-1)).status == 403
        assert submitting.find(folder, "m1").submission == "s1"


def test_open_registration_has_a_quota(service: Running) -> None:
    invited(service, uses=2, everybody=True)
    newcomers = [keys.from_seed(bytes([number]) * 32) for number in (91, 92, 93)]
    assert [register(service, key).status for key in newcomers] == [201, 201, 403]
    assert register(service, newcomers[0]).status == 200


def test_a_registry_of_a_chain_takes_nobody_new(service: Running) -> None:
    code = invited(service)
    (folder_of(service) / "registry.json").write_text("{}")
    before = state(service)
    answer = register(service, STRANGER, code=code)
    assert (answer.status, answer.json["detail"]) == (403, "the participants of 'small' are those of a chain")
    assert state(service) == before


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "fields",
    [{"name": "a\x1bb"}, {"address": "0x12"}, {"name": "x" * 257}, {"codes": "x"}],
    ids=["control", "address", "long", "field"],
)
def test_a_registration_that_cannot_be_written_uses_no_invitation(service: Running, fields: dict[str, str]) -> None:
    code = invited(service)
    before = state(service)
    assert register(service, STRANGER, code=code, **fields).status == 400
    assert state(service) == before
    invitation = notebook(service).invitation(code_digest(code))
    assert invitation is not None
    assert (invitation.uses, invitation.until > instant_text(datetime.now(UTC))) == (1, True)


def test_a_hotkey_of_the_registry_is_a_participant_already(tmp_path: Path) -> None:
    name = STRANGER.public.raw.hex()
    folder = ledger_kit.ledger_folder(tmp_path / "small", participants_csv=f"key,uid\n{name},7\n")
    with running(folder) as service:
        before = state(service)
        answer = register(service, STRANGER)
        assert (answer.status, answer.json) == (200, {"participant": name, "new": False, "renamed": False})
        assert state(service) == before
        assert service.signed(STRANGER, "PUT", PUT, packed(agent(tmp_path / "agent"))).status == 201


def test_a_participant_changes_its_name_and_the_next_board_has_it(service: Running) -> None:
    def board(epoch: int) -> list[str]:
        settle(service, epoch)
        return sorted(row["name"] for row in service.ask("GET", f"/v1/small/epochs/{epoch}/board").json["rows"])

    before = board(1)
    answer = register(service, ONE, name=" Änne ")
    assert (answer.status, answer.json) == (200, {"participant": "m1", "new": False, "renamed": True})
    assert submitting.find(folder_of(service), "m1").row["name"] == "Änne"
    assert sorted(row["name"] for row in service.ask("GET", "/v1/small/epochs/1/board").json["rows"]) == before
    assert "Änne" in board(2)
    after = state(service)
    assert register(service, ONE, name="Änne").json["renamed"] is False
    for name, sentence in {
        "ÄNNE": "is the name of another participant",
        "A\u0308nne": "is the name of another participant",
        "m1": "is the name of another participant",
        "\u0410LI\u0421\u0415": "has Latin and Cyrillic letters in one word, '\\u0410LI\\u0421\\u0415'",
        "team \u03a9mega 7": "has Latin and Greek letters in one word",
        "=1+1": "begins like a formula",
        "a\x1bb": "name: ",
    }.items():
        refused = register(service, TWO, name=name)
        assert (refused.status, sentence in f"{refused.json.get('where')}: {refused.json['detail']}") == (400, True), refused
    assert state(service) == after
    assert register(service, ONE, name="änne").json["renamed"]  # no other's


def test_nobody_takes_a_name_with_letters_of_another_script_that_look_the_same(service: Running) -> None:
    assert register(service, ONE, name="Cope").json["renamed"]
    before = state(service)
    refused = register(service, TWO, name="\u0421\u043e\u0440\u0435")  # Cyrillic as a whole
    assert (refused.status, refused.json["where"]) == (400, "name")
    assert "is the name of another participant" in refused.json["detail"]
    assert state(service) == before
    assert register(service, TWO, name="Команда Ω Nord").json["renamed"]  # each word in one script


def test_a_change_of_name_is_not_replayed_and_has_a_quota(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "NAMES_PER_EPOCH", 2)
    body, path = b'{"name":"Ann"}', "/v1/small/participants"
    headers = sign_request(ONE, "POST", f"{service.address}{path}", sha256(body).digest())
    assert service.ask("POST", path, body, headers).json["renamed"]
    assert register(service, ONE, name="Bea").json["renamed"]
    assert service.ask("POST", path, body, headers).status == 409
    refused = register(service, ONE, name="Cleo")
    assert (refused.status, refused.json["detail"][:31]) == (429, "the name was changed 2 times in")
    assert refused.headers["retry-after"] == "600"
    assert submitting.find(folder_of(service), "m1").row["name"] == "Bea"
    assert register(service, TWO, name="Ann").json["renamed"]
