"""The report of a competition: what its pages say, that they stand alone, and that nothing in them is somebody else's HTML."""

import base64
import csv
import hashlib
import html
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import small_folder
from assay.errors import BadInput
from assay.ledger import settling
from assay.ledger.batch import StoredRecord
from assay.scheme.load import presets
from assay.serve import history, report
from assay.serve import pages as drawn
from assay.serve.links import beside, participant_page, task_page
from assay.serve.season import read
from assay.settle.inputs import Scored
from cli_kit import output
from pages_kit import large

EXAMPLES = Path(__file__).parents[2] / "examples"
VOID = {"br", "img", "input", "link", "meta", "rect", "line", "circle", "path", "use"}


class PageElements(HTMLParser):
    """A page as its elements: what it links to, what it has loaded, its ids, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.inline: list[str] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}={value}")
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src") and value is not None:
                (self.links if tag == "a" else self.loads).append(value)
        if tag in ("script", "style") and not any(name == "src" for name, _ in attrs):
            self.inline.append(tag)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def words(self) -> str:
        """What people read, on one line."""
        return re.sub(r"\s+", " ", " ".join(self.text))


def pages(folder: Path) -> Iterator[tuple[Path, PageElements]]:
    for file in sorted(folder.glob("*.html")):
        yield file, PageElements(file.read_text())


def standing_alone(folder: Path) -> None:
    """Every link and everything loaded is in the folder; nothing is inline."""
    for file, page in pages(folder):
        assert page.inline == [], file
        assert len(page.ids) == len({*page.ids}), file
        for link in page.loads + page.links:
            name, _, anchor = link.partition("#")
            assert not re.search("^/|:", name), f"{file}: {link}"
            assert not name or (folder / name).is_file(), f"{file}: {link}"
            if anchor and not name:
                assert html.unescape(anchor) in page.ids, f"{file}: {link}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("preset", sorted(presets()))
def test_the_pages_of_every_preset_stand_alone_and_tell_the_story(preset: str, tmp_path: Path) -> None:
    folder = tmp_path / "competition"
    output("init", "--preset", preset, str(folder))
    if not (folder / "scheme.toml").exists():
        folder = next(file.parent for file in sorted(folder.rglob("scheme.toml")))
    season = read(folder)
    target = tmp_path / "site"
    report.write_folder(season, target)
    standing_alone(target)
    for key in season.participants:
        story = season.story(key)
        assert story == season.settlement.explain(key), "its records alone tell the same as all records"
        page = PageElements((target / participant_page(key)).read_text())
        for chapter in story.chapters:
            for sentence in chapter.text:
                assert sentence in page.words
        assert json.loads((target / beside(participant_page(key), "json")).read_text()) == story.document()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("strategy", ["linear", "direct", "softmax", "quadratic", "ranked", "winner-takes-all"])
@pytest.mark.parametrize("excess", ["redistribute", "drop", "burn"])
def test_the_strip_is_the_whole_emission_under_every_strategy_and_cap(strategy: str, excess: str, tmp_path: Path) -> None:
    rules = f'[reward]\nstrategy = "{strategy}"\ncap = "0.3"\nexcess = "{excess}"\n'
    evidence = small_folder.lines(
        [
            small_folder.record(validator=validator, participant=who, submission=submission, task=task, outcome=outcome)
            for validator in ("v1", "v2", "v3")
            for who, submission, outcome in (("m1", "s1", "pass"), ("m2", "s2", "fail"))
            for task in ("t1", "t2")
        ]
    )
    scheme = small_folder.SCHEME + rules
    season = read(small_folder.make(tmp_path / "small", scheme_toml=scheme, evidence=evidence))
    from assay.serve.board import board

    view = board(season)
    assert sum(part["w"] for part in view["strip"]) == pytest.approx(1)
    starts = [part["x"] for part in view["strip"]]
    assert starts == sorted(starts)
    report.write_folder(season, tmp_path / "site")
    standing_alone(tmp_path / "site")


def test_the_board_s_table_has_the_settlement_s_numbers(tmp_path: Path) -> None:
    season = read(EXAMPLES / "season")
    report.write_folder(season, tmp_path / "site")
    rows = [*csv.DictReader((tmp_path / "site" / "board.csv").read_text().splitlines())]
    weights = season.document["weights"]
    assert [(row["participant"], row["share"], row["u16"]) for row in rows] == [
        (row["participant"], row["share"], str(row["u16"])) for row in weights
    ]
    board = PageElements((tmp_path / "site" / "index.html").read_text())
    assert all(str(row["u16"]) in board.words for row in weights)
    assert json.loads((tmp_path / "site" / "board.json").read_text()) == season.document
    assert "4 of 6 participants have an agreed score" in board.words
    assert "which is not a score of 0" in board.words


def test_what_people_call_themselves_is_text(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>"
    participants = f'key,uid,name,submission\n<b>m1</b>,1,"{name}",s1\n"m2"" onload=""x",2,{name}&amp;,s2\n'
    evidence = small_folder.lines(
        [
            small_folder.record(validator=validator, participant=who, submission=submission, task=task)
            for validator in ("v1", "v2", "v3")
            for who, submission in (("<b>m1</b>", "s1"), ('m2" onload="x', "s2"))
            for task in ("<i>t1", "t2")
        ]
    )
    folder = small_folder.make(tmp_path / "small", participants_csv=participants, evidence=evidence, tasks_txt="<i>t1\nt2\n")
    season = read(folder)
    report.write_folder(season, tmp_path / "site")
    standing_alone(tmp_path / "site")
    assert name in PageElements((tmp_path / "site" / "index.html").read_text()).words
    report.write_file(season, tmp_path / "board.html")
    assert name in PageElements((tmp_path / "board.html").read_text()).words


def test_a_ledger_s_report_has_the_receipt_and_every_epoch(tmp_path: Path) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    for epoch in (3, 4):
        ledger_kit.add(folder, ledger_kit.records(epoch=epoch))
        settle(folder, epoch)
    season = read(folder)
    report.write_folder(season, tmp_path / "site")
    standing_alone(tmp_path / "site")
    epoch_page = PageElements((tmp_path / "site" / "epoch.html").read_text())
    assert season.proof is not None
    assert [link.epoch for link in season.proof.chain] == [3, 4]
    assert season.proof.states["settlement"] in epoch_page.words
    assert season.proof.key in epoch_page.words
    assert season.epochs == (3, 4)
    output("verify", str(tmp_path / "site" / "epoch.receipt"), "--key", season.proof.key)
    earlier = read(folder, 3)
    assert earlier.settlement.epoch == 3
    assert earlier.epochs == (3,)
    assert earlier.newest is None, "epoch 4 is later, and settled"
    ledger_kit.add(folder, ledger_kit.records(epoch=5))
    assert read(folder, 3).newest == 5


def test_a_season_from_sums_tells_what_one_from_records_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    records = ledger_kit.records()
    records[0]["outcome"] = "fail"
    ledger_kit.add(folder, records)
    settle(folder, 3)
    by_records = dict(drawn.pages(read(folder)))
    monkeypatch.setattr("assay.ledger.eligible.MANY", 0)
    season = read(folder)
    assert isinstance(season.settlement.inputs.evidence, Scored)
    by_sums = dict(drawn.pages(season))
    for name in ("participant-m1.html", "participant-m1.json", "validators.html"):
        assert by_sums[name] == by_records[name]


@pytest.mark.full
def test_a_board_reads_few_epochs_and_no_record_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    for epoch in range(3, 8):
        ledger_kit.add(folder, ledger_kit.records(epoch=epoch))
        settle(folder, epoch)
    monkeypatch.setattr("assay.ledger.eligible.MANY", 0)
    monkeypatch.setattr("assay.serve.board.TREND", 3)
    monkeypatch.setattr(history, "_KEPT", history._Kept())
    parsed, passes = list[int](), list[int]()

    def counted(document: dict[str, Any]) -> dict[str, history.EpochRow]:
        parsed.append(document["epoch"])
        return rows_of(document)

    def passing(*arguments: Any) -> dict[str, list[StoredRecord]]:
        passes.append(1)
        return by_participant(*arguments)

    rows_of, by_participant = history.rows_of, settling.records_by_participant
    monkeypatch.setattr(history, "rows_of", counted)
    monkeypatch.setattr(settling, "records_by_participant", passing)
    season = read(folder)
    drawn.page(season, "index.html")
    assert (parsed, passes) == ([5, 6], [])
    for name in drawn.names(season):
        drawn.page(season, name)
    assert sorted(parsed) == [3, 4, 5, 6]
    assert passes == [1]
    drawn.page(read(folder), "participant-m1.html")
    assert sorted(parsed) == [3, 4, 5, 6], "a settled epoch never changes, so its rows are kept"
    monkeypatch.setattr(history, "ROWS", 4)
    kept = history._Kept()
    for number in range(4):
        kept.put(str(number), rows_of(season.document))
    assert [number for number in range(4) if kept.get(str(number))] == [2, 3]


def settle(folder: Path, epoch: int) -> None:
    with ledger_kit.opened(folder) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, epoch)


def test_a_report_replaces_a_report_and_nothing_else(tmp_path: Path) -> None:
    season = read(EXAMPLES / "season")
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="exists, and is not a report"):
        report.write_folder(season, other)
    with pytest.raises(BadInput, match="exists, and is not a report"):
        report.write_folder(season, tmp_path / "new" / ".." / "other")  # `new` is made, and then it is the same folder
    assert [file.name for file in other.iterdir()] == ["notes.txt"]
    site = tmp_path / "site"
    report.write_folder(season, site)
    (site / "participant-left.html").write_text("of somebody who left")
    report.write_folder(season, site)
    assert not (site / "participant-left.html").exists()
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_a_file_has_everything_in_it(tmp_path: Path) -> None:
    season = read(EXAMPLES / "season")
    report.write_file(season, tmp_path / "board.html")
    text = (tmp_path / "board.html").read_text()
    page = PageElements(text)
    assert all(load.startswith(("data:", "#")) for load in page.loads)
    assert all(link.startswith("#") for link in page.links)
    assert "31.36" in page.words
    assert "Start here" not in page.words, "it names a page that it does not have"
    assert len(text) < 250_000
    (script,) = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;;" in text, "the policy allows this script and no other"


def test_a_file_has_every_row_of_a_long_board(tmp_path: Path) -> None:
    season = read(large(tmp_path / "large", validators=3, tasks=4))
    report.write_file(season, tmp_path / "board.html")
    text = (tmp_path / "board.html").read_text()
    assert text.count('<td role="cell" class="c-rank">') - text.count('class="burn"') == len(season.document["ranking"]) == 300
    assert "data-whole" in text
    page = PageElements(text)
    assert all(link.startswith("#") for link in page.links)
    assert "Next" not in page.words


def test_the_command_says_where_to_look(tmp_path: Path) -> None:
    printed = output("report", str(EXAMPLES / "season"), "-o", str(tmp_path / "site"), "--json")
    assert json.loads(printed)["start"] == str(tmp_path / "site" / "index.html")
    assert (tmp_path / "site" / "index.html").is_file()


def test_a_page_s_name_follows_from_the_key_alone(tmp_path: Path) -> None:
    keys = ["atlas", "a" * 65, "a" * 66, "../x", "x", "", "é", "e", "-x-", "<b>", "a b", "a-b"]
    named = {participant_page(key) for key in keys}
    assert len(named) == len(keys)
    assert participant_page("atlas") == "participant-atlas.html"
    assert participant_page("../x") == "participant-..-x~d6b96a97d147.html"
    assert task_page("a b") == f"task-{participant_page('a b').removeprefix('participant-')}"
    assert all(re.fullmatch(r"participant-[A-Za-z0-9._~-]{1,64}\.html", name) for name in named)
    taken = participant_page("a b").removeprefix("participant-").removesuffix(".html")
    assert participant_page(taken) not in named, "a key cannot be chosen so that it has the name of another page"


def test_one_page_is_drawn_without_the_others(tmp_path: Path) -> None:
    season = read(EXAMPLES / "season")
    report.write_folder(season, tmp_path / "site")
    every = [*drawn.names(season)]
    assert len(every) == len({*every})
    assert "participant-atlas.html" in every
    for name in every:
        assert drawn.page(season, name) == (tmp_path / "site" / name).read_bytes()
    for name in ("participant-nobody.html", "participant-nobody.json", "../index.html", "", ".json"):
        with pytest.raises(KeyError):
            drawn.page(season, name)
