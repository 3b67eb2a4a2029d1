"""Calls a validator's function in a process of its own: `python -m assay.judge.workflow.call_child MODULE:FUNCTION`.

The request comes on stdin, and the answer goes to stdout. The function's own output goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Calls the function. If it raises, the process ends with 1, which means a broken service."""
    module, _, name = sys.argv[1].partition(":")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.buffer.read())
    function: Any = import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    answer = function(request["action"], request["params"])
    answers.write(json.dumps(answer).encode())
    answers.close()


if __name__ == "__main__":
    main()
