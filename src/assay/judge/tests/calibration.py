"""Calibration: a task judges nobody before it has judged right here. SPEC 2.1.

In one sandbox, image and mode, and within one set of bounds, the reference solution has to pass and doing nothing has to fail, k
times each. Of a task without a solution only the second can be tried. What came of it is kept in the machine's state folder, so
that it costs these trials once, whichever competition, validator or command asks:

    STATE/calibrations/<64 hex digits>.json     schema assay.calibration/1; the name is the digest of all that it depends on

Only what judged right is kept. What did not is tried again by the next run: meanwhile somebody may have mended the machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from pydantic import Field

from assay.errors import BadInput
from assay.exact import digest
from assay.folder.write import write_text
from assay.judge.sandbox import bases
from assay.judge.sandbox.box import Image, Sandbox, Trouble
from assay.judge.sandbox.root import programs
from assay.judge.tests import agent as agents
from assay.judge.tests.agent import Agent
from assay.judge.tests.tasks import Mode, Task
from assay.judge.tests.trial import KEEPING, Judge, Keeping, Tried, run_trial
from assay.scheme.fields import Section
from assay.scheme.reading import validate

__all__ = ["Calibration", "Uncalibrated", "calibrate", "said_last"]

_TAIL = 20_000
"""Bytes of an output's end that are looked at for what went wrong."""
_LINE = 300
_TROUBLE = re.compile(
    r"not found|no such|denied|error|cannot|can't|could not|unable|fail|refused|missing|exception|traceback|unresolved|expected",
    re.IGNORECASE,
)
_SHELL = re.compile(r"^(?:/tests/|/solution/)?[\w.-]+\.sh: line \d+: ")


class Uncalibrated(BadInput):
    """A task does not judge right here, so that it judges nobody."""


class Calibration(Section):
    """That a task judged right here."""

    schema_: Annotated[Literal["assay.calibration/1"], Field(alias="schema")] = "assay.calibration/1"
    task: str
    """Its digest."""
    sandbox: str
    """As it describes itself: which, its version, how bounds are held."""
    image: str
    """The digest of what boxes start from."""
    mode: Mode
    times: Annotated[int, Field(ge=1, le=1000)]
    """How often each was tried."""
    solution: bool
    """Whether there was a reference solution to try; without one it was only seen that doing nothing fails."""


@dataclass(frozen=True)
class _Asked:
    """What a calibration depends on."""

    task: str
    sandbox: str
    image: str
    mode: Mode
    keeping: Keeping
    programs: str
    """Those of the host, if boxes see them: the image's digest knows packages only."""

    @property
    def file(self) -> Path:
        return bases.state() / "calibrations" / f"{digest(asdict(self)).removeprefix('sha256:')}.json"


def calibrate(
    sandbox: Sandbox, task: Task, image: Image, *, times: int = 1, keeping: Keeping = KEEPING
) -> tuple[Calibration, bool]:
    """The task's calibration in this sandbox and image, and whether it had been kept; carried out if there is none.

    Raises Uncalibrated with the reason if the task does not judge right, Trouble if that could not be found out.
    """
    asked = _Asked(task.digest, f"{sandbox.name}: {sandbox.describe()}", image.digest, task.mode, keeping, programs(image))
    if (found := _kept(asked)) is not None and found.times >= times:
        return found, True
    judge = Judge(sandbox, keeping=keeping)
    for _ in range(times):
        if task.solution is not None:
            _solved(judge, task, image)
        _undone(judge, task, image)
    made = Calibration(
        task=task.digest,
        sandbox=asked.sandbox,
        image=image.digest,
        mode=task.mode,
        times=times,
        solution=task.solution is not None,
    )
    _keep(asked, made)
    return made, False


def _solved(judge: Judge, task: Task, image: Image) -> None:
    with _tried(judge, task, agents.BUILT_IN["oracle"], image) as (tried, folder):
        if tried.verdict.outcome != "pass":
            what = f"the reference solution fails here: {_why(tried, folder)}"
            hint = f"to see it: assay trial {task.folder} oracle; mend the task or its environment"
            raise Uncalibrated(what, file=task.folder, hint=hint)


def _undone(judge: Judge, task: Task, image: Image) -> None:
    with _tried(judge, task, agents.BUILT_IN["noop"], image) as (tried, _folder):
        if tried.verdict.outcome == "pass":
            hint = f"to see it: assay trial {task.folder} noop; let the tests fail where the work was not done"
            raise Uncalibrated("doing nothing passes its tests", file=task.folder, hint=hint)


@contextmanager
def _tried(judge: Judge, task: Task, agent: Agent, image: Image) -> Iterator[tuple[Tried, Path]]:
    """A trial and the folder of what was printed, gone when the context ends. Raises Trouble for a trial that is an error."""
    try:
        with TemporaryDirectory(prefix="assay-calibration-") as made:
            tried = run_trial(judge, task, agent, image, Path(made))
            if tried.verdict.outcome == "error":
                raise Trouble(f"{agent.name} could not be tried: {tried.message}", file=task.folder)
            yield tried, Path(made)
    except OSError as error:
        raise Trouble(f"{agent.name} could not be tried: {error.strerror}", file=error.filename) from error


def _why(tried: Tried, folder: Path) -> str:
    """Why a solution did not pass, in the words of the tests as far as they have any."""
    parts = []
    if tried.tests is not None and tried.tests.stopped is None and (line := said_last(folder / "tests")):
        parts.append(line)
    else:
        parts.append(str(tried.verdict.reason))
    if tried.agent is not None and tried.agent.exit_code not in (0, None):
        ended = f"solve.sh itself ended with {tried.agent.exit_code}"
        line = said_last(folder / "agent")
        parts.append(f"{ended}: {line}" if line else ended)
    return "; ".join(parts)


def said_last(folder: Path) -> str:
    """The last line of what was printed into a folder that tells of trouble, else the last line; without a shell's own prefix.

    stdout is read before stderr, where shells say what they did not find.
    """
    lines: list[str] = []
    for name in ("stdout.txt", "stderr.txt"):
        with suppress(OSError), (folder / name).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            lines += file.read().decode("utf-8", "replace").splitlines()
    plain = [" ".join(line.split()) for line in lines if any(char.isalnum() for char in line)]
    telling = [line for line in plain if _TROUBLE.search(line)]
    last = (telling or plain or [""])[-1]
    return _SHELL.sub("", last)[:_LINE]


def _kept(asked: _Asked) -> Calibration | None:
    """What was kept of the same; what cannot be read is nothing, and is carried out again."""
    file = asked.file
    try:
        found = validate(Calibration, json.loads(file.read_bytes()), file=file)
    except (OSError, ValueError, BadInput):
        return None
    same = (found.task, found.sandbox, found.image, found.mode) == (asked.task, asked.sandbox, asked.image, asked.mode)
    return found if same else None


def _keep(asked: _Asked, made: Calibration) -> None:
    """Keeps it for the next run; where that is not possible, the next run tries again."""
    with suppress(OSError, BadInput):
        asked.file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_text(asked.file, made.model_dump_json(by_alias=True, indent=1) + "\n")
