"""The service over HTTP, without a network: every refusal has its status, and no trouble of ours says what it was about."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

import seal_kit as kit
from assay.enclave.messages import RejectionCode
from assay.enclave.service.http import STATUS, make_app
from assay.enclave.service.lifecycle import Service


@pytest.fixture
def house(tmp_path: Path) -> kit.House:
    return kit.House(kit.bounty_folder(tmp_path / "bounty"))


def served(house: kit.House, act: Callable[[httpx.AsyncClient, Service], Awaitable[None]], seconds: float = 60.0) -> None:
    """Run `act` with a client of the service."""

    async def asked(service: Service) -> None:
        transport = httpx.ASGITransport(app=make_app(service, seconds=seconds), raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://enclave") as client:
            await act(client, service)

    house.run(asked)


def code_of(answer: httpx.Response) -> str:
    error = answer.json()["error"]
    assert set(error) == {"code", "what", "hint"}
    assert STATUS[RejectionCode(error["code"])] == answer.status_code
    return str(error["code"])


def test_every_refusal_has_a_status() -> None:
    assert set(STATUS) == set(RejectionCode)
    assert all(400 <= status < 600 for status in STATUS.values())


def test_what_is_asked_is_answered(house: kit.House) -> None:
    async def act(client: httpx.AsyncClient, service: Service) -> None:
        bounty = (await client.get("/bounty")).json()
        assert (bounty["digest"], bounty["problem"]) == (house.bounty.digest, house.bounty.problem)
        stated = (await client.get("/attestation")).json()["statement"]
        assert stated == service.ready().desk.identity.statement.model_dump()
        signed, sealed = kit.handed(house.bounty, kit.P1, kit.solution(), service.ready().desk.identity.seal.public)
        assert code_of(await client.post("/submissions", content=sealed.file)) == "no-commitment"
        assert (await client.post("/commitments", content=signed.envelope)).status_code == 200
        answer = await client.post("/submissions", content=sealed.file)
        assert answer.json()["payloadType"] == "application/vnd.in-toto+json"
        assert answer.headers["cache-control"] == "no-store"
        for who in (kit.P1, signed.digest):
            assert (await client.get(f"/submissions/{who}")).json()["state"] == "received"
        assert code_of(await client.get("/submissions/nobody")) == "unknown"
        assert code_of(await client.get("/results")) == "not-yet"
        assert code_of(await client.get("/results/sealed")) == "not-yet"
        assert code_of(await client.post("/release", content=b"{}")) == "not-yet"
        house.clock.now = kit.CLOSED
        await kit.until(lambda: service.results)
        assert (await client.get("/results")).json()["schema"] == "assay.enclave-results/1"
        assert (await client.get("/results/sealed")).json()["kind"] == "results"
        assert code_of(await client.post("/release", content=b"{}")) == "malformed"
        assert (await client.get("/status")).json()["state"] == "given-out"

    served(house, act)


def test_a_body_that_is_too_slow_is_not_waited_for(house: kit.House) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(3600)

    async def act(client: httpx.AsyncClient, service: Service) -> None:
        assert code_of(await client.post("/commitments", content=slowly())) == "busy"
        assert json.loads(service.status())["committed"] == 0

    served(house, act, seconds=0.02)


@pytest.mark.parametrize("length", [b"\xb2", b"\xb9\xb2", b"-1", b"1e3", b""])
def test_a_length_that_is_none_is_no_trouble_of_ours(house: kit.House, length: bytes) -> None:
    async def act(client: httpx.AsyncClient, service: Service) -> None:
        headers = [(b"content-length", length)]
        assert code_of(await client.post("/commitments", content=b"{}", headers=headers)) == "malformed"

    served(house, act)


def test_trouble_of_ours_is_said_to_be_ours_and_no_more(house: kit.House, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: bytes) -> bytes:
        raise RuntimeError(f"the secret of sorting: {data!r}")

    async def act(client: httpx.AsyncClient, service: Service) -> None:
        monkeypatch.setattr(service, "commit", broken)
        answer = await client.post("/commitments", content=b"{}")
        assert code_of(answer) == "internal"
        assert "secret" not in answer.text
        signed, sealed = kit.handed(house.bounty, kit.P1, kit.solution(), service.ready().desk.identity.seal.public)
        (house.place / "participants.csv").write_text("nonsense\n")
        assert code_of(await client.post("/submissions", content=sealed.file)) == "internal"
        assert signed.digest

    served(house, act)
    assert "internal error: RuntimeError" in house.messages
    assert f"internal error: BadInput {house.place / 'participants.csv'}" in house.messages
    assert "secret" not in " ".join(house.messages)
