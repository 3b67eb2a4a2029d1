"""The page "what these rules do": one file, without scripts, that asks for nothing elsewhere, with what the commands say."""

import json
import re
from pathlib import Path

import pytest

from cli_kit import copied, output, refused, rewrite

SEASON = Path(__file__).parents[2] / "examples/season"


@pytest.fixture(autouse=True)
def few_coalitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is tried elsewhere."""
    monkeypatch.setattr("assay.rules.search.STAKES", (3000, 6000))
    monkeypatch.setattr("assay.rules.search.KEYS", 2)
    monkeypatch.setattr("assay.rules.search.STEPS", (1,))


def page(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    assert "<script" not in text
    links = re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', text)
    assert links == []
    assert 'style="' not in text
    return text


@pytest.mark.full
def test_two_schemes_stand_side_by_side(tmp_path: Path) -> None:
    other = copied(SEASON, tmp_path / "season") / "scheme.toml"
    rewrite(other, 'cap = "50%"', 'cap = "25%"')
    rewrite(other, 'method = "modified-z"', 'method = "none"')
    rewrite(other, 'version = "1.0.0"', 'version = "1.1.0"')
    html = tmp_path / "rules.html"
    comparison = json.loads(output("compare", SEASON, "--scheme", other, "--html", html, "--json"))
    text = page(html)
    for heading in ("What is changed", "Simulation", "Attack", "Back-test"):
        assert f">{heading}</h2>" in text
    assert "<code>reward.cap</code>" in text
    assert comparison["backtest"]["digest"] in text
    for simulated in comparison["simulations"]:
        assert f"{100 * float(simulated['outcome']['panels_hurt']):.2f} %" in text
    assert text.count("<polyline") == 3 + 2 + 2 + 2
    table = output("compare", SEASON, "--scheme", other)
    assert f"Digest of the back-test\n{comparison['backtest']['digest']}" in table
    other.write_text((SEASON / "scheme.toml").read_text(encoding="utf-8"), encoding="utf-8")
    rewrite(other, 'cap = "50%"', 'cap = "25%"')
    output("compare", SEASON, "--scheme", other, "--html", html)
    assert ">changed</th>" in page(html), "two schemes with one name and version"


def test_one_scheme_is_shown_with_each_field_changed(tmp_path: Path) -> None:
    html = tmp_path / "rules.html"
    options = ("--epochs", "20", "--participants", "5", "--validators", "4")
    output("simulate", "agonaut", *options, "--html", html)
    text = page(html)
    assert "One field changed" in text
    assert "Back-test" not in text.replace("A back-test", "")


def test_rules_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    html = tmp_path / "rules.html"
    assert "score.kind" in refused("compare", SEASON, "--scheme", "cswon", "--html", html)
    assert not html.exists()
