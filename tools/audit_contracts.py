"""Checks the contracts with slither, and exits with 1 if it finds anything that ACCEPTED does not explain.

If there is nothing, the digest of what was checked goes to contracts/audited.sha256: `make test` compares it, and only
`make full` runs slither again.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from crytic_compile import CryticCompile
from crytic_compile.platform.solc_standard_json import SolcStandardJson
from slither import Slither
from slither.detectors import all_detectors
from slither.detectors.abstract_detector import AbstractDetector

CONTRACTS = Path(__file__).parents[1] / "contracts"
AUDITED = CONTRACTS / "audited.sha256"
DEADLINE = "Deadlines are hours or days away; a block's proposer can shift its time only by seconds."
ACCEPTED: dict[tuple[str, str], str] = {
    (
        "calls-loop",
        "_submit",
    ): "The loop asks the round about each agent, at most 200; a misbehaving round spoils only its own scores.",
    ("incorrect-equality", "_best"): "A mapping gives 0 for an agent that never committed; no block has the time 0.",
    ("timestamp", "_best"): "The earlier commitment wins a tie: the ranking is by time, then by key.",
    ("timestamp", "_checkTimes"): DEADLINE,
    ("timestamp", "commit"): DEADLINE,
    ("timestamp", "fund"): DEADLINE,
    ("timestamp", "requireScores"): DEADLINE,
    ("timestamp", "settle"): DEADLINE,
    ("timestamp", "submitSigned"): DEADLINE,
    (
        "too-many-digits",
        "constructor",
    ): "The long number that it finds is the oracle's code, and the address is a hash of that code.",
}
"""(Detector, function) → why the finding is accepted."""
OUTPUT = {"*": {"*": ["abi", "devdoc", "userdoc", "evm.bytecode", "evm.deployedBytecode"], "": ["ast"]}}
SOLC = """#!/bin/sh
case "$1" in
  --version) exec node node_modules/solc/solc.js --version ;;
  *) cat >"$0.json" && exec node build.mjs --compile "$0.json" ;;
esac
"""
"""Runs the compiler of contracts/package-lock.json with the arguments that slither gives to the program solc."""


def digest() -> str:
    """The digest of everything that the findings depend on: the sources, their compiler and libraries, slither, and ACCEPTED."""
    files = [*sorted((CONTRACTS / "src").rglob("*.sol")), CONTRACTS / "build.mjs", CONTRACTS / "package-lock.json"]
    parts = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    parts += [f"slither {version('slither-analyzer')}", *(f"{place} {why}" for place, why in sorted(ACCEPTED.items()))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def findings() -> list[dict[str, Any]]:
    """The findings of every detector in the shipped contracts."""
    output = subprocess.run(["node", "build.mjs", "--input"], stdout=subprocess.PIPE, check=True, text=True).stdout
    document = json.loads(output)
    document["settings"]["outputSelection"] = OUTPUT
    with tempfile.TemporaryDirectory() as scratch:
        solc = Path(scratch) / "solc"
        solc.write_text(SOLC)
        solc.chmod(0o755)
        slither = Slither(CryticCompile(SolcStandardJson(document), solc=str(solc)), filter_paths=["node_modules"])
    for name in dir(all_detectors):
        detector = getattr(all_detectors, name)
        if inspect.isclass(detector) and issubclass(detector, AbstractDetector) and detector is not AbstractDetector:
            slither.register_detector(detector)
    return [finding for run_detector in slither.run_detectors() for finding in run_detector]


def main() -> int:
    """Print the findings that ACCEPTED does not explain, and its entries that are not needed any more."""
    os.chdir(CONTRACTS)
    new: list[tuple[str, str, str, str]] = []
    seen: set[tuple[str, str]] = set()
    for finding in findings():
        place = next((e["name"] for e in finding["elements"] if e["type"] in ("function", "contract", "variable")), "")
        if (finding["check"], place) in ACCEPTED:
            seen.add((finding["check"], place))
        else:
            new.append((finding["check"], place, finding["impact"], finding["description"]))
    for check, place, impact, description in sorted(new):
        print(f"{check} ({impact}) in {place or 'the file'}\n{description}")
    for check, place in sorted(set(ACCEPTED) - seen):
        print(f"{check} in {place} is not found any more: remove it from ACCEPTED")
    if new or set(ACCEPTED) - seen:
        return 1
    AUDITED.write_text(f"{digest()}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
