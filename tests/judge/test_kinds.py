"""Kinds of judges as objects: found by entry point, asked and not compared, and never another's in the place of Assay's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import assay
import package_kit
from assay import kind as kinds
from assay.cli import app
from assay.errors import BadInput
from assay.ledger.verify import verify
from assay.records import record
from assay.scheme.load import parse
from package_kit import package

SOURCE = Path(assay.__file__).parent
NAMES = ("given", "points", "rubric", "tests", "workflow")
COMPARED = re.compile(
    r"""(==|!=|\bin)\s*[({[]?\s*"(tests|points|rubric|workflow|given)"|case\s+"(tests|points|rubric|workflow|given)"|"""
    r"""score\.kind\s*(==|!=|in\b)|\["kind"\]\s*(==|!=)"""
)
EARLIER = "a record in a ledger may be of a kind that the scheme had earlier"
ALLOWED = {
    "ledger/eligible.py": EARLIER,
    "ledger/standing.py": EARLIER,
    "ledger/evidence.py": "a file of Parquet without a column for the kind holds evidence of tests, as it always did",
}
"""Where a kind's name is compared, and why; anywhere else the object is asked."""
OTHER = """
from typing import ClassVar, Literal
from assay.kind import Kind
from assay.records import Given
from assay.scheme.model import GivenScore, ScoreRules

class Duels(Kind):
    name: ClassVar[str] = "duels"
    rules = GivenScore
    record = Given

DUELS, NOTHING = Duels(), object()
"""


site = pytest.fixture(package_kit.site)


def test_nobody_compares_the_name_of_a_kind() -> None:
    there = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if COMPARED.search(line.partition("#")[0])
    }
    assert there == set(ALLOWED)


def test_the_five_kinds_are_found_as_anybodys_are() -> None:
    assert kinds.names() == NAMES
    assert [kinds.find(name).name for name in NAMES] == list(NAMES)
    assert {name: kinds.find(name).rules.__name__ for name in NAMES} == {name: f"{name.title()}Score" for name in NAMES}
    assert {name: kinds.find(name).record.__name__ for name in NAMES} == {name: name.title() for name in NAMES}


def test_a_name_of_the_specification_is_always_our_own_kind(site: Path) -> None:
    package(site, "impostor", kinds.GROUP, "given = impostor:DUELS", OTHER)
    assert kinds.find("given").__class__.__module__ == "assay.kinds"
    assert kinds.names() == NAMES


def test_a_kind_that_nobody_has_is_refused_by_name(site: Path) -> None:
    with pytest.raises(BadInput, match="no package here has the kind 'duels'; use one of given, points, rubric, tests, workflow"):
        kinds.find("duels")
    with pytest.raises(BadInput, match="kind: is missing or unknown; use one of given, points"):
        record({"kind": "duels"})
    package(site, "duels_one", kinds.GROUP, "duels = duels_one:DUELS", OTHER)
    kinds._others.cache_clear()
    assert kinds.find("duels").name == "duels"
    package(site, "duels_two", kinds.GROUP, "duels = duels_two:DUELS", OTHER)
    with pytest.raises(BadInput, match=r"several packages have the kind 'duels': duels_one:DUELS of .* and duels_two:DUELS of"):
        kinds.find("duels")


@pytest.mark.parametrize(
    ("entry", "code", "message"),
    [
        ("duels = loose:DUELS", "import not_installed_anywhere\n", "cannot be loaded: No module named 'not_installed_anywhere'"),
        ("duels = loose:ABSENT", OTHER, "cannot be loaded: module 'loose' has no attribute 'ABSENT'"),
        ("duels = loose:NOTHING", OTHER, "does not lead to a kind of that name"),
        ("games = loose:DUELS", OTHER, "does not lead to a kind of that name"),
    ],
)
def test_a_kind_that_cannot_be_used_says_whose_it_is(
    site: Path, monkeypatch: pytest.MonkeyPatch, entry: str, code: str, message: str
) -> None:
    monkeypatch.delitem(__import__("sys").modules, "loose", raising=False)
    package(site, "loose", kinds.GROUP, entry, code)
    name = entry.partition(" ")[0]
    with pytest.raises(BadInput, match=f"the kind '{name}', loose:[A-Z]+ of loose, {message}"):
        kinds.find(name)


GIVEN = '[scheme]\nname = "small"\n[score]\nkind = "given"\n[consensus]\nmin_validators = 1\n'
JUDGE = """
import json
from collections import Counter
from assay.judge.running import RunSummary

def run(competition, validator, options, on_event):
    record = {"kind": "given", "validator": validator, "participant": "ann", "submission": "", "epoch": 1, "score": "0.5",
              "observed_at": "2026-01-01T00:00:00Z"}
    (competition / "evidence").mkdir()
    (competition / "evidence" / "run.jsonl").write_text(json.dumps(record) + "\\n")
    return RunSummary(1, outcomes=Counter(scored=1))
"""


def test_a_scheme_names_a_judge_in_the_place_of_the_kinds_own(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("COLUMNS", "500")

    def done(*words: object, code: int = 0) -> str:
        invoked = CliRunner().invoke(app, [str(word) for word in words])
        assert invoked.exit_code == code, invoked.output
        return invoked.output

    done("keys", "new", "val-1")
    done("keys", "new", "log")
    key = re.search("[0-9a-f]{64}", done("keys", "show", "val-1"))
    assert key is not None
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "scheme.toml").write_text(GIVEN + '[judge]\nuse = "strict-given"\n')
    (folder / "participants.csv").write_text("key,uid\nann,1\n")
    (folder / "validators.csv").write_text(f"key,stake\n{key[0]},1\n")
    refused = done("run", folder, "--validator", key[0], code=2)
    assert "scheme.toml: judge.use: no package here has the judge 'strict-given', only: " in refused

    package(site, "strict_judge", kinds.JUDGES, "strict-given = strict_judge:run", JUDGE)
    done("ledger", "init", folder, "--origin", "example.org/c", "--key", "log")
    assert "1 trial judged (1 scored)." in done("run", folder, "--sign", "val-1")
    done("settle", folder)
    done("export", "epoch", folder, "1", "-o", tmp_path / "epoch-1")

    rows = {row.stage: row for row in verify(tmp_path / "epoch-1").checked}
    ending = "made the evidence, instead of the judge 'given'"
    assert rows["judge"].what == f"the judge 'strict-given' (strict_judge:run of strict_judge) {ending}"
    assert not rows["judge"].done
    package_kit.remove(site, "strict_judge")
    printed = done("verify", tmp_path / "epoch-1")
    assert f"the judge 'strict-given' (which is not installed here) {ending}" in printed


def test_a_judge_of_ones_own_changes_the_digest_of_the_scheme_and_leaving_it_out_does_not() -> None:
    assert "judge" not in parse(GIVEN).document()
    named = parse(GIVEN + '[judge]\nuse = "strict-given"\n')
    assert named.document()["judge"] == {"use": "strict-given"}
    assert named.digest != parse(GIVEN).digest
    with pytest.raises(BadInput, match=r"judge\.user: there is no field 'user' here; did you mean 'use'"):
        parse(GIVEN + '[judge]\nuser = "x"\n')
