"""The cost of checking a receipt, its size, and the cost of adding one to the log.

    python bench/receipts.py            logs of 1, 1,000 and 1,000,000 receipts
    python bench/receipts.py --full     and of 10,000,000 to check a receipt in

`check` is what `python -m assay.ledger.check` does with a receipt file: parsed, the statement's shape, two signatures, and the
inclusion proof. `verify` is `assay.verify` on the file, without evidence to compute anything again from. `bare` verifies the same
two Ed25519 signatures with the keys and the signed bytes at hand, in turns with them. The trees are those of synthetic hashes.

The log is on the disk, all of it; an append is one receipt: the checkpoint signed, the tiles that grew and the checkpoint
written, each flushed to the disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import assay
from assay.exact import canonical
from assay.ledger import check, keys, merkle, statements
from assay.ledger import log as note
from assay.ledger import log as tiles
from assay.ledger.log import Log

BUILD = Path(__file__).parents[1] / "build" / "bench"
SIGNER = keys.new()
KEY = note.log_key("example.org/bench", SIGNER.public)
ROOT = f"sha256:{'ab' * 32}"
LIMIT_MS = 1.0
TIMES, APPENDS = 300, 20


class Checked(NamedTuple):
    """µs of each, and bytes: of the proof, and of the whole file."""

    check: float
    verify: float
    bare: float
    hashes: int
    proof: int
    file: int


class Appended(NamedTuple):
    """Bytes on the disk for each receipt; of one append the median ms, and the files and bytes that it wrote."""

    each: float
    ms: float
    files: int
    written: int


def receipt_of(size: int) -> tuple[bytes, str]:
    """The file of the receipt in the middle of a log of this size, and its inclusion proof as text."""
    settlement = {"scheme": {"name": "bench", "digest": ROOT}, "epoch": 12, "digest": ROOT, "task_set": ROOT}
    rows = dict.fromkeys(("ranking", "weights", "payouts", "agreed"), ())
    payload = statements.receipt_statement(
        settlement | rows, inputs=ROOT, evidence=(ROOT, 1), records={}, previous=(11, ROOT), version="1"
    )
    leaves = [sha256(b"%d" % at).digest() for at in range(size)]
    leaves[size // 2] = check.leaf_hash(sha256(payload).digest())
    proof = merkle.Tree(leaves).inclusion(size // 2)
    checkpoint = note.sign_checkpoint(size, merkle.root(leaves), KEY, SIGNER)
    text = note.proof_text(proof, checkpoint).removesuffix(checkpoint.decode())
    return statements.receipt_file(canonical(keys.sign_envelope(payload, SIGNER)), proof, checkpoint), text


def checked(place: Path, size: int) -> Checked:
    data, text = receipt_of(size)
    file = place / f"{size}.receipt"
    file.write_bytes(data)
    receipt = check.Receipt.parse(data)
    public = Ed25519PublicKey.from_public_bytes(KEY.raw)
    body, _, lines = receipt.proof.checkpoint.rpartition(b"\n\n")
    signed = [
        (check.unbase64(lines.decode().split(" ")[2].strip(), "bench")[4:], body + b"\n"),
        (receipt.envelope.signatures[0][1], check.pae(check.IN_TOTO, receipt.envelope.payload)),
    ]

    def bare() -> None:
        for signature, message in signed:
            public.verify(signature, message)

    def ours() -> None:
        check.check_receipt(check.Receipt.parse(data), [KEY])

    def whole() -> None:
        assay.verify(file, key=str(KEY))

    taken = _in_turns([ours, whole, bare])
    return Checked(taken[0], taken[1], taken[2], len(receipt.proof.hashes), len(text), len(data))


def _in_turns(several: Sequence[Callable[[], None]]) -> list[float]:
    """Median µs of each."""
    taken: list[list[float]] = [[] for _ in several]
    for _ in range(TIMES):
        for work, into in zip(several, taken, strict=True):
            begun = time.perf_counter()
            work()
            into.append(1e6 * (time.perf_counter() - begun))
    return [statistics.median(times) for times in taken]


def appended(place: Path, size: int) -> Appended:
    entries = [sha256(b"%d" % at).digest() for at in range(size)]
    for path, data in tiles.log_files(entries).items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    leaves = [check.leaf_hash(entry) for entry in entries]
    (place / "checkpoint").write_bytes(note.sign_checkpoint(size, merkle.root(leaves), KEY, SIGNER))
    before = _files(place)
    log = Log(place, KEY)
    times, wrote = [], []
    for at in range(APPENDS):
        entry = sha256(b"more %d" % at).digest()
        begun = time.perf_counter()
        log.publish(note.sign_checkpoint(log.size + 1, log.root_with([entry]), KEY, SIGNER), log.size, [entry])
        times.append(1e3 * (time.perf_counter() - begun))
        if at == 0:
            after = _files(place)
            wrote = [size for path, (size, when) in after.items() if before.get(path) != (size, when)]
    whole = sum(size for size, _ in before.values())
    return Appended(whole / size, statistics.median(times), len(wrote), sum(wrote))


def _files(place: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file."""
    files = {}
    for folder, _, names in os.walk(place):
        for name in names:
            status = os.stat(os.path.join(folder, name))
            files[os.path.join(folder, name)] = (status.st_size, status.st_mtime_ns)
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="10,000,000 receipts as well")
    sizes = (1, 1_000, 1_000_000)
    chosen = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    print("to check a receipt, µs; beyond: what `verify` takes beside its two signatures; bytes of it")
    print(f"{'receipts':>12} {'check':>8} {'verify':>8} {'bare':>8} {'beyond':>8}   {'hashes':>6} {'proof':>6} {'file':>6}")
    with tempfile.TemporaryDirectory(prefix="receipts-", dir=BUILD) as folder:
        for size in (*sizes, 10_000_000) if chosen.full else sizes:
            measured = checked(Path(folder), size)
            beyond = measured.verify - measured.bare
            ok = "" if beyond <= 1e3 * LIMIT_MS else f"   above {LIMIT_MS} ms"
            print(
                f"{size:12,} {measured.check:8.0f} {measured.verify:8.0f} {measured.bare:8.0f} {beyond:8.0f}"
                f"   {measured.hashes:6} {measured.proof:6,} {measured.file:6,}{ok}",
                flush=True,
            )
    print("\nto add a receipt to the log: bytes on the disk for each that is there; what one more writes, and takes")
    print(f"{'receipts':>12} {'bytes':>8} {'files':>8} {'bytes':>8} {'ms':>8}")
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="log-", dir=BUILD) as folder:
            more = appended(Path(folder), size)
        print(f"{size:12,} {more.each:8.1f} {more.files:8} {more.written:8,} {more.ms:8.1f}", flush=True)


if __name__ == "__main__":
    main()
