"""The judge: it asks the service of each participant, and writes how long that took."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

from assay.judge import entries
from assay.judge.keeping import append, evidence_file
from assay.judge.running import Event, Options, Summary
from assay.scheme.load import read


@dataclass(frozen=True)
class Cell:
    """One round of one participant."""

    participant: str
    submission: str
    round: int

    @property
    def parts(self) -> dict[str, str]:
        """What tells it from others of this participant, for people."""
        return {"round": str(self.round)}


def run(competition: Path, validator: str, options: Options, on_event: Callable[[Event], None]) -> Summary:
    """Judges what has no evidence of this validator yet; a service that cannot be reached is an error, and none is written."""
    who = entries.read(competition, read(competition / "scheme.toml"), validator, options.participants)
    written = entries.written(who, lambda one: (one.submission, getattr(one, "round", 0)))
    rounds = getattr(who.scheme.score, "rounds", 1)
    cells = [Cell(one.key, one.submission, at) for at in range(1, rounds + 1) for one in entries.counting(who.participants)]
    missing = [one for one in cells if (one.submission, one.round) not in written.done]
    epoch = options.epoch or written.epoch or 1
    summary = Summary(planned=len(missing), epoch=epoch, unit="round", submission="service")
    for cell in missing:
        on_event(Event("began", cell))
        began = time.perf_counter_ns()
        try:
            with urlopen(cell.submission, timeout=options.own["timeout"]) as answer:
                answer.read(1 << 20)
        except OSError as error:
            summary.errors.append((cell, str(error)))
            continue
        record = {"kind": "latency", "epoch": epoch, "validator": validator, "participant": cell.participant}
        record |= {"submission": cell.submission, "round": cell.round, "us": (time.perf_counter_ns() - began) // 1000}
        record |= {"observed_at": datetime.now(UTC).isoformat()}
        append(evidence_file(competition, validator), json.dumps(record).encode() + b"\n")
        summary.outcomes["answered"] += 1
    return summary
