"""The cost of nodes: a validator's that waits, the seconds from hand-in to the first trial, and an operator that catches up.

    python -m bench node

The service, the validator's node and the participant are processes on one machine. Catching up is compared with settling the same
epochs through the library, which is what a node cannot do with less.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from assay.judge.terminal.competition import submit_agent
from assay.ledger import intake, settling
from assay.ledger.access import make_ledger, open_ledger
from assay.ledger.keys import PrivateKey
from assay.node.closing import Closer
from bench import serving, small
from bench.polling import cpu_seconds

EPOCHS = 100
IDLE_SECONDS = 60.0
HOUR = 3600
START = datetime(2026, 11, 1, tzinfo=UTC)
CLOCK = '[epoch]\nevery = "1h"\nstart = "2026-11-01T00:00:00Z"\n'
PATIENCE = 300.0


def main() -> None:
    with serving.scratch() as work:
        idle, memory, hand_in = waiting(work)
        by_hand, caught_up = catching_up(work)
    ratio = caught_up / by_hand
    waits = f"{100 * idle:.2f} % of a core (aim: at most 1 %), {memory / 2**20:.0f} MiB (aim: at most 80)"
    print(f"a validator's node that waits: {waits}")
    print(f"from hand-in to the first trial begun: {hand_in:.2f} s (aim: at most 2 s)")
    print(f"catching up {EPOCHS} epochs: {ratio:.2f} × the CPU time of settling them, {by_hand:.2f} s (aim: at most 1.2)")
    if idle > 0.01 or memory > 80 * 2**20 or hand_in > 2 or ratio > 1.2:
        raise SystemExit("an aim is missed")


def waiting(work: Path) -> tuple[float, int, float]:
    """The part of a core and the bytes of a node that waits, all its processes together; seconds from a hand-in to a trial."""
    (signer,) = serving.signers(1)
    key = work / "val.key"
    key.write_text(serving.seed(0))
    key.chmod(0o600)
    theirs, mine = small.competition(work / "theirs", tasks=1, trials=1), work / "mine"
    (theirs / "validators.csv").write_text(f"key,stake\n{signer.public.raw.hex()},100\n")
    make_ledger(theirs, serving.ORIGIN, serving.SIGNER)
    with serving.served(theirs) as service:
        url = f"http://127.0.0.1:{service.port}/bench"
        command = [sys.executable, "-m", "assay", "node", "validator", str(mine), "--url", url, "--key", str(key)]
        node = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _until(lambda: len(_begun(mine)) == 2, "it judges what is there")
            time.sleep(10)
            family, begun = serving.family(node.pid), time.monotonic()
            before = sum(map(cpu_seconds, family))
            time.sleep(IDLE_SECONDS)
            idle = (sum(map(cpu_seconds, family)) - before) / (time.monotonic() - begun)
            memory = serving.occupied(serving.family(node.pid))
            source = small.agent(work / "new", "echo hello > out.txt; true\n")
            first = time.monotonic()
            submit_agent(theirs, small.SOLVER, str(source))
            _until(lambda: len(_begun(mine)) == 3, "it begins the new one")
            return idle, memory, time.monotonic() - first
        finally:
            node.terminate()
            node.wait()


def _begun(folder: Path) -> list[Path]:
    """The trials that were begun in a validator's folder."""
    return [path for path in (folder / "trials").glob("*/*/*/*") if path.is_dir()]


def _until(happened: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > end:
            raise SystemExit(f"in {PATIENCE:.0f} seconds it did not happen: {what}")
        time.sleep(0.01)


def catching_up(work: Path) -> tuple[float, float]:
    """CPU seconds of settling so many epochs, and of an operator's clock that finds them all ended."""
    (signer,) = serving.signers(1)
    folders = [season(work / name, signer) for name in ("hand", "node")]
    before = time.process_time()
    with open_ledger(folders[0]) as ledger:
        for epoch in range(1, EPOCHS + 1):
            settling.settle(ledger, serving.SIGNER, epoch)
    by_hand, before = time.process_time() - before, time.process_time()
    end = START.timestamp() + EPOCHS * HOUR + 1
    closer = Closer([folders[1]], {folders[1]: serving.SIGNER}, lambda line: None, clock=lambda: end, catch_up=True)
    closer.carry_out(wait=False)
    with open_ledger(folders[1]) as ledger, ledger.store.reading() as view:
        if len(view.settled_epochs()) != EPOCHS:
            raise SystemExit("it did not settle all epochs")
    return by_hand, time.process_time() - before


def season(folder: Path, signer: PrivateKey) -> Path:
    """A competition of 16 participants, all judged in epoch 1."""
    people = [key.public.raw.hex() for key in serving.signers(16)]
    serving.competition(folder, "tests", people, [signer], tasks=4)
    scheme = folder / "scheme.toml"
    scheme.write_text(scheme.read_text() + CLOCK)
    records = [row for person in people for row in serving.trials(signer, person, range(4))]
    with open_ledger(folder) as ledger:
        intake.accept(ledger.store, serving.signed_batch(folder, signer, records), intake.intake_rules(folder))
    return folder
