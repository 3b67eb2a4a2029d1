"""Cases of the health of tasks: each word at its boundary, and one step beside it. docs/task-health.md."""

from __future__ import annotations

from random import Random
from typing import Any

from .case import CaseDraft, File, case, refused

Doc = dict[str, Any]
NAMES = {"+": "pass", "-": "fail", "t": "timeout", "e": "error"}


def given(**tasks: str) -> Doc:
    """Tasks by name; each participant's trials are a word of signs, "." for none."""
    rows = [
        {"task": task, "participant": f"p{at}", "outcomes": [NAMES[sign] for sign in word]}
        for task, words in tasks.items()
        for at, word in enumerate(words.split())
        if word != "."
    ]
    return {"tasks": [*tasks], "results": rows}


def worded(name: str, words: list[str], **tasks: str) -> CaseDraft:
    """A case whose task a has exactly these words."""
    return case(name, given(**tasks), {"tasks": [{"task": "a", "words": words}, *({"task": task} for task in [*tasks][1:])]})


def drawn(seed: int, people: int, tasks: int, trials: int) -> CaseDraft:
    r = Random(seed)
    words = {
        f"t{at}": " ".join("".join(r.choices("+-te", [4, 4, 1, 1], k=r.randint(1, trials))) for _ in range(people))
        for at in range(tasks)
    }
    return case(f"drawn {seed}", given(**words))


CASES = [
    worded("nobody passes", ["dead"], a="- t -", b="+ + -"),
    worded("two are too few", [], a="- t", b="+ +"),
    worded("two with trials and one with errors are too few", [], a="- t ee", b="+ + +"),
    worded("all are errors", ["dead"], a="e ee e", b="+ + -"),
    worded("errors of two say nothing", [], a="e ee .", b="+ + -"),
    worded("dead once an error is no pass", ["dead"], a="-e te -", b="+ + -"),
    worded("everybody passes", ["never-separating"], a="+ ++ +e", b="+ - -"),
    worded("everybody passes half", ["flaky", "never-separating"], a="+-+- +- +-t+ -+ -+", b="+ - - + +"),
    worded("six pairs are too few", [], a="+- +- +- +++", b="+ - - +"),
    worded("nine pairs are too few", [], a="++- +-- +-+", b="+ - -"),
    worded("exactly one pair in four", [], a="+- +- +- ++ ++ ++ ++ -- -- -- ++ ++", b="+ - - + + + + + + + + +"),
    worded("more than one pair in four", ["flaky"], a="+- +- +- ++ ++ ++ ++ -- -- -- ++", b="+ - - + + + + + + + +"),
    worded("two with several trials are too few", [], a="+-+- +-+- + -", b="+ - - +"),
    worded("those who pass are the weaker", ["negative"], a="+ + + - - -", b="- - - + + +"),
    worded("those who pass are the better", [], a="+ + + - - -", b="+ + + - - +"),
    worded("both sides are equal", [], a="+ + + - - -", b="+ - - - + -"),
    worded("two who pass are too few", [], a="+ + - - -", b="- - + + +"),
    worded("who passes half is on no side", [], a="+ + +- - - -", b="- - - + + +"),
    worded("who tried nothing else is on no side", [], a="+ + + - - -", b="- - . + + +"),
    worded("a mean of shares, not of trials", ["negative"], a="+ + + - - -", b="+--- - - + - -", c="+ + + + + +"),
    worded("one task has no rest", [], a="+ + + - - -"),
    worded("nobody tried it", [], a=". . .", b="+ - +"),
    case("no results", {"tasks": ["a"], "results": []}),
    *(drawn(seed, people, tasks, trials) for seed, people, tasks, trials in ((1, 6, 4, 1), (2, 8, 5, 3), (3, 12, 6, 7))),
    refused("no task", {"tasks": [], "results": []}, "there is a task at least"),
    refused("a task twice", {"tasks": ["a", "a"], "results": []}, "each task once"),
    refused("results twice", given(a="+") | {"results": given(a="+")["results"] * 2}, "each participant once for a task"),
    refused("another task", given(a="+") | {"tasks": ["b"]}, "results are of the tasks named"),
    refused("another outcome", {"tasks": ["a"], "results": [{"task": "a", "participant": "p", "outcomes": ["won"]}]}, "of four"),
]

FILES = [File("task-health", "task-health", "What trials say of tasks: dead, flaky, never separating, negative.", CASES)]
