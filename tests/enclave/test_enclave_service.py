"""The service: what is judged, when it is given out, and that no trouble of the world becomes an answer."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import seal_kit as kit
from assay.enclave import proofs, sealing
from assay.enclave.attest.document import parse_attestation
from assay.enclave.dstack import DstackError
from assay.enclave.messages import Rejected, RejectionCode
from assay.enclave.service.lifecycle import Service
from assay.enclave.service.results import RESULTS_STATEMENT
from assay.enclave.sponsor import open_results
from assay.errors import AssayError, BadInput
from assay.exact import digest
from assay.folder import write_bytes
from assay.ledger import batch
from assay.ledger.keys import public
from assay.records import Rubric

TEXTS = ("Merge sort, in n log n.", "Bubble sort.", "Count them.")


@pytest.fixture
def house(tmp_path: Path) -> kit.House:
    return kit.House(kit.bounty_folder(tmp_path / "bounty"))


async def given_out(house: kit.House, service: Service) -> dict[str, Any]:
    """The results, once the time for solutions is over."""
    house.clock.now = kit.CLOSED
    await kit.until(lambda: service.results)
    results: dict[str, Any] = json.loads(service.given_out().data)
    return results


def statement(results: dict[str, Any]) -> dict[str, Any]:
    return RESULTS_STATEMENT.read(json.dumps(results["statement"]).encode()).predicate


def states(results: dict[str, Any]) -> dict[str, str]:
    return {row["participant"]: row["state"] for row in statement(results)["submissions"]}


def records(results: dict[str, Any]) -> dict[str, Rubric]:
    signed_batch = batch.read(results["batch"].encode())
    batch.check_signature(signed_batch, public(signed_batch.statement.validator))
    return {record.participant: record for record in signed_batch.records if isinstance(record, Rubric)}


def rejected(code: RejectionCode, act: Any) -> None:
    with pytest.raises(Rejected) as caught:
        act()
    assert caught.value.code == code


def test_results_are_given_out_when_nothing_more_can_come(house: kit.House) -> None:
    async def act(service: Service) -> dict[str, Any]:
        for participant, text in zip((kit.P1, kit.P2), TEXTS, strict=False):
            house.hand_in(service, participant, text)
        work = service.ready()
        await kit.until(lambda: work.finished)
        rejected(RejectionCode.NOT_YET, service.given_out)
        rejected(RejectionCode.NOT_YET, service.sealed_results)
        assert json.loads(service.about(kit.P1))["state"] == "received"
        assert json.loads(service.status())["judgements"] is None
        house.clock.now = service.times.solutions
        await asyncio.sleep(0.05)
        rejected(RejectionCode.NOT_YET, service.given_out)
        results = await given_out(house, service)
        assert json.loads(service.about(kit.P1))["state"] == "judged"
        rows = json.loads(service.status())["judgements"]
        assert [(row["cost"], row["milliseconds"], row["tries"]) for row in rows] == [(7, 1200, 3)] * 2
        return results

    results = house.run(act)
    predicate, rubrics = statement(results), records(results)
    assert states(results) == {kit.P1: "judged", kit.P2: "judged"}
    assert results["batch"] is not None
    assert predicate["batch"] == batch.read(results["batch"].encode()).digest
    assert {rubric.attestation for rubric in rubrics.values()} == {digest(document) for document in results["judgements"]}
    signer = kit.identity(house.bounty).signer.public
    for document in results["attestations"]:
        attestation = parse_attestation(json.dumps(document).encode())
        now = int(kit.BEFORE.timestamp())
        collateral = house.dstack.machine.authority.collateral(now)
        named = str(attestation.statement.model_dump()["judgement"])
        assert named in {row.attestation for row in rubrics.values()}
        bounty = kit.with_enclave(house.bounty, house.dstack.machine)
        proofs.check_judgement(bounty, attestation, named, signer.id, now=now, collateral=collateral)
    assert sorted(house.asked) == sorted(TEXTS[:2])


def test_of_what_was_handed_in_nothing_is_on_the_disk_or_told(house: kit.House) -> None:
    async def act(service: Service) -> None:
        house.hand_in(service, kit.P1, "the secret of sorting")
        await given_out(house, service)

    house.run(act)
    salt = next(iter(house.run(_opened).values())).salt
    for path in (house.place / "enclave").rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        for secret in (b"the secret of sorting", salt, salt.hex().encode(), *_private(house)):
            assert secret not in data, path
    assert "secret" not in " ".join(house.messages)


async def _opened(service: Service) -> dict[str, sealing.OpenedSolution]:
    return service.ready().desk.opened


def _private(house: kit.House) -> list[bytes]:
    identity = kit.identity(house.bounty)
    raw = [identity.seal.opener().private_bytes_raw()]
    raw.append(identity.signer.to_file())
    return [*raw, raw[0].hex().encode()]


def test_a_model_that_is_down_keeps_it_waiting_and_no_longer(house: kit.House) -> None:
    house.script[TEXTS[0]] = AssayError("503 the secret of sorting")

    async def act(service: Service) -> dict[str, Any]:
        house.hand_in(service, kit.P1, TEXTS[0])
        house.hand_in(service, kit.P2, TEXTS[1])
        work = service.ready()
        await kit.until(lambda: len(work.done) == 1 and house.asked.count(TEXTS[0]) > 3)
        house.clock.now = kit.CLOSED
        await asyncio.sleep(0.05)
        rejected(RejectionCode.NOT_YET, service.given_out)
        status = json.loads(service.status())
        assert (status["waiting"], status["troubles"]) == (1, ["internal: AssayError"])
        assert json.loads(service.about(kit.P1))["state"] == "judging"
        del house.script[TEXTS[0]]
        return await given_out(house, service)

    results = house.run(act)
    assert states(results) == {kit.P1: "judged", kit.P2: "judged"}
    assert house.asked.count(TEXTS[1]) == 1
    assert "secret" not in " ".join(house.messages)


@pytest.mark.parametrize("error", [AssayError("down"), BadInput("too large"), RuntimeError("a fault"), OSError(28, "full")])
def test_what_cannot_be_judged_in_time_is_unjudged_and_holds_nobody_up(house: kit.House, error: Exception) -> None:
    house.script[TEXTS[0]] = error

    async def act(service: Service) -> dict[str, Any]:
        house.hand_in(service, kit.P1, TEXTS[0])
        house.hand_in(service, kit.P2, TEXTS[1])
        work = service.ready()
        await kit.until(lambda: len(work.desk.state.quotes) == 1)
        house.clock.now = kit.OVER
        await kit.until(lambda: service.results)
        return dict(json.loads(service.given_out().data))

    results = house.run(act)
    assert states(results) == {kit.P1: "unjudged", kit.P2: "judged"}
    rubrics = records(results)
    assert (rubrics[kit.P1].outcome, rubrics[kit.P1].baseline) == ("unjudged", None)
    assert rubrics[kit.P2].outcome == "judged"
    assert len(results["judgements"]) == len(results["attestations"]) == 1


def test_one_that_never_gets_an_answer_takes_nobodys_place(house: kit.House) -> None:
    for text in TEXTS[:2]:
        house.script[text] = AssayError("down")

    async def act(service: Service) -> None:
        for participant, text in zip((kit.P1, kit.P2, kit.P3), TEXTS, strict=True):
            house.hand_in(service, participant, text)
        work = service.ready()
        await kit.until(lambda: len(work.done) == 1)

    house.run(act, jobs=1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_more_are_judged_at_one_time_than_it_is_told(house: kit.House, jobs: int) -> None:
    async def act(service: Service) -> None:
        for number, participant in enumerate(kit.PEOPLE):
            house.hand_in(service, participant, f"Answer {number}.")
        work = service.ready()
        await kit.until(lambda: len(work.done) == 4)

    house.run(act, jobs=jobs)
    assert house.most == jobs


def test_without_a_quote_a_judgement_waits_and_then_does_not_count(house: kit.House) -> None:
    async def act(service: Service) -> dict[str, Any]:
        house.dstack.down.append("no quote")
        house.hand_in(service, kit.P1, TEXTS[0])
        work = service.ready()
        await kit.until(lambda: work.troubles)
        assert json.loads(service.status())["troubles"] == ["no quote"]
        house.clock.now = kit.CLOSED
        await asyncio.sleep(0.05)
        rejected(RejectionCode.NOT_YET, service.given_out)
        house.clock.now = kit.OVER
        await kit.until(lambda: service.results)
        return dict(json.loads(service.given_out().data))

    results = house.run(act)
    assert states(results) == {kit.P1: "unjudged"}
    assert records(results)[kit.P1].outcome == "unjudged"
    assert house.asked == [TEXTS[0]]


def test_a_dstack_that_comes_back_is_asked_again(house: kit.House) -> None:
    async def act(service: Service) -> dict[str, Any]:
        house.dstack.down.append("no quote")
        house.hand_in(service, kit.P1, TEXTS[0])
        work = service.ready()
        await kit.until(lambda: work.troubles)
        house.dstack.down.clear()
        return await given_out(house, service)

    assert states(house.run(act)) == {kit.P1: "judged"}
    assert house.asked == [TEXTS[0]]


def test_without_dstack_it_says_that_it_is_starting(house: kit.House) -> None:
    house.dstack.down.append("no keys")

    async def act() -> None:
        service = house.service()
        living = asyncio.create_task(service.live())
        await kit.until(lambda: service.trouble)
        for asked in (service.ready, service.given_out, lambda: service.commit(b""), lambda: service.about("x")):
            rejected(RejectionCode.STARTING, asked)
        assert json.loads(service.status())["state"] == "starting"
        house.dstack.down.clear()
        await kit.until(lambda: service.work)
        assert not living.done()
        living.cancel()

    asyncio.run(act())
    assert "not started yet: no keys" in house.messages


def test_it_goes_on_after_a_restart_and_judges_nothing_twice(house: kit.House) -> None:
    house.script[TEXTS[1]] = AssayError("down")

    async def begin(service: Service) -> None:
        house.hand_in(service, kit.P1, TEXTS[0])
        house.hand_in(service, kit.P2, TEXTS[1])
        work = service.ready()
        await kit.until(lambda: len(work.done) == 1 and work.troubles)

    async def go_on(service: Service) -> dict[str, Any]:
        assert len(service.ready().done) == 1
        house.script.clear()
        return await given_out(house, service)

    async def after(service: Service) -> bytes:
        return service.given_out().data

    house.run(begin)
    results = house.run(go_on)
    assert states(results) == {kit.P1: "judged", kit.P2: "judged"}
    assert house.asked.count(TEXTS[0]) == 1
    count = len(house.asked)
    assert json.loads(house.run(after)) == results
    assert len(house.asked) == count


def test_a_crash_between_a_judgement_and_its_quote_loses_neither(house: kit.House) -> None:
    async def begin(service: Service) -> None:
        house.dstack.down.append("no quote")
        house.hand_in(service, kit.P1, TEXTS[0])
        work = service.ready()
        await kit.until(lambda: work.done)

    async def go_on(service: Service) -> dict[str, Any]:
        return await given_out(house, service)

    house.run(begin)
    house.dstack.down.clear()
    assert states(house.run(go_on)) == {kit.P1: "judged"}
    assert house.asked == [TEXTS[0]]


def test_a_judgement_that_cannot_be_written_is_not_asked_for_again(house: kit.House, monkeypatch: pytest.MonkeyPatch) -> None:
    full = [True]

    def write(path: Path, data: bytes, **how: Any) -> None:
        if full and "judgements" in path.parts:
            raise BadInput("cannot be written (No space left on device)", file=path)
        write_bytes(path, data, **how)

    monkeypatch.setattr("assay.enclave.service.state.write_bytes", write)

    async def act(service: Service) -> dict[str, Any]:
        house.hand_in(service, kit.P1, TEXTS[0])
        work = service.ready()
        await kit.until(lambda: work.troubles)
        full.clear()
        return await given_out(house, service)

    assert states(house.run(act)) == {kit.P1: "judged"}
    assert house.asked == [TEXTS[0]]


def test_what_was_not_written_was_not_taken(house: kit.House, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes, **how: Any) -> None:
        raise BadInput("cannot be written (No space left on device)", file=path)

    async def act(service: Service) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("assay.enclave.service.state.write_bytes", full)
            with pytest.raises(BadInput, match="cannot be written"):
                house.hand_in(service, kit.P1, TEXTS[0])
        rejected(RejectionCode.UNKNOWN, lambda: service.about(kit.P1))
        house.hand_in(service, kit.P1, TEXTS[0])

    house.run(act)


def test_one_solution_of_two_is_judged_once_and_counts_for_who_committed_first(house: kit.House) -> None:
    async def act(service: Service) -> dict[str, Any]:
        signed, sealed = kit.handed(house.bounty, kit.P2, kit.solution(TEXTS[0]), service.ready().desk.identity.seal.public)
        service.commit(signed.envelope)
        house.clock.now += timedelta(microseconds=1)
        house.hand_in(service, kit.P1, TEXTS[0])
        work = service.ready()
        await kit.until(lambda: work.finished)
        service.submit(sealed.file)
        return await given_out(house, service)

    results = house.run(act)
    assert house.asked == [TEXTS[0]]
    assert states(results) == {kit.P1: "judged", kit.P2: "judged"}
    assert list(records(results)) == [kit.P2]


def test_a_clock_that_goes_back_lets_nothing_in(house: kit.House) -> None:
    async def begin(service: Service) -> None:
        house.hand_in(service, kit.P1, TEXTS[0])
        await given_out(house, service)
        house.clock.now = kit.BEFORE
        rejected(RejectionCode.LATE, lambda: house.hand_in(service, kit.P2, TEXTS[1]))

    async def again(service: Service) -> None:
        rejected(RejectionCode.LATE, lambda: house.hand_in(service, kit.P2, TEXTS[1]))
        assert json.loads(service.status())["committed"] == 1

    house.run(begin)
    house.clock.now = kit.BEFORE
    house.run(again)


def test_a_clock_that_goes_back_over_a_restart_goes_on_from_what_was_signed(house: kit.House) -> None:
    async def begin(service: Service) -> None:
        house.hand_in(service, kit.P1, TEXTS[0])
        house.clock.now = kit.BETWEEN
        await kit.until(lambda: service.ready().done)

    async def again(service: Service) -> None:
        rejected(RejectionCode.LATE, lambda: house.hand_in(service, kit.P2, TEXTS[1]))

    house.run(begin)
    house.clock.now = kit.BEFORE
    house.run(again)


def test_who_only_committed_and_who_was_refused_is_said(house: kit.House) -> None:
    async def act(service: Service) -> dict[str, Any]:
        desk = service.ready().desk
        signed, _ = kit.handed(house.bounty, kit.P1, kit.solution(), desk.identity.seal.public)
        service.commit(signed.envelope)
        large = kit.solution("x" * 1001)
        secret, signed = kit.committed(house.bounty, kit.P2, large)
        service.commit(signed.envelope)
        sealed = kit.sealed_anyway(house.bounty, secret, large.data, desk.identity.seal.public)
        rejected(RejectionCode.TOO_LARGE, lambda: service.submit(sealed.file))
        assert json.loads(service.about(kit.P1))["state"] == "committed"
        assert json.loads(service.about(signed.digest))["state"] == "refused"
        return await given_out(house, service)

    results = house.run(act)
    assert states(results) == {kit.P1: "committed", kit.P2: "refused"}
    assert results["batch"] is None
    assert results["judgements"] == []


def test_the_sponsor_gets_answers_and_costs_and_nothing_of_a_text(house: kit.House) -> None:
    async def act(service: Service) -> bytes:
        house.hand_in(service, kit.P1, "the secret of sorting")
        await given_out(house, service)
        return service.sealed_results()

    sealed_results = sealing.parse_sealed(house.run(act))
    plain = sealed_results.open(kit.SPONSOR)
    assert b"secret" not in plain
    (row,) = json.loads(plain)["judgements"]
    assert open_results(house.bounty, sealed_results, kit.SPONSOR) == [row]
    assert row["participant"] == kit.P1
    assert row["checks"] == {"C1": True, "C2": True}
    assert row["measured"]["cost"] == 7
    with pytest.raises(BadInput, match="does not open"):
        sealed_results.open(kit.identity(house.bounty).seal)


def test_a_bounty_without_a_sponsor_seals_to_nobody(tmp_path: Path) -> None:
    place = kit.bounty_folder(tmp_path / "bounty")
    text = (place / "bounty.toml").read_text()
    (place / "bounty.toml").write_text(text.replace(f'sponsor = "{kit.SPONSOR.public.id}"\n', ""))
    house = kit.House(place)

    async def act(service: Service) -> None:
        await given_out(house, service)
        rejected(RejectionCode.NO_SPONSOR, service.sealed_results)
        rejected(RejectionCode.NO_SPONSOR, lambda: service.release(b"{}"))

    house.run(act)


@pytest.mark.parametrize("change", [b"{}", b"", b"[]", b'{"statement":1}'])
def test_results_that_were_changed_are_not_served(house: kit.House, change: bytes) -> None:
    async def act(service: Service) -> None:
        await given_out(house, service)

    house.run(act)
    file = house.place / "enclave/results.json"
    other = kit.House(kit.bounty_folder(house.place.with_name("other"), tokens=999))
    other.run(lambda service: _given(other, service))
    for data in (change, (other.place / "enclave/results.json").read_bytes()):
        file.write_bytes(data)
        with pytest.raises(BadInput, match=r"was changed after the enclave wrote it|is not signed by this enclave"):
            house.run(act)


async def _given(house: kit.House, service: Service) -> None:
    await given_out(house, service)


def test_a_trouble_is_one_of_dstack() -> None:
    assert issubclass(DstackError, AssayError)
