"""Near-copies: planted copies are noticed whatever was renamed, moved or added; honest pairs are not."""

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.rules.near_copies import GRAM, WINDOW, compare, equal_outcomes, fingerprints, grams, is_near, words_of
from depth import depth

SEEDS = st.integers(0, 2**32)
OPS = ["+", "-", "*", "//", "%", "|", "&", "^"]


def function(r: Random, name: str) -> str:
    """A function that nobody else would write: statements drawn from many forms."""
    lines = [f"def {name}(alpha, beta, *rest):"]
    for _ in range(r.randint(6, 12)):
        a, b, c = (r.choice(["alpha", "beta", "gamma", "total", "rest[0]", "data.size", "f(alpha)"]) for _ in range(3))
        op, other = r.choice(OPS), r.choice(OPS)
        lines.append(
            r.choice(
                [
                    f"    total = {a} {op} ({b} {other} {c})",
                    f"    if {a} {op} {b} > {c}:\n        return [{a}, {b}]",
                    f"    for gamma in range({a} {op} {c}):\n        beta {other}= gamma",
                    f"    while not {a} and {b} {op} 3 < {c}:\n        alpha = {b}",
                    f"    rest = {{'key': {a}, {b} {op} {c}: ({a}, {b})}}",
                    f"    assert isinstance({a}, ({b}, {c})), 'text' {op} {b}",
                    f"    data = [gamma {op} {a} for gamma in {b} if gamma {other} {c}]",
                    f"    try:\n        {a.split('(')[0].split('[')[0]} = {b}[{c}:]\n    except ValueError:\n        raise",
                ]
            )
        )
    return "\n".join([*lines, "    return total  # done", ""])


def program(r: Random, count: int = 12) -> list[str]:
    return [function(r, f"step_{at}") for at in range(count)]


def changed(text: str, r: Random) -> str:
    """Other names, other comments, other white space: the same program."""
    for at, name in enumerate(("alpha", "beta", "gamma", "total", "rest", "data")):
        text = text.replace(name, f"v{r.randint(0, 9)}{at}")
    lines = []
    for line in text.splitlines():
        lines += [line.replace("# done", "# rewritten by me"), *([""] * r.randint(0, 2)), *(["# why not"] * r.randint(0, 1))]
    return "\n".join(lines)


@given(SEEDS)
def test_a_planted_copy_is_noticed_and_its_passages_name_the_lines(seed: int) -> None:
    r = Random(seed)
    theirs = program(r)
    mine = [changed(each, r) for each in r.sample(theirs, len(theirs))] + program(r, 4)  # own code: a third more
    r.shuffle(mine)
    pair = compare(fingerprints({"main.py": "\n".join(mine)}), fingerprints({"agent.py": "\n".join(theirs)}))
    assert pair.near
    assert 10 * pair.common >= 8 * pair.other_prints
    copied = [*words_of("\n".join(mine))]
    for passage in pair.passages:
        assert (passage.file, passage.other) == ("main.py", "agent.py")
        ends = [line for _, line in copied if passage.lines[0] <= line <= passage.lines[1]]
        assert len(ends) >= GRAM


@settings(max_examples=depth(4, 150))
@given(SEEDS)
def test_honest_pairs_are_not_flagged_even_with_one_template(seed: int) -> None:
    r = Random(seed)
    template = "\n".join(program(r, 12))
    first, other = ("\n".join([template, *program(r)]) for _ in range(2))
    base = frozenset(gram.hash for gram in grams("template.py", template))
    apart = [fingerprints({"a.py": text}, base) for text in (first, other)]
    assert not compare(*apart).near
    assert min(map(len, apart)) >= 20
    assert compare(fingerprints({"a.py": first}), fingerprints({"a.py": other})).common > compare(*apart).common


@given(SEEDS, st.integers(0, 30))
def test_any_run_of_words_long_enough_is_noticed(seed: int, start: int) -> None:
    r = Random(seed)
    text = [word for word, _ in words_of("\n".join(program(r, 3)))]
    part = text[start : start + GRAM + WINDOW - 1]
    noise = [r.choice("+-*/<>=") for _ in range(60)]
    both = fingerprints({"a": " ".join(text)}), fingerprints({"b": " ".join([*noise, *part, *noise])})
    assert compare(*both).common


@pytest.mark.parametrize(
    ("common", "mine", "theirs", "near"),
    [(10, 20, 40, True), (9, 20, 40, False), (10, 19, 40, False), (19, 19, 19, False), (20, 40, 100, True), (20, 41, 41, False)],
)
def test_the_bound_is_half_of_the_smaller(common: int, mine: int, theirs: int, near: bool) -> None:
    assert is_near(common, mine, theirs) is is_near(common, theirs, mine) is near


def test_short_and_empty_files_have_few_fingerprints() -> None:
    assert fingerprints({"a": "", "b": "x = 1"}) == []
    assert len(fingerprints({"a": "x " * GRAM})) == 1


def test_lines_and_words() -> None:
    assert [*words_of("x = 'a\\'b' # no\n\n/* a\nb */ if y2: return 0x1f\n")] == [
        ("n", 1), ("=", 1), ("s", 1), ("if", 4), ("n", 4), (":", 4), ("return", 4), ("0", 4),
    ]  # fmt: skip


def test_equal_outcomes_say_how_probable_they_are() -> None:
    """Twenty tasks that nobody else tells apart, ten passed: 1 in C(20, 10)."""
    same = {f"t{at:02}": at < 10 for at in range(20)}
    alike = equal_outcomes({"a": same, "b": same})
    assert (alike["a", "b"].ways, alike["a", "b"].pairs, alike["a", "b"].notable) == (184_756, 1, True)
    easy = {f"t{at:02}": True for at in range(20)}
    hard = {"c": same, "d": same} | {f"p{at}": same | {"t19": at == 0} for at in range(3)}
    assert equal_outcomes({"a": easy, "b": easy})["a", "b"].ways == 1
    assert not equal_outcomes(hard)["c", "d"].notable  # the others find the same tasks easy: that is no wonder
    assert ("a", "b") not in equal_outcomes({"a": same, "b": same | {"t00": False}})
    assert not equal_outcomes({"a": {"t": True}, "b": {"t": True}})["a", "b"].notable


@pytest.mark.parametrize(("tasks", "wins"), [(6, 3), (5, 1), (7, 7)])
def test_the_bound_is_the_count_of_all_choices(tasks: int, wins: int) -> None:
    """Every way to choose the passes is counted: one of them is equal."""
    names = [f"t{at}" for at in range(tasks)]
    mine = {name: at < wins for at, name in enumerate(names)}
    choices = [{name: name in chosen for name in names} for chosen in combinations(names, wins)]
    assert sum(choice == mine for choice in choices) == 1
    assert equal_outcomes({"a": mine, "b": mine})["a", "b"].ways == len(choices)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a /* b", "n / * n"),
        ("'it", "' n"),
        ('f"x', 'n " n'),
        ('rb"""\n1', 's " 0'),
        ("'''a'''b", "s n"),
        ("/* a\n*/ b '''", "n s '"),
        ('"a\\\nb" c', "s n"),
        ("\"a\nb\" 'c'", '" n n " s'),
    ],
)
def test_what_begins_a_text_or_comment_that_never_ends_begins_none(text: str, words: str) -> None:
    assert " ".join(word for word, _ in words_of(text)) == words


@pytest.mark.parametrize("piece", ["/*a", '\\"', "\\'", "'''\"", "'a\\\\"])
def test_hostile_source_takes_no_more_time_than_other_source(piece: str) -> None:
    """Each piece begins what has no end; looking for it from each would take minutes."""
    assert sum(1 for _ in words_of(piece * 25_000)) < 5 * 25_000
