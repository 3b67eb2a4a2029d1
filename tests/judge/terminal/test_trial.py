"""Trials in real boxes: what the agent finds, what the tests are given, what is kept, and whose trouble is whose. SPEC 2.1."""

from __future__ import annotations

import json
import secrets
from contextlib import closing
from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.judge.sandbox.bubblewrap import Bubblewrap
from assay.judge.terminal import agent as agents
from assay.judge.terminal.record import TrialReason
from assay.judge.terminal.tasks import read_task
from assay.judge.terminal.trial import Keeping, TrialSetup
from disks import mounted
from judge_kit import bubblewrap, make_agent, make_task, outcome, sh, try_

MODES = ("separate", "snapshot", "shared")


@pytest.mark.parametrize("mode", MODES)
def test_the_solution_passes_and_nothing_fails(tmp_path: Path, mode: str) -> None:
    task = make_task(tmp_path / "hello", mode=mode)
    good = try_(tmp_path, task, agents.BUILT_IN["oracle"], name="oracle")
    bad = try_(tmp_path, task, agents.BUILT_IN["noop"], name="noop")
    assert outcome(good) == ("pass", "passed")
    assert outcome(bad) == ("fail", "tests-failed")
    assert good.reward == "1\n"
    assert bad.reward is None
    assert good.image == bad.image is not None
    assert good.work != bad.work is not None
    assert good.agent is not None
    assert good.tests is not None
    assert (good.agent.exit_code, good.tests.exit_code) == (0, 0)
    assert (tmp_path / "oracle" / "tests" / "reward.txt").read_text() == "1\n"
    assert not (tmp_path / "oracle" / ".scratch").exists()


def test_what_the_agent_finds(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", instruction="Say héllo.\n", toml='[environment.env]\nCOLOUR = "red"\n')
    agent = make_agent(
        tmp_path / "looker",
        """cat > stdin.txt; pwd; cmp stdin.txt /instruction.md && cat "$ASSAY_INSTRUCTION"; echo "$COLOUR $DEPTH ${SECRET-unset}"
ls /agent; ls -A /logs/agent /logs/artifacts; ls -d /solution /tests /logs/verifier; echo note > /logs/agent/note.txt
mkdir /logs/artifacts/a; echo art > /logs/artifacts/a/b; exit 3""",
        more='env = ["DEPTH"]\n',
    )
    judge = TrialSetup(bubblewrap(), env={"DEPTH": "4", "SECRET": "x"})
    tried = try_(tmp_path, task, agent, judge)
    assert outcome(tried) == ("fail", "tests-failed")
    assert tried.agent is not None
    assert tried.agent.exit_code == 3  # which decides nothing
    printed = (tmp_path / "trial" / "agent" / "stdout.txt").read_text()
    assert printed == "/app\nSay héllo.\nred 4 unset\nagent.toml\nrun.sh\n/logs/agent:\n\n/logs/artifacts:\n"
    refused = (tmp_path / "trial" / "agent" / "stderr.txt").read_text()
    assert all(f"'{name}'" in refused for name in ("/solution", "/tests", "/logs/verifier"))
    assert (tmp_path / "trial" / "agent" / "logs" / "note.txt").read_text() == "note\n"
    assert (tmp_path / "trial" / "artifacts" / "a" / "b").read_text() == "art\n"


def test_only_the_oracle_gets_the_solution(tmp_path: Path) -> None:
    task = make_task(
        tmp_path / "t",
        solution='test "$HINT" = h && bash /solution/more.sh\n',
        files={"solution/more.sh": "echo hello > out.txt\n"},
        toml='[solution.env]\nHINT = "h"\n',
    )
    assert outcome(try_(tmp_path, task, agents.BUILT_IN["oracle"])) == ("pass", "passed")
    without = make_task(tmp_path / "u", solution=None)
    with pytest.raises(BadInput, match=r"has no solution/solve\.sh"):
        try_(tmp_path, without, agents.BUILT_IN["oracle"], name="second")


def test_separate_tests_are_given_the_named_folders_and_nothing_else(tmp_path: Path) -> None:
    task = make_task(
        tmp_path / "t",
        tests="""set -e; cmp /app/keep/a /data/b; test -L /app/link; test ! -e /app/.hidden-by-image; test ! -e /tmp/left
test ! -e /root/left; test ! -e /agent; test ! -e /instruction.md; test -z "$(ls -A /logs/verifier)"; test ! -e /logs/agent
test "$WHO" = tests; test "$(pwd)" = /app; echo fine\n""",
        toml='[verifier.env]\nWHO = "tests"\n',
        dockerfile="FROM debian:12\nWORKDIR /app\nRUN touch .hidden-by-image\n",
    )
    toml = task.folder / "task.toml"
    toml.write_text('artifacts = ["/data"]\n' + toml.read_text())
    task = read_task(task.folder)
    agent = sh(
        "rm .hidden-by-image; mkdir keep /data; echo x | tee keep/a > /data/b; ln -s keep/a link; touch /tmp/left /root/left"
    )
    tried = try_(tmp_path, task, agent)
    printed = (tmp_path / "trial" / "tests" / "stderr.txt").read_text()
    assert outcome(tried) == ("pass", "passed"), printed


def test_what_an_artifact_excludes_is_not_given_to_the_tests(tmp_path: Path) -> None:
    make_task(tmp_path / "t", tests="find /app /data | sort; exit 0\n")
    toml = tmp_path / "t" / "task.toml"
    toml.write_text(
        "artifacts = [{source = '/app', exclude = ['*.tmp', 'cache/']}, {source = '/app/in', exclude = ['b']},"
        " {source = '/data', exclude = ['./x', 'd/e']}, {source = '/none', exclude = ['*']}]\n" + toml.read_text()
    )
    agent = sh(
        "mkdir -p in/cache /data/d/e /data/y; touch in/{a,b,c.tmp,cache/d} b z.tmp /data/{x,y/x,d/e/f,d/g}"
        "; ln -s /data/d cache; chmod 0 /data/d/e"
    )
    assert outcome(try_(tmp_path, read_task(tmp_path / "t"), agent)) == ("pass", "passed")
    paths = (tmp_path / "trial" / "tests" / "stdout.txt").read_text().split()
    assert paths == ["/app", "/app/b", "/app/in", "/app/in/a", "/data", "/data/d", "/data/d/g", "/data/y", "/data/y/x"]


@pytest.mark.parametrize("mode", MODES)
def test_everything_of_the_agent_is_dead_when_the_tests_begin(tmp_path: Path, mode: str) -> None:
    tests = "for one in /proc/[0-9]*; do tr '\\0' ' ' < $one/cmdline; echo; done; exit 0\n"
    task = make_task(tmp_path / "t", mode=mode, tests=tests)
    agent = sh(
        "for n in 1 2 3; do (setsid nohup sleep 100$n >/dev/null 2>&1 &); done; (trap '' TERM HUP INT; sleep 1004) & disown"
    )
    assert outcome(try_(tmp_path, task, agent)) == ("pass", "passed")
    printed = (tmp_path / "trial" / "tests" / "stdout.txt").read_text()
    assert "test.sh" in printed
    assert "sleep" not in printed


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "script",
    [
        "rm -rf /app",
        "cd /; rm -rf /app; ln -s /tmp /app",
        "cd /; rm -rf /app; echo hello > /app",
        "cd /; mv /app /elsewhere",
        "cd /; rm -rf /app; mkfifo /app",
        "cd /; rm -rf /app; ln -s /proc/self/root /app",
    ],
)
def test_an_agent_without_a_work_directory_fails(tmp_path: Path, mode: str, script: str) -> None:
    tried = try_(tmp_path, make_task(tmp_path / "t", mode=mode, tests="exit 0\n"), sh(script))
    assert outcome(tried) == ("fail", "work-directory-gone")


@pytest.mark.parametrize("mode", MODES)
def test_a_work_directory_that_its_owner_has_closed_is_no_trouble(tmp_path: Path, mode: str) -> None:
    tried = try_(tmp_path, make_task(tmp_path / "t", mode=mode), sh("echo hello > out.txt; chmod 000 out.txt /app"))
    assert tried.verdict.outcome in ("pass", "fail"), tried.message


def test_too_much_in_the_work_directory_fails(tmp_path: Path) -> None:
    judge = TrialSetup(bubblewrap(), keeping=Keeping(inside=200))
    tried = try_(tmp_path, make_task(tmp_path / "t", tests="exit 0\n"), sh("for n in {1..300}; do : > $n; done"), judge)
    assert tried.verdict.outcome == "fail"
    assert tried.verdict.reason in (TrialReason.WORK_TOO_LARGE, TrialReason.AGENT_DISK)


def test_what_cannot_be_frozen_is_the_agents_affair(tmp_path: Path) -> None:
    script = "d=$(printf 'd/%.0s' {1..127}); mkdir -p $d; : > $d/f"  # as deep as is still measured, and deeper than is copied
    task = make_task(tmp_path / "t", mode="snapshot", storage="4M", tests="exit 0\n")
    assert outcome(try_(tmp_path, task, sh(script))) == ("fail", "work-directory-too-large")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", MODES)
def test_many_names_of_a_large_file_take_no_more_room_than_the_file(tmp_path: Path, mode: str) -> None:
    script = "head -c 30000000 /dev/urandom > big; for i in $(seq 100); do mkdir /opt/$i; ln big $i; ln big /opt/$i/big; done"
    task = make_task(tmp_path / "t", mode=mode, storage="64M")
    place = Path(f"/var/tmp/assay-test-{secrets.token_hex(8)}")  # pytest's own folders are closed to the users that boxes run as
    with (
        mounted(tmp_path / "disk", "400m") as disk,
        mounted(place, "400m") as room,
        closing(Bubblewrap(folder=room / "boxes", spare=0)) as sandbox,
    ):
        room.chmod(0o755)
        tried = try_(disk, task, sh(f"{script}; echo hello > out.txt"), TrialSetup(sandbox))
        assert outcome(tried) == ("pass", "passed")
    place.rmdir()


def test_an_agent_that_runs_out_of_time(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", agent_seconds=1, tests="exit 0\n")
    slow = sh("sleep 3000")
    tried = try_(tmp_path, task, slow)
    assert outcome(tried) == ("timeout", "agent-time")
    assert tried.tests is None
    verified = try_(tmp_path, task, slow, agent_timeout="verify", name="second")
    assert outcome(verified) == ("pass", "passed")
    assert verified.agent is not None
    assert verified.agent.stopped == "time"
    failing = make_task(tmp_path / "u", agent_seconds=1, tests="exit 1\n")
    assert outcome(try_(tmp_path, failing, slow, agent_timeout="verify", name="third")) == ("fail", "tests-failed")


def test_tests_that_run_out_of_time(tmp_path: Path) -> None:
    tests = "echo 1 > /logs/verifier/reward.txt; sleep 3000\n"
    tried = try_(tmp_path, make_task(tmp_path / "t", tests_seconds=1, tests=tests), sh("true"))
    assert outcome(tried) == ("timeout", "tests-time")


def test_bounds_that_the_agent_runs_into(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", tests="exit 0\n", storage="16M")
    assert outcome(try_(tmp_path, task, sh("yes"), name="output")) == ("fail", "agent-output")
    assert outcome(try_(tmp_path, task, sh("cat /dev/urandom > big"), name="disk")) == ("fail", "agent-disk")


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ("exit 0", ("pass", "passed")),
        ("exit 1", ("fail", "tests-failed")),
        ("echo 1.0 > reward.txt", ("pass", "passed")),
        ("echo 0 > reward.txt", ("fail", "reward-not-one")),
        ("echo 10 > reward.txt", ("fail", "reward-not-one")),
        ("echo 1 > reward.txt; exit 1", ("fail", "tests-failed")),
        ("""echo '{"reward": 1}' > reward.json; echo 1 > reward.txt""", ("pass", "passed")),
        ("""echo '{"reward": 1}' > reward.json; echo 0 > reward.txt""", ("fail", "reward-not-one")),
        ("""echo '{"reward": 0}' > reward.json; echo 1 > reward.txt""", ("fail", "reward-not-one")),
        ("head -c 10000000 /dev/zero | tr '\\0' 1 > reward.txt", ("fail", "reward-not-one")),
        ("mkdir reward.txt", ("fail", "reward-not-one")),
        ("for n in {1..1000}; do : > f$n; done; echo 1 > reward.txt", ("pass", "passed")),
        ("truncate -s 100G other; echo 1 > reward.txt", ("pass", "passed")),
        ("cd /; rm -rf /logs", ("pass", "passed")),
    ],
)
def test_what_the_tests_say(tmp_path: Path, tests: str, expected: tuple[str, str]) -> None:
    task = make_task(tmp_path / "t", tests=f"cd /logs/verifier; {tests}\n")
    assert outcome(try_(tmp_path, task, agents.BUILT_IN["noop"])) == expected


def test_what_is_kept(tmp_path: Path) -> None:
    ctrf = json.dumps({"results": {"summary": {"tests": 2, "passed": 2}}})
    tests = f"echo out; echo err >&2; echo '{ctrf}' > /logs/verifier/ctrf.json; printf '1 \\377' > /logs/verifier/reward.txt\n"
    tried = try_(tmp_path, make_task(tmp_path / "t", tests=tests), sh("echo hi; echo ho >&2"))
    place = tmp_path / "trial"
    texts = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert texts == {
        "agent/stdout.txt": b"hi\n",
        "agent/stderr.txt": b"ho\n",
        "tests/stdout.txt": b"out\n",
        "tests/stderr.txt": b"err\n",
        "tests/ctrf.json": ctrf.encode() + b"\n",
        "tests/reward.txt": b"1 \xff",
    }
    assert tried.reward == "1 \\xff"
    assert tried.notes == []
    assert tried.agent is not None
    assert tried.agent.wall_seconds >= 0


def test_what_is_too_large_to_be_kept_decides_nothing(tmp_path: Path) -> None:
    judge = TrialSetup(bubblewrap(), keeping=Keeping(logs=100_000, files=20, ctrf=1000))
    tests = "head -c 2000 /dev/urandom > /logs/verifier/ctrf.json; exit 0\n"
    agent = sh("for n in {1..30}; do : > /logs/agent/$n; done; head -c 200000 /dev/urandom > /logs/artifacts/big")
    tried = try_(tmp_path, make_task(tmp_path / "t", tests=tests), agent, judge)
    assert outcome(tried) == ("pass", "passed")
    assert [note.split()[0] for note in tried.notes] == ["/logs/agent", "/logs/artifacts"]
    assert sorted(path.name for path in (tmp_path / "trial").rglob("*")) == sorted(
        ["agent", "tests", "stdout.txt", "stderr.txt", "stdout.txt", "stderr.txt"]
    )
