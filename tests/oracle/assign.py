"""Which validators are drawn for a submission: `assign = k`, SPEC 3.0."""

import hashlib
from typing import Any

from .consensus import failed_audits
from .numbers import utf8

Doc = dict[str, Any]


def acceptance_epoch(participant: Doc, kind: str, evidence: list[Doc], epoch: int) -> int | None:
    """The epoch in which the submission was accepted: as recorded, else the first evidence about it. None: neither."""
    if participant.get("accepted_epoch") is not None:
        return int(participant["accepted_epoch"])
    epochs = []
    for record in evidence:
        if record["epoch"] > epoch:
            continue
        if kind == "points" or not participant["submission"]:
            about = record["participant"] == participant["key"]
        else:
            about = record["submission"] == participant["submission"]
        if about:
            epochs.append(record["epoch"])
    return min(epochs) if epochs else None


def assigned(participant: Doc, case: Doc, rules: Doc, epoch: int) -> set[str] | None:
    """The keys of the validators drawn for this participant's submission; None where all may judge. SPEC 3.0."""
    k = rules["consensus"]["assign"]
    if k is None:
        return None
    accepted = acceptance_epoch(participant, rules["score"]["kind"], case["evidence"], epoch)
    if accepted is None:
        return set()
    by_epoch = {row["epoch"]: row["hex"] for row in case["randomness"]}
    seed = bytes.fromhex(by_epoch[accepted])
    subject = participant["submission"] or participant["key"]
    least = int(rules["consensus"]["min_validator_stake"])
    drawn = []
    for validator in case["validators"]:
        stake = int(validator["stake"])
        if stake > 0 and stake >= least and validator["key"] not in failed_audits(rules, case["validators"]):
            material = seed + b"\x00" + utf8(subject) + b"\x00" + utf8(validator["key"])
            drawn.append((hashlib.sha256(material).digest(), validator["key"]))
    return {key for _, key in sorted(drawn)[:k]}
