"""Stage `audit`: that a validator which a scheme leaves out has a signed audit with false claims. docs/auditing.md.

A row of the registry names the audit by its digest; the inputs, and so the receipt, bind the row. The audit itself is checked as
far as it says of itself: who signed it, that it is in its log, and what it saw. `assay audit verify` makes it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import Refused
from assay.ledger.verify.report import Verified
from assay.settle.inputs import Inputs, failed_audits

if TYPE_CHECKING:
    from assay.ledger.audit_log import SignedAudit

__all__ = ["verify_failed_audits"]

STAGE = "audit"


def verify_failed_audits(folder: Path, settled: Inputs, competition: str, into: Verified) -> None:
    """Check each audit that leaves a validator out, where a bundle has its file; raises Refused for one that does not say so.

    folder: of the bundle's audits. An audit that is not there is reported as not checked.
    """
    failed = failed_audits(settled.scheme, settled.validators)
    there = _audits(folder) if failed else {}
    for validator, digest in sorted(failed.items()):
        audit = there.get(digest)
        if audit is None:
            into.not_looked_at(STAGE, f"{validator} is left out for the audit {digest}, which is not in the bundle's audits/")
            continue
        false, judged = _false(audit.predicate, validator)
        if audit.predicate["competition"] != competition or audit.predicate["epoch"] >= settled.epoch:
            what = f"the audit {digest} is of another competition, or of no earlier epoch, so it leaves nobody out"
            raise Refused(STAGE, what, file=audit.path)
        if not false:
            raise Refused(STAGE, f"the audit {digest} saw no false claim of {validator}, which is left out", file=audit.path)
        what = f"{validator} is left out: {false} of its {judged} claims that were judged again were false, by {audit.key.name}"
        into.right(STAGE, what)


def _audits(folder: Path) -> Mapping[str, SignedAudit]:
    """The signed audits in a folder, by the digests of their payloads."""
    from assay.ledger.audit_log import read_audit  # not at the top: audits verify bundles themselves

    audits = [read_audit(path) for path in sorted(folder.glob("*.audit"))]
    return {audit.digest: audit for audit in audits}


def _false(predicate: Mapping[str, Any], validator: str) -> tuple[int, int]:
    """The number of a validator's false claims, and of its claims that were judged again."""
    own = [row["state"] for row in predicate["judged"] if row["validator"] == validator]
    return own.count("false"), len(own)
