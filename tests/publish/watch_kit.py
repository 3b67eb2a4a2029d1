"""A watch as a program of its own, and what it says; pages and metrics read as others read them."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

Json = dict[str, Any]
WAIT = 120
"""Seconds after which a test gives up; nothing is as slow as this."""
VOID = {"meta", "br"}
SAMPLE = re.compile(r'(assay_publish_[a-z_]+)\{target="local"((?:,[a-z]+="[^"\\\n]*")*)\} (\S+)')


class Program:
    """`assay publish --watch`, told to speak JSON."""

    def __init__(self, place: Path, *words: str | Path, yes: bool = True, every: float = 0.2) -> None:
        command = [sys.executable, "-m", "assay", "publish", str(place), "--to", "local", "--watch", "--json"]
        command += [*(["--yes"] if yes else []), "--every", str(every), *map(str, words)]
        if os.path.exists("/usr/bin/setpriv"):  # it does not outlive a test run that was killed
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.events: list[Json] = []
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def until(self, wanted: Callable[[Json], bool]) -> Json:
        """The next thing it says that is wanted."""
        while True:
            try:
                line = self._lines.get(timeout=WAIT)
            except queue.Empty:
                raise AssertionError(f"it says nothing more: {self.events}") from None
            if not line:
                assert self.process.stderr is not None
                raise AssertionError(f"it ended: {self.process.stderr.read().decode()}\n{self.events}")
            self.events.append(json.loads(line))
            if wanted(self.events[-1]):
                return self.events[-1]

    def event(self, name: str) -> Json:
        return self.until(lambda event: bool(event["event"] == name))

    def outcome(self, state: str) -> Json:
        return self.until(lambda event: bool(event.get("outcome", {}).get("state") == state))

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; its exit code. What it printed last is in `events`."""
        self.process.send_signal(number)
        code = self.process.wait(WAIT)
        self._reader.join(WAIT)
        while line := self._lines.get(timeout=WAIT):
            self.events.append(json.loads(line))
        return code


@contextmanager
def watching(place: Path, *words: str | Path, **options: Any) -> Iterator[Program]:
    program = Program(place, *words, **options)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.wait()
        for stream in (program.process.stdout, program.process.stderr):
            assert stream is not None
            program._reader.join(WAIT)
            stream.close()


def metrics(text: str) -> dict[str, float]:
    """Name and labels but the target → value, of a file in Prometheus' text format; strict about what is in it."""
    assert text.endswith("\n")
    values: dict[str, float] = {}
    family = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            continue
        if line.startswith("# TYPE "):
            assert line.split(" ")[2:] in ([family, "gauge"], [family, "counter"]), line
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample is not None, line
        assert sample[1] == family
        name = sample[1].removeprefix("assay_publish_") + sample[2].replace(",", " ", 1).replace('"', "")
        assert name not in values, line
        values[name] = float(sample[3])
    return values


class StatusPage(HTMLParser):
    """A page, read; every element must be closed, and none may run or load anything."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text, self.alarms = "", 0
        self.metas: list[Mapping[str, str | None]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        assert tag not in {"script", "img", "iframe", "link", "object", "form"}, tag
        assert not any(name.startswith("on") or name in {"src", "href"} for name in named), attrs
        self.alarms += named.get("role") == "alert"
        if tag == "meta":
            self.metas.append(named)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
