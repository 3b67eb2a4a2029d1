"""Writes a competition's registry from a subnet: uids, validators and their stake, all at one block.

- participants.csv has every hotkey of the subnet except the burn UID's. The row of a known key keeps its other fields and its
  spelling (SS58 has several prefixes). A key that has lost its uid keeps its row, without a uid, and its share burns (SPEC 4).
- validators.csv has the hotkeys with a permit and a stake weight that the chain counts. A validator that lost them keeps its row
  with stake 0, which does not count (SPEC 8), because its name and its evidence may still be needed.
- registry.json has the block, and for each uid its state at that block, with the block of its registration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.folder import csvs, registry
from assay.folder.files import Place, TableRow, write_all
from assay.publish.bittensor.node import BittensorNode, BlockId
from assay.publish.bittensor.settings import respelled
from assay.publish.bittensor.subnet import SubnetState, read_subnet
from assay.publish.outcome import Refusal
from assay.records import Pulled, Registered
from assay.scheme.load import read as read_scheme
from assay.scheme.model import Scheme
from assay.scheme.reading import validate

NONE = "0"
"""The stake of a validator whose stake the chain does not count."""

Cells = dict[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a key: its uid or stake before and now, empty if it has none. kind: new, gone, moved or stake."""

    key: str
    name: str
    before: str
    now: str
    kind: str


@dataclass(frozen=True)
class Pull:
    """The files to be written to a competition's folder, and the changes. validators: how many the chain counts."""

    folder: Path
    pulled: Pulled
    files: Mapping[str, bytes]
    participants: int
    validators: int
    people: tuple[Change, ...]
    judges: tuple[Change, ...]


def pull(folder: Path, scheme: Scheme, subnet: SubnetState, chain: str, spec_version: int) -> Pull:
    """The registry of a competition's folder by the state of the subnet; nothing is written yet.

    chain: the hash of its block 0. Raises BadInput if a file in the folder is not well-formed, if the folder's registry belongs
    to another subnet, and if no validator would be left.
    """
    _check_same(folder, subnet, chain)
    burn = None if scheme.decay is None else scheme.decay.burn_uid
    old, old_judges = _rows(folder, csvs.PARTICIPANTS), _rows(folder, csvs.VALIDATORS)
    uids = {neuron.hotkey: str(neuron.uid) for neuron in subnet.neurons if neuron.uid != burn}
    stakes = {neuron.hotkey: str(neuron.stake) for neuron in subnet.neurons if neuron.permit and neuron.stake}
    if not stakes:
        what = f"subnet {subnet.netuid} has no validator with a permit and a stake that counts, at block {subnet.block.number}"
        raise BadInput(what, hint="no epoch could be settled with it; is it the right subnet? or pull another block")
    people = [old.get(key, {"key": key}) | {"uid": uid} for key, uid in uids.items()]
    people += [{name: cell for name, cell in row.items() if name != "uid"} for key, row in old.items() if key not in uids]
    judges = [{"key": key, "name": ""} | old_judges.get(key, {}) | {"stake": stake} for key, stake in stakes.items()]
    judges += [row | {"stake": NONE} for key, row in old_judges.items() if key not in stakes]
    files = {table.name: _dumped(table, rows) for table, rows in ((csvs.PARTICIPANTS, people), (csvs.VALIDATORS, judges))}
    count, rows = _read_back(files, scheme)
    pulled = Pulled(
        chain=chain,
        netuid=subnet.netuid,
        mechanism=subnet.mechanism,
        block=subnet.block.number,
        hash=subnet.block.hash,
        spec_version=spec_version,
        rows=rows,
    )
    neurons = [
        validate(
            Registered,
            {
                "uid": neuron.uid,
                "hotkey": neuron.hotkey,
                "stake": str(neuron.stake),
                "permit": neuron.permit,
                "registered": neuron.registered_at,
            },
        )
        for neuron in subnet.neurons
    ]
    return Pull(
        folder,
        pulled,
        files | {registry.PULLED_FILE: registry.dump_pulled(pulled, neurons)},
        count,
        len(stakes),
        tuple(_changes(old, uids, "uid", "moved")),
        tuple(_changes(old_judges, stakes, "stake", "stake")),
    )


def pull_together(node: BittensorNode, netuid: int, mechanism: int, at: BlockId, folders: Sequence[Path]) -> list[Pull]:
    """The registries of the competitions of one subnet, all at one block; nothing is written yet.

    Raises BadInput if there is no such subnet, and as `pull` does; Unreachable.
    """
    schemes = [read_scheme(folder / "scheme.toml") for folder in folders]
    subnet = read_subnet(node, netuid, mechanism, at)
    if isinstance(subnet, Refusal):
        raise BadInput(subnet.what, hint=subnet.hint)
    chain, spec = node.genesis(), node.runtime(at.hash).spec_version
    return [pull(*each, subnet, chain, spec) for each in zip(folders, schemes, strict=True)]


def write(*pulls: Pull) -> None:
    """Write the files of one or more pulls, every registry.json first: no epoch is settled while the CSV files contradict it."""
    names = (registry.PULLED_FILE, csvs.PARTICIPANTS.name, csvs.VALIDATORS.name)
    write_all([(each.folder / name, each.files[name]) for name in names for each in pulls])


def _check_same(folder: Path, subnet: SubnetState, chain: str) -> None:
    """Refuse a subnet other than the registry's, because all participants would seem to be gone."""
    there = registry.read_pulled(folder / registry.PULLED_FILE)
    if there is None or (there.chain, there.netuid, there.mechanism) == (chain, subnet.netuid, subnet.mechanism):
        return
    raise BadInput(
        f"the registry belongs to subnet {there.netuid}, mechanism {there.mechanism}, of the chain {there.chain}",
        file=folder / registry.PULLED_FILE,
        hint=f"you named subnet {subnet.netuid}, mechanism {subnet.mechanism}, of {chain}; if you mean it, remove the file",
    )


def _rows(folder: Path, table: csvs.CsvFormat) -> dict[str, Cells]:
    """The rows of a file by key, in the chain's spelling; the file may have another spelling. Empty if there is no file."""
    path = folder / table.name
    by_key: dict[str, Cells] = {}
    for row in csvs.read(path, table) if path.exists() else ():
        cells = {name: str(value) for name, value in row.fields.items()}
        key = respelled(cells["key"])
        if key in by_key:
            raise row.place.refuse("the key occurs twice", field="key", hint="remove one of the two rows, or correct it")
        by_key[key] = cells
    return by_key


def _dumped(table: csvs.CsvFormat, rows: Sequence[Cells]) -> bytes:
    """The rows as CSV, without optional columns that are empty in every row."""
    columns = [name for name in table.columns if name in table.needed or any(row.get(name) for row in rows)]
    return csvs.dumped(columns, rows)


def _read_back(files: Mapping[str, bytes], scheme: Scheme) -> tuple[int, str]:
    """The number of participants, and the digest of uids and stakes, as a settlement reads the files. Raises BadInput."""
    rows: dict[str, list[TableRow]] = {}
    for table in (csvs.PARTICIPANTS, csvs.VALIDATORS):
        rows[table.name] = csvs.parse(files[table.name], table)
    people = registry.participants(rows[csvs.PARTICIPANTS.name], Place(csvs.PARTICIPANTS.name), scheme)
    judges = registry.validators(rows[csvs.VALIDATORS.name], Place(csvs.VALIDATORS.name), columns=len(people))
    return len(people), registry.pulled_rows(people, judges)


def _changes(old: Mapping[str, Any], now: Mapping[str, str], field: str, other: str) -> list[Change]:
    """The changes, new keys first. A known key that had no uid or stake and still has none is not a change."""
    changes = []
    for key in (*now, *(key for key in old if key not in now)):
        row = old.get(key)
        before, after = (row or {}).get(field, ""), now.get(key, "")
        if field == "stake" and before == NONE:
            before = ""
        if before == after and row is not None:
            continue
        kind = "gone" if not after else other if before else "new"
        changes.append(Change((row or {}).get("key", key), (row or {}).get("name", ""), before, after, kind))
    return sorted(changes, key=lambda change: change.kind != "new")
