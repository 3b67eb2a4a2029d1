"""Two supported Pythons settle to the same bytes, whatever their hash seed, time zone, locale and processor.

The other Pythons are those for which `tools/pythons` has made an environment. `make test` tries a few competitions, and skips
this where there is no other Python; `make full` tries 1,500, and fails there.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from assay.conformance import answer
from oracle.cases import case_of, chain_of, emission_of
from oracle.random_scheme import KINDS
from oracle.world import PARTICIPANTS

Doc = dict[str, Any]

ROOT = Path(__file__).parents[2]
OTHERS = sorted(Path(sys.prefix).glob("pythons/*/bin/python"))
PLACES = ("season", "window", "bounty-challenge", "verdicts", "platform/term-challenge", "platform/bounty-challenge")
NAMES = ("\U0001fae8", "ﬀ\u0301", "\u0378", "İ", "\U0001f6dc\xa0", "٣")
"""A character of Unicode 15, one that is composed, one that is unassigned, one that lower() makes two of, a space, a digit."""
OURS = {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
THEIRS = {
    "PYTHONHASHSEED": "4242",
    "TZ": "Asia/Kolkata",
    "LC_ALL": "C",
    "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX",  # sorts and sums of an older processor
    "OPENBLAS_CORETYPE": "Nehalem",
    "OPENBLAS_NUM_THREADS": "1",
}
SETTLE = """
import pathlib, sys
import assay
from assay.exact import canonical
for place in sys.argv[1:]:
    sys.stdout.buffer.write(canonical(assay.open(place).settle().document) + b"\\n")
"""


def competitions(count: int) -> Iterator[tuple[str, Doc]]:
    """Generated inputs: settlements of every kind, alone and after another, with names of any script; every fifth a split."""
    for number in range(count):
        kind, size = KINDS[number % len(KINDS)], 1 + number % 6
        if number % 5 == 4:
            yield "emission", _split(number, size)
        elif number % 5 == 3:
            before, after = chain_of(number, kind, size, 2)
            yield "settle", after | {"previous": answer("settle", before)}
        else:
            yield "settle", _renamed(case_of(number, kind, size), number)


def _split(seed: int, size: int) -> Doc:
    given = emission_of(seed, size)
    return given | {"competitions": [{"share": part["share"], "case": part["case"]} for part in given["competitions"]]}


def _renamed(case: Doc, number: int) -> Doc:
    text = json.dumps(case)
    for place, name in enumerate(NAMES):
        key = PARTICIPANTS[(number + place) % len(PARTICIPANTS)]
        text = text.replace(json.dumps(key), json.dumps(f"{key}{name}"))
    document: Doc = json.loads(text)
    return document


def started(python: Path | str, arguments: list[str], given: bytes, settings: dict[str, str]) -> bytes:
    """What a Python says, in an environment of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "COV_"))}
    command = [str(python), "-W", "ignore", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, env=environment | settings, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    return done.stdout


def answers(python: Path | str, asked: list[bytes], settings: dict[str, str]) -> list[bytes]:
    """What a Python answers; a refusal without its words, which are for people."""
    lines = started(python, ["-m", "assay", "conformance", "serve"], b"".join(asked), settings).splitlines()
    return [line.partition(b',"why":')[0] if b'"refused":true' in line else line for line in lines]


@cache
def generated(count: int) -> tuple[list[bytes], list[bytes]]:
    """The requests, and this Python's answers."""
    asked = [json.dumps({"kind": kind, "input": given}).encode() + b"\n" for kind, given in competitions(count)]
    return asked, answers(sys.executable, asked, OURS)


def compared(python: Path, count: int) -> None:
    asked, ours = generated(count)
    theirs = answers(python, asked, THEIRS)
    assert len(ours) == len(theirs) == count
    different = [number for number, (our, other) in enumerate(zip(ours, theirs, strict=True)) if our != other]
    assert not different, f"{len(different)} of {count} differ, first {different[0]}: {asked[different[0]][:300]!r}"
    assert sum(b'"refused":true' in our for our in ours) < count // 10


def others(*, needed: bool) -> list[Path]:
    if not OTHERS and needed:
        pytest.fail("there is no other Python: tools/pythons says which it looks for")
    if not OTHERS:
        pytest.skip("there is no other Python here: tools/pythons makes an environment where there is one")
    return OTHERS


@pytest.mark.no_cover
def test_two_pythons_settle_to_the_same_bytes() -> None:
    for python in others(needed=False):
        compared(python, 60)


@pytest.mark.full
def test_1500_competitions_to_the_same_bytes() -> None:
    for python in others(needed=True):
        compared(python, 1500)


@pytest.mark.full
@pytest.mark.no_cover
def test_two_pythons_read_folders_alike(tmp_path: Path) -> None:
    """TOML, CSV, JSON lines and Parquet, each read by that Python's own libraries."""
    pq = pytest.importorskip("pyarrow.parquet")
    json_lines = pytest.importorskip("pyarrow.json")
    season = ROOT / "examples" / "season"
    bulk = tmp_path / "season"
    (bulk / "evidence").mkdir(parents=True)
    for path in season.iterdir():
        if path.is_file():
            (bulk / path.name).write_bytes(path.read_bytes())
    for number, path in enumerate(sorted((season / "evidence").glob("*.jsonl"))):
        pq.write_table(_as_text(json_lines.read_json(path)), bulk / "evidence" / f"{number}.parquet")
    places = [str(ROOT / "examples" / name) for name in PLACES]
    ours = started(sys.executable, ["-c", SETTLE, *places, str(bulk)], b"", OURS)
    lines = ours.splitlines()
    assert len(lines) == len(places) + 1
    assert lines[0] == lines[-1]  # Parquet settles as the lines do
    for python in others(needed=False):
        assert started(python, ["-c", SETTLE, *places, str(bulk)], b"", THEIRS) == ours


def _as_text(table: Any) -> Any:
    """The times as they were written: pyarrow's reader of JSON takes them for timestamps."""
    import pyarrow as pa

    place = table.schema.get_field_index("observed_at")
    if place < 0 or pa.types.is_string(table.schema.field(place).type):
        return table
    import pyarrow.compute as pc

    return table.set_column(place, "observed_at", pc.strftime(table.column(place), "%Y-%m-%dT%H:%M:%SZ"))


@pytest.mark.no_cover
def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is no tautology: an answer with one other byte fails it."""
    _, ours = generated(60)
    monkeypatch.setattr(sys.modules[__name__], "answers", lambda *_: [ours[0].replace(b":", b": ", 1), *ours[1:]])
    with pytest.raises(AssertionError, match="1 of 60 differ, first 0"):
        compared(Path(sys.executable), 60)
