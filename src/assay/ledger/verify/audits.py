"""Stage `audit`: the signed audits in a bundle's audits/. docs/auditing.md.

An audit of the bundle's own epoch is made again: draw, martingale and verdict. An audit of an earlier epoch is there because a
row of the registry names it by its digest, and the scheme leaves the validator out; the inputs, and so the receipt, bind the row.
Such an audit is checked as far as it says of itself: who signed it, that it is in its log, and what it saw.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput, Refused
from assay.ledger import bundle
from assay.ledger.check import LogKey, Receipt
from assay.ledger.verify.report import Material, Verified, stage
from assay.settle.inputs import failed_audits

if TYPE_CHECKING:
    from assay.ledger.audit_log import SignedAudit
    from assay.ledger.auditing import AuditedEpoch

__all__ = ["verify_audits"]

STAGE = "audit"


def verify_audits(given: Material, receipt: Receipt, key: LogKey, policy: Path | None, into: Verified) -> None:
    """Check each audit in a bundle whose settlement was computed again; raises Refused for the first that is wrong.

    policy: without one, nothing shows that the time at which the receipt was witnessed, which fixes the draw, is the one that an
    audit states. An audit that leaves a validator out and is not there is reported as not checked.
    """
    assert given.root is not None
    assert into.settlement is not None
    settled = into.settlement.inputs
    failed = failed_audits(settled.scheme, settled.validators)
    marked = {validator.failed_audit for validator in settled.validators}
    there = _audits(given.root / bundle.AUDITS)
    for validator, digest in sorted(failed.items()):
        if digest in there:
            _leaves_out(there[digest], validator, receipt.predicate, into)
        else:
            into.not_looked_at(STAGE, f"{validator} is left out for the audit {digest}, which is not in the bundle's audits/")
    for digest in sorted(marked & there.keys() - set(failed.values())):
        what = f"validators.csv names the audit {digest}, but the scheme leaves nobody out, so it was not looked at"
        into.not_looked_at(STAGE, what)
    own = [audit for digest, audit in there.items() if digest not in marked]
    if own:
        epoch, time = _own_epoch(given.root, receipt, into), _witnessed(policy, receipt, key)
        for audit in own:
            _follows(audit, epoch, time, into)


def _audits(folder: Path) -> Mapping[str, SignedAudit]:
    """The signed audits in a folder, by the digests of their payloads."""
    paths = sorted(folder.glob("*.audit"))
    if not paths:
        return {}
    from assay.ledger.audit_log import read_audit  # not at the top: audits verify bundles themselves

    return {audit.digest: audit for audit in map(read_audit, paths)}


def _leaves_out(audit: SignedAudit, validator: str, predicate: Mapping[str, Any], into: Verified) -> None:
    """Check that an audit of an earlier epoch saw false claims of a validator that is left out."""
    from assay.ledger.auditing import stated_predicate

    with stage(STAGE):
        stated = stated_predicate(audit.payload)
    if stated["competition"] != predicate["competition"] or stated["epoch"] >= predicate["epoch"]:
        what = f"the audit {audit.digest} is of another competition, or of no earlier epoch, so it leaves nobody out"
        raise Refused(STAGE, what, file=audit.path)
    states = [row["state"] for row in stated["judged"] if row["validator"] == validator]
    if not (false := states.count("false")):
        raise Refused(STAGE, f"the audit {audit.digest} saw no false claim of {validator}, which is left out", file=audit.path)
    what = f"{validator} is left out: {false} of its {len(states)} claims that were judged again were false, by {audit.key.name}"
    into.right(STAGE, what)


def _own_epoch(root: Path, receipt: Receipt, into: Verified) -> AuditedEpoch:
    from assay.ledger.auditing import epoch_of

    with stage(STAGE):
        return epoch_of(root, into, receipt, None)


def _witnessed(policy: Path | None, receipt: Receipt, key: LogKey) -> int | None:
    """The time that a policy's witnesses show for the receipt's own checkpoint; None without a quorum there."""
    from assay.ledger.auditing import witnessed

    if policy is not None:
        with suppress(Refused):  # a newer checkpoint may have the quorum
            return witnessed(policy, receipt.proof.checkpoint, key)
    return None


def _follows(audit: SignedAudit, epoch: AuditedEpoch, shown: int | None, into: Verified) -> None:
    """Make an audit of the bundle's epoch again, with the time that it states; and say what is not shown.

    shown: the time at which the policy's witnesses cosigned, seconds since 1970.
    """
    from assay.ledger.audit_log import summary
    from assay.ledger.auditing import GIVEN, check_statement, stated_predicate

    notes = list[str]()
    try:
        with stage(STAGE):
            time = stated_predicate(audit.payload)["witnessed"]
            stated = check_statement(replace(epoch, witnessed=time), audit.payload, on_randomness=notes.append)
    except Refused as refused:
        raise refused.at(file=audit.path) from None
    except BadInput as missing:  # a library is
        into.not_looked_at(STAGE, f"an audit by {audit.key.name}: {missing.what}")
        return
    sentence = summary(stated).removesuffix(".")
    into.right(STAGE, f"{sentence}; draw, martingale and verdict were computed again")
    if stated["randomness"]["source"] == GIVEN:
        into.not_looked_at(STAGE, notes[-1])
    if time not in (None, shown):
        what = (
            "give the policy of its witnesses" if shown is None else f"it states {time}, and the policy's witnesses say {shown}"
        )
        into.not_looked_at(STAGE, f"when the receipt was witnessed, which fixes the draw: {what}")
    into.not_looked_at(STAGE, f"whose audit it is: {audit.key} is the key that it names itself")
