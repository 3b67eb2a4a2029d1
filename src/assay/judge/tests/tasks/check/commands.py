"""Rules about single commands of the tests: which of them the agent's files can steer, and which need what boxes do not have."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from assay.judge.tests.tasks.check import shell
from assay.judge.tests.tasks.check.shell import Command
from assay.judge.tests.tasks.task import within

__all__ = ["STEERING", "Said", "said"]

STEERING = frozenset(
    {
        "BASH_ENV",
        "ENV",
        "GIT_CONFIG_GLOBAL",
        "HOME",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "NODE_PATH",
        "PATH",
        "PERL5LIB",
        "PYTHONHOME",
    }
    | {"PYTHONPATH", "PYTHONSTARTUP", "RUBYLIB"}
)
"""Variables that say where programs are loaded from."""
_INTERPRETERS = re.compile(r"(?:ba|da|z|k)?sh|python[0-9.]*|perl|ruby|node|php|lua|Rscript|awk|gawk|sed")
_SHELLS = re.compile(r"(?:ba|da|z|k)?sh")
_PYTHON = re.compile(r"python[0-9.]*")
_BUILDERS = frozenset(
    {"make", "cmake", "npm", "npx", "yarn", "pnpm", "cargo", "go", "mvn", "gradle", "tox", "nox", "ninja", "ctest", "bundle"}
)
_FETCHERS = frozenset({"apt", "apt-get", "apk", "yum", "dnf", "curl", "wget", "uvx", "conda", "brew"})
_INSTALLERS: Mapping[str, tuple[str, ...]] = {
    "pip": ("install", "download"),
    "pip3": ("install", "download"),
    "uv": ("pip", "add", "sync", "run", "tool", "venv"),
    "npm": ("install", "ci", "i"),
    "yarn": ("install", "add"),
    "pnpm": ("install", "add"),
    "gem": ("install",),
    "cargo": ("install", "add"),
    "go": ("get", "install"),
    "git": ("clone", "fetch", "pull"),
}


@dataclass(frozen=True)
class Said:
    """What a rule says about a command."""

    rule: str
    line: int
    what: str
    do: str


def said(one: Command, kept: tuple[str, ...]) -> Iterator[Said]:
    """Everything that the rules say about a command; kept: the folders that are the agent's."""

    def agents(path: str) -> bool:
        return any(within(path, folder) for folder in kept)

    for name, value in one.env.items():
        if name in STEERING and (found := [part for part in value.split(":") if agents(one.path(part) if part else one.cwd)]):
            yield Said(
                "steered",
                one.line,
                f"sets {name} to the agent's folder {found[0] or one.cwd}",
                "take programs and modules from /tests or the image only",
            )
    if (inner := _inline(one)) is not None:
        for each in shell.string(inner, one.cwd, one.line):
            yield from said(each, kept)
    for rule in (_sources, _runs, _python, _pytest, _git, _builds, _fetches):
        yield from rule(one, agents)


def _inline(one: Command) -> str | None:
    """What a shell is given to run as a word."""
    flags = list(itertools.takewhile(_flag, one.words[1:]))
    if not _SHELLS.fullmatch(one.name) or not any(re.fullmatch("-[A-Za-z]*c", flag) for flag in flags):
        return None
    return next(iter(one.words[1 + len(flags) :]), None)


def _sources(one: Command, agents: Callable[[str], bool]) -> Iterator[Said]:
    if one.name in ("source", ".") and len(one.words) > 1 and agents(one.path(one.words[1])):
        yield Said(
            "sources-work",
            one.line,
            f"{one.name} {one.words[1]} runs what the agent wrote, in the test itself",
            "read what is needed from it as data, or keep the file in /tests",
        )


def _runs(one: Command, agents: Callable[[str], bool]) -> Iterator[Said]:
    if not one.words:
        return
    program = one.words[0]
    script = next((word for word in one.words[1:] if not word.startswith("-")), "") if _INTERPRETERS.fullmatch(one.name) else ""
    inline = any(re.fullmatch(r"-[A-Za-z]*[cem]", word) for word in itertools.takewhile(_flag, one.words[1:])) or one.name in (
        "sed",
        "awk",
        "gawk",
    )
    if "/" in program and agents(one.path(program)):
        yield _run(one, program)
    elif not script and not inline and (read := next((path for sign, path in one.redirected if sign == "<"), "")):
        if _INTERPRETERS.fullmatch(one.name) and agents(one.path(read)):
            yield _run(one, read)
    elif script and not inline and agents(one.path(script)) and not re.search(r"[$*{]", script):
        yield _run(one, script)


def _flag(word: str) -> bool:
    return word.startswith("-")


def _run(one: Command, what: str) -> Said:
    return Said(
        "runs-work",
        one.line,
        f"runs the agent's {what}, which can do to the verifier whatever it likes",
        "judge what it wrote beforehand; where it must run, a wrong reward or exit code is the author's risk",
    )


def _python(one: Command, agents: Callable[[str], bool]) -> Iterator[Said]:
    if not _PYTHON.fullmatch(one.name) or not agents(one.cwd):
        return
    flags = [word for word in one.words[1:] if word.startswith("-")]
    isolated = any(re.fullmatch(r"-[A-Za-z]*[IP][A-Za-z]*", flag) for flag in flags) or one.env.get("PYTHONSAFEPATH")
    here = one.words[1:] == () or one.words[1:] == ("-",) or any(re.fullmatch(r"-[a-zA-Z]*[cm]|-", flag) for flag in flags)
    if here and not isolated:
        yield Said(
            "loads-work",
            one.line,
            f"{one.name} loads modules from {one.cwd} first, where the agent may have put one",
            f"call {one.name} -I, or cd /tests first",
        )


def _pytest(one: Command, agents: Callable[[str], bool]) -> Iterator[Said]:
    words = list(one.words)
    if (_PYTHON.fullmatch(one.name) and "pytest" in words) or (one.name in ("uvx", "uv") and "pytest" in words):
        words = words[words.index("pytest") :]
    elif one.name not in ("pytest", "py.test"):
        return
    named = [word.split("::")[0] for word in words[1:] if not word.startswith("-") and ("/" in word or word.endswith(".py"))]
    outside = bool(named) and not any(agents(one.path(word)) for word in named)
    closed = "--noconftest" in words and any(word == "-c" or word.startswith(("-c", "--config-file")) for word in words)
    if not outside and agents(one.cwd) and not closed:
        yield Said(
            "loads-work",
            one.line,
            f"pytest takes conftest.py and its settings from {one.cwd}, where the agent may have put them",
            "keep the tests in /tests and say pytest --rootdir=/tests -p no:cacheprovider /tests/…",
        )


def _git(one: Command, agents: Callable[[str], bool]) -> Iterator[Said]:
    if one.name != "git":
        return
    words = one.words
    places = [words[number + 1] for number, word in enumerate(words[:-1]) if word in ("-C", "--git-dir", "--work-tree")]
    places += [word.partition("=")[2] for word in words if word.startswith(("--git-dir=", "--work-tree="))]
    if agents(one.path(places[0]) if places else one.cwd) and words[1:2] not in (("--version",), ("version",), ("init",)):
        yield Said(
            "steered",
            one.line,
            "git obeys the settings of the agent's repository, which may name programs to run",
            "read .git/refs as files, and objects with GIT_ALTERNATE_OBJECT_DIRECTORIES from a repository of your own",
        )


def _builds(one: Command, agents: Callable[[str], bool]) -> Iterator[Said]:
    places = [
        one.words[number + 1] for number, word in enumerate(one.words[:-1]) if word in ("-C", "--prefix", "--manifest-path")
    ]
    if one.name in _BUILDERS and agents(one.path(places[0]) if places else one.cwd):
        yield _run(one, f"folder, by {one.name}")


def _fetches(one: Command, agents: Callable[[str], bool]) -> Iterator[Said]:
    words = list(one.words)
    if _PYTHON.fullmatch(one.name) and words[1:3] in (["-m", "pip"], ["-m", "uv"]):
        words = words[2:]
    name = words[0].rsplit("/", 1)[-1] if words else ""
    action = next((word for word in words[1:] if not word.startswith("-")), "")
    local = any(word.startswith(("--no-index", "--offline")) for word in words) or any(
        "127.0.0.1" in w or "localhost" in w for w in words
    )
    if name == "git" and not any("://" in word or "@" in word for word in words):
        return
    if not local and (name in _FETCHERS or action in _INSTALLERS.get(name, ())):
        yield Said(
            "needs-network",
            one.line,
            f"{name} {action} needs a network, and boxes have none".replace("  ", " "),
            "put it into the image, or into tests/",
        )
