"""`assay publish --watch` as a program, on a real node: new receipts, a node that goes away, alarms, signals, restarts."""

import json
import os
import signal
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evm_kit
import evm_proxy
import ledger_kit
import publish_kit as kit
from assay.publish.evm.transactions import EvmAttempt
from cli_kit import Json, output, refused, run
from evm_kit import EvmWorld
from evm_proxy import Proxy
from publish_kit import EPOCH, with_keys
from watch_kit import StatusPage, metrics, watching

__all__ = ["with_keys"]  # a fixture

SCORES = {"m1": 9000, "m2": 6000}
pytestmark = pytest.mark.usefixtures("with_keys")


def competition(world: EvmWorld, place: Path, **changes: Any) -> Path:
    """A competition in which nothing is settled yet, and a round that takes scores now."""
    world.open()
    world.commit(*world.agents[:2])
    world.close()
    rows = [f"{name},,,s-{name},2030-03-17T18:{at:02}:00Z,,{world.agents[at]}" for at, name in enumerate(SCORES)]
    people = "key,uid,name,submission,submitted_at,last_reset_epoch,address\n" + "\n".join(rows) + "\n"
    files: dict[str, Any] = {"participants_csv": people, "tasks_txt": None}
    ledger_kit.ledger_folder(place, "rubric", scheme_toml=kit.SCHEME.format(deposit=evm_kit.ETHER), **files)
    return kit.publish_toml(place, world, **changes)


@pytest.fixture
def place(world: EvmWorld, tmp_path: Path) -> Path:
    return competition(world, tmp_path / "small")


def settle(place: Path, epoch: int = EPOCH) -> None:
    kit.judged(place, SCORES, epoch)


def published_once(world: EvmWorld) -> None:
    assert len(world.scores()[1]) == 2
    assert kit.nonce(world, world.scorer) == 1


def once(place: Path, *words: str | Path, code: int = 0, yes: bool = True) -> list[str]:
    """What one round said, line by line, without times."""
    result = run("publish", place, "--to", "local", "--watch", "--once", *(["--yes"] if yes else []), *words, code=code)
    assert result.stdout == ""
    return [line.partition(" ")[2] for line in result.stderr.splitlines()]


@pytest.mark.full
def test_a_new_receipt_is_published_while_it_watches(place: Path, world: EvmWorld, tmp_path: Path) -> None:
    page, prom = tmp_path / "status.html", tmp_path / "assay.prom"
    with watching(place, "--page", page, "--metrics", prom) as watch:
        assert watch.event("watching")["level"] == "info"
        settle(place)
        assert watch.event("settled")["epoch"] == EPOCH
        event = watch.outcome("confirmed")
        assert (event["epoch"], event["level"]) == (EPOCH, "info")
        assert watch.end() == 0
    assert [event["event"] for event in watch.events] == ["watching", "settled", "progress", "outcome", "stopped"]
    published_once(world)
    assert kit.states(place) == ["planned", "sent", "confirmed"]
    values = metrics(prom.read_text())
    expected = {"settled_epoch": 3, "published_epoch": 3, "reachable": 1, "entries_total state=confirmed": 1}
    assert expected.items() <= values.items()
    assert "waiting_epoch" not in values
    assert all(value == 0 for name, value in values.items() if name.startswith("alarm "))
    shown = StatusPage(page.read_text())
    assert "All is well: every settled epoch is published." in shown.text
    assert "planned → sent → confirmed" in shown.text
    assert kit.journal(place)[0]["hash"] in shown.text
    assert {"http-equiv": "refresh", "content": "1"} in shown.metas


@pytest.mark.full
def test_a_watch_that_was_killed_goes_on_where_it_was(world: EvmWorld, tmp_path: Path) -> None:
    place = competition(world, tmp_path / "small", confirmations=3, wait_seconds=0)
    settle(place)
    with watching(place) as watch:
        watch.outcome("sent")
        assert watch.end(signal.SIGKILL) == -signal.SIGKILL
    with watching(place) as watch:
        watch.outcome("sent")
        world.chain.ask("anvil_mine", "0x3")
        watch.outcome("confirmed")
        assert watch.end(signal.SIGINT) == 0
    published_once(world)
    assert [attempt.state for attempt in EvmAttempt.read(kit.journal(place))] == ["confirmed"]


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[tuple[evm_kit.Anvil, Path]]:
    """A node of its own that keeps its state in a file."""
    state = tmp_path / "state.json"
    with evm_kit.anvil(tmp_path, *evm_kit.OPTIONS, "--state", str(state)) as node:
        yield node, state


@pytest.fixture
def proxy(mortal: tuple[evm_kit.Anvil, Path]) -> Iterator[Proxy]:
    """An address that stays while the node behind it is another."""
    with evm_proxy.proxy(mortal[0].url) as node_proxy:
        yield node_proxy


@pytest.mark.full
def test_a_node_that_ends_and_begins_again(mortal: tuple[evm_kit.Anvil, Path], proxy: Proxy, tmp_path: Path) -> None:
    node, state = mortal
    world = evm_kit.world(evm_kit.AnvilChain(node.url))
    place = competition(world, tmp_path / "small", rpc=proxy.url, rpc_seconds=5)
    prom = tmp_path / "assay.prom"
    with watching(place, "--alarm", "0.5", "--metrics", prom) as watch:
        watch.event("watching")
        node.process.terminate()
        node.process.wait()
        assert watch.event("away")["level"] == "warning"
        assert "does not answer" in watch.event("alarm")["what"]
        assert metrics(prom.read_text())["reachable"] == 0
        settle(place)
        watch.event("settled")
        with evm_kit.anvil(tmp_path, *evm_kit.OPTIONS, "--state", str(state)) as again:
            world.chain = evm_kit.AnvilChain(again.url)
            world.close()  # its clock began anew
            proxy.node = again.url
            watch.outcome("confirmed")
            assert watch.end() == 0
            assert kit.nonce(world, world.scorer) == 1
    names = [event["event"] for event in watch.events]
    assert names.index("away") < names.index("alarm") < names.index("back") < names.index("outcome")
    assert "alarm-over" in names


@pytest.mark.full
def test_an_alarm_stands_until_somebody_has_mended_it(world: EvmWorld, tmp_path: Path) -> None:
    place = competition(world, tmp_path / "small", key="relayer", scorer="scorer")
    relayer = kit.key_of(3).address
    world.chain.ask("anvil_setBalance", relayer, "0x0")
    page, prom = tmp_path / "status.html", tmp_path / "assay.prom"
    settle(place)
    with watching(place, "--page", page, "--metrics", prom) as watch:
        event = watch.outcome("refused")
        assert (event["level"], event["outcome"]["code"]) == ("error", "funds")
        alarm = watch.event("alarm")
        assert alarm["level"] == "error"
        assert watch.end() == 3
        assert metrics(prom.read_text())["alarm alarm=refused"] == 1
        shown = StatusPage(page.read_text())
        assert shown.alarms == 1
        assert "What to do: " in shown.text
    with watching(place, "--page", page, "--metrics", prom) as watch:
        watch.event("alarm")
        world.chain.ask("anvil_setBalance", relayer, hex(10**20))
        watch.outcome("confirmed")
        watch.event("alarm-over")
        assert watch.end() == 0
    assert metrics(prom.read_text())["alarm alarm=refused"] == 0
    assert StatusPage(page.read_text()).alarms == 0


# One round


def test_one_round_where_nothing_is_settled_and_one_that_publishes(place: Path, world: EvmWorld) -> None:
    assert once(place) == []
    settle(place)
    first = once(place)
    assert [line.split(": ")[0] for line in first] == [
        "info    epoch 3 is the last that is settled",
        "info    epoch 3",
        "info    epoch 3",
    ]
    assert first[2].startswith("info    epoch 3: the chain has it, in block ")
    assert once(place) == ["info    epoch 3 is the last that is settled"]
    published_once(world)


def test_one_round_without_yes_sends_nothing(place: Path, world: EvmWorld) -> None:
    settle(place)
    assert once(place, yes=False)[-1] == "info    epoch 3: it would be sent; --yes sends it"
    assert kit.nonce(world, world.scorer) == 0
    assert kit.journal(place) == []


def test_one_round_too_early_is_no_alarm(world: EvmWorld, tmp_path: Path) -> None:
    place = competition(world, tmp_path / "small")
    settle(place)
    kit.publish_toml(place, world, round=world.make().address)
    world.fund()
    world.commit(*world.agents[:2])
    assert "too early: " in once(place, "--alarm", "0")[-1]
    world.close()
    assert "the chain has it" in once(place)[-1]


@pytest.mark.full
def test_one_round_that_is_not_deep_enough_is_code_1(world: EvmWorld, tmp_path: Path) -> None:
    place = competition(world, tmp_path / "small", confirmations=3, wait_seconds=0)
    settle(place)
    assert "not deep enough in the chain yet" in once(place, code=1)[-1]
    world.chain.ask("anvil_mine", "0x3")
    assert "the chain has it" in once(place)[-1]


def test_one_round_that_is_refused_is_code_3(place: Path, world: EvmWorld) -> None:
    settle(place)
    world.expire()
    *_, outcome, alarm = once(place, code=3)
    assert outcome.startswith("error   epoch 3: refused (too-late): ")
    assert alarm.startswith("error   epoch 3 is refused: ")


def test_one_round_with_a_node_that_is_away_is_code_1_or_by_patience_3(world: EvmWorld, tmp_path: Path) -> None:
    place = competition(world, tmp_path / "small", rpc="http://127.0.0.1:1")
    assert once(place, code=1)[-1].startswith("warning 127.0.0.1:1 does not answer")
    settle(place)
    assert once(place, "--alarm", "3600", code=1)
    assert "is settled, but for" in once(place, "--alarm", "0", code=3)[-1]


def test_one_round_over_a_ledger_that_was_changed_is_code_3(place: Path) -> None:
    settle(place)
    with sqlite3.connect(place / "ledger.db") as database:
        database.execute("DROP TRIGGER settlements_no_update")
        database.execute("UPDATE settlements SET document = CAST(replace(document, '9000', '9999') AS BLOB)")
    database.close()
    lines = once(place, code=3)
    assert "refused (input): settlement: it is not that of the receipt" in lines[-2]
    (place / "ledger.toml").write_text("")
    assert "ledger.toml" in once(place, code=3)[-1]


def test_what_is_wrong_from_the_beginning_is_code_2(place: Path, tmp_path: Path) -> None:
    watch = ("publish", place, "--to", "local", "--watch", "--once")
    assert "there is no target 'main'" in refused("publish", place, "--to", "main", "--watch", "--once")
    assert "nowhere/x: cannot be written" in refused(*watch, "--page", tmp_path / "nowhere" / "x")
    for words in (("--once",), ("--alarm", "1"), ("--metrics", "x"), ("--page", "x")):
        assert "goes with --watch" in run("publish", place, "--to", "local", *words, code=2).stderr
    assert "not a given one" in run("publish", place, "3", "--to", "local", "--watch", code=2).stderr


def test_nothing_is_replaced_but_what_a_watch_wrote(place: Path, world: EvmWorld, tmp_path: Path) -> None:
    settle(place)
    watch = ("publish", place, "--to", "local", "--watch", "--once", "--yes")
    before = (place / "publish.toml").read_bytes()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "other.html").write_text("# somebody's")
    (tmp_path / "link").symlink_to(place / "publish.toml")
    (tmp_path / "out.html").touch()
    for option, path, message in (
        ("--page", tmp_path / "pipe", "would be replaced"),
        ("--page", tmp_path, "would be replaced"),
        ("--page", tmp_path / "other.html", "no watch has written it"),
        ("--metrics", tmp_path / "other.html", "no watch has written it"),
        ("--metrics", place / "publish.toml", "let its name end in .prom"),
        ("--metrics", tmp_path / "link", "let its name end in .prom"),
        ("--page", place / "registry.json", "let its name end in .html"),  # not there yet
        ("--page", tmp_path / "nowhere" / "x", "its folder is not there"),
    ):
        assert message in " ".join(refused(*watch, option, path).split()), path
    same = (*watch, "--metrics", tmp_path / "out.html", "--page", tmp_path / "." / "out.html")
    assert "is already the file of the metrics" in refused(*same)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert ((place / "publish.toml").read_bytes(), kit.nonce(world, world.scorer)) == (before, 0)
    files = ("--metrics", place / "assay.prom", "--page", tmp_path / "out.html")
    once(place, *files)
    once(place, *files)  # its own it replaces
    assert "All is well" in (tmp_path / "out.html").read_text()


# What was tried


def test_attempts(place: Path, world: EvmWorld) -> None:
    assert "Nothing was sent there from here." in output("attempts", place)
    settle(place)
    once(place)
    text = output("attempts", place, columns=200)
    assert "planned → sent → confirmed" in text
    assert kit.journal(place)[0]["hash"] in text
    document: Json = json.loads(output("attempts", place, "--to", "local", "--json"))
    (row,) = document["targets"]["local"]
    assert (row["subject"], row["state"], row["states"]) == ("epoch 3", "confirmed", ["planned", "sent", "confirmed"])
    assert "there is no target 'main'" in refused("attempts", place, "--to", "main")
    (place / "publish.toml").unlink()
    assert "nowhere to publish to" in refused("attempts", place)
