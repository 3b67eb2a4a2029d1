"""`assay explain`: whom it finds, what it tells, and its JSON."""

import json
from pathlib import Path

import pytest
import rfc8785

from assay.cli import app
from assay.cli.keys import find
from assay.errors import BadInput
from assay.records import Participant
from cli_kit import RUNNER, from_preset, narrow, output, records, refused, rewrite, run, with_records

PEOPLE = [
    Participant("alice-1", name="Alice"),
    Participant("alice-2", name="Anna"),
    Participant("bob", name="Anna"),
    Participant("5FHneW46xGXgs5mUiveU4sbTyGBzmstUnZkCDpMcK1W2JXz6"),
]


@pytest.fixture
def competition(tmp_path: Path) -> Path:
    return from_preset(tmp_path / "season")


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        ("alice-1", "alice-1"),
        ("Alice", "alice-1"),
        ("bo", "bob"),
        ("Al", "alice-1"),
        ("5FHneW…W2JXz6", PEOPLE[3].key),
        ("5F", PEOPLE[3].key),
    ],
)
def test_who_is_meant(typed: str, key: str) -> None:
    assert find(typed, PEOPLE) == key


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("alice", "could be 2 participants; give one of them: alice-1, alice-2"),
        ("Anna", "could be 2 participants; give one of them: alice-2, bob"),
        ("An", "could be 2 participants; give one of them: alice-2, bob"),
        ("alise-1", "did you mean 'alice-1'?"),
        ("zzz", "participants.csv has alice-1, alice-2, bob"),
        ("b…b", "there is no participant"),
    ],
)
def test_who_is_not_known_or_not_clear(typed: str, message: str) -> None:
    with pytest.raises(BadInput) as refusal:
        find(typed, PEOPLE)
    assert message in str(refusal.value)


def test_each_step_is_told_in_its_order(competition: Path) -> None:
    story = output("explain", competition, "miner-b")
    titles = [line for line in story.splitlines() if line[:1].isdigit()]
    assert titles == [
        "1. What the validators saw",
        "2. Tasks that were not passed",
        "3. Quorum",
        "4. Outliers",
        "5. Agreed score",
        "6. Rank",
        "7. Share",
        "8. Cap",
        "9. Decay",
        "10. Weight",
        "11. The next place",
    ]
    words = " ".join(story.split())
    assert "validator-2 350 6 of 12 passed 0.5 5.620833311 no: outlier" in words
    assert "miner-b is 2nd of 3 with a score of 0.583333333" in words
    assert narrow(story)


def test_nothing_of_a_table_is_cut_off_where_it_does_not_fit(competition: Path) -> None:
    story = " ".join(output("explain", competition, "miner-b").split())
    assert "validator-1 (out of time), validator-2 (out of time), validator-3 (out of time)" in story


@pytest.mark.parametrize("preset", ["agonaut", "cswon", "bounty-challenge"])
@pytest.mark.parametrize("key", ["miner-a", "miner-b", "miner-c"])
def test_every_kind_has_its_story(tmp_path: Path, preset: str, key: str) -> None:
    story = output("explain", from_preset(tmp_path / preset, preset), key)
    assert narrow(story)
    assert "Agreed score" in story


def test_why_there_is_no_score_and_what_to_do(competition: Path) -> None:
    with_records(competition, records(competition)[1:])
    story = output("explain", competition, "miner-a")
    assert "1. Why there is no agreed score" in story
    assert "To do: these validators must run the missing trials" in story


def test_json_is_canonical_and_repeats_the_settlement(competition: Path) -> None:
    shown = run("explain", competition, "miner-a", "--epoch", "1", "--json").stdout_bytes
    document = json.loads(shown)
    assert rfc8785.dumps(document) + b"\n" == shown
    settlement = json.loads(output("settle", competition, "--json"))
    assert document["settlement"] == settlement["digest"]
    facts = {chapter["name"]: chapter["facts"] for chapter in document["chapters"]}
    assert facts["weight"]["u16"] == settlement["weights"][0]["u16"]
    assert facts["evidence"]["validators"] == settlement["agreed"][0]["validators"]


def test_long_validator_keys_fit(competition: Path) -> None:
    key = "5FHneW46xGXgs5mUiveU4sbTyGBzmstUnZkCDpMcK1W2JXz6"
    for name in ("validators.csv", "evidence/sample.jsonl"):
        rewrite(competition / name, "validator-2", key)
    assert narrow(output("explain", competition, "miner-b"))
    assert "5FHneW…JXz6" in output("explain", competition, "miner-b", columns=200)
    assert key in output("explain", competition, "miner-b", "--json")


def test_someone_unknown_is_bad_input(competition: Path) -> None:
    assert "did you mean 'miner-a'" in refused("explain", competition, "minor-a")


def completions(words: str) -> list[str]:
    """What the shell is offered for the last of the words."""
    result = RUNNER.invoke(
        app,
        [],
        prog_name="assay",
        env={"_ASSAY_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))},
    )
    return result.stdout.split()


def test_the_shell_completes_presets_and_participants(competition: Path) -> None:
    assert completions(f"assay explain {competition} miner-") == ["miner-a", "miner-b", "miner-c"]
    assert completions(f"assay explain {competition / 'nowhere'} miner-") == []
    assert completions("assay init --preset c") == ["cswon"]
    assert {"settle", "scheme"} <= set(completions("assay s"))
