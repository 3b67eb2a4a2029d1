"""What SPEC 7 fills in where a scheme says nothing, in the form that is digested."""

from __future__ import annotations

from typing import Any

Doc = dict[str, Any]

CONSENSUS: Doc = {
    "min_validators": 3,
    "min_stake": "0.3",
    "min_validator_stake": "0",
    "recheck": False,
    "combine": "stake-mean",
    "outliers": {"method": "modified-z", "threshold": "3.5", "mad_floor": "0.01"},
}
REWARD: Doc = {
    "kind": "weights",
    "strategy": "linear",
    "min_score": "0",
    "temperature": "1",
    "top": 1,
    "cap": "0.5",
    "excess": "redistribute",
    "encoding": "round",
}
DECAY: Doc = {
    "curve": "linear",
    "clock": "participant",
    "grace_epochs": 10,
    "rate": "0.05",
    "max_burn": "0.8",
    "burn_uid": 0,
    "reset": "improvement",
    "improvement": "0.02",
    "improvement_mode": "relative",
}
