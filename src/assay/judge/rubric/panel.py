"""Panels of judges: which answers are asked for, the judgement that they make, its transcript. SPEC 2.3, docs/rubric.md.

Each answer is a judgement by itself, of one model. `settle` decides by them (`assay.settle.score.panel`); here they become one
document, so that one digest, and one quote of an enclave, binds all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

from assay.errors import BadInput
from assay.exact import canonical
from assay.judge.rubric.judgement import JUDGEMENT_SCHEMA, TRANSCRIPT_BYTES, Judgement, panel_answers
from assay.judge.rubric.questions import PanelSeat
from assay.records import Rubric
from assay.scheme.bounty import Bounty
from assay.settle.score.rubric import decide

__all__ = ["answer_documents", "panel_differs", "panel_judgement", "seats", "split_transcript"]

TRANSCRIPTS_SCHEMA = "assay.panel-transcript/1"


def seats(bounty: Bounty) -> list[PanelSeat]:
    """The answers that a bounty's panel has; none if it has no panel."""
    count = 0 if bounty.rules.panel is None else bounty.rules.panel.answers
    return [PanelSeat(answer, count) for answer in range(1, count + 1)]


def panel_judgement(answers: Sequence[Judgement], bounty: Bounty) -> Judgement:
    """The judgement of all answers of a panel, in their order. SPEC 2.3."""
    first = answers[0]
    decision = decide(panel_answers(answers), bounty.rules)
    models = {answer.model for answer in answers}
    costs = [answer.measured for answer in answers if answer.measured is not None]
    return replace(
        first,
        outcome="judged" if decision.why is None else "unjudged",
        baseline=decision.baseline,
        checks=decision.checks,
        verdict=decision.verdict,
        quotes={
            name: text for name, yes in (decision.checks or {}).items() if yes and (text := _quote(answers, name)) is not None
        },
        reasons={
            f"{number}.{name}": reason for number, answer in enumerate(answers, 1) for name, reason in answer.reasons.items()
        },
        reason=decision.why,
        model=first.model if len(models) == 1 else None,
        asked={str(number): answer.asked["primary"] for number, answer in enumerate(answers, 1)},
        fallback=None,
        words=next((answer.words for answer in answers if answer.words), ""),
        exchanges=tuple(exchange for answer in answers for exchange in answer.exchanges),
        transcript=canonical({"schema": TRANSCRIPTS_SCHEMA, "answers": [answer.transcript.decode() for answer in answers]}),
        measured=reduce(add, costs) if len(costs) == len(answers) else None,
        panel=tuple(answers),
    )


def _quote(answers: Sequence[Judgement], name: str) -> str | None:
    """The quote of the first answer that says YES."""
    return next((answer.quotes[name] for answer in answers if name in answer.quotes), None)


def split_transcript(data: bytes) -> list[bytes]:
    """The transcripts of a panel's answers. Raises BadInput if it is not what `panel_judgement` joined."""
    hint = "give the transcript as it was stored"
    try:
        document: Any = json.loads(data) if len(data) <= 2 * TRANSCRIPT_BYTES else None
        if document["schema"] == TRANSCRIPTS_SCHEMA and canonical(document) == data:
            return [answer.encode() for answer in document["answers"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise BadInput("this is not the transcript of a panel", hint=hint)


def answer_documents(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The documents of a judgement's answers; of one without a panel, it alone."""
    answers: list[Mapping[str, Any]] = document.get("answers", [document])
    return answers


def panel_differs(document: Mapping[str, Any], record: Rubric) -> bool:
    """Whether a panel's document has other answers than the record that names it, or answers about something else."""
    recorded = None if record.panel is None else [answer.model_dump(mode="json", exclude_none=True) for answer in record.panel]
    try:
        answers = [_as_kept(answer) for answer in document["answers"]]
        about = {(answer["schema"], answer["bounty"], answer["submission"]) for answer in document["answers"]}
        return about != {(JUDGEMENT_SCHEMA, document["bounty"], record.submission)} or canonical(answers) != canonical(recorded)
    except (KeyError, TypeError, AttributeError):
        return True


def _as_kept(answer: Mapping[str, Any]) -> dict[str, Any]:
    judge = answer["asked"]["primary" if answer["fallback"] is None else "fallback"]["name"]
    answers = {name: answer[name] for name in ("baseline", "checks", "verdict") if answer[name] is not None}
    return {"judge": judge, "outcome": answer["outcome"], **answers}
