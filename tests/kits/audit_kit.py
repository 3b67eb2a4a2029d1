"""A settled and witnessed epoch for tests of audits: m1 beats m2 by far, and every record names the work of its trial."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import ledger_kit
import small_folder
from assay.ledger import bundle, cosigning, keys, settling
from assay.ledger.cosigning import ED25519, WitnessKey

TASKS = [f"t{number:02}" for number in range(20)]
RULES = '[reward]\nstrategy = "winner-takes-all"\n[evidence]\nkeep = "work"\n[audit]\ndelay = "10m"\n'
WITNESS = keys.read(b"99" * 32)
VKEY = WitnessKey("example.net/w", ED25519, WITNESS.public.raw)
POLICY = f"witness w {VKEY}\nquorum w\n"
ROUND, ROUND_TIME = 1000, 1_692_806_364
"""A round of drand, and when it came; the epoch is witnessed ten minutes earlier."""
SIGNATURE = "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39"
RANDOMNESS = "fe290beca10872ef2fb164d2aa4442de4566183ec51c56ff3cd603d930e54fdd"
PASSES = {"m1": 16, "m2": 8}


def work_of(row: dict[str, Any]) -> str:
    """The digest of a trial's work, as the record names it."""
    return f"sha256:{sha256('/'.join(row[name] for name in ('validator', 'participant', 'task')).encode()).hexdigest()}"


def evidence(passes: dict[str, int] = PASSES) -> list[dict[str, Any]]:
    """The evidence of the three validators: the first tasks passed; the last fail of each participant had no tests run on it."""
    rows = []
    for validator in ledger_kit.VALIDATORS:
        for who, submission in (("m1", "s1"), ("m2", "s2")):
            for number, task in enumerate(TASKS):
                outcome = "pass" if number < passes[who] else "timeout" if number == 19 else "fail"
                row = small_folder.record(validator=validator, participant=who, submission=submission, task=task, outcome=outcome)
                rows.append(row if number == 19 else row | {"work": work_of(row)})
    return rows


def witnessed(place: Path, rules: str = RULES, passes: dict[str, int] = PASSES) -> Path:
    """The bundle of the settled epoch, in a new competition's folder; its policy is beside the ledger."""
    scheme = small_folder.SCHEME + rules
    ledger_kit.made(place, scheme_toml=scheme, tasks_txt="".join(f"{task}\n" for task in TASKS))
    ledger_kit.add(place, evidence(passes))
    with ledger_kit.opened(place) as ledger:
        receipt = settling.settle(ledger, ledger_kit.SIGNER, 3).receipt
        assert receipt is not None
        text = cosigning.text_of(receipt.checkpoint)
        line = cosigning.cosign(text, VKEY.name, WITNESS, ROUND_TIME - 600)
        ledger.cosigned(cosigning.merged(receipt.checkpoint, [line]), 1)
        bundle.export(ledger, 3, place / "epoch-3")
    (place / "witnesses.policy").write_text(POLICY)
    return place / "epoch-3"
