"""The journal of what was sent: only ever added to, whole lines or none, one writer at a time; and publish.toml."""

from pathlib import Path
from typing import Any

import pytest

import ledger_kit
from assay.errors import BadInput
from assay.publish import journal, publishers
from assay.publish.evm.settings import FeeLimits, Fees, bumped, quote, settings_of
from assay.publish.journal import FileLines, Journal, Overtaken
from assay.publish.outcome import Confirmed, Planned, Refusal, Sent, TooEarly, Unknown, document
from assay.publish.publishers import PublishPlan


def in_file(path: Path) -> Journal:
    return Journal(FileLines(path))


def test_what_is_added_is_there(tmp_path: Path) -> None:
    path = tmp_path / "published" / "local.jsonl"
    first = in_file(path)
    assert first.entries == []
    assert not path.exists()
    first.add({"state": "planned", "number": 1})
    first.add({"state": "sent"})
    assert in_file(path).entries == first.entries == [{"state": "planned", "number": 1}, {"state": "sent"}]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_line_that_was_cut_short_was_never_acted_upon(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j.jsonl"
    journal = in_file(path)
    journal.add({"state": "planned"})
    before = path.read_bytes()
    journal.add({"state": "sent", "raw": "0x" + "ab" * 200})
    path.write_bytes(path.read_bytes()[:-cut])
    again = in_file(path)
    assert again.entries == [{"state": "planned"}]
    again.add({"state": "other"})
    assert path.read_bytes().startswith(before)
    assert in_file(path).entries == [{"state": "planned"}, {"state": "other"}]


def test_every_change_of_what_stands_there_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = in_file(path)
    for number in range(3):
        journal.add({"number": number})
    lines = path.read_bytes().splitlines(keepends=True)
    for wrong in (
        [lines[0], lines[2]],
        [lines[1], lines[0], lines[2]],
        [lines[0].replace(b"0", b"9", 1), *lines[1:]],
        [b"[]\n", *lines[1:]],
        [b"\xff\n", *lines],
        [b"\n", *lines],
        [lines[0], b"{}\n", *lines[1:]],
    ):
        path.write_bytes(b"".join(wrong))
        with pytest.raises(BadInput, match=r"j.jsonl:\d: was changed"):
            in_file(path)


def test_who_is_behind_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    first, second = in_file(path), in_file(path)
    first.add({"state": "planned"})
    with pytest.raises(Overtaken):
        second.add({"state": "planned"})
    assert second.read() == [{"state": "planned"}]
    second.add({"state": "sent"})
    with pytest.raises(Overtaken):
        first.add({"state": "sent"})
    assert len(in_file(path).entries) == 2


def _race(path: Path, done: Any) -> None:
    count = 0
    while len((mine := in_file(path)).entries) < 60:
        try:
            mine.add({"number": len(mine.entries)})
            count += 1
        except Overtaken:
            pass
    done.put(count)


def test_many_at_once_write_one_after_the_other(tmp_path: Path) -> None:
    path, context = tmp_path / "j.jsonl", ledger_kit.processes()
    done = context.Queue()
    workers = [context.Process(target=_race, args=(path, done)) for _ in range(3)]
    for worker in workers:
        worker.start()
    counts = [done.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    entries = in_file(path).entries
    assert [entry["number"] for entry in entries] == list(range(60))
    assert sum(counts) == 60


def test_a_journal_that_cannot_be_read_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "j.jsonl"
    folder.mkdir()
    with pytest.raises(BadInput, match=r"cannot be read \(Is a directory\)"):
        in_file(folder)
    path = tmp_path / "file" / "j.jsonl"
    path.parent.write_text("")
    with pytest.raises(BadInput, match=r"cannot be read|cannot be written"):
        in_file(path).add({})
    small = in_file(tmp_path / "small.jsonl")
    small.add({"x": "y" * 100})
    monkeypatch.setattr(journal, "FILE_BYTES", 50)
    with pytest.raises(BadInput, match="is larger than 50 bytes; move it away when nothing is under way"):
        in_file(tmp_path / "small.jsonl")


def test_outcomes_as_json() -> None:
    assert [document(outcome) for outcome in (Planned(), Sent("0x1"), Confirmed(5), Confirmed(5, "0x1"))] == [
        {"state": "planned"},
        {"state": "sent", "transaction": "0x1"},
        {"state": "confirmed", "block": 5},
        {"state": "confirmed", "block": 5, "transaction": "0x1"},
    ]
    assert [document(outcome) for outcome in (TooEarly(7, "time", "w"), Refusal("c", "w"), Unknown("w"))] == [
        {"state": "too-early", "at": 7, "unit": "time", "what": "w"},
        {"state": "refused", "code": "c", "what": "w"},
        {"state": "unknown", "what": "w"},
    ]
    assert [outcome.ok for outcome in (Planned(), Confirmed(5), TooEarly(7, "time", "w"))] == [True] * 3
    assert [outcome.ok for outcome in (Sent(""), Refusal("c", "w"), Unknown("w"))] == [False] * 3


def test_a_plan_is_named_by_all_that_is_sent() -> None:
    plan = PublishPlan("local", 3, "sha256:r", {"a": 1}, ())
    others = [PublishPlan("x", 3, "sha256:r", {"a": 1}, ()), PublishPlan("local", 4, "sha256:r", {"a": 1}, ())]
    others += [PublishPlan("local", 3, "sha256:s", {"a": 1}, ()), PublishPlan("local", 3, "sha256:r", {"a": 2}, ())]
    assert len({plan.digest, *(other.digest for other in others)}) == 5


# Fees


def test_a_quote_leaves_room_and_keeps_to_the_bounds() -> None:
    bounds = FeeLimits(100, 10)
    assert quote(20, 5, bounds) == Fees(45, 5)
    assert quote(60, 5, bounds) == Fees(100, 5)
    assert quote(20, 50, bounds) == Fees(50, 10)
    assert quote(90, 50, bounds) == Fees(100, 10)
    assert quote(91, 10, bounds) is None
    assert quote(0, 50, FeeLimits(3, 10)) == Fees(3, 3)


def test_a_replacement_pays_an_eighth_more_or_is_none() -> None:
    bounds = FeeLimits(1000, 100)
    assert bumped(Fees(80, 8), 10, 1, bounds) == Fees(90, 9)
    assert bumped(Fees(80, 8), 300, 50, bounds) == Fees(650, 50)
    assert bumped(Fees(1, 1), 0, 0, bounds) == Fees(2, 2)
    assert bumped(Fees(889, 8), 0, 0, bounds) is None
    assert bumped(Fees(80, 100), 0, 0, bounds) is None
    assert bumped(Fees(888, 80), 10_000, 1_000, bounds) == Fees(1000, 100)


# publish.toml


def written(place: Path, text: str) -> Path:
    (place / "publish.toml").write_text(text)
    return place


GOOD = """[targets.local]
kind = "evm"
rpc = "http://127.0.0.1:8545"
chain_id = 31337
max_fee_gwei = "1.5"
[keys.mine]
env = "KEY"
"""


def test_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = publishers.read_target(written(tmp_path, GOOD), "local")
    settings = settings_of(target)
    assert (target.kind, settings.chain_id, settings.fee_limits) == ("evm", 31337, FeeLimits(1_500_000_000, 3_000_000_000))
    assert settings.confirmations == 12
    assert publishers.target_names(tmp_path) == ["local"]
    assert publishers.target_names(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "evm"\n', "", "publish.toml:1: targets.local.kind: is missing"),
        ("chain_id = 31337", 'chain_id = "31337"', "publish.toml:4: targets.local.chain_id: "),
        ("chain_id = 31337", "chain_id = 0", "publish.toml:4: targets.local.chain_id: "),
        ('rpc = "http://127.0.0.1:8545"\n', "", "publish.toml:1: targets.local: must have exactly one of rpc and rpc_env"),
        (
            "max_fee_gwei",
            "max_fee",
            "publish.toml:5: targets.local.max_fee: there is no field 'max_fee' here; did you",
        ),
        ('"1.5"', '"1.5555555555"', "publish.toml:5: targets.local.max_fee_gwei: is not an amount of gwei"),
        ('"1.5"', '"-1"', "is not an amount of gwei"),
        ('"1.5"', '"nan"', "is not an amount of gwei"),
        ('"1.5"', '"x"', "is not an amount of gwei"),
        ('"1.5"', "1.5", "is not an amount of gwei"),
        ("[keys.mine]", '[keys."a b"]', "publish.toml:6: keys.a b"),
        ("[targets.local]", "[target.local]", "publish.toml: target: there is no field 'target' here; did you mean 'targets'?"),
    ],
)
def test_what_is_wrong_in_it_is_said_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(BadInput) as caught:
        settings_of(publishers.read_target(written(tmp_path, GOOD.replace(old, new)), "local"))
    assert message in str(caught.value)


def test_a_target_or_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"publish.toml: no such file, so there is nowhere to publish to"):
        publishers.read_target(tmp_path, "local")
    with pytest.raises(BadInput, match=r"there is no target 'main', only: local; add a section \[targets.main\]"):
        publishers.read_target(written(tmp_path, GOOD), "main")
