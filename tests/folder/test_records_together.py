"""Lines that are read together give what each gives alone, or are left to be read one by one."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_folder
from assay import kind as kinds
from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import evidence, strict
from assay.folder.evidence import TOGETHER, Registry
from assay.records import record, records

KINDS = ("tests", "workflow", "points", "given")
MORE: dict[str, dict[str, Any]] = {
    "tests": {"seq": 7, "image": "sha256:ab", "trial": 3},
    "workflow": {"retries": 1},
    "points": {"starred": True},
    "given": {},
}


def line(kind: str, /, **changes: Any) -> bytes:
    return json.dumps(small_folder.record(kind, **changes), separators=(",", ":"), ensure_ascii=False).encode()


def alone(text: bytes) -> object:
    """What a line gives by itself: a record, or the words of the refusal."""
    try:
        return record(strict.parse(text.decode()))
    except (BadInput, UnicodeDecodeError) as error:
        return str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_lines_are_read_together(kind: str) -> None:
    lines = [line(kind), line(kind, **MORE[kind]), line(kind, participant="é\N{PILE OF POO}"), line(kind, submission="")]
    together = records(lines, kind)
    assert together == [alone(each) for each in lines]
    assert together is not None
    assert [type(item) for item in together] == [kinds.find(kind).record] * len(lines)
    assert [canonical(item.document()) for item in together] == [canonical(record(json.loads(each)).document()) for each in lines]
    assert [item.content for item in together] == [record(json.loads(each)).content for each in lines]


def test_answers_of_a_rubric_are_read_one_by_one() -> None:
    assert records([line("rubric")], "rubric") is None


OTHERS = {
    "a key twice": b'{"epoch":3,' + line("tests")[1:],
    "a key twice, apart": b'{"epoch" :3,' + line("tests")[1:],
    "two on a line": line("tests") + b"," + line("tests"),
    "two on a line, apart": line("tests") + b" , " + line("tests"),
    "an escape": line("tests").replace(b"m1", b"m\\u0031"),
    "a line break": line("tests").replace(b"m1", b"m\\n1"),
    "a tab": b"\t" + line("tests"),
    "a space before": b" " + line("tests"),
    "a control character": line("tests", participant="m\x7f1"),
    "a character without width": line("tests", participant="m\u200b1"),
    "no text": line("tests").replace(b"m1", b"m\xff1"),
    "another kind": line("given"),
    "a kind that nobody knows": line("tests").replace(b'"tests"', b'"texts"'),
    "a field too many": b'{"more":1,' + line("tests")[1:],
    "an object inside": b'{"more":{},' + line("tests")[1:],
    "a field missing": line("tests").replace(b'"outcome"', b'"outcom"'),
    "a fraction": line("tests", trial=1).replace(b'"trial":1', b'"trial":1.0'),
    "an exponent": line("tests", trial=1).replace(b'"trial":1', b'"trial":1e0'),
    "null": line("tests", trial=1).replace(b'"trial":1', b'"trial":null'),
    "a number as text": line("tests", trial=1).replace(b'"trial":1', b'"trial":"1"'),
    "true": line("tests", trial=1).replace(b'"trial":1', b'"trial":true'),
    "too large": line("tests", epoch=2**53),
    "far too large": line("tests").replace(b'"epoch":3', b'"epoch":' + b"9" * 400),
    "below 0": line("tests", epoch=-1),
    "an empty key": line("tests", task=""),
    "a long key": line("tests", task="t" * 257),
    "no JSON": b"{" + line("tests"),
    "cut": line("tests")[:-1],
    "a value that is a field": line("tests", task="epoch"),
    "braces in a text": line("tests", task="{}"),
    "another zone": line("tests", observed_at="2026-11-02T10:00:00+01:00"),
    "a space in a time": line("tests", observed_at="2026-11-02 09:00:00Z"),
    "no seconds": line("tests", observed_at="2026-11-02T09:00Z"),
    "no such day": line("tests", observed_at="2026-02-30T09:00:00Z"),
    "no such year": line("tests", observed_at="0000-02-03T09:00:00Z"),
    "a number as a time": line("tests").replace(b'"2026-11-02T09:00:00Z"', b"1793610000"),
    "other digits": line("tests", observed_at="２026-11-02T09:00:00Z"),
    "not quite a fraction of a second": line("tests", observed_at="2026-11-02T09:00:00.12Z"),
    "nothing": b"",
    "a list": b"[]",
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_rare_or_wrong_is_read_alone(name: str) -> None:
    for lines in ([OTHERS[name]], [line("tests"), OTHERS[name]], [OTHERS[name], line("tests")]):
        together = records(lines, "tests")
        assert together is None or together == [alone(each) for each in lines]
    assert records([line("tests")], "tests") is not None


def test_two_lines_that_share_their_objects_are_not_read_together() -> None:
    whole = line("tests")
    cut = whole.index(b",") + 1
    assert records([whole + b"," + whole[:cut], whole[cut:]], "tests") is None


@given(st.sampled_from(KINDS), st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), min_size=1, max_size=3))
def test_changed_bytes_never_give_another_record(kind: str, changes: list[tuple[int, bytes]]) -> None:
    text = line(kind, **MORE[kind])
    for at, new in changes:
        text = text[: at % len(text)] + new + text[at % len(text) + len(new) :]
    if b"\n" not in text:
        together = records([text], kind)
        assert together is None or together == [alone(text)]


@given(st.text(max_size=6), st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{6})?Z", fullmatch=True))
def test_any_text_and_time(text: str, moment: str) -> None:
    given_line = line("tests", participant=text, observed_at=moment)
    together = records([given_line], "tests")
    assert together is None or together == [alone(given_line)]


def test_the_first_fault_of_a_file_is_named(tmp_path: Path) -> None:
    """Also if a line after it cannot even be read, and if it is the last of those that are read together."""
    good, wrong = line("tests", validator="v1"), line("tests", validator="v1", outcome="passed")
    registry = Registry("tests", {"v1"}, {"m1", "m2"})
    path = tmp_path / "some.jsonl"
    for place in (1, 2, TOGETHER, TOGETHER + 1, 2 * TOGETHER):
        rows = [good] * (place - 1) + [wrong] + [b"x" * 2_000_000] + [good]
        path.write_bytes(b"\n".join(rows) + b"\n")
        with pytest.raises(BadInput) as refused:
            evidence.read([path], registry)
        assert (refused.value.line, refused.value.field) == (place, "outcome")
    path.write_bytes(b"\xef\xbb\xbf\r\n" + b"\r\n".join([good] * (TOGETHER + 3)) + b"\r\n\r\n")
    gathered = evidence.read([path], registry)
    assert len(gathered.records) == TOGETHER + 3
    assert [place.line for place in gathered.places] == [*range(2, TOGETHER + 5)]
    for unknown, field in (
        (line("tests", validator="v9"), "validator"),
        (line("tests", validator="v1", participant="x"), "participant"),
    ):
        path.write_bytes(good + b"\n" + unknown + b"\n" + wrong)
        with pytest.raises(BadInput) as refused:
            evidence.read([path], registry)
        assert (refused.value.line, refused.value.field) == (2, field)
