"""A node that cannot be relied on: answers late, half, wrong or never, forgets, lies. Nothing is sent twice for that, or lost."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evm_proxy as faults
import publish_kit as kit
from assay.errors import BadInput, Unreachable
from assay.publish import rpc
from assay.publish.evm.contracts import ORACLE, Reverted, reason
from assay.publish.evm.node import Contract, EvmNode
from assay.publish.evm.transactions import EvmAttempt
from assay.publish.outcome import Confirmed, Refusal, Sent, Unknown
from assay.publish.rpc import HttpRpc, RpcError
from assay.publish.sender import under_way
from evm_kit import CHAIN_ID, AnvilChain, EvmWorld
from evm_proxy import Fault, Proxy
from publish_kit import PassingTime, with_keys

__all__ = ["with_keys"]  # a fixture

SCORES = {"m1": 9000, "m2": 6000}
pytestmark = pytest.mark.usefixtures("with_keys")


@pytest.fixture
def proxy(chain: AnvilChain, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(rpc, "PAUSE", 0.01)
    with faults.proxy(chain.url) as server:
        yield server


@pytest.fixture
def place(world: EvmWorld, proxy: Proxy, tmp_path: Path) -> Path:
    world.open()
    world.commit(*world.agents[:2])
    world.close()
    return kit.publish_toml(kit.competition(tmp_path / "small", world, SCORES), world, rpc=proxy.url, wait_seconds=30)


def once(world: EvmWorld, place: Path) -> None:
    assert len(world.scores()[1]) == 2
    assert kit.nonce(world, world.scorer) == 1
    assert under_way(EvmAttempt.read(kit.journal(place))) is None


# The connection


@pytest.mark.parametrize(
    "fault",
    [
        faults.cut_before,
        faults.cut_after,
        faults.cut_within,
        faults.saying(b"<html>busy</html>", 502),
        faults.saying(b"not json"),
        faults.saying(b"[]"),
        faults.saying(b'{"jsonrpc":"2.0","id":99999,"result":"0x1"}'),
        faults.saying(b'{"jsonrpc":"2.0"}'),
        faults.saying(b"[" * 100_000),
    ],
)
def test_a_question_is_asked_again_on_a_new_connection(proxy: Proxy, fault: Fault) -> None:
    proxy.faults = [("", fault), ("", fault)]
    assert EvmNode(proxy.url).chain_id() == CHAIN_ID
    assert proxy.asked == ["eth_chainId"] * 3
    proxy.always[""] = fault
    with pytest.raises(Unreachable, match=r"^127\.0\.0\.1:\d+ does not answer eth_chainId \(.*\); is the address right"):
        EvmNode(proxy.url).chain_id()


@pytest.mark.parametrize("fault", [faults.drip, faults.silent])
def test_a_half_dead_connection_is_dropped_in_time(proxy: Proxy, fault: Fault) -> None:
    """The other side goes on until the end of the test: that the call comes back is the proof, on a machine of any speed."""
    proxy.always[""] = fault
    with pytest.raises(Unreachable, match=r"does not answer eth_chainId \(0\.5 seconds were not enough\)"):
        EvmNode(proxy.url, seconds=0.5).chain_id()
    proxy.always.clear()
    assert EvmNode(proxy.url, seconds=600).chain_id() == CHAIN_ID


def test_an_answer_that_does_not_end_is_cut(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "ANSWER_BYTES", 100_000)
    proxy.always[""] = faults.endless
    with pytest.raises(Unreachable, match="more than 100000 bytes"):
        EvmNode(proxy.url).chain_id()


def test_a_node_that_lets_nobody_in_is_not_asked_again(proxy: Proxy) -> None:
    proxy.always[""] = faults.saying(b"no", 401)
    with pytest.raises(BadInput, match=r"does not let us in \(status 401\)"):
        EvmNode(proxy.url).chain_id()
    assert len(proxy.asked) == 1


def test_an_address_is_never_shown_whole(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy.always[""] = faults.cut_before
    secret = proxy.url.replace("http://", "http://user:secret@") + "/v3/secret?key=secret"
    with pytest.raises(Unreachable) as caught:
        HttpRpc(secret).ask("eth_chainId")
    assert "secret" not in str(caught.value)
    seen = list[str]()

    def note(handler: faults.ProxyHandler) -> None:
        seen.append(f"{handler.path} {handler.headers['Authorization']}")
        handler.close()

    monkeypatch.setattr(faults.ProxyHandler, "do_POST", note)
    with pytest.raises(Unreachable):
        HttpRpc(secret, tries=1).ask("eth_chainId")
    assert seen == ["/v3/secret?key=secret Basic dXNlcjpzZWNyZXQ="]


SECRET = ("https://user:secret@ho℀st", "https://[secret", f"https://user:secret@{'a' * 70}.example", "https://user:secret@a..b")


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "http://", "127.0.0.1:8545", "http://x:notaport", "http://ü", "http://x\n", *SECRET]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(BadInput, match=r"^is not the address of a node; write") as caught:
        HttpRpc(url)
    assert caught.value.__cause__ is None


@pytest.mark.full
def test_the_bound_on_recursion_stays_what_it_was() -> None:
    program = """
import sys
before = sys.getrecursionlimit()
from assay.publish.evm import libraries
libraries.account(bytes([1]) * 32)
assert sys.getrecursionlimit() == before
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


def test_nobody_there() -> None:
    with pytest.raises(Unreachable, match="does not answer eth_chainId"):
        HttpRpc("http://127.0.0.1:1", tries=1).ask("eth_chainId")


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("method", "ask"),
    [
        ("eth_chainId", lambda node: node.chain_id()),
        ("eth_getBlockByNumber", lambda node: node.head()),
        ("eth_getCode", lambda node: node.code("0x" + "11" * 20)),
        ("eth_getTransactionCount", lambda node: node.count("0x" + "11" * 20)),
        ("eth_getTransactionReceipt", lambda node: node.mined("0x" + "11" * 32)),
        ("eth_call", lambda node: node.call("0x" + "11" * 20, b"")),
        ("eth_getLogs", lambda node: node.logs("0x" + "11" * 20, [])),
    ],
)
@pytest.mark.parametrize("value", ["zz", 5, "0x5g", [], {"blockNumber": 5}, True, ""])
def test_nonsense_is_no_answer(proxy: Proxy, method: str, ask: Any, value: Any) -> None:
    if (method, value) == ("eth_getLogs", []):
        return
    proxy.faults = [(method, faults.result(value))]
    with pytest.raises(Unreachable, match="sent an impossible answer"):
        ask(EvmNode(proxy.url))


def test_a_contract_that_answers_nothing_of_ours(proxy: Proxy, world: EvmWorld) -> None:
    proxy.faults = [("eth_call", faults.result("0x"))]
    with pytest.raises(Unreachable, match="sent an impossible answer"):
        Contract(EvmNode(proxy.url), ORACLE, world.oracle.address).ask("scoresOf", world.oracle.address, world.scorer)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ({"data": "0xa8d6eb46"}, "NoReceipt"),
        ({"data": {"data": "0xa8d6eb46"}}, "NoReceipt"),
        ({"data": {"result": "0xa8d6eb46"}}, "NoReceipt"),
        ({"data": "Reverted 0xa8d6eb46"}, "NoReceipt"),
        ({"data": "0xdeadbeef"}, ""),
        ({"data": None}, ""),
        ({"data": "0x08c379a0" + "20".rjust(64, "0") + "02".rjust(64, "0") + "6e6f".ljust(64, "0")}, "Error"),
        ({"data": "0x08c379a0" + "ff" * 40}, ""),
    ],
)
def test_what_a_contract_refused_with_is_found_however_a_node_wraps_it(proxy: Proxy, error: dict[str, Any], name: str) -> None:
    from assay.publish.evm.libraries import keccak

    wrapped = str(error["data"]).replace("a8d6eb46", keccak(b"NoReceipt()")[:4].hex())
    data = eval(wrapped) if isinstance(error["data"], dict) else wrapped if error["data"] else None
    proxy.faults = [("eth_call", faults.error(3, "execution reverted", data))]
    with pytest.raises(Reverted) as caught:
        EvmNode(proxy.url).call("0x" + "11" * 20, b"")
    assert caught.value.name == name
    assert isinstance(reason(caught.value), Refusal)


def test_what_is_no_revert_is_an_error_of_the_node(proxy: Proxy) -> None:
    proxy.faults = [("eth_call", faults.error(-32005, "limit exceeded"))]
    with pytest.raises(RpcError, match="limit exceeded"):
        EvmNode(proxy.url).call("0x" + "11" * 20, b"")
    proxy.faults = [("eth_chainId", faults.saying(b'{"jsonrpc":"2.0","id":null,"error":"busy"}'))]
    with pytest.raises(Unreachable, match="does not answer eth_chainId: busy"):
        EvmNode(proxy.url).chain_id()


def test_a_node_without_an_opinion_on_tips(proxy: Proxy) -> None:
    proxy.faults = [("eth_maxPriorityFeePerGas", faults.error(-32601, "the method does not exist"))]
    assert EvmNode(proxy.url).tip() == 0


# Publishing over it


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fault", [faults.cut_before, faults.cut_after, faults.cut_within, faults.saying(b"", 503)])
def test_whatever_question_is_lost_it_is_there_once(place: Path, world: EvmWorld, proxy: Proxy, fault: Fault) -> None:
    """Each third answer is lost; and the one to the transaction that is sent."""

    def again() -> None:
        proxy.faults += [("", fault)]

    proxy.faults = [("eth_sendRawTransaction", fault), ("eth_sendRawTransaction", fault), ("eth_getTransactionReceipt", fault)]
    outcome = kit.sent(place, PassingTime(*[again] * 20))
    assert isinstance(outcome, Confirmed), outcome
    once(world, place)


def test_a_node_that_goes_away_after_it_took_it(place: Path, world: EvmWorld, proxy: Proxy) -> None:
    """It is sent; then nobody answers. What became of it is not known, until somebody answers again."""

    def gone(handler: faults.ProxyHandler, question: dict[str, Any], data: bytes) -> None:
        proxy.always[""] = faults.cut_before
        handler.close()

    proxy.faults = [("eth_sendRawTransaction", gone)]
    outcome = kit.sent(place)
    assert isinstance(outcome, Unknown)
    assert "run this command again to continue" in outcome.what
    assert outcome.transaction == kit.journal(place)[0]["hash"]
    assert kit.states(place) == ["planned", "unknown"]
    proxy.always.clear()
    assert isinstance(kit.sent(place), Confirmed)
    once(world, place)


def test_a_node_that_is_not_there_at_all(place: Path, world: EvmWorld, proxy: Proxy) -> None:
    proxy.always[""] = faults.cut_before
    outcome = kit.sent(place)
    assert isinstance(outcome, Unknown)
    assert outcome.transaction is None
    assert kit.states(place) == ["unknown"]
    with pytest.raises(Unreachable):
        kit.opened(place).compare(kit.planned(place))
    kit.sent(place)
    assert kit.states(place) == ["unknown"], "the same again is not written down again"


def test_a_node_that_says_it_took_it_and_did_not(place: Path, world: EvmWorld, proxy: Proxy) -> None:
    """It lies: nothing is sent. It is asked whether it has it, and given it again."""
    lie = faults.result("0x" + "11" * 32)
    world.chain.ask("evm_setAutomine", False)
    proxy.always["eth_sendRawTransaction"] = _dropping(world, lie)
    outcome = kit.sent(place)
    assert isinstance(outcome, Sent | Unknown)
    assert kit.nonce(world, world.scorer) == 0
    proxy.always.clear()
    world.chain.ask("evm_setAutomine", True)
    assert isinstance(kit.sent(place), Confirmed)
    once(world, place)


def _dropping(world: EvmWorld, answer: Fault) -> Fault:
    def drop(handler: faults.ProxyHandler, question: dict[str, Any], data: bytes) -> None:
        world.chain.ask("anvil_dropAllTransactions")
        answer(handler, question, data)

    return drop


def test_a_node_that_says_it_is_in_a_block_and_it_is_not(place: Path, world: EvmWorld, proxy: Proxy) -> None:
    """A receipt for a transaction that no block has: the scores are read back, and they are not there."""
    world.chain.ask("evm_setAutomine", False)
    head = world.chain.w3.eth.get_block("latest")
    receipt = {"blockNumber": hex(head["number"]), "blockHash": head["hash"].to_0x_hex(), "status": "0x1"}
    proxy.always["eth_getTransactionReceipt"] = faults.result(receipt)
    outcome = kit.sent(place)
    assert isinstance(outcome, Unknown)
    assert outcome.what == "the oracle does not have these scores"
    # The journal believed it, and says so no more; the chain is what decides. Without the lie it is there in the end.
    assert kit.states(place)[-2:] == ["confirmed", "unknown"]
    proxy.always.clear()
    world.chain.ask("evm_setAutomine", True)
    world.chain.ask("evm_mine")
    assert isinstance(kit.sent(place), Confirmed)
    assert kit.nonce(world, world.scorer) == 1


def test_a_receipt_of_another_block_is_not_believed(place: Path, world: EvmWorld, proxy: Proxy) -> None:
    """A block that is no more, as far as the chain itself knows."""
    world.chain.ask("evm_setAutomine", False)
    head = world.chain.w3.eth.get_block("latest")
    receipt = {"blockNumber": hex(head["number"]), "blockHash": "0x" + "ab" * 32, "status": "0x1"}
    proxy.always["eth_getTransactionReceipt"] = faults.result(receipt)
    assert kit.sent(place).state in ("sent", "unknown")
    assert "confirmed" not in kit.states(place)


def test_a_node_that_is_behind_is_given_time(place: Path, world: EvmWorld, proxy: Proxy) -> None:
    """It knows the nonce is used, and not yet by what: that is no reason to send again."""
    none = faults.result(None)
    proxy.faults = [("eth_getTransactionReceipt", none)] * 3
    assert isinstance(kit.sent(place), Confirmed)
    assert kit.states(place) == ["planned", "sent", "confirmed"]
    once(world, place)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("insufficient funds for gas * price + value", "funds"),
        ("intrinsic gas too low", "node"),
        ("the sky is falling", "node"),
    ],
)
def test_what_a_node_does_not_take_waits(place: Path, world: EvmWorld, proxy: Proxy, message: str, code: str) -> None:
    """It was signed, so it may be somewhere: it is that one that is sent the next time."""
    world.chain.ask("evm_setAutomine", False)
    proxy.always["eth_sendRawTransaction"] = _dropping(world, faults.error(-32000, message))
    outcome = kit.sent(place)
    assert isinstance(outcome, Refusal)
    assert outcome.code == code
    assert kit.states(place) == ["planned", "refused"]
    proxy.always.clear()
    world.chain.ask("evm_setAutomine", True)
    again = kit.sent(place)
    assert isinstance(again, Confirmed)
    assert again.transaction == kit.journal(place)[0]["hash"]
    once(world, place)


def test_what_pays_too_little_is_replaced_at_once(place: Path, world: EvmWorld, proxy: Proxy) -> None:
    world.chain.ask("evm_setAutomine", False)
    proxy.faults = [("eth_sendRawTransaction", _dropping(world, faults.error(-32000, "transaction underpriced")))]

    def mine() -> None:
        world.chain.ask("evm_mine")

    assert isinstance(kit.sent(place, PassingTime(mine, mine)), Confirmed)
    assert kit.states(place) == ["planned", "replaced", "sent", "confirmed"]
    once(world, place)


def test_an_estimate_that_a_node_cannot_make(place: Path, proxy: Proxy) -> None:
    proxy.faults = [("eth_estimateGas", faults.error(-32000, "insufficient funds for transfer"))]
    outcome = kit.sent(place)
    assert isinstance(outcome, Refusal)
    assert outcome.code == "funds"


def test_a_chain_without_a_base_fee(place: Path, world: EvmWorld, proxy: Proxy) -> None:
    head = {"number": "0x10", "hash": "0x" + "11" * 32, "timestamp": hex(world.chain.now)}
    proxy.always["eth_getBlockByNumber"] = faults.result(head)
    outcome = kit.sent(place)
    assert isinstance(outcome, Refusal)
    assert outcome.code == "no-eip-1559"
