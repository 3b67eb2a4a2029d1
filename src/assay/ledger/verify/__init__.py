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

Of a subnet, which `assay export emission` writes, `receipt`, `log` and `consistency` are of its signed split and its own log;
then all of it is done for each competition, by the key that the split names, and
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
from assay.ledger.keys import as_bad_input
from assay.ledger.verify import claims, recompute, subnet_bundle
from assay.ledger.verify.report import STAGES, Material, StageResult, Verified, gather_material, several

__all__ = [
    "STAGES",
    "Material",
    "StageResult",
    "Verified",
    "claims",
    "gather_material",
    "recompute",
    "subnet_bundle",
    "verify",
    "whole",
]


def verify(
    receipt: Path | str,
    *,
    evidence: Path | str | None = None,
    scheme: Path | str | None = None,
    key: str | Sequence[str] | None = None,
    checkpoint: Path | str | None = None,
    log: Path | str | None = None,
    subnet: Path | str | None = None,
) -> Verified:
    """Check a receipt, a participant's proof, the bundle of an epoch or of a subnet; what could be checked with what is there.

    evidence: the bundle, or a file of evidence. scheme: a scheme file that must be the receipt's. key: the log's public key
    (vkey), for a subnet that of its own log, and perhaps those of its competitions', which its signed split names; without any,
    what is signed is checked by the key that it names itself. checkpoint: one that was seen before. log: the folder of the log's
    tiles, if it is not in the bundle. subnet: a subnet file that a signed split must follow.

    Raises Refused at the first stage that is not right, and BadInput for what was not given rightly. SPEC 6.
    """
    keys = list(dict.fromkeys(_key(one) for one in ([key] if isinstance(key, str) else key or ())))
    place, into = Path(receipt), Verified()
    paths = {name: None if path is None else Path(path) for name, path in (("checkpoint", checkpoint), ("log", log))}
    if subnet_bundle.is_joint(place):
        if (evidence, scheme) != (None, None):
            what = "is of a subnet, and what is checked beside it is of a competition"
            raise BadInput(what, file=place, hint="verify one of its competitions by itself")
        announced = None if subnet is None else Path(subnet)
        subnet_bundle.verified(
            place, keys, lambda one, named: _of_one(one, named, Verified()), into, announced=announced, **paths
        )
        return into
    if subnet is not None:
        what = "is of one competition, and a subnet file says nothing of it"
        raise BadInput(what, file=place, hint="give what `assay export emission` wrote")
    if len(keys) > 1:
        raise BadInput(f"is of one log, and {len(keys)} keys were given", file=place, hint="give the key of its log alone")
    files = {name: None if path is None else Path(path) for name, path in (("evidence", evidence), ("scheme", scheme))}
    return _of_one(place, keys[0] if keys else None, into, **paths, **files)


def _of_one(
    receipt: Path,
    known: LogKey | None,
    into: Verified,
    *,
    evidence: Path | None = None,
    scheme: Path | None = None,
    checkpoint: Path | None = None,
    log: Path | None = None,
) -> Verified:
    """The same of one competition."""
    given = gather_material(receipt, evidence)
    if recompute.is_participant_proof(given.data):
        if receipt.is_dir():  # it would be right, and nothing beside it would have been looked at
            raise Refused("receipt", "it is a participant's proof in the place of the receipt", file=given.path)
        one, used, now = recompute.participant_proof(given.data, known, given.path, into)
    else:
        one, used = claims.read_receipt(given.data, known, given.path)
        now = claims.check_receipt_file(one, used, given.path, into, own=known is None)
    tiles = None
    if given.root is not None:
        tiles = claims.log_of(given.root / bundle.LOG, used, now, into, whole=True)
    if log is not None:
        tiles = claims.log_of(log, used, now, into, whole=False)
    if checkpoint is not None:
        claims.consistency(checkpoint, used, now, tiles, into)
    if not recompute.is_participant_proof(given.data):
        _rest(given, one, used, now, into)
    if scheme is not None:
        recompute.same_scheme(scheme, one.predicate, into)
    return into


def _key(text: str) -> LogKey:
    with as_bad_input("give the log's public key, NAME+HEX+BASE64, as ledger.toml has it"):
        return LogKey.parse(text.strip())


def _rest(given: Material, one: check.Receipt, key: LogKey, now: check.Checkpoint, into: Verified) -> None:
    """The stages after the log, as far as there are files for them."""
    if given.root is not None:
        whole(given, one, key, now, into)
        return
    if given.alone is not None:
        previous = one.predicate["previous"]
        found = claims.check_bound(given.alone, one, 0 if previous is None else previous["epoch"] + 1)
        into.right("evidence", f"{several(len(found.seqs), 'record')} under the evidence root")
    else:
        into.not_looked_at("evidence", "give the bundle of the epoch with --evidence")
    into.not_looked_at("settlement", "it was not computed again: that takes the bundle that `assay export epoch` writes")


def whole(given: Material, one: check.Receipt, key: LogKey, now: check.Checkpoint, into: Verified) -> None:
    """The stages from `chain` on, for a receipt that is right and the bundle that it is in; raises Refused."""
    recompute.check_kind(given, one.predicate)
    before = claims.check_chain(given, one, key, now, into)
    found = claims.check_held(given, before.receipts, into)
    judged = claims.check_signed(given, found, one.predicate["competition"], now.origin, into)
    into.settlement = recompute.settlement(given, before, judged, into)
