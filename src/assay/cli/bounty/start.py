"""A preset that pays out, as the files of a bounty: the rules of the house in scheme.toml, the sponsor's part in bounty.toml."""

from __future__ import annotations

import re

__all__ = ["files_of"]

_OWN = re.compile(r"\[\[score\.checks\]\]|\[payout\]|\[\[payout\.tiers\]\]")
"""How the sections of a scheme begin that are the sponsor's."""
_HEAD = """\
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


def files_of(text: str) -> dict[str, str]:
    """Path → text: a preset's scheme in two files, and a problem."""
    blocks = re.split(r"\n{2,}", text.strip("\n"))
    own = [block for block in blocks if _OWN.match(block)]
    house = [block for block in blocks if not _OWN.match(block)]
    bounty = "\n\n".join([_HEAD.rstrip("\n"), *own]).replace("[[score.checks]]  ", "[[checks]]        ")
    bounty = bounty.replace("[[score.checks]]", "[[checks]]") + "\n"
    return {"scheme.toml": "\n\n".join(house) + "\n", "bounty.toml": bounty, "problem.md": _PROBLEM}
