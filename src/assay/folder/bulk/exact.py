"""Groups in which a trial occurs twice or a task is unknown, looked at record by record. SPEC 3.0.

Records that are equal in all that counts are one record. Where records of one key differ, they come to Python and are
treated as JSON lines are: the first accepted counts, and without a `seq` they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput
from assay.folder.bulk.ask import Batch, Names, identity
from assay.folder.bulk.check import check_names
from assay.folder.bulk.files import Files, quoted
from assay.folder.evidence import Gathered
from assay.folder.limits import EVIDENCE_RECORDS
from assay.folder.places import Place
from assay.records import Tests, record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Exact", "look"]

PART = 10_000_000
"""Records that are looked at exactly at one time."""
KEY = "competition, validator, submission, own, task, trial"
UNKNOWN = datetime(1, 1, 1, tzinfo=UTC)
"""Stands for a time that the files do not give."""
SAME = """min(epoch) = max(epoch) AND min(outcome) = max(outcome)
    AND (count(seen_at) = 0 OR (count(seen_at) = count(*) AND min(seen_at) = max(seen_at)))
    AND (count(image) = 0 OR (count(image) = count(*) AND min(image) = max(image)))"""


@dataclass
class Exact:
    """What the doubtful records add up to."""

    groups: list[dict[str, Any]] = field(default_factory=list)
    """Arrays c, v, p, s, passed, ran: one element per thing scored, over known tasks and trials, conflicting keys left out."""
    conflicting: dict[str, Gathered] = field(default_factory=dict)
    """Competition ("" if there is one) → the records of keys that have different ones."""


def look(files: Files, batch: Batch, names: Names, dirty: NDArray[np.uint64], records: int) -> Exact:
    """Every record whose `identity` is doubtful; raises BadInput for a task that cannot be a task, with file and row."""
    tasks = files.enum(batch.tasks)
    codes = ", ".join(names.code(column) for column in ("competition", "validator", "participant", "submission"))
    found = Exact()
    for part in _parts(files, dirty, records):
        files.connection.execute(
            f"CREATE OR REPLACE TEMP TABLE keys AS SELECT {KEY}, ({SAME}) AS same, any_value(outcome) AS outcome, "
            f"(TRY_CAST(task AS {tasks}) IS NOT NULL AND trial <= {batch.trials}) AS known "
            f"FROM ({_select(files, files.table, batch, part)}) GROUP BY {KEY}"
        )
        check_names(files, "task", "SELECT DISTINCT task FROM keys WHERE NOT known")
        found.groups.append(
            files.connection.execute(
                f"SELECT {codes}, passed, ran FROM (SELECT competition, validator, submission, own AS participant, "
                "count_if(same AND known AND outcome = 'pass')::BIGINT AS passed, "
                "count_if(same AND known AND outcome <> 'error')::BIGINT AS ran "
                "FROM keys GROUP BY competition, validator, submission, own)"
            ).fetchnumpy()
        )
        if files.connection.execute("SELECT count(*) FROM keys WHERE NOT same").fetchall() != [(0,)]:
            _gather(files, batch, part, found)
    return found


def _parts(files: Files, dirty: NDArray[np.uint64], records: int) -> Iterator[str]:
    """Conditions that divide the doubtful records into parts small enough."""
    import pyarrow as pa

    files.connection.register("dirty_numbers", pa.table({"h": dirty}))
    files.connection.execute("CREATE OR REPLACE TEMP TABLE dirty AS SELECT DISTINCT h FROM dirty_numbers")
    number = -(-records // PART)
    for index in range(number):
        yield f"{identity(files)} IN (SELECT h FROM dirty WHERE h % {number} = {index})"


def _select(files: Files, table: str, batch: Batch, part: str, extra: str = "") -> str:
    """SQL for the records of a part: every field that tells two records apart."""
    fields = [
        f"{files.column('competition', quoted(''))} AS competition",
        "validator, participant, submission, CASE WHEN submission = '' THEN participant ELSE '' END AS own",
        f"task, {files.trial} AS trial, outcome, epoch, {files.instant} AS seen_at, {files.column('seq')} AS seq",
        f"{files.column('image')} AS image",
    ]
    return f"SELECT {', '.join(fields)}{extra} FROM {table} WHERE {batch.window} AND {part}"


def _gather(files: Files, batch: Batch, part: str, found: Exact) -> None:
    """The records of the keys that have different ones, as JSON lines would give them, with their places."""
    rows = _select(files, files.rows_table, batch, part, ", filename, file_row_number")
    query = (
        "SELECT competition, filename, file_row_number, "
        "epoch, validator, participant, submission, task, trial, outcome, seen_at, seq, image "
        f"FROM ({rows}) SEMI JOIN (SELECT * FROM keys WHERE NOT same) USING ({KEY}) ORDER BY 2, 3 LIMIT {EVIDENCE_RECORDS + 1}"
    )
    answer = files.connection.execute(query).fetchall()
    if len(answer) > EVIDENCE_RECORDS:
        raise BadInput(
            f"more than {EVIDENCE_RECORDS} records share their key with a different one",
            file=files.paths[0].parent,
            hint="keep the first accepted of each",
        )
    for competition, path, number, *fields in answer:
        place = Place(Path(path), number + 1)
        gathered = found.conflicting.setdefault(competition, Gathered())
        gathered.records.append(_record(fields, place))
        gathered.places.append(place)


def _record(fields: list[Any], place: Place) -> Tests:
    names = ("epoch", "validator", "participant", "submission", "task", "trial", "outcome", "observed_at", "seq", "image")
    content = dict(zip(names, fields, strict=True))
    seen_at = content["observed_at"]
    if not isinstance(seen_at, str):
        content["observed_at"] = UNKNOWN if seen_at is None else _instant(seen_at, place)
    try:
        read = record(content | {"kind": "tests"})
    except BadInput as error:
        raise place.put(error) from None
    assert isinstance(read, Tests)
    return read


def _instant(microseconds: int, place: Place) -> datetime:
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    except OverflowError:
        raise place.refuse("is not a time of the years 1 … 9999", field="observed_at", hint="correct it") from None
