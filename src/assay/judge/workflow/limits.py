"""Every bound of the workflow judge that a task or a competition does not set itself, by name.

The libraries of the extra `workflow`, imported where they are first needed; without them there is one clear refusal.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from assay.errors import BadInput

PARTS = 2_000_000
"""Brackets, commas and strings of one answer: a part takes many times its bytes in memory."""
NODES, MOST_NODES = 100, 10_000
"""Steps of a plan, unless the task says otherwise, and the most that it may say."""
EDGES, MOST_EDGES = 1_000, 100_000
"""Edges of a plan, likewise."""
PLAN_BYTES, MOST_PLAN_BYTES = 256_000, 16_000_000
"""Bytes of a plan, likewise."""
PLAN_DEPTH = 16
"""Lists and objects inside one another in the params of a step, unless the task says otherwise."""

SERVICES = 1_000
"""Services of a competition."""
ANSWER_BYTES = 1_000_000
"""Bytes of one answer of a service, unless services.toml says otherwise."""
REQUEST_BYTES = 2_000_000
"""Bytes of one request, when the data of earlier steps have been put into it."""
KEPT_BYTES = 16_000_000
"""Bytes that the steps of a run may answer in all."""
NUMBER = 300
"""Characters of a number in an answer; also the largest power of ten in it."""
CALLS = {"http": 64, "command": 2, "python": 4}
"""Calls of one service at one time in a run, unless services.toml says otherwise."""
CALL_SECONDS = 3600
"""The longest time-out that a step may declare, and the longest latency of a task, in seconds."""
GRACE = 0.75
"""Seconds beyond the latency bound that a service may still take to answer its health action: a run ends within one second."""
RETRY_WAIT, LONGEST_WAIT = 0.0625, 1.0
"""Seconds before the second attempt of a step, doubled for every further one, and the most."""

TASK_BYTES = 8_000_000
"""Bytes of each file of a task that is read: its input, its reference."""
DRAWN = 10_000
"""Tasks of a round."""
TESTS = 200
"""Tests of a task of type code."""
CODE_FILES = 200
"""Files that a final output of type code may hold."""
OUTPUT_BYTES = 1_000_000
"""Bytes of what a test prints."""
REGEX_SECONDS = 1.0
"""Seconds that one regular expression has; then it has not matched."""
ROUGE_REFERENCE, ROUGE_OUTPUT = 1_000, 4_000
"""Tokens of a reference, and of an output, of type rag."""
CHECKS = 200
"""Items of a checklist."""

MESSAGE = 500
"""Characters of a message of trouble in what is kept."""
KEPT_ATTEMPTS = 20
"""Attempts of a step that are kept one by one; of more the last."""


def library(name: str) -> Any:
    """The module of that name; raises BadInput if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise BadInput(f"{name} is not installed", hint="pip install 'assay[workflow]'") from None
