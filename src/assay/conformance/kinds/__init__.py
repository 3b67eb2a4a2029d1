"""The kinds of case: one for each stage of a settlement, one for the whole, and kinds for formats and the ledger. SPEC 1–7."""

from __future__ import annotations

from collections.abc import Mapping

from assay.conformance.kinds import audits, duels, health, margins, panels, proofs, rewards, stages, witnesses
from assay.conformance.kinds.stages import CaseKind

__all__ = ["KINDS", "CaseKind"]

KINDS: Mapping[str, CaseKind] = {
    found.name: found
    for found in (
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
        panels.panel,
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
        duels.duel,
        margins.margin,
        audits.audit,
        health.task_health,
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
