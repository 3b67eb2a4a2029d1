"""Integers that stand for fractions: parsing, rounding, apportionment, softmax, digests. SPEC 1."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay import exact
from assay.errors import AssayError, BadInput, CannotSettle
from assay.exact import NANO, apportion, half_even, half_up, nanos, softmax, text, whole


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("0", 0),
        ("1", NANO),
        ("1.0", NANO),
        ("0.8", 800_000_000),
        ("0.000000001", 1),
        ("007", 7 * NANO),
        ("0.100000000", 10**8),
        ("12.5", 12_500_000_000),
    ],
)
def test_a_decimal_string_is_nanos(written: str, count: int) -> None:
    assert nanos(written) == count


@pytest.mark.parametrize(
    "written",
    [
        "",
        "-1",
        "+1",
        "1e3",
        ".5",
        "1.",
        "0.0000000001",
        "0.1000000000",
        "NaN",
        "inf",
        " 1",
        "1 ",
        "1,5",
        "١",
        "0x1",
        "1_000",
        "9" * 100,
    ],
)
def test_what_is_not_a_decimal_string_is_refused(written: str) -> None:
    with pytest.raises(BadInput):
        nanos(written)


def test_a_number_has_as_many_characters_as_the_largest_amount_needs() -> None:
    assert nanos("1" * 78 + ".000000001") == int("1" * 78) * NANO + 1
    with pytest.raises(BadInput, match="is not a decimal number"):
        nanos("0" + "1" * 78 + ".000000001")
    assert whole("9".rjust(78, "0"), 256) == 9
    assert whole(str(2**256 - 1), 256) == 2**256 - 1
    with pytest.raises(BadInput, match="is not a whole number"):
        whole("9".rjust(79, "0"), 256)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(0.8, "JSON float"), (1, "JSON integer"), (True, "boolean"), (None, "null"), ([], "list"), ({}, "object"), (b"", "bytes")],
)
def test_a_json_number_is_refused_by_its_kind(value: object, kind: str) -> None:
    with pytest.raises(BadInput, match=kind):
        nanos(value)
    with pytest.raises(BadInput, match=kind):
        whole(value, 63)


@given(st.integers(0, 10**30))
def test_text_is_the_inverse_of_nanos(count: int) -> None:
    assert nanos(text(count)) == count


@given(st.integers(0, 10**9), st.integers(0, 9))
def test_text_is_normalised(count: int, zeros: int) -> None:
    written = text(count)
    assert not written.endswith(".")
    assert "." not in written or not written.endswith("0")
    assert nanos(written + "0" * zeros if "." in written and len(written.split(".")[1]) + zeros <= 9 else written) == count


def test_stake_fits_63_bits() -> None:
    assert whole(str(2**63 - 1), 63) == 2**63 - 1
    with pytest.raises(BadInput, match="too large"):
        whole(str(2**63), 63)


@pytest.mark.parametrize("written", ["", "-1", "1.5", "1e3", "1" * 79, "½"])
def test_an_amount_is_digits(written: str) -> None:
    with pytest.raises(BadInput):
        whole(written, 256)


@given(st.integers(0, 10**40), st.integers(1, 10**20))
def test_half_even_is_what_python_rounds_to(numerator: int, denominator: int) -> None:
    assert half_even(numerator, denominator) == round(Fraction(numerator, denominator))


@given(st.integers(0, 10**40), st.integers(1, 10**20))
def test_half_up_is_the_floor_of_a_half_more(numerator: int, denominator: int) -> None:
    assert half_up(numerator, denominator) == math.floor(Fraction(numerator, denominator) + Fraction(1, 2))


def test_halves() -> None:
    assert [half_even(n, 2) for n in (1, 3, 5)] == [0, 2, 2]
    assert [half_up(n, 2) for n in (1, 3, 5)] == [1, 2, 3]


@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**12), min_size=1, max_size=20).filter(any))
def test_apportioned_is_whole_and_within_one(amount: int, parts: list[int]) -> None:
    total = sum(parts)
    given_out = apportion(amount, parts, total)
    assert sum(given_out) == amount
    assert all(abs(got - Fraction(amount * part, total)) < 1 for got, part in zip(given_out, parts, strict=True))


def test_apportionment_ties_go_to_the_earlier() -> None:
    assert apportion(65_535, [1] * 6, 6) == [10_923, 10_923, 10_923, 10_922, 10_922, 10_922]


def test_parts_of_no_whole_are_refused() -> None:
    with pytest.raises(ValueError, match="whole"):
        apportion(10, [1, 1], 3)


@given(st.lists(st.integers(0, NANO), max_size=8), st.integers(NANO // 100, 10 * NANO))
def test_softmax_is_the_exponential_to_fifty_digits(scores: list[int], temperature: int) -> None:
    parts = softmax(scores, temperature)
    assert len(parts) == len(scores)
    assert all(part > 0 for part in parts)
    with localcontext(prec=60):
        for score, part in zip(scores, parts, strict=True):
            exact_power = (Decimal(score - max(scores)) / Decimal(temperature)).exp()
            assert abs(Decimal(part) / Decimal(max(parts)) - exact_power) < Decimal("1e-47")


def test_softmax_has_fifty_digits_and_no_more() -> None:
    """The digits of 1/e as tables have them; the 51st is 7."""
    assert softmax([NANO, 0], NANO) == [10**50, 36787944117144232159552377016146086744581113103177]


def test_equal_scores_have_equal_softmax() -> None:
    assert softmax([NANO // 3] * 3, NANO) == [1, 1, 1]
    assert softmax([], NANO) == []


def test_digest_is_over_canonical_json() -> None:
    assert exact.canonical({"b": 1, "a": ["x", None]}) == b'{"a":["x",null],"b":1}'
    assert exact.digest({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_an_error_says_what_where_and_what_to_do() -> None:
    error = BadInput("is wrong", hint="mend it")
    assert str(error) == "is wrong; mend it"
    assert str(error.at(file="f.csv", line=3, field="stake")) == "f.csv:3: stake: is wrong; mend it"
    assert str(error.at(file="other", line=9, field="row")) == "f.csv:3: row.stake: is wrong; mend it"
    assert str(CannotSettle("no evidence").at(line=3)) == "line 3: no evidence"
    assert (AssayError("x").exit_code, BadInput("x").exit_code, CannotSettle("x").exit_code) == (1, 2, 1)
