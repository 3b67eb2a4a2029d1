"""The examples: their files are what `make.py` writes, and they show what their READMEs say."""

import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.errors import BadInput, CannotSettle
from assay.judge.terminal.competition import open_contest
from assay.scheme.load import presets

EXAMPLES = Path(__file__).parents[2] / "examples"
COMPETITIONS = ("season", "window", "bounty-challenge", "verdicts", "platform/term-challenge", "platform/bounty-challenge")


def settled(name: str) -> dict[str, Any]:
    """The settlement document of an example, at the highest epoch."""
    return assay.open(EXAMPLES / name).settle().document


def by_participant(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["participant"]: row for row in rows}


def test_the_files_are_what_make_writes() -> None:
    make = runpy.run_path(str(EXAMPLES / "make.py"))
    files: dict[str, str] = make["files"]()
    elsewhere = (*make["BY_HAND"], *make["JUDGED"], "make.py")
    there = {
        path.relative_to(EXAMPLES).as_posix()
        for path in EXAMPLES.rglob("*")
        if path.is_file() and path.name != "README.md" and "__pycache__" not in path.parts
    }
    assert {name for name in there if not name.startswith(elsewhere)} == set(files)
    for name, content in files.items():
        assert (EXAMPLES / name).read_bytes() == content.encode(), f"{name}: run examples/make.py"


def test_an_example_that_cannot_be_made_is_named_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def window() -> dict[str, str]:
        raise BadInput("is of no use")

    main = runpy.run_path(str(EXAMPLES / "make.py"))["main"]
    monkeypatch.setitem(main.__globals__, "HERE", tmp_path)
    monkeypatch.setitem(main.__globals__, "EXAMPLES", (lambda: {"season/a": "b"}, window))
    assert main() == 1
    assert capsys.readouterr().err == "nothing was written: examples/make.py, window: is of no use\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", COMPETITIONS)
def test_every_example_settles_by_its_preset(name: str) -> None:
    document = settled(name)
    preset = {"season": "term-challenge", "window": "cswon", "verdicts": "agonaut"}.get(name, name.rpartition("/")[2])
    assert document["scheme"]["name"] == preset
    assert (EXAMPLES / name / "scheme.toml").read_text(encoding="utf-8") == presets()[preset]


def test_season() -> None:
    document = settled("season")
    agreed, weights = by_participant(document["agreed"]), by_participant(document["weights"])
    assert document["epoch"] == 12
    assert {key: (row["status"], row["reason"]) for key, row in agreed.items() if row["reason"]} == {
        "dune": ("duplicate", "same-submission"),
        "fjord": ("incomplete", "missing-trials"),
    }
    assert (agreed["atlas"]["score"], agreed["atlas"]["median"], agreed["atlas"]["mad"]) == ("0.88021978", "0.85", "0.05")
    assert [(v["validator"], v["modified_z"]) for v in agreed["atlas"]["validators"] if v["excluded"]] == [("dogwood", "7.4195")]
    assert not any(v["flagged"] for v in agreed["cobalt"]["validators"])
    assert agreed["cobalt"]["not_counted"] == [{"validator": "cedar", "reason": "incomplete", "missing": 1}]
    assert {key: row["kept"] for key, row in weights.items()} == {"atlas": "1", "borealis": "0.9", "cobalt": "1", "ember": "1"}
    assert {key: row["u16"] for key, row in weights.items()} == {"atlas": 20550, "borealis": 16810, "cobalt": 14634, "ember": 0}
    assert (document["burn"]["u16"], document["burn"]["unregistered"]) == (13541, "0.178123001")


def test_term_challenge_waits_to_be_judged(tmp_path: Path) -> None:
    folder = tmp_path / "term-challenge"
    shutil.copytree(EXAMPLES / "term-challenge", folder, ignore=shutil.ignore_patterns("evidence", "trials"))
    contest = open_contest(folder, "elm")
    assert (len(contest.agents), len(contest.tasks), contest.absent) == (6, 10, ())
    with pytest.raises(CannotSettle):
        assay.open(folder).settle()


def test_window() -> None:
    document = settled("window")
    agreed, weights = by_participant(document["agreed"]), by_participant(document["weights"])
    assert agreed["gorse"]["score"] == "0.745"
    assert agreed["fennel"]["score"] == "0.45"
    assert [(v["validator"], v["score"], v["work"]["tasks"]) for v in agreed["hazel"]["validators"]] == [
        ("loom", "0.3025", 12),
        ("spindle", "0.3025", 12),
        ("weft", "0.3", 11),
    ]
    assert [weights[key]["share"] for key in ("alba", "briar", "clove")] == ["0.15", "0.15", "0.14984406"]
    assert document["burn"]["share"] == "0"


@pytest.mark.parametrize("name", ["bounty-challenge", "platform/bounty-challenge"])
def test_bounty_challenge(name: str) -> None:
    document = settled(name)
    assert {row["participant"]: row["score"] for row in document["agreed"]} == {
        "robin": "0.4025",
        "sable": "0.25",
        "tern": "0",
        "umber": "0",
    }
    jay = [row for row in by_participant(document["agreed"])["sable"]["validators"] if row["excluded"]]
    assert [(row["stake"], row["score"], row["modified_z"]) for row in jay] == [("200000000000", "0.4", "10.1175")]
    assert document["burn"]["share"] == "0.3475"


def test_verdicts() -> None:
    document = settled("verdicts")
    assert [(row["participant"], row["bps"], row["status"]) for row in document["agreed"]] == [
        ("larch", 9000, "agreed"),
        ("maple", 8100, "agreed"),
        ("noble", 2000, "agreed"),
        ("olive", 0, "agreed"),
        ("pine", None, "unjudged"),
    ]
    assert [(row["participant"], row["net"]) for row in document["payouts"]] == [("larch", "1000000000000000000")]
    assert document["refund"] == "0"


def test_platform() -> None:
    document = assay.emission(EXAMPLES / "platform" / "my-subnet.toml").document
    assert [(row["name"], row["emission"]) for row in document["competitions"]] == [
        ("term-challenge", "60000000000"),
        ("bounty-challenge", "40000000000"),
    ]
    assert {row["participant"]: row["share"] for row in document["weights"]} == {
        "quartz": "0.3",
        "robin": "0.401",
        "slate": "0.06",
        "sable": "0.1",
        "tern": "0",
        "umber": "0",
    }
    assert document["burn"]["share"] == "0.139"
