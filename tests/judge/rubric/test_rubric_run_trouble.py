"""Runs of the rubric judge that are killed, whose model fails, whose disk is full: nothing lost, nothing twice, no zero."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.competition import open_competition
from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.files import write_bytes
from assay.judge import run_files
from assay.judge.rubric import stored as keeps
from assay.judge.rubric.judgement import JudgeLimits
from assay.judge.rubric.scripted import Script, ScriptedFault, ScriptedSolution
from assay.judge.rubric.scripted_server import scripted_model
from assay.judge.running import RunEvent
from bounty_run_kit import KEY, TEXTS, VALIDATOR, events_of, judged, lines, make_run, outcomes, scripted
from depth import depth

MANY = {f"p{number:02}": f"Solution {number:02}: integers march in order.\nNone of them is late.\n" for number in range(10)}
ALL = ScriptedSolution(checks={"C1": "integers march in order.", "C2": "None of them is late."}, verdict="ELEGANT")
SOON = 60.0
"""Seconds that a test waits at most for what is bound to happen."""


@pytest.fixture(autouse=True)
def _keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path / "c")


def whole(folder: Path) -> None:
    """Fails unless everybody has one record, its judgement and its transcript, and full marks."""
    assert outcomes(folder) == dict.fromkeys(MANY, "judged")
    for line in lines(folder):
        name = line["attestation"][7:]
        for place in (folder / "judgements" / f"{name}.json", folder / "transcripts" / f"{name}.sealed"):
            assert json.loads(place.read_bytes())
    assert {row["bps"] for row in open_competition(folder).settle().document["agreed"]} == {10_000}


CHILD = """
import sys
from pathlib import Path
from assay.judge.rubric.judgement import JudgeLimits
from assay.judge.rubric.run import RubricOptions, run
from assay.judge.running import RunOptions
from assay.judge.service import ModelAccess
def tell(event):
    print(event.kind, event.phase, flush=True)
options = RunOptions(jobs=4, own=RubricOptions(ModelAccess(sys.argv[2], sys.argv[3])))
limits = JudgeLimits(first_pause=0.01, tries=3, patience=float(sys.argv[4]))
summary = run(Path(sys.argv[1]), "val-1", options, tell, limits=limits)
print("stopped" if summary.stopped else "whole", summary.judged, flush=True)
"""


def child(folder: Path, url: str, patience: float = 5.0) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    words = [sys.executable, "-c", CHILD, str(folder), url, KEY, str(patience)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


# Killed and stopped


def test_killed_at_any_moment_it_goes_on_from_there(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "c", texts=MANY)
    chance = random.Random(7)
    kills = 0
    with scripted(ScriptedFault(kind="slow", seconds=0.02), solved=(ALL,)) as model:
        for _ in range(depth(4, 20)):
            with child(folder, model.url) as process:
                assert process.stdout is not None
                seen = chance.randrange(8, 36)  # so many lines are read, and it is killed somewhere after
                for _ in range(seen):
                    printed = process.stdout.readline()
                    if not printed or printed.startswith("whole"):
                        break
                process.kill()
                process.communicate()
                kills += process.returncode == -signal.SIGKILL
            if len(lines(folder)) == len(MANY):
                break
            for line in (folder / "evidence").glob("*.jsonl") if (folder / "evidence").exists() else ():
                assert all(
                    json.loads(splitline)["outcome"] == "judged"
                    for splitline in line.read_text().splitlines()
                    if splitline.endswith("}")
                )
        summary = judged(folder, model.url)
    assert kills
    assert summary.errors == []
    whole(folder)


@pytest.mark.parametrize("step", ["sealed", "pending", "judgement", "evidence", "unlink"])
def test_a_crash_between_two_steps_loses_nothing_and_asks_nobody_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What a power cut leaves: everything up to one step of keeping a judgement, and nothing after."""

    class Cut(BaseException):
        pass

    write, append, unlink = write_bytes, run_files.append, Path.unlink
    armed = [True]

    def cut(where: str) -> None:
        if armed and step == where:
            armed.clear()
            raise Cut

    def written(path: Path, data: bytes, *, private: bool = False) -> None:
        kind = {"transcripts": "sealed", "judgements": "judgement"}.get(path.parent.name, "pending")
        write(path, data, private=private)
        cut(kind)

    def appended(file: Path, line: bytes) -> None:
        append(file, line)
        cut("evidence")

    def unlinked(self: Path, missing_ok: bool = False) -> None:
        if self.parent.parent.name == "judging" and self.suffix == ".json":
            cut("unlink")
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(keeps, "write_bytes", written)
    monkeypatch.setattr(run_files, "append", appended)
    monkeypatch.setattr(Path, "unlink", unlinked)
    with scripted() as model:
        with pytest.raises(Cut):
            judged(folder, model.url, jobs=1)
        asked = len(model.seen)
        events: list[RunEvent] = []
        summary = judged(folder, model.url, jobs=1, tell=events.append)
        assert summary.errors == []
        again = len(model.seen) - asked
    assert outcomes(folder) == dict.fromkeys(TEXTS, "judged")
    assert again == {"sealed": 7}.get(step, 4)  # ann's three questions are asked again only where nothing was kept of them
    assert [event.count for event in events if event.kind == "kept"] == ([1] if step in ("pending", "judgement") else [])


def test_what_is_left_that_is_not_ours_is_put_away(folder: Path) -> None:
    with scripted() as model:
        judged(folder, model.url)
        root = folder / "judging" / VALIDATOR
        (line, *_) = lines(folder)
        document = json.loads((folder / "judgements" / f"{line['attestation'][7:]}.json").read_text())
        for number, content in enumerate(
            (
                b"{",
                b"[]",
                b'{"record": 1}',
                canonical({"record": line, "judgement": document}),  # it has evidence already
                canonical({"record": line | {"validator": "val-2"}, "judgement": document}),
                canonical({"record": line | {"submission": "other"}, "judgement": document | {"bounty": "another"}}),
            )
        ):
            (root / f"{number}.json").write_bytes(content)
        before = (folder / "evidence" / f"run-{VALIDATOR}.jsonl").read_bytes()
        assert judged(folder, model.url).planned == 0
    assert list(root.glob("*.json")) == []
    assert (folder / "evidence" / f"run-{VALIDATOR}.jsonl").read_bytes() == before


def test_a_torn_line_is_taken_away_and_what_it_was_of_is_judged_again(folder: Path) -> None:
    with scripted() as model:
        judged(folder, model.url)
        file = folder / "evidence" / f"run-{VALIDATOR}.jsonl"
        file.write_bytes(file.read_bytes()[:-20])
        assert judged(folder, model.url).planned == 1
    assert outcomes(folder) == dict.fromkeys(TEXTS, "judged")


def stopped(folder: Path, url: str, number: int) -> str:
    with child(folder, url) as process:
        assert process.stdout is not None
        printed = ""
        until = time.monotonic() + SOON
        while "verdict" not in printed and time.monotonic() < until:
            printed += process.stdout.readline()
        process.send_signal(number)
        rest, trouble = process.communicate(timeout=SOON)
        assert process.returncode == 0, trouble
    return printed + rest


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_it_and_it_goes_on(tmp_path: Path, number: int) -> None:
    folder = make_run(tmp_path / "c", texts=MANY)
    with scripted(ScriptedFault(kind="slow", seconds=0.1), solved=(ALL,)) as model:
        printed = stopped(folder, model.url, number)
        assert "stopping" in printed
        assert f"stopped {len(lines(folder))}" in printed
        assert len(lines(folder)) < len(MANY)
    with scripted(solved=(ALL,)) as model:
        summary = judged(folder, model.url)
        assert summary.judged == summary.planned > 0
    whole(folder)


# The world's trouble


def test_a_storm_of_429_passes(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "c", texts=MANY)
    with scripted(ScriptedFault(kind="429", times=2, each=True), solved=(ALL,)) as model:
        summary = judged(folder, model.url, jobs=8)
        assert model.statuses[429] == 2 * 3 * len(MANY)
    assert (summary.outcomes, summary.errors) == (Counter(judged=len(MANY)), [])
    whole(folder)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["500", "503", "429", "close", "cut", "no-json"])
def test_a_service_that_fails_leaves_solutions_missing_and_no_record_of_them(folder: Path, kind: str) -> None:
    limits = JudgeLimits(first_pause=0.01, longest_pause=0.02, tries=2, patience=0.2)
    with scripted(ScriptedFault(kind=kind, solution="bob")) as model:
        summary = judged(folder, model.url, limits=limits)
        assert summary.outcomes == Counter(judged=2)
        assert [cell.participant for cell, _ in summary.errors] == ["bob"]
        assert outcomes(folder) == {"ann": "judged", "cyd": "judged"}
    rows = {row["participant"]: row for row in open_competition(folder).settle().document["agreed"]}
    assert (rows["bob"]["score"], rows["bob"]["reason"]) == (None, "no-evidence")
    with scripted() as model:
        assert judged(folder, model.url).outcomes == Counter(judged=1)
    assert outcomes(folder) == dict.fromkeys(TEXTS, "judged")


def test_a_refused_key_ends_the_run_and_says_so(folder: Path) -> None:
    with scripted(ScriptedFault(kind="401")) as model:
        summary = judged(folder, model.url, jobs=1)
        assert len(model.seen) == 1  # nobody else is asked with it
    assert [cell.participant for cell, _ in summary.errors] == sorted(TEXTS)
    assert all("check the key and the account" in why for _, why in summary.errors)
    assert KEY not in str(summary.errors)
    assert lines(folder) == []


@pytest.mark.full
def test_a_server_that_is_killed_midway(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "c", texts=MANY)
    ended: list[RunEvent] = []
    with scripted_model(Script(solutions=(ALL,), faults=(ScriptedFault(kind="slow", seconds=0.05),))) as model:
        url, port = model.url, int(model.url.split(":")[2].split("/")[0])
        process = child(folder, url)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ended"):
                break
    rest, trouble = process.communicate(timeout=SOON)
    assert process.returncode == 0, trouble
    before = len(lines(folder))
    assert 0 < before < len(MANY)
    assert f"whole {before}" in rest
    assert {line["outcome"] for line in lines(folder)} == {"judged"}
    with scripted_model(Script(solutions=(ALL,)), port=port) as model:
        summary = judged(folder, model.url, tell=ended.append)
    assert len(events_of("ended", ended)) == summary.planned == len(MANY) - before
    whole(folder)


def test_a_full_disk_leaves_them_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: Path, line: bytes) -> None:
        raise OSError(28, "No space left on device")

    def refused(path: Path, data: bytes, *, private: bool = False) -> None:
        raise BadInput("cannot be written (No space left on device)", file=path)

    patches: tuple[tuple[object, str, Callable[..., None]], ...] = ((keeps, "write_bytes", refused), (run_files, "append", full))
    for where, name, instead in patches:
        with scripted() as model, monkeypatch.context() as patch:
            patch.setattr(where, name, instead)
            summary = judged(folder, model.url)
            if where is run_files:  # what waits for its line cannot be finished now, and is not lost
                with pytest.raises(BadInput, match="cannot be written"):
                    judged(folder, model.url)
        assert len(summary.errors) == 3
        assert all("the judgement could not be kept: " in why and "No space left" in why for _, why in summary.errors)
        assert lines(folder) == []
    with scripted() as model:
        assert judged(folder, model.url).planned == 0
        assert model.seen == []  # the line was all that they lacked
    assert outcomes(folder) == dict.fromkeys(TEXTS, "judged")


def test_a_folder_that_cannot_be_written_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "judging").write_text("")
    with scripted() as model, pytest.raises(BadInput, match="cannot be written"):
        judged(folder, model.url)
    (folder / "judging").unlink()
    (folder / "judgements").write_text("")
    with scripted() as model, pytest.raises(BadInput, match="cannot be written"):
        judged(folder, model.url)


# Secrets


def test_no_solution_stands_anywhere_but_where_it_was_handed_in(folder: Path, tmp_path: Path) -> None:
    """Also not what a model quoted of it; and the key of the service is in no file, no output, and no message."""
    faults = (
        ScriptedFault(kind="foreign-quote", solution="ann", phase="checks", times=1),
        ScriptedFault(kind="429", solution="bob", times=1),
        ScriptedFault(kind="500", solution="cyd"),
    )
    with scripted(*faults) as model, child(folder, model.url) as process:
        out, err = process.communicate(timeout=SOON)
    assert process.returncode == 0, err
    assert set(outcomes(folder)) == {"ann", "bob"}
    words = [b"integers march", b"None of them is late", b"the half and the third", b"buy my pills", KEY.encode()]
    occurrences = {
        (str(path.relative_to(tmp_path)), word)
        for path in tmp_path.rglob("*")
        if path.is_file()
        for word in words
        if word in path.read_bytes()
    }
    held = {place.split("/")[0] + "/" + place.split("/")[1] for place, _ in occurrences}
    assert held <= {"c/solutions", "c-texts/ann.md", "c-texts/bob.md", "c-texts/cyd.md"}, occurrences
    assert not any(word.decode() in out + err for word in words)
