"""The answers of panels: lines, arrays of many lines and rows of Parquet give the same settlement. SPEC 2.3, 7."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import small_folder
from assay import folder
from assay.errors import BadInput
from assay.folder import reader
from assay.settle.pipeline import settle

MET = {"B1": True, "B2": True, "B3": True, "B4": True}
SCHEME = small_folder.SCHEMES["rubric"].replace(
    "skippable = false}]\n",
    'skippable = false}]\npanel = {answers = 3, max_disagreement = "1/2"}\n'
    '[consensus]\nmin_validators = 1\nmin_stake = "0"\noutliers = {method = "none"}\n',
)


def panel(*sides: bool | None) -> list[dict[str, Any]]:
    """Answers that say YES or NO to the check; None is malformed."""
    answer = {"judge": "m", "baseline": MET, "verdict": "COHERENT"}
    return [answer | ({} if side is None else {"checks": {"c1": side}}) for side in sides]


def panels() -> list[dict[str, Any]]:
    """By three validators about each of two: a majority, answers that are missing, split, too many, and another answer."""
    fields = {"baseline": MET, "checks": {"c1": True}, "verdict": "COHERENT"}
    rows: list[tuple[str, int, tuple[bool | None, ...]]] = [
        ("v1", 1, (True, False, True)),
        ("v2", 1, (True, True)),
        ("v3", 1, (True, False, None)),
        ("v1", 2, (True, True, True, True)),
        ("v2", 2, (False, False, True)),
        ("v3", 2, (None, None, True)),
    ]
    return [
        small_folder.record("rubric", validator=name, participant=f"m{at}", submission=f"s{at}", panel=panel(*sides)) | fields
        for name, at, sides in rows
    ]


def parquet(path: Path, records: list[dict[str, Any]], panel: list[Any] | None = None) -> None:
    objects = ("baseline", "checks", "panel")
    columns = {
        name: pa.array([json.dumps(record[name]) if name in objects else record[name] for record in records])
        for name in records[0]
    }
    pq.write_table(pa.table(columns | ({} if panel is None else {"panel": pa.array(panel)})), path)


def test_lines_arrays_and_rows_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = panels()
    lines = small_folder.make(tmp_path / "a", "rubric", evidence=small_folder.lines(records))
    rows = small_folder.make(tmp_path / "b", "rubric", evidence=None)
    parquet(rows / "evidence/a.parquet", records)
    for place in (lines, rows):
        (place / "scheme.toml").write_text(SCHEME)
    small = settle(folder.read(lines))
    reasons = {row["reason"] for agreed in small.document["agreed"] for row in agreed["not_counted"]}
    assert reasons == {"panel-split", "unjudged"}
    assert any(row["validators"] for row in small.document["agreed"])
    assert settle(folder.read(rows)).digest == small.digest
    monkeypatch.setattr(reader, "MANY_BYTES", 0)
    assert settle(folder.read(lines)).digest == small.digest


def test_a_column_of_panels_is_text(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path, "rubric", evidence=None)
    records = panels()[:1]
    parquet(place / "evidence/a.parquet", records, [True])
    with pytest.raises(BadInput, match=r"panel: the column is of type bool; write it as text \(JSON\)"):
        folder.read(place)
    parquet(place / "evidence/a.parquet", records, ['[{"judge": ""}]'])
    with pytest.raises(BadInput, match=r"a.parquet:1: panel"):
        folder.read(place)
