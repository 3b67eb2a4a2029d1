"""Tables that fit, keys that can be told apart, and a sign of life."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from assay.cli.errors import printable
from assay.cli.output import Working
from assay.cli.show import Column, grid, sentence, shorten

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z", "M")), max_size=60)


def lines(table: Any, width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as shown:
        console.print(table, crop=False, overflow="ignore", no_wrap=True)
    return [line.rstrip() for line in shown.get().splitlines()]


@given(st.sets(WORDS, max_size=20), st.integers(3, 60))
def test_short_keys_stay_apart_and_keep_both_ends(keys: set[str], width: int) -> None:
    short = shorten(keys, width)
    assert set(short) == keys
    assert len(set(short.values())) == len(keys)
    for key, shown in short.items():
        head, dots, tail = shown.partition("…")
        assert shown == key or (dots and len(shown) < len(key) and key.startswith(head) and key.endswith(tail))


def test_a_key_that_fits_is_whole() -> None:
    assert shorten(["miner-a"], 7) == {"miner-a": "miner-a"}
    assert shorten(["5FHneW46xGXgs5mUiveU4sbT"], 13) == {"5FHneW46xGXgs5mUiveU4sbT": "5FHneW…iveU4sbT"[:7] + "eU4sbT"}


def test_keys_that_look_alike_are_shown_longer() -> None:
    keys = ["prefix-1-suffix", "prefix-2-suffix"]
    assert set(shorten(keys, 13).values()) == set(keys)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=8), st.integers(50, 150))
def test_a_grid_fits_where_it_can(cells: list[tuple[str, str, str]], width: int) -> None:
    key, name, why = zip(*cells, strict=True)
    columns = [
        Column("#", [str(at) for at in range(len(cells))], right=True),
        Column("name", name, kind="crop", spare=1),
        Column("why", why, kind="text"),
        Column("u16", ["65535"] * len(cells), right=True),
    ]
    longest = max(map(cell_len, why))  # a word is never broken
    assert all(cell_len(line) <= max(width, longest + 12) for line in lines(grid(columns, width=width), width))
    assert len(key) == len(cells)


def test_what_can_be_spared_is_left_out_first() -> None:
    columns = [Column("a", ["x" * 30]), Column("b", ["y" * 30], spare=1), Column("c", ["z" * 30], spare=2)]
    assert lines(grid(columns, width=100), 100)[0].split() == ["a", "b", "c"]
    assert lines(grid(columns, width=70), 70)[0].split() == ["a", "b"]
    assert lines(grid(columns, width=20), 20)[0].split() == ["a"]


def test_names_are_cropped_before_keys_are_shortened() -> None:
    columns = [Column("key", ["k" * 20], kind="key"), Column("name", ["n" * 20], kind="crop")]
    assert lines(grid(columns, width=32), 32)[2] == "k" * 20 + "  " + "n" * 9 + "…"
    assert lines(grid(columns, width=23), 23)[2] == "k" * 6 + "…" + "k" * 6 + "  " + "n" * 7 + "…"


def test_a_word_that_is_too_long_takes_nothing_from_the_other_columns() -> None:
    digest = "sha256:" + "0" * 64
    columns = [Column("", ["✓"]), Column("stage", ["settlement"]), Column("what", [f"computed again: {digest}"], kind="text")]
    shown = lines(grid(columns, width=60), 60)
    assert shown[2:] == ["✓  settlement  computed again:", f"               {digest}"]


def test_wide_letters_are_measured_as_they_are_shown() -> None:
    columns = [Column("name", ["漢字漢字漢字漢字漢字漢字"], kind="crop"), Column("u16", ["1"], right=True)]
    assert all(cell_len(line) <= 20 for line in lines(grid(columns, width=20), 20))


@given(WORDS, st.integers(0, 10))
def test_a_sentence_keeps_its_words(text: str, indent: int) -> None:
    assert sentence(text, indent).plain.split() == printable(text).split()


def test_control_characters_are_written_out() -> None:
    assert printable("a\x1b[31m\n\u202eb ≈ é") == "a\\x1b[31m\\n\\u202eb ≈ é"


def test_a_quick_command_shows_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with Working("nothing"):
        pass
    assert capsys.readouterr().err == ""


def test_a_long_command_shows_what_it_does_and_takes_it_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("assay.cli.output.PATIENCE", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("rich.progress.Progress.add_task", lambda _self, what, **_more: shown.append(what))
    with Working("settling x") as work:
        while not shown:
            assert work._thread is not None
            assert work._thread.is_alive()
            time.sleep(0.01)
    assert shown == ["settling x …"]
    assert work._thread is not None
    assert not work._thread.is_alive()


def test_a_number_and_its_percent_sign_stay_on_one_line() -> None:
    text = " ".join(["10 %"] * 60)
    assert all(line.startswith("10 %") for line in sentence(text).plain.splitlines())
    column = Column("why", [text], kind="text")
    assert all("10 %" in line for line in lines(grid([column], width=30), 30)[2:])
    assert not any(line.startswith("%") for line in lines(grid([column], width=30), 30))
