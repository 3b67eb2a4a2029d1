"""Two nodes with one key: one works, the other is told and stands still, and takes over when the first is gone."""

import json
import shutil
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import judge_kit
import ledger_kit
import node_kit
from assay.errors import BadInput
from assay.node import round, status
from assay.node.heartbeat import beat, node_id
from assay.serve import evidence
from assay.serve.client import Client
from cli_kit import run
from ledger_kit import V1, VALIDATORS
from node_kit import KEY, PATIENCE, RIGHT, lines, node, one_round, until
from service_kit import Running, running

SIGNER = VALIDATORS[V1]
ANOTHER = "another node works with this key"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    judge_kit.bubblewrap()
    monkeypatch.setenv("ASSAY_KEYS", node_kit.keys_in(tmp_path / "keys"))
    with running(ledger_kit.once(tmp_path / "desk" / "small", ("node",), node_kit.operator)) as started:
        yield started


def trouble(folder: Path) -> str:
    reported = status.read_status(folder).content.get("trouble") if (folder / "node" / "status.json").exists() else None
    return "" if reported is None else str(reported["what"])


def works(folder: Path, pid: int | None = None) -> bool:
    """Whether a node (pid: this one) has done a round, and waits for the next."""
    if not (folder / "node" / "status.json").exists():
        return False
    content = status.read_status(folder).content
    here = pid in (None, content.get("pid"))
    return here and content.get("state") == "waiting" and "seen" in content and not content.get("trouble")


def test_a_second_node_stands_still_until_it_is_told_to_take_over(service: Running, tmp_path: Path) -> None:
    theirs, url = service.site.competition("small").folder, f"{service.address}/small"
    first, second = tmp_path / "first", tmp_path / "second"
    with node(first, url):
        until(lambda: works(first), "the first works")
        with node(second, url):
            until(lambda: ANOTHER in trouble(second), "the second is told")
            shown = run("node", "status", second, code=1, columns=10_000)
            assert ANOTHER in " ".join((shown.stdout + shown.stderr).split())
            assert not (second / "scheme.toml").exists(), "it does nothing"
        refused = run("node", "validator", second, "--url", url, "--key", KEY, "--once", code=2, columns=10_000)
        assert ANOTHER in refused.stderr
        with node(second, url, "--take-over"):
            until(lambda: works(second), "the second works")
            node_kit.submit(theirs, "m1", f"true\n{RIGHT}")  # news, for which both wait
            until(lambda: ANOTHER in trouble(first), "the first is told")
            until(lambda: len(node_kit.stored(theirs)) == 2, "the second judges")
    assert (len(lines(first)), len(lines(second)), node_kit.conflicts(theirs)) == (1, 1, 0)


@pytest.mark.full
def test_a_node_works_when_the_other_one_was_not_heard_for_long(
    service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{service.address}/small"
    first, second = tmp_path / "first", tmp_path / "second"
    with monkeypatch.context() as short:
        short.setattr(evidence, "NODE_GONE", timedelta(seconds=1))
        with node(first, url):
            until(lambda: works(first), "the first works")
    with node(second, url):  # the first was killed
        until(lambda: works(second), "the second takes over by itself")
        with node(first, url):
            until(lambda: ANOTHER in trouble(first), "the first is told when it comes back")
    with node(second, url) as last:
        until(lambda: works(second, last.pid), "the same node goes on at once")
        last.terminate()
        assert last.wait(PATIENCE) == 0
    with node(first, url) as again:
        until(lambda: works(first, again.pid) and not trouble(first), "a node that ended lets the other one begin at once")


def test_a_node_whose_key_is_taken_over_stops_judging_and_sends_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_kit.bubblewrap()
    mine, theirs = tmp_path / "mine", node_kit.operator(tmp_path / "small", agents={"m1": RIGHT, "m2": "sleep 300\n"})
    for name, value in (("BEAT_SECONDS", 0.05), ("_TOLD", 1)):
        monkeypatch.setattr(round, name, value)
    with running(theirs) as service:

        def take_over() -> None:
            until(lambda: lines(mine), "the first is judged")
            with Client(f"{service.address}/small", SIGNER) as client:
                beat(client, tmp_path / "another", take_over=True)

        other = threading.Thread(target=take_over)
        other.start()
        with pytest.raises(BadInput, match=ANOTHER):
            one_round(service, mine)
        other.join()
    assert node_kit.stored(theirs) == [(1, "t1", "pass", 1)]


def test_a_folder_that_was_copied_is_another_node(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    first = node_id(mine)
    assert (node_id(mine), len(first)) == (first, 32)
    shutil.copytree(mine, tmp_path / "copy")
    assert node_id(tmp_path / "copy") != first
    mine.rename(tmp_path / "moved")
    assert node_id(tmp_path / "moved") == first
    file = tmp_path / "moved" / "node" / "id"
    for damaged in ("", "{}", '{"id":"zz","inode":%d}', "[]"):
        file.write_text(damaged % file.stat().st_ino if "%" in damaged else damaged)
        assert node_id(tmp_path / "moved") != first
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "node").write_text("a file in its place")
    with pytest.raises(BadInput, match="cannot be written"):
        node_id(tmp_path / "full")


def test_nodes_of_other_versions_are_heard(service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier node has no identity; a later one says more than this service knows; an earlier service knows no identity."""
    notebook = service.site.competition("small").notebook
    assert notebook is not None
    later = {"judging": [{"participant": "m1", "mood": "good"}], "node": "0" * 32, "ends": True, "mood": "good"}
    bodies: list[dict[str, object]] = [{}, {"judging": []}, later]
    for body in bodies:
        answer = service.signed(SIGNER, "POST", "/v1/small/heartbeat", json.dumps(body).encode())
        assert answer.status == 204, answer
    (heartbeat,) = notebook.heartbeats()
    assert [row["participant"] for row in heartbeat.judging] == ["m1"]
    for wrong in ({"node": ""}, {"node": "0" * 31 + "g"}, {"node": 5}, {"take_over": "yes"}):
        assert service.signed(SIGNER, "POST", "/v1/small/heartbeat", json.dumps(wrong).encode()).status == 400
    known = evidence._heartbeat

    def earlier(data: bytes) -> evidence.HeartbeatBody:
        if json.loads(data).keys() - {"judging"}:
            raise BadInput("is not a heartbeat", field="body")
        return known(data)

    monkeypatch.setattr(evidence, "_heartbeat", earlier)
    with Client(f"{service.address}/small", SIGNER) as client:
        beat(client, tmp_path / "mine", take_over=True)
