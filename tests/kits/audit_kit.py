"""A settled and witnessed epoch for tests of audits: m1 beats m2 by far, and every record names the work of its trial."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import joint_kit
import ledger_kit
import small_folder
from assay.ledger import audit_log, auditing, beacon, bundle, cosigning, keys, settling, subnet_bundle
from assay.ledger.auditing import AuditedEpoch
from assay.ledger.cosigning import ED25519, WitnessKey

Seen = dict[str, list[str]]
TASKS = [f"t{number:02}" for number in range(20)]
RULES = '[reward]\nstrategy = "winner-takes-all"\n[evidence]\nkeep = "work"\n[audit]\ndelay = "10m"\n'
LEAVES_OUT = RULES + 'failed = "leave-out"\n[consensus]\nmin_validators = 2\n'
AUDITOR = keys.read(b"55" * 32)
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
    ledger_kit.ledger_folder(place, scheme_toml=scheme, tasks_txt="".join(f"{task}\n" for task in TASKS))
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


def carried_out(epoch: AuditedEpoch, randomness: bytes, lies: Callable[[Any], bool] = lambda _: False) -> Seen:
    """What an auditor sees of each trial that it has to judge again."""
    seen: Seen = {}
    while wanted := auditing.next_trials(epoch, randomness, seen):
        for trial in wanted:
            assert trial.record not in seen
            truth = trial.passed != lies(trial)
            seen[trial.record] = ["pass" if truth else "fail"] * (3 if lies(trial) else 1)
    return seen


def signed_audit(place: Path, lies: Callable[[Any], bool], epoch: int = 3) -> tuple[Path, str]:
    """An audit of epoch 3, in which these claims are false, and the digest of its payload."""
    seen = auditing.audited_epoch(place / "epoch-3", str(ledger_kit.KEY))
    randomness = auditing.given("ab" * 32)
    predicate = auditing.predicate_of(seen, randomness, carried_out(seen, randomness.value, lies))
    payload = auditing.statement_of(predicate | {"epoch": epoch})
    path = audit_log.append(place / "audits", "example.org/small/audits", AUDITOR, payload)
    return path, f"sha256:{sha256(payload).hexdigest()}"


def marked(place: Path, liar: str, digest: str, target: Path) -> Path:
    """The bundle of the next epoch, in which the registry names the audit."""
    header, *rows = (place / "validators.csv").read_text().splitlines()
    if "failed_audit" not in header:
        header += ",failed_audit"
        rows = [f"{row}," for row in rows]
    rows = [f"{row.rpartition(',')[0]},{digest}" if row.startswith(liar) else row for row in rows]
    (place / "validators.csv").write_text("\n".join([header, *rows, ""]))
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        epoch = view.settled_epochs()[-1] + 1
    row = small_folder.record(validator=ledger_kit.V2, participant="m1", submission="s1", task="t00", epoch=epoch)
    ledger_kit.add(place, [row])
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, epoch)
        bundle.export(ledger, epoch, target)
    return target


def subnet(place: Path) -> Path:
    """Exports `emission-3` and `emission-4` of a subnet: the first competition's epoch 3 is audited, its epoch 4 marks a liar.

    The audit is drawn by the round of drand; the witness cosigned the subnet's checkpoint of epoch 3 too.
    """
    witnessed(place / "one", LEAVES_OUT)
    epoch = auditing.audited_epoch(place / "one" / "epoch-3", str(ledger_kit.KEY), place / "one" / "witnesses.policy")
    source = {"round": ROUND, "randomness": RANDOMNESS, "signature": SIGNATURE}
    drawn = auditing.of_beacon(beacon.parse_round(json.dumps(source).encode(), epoch.round))
    lies = carried_out(epoch, drawn.value, lambda trial: is_of(ledger_kit.V1, trial))
    payload = auditing.statement_of(auditing.predicate_of(epoch, drawn, lies))
    audit = audit_log.append(place / "one" / "audits", "example.org/small/audits", AUDITOR, payload)
    joint_kit.competition(place / "two", "given", 3)
    joint_kit.settle(place / "two")
    path = joint_kit.with_log(joint_kit.subnet(place, "one 60%", "two 40%"))
    receipt = subnet_bundle.sign(path, joint_kit.SUBNET).receipt
    line = cosigning.cosign(cosigning.text_of(receipt.checkpoint), VKEY.name, WITNESS, ROUND_TIME)
    with ledger_kit.opened(path) as ledger:
        ledger.cosigned(cosigning.merged(receipt.checkpoint, [line]), 1)
    subnet_bundle.export(path, 3, place / "emission-3")
    marked(place / "one", ledger_kit.V1, audit_log.read_audit(audit).digest, place / "epoch-4")
    ledger_kit.add(place / "two", [row | {"score": "0.5"} for row in ledger_kit.records("given", epoch=4)])
    joint_kit.settle(place / "two", 4)
    subnet_bundle.sign(path, joint_kit.SUBNET)
    subnet_bundle.export(path, 4, place / "emission-4")
    return path


def is_of(validator: str, trial: Any) -> bool:
    """Whether a trial is one that this validator claims something of."""
    return bool(trial.validator == validator)
