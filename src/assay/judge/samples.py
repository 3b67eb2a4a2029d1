"""Samples of kinds that `assay init` writes: an invented bounty, rules of issues, and records of invented validators.

It asks the kind for them (`Kind.sample_rules`, `Kind.sample_files`, `Kind.sample`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from assay.scheme.model import PointsScore, RubricScore

__all__ = ["bounty_files", "issues_files", "rubric_sample", "workflow_sample"]

Json = dict[str, Any]

_SPONSORS = re.compile(r"\[\[score\.checks\]\]|\[payout\]|\[\[payout\.tiers\]\]")
"""The beginnings of those sections of a scheme that belong into bounty.toml."""
_BOUNTY = """\
# What the sponsor asks for. `assay bounty check` explains it back, and says what is probably not meant.
# Once somebody works for it, leave it as it is: commitments and judgements name the digest of all of it.

problem = { file = "problem.md" }  # or the text itself: problem = "…"; or sealed to an enclave: `assay seal --problem FILE`

[bounty]
name = "my-bounty"
title = "A bounty to start from"
# sponsor = "x25519:…"             # results are sealed to it: assay keys new sponsor --kind x25519
# commitments_until = 2026-11-20T00:00:00Z   # for sealed solutions: who takes part says so first, with a commitment
# submissions_until = 2026-11-25T00:00:00Z   # solutions after it are refused

[judge]
solution_tokens = 64000            # most tokens of a solution, each byte counted as one; a larger one is refused

[judge.model]
name = "deepseek-ai/DeepSeek-V3"   # asked first, at temperature 0 and seed 42
names = ["deepseek-chat"]          # other names under which a service may serve it; a reply by any other name is an error
format = "json_object"             # how answers are asked for: json_schema, json_object or text; as the service takes it
max_tokens = 8192                  # of one answer
timeout = 300                      # seconds of one request

[judge.fallback]
name = "Qwen/Qwen2.5-72B-Instruct" # where the first one's answers stay malformed, or it cannot be had

# [enclave]                        # what an enclave must measure as; left out: judged without one, by `assay run`
# compose_hash = "…"
"""
_PROBLEM = """\
# What is asked for

Write a library that finds the shortest path in a weighted graph, with a command that reads a graph and two of its nodes.

- It handles a million edges in seconds, and says how that was measured.
- It has tests, and documentation that a newcomer can follow.
- Input that makes no sense ends with a message, not with a traceback.
"""


def bounty_files(text: str) -> dict[str, str]:
    """Path → text: a preset's scheme in two files, and a problem."""
    blocks = re.split(r"\n{2,}", text.strip("\n"))
    own = [block for block in blocks if _SPONSORS.match(block)]
    house = [block for block in blocks if not _SPONSORS.match(block)]
    bounty = "\n\n".join([_BOUNTY.rstrip("\n"), *own]).replace("[[score.checks]]  ", "[[checks]]        ")
    bounty = bounty.replace("[[score.checks]]", "[[checks]]") + "\n"
    return {"scheme.toml": "\n\n".join(house) + "\n", "bounty.toml": bounty, "problem.md": _PROBLEM}


_ACCOUNTS = "participant,url,key\n"
_ISSUES = """# How reported issues are judged. Every validator has the same file; what is counted follows from it and from GitHub.
# The names and ids are an invented sample: put your own in their place. `assay issues id DIR NAME` shows ids.

[github]
api = "https://api.github.com"     # GitHub Enterprise: https://HOST/api/v3

[epochs]
first = 1                          # the number of the first epoch
begins = 2026-11-02T00:00:00Z      # when it begins; what happened before is not looked at
seconds = 86400                    # how long each one lasts: a day
wait = 300                         # seconds after its end before it is judged

[labels]                           # what a maintainer says with a label; the last one set, and not taken off again, decides
valid = ["valid"]
invalid = ["invalid"]
duplicate = ["duplicate"]          # decides too, and counts as neither; listed under invalid, it would count as that

[maintainers]                      # whose labels count: the id of the account; the name is for the reader
kestrel = 9001
# merlin = { id = 9002, since = 2026-11-02T00:00:00Z, until = 2026-12-01T00:00:00Z }    # only while they were one

[repositories]                     # the id of each repository of the scheme's table: names change, and can be taken by others
"""


def issues_files(score: PointsScore) -> dict[str, str]:
    """Path → text: issues.toml for the repositories of the scheme, and an empty accounts.csv."""
    rows = "".join(f'"{name}" = {700_001 + place}\n' for place, name in enumerate(score.repositories))
    return {"issues.toml": _ISSUES + rows, "accounts.csv": _ACCOUNTS}


def workflow_sample(tasks: Sequence[str], level: int) -> Iterator[Json]:
    """Sample records of workflows: level 0 is good, 1 fair, 2 weak."""
    alike = {"steps_total": 4, "budget": "0.05", "max_seconds": "100", "declared_retries": 1, "timeouts": 0}
    for task in tasks:
        yield alike | {
            "task": task,
            "quality": ("1", "0.9", "0.6")[level],
            "steps_completed": (4, 4, 3)[level],
            "cost": ("0.01", "0.02", "0.03")[level],
            "seconds": ("20", "35", "50")[level],
            "retries": level,
            "hard_failures": 0,
        }


def rubric_sample(rules: RubricScore, level: int) -> Iterator[Json]:
    """A sample judgement by a rubric: level 0 is good, 1 fair, 2 weak."""
    ids = [check.id for check in rules.checks]
    skippable = [check.id for check in rules.checks if check.skippable]
    missed = {0: set(skippable[-1:]), 1: set(skippable[-3:]), 2: set(ids[:1])}[level]
    answers = {name: name not in missed for name in ids}
    baseline = {"B1": True, "B2": True, "B3": True, "B4": True}
    yield {"baseline": baseline, "checks": answers, "verdict": ("ELEGANT", "COHERENT", "FLAWED")[level]}
