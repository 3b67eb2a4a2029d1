"""Parquet evidence: the same numbers as JSON lines, to the bit; the same refusals, with file and row."""

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_folder
from assay import folder
from assay.errors import BadInput, CannotSettle
from assay.folder import bulk, parquet
from assay.records import Participant, Validator
from assay.scheme.load import parse
from assay.scheme.model import TestsScore
from assay.settle.inputs import Inputs, Scored, frame
from assay.settle.score import score

Record = dict[str, Any]
TEXTS = ("kind", "validator", "participant", "submission", "observed_at", "task", "outcome", "image", "work")
SCHEMA = dict.fromkeys(TEXTS, pa.string())
SCHEMA |= {name: pa.int64() for name in ("epoch", "trial", "seq")}
KEYS = st.sampled_from(["v1", "v2", "v3"])
RULES = TestsScore(kind="tests")
EPOCHS = st.sampled_from([2, 3, 3, 3, 4, 5])
DIGESTS = st.sampled_from(["sha256:a", "sha256:b"])


def table(records: Sequence[Record], **types: pa.DataType) -> pa.Table:
    names = [name for name in [*SCHEMA, "competition"] if any(name in record for record in records)] or list(SCHEMA)
    schema = SCHEMA | {"competition": pa.string()} | types
    return pa.table({name: pa.array([record.get(name) for record in records], schema[name]) for name in names})


def write(path: Path, records: Sequence[Record], **types: pa.DataType) -> Path:
    pq.write_table(table(records, **types), path)
    return path


@st.composite
def evidence(draw: st.DrawFn) -> list[Record]:
    """Records with what is rare made common: repeated keys, other submissions, unknown tasks, trials and epochs out of range."""
    usual = st.fixed_dictionaries(
        {
            "validator": KEYS,
            "participant": st.sampled_from(["m1", "m2", "m3", "m4"]),
            "submission": st.sampled_from(["s1", "s1", "s2", "", "old"]),
            "task": st.sampled_from(["t1", "t2", "t3", "other"]),
            "trial": st.sampled_from([1, 1, 2, 3]),
            "outcome": st.sampled_from(["pass", "fail", "timeout", "error"]),
            "epoch": EPOCHS,
            "observed_at": st.sampled_from(["2026-11-02T10:00:00Z"] * 3 + ["2026-11-02T11:00:00Z"]),
        },
        optional={"seq": st.integers(0, 6), "image": DIGESTS, "work": DIGESTS},
    )
    whole = [
        small_folder.record(validator=validator, participant="m1", submission="s1", task=task, trial=trial, seq=100 + trial)
        for validator in draw(st.sets(KEYS))
        for task in ("t1", "t2", "t3")
        for trial in (1, 2)
    ]
    records = whole + [small_folder.record(**fields) for fields in draw(st.lists(usual, max_size=14))]
    if draw(st.booleans()):
        records += [dict(record) for record in draw(st.lists(st.sampled_from(records), max_size=4))] if records else []
    if draw(st.booleans()):
        for index, record in enumerate(records):
            record["seq"] = len(records) - index
    return draw(st.permutations(records))


def outcome(path: Path, epoch: int) -> Scored | type[BadInput]:
    try:
        inputs = folder.read(path, epoch=epoch)
    except BadInput:
        return BadInput
    if isinstance(inputs.evidence, Scored):
        return inputs.evidence
    return score(inputs.evidence, frame(inputs), inputs.scheme.score)


def assert_equal(scored: Scored, other: Scored) -> None:
    for name in ("scores", "counting", "incomplete", "missing", "passes"):
        np.testing.assert_array_equal(getattr(scored, name), getattr(other, name), name)
    assert scored.first == other.first
    for name, values in scored.work.items():
        np.testing.assert_array_equal(values, other.work[name], name)


@pytest.fixture(params=["one pass", "many masks", "exactly", "in parts"])
def road(request: pytest.FixtureRequest) -> Iterator[None]:
    """Bounds so small that every road is taken with a handful of records."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "many masks":
            patch.setattr(parquet, "BLOCK", 2)
        elif request.param == "exactly":
            patch.setattr(parquet, "GROUP_MASKS", 0)
        elif request.param == "in parts":
            patch.setattr(bulk, "PART", 3)
            patch.setattr(bulk, "TABLE", 0)
        yield


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("road")
@given(
    records=evidence(),
    epoch=EPOCHS,
    age=st.sampled_from([None, 0, 1]),
    trials=st.sampled_from([1, 2]),
    halves=st.booleans(),
    joint=st.booleans(),
)
def test_parquet_gives_what_json_lines_give(
    records: list[Record], epoch: int, age: int | None, trials: int, halves: bool, joint: bool
) -> None:
    together = 'passed_by = "all"\n' if joint else ""
    scheme = f"{small_folder.SCHEME}trials = {trials}\n{together}[consensus]\nassign = 2\n"
    scheme += "" if age is None else f"max_age_epochs = {age}\n"
    registry = "key,submission,submitted_at\nm1,s1,2026-11-02T09:00:00Z\nm2,s2,\nm3,,\nm4,s1,\n"
    randomness = "epoch,hex\n" + "".join(f"{number},{number:064x}\n" for number in range(2, 6))
    with tempfile.TemporaryDirectory() as place:
        files: dict[str, Any] = {
            "scheme_toml": scheme,
            "participants_csv": registry,
            "tasks_txt": "t1\nt2\nt3\n",
            "randomness_csv": randomness,
        }
        as_lines = small_folder.make(Path(place, "lines"), evidence=small_folder.lines(records), **files)
        as_parquet = small_folder.make(Path(place, "parquet"), evidence=None, **files)
        cut = len(records) // 2 if halves else 0
        write(as_parquet / "evidence/b.parquet", records[cut:])
        if cut:
            write(as_parquet / "evidence/a.parquet", records[:cut])
        actual, expected = outcome(as_parquet, epoch), outcome(as_lines, epoch)
    if isinstance(actual, Scored) and isinstance(expected, Scored):
        assert_equal(actual, expected)
    else:
        assert actual == expected


@pytest.mark.parametrize("field", ["image", "work", "observed_at", "outcome"])
def test_records_of_one_key_that_differ_in_any_field_are_refused(field: str, tmp_path: Path) -> None:
    """As the records read one by one are; with a `seq` each, the first accepted counts."""
    changed = {"observed_at": "2026-11-02T11:00:00Z", "outcome": "fail"}.get(field, "sha256:b")
    pair = [small_folder.record(image="sha256:a", work="sha256:a"), small_folder.record(image="sha256:a", work="sha256:a")]
    pair[1][field] = changed
    for number, records in enumerate((pair, [pair[0], pair[0]], [row | {"seq": at} for at, row in enumerate(pair)])):
        lines = small_folder.make(tmp_path / f"lines{number}", evidence=small_folder.lines(records))
        columns = small_folder.make(tmp_path / f"columns{number}", evidence=None)
        write(columns / "evidence/a.parquet", records)
        actual, expected = outcome(columns, 3), outcome(lines, 3)
        assert (actual is BadInput) == (expected is BadInput) == (number == 0)
        if isinstance(actual, Scored) and isinstance(expected, Scored):
            assert_equal(actual, expected)


def footer(data: bytes) -> int:
    """The place at which a Parquet file's footer begins."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def write_lying(path: Path, true: pa.Table, claimed: pa.Table) -> None:
    """Write a file with the rows of one table, and the footer of another whose values have the same lengths."""
    files = []
    for of in (true, claimed):
        pq.write_table(of, path, row_group_size=8, compression="none", use_dictionary=False)
        files.append(path.read_bytes())
    data, other = files
    assert footer(data) == footer(other)
    path.write_bytes(data[: footer(data)] + other[footer(other) :])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("way", [min, max])
@pytest.mark.parametrize("field", ["epoch", "validator", "participant", "submission", "task", "outcome", "trial", "seq"])
def test_what_a_footer_says_of_the_rows_decides_nothing(field: str, way: Any, tmp_path: Path) -> None:
    """DuckDB goes by the lowest and highest value of a row group, if it may: it leaves out rows, or does not look at them."""
    shape = {
        "scheme_toml": f"{small_folder.SCHEME}trials = 2\n[consensus]\nmax_age_epochs = 1\n",
        "participants_csv": "key,submission\nm1,s1\nm2,s2\nm3,\n",
        "tasks_txt": "t1\nt2\n",
    }
    cells = itertools.product(("v1", "v2", "v3"), (("m1", "s1"), ("m2", "s2"), ("m3", "")), ("t1", "t2"), (1, 2))
    rows = [
        small_folder.record(
            validator=validator,
            participant=participant,
            submission=submission,
            task=task,
            trial=trial,
            outcome="pass" if at % 3 else "fail",
            epoch=2 if at % 5 == 4 else 3,
            seq=at,
        )
        for at, (validator, (participant, submission), task, trial) in enumerate(cells)
    ]
    rows += [rows[0] | {"outcome": "pass", "seq": 90}, rows[1] | {"epoch": 1, "seq": 91}, rows[2] | {"task": "t9", "epoch": 4}]
    true = table(rows)
    values = true.column(field).to_pylist()
    same = {value: way(other for other in values if len(str(other)) == len(str(value))) for value in set(values)}
    claimed = true.set_column(
        true.schema.get_field_index(field), field, pa.array([same[value] for value in values], true.schema.field(field).type)
    )
    lines = small_folder.make(tmp_path / "lines", evidence=small_folder.lines(rows), **shape)
    columns = small_folder.make(tmp_path / "columns", evidence=None, **shape)
    write_lying(columns / "evidence/a.parquet", true, claimed)
    actual, expected = outcome(columns, 3), outcome(lines, 3)
    assert isinstance(actual, Scored)
    assert isinstance(expected, Scored)
    assert_equal(actual, expected)
    assert bulk.highest_epoch([columns / "evidence/a.parquet"], parse(shape["scheme_toml"])) == 4


def competition(name: str, tasks: int = 2, epoch: int = 3, **rules: Any) -> Inputs:
    return Inputs(
        scheme=parse(small_folder.SCHEME),
        epoch=epoch,
        participants=(Participant("m1", submission=f"{name}-1"), Participant("m2", submission=f"{name}-2")),
        validators=(Validator("v1", 1), Validator("v2", 1)),
        tasks=tuple(f"t{number}" for number in range(1, tasks + 1)),
    )


def test_many_competitions_in_one_set_of_files(tmp_path: Path) -> None:
    given = {"a": competition("a"), "b": competition("b", tasks=1), "c": competition("c", epoch=2), "d": competition("d")}
    records = [
        small_folder.record(validator=validator, submission=f"{name}-1", task=task, competition=name, outcome=result)
        for name, result in (("a", "pass"), ("b", "fail"), ("c", "pass"), ("d", "pass"), ("not asked for", "pass"))
        for validator in ("v1", "v2")
        for task in ("t1", "t2")
    ]
    records.remove(records[-5])  # d lacks a trial by v2
    path = write(tmp_path / "all.parquet", records)
    tallies = bulk.tally_many([path], {name: (frame(inputs), RULES) for name, inputs in given.items()})
    assert tallies["a"].scores.tolist() == [[10**9, 0], [10**9, 0]]
    assert tallies["a"].counting.tolist() == [[True, False], [True, False]]
    assert tallies["b"].scores.tolist() == [[0, 0], [0, 0]]
    assert tallies["b"].counting.tolist() == [[True, False], [True, False]]
    assert not tallies["c"].counting.any()  # its evidence is of a later epoch
    assert tallies["d"].counting.tolist() == [[True, False], [False, False]]
    assert tallies["d"].missing is not None
    assert tallies["d"].missing.tolist() == [[0, 0], [1, 0]]
    assert tallies["a"].first == {"m1": 3}
    assert tallies["c"].first == {}


def test_the_first_accepted_counts_without_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"a": (frame(competition("a", tasks=1)), RULES)}

    def tally(*seqs: tuple[int, str]) -> Scored:
        records = [
            small_folder.record(submission="a-1", competition="a", validator=validator, seq=seq, outcome=result)
            for validator in ("v1", "v2")
            for seq, result in seqs
        ]
        return bulk.tally_many([write(tmp_path / "all.parquet", records)], given)["a"]

    with pytest.raises(BadInput, match="and both have the same seq"):
        tally((7, "fail"), (5, "pass"), (5, "fail"))
    monkeypatch.setattr(bulk, "_record", None)  # no record becomes an object
    for first in ("pass", "fail"):
        scored = tally((7, "fail"), (5, first), (9, "pass"), (9, "pass"))
        assert scored.scores[:, 0].tolist() == [10**9 * (first == "pass")] * 2


def test_sums_of_many_competitions_do_not_say_which_tasks_passed(tmp_path: Path) -> None:
    joint = RULES.model_copy(update={"passed_by": "all"})
    path = write(tmp_path / "all.parquet", [small_folder.record(competition="a")])
    with pytest.raises(BadInput, match=r"'a' has passed_by = \"all\", which sums do not tell"):
        bulk.tally_many([path], {"a": (frame(competition("a")), joint)})


def test_a_participant_of_another_competition_is_unknown_here(tmp_path: Path) -> None:
    here, there = competition("a"), competition("b")
    here = Inputs(here.scheme, 3, here.participants[:1], here.validators, tasks=here.tasks)
    records = [small_folder.record(competition="a"), small_folder.record(competition="a", participant="m2", validator="v2")]
    path = write(tmp_path / "all.parquet", records)
    with pytest.raises(BadInput, match=r"all\.parquet:2: participant: there is no participant 'm2'"):
        bulk.tally_many([path], {"a": (frame(here), RULES), "b": (frame(there), RULES)})


def test_the_competition_must_be_named_for_many(tmp_path: Path) -> None:
    path = write(tmp_path / "all.parquet", [small_folder.record()])
    with pytest.raises(BadInput, match=r"all\.parquet: competition: the column is missing"):
        bulk.tally_many([path], {})


WRONG: list[tuple[str, Record, str]] = [
    ("validator", {"validator": "nobody"}, "validator: there is no validator 'nobody'; it must be in validators.csv"),
    ("participant", {"participant": "nobody"}, "participant: there is no participant 'nobody'; it must be in participants.csv"),
    ("no validator", {"validator": None}, "validator: there is no validator an empty cell"),
    ("no participant", {"participant": None}, "participant: there is no participant an empty cell"),
    ("outcome", {"outcome": "passed"}, "outcome: 'passed' is not an outcome; use pass, fail, timeout, error"),
    ("no outcome", {"outcome": None}, "outcome: an empty cell is not an outcome"),
    ("kind", {"kind": "given"}, "kind: is 'given', not 'tests'"),
    ("epoch", {"epoch": -1}, "epoch: '-1' is not an epoch"),
    ("no epoch", {"epoch": None}, "epoch: an empty cell is not an epoch"),
    ("trial", {"trial": 0}, "trial: '0' is not a trial"),
    ("seq", {"seq": -1}, "seq: '-1' is out of range"),
    ("no task", {"task": None}, "task: is empty"),
    ("task", {"task": "a\x00'b"}, "task: .* is not allowed here"),
    ("submission", {"submission": "a\nb"}, "submission: .* is not allowed here"),
    ("no submission", {"submission": None}, "submission: is empty"),
    ("time", {"observed_at": "2026-11-02"}, "observed_at: '2026-11-02' is not a time with a time zone"),
    ("image", {"image": "x" * 257}, "image: has more than 256 characters"),
    ("day", {"observed_at": "2026-02-30T09:00:00Z"}, "observed_at: '2026-02-30T09:00:00Z' is not a time"),
    ("another epoch", {"epoch": 2}, "differs from the record of the same key at .*a.parquet:1, and not both have a seq"),
    ("conflict", {"outcome": "fail"}, "differs from the record of the same key at .*a.parquet:1, and not both have a seq"),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("change", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_wrong_record_is_named_by_file_and_row(tmp_path: Path, change: Record, message: str) -> None:
    place = small_folder.make(tmp_path, evidence=None)
    write(place / "evidence/a.parquet", [small_folder.record(), small_folder.record(validator="v2")])
    write(place / "evidence/b.parquet", [small_folder.record(task="t2"), small_folder.record() | change])
    with pytest.raises(BadInput, match=rf"evidence/b\.parquet:2: {message}"):
        folder.read(place, epoch=3)


@pytest.mark.parametrize("epoch", [2, 9])
def test_evidence_that_does_not_count_is_looked_at_too(tmp_path: Path, epoch: int) -> None:
    place = small_folder.make(tmp_path, evidence=None, scheme_toml=small_folder.SCHEME + "[consensus]\nmax_age_epochs = 1\n")
    write(place / "evidence/a.parquet", [small_folder.record(), small_folder.record(task="\n")])
    with pytest.raises(BadInput, match=r"a\.parquet:2: task: .* is not allowed here"):
        folder.read(place, epoch=epoch)


@pytest.mark.parametrize("name", ["epoch", "validator", "participant", "submission", "task", "outcome"])
def test_a_missing_column_is_named(tmp_path: Path, name: str) -> None:
    place = small_folder.make(tmp_path, evidence=None)
    write(place / "evidence/a.parquet", [small_folder.record()])
    write(place / "evidence/b.parquet", [small_folder.record(**{name: ...})])
    with pytest.raises(BadInput, match=rf"b\.parquet: {name}: the column is missing"):
        folder.read(place)


def test_columns_of_another_type_or_name(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, evidence=None)
    path = write(place / "evidence/a.parquet", [small_folder.record(epoch=3.0)], epoch=pa.float64())
    with pytest.raises(BadInput, match=r"a\.parquet: epoch: the column is of type DOUBLE"):
        folder.read(place)
    pq.write_table(table([small_folder.record()]).append_column("Trials", pa.array([1])), path)
    with pytest.raises(BadInput, match=r"a\.parquet: Trials: there is no column 'Trials'; did you mean 'trial'\?"):
        folder.read(place)


def test_times_may_be_text_or_timestamps_but_not_both(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, evidence=None)
    stamps = table([small_folder.record(), small_folder.record(task="t2")])
    index = stamps.column_names.index("observed_at")
    whole = stamps.set_column(index, "observed_at", pa.array([1, 2], pa.timestamp("us", tz="UTC")))
    pq.write_table(whole, place / "evidence/a.parquet")
    scored = folder.read(place).evidence
    assert isinstance(scored, Scored)
    assert scored.counting.tolist() == [[True, False], [False, False], [False, False]]
    pq.write_table(
        pa.concat_tables([whole, whole.set_column(index, "observed_at", pa.array([1, 3], pa.timestamp("us", tz="UTC")))]),
        place / "evidence/a.parquet",
    )
    with pytest.raises(BadInput, match=r"a\.parquet:4: differs from the record of the same key at .*a\.parquet:2"):
        folder.read(place)
    write(place / "evidence/b.parquet", [small_folder.record()])
    with pytest.raises(BadInput, match=r"b\.parquet: observed_at: the column is of type VARCHAR, in a\.parquet of TIMESTAMP"):
        folder.read(place)


def test_files_may_differ_in_optional_columns(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, evidence=None)
    write(place / "evidence/a[1]*.parquet", [small_folder.record(trial=1, observed_at=...)])
    write(place / "evidence/b.parquet", [small_folder.record(task="t2", kind=..., seq=4)], epoch=pa.int32())
    scored = folder.read(place).evidence
    assert isinstance(scored, Scored)
    assert scored.scores.tolist() == [[10**9, 0], [0, 0], [0, 0]]


def test_a_folder_holds_one_competition(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, evidence=None)
    records = [small_folder.record(competition="small"), small_folder.record(task="t2", competition="small")]
    write(place / "evidence/a.parquet", records)
    scored = folder.read(place).evidence
    assert isinstance(scored, Scored)
    assert scored.counting.sum() == 1
    write(place / "evidence/b.parquet", [small_folder.record(validator="v2", competition="large")])
    with pytest.raises(BadInput, match=r"b\.parquet:1: competition: 'large' is not 'small'"):
        folder.read(place)


def test_no_records_no_epoch(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, evidence=None)
    write(place / "evidence/a.parquet", [])
    with pytest.raises(CannotSettle, match="there is no evidence"):
        folder.read(place)
    scored = folder.read(place, epoch=3).evidence
    assert isinstance(scored, Scored)
    assert not scored.counting.any()


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"not parquet at all, but long enough to look at"])
def test_a_file_that_is_not_parquet_is_named(tmp_path: Path, damage: bytes) -> None:
    place = small_folder.make(tmp_path, evidence=None)
    write(place / "evidence/a.parquet", [small_folder.record()])
    (place / "evidence/b.parquet").write_bytes(damage)
    with pytest.raises(BadInput, match=r"b\.parquet: is not readable Parquet: "):
        folder.read(place)


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, evidence=None)
    path = write(place / "evidence/a.parquet", [small_folder.record()])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BadInput, match=r"a\.parquet: is not readable Parquet: "):
        folder.read(place)


def test_parquet_beside_json_lines(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path / "both")
    write(place / "evidence/a.parquet", [small_folder.record()])
    with pytest.raises(BadInput, match=r"a\.jsonl: cannot be read together with a\.parquet; keep all evidence in"):
        folder.read(place)


def test_without_duckdb_the_extra_is_named(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, evidence=None)
    write(place / "evidence/a.parquet", [small_folder.record()])
    code = "import sys; sys.modules['duckdb'] = None\nfrom pathlib import Path\nfrom assay import folder, errors\n"
    code += "try: folder.read(Path(sys.argv[1]))\nexcept errors.BadInput as error: print(error)"
    printed = subprocess.run([sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=True).stdout
    assert "pip install 'assay[bulk]'" in printed
    assert "a.parquet" in printed


def test_a_file_that_is_damaged_inside_is_named(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, evidence=None)
    write(place / "evidence/a.parquet", [small_folder.record()])
    path = write(place / "evidence/b.parquet", [small_folder.record(validator="v2")])
    data = bytearray(path.read_bytes())
    data[4:12] = b"\xff" * 8  # the head of its first page: the rows can be counted without it
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"b\.parquet: is not readable Parquet: "):
        folder.read(place)
