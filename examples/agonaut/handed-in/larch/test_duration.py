import pytest
from duration import LONGEST, DurationError, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1h30m", 5400), ("2d", 172800), ("1h 5m", 3900), (" 1d 2h 3m 4s ", 93784), ("0s", 0), ("007m", 420)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "at"),
    [("", 0), ("   ", 0), ("5", 1), ("5w", 1), ("1m1h", 3), ("1h1h", 3), ("-1s", 0), ("1.5h", 1), ("h", 0), ("1h x", 3), ("٣s", 0)],
)
def test_refused_with_the_place(text, at):
    with pytest.raises(DurationError) as caught:
        parse_duration(text)
    assert caught.value.at == at


def test_a_long_text_is_refused_before_it_is_read():
    with pytest.raises(DurationError):
        parse_duration("1" * LONGEST + "s")
