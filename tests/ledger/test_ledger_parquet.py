"""Evidence in Parquet: the bytes that come out are the records' canonical JSON, and no file makes it fall over."""

from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ledger_kit
import small_folder
from assay.archive import LocalWorkers, export_epochs, settle_all, verify_all
from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import strict
from assay.ledger import bundle, eligible, evidence, settling
from assay.ledger.verify import verify
from assay.records import Evidence, record

WORDS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8) | st.sampled_from(
    ['a"b', "a\\b", "</", "é", "🦆"]
)
TIMES = st.sampled_from(["2026-11-02T09:00:00Z", "2026-11-02T10:00:00.25+01:00", "2026-11-02T09:00:00.000001Z"])


@st.composite
def records(draw: st.DrawFn) -> list[Evidence]:
    drawn = []
    for _ in range(draw(st.integers(0, 12))):
        names = {name: draw(WORDS) for name in ("validator", "participant", "submission", "task")}
        more = {"image": draw(WORDS)} if draw(st.booleans()) else {}
        outcome = draw(st.sampled_from(["pass", "fail", "timeout", "error"]))
        trial, epoch = draw(st.integers(1, 10**9)), draw(st.integers(0, 2**53 - 1))
        whole = small_folder.record(**names, **more, outcome=outcome, trial=trial, epoch=epoch, observed_at=draw(TIMES))
        drawn.append(record(whole))
    return drawn


def read(path: Path) -> list[tuple[int, bytes, tuple[str, int, str]]]:
    return [row for part in evidence.read_parquet(path) for row in zip(*part, strict=True)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records(), st.integers(1, 5))
def test_what_is_read_is_what_was_written(tmp_path: Path, records: list[Evidence], at_once: int) -> None:
    path = tmp_path / "a.parquet"
    path.unlink(missing_ok=True)
    bodies = [(3 * seq + 1, canonical(record.document())) for seq, record in enumerate(records)]
    with patch.object(evidence, "PARQUET_ROWS", at_once), patch.object(evidence, "PARQUET_AT_ONCE", at_once):
        assert evidence.write_parquet(path, bodies) == len(records) == evidence.parquet_rows(path)
        again = read(path)
    assert [(seq, body) for seq, body, _ in again] == bodies
    assert [head for _, _, head in again] == [(record.kind, record.epoch, record.validator) for record in records]


def table(path: Path, change: dict[str, Any] | None = None, **columns: Any) -> Path:
    """One record, some of whose columns are others; None leaves a column out."""
    whole: dict[str, Any] = {name: value for name, value in small_folder.record().items() if name != "kind"} | {
        "seq": 1,
        "trial": 1,
    }
    arrays = {name: pa.array([value]) for name, value in whole.items()} | columns
    pq.write_table(pa.table({name: array for name, array in arrays.items() if array is not None}), path)
    return path


def test_other_writers_are_read_too(tmp_path: Path) -> None:
    body = canonical(record(small_folder.record()).document())
    assert [row[1] for row in read(table(tmp_path / "a.parquet"))] == [body]
    assert [row[1] for row in read(table(tmp_path / "b.parquet", trial=None))] == [body]
    assert [row[1] for row in read(table(tmp_path / "c.parquet", trial=pa.array([None], pa.int32())))] == [body]
    large = pa.array(["t1"], pa.large_string())
    assert [row[1] for row in read(table(tmp_path / "d.parquet", task=large, image=pa.array([None], pa.string())))] == [body]
    odd = [
        row[1] for row in read(table(tmp_path / "e.parquet", observed_at=pa.array(['"']).dictionary_encode().cast(pa.string())))
    ]
    assert odd == [body.replace(b'"2026-11-02T10:00:00Z"', b'"\\""')]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"task": None}, "task: the column is missing"),
        ({"observed_at": None}, "observed_at: the column is missing"),
        ({"seq": None}, "seq: the column is missing"),
        ({"task": pa.array([1])}, "task: the column is of type int64"),
        ({"epoch": pa.array(["3"])}, "epoch: the column is of type string"),
        ({"seq": pa.array([1.0])}, "seq: the column is of type double"),
        ({"observed_at": pa.array([0], pa.timestamp("us"))}, "observed_at: the column is of type timestamp"),
        ({"task": pa.array([None], pa.string())}, "task: is empty"),
        ({"epoch": pa.array([None], pa.int64())}, "epoch: is empty"),
        ({"seq": pa.array([None], pa.int64())}, "seq: is empty"),
        ({"observed_at": pa.array([None], pa.string())}, "observed_at: is empty"),
        ({"task": pa.array(["x" * 5000])}, "a value that is too large: 'xxx"),
        ({"epoch": pa.array([2**60])}, "a value that is too large: 1152"),
        ({"task": pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())}, "is not readable Parquet"),
        ({"seq": pa.array([-1])}, "seq: is empty, or below 0"),
    ],
)
def test_a_wrong_file_is_refused(columns: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", **columns)
    with pytest.raises(BadInput) as refused:
        read(path)
    assert words in str(refused.value)
    assert refused.value.file == path


def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    for data in (b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1"):
        (tmp_path / "a.parquet").write_bytes(data)
        with pytest.raises(BadInput, match="is not readable Parquet"):
            read(tmp_path / "a.parquet")
    with pytest.raises(BadInput, match="is not readable Parquet"):
        evidence.parquet_rows(tmp_path / "none.parquet")


@pytest.mark.parametrize("kinds", [["given", "points"], ["given", None], ["nothing", "nothing"], [1, 1]])
def test_a_file_has_records_of_one_kind_that_is_known(kinds: list[Any], tmp_path: Path) -> None:
    pq.write_table(pa.table({"kind": pa.array(kinds), "seq": pa.array([1, 2])}), tmp_path / "a.parquet")
    with pytest.raises(BadInput, match="kind: is not one kind of evidence"):
        read(tmp_path / "a.parquet")


def test_a_column_of_kinds_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"kind": pa.array(["given"] * 9), "seq": pa.array(range(9))}), path, use_dictionary=False)
    path.write_bytes(path.read_bytes()[:4] + b"\xff" * 40 + path.read_bytes()[44:])
    with pytest.raises(BadInput, match="is not readable Parquet"):
        read(path)


def test_records_of_several_kinds_are_not_written_into_one_file(tmp_path: Path) -> None:
    given = canonical(record(small_folder.record("given")).document())
    others = [canonical(record(small_folder.record("points")).document()), given.replace(b'"given"', b'"taken"')]
    for name, other in zip("ab", others, strict=True):
        with pytest.raises(BadInput, match="kind"):
            evidence.write_parquet(tmp_path / f"{name}.parquet", [(1, given), (2, other)])


def test_every_flipped_byte_is_refused_or_read_as_other_records(tmp_path: Path) -> None:
    """Or as the same, where the byte says nothing of them. What is read is of one spelling, and of whom it is said to be."""
    path = table(tmp_path / "a.parquet")
    whole, right = path.read_bytes(), read(path)
    came = Counter[str]()
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            rows = read(path)
        except BadInput as error:
            came["refused" if error.file == path else "elsewhere"] += 1
            continue
        came["the same" if rows == right else "others"] += 1
        assert len(rows) <= 1
        for seq, body, head in rows:
            document = strict.parse(body.decode())
            assert canonical(document) == body
            assert head == (document["kind"], document["epoch"], document["validator"])
            assert seq >= 0
    assert came.keys() == {"refused", "the same", "others"}
    assert came["refused"] > came["the same"] + came["others"], came


class TestSeveralKinds:
    """A competition may change its kind; records of the kind before stay under their roots, and bear on nothing. SPEC 6."""

    @pytest.mark.parametrize("first", ["given", "rubric"])
    def test_a_bundle_in_parquet_is_verified(self, tmp_path: Path, first: str) -> None:
        place = ledger_kit.of_two_kinds(tmp_path / "small", first)
        with ledger_kit.opened(place) as ledger:
            columns = bundle.export(ledger, 4, tmp_path / "columns", as_parquet=True)
            lines = bundle.export(ledger, 4, tmp_path / "lines")
            export_epochs(ledger, str(tmp_path / "archive"), as_parquet=True)
        kinds = [evidence.parquet_kind(columns / "evidence" / f"epoch-{epoch}.parquet") for epoch in (3, 4)]
        assert kinds == [first, "tests"]
        reports = [verify(where, key=str(ledger_kit.KEY)) for where in (columns, lines)]
        assert [report.recomputed for report in reports] == [True, True]
        report = verify_all(str(tmp_path / "archive"), engine=LocalWorkers(workers=1))
        settled, _ = settle_all(str(tmp_path / "archive"), engine=LocalWorkers(workers=1))
        assert [row.fault for row in report.verdicts] == [None, None]
        assert [(row.differs, row.fault) for row in settled] == [(False, None)] * 2

    def test_a_large_ledger_is_settled_and_replayed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(eligible, "MANY", 0)
        place = ledger_kit.of_two_kinds(tmp_path / "many", "given")
        with ledger_kit.opened(place) as ledger:
            digests = [result.settlement.digest for result in settling.replay(ledger)]
        monkeypatch.undo()
        other = ledger_kit.of_two_kinds(tmp_path / "small", "given")
        with ledger_kit.opened(other) as ledger:
            assert [result.settlement.digest for result in settling.replay(ledger)] == digests

    def test_the_kind_is_that_of_the_record_and_of_no_field_in_it(self) -> None:
        bodies = [
            canonical({"kind": "given"}),
            canonical({"kind": "tests"}),
            canonical({"checks": {"kind": "tests"}, "kind": "rubric"}),
        ]
        bodies.append(canonical({"checks": {"kind": "rubric"}, "kind": "tests"}))
        assert [seq for seq, _ in eligible._of_kind(enumerate(bodies), "tests")] == [1, 3]

    def test_an_epoch_of_which_nothing_is_of_the_kind(self, tmp_path: Path) -> None:
        place = ledger_kit.ledger_folder(tmp_path / "small", "tests")
        ledger_kit.add(place, ledger_kit.records("tests", epoch=3))
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, ledger_kit.SIGNER, 3)
        small_folder.make(place, "given", validators_csv=ledger_kit.NAMES, evidence=None)
        (place / "evidence").rmdir()
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, ledger_kit.SIGNER, 4, without_scores=True)
            columns = bundle.export(ledger, 4, tmp_path / "columns", as_parquet=True)
        assert verify(columns, key=str(ledger_kit.KEY)).recomputed
