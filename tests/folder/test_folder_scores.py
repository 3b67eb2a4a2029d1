"""Workflow evidence in Parquet, scored by DuckDB: the same scores as record by record, to the bit; otherwise it stands aside."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from decimal import Decimal
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
from assay.errors import BadInput
from assay.folder import parquet, rows, scores
from assay.records import record
from assay.scheme.load import parse
from assay.settle.inputs import Scored, frame
from by_record import SCORERS, assert_same
from test_folder_bulk import write_lying

AMOUNTS = ("quality", "cost", "budget", "seconds", "max_seconds")
COUNTS = ("epoch", "seq", "steps_completed", "steps_total", "retries", "declared_retries", "timeouts", "hard_failures")
REGISTRY = "key,submission,submitted_at\nm1,s1,2026-11-02T09:00:00Z\nm2,s2,\nm3,,\nm4,s1,\n"
ODD: list[dict[str, Any]] = [
    {"participant": "m2", "submission": "s2"},
    {"participant": "m3", "submission": ""},
    {"participant": "m4"},
    {"submission": "old"},
    {"submission": "a\u200bb"},
    {"validator": "stranger"},
    {"outcome": "invalid", "quality": None, "steps_total": None, "steps_completed": None},
    {"outcome": "service-error"},
    {"outcome": "lost"},
    {"epoch": 2},
    {"epoch": 4},
    {"task": "t\n"},
    {"task": "t2"},
    {"quality": "1.1"},
    {"quality": None},
    {"budget": "0"},
    {"cost": "-1"},
    {"steps_completed": 5},
    {"steps_completed": 10**6, "steps_total": 2 * 10**7},
    {"retries": -1},
    {"retries": 10**9},
    {"retries": None, "hard_failures": 1},
    {"timeouts": 2, "declared_retries": 30, "retries": 25},
    {"seq": 4},
    {"kind": "tests"},
]
PLAIN: dict[str, Any] = {"seconds": "10", "max_seconds": "60"}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Few rows are enough; what is given says of each reading whether the short way was taken."""
    ways: list[bool] = []

    def summed(*given: Any) -> Scored | None:
        scored = real(*given)
        ways.append(scored is not None)
        return scored

    real = scores._summed
    monkeypatch.setattr(scores, "LEAST", 0)
    monkeypatch.setattr(scores, "_summed", summed)
    return ways


def write(path: Path, records: Sequence[dict[str, Any]], width: int = 18) -> Path:
    """Records as Parquet with decimals."""
    columns = {}
    for name in dict.fromkeys(name for row in records for name in row):
        values = [row.get(name) for row in records]
        if name in AMOUNTS:
            decimals = [None if value is None else Decimal(value) for value in values]
            columns[name] = pa.array(decimals, pa.decimal128(width, 9))
        else:
            columns[name] = pa.array(values, pa.int64() if name in COUNTS else pa.string())
    if "observed_at" in columns:
        columns["observed_at"] = pa.array([1_793_613_600_000_000] * len(records), pa.timestamp("us", "UTC"))
    pq.write_table(pa.table(columns), path)
    return path


def outcome(place: Path) -> Any:
    """The scores, or the refusal."""
    try:
        inputs = folder.read(place, epoch=3)
    except BadInput as error:
        return str(error).replace(".parquet", ".jsonl").replace(str(place), ""), error.field
    if isinstance(inputs.evidence, Scored):
        return inputs.evidence
    return SCORERS["workflow"](inputs.evidence, frame(inputs), inputs.scheme.score)


def both(place: str | Path, records: Sequence[dict[str, Any]]) -> tuple[Any, Any]:
    """Of the records as Parquet, and as lines of JSON, one by one."""
    trimmed = [{name: value for name, value in row.items() if value is not None} for row in records]
    as_lines = small_folder.make(Path(place, "a"), "workflow", participants_csv=REGISTRY, evidence=small_folder.lines(trimmed))
    as_rows = small_folder.make(Path(place, "b"), "workflow", participants_csv=REGISTRY, evidence=None)
    write(as_rows / "evidence/a.parquet", records)
    return outcome(as_rows), outcome(as_lines)


@st.composite
def evidence(draw: st.DrawFn) -> list[dict[str, Any]]:
    amount = st.integers(1, 10**12).map(lambda nanos: format(Decimal(nanos).scaleb(-9), "f"))
    usual = st.fixed_dictionaries(
        {
            "validator": st.sampled_from(["v1", "v2", "v3"]),
            "task": st.sampled_from(["t1", "t2", "t3", "t4", "t5"]),
            "quality": st.integers(0, 10**9).map(lambda nanos: format(Decimal(nanos).scaleb(-9), "f")),
            "steps_completed": st.integers(0, 4),
            **dict.fromkeys(("cost", "budget", "seconds", "max_seconds"), amount),
            **dict.fromkeys(("retries", "timeouts", "hard_failures"), st.integers(0, 3)),
        }
    )
    records = [small_folder.record("workflow", **fields) for fields in draw(st.lists(usual, min_size=1, max_size=6))]
    for change in draw(st.lists(st.sampled_from(ODD), max_size=1)):
        records.append(small_folder.record("workflow", **change))
    return records


@given(evidence())
def test_the_short_way_gives_what_records_one_by_one_give(records: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores, "LEAST", 0)
        ours, theirs = both(place, records)
        if isinstance(ours, Scored) and isinstance(theirs, Scored):
            assert_same(ours, theirs)
        else:
            assert ours == theirs


def many(count: int, **changes: Any) -> list[dict[str, Any]]:
    """One record of each task by one validator."""
    return [small_folder.record("workflow", task=f"t{at}", **changes) for at in range(count)]


@pytest.mark.parametrize(
    ("records", "short"),
    [
        (many(9), True),
        (many(4) + many(4, validator="v2", outcome="invalid"), True),
        (many(3) + many(3, epoch=2), False),
        (many(3) + many(2), False),
        (many(3, participant="m4") + many(2, participant="m2", submission="old"), True),
        (many(101), False),
        (many(2) + many(1, validator="v2", outcome="service-error"), False),
    ],
    ids=["plain", "invalid", "epochs", "twice", "not counted", "window", "service"],
)
def test_it_stands_aside_where_it_must_be_looked_what_counts(
    records: list[dict[str, Any]], short: bool, tmp_path: Path, taken: list[bool]
) -> None:
    """Records of two epochs are in one batch of rows here; in batches of their own they take the short way."""
    ours, theirs = both(tmp_path, records)
    assert_same(ours, theirs)
    assert taken == [short]


def test_files_of_several_epochs_take_the_short_way(tmp_path: Path, taken: list[bool]) -> None:
    place = small_folder.make(tmp_path, "workflow", participants_csv=REGISTRY, evidence=None)
    earlier = many(60, epoch=2, participant="m3", submission="")
    write(place / "evidence/a.parquet", many(60) + many(40, validator="v2"))
    write(place / "evidence/b.parquet", earlier)
    ours = outcome(place)
    assert taken == [True]
    assert ours.first == {"m1": 3, "m3": 2}
    records = [record(row) for row in (*many(60), *many(40, validator="v2"), *earlier)]
    inputs = folder.read(place, epoch=3)
    assert_same(ours, SCORERS["workflow"](records, frame(inputs), inputs.scheme.score))


HALVES = [  # S · 2 is an odd number of nanos
    {"quality": "0.000000001", "steps_completed": 1, "steps_total": 1, "cost": "9", "budget": "1", "seconds": "9"},
    {"quality": "0.000000003", "steps_completed": 1, "steps_total": 1, "cost": "9", "budget": "1", "seconds": "9"},
    {"quality": "0.800000001", "steps_completed": 1, "steps_total": 1, "cost": "0.5", "budget": "1", "seconds": "15"},
    {"quality": "0.800000003", "steps_completed": 1, "steps_total": 1, "cost": "1", "budget": "1", "seconds": "15"},
    {"quality": "0.700000001", "steps_completed": 1, "steps_total": 1, "cost": "1", "budget": "3", "seconds": "10"},
    {"quality": "0.7", "steps_completed": 9, "steps_total": 9, "cost": "0", "budget": "1", "seconds": "0"},
]


def test_halves_go_to_the_even_nano(tmp_path: Path, taken: list[bool]) -> None:
    """A float does not decide these; whole numbers of 128 bits do."""
    records = [
        small_folder.record("workflow", **(PLAIN | half), validator=name, task=f"t{at}")
        for name in ("v1", "v2", "v3")
        for at, half in enumerate(HALVES)
        if name == "v3" or at % 2 == (name == "v1")
    ]
    ours, theirs = both(tmp_path, records)
    assert_same(ours, theirs)
    assert taken == [True]


def plain_scores(path: Path, text: str = "") -> Any:
    scheme = parse(f"[scheme]\nname = 'small'\n[score]\nkind = 'workflow'\n{text}")
    return parquet.unaided([path], lambda files: scores._scores(files, scheme.score))  # type: ignore[arg-type]


def test_each_half_is_scored_as_it_is_alone(tmp_path: Path) -> None:
    records = [small_folder.record("workflow", **(PLAIN | half), task=f"t{at}") for at, half in enumerate(HALVES)]
    ours = plain_scores(write(tmp_path / "a.parquet", records))
    assert ours.tolist() == [100_000_000, 100_000_002, 737_500_000, 612_500_002, 741_666_667, 450_000_000]
    wide = plain_scores(write(tmp_path / "b.parquet", records, width=38))
    np.testing.assert_array_equal(ours, wide)


def test_what_a_file_says_of_its_values_decides_no_score(tmp_path: Path) -> None:
    """A time that no record may have is seen, whatever the footer says of the times."""
    path = write(tmp_path / "a.parquet", many(3))
    before, table = plain_scores(path), pq.read_table(path)
    pq.write_table(table, path, write_statistics=False)
    np.testing.assert_array_equal(plain_scores(path), before)
    at = table.schema.get_field_index("observed_at")
    times = pa.array([1_793_613_600_000_000] * 2 + [253_402_300_800_000_000], pa.timestamp("us", "UTC"))  # the year 10000
    write_lying(path, table.set_column(at, "observed_at", times), table)
    assert plain_scores(path) is None


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("quality", pa.array(["0.5"])),
        ("steps_total", pa.array([4], pa.uint64())),
        ("observed_at", pa.array(["2026-11-02T10:00:00Z"])),
        ("max_seconds", pa.array([Decimal("1e27")], pa.decimal128(38, 9))),
        ("steps_completed", None),
    ],
)
def test_other_types_are_left_to_the_arrays(name: str, array: Any, tmp_path: Path) -> None:
    table = pq.read_table(write(tmp_path / "a.parquet", many(1)))
    at = table.schema.get_field_index(name)
    table = table.remove_column(at) if array is None else table.set_column(at, name, array)
    pq.write_table(table, tmp_path / "a.parquet")
    assert plain_scores(tmp_path / "a.parquet") is None


def test_rows_that_may_be_wrong_are_read_whole(tmp_path: Path) -> None:
    """Scores that are known already are of no use for a row that must be looked at."""
    place = small_folder.make(tmp_path, "workflow", participants_csv=REGISTRY, evidence=None)
    path = write(place / "evidence/a.parquet", [*many(2), small_folder.record("workflow", validator="stranger")])
    inputs = folder.read(small_folder.make(tmp_path / "c", "workflow", participants_csv=REGISTRY), epoch=3)
    with pytest.raises(BadInput, match=r"a\.parquet:3: validator: there is no validator 'stranger'"):
        rows.tally([path], frame(inputs), inputs.scheme, np.zeros(3, np.int32))
