"""What the current chain has and an older runtime's metadata lacks: mechanisms, timelocked commits, the schedule of epochs.

It is added to the decoded document of metadata 14 or 15, in the names and shapes of the current chain; what is there already
stays as it is. The indices of what is added are not a real runtime's: a client goes by the metadata and sees no difference.
"""

from __future__ import annotations

from typing import Any

PALLET = "SubtensorModule"
EXTENDED_SPEC = 1218  # spec 218 and what was added: no real runtime has this number
ZERO = "0x" + "00" * 8
BOUNDED = "bounded_collections::bounded_vec::BoundedVec"

# Storage that spec 218 lacks: name, hashers, types of the key, type of the value, what stands where nothing is stored.
STORAGE: tuple[tuple[str, tuple[str, ...], tuple[str, ...], str, str], ...] = (
    ("MechanismCountCurrent", ("Twox64Concat",), ("NetUid",), "MechId", "0x01"),
    ("CommitRevealWeightsVersion", (), (), "u16", "0x0400"),
    ("TimelockedWeightCommits", ("Twox64Concat", "Twox64Concat"), ("NetUidStorageIndex", "u64"), "Commits", "0x00"),
    ("LastEpochBlock", ("Identity",), ("NetUid",), "u64", ZERO),
    ("PendingEpochAt", ("Identity",), ("NetUid",), "u64", ZERO),
    ("SubnetEpochIndex", ("Identity",), ("NetUid",), "u64", ZERO),
    ("StakeThreshold", (), (), "u64", ZERO),
    ("ActivityCutoffFactorMilli", ("Identity",), ("NetUid",), "u32", "0x41360000"),
    ("ImmuneOwnerUidsLimit", ("Identity",), ("NetUid",), "u16", "0x0100"),
    ("SubnetEpochConsensus", ("Identity",), ("NetUid",), "EpochConsensus", "0x00"),
)
CALLS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "commit_timelocked_weights",
        (("netuid", "NetUid"), ("commit", "Commit"), ("reveal_round", "u64"), ("commit_reveal_version", "u16")),
    ),
    (
        "commit_timelocked_mechanism_weights",
        (
            ("netuid", "NetUid"),
            ("mecid", "MechId"),
            ("commit", "Commit"),
            ("reveal_round", "u64"),
            ("commit_reveal_version", "u16"),
        ),
    ),
    (
        "set_mechanism_weights",
        (("netuid", "NetUid"), ("mecid", "MechId"), ("dests", "Vec<u16>"), ("weights", "Vec<u16>"), ("version_key", "u64")),
    ),
)
EVENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("TimelockedWeightsCommitted", ("AccountId", "NetUidStorageIndex", "H256", "u64")),
    ("TimelockedWeightsRevealed", ("NetUidStorageIndex", "AccountId")),
)
ERRORS = ("IncorrectCommitRevealVersion", "InvalidRevealRound")
STATE: tuple[tuple[str, str], ...] = (  # what get_subnet_state answers, in its order
    ("netuid", "Compact<NetUid>"),
    ("hotkeys", "Vec<AccountId>"),
    ("coldkeys", "Vec<AccountId>"),
    ("active", "Vec<bool>"),
    ("validator_permit", "Vec<bool>"),
    ("pruning_score", "Vec<Compact<u16>>"),
    ("last_update", "Vec<Compact<u64>>"),
    ("emission", "Vec<Compact<u64>>"),
    ("dividends", "Vec<Compact<u16>>"),
    ("incentives", "Vec<Compact<u16>>"),
    ("consensus", "Vec<Compact<u16>>"),
    ("trust", "Vec<Compact<u16>>"),
    ("rank", "Vec<Compact<u16>>"),
    ("block_at_registration", "Vec<Compact<u64>>"),
    ("alpha_stake", "Vec<Compact<u64>>"),
    ("tao_stake", "Vec<Compact<u64>>"),
    ("total_stake", "Vec<Compact<u64>>"),
    ("emission_history", "Vec<Vec<Compact<u64>>>"),
)


class _Types:
    """The registry of types of a metadata document, to which types are added by name."""

    def __init__(self, document: Any) -> None:
        self.list: list[Any] = document["types"]["types"]
        self.named: dict[str, int] = {}
        for entry in self.list:
            kind, path = entry["type"]["def"], entry["type"]["path"]
            if "primitive" in kind:
                self.named.setdefault(kind["primitive"], entry["id"])
            elif path in (["sp_core", "crypto", "AccountId32"], ["primitive_types", "H256"]):
                self.named[path[-1].removesuffix("32")] = entry["id"]
        for name, inner in (("NetUid", "u16"), ("NetUidStorageIndex", "u16"), ("MechId", "u8")):
            self.named[name] = self.add(
                {"composite": {"fields": [_field(None, self.named[inner], inner)]}}, "subtensor_runtime_common::" + name
            )
        commit = {"composite": {"fields": [_field(None, self.of("Vec<u8>"), "Vec<T>")]}}
        self.named["Commit"] = self.add(commit, BOUNDED, T=self.named["u8"], S=None)
        modes = [_variant(index, name) for index, name in enumerate(("Yuma", "Null"))]
        self.named["EpochConsensus"] = self.add({"variant": {"variants": modes}}, "pallet_subtensor::EpochConsensus")
        commit_type = self.add({"tuple": [self.named[name] for name in ("AccountId", "u64", "Commit", "u64")]})
        self.named["Commits"] = self.add({"sequence": {"type": commit_type}})

    def add(self, definition: Any, path: str = "", **params: int | None) -> int:
        """A new type's id. params: the types it is generic over."""
        ident = len(self.list)
        over = [{"name": name, "type": kind} for name, kind in params.items()]
        self.list.append(
            {"id": ident, "type": {"path": path.split("::") if path else [], "params": over, "def": definition, "docs": []}}
        )
        return ident

    def of(self, name: str) -> int:
        """The id of a type by its name; a vector or compact of a known one is made at first use."""
        if name not in self.named:
            outer, _, inner = name.partition("<")
            kind = {"type": self.of(inner.removesuffix(">"))}
            self.named[name] = self.add({"sequence" if outer == "Vec" else "compact": kind})
        return self.named[name]

    def variants(self, ident: int) -> list[Any]:
        """The variants of an enum, to add to."""
        variants: list[Any] = self.list[ident]["type"]["def"]["variant"]["variants"]
        return variants


def _field(name: str | None, ident: int, type_name: str | None) -> Any:
    return {"name": name, "type": ident, "typeName": type_name, "docs": []}


def _variant(index: int, name: str, *fields: Any) -> Any:
    return {"name": name, "fields": list(fields), "index": index, "docs": []}


def extend(document: Any) -> None:
    """Add to a document of metadata 14 or 15 what of the current chain it lacks; it then says it is of another spec."""
    pallet = next(entry for entry in document["pallets"] if entry["name"] == PALLET)
    entries = pallet["storage"]["entries"]
    there = {entry["name"] for entry in entries}
    lacking = [entry for entry in STORAGE if entry[0] not in there]
    if not lacking:
        return
    types = _Types(document)
    entries += [_entry(types, *entry) for entry in lacking]
    if "StakeThreshold" not in there:  # it took the place of another
        pallet["storage"]["entries"] = [entry for entry in entries if entry["name"] != "WeightsMinStake"]
    for variants, added in (
        (types.variants(pallet["calls"]["ty"]), CALLS),
        (types.variants(pallet["event"]["ty"]), [(name, tuple((None, kind) for kind in of)) for name, of in EVENTS]),
        (types.variants(pallet["error"]["ty"]), [(name, ()) for name in ERRORS]),
    ):
        known = {variant["name"] for variant in variants}
        missing = [variant for variant in added if variant[0] not in known]
        for index, (name, fields) in enumerate(missing, max(variant["index"] for variant in variants) + 1):
            typed = [_field(field, types.of(kind), kind) for field, kind in fields]
            variants.append(_variant(index, name, *typed))
    if not any(entry["name"] == "Drand" for entry in document["pallets"]):
        document["pallets"].append(_drand(types, document))
    if "apis" in document:
        _type_subnet_state(types, document)
    _say_spec(document)


def versions(document: Any) -> tuple[int, int]:
    """Spec version and transaction version, from the runtime's own constant System.Version."""
    raw, at = _version(document)
    return int.from_bytes(raw[at : at + 4], "little"), int.from_bytes(raw[-5:-1], "little")


def _constant(document: Any) -> Any:
    system = next(pallet for pallet in document["pallets"] if pallet["name"] == "System")
    return next(constant for constant in system["constants"] if constant["name"] == "Version")


def _version(document: Any) -> tuple[bytes, int]:
    """The bytes of the constant, and where the spec version stands in them: after two short names and a number."""
    raw, at = bytes.fromhex(_constant(document)["value"][2:]), 0
    for _ in range(2):
        at += 1 + (raw[at] >> 2)
    return raw, at + 4


def _say_spec(document: Any) -> None:
    raw, at = _version(document)
    _constant(document)["value"] = "0x" + (raw[:at] + EXTENDED_SPEC.to_bytes(4, "little") + raw[at + 4 :]).hex()


def _entry(types: _Types, name: str, hashers: tuple[str, ...], keys: tuple[str, ...], value: str, default: str) -> Any:
    key = types.of(keys[0]) if len(keys) == 1 else types.add({"tuple": [types.of(key) for key in keys]})
    shape = {"Map": {"hashers": list(hashers), "key": key, "value": types.of(value)}} if keys else {"Plain": types.of(value)}
    return {"name": name, "modifier": "Default", "type": shape, "default": default, "documentation": []}


def _drand(types: _Types, document: Any) -> Any:
    """The pallet that holds the last round of the random beacon which the chain knows."""
    taken = {entry["index"] for entry in document["pallets"]}
    storage = {"prefix": "Drand", "entries": [_entry(types, "LastStoredRound", (), (), "u64", ZERO)]}
    return {
        "name": "Drand", "storage": storage, "calls": None, "event": None, "constants": [], "error": None,
        "index": max(index for index in taken if index < 255) + 1, "docs": [],
    }  # fmt: skip


def _type_subnet_state(types: _Types, document: Any) -> None:
    """Let get_subnet_state answer an Option<SubnetState>, where spec 218 answers its bytes."""
    api = next(entry for entry in document["apis"] if entry["name"] == "SubnetInfoRuntimeApi")
    method = next(entry for entry in api["methods"] if entry["name"] == "get_subnet_state")
    if types.list[method["output"]]["type"]["path"] == ["Option"]:
        return
    fields = [_field(name, types.of(kind), kind) for name, kind in STATE]
    state = types.add({"composite": {"fields": fields}}, "pallet_subtensor::rpc_info::show_subnet::SubnetState")
    some = [_variant(0, "None"), _variant(1, "Some", _field(None, state, None))]
    method["output"] = types.add({"variant": {"variants": some}}, "Option", T=state)
