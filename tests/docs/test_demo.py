"""`make demo`: four screens that fit a terminal, in which the run, the board, the check, the refusal and the service are real."""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from judge_kit import bubblewrap

ROOT = Path(__file__).parents[2]
LINES, COLUMNS = 24, 80
"""Of a terminal, as it opens."""


@pytest.mark.slow
def test_the_demo_is_four_screens(tmp_path: Path) -> None:
    _played(tmp_path, ["all-rounder", "shell-veteran"], of=2, tasks=["csv-to-json", "tidy-names", "word-count"])


@pytest.mark.full
def test_the_demo_of_all_agents_is_four_screens(tmp_path: Path) -> None:
    _played(tmp_path, [], of=6, tasks=[])


def _played(place: Path, agents: list[str], of: int, tasks: list[str]) -> None:
    bubblewrap()
    env = os.environ | {"DEMO_TASKS": " ".join(tasks), "DEMO_PLACE": str(place), "DEMO_PORT": "0"}
    played = subprocess.run(["bash", ROOT / "tools/demo", *agents], env=env, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stderr
    _setting_up, *screens = re.split(r"^== (?=[1-4] of 4)", played.stdout, flags=re.MULTILINE)
    assert [screen[0] for screen in screens] == ["1", "2", "3", "4"]
    assert max(len(screen.rstrip().splitlines()) for screen in screens) <= LINES, played.stdout
    shown = "".join(screens).replace(str(place), "build/demo")  # where it is without DEMO_PLACE
    assert [line for line in shown.splitlines() if len(line) > COLUMNS] == []
    run, board, check, service = screens
    trials = of * (len(tasks) or 10)
    assert len(re.findall(rf"^(?:pass|fail) .*\[\d+/{trials}\]$", run, re.MULTILINE)) == -(-trials // 5), run
    assert run.count("records signed and added to the ledger") == 3
    assert re.search(r"^1 +all-rounder ", board, re.MULTILINE), board
    assert f"shell-veteran is 2nd of {of}" in board
    assert "epoch 1: verified, and computed again" in check
    assert f"One trial of {3 * trials} is changed from fail to pass:" in check
    refusal = check.partition("error: ")[2]
    assert refusal.startswith("evidence: epoch-1/evidence/epoch-1.jsonl: ")
    assert "was changed after" in refusal
    assert len(refusal.strip().splitlines()) <= 3, refusal
    assert "the board answers: 200 · term-challenge" in service
    served = re.search(r"^term-challenge: http://127\.0\.0\.1:(\d+)/term-challenge/$", service, re.MULTILINE)
    assert served
    assert f"assay serve {place}/term-challenge --port {served[1]}\n" in service
    seen = service.replace(str(place), "build/demo")
    assert "\nChromium (build/demo/verified.png): Verified, and computed again to the bit\n" in seen
    assert (place / "verified.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_browser_the_demo_says_how_to_see_it(tmp_path: Path) -> None:
    (tmp_path / "epoch.html").write_text('<a href="verifier/index.html#../../v1/s/epochs/1/bundle">Verify</a>', encoding="utf-8")
    served = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    )
    threading.Thread(target=served.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{served.server_port}/"
        done = subprocess.run(
            [sys.executable, ROOT / "tools/open_verifier.py", address, "key", tmp_path / "seen.png"],
            env={**os.environ, "PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        served.shutdown()
        served.server_close()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].strip() == f"{address}verifier/index.html#../../v1/s/epochs/1/bundle"
    assert not (tmp_path / "seen.png").exists()


def test_the_rest_is_under_a_command_of_its_own() -> None:
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^demo-full:.*\n\t@bash tools/demo-full$", rules, re.MULTILINE)
    assert "make demo-full" in (ROOT / "README.md").read_text(encoding="utf-8")
