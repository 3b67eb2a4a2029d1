"""A node that answers with errors, with ugly text, or with what is not so: none of it is a traceback, none of it signs twice."""

import json
from pathlib import Path
from typing import Any

import pytest

import evm_proxy as faults
import publish_kit as kit
from assay.cli import app
from assay.errors import Unreachable
from assay.publish.evm.node import EvmNode
from assay.publish.evm.transactions import EvmAttempt
from assay.publish.outcome import Confirmed, Refusal, Sent, Unknown
from cli_kit import RUNNER
from evm_kit import EvmWorld
from evm_proxy import Proxy
from publish_kit import with_keys
from test_evm_faults import once, place, proxy

__all__ = ["place", "proxy", "with_keys"]  # fixtures

pytestmark = pytest.mark.usefixtures("with_keys")


UGLY = "\x1b]0;owned\x07\x1b[2J over\u202egnihton\r\nerror: all is well"
"""A title, a cleared screen, text that runs backwards, a line of its own."""
READS = (
    "eth_chainId",
    "eth_getCode",
    "eth_call",
    "eth_getBlockByNumber",
    "eth_getTransactionCount",
    "eth_getTransactionReceipt",
    "eth_getTransactionByHash",
    "eth_estimateGas",
    "eth_sendRawTransaction",
)


def safe(text: str) -> None:
    """It moves no cursor, and says no more lines than ours."""
    assert all(char.isprintable() or char == "\n" for char in text), repr(text)
    assert "\nerror: all" not in text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("method", READS)
def test_an_error_instead_of_an_answer_is_one_of_ours(place: Path, world: EvmWorld, proxy: Proxy, method: str) -> None:
    """Whatever is asked and whenever it comes: what became of it is unknown or refused, in text that can be shown."""
    for error in (faults.error(-32005, f"limit exceeded {UGLY}"), faults.error(3, f"execution reverted: {UGLY}", "0xdeadbeef")):
        proxy.always[method] = error
        outcome = kit.sent(place)
        if method != "eth_sendRawTransaction":  # it was handed on before it was answered so, and what came of it is known
            assert isinstance(outcome, Unknown | Refusal | Sent), (method, outcome)
        safe(str(getattr(outcome, "what", "")) + str(getattr(outcome, "hint", "")))
        safe(json.dumps(kit.journal(place), ensure_ascii=False))
    proxy.always.clear()
    assert isinstance(kit.sent(place), Confirmed)
    once(world, place)


def test_too_many_questions_after_it_was_sent_are_no_refusal(place: Path, world: EvmWorld, proxy: Proxy) -> None:
    """The node took it, and says to that and to all that is asked then that it is too much."""
    busy = faults.error(-32005, f"limit exceeded {UGLY}")

    def all_busy(handler: faults.ProxyHandler, question: dict[str, Any], data: bytes) -> None:
        proxy.always[""] = busy
        busy(handler, question, data)

    proxy.faults = [("eth_sendRawTransaction", all_busy)]
    outcome = kit.sent(place)
    assert isinstance(outcome, Unknown)
    assert "limit exceeded" in outcome.what
    assert "run this command again to continue" in outcome.what
    safe(outcome.what)
    proxy.always.clear()
    assert isinstance(kit.sent(place), Confirmed)
    once(world, place)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("method", READS)
def test_commands_say_an_error_of_the_nodes_without_a_traceback(place: Path, world: EvmWorld, proxy: Proxy, method: str) -> None:
    kit.publish_toml(place, world, rpc=proxy.url, wait_seconds=0)
    (place / "bounty.toml").unlink(missing_ok=True)
    for fault in (faults.error(-32005, UGLY), faults.error(3, f"execution reverted {UGLY}", {"data": "0x08c379a0"})):
        proxy.always[method] = fault
        for words in (("bounty", "show"), ("bounty", "settle"), ("bounty", "claim"), ("publish",)):
            done = RUNNER.invoke(app, [*words, str(place), "--to", "local"], prog_name="assay")
            assert done.exit_code in (0, 1), (words, done.output)
            assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
            safe(done.output.replace("\n", ""))


@pytest.mark.parametrize("state", [3, 255])
def test_a_state_that_no_round_has(place: Path, world: EvmWorld, proxy: Proxy, state: int) -> None:
    """The node says so: no contract of ours does."""
    selector = world.round.encode_abi("state", [])

    def lying(handler: faults.ProxyHandler, question: dict[str, Any], data: bytes) -> None:
        asked = question["params"][0].get("data")
        (faults.result(f"0x{state:064x}") if asked == selector else faults.plain)(handler, question, data)

    proxy.always["eth_call"] = lying
    done = RUNNER.invoke(app, ["bounty", "show", str(place), "--to", "local"], prog_name="assay")
    assert done.exit_code == 1
    assert f"is in state {state}, which does not exist" in " ".join(done.output.split())


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("commitUntil", 2**64 - 1, "sent an impossible answer: it accepts scores until the second"),
        ("scoreUntil", 253_402_300_800, "sent an impossible answer: it accepts scores until the second 253402300800"),
        ("commitments", 2**53, "has 9007199254740992 commitments, which is impossible"),
    ],
)
def test_a_number_of_a_rounds_that_cannot_be_shown(
    place: Path, world: EvmWorld, proxy: Proxy, name: str, value: int, why: str
) -> None:
    """A time after the year 9999, and more than a number of JSON's: neither is a traceback."""
    selector = world.round.encode_abi(name, [])

    def lying(handler: faults.ProxyHandler, question: dict[str, Any], data: bytes) -> None:
        asked = question["params"][0].get("data")
        (faults.result(f"0x{value:064x}") if asked == selector else faults.plain)(handler, question, data)

    proxy.always["eth_call"] = lying
    for words in ([], ["--json"]):
        done = RUNNER.invoke(app, ["bounty", "show", str(place), "--to", "local", *words], prog_name="assay")
        assert done.exit_code == 1
        assert why in " ".join(done.output.split())


def test_numbers_that_no_chain_has_are_no_answer(proxy: Proxy) -> None:
    huge = hex(2**200)
    head = {"number": huge, "hash": "0x" + "11" * 32, "timestamp": "0x1"}
    for method, value in (("eth_getBlockByNumber", head), ("eth_getTransactionCount", huge)):
        proxy.faults = [(method, faults.result(value))]
        with pytest.raises(Unreachable, match="sent an impossible answer"):
            _ = EvmNode(proxy.url).head() if method.endswith("Number") else EvmNode(proxy.url).count("0x" + "11" * 20)


# One nonce for one plan


@pytest.mark.full
def test_a_node_that_lies_gets_one_transaction_for_one_plan(place: Path, world: EvmWorld, proxy: Proxy) -> None:
    """It says that something else used the nonce, and names another: two that are signed it could both bring to the chain."""
    proxy.always["eth_getTransactionCount"] = faults.result(hex(2))
    proxy.always["eth_sendRawTransaction"] = faults.result("0x" + "11" * 32)
    proxy.always["eth_getTransactionReceipt"] = faults.result(None)
    kit.publish_toml(place, world, rpc=proxy.url, wait_seconds=30)
    kit.sent(place)
    proxy.always["eth_getTransactionCount"] = faults.result(hex(1003))
    for _ in range(3):
        outcome = kit.sent(place)
        assert isinstance(outcome, Refusal)
        assert outcome.code == "nonce"
    assert {(attempt.nonce, len(attempt.transactions)) for attempt in EvmAttempt.read(kit.journal(place))} == {(2, 1)}

    # Nor where the account's owner is told that what was sent reverted, or was taken and is not there.
    for status in ("0x0", "0x1"):
        head = world.chain.w3.eth.get_block("latest")
        receipt = {"blockNumber": hex(head["number"]), "blockHash": head["hash"].to_0x_hex(), "status": status}
        proxy.always["eth_getTransactionReceipt"] = faults.result(receipt)
        for _ in range(3):
            kit.sent(place)
    assert {each.nonce for each in EvmAttempt.read(kit.journal(place))} == {2}
