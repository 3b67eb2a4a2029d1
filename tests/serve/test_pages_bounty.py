"""The page of a bounty: what is asked and by when, the verdicts, where the deposit goes, the contract."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

import bounty_kit
import small_folder
from assay.judge.rubric.judgement import quote_digest
from assay.judge.rubric.stored import publish_quotes
from assay.publish.journal import journal_of
from assay.serve import report
from assay.serve.bounty import bounty
from assay.serve.pages import names, page
from assay.serve.season import Season, read
from test_report import PageElements, standing_alone

EXAMPLES = Path(__file__).parents[2] / "examples"
HOSTILE = "<script>alert(1)</script>"
BLIND = b"b" * 32
ATTESTATION = {"m1": "sha256:" + "1a" * 32, "m2": "sha256:" + "2b" * 32}
NOW = datetime(2026, 11, 2, 10, tzinfo=UTC)


def words(season: Season, name: str) -> str:
    return PageElements(page(season, name).decode()).words


def paid(folder: Path, *edits: tuple[str, str], **changes: str) -> Path:
    """A bounty with two solutions, one of them paid, and with what `changes` says of a record."""
    people = (
        "key,name,submission,address\n"
        f'm1,"{HOSTILE}",s1,0xe46612332b8dd1ccbace486790b46d13c64b6b4a\n'
        "m2,Two,s2,0x49ead2b1066bda1e127f6ae0bd163778d08587e3\n"
    )
    answers = {"m1": ("s1", True, "COHERENT"), "m2": ("s2", False, "ELEGANT")}
    evidence = small_folder.lines(
        [
            small_folder.record("rubric", participant=who, submission=submission, verdict=verdict, checks={"C1": True, "C2": yes})
            | {"quotes": {"C1": quote_digest(f"a line of {who}", BLIND)}, "attestation": ATTESTATION[who]}
            for who, (submission, yes, verdict) in answers.items()
        ]
    )
    bounty_kit.make_bounty(folder, *edits)
    scheme = (folder / "scheme.toml").read_text()
    return small_folder.make(
        folder, "rubric", scheme_toml=scheme, participants_csv=people, evidence=evidence, tasks_txt=None, **changes
    )


def test_a_bounty_s_amounts_are_the_settlement_s_and_sum_to_the_deposit() -> None:
    season = read(EXAMPLES / "verdicts")
    view = bounty(season)
    document = season.document
    assert [(row["key"], row["bps"]) for row in view["rows"]] == [
        (row["participant"], row["bps"]) for row in document["agreed"] if row["status"] == "agreed"
    ]
    assert view["rows"][0]["whole"] == f"{document['payouts'][0]['net']} wei"
    assert (view["rows"][0]["paid"], view["rows"][0]["verdict"]) == ("1 ether", "elegant")
    assert [row["verdict"] for row in view["rows"]][2:] == ["exceptional, a required check missed", "baseline not met"]
    *parts, whole = [int(row["whole"].removesuffix(" wei")) for row in view["flow"]]
    assert sum(parts) == whole == season.scheme.payout.deposit if season.scheme.payout else False
    assert sum(part["w"] for part in view["strip"]) == pytest.approx(1)
    assert [row["now"] for row in view["tiers"]] == [True, False, False]
    for row in view["rows"]:
        work = season.agreed[row["key"]]["validators"][0]["work"]
        up, down = (sum(bar["w"] for bar in row["bars"] if bar["c"] == name) for name in ("up", "loss"))
        assert work["base"] / 10_000 + up - down == pytest.approx(row["x"])
    text = words(season, "bounty.html")
    assert "Larch takes the whole deposit; nothing is kept as a fee, and nothing goes back." in text
    assert "Pine" in text
    assert "No contract: publish.toml names none" in text
    answers = {row["id"]: [cell["t"] for cell in row["cells"]] for row in view["rubric"]["rows"]}
    assert answers["B3"] == ["yes", "yes", "yes", "no"]
    assert answers["C6"] == ["no", "yes", "yes", "not asked"]


def test_a_bounty_says_what_is_asked_by_when_and_shows_a_quote_only_if_it_is_released(tmp_path: Path) -> None:
    folder = paid(
        tmp_path / "b",
        ('"Write a haiku about integers."', f"'{HOSTILE}'"),
        ('name = "haiku"', 'name = "haiku"\nsubmissions_until = 2026-12-01T12:00:00Z'),
        ('label = "It rhymes"', f'label = "{HOSTILE}"'),
    )
    season = read(folder)
    closed = words(season, "bounty.html")
    assert "2 quotes from the solutions are committed by digest, and not released." in closed
    assert "1 Dec 2026, 12:00 UTC" in closed
    assert closed.count(HOSTILE) >= 3
    publish_quotes(folder, ATTESTATION["m1"], {"C1": "a line of m1", "C2": "nobody committed to this"}, BLIND)
    publish_quotes(folder, ATTESTATION["m2"], {"C1": "another line"}, BLIND)
    view = bounty(season)
    assert view["rubric"]["quotes"] == "1 quote is released, below the questions that they answer."
    assert [row["quotes"] for row in view["rubric"]["rows"] if row["quotes"]] == [[(HOSTILE, "a line of m1")]]
    assert "a line of m1" in words(season, "bounty.html")
    (folder / "quotes" / f"{ATTESTATION['m1'][7:]}.json").write_text("{}")
    assert "not released" in words(season, "bounty.html"), "what is damaged is not shown"
    report.write_folder(season, tmp_path / "site")
    standing_alone(tmp_path / "site")


def test_a_bounty_names_its_contract_and_what_was_sent_and_no_secret_of_publish_toml(tmp_path: Path) -> None:
    folder = paid(tmp_path / "b")
    address = "0x" + "ab" * 20
    (folder / "publish.toml").write_text(
        f'[targets.sepolia]\nkind = "evm"\nrpc = "https://node.example/KEY"\nchain_id = 11155111\nround = "{address}"\n'
    )
    assert "Nothing was sent there yet." in words(read(folder), "bounty.html")
    journal = journal_of(folder, "sepolia")
    about = {"subject": "epoch 3", "plan": "sha256:p", "attempt": 1}
    journal.add(about | {"state": "planned", "raw": "SECRET", "at": "2026-11-02T10:00:00Z"})
    journal.add(about | {"state": "confirmed", "block": 77, "hash": "0xfeed", "what": "WORDS", "at": "2026-11-02T10:01:00Z"})
    markup = page(read(folder), "bounty.html").decode()
    text = PageElements(markup).words
    assert address in text
    assert "epoch 3 77 2026-11-02T10:01:00Z on the chain 0xfeed" in text
    assert not re.search("node.example|SECRET|WORDS", markup)
    with (folder / "published" / "sepolia.jsonl").open("a") as file:
        file.write('{"previous":"forged"}\n')
    assert "Its journal cannot be read." in words(read(folder), "bounty.html")


def test_only_a_rubric_with_a_deposit_has_a_bounty_s_page(tmp_path: Path) -> None:
    assert "bounty.html" not in [*names(read(EXAMPLES / "season"))]
    assert "bounty.html" not in [*names(read(small_folder.make(tmp_path / "small", "rubric", tasks_txt=None)))]
    assert "bounty.html" in [*names(read(paid(tmp_path / "b")))]


# Validators and epochs
