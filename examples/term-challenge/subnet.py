"""A subnet for `publish`: a simulated chain, a tool of this repository's tests, with hotkeys of everybody who takes part.

subnet.py PLACE writes there PLACE/wallets, and PLACE/people.csv (name, hotkey). It prints the node's URL and the hash of block 0,
and goes on until it is interrupted. Exit code 3 where the description of a real chain's runtime is not beside the repository.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import bittensor_core

from subtensor import Simulator, files

VALIDATORS = {"elm": 500, "fir": 300, "gum": 200}
AGENTS = ("all-rounder", "apprentice", "data-wrangler", "git-archaeologist", "hopeful", "shell-veteran")


def main(place: Path) -> int:
    try:
        found = files()
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 3
    rows = []
    for name in (*VALIDATORS, *AGENTS):
        pair = bittensor_core.Keypair.from_uri(f"//{name}")
        hotkeys = place / "wallets" / name / "hotkeys"
        hotkeys.mkdir(parents=True)
        (hotkeys / "default").write_bytes(bytes(bittensor_core.serialized_keypair_to_keyfile_data(pair)))
        (hotkeys / "default").chmod(0o600)
        rows.append(f"{name},{pair.ss58_address}\n")
    (place / "people.csv").write_text("".join(rows))
    with Simulator(paths=found, block_time=1.0, began=int(time.time() - 60) * 1000) as chain:
        chain.subnet(1, "//owner", CommitRevealWeightsEnabled=False, Tempo=20)
        chain.register(1, "//owner", alpha=10**9)
        for name, stake in VALIDATORS.items():
            chain.register(1, f"//{name}", alpha=stake * 10**9, permit=True)
        for name in AGENTS:
            chain.register(1, f"//{name}")
        chain.step(5)
        print(chain.url, "0x" + chain.chain.genesis.hex(), flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
