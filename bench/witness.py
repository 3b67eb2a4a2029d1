"""The cost of cosignatures by witnesses for each checkpoint, against settling the epoch; and of demanding them, against not.

    python bench/witness.py            epochs of 64 validators × 2 participants × 89 tasks: 11,392 records

`settle` is `assay.ledger.settling.settle`, up to the receipt in the log. `witness` is all that follows: three witnesses are asked
over loopback, each a process of its own that flushes its state to the disk; their cosignatures are checked, the checkpoint is
stored and shown. `verify` is `assay.verify` of a receipt file without evidence, with and without a policy of two of the three.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import assay
from assay.exact import canonical
from assay.ledger import batch, config, intake, keys, settling
from assay.ledger.access import make_ledger, open_ledger
from assay.ledger.keys import PrivateKey
from assay.publish.witnesses import LogWitnesses, policy_of
from assay.records import Tests

BUILD = Path(__file__).parents[1] / "build" / "bench"
VALIDATORS, TASKS, EPOCHS, WITNESSES, TIMES = 64, 89, 5, 3, 60
ORIGIN, NAME = "example.org/bench", "bench"
AIM, AIM_MS = 0.1, 1.0
BEGIN = datetime(2026, 11, 2, tzinfo=UTC)


def competition(place: Path, judges: list[PrivateKey]) -> None:
    """Two participants and as many tasks as Terminal-Bench has."""
    place.mkdir()
    (place / "scheme.toml").write_text(f'[scheme]\nname = "{NAME}"\n[score]\nkind = "tests"\n')
    (place / "participants.csv").write_text("key,uid,submission,submitted_at\na,1,s1,\nb,2,s2,\n")
    rows = "".join(f"{key.public.raw.hex()},{1000 + at},\n" for at, key in enumerate(judges))
    (place / "validators.csv").write_text(f"key,stake,name\n{rows}")
    (place / "tasks.txt").write_text("".join(f"task-{task:03}\n" for task in range(TASKS)))


def hand_in(place: Path, judges: list[PrivateKey], epoch: int) -> int:
    """Every validator's records of an epoch, each in a signed batch; returns how many."""
    rules, count = intake.intake_rules(place), 0
    with open_ledger(place) as ledger:
        for judge in judges:
            validator = judge.public.raw.hex()
            trials = [
                Tests(
                    kind="tests",
                    epoch=epoch,
                    validator=validator,
                    participant=participant,
                    submission=submission,
                    task=f"task-{task:03}",
                    outcome="pass" if (task + at + epoch) % 3 else "fail",
                    observed_at=BEGIN,
                )
                for at, (participant, submission) in enumerate((("a", "s1"), ("b", "s2")))
                for task in range(TASKS)
            ]
            signed = batch.make(
                trials, origin=ORIGIN, competition=NAME, task_set=rules.task_set, signer=judge, validator=validator
            )
            count += intake.accept(ledger.store, signed, rules).new
    return count


@contextmanager
def served(place: Path, number: int, log: str) -> Iterator[str]:
    """A witness in a process of its own; its line of a policy."""
    environment = os.environ | {"ASSAY_KEYS": str(place)}
    keys.path_of(str(place / f"w{number}.key"))
    (place / f"w{number}.key").write_bytes(keys.new().to_file())
    (place / f"w{number}.key").chmod(0o600)
    command = [sys.executable, "-m", "assay", "witness", "serve", str(place / f"state{number}"), "--port", "0"]
    command += ["--name", f"example.net/w{number}", "--key", f"w{number}", "--log", log]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.kill()


def median_ms(act: Callable[[], object], times: int) -> float:
    spent = []
    for _ in range(times):
        begun = time.perf_counter()
        act()
        spent.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(spent)


def measure(root: Path) -> tuple[int, list[float], list[float], float, float]:
    """Records of an epoch; ms of settling and of witnessing each; ms of verifying a receipt without and with a policy."""
    judges, signer, place = [keys.new() for _ in range(VALIDATORS)], keys.new(), root / "small"
    competition(place, judges)
    key = make_ledger(place, ORIGIN, signer).key
    settled, witnessed, count = list[float](), list[float](), 0
    with ExitStack() as stack:
        lines = [stack.enter_context(served(root, number, key)) for number in range(1, WITNESSES + 1)]
        names = " ".join(line.split(" ")[1] for line in lines)
        (place / config.POLICY).write_text(f"log {key}\n{''.join(lines)}group two 2 {names}\nquorum two\n")
        for epoch in range(1, EPOCHS + 1):
            count = hand_in(place, judges, epoch)
            with open_ledger(place) as ledger:
                policy = policy_of(ledger)
                assert policy is not None
                settled.append(median_ms(partial(settling.settle, ledger, signer, epoch), 1))
                witnessed.append(median_ms(partial(list, LogWitnesses(policy).bring_up(ledger)), 1))
        with open_ledger(place) as ledger:
            (root / "receipt").write_bytes(canonical(ledger.document(ledger.receipt(EPOCHS))))
    without = with_policy = 0.0
    for _ in range(3):  # in turns
        without = median_ms(lambda: assay.verify(root / "receipt", key=key), TIMES)
        with_policy = median_ms(lambda: assay.verify(root / "receipt", key=key, policy=place / config.POLICY), TIMES)
    return count, settled, witnessed, without, with_policy


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="witness-", dir=BUILD) as folder:
        count, settled, witnessed, without, with_policy = measure(Path(folder))
    pairs = zip(settled, witnessed, strict=True)
    print(f"epochs of {count:,} records, {WITNESSES} witnesses over loopback, quorum 2: settle ms, witness ms, ratio")
    for settle, witness in pairs:
        print(f"{settle:9.0f} {witness:9.1f} {witness / settle:8.3f}")
    ratio = statistics.median(witnessed) / statistics.median(settled)
    print(f"witnessing adds {ratio:.3f} of settling (aim: at most {AIM})")
    print(
        f"verify of a receipt: {without:.2f} ms, with a policy {with_policy:.2f}: {with_policy - without:+.2f} (aim: +{AIM_MS:g})"
    )
    if ratio > AIM or with_policy - without > AIM_MS:
        sys.exit("the aim is missed")


if __name__ == "__main__":
    main()
