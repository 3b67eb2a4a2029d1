"""The verifier's page in Chromium: the verdicts of Node, every conformance case, and nothing fetched from elsewhere."""

from __future__ import annotations

import functools
import gzip
import http.server
import json
import re
import shutil
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import ledger_kit
from pages_kit import ARGUMENTS, AXE, CHROMIUM
from verifier_kit import CONFORMANCE, VERIFIER

KEY = str(ledger_kit.KEY)
FILES = [path for path in sorted(CONFORMANCE.glob("*.json")) if not path.name.endswith(".schema.json")]
BARRIERS = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.target.join(" ")).slice(0, 3).join("; ")}`)"""


class Served(http.server.SimpleHTTPRequestHandler):
    """The folder as any web server gives it, and what is put beside it."""

    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript"}  # noqa: RUF012

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ledger_kit.two_epochs(tmp_path_factory)


@pytest.fixture(scope="module")
def site(two: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The verifier on a server of loopback, with the bundle of an epoch as a service offers it."""
    place = tmp_path_factory.mktemp("site")
    for name in ("index.html", "page", "lib", "vendor"):
        (place / name).symlink_to(VERIFIER / name)
    with tarfile.open(place / "bundle", "w") as archive:
        archive.add(two / "epoch-4", arcname=".")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Served, directory=str(place)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.fail("chromium is not installed: `tools/system tests` installs it")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser, site: str) -> Iterator[Page]:
    """The page; a test fails if anything goes wrong in it, or to another place."""
    opened = browser.new_page()
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    opened.on("request", lambda request: wrong.append(request.url) if not request.url.startswith((site, "data:")) else None)
    opened.goto(f"{site}index.html")
    yield opened
    opened.close()
    assert wrong == []


def checked(page: Page, what: Path, key: str = KEY) -> str:
    """What the page says of a folder or a file."""
    page.fill("#key", key)
    page.set_input_files("#folder" if what.is_dir() else "#file", str(what))
    page.wait_for_selector("#verdict:not([hidden])", timeout=120_000)
    return page.inner_text("#h-verdict")


def test_a_bundle_is_verified_explained_and_asked_what_if(page: Page, site: str, two: Path) -> None:
    fetched = set[str]()
    page.context.on("request", lambda request: fetched.add(request.url.removeprefix(site)))
    page.goto(f"{site}index.html?again")
    assert checked(page, two / "epoch-4") == "Verified, and computed again to the bit"
    settlement = json.loads((two / "epoch-4" / "settlement.json").read_text(encoding="utf-8"))
    board = page.inner_text("#board")
    for row in settlement["weights"]:
        assert str(row["u16"]) in board
    files = {address.partition("?")[0] for address in fetched if not address.startswith("data:")}
    assert {"index.html", "page/worker.js", "lib/epoch.js"} <= files
    # All that a reader of a plain bundle loads, as it is and compressed as services send it. The rest is loaded when it is
    # needed: what others wrote, other kinds, what is made for many records, and what a reader asks for.
    later = (
        "vendor/",
        "lib/bulk.js",
        "lib/sha4.js",
        "lib/explain.js",
        "lib/whatif.js",
        "page/whatif.js",
        "lib/audit",
        "lib/rubric.js",
        "lib/panel.js",
        "lib/powers.js",
        "lib/payout.js",
        "lib/hotkeys.js",
        "page/fault.js",
    )
    assert not any(address.startswith(later) for address in files)
    contents = [(VERIFIER / address).read_bytes() for address in files]
    assert sum(map(len, contents)) <= 200_000
    assert sum(len(gzip.compress(content)) for content in contents) <= 70_000
    page.click("#why summary")
    page.wait_for_selector("#told h3")
    page.click("#try summary")
    page.select_option("#who", settlement["weights"][-1]["participant"])
    page.wait_for_function(
        "who => document.querySelector('#told .headline').textContent.startsWith(who)",
        arg=settlement["weights"][-1]["participant"],
    )
    assert str(settlement["weights"][-1]["u16"]) in page.inner_text("#told")
    page.wait_for_selector("#other tbody tr")
    assert page.inner_text("#moved").startswith("As settled")
    page.fill("#w-cap", "0.1")
    page.wait_for_function("() => document.querySelector('#moved').textContent.startsWith('What if')")
    assert "Not settled" in page.inner_text("#moved")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if AXE.exists():
        page.evaluate(AXE.read_text(encoding="utf-8"))
        assert page.evaluate(BARRIERS) == []


def loaded(*roots: str) -> set[Path]:
    """These files of the verifier, and all that they import at once."""
    files = set[Path]()
    waiting = [VERIFIER / root for root in roots]
    while waiting:
        file = waiting.pop()
        if file not in files:
            files.add(file)
            names = re.findall(r'^(?:import|export)[^"\n]*?"(\.[^"]+)";', file.read_text(encoding="utf-8"), re.MULTILINE)
            waiting += [(file.parent / name).resolve() for name in names]
    return files


def test_many_records_take_no_more_than_a_plain_bundle_may() -> None:
    """The first epoch of a log: for a later one, what reads the settlement before comes on top."""
    files = loaded("index.html", "page/style.css", "page/page.js", "page/worker.js", "lib/epoch.js", "lib/bulk.js", "lib/sha4.js")
    assert VERIFIER / "lib" / "settle.js" in files
    assert sum(file.stat().st_size for file in files) <= 200_000


def test_a_difference_is_red_and_named(page: Page, two: Path, tmp_path: Path) -> None:
    place = tmp_path / "changed"
    shutil.copytree(two / "epoch-3", place)
    settlement = json.loads((place / "settlement.json").read_text(encoding="utf-8"))
    settlement["weights"][0]["u16"] -= 1
    (place / "settlement.json").write_text(json.dumps(settlement), encoding="utf-8")
    assert checked(page, place) == "Not verified"
    text = page.inner_text("#difference")
    assert "weights[0].u16" in text
    assert settlement["weights"][0]["participant"] in text
    assert str(settlement["weights"][0]["u16"]) in text
    assert str(settlement["weights"][0]["u16"] + 1) in text
    assert page.locator("#numbers").is_hidden()


def test_receipts_proofs_and_other_keys(page: Page, two: Path, tmp_path: Path) -> None:
    assert checked(page, two / "4.receipt") == "Verified"
    assert checked(page, two / "4.proof") == "Verified"
    assert "m1" in page.inner_text("#about")
    assert checked(page, two / "4.receipt", KEY.replace("small", "large")) == "Not verified"
    shutil.make_archive(str(tmp_path / "epoch-3"), "zip", two, "epoch-3")
    assert checked(page, tmp_path / "epoch-3.zip") == "Verified, and computed again to the bit"
    assert checked(page, two / "columns-4") == "Verified, and computed again to the bit"
    hostile = tmp_path / "hostile.receipt"
    hostile.write_text('{"schema":"<img src=x onerror=alert(1)>","a":"\\u202e"}', encoding="utf-8")
    assert checked(page, hostile) == "Not verified"


def test_a_link_opens_what_the_service_offers(page: Page, site: str) -> None:
    page.goto(f"{site}index.html#bundle")
    page.wait_for_selector("#verdict:not([hidden])", timeout=120_000)
    assert page.inner_text("#h-verdict") == "Verified, and computed again to the bit"
    assert "No key was given" in page.inner_text("#unproven")


@pytest.mark.full
def test_conformance_cases_pass_in_the_browser(page: Page) -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        counts = page.evaluate("text => assayCases(text)", text)
        assert (counts["wrong"], counts["unsupported"]) == ([], 0), path.name
        assert counts["right"] == len(json.loads(text)["cases"])
