"""A bundle whose values are changed one at a time, and what verify says to each."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import ledger_kit
from assay.errors import Refused
from assay.exact import canonical
from assay.ledger import bundle, settling
from assay.ledger.verify import STAGES, verify
from depth import FULL

KEY = str(ledger_kit.KEY)
Path_ = tuple[str | int, ...]
Change = tuple[str, bytes]
"""What was changed, and the bytes of the file then."""
Tried = TypeVar("Tried", bound=tuple[Any, ...])


def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three epochs of a small competition, the last of them exported: to be made a fixture."""
    place = ledger_kit.ledger_folder(tmp_path_factory.mktemp("tamper") / "small", tasks_txt="t1\n")
    for epoch, outcome in ((3, "pass"), (4, "fail"), (5, "pass")):
        changes = {"task": "t1", "image": "sha256:i"} if epoch == 4 else {"task": "t1"}
        records = ledger_kit.records(epoch=epoch, outcome=outcome, trial=1, **changes)
        ledger_kit.add(place, [record for at, record in enumerate(records) if at % 2 == 0 or epoch == 5])
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, ledger_kit.SIGNER)
    with ledger_kit.opened(place) as ledger:
        bundle.export(ledger, 5, place / "bundle")
        bundle.export(ledger, 5, place / "columns", as_parquet=True)
    return place


def flipped(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if value is None:
        return "x"
    return value[:-1] + ("1" if value[-1] == "0" else "0") if value else "x"


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every value in a document that is no object or list."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not isinstance(value, dict | list):
        yield path, value
    for key, inner in pairs:
        yield from leaves(inner, (*path, key))


def holders(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every object and list in a document that holds something."""
    if isinstance(value, dict | list) and value:
        yield path, value
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from holders(inner, (*path, key))


def put(document: Any, path: Path_, value: Any) -> Any:
    """A copy of the document with another value at the path."""
    if not path:
        return value
    copy: Any = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = put(document[path[0]], path[1:], value)
    return copy


def changes(document: Any) -> Iterator[tuple[str, Any]]:
    """The document with each value changed, each field and each row left out, and a field too many."""
    for path, value in leaves(document):
        yield f"{path}", put(document, path, flipped(value))
    for path, holder in holders(document):
        if isinstance(holder, dict):
            for name in holder:
                yield f"{path} without {name}", put(document, path, {key: part for key, part in holder.items() if key != name})
        else:
            for at in range(len(holder)):
                yield (
                    f"{path} without number {at}",
                    put(document, path, [part for index, part in enumerate(holder) if index != at]),
                )


def tried(changes: Iterator[Tried]) -> Iterator[Tried]:
    """The changes that are tried: all of them in the full run, else the first of each field, whichever row it is in."""
    seen = set[str]()
    for change in changes:
        field = re.sub(r"\d+", "0", change[-2])
        if FULL or field not in seen:
            seen.add(field)
            yield change


def refused(given: Path, file: str, data: bytes) -> Refused | None:
    """What verify says of a bundle in which a file has other bytes."""
    path = given / file
    beside = path.rename(given.parent / "beside")  # a new file is quicker than one cut down to nothing and written again
    path.write_bytes(data)
    try:
        verify(given, key=KEY)
    except Refused as error:
        return error
    finally:
        beside.replace(path)
    return None


def all_refused(given: Path, file: str, stages: set[str], changes: Iterator[Change]) -> dict[str, Refused]:
    """Every change of the file is refused at one of the stages; what each was refused with."""
    whole, errors, slipped = (given / file).read_bytes(), {}, []
    for what, data in changes:
        if data == whole:
            continue
        error = refused(given, file, data)
        if error is None or error.stage not in stages:
            slipped.append((what, None if error is None else str(error)))
            continue
        errors[what] = error
        assert not re.search(rf": ({'|'.join(STAGES)}): ", str(error)), f"a stage is named twice: {error}"
        if error.stage != "chain" and error.expected is not None:
            assert error.expected != error.found, what
    assert slipped == []
    return errors


def as_json(given: Path, file: str) -> Iterator[Change]:
    document = json.loads((given / file).read_bytes())
    return ((what, canonical(changed) + b"\n") for what, changed in tried(changes(document)))
