"""What a chain says of an extrinsic that did nothing, by the names in its own description of itself."""

from pathlib import Path
from typing import Any

import bittensor_core
import pytest

from assay.publish.bittensor.refusals import dispatched, of_pool
from assay.publish.outcome import Refusal
from assay.publish.rpc import RpcError
from subtensor import files


@pytest.fixture(scope="module")
def runtime(shared: Path) -> Any:
    data = files()[0].read_bytes()
    return bittensor_core.Runtime(data[data.find(b"meta") :], 218, 1)


def numbers(runtime: Any, name: str) -> tuple[int, int]:
    """Of the pallet, and of one of its errors."""
    pallet = next(entry for entry in runtime.metadata_ir()["pallets"] if entry["name"] == "SubtensorModule")
    return pallet["index"], next(error["index"] for error in pallet["errors"] if error["name"] == name)


@pytest.mark.parametrize("spelt", ["hex", "list", "bytes", "number"])
def test_an_error_of_a_module_has_the_chains_name(runtime: Any, spelt: str) -> None:
    pallet, number = numbers(runtime, "NeuronNoValidatorPermit")
    error = {"hex": f"0x{number:02x}000000", "list": [number, 0, 0, 0], "bytes": bytes([number, 0, 0, 0]), "number": number}[
        spelt
    ]
    refusal = dispatched(runtime, {"Module": {"index": pallet, "error": error}})
    assert (refusal.code, refusal.what) == ("NeuronNoValidatorPermit", "the hotkey has no validator permit")
    assert refusal.hint


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ({"Module": {"index": 250, "error": "0x07000000"}}, "the chain refuses it"),
        ("BadOrigin", "BadOrigin"),
        ({"Token": "NoFunds"}, "NoFunds"),
        (None, "None"),
    ],
)
def test_an_error_that_has_no_name_is_told_as_it_is(runtime: Any, error: object, words: str) -> None:
    refusal = dispatched(runtime, error)
    assert words in refusal.what
    assert refusal.code


def test_an_error_that_is_not_known_here_keeps_the_chains_name(runtime: Any) -> None:
    pallet, number = numbers(runtime, "InvalidIpAddress")
    refusal = dispatched(runtime, {"Module": {"index": pallet, "error": f"0x{number:02x}000000"}})
    assert refusal.code == "InvalidIpAddress"
    assert "docs/bittensor.md" in refusal.hint


@pytest.mark.parametrize(
    ("message", "data"),
    [("Invalid Transaction", "Custom error: 3"), ('{"invalid":{"custom":3}}', None)],
    ids=["node", "chopsticks"],
)
def test_an_older_runtime_numbers_the_stake_that_is_too_low_by_the_call(message: str, data: str | None) -> None:
    """As spec 218 was seen to: `test_real_runtime`."""
    codes = []
    for older in (True, False):
        refusal = of_pool(RpcError(1010, message, data), older=older)
        assert isinstance(refusal, Refusal)
        codes.append(refusal.code)
    assert codes == ["NotEnoughStakeToSetWeights", "SubnetNotExists"]
