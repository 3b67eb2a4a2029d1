"""An epoch's page as a view: what was checked, the chain of receipts, how a stranger checks it. SPEC 6."""

from __future__ import annotations

from assay.serve.season import Json, Season
from assay.settle.story.telling import plural

__all__ = ["epoch", "steps"]

STEPS = 31
"""Epochs that the slider shows: the first, the last, those near the one shown, and some between."""


def steps(season: Season) -> Json | None:
    """The slider of epochs: links to the board of each, of the one before and of the one after; None where there is no other."""
    if not season.others:
        return None
    now = season.settlement.epoch
    epochs = sorted({*season.others, now})
    at = epochs.index(now)
    near = {*range(max(0, at - STEPS // 4), min(len(epochs), at + STEPS // 4 + 1))}
    far = max(1, -(-len(epochs) // (STEPS // 2)))
    shown = sorted({0, len(epochs) - 1, *near, *range(0, len(epochs), far)}) if len(epochs) > STEPS else range(len(epochs))
    ends = (0, at, len(epochs) - 1)
    return {
        "epochs": [
            {"n": epochs[place], "href": _board_of(season, epochs[place]), "now": place == at, "named": place in ends}
            for place in shown
        ],
        "before": {"n": epochs[at - 1], "href": _board_of(season, epochs[at - 1])} if at else None,
        "after": {"n": epochs[at + 1], "href": _board_of(season, epochs[at + 1])} if at + 1 < len(epochs) else None,
        "last": at + 1 == len(epochs),
    }


def _board_of(season: Season, number: int) -> str:
    return f"{season.others.get(number, '')}index.html"


def epoch(season: Season) -> Json:
    """Everything that the page of an epoch prints."""
    proof = season.proof
    view: Json = {
        "epoch": season.settlement.epoch,
        "digest": season.settlement.digest,
        "checks": [],
        "chain": [],
        "receipt": [],
        "log": None,
        "newest": season.newest,
        "counts": _counts(season),
    }
    if proof is None:
        return view
    states = proof.states
    previous = states.get("previous")
    place = 1 + sum(link.epoch < states["epoch"] for link in proof.chain)
    view["checks"] = [
        {"s": "ok", "stage": "receipt", "text": f"signed by the log’s key, {proof.origin}"},
        {"s": "ok", "stage": "log", "text": f"the receipt is entry {place} of a log of {plural(proof.size, 'receipt')}"},
        {
            "s": "ok",
            "stage": "evidence",
            "text": f"{plural(states['evidence']['count'], 'record')} of this epoch, with the root stated",
        },
        {"s": "ok", "stage": "settlement", "text": "computed again from the evidence, with the same digest"},
        {"s": "ok", "stage": "signatures", "text": "every batch that counts is signed by its validator"},
    ]
    view["chain"] = [
        {
            "e": link.epoch,
            "h": link.digest.removeprefix("sha256:")[:7],
            "now": link.epoch == states["epoch"],
            "digest": link.digest,
        }
        for link in proof.chain
    ]
    view["receipt"] = [
        ("Settlement", states["settlement"]),
        ("Scheme", states["scheme"]),
        ("Inputs", states["inputs"]),
        ("Evidence", f"{plural(states['evidence']['count'], 'record')}, root {states['evidence']['root']}"),
        ("Task set", states["task_set"] or "none"),
        ("Results", f"{plural(states['results']['count'], 'participant')}, root {states['results']['root']}"),
        ("Before it", f"epoch {previous['epoch']}, {previous['receipt']}" if previous else "nothing: it is the first"),
        ("Software", f"{states['software']['name']} {states['software']['version']}"),
    ]
    view["log"] = {"origin": proof.origin, "size": proof.size, "root": proof.root, "key": proof.key}
    return view


def _counts(season: Season) -> str:
    document = season.document
    agreed, everybody = len(document["ranking"]), len(document["agreed"])
    return f"{agreed} of {plural(everybody, 'participant')} {'has' if agreed == 1 else 'have'} an agreed score."
