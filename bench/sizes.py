"""The size of a record on the disk, in SQLite and PostgreSQL, and of a participant in a settlement: `python -m bench.sizes`.

Records are those of bench/ledger.py: batches of 100, each signed, taken in by the ledger's own intake. Sizes are of everything in
the database, indexes included. Without PostgreSQL's programs its lines are left out.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import assay
from assay.exact import canonical
from assay.ledger import intake, keys, store
from bench.ledger import BUILD, NAME, ORIGIN, TASKS, VALIDATORS, judged_batches, participant

sys.path.append(str(Path(__file__).parents[1] / "tests" / "kits"))
FEW, MANY = 50, 250
"""Batches; what the larger ledger has beyond the smaller one is what records take."""
PARTICIPANTS = 100, 1_000


def _fill(place: str | Path, batches: int) -> None:
    signers = [keys.new() for _ in range(VALIDATORS)]
    public = {signer.public.raw.hex(): signer.public for signer in signers}
    rules = intake.IntakeRules(NAME, "tests", public, {*map(participant, range(batches))})
    with store.create(place, store.Meta(NAME, ORIGIN, "key")) as ledger:
        for given in judged_batches(batches, signers):
            assert intake.accept(ledger, given, rules).new == TASKS


def _sqlite(folder: Path) -> float:
    sizes = []
    for batches in (FEW, MANY):
        _fill(folder / f"{batches}.db", batches)
        sizes.append(sum(file.stat().st_size for file in folder.glob(f"{batches}.db*")))
    return (sizes[1] - sizes[0]) / (MANY - FEW) / TASKS


def _postgres() -> Iterator[tuple[str, float]]:
    from postgres import cluster

    with cluster() as server:
        measured = []
        for batches in (FEW, MANY):
            place = server.database()
            before = server.sql(place, "SELECT pg_current_wal_lsn()").strip()
            _fill(place, batches)
            written = server.sql(place, f"SELECT pg_current_wal_lsn() - '{before}'::pg_lsn")
            size = server.sql(place, "VACUUM FULL; SELECT pg_database_size(current_database())")
            measured.append((float(size), float(written)))
        for number, what in enumerate(("bytes a record", "its write-ahead log, bytes a record")):
            yield what, (measured[1][number] - measured[0][number]) / (MANY - FEW) / TASKS


def _settlement(folder: Path) -> float:
    """Bytes of a settlement's JSON for each participant more."""
    sizes = []
    for count in PARTICIPANTS:
        place = folder / f"settled-{count}"
        (place / "evidence").mkdir(parents=True)
        (place / "scheme.toml").write_text('[scheme]\nname = "sizes"\n[score]\nkind = "given"\n')
        names = [f"{number:064x}" for number in range(count)]
        rows = "".join(f"{name},{number + 1},s{number}\n" for number, name in enumerate(names))
        (place / "participants.csv").write_text(f"key,uid,submission\n{rows}")
        validators = [f"v{number}" for number in range(16)]
        (place / "validators.csv").write_text("key,stake\n" + "".join(f"{name},100\n" for name in validators))
        with (place / "evidence" / "a.jsonl").open("wb") as file:
            for validator in validators:
                for number, name in enumerate(names):
                    record = {
                        "kind": "given",
                        "epoch": 1,
                        "validator": validator,
                        "participant": name,
                        "submission": f"s{number}",
                        "observed_at": "2026-11-02T10:00:00Z",
                        "score": f"0.{number % 999 + 1:03}",
                    }
                    file.write(canonical(record) + b"\n")
        sizes.append(len(canonical(assay.open(place).settle().document)))
    return (sizes[1] - sizes[0]) / (PARTICIPANTS[1] - PARTICIPANTS[0])


def main() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sizes-", dir=BUILD) as name:
        folder = Path(name)
        print(f"SQLite, bytes a record                             {_sqlite(folder):8.0f}")
        try:
            for what, size in _postgres():
                print(f"PostgreSQL, {what:38} {size:8.0f}")
        except BaseException as error:
            if type(error).__name__ != "Skipped":
                raise
            print(f"PostgreSQL: {error}")
        print(f"a settlement, 16 validators, bytes a participant   {_settlement(folder):8.0f}")


if __name__ == "__main__":
    main()
