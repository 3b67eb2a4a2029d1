"""Boards of many participants and many epochs: what is shown of them, in which order, and how many bytes that takes."""

import csv
import gzip
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import small_folder
from assay.ledger import settling
from assay.serve import pages, report
from assay.serve.board import board
from assay.serve.bounty import bounty
from assay.serve.ranking import AT_ONCE, Asked
from assay.serve.season import Season, read
from assay.serve.site import ServedCompetition
from cli_kit import output, refused

MANY = 4_096
FIRST_LOAD, LATER = 250_000, 30_000
"""Bytes as served: of a board with all that it loads, and of each page after it."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Season:
    """A board of 4,096 with agreed scores, and ten without."""
    place = tmp_path_factory.mktemp("many") / "many"
    keys = [f"5{number:046x}z" for number in range(1, MANY + 11)]
    participants = "key,uid,name,submission\n" + "".join(
        f"{key},{uid if uid % 9 else ''},{'' if uid % 3 else f'Miner {uid}'},s{uid}\n" for uid, key in enumerate(keys, start=1)
    )
    scores = [(key, uid, "0." + f"{(uid * 7919) % 9973:04}") for uid, key in enumerate(keys[:MANY], start=1)]
    evidence = small_folder.lines(
        [
            small_folder.record("given", validator=validator, participant=key, submission=f"s{uid}", score=score.rstrip("0"))
            for key, uid, score in scores
            for validator in ("v1", "v2", "v3")
        ]
    )
    return read(small_folder.make(place, "given", participants_csv=participants, evidence=evidence))


def names_on(page: bytes) -> list[str]:
    """The keys of participants in the order of a page's ranking."""
    body = page.decode().partition("<tbody")[2].partition("</tbody>")[0]
    return [match[1] for match in re.finditer(r'<th [^>]*class="c-who"><a href="participant-([^"]+)\.html"', body)]


@pytest.mark.full
def test_a_long_board_is_quick_to_load(many: Season) -> None:
    first, assets = pages.page(many, "index.html"), dict(pages.assets())
    loaded = [name for name in assets if re.search(rf'(?:href|src)="{re.escape(name)}"', first.decode())]
    assert {"style.css", "assay.js", "fonts/inter-var.woff2", "fonts/plex-mono.woff2"} <= {*loaded}
    fonts = sum(len(assets[name]) for name in loaded if name.endswith(".woff2"))
    texts = [first, *(assets[name] for name in loaded if not name.endswith(".woff2"))]
    assert fonts + sum(len(gzip.compress(text)) for text in texts) < FIRST_LOAD
    numbered = [name for name in pages.names(many) if name.startswith("board-")]
    assert numbered == [f"board-{number}.html" for number in range(2, 1 + MANY // AT_ONCE)]
    assert max(len(gzip.compress(pages.page(many, name))) for name in ("index.html", *numbered)) < LATER


@pytest.mark.full
def test_the_pages_of_a_board_are_its_ranking_and_its_tables_stay_whole(many: Season) -> None:
    numbered = ["index.html", *(name for name in pages.names(many) if name.startswith("board-"))]
    keys = [key for name in numbered for key in names_on(pages.page(many, name))]
    assert keys == many.document["ranking"]
    rows = [*csv.DictReader(pages.page(many, "board.csv").decode().splitlines())]
    assert [row["participant"] for row in rows] == many.document["ranking"]
    for name in ("board-1.html", "board-17.html", "board-02.html", "board-.html", "board-99999999.html"):
        with pytest.raises(KeyError):
            pages.page(many, name)


def test_a_service_shows_a_page_of_what_was_found_and_sorted(many: Season) -> None:
    weights = {row["participant"]: row for row in many.document["weights"]}

    def asked(**query: str) -> dict[str, Any]:
        return board(many, Asked.of({name.rstrip("_"): value for name, value in query.items()}))

    lightest = asked(sort="weight", order="asc")
    assert all(first["u16"] <= then["u16"] for first, then in pairwise(lightest["rows"]))
    assert lightest["rows"][0]["u16"] == min(row["u16"] for row in weights.values())
    assert lightest["heads"]["weight"] == {"href": "?sort=weight", "sort": "ascending"}
    assert lightest["heads"]["score"]["sort"] == ""
    last = asked(from_=str(MANY))
    assert [row["key"] for row in last["rows"]] == many.document["ranking"][-AT_ONCE:]
    assert last["pager"]["before"] == f"?from={1 + MANY - 2 * AT_ONCE}"
    named = asked(find="mINER 123", sort="name")
    assert {row["name"] for row in named["rows"]} == {
        person.name for person in many.participants.values() if "Miner 123" in person.name
    }
    assert [row["name"] for row in named["rows"]] == sorted(row["name"] for row in named["rows"])
    assert named["heads"]["share"]["href"] == "?find=mINER+123&sort=share"
    by_key = asked(find=many.document["ranking"][700])
    assert [row["rank"] for row in by_key["rows"]] == ["701"], "a search keeps the rank"
    unscored = asked(find=f"Miner {MANY + 2}")
    assert (unscored["rows"], [row["name"] for row in unscored["unscored"]]) == ([], [f"Miner {MANY + 2}"])


@pytest.mark.parametrize(
    "query",
    [
        {"from": "-1", "sort": "rank"},
        {"from": "9" * 40},
        {"from": "٣", "order": "sideways"},
        {"sort": "__class__", "order": "desc;"},
        {"find": "   ", "from": "0"},
        {"other": "1"},
    ],
)
def test_what_cannot_be_read_counts_as_not_asked(many: Season, query: dict[str, str]) -> None:
    assert names_on(pages.page(many, "index.html", query)) == many.document["ranking"][:AT_ONCE]


def test_what_was_searched_is_text(many: Season) -> None:
    page = pages.page(many, "index.html", {"find": '"><script>alert(1)</script>'}).decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "No participant with an agreed score has" in page


def divided(place: Path, people: int, tasks: int, passed: list[int]) -> Season:
    """A season in which the participants pass so many tasks."""
    return read(
        small_folder.make(
            place,
            participants_csv="key,uid,submission\n" + "".join(f"m{at:02},{at + 1},s{at}\n" for at in range(people)),
            tasks_txt="".join(f"t{at}\n" for at in range(tasks)),
            evidence=small_folder.lines(
                [
                    small_folder.record(
                        validator=validator,
                        participant=f"m{at:02}",
                        submission=f"s{at}",
                        task=f"t{task}",
                        outcome="pass" if task < passed[at] else "fail",
                    )
                    for validator in ("v1", "v2", "v3")
                    for at in range(people)
                    for task in range(tasks)
                ]
            ),
        )
    )


def test_the_few_places_where_the_tasks_separate_neighbours_are_marked(tmp_path: Path) -> None:
    view = board(divided(tmp_path / "few", 24, 30, [29] * 12 + [2] * 12))
    assert [row["rank"] for row in view["rows"] if row["cut"]] == ["12"]
    assert view["few_cuts"]
    assert view["apart"] == "The tasks separate neighbours only after 12th (m11)."
    none = board(divided(tmp_path / "none", 24, 30, [20] * 24))
    assert none["apart"] == "The tasks do not separate the first from anybody."
    slope = board(divided(tmp_path / "slope", 4, 30, [28, 25, 22, 19]))
    assert slope["apart"] == "The tasks separate no two neighbours, but they separate the 1st from the 3rd."
    assert [row["note"] for row in slope["rows"]] == ["", "", "highest place clearly worse than the 1st", ""]
    every = board(divided(tmp_path / "every", 4, 60, [60, 40, 20, 1]))
    assert (every["apart"], every["few_cuts"]) == ("", False)


@pytest.mark.full
def test_every_epoch_has_its_pages_and_a_way_to_the_others(tmp_path: Path) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    for epoch in range(3, 6):
        ledger_kit.add(folder, ledger_kit.records(epoch=epoch))
        with ledger_kit.opened(folder) as ledger:
            settling.settle(ledger, ledger_kit.SIGNER, epoch)
    site = tmp_path / "site"
    output("report", str(folder), "-o", str(site), "--all-epochs")
    assert sorted(file.name for file in site.iterdir() if file.is_dir()) == ["epoch-3", "epoch-4", "fonts", "verifier"]
    for page in site.rglob("*.html"):
        for link in re.findall(r'(?:href|src)="([^"#]*)', page.read_text()):
            assert link in ("", "data:,") or (page.parent / link).is_file(), f"{page}: {link}"
    first = (site / "epoch-3" / "index.html").read_text()
    assert 'href="../epoch-4/index.html"' in first
    assert 'href="../index.html"' in first
    assert "epoch 3" in first
    assert (site / "epoch-4" / "board.json").read_bytes() == pages.page(read(folder, 4), "board.json")
    message = refused("report", str(folder), "-o", str(tmp_path / "board.html"), "--all-epochs")
    assert "name a folder for --out" in message
    report.write_folder(read(folder), site)
    assert not (site / "epoch-3").exists()
    served = ServedCompetition(folder)
    try:
        assert 'href="epoch-3/index.html"' in served.page("index.html", None, {}).decode()
        earlier = served.page("index.html", 4, {}).decode()
        assert 'href="../epoch-3/index.html"' in earlier
        assert 'href="../index.html"' in earlier
    finally:
        served.close()


def test_a_slider_of_hundreds_of_epochs_has_few_steps(tmp_path: Path) -> None:
    from dataclasses import replace

    from assay.serve.epoch import STEPS, steps

    season = divided(tmp_path / "one", 2, 2, [1, 2])
    assert steps(season) is None
    now = season.settlement.epoch
    long = replace(season, others={epoch: f"../epoch-{epoch}/" for epoch in range(400) if epoch != now})
    slider = steps(long)
    assert slider is not None
    numbers = [step["n"] for step in slider["epochs"]]
    assert numbers == sorted(numbers)
    assert len(numbers) <= STEPS + 2
    assert {0, now - 1, now, now + 1, 399} <= {*numbers}
    assert (slider["before"]["n"], slider["after"]["n"]) == (now - 1, now + 1)


def test_a_board_of_payouts_says_what_the_bounty_s_page_says() -> None:
    season = read(Path(__file__).parents[2] / "examples" / "verdicts")
    view, page_of_bounty = board(season), bounty(season)
    assert view["heading"] == page_of_bounty["heading"]
    assert sum(part["w"] for part in view["strip"]) == pytest.approx(1)
    for row, solution in zip(view["rows"], page_of_bounty["rows"], strict=True):
        assert (row["key"], row["bars"], row["note"], row["x"]) == tuple(
            solution[name] for name in ("key", "bars", "verdict", "x")
        )
    assert [row["paid"] for row in view["rows"] if row["net"] != "0"] == ["1 ether"]
    assert (view["mark"], view["ends"][2]) == ("7000", "10000")


def test_a_strip_names_the_best_of_few_and_groups_many(many: Season, tmp_path: Path) -> None:
    few = board(divided(tmp_path / "few", 13, 20, [20 - at for at in range(13)]))
    assert [part["name"] for part in few["strip"]][-1] == "8 others"
    assert len(few["strip"]) == 6
    assert [part["name"] for part in board(many)["strip"]][1:3] == ["ranks 2–4", "ranks 5–16"]
    assert few["heading"].startswith("13 of 13 participants have an agreed score. All of the emission is paid")
