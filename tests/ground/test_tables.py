"""Arrow tables say what the settlement says, to the last digit, and polars, pandas and DuckDB read them."""

import builtins
import json
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.settle.document import BURNT, SETTLEMENT
from assay.tables import Tables, tables
from cli_kit import from_preset, records, with_records

pytestmark = pytest.mark.no_cover  # the other tests reach every branch, and to trace these takes long

duckdb = pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")


@pytest.fixture
def settlement(tmp_path: Path) -> assay.Settlement:
    place = from_preset(tmp_path / "season")
    with_records(place, records(place)[1:])  # miner-a misses a trial
    return assay.open(place).settle()


def rows(table: Any) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = table.to_pylist()
    return listed


def test_every_row_is_there(settlement: assay.Settlement) -> None:
    document, tables = settlement.document, settlement.to_arrow()
    assert [row["participant"] for row in rows(tables.agreed)] == [row["participant"] for row in document["agreed"]]
    assert [row["rank"] for row in rows(tables.agreed)] == [1, 2, None]
    assert [row["reason"] for row in rows(tables.agreed)] == [None, None, "missing-trials"]
    seen = [
        (row["participant"], score["validator"])
        for row in document["agreed"]
        for score in (*row["validators"], *row["not_counted"])
    ]
    assert [(row["participant"], row["validator"]) for row in rows(tables.validators)] == seen
    assert sum(not row["counts"] for row in rows(tables.validators)) == 1
    assert [row["participant"] for row in rows(tables.weights)] == [*document["ranking"], None]
    assert rows(tables.payouts) == []


def test_numbers_are_exact(settlement: assay.Settlement) -> None:
    document, tables = settlement.document, settlement.to_arrow()
    for shown, row in zip(document["weights"], rows(tables.weights), strict=False):
        assert row["share"] == Decimal(shown["share"])
        assert (row["u16"], row["uid"]) == (shown["u16"], shown["uid"])
    burn = rows(tables.weights)[-1]
    assert burn["share"] == Decimal(document["burn"]["share"])
    assert burn["score"] is None


def test_amounts_of_wei_are_text(tmp_path: Path) -> None:
    tables = assay.open(from_preset(tmp_path / "prize", "agonaut")).settle().to_arrow()
    assert rows(tables.payouts)[0]["net"] == str(10**18)
    assert rows(tables.weights) == []


def test_other_libraries_read_them(settlement: assay.Settlement) -> None:
    polars = pytest.importorskip("polars")
    weights = settlement.to_arrow().weights
    assert polars.from_arrow(weights)["u16"].to_list() == weights.column("u16").to_pylist()
    assert weights.to_pandas()["u16"].tolist() == weights.column("u16").to_pylist()
    [(total,)] = duckdb.sql("select sum(share) from weights").fetchall()
    assert abs(total - 1) <= Decimal("0.000000003")  # each is rounded for the reader


def test_the_tables_are_of_the_document_alone(settlement: assay.Settlement) -> None:
    again: Tables = tables(json.loads(json.dumps(settlement.document)), SETTLEMENT, BURNT)
    assert again.weights.equals(settlement.to_arrow().weights)


def test_without_pyarrow_it_says_what_to_install(settlement: assay.Settlement, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(assay.CannotSettle, match=r"pip install 'assay\[bulk\]'"):
        settlement.to_arrow()


ADDED = '    Field("halved", Holds.SHARE, lambda at: text(at.weight.score // 2)),\n'
SEEN_EVERYWHERE = """
import json, sys
from pathlib import Path

import jsonschema

import assay
from assay.cli.board import settlement_csv
from assay.conformance.schemas import schemas
from assay.folder import previous_of

settlement = assay.open(Path(sys.argv[1])).settle()
weights = schemas()["settlement.schema.json"]["properties"]["weights"]["items"]
jsonschema.Draft202012Validator(schemas()["settlement.schema.json"]).validate(settlement.document)
header = settlement_csv(settlement).decode().splitlines()[0].split(",")
previous_of(settlement.document)
print(json.dumps([
    [row.get("halved") for row in settlement.document["weights"]],
    "halved" in weights["required"],
    [row and str(row) for row in settlement.to_arrow().weights.to_pydict().get("halved", [])],
    "halved" in header,
]))
"""


def test_a_column_is_one_line_and_is_seen_everywhere(tmp_path: Path) -> None:
    package = tmp_path / "src" / "assay"
    shutil.copytree(Path(assay.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    file = package / "settle" / "document.py"
    place = '    Field("chain_u16", Holds.U16, lambda at: at.weight.chain_u16),\n'
    file.write_text(file.read_text("utf-8").replace(place, place + ADDED), "utf-8")
    season = from_preset(tmp_path / "season")
    env = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    ran = subprocess.run([sys.executable, "-c", SEEN_EVERYWHERE, season], capture_output=True, text=True, check=False, env=env)
    assert ran.returncode == 0, ran.stderr
    column, in_schema, in_table, in_csv = json.loads(ran.stdout)
    assert None not in column
    assert (in_schema, in_csv) == (True, True)
    assert [Decimal(cell) for cell in column] == [Decimal(cell) for cell in in_table[:-1]]
    assert in_table[-1] is None  # the burn has no score
