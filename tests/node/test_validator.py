"""`assay node validator` as people leave it running: real processes, a real sandbox, kills, and a service that goes away."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import disks
import judge_kit
import ledger_kit
import node_kit
from assay.errors import BadInput
from assay.folder.files import write_text
from assay.judge.running import RunEvent
from assay.node import NodeOptions, round, status
from cli_kit import output, run
from ledger_kit import V1, VALIDATORS
from node_kit import KEY, PATIENCE, RIGHT, WRONG, lines, node, one_round, until
from service_kit import Running, running
from test_serve_process import served

SIGNER = VALIDATORS[V1]


def batches(folder: Path) -> list[Path]:
    return list((folder / "batches").glob("*.batch"))


@pytest.mark.slow
def test_a_season_of_kills_loses_nothing_and_judges_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_kit.bubblewrap()
    monkeypatch.setenv("ASSAY_KEYS", node_kit.keys_in(tmp_path / "keys"))
    theirs = node_kit.operator(tmp_path / "small", tasks=("t1", "t2"), agents={"m1": f"sleep 0.2\n{RIGHT}", "m2": WRONG})
    mine = tmp_path / "mine"
    with served(theirs) as (_, port):
        url = f"http://127.0.0.1:{port}/small"
        with node(mine, url) as first:
            until(lambda: lines(mine), "the first trial")
            first.kill()  # with its round in the middle
        with node(mine, url) as second:
            until(lambda: len(node_kit.stored(theirs)) == 4, "epoch 1")
            until(lambda: status.read_status(mine).content.get("state") == "waiting", "idle")
            size = int(Path(f"/proc/{second.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            assert size < 80 * 2**20, "a node that waits needs little memory"
            assert "nothing wrong" in output("node", "status", mine)
            second.terminate()
            assert second.wait(PATIENCE) == 0
    assert [row[:3] for row in sorted(node_kit.stored(theirs))] == [
        *((1, "t1", "fail"), (1, "t1", "pass"), (1, "t2", "fail"), (1, "t2", "pass"))
    ]
    node_kit.settle(theirs, 1)
    node_kit.submit(theirs, "m2", f"sleep 0.5\n{RIGHT}")
    with node(mine, url) as third:
        until(lambda: status.read_status(mine).content.get("trouble"), "the service is away")
        with served(theirs, "--port", str(port)) as (service, _):
            until(lambda: len(lines(mine)) == 5, "a trial of epoch 2")
            service.kill()
        until(lambda: len(lines(mine)) == 6, "the other trial of epoch 2")
        until(lambda: batches(mine), "a batch that waits")
        node_kit.settle(theirs, 2)
        assert [row[0] for row in node_kit.stored(theirs)] == [1] * 4, "nothing of epoch 2 came in time"
        with served(theirs, "--port", str(port)):
            until(lambda: len(node_kit.stored(theirs)) == 6, "epoch 3")
            until(lambda: not batches(mine), "nothing waits")
            third.terminate()
            assert third.wait(PATIENCE) == 0
    assert [row[:3] for row in sorted(node_kit.stored(theirs)[4:])] == [(3, "t1", "pass"), (3, "t2", "pass")]
    assert (len(lines(mine)), node_kit.conflicts(theirs)) == (6, 0)
    ended = run("node", "status", mine, code=1, columns=10_000)
    assert "epoch 3: not running; 0 batches wait" in ended.stdout
    assert "start it again: assay node validator" in ended.stdout


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    judge_kit.bubblewrap()
    monkeypatch.setenv("ASSAY_KEYS", node_kit.keys_in(tmp_path / "keys"))
    with running(ledger_kit.once(tmp_path / "desk" / "small", ("node",), node_kit.operator)) as started:
        yield started


@pytest.mark.full
def test_a_new_task_set_is_judged_from_the_next_epoch_on(service: Running, tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", service.site.competition("small").folder
    url = f"{service.address}/small"
    output("node", "validator", mine, "--url", url, "--key", KEY, "--once")
    assert node_kit.stored(theirs) == [(1, "t1", "pass", 1)]
    assert any(path.is_file() for path in (theirs / "objects").rglob("*")), "the logs went along"
    judge_kit.make_task(theirs / "tasks" / "t1", tests="grep -qx bye /app/out.txt\n", solution="echo bye > /app/out.txt\n")
    run("tasks", "pin", theirs)
    messages: list[str] = []
    assert one_round(service, mine, messages)
    assert messages[-1].endswith("This node uses the new set from epoch 2 on; you need do nothing.")
    shown = " ".join(output("node", "status", mine).split())  # which ends with 0: nothing is wrong
    assert "nothing wrong The task set changed while epoch 1 is open." in shown
    node_kit.settle(theirs, 1)
    assert one_round(service, mine, messages)
    shown = output("node", "status", mine)  # a new result of the same task contradicts nothing that counts
    assert "nothing wrong" in " ".join(shown.split())
    assert "task set" not in shown
    assert node_kit.stored(theirs) == [(1, "t1", "pass", 1), (2, "t1", "fail", 1)]
    (former,) = (mine / "former").iterdir()
    assert sorted(path.name for path in former.iterdir()) == ["evidence", "trials"]
    assert len(lines(mine)) == 1


@pytest.mark.full
def test_a_node_in_an_empty_folder_judges_nothing_that_the_ledger_has(service: Running, tmp_path: Path) -> None:
    theirs = service.site.competition("small").folder
    messages: list[str] = []
    assert one_round(service, tmp_path / "lost")
    judge_kit.make_task(theirs / "tasks" / "t2")
    pin_next_epoch(theirs)  # a new set: what was judged on the former one is judged again
    assert one_round(service, tmp_path / "lost")
    shutil.rmtree(tmp_path / "lost")
    node_kit.submit(theirs, "m1", RIGHT + "true\n")
    assert one_round(service, tmp_path / "lost")
    shutil.rmtree(tmp_path / "lost")
    before = node_kit.stored(theirs), node_kit.conflicts(theirs)
    assert one_round(service, tmp_path / "lost", messages)
    assert lines(tmp_path / "lost") == []
    sentence = "Not judged again, because the ledger has it from this key: 2 results."
    assert messages[-1] == f"epoch 2: {sentence}"
    assert sentence in " ".join(output("node", "status", tmp_path / "lost").split())
    assert (node_kit.stored(theirs), node_kit.conflicts(theirs)) == before
    node_kit.submit(theirs, "m1", WRONG)
    assert one_round(service, tmp_path / "lost")
    assert len(lines(tmp_path / "lost")) == 2
    assert "Not judged again" not in output("node", "status", tmp_path / "lost")


@pytest.mark.full
def test_what_is_too_old_to_count_is_judged_again(service: Running, tmp_path: Path) -> None:
    theirs, mine = service.site.competition("small").folder, tmp_path / "mine"
    scheme = theirs / "scheme.toml"
    write_text(scheme, scheme.read_text().replace("[consensus]\n", "[consensus]\nmax_age_epochs = 1\n"))
    assert "max_age_epochs" in scheme.read_text()
    for epoch, there in ((1, 1), (2, 1), (3, 2)):
        messages: list[str] = []
        assert one_round(service, mine, messages)
        assert [row[0] for row in node_kit.stored(theirs)] == [1, 3][:there], messages
        assert "contradict" not in "".join(messages)
        shutil.rmtree(mine) if epoch == 1 else None  # then only the service knows what was judged
        node_kit.settle(theirs, epoch)
    assert status.read_status(mine).wrong == ()
    assert "No record contradicts an earlier one." in output("evidence", "list", theirs, "--conflicts")


def pin_next_epoch(theirs: Path) -> None:
    """Settle epoch 1, and pin the tasks that are there."""
    node_kit.settle(theirs, 1)
    run("tasks", "pin", theirs)


@pytest.mark.full
def test_a_round_waits_for_a_service_that_has_just_begun(service: Running, tmp_path: Path) -> None:
    notebook = service.site.competition("small").notebook
    assert notebook is not None
    notebook.since = datetime.now(UTC) + timedelta(seconds=2)  # a request that was signed before may be a copy
    assert one_round(service, tmp_path / "mine")
    assert len(lines(tmp_path / "mine")) == 1


@pytest.mark.full
def test_two_nodes_with_one_key_are_told_and_nothing_counts_twice(service: Running, tmp_path: Path) -> None:
    theirs, another = service.site.competition("small").folder, tmp_path / "another"
    messages: list[str] = []
    output("pull", another, "--url", f"{service.address}/small", "--key", KEY)
    assert one_round(service, tmp_path / "mine")
    output("run", another, "--validator", V1, "--epoch", "1")  # by hand, from before
    assert one_round(service, another, messages)
    assert "does another node use this key?" in "".join(messages)
    assert "use the key in one folder only" in " ".join(status.read_status(another).wrong)
    assert (len(node_kit.stored(theirs)), node_kit.conflicts(theirs)) == (2, 1)
    node_kit.settle(theirs, 1)
    assert one_round(service, another)
    assert status.read_status(another).wrong == (), "the epoch is over: nobody need do anything about it"


def test_what_is_judged_is_told_and_what_is_missing_is_named(
    service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = tmp_path / "mine", service.site.competition("small").folder
    judge_kit.make_task(theirs / "tasks" / "t2", solution="exit 1\n")  # it does not calibrate
    run("tasks", "pin", theirs)
    monkeypatch.setattr(round, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(round, "_TOLD", 1)
    monkeypatch.setattr(round, "_PUSHED", 1)
    node_kit.submit(theirs, "m1", f"sleep 1\n{RIGHT}")
    assert one_round(service, mine)
    assert node_kit.stored(theirs) == [(1, "t1", "pass", 1)]
    done = run("node", "status", mine, "--json", code=1)
    document = json.loads(done.stdout)
    assert (document["working"], document["waiting"], document["epoch"]) == (False, 0, 1)
    wrong = " ".join(document["wrong"])
    assert "a result is missing: m1 t2 1" in wrong
    assert "a task does not calibrate on this machine: t2" in wrong
    beat = service.ask("GET", "/v1/small/validators").json["validators"][0]["heartbeat"]
    assert beat is not None


def in_a_long_round(tmp_path: Path, url: str, begun: Callable[[], object], meanwhile: Callable[[], object]) -> list[str]:
    """A round that does not end by itself; it is stopped after `meanwhile`. begun: called before anything is judged.

    Returns what it told.
    """
    messages: list[str] = []

    def watch() -> None:
        try:
            meanwhile()
            messages.append(str(status.content_of(tmp_path / "mine")["state"]))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # the round hears it, as `assay run` does

    watching = threading.Thread(target=watch)

    class Long(round.Round):
        def _heard(self, event: RunEvent) -> None:
            super()._heard(event)
            if event.kind == "planned" and not watching.ident:
                begun()
                watching.start()

    assert not Long(tmp_path / "mine", url, SIGNER, NodeOptions(jobs=2), messages.append).carry_out()
    watching.join()
    return messages


@pytest.fixture
def never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator's folder, with an agent that never ends; heartbeats come often."""
    judge_kit.bubblewrap()
    monkeypatch.setattr(round, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(round, "_TOLD", 1)
    monkeypatch.setattr(round, "_PUSHED", 1)
    return node_kit.operator(tmp_path / "small", agents={"m1": RIGHT, "m2": "sleep 300\n"})


@pytest.mark.full
def test_what_a_long_round_judges_arrives_although_its_epoch_was_settled(never_ends: Path, tmp_path: Path) -> None:
    def arrives() -> None:
        until(lambda: node_kit.stored(never_ends), "evidence, while the round goes on")
        until(lambda: not status.content_of(tmp_path / "mine")["refused"], "nothing is refused")

    with running(never_ends) as service:
        url = f"{service.address}/small"
        messages = in_a_long_round(tmp_path, url, lambda: node_kit.settle(never_ends, 1), arrives)
    assert "judging" in messages
    assert node_kit.stored(never_ends) == [(2, "t1", "pass", 1)]
    assert not [line for line in messages if "refused" in line]


@pytest.mark.full
def test_a_service_that_goes_away_in_a_long_round_is_told_and_taken_back(never_ends: Path, tmp_path: Path) -> None:
    def trouble() -> object:
        return status.content_of(tmp_path / "mine").get("trouble")

    with served(never_ends) as (service, port):

        def away() -> None:
            service.kill()
            service.wait(PATIENCE)

        def back() -> None:
            until(trouble, "the service is away, while the round goes on")
            assert status.content_of(tmp_path / "mine")["away"]
            with served(never_ends, "--port", str(port)):
                until(lambda: not trouble(), "the service is back, while the round goes on")

        messages = in_a_long_round(tmp_path, f"http://127.0.0.1:{port}/small", away, back)
    assert "judging" in messages


@pytest.mark.full
def test_a_round_that_nobody_waits_for_ends_and_a_stop_is_clean(service: Running, tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", service.site.competition("small").folder
    node_kit.submit(theirs, "m1", "sleep 300\n")

    def judges() -> bool:
        content = status.read_status(mine).content if (mine / "trials").exists() else {}
        return bool(content.get("total")) and content["pid"] != process.pid  # its round says so

    for stop in (signal.SIGKILL, signal.SIGTERM):
        with node(mine, f"{service.address}/small") as process:
            until(judges, "judging")
            process.send_signal(stop)
            assert process.wait(PATIENCE) == (-stop if stop == signal.SIGKILL else 0)
            until(lambda: not _held(mine), "the round ended with its node")
            status.note(mine, total=0)
    assert lines(mine) == []
    assert mine.with_suffix(".out").read_text().splitlines()[-1].endswith("ended")


def _held(folder: Path) -> bool:
    """Whether a process of the node has the folder's lock."""
    import fcntl

    number = os.open(folder / "node" / ".lock", os.O_RDWR)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(number)
    return False


@pytest.mark.full
def test_a_disk_that_is_full_is_told_and_nothing_is_lost(service: Running, tmp_path: Path) -> None:
    theirs = service.site.competition("small").folder
    with disks.mounted(tmp_path / "disk", "16m") as disk:
        mine = disk / "mine"
        mine.mkdir()
        with disks.filled(disk), pytest.raises((BadInput, OSError), match="space"):
            one_round(service, mine)
        assert node_kit.stored(theirs) == []
        assert one_round(service, mine)
        assert node_kit.stored(theirs) == [(1, "t1", "pass", 1)]
        node_kit.submit(theirs, "m1", f"true\n{RIGHT}")
        node_kit.settle(theirs, 1)
        with disks.filled(disk), pytest.raises((BadInput, OSError), match="space"):
            one_round(service, mine)
        assert one_round(service, mine)
        assert node_kit.stored(theirs) == [(1, "t1", "pass", 1), (2, "t1", "pass", 1)]


def test_a_status_needs_a_node_and_names_what_is_wrong(tmp_path: Path) -> None:
    message = run("node", "status", tmp_path, code=2, columns=10_000).stderr
    assert "no node has worked here; start one: assay node operator DIR, or on a validator's machine: assay node" in message
    message = run("node", "status", tmp_path / "nowhere", code=2, columns=10_000).stderr
    assert message == f"error: {tmp_path / 'nowhere'}: no such folder; correct the path\n"
    since = "2026-01-01T00:00:00Z"
    status.note(tmp_path, trouble={"what": "it does not answer", "since": since}, away=True, refused=[f"b{n}" for n in range(5)])
    wrong = status.read_status(tmp_path).wrong
    assert [line.partition(":")[0] for line in wrong[1:]] == ["since 2026-01-01T00", "the service refuses a batch"]
    assert "b0, b1, b2 and 2 more" in wrong[2]
    status.note(tmp_path, trouble={"what": "it does not answer", "since": status.now_text()}, refused=[])
    assert len(status.read_status(tmp_path).wrong) == 1, "a service may be away for a moment"
    write_text(tmp_path / "node" / "status.json", "no json")
    assert "no node has worked here" in run("node", "status", tmp_path, code=2, columns=10_000).stderr
