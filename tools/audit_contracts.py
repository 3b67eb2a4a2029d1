"""Looks the contracts over with slither; 1 if it finds anything but what ACCEPTED explains, each in one sentence."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from crytic_compile import CryticCompile
from crytic_compile.platform.solc_standard_json import SolcStandardJson
from slither import Slither
from slither.detectors import all_detectors
from slither.detectors.abstract_detector import AbstractDetector

CONTRACTS = Path(__file__).parents[1] / "contracts"
DEADLINE = "Deadlines are of hours and days; who makes a block can move its time by seconds."
ACCEPTED: dict[tuple[str, str], str] = {
    (
        "calls-loop",
        "_submit",
    ): "The round is asked of each agent, of 200 at most; one that misbehaves spoils its own scores only.",
    ("incorrect-equality", "_best"): "0 is how a mapping says that an agent never committed; no block has that time.",
    ("timestamp", "_best"): "Ties go to the earlier commitment: the ranking is by time, then by key.",
    ("timestamp", "_checkTimes"): DEADLINE,
    ("timestamp", "commit"): DEADLINE,
    ("timestamp", "fund"): DEADLINE,
    ("timestamp", "requireScores"): DEADLINE,
    ("timestamp", "settle"): DEADLINE,
    ("timestamp", "submitSigned"): DEADLINE,
    ("too-many-digits", "constructor"): "What it takes for a long number is the oracle's code, of which the address is a hash.",
}
"""(Detector, function) → why that is as it should be."""
OUTPUT = {"*": {"*": ["abi", "devdoc", "userdoc", "evm.bytecode", "evm.deployedBytecode"], "": ["ast"]}}
SOLC = """#!/bin/sh
case "$1" in
  --version) exec node node_modules/solc/solc.js --version ;;
  *) cat >"$0.json" && exec node build.mjs --compile "$0.json" ;;
esac
"""
"""The compiler of contracts/package-lock.json, spoken to as slither speaks to the one that is a program."""


def findings() -> list[dict[str, Any]]:
    """What every detector finds in the contracts that ship."""
    said = subprocess.run(["node", "build.mjs", "--input"], stdout=subprocess.PIPE, check=True, text=True).stdout
    document = json.loads(said)
    document["settings"]["outputSelection"] = OUTPUT
    with tempfile.TemporaryDirectory() as scratch:
        solc = Path(scratch) / "solc"
        solc.write_text(SOLC)
        solc.chmod(0o755)
        found = Slither(CryticCompile(SolcStandardJson(document), solc=str(solc)), filter_paths=["node_modules"])
    for name in dir(all_detectors):
        one = getattr(all_detectors, name)
        if inspect.isclass(one) and issubclass(one, AbstractDetector) and one is not AbstractDetector:
            found.register_detector(one)
    return [each for several in found.run_detectors() for each in several]


def main() -> int:
    """Say what was found."""
    os.chdir(CONTRACTS)
    new: list[tuple[str, str, str, str]] = []
    seen: set[tuple[str, str]] = set()
    for one in findings():
        place = next((e["name"] for e in one["elements"] if e["type"] in ("function", "contract", "variable")), "")
        if (one["check"], place) in ACCEPTED:
            seen.add((one["check"], place))
        else:
            new.append((one["check"], place, one["impact"], one["description"]))
    for check, place, impact, description in sorted(new):
        print(f"{check} ({impact}) in {place or 'the file'}\n{description}")
    for check, place in sorted(set(ACCEPTED) - seen):
        print(f"{check} in {place} is not found any more: take it out of ACCEPTED")
    return 1 if new or set(ACCEPTED) - seen else 0


if __name__ == "__main__":
    sys.exit(main())
