"""A season that a validator follows over loopback: the operator's folder with tasks, agents and a ledger, and the keys."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json import loads
from pathlib import Path
from typing import Any

import judge_kit
import ledger_kit
from assay.judge.terminal.competition import submit_agent
from assay.ledger import config, log, settling, store
from assay.ledger.check import EMPTY_ROOT
from assay.ledger.config import Config
from assay.ledger.log import Log
from assay.node import NodeOptions
from assay.node.validator import once
from cli_kit import rewrite
from ledger_kit import SIGNER, V1, VALIDATORS
from service_kit import Running

KEY = "val-1"
"""The name of the validator's key, of the file that `keys_in` writes."""
PATIENCE = 90.0
"""Seconds for what takes one; a machine may be busy."""
RIGHT, WRONG = "echo working\necho hello > /app/out.txt\n", "echo no > /app/out.txt\n"


def operator(place: Path, *, tasks: tuple[str, ...] = ("t1",), agents: dict[str, str] | None = None, name: str = "small") -> Path:
    """The operator's folder: one validator, real tasks, an agent (participant → script) each, an empty ledger."""
    for task in tasks:
        judge_kit.make_task(place / "tasks" / task)
    judge_kit.make_competition(place, dict.fromkeys(agents or {"m1": RIGHT}, ""), validators=[V1])
    rewrite(place / "scheme.toml", '"small"', f'"{name}"')
    (place / "validators.csv").write_text(f"key,stake,name\n{V1},100,val-1\n")
    with_ledger(place, name)
    for participant, script in (agents or {"m1": RIGHT}).items():
        submit(place, participant, script)
    return place


def with_ledger(place: Path, name: str) -> Path:
    """The same folder, with an empty ledger."""
    key = log.log_key(ledger_kit.ORIGIN, SIGNER.public)
    settings = Config(place, ledger_kit.ORIGIN, str(key))
    store.create(settings.place, store.Meta(name, settings.origin, settings.key)).close()
    Log.create(settings.tiles, key, log.sign_checkpoint(0, EMPTY_ROOT, key, SIGNER))
    config.write(settings)
    return place


def submit(place: Path, participant: str, script: str) -> str:
    """Hand in an agent, which is a script, as the operator's folder takes it; returns its digest."""
    folder = place.parent / f"agent-{participant}-{len(script)}"
    judge_kit.make_agent(folder, script)
    (folder / "link").symlink_to("run.sh")
    return submit_agent(place, participant, str(folder)).agent.digest


def keys_in(place: Path) -> str:
    """A folder with the validator's key, as ASSAY_KEYS names it."""
    place.mkdir(exist_ok=True)
    file = place / f"{KEY}.key"
    file.write_bytes(b"01" * 32)
    file.chmod(0o600)
    return str(place)


def settle(place: Path, epoch: int) -> None:
    """Close an epoch of the operator's folder, as `assay settle` does."""
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER, epoch, without_scores=True)


def stored(place: Path) -> list[tuple[int, str, str, int]]:
    """What the ledger has: (epoch, task, outcome, trial) of each record, in the order of acceptance."""
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        rows = [loads(record.body) for record in view.records()]
    return [(row["epoch"], row["task"], row["outcome"], row.get("trial", 1)) for row in rows]


def conflicts(place: Path) -> int:
    """How many records of the ledger contradict an earlier one."""
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        return sum(1 for _ in view.conflicts())


def until(happened: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait for something that happens in another process."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@contextmanager
def node(folder: Path, url: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A node in a process of its own; what it prints goes to a file beside its folder."""
    command = [sys.executable, "-m", "assay", "node", "validator", str(folder), "--url", url, "--key", KEY, *options]
    with folder.with_suffix(".out").open("a") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def one_round(service: Running, folder: Path, messages: list[str] | None = None, own: Any = None) -> bool:
    """A round in this process, in the only competition of a service. own: the settings of its judge."""
    (segment,) = service.site.competitions

    def tell(line: str) -> None:
        if messages is not None and not line.startswith(("alarm: ", "over: ")):
            messages.append(line)

    return once(folder, f"{service.address}/{segment}", VALIDATORS[V1], NodeOptions(settings=lambda kind: own), tell) == 0


def lines(folder: Path) -> list[str]:
    """What a validator has judged: the lines of its evidence."""
    file = folder / "evidence" / f"run-{V1}.jsonl"
    return file.read_text().splitlines() if file.exists() else []


__all__ = [
    "KEY", "PATIENCE", "RIGHT", "WRONG", "conflicts", "keys_in", "lines", "node", "one_round", "operator", "settle", "stored",
    "submit", "until", "with_ledger",
]  # fmt: skip
