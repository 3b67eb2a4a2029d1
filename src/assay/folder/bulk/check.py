"""A first look over the columns of Parquet files: what no record may hold, whatever it is about. SPEC 1, 7."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from assay.errors import BadInput
from assay.folder.bulk.ask import Names
from assay.folder.bulk.files import Files, enum, quoted
from assay.records import Submission
from assay.scheme.fields import Key
from assay.scheme.times import instant

__all__ = ["Summary", "check_names", "look_over"]

LATEST = 2**53 - 1
LARGEST = 10**9
LONGEST = 256
"""Characters of the name of an image."""
OUTCOMES = ("pass", "fail", "timeout", "error")
_RFC3339 = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]([01][0-9]|2[0-3])(:[0-5][0-9]){2}(\.[0-9]{1,6}0{0,3})?"
    r"([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_CHECKS = {"task": TypeAdapter(Key), "submission": TypeAdapter(Submission)}


@dataclass(frozen=True)
class Summary:
    """What the columns hold from lowest to highest; None where there is no record."""

    records: int
    epochs: tuple[int | None, int | None]
    trials: tuple[int, int]
    all_known: bool
    """Every participant is one of the names."""


def look_over(files: Files, names: Names | None = None) -> Summary:
    """The extent of epochs and trials; raises BadInput with file and row for a wrong number, kind or time."""
    asked = ["count(*)", "count(epoch)", "min(epoch)", "max(epoch)"]
    asked += [f"count(TRY_CAST(outcome AS {enum(*OUTCOMES)}))"]
    asked += [f"count(kind) - count(TRY_CAST(kind AS {enum('tests')}))" if "kind" in files.types else "0"]
    asked += ["min(trial)", "max(trial)"] if "trial" in files.types else ["1", "1"]
    asked += ["min(seq)", "max(seq)"] if "seq" in files.types else ["0", "0"]
    asked += ["count(*)"] if names is None else [names.known("participant")]
    ((records, given, first, last, judged, others, trial, trials, seq, seqs, known),) = files.rows(", ".join(asked))
    if records and (given < records or first < 0 or last > LATEST):
        wrong = f"epoch IS NULL OR epoch < 0 OR epoch > {LATEST}"
        raise files.refuse(wrong, "epoch", "{} is not an epoch", f"use a whole number from 0 to {LATEST}")
    if judged < records:
        wrong = f"outcome IS NULL OR outcome NOT IN ({', '.join(map(quoted, OUTCOMES))})"
        raise files.refuse(wrong, "outcome", "{} is no outcome", f"use {', '.join(OUTCOMES)}")
    if others:
        raise files.refuse("kind <> 'tests'", "kind", "is {}, not 'tests'", "Parquet holds evidence of kind tests")
    if trial is not None and (trial < 1 or trials > LARGEST):
        raise files.refuse(f"trial < 1 OR trial > {LARGEST}", "trial", "{} is not a trial", f"use 1 … {LARGEST}")
    if seq is not None and (seq < 0 or seqs > LARGEST):
        raise files.refuse(f"seq < 0 OR seq > {LARGEST}", "seq", "{} is out of range", f"use 0 … {LARGEST}")
    if "image" in files.types and (files.rows("max(length(image))")[0][0] or 0) > LONGEST:
        raise files.refuse(f"length(image) > {LONGEST}", "image", "has more than 256 characters", "write the digest of the image")
    if files.types.get("observed_at") == "VARCHAR":
        _check_times(files)
    return Summary(records, (first, last), (trial or 1, trials or 1), known == records)


def _check_times(files: Files) -> None:
    day = "replace(upper(left(observed_at, 19)), 'T', ' ')"
    right = f"regexp_full_match(observed_at, {quoted(_RFC3339)}) AND TRY_CAST({day} AS TIMESTAMP) IS NOT NULL"
    wrong = f"observed_at IS NOT NULL AND NOT ({right} AND left(observed_at, 4) <> '0000')"
    found = files.rows("observed_at", f"WHERE {wrong} LIMIT 1")
    if found:
        try:
            instant(found[0][0])
        except BadInput as error:
            raise files.place(wrong).inside("observed_at").put(error) from None
        raise files.refuse(wrong, "observed_at", "{} is not a time with a time zone", 'write it as in "2026-11-02T09:00:00Z"')


def check_names(files: Files, column: str, query: str) -> None:
    """Refuse what a query gives and what cannot stand in a column (task, submission); raises BadInput with file and row."""
    for (value,) in files.connection.execute(query).fetchall():
        if value is None:
            raise files.refuse(f"{column} IS NULL", column, "is empty", "give it a value")
        try:
            _CHECKS[column].validate_python(value, strict=True)
        except ValidationError:
            what, hint = "{} cannot stand here", "use at most 256 printable characters"
            raise files.refuse(f"encode({column}) = unhex('{value.encode().hex()}')", column, what, hint) from None
