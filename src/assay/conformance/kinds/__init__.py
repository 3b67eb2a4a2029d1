"""The kinds of case: one for each stage of a settlement, one for the whole, some for formats, some for the ledger. SPEC 1–7."""

from __future__ import annotations

from collections.abc import Mapping

from assay.conformance.kinds import agreeing, numbers, proving, rewards, scores, settled, whole
from assay.conformance.kinds.kind import Kind

__all__ = ["KINDS", "Kind"]

KINDS: Mapping[str, Kind] = {
    found.name: found
    for found in (
        numbers.decimal,
        numbers.instant,
        numbers.canonical,
        numbers.apportion,
        whole.scheme,
        whole.record,
        scores.task_set,
        scores.tests,
        scores.workflow,
        scores.rubric,
        scores.rubric_answer,
        scores.points,
        agreeing.assign,
        agreeing.consensus,
        rewards.strategy,
        rewards.cap,
        rewards.decay,
        rewards.clock,
        rewards.encoding,
        rewards.weights,
        rewards.payout,
        whole.settle,
        whole.emission,
        proving.merkle_tree,
        proving.inclusion,
        proving.consistency,
        proving.checkpoint,
        proving.log_proof,
        proving.dsse,
        proving.tile_path,
        proving.tiled_log,
        proving.batch,
        settled.evidence_root,
        settled.inputs,
        settled.results_root,
        settled.signed_receipt,
        settled.signed_split,
        settled.proof,
        settled.verified,
    )
}
"""Name of a kind → the kind, from the ground up."""
