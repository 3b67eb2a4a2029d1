"""An epoch's page as a view: what was checked, the chain of receipts, how a stranger checks it. SPEC 6."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from assay.exact import canonical
from assay.folder import csvs
from assay.serve.draw import size, when
from assay.serve.links import api_address, participant_page, verifier_link
from assay.serve.published import published
from assay.serve.season import Json, Link, Season
from assay.settle.document import BURNT, SETTLEMENT
from assay.settle.story.telling import plural
from assay.tables import TABLES, rows

__all__ = ["epoch", "epoch_document", "steps", "table_csv", "table_names"]

STEPS = 31
"""Epochs that the slider shows: the first, the last, those near the one shown, and some between."""


CHAIN = 40
"""Receipts of a chain that are shown: the first, and the last ones up to the one shown."""
NAMED = {"validators": "agreed"}
"""Table → the list of the document that its rows are of, where that has another name."""
ABOUT = {
    "agreed": "every participant, with its agreed score",
    "validators": "every validator’s score of every participant",
    "weights": "score, share, decay and weight, with the burn",
    "payouts": "every place that is paid",
}
STAGES = ("receipt", "log", "chain", "evidence", "signatures", "inputs", "settlement", "results")
"""The stages of `assay verify`, in its order."""


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
        "state": "checked" if proof is not None else "none" if season.past is None else "open",
        "targets": published(season.folder),
        "files": [*_files(season)],
        "example": _example(season),
        "bundle": None,
        "verifier": None,
        "checkpoint": None,
    }
    if proof is None:
        return view
    view["verifier"] = verifier_link(season.root, season.address, season.settlement.epoch, "bundle")
    if season.address is not None:
        view["bundle"] = api_address(season.address, season.settlement.epoch, "bundle")
        view["checkpoint"] = f"{season.address}/log/checkpoint"
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
    view["chain"] = [*_chain(season, proof.chain)]
    view["receipt"] = [
        ("Settlement", "", states["settlement"]),
        ("Scheme", "", states["scheme"]),
        ("Inputs", "", states["inputs"]),
        ("Evidence", plural(states["evidence"]["count"], "record"), states["evidence"]["root"]),
        ("Task set", "" if states["task_set"] else "none", states["task_set"] or ""),
        ("Results", plural(states["results"]["count"], "participant"), states["results"]["root"]),
        ("Before it", f"epoch {previous['epoch']}", previous["receipt"]) if previous else ("Before it", "it is the first", ""),
        ("Software", f"{states['software']['name']} {states['software']['version']}", ""),
    ]
    view["log"] = {"origin": proof.origin, "size": proof.size, "root": proof.root, "key": proof.key}
    view["log"]["witnesses"] = [{"name": name, "at": when(at)} for name, at in proof.cosigned]
    return view


def epoch_document(season: Season) -> Json:
    """The page as JSON: what was checked, every receipt of the chain, what the receipt states, and what can be taken home."""
    view, proof = epoch(season), season.proof
    links = () if proof is None else proof.chain
    return {
        "epoch": view["epoch"],
        "settlement": view["digest"],
        "state": view["state"],
        "newest": view["newest"],
        "checks": [{"stage": check["stage"], "text": check["text"]} for check in view["checks"]],
        "receipts": [{"epoch": link.epoch, "position": link.position, "digest": link.digest} for link in links],
        "states": None if proof is None else proof.states,
        "log": view["log"],
        "downloads": [{"href": file["href"], "what": file["what"]} for file in view["files"]],
        "sent": view["targets"],
    }


def table_names(document: Json) -> list[str]:
    """The tables of a settlement that have rows."""
    return [name for name in TABLES if document[NAMED.get(name, name)]]


def table_csv(document: Json, name: str) -> bytes:
    """A table of a settlement's document as CSV: exact numbers, a header line, and for weights the burn as the last row."""
    columns, table_rows = rows(document, SETTLEMENT, BURNT)[name]
    return csvs.dumped(tuple(columns), (_plain(row) for row in table_rows))


def _plain(row: Json) -> Json:
    return row | {name: str(value).lower() for name, value in row.items() if isinstance(value, bool)}


def _counts(season: Season) -> str:
    document = season.document
    agreed, everybody = len(document["ranking"]), len(document["agreed"])
    return f"{agreed} of {plural(everybody, 'participant')} {'has' if agreed == 1 else 'have'} an agreed score."


def _chain(season: Season, links: Sequence[Link]) -> Iterator[Json]:
    """The receipts from the first to the one shown and after; of many only some, with how many are left out before each."""
    now = season.settlement.epoch
    at = next(place for place, link in enumerate(links) if link.epoch == now)
    first = max(1, min(at - CHAIN // 2, len(links) - CHAIN))
    shown = [0, *range(first, min(len(links), first + CHAIN))] if len(links) > CHAIN else range(len(links))
    last = -1
    for place in shown:
        link = links[place]
        where = season.others.get(link.epoch)
        yield {
            "e": link.epoch,
            "h": link.digest.removeprefix("sha256:")[:7],
            "now": link.epoch == now,
            "digest": link.digest,
            "href": None if where is None else f"{where}epoch.html",
            "skipped": place - last - 1,
        }
        last = place


def _files(season: Season) -> Iterator[Json]:
    """Yield what can be taken home, and how large it is; of a settled epoch at a service, also what the API makes of it."""
    proof, served = season.proof, season.address
    number = season.settlement.epoch
    if proof is not None and served is not None:
        yield _file(f"epoch-{number}.tar", "the bundle: all that a verifier needs", href=api_address(served, number, "bundle"))
    if proof is not None:
        yield _file("epoch.receipt", "signed, with its proof in the log", len(canonical(proof.receipt)))
    yield _file("board.json", "the settlement, every intermediate number", len(canonical(season.document)))
    yield _file("board.csv", "the ranking, exact numbers")
    for name in table_names(season.document):
        yield _file(f"{name}.csv", ABOUT[name])
    if season.tasks.names:
        yield _file("tasks.json", "who passed which task, by validator")
    if proof is not None and served is not None:
        yield _file("records.json", "the evidence, in pages", href=api_address(served, number, "records"))
        if season.scheme.kind.in_bulk and find_spec("pyarrow") is not None:
            href = api_address(served, number, "evidence.parquet")
            yield _file("evidence.parquet", "the evidence, for DuckDB, polars and pandas", href=href)
        yield _file("checkpoint", "the log’s newest: its size and root, signed", href=f"{served}/log/checkpoint")


def _file(name: str, what: str, count: int = 0, href: str = "") -> Json:
    return {"name": name, "href": href or name, "what": what, "size": size(count) if count else ""}


def _example(season: Season) -> Json | None:
    """Return what `assay verify` says if somebody changes one number of this settlement; None where it has no result.

    Nothing is verified here: the number is the settlement's, and the other one is one more.
    """
    document = season.document
    if weights := document["weights"]:
        at = min(1, len(weights) - 1)
        row, where, expected = weights[at], f"weights[{at}].u16", weights[at]["u16"]
    elif payouts := document["payouts"]:
        row, where, expected = payouts[0], "payouts[0].net", int(payouts[0]["net"])
    else:
        return None
    changed = expected + 1 if expected != 65_535 else expected - 1
    old, new = str(expected), str(changed)
    same = next((place for place, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    return {
        "where": where,
        "key": row["participant"],
        "name": season.name(row["participant"]),
        "href": participant_page(row["participant"]),
        "same": old[:same],
        "expected": old[same:],
        "found": new[same:],
        "stages": [(stage, "ok" if place < STAGES.index("settlement") else "no" if stage == "settlement" else "na")
                   for place, stage in enumerate(STAGES)],
    }  # fmt: skip
