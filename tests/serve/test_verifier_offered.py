"""The second verifier as services and reports offer it: its files, their policy, and the link that checks an epoch at once."""

import re
from collections.abc import Iterator
from functools import partial
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

import ledger_kit
from assay.ledger import settling
from assay.serve import report
from assay.serve.pages import verifier_files
from assay.serve.season import read
from pages_kit import ARGUMENTS, CHROMIUM
from service_kit import Running, running

VERIFIER = Path(__file__).parents[2] / "verifier"


def seasoned(place: Path) -> None:
    """Two settled epochs."""
    ledger_kit.ledger_folder(place)
    for epoch in (3, 4):
        ledger_kit.add(place, ledger_kit.records(epoch=epoch))
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, ledger_kit.SIGNER, epoch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ledger_kit.once(tmp_path_factory.mktemp("offered") / "small", ("offered",), seasoned)


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Running]:
    with running(folder) as started:
        yield started


def links(page: str) -> list[str]:
    """The links to the verifier that a page has."""
    return [unescape(link) for link in re.findall(r'href="([^"]*verifier/index\.html#[^"]*)"', page)]


def test_a_service_gives_the_page_with_its_types_and_policy(service: Running) -> None:
    files = dict(verifier_files())
    assert {name for name in files if name.count("/") == 1} == {"verifier/index.html"}
    assert {"verifier/lib/bundle.js", "verifier/page/worker.js", "verifier/vendor/sr25519.js", "verifier/vendor/LICENSE"} <= {
        *files
    }
    assert not any(name.count("/") > 2 or name.endswith((".mjs", "toml.js")) for name in files)
    for name, media in {"index.html": "text/html", "page/worker.js": "text/javascript", "page/style.css": "text/css"}.items():
        answer = service.ask("GET", f"/small/verifier/{name}")
        assert (answer.status, answer.body) == (200, (VERIFIER / name).read_bytes())
        assert answer.headers["content-type"].startswith(media)
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self' 'wasm-unsafe-eval';" in policy
        assert "connect-src 'self';" in policy
        assert "https:" not in policy
    assert "wasm" not in service.ask("GET", "/small/epoch.html").headers["content-security-policy"]
    for name in ("lib/nothing.js", "../epoch.html", "vendor/make.mjs"):
        assert service.ask("GET", f"/small/verifier/{name}").status == 404
    assert links(service.ask("GET", "/small/epoch.html").body.decode()) == ["verifier/index.html#../../v1/small/epochs/4/bundle"]
    assert links(service.ask("GET", "/small/epoch-3/epoch.html").body.decode()) == [
        "../verifier/index.html#../../v1/small/epochs/3/bundle"
    ]


def test_a_click_on_an_epoch_or_a_participant_verifies_it(service: Running) -> None:
    if not CHROMIUM.exists():
        pytest.fail("chromium is not installed: `tools/system tests` installs it")
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        page = browser.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        at_home = (f"{service.address}/", "data:")
        page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(at_home) else None)
        for name, title in {
            "epoch.html": "Verified, and computed again to the bit",
            "epoch-3/epoch.html": "Verified, and computed again to the bit",
            "participant-m1.html": "Verified",
        }.items():
            page.goto(f"{service.address}/small/{name}")
            page.click('a[href*="verifier/index.html#"]')
            page.wait_for_selector("#verdict:not([hidden])", timeout=120_000)
            assert page.inner_text("#h-verdict") == title, (name, page.inner_text("#difference"))
        browser.close()
    assert wrong == []


def test_a_report_has_the_page_and_links_its_receipts(folder: Path, tmp_path: Path) -> None:
    season = read(folder)
    site = tmp_path / "site"
    count = report.write_folder(season, site, earlier=partial(read, folder))
    assert count == sum(file.is_file() for file in site.rglob("*")) - 1
    for page in ("epoch.html", "epoch-3/epoch.html"):
        (link,) = links((site / page).read_text(encoding="utf-8"))
        opened, _, what = link.partition("#")
        place = ((site / page).parent / opened).resolve()
        assert place == site / "verifier" / "index.html"
        assert (place.parent / what).resolve() == (site / page).parent / "epoch.receipt"
        assert (place.parent / what).is_file()
