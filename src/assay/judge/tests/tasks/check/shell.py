"""A shell script as a list of the commands in it: a reading good enough to find suspicious ones, not a shell."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Command", "Script", "read", "string"]

_HEREDOC = re.compile(r"<<(-?)\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_KEYWORDS = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "time", "{", "}", "fi", "done", "esac"})
_JOINED = 200
"""Lines that one quoted string may have."""
_WRAPPERS = frozenset({"command", "exec", "nice", "nohup", "sudo", "stdbuf", "xargs", "builtin"})
_OPTIONS = {
    "nice": ("-n",),
    "stdbuf": ("-i", "-o", "-e"),
    "sudo": ("-u", "-g"),
    "xargs": ("-a", "-d", "-I", "-L", "-n", "-P", "-s"),
}
"""Those of them that have options, and which of these take a word."""


@dataclass(frozen=True)
class Command:
    """One simple command."""

    line: int
    words: tuple[str, ...]
    """Without keywords, redirections and the likes of `exec` and `timeout 5` before it."""
    cwd: str
    """Where it runs, as far as can be told."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables set for it alone, or for the script from here on if there are no words."""
    after: str = ""
    """The operator behind it: `||`, `|`, `;` …"""
    redirected: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The program, without its folder."""
        return posixpath.basename(self.words[0]) if self.words else ""

    def path(self, word: str) -> str:
        """A word as an absolute path; `?` where that cannot be told, as with a variable that the script does not set."""
        if word.startswith(("$", "~", "`")):
            return "?"
        return posixpath.normpath(posixpath.join(self.cwd, word))


@dataclass(frozen=True)
class Script:
    """A script."""

    text: str
    commands: tuple[Command, ...]

    @property
    def strict(self) -> bool:
        """Whether the first failing command ends it: `set -e`."""
        first = self.text.splitlines()[:1]
        if first and first[0].startswith("#!") and re.search(r"\s-[a-z]*e", first[0]):
            return True
        return any(
            one.name == "set" and any(re.fullmatch(r"-[a-z]*e[a-z]*|errexit", word) for word in one.words[1:])
            for one in self.commands
        )


def read(text: str, cwd: str) -> Script:
    """The script in a text that is started in a folder."""
    reader = _Reader(cwd)
    return Script(text, tuple(reader.commands(text)))


def string(text: str, cwd: str, line: int) -> tuple[Command, ...]:
    """The commands in a string that something else hands to a shell."""
    return tuple(Command(line, one.words, one.cwd, one.env, one.after, one.redirected) for one in _Reader(cwd).commands(text))


class _Reader:
    def __init__(self, cwd: str) -> None:
        self.cwd = cwd
        self.values: dict[str, str] = {"PWD": cwd}

    def commands(self, text: str) -> Iterator[Command]:
        for number, line in _lines(text):
            for words, after in _simple(_tokens(line)):
                one = self.command(number, words, after)
                if one is not None:
                    yield one

    def command(self, number: int, words: list[str], after: str) -> Command | None:
        plain, redirected = _redirections([self.filled(word) for word in words])
        env: dict[str, str] = {}
        while plain:
            found = _ASSIGNED.fullmatch(plain[0])
            if found:
                env[found[1]] = found[2]
            elif plain[0] not in _KEYWORDS | _WRAPPERS | {"env", "export", "readonly", "local", "declare", "timeout"}:
                break
            elif plain[0] == "timeout":
                plain = plain[1:]
                while plain and plain[0].startswith("-"):
                    plain = plain[2:] if plain[0] in ("-k", "-s") else plain[1:]
            elif plain[0] in _OPTIONS:
                options = _OPTIONS[plain[0]]
                while plain[1:] and plain[1].startswith("-"):
                    plain = plain[1:] if plain[1] not in options else plain[2:]
            elif plain[0] == "env":
                while plain[1:] and plain[1].startswith("-"):
                    plain = plain[1:]
            plain = plain[1:]
        if not plain:
            self.values.update(env)
        if plain[:1] in (["cd"], ["pushd"]) and len(plain) > 1:
            self.cwd = posixpath.normpath(posixpath.join(self.cwd, plain[-1]))
            self.values["PWD"] = self.cwd
        return Command(number, tuple(plain), self.cwd, env, after, redirected) if plain or env else None

    def filled(self, word: str) -> str:
        """A word with the variables that the script itself set; others stay as they are."""
        return re.sub(
            r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^}]*))?\}|([A-Za-z_][A-Za-z0-9_]*))",
            lambda found: self.values.get(found[1] or found[3], found[2] or found[0]),
            word,
        )


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Whole lines with the number they begin at: continued and quoted ones joined, bodies of here-documents left out."""
    rows = text.splitlines()
    at = 0
    while at < len(rows):
        start, line = at + 1, rows[at]
        at += 1
        most = at + _JOINED
        while at < min(len(rows), most) and (_continues(line) or not _closed(line)):
            line = line[:-1] + rows[at] if _continues(line) else f"{line}\n{rows[at]}"
            at += 1
        for mark in _HEREDOC.finditer(line):
            while at < len(rows) and (rows[at].lstrip("\t") if mark[1] else rows[at]) != mark[3]:
                at += 1
            at += 1
        yield start, line


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1 and not line.lstrip().startswith("#")


def _closed(line: str) -> bool:
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return False
    return True


def _tokens(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace = " \t\r"
    lexer.commenters = ""
    lexer.whitespace_split = True
    try:
        found = list(lexer)
    except ValueError:
        found = line.split()
    cut = next((number for number, word in enumerate(found) if word.startswith("#")), len(found))
    return found[:cut]


def _simple(tokens: list[str]) -> Iterator[tuple[list[str], str]]:
    words: list[str] = []
    for token in tokens:
        if token and set(token) <= set(";&|()\n"):
            if words:
                yield words, token
            words = []
        else:
            words.append(token)
    if words:
        yield words, ""


def _redirections(words: list[str]) -> tuple[list[str], tuple[tuple[str, str], ...]]:
    plain: list[str] = []
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(words):
        if words[at] and set(words[at]) <= set("<>&|"):
            found.append((words[at], words[at + 1] if at + 1 < len(words) else ""))
            if plain and plain[-1].isdigit():
                plain.pop()
            at += 2
        else:
            plain.append(words[at])
            at += 1
    return plain, tuple(found)
