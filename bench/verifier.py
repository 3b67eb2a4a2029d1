"""The time of the second verifier in Chromium to check an exported epoch, from its files to the table of numbers.

    python -m bench verifier            scores that were given, 64 validators × 256 participants; 64 × 16 × 89 tests
    python -m bench verifier --full     64 × 256 × 89 tests: 1,458,176 records

`page` is what the page says that it took, by its own clock; `CPU` is the CPU time of the browser's process for the page, of all
its threads; `assay.verify` is Python's verifier with the same files, in the same run. The last lines say what the browser
fetched, as it is and compressed as services send it. The aims: an epoch of scores within 1 s, one of 64 × 256 × 89 tests within
10 s.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import http.server
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

import assay
from assay.ledger import evidence
from bench import epoch

BUILD = Path(__file__).parents[1] / "build" / "bench"
VERIFIER = Path(__file__).parents[1] / "verifier"
CHROMIUM = "/usr/bin/chromium"
VALIDATORS, TURNS = 64, 3
LONGEST = 600_000
MANY = 200_000
"""From so many records on, Python's verifier, which takes a minute, runs once."""
TICKS = os.sysconf("SC_CLK_TCK")


class Files(http.server.SimpleHTTPRequestHandler):
    """The verifier's folder, as any web server gives it."""

    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript"}  # noqa: RUF012

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=str(VERIFIER)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def exported(folder: Path, kind: str, participants: int) -> tuple[Path, str, int]:
    """A bundle with its evidence in JSON lines, the log's key, and the number of records."""
    built = epoch.make(folder, VALIDATORS, participants, kind)
    with built.parquet.with_suffix(".jsonl").open("wb") as out:
        for seqs, bodies, _ in evidence.read_parquet(built.parquet):
            out.writelines(body[:-1] + b',"seq":%d}\n' % seq for seq, body in zip(seqs, bodies, strict=True))
    built.parquet.unlink()
    return folder, str(built.key), built.records


def renderers() -> dict[int, float]:
    """The processes of this program's browser that show pages, with their CPU seconds so far."""
    parents, seconds = dict[int, int](), dict[int, float]()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            shows = b"--type=renderer" in (place / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        parents[int(place.name)] = int(fields[1])
        if shows:
            seconds[int(place.name)] = (int(fields[11]) + int(fields[12])) / TICKS
    return {pid: taken for pid, taken in seconds.items() if _is_mine(pid, parents)}


def _is_mine(pid: int, parents: dict[int, int]) -> bool:
    while pid > 1 and pid != os.getpid():
        pid = parents.get(pid, 0)
    return pid == os.getpid()


def turn(browser: Browser, site: str, bundle: Path, key: str) -> tuple[float, float, list[str]]:
    """Seconds by the page's clock, CPU seconds of its process, and what was fetched."""
    fetched: list[str] = []
    context = browser.new_context()
    page = context.new_page()
    page.on("request", lambda request: fetched.append(request.url))
    context.on("request", lambda request: fetched.append(request.url))
    page.goto(f"{site}index.html")
    page.fill("#key", key)
    before = renderers()
    page.set_input_files("#folder", str(bundle))
    page.wait_for_selector("#verdict:not([hidden])", timeout=LONGEST)
    cpu = sum(seconds - before.get(pid, 0.0) for pid, seconds in renderers().items())
    verdict = page.inner_text("#h-verdict")
    if verdict != "Verified, and computed again to the bit":
        raise SystemExit(f"the page says {verdict!r}: {page.inner_text('#difference')}")
    taken = re.search(r"It took ([0-9.]+) s", page.inner_text("#unproven"))
    assert taken is not None
    context.close()
    return float(taken[1]), cpu, fetched


def python(folder: Path, key: str) -> float:
    """CPU seconds of `assay.verify` with the same files."""
    before = sum(os.times()[:2])
    assay.verify(folder, key=key)
    return sum(os.times()[:2]) - before


def measure(browser: Browser, site: str, bundle: tuple[Path, str, int], name: str, aim: str) -> list[str]:
    folder, key, records = bundle
    turns = [turn(browser, site, folder, key) for _ in range(TURNS)]
    seconds, cpu = min(measured[0] for measured in turns), min(measured[1] for measured in turns)
    compared = min(python(folder, key) for _ in range(TURNS if records < MANY else 1))
    print(
        f"{name:22} {records:>9,} records: page {seconds:5.1f} s{aim}, CPU {cpu:5.2f} s; assay.verify CPU {compared:5.2f} s",
        flush=True,
    )
    return turns[0][2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="1,458,176 records")
    participants = 256 if parser.parse_args().full else 16
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="verifier-", dir=BUILD) as place, served() as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        given = exported(Path(place) / "given", "given", 256)
        measure(browser, site, given, "given, 64 × 256", " (aim: at most 1)")
        tests = exported(Path(place) / "tests", "tests", participants)
        aim = " (aim: at most 10)" if participants == 256 else ""
        many = measure(browser, site, tests, f"tests, 64 × {participants} × 89", aim)
        plain = turn(browser, site, *exported(Path(place) / "plain", "given", 8)[:2])[2]
        browser.close()
    loaded("a plain bundle", site, plain, " (aim: at most 200,000)")
    loaded("many records", site, many)


def loaded(what: str, site: str, fetched: list[str], aim: str = "") -> None:
    """Print how much of the page was fetched for a bundle."""
    files = sorted({address.removeprefix(site) for address in fetched if address.startswith(site)})
    contents = [(VERIFIER / name).read_bytes() for name in files]
    whole, packed = sum(map(len, contents)), sum(len(gzip.compress(content)) for content in contents)
    print(f"loaded for {what}: {len(files)} files, {whole:,} bytes{aim}, {packed:,} compressed", flush=True)


if __name__ == "__main__":
    main()
