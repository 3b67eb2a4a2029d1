"""Everything that SPEC refuses is refused with the file, the line or row, and the field; and nothing of it reaches a settlement.

Each case changes one thing of a competition that is right. What comes as Parquet is in test_folder_bulk.py.
"""

import copy
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

import small_folder
from assay import folder
from assay.competition import open_competition
from assay.errors import BadInput
from assay.folder import evidence, files, strict
from small_folder import PARTICIPANTS, SCHEME, VALIDATORS, lines, record

JSON_FLOATS: dict[str, list[tuple[str, Any]]] = {
    "given": [("score", 0.5), ("score", 1), ("epoch", 3.0)],
    "workflow": [(name, 0.5) for name in ("quality", "cost", "budget", "seconds", "max_seconds", "steps_total", "retries")],
    "points": [("valid", 1.0), ("invalid", 1.5), ("revoked_valid", 0.0), ("starred", 1.0)],
    "tests": [("trial", 1.0), ("epoch", 3.5), ("seq", 0.5)],
    "rubric": [("epoch", 3.5)],
}
RECORDS: list[tuple[str, str, Any, str]] = [
    ("given", "score", "1.000000001", "is more than 1"),
    ("given", "score", "-0.5", "is not a decimal number"),
    ("given", "score", "5e-1", "is not a decimal number"),
    ("given", "score", "NaN", "is not a decimal number"),
    ("given", "score", "0.1234567891", "more than nine fractional digits"),
    ("given", "score", ..., "is missing"),
    ("given", "scores", "0.5", "did you mean 'score'?"),
    ("given", "epoch", -1, "greater than or equal to 0"),
    ("given", "epoch", 2**53 - 1 + 1, "beyond"),
    ("given", "epoch", True, "is true; it must be a whole number"),
    ("given", "epoch", "3", "it must be a whole number"),
    ("given", "observed_at", "2026-11-02T09:00:00", "is not a time with a time zone"),
    ("given", "observed_at", "2026-11-02T09:00:00.0000001Z", "finer than microseconds"),
    ("given", "observed_at", ..., "is missing"),
    ("given", "validator", "", "at least 1"),
    ("given", "validator", "v\u200b1", "cannot be printed"),
    ("given", "validator", "nobody", "there is no validator 'nobody'; it must be in validators.csv"),
    ("given", "participant", "nobody", "there is no participant 'nobody'; it must be in participants.csv"),
    ("given", "participant", "p" * 257, "at most 256"),
    ("given", "submission", "s\n", r"'s\n' has a character that cannot be printed; write it in one line"),
    ("given", "kind", "tests", "is 'tests', the scheme scores 'given'; move the record, or correct score.kind"),
    ("given", "kind", "grade", "is missing or unknown; use one of given, points, rubric, tests, workflow"),
    ("given", "seq", -1, "greater than or equal to 0"),
    ("tests", "outcome", "passed", "use one of 'pass', 'fail', 'timeout' or 'error'"),
    ("tests", "trial", 0, "greater than or equal to 1"),
    ("tests", "task", "", "at least 1"),
    ("workflow", "quality", "1.1", "is more than 1"),
    ("workflow", "cost", "-1", "is not a decimal number"),
    ("workflow", "budget", "0", "budget is 0; it must be more than 0"),
    ("workflow", "seconds", "1000000000", "is too large; it must be below"),
    ("workflow", "steps_completed", 9, "steps_completed is more than steps_total"),
    ("workflow", "hard_failures", -1, "greater than or equal to 0"),
    ("rubric", "outcome", "maybe", "use one of 'judged' or 'unjudged'"),
    ("points", "valid", -1, "greater than or equal to 0"),
    ("points", "starred", "yes", "it must be true or false"),
]
RECORDS += [(kind, field, value, "") for kind, pairs in JSON_FLOATS.items() for field, value in pairs]


@pytest.mark.parametrize(("kind", "field", "value", "message"), RECORDS)
def test_a_record_on_a_line_and_in_a_case(tmp_path: Path, kind: str, field: str, value: Any, message: str) -> None:
    wrong = record(kind) | {field: value}
    wrong = {name: content for name, content in wrong.items() if content is not ...}
    place = small_folder.make(tmp_path, kind, evidence=lines([record(kind, validator="v2"), wrong]))
    with pytest.raises(BadInput) as error:
        folder.read(place)
    where = f"{place}/evidence/a.jsonl:2: "
    about_two_fields = any(part in message for part in ("beyond", "budget is", "steps_completed is"))
    assert str(error.value).startswith(where if about_two_fields else f"{where}{field}: ")
    assert message in str(error.value)
    assert error.value.hint or ": " in error.value.what
    with pytest.raises(BadInput) as error:
        folder.parse_case(case(kind) | {"evidence": [record(kind, validator="v2"), wrong]})
    assert str(error.value).startswith("evidence[1]")
    assert message in str(error.value)


def case(kind: str) -> dict[str, Any]:
    score: dict[str, Any] = {"kind": kind}
    score |= {"repositories": {"o/r": "5"}} if kind == "points" else {}
    score |= {"checks": [{"id": "c1", "weight": 10_000, "skippable": False}]} if kind == "rubric" else {}
    return {
        "scheme": {"scheme": {"name": "small"}, "score": score},
        "epoch": 3,
        "participants": [{"key": "m1", "uid": 1, "submission": "s1"}, {"key": "m2", "uid": 2, "submission": "s2"}],
        "validators": [{"key": "v1", "stake": "100"}, {"key": "v2", "stake": "100"}],
        "tasks": ["t1"],
        "evidence": [record(kind)],
    }


ROW = json.dumps(record("given"))
LINES: list[tuple[str, bytes, str]] = [
    ("nan", ROW.replace('"0.5"', "NaN").encode(), "NaN is not JSON"),
    ("infinity", ROW.replace('"0.5"', "-Infinity").encode(), "-Infinity is not JSON"),
    ("too large a float", ROW.replace('"0.5"', "1e999").encode(), "1e999 is too large for a number"),
    ("too large an integer", ROW.replace(": 3", ": 9007199254740992").encode(), "an integer is beyond"),
    ("endless digits", ROW.replace(": 3", ": " + "9" * 5000).encode(), "an integer is beyond"),
    ("one key twice", ROW.replace('"epoch"', '"epoch": 2, "epoch"').encode(), "has the key 'epoch' twice in one object"),
    ("a surrogate", ROW.replace('"m1"', r'"\ud83d"').encode(), "participant: contains a lone surrogate"),
    ("not utf-8", ROW.encode().replace(b"m1", b"m\xff"), "byte 0xff is not UTF-8"),
    ("utf-16", ROW.encode("utf-16"), "byte 0xff is not UTF-8"),
    ("cut off", ROW[:40].encode(), "is not JSON: "),
    ("two on a line", f"{ROW} {ROW}".encode(), "is not JSON: Extra data"),
    ("a list", f"[{ROW}]".encode(), "is not a JSON object; write one record a line"),
    ("a word", b"null", "is not a JSON object"),
    ("deep", b'{"a":' * 100_000, "is nested too deeply"),
    ("as deep as allowed by the parser", b'{"a":' * 50 + b"1" + b"}" * 50, "a: is nested too deeply"),
]


@pytest.mark.parametrize(("line", "message"), [line[1:] for line in LINES], ids=[line[0] for line in LINES])
@pytest.mark.parametrize("end", [b"\n", b""], ids=["newline", "end of file"])
def test_a_line_that_is_no_record(tmp_path: Path, line: bytes, message: str, end: bytes) -> None:
    place = small_folder.make(tmp_path, "given", evidence=ROW.encode() + b"\r\n\n" + line + end)
    with pytest.raises(BadInput) as error:
        folder.read(place)
    assert str(error.value).startswith(f"{place}/evidence/a.jsonl:3: {message}")
    assert error.value.hint


def test_empty_evidence_is_no_evidence_and_a_byte_order_mark_is_nothing(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, "given", evidence=b"\xef\xbb\xbf" + ROW.encode())
    (place / "evidence/b.jsonl").write_bytes(b"")
    assert folder.read(place).epoch == 3


class Endless:
    """A file that is one line without an end, and counts what was read of it."""

    def __init__(self) -> None:
        self.given = 0

    def readline(self, most: int) -> bytes:
        self.given += most
        return b"x" * most


def test_an_endless_line_is_refused_early() -> None:
    file = Endless()
    with pytest.raises(BadInput, match=rf"a\.jsonl:1: the line is longer than {files.LINE_BYTES} bytes"):
        next(evidence.lines(cast(BinaryIO, file), "a.jsonl"))
    assert file.given <= files.LINE_BYTES + 1


def test_a_line_of_100_megabytes(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, "given", evidence=ROW + "\n")
    with (place / "evidence/a.jsonl").open("ab") as file:
        file.truncate(100_000_000)  # zeros, and no room on the disk
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match=r"a\.jsonl:2: the line is longer than"):
            folder.read(place)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_too_many_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "EVIDENCE_RECORDS", 2)
    with pytest.raises(BadInput, match=r"a\.jsonl:3: there are more than 2 records; keep so much evidence in Parquet"):
        folder.read(small_folder.make(tmp_path))


TABLES: list[tuple[str, str | bytes, str]] = [
    ("participants_csv", "", "participants.csv:1: is empty; its first line names the columns: key, uid"),
    ("participants_csv", "\n \n", "participants.csv:1: is empty"),
    ("participants_csv", "key,uid\n", "participants.csv: has no participant; there must be at least one"),
    ("participants_csv", "kee,uid\nm1,1\n", "participants.csv:1: kee: there is no column 'kee'; did you mean 'key'?"),
    ("participants_csv", "key,stuff\nm1,1\n", "participants.csv:1: stuff: there is no column 'stuff'; the columns are key, uid"),
    ("participants_csv", "uid,name\n1,x\n", "participants.csv:1: key: the column is missing"),
    ("participants_csv", "key,uid,uid\nm1,1,1\n", "participants.csv:1: uid: the column is there twice"),
    ("participants_csv", "key,uid\nm1\n", "participants.csv:2: has 1 cells, the header has 2"),
    ("participants_csv", "key,uid\nm1,1,2\n", "participants.csv:2: has 3 cells, the header has 2"),
    ("participants_csv", 'key,name\n"m1,x\nm2,y\n', "participants.csv:2: is not CSV: "),
    ("participants_csv", 'key,name\nm1,"x"y\n', "participants.csv:2: is not CSV: "),
    ("participants_csv", 'key,name\nm1,"x\ny"\nm1\n', "participants.csv:4: has 1 cells, the header has 2"),
    ("participants_csv", 'key,name\nm1,"x\ny"\n', "participants.csv:2: name: 'x\\ny' has a"),
    ("participants_csv", PARTICIPANTS + "m2,3,,,,,\n", "participants.csv:4: key: 'm2' is there twice, first at "),
    ("participants_csv", PARTICIPANTS + "m3,2,,,,,\n", "participants.csv:4: uid: 2 is there twice, first at "),
    ("participants_csv", PARTICIPANTS + "m3,0,,,,,\n", "participants.csv:4: uid: 0 is the burn UID"),
    ("participants_csv", PARTICIPANTS + ",3,,,,,\n", "participants.csv:4: key: is empty"),
    (
        "participants_csv",
        PARTICIPANTS + "m\u202e3,3,,,,,\n",
        "participants.csv:4: key: 'm\\u202e3' has a character that",
    ),
    ("participants_csv", PARTICIPANTS + "m3,-1,,,,,\n", "participants.csv:4: uid: '-1' is not a whole number of at least 0"),
    ("participants_csv", PARTICIPANTS + "m3,1.0,,,,,\n", "participants.csv:4: uid: '1.0' is not a whole number"),
    ("participants_csv", PARTICIPANTS + "m3,65536,,,,,\n", "participants.csv:4: uid: 65536: "),
    ("participants_csv", PARTICIPANTS + f"m3,{'9' * 5000},,,,,\n", "participants.csv:4: uid: '999"),
    ("participants_csv", PARTICIPANTS + "m3,3,,,yesterday,,\n", "participants.csv:4: submitted_at: 'yesterday' is not a time"),
    (
        "participants_csv",
        PARTICIPANTS + "m3,3,,,,4,\n",
        "participants.csv:4: last_reset_epoch: 4 is after the epoch",
    ),
    ("participants_csv", PARTICIPANTS + "m3,3,,,,,0xabc\n", "participants.csv:4: address: '0xabc' is not an EVM address"),
    ("participants_csv", PARTICIPANTS.encode() + b"m\xe93,3,,,,,\n", "participants.csv:4: byte 0xe9 is not UTF-8"),
    ("validators_csv", "", "validators.csv:1: is empty"),
    ("validators_csv", "key,stake\n", "validators.csv: has no validator"),
    ("validators_csv", "key\nv1\n", "validators.csv:1: stake: the column is missing"),
    ("validators_csv", VALIDATORS + "v4,,\n", "validators.csv:5: stake: is empty"),
    ("validators_csv", VALIDATORS + "v4,9223372036854775808,\n", "validators.csv:5: stake: '9223372036854775808' is too large"),
    ("validators_csv", VALIDATORS + f"v4,{'9' * 100},\n", "validators.csv:5: stake: '999"),
    ("validators_csv", VALIDATORS + "v4,-1,\n", "validators.csv:5: stake: '-1' is not a whole number"),
    ("validators_csv", VALIDATORS + "v4,1e3,\n", "validators.csv:5: stake: '1e3' is not a whole number"),
    ("validators_csv", VALIDATORS + "v1,1,\n", "validators.csv:5: key: 'v1' is there twice, first at "),
    ("history_csv", "", "history.csv:1: is empty"),
    ("history_csv", "epoch,top_score\n1,1.1\n", "history.csv:2: top_score: '1.1' is more than 1"),
    ("history_csv", "epoch,top_score\n1,-1\n", "history.csv:2: top_score: '-1' is not a decimal number"),
    ("history_csv", "epoch,top_score\n1,1\n1,0\n", "history.csv:3: epoch: 1 is there twice, first at "),
    ("history_csv", "epoch,top_score\n,1\n", "history.csv:2: epoch: is empty"),
    ("randomness_csv", "epoch,hex\n1,00\n", "randomness.csv:2: hex: '00' is not 32 bytes in hex"),
    ("randomness_csv", f"epoch,hex\n1,{'0' * 64}\n1,{'1' * 64}\n", "randomness.csv:3: epoch: 1 is there twice"),
    ("tasks_txt", "", "tasks.txt: has no tasks"),
    ("tasks_txt", "# none\n\n", "tasks.txt: has no tasks"),
    ("tasks_txt", "t1\nt2\nt1\n", "tasks.txt:3: the task 't1' is there twice, first at "),
    ("tasks_txt", "t1 sha256:abc\n", "tasks.txt:1: 'sha256:abc' is out of place after the task id"),
    ("tasks_txt", "t1 shared snapshot\n", "tasks.txt:1: 'snapshot' is out of place after the task id"),
    ("tasks_txt", "t1\nt\x072\n", r"tasks.txt:2: 't\x072' is not a task id"),
    ("tasks_txt", b"t1\n\xff\n", "tasks.txt:2: byte 0xff is not UTF-8"),
    ("scheme_toml", SCHEME + "[rewards]\n", "scheme.toml:5: rewards: there is no field 'rewards' here; did you mean 'reward'?"),
    (
        "scheme_toml",
        SCHEME + '[reward]\ncapp = "1"\n',
        "scheme.toml:6: reward.capp: there is no field 'capp' here; did",
    ),
    ("scheme_toml", SCHEME + "[reward]\ncap = 0.5\n", "scheme.toml:6: reward.cap: a JSON float (0.5) is not a decimal string"),
    ("scheme_toml", SCHEME + '[consensus]\nmin_stake = "101%"\n', "scheme.toml:6: consensus.min_stake: '101%' is more than 1"),
    ("scheme_toml", SCHEME + "[consensus]\nassign = 2\n", "randomness.csv: epoch: there is no randomness of epoch 3"),
    (
        "scheme_toml",
        small_folder.SCHEMES["workflow"] + '[score.weights]\nsuccess = "0.6"\n',
        "scheme.toml:5: score.weights: the four weights do not sum to 1",
    ),
    (
        "scheme_toml",
        small_folder.SCHEMES["rubric"].replace("10000", "9999"),
        "scheme.toml:3: score: the weights of the checks sum to 9999; they must sum to 10000",
    ),
    ("scheme_toml", "[scheme\n", "scheme.toml:1: is not TOML"),
    ("scheme_toml", "", "scheme.toml: scheme: is missing"),
]


@pytest.mark.parametrize(("name", "content", "message"), TABLES)
def test_a_file(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(BadInput) as error:
        folder.read(small_folder.make(tmp_path, **{name: content}))
    assert str(error.value).startswith(f"{tmp_path}/{message}")
    assert error.value.hint or ": " in error.value.what


@pytest.mark.parametrize("name", ["scheme_toml", "participants_csv", "validators_csv", "tasks_txt"])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    place = small_folder.make(tmp_path, **{name: None})
    path = place / ".".join(name.rsplit("_", 1))
    with pytest.raises(BadInput) as error:
        folder.read(place)
    assert str(error.value).startswith(f"{path}: no such file; ")
    path.mkdir()
    with pytest.raises(BadInput) as error:
        folder.read(place)
    assert str(error.value).startswith(f"{path}: cannot be read (Is a directory)")


def test_a_folder_that_is_not_there_or_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="none: no such folder; `assay init"):
        folder.read(tmp_path / "none")
    place = small_folder.make(tmp_path)
    (place / "evidence/a.jsonl").unlink()
    (place / "evidence").rmdir()
    (place / "evidence").write_text("")
    with pytest.raises(BadInput, match=r"evidence: cannot be read \(Not a directory\)"):
        folder.read(place)


@pytest.mark.parametrize("epoch", [-1, True, 2**53, "3", 3.0])
def test_an_epoch_that_is_none(tmp_path: Path, epoch: Any) -> None:
    with pytest.raises(BadInput, match=r"epoch: '.*' is not an epoch; use a whole number from 0 to 9007199254740991"):
        folder.read(small_folder.make(tmp_path), epoch=epoch)


def test_a_table_that_is_too_large(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path)
    with (place / "validators.csv").open("ab") as file:
        file.truncate(files.TABLE_BYTES + 1)
    with pytest.raises(BadInput, match=r"validators\.csv: is larger than 64000000 bytes"):
        folder.read(place)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MOST_PARTICIPANTS", "participants.csv: has 2 rows; at most 1 are read"),
        ("MOST_VALIDATORS", "validators.csv: has 3 rows; at most 1 are read"),
        ("MOST_PAIRS", "validators.csv: 3 validators × 2 participants are more than 1"),
    ],
)
def test_too_many_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    monkeypatch.setattr(f"assay.folder.registry.{name}", 1)
    with pytest.raises(BadInput) as error:
        folder.read(small_folder.make(tmp_path))
    assert str(error.value).startswith(f"{tmp_path}/{message}")


def test_too_many_tasks_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = small_folder.make(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("assay.folder.registry.MOST_TASKS", 1)
        with pytest.raises(BadInput, match=r"tasks\.txt:2: has too many tasks"):
            folder.read(place)
    with monkeypatch.context() as patch:
        patch.setattr("assay.folder.reader.EVIDENCE_FILES", 0)
        with pytest.raises(BadInput, match="evidence: has more than 0 files"):
            folder.read(place)


CASES: list[tuple[str, Any, str]] = [
    ("participants", [], "participants: has no participant"),
    ("participants", None, "participants: has no participant"),
    ("participants", {}, "participants: is not a list"),
    ("participants", ["m1"], "participants[0]: is not an object"),
    ("participants", [{"uid": 1}], "participants[0].key: is missing"),
    ("participants", [{"key": "m1", "uid": "1"}], "participants[0].uid: is '1'; it must be a whole number"),
    ("participants", [{"key": "m1", "uid": 1.0}], "participants[0].uid: is 1.0; it must be a whole number"),
    ("participants", [{"key": "m1", "uid": True}], "participants[0].uid: is true; it must be a whole number"),
    ("participants", [{"key": "m1", "uid": -1}], "participants[0].uid: -1: "),
    ("participants", [{"key": "m1", "uid": 0}], "participants[0].uid: 0 is the burn UID"),
    ("participants", [{"key": "m1"}, {"key": "m1"}], "participants[1].key: 'm1' is there twice, first at participants[0]"),
    ("participants", [{"key": "m1", "uid": 1}, {"key": "m2", "uid": 1}], "participants[1].uid: 1 is there twice, first at"),
    ("participants", [{"key": "m1", "last_reset_epoch": 4}], "participants[0].last_reset_epoch: 4 is after the epoch"),
    ("participants", [{"key": "m1", "stake": "1"}], "participants[0].stake: there is no field 'stake' here"),
    ("participants", [{"key": "m1", "address": "0x"}], "participants[0].address: '0x' is not an EVM address"),
    ("participants", [{"key": "m1", "submission": "\ud800"}], "participants[0].submission: contains a lone surrogate"),
    ("validators", [], "validators: has no validator"),
    ("validators", [{"key": "v1", "stake": 100}], "validators[0].stake: a JSON integer (100) is not a string of digits"),
    ("validators", [{"key": "v1", "stake": str(2**63)}], f"validators[0].stake: '{2**63}' is too large"),
    ("validators", [{"key": "v1", "stake": "1"}] * 2, "validators[1].key: 'v1' is there twice"),
    ("tasks", [], "tasks: has no tasks"),
    ("tasks", ["t1", "t1"], "tasks[1]: the task 't1' is there twice, first at tasks[0]"),
    ("tasks", [""], "tasks[0]: is an empty task id"),
    ("tasks", ["t1", 2], "tasks[1]: is not a string"),
    ("history", [{"epoch": 1, "top_score": 0.5}], "history[0].top_score: a JSON float (0.5) is not a decimal string"),
    ("randomness", [{"epoch": 1, "hex": "0x"}], "randomness[0].hex: '0x' is not 32 bytes in hex"),
    ("evidence", [1], "evidence[0]: is not a JSON object"),
    ("evidence", [float("nan")], "evidence[0]: nan is not a JSON number"),
    ("evidence", "all of it", "evidence: is not a list"),
    ("epoch", 3.0, "epoch: '3.0' is not an epoch"),
    ("scheme", None, "scheme"),
    ("scheme", {"scheme": {"name": "x"}, "score": {"kind": "test"}}, "scheme.score.kind: "),
    ("scheme", {"scheme": {"name": "x"}, "score": {"kind": "tests", "trials": 0}}, "scheme.score.trials: 0: "),
    ("previous", {"schema": "other"}, "previous.schema: is not a settlement"),
    ("previous", [], "previous.schema: is not a settlement"),
    ("participant", [], "there is no field 'participant' here; did you mean 'participants'?"),
]


@pytest.mark.parametrize(("name", "value", "message"), CASES)
def test_a_part_of_a_case(name: str, value: Any, message: str) -> None:
    whole = copy.deepcopy(case("tests")) | {name: value}
    with pytest.raises(BadInput) as error:
        folder.parse_case(whole)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("value", [None, [], "case", 1])
def test_a_case_that_is_none(value: Any) -> None:
    with pytest.raises(BadInput, match="is not a JSON object; a case has the fields scheme, epoch"):
        folder.parse_case(value)


def unreadable() -> Iterator[bytes]:
    yield from (b"\xff", b"\x00", b"\xef\xbb\xbf", b"\xed\xa0\x80")


@pytest.mark.parametrize("content", list(unreadable()))
def test_bytes_that_say_nothing(tmp_path: Path, content: bytes) -> None:
    for name in ("participants_csv", "validators_csv", "tasks_txt", "scheme_toml"):
        with pytest.raises(BadInput):
            folder.read(small_folder.make(tmp_path / name, **{name: content}))


@pytest.mark.parametrize("name", ["registry.json", "history.csv", "randomness.csv", "evidence", "ledger.toml"])
def test_a_link_to_nowhere_is_not_taken_for_no_file(tmp_path: Path, name: str) -> None:
    place = small_folder.make(tmp_path, "given")
    open_competition(place).settle()
    if name == "evidence":
        (place / name).rename(tmp_path / "away")
    (place / name).symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=rf"{name}: (no such file|cannot be read)"):
        open_competition(place).settle()


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("nowhere")], ids=["folder", "link to nowhere"])
def test_a_bounty_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path, make: Callable[[Path], None]) -> None:
    place = small_folder.make(tmp_path, "rubric")
    folder.read(place)
    make(place / "bounty.toml")
    with pytest.raises(BadInput, match=r"bounty\.toml: (no such file|cannot be read)"):
        folder.read(place)


@pytest.mark.parametrize(
    "content", [None, b"", b"\xff", b"[1]", b'{"a": 1, "a": 2}', b'{"a": 1', b'{"a": "' + b"x" * 100 + b'"}']
)
def test_a_note_that_cannot_be_read_is_as_one_that_is_lost(tmp_path: Path, content: bytes | None) -> None:
    note = tmp_path / "note.json"
    note.write_bytes(b'{"a": 1}')
    assert strict.load_note(note, 100) == {"a": 1}
    if content is None:
        note.unlink()
    else:
        note.write_bytes(content)
    assert strict.load_note(note, 100) == {}
