"""Names the limits of the workflow judge that a task or a competition does not set itself."""

from __future__ import annotations

PARTS = 2_000_000
"""Brackets, commas and strings of one answer. In memory, each takes many times its bytes."""
NODES, MOST_NODES = 100, 10_000
"""Steps of a plan: the default, and the most that a task may allow."""
EDGES, MOST_EDGES = 1_000, 100_000
"""Edges of a plan: the default, and the most that a task may allow."""
PLAN_BYTES, MOST_PLAN_BYTES = 256_000, 16_000_000
"""Bytes of a plan: the default, and the most that a task may allow."""
PLAN_DEPTH = 16
"""Lists and objects inside one another in the params of a step: the default."""

SERVICES = 1_000
"""Services of a competition."""
ANSWER_BYTES = 1_000_000
"""Bytes of one answer of a service, unless services.toml says otherwise."""
REQUEST_BYTES = 2_000_000
"""Bytes of one request, including the data of earlier steps."""
KEPT_BYTES = 16_000_000
"""Bytes of all answers to the steps of a run."""
NUMBER = 300
"""Characters of a number in an answer; also the largest power of ten in it."""
CALLS = {"http": 64, "command": 2, "python": 4}
"""Calls of one service at one time in a run, unless services.toml says otherwise."""
CALL_SECONDS = 3600
"""The longest time-out that a step may declare, and the longest latency of a task, in seconds."""
GRACE = 0.75
"""Seconds after the latency bound in which a service may still answer its health action; a run ends within one second."""
RETRY_WAIT, LONGEST_WAIT = 0.0625, 1.0
"""Seconds before the second attempt of a step, doubled for each further attempt; and the longest wait."""

TASK_BYTES = 8_000_000
"""Bytes of each file of a task that is read, such as the input and the reference."""
DRAWN = 10_000
"""Tasks of a round."""
TESTS = 200
"""Tests of a task of type code."""
CODE_FILES = 200
"""Files of an output of type code."""
OUTPUT_BYTES = 1_000_000
"""Bytes of a test's output."""
REGEX_SECONDS = 1.0
"""Seconds of one regular expression; after that it does not match."""
ROUGE_REFERENCE, ROUGE_OUTPUT = 1_000, 4_000
"""Tokens of a reference, and of an output, of type rag."""
CHECKS = 200
"""Items of a checklist."""

MESSAGE = 500
"""Characters of a message in a record."""
KEPT_ATTEMPTS = 20
"""Attempts of a step in a record; of more attempts, the last ones are stored."""
