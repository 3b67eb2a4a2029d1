"""The live page in a browser: an event brings what is new, and the reader stays where they are."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import small_folder
from assay.serve.live import Judging, LiveState
from assay.serve.pages import assets, live_page
from assay.serve.season import Season, read

CHROMIUM = shutil.which("chromium")
NOW = datetime(2026, 11, 2, 10, tzinfo=UTC)


class Served(ThreadingHTTPServer):
    """A page that changes, and events that say so."""

    daemon_threads = True

    def __init__(self, season: Season) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.season, self.files = season, dict(assets())
        self.done, self.fetched = 2, 0
        self.news, self.ended = threading.Event(), threading.Event()

    def page(self) -> bytes:
        """The live page as it is now."""
        state = LiveState(4, tuple(
            Judging("v1", who, f"s{number}", "t1", self.done, 8, NOW - timedelta(minutes=2), NOW)
            for number, who in ((1, "m1"), (2, "m2"))
        ), 3600, ("m1",))  # fmt: skip
        return live_page(self.season.scheme, self.season, state, "events", NOW)


class _Handler(BaseHTTPRequestHandler):
    server: Served

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        if name == "events":
            self._events()
            return
        body = self.server.page() if name == "live.html" else self.server.files.get(name)
        self.server.fetched += name == "live.html"
        kinds = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "woff2": "font/woff2"}
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", kinds.get(name.rpartition(".")[2], "text/plain"))
        self.end_headers()
        self.wfile.write(body or b"")

    def _events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        while not self.server.ended.is_set():
            if self.server.news.wait(0.1):
                self.server.news.clear()
                self.wfile.write(b"event: heartbeat\ndata: 1\n\n")
                self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    evidence = small_folder.lines(
        [
            small_folder.record(validator=validator, participant=who, submission=submission)
            for validator in ("v1", "v2", "v3")
            for who, submission in (("m1", "s1"), ("m2", "s2"))
        ]
    )
    server = Served(read(small_folder.make(tmp_path / "small", evidence=evidence)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.ended.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.slow
def test_an_event_brings_the_page_up_to_date_and_leaves_the_focus_where_it_was(served: Served) -> None:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)
    address = f"http://127.0.0.1:{served.server_address[1]}/live.html"
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(address[:-9]) else troubles.append(request.url))
        page.goto(address)
        expect(page.get_by_text("2 of 8")).to_have_count(2)
        expect(page.locator("[data-clock]")).to_contain_text("in ")
        expect(page.get_by_text("Reload for what is new.")).to_be_hidden()
        page.locator("table a", has_text="m2").focus()
        served.done = 3
        served.news.set()
        expect(page.get_by_text("3 of 8")).to_have_count(2)
        assert page.evaluate("document.activeElement.textContent") == "m2"
        assert page.evaluate("document.activeElement.closest('table') !== null")
        expect(page.locator("[data-clock]")).to_contain_text("in ")
        served.done = 4
        served.news.set()
        expect(page.get_by_text("4 of 8")).to_have_count(2)
        assert page.evaluate("document.activeElement.textContent") == "m2"
        assert served.fetched == 3
        expect(page.get_by_text("Reload for what is new.")).to_be_hidden()
        assert troubles == []
        browser.close()


@pytest.mark.full
@pytest.mark.slow
def test_without_javascript_the_page_reads_the_same_and_says_to_reload(served: Served) -> None:
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(java_script_enabled=False).new_page()
        page.goto(f"http://127.0.0.1:{served.server_address[1]}/live.html")
        expect(page.get_by_text("2 of 8")).to_have_count(2)
        expect(page.get_by_text("Reload for what is new.")).to_be_visible()
        expect(page.locator("[data-clock]")).to_have_text("11:00")
        browser.close()
