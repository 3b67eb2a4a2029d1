"""The time of `assay.verify` to derive an epoch again from its Parquet export, against its parts as bare loops.

    python -m bench verify            64 validators × 32 participants × 89 tasks: 182,272 records
    python -m bench verify --full     64 × 256 × 89: 1,458,176 records

`verify`      the whole bundle: receipt, log, evidence root, every batch's signature and root, the settlement computed again
`settle`      the settlement of the same Parquet file, up to its digest, with nothing of a ledger
`signatures`  the Ed25519 signatures of the batches, with the keys and the signed bytes at hand
`hash`        each record's canonical JSON, made of its dict by json.dumps (sorted keys, no spaces), and SHA-256 of it
`sha256`      of that the SHA-256 alone, of bytes that are there
`trees`       the hashes of both Merkle trees that bind a record, of its receipt and of its batch, over digests that are there

The aim is that `verify` takes at most 2 × settle + signatures + hash. Best of several, in turns, in one process.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import assay
from assay.ledger import bundle, evidence
from bench import epoch
from bench.epoch import BenchEpoch

BUILD = Path(__file__).parents[1] / "build" / "bench"
VALIDATORS = 64
TURNS = 3


def seconds(what: Callable[[], object]) -> float:
    begun = time.perf_counter()
    what()
    return time.perf_counter() - begun


def signatures(built: BenchEpoch) -> float:
    given = [(Ed25519PublicKey.from_public_bytes(key.raw), signature, message) for key, signature, message in built.signed]

    def loop() -> None:
        for key, signature, message in given:
            key.verify(signature, message)

    return seconds(loop)


def plain(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def hashes(built: BenchEpoch) -> tuple[float, float]:
    """`hash` and `sha256`, some thousand records at a time, so that memory is none of it."""
    whole = alone = 0.0
    for _, bodies, _ in evidence.read_parquet(built.parquet):
        dicts = [json.loads(body) for body in bodies]
        assert [plain(document) for document in dicts] == bodies
        begun = time.perf_counter()
        [sha256(plain(document)).digest() for document in dicts]
        between = time.perf_counter()
        [sha256(body).digest() for body in bodies]
        whole, alone = whole + between - begun, alone + time.perf_counter() - between
    return whole, alone


def root(level: list[bytes]) -> bytes:
    while len(level) > 1:
        pairs = [sha256(b"\x01" + left + right).digest() for left, right in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(level) & ~1 :]
    return level[0]


def trees(built: BenchEpoch) -> float:
    digests = [sha256(body).digest() for _, bodies, _ in evidence.read_parquet(built.parquet) for body in bodies]
    sizes = [json.loads(line)["members"] for line in (built.folder / bundle.BATCHES).read_bytes().splitlines()]
    ranges = [(first - 1, last) for ((first, last),) in sizes]

    def both() -> None:
        root([sha256(b"\x00" + seq.to_bytes(8, "big") + digest).digest() for seq, digest in enumerate(digests, start=1)])
        for first, last in ranges:
            root([sha256(b"\x00" + digest).digest() for digest in sorted(digests[first:last])])

    return seconds(both)


def turn(built: BenchEpoch) -> dict[str, float]:
    document = json.loads((built.folder / bundle.INPUTS).read_bytes())
    taken = {"verify": seconds(lambda: assay.verify(built.folder, key=str(built.key)))}
    taken["settle"] = seconds(lambda: epoch.settle(built.folder, document))
    taken["signatures"] = signatures(built)
    taken["hash"], taken["sha256"] = hashes(built)
    taken["trees"] = trees(built)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="1,458,176 records")
    participants = 256 if parser.parse_args().full else 32
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="verify-", dir=BUILD) as folder:
        built = epoch.make(Path(folder) / "epoch", VALIDATORS, participants)
        turns = [turn(built) for _ in range(TURNS)]
        size = sum(path.stat().st_size for path in built.folder.rglob("*") if path.is_file())
    best = {name: min(times[name] for times in turns) for name in turns[0]}
    print(f"{built.records:,} records in {len(built.signed):,} batches; the bundle has {size / built.records:.0f} bytes a record")
    print(f"{'':12} {'seconds':>8} {'µs a record':>12}")
    for name, taken in best.items():
        print(f"{name:12} {taken:8.3f} {1e6 * taken / built.records:12.2f}")
    allowed = 2 * best["settle"] + best["signatures"] + best["hash"]
    print(f"verify / (2 × settle + signatures + hash): {best['verify'] / allowed:.2f}    (aim: at most 1)")
    strict = 2 * best["settle"] + best["signatures"] + best["sha256"] + best["trees"]
    print(f"verify / (2 × settle + signatures + sha256 + trees): {best['verify'] / strict:.2f}")


if __name__ == "__main__":
    main()
