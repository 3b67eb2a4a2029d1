"""Near-copies among submissions: fingerprints of normalised source, the passages that match, and outcomes that are too alike.

It flags, and decides nothing: a person looks at the passages. docs/near-copies.md has the definitions.

Source becomes words: comments and white space go, a name becomes "n", a number "0", a text "s"; keywords and signs stay. Every
`GRAM` words in a row have a hash, and of every `WINDOW` hashes in a row the least is a fingerprint (winnowing: Schleimer,
Wilkerson and Aiken, 2003). So any run of GRAM + WINDOW − 1 equal words is noticed, wherever it
stands. Fingerprints of a baseline are left out: a template, the task set's files, a licence.

All numbers are exact. Nothing here reaches a score. SPEC 9.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import comb, prod

__all__ = [
    "Alike",
    "CopyPair",
    "Passage",
    "Print",
    "compare",
    "equal_outcomes",
    "fingerprints",
    "grams",
    "is_near",
    "words_of",
]

GRAM, WINDOW = 20, 10
"""Words of a fingerprint, and hashes of which the least is kept."""
LEAST = 20
"""Fingerprints that each side must have beyond the baseline to be compared at all."""
TASKS = 10
"""Tasks that both tried, below which outcomes are not compared."""
CHANCE = 1000
"""Outcomes are too alike if chance makes any of the pairs equal at most once in so many."""

_WORD = re.compile(
    r"""(?P<comment>\#[^\n]*|//[^\n]*)|(?P<block>/\*)|[rbfuRBFU]{0,2}(?P<quote>\"{3}|'{3}|["'])
    |(?P<number>[0-9][0-9A-Za-z_.]*)|(?P<name>[^\W\d]\w*)|(?P<sign>[^\s\w])""",
    re.VERBOSE,
)
_INSIDE = {quote: re.compile(rf"(?:\\.|[^{quote}\\\n])*+", re.DOTALL) for quote in "\"'"}
"""The inside of a text in one line."""
_UNQUOTED = re.compile(r"[^\W\d]\w*|[^\s\w]")
"""The word at a quote that begins no text: the name that would have been its prefix, or the quote."""
_OTHER_KEYWORDS = """
function var let const new this typeof switch case default do then fi done esac elif fn mut match struct enum impl pub static void
int char float double long public private extends throw catch func package defer go range type echo local
"""
_KEYWORDS = frozenset(keyword.kwlist) | frozenset(_OTHER_KEYWORDS.split())


@dataclass(frozen=True, slots=True)
class Print:
    """A fingerprint: its hash, the file, and the words and lines that it covers."""

    hash: bytes
    file: str
    word: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Passage:
    """Lines of two files that match, both ends included."""

    file: str
    lines: tuple[int, int]
    other: str
    other_lines: tuple[int, int]
    prints: int
    """Fingerprints that the passage has in common."""


@dataclass(frozen=True, slots=True)
class CopyPair:
    """The common part of two submissions, beyond the baseline."""

    prints: int
    """Fingerprints of the first, of the other, and of both: different hashes are counted."""
    other_prints: int
    common: int
    passages: tuple[Passage, ...]

    @property
    def near(self) -> bool:
        """Whether one is to be looked at as a near-copy of the other."""
        return is_near(self.common, self.prints, self.other_prints)


@dataclass(frozen=True, slots=True)
class Alike:
    """Two submissions that passed exactly the same of the tasks that both tried."""

    tasks: int
    passed: int
    ways: int
    """In how many ways outcomes could be chosen: chance makes them equal at most once in so many."""
    pairs: int
    """The number of pairs of submissions that were compared."""

    @property
    def notable(self) -> bool:
        """Whether chance makes any of the pairs this equal at most once in 1,000: ways ≥ 1000 · pairs."""
        return self.tasks >= TASKS and self.ways >= CHANCE * self.pairs


def words_of(text: str) -> Iterator[tuple[str, int]]:
    """The normalised words of a source file, each with its line, from 1.

    The time is linear in the text, whatever a stranger wrote: nothing is looked for again where it was not found.
    """
    line, at, counted, ends = 1, 0, 0, _Ends(text)
    while (match := _WORD.search(text, at)) is not None:
        line += text.count("\n", counted, match.start())
        counted = match.start()
        kind, word, at = match.lastgroup, match[0], match.end()
        if kind in ("block", "quote"):
            quote = match["quote"] or ""
            end = ends.of(quote or "*/", at)
            if end is not None:
                at, kind = end, kind if quote else "comment"
            elif len(quote) > 1:  # two of them are an empty text
                at -= 1
            else:  # it begins nothing
                plain = _UNQUOTED.match(text, match.start())
                assert plain is not None
                kind, word, at = "name" if plain[0].isidentifier() else "sign", plain[0], plain.end()
        if kind == "sign" or (kind == "name" and word in _KEYWORDS):
            yield word, line
        elif kind != "comment":
            yield {"quote": "s", "number": "0", "name": "n"}[str(kind)], line


class _Ends:
    """The ends of texts and comments in a file. If one has no end, no later one of its sort is looked for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.none = dict.fromkeys(("*/", '"' * 3, "'" * 3, '"', "'"), 0)
        """Ending → the place before which nothing that it would end has an end."""

    def of(self, ending: str, at: int) -> int | None:
        """The place behind the ending of what begins before `at`; None if it has none."""
        if at < self.none[ending]:
            return None
        if len(ending) > 1:
            place = self.text.find(ending, at)
            if place < 0:
                self.none[ending] = len(self.text) + 1
            return None if place < 0 else place + len(ending)
        inside = _INSIDE[ending].match(self.text, at)
        assert inside is not None
        end = inside.end()
        if self.text[end : end + 1] == ending:
            return end + 1
        self.none[ending] = end + 1
        return None


def grams(file: str, text: str) -> list[Print]:
    """All runs of GRAM words of a file, as fingerprints."""
    words = [*words_of(text)]
    names = [word for word, _ in words]
    return [
        Print(
            blake2b("\0".join(names[at : at + GRAM]).encode(), digest_size=8).digest(),
            file,
            at,
            words[at][1],
            words[at + GRAM - 1][1],
        )
        for at in range(len(words) - GRAM + 1)
    ]


def fingerprints(files: Mapping[str, str], baseline: frozenset[bytes] = frozenset()) -> list[Print]:
    """The fingerprints of a submission. files: path → text. baseline: the hashes of `grams` that are left out."""
    prints = []
    for file, text in files.items():
        prints += [chosen for chosen in _winnowed(grams(file, text)) if chosen.hash not in baseline]
    return prints


def _winnowed(runs: Sequence[Print]) -> Iterator[Print]:
    """Of every window the least, the last one of equals; each once. A file shorter than a window has one."""
    last = -1
    for start in range(max(1, len(runs) - WINDOW + 1) if runs else 0):
        window = range(start, min(start + WINDOW, len(runs)))
        if last < start:
            chosen = min(window, key=lambda at: (runs[at].hash, -at))
        else:  # the least so far is still in the window: only the newest can be below it
            chosen = min((last, window[-1]), key=lambda at: (runs[at].hash, -at))
        if chosen != last:
            yield runs[chosen]
        last = chosen


def is_near(common: int, prints: int, other: int) -> bool:
    """Whether half of the fingerprints of either side are the other's too: 2 · common ≥ min(prints, other) ≥ LEAST."""
    return min(prints, other) >= LEAST and 2 * common >= min(prints, other)


def compare(mine: Sequence[Print], theirs: Sequence[Print]) -> CopyPair:
    """The common part of two submissions, with the passages: the longest first."""
    first: dict[bytes, Print] = {}
    for their in theirs:
        first.setdefault(their.hash, their)
    own = {gram.hash for gram in mine}
    pairs = [(gram, first[gram.hash]) for gram in mine if gram.hash in first]
    passages = sorted(_passages(pairs), key=lambda passage: (-passage.prints, passage.file, passage.lines))
    return CopyPair(len(own), len(first), len(own & first.keys()), tuple(passages))


def _passages(pairs: Iterable[tuple[Print, Print]]) -> Iterator[Passage]:
    """Fingerprints that follow each other at the same distance on both sides, joined."""
    run: list[tuple[Print, Print]] = []
    for mine, theirs in sorted(pairs, key=lambda pair: (pair[0].file, pair[0].word)):
        if run and not _follows(run[-1], (mine, theirs)):
            yield _joined(run)
            run = []
        run.append((mine, theirs))
    if run:
        yield _joined(run)


def _follows(before: tuple[Print, Print], after: tuple[Print, Print]) -> bool:
    step = after[0].word - before[0].word
    same = all(mine.file == other.file for mine, other in zip(before, after, strict=True))
    return same and 0 < step <= GRAM + WINDOW and step == after[1].word - before[1].word


def _joined(run: Sequence[tuple[Print, Print]]) -> Passage:
    (mine, theirs), (mine_end, theirs_end) = run[0], run[-1]
    return Passage(mine.file, (mine.first, mine_end.last), theirs.file, (theirs.first, theirs_end.last), len(run))


def equal_outcomes(outcomes: Mapping[str, Mapping[str, bool]]) -> dict[tuple[str, str], Alike]:
    """Pairs of submissions that passed exactly the same of the tasks that both tried. outcomes: submission → task → passed.

    Tasks are grouped by how many of the others tried and how many passed them. Within a group no task is easier than another by
    the evidence, so each choice of so many passes is as likely as any other: chance makes the two equal at most once in the
    product of the binomials C(tasks of the group, passed of the group), once it is given how many each passes of each group.
    """
    names = sorted(outcomes)
    tried = Counter(task for row in outcomes.values() for task in row)
    passed = Counter(task for row in outcomes.values() for task, won in row.items() if won)
    pairs = len(names) * (len(names) - 1) // 2
    alike = {}
    for at, first in enumerate(names):
        for other in names[at + 1 :]:
            mine, theirs = outcomes[first], outcomes[other]
            both = mine.keys() & theirs.keys()
            if not both or any(mine[task] != theirs[task] for task in both):
                continue
            sizes: Counter[tuple[int, int]] = Counter()
            wins: Counter[tuple[int, int]] = Counter()
            for task in both:
                group = tried[task] - 2, passed[task] - 2 * mine[task]
                sizes[group] += 1
                wins[group] += mine[task]
            ways = prod(comb(size, wins[group]) for group, size in sizes.items())
            alike[first, other] = Alike(len(both), sum(wins.values()), ways, pairs)
    return alike
