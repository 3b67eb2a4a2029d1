"""An enclave's service as a program, with a clock that is a file and short pauses: `python serving.py JSON`."""

import json
import sys
from datetime import datetime
from pathlib import Path

from assay.enclave.service.judging import RetryPauses
from assay.enclave.service.lifecycle import ServiceOptions
from assay.enclave.service.process import StartOptions, serve_competition
from assay.errors import AssayError
from assay.judge.rubric.asking import Models, Price
from assay.judge.rubric.judgement import JudgeLimits


def main(settings: dict[str, str]) -> None:
    def clock() -> datetime:
        return datetime.fromisoformat(Path(settings["clock"]).read_text())

    def tell(line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    pauses = RetryPauses(first=0.02, longest=0.1, tick=0.02)
    limits = JudgeLimits(
        seconds=float(settings.get("seconds", "20")), tries=2, patience=0.2, first_pause=0.02, longest_pause=0.05
    )
    models = Models(settings["model"], settings["key"], prices={"primary": Price(270_000, 1_100_000), "second": Price(1, 1)})
    setting = ServiceOptions(clock=clock, pauses=pauses)
    try:
        serve_competition(
            StartOptions(Path(settings["competition"]), settings["listen"], models, tell, settings["dstack"], setting, limits)
        )
    except AssayError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
