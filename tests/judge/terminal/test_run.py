"""Runs: what is judged, what is kept, what is refused. SPEC 2.1, 3.0."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.competition import open_competition
from assay.errors import BadInput
from assay.folder import read
from assay.judge import tree
from assay.judge.entries import counting
from assay.judge.judge_run import JudgeRun
from assay.judge.kind_options import TaskOptions
from assay.judge.run_files import RunBusy, segment, short
from assay.judge.running import CellResult, RunEvent, RunOptions
from assay.judge.terminal import agent as agents
from assay.judge.terminal import worker
from assay.judge.terminal.competition import EveryTrial, TrialCell, submit_agent
from assay.judge.terminal.record import TrialStore
from assay.judge.terminal.run import run
from assay.judge.terminal.tasks import read_task
from assay.records import Participant
from assay.scheme.fields import instant
from judge_kit import make_agent, make_task
from run_kit import NOOP, ORACLE, QUICK, competition, everything, lines, outcomes

# What there is to judge


def participant(key: str, submission: str, second: int | None = None) -> Participant:
    at = None if second is None else instant(f"2026-01-01T00:00:{second:02}Z")
    return Participant(key, submission=submission, submitted_at=at)


def test_the_earliest_of_one_submission_counts() -> None:
    rows = [participant("d", "s", None), participant("c", "s", 2), participant("b", "s", 1), participant("a", "s", 1)]
    assert [row.key for row in counting([*rows, participant("e", ""), participant("f", "t")])] == ["a", "f"]


@given(
    st.lists(st.sampled_from(["", "s", "t", "u"]), max_size=4),
    st.sets(st.sampled_from(["x", "y", "z"])),
    st.integers(1, 3),
    st.data(),
)
def test_what_is_missing_is_what_has_no_evidence(
    submissions: list[str], tasks: set[str], trials: int, data: st.DataObject
) -> None:
    people = [participant(f"p{number}", submission) for number, submission in enumerate(submissions)]
    every = EveryTrial(people, tuple(sorted(tasks)), trials)
    whole = list(every)
    assert len(every) == len(whole) == sum(cell in every for cell in whole)
    assert len({cell.key for cell in whole}) == len(whole) == len(set(submissions) - {""}) * len(tasks) * trials
    done = {cell.key for cell in whole if data.draw(st.booleans())}
    judging = JudgeRun[TrialCell, CellResult](Path("competition"), "val-1")
    left = judging.planned(whole, done)
    assert {cell.key for cell in left} == {cell.key for cell in whole} - done
    assert judging.summary.planned == len(left) == len(whole) - len(done)


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_names_of_folders_are_safe_and_tell_apart(first: str, other: str) -> None:
    for name in (first, other):
        folder = segment(name)
        assert folder
        assert len(folder) <= 120
        assert "/" not in folder
        assert not folder.startswith(".")
    assert (segment(first) == segment(other)) is (first == other)


def test_names_that_people_use_stay_readable() -> None:
    assert segment("hello-world_1.2") == "hello-world_1.2"
    assert segment("..") == "%2E."
    assert short("sha256:0123456789abcdef") == "0123456789ab"


# Runs


def test_a_task_is_read_again_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_MOST_CACHED", 2)
    places = [make_task(tmp_path / name).folder for name in ("t0", "t1", "t2")]
    reader = worker.TaskReader()
    first, second = (reader.read(place) for place in places[:2])
    assert (reader.read(places[0]), reader.read(places[1])) == (first, second)
    assert reader.read(places[0]) is first
    make_task(places[0], instruction="Write goodbye.\n")
    changed = reader.read(places[0])
    assert (changed.instruction, changed.digest) == ("Write goodbye.\n", read_task(places[0]).digest)
    assert changed.digest != first.digest
    reader.read(places[2])  # more than are held
    assert reader.read(places[1]) is not second
    (places[0] / "task.toml").unlink()
    with pytest.raises(BadInput, match="no such file"):
        reader.read(places[0])
    tree.remove(places[0])
    with pytest.raises(BadInput):
        reader.read(places[0])


def test_a_run_judges_what_is_missing_and_settles(tmp_path: Path) -> None:
    folder = competition(tmp_path / "c", trials=2)
    events: list[RunEvent] = []
    summary = run(folder, "val-1", RunOptions(jobs=2), events.append)
    assert outcomes(folder) == everything(trials=2)
    assert summary.outcomes == Counter({"pass": 4, "fail": 4})
    assert (summary.planned, summary.errors, summary.stopped, summary.absent) == (8, [], False, ())
    assert Counter(event.kind for event in events) == Counter(calibrating=1, calibrated=2, planned=1, began=8, ended=8) + Counter(
        {"phase": sum(event.kind == "phase" for event in events)}
    )
    assert all(event.folder is not None and (event.folder / "result.json").is_file() for event in events if event.kind == "ended")
    settlement = open_competition(folder).settle()
    assert settlement.epoch == 1
    agreed = {row["participant"]: row["score"] for row in settlement.document["agreed"]}
    assert agreed == {"ann": "1", "bob": "0", "none": None}
    assert all(line["image"].startswith("sha256:") for line in lines(folder))

    before = TrialStore(folder, "val-1").evidence.read_bytes()
    assert run(folder, "val-1", QUICK).planned == 0
    assert TrialStore(folder, "val-1").evidence.read_bytes() == before

    assert run(folder, "val 2/é", RunOptions(jobs=1, epoch=3, participants=["bob"], own=TaskOptions(only=["t1"]))).judged == 2
    assert outcomes(folder, "val 2/é") == {("bob", "t1", 1): "fail", ("bob", "t1", 2): "fail"}
    assert run(folder, "val 2/é", QUICK).planned == 6
    assert {line["epoch"] for line in lines(folder, "val 2/é")} == {3}  # the highest there is
    evidence = read(folder).evidence
    assert isinstance(evidence, tuple)
    assert len(evidence) == 16
    assert not list((folder / "trials").rglob(".partial/*"))


@pytest.mark.full
def test_a_new_submission_is_judged_anew(tmp_path: Path) -> None:
    folder = competition(tmp_path / "c", tasks=1)
    run(folder, "val-1", QUICK)
    make_agent(tmp_path / "better", "echo hello > out.txt\n")
    submit_agent(folder, "bob", str(tmp_path / "better"), at=instant("2026-02-01T00:00:00Z"))
    assert run(folder, "val-1", QUICK).outcomes == Counter({"pass": 1})
    assert len(lines(folder)) == 3
    assert {row["score"] for row in open_competition(folder).settle().document["agreed"][:2]} == {"1"}
    place = folder / "agents" / short(agents.load_agent(tmp_path / "better").digest)
    (place / "run.sh").write_text("echo bye > out.txt\n")
    with pytest.raises(BadInput, match="is not what 'bob' submitted"):
        run(folder, "val-1", QUICK)
    import shutil

    shutil.rmtree(place)
    assert run(folder, "val-1", QUICK).absent == ("bob",)


def test_what_is_refused_before_anything_runs(tmp_path: Path) -> None:
    folder = competition(tmp_path / "c", tasks=1)
    for options, says in (
        (RunOptions(jobs=0), "0 is not a number of jobs"),
        (RunOptions(attempts=0), "0 is not a number of attempts"),
        (RunOptions(own=TaskOptions(sandbox="x")), "there is no sandbox 'x'"),
        (RunOptions(own=TaskOptions(only=["t1"])), "there is no task 't1'"),
        (RunOptions(participants=["an"]), "did you mean 'ann'"),
        (RunOptions(participants=["none"]), "no participant has an agent here"),
    ):
        with pytest.raises(BadInput, match=says):
            run(folder, "val-1", options)
    with pytest.raises(BadInput, match="--reuse-boxes: every container is new"):
        run(folder, "val-1", RunOptions(own=TaskOptions(sandbox="containers", reuse=True)))
    scheme = (folder / "scheme.toml").read_text()
    (folder / "scheme.toml").write_text(scheme.replace('kind = "tests"', 'kind = "tests"\nfresh_boxes = true'))
    with pytest.raises(BadInput, match=r"score\.fresh_boxes: demands a new box for every trial.*leave --reuse-boxes out"):
        run(folder, "val-1", RunOptions(own=TaskOptions(reuse=True)))
    (folder / "scheme.toml").write_text(scheme)
    with pytest.raises(BadInput, match="there is no validator 'val-2'"):
        run(folder, "val-2", QUICK)
    make_agent(tmp_path / "asks", "true\n", more='network = "model"\n')
    submit_agent(folder, "none", str(tmp_path / "asks"))
    with pytest.raises(BadInput, match="needs a model"):
        run(folder, "val-1", QUICK)
    assert not (folder / "evidence").exists()


@pytest.mark.full
def test_only_those_are_judged_for_whom_the_validator_is_drawn(tmp_path: Path) -> None:
    folder = competition(tmp_path)
    scheme = folder / "scheme.toml"
    scheme.write_text(scheme.read_text() + "assign = 1\n")
    table = folder / "participants.csv"
    rows = [line.split(",") for line in table.read_text().split()]
    table.write_text(
        "".join(",".join([*row, more]) + "\n" for row, more in zip(rows, ["accepted_epoch", "3", "", ""], strict=True))
    )
    (folder / "randomness.csv").write_text(f"epoch,hex\n3,{'00' * 32}\n")
    with pytest.raises(BadInput, match=r"randomness.csv: there is no randomness of epoch 4, in which .* 'bob' was accepted"):
        run(folder, "val-1", replace(QUICK, epoch=4))
    assert lines(folder) == []
    # SHA-256(randomness, submission, key) is lower for the one of each pair that `wanted` names.
    (folder / "randomness.csv").write_text(f"epoch,hex\n3,{'00' * 32}\n4,{'01' * 32}\n")
    wanted = {"ann": (bytes(32), ORACLE), "bob": (bytes([1]) * 32, NOOP)}
    keys = ("val-1", "val 2/é")
    others = {key: run(folder, key, replace(QUICK, epoch=4)).others for key in keys}
    for who, (random, submission) in wanted.items():
        drawn = min(keys, key=lambda key: sha256(random + b"\0" + submission.encode() + b"\0" + key.encode()).digest())
        assert [key for key in keys if who in others[key]] == [key for key in keys if key != drawn]
        assert [key for key in keys if who in {participant for participant, _, _ in outcomes(folder, key)}] == [drawn]
    assert {**outcomes(folder), **outcomes(folder, "val 2/é")} == everything()
    assert len(lines(folder)) + len(lines(folder, "val 2/é")) == len(everything())
    assert run(folder, "val-1", replace(QUICK, everybody=True)).others == ()
    assert outcomes(folder) == everything()


def test_a_new_submission_is_accepted_anew(tmp_path: Path) -> None:
    (tmp_path / "participants.csv").write_text(f"key,submission,accepted_epoch\nann,{NOOP},3\n")
    submit_agent(tmp_path, "ann", "noop")
    assert ",3" in (tmp_path / "participants.csv").read_text()
    submit_agent(tmp_path, "ann", "oracle")
    assert ",3" not in (tmp_path / "participants.csv").read_text()


def test_a_task_set_that_changed_is_refused(tmp_path: Path) -> None:
    folder = competition(tmp_path / "c")
    run(folder, "val-1", RunOptions(own=TaskOptions(only=["t0"])))
    (folder / "tasks" / "t0" / "tests" / "test.sh").write_text("grep -q hello /app/out.txt\n")
    with pytest.raises(BadInput, match="are not those that were pinned"):
        run(folder, "val-1", QUICK)
    from assay.judge.terminal.competition import pin_tasks, write_manifest
    from assay.judge.terminal.tasks import read_tasks

    write_manifest(pin_tasks(read_tasks(folder / "tasks")), folder / "tasks.txt")
    with pytest.raises(BadInput, match="'t0' is not the one that 'val-1' judged before"):
        run(folder, "val-1", QUICK)
    assert len(lines(folder)) == 2
    assert run(folder, "val 2/é", QUICK).judged == 4  # has judged nothing of it yet


def test_two_runs_of_one_validator_refuse_each_other(tmp_path: Path) -> None:
    folder = competition(tmp_path / "c", tasks=1)
    with TrialStore(folder, "val-1").lock():
        with pytest.raises(RunBusy, match="'val-1' is judging already"):
            run(folder, "val-1", QUICK)
        assert run(folder, "val 2/é", QUICK).judged == 2
    assert run(folder, "val-1", QUICK).judged == 2
