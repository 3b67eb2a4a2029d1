"""docs/machines.md: three folders with three keys, from nothing to a receipt, by the page's own commands."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from judge_kit import bubblewrap

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "machines.md"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    """docs/reference.py."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.full
@pytest.mark.slow
def test_the_page_leads_from_nothing_to_a_receipt(reference: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it fails: python docs/reference.py --live docs/machines.md, and read what changed."""
    bubblewrap()
    monkeypatch.setenv("ASSAY_STATE", str(tmp_path / "state"))
    page = PAGE.read_text(encoding="utf-8")
    (tmp_path / "machines").mkdir()
    assert reference.live(page, tmp_path / "machines").splitlines() == page.splitlines()
    there = {path.name: {each.name for each in (path / "keys").glob("*.key")} for path in (tmp_path / "machines").iterdir()}
    assert there == {"operator": {"log.key", "alder.key"}, "birch": {"birch.key"}, "cedar": {"cedar.key"}, "stranger": set()}
    assert [path.parent.parent.name for path in (tmp_path / "machines").glob("*/arena/ledger.db")] == ["operator"]


def test_each_machine_has_a_folder_and_what_differs_is_masked(reference: ModuleType, tmp_path: Path) -> None:
    block = "```text\none$ assay keys new mine\nold\ntwo$ ls\none$ ls\n```\n"
    page = f"Before\n\n{block}\n```text\n$ ls\n```\n```console\none$ ls\n```\n"
    text = reference.live(page, tmp_path)
    shown = "file        keys/mine.key\nkind        ed25519\npublic key  …"
    assert text == page.replace("old", shown).replace("two$ ls\n", "two$ ls\nassay\n", 1).replace(
        "one$ ls\n```\n\n", "one$ ls\nassay\nkeys\n```\n\n"
    )
    assert (tmp_path / "one" / "keys" / "mine.key").exists()
    assert reference.live(text, _empty(tmp_path / "again")) == text


def test_the_page_is_written_again_in_its_place(reference: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("```text\none$ echo hello\n```\n")
    monkeypatch.setattr("sys.argv", ["reference.py", "--live", str(page)])
    assert reference.main() == 0
    assert page.read_text() == "```text\none$ echo hello\nhello\n```\n"


def _empty(place: Path) -> Path:
    place.mkdir()
    return place
