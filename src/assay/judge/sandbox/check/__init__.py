"""What any sandbox must hold, tried out on this machine: `assay sandbox check`. SPEC 2.1.

Every check gets a bench with the sandbox and says what is wrong, or nothing. Boxes need no more than a shell and the usual small
programs. Whatever a broken sandbox would let through does no harm: the clock is set to what it shows, settings to what they are.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from assay.errors import AssayError
from assay.judge.sandbox.box import Image, Sandbox
from assay.judge.sandbox.check import bounds, closed
from assay.judge.sandbox.check.bench import LIMITS, Bench, Check, CheckFailed, Result

__all__ = ["CHECKS", "LIMITS", "Bench", "Check", "CheckFailed", "Result", "check"]

CHECKS = closed.CHECKS | bounds.CHECKS
"""By what they hold, in the order in which they are carried out."""


def check(sandbox: Sandbox, image: Image | None = None) -> Iterator[Result]:
    """Carries out every check, in boxes from this image or the sandbox's plain one; raises Trouble if it has none."""
    chosen = image or sandbox.image()
    for name, one in CHECKS.items():
        with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
            os.chmod(folder, 0o755)
            try:
                why = one(Bench(sandbox, chosen, Path(folder), f"assay{secrets.token_hex(12)}"))
            except AssayError as error:
                why = str(error)
        yield Result(name, not why, why)
