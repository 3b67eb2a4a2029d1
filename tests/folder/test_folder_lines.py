"""Lines that are read as arrays give the records that each line gives alone, or its refusal, in the same words."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_folder
from assay import folder
from assay.errors import BadInput
from assay.folder import evidence, lines, reader
from assay.folder.evidence import Registry
from assay.kind import find
from assay.scheme.load import parse
from assay.settle.columns import Columns
from assay.settle.pipeline import settle
from by_record import SCORERS, assert_same

KINDS = ("tests", "workflow", "rubric", "points", "given")
RULES = {kind: parse(small_folder.SCHEMES[kind]).score for kind in KINDS}
MORE: dict[str, list[dict[str, Any]]] = {
    "tests": [{"image": "sha256:ab", "trial": 3}, {"outcome": "error"}, {"image": "a\x7f"}, {"task": "t" * 256}],
    "workflow": [
        {"retries": 10**9, "outcome": "ran"},
        {"outcome": "invalid"},
        {"outcome": "service-error", "quality": ..., "cost": ...},
        {"quality": "1.000000000", "cost": "999999999.999999999"},
        {"quality": "00.5"},
        {"steps_completed": 5},
        {"budget": "0"},
        {"seconds": ...},
        {"cost": "1000000000"},
        {"quality": "0.1234567891"},
        {"quality": 1},
    ],
    "rubric": [
        {"verdict": "?", "quotes": {"c1": "as it says", "c2": ""}, "attestation": "x"},
        {"verdict": None},
        {"baseline": {"B1": True, "B2": False}, "checks": {}},
        {"baseline": {"B1": "yes", "B2": True, "B3": True, "B4": True, "B5": False}},
        {"checks": {"c1": False, "other": True}, "injection_suspected": True},
        {"checks": [1.5], "outcome": "unjudged"},
        {"quotes": {"c1": 'a "word"\n'}},
        {"quotes": {"c1": 1}},
        {"baseline.B1": True},
        {"panel": [{"judge": "m", "checks": {"c1": True}}]},
        {"panel": {"judge": True}},
        {"panel": []},
    ],
    "points": [{"starred": False, "revoked_valid": 1}, {"valid": 10**9 + 1}, {"starred": 1}, {"invalid": "1"}],
    "given": [
        {"score": "1"},
        {"score": "1.000000001"},
        {"score": "0."},
        {"score": ".5"},
        {"score": 0.5},
        {"score": "1.0000000000"},
    ],
}
ANY: list[dict[str, Any]] = [
    {},
    {"validator": "v2"},
    {"participant": "m2", "submission": ""},
    {"submission": "é\N{PILE OF POO}"},
    {"submission": "a\u200bb"},
    {"seq": 0},
    {"seq": None},
    {"seq": -1},
    {"epoch": 2**53 - 1},
    {"epoch": 2**53},
    {"epoch": 1.0},
    {"epoch": "3"},
    {"epoch": True},
    {"observed_at": "2026-11-02T10:00:00.250000Z"},
    {"observed_at": "2026-11-02T10:00:00.25+01:00"},
    {"observed_at": "2026-02-29T10:00:00Z"},
    {"observed_at": "2026-11-02T24:00:00Z"},
    {"observed_at": "0000-11-02T10:00:00Z"},
    {"observed_at": ...},
    {"validator": "stranger"},
    {"participant": "stranger"},
    {"kind": "tests"},
    {"kind": "given"},
    {"kind": "other"},
    {"other": 1},
]
STYLES: list[Callable[[Any], str]] = [
    lambda value: json.dumps(value, separators=(",", ":")),
    json.dumps,
    lambda value: json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")),
    lambda value: json.dumps(value, separators=(" , ", " : ")),
]
CHANGES: list[Callable[[bytes], bytes]] = [
    lambda line: line + b"\r",
    lambda line: b" " + line,
    lambda line: line + b" ",
    lambda line: line[:-1],
    lambda line: line + b"}",
    lambda line: b"[" + line + b"]",
    lambda line: b'{"epoch":3,' + line[1:],
    lambda line: line[:-1] + b',"epoch":3}',
    lambda line: line.replace(b"m1", b"m\\u0031"),
    lambda line: line.replace(b"m1", b"m\t1"),
    lambda line: line.replace(b"m1", b"m\xff1"),
    lambda line: line.replace(b"3", b"03", 1),
    lambda line: line.replace(b"3", b"-0", 1),
    lambda line: line.replace(b"3", b"3e0", 1),
    lambda line: line.replace(b":", b"::", 1),
    lambda line: line.replace(b",", b"", 1),
    lambda line: line.replace(b'"', b"'", 2),
    lambda line: b"",
    lambda line: b" \t",
    lambda line: b"\xef\xbb\xbf" + line,
    lambda line: line + b"," + line,
]


@st.composite
def texts(draw: st.DrawFn, kind: str) -> bytes:
    """A file: most lines are alike and right, some are not."""
    styles: list[Any] = draw(st.lists(st.sampled_from(STYLES), min_size=1, max_size=2))
    rare = st.sampled_from([*ANY, *MORE[kind]])
    changes = draw(st.lists(st.one_of(st.just({}), st.just({"validator": "v2"}), rare), max_size=6))
    rows = [draw(st.sampled_from(styles))(small_folder.record(kind, **change)).encode() for change in changes]
    if rows and draw(st.sampled_from([True, False])):
        at = draw(st.integers(0, len(rows) - 1))
        rows[at] = draw(st.sampled_from(CHANGES))(rows[at])
    if rows and draw(st.integers(0, 3)) == 0:
        at, byte = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, len(rows[0])))
        rows[at] = rows[at][:byte] + draw(st.sampled_from([b"", b'"', b"0", b".", b"}", b"x"])) + rows[at][byte + 1 :]
    return b"\n".join(rows) + (b"\n" if draw(st.booleans()) else b"")


def registry(kind: str) -> Registry:
    return Registry(kind, frozenset({"v1", "v2", "v3"}), frozenset({"m1", "m2"}), RULES[kind])


def both(path: Path, kind: str) -> tuple[Any, Any]:
    """What the arrays and what the records give: (records, places, columns), or the words of the refusal."""
    outcomes: list[Any] = []
    for read in (lines.read, evidence.read):
        try:
            outcomes.append(read([path], registry(kind)))
        except BadInput as error:
            outcomes.append((str(error), error.line, error.field, error.hint))
    return outcomes[0], outcomes[1]


@pytest.mark.parametrize("kind", KINDS)
@given(st.data(), st.sampled_from([64, 700, 2**20]))
def test_arrays_say_what_the_lines_say(kind: str, data: st.DataObject, block: int) -> None:
    text = data.draw(texts(kind))
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK", block)
        path = Path(place, "a.jsonl")
        path.write_bytes(text)
        ours, theirs = both(path, kind)
    if isinstance(ours, tuple) or isinstance(theirs, tuple):
        assert ours == theirs
        return
    at = np.arange(len(ours.columns))
    assert ours.read(at) == theirs.records
    assert [place for place, _ in ours._lines(at)] == theirs.places
    assert ours.highest == theirs.highest
    plain = Columns.of(theirs.records, find(kind).columns(RULES[kind]))
    for name, numbers in plain.numbers.items():
        if name in plain.names:
            assert [ours.columns.names[name][code] for code in ours.columns[name]] == [
                plain.names[name][code] for code in numbers
            ]
        else:
            assert ours.columns[name].tolist() == numbers.tolist(), name


@pytest.mark.parametrize("kind", KINDS)
def test_lines_that_are_alike_are_read_without_records(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: Any) -> None:
        raise AssertionError("a line was read alone")

    right: list[dict[str, Any]] = [{}, {"validator": "v2", "participant": "m2"}, {"submission": "é"}, {"seq": 7}, MORE[kind][0]]
    path = tmp_path / "a.jsonl"
    for style in STYLES[:3]:
        text = "\n".join(
            style(small_folder.record(kind, **change)) for change in right if style is STYLES[2] or "é" not in str(change)
        )
        path.write_text(text)
        with monkeypatch.context() as patch:
            patch.setattr(evidence, "_take", fail)
            arrays = lines.read([path], registry(kind))
        assert arrays.read(np.arange(len(arrays.columns))) == evidence.read([path], registry(kind)).records


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_folder_settles_as_a_small_one(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conflicts by seq, records of later epochs and of other submissions included; the records can be looked at."""
    records = [
        small_folder.record(kind, validator=validator, participant=who, submission=what, epoch=epoch, seq=seq)
        for seq, (validator, who, what, epoch) in enumerate(
            [("v1", "m1", "s1", 3), ("v1", "m1", "s1", 2), ("v2", "m2", "s2", 3), ("v3", "m1", "s2", 3), ("v2", "m1", "old", 4)]
        )
    ]
    place = small_folder.make(tmp_path, kind, evidence=small_folder.lines(records))
    small = folder.read(place, epoch=3)
    monkeypatch.setattr(reader, "MANY_BYTES", 0)
    large = folder.read(place, epoch=3)
    assert list(large.evidence) == list(small.evidence)  # type: ignore[arg-type]
    settlement, other = settle(small), settle(large)
    assert settlement.digest == other.digest
    assert_same(other.scored, SCORERS[kind](small.evidence, settlement.frame, small.scheme.score))
    assert settlement.explain("m1").document() == other.explain("m1").document()


def test_a_conflict_is_named_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [small_folder.record("given", score=score) for score in ("0.5", "0.5", "0.25")]
    place = small_folder.make(tmp_path, "given", evidence=small_folder.lines(records))
    messages = []
    for bytes_ in (2**18, 0):
        monkeypatch.setattr(reader, "MANY_BYTES", bytes_)
        with pytest.raises(BadInput) as caught:
            folder.read(place)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "a.jsonl:3" in messages[0]


def test_bounds_hold_for_arrays_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(small_folder.lines([small_folder.record("given")] * 4))
    for module in (lines, evidence):
        monkeypatch.setattr(module, "EVIDENCE_RECORDS", 3)
    ours, theirs = both(path, "given")
    assert ours == theirs
    assert "more than 3 records" in ours[0]
    monkeypatch.undo()
    for text in ("x" * 1_000_001, small_folder.lines([small_folder.record("given")]) + "{" + "x" * 3_000_000 + "}"):
        path.write_text(text)
        ours, theirs = both(path, "given")
        assert ours == theirs
        assert "longer than" in ours[0]
    assert both(tmp_path / "none.jsonl", "given")[0][0] == both(tmp_path / "none.jsonl", "given")[1][0]
