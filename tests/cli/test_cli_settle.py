"""`assay settle`: the board, JSON, CSV, files, warnings, and what is refused."""

import csv
import io
import json
from pathlib import Path

import pytest
import rfc8785

from assay.scheme.load import presets
from cli_kit import files_under, from_preset, narrow, output, records, refused, rewrite, run, with_records

WEIGHTS = ["term-challenge", "cswon", "bounty-challenge"]


@pytest.fixture
def competition(tmp_path: Path) -> Path:
    return from_preset(tmp_path / "season")


def lines(board: str) -> list[str]:
    return [" ".join(line.split()) for line in board.splitlines()]


def test_the_board_shows_rank_score_interval_share_and_burn(competition: Path) -> None:
    board = lines(output("settle", competition))
    assert board[0] == "term-challenge 1.0.0 · epoch 1"
    assert board[1] == "3 of 3 participants have an agreed score."
    assert board[3] == "# participant uid score 95 % interval kept share u16"
    assert board[5:9] == [
        "1 miner-a 1 0.75 46.8–91.1 % ≈ 100 % 47.37 % 31043",
        "2 miner-b 2 0.583333333 32.0–80.7 % ≈ 100 % 36.84 % 24144",
        "3 miner-c 3 0.25 8.9–53.2 % 100 % 15.79 % 10348",
        "burn 0 0.00 % 0",
    ]
    assert "≈ The tasks do not show that this participant is better than the next one." in board
    assert any(line.startswith("Digest sha256:") for line in board)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("preset", sorted(set(presets()) - {"platform"}))
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_boards_fit_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preset: str, columns: int) -> None:
    monkeypatch.chdir(tmp_path)
    board = output("settle", from_preset(Path(preset), preset), columns=columns)
    least = 68 if preset == "agonaut" else 60  # an amount of wei is never cut
    assert narrow(board, max(columns, least))
    assert not any(line != line.rstrip() for line in board.splitlines())


def test_scores_that_rest_on_weaker_tests_are_labelled(competition: Path) -> None:
    file = competition / "tasks.txt"
    tasks = file.read_text(encoding="utf-8").split()
    assert "Weaker" not in output("settle", competition)
    pinned = [f"{task} sha256:{'0' * 64}" for task in tasks]
    file.write_text("\n".join([f"{pinned[0]} shared", f"{tasks[1]} snapshot", *pinned[2:]]), encoding="utf-8")
    printed = " ".join(output("settle", competition).split())
    which = f"shared: {tasks[0]}; snapshot: {tasks[1]}"
    assert f"Weaker scores: 2 of {len(tasks)} tasks are verified in the agent's own files ({which})." in printed
    file.write_text("\n".join([*tasks[1:], f"{tasks[0]} shared"]), encoding="utf-8")
    printed = " ".join(output("settle", competition).split())
    assert f"Weaker scores: 1 of {len(tasks)} tasks is verified in the agent's own files (shared: {tasks[0]})." in printed


def test_nothing_is_coloured_where_nobody_looks(competition: Path) -> None:
    assert "\x1b" not in output("settle", competition)


def test_numbers_stand_below_each_other(competition: Path) -> None:
    rows = output("settle", competition).splitlines()[5:9]
    assert len({len(row) for row in rows}) == 1


def test_json_is_canonical_and_one_line(competition: Path) -> None:
    shown = run("settle", competition, "--json").stdout_bytes
    document = json.loads(shown)
    assert rfc8785.dumps(document) + b"\n" == shown
    assert document["schema"] == "assay.settlement/1"
    assert document["ranking"] == ["miner-a", "miner-b", "miner-c"]


@pytest.mark.parametrize("preset", WEIGHTS)
def test_csv_has_the_weights_and_the_burn(tmp_path: Path, preset: str) -> None:
    place = from_preset(tmp_path / preset, preset)
    document = json.loads(output("settle", place, "--json"))
    rows = list(csv.DictReader(io.StringIO(output("settle", place, "--csv"))))
    assert [row["participant"] for row in rows] == [*document["ranking"], ""]
    assert [row["u16"] for row in rows] == [str(row["u16"]) for row in (*document["weights"], document["burn"])]
    assert rows[-1]["uid"] == "0"


def test_csv_has_the_payouts_and_the_refund(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "prize", "agonaut")
    rewrite(place / "bounty.toml", "fee_bps = 0", "fee_bps = 250")
    rows = list(csv.DictReader(io.StringIO(output("settle", place, "--csv"))))
    assert [row["place"] for row in rows] == ["1", ""]
    assert sum(int(row["net"] or 0) + int(row["fee"] or 0) for row in rows) == 10**18


def test_the_payout_board(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "prize", "agonaut")
    board = lines(output("settle", place, columns=200))
    assert "The best score is 135.71 % of the threshold of 7000 BPS: 100 % of the deposit is released." in board
    assert any(line.startswith("1 miner-a 9500 1000000000000000000 0 1000000000000000000 1 0x") for line in board)
    assert "3 miner-c 2000" in board
    assert "refund 0 0" in board
    rewrite(place / "participants.csv", "address", "name")
    rewrite(place / "participants.csv", ",name,", ",address,")
    assert "participants.csv has no address to pay to: miner-a." in lines(output("settle", place, columns=200))


def test_a_prize_that_nobody_reaches(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "prize", "agonaut")
    rows = records(place)
    with_records(place, [row | {"outcome": "unjudged"} for row in rows])
    board = lines(output("settle", place))
    assert "No participant has an agreed score, so the deposit is refunded." in board
    assert "refund 1000000000000000000 1" in board


def test_who_has_no_score_and_why(competition: Path) -> None:
    rows = [
        record
        for record in records(competition)
        if not (record["participant"] == "miner-b" and record["validator"] == "validator-3")
    ]
    with_records(competition, [row for row in rows if (row["participant"], row["task"]) != ("miner-c", "task-07")])
    board = lines(output("settle", competition, columns=200))
    assert board[1] == "1 of 3 participants has an agreed score."
    assert "miner-b no-quorum 2 validators count; 3 are needed." in board
    assert any(line.startswith("miner-c incomplete Trials are missing from validator-1 (1)") for line in board)
    assert "Burnt: 50 % by the cap." in board
    assert "Held at the cap of 50 %: miner-a." in board


def test_many_without_a_score_for_one_reason_are_one_line(competition: Path) -> None:
    with (competition / "participants.csv").open("a") as file:
        file.writelines(f"idle-{number:02},{200 + number},,,,\n" for number in range(9))
    shown = " ".join(output("settle", competition).split())
    assert (
        "9 participants (no-quorum): idle-00, idle-01, idle-02, idle-03, idle-04, idle-05, idle-06 and 2 more. It has no" in shown
    )
    assert "idle-08" not in shown


def test_scores_left_out_are_named(competition: Path) -> None:
    assert "Scores left out as outliers: from validator-2 for miner-b." in lines(output("settle", competition))
    rewrite(competition / "scheme.toml", 'method = "modified-z"', 'method = "none"')
    assert "outliers" not in output("settle", competition)


def test_nobody_has_a_score(competition: Path) -> None:
    with_records(competition, records(competition)[:1])
    board = lines(output("settle", competition))
    assert "No participant has an agreed score, so everything burns." in board
    assert "burn 0 100 % 65535" in board


def test_scores_of_zero_take_no_part(competition: Path) -> None:
    with_records(competition, [record | {"outcome": "fail"} for record in records(competition)])
    assert "No participant has a share in the reward, so everything burns." in lines(output("settle", competition))


def test_unregistered_and_unallocated(competition: Path) -> None:
    rewrite(competition / "participants.csv", "miner-b,2,", "miner-b,,")
    rewrite(competition / "scheme.toml", 'cap = "50%"', 'cap = "40%"')
    rewrite(competition / "scheme.toml", 'excess = "redistribute"', 'excess = "drop"')
    board = lines(output("settle", competition, columns=200))
    assert "No uid on the subnet yet, so the share burns: miner-b." in board
    assert "Unallocated: 7.37 %, above the cap." in board


def test_names_are_shown_and_cropped_before_keys(competition: Path) -> None:
    text = (competition / "participants.csv").read_text(encoding="utf-8")
    (competition / "participants.csv").write_text(
        text.replace("miner-a,1,,", "miner-a,1,An exceedingly long name,"), encoding="utf-8"
    )
    wide, slim = output("settle", competition, columns=200), output("settle", competition)
    assert "An exceedingly long name" in wide
    assert "An exceed" not in slim
    assert "miner-a " in slim
    assert narrow(slim)


def test_long_keys_are_short_on_a_terminal_whole_in_json_and_may_be_pasted(competition: Path) -> None:
    key = "5FHneW46xGXgs5mUiveU4sbTyGBzmstUnZkCDpMcK1W2JXz6"
    for name in ("participants.csv", "evidence/sample.jsonl"):
        rewrite(competition / name, "miner-a", key)
    board = output("settle", competition)
    assert narrow(board)
    shown = next(line.split()[1] for line in board.splitlines() if line.startswith("1  "))
    assert "…" in shown
    assert key in output("settle", competition, columns=200)
    assert output("explain", competition, shown, "--json") == output("explain", competition, key, "--json")


def test_too_many_records_have_no_intervals(competition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.uncertainty.MOST", 5)
    assert "No intervals: there are too many records" in output("settle", competition)


def test_output_writes_the_settlement_and_shows_the_board(competition: Path, tmp_path: Path) -> None:
    file = tmp_path / "epoch-1.json"
    board = output("settle", competition, "--output", file)
    assert board == output("settle", competition)
    assert file.read_bytes() == run("settle", competition, "--json").stdout_bytes
    output("settle", competition, "--csv", "-o", tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8") == output("settle", competition, "--csv")
    assert output("settle", competition, "--output", "-") == output("settle", competition, "--json")


def test_an_earlier_settlement_goes_on(competition: Path, tmp_path: Path) -> None:
    file = tmp_path / "epoch-1.json"
    run("settle", competition, "--output", file)
    later = json.loads(output("settle", competition, "--epoch", "15", "--previous", file, "--json"))
    assert {row["stale"] for row in later["weights"]} == {4}
    assert "80 %" in output("settle", competition, "--epoch", "15", "--previous", file)


@pytest.mark.parametrize("option", [["--key", "log"], ["--dry-run"]])
def test_what_only_a_ledger_understands_is_refused_without_one(competition: Path, option: list[str]) -> None:
    message = refused("settle", competition, *option)
    assert message.startswith(f"{competition}: {option[0]}: there is no ledger, so nothing is signed or kept; leave it out")


def test_what_lies_beside_evidence_and_is_not_read_is_named(competition: Path) -> None:
    for name in ("more.json", "old.jsonl.bak", "README.md", ".hidden"):
        (competition / "evidence" / name).write_text("{}")
    warnings = " ".join(run("settle", competition, "--json").stderr.split())
    assert [name for name in ("more.json", "old.jsonl.bak", "README.md", ".hidden") if f"{name}: is not read" in warnings] == [
        "more.json", "old.jsonl.bak",
    ]  # fmt: skip


def test_warnings_go_to_stderr(competition: Path) -> None:
    rewrite(competition / "scheme.toml", 'method = "modified-z"', 'method = "z"')
    result = run("settle", competition, "--json", columns=500)
    assert json.loads(result.stdout)["epoch"] == 1
    assert result.stderr.startswith("warning: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("scheme.toml", 'cap = "50%"', 'cap = "150%"', "scheme.toml:"),
        ("participants.csv", "miner-b,2,", "miner-b,1,", "participants.csv:3: uid"),
        ("validators.csv", "400", "-400", "validators.csv:2: stake"),
        ("evidence/sample.jsonl", '"outcome": "pass"', '"outcome": "passed"', "sample.jsonl:1: outcome"),
        ("tasks.txt", "task-02\n", "task-01\n", "tasks.txt:2"),
    ],
)
def test_bad_input_is_one_message_and_nothing_is_written(
    competition: Path, tmp_path: Path, file: str, old: str, new: str, message: str
) -> None:
    rewrite(competition / file, old, new)
    before = files_under(tmp_path)
    assert message in refused("settle", competition, "--output", tmp_path / "out.json")
    assert files_under(tmp_path) == before


def test_no_evidence_cannot_be_settled(competition: Path) -> None:
    (competition / "evidence/sample.jsonl").unlink()
    assert "there is no evidence" in refused("settle", competition, code=1)


def test_what_cannot_be_written_is_refused(competition: Path, tmp_path: Path) -> None:
    assert "cannot be written" in refused("settle", competition, "--json", "--output", tmp_path / "nowhere" / "out.json")


def test_messages_are_wrapped_between_words_where_a_terminal_is_narrow(competition: Path) -> None:
    result = run("settle", competition / "a-rather-long-name-of-a-folder", columns=50, code=2)
    assert all(line.startswith("  ") for line in result.stderr.splitlines()[1:])
    assert str(competition / "a-rather-long-name-of-a-folder/scheme.toml:") in result.stderr


def test_control_characters_of_a_file_do_not_reach_the_terminal(competition: Path) -> None:
    (competition / "participants.csv").write_bytes(b"key\x1b[31m\n")
    assert "\x1b" not in refused("settle", competition)


@pytest.mark.parametrize(
    "words", [["settle"], ["settle", "a", "b"], ["settle", ".", "--json", "--csv"], ["settle", ".", "--epoch", "-1"]]
)
def test_a_wrong_command_is_code_2(words: list[str]) -> None:
    result = run(*words, code=2)
    assert "Usage: assay settle" in result.stderr
    assert result.stdout == ""
