"""A bounty's folder for the commands that send to a chain: what sponsor, agents and operator have, and how they type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import publish_kit as kit
from assay.ledger import keys, settling
from cli_kit import Json, run
from evm_kit import CHAIN_ID, ETHER, HOUR, AnvilChain
from ledger_kit import SIGNER

PEOPLE = {key.public.raw.hex(): key for key in (keys.read(f"{number:02}".encode() * 32) for number in (11, 12, 13))}
P1, P2, P3 = PEOPLE
NUMBERS = {P1: 7, P2: 8, P3: 9}
"""Their accounts, of anvil's."""
BOUNTY = """problem = "Sort a list."
[bounty]
name = "sorting"
commitments_until = {commit}
[[checks]]
id = "c1"
weight = 4000
[[checks]]
id = "c2"
weight = 3000
[[checks]]
id = "c3"
weight = 2000
[[checks]]
id = "c4"
weight = 1000
[payout]
deposit = "{deposit}"
threshold_bps = 7000
split = [7000, 3000]
fee_bps = 250
scoring_deadline = {score}
"""
SCHEME = """[scheme]
name = "sorting"
[score]
kind = "rubric"
[consensus]
min_validators = 1
min_stake = "0"
[reward]
kind = "payout"
"""


def account(number: int) -> str:
    return str(kit.key_of(number).address)


def time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@pytest.fixture
def place(chain: AnvilChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bounty's folder with a ledger and participants; on the chain there is nothing of it yet."""
    for name, number in (("ONE", 7), ("TWO", 8), ("THREE", 9)):
        monkeypatch.setenv(f"KEY_{name}", bytes(kit.key_of(number).key).hex())
    now = chain.now
    rows = [f"{key},,p{at},s-{at},{time(now + at)},,{account(NUMBERS[key])}" for at, key in enumerate(PEOPLE, 1)]
    people = "key,uid,name,submission,submitted_at,last_reset_epoch,address\n" + "\n".join(rows) + "\n"
    text = BOUNTY.format(commit=time(now + HOUR), score=time(now + 2 * HOUR), deposit=ETHER)
    files: dict[str, Any] = {"scheme_toml": SCHEME, "bounty_toml": text, "participants_csv": people, "tasks_txt": None}
    folder = ledger_kit.ledger_folder(tmp_path / "bounty", "rubric", **files)
    target(folder, chain)
    return folder


def target(place: Path, chain: AnvilChain, **more: Any) -> None:
    fields = {"kind": "evm", "rpc": chain.url, "chain_id": CHAIN_ID, "key": "scorer", "confirmations": 1, "max_tip_gwei": "1"}
    fields |= {"fee_recipient": account(6), "only_scorer": account(2)} | more
    rows = [f"{name} = {json.dumps(value)}" for name, value in fields.items() if value is not None]
    text = "[targets.local]\n" + "\n".join(rows) + "\n"
    text += "".join(f'[keys.{name}]\nenv = "KEY_{name.upper()}"\n' for name in ("scorer", "sponsor", "one", "two", "three"))
    (place / "publish.toml").write_text(text)


def printed(*words: str | Path, code: int | None = 0) -> Json:
    document: Json = json.loads(run(*words, "--json", code=code).stdout)
    return document


def bounty(name: str, place: Path, *words: str | Path, key: str | None = None, yes: bool = True, code: int | None = 0) -> Json:
    more: list[str | Path] = [*(["--as", key] if key else []), *(["--yes"] if yes else [])]
    return printed("bounty", name, place, *words, "--to", "local", *more, code=code)


def opened(place: Path, chain: AnvilChain) -> None:
    bounty("oracle", place)
    bounty("create", place, key="sponsor")
    bounty("fund", place, key="sponsor")


ONE = f"sha256:{'ab' * 32}"
"""The digest of a judgement's document that nobody has."""


def judged(
    place: Path,
    chain: AnvilChain,
    scores: dict[str, int | None],
    epoch: int = kit.EPOCH,
    named: Mapping[str, str | None] | str | None = ONE,
) -> None:
    """named: the digest of the judgement's document, as the evidence has it; or each participant's."""
    rows = [
        kit.rubric(bps, epoch=epoch, participant=key, submission=f"s-{at}", attestation=names.get(key))
        for names in [named if isinstance(named, Mapping) else dict.fromkeys(scores, named)]
        for at, (key, bps) in enumerate(scores.items(), 1)
    ]
    ledger_kit.add(place, rows)
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER, epoch, skip=True)
