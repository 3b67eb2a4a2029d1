"""Stage `witnesses`: a quorum of a policy cosigned the checkpoint, so everybody is shown this same log. SPEC 6, Witnesses."""

from __future__ import annotations

import time
from pathlib import Path

from assay.errors import Refused
from assay.folder.files import load
from assay.ledger import check
from assay.ledger.check import LogKey
from assay.ledger.cosigning import STAGE, Policy, check_policy, read_policy
from assay.ledger.verify.report import Verified, several, stage

__all__ = ["verify_witnesses"]


def verify_witnesses(policy: Path | None, checkpoint: Path | None, key: LogKey, note: bytes, into: Verified) -> None:
    """Check the checkpoint of a receipt against a policy file; None: nothing is demanded.

    checkpoint: one that was given beside the receipt. It is of the same log, so its witnesses are as good, if it is not older.
    """
    if policy is None:
        return
    rules = read_policy(policy)
    notes = [note]
    if checkpoint is not None:
        other = load(checkpoint, check.NOTE_BYTES, hint="give a checkpoint that was kept earlier")
        with stage(STAGE):
            sizes = [check.check_checkpoint(each, [key], STAGE).size for each in (note, other)]
        notes += [other] if sizes[1] >= sizes[0] else []
    _check_notes(rules, notes, key, policy, into)


def _check_notes(rules: Policy, notes: list[bytes], key: LogKey, policy: Path, into: Verified) -> None:
    """Raise Refused unless one of these checkpoints has a quorum; the last that has is noted in the report."""
    refused: check.CheckError | None = None
    for note in reversed(notes):
        try:
            witnessed = check_policy(rules, note, key)
        except check.CheckError as error:
            refused = refused or error
            continue
        age = "" if witnessed.newest is None else f", the newest {_age(time.time() - witnessed.newest)}"
        entries = several(witnessed.checkpoint.size, "entry", "entries")
        if witnessed.times:
            into.right(STAGE, f"cosigned by {', '.join(witnessed.times)}{age}; this binds the history of {entries}")
        else:
            into.right(STAGE, "the policy demands no witness: that everybody is shown this same log is not proven")
        return
    assert refused is not None
    raise Refused(STAGE, refused.what, expected=refused.expected, found=refused.found, file=policy)


def _age(seconds: float) -> str:
    """The time since something, in the largest unit that fits."""
    ahead, rest = seconds < -60, abs(seconds)
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if rest >= 2 * length:
            return f"{int(rest // length)} {unit} {'in the future' if ahead else 'ago'}"
    return f"{int(rest)} seconds {'in the future' if ahead else 'ago'}"
