"""A bounty from the commitment to the release, by real processes, through the commands."""

import base64
import json
from pathlib import Path

import pytest

import seal_kit as kit
import serve_kit
from assay.enclave.develop.machine import DEVELOPMENT_COMPOSE, Authority, Machine
from assay.enclave.develop.server import load_secret
from assay.enclave.service.state import derive_identity
from assay.ledger import keys
from cli_kit import output, refused, run
from serve_kit import GOOD, HALF, POEM, SLOW, EnclaveWorld, wait

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


def _hand_in(world: EnclaveWorld, tmp_path: Path) -> None:
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
    assert "results are published after" in refused(
        "enclave", "collect", world.place, "--from", world.url, "--collateral", world.collateral, code=1
    )


def world_get(world: EnclaveWorld, path: str) -> bytes:
    from assay.enclave.messages import EnclaveClient

    with EnclaveClient(world.url) as client:
        return client.get(path)


def _collect(world: EnclaveWorld) -> dict[str, list[dict[str, str]]]:
    words = ("enclave", "collect", world.place, "--from", world.url, "--collateral", world.collateral)
    collected: dict[str, list[dict[str, str]]] = json.loads(output(*words, "--json"))
    before = _files(world.place)
    assert json.loads(output(*words, "--json"))["submissions"] == collected["submissions"]  # again changes nothing
    assert _files(world.place) == before
    assert "collected" in run(*words).stdout
    _verified(world)
    return collected


def _verified(world: EnclaveWorld) -> None:
    """Each quote that came is of this bounty's enclave, and of a judgement that came with it."""
    pinned = ("--bounty", world.place, "--collateral", world.collateral)
    assert "✓  compose" in run("enclave", "verify", world.url, *pinned).stdout
    enclaves = world.place / "judgements" / "enclave.attestation.json"
    judged = sorted(set((world.place / "judgements").glob("*.attestation.json")) - {enclaves})
    assert judged
    for file in (enclaves, *judged):
        assert "✓  compose" in run("enclave", "verify", file, *pinned).stdout
    assert "with --bounty nothing else is pinned" in refused("enclave", "verify", judged[0], *pinned, "--tcb", "OutOfDate")
    document = judged[0].with_name(judged[0].name.replace(".attestation", ""))
    kept = document.read_bytes()
    document.unlink()
    assert document.name in refused("enclave", "verify", judged[0], *pinned)
    document.write_bytes(kept)


def _files(place: Path) -> dict[str, bytes]:
    whole = {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}
    return {name: data for name, data in whole.items() if not name.startswith(("ledger.db", "enclave/"))}


def _settle_and_release(world: EnclaveWorld, tmp_path: Path) -> None:
    settlement = json.loads(output("settle", world.place, "--epoch", "1", "--json"))
    assert [row["bps"] for row in settlement["agreed"]] == [10000, 8000, 2000, 0]
    paid = {row["participant"]: int(row["gross"]) for row in settlement["payouts"]}
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
    shown = " ".join(output("rejudge", world.place, kit.P1, columns=500).split())
    assert f"{kit.P1}: replayed, the judgement by " in shown
    assert "comes out as it is in the evidence, 10000 BPS." in shown
    lost = next(person for person in kit.PEOPLE if person not in paid)
    assert "only someone who has the solution can judge it" in refused("rejudge", world.place, lost)


def _nothing_leaked(world: EnclaveWorld) -> None:
    """No plaintext, key or token in anything that the service wrote, its logs and temporary files included."""
    machine = Machine(Authority(load_secret(world.work / "dev")), DEVELOPMENT_COMPOSE)
    identity = derive_identity(kit.Local(machine), world.bounty.digest)
    assert identity.seal.public == world.to  # these are the keys that it has
    secrets = [b"7Q-good-private", b"7Q-slow-private", b"7Q-poem-private", b"7Q-half-private", serve_kit.API_KEY.encode()]
    secrets += [json.loads(salt.read_bytes())["salt"].encode() for salt in (world.place / "sealing").rglob("salt.json")]
    for kind in ("x25519", "ed25519"):
        secrets.append(machine.key(f"assay/{world.bounty.digest[7:]}/{kind}", "")[0])
    secrets += [identity.seal.opener().private_bytes_raw(), *identity.signer.to_file().splitlines()[1:-1]]
    spelt = {spelling for secret in secrets for spelling in (secret, secret.hex().encode(), base64.b64encode(secret)[:-4])}
    for place in (world.place / "enclave", world.cwd, world.temporary, world.enclave.log, world.dstack.log, world.model.log):
        for path in [place, *place.rglob("*")] if place.is_dir() else [place]:
            data = path.read_bytes() if path.is_file() else b""
            assert [spelling for spelling in spelt if spelling in data] == [], path
    assert list(world.temporary.iterdir()) == []
    assert list(world.cwd.iterdir()) == []


@pytest.mark.full
def test_a_sealed_problem_is_read_by_the_enclave_alone(tmp_path: Path) -> None:
    problem = tmp_path / "problem.md"
    problem.write_text("Write down how to sort. Mark 7Q-problem-private.")
    line = output("seal", tmp_path, "--problem", problem, columns=500).strip()
    printed = json.loads(output("seal", tmp_path, "--problem", problem, "--json"))
    assert line == f'problem = {{ sealed = "problem.sealed", digest = "{printed["problem"]["digest"]}" }}'
    with serve_kit.world(tmp_path, bounty={"changes": {'problem = "Write down how to sort a list."': line}}) as world:
        answer = tmp_path / "answer.md"
        answer.write_text(GOOD)
        assert world.hand_in(kit.P1, GOOD).files["answer.md"] == GOOD
        wait(lambda: any("problem" in trouble for trouble in world.status()["troubles"]), "trouble")
        words = ("seal", world.place, "--url", world.url, "--collateral", world.collateral, "--problem")
        other = tmp_path / "other.md"
        other.write_text("Another problem.")
        assert "is the digest of another text" in run(*words, other, columns=500, code=2).stderr
        assert b"7Q-problem" not in Path(json.loads(output(*words, problem, "--json"))["file"]).read_bytes()
        wait(lambda: world.status()["waiting"] == 0, "a judgement")
        world.at(kit.CLOSED)
        wait(lambda: world.status()["state"] == "given-out", "the results")
        assert {row["state"] for row in _collect(world)["submissions"]} == {"judged"}
        assert "7Q-problem" not in world.enclave.log.read_text()


@pytest.mark.full
def test_an_enclave_that_is_not_verified_is_sealed_to_only_if_told_so(tmp_path: Path) -> None:
    with serve_kit.world(tmp_path) as world:
        answer = tmp_path / "answer.md"
        answer.write_text(GOOD)
        assert "nothing was committed to from here" in refused("seal", world.place, answer, "--url", world.url)
        run("commit", world.place, answer, "--key", "p1", "--url", world.url)
        text = (world.place / "bounty.toml").read_text()
        assert "collateral: " in refused("seal", world.place, answer, "--url", world.url, code=1)
        words = ("seal", world.place, answer, "--url", world.url, "--collateral", world.collateral)
        assert "collateral: it has expired" in refused(*words, "--at", "2040-01-01T00:00:00Z", code=1)
        assert world.status()["received"] == 0
        done = run(*words, columns=500)
        assert "of a development root, which proves nothing" in done.stderr
        assert world.status()["received"] == 1
        done = run("seal", world.place, answer, "--url", world.url, "--no-verify", columns=500)
        assert "the attestation is not verified: whoever made it can read what you seal to it" in done.stderr
        (world.place / "bounty.toml").write_text(text.replace("development = true", "development = false"))
        assert "was committed to for another bounty" in refused(*words)
