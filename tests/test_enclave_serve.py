"""A bounty from the commitment to the release, by real processes, through the commands."""

import json
import os
from pathlib import Path

import pytest

import seal_kit as kit
import serve_kit
from assay.ledger import keys
from cli_kit import output, refused, run
from serve_kit import GOOD, HALF, POEM, SLOW, World, wait

# httpcore leaves the socket of a connection that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keys of the test's own: the participants', the sponsor's."""
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    for number, key in enumerate(kit.PEOPLE.values(), start=1):
        keys.save(f"p{number}", key)
    keys.save("sponsor", kit.SPONSOR)
    return tmp_path


def test_from_the_commitment_to_the_release(tmp_path: Path) -> None:
    with serve_kit.world(tmp_path) as world:
        _hand_in(world, tmp_path)
        world.at(kit.CLOSED)
        wait(lambda: world.status()["state"] == "given-out", "the results")
        world.with_ledger()
        collected = _collect(world)
        assert {row["state"] for row in collected["submissions"]} == {"judged"}
        _settle_and_release(world, tmp_path)
        _nothing_leaked(world)


def _hand_in(world: World, tmp_path: Path) -> None:
    """Everybody commits and seals by the commands."""
    for number, text in enumerate((GOOD, SLOW, POEM, HALF), start=1):
        file = tmp_path / f"answer-{number}.md"
        file.write_text(text)
        words = (world.place, file, "--key", f"p{number}", "--url", world.url)
        first = json.loads(output("commit", *words, "--json"))
        assert Path(first["salt"]).stat().st_mode & 0o777 == 0o600
        assert json.loads(output("commit", *words, "--json"))["commitment"] == first["commitment"]
        sealing = ("--participant", first["participant"], "--url", world.url, "--collateral", world.collateral)
        assert "participant" in output("seal", world.place, file, *sealing, columns=200)
        state = json.loads(world_get(world, f"/submissions/{first['participant']}"))
        assert state["state"] == "received"
    assert "not-yet" not in json.dumps(world.status())
    assert "results are given out after" in refused(
        "enclave", "collect", world.place, "--from", world.url, "--collateral", world.collateral, code=1
    )


def world_get(world: World, path: str) -> bytes:
    from assay.enclave.client import Client

    with Client(world.url) as client:
        return client.get(path)


def _collect(world: World) -> dict[str, list[dict[str, str]]]:
    words = ("enclave", "collect", world.place, "--from", world.url, "--collateral", world.collateral)
    found: dict[str, list[dict[str, str]]] = json.loads(output(*words, "--json"))
    before = _files(world.place)
    assert json.loads(output(*words, "--json"))["submissions"] == found["submissions"]  # again changes nothing
    assert _files(world.place) == before
    assert "collected" in run(*words).stdout
    return found


def _files(place: Path) -> dict[str, bytes]:
    whole = {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}
    return {name: data for name, data in whole.items() if not name.startswith(("ledger.db", "enclave/"))}


def _settle_and_release(world: World, tmp_path: Path) -> None:
    told = json.loads(output("settle", world.place, "--epoch", "1", "--json"))
    assert [row["bps"] for row in told["agreed"]] == [10000, 8000, 2000, 0]
    paid = {row["participant"]: int(row["gross"]) for row in told["payouts"]}
    assert paid == {kit.P1: 600, kit.P2: 400}
    bundle = tmp_path / "epoch-1"
    run("export", "epoch", world.place, "1", "-o", bundle)
    assert "computed again" in run("verify", bundle, "--key", (world.place / "ledger.toml").read_text().split('"')[3]).stdout
    results = json.loads(output("enclave", "results", world.place, "--from", world.url, "--json"))["judgements"]
    assert [row["measured"]["cost"] is not None for row in results] == [True] * 4
    assert "always" not in json.dumps(results)
    assert "10000" in run("enclave", "results", world.place, "--from", world.url, columns=200).stdout
    released = json.loads(output("enclave", "release", world.place, "--from", world.url, "--json"))
    assert sorted(row["participant"] for row in released["released"]) == sorted((kit.P1, kit.P2))
    private = b"".join(path.read_bytes() for path in (world.place / "solutions").iterdir())
    assert b"7Q-good-private" in private
    assert b"7Q-slow-private" in private
    assert b"7Q-poem-private" not in private


def _nothing_leaked(world: World) -> None:
    """No plaintext, key or token in anything that the service wrote, its logs and temporary files included."""
    identity = kit.identity(world.bounty)
    del identity
    secrets = [b"7Q-good-private", b"7Q-slow-private", b"7Q-poem-private", b"7Q-half-private", serve_kit.API_KEY.encode()]
    for salt in (world.place / "sealing").rglob("salt.json"):
        secrets.append(json.loads(salt.read_bytes())["salt"].encode())
    places = [world.place / "enclave", world.cwd, world.temporary, world.enclave.log, world.dstack.log, world.model.log]
    for place in places:
        for path in [place, *place.rglob("*")] if place.is_dir() else [place]:
            data = path.read_bytes() if path.is_file() else b""
            for secret in secrets:
                assert secret not in data, (path, secret)
    assert list(world.temporary.iterdir()) == []
    assert list(world.cwd.iterdir()) == []
    assert os.environ.get("ASSAY_LLM_API_KEY") is None
