"""docs/network.md: a first season on three machines, from the rules to weights that verify, by the page's own commands."""

from pathlib import Path
from types import ModuleType

import pytest

import node_kit
from judge_kit import bubblewrap
from service_kit import running
from test_docs_machines import ROOT, reference

__all__ = ["reference"]

PAGE = ROOT / "docs" / "network.md"
ADDRESS = "https://assay.example.org"
STARTED = "## One round"
"""From here on the operator's node serves."""


@pytest.mark.slow
def test_the_page_leads_from_the_rules_to_weights_that_verify(reference: ModuleType, tmp_path: Path) -> None:
    """If it fails, read what changed: the page is written as it should be beside the operator's folder."""
    bubblewrap()
    page = PAGE.read_text(encoding="utf-8")
    before, heading, after = page.partition(STARTED)
    text = reference.live(before, tmp_path)
    arena = tmp_path / "operator" / "arena"
    with running(arena) as service:
        rest = reference.live(heading + after.replace(ADDRESS, service.address), tmp_path)
        text += rest.replace(service.address, ADDRESS)
    (tmp_path / "network.md").write_text(text, encoding="utf-8")
    assert text.splitlines() == page.splitlines()
    rows = sorted(row[:3] for row in node_kit.stored(arena))
    assert rows == [(1, "tidy-names", "fail")] * 2 + [(1, "tidy-names", "pass")] * 2
