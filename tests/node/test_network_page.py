"""docs/network.md: a validator's machine, from a key to evidence in the operator's ledger, by the page's own commands."""

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


@pytest.mark.slow
def test_the_page_leads_from_a_key_to_evidence(reference: ModuleType, tmp_path: Path) -> None:
    """If it fails, read what changed: the page is written as it should be beside the operator's folder."""
    bubblewrap()
    page = PAGE.read_text(encoding="utf-8")
    agents = {"miner-a": node_kit.RIGHT, "miner-b": node_kit.WRONG}
    theirs = node_kit.operator(tmp_path / "operator" / "arena", tasks=("greet",), agents=agents, name="arena")
    with running(theirs) as service:
        text = reference.live(page.replace(ADDRESS, service.address), tmp_path).replace(service.address, ADDRESS)
    (tmp_path / "network.md").write_text(text, encoding="utf-8")
    assert text.splitlines() == page.splitlines()
    assert sorted(row[:3] for row in node_kit.stored(theirs)) == [(1, "greet", "fail"), (1, "greet", "pass")]
