"""Collecting, settling, releasing: what an enclave gave out is believed in no other form, and only winners are released."""

import base64
import copy
import json
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import seal_kit as kit
from assay.enclave import collect, sealing, sponsor
from assay.enclave.attest.document import parse_attestation
from assay.enclave.collect import CheckedResults, check_results
from assay.enclave.messages import Rejected, RejectionCode
from assay.enclave.service.lifecycle import Service
from assay.enclave.service.results import RESULTS_STATEMENT
from assay.errors import BadInput, Refused
from assay.exact import canonical, digest
from assay.folder import csvs
from assay.ledger import access, batch, config, keys, settling
from assay.ledger.access import open_ledger
from assay.scheme.bounty import Bounty, read_bounty

FIRST, SECOND, THIRD, LOST = "Merge sort, n log n.", "Quick sort, mostly.", "Heap sort.", "the secret of sorting"
TEXTS = dict(zip(kit.PEOPLE, (FIRST, SECOND, THIRD, LOST), strict=True))
NOW = int(kit.CLOSED.timestamp())


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kit.House:
    """A bounty that pins the tests' machine, with a ledger, and what each solution is judged as."""
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    machine = kit.local().machine
    pin = f'\n[enclave]\ncompose_hash = "{machine.compose_hash.hex()}"\ndevelopment = true\n'
    place = kit.bounty_folder(tmp_path / "bounty", more=pin)
    access.make_ledger(place, "example.org/sorting", kit.LOG)
    house = kit.House(place)
    for text, yes, verdict in (
        (FIRST, ("C1", "C2"), "COHERENT"),
        (SECOND, ("C1",), "ELEGANT"),
        (THIRD, ("C1",), "COHERENT"),
        (LOST, ("C2",), "COHERENT"),
    ):
        house.script[text] = kit.judgement(house.bounty, kit.solution(text), yes, verdict)
    return house


async def given_out(house: kit.House, service: Service) -> tuple[bytes, bytes]:
    """Everybody hands in; the attestation, and the results."""
    for participant, text in TEXTS.items():
        house.hand_in(service, participant, text)
    house.clock.now = kit.CLOSED
    await kit.until(lambda: service.results)
    return service.attestation, service.given_out().data


def verdicts(house: kit.House, attestation: bytes, data: bytes) -> CheckedResults:
    collateral = house.dstack.machine.authority.collateral(NOW)
    return check_results(house.bounty, parse_attestation(attestation), data, now=NOW, collateral=collateral)


def settle(house: kit.House, results: CheckedResults) -> bytes:
    """Collect and settle; what a release is asked for with."""
    collect.write_results(house.bounty, results)
    with open_ledger(house.place) as ledger:
        settling.settle(ledger, kit.LOG, 1)
    return sponsor.release_request(house.place, None, None, None)


def test_only_winners_are_released_and_only_after_settlement(house: kit.House) -> None:
    async def act(service: Service) -> tuple[bytes, CheckedResults, bytes]:
        for asked in (b"{}", canonical({"receipt": {}, "settlement": {}})):
            rejected(RejectionCode.NOT_YET, partial(service.release, asked))
        results = verdicts(house, *await given_out(house, service))
        rejected(RejectionCode.MALFORMED, lambda: service.release(b"{}"))
        asked = settle(house, results)
        first, again = service.release(asked), service.release(asked)
        assert first != again  # sealed anew
        assert sealing.parse_sealed(first).open(kit.SPONSOR) == sealing.parse_sealed(again).open(kit.SPONSOR)
        return first, results, asked

    data, results, _ = house.run(act)
    whole = sealing.parse_sealed(data).open(kit.SPONSOR)
    assert base64.b64encode(kit.solution(FIRST).data) in whole
    for text in (THIRD, LOST):
        assert text.encode() not in whole
        assert base64.b64encode(kit.solution(text).data) not in whole
    released = sponsor.open_release(house.bounty, sealing.parse_sealed(data), kit.SPONSOR)
    assert {winner.participant: winner.solution.files["answer.md"] for winner in released} == {kit.P1: FIRST, kit.P2: SECOND}
    assert released[0].quotes["C1"] == FIRST or released[1].quotes["C1"] == FIRST
    written = sponsor.write_released(house.bounty, released, kit.SPONSOR)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in written)
    assert sorted(path.parent.name for path in written) == ["solutions", "solutions", "transcripts", "transcripts"]
    assert {row.state for row in results.rows} == {"judged"}
    assert FIRST not in repr(released)


def test_a_restarted_enclave_releases_the_same(house: kit.House) -> None:
    async def begin(service: Service) -> bytes:
        return settle(house, verdicts(house, *await given_out(house, service)))

    async def go_on(service: Service) -> bytes:
        return sealing.parse_sealed(service.release(asked)).open(kit.SPONSOR)

    asked = house.run(begin)
    assert len(json.loads(house.run(go_on))["solutions"]) == 2


def rejected(code: RejectionCode, act: Callable[[], object]) -> Rejected:
    with pytest.raises(Rejected) as caught:
        act()
    assert caught.value.code == code
    return caught.value


def test_a_settlement_that_is_not_this_bountys_releases_nothing(house: kit.House, tmp_path: Path) -> None:
    other = kit.House(kit.bounty_folder(tmp_path / "other", tokens=999))
    access.make_ledger(other.place, "example.org/sorting", kit.LOG)

    async def act(service: Service) -> None:
        asked = json.loads(settle(house, verdicts(house, *await given_out(house, service))))
        changed = copy.deepcopy(asked)
        changed["settlement"]["payouts"][0]["participant"] = kit.P4
        lying = copy.deepcopy(changed)
        lying["settlement"]["digest"] = digest({k: v for k, v in lying["settlement"].items() if k != "digest"})
        for wrong in (changed, lying):
            assert "another settlement" in str(rejected(RejectionCode.NOT_SETTLED, partial(service.release, canonical(wrong))))
        forged = forge(lying["settlement"], keys.read(b"66" * 32), house.bounty)
        assert "the receipt is not right" in str(rejected(RejectionCode.NOT_SETTLED, lambda: service.release(forged)))
        for name, value in (("name", "elsewhere"), ("digest", f"sha256:{'0' * 64}")):
            elsewhere = copy.deepcopy(asked["settlement"])
            elsewhere["scheme"][name] = value
            data = forge(elsewhere, kit.LOG, house.bounty)
            assert "not of this bounty" in str(rejected(RejectionCode.NOT_SETTLED, partial(service.release, data)))
        early = copy.deepcopy(asked["settlement"]) | {"epoch": 0}
        assert "epoch 0" in str(rejected(RejectionCode.NOT_SETTLED, lambda: service.release(forge(early, kit.LOG, house.bounty))))
        unread = copy.deepcopy(asked["settlement"]) | {"payouts": [{}]}
        assert "no payouts" in str(
            rejected(RejectionCode.NOT_SETTLED, lambda: service.release(forge(unread, kit.LOG, house.bounty)))
        )

    house.run(act)


def forge(settlement: dict[str, Any], signer: keys.PrivateKey, bounty: Bounty) -> bytes:
    """A receipt of a settlement that says anything, by whoever has a log's key."""
    from assay.ledger import log, merkle, statements
    from assay.ledger.check import leaf_hash
    from assay.ledger.keys import sign_envelope

    content = {name: value for name, value in settlement.items() if name != "digest"}
    settlement = content | {"digest": digest(content)}
    root = f"sha256:{'0' * 64}"
    safe = settlement if settlement["payouts"] != [{}] else settlement | {"payouts": []}
    records = {row["participant"]: {"root": root, "count": 0} for row in safe["agreed"]}
    payload = statements.receipt_statement(safe, inputs=root, evidence=(root, 1), records=records, previous=None, version="1")
    tree = merkle.Tree([leaf_hash(sha256(payload).digest())])
    key = log.log_key("example.org/sorting", signer.public)
    checkpoint = log.sign_checkpoint(1, tree.root(), key, signer)
    receipt = statements.receipt_document(canonical(sign_envelope(payload, signer)), tree.inclusion(0), checkpoint)
    return canonical({"receipt": receipt, "settlement": settlement})


def test_a_log_that_pays_losers_has_none_of_them_released(house: kit.House) -> None:
    """The sponsor may have the log's key, and could settle whatever it likes."""

    async def act(service: Service) -> bytes:
        asked = json.loads(settle(house, verdicts(house, *await given_out(house, service))))
        lying = copy.deepcopy(asked["settlement"])
        rows = lying["payouts"]
        lying["payouts"] = [rows[0] | {"participant": participant} for participant in (kit.P4, kit.P3, kit.P2)]
        return service.release(forge(lying, kit.LOG, house.bounty))

    release = json.loads(sealing.parse_sealed(house.run(act)).open(kit.SPONSOR))
    assert [row["participant"] for row in release["solutions"]] == [kit.P2]


def test_a_bounty_that_names_no_log_releases_nothing(tmp_path: Path) -> None:
    place = kit.bounty_folder(tmp_path / "bounty")
    lines = (place / "bounty.toml").read_text().splitlines()
    (place / "bounty.toml").write_text("\n".join(line for line in lines if not line.startswith("log =")))
    house = kit.House(place)

    async def act(service: Service) -> None:
        house.clock.now = kit.CLOSED
        await kit.until(lambda: service.results)
        settlement = {"scheme": {"name": "x", "digest": f"sha256:{'0' * 64}"}, "epoch": 1, "task_set": None}
        empty = settlement | {"agreed": [], "ranking": [], "weights": [], "payouts": []}
        rejected(RejectionCode.NOT_SETTLED, lambda: service.release(forge(empty, kit.LOG, house.bounty)))

    house.run(act)


def test_what_was_released_is_checked_against_what_was_published(house: kit.House) -> None:
    async def act(service: Service) -> bytes:
        return service.release(settle(house, verdicts(house, *await given_out(house, service))))

    data = house.run(act)
    plain = json.loads(sealing.parse_sealed(data).open(kit.SPONSOR))

    def again(change: Callable[[dict[str, Any]], object]) -> sealing.SealedFile:
        document = copy.deepcopy(plain)
        change(document["solutions"][0])
        return sealing.seal_bytes("release", canonical(document), kit.SPONSOR.public, bounty=house.bounty.digest)

    assert len(sponsor.open_release(house.bounty, again(lambda row: row), kit.SPONSOR)) == 2
    changes: list[Callable[[dict[str, Any]], object]] = [
        lambda row: row.update(solution=base64.b64encode(kit.solution("Another.").data).decode()),
        lambda row: row.update(submission=kit.solution("Another.").digest),
        lambda row: row["quotes"].update(C1="another"),
        lambda row: row.update(salt="0" * 64),
        lambda row: row.update(transcript="{}"),
    ]
    for change in changes:
        with pytest.raises(Refused, match=r"release: .*another .* than was published"):
            sponsor.open_release(house.bounty, again(change), kit.SPONSOR)
    for wrong in (lambda row: row.pop("salt"), lambda row: row.update(more=1), lambda row: row.update(solution="%")):
        with pytest.raises(BadInput):
            sponsor.open_release(house.bounty, again(wrong), kit.SPONSOR)
    with pytest.raises(BadInput, match="is release of bounty"):
        sponsor.open_results(house.bounty, again(lambda row: row), kit.SPONSOR)
    with pytest.raises(BadInput, match="does not open"):
        sponsor.open_release(house.bounty, again(lambda row: row), keys.new(keys.X25519))


# Collecting


def test_what_was_collected_settles_and_says_when_it_was_committed(house: kit.House) -> None:
    async def act(service: Service) -> CheckedResults:
        return verdicts(house, *await given_out(house, service))

    results = house.run(act)
    written = collect.write_results(house.bounty, results)
    assert (house.place / "validators.csv").read_text() == f"key,stake,name\n{kit.identity(house.bounty).validator},1,enclave\n"
    rows = {row.fields["key"]: row.fields for row in csvs.read(house.place / "participants.csv", csvs.PARTICIPANTS)}
    assert {key: (row["submission"], row["submitted_at"]) for key, row in rows.items()} == {
        participant: (kit.solution(text).digest, "2029-12-31T23:59:59Z") for participant, text in TEXTS.items()
    }
    assert all(path.exists() for path in written)
    before = {path: path.read_bytes() for path in written}
    assert set(collect.write_results(house.bounty, results)) <= set(written)
    assert {path: path.read_bytes() for path in written} == before


def test_without_a_ledger_the_records_are_evidence(house: kit.House) -> None:
    async def act(service: Service) -> CheckedResults:
        return verdicts(house, *await given_out(house, service))

    results = house.run(act)
    (house.place / config.FILE).unlink()
    written = collect.write_results(house.bounty, results)
    (file,) = (path for path in written if path.suffix == ".jsonl")
    assert file.parent.name == "evidence"
    assert len(file.read_bytes().splitlines()) == 4
    import assay

    settled = assay.open(house.place).settle(1)
    assert [row["participant"] for row in settled.document["payouts"]] == [kit.P1, kit.P2]


def test_other_validators_stay_and_the_enclave_is_asked_for(house: kit.House) -> None:
    async def act(service: Service) -> CheckedResults:
        return verdicts(house, *await given_out(house, service))

    results = house.run(act)
    other = keys.read(b"55" * 32).public.raw.hex()
    (house.place / "validators.csv").write_text(f"key,stake,name\n{other},5,val\n")
    with pytest.raises(BadInput, match=r"does not have the enclave among the validators; add a row .*,1,enclave"):
        collect.write_results(house.bounty, results)
    assert not (house.place / "judgements").exists()
    (house.place / "validators.csv").write_text(f"key,stake,name\n{other},5,val\n{kit.identity(house.bounty).validator},9,tee\n")
    collect.write_results(house.bounty, results)
    assert ",9,tee" in (house.place / "validators.csv").read_text()


def test_results_are_believed_as_they_were_given_out_and_in_no_other_form(house: kit.House) -> None:
    async def act(service: Service) -> tuple[bytes, bytes]:
        return await given_out(house, service)

    attestation, data = house.run(act)
    plain = json.loads(data)
    identity = kit.identity(house.bounty)
    collateral = house.dstack.machine.authority.collateral(NOW)

    def refused(what: Any, match: str, bounty: Bounty | None = None) -> None:
        with pytest.raises((Refused, BadInput), match=match):
            check_results(bounty or house.bounty, parse_attestation(attestation), canonical(what), now=NOW, collateral=collateral)

    def signed(change: Callable[[dict[str, Any]], object], signer: keys.PrivateKey = identity.signer) -> dict[str, Any]:
        predicate = copy.deepcopy(RESULTS_STATEMENT.read(canonical(plain["statement"])).predicate)
        change(predicate)
        return {**plain, "statement": json.loads(RESULTS_STATEMENT.make(house.bounty.digest, predicate, signer).envelope)}

    check_results(house.bounty, parse_attestation(attestation), canonical(plain), now=NOW, collateral=collateral)
    wrongs: tuple[Any, ...] = ({}, [], plain | {"more": 1}, plain | {"schema": "x"}, plain | {"batch": 1})
    for wrong in wrongs:
        refused(wrong, "is not what an enclave gives out")
    refused(plain | {"statement": {}}, "statement")
    refused(signed(lambda predicate: predicate, kit.LOG), "statement: it is not signed by the key")
    refused(
        signed(lambda predicate: predicate["submissions"].append(predicate["submissions"][0])), "a participant is there twice"
    )
    late = "2031-01-01T00:00:00Z"
    refused(signed(lambda predicate: predicate["submissions"][0].update(committed_at=late)), "a commitment came late")
    refused(signed(lambda predicate: predicate["submissions"][0].update(received_at=late)), "a solution came late")
    refused(signed(lambda predicate: predicate["submissions"][0].update(state="refused")), "contradicts its solution")
    refused(signed(lambda predicate: predicate["submissions"].pop()), "its records are not one for each solution")
    refused(signed(lambda predicate: predicate.update(batch=None)), "it is of another digest")
    refused(signed(lambda predicate: predicate.update(epoch=2)), "it is of another epoch")
    refused(plain | {"batch": None}, "there is no evidence of what was handed in")
    refused(plain | {"batch": plain["batch"][:-1]}, "batch: ")
    refused(plain | {"batch": plain["batch"].replace("COHERENT", "ELEGANT ")}, "batch: ")
    refused(plain | {"judgements": plain["judgements"][1:]}, "there is none for a record")
    refused(plain | {"attestations": plain["attestations"][1:]}, "a judgement has no quote")
    swapped = [document | {"quote": plain["attestations"][0]["quote"]} for document in plain["attestations"]]
    refused(plain | {"attestations": swapped}, "report_data")
    refused(plain | {"judgements": [*plain["judgements"], plain["judgements"][0] | {"verdict": "FLAWED"}]}, "has no quote")
    other = copy.deepcopy(house.bounty)
    other.__dict__["digest"] = f"sha256:{'0' * 64}"
    refused(plain, "it is of another bounty", other)
    stranger = kit.local(b"another app")
    with pytest.raises(Refused):
        check_results(
            house.bounty,
            stranger.attest(kit.identity(house.bounty, b"another app").statement),
            data,
            now=NOW,
            collateral=stranger.machine.authority.collateral(NOW),
        )


def test_records_that_say_something_else_than_their_judgement_are_refused(house: kit.House) -> None:
    """Even if the enclave's key signed both."""

    async def act(service: Service) -> tuple[bytes, bytes]:
        return await given_out(house, service)

    attestation, data = house.run(act)
    plain, identity = json.loads(data), kit.identity(house.bounty)
    records = [record.model_copy(update={"verdict": "EXCEPTIONAL"}) for record in batch.read(plain["batch"].encode()).records]
    signed_batch = batch.make(
        records,
        origin=house.bounty.origin,
        competition="sorting",
        task_set=None,
        signer=identity.signer,
        validator=identity.validator,
    )
    predicate = RESULTS_STATEMENT.read(canonical(plain["statement"])).predicate | {"batch": signed_batch.digest}
    statement = json.loads(RESULTS_STATEMENT.make(house.bounty.digest, predicate, identity.signer).envelope)
    lying = canonical(plain | {"batch": signed_batch.data.decode(), "statement": statement})
    with pytest.raises(Refused, match=r"judgements: .*a record has another verdict"):
        verdicts(house, attestation, lying)


def test_what_a_release_is_asked_for_with(house: kit.House, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a receipt goes with its settlement"):
        sponsor.release_request(house.place, None, tmp_path / "a", None)
    (tmp_path / "a").write_text("{}")
    (tmp_path / "b").write_text("{")
    assert json.loads(sponsor.release_request(house.place, None, tmp_path / "a", tmp_path / "a")) == {
        "receipt": {},
        "settlement": {},
    }
    with pytest.raises(BadInput, match="b: is not JSON"):
        sponsor.release_request(house.place, None, tmp_path / "a", tmp_path / "b")
    (house.place / config.FILE).unlink()
    with pytest.raises(BadInput, match="has no ledger, and a release needs a receipt"):
        sponsor.release_request(house.place, None, None, None)
    assert read_bounty(house.place).digest == house.bounty.digest
