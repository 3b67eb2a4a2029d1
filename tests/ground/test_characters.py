"""One definition of text for keys, tasks, names and submissions; no score asks this Python's tables."""

import ast
import json
import re
import sys
from pathlib import Path

import pytest

from assay.characters import PATTERN, REFUSED, allowed, mixed_word, printable, unmasked
from assay.errors import BadInput
from assay.folder import parse_case
from assay.ledger import check
from assay.records import record
from assay.scheme import fields
from oracle_kit import given_case

pytestmark = pytest.mark.no_cover  # the other tests reach every branch, and to trace these takes long

SOURCE = Path(__file__).parents[2] / "src" / "assay"

NAMED = {
    "C0": [*range(0x20)],
    "DEL and C1": [*range(0x7F, 0xA0)],
    "separators": [0x2028, 0x2029],
    "bidi controls": [0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)],
    "zero width": [0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF],
    "surrogates": [*range(0xD800, 0xE000)],
    "noncharacters": [*range(0xFDD0, 0xFDF0), *(plane * 0x10000 + low for plane in range(17) for low in (0xFFFE, 0xFFFF))],
}
"""SPEC 1, written out a second time."""
TAKEN = [
    "\U0001fae8",
    "\U0001f6dc",
    "\u0378",
    "\ue000",
    "\xa0",
    "\xad",
    "\u3000",
    "e\u0301",
    "\u0430",
    "\U000e0041",
    "\U0010fffd",
]
"""Unassigned on some Python, private, spaces, combining, look-alikes: none of it is a table's business."""


def test_the_list_is_that_of_the_specification() -> None:
    listed = {point for first, last in REFUSED for point in range(first, last + 1)}
    assert listed == {point for points in NAMED.values() for point in points}
    assert [first for first, _ in REFUSED] == sorted(first for first, _ in REFUSED)


@pytest.mark.full
def test_every_character_alike_in_the_function_the_pattern_and_the_checker() -> None:
    listed = {point for points in NAMED.values() for point in points}
    pattern, apart = re.compile(PATTERN), re.compile(f"[{check.UNPRINTABLE}]")
    for point in range(sys.maxunicode + 1):
        character = chr(point)
        assert allowed(character) == (point not in listed)
        if not 0xD800 <= point < 0xE000:
            assert (pattern.search(character) is None) == allowed(character), hex(point)
        if point & 0xFFFF < 0xFFFE:  # a receipt's checker is one file, and leaves out the noncharacters of the upper planes
            assert (apart.search(character) is None) == allowed(character), hex(point)


def test_what_a_terminal_would_take_as_an_order_is_written_out() -> None:
    assert printable("a\x1b[31m\u202eb\u2028\U0001fffe é\U0001fae8") == "a\\x1b[31m\\u202eb\\u2028\\U0001fffe é\U0001fae8"


@pytest.mark.parametrize("character", TAKEN, ids=ascii)
def test_a_key_of_any_unicode_settles(character: str) -> None:
    case = given_case(["0.5"])
    text = json.dumps(case).replace('"p0"', json.dumps(f"p{character}"))
    assert f"p{character}" in {row.key for row in parse_case(json.loads(text)).participants}


@pytest.mark.parametrize("field", ["participant", "submission", "validator", "task"])
@pytest.mark.parametrize("point", sorted({points[0] for points in NAMED.values()} | {0x7F, 0x10FFFF} - {0xD800}))
def test_a_record_with_a_refused_character(field: str, point: int) -> None:
    given = {"kind": "tests", "epoch": 1, "validator": "v", "participant": "p", "submission": "s", "task": "t", "outcome": "pass"}
    given |= {"observed_at": "2026-01-01T00:00:00Z", field: f"x{chr(point)}y"}
    with pytest.raises(BadInput, match="cannot be printed") as caught:
        record(given)
    assert caught.value.field == field


def test_spaces_of_a_log_are_the_unicode_property_and_no_more() -> None:
    """White_Space has not changed since Unicode 6.3; Python counts four separators of ASCII among it."""
    listed = re.compile(f"[{check.SPACES}]")
    assert {point for point in range(0x110000) if listed.search(chr(point))} == {
        point for point in range(0x110000) if chr(point).isspace()
    }


def test_digits_of_other_scripts_are_no_time() -> None:
    assert fields.instant_text(fields.instant("2026-11-02t09:00:00.250000000z")) == "2026-11-02T09:00:00.250000Z"
    assert fields.instant_text(fields.instant("2026-11-02T00:00:00+23:59")) == "2026-11-01T00:01:00Z"
    assert fields.instant_text(fields.instant("2026-11-02 09:00:00-01:30")) == "2026-11-02T10:30:00Z"
    for wrong in (
        "٢٠٢٦-11-02T09:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-W01-1T00:00:00Z",
        "20261102T090000Z",
        "0001-01-01T00:00:00+00:01",
    ):
        with pytest.raises(BadInput):
            fields.instant(wrong)


# What may not be called where a score, a weight, a payout or a signature is made.

ROOMS = (
    "characters.py",
    "errors.py",
    "exact.py",
    "records.py",
    "tables.py",
    "scheme",
    "settle",
    "folder",
    "ledger",
    "competition.py",
)
TABLES = {
    *("isprintable", "isalpha", "isalnum", "isdigit", "isdecimal", "isnumeric", "isspace", "isidentifier", "isupper", "islower"),
    *("istitle", "casefold", "lower", "upper", "title", "capitalize", "swapcase", "splitlines", "expandtabs"),
    *("normalize", "category", "east_asian_width", "fromisoformat", "strptime", "strftime", "strxfrm", "strcoll", "setlocale"),
    *("isocalendar", "now", "today", "utcnow", "hash"),
}
BARE = {"strip", "lstrip", "rstrip", "split", "rsplit"}
"""Without an argument they ask which characters are spaces."""
SORTS = {"argsort", "sort", "argpartition", "partition"}
"""NumPy's default sort leaves equal things in an order that depends on the processor."""
ALLOWED = {
    ("errors.py", "lower"): "the words of the operating system, for a message",
    ("scheme/reading.py", "lower"): "the first letter of a message",
    ("scheme/reading.py", "strip"): "the line that a message names",
    ("scheme/reading.py", "lstrip"): "the line that a message names",
    ("scheme/reading.py", "match"): "the line that a message names",
    ("settle/consensus.py", "lower"): "names of Python's own",
    ("settle/score/__init__.py", "lower"): "names of Python's own",
    ("settle/settlement.py", "hash"): "of a digest, for sets within a run",
    ("settle/story/telling.py", "rstrip"): "spaces that fill a column",
    ("folder/csvs.py", "lower"): "a hint",
    ("folder/evidence.py", "strip"): "bytes: the spaces of ASCII",
    ("ledger/keys/__init__.py", "lstrip"): "bytes: the spaces of ASCII",
    ("ledger/check.py", "split"): "between hex digits",
    ("ledger/verify/__init__.py", "strip"): "around a key that has one spelling",
    ("ledger/store/engine.py", "split"): "the words of a database, for a message",
    ("folder/parquet.py", "lower"): "a hint",
    ("folder/rows.py", "lower"): "a hint",
    ("folder/lines.py", "strip"): "bytes: the spaces of ASCII",
    ("folder/places.py", "lower"): "a variable of the environment; the words of an object store, for a message",
    ("folder/places.py", "search"): "the words of an object store, for a message",
}


def suspects(tree: ast.AST) -> list[tuple[int, str]]:
    """The calls of a module that a version of Unicode, Python or NumPy, or a locale, could decide: line and name."""
    calls = []
    ascii_only = {
        ast.unparse(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "isascii"
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        words = {word.arg: ast.unparse(word.value) for word in node.keywords}
        if name in ("isdigit", "isprintable") and owner in ascii_only:
            continue
        hits = [
            name in TABLES,
            name in BARE and not node.args,
            owner == "np" and name in SORTS and words.get("kind") != "'stable'",
            owner == "re" and _asks_tables(node),
            name in ("sorted", "sort") and words.get("key") in ("str.lower", "str.casefold"),
            name == "Context" and "traps" not in words,
            name in ("getcontext", "localcontext", "getlocale", "getpreferredencoding"),
            owner and name in ("read_text", "write_text") and "utf-8" not in ast.unparse(node),
        ]
        if any(hits):
            calls.append((node.lineno, name))
    return calls


def _asks_tables(node: ast.Call) -> bool:
    """A pattern of text with a class that Unicode defines, or that ignores case, without re.ASCII."""
    source = ast.unparse(node)
    first = ast.unparse(node.args[0]) if node.args else ""
    plain = first.startswith(("b'", "rb'", 'b"', 'rb"')) or "ASCII" in source
    return not plain and (re.search(r"\\\\?[dwsbDWSB]", first) is not None or "IGNORECASE" in source or "(?i" in first)


def modules() -> list[Path]:
    return sorted(path for room in ROOMS for path in ([SOURCE / room] if room.endswith(".py") else (SOURCE / room).rglob("*.py")))


@pytest.mark.no_cover
def test_no_table_of_this_python_decides() -> None:
    used, unexpected = set(), []
    for path in modules():
        name = path.relative_to(SOURCE).as_posix()
        for line, call in suspects(ast.parse(path.read_text(encoding="utf-8"))):
            if (name, call) in ALLOWED:
                used.add((name, call))
            else:
                unexpected.append(f"{name}:{line}: {call}")
    assert not unexpected
    assert used == ALLOWED.keys(), "an exception that nothing needs any more"


@pytest.mark.parametrize(
    "source",
    [
        "x.isprintable()",
        "x.lower()",
        "x.strip()",
        "x.split()",
        "x.splitlines()",
        "re.compile(r'\\d+')",
        "re.search('[\\\\s+]', x)",
        "re.match('a', x, re.IGNORECASE)",
        "datetime.fromisoformat(x)",
        "unicodedata.normalize('NFC', x)",
        "np.argsort(x)",
        "np.sort(x, axis=0)",
        "decimal.Context(prec=50)",
        "path.read_text()",
        "sorted(x, key=str.casefold)",
        "hash(x)",
        "locale.strxfrm(x)",
    ],
)
def test_the_search_finds_such_a_call(source: str) -> None:
    assert suspects(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "x.strip(' ')",
        "x.isascii() and x.isdigit()",
        "re.compile(r'\\d', re.ASCII)",
        "np.argsort(x, kind='stable')",
        "re.match(rb'\\s', x)",
    ],
)
def test_and_leaves_the_others_alone(source: str) -> None:
    assert not suspects(ast.parse(source))


@pytest.mark.parametrize(
    ("text", "word", "scripts"),
    [
        ("\u0430tlas", "\u0430tlas", ["Latin", "Cyrillic"]),
        ("the \u039fmega-agent", "\u039fmega", ["Latin", "Greek"]),
        ("\u03bf\u043e", "\u03bf\u043e", ["Greek", "Cyrillic"]),
        ("a\u0301\u0430", "a\u0301\u0430", ["Latin", "Cyrillic"]),
    ],
)
def test_a_word_of_several_scripts_is_found(text: str, word: str, scripts: list[str]) -> None:
    assert mixed_word(text) == (word, scripts)


@pytest.mark.parametrize("text", ["", "Änne 2", "Команда", "Ομάδα", "α-agent", "Команда Nord", "東京 agent 7", "агент_x9"])
def test_and_words_of_one_script_are_not(text: str) -> None:
    assert mixed_word(text) is None


def test_what_looks_like_latin_letters_becomes_them() -> None:
    assert (
        unmasked("\u0410\u0422\u041c \u0420\u043e\u0435 \u0391\u03a4\u0395 \u03bf \u0416\u03a9") == "ATM Poe ATE o \u0416\u03a9"
    )


def test_a_text_in_ascii_stays_as_it_is() -> None:
    ascii_text = "".join(map(chr, range(128)))
    assert (unmasked(ascii_text), mixed_word(ascii_text)) == (ascii_text, None)
