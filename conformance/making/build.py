"""Drafts into case files: the package answers, the hand-written part and the oracle must agree with it, else nothing is made."""

from __future__ import annotations

import json
from typing import Any

from assay.conformance import answer, differences
from assay.conformance.cases import SCHEMA, Difference, dumped
from assay.errors import AssayError

from . import (
    agreeing,
    audits,
    bundles,
    clocks,
    decided,
    duels,
    emissions,
    formats,
    generated,
    health,
    kept,
    margins,
    numbers,
    panels,
    payouts,
    proofs,
    refusals,
    rewards,
    scores,
    settlements,
    signed,
    splits,
    witnesses,
)
from .case import CaseDraft, File
from .oracle_side import ANSWERS, digest_of

Doc = dict[str, Any]

__all__ = ["FILES", "Disagreement", "case_text"]

MODULES = (
    numbers,
    formats,
    scores,
    agreeing,
    rewards,
    clocks,
    payouts,
    settlements,
    refusals,
    splits,
    decided,
    duels,
    panels,
    margins,
    health,
    generated,
    proofs,
    signed,
    kept,
    bundles,
    emissions,
    witnesses,
    audits,
)
FILES: list[File] = [file for module in MODULES for file in module.FILES]


class Disagreement(Exception):
    """The package does not answer what the oracle or a person says it must; nothing is written then."""


def case_text(file: File) -> str:
    """The text of a case file; raises Disagreement with the name of the case and the first place that differs."""
    cases = [drafted(file, draft) for draft in file.drafts]
    names = [case["name"] for case in cases]
    if len(set(names)) != len(names):
        raise Disagreement(f"{file.name}: two cases have one name: {next(name for name in names if names.count(name) > 1)}")
    return dumped({"schema": SCHEMA, "kind": file.kind, "about": file.about, "cases": cases})


def drafted(file: File, draft: CaseDraft) -> Doc:
    head = {"name": draft.name, "input": draft.input}
    try:
        output = answer(file.kind, json.loads(json.dumps(draft.input)))
    except AssayError as error:
        if not draft.refused:
            raise Disagreement(f"{file.name}: {draft.name}: refused, and should not be: {error}") from None
        stage, colon, _ = draft.refused.partition(": ")
        if colon and error.reason_code != stage:
            raise Disagreement(f"{file.name}: {draft.name}: refused at another stage: {error}") from None
        return head | {"refused": True, "code": error.reason_code, "why": draft.refused}
    if draft.refused:
        raise Disagreement(f"{file.name}: {draft.name}: not refused, though {draft.refused}")
    hold(file, draft, "written by hand", draft.expect, output)
    ask = ANSWERS.get(file.kind)
    hold(file, draft, "the oracle", None if ask is None else ask(json.loads(json.dumps(draft.input))), output)
    held_digest(file, draft, output)
    return head | {"output": output} | inner(file.kind, draft)


def inner(kind: str, draft: CaseDraft) -> Doc:
    """What an output was made of, for the reader: the settlements of a split, of which it has the digests alone."""
    if kind != "emission":
        return {}
    return {"inner": [answer("settle", load["case"]) for load in json.loads(json.dumps(draft.input))["competitions"]]}


def hold(file: File, draft: CaseDraft, who: str, part: Any, output: Any) -> None:
    """Raises Disagreement unless everything in `part` is in the output."""
    difference = None if part is None else next(missing(part, output), None)
    if difference is not None:
        raise Disagreement(f"{file.name}: {draft.name}: {who}: {difference}")


def missing(part: Any, whole: Any, path: str = "") -> Any:
    """Where `whole` does not contain `part`: fields may be more, elements may not."""
    if isinstance(part, dict) and isinstance(whole, dict):
        for key, value in part.items():
            if key not in whole:
                yield Difference(f"{path}.{key}".lstrip("."), value, "nothing")
            else:
                yield from missing(value, whole[key], f"{path}.{key}".lstrip("."))
    elif isinstance(part, list) and isinstance(whole, list) and len(part) == len(whole):
        for index, (element, other) in enumerate(zip(part, whole, strict=True)):
            yield from missing(element, other, f"{path}[{index}]")
    else:
        yield from differences(part, whole, path)


def held_digest(file: File, draft: CaseDraft, output: Any) -> None:
    """Digests are taken again, without the package."""
    if file.kind in ("settle", "emission"):
        hold(file, draft, "digest", {"digest": digest_of({k: v for k, v in output.items() if k != "digest"})}, output)
    elif file.kind in ("scheme", "record"):
        hold(file, draft, "digest", {"digest": digest_of(output["document"])}, output)
    elif file.kind == "canonical":
        hold(file, draft, "digest", {"digest": digest_of(json.loads(draft.input["json"]))}, output)
