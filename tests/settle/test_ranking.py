"""`[reward] kind = "ranking"`: a board of scores and nothing of payment, and the preset `benchmark` that has it. SPEC 2, 3."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.conformance import answer
from assay.errors import BadInput
from assay.scheme.load import parse, presets
from cli_kit import from_preset, narrow, output, refused, rewrite, run
from oracle import settle as oracle_settle
from oracle.cases import case_of
from oracle.random_scheme import KINDS

CHAIN = re.compile(
    r"bittensor|\bstakes?\b|burn|hotkey|\buids?\b|emission|u16|weight|\bcap\b|capped|decay|miner|validator|\btao\b|\brao\b|subnet",
    re.IGNORECASE,
)
"""Words that a benchmark has no use for."""


def ranked(case: dict[str, Any]) -> dict[str, Any]:
    """The case with a ranking in place of its reward."""
    scheme = {name: part for name, part in case["scheme"].items() if name not in ("decay", "payout", "reward")}
    return case | {"scheme": scheme | {"reward": {"kind": "ranking"}}}


@pytest.mark.sampled(20)
@pytest.mark.no_cover
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_the_oracle_ranks_alike(kind: str, seed: int) -> None:
    case = ranked(case_of(seed, kind, 5))
    document = answer("settle", case)
    assert (document["weights"], document["burn"], document["payouts"], document["refund"]) == ([], None, [], None)
    expected = oracle_settle(case)
    assert {name: document[name] for name in expected if name != "scheme"} == {
        name: value for name, value in expected.items() if name != "scheme"
    }


def test_the_preset_says_nothing_of_a_chain(tmp_path: Path) -> None:
    place = tmp_path / "board"
    shown = output("init", "--preset", "benchmark", place)
    shown = shown.replace("validators.csv", "")  # what SPEC calls the file
    shown += output("settle", place)
    shown += "".join(output("explain", place, f"agent-{letter}") for letter in "abc")
    assert narrow(shown)
    shown += output("settle", place, "--csv")
    facts = json.loads(output("explain", place, "agent-b", "--json"))
    for chapter in facts["chapters"]:
        shown += json.dumps(chapter["table"]) + json.dumps(chapter["text"])
    assert CHAIN.findall(shown) == []
    assert '"stake"' not in json.dumps(facts)
    assert "uid" not in (place / "participants.csv").read_text(encoding="utf-8")


def test_equal_scores_share_a_place(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "board", "benchmark")
    records = (place / "evidence/sample.jsonl").read_text(encoding="utf-8").splitlines()
    documents = [json.loads(line) for line in records]
    passes = {"agent-a": 6, "agent-b": 6, "agent-c": 6}
    passes["agent-a"] = 3
    for document in documents:
        document["outcome"] = "pass" if int(document["task"][-2:]) <= passes[document["participant"]] else "fail"
    (place / "evidence/sample.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    board = output("settle", place)
    assert re.findall(r"^(\d\S*) +(agent-.)", board, re.MULTILINE) == [("1=", "agent-b"), ("1=", "agent-c"), ("3", "agent-a")]
    rows = list(csv.DictReader(output("settle", place, "--csv").splitlines()))
    assert [row["place"] for row in rows] == ["1", "1", "3"]
    assert (rows[0]["low"], rows[0]["passed"], rows[0]["tied_with_next"]) == ("0.2538", "18", "true")
    printed = output("explain", place, "agent-c")
    assert "agent-c is 1st of 3 with a score of 0.5." in printed
    assert "agent-b has the same score, so they share the place." in printed


def test_errors_leave_a_run_out_and_nobody_without_runs_has_a_place(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "board", "benchmark")
    rewrite(place / "scheme.toml", "min_validators = 1", "min_validators = 3")
    text = (place / "evidence/sample.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [line for line in text if not ('"run-3"' in line and '"agent-b"' in line)]
    broken = [line.replace('"pass"', '"error"') if '"run-2"' in line and '"agent-a"' in line else line for line in kept]
    (place / "evidence/sample.jsonl").write_text("\n".join(broken) + "\n", encoding="utf-8")
    board = output("settle", place)
    assert "Trials are missing from run-2 (9)" in " ".join(board.split())
    assert "2 runs count; 3 are needed." in board
    printed = output("explain", place, "agent-b")
    assert "so it has no place in the ranking." in " ".join(printed.split())
    assert CHAIN.findall(printed + board + output("explain", place, "agent-a")) == []
    assert "\n\n\n" not in board


def test_a_board_without_intervals_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = from_preset(tmp_path / "board", "benchmark")
    monkeypatch.setattr("assay.uncertainty.MOST", 5)
    board = output("settle", place)
    assert "No intervals: there are too many records" in board
    assert re.search(r"^1 +agent-a +0.75 +3$", board, re.MULTILINE)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ('[reward]\nkind = "ranking"\ncap = "15%"\n', "a ranking pays nobody, so cap does nothing"),
        ('[reward]\nkind = "ranking"\n[decay]\n', "a ranking does not decay; remove the section [decay]"),
        ('[reward]\nkind = "ranking"\n[payout]\ndeposit = "1"\n', 'the section [payout] needs [reward] kind = "payout"'),
    ],
)
def test_what_pays_does_not_go_with_a_ranking(extra: str, message: str) -> None:
    with pytest.raises(BadInput) as refusal:
        parse(f'[scheme]\nname = "x"\n[score]\nkind = "tests"\n{extra}')
    assert message in str(refusal.value)


def test_its_document_is_read_again() -> None:
    scheme = parse(presets()["benchmark"])
    assert type(scheme).model_validate(scheme.document()).digest == scheme.digest
    assert not scheme.stakes
    assert parse(presets()["term-challenge"]).stakes
    assert parse(presets()["benchmark"].replace('combine = "mean"', 'combine = "stake-mean"')).stakes


def test_a_ranking_is_not_joined_to_a_subnet(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "subnet", "platform")
    from_preset(place / "board", "benchmark")
    rewrite(place / "my-subnet.toml", 'path = "bounty-challenge"', 'path = "board"')
    assert "settles into a ranking, so it has no weights to join" in refused("emission", place / "my-subnet.toml")


def test_the_library_has_its_ranking_and_tables(tmp_path: Path) -> None:
    settlement = assay.open(from_preset(tmp_path / "board", "benchmark")).settle()
    assert settlement.ranking == ["agent-a", "agent-b", "agent-c"]
    assert (dict(settlement.weights), settlement.payouts) == ({}, None)
    tables = settlement.to_arrow()
    assert (tables.agreed.num_rows, tables.weights.num_rows) == (3, 0)


def test_warm_up_goes_with_weights_alone() -> None:
    with pytest.raises(BadInput, match="there is only a ranking"):
        parse('[scheme]\nname = "x"\n[score]\nkind = "workflow"\nwarm_up = 3\n[reward]\nkind = "ranking"\n')


def test_the_list_of_presets_has_it() -> None:
    assert "benchmark" in run("scheme", "list").stdout


def harbor_job(place: Path) -> Path:
    """A job as Harbor keeps it: two agents on three tasks, one trial of which met a broken environment."""
    for agent, rewards in {"finch": (1, 1, 0), "wren": (1, 0, None)}.items():
        for number, reward in enumerate(rewards):
            trial = place / "job" / f"task-{number}__{agent}"
            trial.mkdir(parents=True)
            broken = {"exception_type": "EnvironmentStartTimeoutError", "exception_message": "", "exception_traceback": ""}
            result = {
                "task_name": f"task-{number}",
                "trial_name": trial.name,
                "agent_info": {"name": agent, "version": "1", "model_info": {"name": "small", "provider": "acme"}},
                "verifier_result": None if reward is None else {"rewards": {"reward": reward}},
                "exception_info": broken if reward is None else None,
                "started_at": "2026-11-02T09:00:00Z",
            }
            (trial / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return place


@pytest.mark.sampled(1)
@pytest.mark.parametrize("harness", ["harbor", "inspect", "csv"])
def test_a_newcomers_board_has_not_a_word_of_a_chain(tmp_path: Path, harness: str) -> None:
    root = Path(__file__).parents[2]
    source = {
        "harbor": harbor_job(tmp_path / "jobs"),
        "inspect": root / "tests" / "imports" / "harness-logs" / "inspect" / "board",
        "csv": root / "examples" / "benchmark" / "trials.csv",
    }[harness]
    board = tmp_path / "board"
    shown = output("import", harness, source, board)
    shown += json.dumps(json.loads(output("import", harness, source, tmp_path / "other", "--json"))["notes"])
    shown += output("settle", board)
    ranking = json.loads(output("settle", board, "--json"))["ranking"]
    everybody = [row["participant"] for row in json.loads(output("settle", board, "--json"))["agreed"]]
    shown += "".join(output("explain", board, key) for key in everybody)
    shown += output("settle", board, "--csv")
    assert CHAIN.findall(shown) == []
    expected = {"harbor": ["finch_small"], "inspect": ["mockllm/large", "mockllm/small"]}
    assert ranking == expected.get(harness, ["finch", "heron", "plover", "wren"])
    if harness == "csv":
        assert re.findall(r"^(\S+) +(\w+) +0\.", output("settle", board), re.MULTILINE) == [
            ("1", "finch"),
            ("2=", "heron"),
            ("2=", "plover"),
            ("4", "wren"),
        ]
