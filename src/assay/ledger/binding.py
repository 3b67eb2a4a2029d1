"""Bind the results of a settlement to their records in Parquet, as `eligible.bind_results` does for single records. SPEC 6.

    rows → those that bear on the settlement → the participant of each → the first accepted of each slot → roots

Records of the epoch that is verified were read and hashed before, for its root and its batches; they are not made again. The
columns say all else: names become numbers, and a slot is one integer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.kind import find
from assay.ledger import evidence
from assay.ledger.evidence import BoundRecords, ParquetRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

__all__ = ["bind_parquet"]

Json = dict[str, Any]
MOST = 2**62
"""Slots that fit one number."""


def bind_parquet(
    paths: Sequence[Path], inputs: Json, settlement: Mapping[str, Any], without: Numbers, bound_records: BoundRecords
) -> dict[str, Json]:
    """Participant → count and root of the records that its result rests on; the same as `eligible.bind_results` gives. SPEC 6.

    paths: Parquet, all up to the settlement's epoch. without: the seqs that are left out. bound_records: records of these files
    whose digests are known, in order of acceptance. Raises BadInput for a wrong file.
    """
    results = _Results(inputs, settlement, without, bound_records)
    for path in paths:
        for rows in evidence.parquet_parts(path):
            results.take(rows)
    return results.bound()


class _Results:
    """The records that bear on a settlement, as numbers: seq, participant, validator and parts of the slot; and their digests."""

    def __init__(self, inputs: Json, settlement: Mapping[str, Any], without: Numbers, bound_records: BoundRecords) -> None:
        scheme = inputs["scheme"]
        self.kind, age = scheme["score"]["kind"], scheme["consensus"].get("max_age_epochs")
        self.oldest = 0 if age is None else settlement["epoch"] - age
        self.model, self.without = find(self.kind).record, without
        self.known_seqs, self.known = np.array(bound_records.seqs, np.int64), bound_records.digests
        rows = [row for row in settlement["agreed"] if row["duplicate_of"] is None]
        self.names = [row["participant"] for row in settlement["agreed"]]
        number = {name: at for at, name in enumerate(self.names)}
        self.submitted = {
            row["submission"]: number[row["participant"]] for row in rows if self.model.shared_key and row["submission"]
        }
        taken = set(self.submitted.values())
        self.others = {row["participant"]: number[row["participant"]] for row in rows} if rows else {}
        self.others = {name: at for name, at in self.others.items() if at not in taken}
        self.validators = {row["key"]: at for at, row in enumerate(inputs["validators"])}
        self.parts: dict[str, dict[Any, int]] = {name: {} for name in self.model.parts}
        self.defaults = {parquet_field.name: parquet_field.default for parquet_field in evidence.parquet_fields(self.kind)}
        self.columns: dict[str, list[Numbers]] = {name: [] for name in ("seq", "about", "validator", *self.parts)}
        self.digests: list[bytes] = []

    def take(self, rows: ParquetRows) -> None:
        """Add those rows that bear on the settlement."""
        if rows.kind != self.kind:
            return
        seqs = rows.columns["seq"].to_numpy(zero_copy_only=False).astype(np.int64)
        validators = self._numbers(rows, "validator", self.validators)
        epochs, values = rows.encoded("epoch")
        young = np.array([value is not None and value >= self.oldest for value in values], np.bool_)[epochs]
        about = self._about(rows)
        stays = (validators >= 0) & young & (about >= 0)
        if len(self.without):
            stays &= ~np.isin(seqs, self.without)
        at = np.flatnonzero(stays)
        if not len(at):
            return
        fields = {"seq": seqs, "about": about, "validator": validators}
        for name, numbers in self.parts.items():
            codes, values = self._values(rows, name)
            fields[name] = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)[codes]
        for name, array in fields.items():
            self.columns[name].append(array[at])
        self.digests += self._digests(rows, seqs[at], at)

    def _about(self, rows: ParquetRows) -> Numbers:
        """The number of the participant for whom each row counts, or −1."""
        named = self._numbers(rows, "participant", self.others)
        if not self.model.shared_key:
            return named
        codes, values = self._values(rows, "submission")
        empty = np.array([not value for value in values], np.bool_)[codes]
        return np.where(empty, named, self._numbers(rows, "submission", self.submitted))

    def _numbers(self, rows: ParquetRows, name: str, numbers: Mapping[str, int]) -> Numbers:
        codes, values = self._values(rows, name)
        return np.array([numbers.get(value, -1) for value in values], np.int64)[codes]

    def _values(self, rows: ParquetRows, name: str) -> tuple[NDArray[np.intp], list[Any]]:
        """A field as numbers of its values, with the default where a cell is empty."""
        default = self.defaults[name]
        fallback = None if default is None else json.loads(default)
        if name not in rows.columns:
            return np.zeros(len(rows.columns["seq"]), np.intp), [fallback]
        codes, values = rows.encoded(name)
        return codes, [fallback if value is None else value for value in values]

    def _digests(self, rows: ParquetRows, seqs: Numbers, at: NDArray[np.intp]) -> list[bytes]:
        """The digests of some rows: those that are known, or else made of the rows."""
        places = np.searchsorted(self.known_seqs, seqs)
        if len(self.known) and places[-1] < len(self.known) and (self.known_seqs[places] == seqs).all():
            return [self.known[place] for place in places.tolist()]
        bodies = rows.records().bodies
        return [hashlib.sha256(bodies[row]).digest() for row in at.tolist()]

    def bound(self) -> dict[str, Json]:
        """Participant → count and root of its records."""
        bound: dict[str, tuple[list[int], list[bytes]]] = {name: ([], []) for name in self.names}
        if self.digests:
            columns = {name: np.concatenate(parts) for name, parts in self.columns.items()}
            order = np.argsort(columns["seq"], kind="stable")
            first = order[np.sort(np.unique(self._slots(columns)[order], return_index=True)[1], kind="stable")]
            first = first[np.argsort(columns["about"][first], kind="stable")]
            whose, begins = np.unique(columns["about"][first], return_index=True)
            for participant, rows in zip(whose.tolist(), np.split(first, begins[1:]), strict=True):
                digests = [self.digests[row] for row in rows.tolist()]
                bound[self.names[participant]] = columns["seq"][rows].tolist(), digests
        return {name: {"root": evidence.evidence_root(*both), "count": len(both[0])} for name, both in bound.items()}

    def _slots(self, columns: Mapping[str, Numbers]) -> Numbers:
        """One number for each slot: participant, validator and parts."""
        slots, size = columns["about"], len(self.names)
        for name in ("validator", *self.parts):
            count = len(self.validators) if name == "validator" else len(self.parts[name])
            if size * count > MOST:
                different, slots = np.unique(slots, return_inverse=True)
                size = len(different)
            slots, size = slots * count + columns[name], size * count
        return slots
