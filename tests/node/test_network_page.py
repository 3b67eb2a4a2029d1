"""docs/network.md: a first season on three machines, from the rules to weights that verify, by the page's own commands."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

import node_kit
from assay.node.status import is_working
from judge_kit import bubblewrap
from season_kit import LONG, free_port
from test_docs_machines import ROOT, reference

__all__ = ["reference"]

PAGE = ROOT / "docs" / "network.md"
ADDRESS = "https://assay.example.org"
STARTED, CLOSED = "## One round", "## The first weights"
"""Before the first of these parts the operator's node begins; before the second it has what it needs to close epoch 1."""
EVERY = ('every = "5m"', 'every = "30s"')
"""The page's epoch, and the test's. Epoch 1 stays open until both validators have sent, however slow the machine is."""
OPEN = re.compile(r"(Epoch |assay run arena --validator … --epoch )\d+")
"""The epoch that is open when `pull` is run by hand, after the first has ended: how many have ended depends on the machine."""


@pytest.mark.full
@pytest.mark.slow
def test_the_page_leads_from_the_rules_to_weights_that_verify(reference: ModuleType, tmp_path: Path) -> None:
    """If it fails, read what changed: the page is written as it should be beside the operator's folder."""
    bubblewrap()
    page = PAGE.read_text(encoding="utf-8")
    assert all(page.count(sentence) == 1 for sentence in (EVERY[0], STARTED, CLOSED))
    port, place = free_port(), tmp_path / "operator"
    here = f"http://127.0.0.1:{port}"
    asked = page.replace(*EVERY).replace("node operator arena --", f"node operator arena --port {port} --").replace(ADDRESS, here)
    before, rest = asked.split(STARTED)
    judged, after = rest.split(CLOSED)
    with ended(place / "arena"):
        text = reference.live(before, tmp_path)
        node_kit.until(lambda: "serving at" in log_of(place), "the operator's node begins", LONG)
        text += STARTED + reference.live(judged, tmp_path)
        assert text.count("2 of them new to the service") == 2, text
        node_kit.until(lambda: "exported epoch 1 " in log_of(place), "it closes the epoch and exports it", LONG)
        text += CLOSED + reference.live(after, tmp_path)
    text = text.replace(here, ADDRESS).replace(f"--port {port} ", "").replace(*reversed(EVERY))
    (tmp_path / "network.md").write_text(text, encoding="utf-8")
    assert OPEN.sub(r"\1…", text).splitlines() == OPEN.sub(r"\1…", page).splitlines(), log_of(place)
    rows = sorted(row[:3] for row in node_kit.stored(place / "arena"))
    assert rows == [(1, "tidy-names", "fail")] * 2 + [(1, "tidy-names", "pass")] * 2


@contextmanager
def ended(arena: Path) -> Iterator[None]:
    """At the end, end the node that the page has left running."""
    try:
        yield
    finally:
        if is_working(arena):
            os.kill(int((arena / "node" / ".lock").read_text()), signal.SIGTERM)
            node_kit.until(lambda: not is_working(arena), "the operator's node ends")


def log_of(place: Path) -> str:
    """What the operator's node printed."""
    log = place / "operator.log"
    return log.read_text() if log.exists() else ""
