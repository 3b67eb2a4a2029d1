"""Runs of the workflow judge: what is asked, what is kept, what is nobody's fault, what goes on after a stop. SPEC 2.2, 3.0."""

from __future__ import annotations

import errno
import json
import random
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.errors import BadInput
from assay.judge.run_files import RunBusy, evidence_file
from assay.judge.running import RunEvent
from assay.judge.workflow import planner as planners
from assay.judge.workflow.record import RunStore
from workflow_chaos import ChaosHandler, reply_of, serving, well
from workflow_run_kit import competition, documents, lines, outcomes, plan, run

DONE = well("done")


def test_every_participant_is_asked_every_task_and_what_came_of_it_is_kept(tmp_path: Path) -> None:
    with serving(do=DONE, fail=reply_of({"error": "no"}), ping=DONE) as server:
        folder = competition(tmp_path, server, {"ann": plan(), "bob": plan("fail"), "none": None})
        events: list[RunEvent] = []
        with pytest.raises(BadInput, match="there is no validator 'val-2'"):
            run(folder, "val-2")
        (folder / "services.toml").write_text((folder / "services.toml").read_text().replace('"fail", ', ""), encoding="utf-8")
        summary = run(folder, events=events)
    assert (summary.planned, dict(summary.outcomes), summary.errors, summary.stopped) == (4, {"ran": 2, "invalid": 2}, [], False)
    assert outcomes(folder) == {("ann", "t0"): "ran", ("ann", "t1"): "ran", ("bob", "t0"): "invalid", ("bob", "t1"): "invalid"}
    line = lines(folder)[0]
    assert {name: line[name] for name in ("quality", "steps_completed", "steps_total", "cost", "budget", "max_seconds")} == {
        "quality": "1",
        "steps_completed": 2,
        "steps_total": 2,
        "cost": "0.002",
        "budget": "1",
        "max_seconds": "20",
    }
    first, *_, last = documents(folder)
    assert [(step["id"], step["state"], step["attempts"][0]["cost"]) for step in first["steps"]] == [
        ("first", "completed", "0.001"),
        ("last", "completed", "0.001"),
    ]
    assert first["steps"][0]["output_digest"] == "sha256:" + sha256(b'"done"').hexdigest()
    assert first["quality_how"] == {"met": ["yes"]}
    assert first["seconds"] == line["seconds"]
    assert "which the task does not allow" in last["message"]
    assert [event.kind for event in events if event.kind in ("planned", "ended")] == ["planned"] + ["ended"] * 4
    settled = {row["participant"]: row["score"] for row in assay.open(folder).settle().document["agreed"]}
    assert (settled["ann"] > "0.98", settled["bob"], settled["none"]) == (True, "0", None)

    again = run(folder)
    assert (again.planned, again.judged) == (0, 0)


def test_task_after_task_is_asked_so_that_all_are_asked_alike(tmp_path: Path) -> None:
    events: list[RunEvent] = []
    with serving(do=DONE) as server:
        run(competition(tmp_path, server, {"ann": plan(), "bob": plan()}, tasks=3), events=events)
    began = [(event.cell.parts["task"], event.cell.participant) for event in events if event.kind == "began" and event.cell]
    assert began == [(f"t{task}", who) for task in range(3) for who in ("ann", "bob")]


def test_several_at_one_time_come_to_the_same(tmp_path: Path) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, {"ann": plan(), "bob": plan()}, tasks=4)
        summary = run(folder, jobs=3)
    assert (dict(summary.outcomes), len(outcomes(folder))) == ({"ran": 8}, 8)


def test_another_epoch_is_another_round(tmp_path: Path) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, {"ann": plan()})
        assert run(folder).epoch == 1
        assert run(folder, epoch=4).judged == 2
        assert (run(folder).epoch, run(folder).planned) == (4, 0)
    assert sorted({line["epoch"] for line in lines(folder)}) == [1, 4]


def test_a_run_may_be_narrowed(tmp_path: Path) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, {"ann": plan(), "bob": plan()})
        run(folder, participants=["bob"], only=["t1"])
        assert outcomes(folder) == {("bob", "t1"): "ran"}
        with pytest.raises(BadInput, match="there is no participant 'eve'"):
            run(folder, participants=["eve"])
        with pytest.raises(BadInput, match="there is no task 't9'"):
            run(folder, only=["t9"])
        run(folder)
    assert len(outcomes(folder)) == 4


def test_a_broken_service_takes_the_task_from_everybody(tmp_path: Path) -> None:
    asked = 0

    def breaks(handler: ChaosHandler) -> None:
        nonlocal asked
        asked += 1
        handler.reply({"output": "done", "cost": "0"}, 200 if asked <= 2 or asked > 3 else 500)

    with serving(do=breaks, ping=reply_of({}, 500)) as server:
        folder = competition(tmp_path, server, {"ann": plan(), "bob": plan(), "cid": plan()})
        summary = run(folder)
    assert dict(summary.outcomes) == {"ran": 4, "service-error": 2}
    assert outcomes(folder) == {
        ("ann", "t0"): "ran",
        ("bob", "t0"): "service-error",
        ("cid", "t0"): "service-error",  # was not asked any more
        **{(who, "t1"): "ran" for who in ("ann", "bob", "cid")},
    }
    assert "The task t0 counts for nobody in epoch 1: s does not answer its health action" in summary.remarks[0]
    rows = assay.open(folder).settle().document["agreed"]
    assert {row["participant"]: row["validators"][0]["work"]["tasks"] for row in rows} == {"ann": 1, "bob": 1, "cid": 1}


def test_a_service_that_was_broken_in_a_round_stays_so(tmp_path: Path) -> None:
    with serving(do=reply_of({}, 500), ping=reply_of({}, 500)) as server:
        folder = competition(tmp_path, server, {"ann": plan(), "bob": plan()}, tasks=1)
        run(folder, participants=["ann"])
    with serving(do=DONE) as server:
        summary = run(folder)
        assert server.seen == []
    assert outcomes(folder) == {("ann", "t0"): "service-error", ("bob", "t0"): "service-error"}
    assert summary.remarks


def test_a_round_asks_what_was_drawn_and_nothing_else_later(tmp_path: Path) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, {"ann": plan()}, tasks=6)
        (folder / "round.toml").write_text("tasks = 2\n", encoding="utf-8")
        with pytest.raises(BadInput, match="no such file"):
            run(folder)
        (folder / "randomness.csv").write_text("epoch,hex\n5," + "07" * 32 + "\n", encoding="utf-8")
        summary = run(folder)
        assert (summary.epoch, summary.planned) == (5, 2)
        with pytest.raises(BadInput, match="there is no randomness of epoch 6"):
            run(folder, epoch=6)
        (folder / "round.toml").write_text("tasks = 3\n", encoding="utf-8")
        with pytest.raises(BadInput, match="asked other tasks, or other files of them, in epoch 5"):
            run(folder)


def test_with_assign_a_validator_judges_those_that_are_his(tmp_path: Path) -> None:
    people = {f"p{number}": plan() for number in range(6)}
    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, people, tasks=1, validators=("val-1", "val-2"), consensus="assign = 1")
        (folder / "randomness.csv").write_text("epoch,hex\n1," + "07" * 32 + "\n", encoding="utf-8")
        first, two = run(folder, "val-1"), run(folder, "val-2")
    mine = {who for who, _ in outcomes(folder, "val-1")}
    theirs = {who for who, _ in outcomes(folder, "val-2")}
    assert mine | theirs == set(people)
    assert not mine & theirs
    assert (set(first.others), set(two.others)) == (theirs, mine)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("scheme.toml", ('kind = "workflow"', 'kind = "given"'), "is 'given', and plans are judged as workflows"),
        ("services.toml", ("[services.s]", "[services.t]"), "there is no service 's'"),
        ("services.toml", ('"do", ', ""), "'s' has no action 'do'"),
        ("services.toml", ("max_cost", 'key = "ASSAY_NO_SUCH_KEY"\nmax_cost'), "ASSAY_NO_SUCH_KEY is not set"),
        ("tasks/t0/task.toml", ("Do it.", "Do it!"), "the files of the task 't0' are not the pinned files"),
    ],
)
def test_what_could_not_be_judged_is_refused_before_anybody_is_asked(
    tmp_path: Path, file: str, change: tuple[str, str], message: str
) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, {"ann": plan()})
        place = folder / file
        assert change[0] in place.read_text(encoding="utf-8")
        place.write_text(place.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
        with pytest.raises(BadInput) as refused:
            run(folder)
        assert message in str(refused.value)
        assert server.seen == []


def test_without_a_submission_there_is_nothing_to_judge(tmp_path: Path) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, {"ann": None})
        with pytest.raises(BadInput, match="no participant has a planner here"):
            run(folder)


def test_two_runs_of_one_validator_refuse_each_other(tmp_path: Path) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, {"ann": plan()})
        with RunStore(folder, "val-1").lock(), pytest.raises(RunBusy):
            run(folder)


def test_what_was_kept_just_before_a_crash_is_made_up_for(tmp_path: Path) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, {"ann": plan(), "bob": plan()})
        run(folder)
        file = evidence_file(folder, "val-1")
        whole = file.read_bytes()
        whole_lines = whole.splitlines(keepends=True)
        file.write_bytes(b"".join(whole_lines[:2]) + whole_lines[2][:50])  # a crash while the third line was written
        before = len(server.seen)
        events: list[RunEvent] = []
        summary = run(folder, events=events)
        assert len(server.seen) == before  # nobody was asked again
    assert summary.planned == 0
    assert [event.count for event in events if event.kind == "kept"] == [2]
    assert sorted(file.read_bytes().splitlines()) == sorted(whole.splitlines())


@pytest.mark.parametrize("name", ["task_digest", "submission", "validator", "participant"])
def test_what_was_kept_of_something_else_is_not_made_evidence_of_this(tmp_path: Path, name: str) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, {"ann": plan()}, tasks=1)
        run(folder)
        evidence_file(folder, "val-1").unlink()
        (file,) = (folder / "workflows" / "val-1").glob("*/*@*/*.json")
        kept = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps(kept | {name: "another"}), encoding="utf-8")
        assert run(folder).planned == 1
        assert lines(folder)[0]["participant"] == "ann"


def test_a_full_disk_is_nobodys_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_rest: Any, **_more: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, {"ann": plan()}, tasks=1)
        monkeypatch.setattr(planners, "ask_planner", full)
        summary = run(folder, attempts=2)
    assert [why for _, why in summary.errors] == ["the host: No space left on device"]
    assert lines(folder) == []


def test_names_may_be_in_any_script_and_services_do_not_learn_them(tmp_path: Path) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, {"zoë β": plan()}, tasks=1, validators=("prüfer/1",))
        assert dict(run(folder, "prüfer/1").outcomes) == {"ran": 1}
        assert "zo" not in json.dumps([headers for _, headers in server.seen])
    assert outcomes(folder, "prüfer/1") == {("zoë β", "t0"): "ran"}


def test_a_record_that_cannot_be_kept_is_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, {"ann": plan()}, tasks=1)
        with monkeypatch.context() as patch:
            patch.setattr(RunStore, "keep", lambda _self, _found: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            summary = run(folder, attempts=2)
        assert "it could not be kept" in summary.errors[0][1]
        assert lines(folder) == []
        assert dict(run(folder).outcomes) == {"ran": 1}


def started(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "assay", "run", str(folder), "--validator", "val-1", "--quiet"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def wait_for(seen: Any, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while not seen() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)


@pytest.mark.full
def test_a_run_that_is_killed_at_any_moment_goes_on_where_it_was(tmp_path: Path) -> None:
    chance = random.Random(7)
    with serving(do=well("done", seconds=0.02)) as server:
        folder = competition(tmp_path, server, {"ann": plan(), "bob": plan()}, tasks=6)
        for _ in range(4):
            before = len(server.seen)
            process = started(folder)
            wait_for(lambda before=before: len(server.seen) > before, process)
            time.sleep(chance.random() * 0.3)
            process.kill()
            process.communicate()
        run(folder)
    assert outcomes(folder) == {(who, f"t{task}"): "ran" for who in ("ann", "bob") for task in range(6)}
    assert len(documents(folder)) == 12
    assert list(folder.rglob("*.tmp")) == []


def test_ctrl_c_stops_it_and_the_same_command_goes_on(tmp_path: Path) -> None:
    with serving(do=well("done", seconds=0.2)) as server:
        folder = competition(tmp_path, server, {"ann": plan(), "bob": plan()}, tasks=6)
        process = started(folder)
        wait_for(lambda: len(server.seen) > 3, process)
        process.send_signal(signal.SIGINT)
        _, said_to_stderr = process.communicate(timeout=60)
        assert process.returncode == 130, said_to_stderr
        assert b"Traceback" not in said_to_stderr
        done = len(lines(folder))
        assert 0 < done < 12
        summary = run(folder)
    assert (summary.planned, len(outcomes(folder))) == (12 - done, 12)
