"""Runs one trial: sets up the box, runs the agent, kills its processes, runs the tests, and decides the outcome. SPEC 2.1.

- `separate`: the tests start in a new box and get only the folders that the task names, copied within limits.
- `snapshot`: the tests start from a frozen copy of everything that the agent left.
- `shared`: the tests run in the agent's own box, as in Harbor.
- In all three modes every process of the agent is dead before the tests start, and /tests and /logs/verifier are emptied.

An agent that runs into one of its limits fails. An infrastructure error (`InfrastructureError`, a full disk of the
host, a model that failed during a trial that did not pass) makes the trial an error, never a fail.
"""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from assay.errors import BadInput
from assay.exact import digest
from assay.judge import tree
from assay.judge.sandbox import Box, Image, InfrastructureError, Limits, Ran, Sandbox
from assay.judge.service import ModelAccess
from assay.judge.terminal import agent as agents
from assay.judge.terminal.agent import (
    AGENT,
    AGENT_LOGS,
    ARTIFACTS,
    CTRF,
    INSTRUCTION,
    REWARD_JSON,
    REWARD_TEXT,
    SOLUTION,
    TEST_SCRIPT,
    TESTS,
    VERIFIER_LOGS,
    Agent,
)
from assay.judge.terminal.kept_work import WORK_FILE, OtherWork, pack_work, unpack_work
from assay.judge.terminal.model_requests import LIMITS, ModelTraffic, ProxyLimits
from assay.judge.terminal.record import (
    REWARD_BYTES,
    AgentTimeout,
    TrialReason,
    TrialVerdict,
    after_agent,
    after_tests,
    after_troubles,
)
from assay.judge.terminal.tasks import Task, within

TrialPhase = Literal["set-up", "agent", "tests", "done"]


ERROR = TrialVerdict("error", TrialReason.TROUBLE)


@dataclass(frozen=True)
class Keeping:
    """Limits on a box, and on what is kept of a trial beside its record."""

    output: int = 8_000_000
    """Bytes of stdout and stderr of the agent, and the same again for the tests; above this the command is stopped."""
    logs: int = 64_000_000
    """Bytes of /logs/agent and of /logs/artifacts each; a larger folder is not kept."""
    files: int = 10_000
    """Files of /logs/agent and of /logs/artifacts each."""
    image: int = 4 << 30
    """Bytes that the work directory may have from the image, beyond what the task lets the agent write."""
    inside: int = 200_000
    """Files and folders in a box, and so in the work directory."""
    processes: int = 512
    """Processes and threads in a box."""
    ctrf: int = 16_000_000
    reward: int = 200
    """Characters of a reward file in the record."""


KEEPING = Keeping()


@dataclass(frozen=True)
class TrialSetup:
    """The setup that all trials of a run share."""

    sandbox: Sandbox
    agent_timeout: AgentTimeout = "fail"
    model: ModelAccess | None = None
    proxy: ProxyLimits = LIMITS
    env: Mapping[str, str] = field(default_factory=dict)
    """The variables that agents may get."""
    keeping: Keeping = KEEPING
    keep_work: int = 0
    """Bytes that the agent's finished work may have when it is kept, compressed; 0: it is not kept."""


@dataclass
class TrialResult:
    """The result of a trial. `verdict` is an error until the trial has decided otherwise."""

    started_at: datetime
    finished_at: datetime
    verdict: TrialVerdict = ERROR
    message: str = ""
    agent: Ran | None = None
    tests: Ran | None = None
    reward: str | None = None
    image: str | None = None
    work: str | None = None
    kept_work: str | None = None
    model: ModelTraffic | None = None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def failed(cls, message: str) -> TrialResult:
        """The result of a trial that never began."""
        now = datetime.now(UTC)
        return cls(now, now, message=message)


def image_of(sandbox: Sandbox, task: Task, keeping: Keeping = KEEPING) -> Image:
    """The image that the boxes of a task start from. Raises BadInput for what this sandbox cannot do, and InfrastructureError."""
    settings = task.settings.environment
    limits = Limits(
        seconds=settings.build_timeout_sec,
        memory=task.memory,
        processes=keeping.processes,
        disk=task.disk,
        output=keeping.output,
        files=keeping.inside,
        cpus=settings.cpus,
    )
    environment = task.environment if task.plan is not None else None
    return sandbox.image(environment, name=settings.docker_image or "", limits=limits, any_base=task.any_base)


def run_trial(
    setup: TrialSetup,
    task: Task,
    agent: Agent,
    image: Image,
    folder: Path,
    *,
    say: Callable[[TrialPhase], None] = lambda _phase: None,
) -> TrialResult:
    """Carries out one trial, and keeps its output and logs in `folder`, an existing empty folder.

    InfrastructureError becomes the verdict `error`. Raises BadInput for a task or agent that cannot be judged here at all.
    """
    now = datetime.now(UTC)
    result = TrialResult(now, now, image=image.digest)
    try:
        with _scratch(folder) as scratch:
            _TrialRun(setup, task, agent, image, folder, result, say, scratch).run()
    except (InfrastructureError, tree.TreeError) as error:
        result.verdict, result.message = ERROR, str(error)
    except OSError as error:
        result.verdict, result.message = ERROR, f"the host: {error.strerror or error}"
    troubles = result.model.troubles if result.model is not None else []
    if (verdict := after_troubles(result.verdict, troubles)) != result.verdict:
        result.verdict, result.message = verdict, f"the model service failed: {troubles[0]}"
    result.finished_at = datetime.now(UTC)
    say("done")
    return result


def run_tests_again(setup: TrialSetup, task: Task, image: Image, work: tuple[Path, str], folder: Path) -> TrialResult:
    """Runs only the tests of a trial, in a new box, on kept work: its file, and the digest that its record names.

    folder: as for `run_trial`, and so are errors: an infrastructure error becomes the verdict `error`. Raises OtherWork if the
    work is missing or another; BadInput for a task that is not in `separate` mode, and as `run_trial`.
    """
    if task.mode != "separate":
        what = f"runs its tests in {task.mode} mode, in which no work is kept"
        raise BadInput(what, file=task.folder, hint="only trials of the mode separate can be judged again")
    now = datetime.now(UTC)
    result = TrialResult(now, now, image=image.digest)
    try:
        with _scratch(folder) as scratch:
            trial = _TrialRun(setup, task, agents.BUILT_IN["noop"], image, folder, result, lambda _phase: None, scratch)
            with unpack_work(*work, scratch / "work", trial.most) as place:
                trial.test_again(place)
    except OtherWork:
        raise
    except (InfrastructureError, tree.TreeError) as error:
        result.verdict, result.message = ERROR, str(error)
    except OSError as error:
        result.verdict, result.message = ERROR, f"the host: {error.strerror or error}"
    result.finished_at = datetime.now(UTC)
    return result


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder inside the trial's folder, so whatever removes that folder removes this one too."""
    scratch = folder / ".scratch"
    scratch.mkdir()
    try:
        yield scratch
    finally:
        tree.remove(scratch)


@dataclass
class _TrialRun:
    """The steps of one trial, and what they share."""

    setup: TrialSetup
    task: Task
    agent: Agent
    image: Image
    folder: Path
    result: TrialResult
    say: Callable[[TrialPhase], None]
    scratch: Path

    def run(self) -> None:
        self.say("set-up")
        with ExitStack() as later:
            with self.setup.sandbox.open(self.image, self.limits("agent")) as box:
                self.set_up(box)
                self.say("agent")
                self.result.agent = self.run_agent(box)
                verdict = after_agent(self.result.agent, self.setup.agent_timeout)
                self.keep_logs(box)
                lost = self.carry_out(box)
                verdict = verdict or lost
                if verdict is None and self.task.mode == "shared":
                    verdict = self.verify(box)
                elif verdict is None and self.task.mode == "snapshot":
                    try:
                        frozen = later.enter_context(self.setup.sandbox.freeze(box))
                    except tree.TooMuch as error:
                        verdict = self.too_large("what the agent left", error)
                elif verdict is None:
                    self.keep_work()
            if verdict is None:
                start = frozen if self.task.mode == "snapshot" else self.image
                with self.setup.sandbox.open(start, self.limits("tests")) as box:
                    if self.task.mode == "separate":
                        self.carry_in(box)
                    verdict = self.verify(box)
        self.result.verdict = verdict

    def test_again(self, place: Path) -> None:
        """Runs the tests in a new box on kept work, unpacked at `place`."""
        for number in range(len(self.kept)):
            with suppress(FileNotFoundError):
                (place / str(number)).rename(self.scratch / f"kept-{number}")
        with self.setup.sandbox.open(self.image, self.limits("tests")) as box:
            self.carry_in(box)
            self.result.verdict = self.verify(box)

    def limits(self, whose: Literal["agent", "tests"]) -> Limits:
        settings = self.task.settings
        return Limits(
            seconds=settings.agent.timeout_sec if whose == "agent" else settings.verifier.timeout_sec,
            memory=self.task.memory,
            processes=self.setup.keeping.processes,
            disk=self.task.disk,
            output=self.setup.keeping.output,
            files=self.setup.keeping.inside,
            cpus=settings.environment.cpus,
        )

    def set_up(self, box: Box) -> None:
        """Puts what the agent gets into the box: instruction, own folder, empty folders for logs; for the oracle the solution."""
        instruction = self.scratch / "instruction.md"
        instruction.write_text(self.task.instruction, encoding="utf-8", newline="\n")
        box.put(instruction, INSTRUCTION, mode=0o644)
        box.fresh(AGENT_LOGS)
        box.fresh(ARTIFACTS)
        if self.agent.folder is not None:
            box.put(self.agent.folder, AGENT)
        if self.agent.solution:
            if self.task.solution is None:
                raise BadInput("has no solution/solve.sh", file=self.task.folder, hint="the oracle needs one")
            box.put(self.task.solution, SOLUTION)

    def run_agent(self, box: Box) -> Ran:
        env = self.task.env | agents.environment(self.agent, self.setup.env)
        if self.agent.solution:
            env |= self.task.solution_env
        with self.door() as door:
            return box.run(
                self.agent.command,
                limits=self.limits("agent"),
                stdin=self.task.instruction.encode(),
                stdout=self.output("agent", "stdout.txt"),
                stderr=self.output("agent", "stderr.txt"),
                env=env,
                cwd=self.workdir,
                door=door,
            )

    @property
    def workdir(self) -> str:
        """The folder in which the agent works. A task with neither a workdir nor a Dockerfile leaves it to the image."""
        task = self.task
        set_by_task = task.settings.environment.workdir is not None or task.plan is not None
        return task.workdir if set_by_task else self.image.workdir

    @property
    def kept(self) -> tuple[str, ...]:
        """The paths that the tests get from the agent's box."""
        return tuple(self.workdir if path == self.task.workdir else path for path in self.task.kept)

    @contextmanager
    def door(self) -> Iterator[Path | None]:
        """The socket of the model's proxy; None for an agent that uses no model. Raises BadInput if there is no model."""
        if not self.agent.model:
            yield None
            return
        if self.setup.model is None:
            raise BadInput(
                f"the agent {self.agent.name!r} needs a model",
                field="model",
                hint="set ASSAY_MODEL_URL (and ASSAY_MODEL_KEY), or leave this agent out",
            )
        from assay.judge.terminal.model_proxy import open_proxy  # slow to import, and most agents use no model

        with tempfile.TemporaryDirectory(prefix="assay-door-") as folder:  # not in the scratch folder: a socket's path is short
            door = Path(folder) / "door"
            with open_proxy(self.setup.model, door, self.setup.proxy) as self.result.model:
                yield door

    def output(self, *names: str) -> Path:
        """A path in the trial's folder for something that will be written; its parent exists."""
        place = self.folder.joinpath(*names)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def keep_logs(self, box: Box) -> None:
        """Keeps the agent's logs and artifacts. They decide nothing, so what is too large is left out, with a note."""
        keeping = self.setup.keeping
        for inside, target in ((AGENT_LOGS, self.output("agent", "logs")), (ARTIFACTS, self.folder / "artifacts")):
            try:
                box.take(inside, target, most_bytes=keeping.logs, most_files=keeping.files)
            except tree.TreeError as error:
                self.result.notes.append(f"{inside} was not kept: {error.what}")
            with suppress(OSError):  # removes it only if it is empty
                target.rmdir()

    def carry_out(self, box: Box) -> TrialVerdict | None:
        """Copies the kept paths out of the agent's box. Returns a verdict if the agent made that impossible."""
        for number, path in enumerate(self.kept):
            target = self.scratch / f"kept-{number}"
            most = self.most
            try:
                box.take(path, target, most_bytes=most.bytes, most_files=most.files)
            except tree.TooMuch as error:
                return self.too_large(path, error)
            except tree.TreeError as error:
                self.result.notes.append(f"{path}: {error.what}")
            self.leave_out(path, target)
            if path == self.workdir:
                if target.is_symlink() or not target.is_dir():
                    return TrialVerdict("fail", TrialReason.WORK_GONE)
                target.chmod(stat.S_IMODE(target.stat().st_mode) | stat.S_IRWXU)  # or the tests could not start in it
        try:
            self.result.work = self.work_digest()
        except tree.TooMuch as error:
            return self.too_large("what the tests are given", error)
        return None

    def keep_work(self) -> None:
        """Keeps what the tests get, if it is to be kept; what is too large is left out, with a note."""
        most = self.setup.keep_work
        if most:
            sources = [self.scratch / f"kept-{number}" for number in range(len(self.kept))]
            try:
                self.result.kept_work = pack_work(sources, self.folder / WORK_FILE, most)
            except tree.TreeError as error:
                self.result.notes.append(f"the finished work was not kept: {error.what}")

    @property
    def most(self) -> tree.Bounds:
        """The limits of one path: the bytes of the agent's work and of the image, and the number of entries in a box."""
        return tree.Bounds(self.task.disk + self.setup.keeping.image, self.setup.keeping.inside)

    def too_large(self, what: str, error: tree.TooMuch) -> TrialVerdict:
        """The verdict for an agent that left more than can be copied to the tests."""
        self.result.notes.append(f"{what}: {error.what}")
        return TrialVerdict("fail", TrialReason.WORK_TOO_LARGE)

    def leave_out(self, path: str, target: Path) -> None:
        """Removes what the task excludes from the copy of a path at `target`."""
        for artifact in self.task.settings.artifacts:
            if artifact.exclude and within(artifact.source, path):
                with suppress(tree.Missing):
                    tree.prune(target, artifact.exclude, artifact.source[len(path) :])

    def work_digest(self) -> str:
        """One digest of everything that the tests get from the agent's box."""
        digests = {
            path: tree.digest(place, bounds=self.most, once=True)
            for number, path in enumerate(self.kept)
            if (place := self.scratch / f"kept-{number}").exists()
        }
        return digests[self.workdir] if list(digests) == [self.workdir] else digest(digests)

    def carry_in(self, box: Box) -> None:
        """Puts the kept paths into the box of the tests, in place of what the image has there."""
        for number, path in enumerate(self.kept):
            place = self.scratch / f"kept-{number}"
            if place.exists():
                box.put(place, path)
            else:
                box.fresh(path)

    def verify(self, box: Box) -> TrialVerdict:
        """Runs the tests in a box where no process of the agent is alive, with /tests and the verifier's logs emptied first."""
        self.say("tests")
        for inside in (TESTS, VERIFIER_LOGS):
            box.fresh(inside)
        box.put(self.task.tests, TESTS)
        self.result.tests = box.run(
            ("bash", TEST_SCRIPT),
            limits=self.limits("tests"),
            stdout=self.output("tests", "stdout.txt"),
            stderr=self.output("tests", "stderr.txt"),
            env=self.task.env | self.task.verifier_env,
            cwd=self.workdir,
        )
        text = self.reward(box, REWARD_TEXT, "reward.txt")
        json = self.reward(box, REWARD_JSON, "reward.json")
        reward = text if json is None else json
        if reward is not None:
            self.result.reward = reward[: self.setup.keeping.reward].decode("utf-8", "backslashreplace")
        with suppress(tree.TreeError):
            box.take(CTRF, self.output("tests", "ctrf.json"), most_bytes=self.setup.keeping.ctrf, most_files=1)
        return after_tests(self.result.tests, text, json)

    def reward(self, box: Box, inside: str, name: str) -> bytes | None:
        """The bytes of a reward file: None if there is none, b"" if it is not a plain file or too large to be a reward."""
        target = self.output("tests", name)
        try:
            if not box.take(inside, target, most_bytes=REWARD_BYTES, most_files=1):
                return None
            return tree.peek(target, most=REWARD_BYTES) or b""
        except tree.TreeError:
            return b""
