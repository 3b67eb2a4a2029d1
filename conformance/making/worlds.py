"""Small competitions in a few words, for the cases of whole settlements."""

from __future__ import annotations

import copy
from typing import Any

from assay.conformance import answer

Doc = dict[str, Any]

ALONE: Doc = {"min_validators": 1, "min_stake": "0"}
MET = {"B1": True, "B2": True, "B3": True, "B4": True}
CHECKS = [{"id": "C1", "weight": 6000, "skippable": False}, {"id": "C2", "weight": 4000, "skippable": True}]
SEEDED = [{"epoch": epoch, "hex": f"{epoch:064x}"} for epoch in range(6)]


def record(kind: str, validator: str, participant: str, epoch: int = 5, **fields: Any) -> Doc:
    """A record of epoch 5 about the submission `of-<participant>`."""
    head = {"kind": kind, "epoch": epoch, "validator": validator, "participant": participant}
    return head | {"submission": f"of-{participant}", "observed_at": "2026-01-02T03:04:05Z"} | fields


def settled(kind: str, records: list[Doc], **parts: Any) -> Doc:
    """A case of epoch 5 with everybody that the records name: uids from 1, stake 100 each.

    score, consensus, reward, decay, payout: sections of the scheme. people, stakes: what is different of some.
    Anything else is a part of the case.
    """
    people, stakes = parts.pop("people", {}), parts.pop("stakes", {})
    scheme: Doc = {"scheme": {"name": "s", "version": "1"}, "score": {"kind": kind, **parts.pop("score", {})}}
    scheme |= {name: parts.pop(name) for name in ("consensus", "reward", "decay", "payout") if name in parts}
    participants = list(dict.fromkeys([*(row["participant"] for row in records), *people]))
    validators = list(dict.fromkeys([*(row["validator"] for row in records), *stakes]))
    document: Doc = {
        "scheme": scheme,
        "epoch": 5,
        "participants": [
            {"key": key, "uid": place, "submission": f"of-{key}", **people.get(key, {})}
            for place, key in enumerate(participants, 1)
        ],
        "validators": [{"key": key, "stake": stakes.get(key, "100")} for key in validators],
        "evidence": records,
    }
    if kind == "tests":
        document["tasks"] = list(dict.fromkeys(row["task"] for row in records))
    return document | parts


def evidence(scores: Doc, epoch: int = 5) -> list[Doc]:
    """Given scores: participant → the scores by v1, v2, …; None where one says nothing."""
    return [
        record("given", f"v{place}", key, epoch, score=score)
        for key, row in scores.items()
        for place, score in enumerate(row, 1)
        if score is not None
    ]


def given(scores: Doc, **parts: Any) -> Doc:
    """A case of kind `given`; one score instead of a list is what three validators say."""
    rows = {key: [row] * 3 if isinstance(row, str) else row for key, row in scores.items()}
    return settled("given", evidence(rows), **parts)


def tests(outcomes: Doc, **parts: Any) -> Doc:
    """A case of kind `tests`: participant → a word of outcomes by v1, v2, …: p pass, f fail, t timeout, e error, - nothing."""
    names = {"p": "pass", "f": "fail", "t": "timeout", "e": "error"}
    records = [
        record("tests", f"v{place}", key, task=f"t{task}", outcome=names[letter])
        for key, row in outcomes.items()
        for place, word in enumerate(row, 1)
        for task, letter in enumerate(word, 1)
        if letter != "-"
    ]
    longest = max(len(word) for row in outcomes.values() for word in row)
    return settled("tests", records, **{"tasks": [f"t{task}" for task in range(1, longest + 1)], **parts})


def workflow(tasks: list[Doc], **parts: Any) -> Doc:
    """A case of kind `workflow`: records by one validator that is enough; each says what is different from a perfect task."""
    perfect = {
        "quality": "1",
        "steps_completed": 1,
        "steps_total": 1,
        "cost": "0",
        "budget": "1",
        "seconds": "0",
        "max_seconds": "1",
    }
    records = []
    for task in tasks:
        fields = dict(task)
        whole: Doc = {} if fields.get("outcome", "ran") != "ran" else perfect
        records.append(record("workflow", fields.pop("validator", "v1"), fields.pop("participant", "a"), **whole | fields))
    return settled("workflow", records, **{"consensus": ALONE, **parts})


def status(*rows: tuple[str, str, str | None], **more: Any) -> Doc:
    """agreed: (participant, status, reason), in the order of the settlement."""
    return {"agreed": [{"participant": a, "status": b, "reason": c} for a, b, c in rows], **more}


def agreed(*keys: str, **more: Any) -> Doc:
    return status(*((key, "agreed", None) for key in keys), ranking=list(keys), **more)


def after(first: Doc, second: Doc) -> Doc:
    """The second case, with the settlement of the first before it."""
    return second | {"previous": answer("settle", copy.deepcopy(first))}


def weights(*shares: str, **more: Any) -> Doc:
    return {"weights": [{"share": share} for share in shares], **more}
