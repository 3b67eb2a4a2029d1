"""Small invented registries and evidence for `assay init`: enough to see a board, and little enough to read.

Three validators judge three participants; in a ranking three runs try three agents. What they saw is made of the scheme
itself: its tasks, checks and repositories.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from assay.cli.bounty import start as bounty
from assay.cli.issues import start as issues
from assay.scheme.load import parse
from assay.scheme.model import PointsScore, RubricScore, Scheme

__all__ = ["SUBNET", "files_of"]

SUBNET = "my-subnet.toml"
MEMBERS = ("term-challenge", "bounty-challenge")
EPOCH = 1
SEEN = "2026-11-02T12:00:00Z"
PARTICIPANTS = ("key", "uid", "name", "submission", "submitted_at", "address")
TASKS = tuple(f"task-{number:02}" for number in range(1, 13))
PEOPLE = ("miner-a", "miner-b", "miner-c")
AGENTS = ("agent-a", "agent-b", "agent-c")
RUNS = ("run-1", "run-2", "run-3")
STAKES = {"validator-1": 400, "validator-2": 350, "validator-3": 250}

Record = dict[str, Any]
Files = dict[str, str]


def files_of(preset: str, texts: Mapping[str, str]) -> Files:
    """Path → text of everything that a preset's folder begins with; `texts` are the presets."""
    if preset != "platform":
        return _competition(texts[preset])
    files = {SUBNET: texts[preset]}
    for member in MEMBERS:
        files |= {f"{member}/{name}": text for name, text in _competition(texts[member]).items()}
    return files


def _competition(text: str) -> Files:
    scheme = parse(text)
    pays = scheme.payout is not None
    ranks, people = scheme.reward.kind == "ranking", PEOPLE
    stakes = dict.fromkeys(["enclave-1"], 1) if scheme.consensus.min_validators == 1 else STAKES
    if ranks:
        stakes, people = dict.fromkeys(RUNS, 1), AGENTS
    columns = ("key", "name", "submission", "submitted_at") if ranks else PARTICIPANTS
    files = bounty.files_of(text) if scheme.score.kind == "rubric" else {"scheme.toml": text}
    files |= {
        "participants.csv": _table(columns, _participants(people, pays, ranks)),
        "validators.csv": _table(("key", "stake", "name"), [(key, stake, "") for key, stake in stakes.items()]),
    }
    if isinstance(scheme.score, PointsScore):
        files |= issues.files_of(scheme.score)
    if scheme.score.kind == "tests":
        files["tasks.txt"] = "".join(f"{task}\n" for task in TASKS)
    records = list(_evidence(scheme, tuple(stakes), people))
    files["evidence/README.md"] = _readme(scheme, records[0])
    files["evidence/sample.jsonl"] = "".join(json.dumps(record) + "\n" for record in records)
    return files


def _participants(people: Sequence[str], pays: bool, ranks: bool) -> Iterator[tuple[object, ...]]:
    for at, key in enumerate(people):
        address = "0x" + sha256(f"address of {key}".encode()).hexdigest()[:40] if pays else ""
        said = "", submission(key), f"2026-11-0{at + 1}T09:00:00Z"
        yield (key, *said) if ranks else (key, "" if pays else at + 1, *said, address)


def submission(key: str) -> str:
    """The digest that stands for a sample submission."""
    return f"sha256:{sha256(f'sample submission of {key}'.encode()).hexdigest()}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _evidence(scheme: Scheme, validators: Sequence[str], people: Sequence[str]) -> Iterator[Record]:
    """What each validator saw of each participant: the first is good, the second fair, the third weak."""
    make = {"tests": _tests, "rubric": _rubric, "workflow": _workflow, "points": _points, "given": _given}[scheme.score.kind]
    for judge, validator in enumerate(validators):
        for level, key in enumerate(people):
            base = {"kind": scheme.score.kind, "epoch": EPOCH, "validator": validator, "participant": key}
            base |= {"submission": submission(key), "observed_at": SEEN}
            for seen in make(scheme, judge, level):
                yield base | seen


def _tests(scheme: Scheme, judge: int, level: int) -> Iterator[Record]:
    passes = (9, 7, 3)[level] - (judge == 1 and level == 1)
    for at, task in enumerate(TASKS):
        for trial in range(1, getattr(scheme.score, "trials", 1) + 1):
            yield {"task": task, "trial": trial, "outcome": "pass" if at < passes else "timeout" if at == 11 else "fail"}


def _rubric(scheme: Scheme, judge: int, level: int) -> Iterator[Record]:
    score = scheme.score
    if isinstance(score, RubricScore):
        ids = [check.id for check in score.checks]
        skippable = [check.id for check in score.checks if check.skippable]
        missed = {0: set(skippable[-1:]), 1: set(skippable[-3:]), 2: set(ids[:1])}[level]
        answers = {name: name not in missed for name in ids}
        baseline = {"B1": True, "B2": True, "B3": True, "B4": True}
        yield {"baseline": baseline, "checks": answers, "verdict": ("ELEGANT", "COHERENT", "FLAWED")[level]}


def _workflow(scheme: Scheme, judge: int, level: int) -> Iterator[Record]:
    for task in TASKS[:4]:
        yield {
            "task": task,
            "quality": ("1", "0.9", "0.6")[level],
            "steps_completed": (4, 4, 3)[level],
            "steps_total": 4,
            "cost": ("0.01", "0.02", "0.03")[level],
            "budget": "0.05",
            "seconds": ("20", "35", "50")[level],
            "max_seconds": "100",
            "retries": level,
            "declared_retries": 1,
            "timeouts": 0,
            "hard_failures": 0,
        }


def _points(scheme: Scheme, judge: int, level: int) -> Iterator[Record]:
    score = scheme.score
    if isinstance(score, PointsScore):
        for repository in score.repositories:
            yield {"repository": repository, "valid": (9, 5, 1)[level], "invalid": (1, 0, 2)[level], "starred": level < 2}


def _given(scheme: Scheme, judge: int, level: int) -> Iterator[Record]:
    yield {"score": ("0.9", "0.7", "0.2")[level]}


def _readme(scheme: Scheme, first: Record) -> str:
    kind = scheme.score.kind
    fields = "\n".join(f"- `{name}`: {said}" for name, said in {**_COMMON, **_FIELDS[kind]}.items())
    return f"""# Evidence

One record a line, in as many `.jsonl` files as you like. A record is what one validator saw, of kind `{kind}`:

```json
{json.dumps(first)}
```

{fields}

Fractions and amounts are written in quotes, as decimal strings: `"0.8"`. A validator and a participant must stand in
`validators.csv` and `participants.csv`. Evidence counts while the submission that it is about is the participant's current one.

`sample.jsonl` is invented. Delete it when you have evidence of your own.
"""


_COMMON = {
    "epoch": "the epoch in which it was seen",
    "validator`, `participant": "their keys",
    "submission": "digest of what was judged; it must be the participant's current one to count",
    "observed_at": "when, with a time zone",
}
_FIELDS: dict[str, dict[str, str]] = {
    "tests": {
        "task": "an id of `tasks.txt`",
        "outcome": "`pass`, `fail`, `timeout` (a fail), or `error`: not the participant's fault, so the trial is missing",
        "trial": "1, 2, … as far as the scheme's `trials`; left out it is 1",
    },
    "rubric": {
        "baseline": "B1 legal, B2 ethical, B3 not spam, B4 addresses the problem; `true` = met",
        "checks": "every check of the scheme by its id, `true` = YES",
        "verdict": "EXCEPTIONAL, ELEGANT, COHERENT, MINOR_ISSUES, FLAWED or FUNDAMENTALLY_BROKEN",
        "outcome": "`judged` (default), or `unjudged` where the judge failed",
    },
    "workflow": {
        "task": "the task's id",
        "quality`, `steps_completed`, `steps_total": "how good the output is (0 to 1), and how far the workflow came",
        "cost`, `budget`, `seconds`, `max_seconds": "what it took and what it was allowed",
        "retries`, `declared_retries`, `timeouts`, `hard_failures": "what went wrong on the way",
        "outcome": "`ran` (default), `invalid` (no answer or an invalid plan: 0), `service-error` (the validator's own trouble)",
    },
    "points": {
        "repository": "`owner/name`, as in the scheme",
        "valid`, `invalid": "issues of this epoch",
        "revoked_valid`, `revoked_invalid": "issues of earlier epochs that are so no longer",
        "starred": "whether the participant stars the repository",
    },
    "given": {"score": "0 to 1"},
}
