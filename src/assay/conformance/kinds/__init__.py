"""The kinds of case: one for each stage of a settlement, one for the whole, and kinds for formats and the ledger. SPEC 1–7."""

from __future__ import annotations

from collections.abc import Mapping

from assay.conformance.kinds import audits, proofs, rewards, rules, stages, witnesses
from assay.conformance.kinds.stages import CaseKind

__all__ = ["KINDS", "CaseKind"]

KINDS: Mapping[str, CaseKind] = {
    case_kind.name: case_kind
    for case_kind in (
        stages.decimal,
        stages.instant,
        stages.canonical,
        stages.apportion,
        stages.scheme,
        stages.record,
        stages.task_set,
        stages.tests,
        stages.workflow,
        stages.rubric,
        stages.rubric_answer,
        stages.panel,
        stages.points,
        stages.assign,
        stages.consensus,
        rewards.strategy,
        rewards.cap,
        rewards.decay,
        rewards.clock,
        rewards.encoding,
        rewards.weights,
        rewards.payout,
        stages.settle,
        stages.emission,
        rules.duel,
        rules.margin,
        audits.audit,
        rules.task_health,
        proofs.merkle_tree,
        proofs.inclusion,
        proofs.consistency,
        proofs.checkpoint,
        witnesses.witnessed,
        witnesses.fork,
        proofs.log_proof,
        proofs.dsse,
        proofs.tile_path,
        proofs.tiled_log,
        proofs.batch,
        proofs.evidence_root,
        proofs.inputs,
        proofs.results_root,
        proofs.signed_receipt,
        proofs.signed_split,
        proofs.proof,
        proofs.verified,
        audits.audit_receipt,
    )
}
"""Name of a kind → the kind, from the ground up."""
