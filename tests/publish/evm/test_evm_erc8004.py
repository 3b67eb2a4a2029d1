"""The answer to a request of ERC-8004's Validation Registry, as a contract with that interface takes it."""

import hashlib
import json
from pathlib import Path

import pytest
from web3 import Web3

import ledger_kit
from assay.errors import BadInput, CannotSettle
from assay.ledger.settling import settle
from assay.publish.evm.erc8004 import validation_response
from cli_kit import output
from evm_kit import FREE, AnvilChain, events
from ledger_kit import SIGNER, opened

REQUEST = "0x" + hashlib.sha256(b"a request").hexdigest()
URI = "https://example.org/v1/small/epochs/3/bundle"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = ledger_kit.ledger_folder(tmp_path / "small", "given")
    rows = ledger_kit.records("given")
    ledger_kit.add(folder, [row | {"score": "0.875" if row["participant"] == "m1" else "0"} for row in rows])
    with opened(folder) as ledger:
        settle(ledger, SIGNER, 3)
    return folder


def test_a_registry_takes_the_answer(place: Path, chain: AnvilChain) -> None:
    registry = chain.deploy("Validations")
    validator, agent = chain.accounts[3], 17
    chain.send(registry.functions.validationRequest(validator, agent, "https://example.org/request", REQUEST))
    asked: list[str | Path] = ["export", "erc8004", place, "3", "--for", "m1", "--request", REQUEST, "--uri", URI]
    answer = json.loads(output(*asked, "--registry", registry.address.lower()))
    assert answer["to"] == registry.address
    assert answer["function"] == "validationResponse(bytes32,uint8,string,bytes32,string)"
    with opened(place) as ledger, ledger.store.reading() as view:
        settled = view.settlement(3)
    assert settled is not None
    digest = json.loads(settled.document)["digest"]
    transaction = chain.w3.eth.send_transaction({"from": validator, "to": answer["to"], "data": answer["data"], **FREE})
    (event,) = events(registry, "ValidationResponse", chain.w3.eth.wait_for_transaction_receipt(transaction))
    assert event == {
        "validatorAddress": validator,
        "agentId": agent,
        "requestHash": bytes.fromhex(REQUEST[2:]),
        "response": 88,
        "responseURI": URI,
        "responseHash": bytes.fromhex(digest.removeprefix("sha256:")),
        "tag": "small",
    }
    assert registry.functions.validations(REQUEST).call() == [validator, agent, 88, event["responseHash"], "small"]
    assert {name: answer[name] for name in ("requestHash", "response", "responseURI", "tag")} == {
        "requestHash": REQUEST,
        "response": 88,
        "responseURI": URI,
        "tag": "small",
    }
    assert Web3.to_bytes(hexstr=answer["responseHash"]) == event["responseHash"]


SETTLED = {
    "digest": "sha256:" + "5e" * 32,
    "agreed": [
        {"participant": "ann", "status": "agreed", "score": "0.125", "reason": None},
        {"participant": "bob", "status": "agreed", "score": "0", "reason": None},
        {"participant": "cyd", "status": "no-quorum", "score": None, "reason": "too-few-validators"},
    ],
}


def test_a_score_is_rounded_half_to_even_and_none_is_not_0() -> None:
    for key, response in (("ann", 12), ("bob", 0)):
        answer = validation_response(SETTLED, key, request=REQUEST, uri="ipfs://bafy", tag="")
        assert (answer["response"], answer["responseHash"], "to" in answer) == (response, "0x" + "5e" * 32, False)
    for key, why in (("cyd", "too-few-validators"), ("dan", "no participant")):
        with pytest.raises(CannotSettle, match=why):
            validation_response(SETTLED, key, request=REQUEST, uri=URI)


@pytest.mark.parametrize(
    "wrong",
    [
        {"request": "0x12"},
        {"request": "5f" * 32},
        {"uri": "epoch-12.tar"},
        {"uri": "https://example.org/a b"},
        {"uri": "https://example.org/" + "a" * 2048},
        {"tag": "a" * 2049},
        {"registry": "0x12"},
    ],
)
def test_what_a_registry_cannot_take_is_refused_by_name(wrong: dict[str, str]) -> None:
    with pytest.raises(BadInput) as caught:
        validation_response(SETTLED, "ann", **({"request": REQUEST, "uri": URI} | wrong))
    (name,) = wrong
    assert caught.value.field == f"--{name}"
