"""Reads a Dockerfile into steps for a sandbox without a container engine, and finds the files that each COPY takes.

Supported: FROM (once), ARG, ENV, WORKDIR, SHELL, COPY, RUN. Ignored, because they change neither a file nor a trial: CMD, EXPOSE,
LABEL, MAINTAINER, STOPSIGNAL, USER root, HEALTHCHECK NONE. Every other instruction is refused, with its name and line: only a
container engine can carry it out.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from assay.errors import BadInput
from assay.folder.files import Place, decode
from assay.judge import tree
from assay.judge.dockerfile.parse import Instruction, expand, listed, parse, raw

__all__ = [
    "PATH",
    "BuildPlan",
    "Context",
    "Copy",
    "Instruction",
    "Placed",
    "Run",
    "Step",
    "Unsupported",
    "Workdir",
    "parse",
    "plan",
]


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The value of PATH before a Dockerfile changes it."""
_SILENT = frozenset({"CMD", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL"})
_WHY = {
    "ADD": "it may fetch and unpack; use COPY",
    "ENTRYPOINT": "a box starts nothing by itself; let solution, tests or RUN do it",
    "VOLUME": "a box has no volumes; use RUN mkdir",
    "USER": "a box has one unprivileged user; remove it",
    "HEALTHCHECK": "a box starts no service; remove it",
    "ONBUILD": "it is for images that are built on this one; remove it",
}


@dataclass(frozen=True)
class Workdir:
    """Make a folder and its parents, and let later steps start there."""

    path: str
    line: int


@dataclass(frozen=True)
class Copy:
    """Copy from the build context. `Context.placed` says which file goes where."""

    sources: tuple[str, ...]
    target: str
    """An absolute path."""
    into: bool
    """Whether the target is a folder: it ends with a slash, or there are several sources."""
    mode: int | None
    """Permission bits of every copied file and folder, if `--chmod` gives them."""
    line: int


@dataclass(frozen=True)
class Run:
    """Run a command."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    line: int


Step = Workdir | Copy | Run


@dataclass(frozen=True)
class Unsupported:
    """An instruction that only a container engine can carry out."""

    what: str
    why: str
    line: int


@dataclass(frozen=True)
class BuildPlan:
    """The steps of a Dockerfile. They can be carried out if `refused` is empty."""

    base: str
    """The image after FROM."""
    steps: tuple[Step, ...]
    env: Mapping[str, str]
    """The variables that the image sets in addition to those of its base."""
    workdir: str | None
    """The folder in which the image's commands start; None if the Dockerfile does not set it."""
    refused: tuple[Unsupported, ...] = ()
    file: Path | str | None = None

    def checked(self) -> BuildPlan:
        """This plan. Raises BadInput for the first instruction that was refused."""
        for instruction in self.refused:
            raise BadInput(
                f"{instruction.what} cannot be done without a container engine", file=self.file, line=instruction.line,
                hint=f"{instruction.why}; or judge in containers",
            )  # fmt: skip
        return self


def plan(text: str, file: Path | str | None = None, *, env: Mapping[str, str] | None = None) -> BuildPlan:
    """The steps of a Dockerfile. env: the variables of the base image. Raises BadInput, with the line, if it cannot be read."""
    planner = _BuildPlanner(file, {"PATH": PATH} | dict(env or {}))
    for instruction in parse(text, file):
        planner.take(instruction)
    own = {name: value for name, value in planner.env.items() if name in planner.named}
    return BuildPlan(planner.base, tuple(planner.steps), own, planner.workdir, tuple(planner.refused), file)


@dataclass
class _BuildPlanner:
    """Takes one instruction after another, with the state that each leaves to the next."""

    file: Path | str | None
    env: dict[str, str]
    base: str = ""
    workdir: str | None = None
    args: dict[str, str] = field(default_factory=dict)
    early: dict[str, str] = field(default_factory=dict)
    """ARGs before FROM. Only FROM sees them, and a later `ARG NAME` with the same name."""
    named: set[str] = field(default_factory=set)
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    steps: list[Step] = field(default_factory=list)
    refused: list[Unsupported] = field(default_factory=list)

    @property
    def values(self) -> dict[str, str]:
        return self.args | self.env

    def take(self, instruction: Instruction) -> None:
        place = Place(self.file, instruction.line)
        if instruction.heredoc:
            self.refuse(instruction, "with a here-document", "use a file and COPY")
        elif instruction.name in _WHY:
            self.maybe(instruction)
        elif instruction.name not in _SILENT:
            _METHODS[instruction.name](self, instruction, place)

    def refuse(self, instruction: Instruction, what: str, why: str) -> None:
        self.refused.append(Unsupported(f"{instruction.name} {what}".strip(), why, instruction.line))

    def flags(self, instruction: Instruction, known: frozenset[str]) -> bool:
        """Whether every flag is known. Refuses the first unknown flag."""
        for name in instruction.flags:
            if name not in known:
                self.refuse(instruction, f"--{name}", "leave the flag out")
                return False
        return True

    def maybe(self, instruction: Instruction) -> None:
        user = instruction.name == "USER" and instruction.value.strip().split(":")[0] in ("root", "0")
        without = instruction.name == "HEALTHCHECK" and instruction.value.strip().upper() == "NONE"
        if not user and not without:
            self.refuse(instruction, "" if instruction.name != "USER" else instruction.value.strip()[:40], _WHY[instruction.name])

    def start(self, instruction: Instruction, place: Place) -> None:
        if self.base:
            self.refuse(instruction, "a second time", "build in one stage")
            return
        words = [expand(word, self.early, place) for word in raw(instruction.value)]
        if len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS") or not words[0]:
            raise place.refuse("FROM names no image", hint="write FROM image, or FROM image AS name")
        self.flags(instruction, frozenset({"platform"}))
        self.base = words[0]

    def declare(self, instruction: Instruction, place: Place) -> None:
        for word in raw(instruction.value):
            name, given, value = word.partition("=")
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise place.refuse(f"{name[:40]!r} is not a variable's name", hint="write ARG NAME or ARG NAME=value")
            where = self.args if self.base else self.early
            if given:
                where[name] = expand(value, self.values if self.base else self.early, place)
            elif name in self.early:
                where[name] = self.early[name]

    def set(self, instruction: Instruction, place: Place) -> None:
        words = raw(instruction.value)
        if "=" in words[0]:
            pairs = [word.partition("=") for word in words]
        else:
            name, _, rest = instruction.value.partition(" ")
            pairs = [(name, "=" if rest.strip() else "", rest.strip())]
        before = self.values  # a pair does not see the others of the same instruction
        for name, given, value in pairs:
            if not given or not re.fullmatch(r"[^\s=\0]+", name):
                raise place.refuse(f"{name[:40]!r} has no value", hint="write ENV NAME=value")
            self.env[name] = expand(value, before, place)
            self.named.add(name)

    def go(self, instruction: Instruction, place: Place) -> None:
        path = expand(instruction.value, self.values, place)
        self.workdir = self.resolved(path, place)
        self.steps.append(Workdir(self.workdir, instruction.line))

    def speak(self, instruction: Instruction, place: Place) -> None:
        command = listed(instruction.value)
        if not command:
            raise place.refuse("SHELL is not in the JSON form", hint='write SHELL ["/bin/bash", "-c"]')
        self.shell = command

    def copy(self, instruction: Instruction, place: Place) -> None:
        if "chown" in instruction.flags and instruction.flags["chown"].split(":")[0] not in ("root", "0"):
            self.refuse(instruction, "--chown", "a box has only one user; leave the flag out")
            return
        if not self.flags(instruction, frozenset({"chmod", "chown", "link"})):
            return
        mode = None
        if "chmod" in instruction.flags:
            if not re.fullmatch("0?[0-7]{3}", instruction.flags["chmod"]):
                raise place.refuse(f"--chmod={instruction.flags['chmod'][:20]} is not a mode", hint="write three octal digits")
            mode = int(instruction.flags["chmod"], 8)
        given = listed(instruction.value)
        words = [expand(word, self.values, place) for word in (raw(instruction.value) if given is None else given)]
        if len(words) < 2 or not all(words):
            raise place.refuse("COPY needs a source and a target", hint="write COPY source target")
        *sources, last = words
        into = len(sources) > 1 or last.endswith(("/", "/.")) or last == "."
        self.steps.append(Copy(tuple(sources), self.resolved(last, place), into, mode, instruction.line))

    def run(self, instruction: Instruction, place: Place) -> None:
        if not self.flags(instruction, frozenset()):
            return
        command = listed(instruction.value) or (*self.shell, instruction.value)
        if not all(command[:1]):
            raise place.refuse("RUN names no command", hint="write the command after RUN")
        self.steps.append(Run(command, self.values, self.workdir or "/", instruction.line))

    def resolved(self, path: str, place: Place) -> str:
        if not path or "\0" in path:
            raise place.refuse("the path is empty", hint="check that every variable in it is set")
        absolute = posixpath.normpath(posixpath.join(self.workdir or "/", path))
        return "/" + absolute.lstrip("/")


_METHODS: dict[str, Callable[[_BuildPlanner, Instruction, Place], None]] = {
    "FROM": _BuildPlanner.start,
    "ARG": _BuildPlanner.declare,
    "ENV": _BuildPlanner.set,
    "WORKDIR": _BuildPlanner.go,
    "SHELL": _BuildPlanner.speak,
    "COPY": _BuildPlanner.copy,
    "RUN": _BuildPlanner.run,
}


_IGNORE_BYTES = 1_000_000


@dataclass(frozen=True)
class Placed:
    """One file, folder or link that a COPY puts into the image."""

    source: str
    """Relative to the context's folder."""
    inside: str
    """The absolute path in the image. Missing parents are made."""
    kind: tree.Kind
    """`file`, `exec`, `folder` or `link`."""
    mode: int
    """Permission bits."""
    loose: bool = False
    """Whether the file goes into `inside`, under its own name, if that is already a folder in the image."""


@dataclass(frozen=True)
class Context:
    """The files beside a Dockerfile that COPY may take."""

    folder: Path
    entries: dict[str, tree.Entry]
    """By path, without what .dockerignore leaves out."""

    @classmethod
    def open(cls, folder: Path, *, bounds: tree.Bounds = tree.OURS) -> Context:
        """The build context of a folder; raises BadInput for a .dockerignore that cannot be read, and as `tree.walk`."""
        ignored = _Ignore.read(folder)
        entries = (entry for entry in tree.walk(folder, bounds=bounds) if entry.path != ".")
        return cls(folder, {entry.path: entry for entry in entries if not ignored.leaves_out(entry.path)})

    def placed(self, step: Copy, file: Path | str | None = None) -> tuple[Placed, ...]:
        """The files that a COPY makes, each folder before its own. Raises BadInput for a source that is missing or outside."""
        place = Place(file, step.line)
        matches = [match for source in step.sources for match in self._matching(source, place)]
        into = step.into or len(matches) > 1
        out: list[Placed] = []
        for path, entry in matches:
            if entry is None or entry.kind == "folder":
                out += self._below(path, step, place)
            else:
                name = posixpath.join(step.target, posixpath.basename(path)) if into else step.target
                out.append(_placed(entry, name, step, place, loose=not into))
        return tuple(out)

    def _matching(self, source: str, place: Place) -> Iterator[tuple[str, tree.Entry | None]]:
        """Path and entry of everything that a source names. The whole context has an empty path and no entry."""
        parts = [part for part in source.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise place.refuse(f"COPY {source[:80]} leaves the build context", hint="put the file beside the Dockerfile")
        if not parts:
            yield "", None
            return
        wanted = _compiled("/".join(_component(part) for part in parts), source, place)
        matches = [(path, entry) for path, entry in self.entries.items() if wanted.fullmatch(path)]
        if not matches:
            raise place.refuse(
                f"there is no {source[:80]!r} in the build context",
                hint=f"put it into {self.folder.name}/, and check .dockerignore",
            )
        for path, entry in matches:
            if entry.kind == "link":
                raise place.refuse(f"{path[:80]!r} is a link", hint="name the file that it points to")
            yield path, entry

    def _below(self, path: str, step: Copy, place: Place) -> Iterator[Placed]:
        yield Placed(path or ".", step.target, "folder", step.mode if step.mode is not None else 0o755)
        start = f"{path}/" if path else ""
        for name, entry in self.entries.items():
            if name.startswith(start):
                yield _placed(entry, posixpath.join(step.target, name.removeprefix(start)), step, place)


def _placed(entry: tree.Entry, inside: str, step: Copy, place: Place, *, loose: bool = False) -> Placed:
    if entry.kind in ("fifo", "socket", "device"):
        raise place.refuse(f"{entry.path[:80]!r} is a {entry.kind}", hint="only files, folders and links can be copied")
    mode = entry.mode & 0o777 if step.mode is None or entry.kind == "link" else step.mode
    return Placed(entry.path, inside, entry.kind, mode, loose)


class _Ignore:
    """The patterns of a .dockerignore. The last pattern that matches a path, or a folder above it, decides."""

    def __init__(self, rules: Iterable[tuple[bool, re.Pattern[str]]]) -> None:
        self.rules = tuple(rules)

    @classmethod
    def read(cls, folder: Path) -> _Ignore:
        for name in ("Dockerfile.dockerignore", ".dockerignore"):
            data = tree.peek(folder / name, most=_IGNORE_BYTES)
            if data is not None:
                return cls(_rules(decode(data, folder / name), folder / name))
        return cls(())

    def leaves_out(self, path: str) -> bool:
        parts = path.split("/")
        above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        out = False
        for keeps, rule in self.rules:
            if any(rule.fullmatch(prefix) for prefix in above):
                out = not keeps
        return out


def _rules(text: str, file: Path) -> Iterator[tuple[bool, re.Pattern[str]]]:
    for number, row in enumerate(text.splitlines(), start=1):
        row = row.strip()
        if not row or row.startswith("#"):
            continue
        keeps, row = row.startswith("!"), row.removeprefix("!").strip()
        parts = [part for part in posixpath.normpath(row).split("/") if part not in ("", ".")]
        pattern = "".join("(?:.*/)?" if part == "**" else _component(part) + "/" for part in parts[:-1])
        last = parts[-1:] and (".*" if parts[-1] == "**" else _component(parts[-1]))
        if last:
            yield keeps, _compiled(pattern + last, row, Place(file, number))


def _compiled(pattern: str, written: str, place: Place) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error:
        raise place.refuse(f"{written[:80]!r} is not a pattern", hint="write \\ before a [ that means itself") from None


def _component(pattern: str) -> str:
    """One name of a path with `*`, `?`, `[a-z]` and `\\` as a regular expression."""
    out, at = "", 0
    while at < len(pattern):
        letter, at = pattern[at], at + 1
        if letter == "*":
            out += "[^/]*"
        elif letter == "?":
            out += "[^/]"
        elif letter == "[" and (close := pattern.find("]", at + 1)) > 0:
            inner, at = pattern[at:close], close + 1
            sign = "^" if inner[:1] in ("^", "!") else ""
            out += "[" + sign + re.sub(r"([\\\[\]^&~|])", r"\\\1", inner[len(sign) :]) + "]"
        elif letter == "\\" and at < len(pattern):
            out, at = out + re.escape(pattern[at]), at + 1
        else:
            out += re.escape(letter)
    return out
