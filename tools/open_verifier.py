"""Opens a service's newest epoch in the second verifier, as a reader's browser does, and keeps a picture of its verdict.

    python tools/open_verifier.py http://127.0.0.1:8400/my-season/ LOG-KEY verified.png

It says what the page says. Without Chromium it says in one line how to see the same, and that is no failure.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import urllib.request
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LONGEST = 120_000
"""Milliseconds; far more than a small epoch needs."""


def address_of(service: str) -> str:
    """The link by which the epoch's page opens the verifier with the epoch's bundle."""
    page = urljoin(service, "epoch.html")
    with urllib.request.urlopen(page, timeout=60) as answer:
        match = re.search(r'href="([^"]*verifier/index\.html#[^"]*/bundle)"', answer.read().decode())
    if match is None:
        raise SystemExit(f"{page} has no link to the verifier")
    return urljoin(page, unescape(match[1]))


def browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name)) is not None), None)


def look(program: str, address: str, key: str, picture: Path) -> str:
    """The page's verdict after a check with this key; its picture is in the file."""
    from playwright.sync_api import sync_playwright

    # A browser that root starts, such as in a container, has no sandbox of its own.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=arguments)
        page = opened.new_page(viewport={"width": 1000, "height": 1200})
        page.goto(address)
        page.wait_for_selector("#verdict:not([hidden])", timeout=LONGEST)
        page.fill("#key", key)
        page.click("#again")
        page.wait_for_function(
            "() => !document.querySelector('#verdict').hidden && !/No key was given/.test(document.body.innerText)",
            timeout=LONGEST,
        )
        page.screenshot(path=picture)
        verdict = page.inner_text("#h-verdict")
        opened.close()
    return verdict


def main(service: str, key: str, picture: str) -> int:
    address, program = address_of(service), browser()
    if program is None:
        print(f"No Chromium is here. While it serves, a browser shows the check:\n  {address}")
        return 0
    verdict = look(program, address, key, Path(picture))
    print(f"Chromium ({picture}): {verdict}")
    return 0 if verdict.startswith("Verified") else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
