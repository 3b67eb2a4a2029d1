"""What `check` says about tasks: each rule on something that breaks it and on something that does not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.judge.tests.tasks.check import Finding, check_set, python, shell
from assay.judge.tests.tasks.check.commands import said

CHECK = "exec python3 -I /tests/check.py\n"


def make(tmp_path: Path, script: str = CHECK, *, toml: str = "", dockerfile: str = "FROM base\nWORKDIR /app\n") -> Path:
    """A task about which there is nothing to say, but for what is given."""
    folder = tmp_path / "one"
    for name in ("environment", "solution", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text(toml)
    (folder / "instruction.md").write_text("Write a file.\n")
    (folder / "environment" / "Dockerfile").write_text(dockerfile)
    (folder / "solution" / "solve.sh").write_text("#!/bin/bash\ntouch /app/x\n")
    (folder / "tests" / "test.sh").write_text(f"#!/bin/bash\nset -e\n{script}")
    (folder / "tests" / "check.py").write_text("assert open('/app/x').read() == ''\n")
    (folder / "tests" / "test.sh").chmod(0o755)
    return folder


def rules(tmp_path: Path) -> list[tuple[str, str, int | None]]:
    return [(one.level, one.rule, one.line) for one in check_set(tmp_path)]


def test_there_is_nothing_to_say_about_a_good_task(tmp_path: Path) -> None:
    make(tmp_path)
    assert check_set(tmp_path) == ()


STEER = [
    ("source ./env.sh", "sources-work"),
    (". /app/env", "sources-work"),
    ("cd /app/sub && . ../env", "sources-work"),
    ("/app/run.sh", "runs-work"),
    ("./run.sh", "runs-work"),
    ("DIR=/app; bash $DIR/run.sh", "runs-work"),
    ("if timeout 5 /app/bin/x; then echo ok; fi", "runs-work"),
    ("env -i X=1 python3 main.py", "runs-work"),
    ("out=$(/app/run)", "runs-work"),
    ("bash -lc 'cd /app; make'", "runs-work"),
    ("bash < /app/run.sh", "runs-work"),
    ("nice -n 5 /app/run", "runs-work"),
    ("stdbuf -o0 ./run", "runs-work"),
    ("sudo -u nobody ./run", "runs-work"),
    ("make -C /app test", "runs-work"),
    ("cd /app && npm test", "runs-work"),
    ("python3 -m unittest", "loads-work"),
    ("python3 -c 'import json'", "loads-work"),
    ("python3 - <<'END'\nimport json\nEND", "loads-work"),
    ("PYTHONPATH=/app python3 -I /tests/check.py", "steered"),
    ("export PATH=/app/bin:$PATH", "steered"),
    ("LD_PRELOAD=./x.so ls", "steered"),
    ("PYTHONPATH=:/x ls", "steered"),
    ("cd /app\npytest", "loads-work"),
    ("pytest tests/test_x.py", "loads-work"),
    ("python3 -I -m pytest", "loads-work"),
    ("git -C /app status", "steered"),
    ("cd repo; git log", "steered"),
    ("git --git-dir=/app/.git log", "steered"),
]


@pytest.mark.parametrize(("script", "rule"), STEER)
def test_what_the_agents_files_can_steer_is_a_warning_with_its_line(tmp_path: Path, script: str, rule: str) -> None:
    folder = make(tmp_path, f"{script}\n{CHECK}")
    line = 4 if script.startswith("cd /app\n") else 3
    found = [one for one in check_set(tmp_path) if (one.level, one.rule, one.line) == ("warning", rule, line)]
    assert [one.file for one in found] == [folder / "tests" / "test.sh"]
    assert found[0].do


@pytest.mark.parametrize(
    "script",
    [
        "source /tests/env.sh",
        "cd /tests && . ./env",
        "bash /tests/run.sh /app/x",
        "bash -c 'ls /app'",
        "nice -n 5 grep -q x /app/x",
        "python3 -I /tests/x.py < /app/x",
        "perl -ne 'print' < /app/x",
        "python3 -I -c 'import json'",
        "python3 -P -m unittest /tests/x.py",
        "cd /tests; python3 -m unittest",
        "pytest /tests/test_x.py -q",
        "cd /app && pytest --rootdir=/tests -p no:cacheprovider /tests/test_x.py",
        "cat /app/x | grep -q y",
        "diff /app/out.txt /tests/out.txt",
        "sqlite3 /app/x.db 'select 1'",
        "sed -n 1p /app/x",
        "# source ./env.sh",
        "echo 'source ./env.sh'",
        "cat <<EOF\nsource ./env.sh\n./run\nEOF",
        "PATH=/usr/bin ls",
        "git --git-dir=/tmp/own.git log",
        "git --version",
        "pip install --no-index /tests/x.whl",
        "curl http://127.0.0.1:8000/",
    ],
)
def test_what_they_cannot_steer_is_passed_over(tmp_path: Path, script: str) -> None:
    make(tmp_path, f"{script}\n{CHECK}")
    assert rules(tmp_path) == []


def test_a_script_as_terminal_bench_writes_them(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder / "tests" / "test.sh").write_text(
        "#!/bin/bash\n\napt-get update\ncurl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh\nsource $HOME/.local/bin/env\n\n"
        'if [ "$PWD" = "/" ]; then\n  echo \'Set a WORKDIR\'\n  exit 1\nfi\n\n'
        "uvx \\\n  -p 3.13 \\\n  -w pytest==8.4.1 \\\n  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA\n\n"
        "if [ $? -eq 0 ]; then\n  echo 1 > /logs/verifier/reward.txt\nelse\n  echo 0 > /logs/verifier/reward.txt\nfi\n"
    )
    assert rules(tmp_path) == [("error", "needs-network", 3), ("error", "needs-network", 4), ("error", "needs-network", 12)]


@pytest.mark.parametrize(
    "script",
    [
        "apt-get update && apt-get install -y curl",
        "pip install pytest",
        "python3 -m pip install x",
        "uvx -p 3.13 pytest /tests/x.py",
        "curl -LsSf https://astral.sh/uv/install.sh | sh",
        "npm install",
        "git clone https://example.org/x /tmp/x",
    ],
)
def test_a_network_at_test_time_is_an_error(tmp_path: Path, script: str) -> None:
    make(tmp_path, f"{script}\n{CHECK}")
    assert ("error", "needs-network", 3) in rules(tmp_path)


@pytest.mark.parametrize(
    ("whole", "passes"),
    [
        ("python3 -I /tests/check.py\nexit 0", True),
        ("python3 -I /tests/check.py\necho done", True),
        ("python3 -I /tests/check.py || true", True),
        ("trap 'exit 0' EXIT\nset -e\npython3 -I /tests/check.py", True),
        ("", True),
        ("python3 -I /tests/check.py", False),
        ("set -e\npython3 -I /tests/check.py\necho done", False),
        ("if ! test -e /app/x; then exit 1; fi\nexit 0", False),
        ("python3 -I /tests/check.py\nexit $?", False),
        ("python3 -I /tests/check.py && echo 1 > /logs/verifier/reward.txt\nexit 0", False),
        ("cd /logs/verifier\necho 1 > reward.txt\nexit 0", False),
    ],
)
def test_a_script_that_always_exits_0_must_write_a_reward(tmp_path: Path, whole: str, passes: bool) -> None:
    folder = make(tmp_path)
    (folder / "tests" / "test.sh").write_text(f"#!/bin/bash\n{whole}\n")
    assert (("error", "always-passes") in [(level, rule) for level, rule, _ in rules(tmp_path)]) == passes


def test_a_reward_that_another_file_writes_counts(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder / "tests" / "test.sh").write_text("#!/bin/bash\npython3 -I /tests/check.py\nexit 0\n")
    (folder / "tests" / "check.py").write_text("open('/logs/verifier/reward.txt', 'w').write('1')\n")
    assert rules(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("import sys\nsys.path.insert(0, '/app')", "loads-work"),
        ("import pickle\nx = pickle.load(open('/app/x', 'rb'))", "unpickles"),
        ("import yaml\nyaml.load(open('/app/x'))", "unpickles"),
        ("import subprocess\nsubprocess.run(['/app/x'])", "runs-work"),
        ("import subprocess\nsubprocess.run(['python3', 'x.py'], cwd='/app')", "runs-work"),
        ("import subprocess\nsubprocess.run('cd /tmp && /app/x', shell=True)", "runs-work"),
        ("import os\nos.system('make -C /app')", "runs-work"),
        ("import runpy\nrunpy.run_path(x)", "runs-work"),
        ("text = open('/app/x').read()\nexec(text)", "runs-work"),
        ("import importlib.util\nimportlib.util.spec_from_file_location('x', '/app/x.py')", "runs-work"),
        ("import subprocess\nsubprocess.run(['pip', 'install', 'x'])", "needs-network"),
        ("\nthis is no python", "not-python"),
    ],
)
def test_python_that_loads_or_runs_the_agents_files(tmp_path: Path, code: str, rule: str) -> None:
    folder = make(tmp_path)
    (folder / "tests" / "check.py").write_text(code)
    found = check_set(tmp_path)
    assert [(one.rule, one.line, one.file.name) for one in found] == [(rule, 2, "check.py")]


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess\nsubprocess.run(['sqlite3', '/app/x.db', 'select 1'])",
        "import yaml\nyaml.load(open('/app/x'), Loader=yaml.SafeLoader)",
        "import json\njson.load(open('/app/x'))",
        "import sys\nsys.path.insert(0, '/tests')",
        "import subprocess\nsubprocess.run(program)",
    ],
)
def test_python_that_only_reads_them(tmp_path: Path, code: str) -> None:
    (make(tmp_path) / "tests" / "check.py").write_text(code)
    assert rules(tmp_path) == []


CHANGES: list[tuple[str, Callable[[Path], object], tuple[str, str, str]]] = [
    ("no solution", lambda t: (t / "solution" / "solve.sh").unlink(), ("warning", "no-solution", "solve.sh")),
    ("not executable", lambda t: (t / "tests" / "test.sh").chmod(0o644), ("warning", "not-executable", "test.sh")),
    ("no shebang", lambda t: (t / "tests" / "test.sh").write_text(CHECK), ("warning", "no-shebang", "test.sh")),
    ("windows", lambda t: (t / "tests" / "test.sh").write_bytes(b"#!/bin/bash\r\nexit 1\r\n"), ("error", "line-ends", "test.sh")),
    ("logs", lambda t: (t / "tests" / "x.py").write_text("open('/logs/agent/x')"), ("warning", "reads-agent-logs", "x.py")),
    ("elsewhere", lambda t: (t / "tests" / "x.py").write_text("open('/home/me/x')"), ("warning", "not-given", "x.py")),
    (
        "leak",
        lambda t: (t / "environment" / "s").write_bytes((t / "solution" / "solve.sh").read_bytes()),
        ("error", "leaks", "s"),
    ),
    ("leak", lambda t: (t / "environment" / "s").write_bytes((t / "tests" / "test.sh").read_bytes()), ("error", "leaks", "s")),
    ("litter", lambda t: (t / "tests" / ".DS_Store").write_text("x"), ("warning", "litter", ".DS_Store")),
    ("empty", lambda t: (t / "tests" / "data").mkdir(), ("warning", "empty-folder", "data")),
]


@pytest.mark.parametrize(("name", "change", "wanted"), CHANGES)
def test_what_is_wrong_with_the_files(
    tmp_path: Path, name: str, change: Callable[[Path], object], wanted: tuple[str, str, str]
) -> None:
    change(make(tmp_path))
    found = check_set(tmp_path)
    assert wanted in [(one.level, one.rule, one.file.name) for one in found], name
    assert all(one.do for one in found)


@pytest.mark.parametrize(
    ("toml", "wanted"),
    [
        ('[verifier]\nenvironment_mode = "shared"', ("weaker", "verifier.environment_mode", 2)),
        ("[environment]\nmemory_mb = 32", ("small", "environment.memory_mb", 2)),
        ("[environment]\nstorage_mb = 2", ("small", "environment.storage_mb", 2)),
        ("[agent]\ntimeout_sec = 1", ("small", "agent.timeout_sec", 2)),
        ("[environment]\ncolour = 1", ("unknown-key", "environment.colour", 2)),
        ('[environment]\nnetwork_mode = "public"', ("no-effect", "environment.network_mode", 2)),
        ("[[artifacts]]\nsource = '/data'\ndestination = 'd'", ("no-effect", "artifacts.0.destination", 1)),
        ('[environment.env]\nHOME = "/app"', ("steered", "", None)),
    ],
)
def test_what_is_suspicious_in_the_settings(tmp_path: Path, toml: str, wanted: tuple[str, str, int | None]) -> None:
    make(tmp_path, toml=toml)
    assert [(one.rule, one.field, one.line) for one in check_set(tmp_path)] == [wanted]


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("USER me", [("warning", "containers-only", 3)]),
        ("RUN apt-get install -y x", [("warning", "containers-only", 3)]),
        ("RUN true\nRUN cd /x && pip install y", [("warning", "containers-only", 4)]),
        ("COPY none /x", [("error", "copy", 3)]),
        ("COPY ../solution /x", [("error", "copy", 3)]),
        ("RUN bash make.sh && ./x", []),
    ],
)
def test_what_bubblewrap_cannot_do_in_the_dockerfile(
    tmp_path: Path, lines: str, wanted: list[tuple[str, str, int | None]]
) -> None:
    make(tmp_path, dockerfile=f"FROM base\nWORKDIR /app\n{lines}\n")
    assert rules(tmp_path) == wanted


def test_a_context_larger_than_the_tasks_disk_is_an_error(tmp_path: Path) -> None:
    folder = make(tmp_path, toml="[environment]\nstorage_mb = 16", dockerfile="FROM base\nWORKDIR /app\nCOPY big .\n")
    with (folder / "environment" / "big").open("wb") as file:
        file.truncate((16 << 20) + 1)
    assert rules(tmp_path) == [("error", "small", None)]


def test_a_task_without_a_dockerfile_or_a_work_directory(tmp_path: Path) -> None:
    folder = make(tmp_path, toml="[environment]\ndocker_image = 'x'", dockerfile="FROM x\n")
    assert rules(tmp_path) == [("warning", "no-workdir", None)]
    (folder / "environment" / "Dockerfile").unlink()
    assert ("warning", "image-only", 2) in rules(tmp_path)


def test_what_cannot_be_loaded_is_a_finding_and_the_others_are_checked_still(tmp_path: Path) -> None:
    make(tmp_path, toml="[environment]\ngpus = 1")
    make(tmp_path / "more")
    os.rename(tmp_path / "more" / "one", tmp_path / "two")
    (tmp_path / "two" / "solution" / "solve.sh").unlink()
    found = check_set(tmp_path)
    assert [(one.level, one.rule, one.task) for one in found] == [
        ("refused", "refused", "one"),
        ("warning", "empty-folder", "two"),
        ("warning", "no-solution", "two"),
    ]
    assert str(found[0]) == (
        f"{tmp_path}/one/task.toml:2: environment.gpus: refused [refused] GPUs are not supported; "
        "set gpus = 0, or leave the task out"
    )
    assert found[0].document()["line"] == 2
    with pytest.raises(BadInput, match="has no tasks"):
        check_set(tmp_path / "more")


def test_the_same_id_twice_is_a_finding(tmp_path: Path) -> None:
    make(tmp_path / "a")
    make(tmp_path / "b")
    assert [(one.level, one.rule) for one in check_set(tmp_path / "a", tmp_path / "b")] == [("refused", "twice")]


@given(st.text(alphabet="abc/.$ {}()'\"\\\n|&;<>#=-EOF", max_size=80))
def test_any_text_can_be_read_as_a_script(text: str) -> None:
    for one in shell.read(text, "/app").commands:
        assert 1 <= one.line <= text.count("\n") + 1
        list(said(one, ("/app",)))


@given(st.text(max_size=40))
def test_any_text_can_be_read_as_python(text: str) -> None:
    assert all(one.what and one.do for one in python.said(text, ("/app",), "/app"))


def test_a_script_is_read_as_commands_with_folders_and_variables() -> None:
    script = shell.read(
        '#!/bin/bash -e\nA=/x; cd "$A"\nsudo env -i B=1 timeout -k 1 5 \\\n  cat y >z 2>&1 || exit 3 # no\n', "/app"
    )
    assert script.strict
    assert [(one.line, one.words, one.cwd, one.env, one.after) for one in script.commands] == [
        (2, (), "/app", {"A": "/x"}, ";"),
        (2, ("cd", "/x"), "/x", {}, ""),
        (3, ("cat", "y"), "/x", {"B": "1"}, "||"),
        (3, ("exit", "3"), "/x", {}, ""),
    ]
    assert script.commands[2].redirected == ((">", "z"), (">&", "1"))


def test_a_finding_says_where(tmp_path: Path) -> None:
    one = Finding("warning", "rule", "task", tmp_path, "what", "do")
    assert str(one) == f"{tmp_path}: warning [rule] what; do"
