"""The scheme with the defaults of SPEC 7 filled in."""

from typing import Any

Doc = dict[str, Any]

WORKFLOW: Doc = {
    "weights": {"success": "0.5", "cost": "0.25", "latency": "0.15", "reliability": "0.1"},
    "gate": "0.7",
    "penalties": {"unplanned_retry": "0.1", "timeout": "0.2", "hard_failure": "0.5"},
    "window": 100,
    "max_retries_per_step": 5,
    "warm_up": None,
}
POINTS: Doc = {"star_points": "0.25", "star_max": "1.25", "full_points": 100, "window_epochs": None}
TESTS: Doc = {"trials": 1, "agent_timeout": "fail"}
CONSENSUS: Doc = {
    "min_validators": 3,
    "min_stake": "30%",
    "combine": "stake-mean",
    "min_validator_stake": "0",
    "recheck": False,
    "assign": None,
    "max_age_epochs": None,
}
REWARD: Doc = {
    "kind": "weights",
    "strategy": "linear",
    "temperature": "1",
    "top": 1,
    "min_score": "0",
    "cap": "50%",
    "excess": "redistribute",
    "encoding": "round",
}
DECAY: Doc = {
    "curve": "linear",
    "clock": "participant",
    "grace_epochs": 10,
    "rate": "5%",
    "max_burn": "80%",
    "burn_uid": 0,
    "reset": "improvement",
    "improvement": "2%",
    "improvement_mode": "relative",
}
PAYOUT: Doc = {
    "threshold_bps": 7000,
    "split": [10000],
    "fee_bps": 0,
    "tiers": [
        {"reach_bps": 10000, "release_bps": 10000},
        {"reach_bps": 8000, "release_bps": 5000},
        {"reach_bps": 5000, "release_bps": 2500},
    ],
}


def filled(scheme: Doc) -> Doc:
    """The scheme with every field that has a default. SPEC 7; the z threshold of 2.0 is from SPEC 3.2."""
    by_kind = {"tests": TESTS, "workflow": WORKFLOW, "points": POINTS}
    score = scheme["score"]
    consensus = dict(scheme.get("consensus") or {})
    outliers = dict(consensus.pop("outliers", None) or {})
    method = outliers.get("method", "modified-z")
    threshold = "2" if method == "z" else "3.5"
    part = {"clip": {"kappa": "50%"}, "trimmed": {"trim": "20%"}}.get(consensus.get("combine", ""), {})
    return {
        "scheme": scheme["scheme"],
        "score": by_kind.get(score["kind"], {}) | score,
        "consensus": CONSENSUS | part | consensus,
        "outliers": {"method": method, "threshold": threshold, "mad_floor": "0.01"} | outliers,
        "reward": REWARD | (scheme.get("reward") or {}),
        "decay": DECAY | (scheme.get("decay") or {}),
        "payout": PAYOUT | (scheme.get("payout") or {}),
        "audit": scheme.get("audit") or {},
    }
