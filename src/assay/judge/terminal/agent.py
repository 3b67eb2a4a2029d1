"""Loads agents: a folder with agent.toml, a command line, or one of the two built-in agents. SPEC 2.

    name = "shell-first"
    version = "1.2.0"
    command = ["python3", "/agent/main.py"]     # words, or one line for /bin/sh; "./main.py" is in the agent's folder
    env = ["SEARCH_DEPTH"]                      # variables that it needs; the validator sets their values
    network = "model"                           # "none" (default), or "model": the one model behind the validator's proxy

An agent runs in the task's work directory. Its own folder is at /agent, and it reads the instruction from stdin or from
/instruction.md. The digest of its files, or of its command line, is the participant's submission.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from assay.errors import BadInput, suggest
from assay.exact import digest
from assay.judge import tree
from assay.scheme.fields import Key, Section, Text
from assay.scheme.reading import read_toml, validate

if TYPE_CHECKING:
    from assay.judge.terminal.tasks import Task

INSTRUCTION = "/instruction.md"
"""The task's instruction; the agent also gets it on stdin."""
AGENT = "/agent"
"""The agent's own folder."""
AGENT_LOGS = "/logs/agent"
"""The folder for logs that the agent's developer wants to read afterwards."""
ARTIFACTS = "/logs/artifacts"
"""The folder for files of the agent that are kept."""

SOLUTION = "/solution"
"""The task's solution; only the oracle gets it."""
SOLVE = f"{SOLUTION}/solve.sh"

TESTS = "/tests"
TEST_SCRIPT = f"{TESTS}/test.sh"
VERIFIER_LOGS = "/logs/verifier"
REWARD_TEXT = f"{VERIFIER_LOGS}/reward.txt"
REWARD_JSON = f"{VERIFIER_LOGS}/reward.json"
CTRF = f"{VERIFIER_LOGS}/ctrf.json"

MODEL_URL = "http://127.0.0.1:8080"
"""The address of the model inside the box; a proxy outside forwards it to the one allowed service."""

FILE = "agent.toml"
BOUNDS = tree.Bounds(bytes=256_000_000, files=20_000)
"""The limits of an agent's folder."""
SCHEMA = "assay.agent/1"

COMMAND = 100_000
"""Bytes of a command. The kernel refuses a word above 128 KiB."""

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
_LONGEST_PATH = 4096
_SHORT = 60
"""Characters of a name that is made from a command line."""
_RESERVED = frozenset({"HOME", "PATH", "ASSAY_INSTRUCTION", "ASSAY_MODEL_URL"})


def _too_long(words: Sequence[str]) -> bool:
    return sum(len(word.encode("utf-8", "surrogateescape")) + 1 for word in words) > COMMAND


def _words(value: Any) -> Any:
    if isinstance(value, str):
        line = f"{AGENT}/{value[2:]}" if value.startswith("./") else value
        value = ["/bin/sh", "-c", line] if line.strip() else []
    if not isinstance(value, list | tuple) or not value or not all(isinstance(word, str) for word in value):
        raise PydanticCustomError("assay", 'is not a command; write its words, such as ["python3", "/agent/main.py"]')
    if not value[0] or any("\0" in word for word in value):
        raise PydanticCustomError("assay", "has an empty first word or a NUL in it; correct it")
    if _too_long(value):
        raise PydanticCustomError("assay", f"has more than {COMMAND} bytes; put it into a file of the agent's folder")
    return tuple(value)


def _variable(value: Any) -> Any:
    if isinstance(value, str) and (_NAME.fullmatch(value) is None or value in _RESERVED):
        raise PydanticCustomError("assay", "{name} is not a variable that can be set; remove it", {"name": repr(value[:100])})
    return value


class AgentManifest(Section):
    """An agent.toml."""

    name: Key
    version: Key = "1"
    command: Annotated[tuple[str, ...], BeforeValidator(_words), Field(max_length=1000)]
    env: Annotated[tuple[Annotated[str, BeforeValidator(_variable)], ...], Field(strict=False, max_length=64)] = ()
    network: Literal["none", "model"] = "none"
    description: Text = ""


@dataclass(frozen=True)
class Agent:
    """An agent: how it is started, what it needs, and its digest."""

    name: str
    version: str
    command: tuple[str, ...]
    digest: str
    """`sha256:…`; the submission."""
    folder: Path | None = None
    """The folder that is copied to /agent; None if the agent is only a command."""
    env: tuple[str, ...] = ()
    model: bool = False
    """Whether it uses the model."""
    solution: bool = False
    """Whether it gets the task's solution, as only the oracle does."""


def built_in(name: Literal["oracle", "noop"]) -> Agent:
    """The agent that carries out the task's own solution, or the one that does nothing."""
    command = ("bash", SOLVE) if name == "oracle" else ("true",)
    return Agent(name, "1", command, digest({"built-in": name, "schema": SCHEMA}), solution=name == "oracle")


BUILT_IN: Mapping[str, Agent] = {"oracle": built_in("oracle"), "noop": built_in("noop")}


def command_line(words: Sequence[str], *, name: str = "") -> Agent:
    """An agent that is only a command; raises BadInput if the command is empty or too long."""
    if not words or not words[0]:
        raise BadInput("there is no command", field="agent", hint="name a folder with agent.toml, a command, oracle or noop")
    if _too_long(words):
        raise BadInput(f"the command has more than {COMMAND} bytes", field="agent", hint=f"put it into a folder with {FILE}")
    content = {"command": list(words), "schema": SCHEMA}
    return Agent(name or Path(words[0]).name[:_SHORT] or "command", "1", tuple(words), digest(content))


def load_agent(folder: Path) -> Agent:
    """The agent in a folder. Raises BadInput for a faulty agent.toml, and for a folder that is too large."""
    file = folder / FILE
    if not folder.is_dir():
        raise BadInput("no such folder", file=folder, hint=f"an agent is a folder with {FILE} in it")
    if file.is_symlink() or not file.is_file():
        raise BadInput("no such file", file=file, hint='write name = "…" and command = ["…"] into it')
    content, source = read_toml(file)
    manifest = validate(AgentManifest, content, file=file, source=source)
    first, *rest = manifest.command
    command = (f"{AGENT}/{first[2:]}", *rest) if first.startswith("./") else manifest.command
    try:
        submission = tree.digest(folder, bounds=BOUNDS)
    except tree.TooMuch as error:
        raise BadInput(error.what, file=folder, hint="leave out what the agent does not need") from None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=folder, hint="check its permissions") from None
    model = manifest.network == "model"
    return Agent(manifest.name, manifest.version, command, submission, folder=folder, env=manifest.env, model=model)


def find_agent(text: str) -> Agent:
    """The agent that a text names: `oracle`, `noop`, a folder, or else a command line. Raises BadInput.

    A single word is a command only if it is a program. Any other word is more likely a mistyped folder, and as a command it
    would fail every task.
    """
    if text in BUILT_IN:
        return BUILT_IN[text]
    if is_folder(text):
        return load_agent(Path(text))
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInput(f"is not a command line: {error}", field="agent", hint="close every quote") from None
    if len(words) == 1 and not _is_program(words[0]):
        folders = sorted(place.parent.name for place in Path().glob(f"*/{FILE}"))
        usage = (
            f"an agent is a folder with {FILE}, or a command; if only the box has the program: sh -c {shlex.quote(words[0][:80])}"
        )
        hint = suggest(words[0], folders, usage, then=usage)
        raise BadInput("no such folder, and no program of this machine", file=text[:80], hint=hint)
    return command_line(words)


def is_folder(text: str) -> bool:
    """Whether there is a folder of that name."""
    try:
        return Path(text).is_dir()
    except (OSError, ValueError):  # the text is longer than a path may be
        return False


def _is_program(word: str) -> bool:
    """Whether a box of bubblewrap would find the program. The programs of a container are not known here."""
    if "/" in word:
        return len(word) < _LONGEST_PATH and os.path.isabs(word) and os.path.isfile(word)
    from assay.judge.sandbox.root import PATH

    return shutil.which(word, path=PATH) is not None


def check_agent(agent: Agent, tasks: Iterable[Task], given: Mapping[str, str], *, model: bool) -> None:
    """Refuses, before the first trial, what would make every trial of an agent an error; raises BadInput.

    given: the variables that the validator sets for agents. model: whether the validator provides a model.
    """
    environment(agent, given)
    if agent.model and not model:
        raise BadInput(
            f"the agent {agent.name!r} needs a model",
            field="model",
            hint="set ASSAY_MODEL_URL (and ASSAY_MODEL_KEY), or leave this agent out",
        )
    without = next((task for task in tasks if task.solution is None), None) if agent.solution else None
    if without is not None:
        raise BadInput(
            f"the task {without.id!r} has no solution for the oracle", file=without.folder, hint="write solution/solve.sh"
        )


def environment(agent: Agent, given: Mapping[str, str]) -> dict[str, str]:
    """The variables that an agent gets, from those that the validator sets. Raises BadInput for a missing one."""
    missing = [name for name in agent.env if name not in given]
    if missing:
        raise BadInput(
            f"the agent {agent.name!r} needs {', '.join(missing)}",
            field="env",
            hint=f"set it and add --env {missing[0]}, or leave this agent out: agents get only what the validator gives them",
        )
    variables = {name: given[name] for name in agent.env}
    variables["ASSAY_INSTRUCTION"] = INSTRUCTION
    if agent.model:
        variables["ASSAY_MODEL_URL"] = MODEL_URL
        variables.setdefault("OPENAI_BASE_URL", MODEL_URL)
        variables.setdefault("OPENAI_API_KEY", "added-outside")
    return variables
