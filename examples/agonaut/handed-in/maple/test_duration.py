from duration import parse_duration


def test_units():
    assert parse_duration("90s") == 90
    assert parse_duration("1h30m") == 5400
    assert parse_duration("2d") == 172800


def test_spaces():
    assert parse_duration("1h 5m") == 3900


def test_wrong_order_and_nothing_are_refused():
    for text in ("", "1m1h", "5", "1.5h", "-1s"):
        try:
            parse_duration(text)
        except ValueError:
            continue
        raise AssertionError(text)
