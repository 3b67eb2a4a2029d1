"""Which of the ledger's evidence bears on a settlement. SPEC 3.0.

The ledger keeps everything that was ever accepted. Left out here, before the settlement sees it, is:

- what was judged of another task set (a batch says of which), so that it does not stand in the way of the evidence of this one;
- what validators said who are no longer in the registry, and what is about participants who are not;
- records of another kind than the scheme scores now.

A record about a submission counts for whoever holds that, so it stays when the participant that it names has left, and is read
as if it named another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.folder.evidence import Gathered, Registry, gather
from assay.folder.places import Place
from assay.folder.reader import Found
from assay.ledger import parquet
from assay.records import KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MANY", "Judged", "from_files", "from_records", "left_out"]

MANY = 20_000
"""Above this many records of kind tests are counted as Parquet, not one by one."""


class Judged(NamedTuple):
    """Of which task set a batch's records are, and their seqs as ranges, first and last included."""

    task_set: str | None
    members: Sequence[Sequence[int]]


Numbers = "NDArray[np.int64]"


def left_out(batches: Iterable[Judged], task_set: str | None) -> NDArray[np.int64]:
    """The seqs of records that are in batches of other task sets only, ascending; none where the settlement has no task set."""
    if task_set is None:
        return np.empty(0, np.int64)
    others, same = list[Sequence[int]](), list[Sequence[int]]()
    for batch in batches:
        (others if batch.task_set not in (None, task_set) else same).extend(batch.members)
    if not others:
        return np.empty(0, np.int64)
    return np.setdiff1d(_numbers(others), _numbers(same))


def _numbers(ranges: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *(np.arange(first, last + 1) for first, last in ranges)])


@contextmanager
def from_records(records: Iterable[tuple[int, bytes]], without: NDArray[np.int64], *, many: bool) -> Iterator[Found]:
    """Evidence (seq, canonical JSON of the ledger's own), for as long as the block lasts; `many`: by way of Parquet."""
    if not many:
        yield lambda known: _gathered(records, without, known)
        return
    with TemporaryDirectory(prefix="assay-ledger-") as place:
        whole = Path(place) / "evidence.parquet"
        parquet.write(whole, records)
        yield lambda known: (_fitting(whole, without, known, Path(place)),)


@contextmanager
def from_files(
    paths: Sequence[Path], records: Callable[[], Iterable[tuple[int, bytes]]], without: NDArray[np.int64]
) -> Iterator[Found]:
    """The same for files of a bundle; `records` reads them one by one, which is done unless all of them are Parquet.

    Parquet of a stranger is written again: what its footer says of the columns (the lowest value of a row group, say) need not
    be so, and DuckDB goes by it, while the digests were taken of the columns.
    """
    if not paths or any(path.suffix != ".parquet" for path in paths):
        yield lambda known: _gathered(records(), without, known)
        return
    with TemporaryDirectory(prefix="assay-ledger-") as place:
        yield lambda known: tuple(_fitting(_copied(path, Path(place)), without, known, Path(place)) for path in paths)


def _gathered(records: Iterable[tuple[int, bytes]], without: NDArray[np.int64], known: Registry) -> Gathered:
    """The records that bear on the settlement, checked as those of a folder are."""
    gone, shared = frozenset(without.tolist()), KINDS[known.kind].shared_key
    somebody = min(known.participants)
    values = []
    for seq, body in records:
        value: dict[str, Any] = json.loads(body)
        if seq in gone or value["kind"] != known.kind or value["validator"] not in known.validators:
            continue
        if value["participant"] not in known.participants:
            if not shared or not value["submission"]:
                continue
            value["participant"] = somebody
        values.append(value | {"seq": seq})
    return gather(values, Place(), known)


def _copied(path: Path, place: Path) -> Path:
    """The records of a file in a file of our own, in `place`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [name for name in parquet.COLUMNS if name not in ("seq", "epoch", "trial", "observed_at")]
    target = place / f"copied-{path.name}"
    with pq.ParquetFile(path, read_dictionary=names) as file:
        columns = [name for name in file.schema_arrow.names if name in parquet.COLUMNS]
        schema = pa.schema([file.schema_arrow.field(name) for name in columns])
        with pq.ParquetWriter(target, schema, compression="lz4", store_schema=False) as writer:
            for batch in file.iter_batches(parquet.ROWS, columns=columns):
                writer.write_batch(batch.select(columns))
    return target


def _fitting(path: Path, without: NDArray[np.int64], known: Registry, place: Path) -> Path:
    """The file itself where nothing is to be left out, else what is left of it, in a file in `place`."""
    return path if not len(without) and _all_known(path, known) else _rest(path, without, known, place)


def _all_known(path: Path, known: Registry) -> bool:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    names = {"validator": known.validators, "participant": known.participants}
    with pq.ParquetFile(path, read_dictionary=list(names)) as file:
        return all(
            set(pc.unique(batch.column(name)).to_pylist()) <= keys
            for batch in file.iter_batches(columns=list(names))
            for name, keys in names.items()
        )


def _rest(path: Path, without: NDArray[np.int64], known: Registry, place: Path) -> Path:
    """The file without the records that do not count."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    validators, participants = pa.array(sorted(known.validators)), pa.array(sorted(known.participants))
    target = place / f"standing-{path.name}"
    with pq.ParquetFile(path) as file, pq.ParquetWriter(target, file.schema_arrow) as writer:
        for batch in file.iter_batches():
            there = pc.is_in(batch.column("participant"), participants)
            stays = pc.and_(
                pc.is_in(batch.column("validator"), validators), pc.or_(there, pc.not_equal(batch.column("submission"), ""))
            )
            stays = pc.and_not(stays, pc.is_in(batch.column("seq"), pa.array(without, batch.column("seq").type)))
            named = pc.if_else(there, batch.column("participant"), participants[0])
            changed = batch.set_column(batch.schema.get_field_index("participant"), "participant", named)
            writer.write_batch(changed.filter(stays))
    return target
