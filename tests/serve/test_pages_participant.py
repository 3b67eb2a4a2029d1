"""A participant's page: its sentences are the engine's, its waterfall adds up, long histories and large tables stay readable."""

import csv
import html
import re
import shutil
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import small_folder
from assay.exact import NANO, nanos
from assay.ledger import settling
from assay.scheme.load import presets
from assay.serve import pages
from assay.serve.history import EpochRow
from assay.serve.links import participant_page
from assay.serve.matrix import NARROW, matrix
from assay.serve.participant import participant
from assay.serve.season import Season, read
from assay.serve.timeline import BARS, NEWEST, history, thinned
from cli_kit import output

EXAMPLES = Path(__file__).parents[2] / "examples"
STRATEGIES = ("linear", "direct", "softmax", "quadratic", "ranked", "winner-takes-all")


def folders() -> list[Path]:
    """The competitions among the examples."""
    return sorted(
        {scheme.parent for scheme in EXAMPLES.rglob("scheme.toml") if any((scheme.parent / "evidence").glob("*.jsonl"))}
    )


def sentences(page: bytes) -> list[str]:
    """What the sections beside and above the drawings say: the answer, the next place, the decay."""
    text = page.decode()
    parts = re.findall(r'<section aria-labelledby="h-(?:why|beat|decay)".*?</section>', text, re.DOTALL)
    paragraphs = [words for part in parts for words in re.findall(r"<p(?: [^>]*)?>(.*?)</p>", part, re.DOTALL)]
    return [html.unescape(re.sub(r"<[^>]+>", "", words)).strip() for words in paragraphs]


def check_sentences(season: Season) -> None:
    """Every sentence of each participant's page is the story's, and its waterfall ends at its weight."""
    for key in season.participants:
        story, view = season.story(key), participant(season, key)
        known = {story.summary, *(sentence for chapter in story.chapters for sentence in chapter.text)}
        shown = sentences(pages.page(season, participant_page(key)))
        assert story.status != "agreed" or {story.summary, story["next-place"].text[0]} <= {*shown}
        for sentence in shown:
            assert sentence in known, f"{key}: {sentence!r}"
        if season.document["weights"] and story.status == "agreed":
            adds_up(season, key, view["steps"])


def adds_up(season: Season, key: str, steps: list[dict[str, Any]]) -> None:
    """The share, the change by the cap and each loss lead to the final share."""
    weight = next(row for row in season.document["weights"] if row["participant"] == key)
    named = {step["name"]: step for step in steps}
    drawn = {name: sum(mark["w"] for mark in step["marks"] if mark["tag"] == "rect") for name, step in named.items()}
    lost = sum(drawn.get(name, 0) for name in ("Decay", "Warm-up", "No uid"))
    moved = drawn.get("Cap", 0) * (1 if nanos(weight["capped"]) >= nanos(weight["strategy"]) else -1)
    assert drawn["Share"] + moved - lost == pytest.approx(drawn["Weight"], abs=1e-6), key
    assert named["Weight"]["val"] == str(weight["u16"])


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: str(folder.relative_to(EXAMPLES)))
def test_every_sentence_is_the_engine_s(folder: Path) -> None:
    check_sentences(read(folder))


@pytest.mark.parametrize("preset", sorted(presets()))
def test_every_sentence_is_the_engine_s_for_a_preset(preset: str, tmp_path: Path) -> None:
    output("init", "--preset", preset, str(tmp_path / "made"))
    check_sentences(read(next(file.parent for file in sorted((tmp_path / "made").rglob("scheme.toml")))))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("strategy", "excess"), [*product(STRATEGIES, ("redistribute", "drop", "burn"))])
def test_every_sentence_is_the_engine_s_under_every_strategy_cap_and_tie(strategy: str, excess: str, tmp_path: Path) -> None:
    rules = f'[reward]\nstrategy = "{strategy}"\ncap = "0.3"\nexcess = "{excess}"\n'
    outcomes = {"m1": ("pass", "pass"), "m2": ("pass", "fail"), "m3": ("pass", "fail"), "m4": ("fail", "fail")}
    evidence = small_folder.lines(
        [
            small_folder.record(validator=validator, participant=key, submission=f"s-{key}", task=task, outcome=outcome)
            for validator in ("v1", "v2", "v3")
            for key, seen in outcomes.items()
            for task, outcome in zip(("t1", "t2"), seen, strict=True)
        ]
    )
    people = "key,uid,submission\n" + "".join(f"{key},{'' if key == 'm3' else key[1:]},s-{key}\n" for key in outcomes)
    check_sentences(
        read(
            small_folder.make(
                tmp_path / "small", scheme_toml=small_folder.SCHEME + rules, participants_csv=people, evidence=evidence
            )
        )
    )


def seasons(place: Path, epochs: int) -> Season:
    """A season of so many settled epochs."""
    folder = ledger_kit.ledger_folder(place)
    for epoch in range(3, 3 + epochs):
        ledger_kit.add(folder, ledger_kit.records(epoch=epoch)[:: 1 if epoch == 3 else 12])
        with ledger_kit.opened(folder) as ledger:
            settling.settle(ledger, ledger_kit.SIGNER, epoch)
    return read(folder)


def test_the_csv_beside_a_history_has_every_epoch(tmp_path: Path) -> None:
    season = seasons(tmp_path / "small", 3)
    page = pages.page(season, "participant-m1.html").decode()
    assert 'href="participant-m1.csv"' in page
    rows = [*csv.DictReader(pages.page(season, "participant-m1.csv").decode().splitlines())]
    assert [row["epoch"] for row in rows] == ["3", "4", "5"]
    assert [row["score"] for row in rows] == [season.agreed["m1"]["score"]] * 3
    alone = read(EXAMPLES / "season")
    assert "participant-atlas.csv" not in {*pages.names(alone)}
    with pytest.raises(KeyError):
        pages.page(alone, "participant-atlas.csv")


def test_a_history_of_hundreds_of_epochs_keeps_its_extremes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    season = seasons(tmp_path / "small", 2)

    def long(self: Season, last: int | None = None) -> list[tuple[int, dict[str, EpochRow]]]:
        rows = []
        for epoch in range(500):
            score = NANO if epoch == 123 else 1 if epoch == 321 else NANO // 2 + epoch
            there = EpochRow("agreed", 1, score, NANO, score // 3, score // 2, 7)
            rows.append((epoch, {} if epoch == 222 else {"m1": there}))
        return rows

    monkeypatch.setattr(Season, "history", long)
    view = history(season, "m1")
    assert view is not None
    assert [row["epoch"] for row in view["rows"]] == [*range(499, 499 - NEWEST, -1)]
    assert view["more"] == 500 - NEWEST
    for chart in view["charts"]:
        points = re.findall(r"[ML](\d+) (\d+)", chart["line"])
        assert len(points) <= BARS
        assert chart["bars"] == []
        assert len(re.findall("M", chart["line"])) == 2, "the line breaks where it has no score"
    across = dict(re.findall(r"[ML](\d+) (\d+)", view["charts"][0]["line"]))
    assert (across[str(round(1000 * 123 / 499))], across[str(round(1000 * 321 / 499))]) == ("0", "1000")
    page = pages.page(season, "participant-m1.html").decode()
    assert "The newest 30 as a table, and all 500 as CSV" in page
    assert page.count("<tr><td>") < 100


@pytest.mark.parametrize("count", [0, 1, BARS, BARS + 1, 499, 5_000])
def test_thinning_keeps_what_is_seen(count: int) -> None:
    values = [None if at % 97 == 5 else (at * 7919) % 1000 for at in range(count)]
    kept = thinned(values, BARS)
    assert kept == sorted({*kept})
    assert len(kept) <= BARS
    if count:
        assert kept[0] == 0
        assert kept[-1] == count - 1
        known = [value for value in values if value is not None]
        assert {min(known), max(known)} <= {values[at] for at in kept}
    if count <= BARS:
        assert kept == [*range(count)]


def test_a_large_table_is_grouped_and_its_groups_are_right(tmp_path: Path) -> None:
    judges = [f"v{number:02}" for number in range(64)]
    tasks = [f"t{number:02}" for number in range(80)]

    def outcome(task: int, judge: int) -> str:
        return "pass" if task < 30 or (task < 50 and judge % 2) else "fail"

    evidence = small_folder.lines(
        [
            small_folder.record(validator=judge, task=task, outcome=outcome(number, at))
            for at, judge in enumerate(judges)
            for number, task in enumerate(tasks)
        ]
    )
    validators = "key,stake\n" + "".join(f"{judge},{100 + number}\n" for number, judge in enumerate(judges))
    folder = small_folder.make(
        tmp_path / "large",
        participants_csv="key,uid,submission\nm1,1,s1\n",
        validators_csv=validators,
        tasks_txt="\n".join(tasks) + "\n",
        evidence=evidence,
    )
    season = read(folder)
    view = matrix(season, "m1")
    assert view is not None
    assert view["narrow"]
    assert {group["id"]: len(group["rows"]) for group in view["groups"]} == {"fail": 30, "divided": 20, "pass": 30}
    for group in view["groups"]:
        for row in group["rows"]:
            passed, counted = map(int, row["sum"].split(" of "))
            assert Fraction(passed, counted) == {"fail": 0, "pass": 1}.get(group["id"], Fraction(1, 2))
    page = pages.page(season, "participant-m1.html").decode()
    assert page.count('aria-label="pass"') == 30 * 64 + 20 * 32
    for result in ("fail", "divided", "pass"):
        assert f'<a href="#g-{result}">' in page
        assert f'<tbody id="g-{result}">' in page
    small = matrix(read(EXAMPLES / "season"), "atlas")
    assert small is not None
    assert (small["grouped"], small["narrow"], len(small["cols"]) <= NARROW) == (False, False, True)


def test_a_deposit_in_a_token_is_never_called_ether(tmp_path: Path) -> None:
    folder = tmp_path / "verdicts"
    shutil.copytree(EXAMPLES / "verdicts", folder)
    token = "0x5fbdb2315678afecb367f032d93f642f64180aa3"
    (folder / "publish.toml").write_text(f'[targets.escrow]\nkind = "evm"\ntoken = "{token}"\n')
    season = read(folder)
    check_sentences(season)
    for name in ("index.html", "bounty.html", *season.by_page):
        text = pages.page(season, name).decode()
        assert "ether" not in re.sub("whether|together", "", text), name
    assert "units of 0x5fbd…0aa3" in pages.page(season, participant_page(season.document["ranking"][0])).decode()
