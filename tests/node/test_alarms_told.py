"""Alarms are told once when they begin and once when they are over: by real commands, to a real server, over kills."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import disks
from assay.cli.telling import telling_of
from assay.errors import BadInput
from assay.node import carriers, herald, status
from assay.node.alarms import FREE
from assay.node.herald import Herald, Telling
from assay.publish.faces import page_text, time_text
from cli_kit import output, run

TASK = {"uncalibrated": ["t3: its tests fail; mend its tests"]}
"""What a round notes of a task."""


class Hook:
    """A server to which alarms are posted. status: what it answers."""

    def __init__(self) -> None:
        self.came, self.status = list[dict[str, Any]](), 200
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if hook.status == 200:
                    hook.came.append(json.loads(body))
                self.send_response(hook.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/secret-path"

    @property
    def events(self) -> list[str]:
        return [f"{row['event']} {row['code']}" for row in self.came]


@pytest.fixture
def hook() -> Iterator[Hook]:
    receiver = Hook()
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.server.shutdown()
        thread.join()
        receiver.server.server_close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder of a node that ended between two rounds, with nothing wrong."""
    folder = tmp_path / "arena"
    status.note(folder, once=True, url="http://127.0.0.1:1/small", epoch=3, settled=2)
    return folder


def noting(place: Path) -> carriers.Command:
    """A command that adds what it is given to a file."""
    script = place.parent / "note.sh"
    script.write_text(f"cat >> {place.parent}/told\n")
    return carriers.command(f"sh {script}")


def noted(place: Path) -> list[dict[str, Any]]:
    file = place.parent / "told"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_an_alarm_is_told_once_by_each_way_and_not_again_after_a_restart(place: Path, hook: Hook) -> None:
    telling = Telling((noting(place), carriers.webhook(hook.url)))
    lines: list[str] = []
    Herald(place, telling, lines.append).look()
    assert (noted(place), hook.came) == ([], [])
    status.note(place, **TASK)
    first = Herald(place, telling, lines.append)
    first.look()
    first.look()
    (row,) = hook.came
    assert noted(place) == [row]
    assert {name: row[name] for name in ("event", "code", "about", "node", "role")} == {
        "event": "began", "code": "task-uncalibrated", "about": "t3", "node": "arena", "role": "validator",
    }  # fmt: skip
    assert row["text"].endswith("machine: t3: its tests fail. What to do: mend its tests.")
    again = Herald(place, telling, lines.append)
    again.look()
    assert len(hook.came) == 1, "what stands on the disk was told"
    since = status.read_status(place).alarms[0][1]
    status.note(place, uncalibrated=[])
    again.look()
    assert (
        hook.events
        == [row["event"] + " " + row["code"] for row in noted(place)]
        == [
            "began task-uncalibrated",
            "over task-uncalibrated",
        ]
    )
    assert hook.came[-1]["since"] == time_text(since)
    assert status.read_status(place).alarms == ()
    assert [line.partition(":")[0] for line in lines] == ["alarm", "over"]


def test_a_webhook_that_is_away_is_an_alarm_and_gets_everything_later(
    place: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(herald, "FIRST_PAUSE", 0.0)
    hook.status = 503
    telling = Telling((noting(place), carriers.webhook(hook.url)))
    status.note(place, **TASK, missing=["m1 t1 1: it erred"])
    Herald(place, telling).look()
    Herald(place, telling).look()  # after a restart the rest is still to be told
    wrong = status.read_status(place).wrong
    assert any("alarms could not be told by --webhook: 127.0.0.1 answers with status 503" in line for line in wrong)
    assert "secret-path" not in (place / "node" / "status.json").read_text() + " ".join(wrong)
    assert [row["code"] for row in noted(place)] == ["result-missing", "task-uncalibrated", "not-told"]
    status.note(place, missing=[])
    last = Herald(place, telling)
    last.look()
    hook.status = 200
    for _ in range(3):
        last.look()
    assert hook.events == ["began task-uncalibrated"], "what is over before it was told is not told"
    assert [f"{row['event']} {row['code']}" for row in noted(place)[3:]] == ["over result-missing", "over not-told"]
    assert len(status.read_status(place).alarms) == 1


def test_a_command_that_fails_or_hangs_is_killed_with_its_group_and_named(place: Path, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    script = tmp_path / "hangs.sh"
    script.write_text(f"sh -c 'echo $$ > {alive}; sleep 300' &\nwait\n")
    hangs = carriers.Command(("sh", str(script)), seconds=5.0)
    assert hangs.carry({}) == "sh took more than 5 seconds, and was killed"
    pid = int(alive.read_text())
    end = time.monotonic() + 60
    while os.path.exists(f"/proc/{pid}") and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < end, "what it started lives on"
        time.sleep(0.02)
    assert carriers.Command(("sh", "-c", "printf 'no\\033 mail' >&2; exit 3")).carry({}) == "sh ended with 3: no\\x1b mail"
    gone = tmp_path / "gone"
    gone.write_text("#!/bin/sh\n")
    gone.chmod(0o700)
    once = carriers.command(str(gone))
    gone.unlink()
    assert once.carry({}).endswith("cannot be run (No such file or directory)")
    status.note(place, **TASK)
    telling = Telling((carriers.Command(("false",)),))
    first = Herald(place, telling)
    first.look()
    first.look()
    assert any("--on-alarm: false ended with 1" in line for line in status.read_status(place).wrong)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--on-alarm", "no-such-program-anywhere"), "names no program"),
        (("--on-alarm", ""), "names no program"),
        (("--on-alarm", "'open"), "is no command"),
        (("--webhook", "ftp://h/x"), "is not an address"),
        (("--webhook", "https://[bad/x"), "is not an address"),
        (("--webhook", "http://hooks.example.org/x"), "without TLS"),
        (("--page", "/no/such/folder/x.html"), "its folder is not there"),
    ],
)
def test_what_cannot_tell_is_refused_before_anything_is_done(tmp_path: Path, options: tuple[str, str], what: str) -> None:
    words = ("node", "validator", tmp_path / "new", "--url", "http://127.0.0.1:1/small", "--key", "val-1")
    assert what in run(*words, *options, code=2, columns=10_000).stderr
    assert not (tmp_path / "new").exists()
    assert telling_of(tmp_path, None, "http://hooks.example.org/x", True, None, None).carriers[0].name == "--webhook"
    assert carriers.webhook("http://localhost:1/x").url == "http://localhost:1/x"


def test_page_and_metrics_show_what_stands_where_they_are_asked_for(place: Path, tmp_path: Path) -> None:
    status.note(place, uncalibrated=["<b>t3</b>: <script>; mend it"], waits="A new set waits.")
    Herald(place, Telling()).look()
    page, prom = (place / "node" / f"status.{suffix}" for suffix in ("html", "prom"))
    text = page.read_text()
    assert "&lt;b&gt;t3&lt;/b&gt;" in text
    assert "<script" not in text
    assert 'role="alert"' in text
    assert 'assay_node_alarm{role="validator",code="task-uncalibrated"} 1' in prom.read_text()
    assert "t3" not in prom.read_text(), "a label has nothing that a stranger chose"
    status.note(place, uncalibrated=[], waits=None)
    telling = telling_of(place, None, None, False, tmp_path / "a.html", tmp_path / "a.prom")
    Herald(place, telling).look()
    assert "All is well." in (tmp_path / "a.html").read_text()
    assert 'assay_node_alarm{role="validator",code="task-uncalibrated"} 0' in (tmp_path / "a.prom").read_text()
    assert telling_of(place, None, None, False, tmp_path / "a.html", tmp_path / "a.prom") == telling
    (tmp_path / "a.prom").write_text("somebody's")
    with pytest.raises(BadInput, match="no watch has written it"):
        telling_of(place, None, None, False, None, tmp_path / "a.prom")


def test_a_disk_that_fills_is_told_and_is_over_when_there_is_room(tmp_path: Path, hook: Hook) -> None:
    with disks.mounted(tmp_path / "disk", str(FREE + 2**23)) as disk:
        place = disk / "arena"
        status.note(place, once=True)
        teller = Herald(place, Telling((carriers.webhook(hook.url),)))
        teller.look()
        (disk / "much").write_bytes(bytes(2**24))
        teller.look()
        assert "the disk is almost full: 1015 MiB are free" in run("node", "status", place, code=1, columns=200).stdout
        (disk / "much").unlink()
        teller.look()
        assert hook.events == ["began disk", "over disk"]
        assert "nothing wrong" in output("node", "status", place)


@contextmanager
def waiting_node(place: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A node whose service is away, so that it only waits."""
    command = [sys.executable, "-m", "assay", "node", "validator", str(place), "--url", "http://127.0.0.1:9/small"]
    with place.with_suffix(".out").open("ab") as out:
        process = subprocess.Popen([*command, "--key", "val-1", *options], stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(happened: Any, what: str) -> None:
    end = time.monotonic() + 90
    while not happened():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.full
def test_a_node_that_is_killed_is_told_and_one_that_is_stopped_is_not(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    import node_kit

    monkeypatch.setenv("ASSAY_KEYS", node_kit.keys_in(tmp_path / "keys"))
    place = tmp_path / "arena"
    page = place / "node" / "status.html"
    with waiting_node(place, "--webhook", hook.url) as first:
        until(page.exists, "a page")
        first.send_signal(signal.SIGKILL)
        until(lambda: hook.events == ["began not-running"], "it was killed")
        assert "the node does not run" in page.read_text()
    with waiting_node(place, "--webhook", hook.url) as second:
        until(lambda: hook.events[1:] == ["over not-running"], "it runs again")
        second.terminate()
        assert second.wait(90) == 0
    until(lambda: ": ended;" in page.read_text(), "the last page")
    assert len(hook.came) == 2
    with waiting_node(place, "--webhook", hook.url):
        until(lambda: ": ended;" not in page.read_text(), "a page of the new node")
        assert len(hook.came) == 2


def test_what_each_watch_saw_is_kept_beside_the_others(tmp_path: Path) -> None:
    status.note(tmp_path, role="operator", publishes=["one", "two"], targets="not an object")
    for name, published in (("one", 1), ("two", 1), ("former", 1), ("one", 2)):
        status.write_target(tmp_path, name, {"published": published, "waiting": None, "alarms": [], "at": status.now_text()})
    seen = status.look(tmp_path)
    assert [(row["target"], row["published"]) for row in seen.targets] == [("one", 2), ("two", 1)]
    assert seen.document["targets"] == list(seen.targets)


def test_the_page_has_the_colours_and_sizes_of_the_competitions_pages() -> None:
    """The page of a node names no other file, so it has a copy of them."""
    style = (resources.files("assay.serve") / "static" / "style.css").read_text("utf-8")
    pages, page = ("".join(css.split()) for css in (style, page_text("node", "node", 1, (), 0, "")))
    for root in (r":root\{([^}]*)", r"prefers-color-scheme:dark\)\{:root\{([^}]*)"):
        copied, given = (dict(re.findall(r"(--[\w-]+):([^;]+)", re.findall(root, css)[0])) for css in (page, pages))
        assert len(copied) > 10
        assert copied == {name: given.get(name) for name in copied}
    assert set(re.findall(r"font-size:([^;}]+)", page)) <= set(re.findall(r"--s\d:([^;]+)", pages))
    assert re.findall(r"--sans:([^;]+)", pages)[0] in page
