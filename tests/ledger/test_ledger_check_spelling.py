"""The stand-alone checks: JSON, base64, numbers and shapes, each with one reading."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.ledger import check
from assay.ledger.check import CheckError
from check_kit import (
    b64,
)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1, "a": 1}',
        b'{"a": [{"b": 1, "b": 2}]}',
        b"[NaN]",
        b"[-Infinity]",
        b'"\\ud800"',
        b'{"\\udfff": 1}',
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"{",
        b"{} {}",
        b"[" * 100_000,
        b"[" + b"9" * 5000 + b"]",
    ],
)
def test_json_has_one_reading(data: bytes) -> None:
    with pytest.raises(CheckError, match="s: it is not strict JSON"):
        check.parse_json(data, "s")


@pytest.mark.parametrize(("data", "why"), [(b'"\xff"', "bytes that are not UTF-8"), (b"[" * 100_000, "brackets too deep inside")])
def test_why_it_is_no_json_is_said_in_plain_words(data: bytes, why: str) -> None:
    with pytest.raises(CheckError, match=f"found {why}"):
        check.parse_json(data, "s")


def test_json_is_read_up_to_a_size() -> None:
    assert check.parse_json(b'{"a": "\\ud83d\\ude00"}', "s", 21) == {"a": "😀"}
    with pytest.raises(CheckError, match=r"s: it is too large \(expected at most 20 bytes, found 21 bytes\)"):
        check.parse_json(b'{"a": "\\ud83d\\ude00"}', "s", 20)


@given(st.binary(max_size=40))
def test_base64_is_read_in_both_alphabets(data: bytes) -> None:
    assert check.unbase64(b64(data), "s") == data
    assert check.unbase64(base64.urlsafe_b64encode(data).decode(), "s", either=True) == data
    assert check.unbase64(b64(data), "s", either=True) == data


@pytest.mark.parametrize(
    "text", ["YQ", "YQ=", "YR==", "YQ==\n", " YQ==", "Y Q==", "YQ==YQ==", "-_8=", "é", "YQ===", None, 7, b"YQ=="]
)
def test_base64_has_one_spelling(text: Any) -> None:
    with pytest.raises(CheckError, match="it is not canonical base64"):
        check.unbase64(text, "s")


@pytest.mark.parametrize("text", ["-+8=", "_/8=", "-/8=", "-_8", "YR==", "-_9="])
def test_the_alphabets_of_base64_do_not_mix(text: str) -> None:
    with pytest.raises(CheckError, match="it is not canonical base64"):
        check.unbase64(text, "s", either=True)


def test_numbers_have_one_spelling() -> None:
    assert [check.number(text, "s") for text in ("0", "7", "9223372036854775807")] == [0, 7, 2**63 - 1]
    for text in ("", "00", "01", "+1", "-1", "1 ", "１", "9223372036854775808", "1" * 20, "1e3", "0x1"):
        with pytest.raises(CheckError, match="it is not a number"):
            check.number(text, "s")


@pytest.mark.parametrize(
    ("value", "shape", "where"),
    [
        ({"a": 1}, {"a": int}, ""),
        ({"a": True}, {"a": int}, "a"),
        ({"a": -1}, {"a": int}, "a"),
        ({"a": 2**53}, {"a": int}, "a"),
        ({"a": 1.0}, {"a": int}, "a"),
        ({"a": 1, "b": 1}, {"a": int}, "the document"),
        ([], {"a": int}, "the document"),
        ({"a": {"b": None}}, {"a": {"b": (None, int)}}, ""),
        ({"a": {"b": "x"}}, {"a": {"b": (None, int)}}, "b"),
        ({"a": [1, 2]}, {"a": [int]}, ""),
        ({"a": [1, "2"]}, {"a": [int]}, "a"),
        ({"a": 1}, {"a": [int]}, "a"),
        ({"a": "xy"}, {"a": "x"}, "a"),
        ({"a": "x\n"}, {"a": "x"}, "a"),
        ({"a": 1}, {"a": "1"}, "a"),
        ({"a": [{}]}, {"a": object}, ""),
    ],
)
def test_a_shape_says_where_a_document_differs(value: Any, shape: Any, where: str) -> None:
    assert check.misfit(value, shape) == where
