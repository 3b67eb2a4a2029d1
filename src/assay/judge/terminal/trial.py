"""Where things are inside the box: what Harbor's tasks expect, and where the agent finds itself. FORMATS: verifier contract.

One trial: set-up, agent, everything of the agent dead, tests, outcome. SPEC 2.1.

- `separate`: the tests start from a pristine box and get only the folders that the task names, copied over within bounds.
- `snapshot`: they start from a frozen copy of everything that the agent left.
- `shared`: they run in the agent's own box, as Harbor does.
- In all three every process of the agent is dead first, and /tests and /logs/verifier are made anew.

What runs into its own bound fails. What is nobody's fault that is judged (`Trouble`, a host's full disk, a model service that
failed a trial which then did not pass) is an error, and never a fail.
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
from assay.judge.sandbox import Box, Image, Limits, Ran, Sandbox, Trouble
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
    """Bounds on what is kept of a trial beside its record."""

    output: int = 8_000_000
    """Bytes of stdout and stderr of the agent, and again of the tests; more stops them, as any bound does."""
    logs: int = 64_000_000
    """Bytes of /logs/agent and of /logs/artifacts each; more is not kept."""
    files: int = 10_000
    image: int = 4 << 30
    """Bytes that the work directory may have of the image's own, beyond what the task lets the agent write."""
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
    """How trials are carried out, whichever they are."""

    sandbox: Sandbox
    agent_timeout: AgentTimeout = "fail"
    model: ModelAccess | None = None
    proxy: ProxyLimits = LIMITS
    env: Mapping[str, str] = field(default_factory=dict)
    """What agents may be given, by name."""
    keeping: Keeping = KEEPING


@dataclass
class TrialResult:
    """Everything that came of a trial. `verdict` is an error until something better is known."""

    started_at: datetime
    finished_at: datetime
    verdict: TrialVerdict = ERROR
    message: str = ""
    agent: Ran | None = None
    tests: Ran | None = None
    reward: str | None = None
    image: str | None = None
    work: str | None = None
    model: ModelTraffic | None = None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def failed(cls, message: str) -> TrialResult:
        """A trial that never began."""
        now = datetime.now(UTC)
        return cls(now, now, message=message)


def image_of(sandbox: Sandbox, task: Task, keeping: Keeping = KEEPING) -> Image:
    """What the boxes of a task start from. Raises BadInput for what this sandbox cannot do, Trouble for what went wrong."""
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
    judge: TrialSetup,
    task: Task,
    agent: Agent,
    image: Image,
    folder: Path,
    *,
    say: Callable[[TrialPhase], None] = lambda _phase: None,
) -> TrialResult:
    """Carries out one trial and keeps what was printed and left in `folder`, which exists and is empty.

    Trouble becomes the verdict `error`; BadInput (a task or agent that cannot be judged here at all) is let through.
    """
    now = datetime.now(UTC)
    tried = TrialResult(now, now, image=image.digest)
    try:
        with _scratch(folder) as scratch:
            _TrialRun(judge, task, agent, image, folder, tried, say, scratch).run()
    except (Trouble, tree.TreeError) as error:
        tried.verdict, tried.message = ERROR, str(error)
    except OSError as error:
        tried.verdict, tried.message = ERROR, f"the host: {error.strerror or error}"
    troubles = tried.model.troubles if tried.model is not None else []
    if (verdict := after_troubles(tried.verdict, troubles)) != tried.verdict:
        tried.verdict, tried.message = verdict, f"the model service failed: {troubles[0]}"
    tried.finished_at = datetime.now(UTC)
    say("done")
    return tried


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder inside the trial's own, so that whatever clears that clears this."""
    scratch = folder / ".scratch"
    scratch.mkdir()
    try:
        yield scratch
    finally:
        tree.remove(scratch)


@dataclass
class _TrialRun:
    """What the steps of one trial share."""

    judge: TrialSetup
    task: Task
    agent: Agent
    image: Image
    folder: Path
    tried: TrialResult
    say: Callable[[TrialPhase], None]
    scratch: Path

    def run(self) -> None:
        self.say("set-up")
        with ExitStack() as later:
            with self.judge.sandbox.open(self.image, self.limits("agent")) as box:
                self.set_up(box)
                self.say("agent")
                self.tried.agent = self.run_agent(box)
                verdict = after_agent(self.tried.agent, self.judge.agent_timeout)
                self.keep_logs(box)
                lost = self.carry_out(box)
                verdict = verdict or lost
                if verdict is None and self.task.mode == "shared":
                    verdict = self.verify(box)
                elif verdict is None and self.task.mode == "snapshot":
                    try:
                        frozen = later.enter_context(self.judge.sandbox.freeze(box))
                    except tree.TooMuch as error:
                        verdict = self.too_large("what the agent left", error)
            if verdict is None:
                start = frozen if self.task.mode == "snapshot" else self.image
                with self.judge.sandbox.open(start, self.limits("tests")) as box:
                    if self.task.mode == "separate":
                        self.carry_in(box)
                    verdict = self.verify(box)
        self.tried.verdict = verdict

    def limits(self, whose: Literal["agent", "tests"]) -> Limits:
        settings = self.task.settings
        return Limits(
            seconds=settings.agent.timeout_sec if whose == "agent" else settings.verifier.timeout_sec,
            memory=self.task.memory,
            processes=self.judge.keeping.processes,
            disk=self.task.disk,
            output=self.judge.keeping.output,
            files=self.judge.keeping.inside,
            cpus=settings.environment.cpus,
        )

    def set_up(self, box: Box) -> None:
        """What the agent finds: its instruction, its own folder, empty folders for logs; the oracle finds the solution."""
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
        env = self.task.env | agents.environment(self.agent, self.judge.env)
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
        """Where the agent works; a task that has an image only, and says nothing, leaves it to the image."""
        task = self.task
        said = task.settings.environment.workdir is not None or task.plan is not None
        return task.workdir if said else self.image.workdir

    @property
    def kept(self) -> tuple[str, ...]:
        """The folders and files that the tests are given."""
        return tuple(self.workdir if path == self.task.workdir else path for path in self.task.kept)

    @contextmanager
    def door(self) -> Iterator[Path | None]:
        """The socket of the model's proxy; None for an agent that asks for no model. Raises BadInput if there is no model."""
        if not self.agent.model:
            yield None
            return
        if self.judge.model is None:
            raise BadInput(
                f"the agent {self.agent.name!r} needs a model",
                field="model",
                hint="set ASSAY_MODEL_URL (and ASSAY_MODEL_KEY), or leave this agent out",
            )
        from assay.judge.terminal.model_proxy import open_proxy  # most agents ask for none, and it is slow to import

        with tempfile.TemporaryDirectory(prefix="assay-door-") as folder:  # here, because a socket's path must be short
            door = Path(folder) / "door"
            with open_proxy(self.judge.model, door, self.judge.proxy) as self.tried.model:
                yield door

    def output(self, *names: str) -> Path:
        """A file of the trial's folder that something will be printed into."""
        place = self.folder.joinpath(*names)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def keep_logs(self, box: Box) -> None:
        """What the agent left to be read: never decides anything, so what is too large is left out and said."""
        keeping = self.judge.keeping
        for inside, target in ((AGENT_LOGS, self.output("agent", "logs")), (ARTIFACTS, self.folder / "artifacts")):
            try:
                box.take(inside, target, most_bytes=keeping.logs, most_files=keeping.files)
            except tree.TreeError as error:
                self.tried.notes.append(f"{inside} was not kept: {error.what}")
            with suppress(OSError):  # an empty folder says nothing
                target.rmdir()

    def carry_out(self, box: Box) -> TrialVerdict | None:
        """Takes what the tests are given out of the agent's box; a verdict if that cannot be had, which is the agent's doing."""
        for number, path in enumerate(self.kept):
            target = self.scratch / f"kept-{number}"
            most = self.most
            try:
                box.take(path, target, most_bytes=most.bytes, most_files=most.files)
            except tree.TooMuch as error:
                return self.too_large(path, error)
            except tree.TreeError as error:
                self.tried.notes.append(f"{path}: {error.what}")
            self.leave_out(path, target)
            if path == self.workdir:
                if target.is_symlink() or not target.is_dir():
                    return TrialVerdict("fail", TrialReason.WORK_GONE)
                target.chmod(stat.S_IMODE(target.stat().st_mode) | stat.S_IRWXU)  # or the tests could not begin there
        try:
            self.tried.work = self.digest_of_work()
        except tree.TooMuch as error:
            return self.too_large("what the tests are given", error)
        return None

    @property
    def most(self) -> tree.Bounds:
        """How much one path may hold: what the agent may write, and the image's own."""
        return tree.Bounds(self.task.disk + self.judge.keeping.image, self.judge.keeping.inside)

    def too_large(self, what: str, error: tree.TooMuch) -> TrialVerdict:
        """The verdict on an agent that left more than the tests can be given."""
        self.tried.notes.append(f"{what}: {error.what}")
        return TrialVerdict("fail", TrialReason.WORK_TOO_LARGE)

    def leave_out(self, path: str, target: Path) -> None:
        """Removes what the task excludes, of a path of the box that was copied to `target`."""
        for one in self.task.settings.artifacts:
            if one.exclude and within(one.source, path):
                with suppress(tree.Missing):
                    tree.prune(target, one.exclude, one.source[len(path) :])

    def digest_of_work(self) -> str:
        """One digest of everything that the tests are given of the agent's."""
        found = {
            path: tree.digest(place, bounds=self.most, once=True)
            for number, path in enumerate(self.kept)
            if (place := self.scratch / f"kept-{number}").exists()
        }
        return found[self.workdir] if list(found) == [self.workdir] else digest(found)

    def carry_in(self, box: Box) -> None:
        """Puts it into the box that the tests start in, in place of what the image has there."""
        for number, path in enumerate(self.kept):
            place = self.scratch / f"kept-{number}"
            if place.exists():
                box.put(place, path)
            else:
                box.fresh(path)

    def verify(self, box: Box) -> TrialVerdict:
        """Runs the tests in a box where nothing of the agent is alive, with their own folders made anew."""
        self.say("tests")
        for inside in (TESTS, VERIFIER_LOGS):
            box.fresh(inside)
        box.put(self.task.tests, TESTS)
        self.tried.tests = box.run(
            ("bash", TEST_SCRIPT),
            limits=self.limits("tests"),
            stdout=self.output("tests", "stdout.txt"),
            stderr=self.output("tests", "stderr.txt"),
            env=self.task.env | self.task.verifier_env,
            cwd=self.workdir,
        )
        text = self.reward(box, REWARD_TEXT, "reward.txt")
        json = self.reward(box, REWARD_JSON, "reward.json")
        said = text if json is None else json
        if said is not None:
            self.tried.reward = said[: self.judge.keeping.reward].decode("utf-8", "backslashreplace")
        with suppress(tree.TreeError):
            box.take(CTRF, self.output("tests", "ctrf.json"), most_bytes=self.judge.keeping.ctrf, most_files=1)
        return after_tests(self.tried.tests, text, json)

    def reward(self, box: Box, inside: str, name: str) -> bytes | None:
        """The bytes of a reward file: None if there is none, b"" if it is no plain file or too large to be a reward."""
        target = self.output("tests", name)
        try:
            if not box.take(inside, target, most_bytes=REWARD_BYTES, most_files=1):
                return None
            return tree.peek(target, most=REWARD_BYTES) or b""
        except tree.TreeError:
            return b""
