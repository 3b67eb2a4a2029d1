"""Commitments to weights, opened with the beacon's own signature of a past round, before which the clock stood still."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import bittensor_core
import pytest

import subnet_kit as kit
from assay.ledger.keys import SR25519, PublicKey
from assay.publish.bittensor.node import BlockId
from assay.publish.bittensor.weights import Commitment, Vector, commitment, reveal_block
from assay.publish.outcome import Refusal

GENESIS, PERIOD = 1_692_803_367, 3
"""Of drand's quicknet: when its first round was, and seconds between rounds."""
ROUND = 1000
SIGNATURE = "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39"
"""Of that round, as anybody can fetch it."""
KEY = PublicKey(SR25519, bytes(bittensor_core.Keypair.from_uri("//Val").public_key))
VECTOR = Vector((0, 2, 255), (65535, 7, 1), True)
PROGRAM = """
import json, sys, time
from test_bittensor_timelock import commitment_now
print(json.dumps([[time.time(), *commitment_now(json.loads(line))] for line in sys.stdin]))
"""


def commitment_now(changes: dict[str, Any]) -> tuple[str, int, int]:
    """A commitment by the clock as it stands: bytes, round, block."""
    locked = commitment(there(changes), KEY, VECTOR, 2**40 + 9, chain=0, here=0)
    assert isinstance(locked, Commitment)
    return locked.data.hex(), locked.round, locked.reveal


def there(changes: dict[str, Any]) -> Any:
    block = BlockId(changes.get("block", 1000), kit.BLOCK.hash)
    return kit.subnet("a", **{"commit_reveal": True, **changes, "block": block})


def at(seconds: int, several: list[dict[str, Any]]) -> list[list[Any]]:
    """What is made of these subnets while the clock stands at that time."""
    library = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
    if library is None:
        pytest.skip("libfaketime is not installed: `tools/system tests` installs it")
    env = os.environ | {"LD_PRELOAD": str(library), "FAKETIME_FMT": "%s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    env |= {"FAKETIME": str(seconds), "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    text = "".join(json.dumps(changes) + "\n" for changes in several)
    done = subprocess.run([sys.executable, "-c", PROGRAM], input=text, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows: list[list[Any]] = json.loads(done.stdout)
    assert {row[0] for row in rows} == {seconds}, "the clock stands still"
    return rows


@pytest.mark.full
def test_what_the_chain_opens_is_what_was_meant() -> None:
    """Hotkey, uids, weights and version key, as the chain reads them: SCALE."""
    opens = reveal_block(there({}))
    begun = GENESIS + PERIOD * ROUND + 1 - (opens - 1000) * 12
    ((_, data, number, block),) = at(begun, [{}])
    assert (number, block) == (ROUND, opens)
    opened = bytes(bittensor_core.decrypt_with_signature(enveloped(bytes.fromhex(data)), SIGNATURE))
    hotkey, rest = taken(opened, 1)
    uids, rest = taken(rest, 2)
    values, rest = taken(rest, 2)
    assert bytes(hotkey) == KEY.raw
    assert (tuple(uids), tuple(values)) == (VECTOR.uids, VECTOR.values)
    assert int.from_bytes(rest, "little") == 2**40 + 9
    assert len(rest) == 8


def enveloped(data: bytes) -> bytes:
    """As the library opens it: its length, itself, its round. The chain has these beside it."""
    assert 64 <= len(data) < 2**14
    return (len(data) << 2 | 1).to_bytes(2, "little") + data + ROUND.to_bytes(8, "little")


def taken(data: bytes, width: int) -> tuple[list[int], bytes]:
    """The numbers of a short vector, and what comes after it."""
    assert data[0] & 3 in (0, 1)
    long = data[0] & 3
    count = (int.from_bytes(data[: 1 + long], "little")) >> 2
    body, rest = data[1 + long : 1 + long + count * width], data[1 + long + count * width :]
    return [int.from_bytes(body[begin : begin + width], "little") for begin in range(0, len(body), width)], rest


@pytest.mark.full
def test_the_block_that_is_foretold_is_the_one_by_which_the_round_is_chosen() -> None:
    """For schedules of every kind: an epoch that is due, one that the owner has asked for, long and short tempos."""
    several = [
        {
            "block": 1000,
            "last_epoch": 1000 - since,
            "pending_epoch": pending,
            "tempo": tempo,
            "reveal_epochs": epochs,
            "since_step": 1,
        }
        for since, pending, tempo, epochs in product((0, 1, 9, 10, 11, 359), (0, 990, 1001, 1002, 1300), (1, 10, 360), (1, 2, 5))
    ]
    now = GENESIS + 10_000_001
    for changes, (_, _, number, block) in zip(several, at(now, several), strict=True):
        assert number == (now + (block - 1000) * 12 - GENESIS) // PERIOD, changes


def test_what_cannot_be_committed_to() -> None:
    for changes, code in (
        ({"epoch_index": None}, "IncorrectCommitRevealVersion"),
        ({"pending_epoch": None}, "IncorrectCommitRevealVersion"),
        ({"tempo": 0}, "no-epochs"),
    ):
        refusal = commitment(there(changes), KEY, VECTOR, 0, chain=0, here=0)
        assert isinstance(refusal, Refusal)
        assert refusal.code == code
