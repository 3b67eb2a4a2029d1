"""A season end to end: real processes over loopback, PostgreSQL, a simulated subnet; and something is killed in every epoch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import judge_kit
import postgres
import season_kit
import weights_kit
from assay.ledger import keys
from assay.node import status
from assay.node.spool import waiting
from cli_kit import output
from ledger_kit import VALIDATORS
from node_kit import until
from season_kit import LONG, NAMES, SeasonParticipants, settlements
from subtensor import Simulator
from test_closing import settled

PEOPLE = [f"//M{number}" for number in range(1, 7)]
ONE, BOTH = "echo hello > /app/out.txt\n", "echo hello > /app/out.txt\necho hello > /app/two.txt\n"
TWO = "grep -qx hello /app/two.txt || exit 1\necho 1 > /logs/verifier/reward.txt\n"
RULES = '[reward]\ncap = "1"\n[decay]\ncurve = "none"\n'


@pytest.fixture
def cluster() -> Iterator[postgres.Cluster]:
    """A PostgreSQL that nobody else uses: it is stopped as if its machine had crashed."""
    with postgres.cluster() as server:
        yield server


@pytest.fixture
def chain(shared: Path) -> Iterator[Simulator]:
    settings = {"CommitRevealWeightsEnabled": False, "WeightsSetRateLimit": 4, "Tempo": 20}
    with Simulator.with_subnet(weights_kit.NETUID, "//Val", *PEOPLE, settings=settings, finality=0, block_time=0.5) as simulator:
        yield simulator


def competition(root: Path, database: str, chain: Simulator) -> Path:
    """Two tasks, six hotkeys of the subnet that have handed in nothing, three validators of whom two must agree."""
    place = root / "small"
    judge_kit.make_task(place / "tasks" / "t1")
    judge_kit.make_task(place / "tasks" / "t2", tests=TWO, solution="echo hello > /app/two.txt\n")
    judge_kit.make_competition(place, {})
    scheme = (place / "scheme.toml").read_text().replace("min_validators = 1", "min_validators = 2") + RULES
    (place / "scheme.toml").write_text(scheme)
    rows = [f"{weights_kit.hotkey(uri)},{uid},," for uid, uri in enumerate(PEOPLE, weights_kit.ME + 1)]
    (place / "participants.csv").write_text("\n".join(["key,uid,submission,submitted_at", *rows, ""]))
    season_kit.with_ledger(place, database)
    return weights_kit.publish_toml(place, chain)


def agent(root: Path, uri: str, script: str) -> Path:
    """An agent of a participant: nobody else's has the same digest."""
    folder = root / f"agent{uri.replace('/', '-')}-{len(script)}"
    judge_kit.make_agent(folder, f"# {uri}\n{script}")
    return folder


@pytest.mark.full
@pytest.mark.slow
def test_a_season_end_to_end(
    tmp_path: Path, cluster: postgres.Cluster, chain: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_kit.bubblewrap()
    monkeypatch.setenv("ASSAY_KEYS", str(season_kit.keys_in(tmp_path / "keys")))
    place, port = competition(tmp_path, cluster.database(), chain), season_kit.free_port()
    url = f"http://127.0.0.1:{port}/small"
    signers = {weights_kit.hotkey(uri): keys.read(weights_kit.secret(uri).encode(), kind=keys.SR25519) for uri in PEOPLE}
    people = SeasonParticipants(url, signers)

    def hand_in(uri: str, script: str) -> None:
        people.hand_in(weights_kit.hotkey(uri), agent(tmp_path, uri, script))

    folders = [tmp_path / name for name in NAMES]
    node, judges = season_kit.operator(place, port), [season_kit.validator(each, url, each.name) for each in folders]
    season_kit.clock_from_now(place, "20s", "10s")
    with ExitStack() as stack:
        for process in (node, *judges):
            process.start()
            stack.callback(process.end)
        for number, uri in enumerate(PEOPLE):
            hand_in(uri, (ONE, BOTH, "true\n")[number % 3])
            if number == 2:
                node.kill_parts()  # once: while the others hand in
        judges[0].kill()
        judges[0].start()
        until(lambda: settled(place), "the first epoch is settled", LONG)

        judges[2].stop()  # away for an epoch
        before = len(settled(place))
        hand_in("//M1", BOTH)
        cluster.restart(postgres.CRASH)
        hand_in("//M3", ONE)
        until(lambda: len(settled(place)) > before, "an epoch is settled without the third", LONG)

        judges[2].start()
        before = len(settled(place))
        node.kill_parts()
        hand_in("//M6", BOTH)
        until(lambda: len(settled(place)) > max(before, 2), "an epoch is settled after all that", LONG)
        until(lambda: season_kit.all_judged(place, people, 2), "every validator has judged everything", LONG)
        until(lambda: not any(map(waiting, folders)), "every validator has sent what it judged", LONG)
        until(lambda: _published(place) == settled(place)[-1], "the newest epoch is on the chain", LONG)
        for process in (*judges, node):
            assert process.stop() == 0, process.out.read_text()
    _check(place, tmp_path / "hand", people, folders)
    _check_chain(place, chain)


def _published(place: Path) -> int | None:
    """The newest epoch that is confirmed on the chain, as the operator's node says it."""
    published: int | None = status.content_of(place).get("targets", {}).get("sn", {}).get("published")
    return published


def _check(place: Path, hand: Path, people: SeasonParticipants, folders: list[Path]) -> None:
    """Nothing that was acknowledged is lost, no epoch is missing, and by hand it comes to the same."""
    acknowledged = {(row["participant"], row["submission"], row["epoch"]) for row in people.acknowledged}
    assert (len(acknowledged), acknowledged) == (9, season_kit.submitted(place))
    batches = season_kit.sent(folders)
    assert {batch.statement.validator for batch in batches} == set(VALIDATORS)
    assert {batch.digest for batch in batches} == season_kit.batches_in(place)
    epochs = settled(place)
    assert epochs == list(range(1, len(epochs) + 1))
    assert season_kit.by_hand(place, hand, people, batches, epochs) == settlements(place)
    output("ledger", "check", place)
    output("export", "epoch", place, str(epochs[-1]), "--output", hand / "export")
    output("verify", hand / "export")


def _check_chain(place: Path, chain: Simulator) -> None:
    """The subnet has the weights of the newest epoch that is confirmed: the largest is 65535."""
    epoch = _published(place)
    assert epoch is not None
    document = json.loads(settlements(place)[epoch])
    rows = [*document["weights"], document["burn"]]
    wanted = {row["uid"]: row["chain_u16"] for row in rows if row["chain_u16"]}
    assert (len(wanted) >= 4, chain.weights(weights_kit.NETUID, weights_kit.ME)) == (True, wanted)
