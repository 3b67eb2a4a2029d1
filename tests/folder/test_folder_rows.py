"""Every kind in Parquet: the same scores as JSON lines, to the bit; the same refusals, with file, row and field."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import small_folder
from assay import folder
from assay.cli.explain import _rows_about
from assay.errors import BadInput
from assay.folder import rows
from assay.records import record
from assay.settle.inputs import Scored, frame
from assay.settle.pipeline import settle
from assay.settle.score.rubric import VERDICTS
from by_record import SCORERS, assert_same

KINDS = ("workflow", "rubric", "points", "given")
COUNTS: tuple[str, ...] = (
    "epoch",
    "seq",
    "steps_completed",
    "steps_total",
    "retries",
    "declared_retries",
    "timeouts",
    "hard_failures",
)
COUNTS += ("valid", "invalid", "revoked_valid", "revoked_invalid")
AMOUNTS = ("quality", "cost", "budget", "seconds", "max_seconds", "score")
ANSWERS = ("baseline", "checks", "quotes", "panel")
REGISTRY = "key,submission,submitted_at\nm1,s1,2026-11-02T09:00:00Z\nm2,s2,\nm3,,\nm4,s1,\n"
MORE: dict[str, list[dict[str, Any]]] = {
    "workflow": [
        {"outcome": "service-error"},
        {"outcome": "invalid", "quality": ...},
        {"outcome": "lost"},
        {"quality": "0.333333333"},
        {"quality": "1.000000001"},
        {"cost": "999999999.999999999", "budget": "0.000000001"},
        {"seconds": "1000000000"},
        {"seconds": ...},
        {"steps_completed": 5},
        {"budget": "0"},
        {"retries": -1},
        {"task": "t\n"},
        {"task": "t2"},
    ],
    "rubric": [
        {"verdict": "?"},
        {"verdict": None},
        {"verdict": {"a": 1}},
        {"checks": {}},
        {"checks": None, "baseline": {"B1": True, "B2": True, "B3": False, "B4": True}},
        {"baseline": {"B1": "yes"}},
        {"baseline": [1]},
        {"quotes": {"c1": 'so "it" says'}, "attestation": "x" * 256, "injection_suspected": True},
        {"quotes": {"c1": 1}},
        {"attestation": "x" * 257},
        {"outcome": "unjudged"},
        {"panel": [{"judge": "m", "checks": {"c1": True}}, {"judge": "n", "outcome": "unjudged"}]},
        {"panel": []},
    ],
    "points": [{"starred": False}, {"repository": "o/x"}, {"valid": 10**9 + 1}, {"revoked_invalid": 3}, {"repository": ""}],
    "given": [{"score": "0.000000001"}, {"score": "1.5"}, {"score": "0.1234567891"}, {"score": ...}],
}
ANY: list[dict[str, Any]] = [
    {"participant": "m3", "submission": ""},
    {"participant": "m2", "submission": "s2"},
    {"participant": "m4", "submission": "s1"},
    {"submission": "old"},
    {"submission": "a\u200bb"},
    {"submission": ...},
    {"validator": "stranger"},
    {"participant": "stranger"},
    {"epoch": 5},
    {"epoch": -1},
    {"epoch": 2},
    {"seq": 2**40},
    {"observed_at": "2026-11-02T10:00:00.25+01:00"},
    {"observed_at": "2026-02-30T10:00:00Z"},
    {"kind": "tests"},
    {"kind": "other"},
]


def column(name: str, values: list[Any]) -> pa.Array:
    """A field of records as a column: objects as JSON, a verdict that is no word too."""
    if name in ANSWERS:
        return pa.array([None if value is None else json.dumps(value) for value in values], pa.string())
    if name == "verdict":
        plain = [value is None or value in VERDICTS for value in values]
        return pa.array([value if as_is else json.dumps(value) for value, as_is in zip(values, plain, strict=True)], pa.string())
    kind = pa.int64() if name in COUNTS else pa.bool_() if name in ("starred", "injection_suspected") else pa.string()
    return pa.array(values, kind)


def write(path: Path, records: Sequence[dict[str, Any]], **columns: pa.Array) -> Path:
    names = list(dict.fromkeys(name for row in records for name in row))
    arrays = {name: column(name, [row.get(name) for row in records]) for name in names} | columns
    pq.write_table(pa.table({name: array for name, array in arrays.items() if array is not None}), path)
    return path


@st.composite
def evidence(draw: st.DrawFn, kind: str) -> list[dict[str, Any]]:
    usual: st.SearchStrategy[dict[str, Any]] = st.builds(
        dict, validator=st.sampled_from(["v1", "v2", "v3"]), epoch=st.sampled_from([1, 2, 3])
    )
    change = st.one_of(usual, usual, st.sampled_from([*MORE[kind], *ANY]))
    records = [small_folder.record(kind, **draw(change)) for _ in range(draw(st.integers(1, 7)))]
    records += [dict(row) for row in draw(st.lists(st.sampled_from(records), max_size=2))]
    if draw(st.booleans()):
        for at, row in enumerate(records):
            row["seq"] = 2 * len(records) - at
    return records


def outcome(place: Path) -> Any:
    """The scores, or what the refusal says, without the ending of the file's name."""
    try:
        inputs = folder.read(place, epoch=3)
    except BadInput as error:
        return str(error).replace(".parquet", ".jsonl").replace(str(place), ""), error.field
    if isinstance(inputs.evidence, Scored):
        return inputs.evidence
    return SCORERS[inputs.scheme.score.kind](inputs.evidence, frame(inputs), inputs.scheme.score)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
@given(st.data(), st.sampled_from([2, 2**18]))
def test_parquet_gives_what_records_one_by_one_give(kind: str, data: st.DataObject, at_once: int) -> None:
    records = data.draw(evidence(kind))
    # a column that no row has is refused as such
    assume({*small_folder.record(kind)} <= {name for row in records for name in row})
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "AT_ONCE", at_once)
        as_lines = small_folder.make(Path(place, "a"), kind, participants_csv=REGISTRY, evidence=small_folder.lines(records))
        as_rows = small_folder.make(Path(place, "b"), kind, participants_csv=REGISTRY, evidence=None)
        write(as_rows / "evidence/a.parquet", records)
        ours, theirs = outcome(as_rows), outcome(as_lines)
        if isinstance(ours, Scored) and isinstance(theirs, Scored):
            assert_same(ours, theirs)
            again = list(rows.records([as_rows / "evidence/a.parquet"], folder.read(as_lines, epoch=3).scheme, {}))
            assert again == [record(row) for row in records]
        else:
            assert ours == theirs


@pytest.mark.parametrize("kind", KINDS)
def test_other_types_of_columns_say_the_same(kind: str, tmp_path: Path) -> None:
    """Decimals, timestamps, structs of answers, dictionaries, small integers; optional columns left out, or empty."""
    records = [small_folder.record(kind, validator=name, observed_at="2026-11-02T10:00:00Z") for name in ("v1", "v2", "v3")]
    as_lines = small_folder.make(tmp_path / "a", kind, evidence=small_folder.lines(records))
    place = small_folder.make(tmp_path / "b", kind, evidence=None)
    columns: dict[str, Any] = {"observed_at": pa.array([1_793_613_600_000_000] * 3, pa.timestamp("us", "UTC")), "kind": None}
    columns["epoch"] = pa.array([3, 3, 3], pa.uint64())
    columns["validator"] = pa.array(["v1", "v2", "v3"]).dictionary_encode()
    columns["competition"] = pa.array(["small"] * 3)
    columns["seq"] = pa.array([None] * 3, pa.int32())
    for name in AMOUNTS:
        if name in records[0]:
            columns[name] = pa.array([Decimal(records[0][name])] * 3, pa.decimal128(18, 9))
    if "score" in records[0]:
        columns["score"] = pa.array([Decimal(records[0]["score"])] * 3, pa.decimal64(6, 2))
    if kind == "rubric":
        columns |= {name: pa.array([records[0][name]] * 3) for name in ("baseline", "checks")}
        columns["quotes"] = pa.array([{"c1": "word"}] * 3)
    write(place / "evidence/a.parquet", records, **columns)
    ours, theirs = outcome(place), outcome(as_lines)
    assert_same(ours, theirs)
    again = rows.records([place / "evidence/a.parquet"], folder.read(as_lines).scheme, {"validator": ["v2"]})
    [selected] = again
    assert selected.document() == record(records[1]).document() | ({"quotes": {"c1": "word"}} if kind == "rubric" else {})
    one_, other = settle(folder.read(place)), settle(folder.read(as_lines))
    assert one_.digest == other.digest
    columns["observed_at"] = None
    assert_same(outcome(write(place / "evidence/a.parquet", records, **columns).parents[1]), theirs)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("given", {"score": pa.array([0.5])}, "a.parquet: score: the column is of type double; write it as text, or a decimal"),
    ("given", {"score": pa.array([Decimal("0.1")], pa.decimal128(12, 10))}, "a.parquet: score: the column is of type decimal128"),
    ("given", {"score": pa.array([Decimal("-0.1")])}, "a.parquet:1: score: '-0.1' is not a decimal number"),
    ("given", {"other": pa.array([1])}, "a.parquet: other: there is no column 'other'; the columns are epoch"),
    ("given", {"score": None}, "a.parquet: score: the column is missing; the columns needed are epoch, validator"),
    ("given", {"epoch": pa.array([2**64 - 1], pa.uint64())}, "a.parquet:1: epoch: 18446744073709551615: "),
    ("given", {"competition": pa.array(["large"])}, "a.parquet:1: competition: 'large' is not 'small'; keep each"),
    ("given", {"competition": pa.array([None], pa.string())}, "a.parquet:1: competition: an empty cell is not 'small'"),
    (
        "given",
        {"observed_at": pa.array([1])},
        "a.parquet: observed_at: the column is of type int64; write it as text or",
    ),
    ("points", {"starred": pa.array(["yes"])}, "a.parquet: starred: the column is of type string; write it as booleans"),
    ("points", {"repository": pa.array([1])}, "a.parquet: repository: the column is of type int64; write it as text"),
    ("rubric", {"checks": pa.array([{"c1": 1}])}, "a.parquet: checks: the column is of type struct<c1: int64>; write it as text"),
    ("rubric", {"checks": pa.array(['{"c1":true,"c1":true}'])}, "a.parquet:1: checks: has the key 'c1' twice in one object"),
    ("rubric", {"verdict": pa.array(["GOOD"])}, "a.parquet:1: verdict: is not JSON: "),
]


@pytest.mark.parametrize(("kind", "columns", "why"), REFUSED, ids=[why[:60] for _, _, why in REFUSED])
def test_a_wrong_column_or_row_is_named(kind: str, columns: dict[str, Any], why: str, tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, kind, evidence=None)
    write(place / "evidence/a.parquet", [small_folder.record(kind)], **columns)
    with pytest.raises(BadInput) as caught:
        folder.read(place, epoch=3)
    assert why in str(caught.value)


def test_a_damaged_file_and_an_empty_one(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, "given", evidence=None)
    path = write(place / "evidence/a.parquet", [small_folder.record("given")])
    assert folder.read(place).epoch == 3
    pq.write_table(pq.read_table(path).slice(0, 0), place / "evidence/b.parquet")
    assert folder.read(place).epoch == 3
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BadInput, match=r"a\.parquet: is not readable Parquet: "):
        folder.read(place)


def test_without_pyarrow_the_extra_is_named(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, "given", evidence=None)
    write(place / "evidence/a.parquet", [small_folder.record("given")])
    code = "import sys; sys.modules['pyarrow'] = None\nfrom pathlib import Path\nfrom assay import folder, errors\n"
    code += "try:\n    folder.read(Path(sys.argv[1]))\nexcept errors.BadInput as error:\n    print(error)"
    printed = subprocess.run([sys.executable, "-c", code, place], check=True, capture_output=True, text=True).stdout
    assert "Parquet is read with pyarrow, which is not installed; pip install 'assay[bulk]'" in printed


@pytest.mark.parametrize("kind", KINDS)
def test_an_explanation_of_parquet_is_that_of_lines(kind: str, tmp_path: Path) -> None:
    """A service that failed in a task takes it out for everybody, also where only one participant's records are read."""
    failed: dict[str, Any] = {"quality": "0.1"} if kind == "workflow" else {"checks": {"c1": False}} if kind == "rubric" else {}
    records = [small_folder.record(kind, validator=name, **failed) for name in ("v1", "v2", "v3")]
    if kind == "workflow":
        records += [small_folder.record(kind, validator=name, task="t2", **failed) for name in ("v1", "v2", "v3")]
        records.append(small_folder.record(kind, participant="m2", submission="s2", task="t2", outcome="service-error"))
    as_lines = small_folder.make(tmp_path / "a", kind, evidence=small_folder.lines(records))
    place = small_folder.make(tmp_path / "b", kind, evidence=None)
    write(place / "evidence/a.parquet", records)
    settled = settle(folder.read(place))
    story = settled.explain("m1", _rows_about(place, settled, "m1")).document()
    assert story == settle(folder.read(as_lines)).explain("m1").document()
    assert ("failed" in json.dumps(story)) == (kind in ("workflow", "rubric"))
