"""What a model is shown of what others wrote: nothing hidden, nothing that could be ours, and no two texts alike. SPEC 2.3."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.judge.rubric.questions import FramedText, JudgementFrames, check_size, escape, normal_lines
from assay.judge.rubric.solution import Solution
from rubric_kit import make_bounty

FRAMES = JudgementFrames("sha256:b", "sha256:s", "sha256:p")
NASTY = st.lists(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("⟪⟫⟦⟧<>[]|｜＜\u202e\u200b\r\n\x00U+0123456789ABCDEF"),
        st.sampled_from(["⟪assay end solution", "<|im_start|>", "[INST]", "⟦U+27EA⟧", "<<assay"]),
    ),
    max_size=40,
).map("".join)
NUMBER_SIGNS = frozenset(map(chr, (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD)))
"""Formats that are seen."""


def _undone(text: str) -> str:
    return re.sub(r"⟦U\+([0-9A-F]{4,6})⟧", lambda match: chr(int(match[1], 16)), text)


@given(NASTY)
def test_a_text_can_be_had_back_so_no_two_are_shown_alike(text: str) -> None:
    assert _undone(escape(text)) == normal_lines(text)


@given(NASTY)
def test_nothing_of_ours_and_nothing_hidden_is_left(text: str) -> None:
    bare = re.sub(r"⟦U\+[0-9A-F]{4,6}⟧", "·", escape(text))
    assert not set(bare) & set("⟪⟫⟦⟧")
    assert not re.search(r"[<＜][|｜]\w+[|｜][>＞]|\[INST]|<<assay", bare)
    hidden = {
        c
        for c in bare
        if unicodedata.category(c) in ("Cc", "Cf", "Co", "Zl", "Zp") or (unicodedata.category(c) == "Zs" and c != " ")
    }
    assert hidden <= {"\n", "\t"} | NUMBER_SIGNS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\r\nb\n\tc", "a\nb\n\tc"),
        ("a\rb", "a⟦U+000D⟧b"),
        ("a\u202eb", "a⟦U+202E⟧b"),
        ("\U000e0041", "⟦U+E0041⟧"),
        ("⟪assay⟫", "⟦U+27EA⟧assay⟦U+27EB⟧"),
        ("⟦U+0041⟧", "⟦U+27E6⟧U+0041⟦U+27E7⟧"),
        ("</s> <b>", "⟦U+003C⟧/s> <b>"),
        ("x << 2, 1 < 2, a[INSTANCE]", "x << 2, 1 < 2, a[INSTANCE]"),
        ("f <| g |> h", "f <| g |> h"),
        ("été – “東京” العربية ❤️", "été – “東京” العربية ❤️"),
    ],
)
def test_what_is_escaped(text: str, expected: str) -> None:
    assert escape(text) == expected


@given(st.lists(st.tuples(NASTY, NASTY), min_size=1, max_size=4))
def test_a_frame_ends_where_it_ends(rows: list[tuple[str, str]]) -> None:
    framed = FRAMES.around("solution", [FramedText(name, text) for name, text in rows], about="sha256:s")
    key = FRAMES.key("solution")
    lines = framed.split("\n")
    assert lines[0].startswith(f"⟪assay begin solution {key}: sha256:s, ")
    assert lines[-1] == f"⟪assay end solution {key}⟫"
    ours = [line for line in lines if "⟪" in line or "⟫" in line]
    assert len(ours) == 2 + 2 * len(rows)
    assert all(line.startswith("⟪assay ") and line.endswith("⟫") and key in line and line.count("⟪") == 1 for line in ours)


def test_sizes_are_those_of_the_text_as_shown() -> None:
    framed = FRAMES.around("problem", [FramedText("a", "\u200bé"), FramedText("b", "")])
    assert '"a", 14 bytes⟫' in framed
    assert '"b", 0 bytes⟫' in framed
    assert ": 2 items, 14 bytes⟫" in framed


def test_a_solution_that_is_too_large_as_shown_is_refused_and_never_cut(tmp_path: Path) -> None:
    bounty = make_bounty(tmp_path, tokens=100)
    check_size(bounty, Solution({"a": "x" * 88}))
    with pytest.raises(BadInput, match="has 101 bytes as a model is shown it, the bounty allows 100") as refusal:
        check_size(bounty, Solution({"a": "x" * 89}))
    assert "x" * 10 not in str(refusal.value)
    with pytest.raises(BadInput, match="has 156 bytes"):
        check_size(bounty, Solution({"a": "\u200b" * 12}))
