"""The contracts that ship are those of the source, compiled again; slither has no more to say of them than is explained."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import evm_gas
import evm_kit
from assay.publish.evm.contracts import ORACLE, ROUND, artifact
from evm_kit import AnvilChain, EvmWorld

SHIPPED = evm_kit.ROOT / "src" / "assay" / "publish" / "evm" / "contracts"


def test_what_ships_is_what_the_source_compiles_to() -> None:
    built = evm_kit.built() / "shipped"
    names = sorted(path.name for path in SHIPPED.iterdir())
    assert names == sorted(path.name for path in built.iterdir()) == ["BountyRound.json", "ScoringOracle.json"]
    for name in names:
        assert (SHIPPED / name).read_bytes() == (built / name).read_bytes(), f"{name}: run `bash tools/contracts ship`"


def test_the_tests_try_what_ships() -> None:
    for name in (ORACLE, ROUND):
        assert bytes.fromhex(evm_kit.compiled(name)["bytecode"][2:]) == artifact(name).bytecode


def test_settings_are_pinned_and_the_code_names_no_machine() -> None:
    for path in SHIPPED.iterdir():
        document = json.loads(path.read_text())
        assert document["compiler"].startswith("0.8.37+")
        assert document["settings"] == {
            "optimizer": {"enabled": True, "runs": 200},
            "viaIR": True,
            "evmVersion": "cancun",
            "metadata": {"bytecodeHash": "none", "appendCBOR": False},
        }
        assert len(document["deployed"]) // 2 - 1 < 24_576 // 2  # half of what a chain takes (EIP-170)


def test_code_at_an_address_is_told_from_other_code(world: EvmWorld, chain: AnvilChain) -> None:
    first = chain.w3.eth.get_code(world.open().address)
    second = chain.w3.eth.get_code(world.open(thresholdBps=1, split=[10_000]).address)
    assert first != second
    oracle = chain.w3.eth.get_code(world.oracle.address)
    assert artifact(ROUND).is_at(bytes(first))
    assert artifact(ROUND).is_at(bytes(second))
    assert artifact(ORACLE).is_at(bytes(oracle))
    for wrong in (b"", bytes(oracle), bytes(first[:-1]), bytes([first[0] ^ 1]) + bytes(first[1:])):
        assert not artifact(ROUND).is_at(wrong)


def test_everything_that_can_be_called_is_explained() -> None:
    """Natspec: each function, error and event of the source has a line of what it is; each contract a title."""
    for path in sorted((evm_kit.ROOT / "contracts" / "src").glob("*.sol")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            word = line.split("(")[0].split("{")[0].strip().split(" ")[0]
            if word in ("contract", "interface", "library", "event", "error", "constructor") or (
                word in ("function", "struct") and " private " not in " ".join(lines[number : number + 5]).split("{")[0]
            ):
                above = lines[number - 1].strip() if number else ""
                assert above.startswith("///") or line.strip().startswith("struct Commitment"), (
                    f"{path.name}:{number + 1}: {line}"
                )


@pytest.mark.full
def test_the_page_has_the_gas_that_calls_take(tmp_path: Path) -> None:
    with evm_kit.anvil(tmp_path, *evm_kit.OPTIONS) as node:
        page = evm_gas.PAGE.read_text(encoding="utf-8")
        assert evm_gas.filled(page, AnvilChain(node.url)) == page, (
            "run: PYTHONPATH=tests/kits python tests/publish/evm/evm_gas.py"
        )


@pytest.fixture(scope="module")
def audit() -> dict[str, Any]:
    """The names of tools/audit_contracts.py."""
    return runpy.run_path(str(evm_kit.ROOT / "tools" / "audit_contracts.py"))


def test_the_page_explains_what_slither_finds(audit: dict[str, Any]) -> None:
    page = evm_gas.PAGE.read_text(encoding="utf-8")
    for (detector, place), why in audit["ACCEPTED"].items():
        assert any(all(word in row for word in (f"`{detector}`", place, why)) for row in page.splitlines()), (detector, place)


def test_slither_has_checked_the_contracts_as_they_are(audit: dict[str, Any]) -> None:
    """Slither takes a quarter of a minute. A change of the contracts fails here until slither has seen it."""
    assert audit["AUDITED"].read_text(encoding="utf-8").strip() == audit["digest"](), "run: bash tools/contracts check"


@pytest.mark.full
def test_slither_has_nothing_new_to_say(audit: dict[str, Any]) -> None:
    evm_kit.built()
    before = audit["AUDITED"].read_text(encoding="utf-8")
    words = [sys.executable, audit["__file__"]]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert audit["AUDITED"].read_text(encoding="utf-8") == before
