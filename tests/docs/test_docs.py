"""The pages say what the program does: every command is on the reference, every console block shows what its command prints."""

import importlib.util
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from judge_kit import bubblewrap

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    """docs/reference.py."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_page_is_out_of_date(reference: ModuleType) -> None:
    out_of_date = [str(page) for page, _ in reference.stale()]
    assert out_of_date == [], "run: python docs/reference.py"


def test_every_command_is_on_the_reference_and_has_an_example(reference: ModuleType) -> None:
    page = (ROOT / reference.REFERENCE).read_text(encoding="utf-8")
    paths = list(reference.commands())
    assert ("assay", "settle") in paths
    assert ("assay", "import", "tb") in paths
    leaves = [path for path in paths if not any(other[: len(path)] == path and other != path for other in paths)]
    for path in paths:
        assert f"# {' '.join(path)}\n" in page
    for path in leaves:
        section = page.split(f"# {' '.join(path)}\n")[1].split("```")[1]
        assert "Example" in section
        assert f"{' '.join(path)}" in section.split("Example")[1], path


def test_a_block_is_filled_with_what_the_command_prints(reference: ModuleType, tmp_path: Path) -> None:
    page = "Before\n\n```console\n$ assay --version\nold\n```\n\n```console\n$ ls\n```\nAfter\n"
    import assay

    assert reference.filled(page, tmp_path) == page.replace("old", f"assay {assay.__version__}")


def test_a_page_whose_server_has_a_fixed_port_is_filled_while_another_has_the_port(reference: ModuleType, tmp_path: Path) -> None:
    bubblewrap()
    page = "```console\n$ python github.py -- echo served\n```\n"
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = (ROOT / "examples/bounty-challenge/github.py").read_text(encoding="utf-8")
        server = server.replace("8765", str(other.getsockname()[1])).replace("PATIENCE = 60.0", "PATIENCE = 0.0")
        (tmp_path / "github.py").write_text(server, encoding="utf-8")
        (tmp_path / "github.json").write_bytes((ROOT / "examples/bounty-challenge/github.json").read_bytes())
        assert reference.filled(page, tmp_path).endswith("echo served\nserved\n```\n")


def test_commands_of_a_page_share_a_folder_and_leave_nothing(reference: ModuleType, tmp_path: Path) -> None:
    page = "```console\n$ assay init --preset cswon mine\n$ assay settle mine --csv | head -1\n$ assay settle theirs\n```\n"
    text = reference.filled(page, tmp_path)
    assert "\nparticipant,uid,score," in text
    assert "\nerror: theirs/scheme.toml: no such file;" in text
    assert reference.filled(text, _empty(tmp_path / "again")) == text


def test_what_a_page_prepares_is_run_first_and_not_shown(reference: ModuleType, tmp_path: Path) -> None:
    page = "<!-- $ printf '%064d' 7 > seed -->\n<!-- $ assay keys import mine seed -->\n```console\n$ assay keys list\n```\n"
    text = reference.filled(page, tmp_path)
    assert text.startswith(page.removesuffix("```\n"))
    assert "mine  ed25519  " in text
    assert (tmp_path / "keys" / "mine.key").exists()


def _empty(place: Path) -> Path:
    place.mkdir()
    return place


@pytest.mark.parametrize("command", ["assay settle season", "python -c 'raise ValueError(7)'"])
def test_a_page_with_a_command_that_is_broken_is_not_written(
    reference: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(reference, "ROOT", tmp_path)
    monkeypatch.setattr(reference.stale, "__defaults__", (tmp_path,))
    monkeypatch.setattr("assay.competition.Competition.settle", breaks)
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs/page.md"
    (tmp_path / "season").symlink_to(ROOT / "examples" / "season")
    before = f"```console\n$ {command}\nold\n```\n"
    page.write_text(before, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["reference.py"])
    assert reference.main() == 1
    assert f"nothing was written: `{command}`" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == before


def test_a_page_whose_files_are_missing_is_not_written(reference: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(reference.Broken, match="found no file"):
        reference.filled("```console\n$ assay --version\n$ cp -R emission-3 changed\n```\n", tmp_path)


def test_check_names_what_is_stale(
    reference: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("old", encoding="utf-8")
    monkeypatch.setattr(reference, "stale", lambda: iter([(Path("page.md"), "new")]))
    monkeypatch.setattr(sys, "argv", ["reference.py", "--check"])
    assert reference.main() == 1
    assert "page.md is out of date" in capsys.readouterr().out
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == "old"
    monkeypatch.setattr(sys, "argv", ["reference.py"])
    assert reference.main() == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == "new"


def test_the_site_fetches_nothing_from_a_network(tmp_path: Path) -> None:
    """Every script, style, font and picture of the built pages is in them: they are read, and searched, offline."""
    site = tmp_path / "site"
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site],
        cwd=ROOT,
        check=False,
        capture_output=True,
    )
    assert built.returncode == 0, built.stderr.decode()
    fetched, pictures = [], 0
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert 'class="mermaid"' not in text, f"{page}: the theme fetches a script to draw it; put an SVG into docs/img"
        for tag in re.findall(r"<(?:script|link|img|iframe|source|image)\b[^>]*>", text):
            fetched += [
                tag for place in re.findall(r"(?:src|href)=[\"']?([^\"'\s>]+)", tag) if re.match(r"(?:https?:)?//", place)
            ]
            pictures += "/img/" in tag or 'src="img/' in tag
    for style in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        fetched += re.findall(r"(?:@import\s*|url\()[\"']?(?:https?:)?//[^)\"']*", style.read_text(encoding="utf-8"))
    assert fetched == []
    assert pictures >= 4
    assert (site / "search" / "search_index.json").is_file()


def test_a_tool_that_is_started_by_its_name_can_be() -> None:
    tools = [path for path in (ROOT / "tools").iterdir() if path.is_file() and path.read_bytes().startswith(b"#!")]
    assert len(tools) > 5
    assert [path.name for path in tools if not os.access(path, os.X_OK)] == []
