"""Reading scheme files: TOML becomes a `Scheme`, or one helpful refusal. SPEC 7."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

from assay import exact
from assay import kind as kinds
from assay.errors import BadInput, suggest
from assay.scheme import clock
from assay.scheme.model import Scheme
from assay.scheme.reading import line_of, parse_toml, present, read_toml, validate

__all__ = ["BOUNTY", "parse", "presets", "read", "warnings"]

BOUNTY = "bounty.toml"
"""The file of a bounty, beside its scheme; `assay.scheme.bounty` reads the whole of it."""
SECTIONS = ("problem", "bounty", "checks", "payout", "judge", "enclave")
"""The sections that it may have."""


def read(path: Path) -> Scheme:
    """The scheme in a TOML file, checks and payout from a `bounty.toml` beside it if there is one; raises BadInput. SPEC 7."""
    content, source = read_toml(path)
    score = content.get("score")
    name = score.get("kind") if isinstance(score, dict) else None
    if kinds.known(name) and (beside := kinds.find(str(name)).beside) and present(path.with_name(beside)):
        return _with_bounty(content, source, path, path.with_name(beside))
    return validate(Scheme, content, file=path, source=source)


def _with_bounty(content: dict[str, Any], source: str, path: Path, bounty: Path) -> Scheme:
    extra, text = read_toml(bounty)
    score = content["score"]
    for name in extra:
        if name not in SECTIONS:
            hint = suggest(name, SECTIONS, f"use {', '.join(SECTIONS)}")
            raise BadInput(f"there is no {name[:80]!r} here", file=bounty, line=line_of(text, [name]), field=name, hint=hint)
    for name, already in (("checks", "checks" in score), ("payout", "payout" in content)):
        if name in extra and already:
            what, hint = f"stands in {path.name} too", "keep it in one of the two files"
            raise BadInput(what, file=bounty, line=line_of(text, [name]), field=name, hint=hint)
    merged = content | {"score": score | {key: extra[key] for key in ("checks",) if key in extra}}
    merged |= {key: extra[key] for key in ("payout",) if key in extra}
    try:
        return validate(Scheme, merged, file=path, source=source)
    except BadInput as error:
        field = error.field.removeprefix("score.")
        if field == "score" and "checks" in extra:
            field = "checks"  # what is wrong with a rubric as a whole is wrong with its checks
        section = re.split(r"[.\[]", field)[0]
        if section in extra or (section == "checks" and "checks" not in score):
            error.file, error.field, error.line = bounty, field, line_of(text, _parts(field))
        raise


def _parts(field: str) -> list[int | str]:
    """The path that `_path` wrote: `checks[3].weight` is checks, 3, weight."""
    return [int(part[1:-1]) if part.startswith("[") else part for part in re.findall(r"\[[0-9]+\]|[^.\[\]]+", field)]


def parse(source: str, *, file: Path | str | None = None) -> Scheme:
    """The scheme in a TOML text; raises BadInput."""
    return validate(Scheme, parse_toml(source, file), file=file, source=source)


def presets() -> dict[str, str]:
    """The schemes that ship with the package: name → text of the file."""
    folder = resources.files("assay.scheme") / "presets"
    texts = {
        item.name.removesuffix(".toml"): item.read_text(encoding="utf-8")
        for item in folder.iterdir()
        if item.name.endswith(".toml")
    }
    return dict(sorted(texts.items()))


def warnings(scheme: Scheme) -> list[str]:
    """Warnings about what is allowed but probably not intended; never an error. SPEC 3, 8."""
    warned = []
    outliers = scheme.consensus.outliers
    blind = outliers.threshold**2 // exact.NANO**2 + 1  # |z| of n is at most √(n − 1); of fewer than three nobody is flagged
    if outliers.method == "z" and blind >= max(3, scheme.consensus.min_validators):
        warned.append(
            f'consensus.outliers: method = "z" with threshold = "{exact.text(outliers.threshold)}" cannot flag anyone '
            f'among {blind} validators or fewer; "modified-z" can'
        )
    assign, least = scheme.consensus.assign, scheme.consensus.min_validators
    if assign is not None and assign < least:
        warned.append(
            f"consensus: assign = {assign} draws fewer than min_validators = {least}, so nobody can have an agreed score"
        )
    if scheme.epoch is not None and (late := clock.waits_too_long(scheme.epoch)):
        warned.append(late)
    if scheme.score.scores_jointly():
        warned.append(
            'score.passed_by = "all": each counting validator can fail any task for everybody; all of them have one score, so '
            "no outlier can be found"
        )
    warned += scheme.kind.remarks(scheme.score)
    if scheme.decay is not None and scheme.decay.curve != "none" and scheme.decay.rate == 0:
        warned.append("decay.rate is 0, so nothing ever decays")
    return warned
