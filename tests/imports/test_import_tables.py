"""Tables of trials: columns mapped, cells checked, and the real table of 5,200 trials. SPEC 2.1."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import pytest

from assay.competition import open_competition
from assay.errors import BadInput
from assay.exact import NANO, text
from assay.imports import ImportOptions, competition, tables
from assay.imports.trials import FailureCause

HEAD = "agent,run,task,resolved,failure_mode,started_at\n"


def table(tmp_path: Path, text: str, name: str = "trials.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_the_default_columns(tmp_path: Path) -> None:
    rows = f"{HEAD}a,1,t,1,unset,2025-07-11T20:35:11+00:00\r\na,2,t,,parse_error,\nb,val-x,u,false,AgentTimeoutError,\n"
    trials = tables.read(table(tmp_path, rows)).trials
    assert [(t.agent, t.validator, t.task, t.resolved, t.trouble, t.line) for t in trials] == [
        ("a", "run-1", "t", True, FailureCause.NONE, 2),
        ("a", "run-2", "t", None, FailureCause.AGENT, 3),
        ("b", "val-x", "u", False, FailureCause.AGENT_TIMEOUT, 4),
    ]
    assert [t.started_at is None for t in trials] == [False, True, True]


def test_a_field_is_mapped_by_its_name_or_by_its_columns(tmp_path: Path) -> None:
    """`run` is what the help calls the column of the validator."""
    text = "agent,seed,task,resolved\na,3,t,1\n"
    for name in ("run", "validator"):
        (trial,) = tables.read(table(tmp_path, text), tables.mapping([f"{name}=seed"])).trials
        assert trial.validator == "run-3"
    with pytest.raises(BadInput, match="run is mapped twice"):
        tables.mapping(["run=seed", "validator=seed"])


def test_other_columns_tabs_and_a_byte_order_mark(tmp_path: Path) -> None:
    text = "\ufeffmodel\tjudge\tid\tverdict\tk\trelease\tspare\nm\t5Hot\tt\ttimeout\t2\tv7\tx\n"
    columns = tables.mapping(["agent=model", "validator=judge", "task=id", "outcome=verdict", "trial=k", "version=release"])
    (trial,) = tables.read(table(tmp_path, text, "trials.tsv"), columns)
    assert (trial.agent, trial.validator, trial.task, trial.stated, trial.trial, trial.version) == (
        "m",
        "5Hot",
        "t",
        "timeout",
        2,
        "v7",
    )


def test_one_agent_for_all(tmp_path: Path) -> None:
    trials = tables.read(table(tmp_path, "run,task,resolved\n1,t,1\n"), options=ImportOptions(agent="mine"))
    assert [t.agent for t in trials] == ["mine"]


def test_attempts_as_runs(tmp_path: Path) -> None:
    path = table(tmp_path, "agent,run,task,resolved,trial\na,x,t,1,1\na,x,t,0,2\n")
    as_trials = tables.read(path)
    assert [(t.validator, t.trial) for t in as_trials] == [("x", 1), ("x", 2)]
    as_runs = tables.read(path, options=ImportOptions(attempts="runs"))
    assert [(t.validator, t.trial) for t in as_runs] == [("run-1", 1), ("run-2", 1)]
    with pytest.raises(BadInput, match="there is no column 'trial' for the trial"):
        tables.read(table(tmp_path, f"{HEAD}a,1,t,1,unset,\n"), options=ImportOptions(attempts="runs"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"trials\.csv: is empty; a first line with the names of the columns"),
        (HEAD, r"trials\.csv: has no rows"),
        (
            "run,task,resolved\n1,t,1\n",
            r"trials\.csv:1: there is no column 'agent' for the agent; the columns are run, task, resolved",
        ),
        (
            "agent,runs,task,resolved\na,1,t,1\n",
            r"no column 'run' for the run; did you mean 'runs'\? \(--column run=COLUMN\)",
        ),
        ("agent,run,task\na,1,t\n", r"trials\.csv:1: there is no column that says whether the tests passed"),
        ("agent,run,run,task,resolved\n", r"trials\.csv:1: has two columns called 'run'"),
        (f"{HEAD}a,1,t,1\n", r"trials\.csv:2: has 4 columns where the first line has 6"),
        (f"{HEAD}a,1,t,1,unset,,more\n", r"trials\.csv:2: has 7 columns"),
        (f"{HEAD},1,t,1,unset,\n", r"trials\.csv:2: agent: is empty"),
        (f"{HEAD}a,,t,1,unset,\n", r"trials\.csv:2: run: is empty"),
        (f"{HEAD}a,1, ,1,unset,\n", r"trials\.csv:2: task: is empty"),
        (f"{HEAD}a,1,t,1,unset,\na,1,u,yes,unset,\n", r"trials\.csv:3: resolved: is 'yes'; write 1 or 0"),
        (f"{HEAD}a,1,t,0.5,unset,\n", r"trials\.csv:2: resolved: is '0\.5'"),
        (f"{HEAD}a,1,t,1,unset,soon\n", r"trials\.csv:2: started_at: 'soon' is not a time"),
        ("agent,run,task,outcome\na,1,t,won\n", r"trials\.csv:2: outcome: is 'won'; use one of pass, fail, timeout, error"),
        ("agent,run,task,resolved,trial\na,1,t,1,0\n", r"trials\.csv:2: trial: '0' is not a number from 1"),
        ("agent,run,task,resolved,trial\na,1,t,1,-1\n", r"trials\.csv:2: trial: '-1' is not"),
        (f'{HEAD}a,1,"t,1,unset,\n', r"trials\.csv:\d+: is not CSV"),
        (f"{HEAD}a,1,t\0,1,unset,\n", r"trials\.csv"),
        (f"{HEAD}{'x' * 200_000},1,t,1,unset,\n", r"trials\.csv:2: is not CSV: field larger than field limit"),
    ],
)
def test_what_cannot_be_read_is_refused_by_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    path = table(tmp_path, text)
    with pytest.raises(BadInput, match=message):
        competition(tables.read(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_bytes_that_are_not_utf8_no_file_and_a_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trials.csv"
    path.write_bytes(HEAD.encode() + b"a,1,\xff,1,unset,\n")
    with pytest.raises(BadInput, match=r"trials\.csv(:\d+)?: is not UTF-8"):
        tables.read(path)
    with pytest.raises(BadInput, match=r"absent\.csv: no such file"):
        tables.read(tmp_path / "absent.csv")
    with pytest.raises(BadInput, match="cannot be read"):
        tables.read(tmp_path)
    monkeypatch.setattr("assay.imports.tables.MAX_BYTES", 10)
    with pytest.raises(BadInput, match="is larger than 10 bytes"):
        tables.read(path)


def test_what_never_ends_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trials.csv").symlink_to("/dev/zero")
    with pytest.raises(BadInput, match=r"trials\.csv: cannot be read \(it is a pipe or a device\)"):
        tables.read(tmp_path / "trials.csv")
    with pytest.raises(BadInput, match="/dev/zero:1: the line is longer than 1000000 bytes"):
        tables.read(Path("/dev/zero"))


def test_too_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.imports.tables.MAX_TRIALS", 2)
    with pytest.raises(BadInput, match=r"trials\.csv:4: holds more than 2 trials"):
        tables.read(table(tmp_path, HEAD + "".join(f"a,{n},t,1,unset,\n" for n in range(1, 4))))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["agent"], "'agent' is not a mapping; write FIELD=COLUMN"),
        (["agent="], "is not a mapping"),
        (["agnet=model"], "there is no field 'agnet'; did you mean 'agent'"),
        (["agent=a", "agent=b"], "agent is mapped twice"),
    ],
)
def test_mappings_that_are_none(pairs: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        tables.mapping(pairs)


def test_a_column_that_the_user_named_must_be_there(tmp_path: Path) -> None:
    path = table(tmp_path, f"{HEAD}a,1,t,1,unset,\n")
    with pytest.raises(BadInput, match=r"there is no column 'version' for the version"):
        tables.read(path, {"version": "version"})
    with pytest.raises(BadInput, match=r"there is no column 'startedat' for the started_at; did you mean 'started_at'"):
        tables.read(path, tables.mapping(["started_at=startedat"]))


def means(outcomes: dict[str, list[str]]) -> dict[str, Fraction]:
    return {agent: Fraction(sum(outcome == "pass" for outcome in of), len(of)) for agent, of in outcomes.items()}


def test_the_real_table_as_the_leaderboard_counts(shared: Path, tmp_path: Path) -> None:
    source = shared / "data" / "terminal-bench-core-0.1.1.trials.csv"
    done = competition(
        tables.read(source), tmp_path / "tb", scheme="term-challenge", options=ImportOptions(count_as="leaderboard")
    )
    report = done.document()
    assert (report["agents"], report["validators"], report["tasks"], report["records"]) == (13, 5, 80, 5200)
    assert report["outcomes"] == {"pass": 2122, "fail": 3078, "timeout": 0, "error": 0}
    assert report["incomplete"] == []
    outcomes: dict[str, list[str]] = defaultdict(list)
    for item in done.built.records:
        outcomes[item.participant].append(str(item.document()["outcome"]))
    shares = means(outcomes)
    assert shares["20250923_droid_claude-4-1-opus"] == Fraction("0.5875")
    assert shares["20250825_swe-agent-mini_claude-4-sonnet"] == Fraction("0.1375")
    document = open_competition(tmp_path / "tb").settle().document
    scores = {row["participant"]: row["score"] for row in document["agreed"]}
    assert scores["20250923_droid_claude-4-1-opus"] == "0.5875"
    assert scores["20250825_swe-agent-mini_claude-4-sonnet"] == "0.1375"
    rules = tmp_path / "tb" / "scheme.toml"
    rules.write_text(rules.read_text(encoding="utf-8").replace('method = "modified-z"', 'method = "none"'), encoding="utf-8")
    document = open_competition(tmp_path / "tb").settle().document
    scores = {row["participant"]: row["score"] for row in document["agreed"]}
    assert scores == {agent: text(int(share * NANO)) for agent, share in shares.items()}, "with no run left out: the plain means"
    assert 'agent_timeout = "verify"' in (tmp_path / "tb" / "scheme.toml").read_text(encoding="utf-8")


def test_the_real_table_by_the_rules_of_the_preset(shared: Path, tmp_path: Path) -> None:
    source = shared / "data" / "terminal-bench-core-0.1.1.trials.csv"
    report = competition(tables.read(source), tmp_path / "tb", scheme="term-challenge").document()
    assert report["outcomes"] == {"pass": 1744, "fail": 1811, "timeout": 1641, "error": 4}
    assert report["modes"]["agent_timeout"] == {"timeout": 1509}
    assert report["modes"]["agent_installation_failed"] == {"error": 4}
    openhands = "20250711_openhands_claude-4-sonnet"
    assert report["incomplete"] == [
        {"participant": openhands, "validator": "run-4", "missing": 2},
        {"participant": openhands, "validator": "run-5", "missing": 2},
    ]
    options = ImportOptions(strict_errors=True)
    strict = competition(tables.read(source), tmp_path / "strict", scheme="term-challenge", options=options).document()
    assert strict["outcomes"] == {"pass": 1744, "fail": 1547, "timeout": 1641, "error": 268}
