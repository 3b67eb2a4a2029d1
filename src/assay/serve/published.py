"""The publications of a competition, for its pages: the targets, their contracts, and the outcome of everything that was sent.

Journals also have the words of nodes and services, which may name their addresses. Pages are public, so none of these are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.errors import AssayError, BadInput
from assay.ledger import config
from assay.ledger.access import open_store
from assay.publish.journal import JOURNALS, history, journal_of
from assay.publish.publishers import PUBLISH_FILE
from assay.scheme.reading import read_toml

__all__ = ["published"]

Json = dict[str, Any]
LINES = 20
"""Lines of a target that a page shows, the last ones."""
WORDS: Mapping[str, str] = {
    "planned": "signed, and not sent yet",
    "sent": "sent; the chain does not have it deep enough yet",
    "committed": "committed; the chain opens it later",
    "confirmed": "on the chain",
    "too-early": "too early for the chain",
    "refused": "refused",
    "unknown": "it is not known yet whether the chain has it",
    "failed": "failed on the chain",
    "lost": "the chain never took it",
}
CONTRACTS = (("round", "Contract"), ("oracle", "Oracle"), ("token", "Token"), ("chain_id", "Chain"), ("netuid", "Subnet"))
"""Fields of a target that say where things are. All others stay here: a node's address may have a key in it."""


def published(folder: Path) -> list[Json]:
    """Every target that publish.toml names or something was sent to: where it is, and what was sent, the last of it last."""
    tables = _tables(folder)
    return [_target(folder, name, tables.get(name, {})) for name in dict.fromkeys([*tables, *_journals(folder)])]


def _tables(folder: Path) -> dict[str, Json]:
    """The targets of publish.toml; none if there is no such file, or it cannot be read."""
    try:
        content, _ = read_toml(folder / PUBLISH_FILE)
    except BadInput:
        return {}
    targets = content.get("targets")
    return {name: table for name, table in targets.items() if isinstance(table, dict)} if isinstance(targets, dict) else {}


def _journals(folder: Path) -> Iterator[str]:
    """The names of the targets with a journal, in the ledger or as files."""
    if config.exists(folder):
        with open_store(config.read(folder)) as database, database.reading() as view:
            yield from view.targets()
    for file in sorted((folder / JOURNALS).glob("*.jsonl")):
        yield file.stem


def _target(folder: Path, name: str, table: Json) -> Json:
    where = [(word, str(table[field])) for field, word in CONTRACTS if isinstance(table.get(field), str | int)]
    view: Json = {"name": name, "kind": str(table.get("kind", "")), "where": where, "sent": [], "more": 0, "trouble": ""}
    try:
        entries = journal_of(folder, name).entries
    except AssayError:
        return view | {"trouble": f"Its journal cannot be read. `assay attempts` says why: {name}."}
    sent = history(entries)
    view["more"] = max(0, len(sent) - LINES)
    view["sent"] = [
        {
            "subject": each.subject,
            "epoch": each.epoch,
            "state": each.state,
            "word": WORDS.get(each.state, each.state),
            "block": each.last.get("block"),
            "transaction": each.transaction,
            "at": str(each.last.get("at", "")),
        }
        for each in sent[-LINES:]
    ]
    return view
