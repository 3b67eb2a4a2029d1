"""Who signs: keystores, the environment, and signers elsewhere, of which anvil is one; what they must not do, and never show."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data

import evm_proxy as faults
import publish_kit as kit
from assay.errors import BadInput, Unreachable
from assay.publish import publishers, rpc
from assay.publish.evm import signers
from assay.publish.evm.settings import Fees
from assay.publish.evm.signers import Signer, TransactionRequest, signer_of
from assay.publish.outcome import Confirmed
from evm_kit import CHAIN_ID, AnvilChain, EvmWorld
from evm_proxy import Proxy
from publish_kit import with_keys

__all__ = ["with_keys"]  # a fixture

KEY = bytes(range(1, 33))
ACCOUNT = Account.from_key(KEY)
REQUEST = TransactionRequest(CHAIN_ID, 7, "0xaAaAaAaaAaAaAaaAaAAAAAAAAaaaAaAaAaaAaaAa", 5, b"data", 21_000, Fees(100, 10))
DOMAIN = {"name": "Assay ScoringOracle", "version": "1", "chainId": CHAIN_ID, "verifyingContract": REQUEST.to}
TYPES = {"Thing": [{"name": "amount", "type": "uint256"}, {"name": "proof", "type": "bytes32"}]}
MESSAGE = {"amount": 2**200, "proof": b"\1" * 32}


def target(place: Path, **key: Any) -> publishers.Target:
    fields = "".join(f"{name} = {json.dumps(value)}\n" for name, value in key.items())
    (place / "publish.toml").write_text('[targets.local]\nkind = "evm"\n[keys.mine]\n' + fields)
    return publishers.read_target(place, "local")


def keystore(place: Path, passphrase: str = "open", mode: int = 0o600) -> str:
    path = place / "mine.json"
    path.write_text(json.dumps(Account.encrypt(KEY, passphrase, kdf="pbkdf2", iterations=1000)))
    path.chmod(mode)
    return path.name


def check(signer: Signer, address: str) -> None:
    assert signer.address == address
    for request in (REQUEST, TransactionRequest(CHAIN_ID, 0, None, 0, b"\x60\x00", 60_000, Fees(3, 2))):
        raw = signer.transaction(request)
        assert signers._decoded(raw) == (address, request)
    signature = signer.typed(DOMAIN, TYPES, "Thing", MESSAGE)
    assert Account.recover_message(encode_typed_data(DOMAIN, TYPES, MESSAGE), signature=signature) == address


def test_a_key_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key_target = target(tmp_path, env="MY_KEY")
    for spelt in (KEY.hex(), f"0x{KEY.hex()}", f" {KEY.hex().upper()}\n"):
        monkeypatch.setenv("MY_KEY", spelt)
        check(signer_of(key_target, "mine"), ACCOUNT.address)


@pytest.mark.parametrize(
    "text", ["", "xyzxyz", "00" * 32, "ff" * 32, KEY.hex()[:-2], KEY.hex() + "00", "secret" * 10], ids=range(7)
)
def test_what_is_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("MY_KEY", text)
    with pytest.raises(
        BadInput, match=r"the variable MY_KEY (is empty|holds no private key); put 64 hex digits into it"
    ) as caught:
        signer_of(target(tmp_path, env="MY_KEY"), "mine")
    assert not text or text not in _shown(caught.value)


def _shown(error: BaseException) -> str:
    """All that a traceback would show of an error, and of those behind it."""
    import traceback

    return "".join(traceback.format_exception(error))


def test_a_keystore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    key_target = target(tmp_path, keystore=keystore(tmp_path), account=ACCOUNT.address.lower())
    asked = list[str]()
    check(signer_of(key_target, "mine", lambda: asked.append("once") or "open"), ACCOUNT.address)  # type: ignore[func-returns-value]
    assert asked == ["once"]
    monkeypatch.setenv("ASSAY_PASSPHRASE", "open")
    check(signer_of(key_target, "mine", lambda: pytest.fail("it was asked")), ACCOUNT.address)


def test_a_keystore_that_does_not_open(tmp_path: Path) -> None:
    key_target = target(tmp_path, keystore=keystore(tmp_path))
    for ask in (lambda: "wrong", None):
        with pytest.raises(BadInput, match=r"mine.json: cannot be opened: the passphrase is wrong, or it is not a keystore"):
            signer_of(key_target, "mine", ask)
    path = tmp_path / "mine.json"
    for content in ("", "{}", "[]", '{"crypto": {}}', '{"version": 3, "crypto": {"kdf": "none"}}', "\0"):
        path.write_text(content)
        with pytest.raises(BadInput, match="cannot be opened"):
            signer_of(key_target, "mine", lambda: "open")
    path.unlink()
    with pytest.raises(BadInput, match=r"mine.json: no such file; give the path of a keystore"):
        signer_of(key_target, "mine", lambda: "open")


def test_a_keystore_for_its_owner_alone(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"can be read by others \(mode 0644\); let only yourself read it: chmod 600"):
        signer_of(target(tmp_path, keystore=keystore(tmp_path, mode=0o644)), "mine", lambda: "open")


def test_a_key_of_another_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY.hex())
    other = "0x" + "11" * 20
    with pytest.raises(BadInput, match=rf"keys.mine.account: is {other}, but the key belongs to {ACCOUNT.address}"):
        signer_of(target(tmp_path, env="MY_KEY", account=other), "mine")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({}, "keys.mine: must have exactly one of keystore, env and signer; keep one of them"),
        ({"env": "A", "keystore": "b"}, "keys.mine: must have exactly one of keystore, env and signer"),
        ({"signer": "http://127.0.0.1:8550"}, "a signer has several accounts; name one: account"),
        ({"signer": "unix:x", "account": ACCOUNT.address}, "keys.mine.signer: is not the address of a node"),
        ({"env": "a b"}, "keys.mine.env"),
        ({"key": "0x1"}, "keys.mine.key: there is no field 'key' here; did you mean"),
        ({"env": "A", "account": "0x12"}, "keys.mine.account: is not an EVM address; write 0x and 40 hex digits"),
        ({"env": "A", "account": ACCOUNT.address.swapcase().replace("0X", "0x")}, "has a typo: its capital letters"),
    ],
)
def test_where_a_key_is_is_said_once_and_rightly(tmp_path: Path, key: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        signer_of(target(tmp_path, **key), "mine")
    assert message in str(caught.value)
    assert "publish.toml" in str(caught.value)


def test_a_key_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no key 'yours', only: mine; add a section \[keys.yours\]"):
        signer_of(target(tmp_path, env="A"), "yours")


# Signers elsewhere


@pytest.fixture
def proxy(chain: AnvilChain, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(rpc, "PAUSE", 0.01)
    with faults.proxy(chain.url) as node_proxy:
        yield node_proxy


def remote(proxy: Proxy, place: Path, account: str) -> Signer:
    return signer_of(target(place, signer=proxy.url, account=account), "mine")


def test_a_signer_that_holds_the_key(chain: AnvilChain, proxy: Proxy, tmp_path: Path) -> None:
    check(remote(proxy, tmp_path, chain.accounts[4]), chain.accounts[4])
    assert set(proxy.asked) == {"eth_signTransaction", "eth_signTypedData_v4"}


def test_clef_calls_it_otherwise(chain: AnvilChain, proxy: Proxy, tmp_path: Path) -> None:
    """It does not know the usual names; what it signed stands beside what it was asked."""
    unknown = faults.error(-32601, "the method eth_signTransaction does not exist/is not available")
    proxy.always["eth_signTransaction"] = unknown
    raw = kit.signers_raw(ACCOUNT, REQUEST)
    proxy.always["account_signTransaction"] = faults.result({"raw": raw, "tx": {}})
    assert remote(proxy, tmp_path, ACCOUNT.address).transaction(REQUEST).hex() == raw[2:]
    assert proxy.asked == ["eth_signTransaction", "account_signTransaction"]


def test_what_a_signer_signed_is_what_it_was_asked_to(chain: AnvilChain, proxy: Proxy, tmp_path: Path) -> None:
    """It shows one thing and signs another: nothing of that is sent."""
    from dataclasses import replace

    other: list[dict[str, Any]] = [
        *({"to": chain.accounts[0]}, {"value": 6}, {"nonce": 8}, {"data": b"other"}, {"gas": 21_001}, {"chain_id": 1}),
        *({"fees": Fees(101, 10)}, {"fees": Fees(100, 9)}, {"to": None}),
    ]
    answers: list[Any] = [kit.signers_raw(ACCOUNT, replace(REQUEST, **each)) for each in other]
    answers += [kit.signers_raw(kit.key_of(1), REQUEST), "0x", "0x02", "0x02c0", "raw", None, 5, {"raw": None}, {}]
    legacy = ACCOUNT.sign_transaction(
        {"to": REQUEST.to, "nonce": 7, "gas": 21_000, "gasPrice": 100, "value": 5, "chainId": CHAIN_ID}
    )
    answers.append("0x" + bytes(legacy.raw_transaction).hex())
    signer = remote(proxy, tmp_path, ACCOUNT.address)
    for answer in answers:
        proxy.faults = [("eth_signTransaction", faults.result(answer))]
        with pytest.raises(BadInput, match=r"the signer at 127.0.0.1:\d+ signed another transaction than the requested one"):
            signer.transaction(REQUEST)
    proxy.faults = [("eth_signTransaction", faults.result(kit.signers_raw(ACCOUNT, REQUEST)))]
    assert signer.transaction(REQUEST)


def test_what_a_signer_made_of_typed_data(chain: AnvilChain, proxy: Proxy, tmp_path: Path) -> None:
    signer = remote(proxy, tmp_path, chain.accounts[4])
    other = kit.key_of(1).sign_message(encode_typed_data(DOMAIN, TYPES, MESSAGE)).signature
    for answer in ("0x" + bytes(other).hex(), "0x" + "00" * 65, "0x", "signed", None, "0x" + "11" * 64):
        proxy.faults = [("eth_signTypedData_v4", faults.result(answer))]
        with pytest.raises(BadInput, match="did not sign the requested data with"):
            signer.typed(DOMAIN, TYPES, "Thing", MESSAGE)


def test_who_says_no_is_not_asked_again(proxy: Proxy, tmp_path: Path) -> None:
    proxy.always["eth_signTransaction"] = faults.error(4001, "user denied the request")
    with pytest.raises(BadInput, match=r"refused: user denied the request; nothing was sent"):
        remote(proxy, tmp_path, ACCOUNT.address).transaction(REQUEST)
    assert len(proxy.asked) == 1


def test_what_is_no_signer(proxy: Proxy, tmp_path: Path) -> None:
    for name in ("eth_signTransaction", "account_signTransaction"):
        proxy.always[name] = faults.error(-32601, "no such method")
    with pytest.raises(Unreachable, match="is not a signer: it supports neither eth_signTransaction nor account_signTransaction"):
        remote(proxy, tmp_path, ACCOUNT.address).transaction(REQUEST)
    proxy.always["eth_signTransaction"] = faults.cut_before
    with pytest.raises(Unreachable, match="does not answer eth_signTransaction"):
        remote(proxy, tmp_path, ACCOUNT.address).transaction(REQUEST)


@pytest.mark.usefixtures("with_keys")
def test_scores_by_two_signers_that_hold_their_keys(world: EvmWorld, proxy: Proxy, tmp_path: Path) -> None:
    """The scorer's key and the relayer's are elsewhere: neither is ever here."""
    world.open()
    world.commit(*world.agents[:2])
    world.close()
    place = kit.publish_toml(
        kit.competition(tmp_path / "small", world, {"m1": 9000, "m2": 6000}), world, key="pays", scorer="signs"
    )
    more = "".join(
        f'[keys.{name}]\nsigner = "{proxy.url}"\naccount = "{account}"\n'
        for name, account in (("pays", world.collector), ("signs", world.scorer))
    )
    with (place / "publish.toml").open("a") as file:
        file.write(more)
    assert isinstance(kit.sent(place), Confirmed)
    assert (kit.nonce(world, world.scorer), kit.nonce(world, world.collector)) == (0, 1)


# Nothing of a key anywhere


def test_no_key_is_shown_or_written(world: EvmWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in kit.environment().items():
        monkeypatch.setenv(name, value)
    world.open()
    world.commit(*world.agents[:2])
    world.close()
    place = kit.publish_toml(kit.competition(tmp_path / "small", world, {"m1": 9000, "m2": 6000}), world)
    kit.sent(place)
    signer = signer_of(publishers.read_target(place, "local"), "scorer")
    secrets = [value.removeprefix("0x") for value in kit.environment().values()]
    written = [path.read_bytes().decode("latin-1") for path in place.rglob("*") if path.is_file()]
    shown = [repr(signer), str(vars(signer)), repr(kit.opened(place)), repr(publishers.read_target(place, "local")), *written]
    for secret in secrets:
        assert not [text for text in shown if secret in text or bytes.fromhex(secret).decode("latin-1") in text]
