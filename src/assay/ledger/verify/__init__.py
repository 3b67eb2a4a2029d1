"""Verify a receipt, a participant's proof or a bundle: check everything and compute the settlement again, offline and without the
store. SPEC 6.

    receipt → log → consistency → witnesses → chain → evidence → signatures → inputs → settlement → results

receipt       the statement has its shape, and the log's key signed it
log           it is in the log: inclusion proof, signed checkpoint; the tiles, if they are given
consistency   a checkpoint that was seen before is of the same log
witnesses     a quorum of a policy cosigned the checkpoint, so everybody is shown this same log
chain         the receipts from the first on, each naming the one before; the settlement before
evidence      all records of every receipt, in order of acceptance
signatures    every record is in a batch that its validator signed
inputs        scheme, registry, task set
settlement    computed again, compared field by field
results       each participant's result

For a subnet's export (`assay export emission`), `receipt`, `log` and `consistency` check the signed split in the subnet's own
log. Then all stages run for each competition, with the key that the split names, and a last one:

emission      the split is computed again from these settlements, compared field by field

For signed audits in a bundle's audits/, and a duel that is given beside it, two last stages:

audit         the draw, the martingale and the verdict of each audit are computed again
duel          the duel is computed again from the bundle's evidence, compared field by field

For a bundle that is said to be decided, a last stage:

decided       no outcome of a missing trial could have changed a rank, a tier or a weight, or what anybody is paid

The first fault is raised as `assay.Refused`: its stage, its participant, what was expected and what was found. The files may come
from a stranger; whatever is in them, nothing else is raised. A missing file is BadInput.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from assay.errors import BadInput, Refused
from assay.ledger import bundle, check
from assay.ledger.check import LogKey
from assay.ledger.keys import as_bad_input
from assay.ledger.verify import audits, claims, duels, recompute, subnet_bundle, witnesses
from assay.ledger.verify.report import STAGES, Material, StageResult, Verified, gather_material, several
from assay.rules.decided import Until

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


class LastStages(NamedTuple):
    """The needs of a bundle's last stages: a duel's file, what missing trials must not change, the policy of audits."""

    duel: Path | None = None
    until: Until | None = None
    policy: Path | None = None

    def not_looked_at(self, into: Verified) -> None:
        """Say that they take a bundle."""
        for name, asked in (("duel", self.duel), ("decided", self.until)):
            if asked is not None:
                into.not_looked_at(name, "that takes the bundle that `assay export epoch` writes")


NO_LAST = LastStages()


def verify(
    receipt: Path | str,
    *,
    evidence: Path | str | None = None,
    scheme: Path | str | None = None,
    key: str | Sequence[str] | None = None,
    checkpoint: Path | str | None = None,
    log: Path | str | None = None,
    subnet: Path | str | None = None,
    policy: Path | str | None = None,
    duel: Path | str | None = None,
    until: Until | None = None,
) -> Verified:
    """Check a receipt, a participant's proof, or the bundle of an epoch or of a subnet, as far as the given files allow.

    evidence: the bundle, or a file of evidence. scheme: a scheme file that must be the receipt's. key: the log's public key
    (vkey); for a subnet, the key of its own log, and perhaps those of its competitions. Without a key, signatures are checked
    with the key that the receipt itself names. checkpoint: one that was seen before. log: the folder of the log's tiles, if it is
    not in the bundle. subnet: a subnet file that a signed split must follow. policy: a policy file (C2SP tlog-policy); a quorum
    of its witnesses must have cosigned the checkpoint of the receipt, or the one given as `checkpoint`. duel: what `assay duel`
    wrote; it is computed again from the evidence in the bundle. until: what the missing trials of the bundle must not be able to
    change, whatever they would have come to: see `rules.decided`.

    Raises Refused at the first stage that fails, and BadInput for wrong arguments. SPEC 6.
    """
    keys = list(dict.fromkeys(_key(text) for text in ([key] if isinstance(key, str) else key or ())))
    place, into = Path(receipt), Verified()
    given = (("checkpoint", checkpoint), ("log", log), ("policy", policy))
    contest = None if duel is None else Path(duel)
    paths = {name: None if path is None else Path(path) for name, path in given}
    if subnet_bundle.is_joint(place):
        if (evidence, scheme, duel, until) != (None, None, None, None):
            what = "is of a subnet, but --evidence, --scheme, --duel and --until are of a competition"
            raise BadInput(what, file=place, hint="verify one of its competitions by itself")
        last = LastStages(policy=paths["policy"])

        def of_competition(folder: Path, named: LogKey) -> Verified:
            return _of_one(folder, named, Verified(), last=last)

        subnet_bundle.verified(place, keys, of_competition, into, announced=None if subnet is None else Path(subnet), **paths)
        return into
    if subnet is not None:
        what = "is of one competition, so a subnet file does not apply"
        raise BadInput(what, file=place, hint="give what `assay export emission` wrote")
    if len(keys) > 1:
        raise BadInput(f"is of one log, but {len(keys)} keys were given", file=place, hint="give only the key of its log")
    files = {name: None if path is None else Path(path) for name, path in (("evidence", evidence), ("scheme", scheme))}
    return _of_one(place, keys[0] if keys else None, into, **paths, **files, last=LastStages(contest, until, paths["policy"]))


def _of_one(
    receipt: Path,
    known: LogKey | None,
    into: Verified,
    *,
    evidence: Path | None = None,
    scheme: Path | None = None,
    checkpoint: Path | None = None,
    log: Path | None = None,
    policy: Path | None = None,
    last: LastStages = NO_LAST,
) -> Verified:
    """`verify` for one competition; known: its log's key."""
    given = gather_material(receipt, evidence)
    if recompute.is_participant_proof(given.data):
        if receipt.is_dir():  # a valid proof, but nothing else of the bundle would be checked
            raise Refused("receipt", "it is a participant's proof in the place of the receipt", file=given.path)
        checked, used, now = recompute.participant_proof(given.data, known, given.path, into)
    else:
        checked, used = claims.read_receipt(given.data, known, given.path)
        now = claims.check_receipt_file(checked, used, given.path, into, own=known is None)
    tiles = None
    if given.root is not None:
        tiles = claims.log_of(given.root / bundle.LOG, used, now, into, whole=True)
    if log is not None:
        tiles = claims.log_of(log, used, now, into, whole=False)
    if checkpoint is not None:
        claims.consistency(checkpoint, used, now, tiles, into)
    witnesses.verify_witnesses(policy, checkpoint, used, checked.proof.checkpoint, into)
    if not recompute.is_participant_proof(given.data):
        _rest(given, checked, used, now, into, last)
    else:
        last.not_looked_at(into)
    if scheme is not None:
        recompute.same_scheme(scheme, checked.predicate, into)
    return into


def _key(text: str) -> LogKey:
    with as_bad_input("give the log's public key, NAME+HEX+BASE64, as ledger.toml has it"):
        return LogKey.parse(text.strip())


def _rest(given: Material, checked: check.Receipt, key: LogKey, now: check.Checkpoint, into: Verified, last: LastStages) -> None:
    """The stages after `log`, as far as there are files for them."""
    if given.root is not None:
        whole(given, checked, key, now, into, last)
        return
    last.not_looked_at(into)
    if given.alone is not None:
        previous = checked.predicate["previous"]
        records = claims.check_bound(given.alone, checked, 0 if previous is None else previous["epoch"] + 1)
        into.right("evidence", f"{several(len(records.seqs), 'record')} under the evidence root")
    else:
        into.not_looked_at("evidence", "give the bundle of the epoch with --evidence")
    into.not_looked_at("settlement", "it was not computed again: that takes the bundle that `assay export epoch` writes")


def whole(
    given: Material,
    checked: check.Receipt,
    key: LogKey,
    now: check.Checkpoint,
    into: Verified,
    last: LastStages = NO_LAST,
) -> None:
    """The stages from `chain` on, for a checked receipt and its bundle; raises Refused."""
    recompute.check_kind(given, checked.predicate)
    before = claims.check_chain(given, checked, key, now, into)
    records = claims.check_held(given, before.receipts, into)
    judged = claims.check_signed(given, records, checked.predicate["competition"], now.origin, into)
    into.settlement = recompute.settlement(given, before, judged, records, into)
    audits.verify_audits(given, checked, key, last.policy, into)
    if last.duel is not None:
        bodies = (body for seq, body in recompute.in_order([*given.evidence.values()]) if seq not in into.left_out)
        duels.verify_duel(last.duel, into.settlement.inputs, before.receipts, bodies, into)
    if last.until is not None:
        recompute.verify_decided(into.settlement, last.until, into)
