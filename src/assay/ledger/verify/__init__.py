"""Verifying a receipt: everything checked, the settlement computed again, without the store and without the network. SPEC 6.

    receipt → log → consistency → chain → evidence → signatures → inputs → settlement → results

receipt       the statement has its shape, and the log's key signed it
log           it is in the log: inclusion proof, signed checkpoint; the tiles, where they are given
consistency   a checkpoint that was seen before is of the same log
chain         the receipts from the first on, each naming the one before; the settlement before
evidence      all records of every receipt, in order of acceptance
signatures    every record is in a batch that its validator signed
inputs        scheme, registry, task set
settlement    computed again, compared field by field
results       each participant's result

Of a subnet, which `assay export emission` writes, that is done for each competition, and then
emission      the split is computed again from these settlements, compared field by field

What is wrong first is raised as `assay.Refused`: its stage, whose it is, what was expected and what was found. The files may be
a stranger's; nothing in them makes it fail in another way. That a file is missing is BadInput.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.errors import BadInput, Refused
from assay.ledger import bundle, check
from assay.ledger.check import LogKey
from assay.ledger.refusal import as_bad_input
from assay.ledger.verify import joint, own, receipts, recompute, said
from assay.ledger.verify.material import Material, gathered
from assay.ledger.verify.report import STAGES, Check, Verified, several

__all__ = ["STAGES", "Check", "Material", "Verified", "gathered", "own", "receipts", "verify", "whole"]


def verify(
    receipt: Path | str,
    *,
    evidence: Path | str | None = None,
    scheme: Path | str | None = None,
    key: str | Sequence[str] | None = None,
    checkpoint: Path | str | None = None,
    log: Path | str | None = None,
) -> Verified:
    """Check a receipt, a participant's proof, the bundle of an epoch or of a subnet; what could be checked with what is there.

    evidence: the bundle, or a file of evidence. scheme: a scheme file that must be the receipt's. key: the log's public key
    (vkey), for a subnet those of its logs; without any the receipt is checked by the key that it names itself. checkpoint: one
    that was seen before. log: the folder of the log's tiles, if it is not in the bundle.

    Raises Refused at the first stage that is not right, and BadInput for what was not given rightly. SPEC 6.
    """
    keys = [_key(one) for one in ([key] if isinstance(key, str) else key or ())]
    into = Verified()
    if joint.is_joint(Path(receipt)):
        if (evidence, scheme, checkpoint, log) != (None, None, None, None):
            what = "is of a subnet, and what is checked beside it is of a competition"
            raise BadInput(what, file=Path(receipt), hint="verify one of its competitions by itself")
        joint.verified(Path(receipt), keys, verify, into)
        return into
    given = gathered(Path(receipt), None if evidence is None else Path(evidence))
    known = _chosen(keys, given)
    if own.is_proof(given.data):
        if Path(receipt).is_dir():  # it would be right, and nothing beside it would have been looked at
            raise Refused("receipt", "it is a participant's proof in the place of the receipt", file=given.path)
        one, used, now = own.own(given.data, known, given.path, into)
    else:
        one, used = receipts.read(given.data, known, given.path)
        now = receipts.receipt(one, used, given.path, into, own=known is None)
    tiles = None
    if given.root is not None:
        tiles = receipts.log_of(given.root / bundle.LOG, used, now, into, whole=True)
    if log is not None:
        tiles = receipts.log_of(Path(log), used, now, into, whole=False)
    if checkpoint is not None:
        receipts.consistency(Path(checkpoint), used, now, tiles, into)
    if not own.is_proof(given.data):
        _rest(given, one, used, now, into)
    if scheme is not None:
        recompute.same_scheme(Path(scheme), one.predicate, into)
    return into


def _key(text: str) -> LogKey:
    with as_bad_input("give the log's public key, NAME+HEX+BASE64, as ledger.toml has it"):
        return LogKey.parse(text.strip())


def _chosen(keys: Sequence[LogKey], given: Material) -> LogKey | None:
    """The key that a receipt is to be checked by: of several the one whose log it says it is in, or else the first."""
    if len(keys) < 2:
        return keys[0] if keys else None
    return next((key for key in keys if f"\\n{key.name}\\n".encode() in given.data), keys[0])


def _rest(given: Material, one: check.Receipt, key: LogKey, now: check.Checkpoint, into: Verified) -> None:
    """The stages after the log, as far as there are files for them."""
    if given.root is not None:
        whole(given, one, key, now, into)
        return
    if given.alone is not None:
        previous = one.predicate["previous"]
        found = said.bound(given.alone, one, 0 if previous is None else previous["epoch"] + 1)
        into.right("evidence", f"{several(len(found.seqs), 'record')} under the evidence root")
    else:
        into.not_looked_at("evidence", "give the bundle of the epoch with --evidence")
    into.not_looked_at("settlement", "it was not computed again: that takes the bundle that `assay export epoch` writes")


def whole(given: Material, one: check.Receipt, key: LogKey, now: check.Checkpoint, into: Verified) -> None:
    """The stages from `chain` on, for a receipt that is right and the bundle that it is in; raises Refused."""
    before = receipts.chain(given, one, key, now, into)
    found = said.held(given, before.receipts, into)
    judged = said.signed(given, found, one.predicate["competition"], now.origin, into)
    into.settlement = recompute.settlement(given, before, judged, into)
