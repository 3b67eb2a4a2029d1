"""An import as a competition directory: what is written, what is never overwritten, and adding to what is there. SPEC 7."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay import records
from assay.competition import emission, open_competition
from assay.errors import BadInput
from assay.exact import digest
from assay.imports import ImportedCompetition, ImportOptions, Trial, Trials
from assay.imports import competition as imported
from assay.imports.build import submission_of, with_score
from assay.imports.trials import FailureCause
from assay.scheme import load as scheme
from assay.scheme import subnet
from assay.scheme.model import TestsScore

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def competition(
    trials: Any, directory: Path, *, scheme: str | None = "", options: ImportOptions | None = None
) -> ImportedCompetition:
    """An import by a scheme with weights, unless the test names one or there is one already."""
    there = options is not None and options.into != "new"
    return imported(trials, directory, scheme=(None if there else "term-challenge") if scheme == "" else scheme, options=options)


def grid(agents: str = "ab", runs: int = 3, tasks: str = "tu", **more: Any) -> list[Trial]:
    return [
        Trial(agent, f"run-{run}", task, resolved=(agent, task) != ("b", "u"), started_at=NOON, file="x.csv", **more)
        for agent in agents
        for run in range(1, runs + 1)
        for task in tasks
    ]


def evidence(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "evidence" / "imported.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def snapshot(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_whole_competition(tmp_path: Path) -> None:
    done = competition(grid(), tmp_path / "c")
    assert sorted(snapshot(tmp_path / "c")) == [
        "evidence/imported.jsonl",
        "participants.csv",
        "scheme.toml",
        "tasks.txt",
        "validators.csv",
    ]
    with (tmp_path / "c" / "participants.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["key"], row["uid"], row["submitted_at"]) for row in rows] == [
        ("a", "1", "2026-01-05T12:00:00Z"),
        ("b", "2", "2026-01-05T12:00:00Z"),
    ]
    assert rows[0]["submission"] == digest({"agent": "a", "schema": "assay.imported-agent/1", "versions": []})
    assert (tmp_path / "c" / "validators.csv").read_text() == "key,stake,name\nrun-1,100,\nrun-2,100,\nrun-3,100,\n"
    assert (tmp_path / "c" / "tasks.txt").read_text() == "t\nu\n"
    assert len(evidence(tmp_path / "c")) == done.added == 12
    assert evidence(tmp_path / "c")[0] == {
        "kind": "tests",
        "epoch": 1,
        "validator": "run-1",
        "participant": "a",
        "submission": rows[0]["submission"],
        "observed_at": "2026-01-05T12:00:00Z",
        "task": "t",
        "outcome": "pass",
        "trial": 1,
    }
    assert [records.record(item).document() for item in evidence(tmp_path / "c")] == evidence(tmp_path / "c")
    assert scheme.read(tmp_path / "c" / "scheme.toml") == scheme.parse(scheme.presets()["term-challenge"])
    assert [path.name for path in tmp_path.iterdir()] == ["c"], "nothing is left beside it"


def test_the_same_trials_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    competition(grid(), tmp_path / "one")
    competition(list(reversed(grid())), tmp_path / "two")
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")


def test_what_is_written_settles(tmp_path: Path) -> None:
    competition(grid(), tmp_path / "c")
    settled = open_competition(tmp_path / "c").settle()
    document = settled.document
    assert document["ranking"] == ["a", "b"]
    assert [(row["participant"], row["score"], row["share"]) for row in document["weights"]] == [
        ("a", "1", "0.5"),
        ("b", "0.5", "0.5"),
    ]


def test_options_of_writing(tmp_path: Path) -> None:
    competition(grid(), tmp_path / "c", options=ImportOptions(epoch=7, stake="250", first_uid=0))
    text = (tmp_path / "c" / "participants.csv").read_text()
    assert "\na,1," in text, "0 is the burn uid"
    assert "\nb,2," in text
    assert "run-3,250," in (tmp_path / "c" / "validators.csv").read_text()
    assert {item["epoch"] for item in evidence(tmp_path / "c")} == {7}
    competition(grid(), tmp_path / "d", options=ImportOptions(first_uid=None))
    assert "\na,,," in (tmp_path / "d" / "participants.csv").read_text()


def test_the_rules_go_into_the_scheme(tmp_path: Path) -> None:
    trials = grid(trouble=FailureCause.AGENT_TIMEOUT, mode="agent_timeout")
    trials += [Trial("a", "run-1", "t", trial=k, resolved=True) for k in (2, 3)]
    done = competition(trials, tmp_path / "fail")
    assert done.scheme.score == scheme.parse('[scheme]\nname="x"\n[score]\nkind="tests"\ntrials=3\n').score
    assert done.built.outcomes == {"timeout": 12, "pass": 2}
    verified = competition(trials, tmp_path / "verify", options=ImportOptions(agent_timeout="verify"))
    assert isinstance(verified.scheme.score, TestsScore)
    assert verified.scheme.score.agent_timeout == "verify"
    assert scheme.read(tmp_path / "verify" / "scheme.toml") == verified.scheme
    assert verified.built.outcomes == {"pass": 11, "fail": 3}
    with pytest.raises(BadInput, match='--agent-timeout: "fail" contradicts counting as the leaderboard does'):
        competition(trials, tmp_path / "no", options=ImportOptions(agent_timeout="fail", count_as="leaderboard"))


def test_a_scheme_of_ones_own(tmp_path: Path) -> None:
    text = (
        '[scheme]\nname = "mine"\n\n[score]  # ours\nkind = "tests"\ntrials = 9      # each\n\n[consensus]\nmin_validators = 1\n'
    )
    done = competition(grid(), tmp_path / "c", scheme=text)
    assert done.scheme.name == "mine"
    assert (tmp_path / "c" / "scheme.toml").read_text() == text.replace("trials = 9 ", "trials = 1 ")
    with pytest.raises(BadInput, match=r"the scheme: score\.kind: scores by points, and trials are tests"):
        competition(grid(), tmp_path / "d", scheme="bounty-challenge")
    with pytest.raises(BadInput, match="there is no preset 'term-chalenge'; did you mean 'term-challenge'"):
        competition(grid(), tmp_path / "d", scheme="term-chalenge")
    with pytest.raises(BadInput, match=r"the scheme:2: is not TOML"):
        competition(grid(), tmp_path / "d", scheme="[scheme]\nname = \n")


@given(
    st.sampled_from(["trials = 2", "trials=2 # each", "", "  trials   =   2   # = 3"]),
    st.sampled_from(['agent_timeout = "fail"', "agent_timeout='fail'#x", ""]),
    st.integers(1, 10_000),
)
def test_setting_fields_leaves_the_rest_alone(trials: str, timeout: str, count: int) -> None:
    text = f'# top\n[scheme]\nname = "x"\n[score]\n{trials}\nkind = "tests"\n{timeout}\n[reward]\ntop = 3\n'
    after = with_score(text, {"trials": str(count), "agent_timeout": '"verify"'})
    parsed = scheme.parse(after)
    assert parsed.score == TestsScore(kind="tests", agent_timeout="verify", trials=count)
    kept = [line for line in text.splitlines() if "trials" not in line and "agent_timeout" not in line]
    assert [line for line in after.splitlines() if "trials" not in line and "agent_timeout" not in line] == kept
    assert with_score(text, {}) == text


def test_versions_make_the_submission(tmp_path: Path) -> None:
    trials = [Trial("a", f"run-{run}", "t", resolved=True, version=version) for run, version in ((1, "2"), (2, "1"), (3, "2"))]
    done = competition(trials, tmp_path / "c")
    assert done.built.agents[0].submission == submission_of("a", ["1", "2"]) != submission_of("a", ["1"])
    assert any("1 agent ran in several versions, 'a' for one" in note for note in done.notes)
    assert any("3 trials have no start time" in note for note in done.notes)
    assert {item["observed_at"] for item in evidence(tmp_path / "c")} == {"1970-01-01T00:00:00Z"}
    assert ",,,\n" in (tmp_path / "c" / "participants.csv").read_text(), "no submission time is invented"


def test_what_the_report_warns_of(tmp_path: Path) -> None:
    trials = grid(runs=2)[:-1]
    trials += [trials[0], Trial("a", "run-1", "u", resolved=None, file="x.csv")]
    done = competition(Trials(tuple(trials), ("from the reader",)), tmp_path / "c")
    assert done.notes == (
        "from the reader",
        "1 trial occurred twice and counts once",
        "1 error gave way to a later result of the same trial",
        "1 run is incomplete (errors are missing trials) and will not count for their agents",
        "2 runs, and the scheme asks for 3 validators: nothing will be agreed until consensus.min_validators is lower",
    )
    assert done.document()["incomplete"] == [{"participant": "b", "validator": "run-2", "missing": 1}]


@pytest.mark.parametrize(
    ("trial", "message"),
    [
        (Trial("a", "run-1", "t x", resolved=True, file="f", line=3), r"^f:3: task 't x' cannot stand in tasks\.txt"),
        (Trial("a", "run-1", "#t", resolved=True, file="f"), "task '#t' cannot stand"),
        (Trial("a" * 257, "run-1", "t", resolved=True, file="f", line=3), r"^f:3: participant: .*256"),
        (Trial("a\x07", "run-1", "t", resolved=True, file="f", line=3), r"^f:3: participant: .a.x07. has a character"),
        (Trial(" a", "run-1", "t", resolved=True, file="f"), "the name of the agent, ' a', begins or ends with a space"),
        (Trial("a", "x ", "t", resolved=True, file="f"), "the name of the run, 'x ', begins or ends with a space"),
        (Trial("a", "run-1", "t", trial=10_001, resolved=True, file="f"), "trial 10001 is more than 10000"),
    ],
)
def test_names_that_cannot_be_kept(tmp_path: Path, trial: Trial, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        competition([*grid(), trial], tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ImportOptions(stake="-1"), "^--stake: '-1' is not a whole number"),
        (ImportOptions(stake=str(2**63)), "^--stake: .* is too large"),
        (ImportOptions(first_uid=65_535), "^--first-uid: there is no uid 65536"),
        (ImportOptions(first_uid=-1), "^--first-uid: there is no uid -1"),
        (ImportOptions(epoch=-1), "epoch"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: ImportOptions, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        competition(grid(), tmp_path / "c", options=options)
    assert list(tmp_path.iterdir()) == []


def test_no_trials(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there are no trials to import"):
        competition([], tmp_path / "c")


def test_an_empty_directory_is_used_and_a_full_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    competition(grid(), tmp_path / "empty")
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    for into in ("new", "replace"):
        with pytest.raises(BadInput, match="full"):
            competition(grid(), full, options=ImportOptions(into=into))
    assert snapshot(full) == {"notes.txt": b"mine"}
    with pytest.raises(BadInput, match="is a file"):
        competition(grid(), full / "notes.txt")


def test_replacing_an_earlier_import(tmp_path: Path) -> None:
    target = tmp_path / "c"
    competition(grid(), target)
    before = snapshot(target)
    with pytest.raises(BadInput, match=r"c: is not empty; name a new folder, or use --add .* or --force"):
        competition(grid("abc"), target)
    assert snapshot(target) == before
    edited = (target / "scheme.toml").read_text().replace("top = 1", "top = 4")
    (target / "scheme.toml").write_text(edited)
    done = competition(grid("abc"), target, options=ImportOptions(into="replace"))
    assert done.scheme.reward.top == 4, "the rules that are there stay"
    assert {item["participant"] for item in evidence(target)} == {"a", "b", "c"}
    other = '[scheme]\nname = "other"\n[score]\nkind = "tests"\n'
    with pytest.raises(BadInput, match="is the competition 'term-challenge', not 'other'"):
        competition(grid(), target, scheme=other, options=ImportOptions(into="replace"))
    (target / "evidence" / "own.jsonl").write_text("")
    with pytest.raises(BadInput, match=r"own\.jsonl: does not come from an import; --force only replaces"):
        competition(grid(), target, options=ImportOptions(into="replace"))
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_nothing_is_left_when_the_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "c"
    competition(grid(), target)
    before = snapshot(target)
    calls = []

    def full(path: Path, text: str) -> None:
        calls.append(path)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        path.write_text(text)

    monkeypatch.setattr("assay.imports.write.write_text", full)
    with pytest.raises(BadInput, match=r"c: cannot be written \(No space left on device\)"):
        competition(grid("abc"), target, options=ImportOptions(into="replace"))
    assert snapshot(target) == before
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def add(trials: list[Trial], target: Path, **more: Any) -> ImportedCompetition:
    return competition(trials, target, options=ImportOptions(into="add", **more))


def test_adding_evidence(tmp_path: Path) -> None:
    target = tmp_path / "c"
    competition(grid(runs=3)[:7], target)
    first = (target / "evidence" / "imported.jsonl").read_text()
    (target / "validators.csv").write_text("stake,key\n5,run-1\n6,run-2\n7,run-3\n")
    (target / "tasks.txt").write_text(f"# ours\nt sha256:{'0' * 64} shared\nu\n")
    (target / "history.csv").write_text("epoch,top_score\n0,0.5\n")
    done = add(grid(runs=3), target)
    assert (done.added, len(done.built.records)) == (5, 12)
    text = (target / "evidence" / "imported.jsonl").read_text()
    assert text.startswith(first), "what was there stays as it was"
    assert len(evidence(target)) == 12
    assert add(grid(runs=3), target).added == 0
    assert (target / "evidence" / "imported.jsonl").read_text() == text


def test_adding_to_the_real_submission(tmp_path: Path) -> None:
    target = tmp_path / "c"
    competition(grid(), target)
    (target / "evidence" / "imported.jsonl").unlink()
    (target / "evidence").rmdir()
    (target / "participants.csv").write_text("key,submission\na,sha256:real\nb,\n")
    with pytest.raises(BadInput, match=r"participants\.csv: the submission of 'a' is sha256:real, .* use --assume-submission"):
        add(grid("a"), target)
    add(grid("a"), target, assume_submission=True)
    assert {item["submission"] for item in evidence(target)} == {"sha256:real"}
    with pytest.raises(BadInput, match=r"participants\.csv: participant 'b' has no submission"):
        add(grid("b"), target, assume_submission=True)


@pytest.mark.parametrize(
    ("trials", "options", "message"),
    [
        (grid("abx"), {}, r"participants\.csv: does not know the participant 'x'; add it there first"),
        (grid(runs=4), {}, r"validators\.csv: does not know the validator 'run-4'; did you mean 'run-3'\? If not, add it"),
        (grid(tasks="tux"), {}, r"tasks\.txt: does not know the task 'x'"),
        (
            [Trial("a", "run-1", "t", trial=2, resolved=True)],
            {},
            r"scheme\.toml: score\.trials: is 1, and the import has trials up to 2",
        ),
        (
            [Trial("a", "run-1", "t", resolved=False, started_at=NOON)],
            {},
            r"imported\.jsonl: has other evidence of run-1 sha256:.* t 1",
        ),
        (
            grid(),
            {"count_as": "leaderboard"},
            r'scheme\.toml: score\.agent_timeout: is "fail", and the leaderboard counts agents',
        ),
        (grid(), {"agent_timeout": "verify"}, r'score\.agent_timeout: is "fail", and the import counts agents'),
    ],
)
def test_what_cannot_be_added(tmp_path: Path, trials: list[Trial], options: dict[str, Any], message: str) -> None:
    target = tmp_path / "c"
    competition(grid(), target)
    before = snapshot(target)
    with pytest.raises(BadInput, match=message):
        add(trials, target, **options)
    assert snapshot(target) == before


def test_evidence_that_another_file_has(tmp_path: Path) -> None:
    target = tmp_path / "c"
    competition(grid(), target)
    (target / "evidence" / "imported.jsonl").rename(target / "evidence" / "ours.jsonl")
    with pytest.raises(BadInput, match=r"ours\.jsonl: has evidence of run-1 .* already; leave that run out"):
        add(grid(), target)
    (target / "evidence" / "ours.jsonl").write_text("\n{broken\n")
    with pytest.raises(BadInput, match=r"ours\.jsonl:2: is not JSON"):
        add(grid(), target)
    (target / "evidence" / "ours.jsonl").write_text('{"kind": "tests"}\n')
    with pytest.raises(BadInput, match=r"ours\.jsonl:1: "):
        add(grid(), target)


def test_adding_to_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such competition; import without --add to make it"):
        add(grid(), tmp_path / "c")
    (tmp_path / "c").mkdir()
    with pytest.raises(BadInput, match=r"scheme\.toml: no such file"):
        add(grid(), tmp_path / "c")


def test_a_subnet(tmp_path: Path) -> None:
    target = tmp_path / "net"
    done = competition(grid(), target, scheme="platform")
    assert done.directory == target / "term-challenge"
    assert sorted(path.name for path in target.iterdir()) == ["my-subnet.toml", "term-challenge"]
    my_subnet = subnet.read(target / "my-subnet.toml")
    assert [(member.path, member.share) for member in my_subnet.competitions] == [("term-challenge", 600_000_000)]
    assert [row["name"] for row in emission(target / "my-subnet.toml").document["competitions"]] == ["term-challenge"]
    assert '# [[competitions]]\n# path = "bounty-challenge"' in (target / "my-subnet.toml").read_text()
    with pytest.raises(BadInput, match="term-challenge: is not empty"):
        competition(grid(), target, scheme="platform")
    again = competition(grid("abc"), target, scheme="platform", options=ImportOptions(into="replace"))
    assert len(again.built.agents) == 3
    assert competition(grid("abc"), target, scheme="platform", options=ImportOptions(into="add")).added == 0
    (target / "my-subnet.toml").write_text('[[competitions]]\npath = "x"\nshare = "1"\n')
    with pytest.raises(BadInput, match=r"my-subnet\.toml: competitions: lists no competition 'term-challenge'"):
        competition(grid(), target, scheme="platform")
    with pytest.raises(BadInput, match=r"my-subnet\.toml: no such file; import without --add"):
        competition(grid(), tmp_path / "none", scheme="platform", options=ImportOptions(into="add"))
