"""Records in columns are bound to results as single records are: `bind_parquet` against `bind_results`, to the bit."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.exact import canonical
from assay.ledger import binding, eligible, evidence
from assay.ledger.batch import StoredRecord
from assay.ledger.evidence import BoundRecords
from assay.records import record

SUBMISSIONS = ("s1", "s2", "", "old")
KINDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "tests": {"task": st.sampled_from(["t1", "é"]), "trial": st.integers(1, 2), "outcome": st.sampled_from(["pass", "fail"])},
    "given": {"score": st.sampled_from(["0", "0.5"])},
    "points": {"repository": st.sampled_from(["r1", "r2"]), "valid": st.integers(0, 1)},
    "rubric": {"verdict": st.sampled_from([1, {"b": 0.5}, "x"]), "baseline": st.none()},
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[tuple[int, bytes]], dict[str, Any], dict[str, Any]]:
    """Records with their seqs, inputs, and a settlement."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    common = {
        "kind": st.just(kind),
        "observed_at": st.just("2026-11-02T09:00:00Z"),
        "epoch": st.integers(1, 3),
        "validator": st.sampled_from(["v1", "v2", "gone"]),
        "participant": st.sampled_from(["m1", "m2", "m3", "stranger"]),
        "submission": st.sampled_from(SUBMISSIONS),
    }
    contents = draw(st.lists(st.fixed_dictionaries(common | KINDS[kind]), max_size=20))
    seqs = draw(st.permutations(range(1, len(contents) + 1)))
    rows = [(seq, canonical(record(content).document())) for seq, content in zip(seqs, contents, strict=True)]
    held = {"m1": "s1", "m2": draw(st.sampled_from(["s2", "s1"])), "m3": ""}
    twice = held["m1"] == held["m2"]
    agreed = [
        {"participant": name, "submission": submission, "duplicate_of": "m1" if twice and name == "m2" else None}
        for name, submission in held.items()
    ]
    age = draw(st.sampled_from([None, 1]))
    scored = draw(st.sampled_from([kind, kind, kind, "tests"]))
    scheme = {"score": {"kind": scored}, "consensus": {} if age is None else {"max_age_epochs": age}}
    return rows, {"scheme": scheme, "validators": [{"key": "v1"}, {"key": "v2"}]}, {"epoch": 3, "agreed": agreed}


def files(folder: Path, rows: list[tuple[int, bytes]], absent: Sequence[str] = ()) -> Iterator[Path]:
    """The records in two files, each in order of acceptance."""
    for at in range(2):
        path = folder / f"epoch-{at}.parquet"
        path.unlink(missing_ok=True)
        evidence.write_parquet(path, sorted(rows[at::2]))
        if absent:
            pq.write_table(pq.read_table(path).drop_columns([*absent]), path)
        yield path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), gone=st.sets(st.integers(1, 20)), most=st.sampled_from([binding.MOST, 3]), known=st.integers(0, 2))
def test_columns_bind_what_records_bind(tmp_path: Path, case: Any, gone: set[int], most: int, known: int) -> None:
    compare(tmp_path, case, gone, most, known)


@pytest.mark.parametrize("submission", ["", "s1"])
def test_a_field_that_no_record_has_and_many_slots(submission: str, tmp_path: Path) -> None:
    common = {"kind": "tests", "observed_at": "2026-11-02T09:00:00Z", "epoch": 3, "outcome": "pass", "submission": submission}
    rows = [
        (seq, canonical(record(common | {"validator": validator, "participant": name, "task": task}).document()))
        for seq, (validator, name, task) in enumerate(product(("v1", "v2"), ("m1", "m2"), ("t1", "t2")), start=1)
    ]
    inputs = {"scheme": {"score": {"kind": "tests"}, "consensus": {}}, "validators": [{"key": "v1"}, {"key": "v2"}]}
    agreed = [{"participant": name, "submission": submission, "duplicate_of": None} for name in ("m1", "m2")]
    compare(tmp_path, (rows, inputs, {"epoch": 3, "agreed": agreed}), set(), 3, 2, absent=["trial"])


def compare(tmp_path: Path, case: Any, gone: set[int], most: int, known: int, absent: Sequence[str] = ()) -> None:
    """Bind in columns, and record by record. absent: columns that the files do not have, since each cell has the default."""
    rows, inputs, settlement = case
    stored = [StoredRecord(seq, sha256(body).digest(), body) for seq, body in sorted(rows)]
    expected = eligible.bind_results(stored, inputs, settlement, gone)
    hashed = [row for at, row in enumerate(rows) if at % 2 == known]
    held = BoundRecords([seq for seq, _ in sorted(hashed)], [sha256(body).digest() for _, body in sorted(hashed)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence, "_flush", lambda file: None)
        patch.setattr(evidence, "PARQUET_AT_ONCE", 3)
        patch.setattr(binding, "MOST", most)
        without = np.array(sorted(gone), np.int64)
        assert binding.bind_parquet([*files(tmp_path, rows, absent)], inputs, settlement, without, held) == expected
