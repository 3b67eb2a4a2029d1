"""Hotkeys from where wallets keep them; the coldkey beside them is never opened."""

import base64
import builtins
import io
import json
import os
from pathlib import Path
from typing import Any

import bittensor_core
import pytest

from assay.errors import BadInput
from assay.ledger.keys import PrivateKey
from assay.publish import publishers
from assay.publish.bittensor.settings import address, hotkey_of, public_of
from assay.publish.publishers import Target
from depth import FULL

ALICE = bittensor_core.Keypair.from_uri("//Alice")
BOB = bittensor_core.Keypair.from_uri("//Bob")
WORDS = "bottom drive obey lake curtain smoke basket hold race lonely fit walk"
"""Of the chain's own development accounts: everybody knows it."""
PASSPHRASE = "let me in"
ENCRYPTED = base64.b64decode(
    "JE5BQ0xyEMI5VBos4SZyhoPrrwPRf3B1ScPFwMMSOdrBApEwVUmGxSsZDFIj5ze6v23iU/7lxXt5g3WA8gUUvqbzJt83AVlmFTUaC0yz8/iMgj0mghk4"
    "qnZBLZirUqFRH6HBpmhfXrWP5CnmdpFtZAeAJWIqrm1We2l6AaNFbz74uXvidGAtPR4L8U4T9HRpruMZlfVccua42lGGEh3skIk/ioVlQDv7nR9fo/K7"
    "3tRDJduJbfCVQi2ezzir7bX6sJ1241WGoO6+qmmz40FvvtikeFpjcKE3QhXupZWKxoxM9KAZmzaVgMQCebXvmfbh26Be94u6BEIYv8WvK3ICcymLMf3x"
    "Jq3kSvjwG8vqqRLezxETfROJ/F7t9qGiLrjkbJz4BxhmqscJ00XNGWsnNVqbPfaRA1d9ZVpsrCqUGGQ+t39g9TPiBQWE+4cyJ4Gy7+35Uga9glLVnEU3"
    "zyxQAT9kANPySJk0yvMaZq5WG/u1uNHSMofVNQXF5LVvd5XLHZU/aF9pawtRsvORbmK7vWQ29han2VPCah5Od6AwSdM3LjXawiNl7bRdnY+Cb0MtrS8="
)
"""Alice's key file under that passphrase, as the usual program wrote it: to derive a key takes seconds."""


def wallet(place: Path, name: str = "val", hotkey: str = "default", *, encrypted: bool = False, public: bool = True) -> Path:
    """A wallet as the usual program leaves it."""
    hotkeys = place / name / "hotkeys"
    hotkeys.mkdir(parents=True)
    data = bytes(bittensor_core.serialized_keypair_to_keyfile_data(ALICE))
    bare = json.dumps({"ss58Address": ALICE.ss58_address, "accountId": "0x" + ALICE.public_key.hex()}).encode()
    under_passphrase = bittensor_core.encrypt_keyfile_data(data, PASSPHRASE) if encrypted and FULL else ENCRYPTED
    files = {hotkeys / hotkey: under_passphrase if encrypted else data}
    files |= {place / name / "coldkey": b"$NACL never to be read", place / name / "coldkeypub.txt": b"{}"}
    files |= {hotkeys / f"{hotkey}pub.txt": bare} if public else {}
    for path, content in files.items():
        path.write_bytes(content)
        path.chmod(0o600)
    return hotkeys / hotkey


def target(place: Path, asked: str | None = None, **key: Any) -> Target:
    rows = "".join(f"{name} = {json.dumps(value)}\n" for name, value in key.items())
    (place / "publish.toml").write_text(f'[targets.sn]\nkind = "bittensor"\n[keys.me]\n{rows}')
    return publishers.read_target(place, "sn", None if asked is None else lambda: asked)


def opened(there: Target) -> PrivateKey:
    hotkey = hotkey_of(there, "me")
    assert ALICE.verify(b"something", hotkey.sign(b"something"))
    assert address(hotkey.public) == ALICE.ss58_address
    return hotkey


def test_a_wallet_of_the_usual_layout(tmp_path: Path) -> None:
    wallet(tmp_path / "wallets")
    there = target(tmp_path, wallet="val", wallets="wallets")
    assert public_of(there, "me") == ALICE.ss58_address
    opened(there)


def test_wallets_are_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    wallet(tmp_path / "home" / ".bittensor" / "wallets", hotkey="second one")
    opened(target(tmp_path, wallet="val", hotkey="second one"))


@pytest.mark.full
def test_an_encrypted_one_takes_a_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = wallet(tmp_path / "wallets", encrypted=True, public=False)
    settings = {"wallet": "val", "wallets": "wallets"}
    assert public_of(target(tmp_path, **settings), "me") is None
    if FULL:  # the key of the file takes two seconds, and a passphrase from elsewhere is tried below
        opened(target(tmp_path, PASSPHRASE, **settings))
    with pytest.raises(BadInput, match="does not open"):
        opened(target(tmp_path, "wrong", **settings))
    with pytest.raises(BadInput, match="is encrypted"):
        opened(target(tmp_path, **settings))
    monkeypatch.setenv("ASSAY_PASSPHRASE", PASSPHRASE)
    opened(target(tmp_path, **settings))
    assert path.read_bytes().startswith(b"$NACL")


def test_a_key_file_by_its_path(tmp_path: Path) -> None:
    path = wallet(tmp_path / "wallets", public=False)
    for keyfile in (str(path), "wallets/val/hotkeys/default"):
        there = target(tmp_path, keyfile=keyfile)
        assert public_of(there, "me") == ALICE.ss58_address
        opened(there)


def _words() -> Any:
    return bittensor_core.Keypair.from_mnemonic(WORDS)


@pytest.mark.parametrize("form", ["words", "seed", "file"])
def test_a_key_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    there = target(tmp_path, env="HOTKEY")
    with pytest.raises(BadInput, match="the variable HOTKEY is empty"):
        public_of(there, "me")
    seeded = bittensor_core.Keypair.from_seed(b"\7" * 32)
    value, pair = {
        "words": (f"  {WORDS}\n", _words()),
        "seed": ("0x" + "07" * 32, seeded),
        "file": (bytes(bittensor_core.serialized_keypair_to_keyfile_data(ALICE)).decode(), ALICE),
    }[form]
    monkeypatch.setenv("HOTKEY", value)
    hotkey = hotkey_of(there, "me")
    assert address(hotkey.public) == public_of(there, "me") == pair.ss58_address
    assert pair.verify(b"m", hotkey.sign(b"m"))


def test_a_hotkey_that_is_not_there_is_missed_before_anything_is_signed(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"wallets/mine/hotkeys/default: no such file; correct keys\.me in publish\.toml"):
        public_of(target(tmp_path, wallet="mine", wallets="wallets"), "me")


@pytest.mark.parametrize("value", ["", "07" * 31, WORDS + " walk", WORDS.upper(), "//Alice", "{}"])
def test_what_is_no_key_is_refused_without_being_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HOTKEY", value)
    with pytest.raises(BadInput, match="is empty" if not value else "holds no hotkey") as refused:
        hotkey_of(target(tmp_path, env="HOTKEY"), "me")
    assert not value or value not in str(refused.value)


def test_others_may_not_read_it(tmp_path: Path) -> None:
    wallet(tmp_path / "wallets").chmod(0o640)
    with pytest.raises(BadInput, match=r"can be read by others \(mode 0640\)"):
        opened(target(tmp_path, wallet="val", wallets="wallets"))


def test_a_key_that_is_not_the_one_named_is_refused(tmp_path: Path) -> None:
    path = wallet(tmp_path / "wallets")
    settings = {"wallet": "val", "wallets": "wallets"}
    opened(target(tmp_path, **settings, account=ALICE.ss58_address))
    with pytest.raises(BadInput, match="the key belongs to"):
        opened(target(tmp_path, **settings, account=BOB.ss58_address))
    path.with_name("defaultpub.txt").write_text(json.dumps({"ss58Address": BOB.ss58_address}))
    with pytest.raises(BadInput, match="is written beside it"):
        opened(target(tmp_path, **settings))


def test_an_ed25519_key_is_no_hotkey(tmp_path: Path) -> None:
    path = tmp_path / "k.key"
    path.write_text("07" * 32)
    path.chmod(0o600)
    with pytest.raises(BadInput, match="is not a hotkey"):
        hotkey_of(target(tmp_path, keyfile="k.key"), "me")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "one of wallet, keyfile and env"),
        ({"wallet": "a", "env": "B"}, "one of wallet, keyfile and env"),
        ({"wallet": "../cold"}, "wallet"),
        ({"wallet": "val", "hotkey": "../coldkey"}, "hotkey"),
        ({"env": "A", "account": "nobody"}, "account"),
        ({"env": "A", "account": "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQX"}, "not an SS58 address"),
    ],
)
def test_a_place_that_is_none(tmp_path: Path, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        public_of(target(tmp_path, **settings), "me")


def test_the_coldkey_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way by which Python opens a file is watched; the library is given bytes, and no path."""
    wallet(tmp_path / "wallets")
    seen: list[str] = []
    for module, name in ((io, "open"), (builtins, "open"), (os, "open")):
        real = getattr(module, name)

        def watched(path: Any, *args: Any, real: Any = real, **options: Any) -> Any:
            seen.append(str(path))
            return real(path, *args, **options)

        monkeypatch.setattr(module, name, watched)
    there = target(tmp_path, wallet="val", wallets="wallets")
    public_of(there, "me")
    opened(there)
    assert any(path.endswith("hotkeys/default") for path in seen)
    assert not [path for path in seen if "cold" in Path(path).name]
