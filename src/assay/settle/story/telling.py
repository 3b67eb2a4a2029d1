"""The parts of a story (`Chapter`, `Table`, `Explanation`), and its numbers as people read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.exact import BPS, NANO, RAO, WEI, coins, half_even, nanos, text
from assay.records import Participant, Validator
from assay.scheme.model import Scheme

__all__ = [
    "Chapter",
    "Explanation",
    "Json",
    "Subject",
    "Table",
    "called",
    "money",
    "money_table",
    "named",
    "ordinal",
    "part",
    "percent",
    "percents",
    "person",
    "plural",
]

Json = dict[str, Any]

SCHEMA = "assay.explanation/1"
READABLE = 24
"""A longer key of a validator is shown by its name, or shortened."""
HOTKEY = 47
"""Characters of the shortest hotkey: a participant's key of so many is shortened, any other one says something to people."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings; every row is as long as the headings."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Chapter:
    """One step: sentences, a table if there is more than one thing to show, and the numbers by name."""

    name: str
    title: str
    text: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    table: Table | None = None

    def document(self) -> Json:
        """The chapter as JSON."""
        table = None if self.table is None else {"columns": [*self.table.columns], "rows": [[*row] for row in self.table.rows]}
        return {"name": self.name, "title": self.title, "text": [*self.text], "facts": {**self.facts}, "table": table}


@dataclass(frozen=True)
class Explanation:
    """The story of one participant in one settlement; `str()` of it is plain text. SPEC 2–6."""

    participant: str
    epoch: int
    scheme: str
    version: str
    settlement: str
    """Digest of the settlement."""
    status: str
    reason: str | None
    summary: str
    chapters: tuple[Chapter, ...]

    def __getitem__(self, name: str) -> Chapter:
        """The chapter of that name; raises KeyError if this story has none."""
        for chapter in self.chapters:
            if chapter.name == name:
                return chapter
        raise KeyError(name)

    def document(self) -> Json:
        """The story as JSON of schema `assay.explanation/1`."""
        return {
            "schema": SCHEMA,
            "participant": self.participant,
            "epoch": self.epoch,
            "scheme": {"name": self.scheme, "version": self.version},
            "settlement": self.settlement,
            "status": self.status,
            "reason": self.reason,
            "summary": self.summary,
            "chapters": [chapter.document() for chapter in self.chapters],
        }

    def __str__(self) -> str:
        lines = [self.summary]
        for chapter in self.chapters:
            lines += ["", chapter.title, *(f"  {sentence}" for sentence in chapter.text)]
            if chapter.table is not None:
                lines += _columns(chapter.table)
        return "\n".join(lines)


def _columns(table: Table) -> list[str]:
    rows = [table.columns, *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


@dataclass(frozen=True)
class Subject:
    """The participant that a story is about, with its row in the settlement's document and the rest of that document."""

    scheme: Scheme
    document: Json
    row: Json
    participant: Participant
    tasks: int
    called: Mapping[str, str]
    """Validator key → the name that people read."""
    person: Callable[[str], str]
    """Participant key → the name that people read."""
    token: str = ""
    """The token of the deposit, as people read it; empty for ether."""

    @property
    def agreed(self) -> bool:
        """Whether there is an agreed score."""
        return bool(self.row["status"] == "agreed")

    @property
    def trials(self) -> int:
        """Of how many trials a score is the share that passed; 0 for kinds without trials. SPEC 2.1."""
        return self.tasks * (self.scheme.kind.trials(self.scheme.score) or 0)

    @property
    def quorum(self) -> bool:
        """Whether the quorum held before outliers were looked for. SPEC 3.1."""
        return self.agreed or bool(self.row["reason"] == "stake-after-outliers")

    @property
    def ranked(self) -> int:
        """The number of participants with an agreed score."""
        return len(self.document["ranking"])

    @property
    def rank(self) -> int:
        """The participant's place in the ranking, from 1."""
        place: int = self.document["ranking"].index(self.participant.key)
        return place + 1

    @property
    def place(self) -> int:
        """The participant's place in a ranking scheme, from 1: equal scores share a place."""
        ranking, by = self.document["ranking"], "score" if self.row["bps"] is None else "bps"
        first: int = next(at for at, row in enumerate(self.document["agreed"][: len(ranking)], 1) if row[by] == self.row[by])
        return first

    @property
    def alike(self) -> bool:
        """Whether all judges count alike: in a ranking of runs stake decides nothing."""
        return not self.scheme.stakes

    @property
    def judge(self) -> str:
        """The word for a validator: "run" in a ranking of runs."""
        return "run" if self.alike else "validator"

    @property
    def in_tao(self) -> bool:
        """Whether stakes are shown in TAO beside rao: if weights depend on them, and the total is at least 1 TAO."""
        return not self.alike and self.scheme.payout is None and int(self.row["needed_stake_of"]) >= 10**RAO

    def stake(self, amount: int) -> str:
        """An amount of stake in a sentence: "250000000000 rao (250 TAO)", or the number alone."""
        return f"{amount} rao ({coins(amount, RAO)} TAO)" if self.in_tao else str(amount)

    @property
    def shown_score(self) -> str:
        """The agreed score for people: "0.8", or "8000 BPS" if the score is of a rubric."""
        return str(self.row["score"]) if self.row["bps"] is None else f"{self.row['bps']} BPS"

    def chosen_rules(self) -> Iterator[str]:
        """Sentences about rules of the score that the scheme reads in another way than the seeds."""
        yield from self.scheme.score.choices()
        if self.scheme.score.scores_jointly() and self.row["validators"]:
            score = self.row["validators"][0]["score"]
            passed = f"{half_even(nanos(score) * self.tasks, NANO)} of {plural(self.tasks, 'task')}"
            yield f"In {passed} every one of them saw all trials pass; only these count as passed. So all have the score {score}."

    @property
    def weight(self) -> Json:
        """The participant's row of weights."""
        row: Json = self.document["weights"][self.rank - 1]
        return row

    @property
    def payout(self) -> Json | None:
        """The participant's row of payouts, if it has a place."""
        return next((row for row in self.document["payouts"] if row["participant"] == self.participant.key), None)


def person(participant: Participant) -> str:
    """The name that people read of a participant: its key, or for a hotkey "Name (2f1ce4…9c0d)"."""
    if len(participant.key) < HOTKEY:
        return participant.key
    ends = f"{participant.key[:6]}…{participant.key[-4:]}"
    return f"{participant.name} ({ends})" if participant.name else ends


def called(validators: Sequence[Validator]) -> dict[str, str]:
    """Key → the name that people read: for a long key its name, or its two ends, unless another validator has the same."""

    def shorter(validator: Validator) -> str:
        return validator.key if len(validator.key) <= READABLE else validator.name or f"{validator.key[:6]}…{validator.key[-4:]}"

    times = Counter(map(shorter, validators))
    return {validator.key: short if times[short := shorter(validator)] == 1 else validator.key for validator in validators}


def percent(share: str | int) -> str:
    """A share (decimal string or nanos) as percent with at most two digits after the point, half to even: "33.33 %"."""
    count = nanos(share) if isinstance(share, str) else share
    shown = half_even(count, NANO // BPS)
    return "under 0.01 %" if count and not shown else f"{text(shown, 2)} %"


def percents(shares: Sequence[str]) -> list[str]:
    """The shares of one column as percent with aligned points: "9.50 %", "12.25 %"; "10 %" if all are whole."""
    counts = [half_even(nanos(share), NANO // BPS) for share in shares]
    if not any(count % 100 for count in counts):
        return [f"{count // 100} %" for count in counts]
    return [f"{count // 100}.{count % 100:02} %" for count in counts]


def part(amount: int, whole: int) -> str:
    """One amount as percent of another; 0 % if the other is 0."""
    return percent(half_even(amount * NANO, whole)) if whole else "0 %"


def money(amount: str | int, token: str = "") -> str:
    """An amount of money in a sentence: "1000000000000000000 wei (1 ether)".

    token: what it is an amount of, if that is not ether. The decimals of a token are not known, so its smallest units are shown.
    """
    return f"{amount} smallest units of the token {token}" if token else f"{amount} wei ({coins(amount, WEI)} ether)"


def money_table(amounts: Mapping[str, str], token: str = "") -> Table:
    """Amounts of money by name, a row each: wei, also in ether; or the smallest units of a token."""
    if token:
        return Table(("", "smallest units", "of the token"), tuple((name, amount, token) for name, amount in amounts.items()))
    return Table(("", "wei", "in ether"), tuple((name, amount, coins(amount, WEI)) for name, amount in amounts.items()))


def plural(count: int, word: str, many: str = "") -> str:
    """ "1 validator", "2 validators"; `many` is an irregular plural: "2 batches"."""
    return f"{count} {word}" if count == 1 else f"{count} {many or word + 's'}"


def named(keys: list[str], most: int = 5) -> str:
    """A list of keys for a sentence: "a, b and c", cut after `most`."""
    shown = keys if len(keys) <= most else [*keys[: most - 1], f"{len(keys) - most + 1} more"]
    return " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)


def ordinal(count: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st."""
    ending = "th" if count % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{ending}"
