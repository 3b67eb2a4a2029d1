"""The runtime metadata the simulator answers with: read from files, and extended in memory with what newer runtimes have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scalecodec import ScaleBytes  # type: ignore[attr-defined]
from scalecodec.base import RuntimeConfigurationObject
from scalecodec.type_registry import load_type_registry_preset

from . import newer


@dataclass(frozen=True)
class Metadata:
    """What a node answers for each version of the metadata (`meta…`; 15 may be missing), and which spec and version it is of."""

    versions: dict[int, bytes]
    spec_version: int
    transaction_version: int

    @property
    def best(self) -> bytes:
        """The newest there is."""
        return self.versions[max(self.versions)]


@cache
def load(files: tuple[Path, ...], extended: bool = True) -> Metadata:
    """Metadata from files that hold what `Metadata_metadata_at_version` answers, one for each version."""
    documents = {}
    for file in files:
        document = _decode(_unwrapped(file.read_bytes()))
        documents[int(next(iter(document[1])).removeprefix("V"))] = document
    for number, document in documents.items():
        if extended:
            newer.extend(document[1][f"V{number}"])
    spec, version = newer.versions(documents[max(documents)][1][f"V{max(documents)}"])
    return Metadata({number: _encode(document) for number, document in documents.items()}, spec, version)


def _unwrapped(raw: bytes) -> bytes:
    """The metadata in an Option<Bytes>: 01, a compact length, then `meta…`. As it is where it comes bare."""
    at = raw.find(b"meta", 0, 10)
    if at < 0:
        raise ValueError("this is no runtime metadata: it holds no `meta` at its start")
    return raw[at:]


def _codec() -> Any:
    codec = RuntimeConfigurationObject()
    codec.update_type_registry(load_type_registry_preset("core") or {})
    return codec


def _decode(raw: bytes) -> Any:
    versioned = _codec().create_scale_object("MetadataVersioned", ScaleBytes(raw))
    versioned.decode()
    return versioned.value


def _encode(document: Any) -> bytes:
    return bytes(_codec().create_scale_object("MetadataVersioned").encode(document).data)
