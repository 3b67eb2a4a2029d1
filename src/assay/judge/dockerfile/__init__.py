"""Instructions into steps with everything filled in: what runs, with which variables, where, and what is copied.

Carried out: FROM (one), ARG, ENV, WORKDIR, SHELL, COPY, RUN. Passed over, because they change no file and no trial: CMD, EXPOSE,
LABEL, MAINTAINER, STOPSIGNAL, USER root, HEALTHCHECK NONE. All else is refused by name, and left to a container engine.

The build context: which files a COPY takes, and where each of them goes.

A Dockerfile as steps that a sandbox without a container engine can carry out; what it cannot do is named, with its line.
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
"""What PATH is before a Dockerfile says otherwise."""
_SILENT = frozenset({"CMD", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL"})
_WHY = {
    "ADD": "it may fetch and unpack; use COPY",
    "ENTRYPOINT": "a box starts nothing by itself; let solution, tests or RUN do it",
    "VOLUME": "a box has no volumes; use RUN mkdir",
    "USER": "everything in a box is one unprivileged user's; remove it",
    "HEALTHCHECK": "a box starts no service; remove it",
    "ONBUILD": "it speaks to other images; remove it",
}


@dataclass(frozen=True)
class Workdir:
    """Make a folder, with those above it, and go there."""

    path: str
    line: int


@dataclass(frozen=True)
class Copy:
    """Copy from the build context; `Context.placed` says which files go where."""

    sources: tuple[str, ...]
    target: str
    """An absolute path."""
    into: bool
    """Whether the target is a folder to copy into, as a slash at its end or several sources say."""
    mode: int | None
    """Permission bits for every file and folder copied, if `--chmod` says so."""
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
    """What only a container engine can do."""

    what: str
    why: str
    line: int


@dataclass(frozen=True)
class BuildPlan:
    """A Dockerfile, ready to be carried out if nothing is refused."""

    base: str
    """The image after FROM."""
    steps: tuple[Step, ...]
    env: Mapping[str, str]
    """What the image's commands find set, beyond what the base sets."""
    workdir: str | None
    """Where the image's commands start; None if the Dockerfile does not say."""
    refused: tuple[Unsupported, ...] = ()
    file: Path | str | None = None

    def whole(self) -> BuildPlan:
        """The plan itself; raises BadInput for the first thing that was refused."""
        for one in self.refused:
            raise BadInput(
                f"{one.what} cannot be done without a container engine", file=self.file, line=one.line,
                hint=f"{one.why}; or judge in containers",
            )  # fmt: skip
        return self


def plan(text: str, file: Path | str | None = None, *, env: Mapping[str, str] | None = None) -> BuildPlan:
    """A Dockerfile as a plan; raises BadInput with the line for what cannot be read. env: what the base image sets."""
    maker = _Maker(file, {"PATH": PATH} | dict(env or {}))
    for one in parse(text, file):
        maker.take(one)
    own = {name: value for name, value in maker.env.items() if name in maker.named}
    return BuildPlan(maker.base, tuple(maker.steps), own, maker.workdir, tuple(maker.refused), file)


@dataclass
class _Maker:
    file: Path | str | None
    env: dict[str, str]
    base: str = ""
    workdir: str | None = None
    args: dict[str, str] = field(default_factory=dict)
    early: dict[str, str] = field(default_factory=dict)
    """ARG before FROM: known to FROM only, and to a later `ARG NAME` that names it."""
    named: set[str] = field(default_factory=set)
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    steps: list[Step] = field(default_factory=list)
    refused: list[Unsupported] = field(default_factory=list)

    @property
    def values(self) -> dict[str, str]:
        return self.args | self.env

    def take(self, one: Instruction) -> None:
        place = Place(self.file, one.line)
        if one.heredoc:
            self.refuse(one, "with a here-document", "use a file and COPY")
        elif one.name in _WHY:
            self.maybe(one)
        elif one.name not in _SILENT:
            _DOES[one.name](self, one, place)

    def refuse(self, one: Instruction, what: str, why: str) -> None:
        self.refused.append(Unsupported(f"{one.name} {what}".strip(), why, one.line))

    def flags(self, one: Instruction, known: frozenset[str]) -> bool:
        """Whether every flag is known; the first that is not is refused."""
        for name in one.flags:
            if name not in known:
                self.refuse(one, f"--{name}", "leave the flag out")
                return False
        return True

    def maybe(self, one: Instruction) -> None:
        user = one.name == "USER" and one.value.strip().split(":")[0] in ("root", "0")
        none = one.name == "HEALTHCHECK" and one.value.strip().upper() == "NONE"
        if not user and not none:
            self.refuse(one, "" if one.name != "USER" else one.value.strip()[:40], _WHY[one.name])

    def start(self, one: Instruction, place: Place) -> None:
        if self.base:
            self.refuse(one, "a second time", "build in one stage")
            return
        words = [expand(word, self.early, place) for word in raw(one.value)]
        if len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS") or not words[0]:
            raise place.refuse("FROM names no image", hint="write FROM image, or FROM image AS name")
        self.flags(one, frozenset({"platform"}))
        self.base = words[0]

    def declare(self, one: Instruction, place: Place) -> None:
        for word in raw(one.value):
            name, given, value = word.partition("=")
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise place.refuse(f"{name[:40]!r} is not a variable's name", hint="write ARG NAME or ARG NAME=value")
            where = self.args if self.base else self.early
            if given:
                where[name] = expand(value, self.values if self.base else self.early, place)
            elif name in self.early:
                where[name] = self.early[name]

    def set(self, one: Instruction, place: Place) -> None:
        words = raw(one.value)
        if "=" in words[0]:
            pairs = [word.partition("=") for word in words]
        else:
            name, _, rest = one.value.partition(" ")
            pairs = [(name, "=" if rest.strip() else "", rest.strip())]
        before = self.values  # of one instruction, no pair sees another
        for name, given, value in pairs:
            if not given or not re.fullmatch(r"[^\s=\0]+", name):
                raise place.refuse(f"{name[:40]!r} has no value", hint="write ENV NAME=value")
            self.env[name] = expand(value, before, place)
            self.named.add(name)

    def go(self, one: Instruction, place: Place) -> None:
        path = expand(one.value, self.values, place)
        self.workdir = self.resolved(path, place)
        self.steps.append(Workdir(self.workdir, one.line))

    def speak(self, one: Instruction, place: Place) -> None:
        command = listed(one.value)
        if not command:
            raise place.refuse("SHELL is not in the JSON form", hint='write SHELL ["/bin/bash", "-c"]')
        self.shell = command

    def copy(self, one: Instruction, place: Place) -> None:
        if "chown" in one.flags and one.flags["chown"].split(":")[0] not in ("root", "0"):
            self.refuse(one, "--chown", "everything in a box is one user's; leave the flag out")
            return
        if not self.flags(one, frozenset({"chmod", "chown", "link"})):
            return
        mode = None
        if "chmod" in one.flags:
            if not re.fullmatch("0?[0-7]{3}", one.flags["chmod"]):
                raise place.refuse(f"--chmod={one.flags['chmod'][:20]} is not a mode", hint="write three octal digits")
            mode = int(one.flags["chmod"], 8)
        given = listed(one.value)
        words = [expand(word, self.values, place) for word in (raw(one.value) if given is None else given)]
        if len(words) < 2 or not all(words):
            raise place.refuse("COPY needs a source and a target", hint="write COPY source target")
        *sources, last = words
        into = len(sources) > 1 or last.endswith(("/", "/.")) or last == "."
        self.steps.append(Copy(tuple(sources), self.resolved(last, place), into, mode, one.line))

    def run(self, one: Instruction, place: Place) -> None:
        if not self.flags(one, frozenset()):
            return
        command = listed(one.value) or (*self.shell, one.value)
        if not all(command[:1]):
            raise place.refuse("RUN names no command", hint="write the command after RUN")
        self.steps.append(Run(command, self.values, self.workdir or "/", one.line))

    def resolved(self, path: str, place: Place) -> str:
        if not path or "\0" in path:
            raise place.refuse("the path is empty", hint="is a variable in it not set?")
        found = posixpath.normpath(posixpath.join(self.workdir or "/", path))
        return "/" + found.lstrip("/")


_DOES: dict[str, Callable[[_Maker, Instruction, Place], None]] = {
    "FROM": _Maker.start,
    "ARG": _Maker.declare,
    "ENV": _Maker.set,
    "WORKDIR": _Maker.go,
    "SHELL": _Maker.speak,
    "COPY": _Maker.copy,
    "RUN": _Maker.run,
}


_IGNORE_BYTES = 1_000_000


@dataclass(frozen=True)
class Placed:
    """One thing that a COPY puts into the image."""

    source: str
    """Relative to the context's folder."""
    inside: str
    """The absolute path in the image; folders above it are made as needed."""
    kind: tree.Kind
    """`file`, `exec`, `folder` or `link`."""
    mode: int
    """Permission bits."""
    loose: bool = False
    """If `inside` is a folder in the image already, the file goes into it under its own name."""


@dataclass(frozen=True)
class Context:
    """The files beside a Dockerfile that COPY may take."""

    folder: Path
    entries: dict[str, tree.Entry]
    """By path, without what .dockerignore leaves out."""

    @classmethod
    def open(cls, folder: Path, *, bounds: tree.Bounds = tree.OURS) -> Context:
        """What is in a folder; raises BadInput for a .dockerignore that cannot be read, and as `tree.walk`."""
        ignored = _Ignore.read(folder)
        found = (entry for entry in tree.walk(folder, bounds=bounds) if entry.path != ".")
        return cls(folder, {entry.path: entry for entry in found if not ignored.leaves_out(entry.path)})

    def placed(self, step: Copy, file: Path | str | None = None) -> tuple[Placed, ...]:
        """What a COPY puts where, folders before what is in them; raises BadInput for a source that is missing or outside."""
        place = Place(file, step.line)
        found = [one for source in step.sources for one in self._matching(source, place)]
        into = step.into or len(found) > 1
        out: list[Placed] = []
        for path, entry in found:
            if entry is None or entry.kind == "folder":
                out += self._below(path, step, place)
            else:
                name = posixpath.join(step.target, posixpath.basename(path)) if into else step.target
                out.append(_placed(entry, name, step, place, loose=not into))
        return tuple(out)

    def _matching(self, source: str, place: Place) -> Iterator[tuple[str, tree.Entry | None]]:
        """Path and entry of what a source names; the whole context has no entry."""
        parts = [part for part in source.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise place.refuse(f"COPY {source[:80]} leaves the build context", hint="put the file beside the Dockerfile")
        if not parts:
            yield "", None
            return
        wanted = _compiled("/".join(_component(part) for part in parts), source, place)
        found = [(path, entry) for path, entry in self.entries.items() if wanted.fullmatch(path)]
        if not found:
            raise place.refuse(
                f"there is no {source[:80]!r} in the build context",
                hint=f"put it into {self.folder.name}/, or look into .dockerignore",
            )
        for path, entry in found:
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
    """The patterns of a .dockerignore: the last that matches a path, or a folder above it, decides."""

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
            if any(rule.fullmatch(one) for one in above):
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
        raise place.refuse(f"{written[:80]!r} is not a pattern", hint="put \\ before a [ that is meant as itself") from None


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
