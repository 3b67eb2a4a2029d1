"""What `assay evidence list` prints of a ledger: batches and conflicts as tables, records as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.cli.keys import called_in
from assay.cli.show import Column, grid, sentence, show
from assay.exact import canonical
from assay.ledger.store import Kept, View
from assay.ledger.store.view import LATEST

__all__ = ["Chosen", "conflict_lines", "record_lines", "show_batches", "show_conflicts"]

Json = dict[str, Any]


@dataclass(frozen=True)
class Chosen:
    """Whose evidence is listed, and of which epoch; None: all."""

    validator: str | None
    epoch: int | None

    @property
    def epochs(self) -> tuple[int, int]:
        """The first and the last epoch."""
        return (0, LATEST) if self.epoch is None else (self.epoch, self.epoch)

    def has(self, validator: str) -> bool:
        """Whether this validator's is listed."""
        return self.validator in (None, validator)


def record_lines(view: View, chosen: Chosen) -> Iterator[bytes]:
    """The records in order of acceptance, each as a line of JSON with its `seq`, which evidence/ takes."""
    for one in view.records(*chosen.epochs):
        if chosen.validator is None or chosen.has(json.loads(one.body)["validator"]):
            yield _line(one)


def conflict_lines(view: View, chosen: Chosen) -> Iterator[bytes]:
    """A line of JSON for each conflict: the record that counts, and the later one."""
    for first, later in _conflicts(view, chosen):
        yield canonical({"first": first, "later": later})


def show_batches(view: View, chosen: Chosen, folder: Path) -> None:
    """The batches in order of acceptance."""
    found = [one for one in view.batches(*chosen.epochs) if chosen.has(one.validator)]
    if not found:
        show(sentence("There is no such evidence."))
        return
    conflicts, names = view.conflicting(), called_in(folder, (one.validator for one in found))
    columns = [
        Column("epoch", [str(one.epoch) for one in found], right=True),
        Column("validator", [names[one.validator] for one in found], kind="key"),
        Column("records", [str(one.count) for one in found], right=True),
        Column("new", ["0" if one.first_seq is None else f"{one.first_seq}–{one.last_seq}" for one in found], right=True),
        Column("conflicts", [str(conflicts.get(one.id, 0)) for one in found], right=True),
        Column("batch", [one.digest for one in found], kind="key", spare=1),
    ]
    several = "batch" if len(found) == 1 else "batches"
    show(grid(columns), sentence(f"{sum(one.count for one in found)} records in {len(found)} {several}."))


def show_conflicts(view: View, chosen: Chosen, folder: Path) -> None:
    """The conflicts: what was accepted first, which counts, and what came later."""
    found = list(_conflicts(view, chosen))
    if not found:
        show(sentence("No record contradicts an earlier one."))
        return
    names = called_in(folder, (later["validator"] for _, later in found))
    differences = [{name for name in first.keys() | later.keys() if first.get(name) != later.get(name)} for first, later in found]
    columns = [
        Column("validator", [names[later["validator"]] for _, later in found], kind="key"),
        Column("participant", [later["participant"] for _, later in found], kind="key"),
        Column("about", [_about(later) for _, later in found], kind="crop"),
        Column("counts", [_said(one[0], said) for one, said in zip(found, differences, strict=True)], kind="text"),
        Column("came later", [_said(one[1], said) for one, said in zip(found, differences, strict=True)], kind="text"),
    ]
    end = "record contradicts" if len(found) == 1 else "records contradict"
    show(grid(columns), sentence(f"{len(found)} {end} an earlier one, which counts; they are kept, and change nothing."))


def _conflicts(view: View, chosen: Chosen) -> Iterator[tuple[Json, Json]]:
    for one in view.conflicts(*chosen.epochs):
        first, later = json.loads(_line(one.first)), json.loads(_line(one.record))
        if chosen.has(later["validator"]):
            yield first, later


def _about(record: Json) -> str:
    parts = [record[name] for name in ("task", "repository") if name in record]
    trial = [f"trial {record['trial']}"] if record.get("trial", 1) != 1 else []
    return " ".join([*parts, *trial]) or f"epoch {record['epoch']}"


def _said(record: Json, names: set[str]) -> str:
    return ", ".join(f"{name} {_text(record.get(name))}" for name in sorted(names))


def _text(value: object) -> str:
    return "–" if value is None else value if isinstance(value, str) else canonical(value).decode()


def _line(one: Kept) -> bytes:
    return b'%b,"seq":%d}' % (one.body[:-1], one.seq)
