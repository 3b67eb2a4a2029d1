"""Agents: folders, command lines, built-in ones, their digests and what they are given. SPEC 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.judge.terminal import agent as agents
from assay.judge.terminal.competition import submit_agent
from assay.scheme.fields import instant

TEXT = """name = "shell-first"
version = "1.2.0"
command = ["python3", "/agent/main.py"]
env = ["SEARCH_DEPTH"]
network = "model"
"""


def folder(path: Path, text: str = TEXT) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "agent.toml").write_text(text, encoding="utf-8")
    (path / "main.py").write_text("print(1)\n", encoding="utf-8")
    return path


def test_a_folder(tmp_path: Path) -> None:
    agent = agents.load_agent(folder(tmp_path / "a"))
    assert (agent.name, agent.version, agent.command) == ("shell-first", "1.2.0", ("python3", "/agent/main.py"))
    assert agent.env == ("SEARCH_DEPTH",)
    assert agent.model
    assert not agent.solution
    assert agent.folder == tmp_path / "a"


def test_the_digest_is_of_every_file_and_of_nothing_else(tmp_path: Path) -> None:
    first = agents.load_agent(folder(tmp_path / "a")).digest
    other = folder(tmp_path / "b")
    assert agents.load_agent(other).digest == first
    (other / "main.py").write_text("print(2)\n", encoding="utf-8")
    assert agents.load_agent(other).digest != first
    (other / "main.py").write_text("print(1)\n", encoding="utf-8")
    (other / "more").mkdir()
    assert agents.load_agent(other).digest != first


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ('["./main.py", "x"]', ("/agent/main.py", "x")),
        ('"./main.sh x > out.txt"', ("/bin/sh", "-c", "/agent/main.sh x > out.txt")),
        ('"echo hi > out.txt"', ("/bin/sh", "-c", "echo hi > out.txt")),
        ('["bash", "-c", "true"]', ("bash", "-c", "true")),
    ],
)
def test_commands(tmp_path: Path, command: str, words: tuple[str, ...]) -> None:
    assert agents.load_agent(folder(tmp_path, f'name = "a"\ncommand = {command}\n')).command == words


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('name = "a"\n', "command: is missing"),
        ('command = "true"\n', "name: is missing"),
        ('name = "a"\ncommand = []\n', "is not a command"),
        ('name = "a"\ncommand = " "\n', "is not a command"),
        ('name = "a"\ncommand = 3\n', "is not a command"),
        ('name = "a"\ncommand = ["", "x"]\n', "empty first word"),
        ('name = "a"\ncommand = ["a\\u0000"]\n', "NUL"),
        ('name = "a"\ncommand = "true"\nnetwork = "free"\n', "network: is 'free'; use one of 'none' or 'model'"),
        ('name = "a"\ncommand = "true"\nenv = ["A B"]\n', "'A B' is not a variable"),
        ('name = "a"\ncommand = "true"\nenv = ["PATH"]\n', "'PATH' is not a variable"),
        ('name = "a"\ncomand = "true"\n', "did you mean 'command'?"),
        ('name = "a', "is not TOML"),
    ],
)
def test_what_is_wrong_with_an_agent_toml(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        agents.load_agent(folder(tmp_path, text))
    assert says in str(caught.value)
    assert "agent.toml" in str(caught.value)


def test_a_folder_that_is_no_agent(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        agents.load_agent(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"agent\.toml: no such file"):
        agents.load_agent(tmp_path)
    (tmp_path / "elsewhere.toml").write_text(TEXT, encoding="utf-8")
    (tmp_path / "agent.toml").symlink_to("elsewhere.toml")
    with pytest.raises(BadInput, match=r"agent\.toml: no such file"):
        agents.load_agent(tmp_path)


def test_a_folder_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.judge import tree

    monkeypatch.setattr(agents, "BOUNDS", tree.Bounds(bytes=1000, files=3))
    folder(tmp_path)
    assert agents.load_agent(tmp_path).name == "shell-first"
    (tmp_path / "third").touch()
    with pytest.raises(BadInput, match="more than 3 files"):
        agents.load_agent(tmp_path)


def test_finding_what_is_meant(tmp_path: Path) -> None:
    assert agents.find_agent("oracle").solution
    assert agents.find_agent("noop").command == ("true",)
    assert agents.find_agent(str(folder(tmp_path / "a b"))).name == "shell-first"
    line = agents.find_agent("sh -c 'echo hi'")
    assert (line.name, line.command, line.folder) == ("sh", ("sh", "-c", "echo hi"), None)
    assert agents.find_agent("/bin/true").command == ("/bin/true",)
    with pytest.raises(BadInput, match="close every quote"):
        agents.find_agent("sh -c 'echo")
    with pytest.raises(BadInput, match="no command"):
        agents.find_agent(" ")
    for mistyped in (f"{tmp_path}/nowhere/", f"{tmp_path}/nowhere", "./nowhere", "agents/nowhere"):
        with pytest.raises(BadInput, match="no such folder"):
            agents.find_agent(mistyped)


def test_one_word_that_is_no_program_is_a_mistyped_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="no such folder, and no program") as refused:
        agents.find_agent("nothere")
    assert refused.value.hint.startswith("did you mean 'nowhere'? ")
    with pytest.raises(BadInput, match="no such folder") as refused:
        agents.find_agent("qqq")
    assert refused.value.hint.endswith("sh -c qqq")
    assert agents.find_agent("true").command == ("true",)


@pytest.mark.parametrize("length", [256, 5000, 90_000])
def test_a_command_line_may_be_longer_than_a_name(length: int) -> None:
    agent = agents.find_agent(f"sh -c 'echo {'x' * length}'")
    assert agent.command[2] == f"echo {'x' * length}"
    assert len(agents.find_agent(f"{'y' * length} z").name) == 60
    with pytest.raises(BadInput, match="no such folder"):
        agents.find_agent("z" * length)


def test_a_command_that_no_kernel_starts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="more than 100000 bytes"):
        agents.find_agent(f"sh -c 'echo {'x' * 130_000}'")
    folder(tmp_path)
    (tmp_path / "agent.toml").write_text(f'name = "a"\ncommand = ["echo", "{"x" * 130_000}"]\n')
    with pytest.raises(BadInput, match="more than 100000 bytes"):
        agents.load_agent(tmp_path)


def test_digests_of_agents_without_a_folder_differ() -> None:
    digests = {agents.find_agent(command).digest for command in ("oracle", "noop", "true", "true x", "bash /solution/solve.sh")}
    assert len(digests) == 5
    assert all(digest.startswith("sha256:") for digest in digests)


def test_an_agent_gets_what_it_asks_for_and_nothing_else(tmp_path: Path) -> None:
    agent = agents.load_agent(folder(tmp_path))
    given = agents.environment(agent, {"SEARCH_DEPTH": "3", "AWS_SECRET_ACCESS_KEY": "x"})
    assert given["SEARCH_DEPTH"] == "3"
    assert "AWS_SECRET_ACCESS_KEY" not in given
    assert given["ASSAY_MODEL_URL"] == given["OPENAI_BASE_URL"] == "http://127.0.0.1:8080"
    assert "OPENAI_BASE_URL" not in agents.environment(agents.find_agent("noop"), {"OPENAI_BASE_URL": "x"})
    with pytest.raises(BadInput, match="needs SEARCH_DEPTH"):
        agents.environment(agent, {})


def competition(folder: Path) -> Path:
    folder.mkdir()
    (folder / "participants.csv").write_text('key,uid,name\nann,1,"Ann, first"\nbob,,\n', encoding="utf-8")
    return folder


def test_submitting(tmp_path: Path) -> None:
    place = competition(tmp_path / "c")
    source = folder(tmp_path / "a")
    done = submit_agent(place, "ann", str(source), at=instant("2026-01-02T03:04:05.6Z"))
    assert done.changed
    assert done.agent.digest == agents.load_agent(source).digest
    assert done.folder == place / "agents" / done.agent.digest[7:19]
    assert done.folder is not None
    assert agents.load_agent(done.folder).digest == done.agent.digest
    expected = f'key,uid,name,submission,submitted_at\nann,1,"Ann, first",{done.agent.digest},2026-01-02T03:04:05Z\nbob,,,,\n'
    assert (place / "participants.csv").read_text(encoding="utf-8") == expected

    again = submit_agent(place, "ann", str(source), at=instant("2027-01-01T00:00:00Z"))  # the time ranks ties, so it stays
    assert not again.changed
    assert (place / "participants.csv").read_text(encoding="utf-8") == expected
    (done.folder / "main.py").write_text("changed")
    assert submit_agent(place, "bob", str(source)).changed
    assert agents.load_agent(done.folder).digest == done.agent.digest  # put back


def test_submitting_a_command_or_what_is_built_in(tmp_path: Path) -> None:
    place = competition(tmp_path / "c")
    assert submit_agent(place, "ann", "oracle").folder is None
    done = submit_agent(place, "bob", """sh -c 'echo "héllo" > out.txt'""")
    assert done.folder is not None
    agent = agents.load_agent(done.folder)
    assert (agent.name, agent.command) == ("sh", ("sh", "-c", 'echo "héllo" > out.txt'))
    rows = (place / "participants.csv").read_text(encoding="utf-8")
    assert agents.BUILT_IN["oracle"].digest in rows
    assert agent.digest in rows


def test_what_cannot_be_submitted(tmp_path: Path) -> None:
    place = competition(tmp_path / "c")
    before = (place / "participants.csv").read_bytes()
    with pytest.raises(BadInput, match="there is no participant 'eve'; add a row for it first"):
        submit_agent(place, "eve", "noop")
    with pytest.raises(BadInput, match="there is no participant 'Ann'; did you mean 'ann'"):
        submit_agent(place, "Ann", "noop")
    source = folder(tmp_path / "a")
    (source / "out").symlink_to("/etc/passwd")
    with pytest.raises(BadInput, match="out cannot be submitted"):
        submit_agent(place, "ann", str(source))
    (place / "participants.csv").write_text("key,oops\nann,1\n")
    with pytest.raises(BadInput, match="there is no column 'oops'"):
        submit_agent(place, "ann", "noop")
    (place / "participants.csv").write_bytes(before)
    assert not (place / "agents").exists() or not list((place / "agents").iterdir())
