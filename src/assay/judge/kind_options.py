"""The options on `assay run` that only some of Assay's own kinds have, and what the judges of tasks get of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput
from assay.judge import service
from assay.judge.service import ModelAccess
from assay.kind import Option

if TYPE_CHECKING:
    from assay.judge.sandbox import Sandbox

__all__ = [
    "ADDRESS",
    "AGAIN",
    "CALIBRATE",
    "ENGINE",
    "ENV",
    "FALLBACK",
    "MODEL",
    "MODEL_URL",
    "PRICE",
    "REUSE",
    "RUNTIME",
    "SANDBOX",
    "TASK",
    "TASKS",
    "WHERE",
    "SandboxName",
    "TaskOptions",
    "containers_engine",
    "variables",
    "where_judged",
]


class SandboxName(StrEnum):
    """The sandboxes that agents can run in."""

    bubblewrap = "bubblewrap"
    containers = "containers"


SANDBOX = Option("--sandbox", "Where agents run.", SandboxName, SandboxName.bubblewrap)
ENGINE = Option("--engine", "The containers' engine, as unix:///…; else DOCKER_HOST or the usual place.", metavar="URL")
WHERE = Option("--engine", "Where it is judged: local, or ray; or the containers' engine, as unix:///….", metavar="NAME")
ADDRESS = Option("--address", "The Ray cluster; else RAY_ADDRESS, or the one on this machine.", metavar="HOST:PORT")
RUNTIME = Option("--runtime", "The containers' runtime, such as runsc; else the engine's own.", metavar="NAME")
REUSE = Option("--reuse-boxes/--fresh-boxes", "Let a box have the folder of an earlier one: faster, and less apart.", bool, False)
TASK = Option("--task", "Only this task. May be repeated.", list[str], metavar="ID")
TASKS = Option("--tasks", "The task set, if it is not DIR/tasks.", Path, metavar="DIR")
ENV = Option("--env", "A variable of yours that agents may be given. May be repeated.", list[str], metavar="NAME")
CALIBRATE = Option("--calibrate", "How often a task's solution has to pass here first.", int, 1, metavar="N", least=1)
MODEL_URL = Option(
    "--model-url", "The model service; else ASSAY_LLM_BASE_URL of a rubric, ASSAY_MODEL_URL of agents.", metavar="URL"
)
MODEL = Option("--model", "What the service calls the bounty's model, if something else.", metavar="NAME")
FALLBACK = Option("--fallback", "The same of the bounty's fallback model.", metavar="NAME")
PRICE = Option(
    "--price", "What a million tokens of a model cost, asked and answered, such as m=0.27/1.1.", list[str], metavar="NAME=IN/OUT"
)
AGAIN = Option("--again", "Also judge again what a rubric's models left unjudged; not what a ledger has.", bool, False)


@dataclass(frozen=True)
class TaskOptions:
    """`running.RunOptions.own` of these judges."""

    tasks: Path | None = None
    """The task set's folder; None: tasks/ in the competition."""
    only: Sequence[str] = ()
    """Task ids; none: all."""
    sandbox: str = "bubblewrap"
    engine: str | None = None
    runtime: str | None = None
    """Of the containers: the engine's socket and the runtime, if not what is usual."""
    reuse: bool = False
    """Let bubblewrap use a box's folder again, unless the scheme wants a new box for every trial."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The variables that agents may get, by name."""
    model: ModelAccess | None = None
    """The model that agents may ask."""
    calibrate: int = 1
    """The number of times that a task's solution must pass here, and doing nothing must fail, before the task judges anybody."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TaskOptions:
        """The options from the command line, by `kind.Option.key`; keys and addresses of models are in the environment."""
        return cls(
            tasks=values["tasks"],
            only=values["task"] or (),
            sandbox=str(values["sandbox"]),
            engine=containers_engine(values.get("engine")),
            runtime=values["runtime"],
            reuse=values["reuse_boxes"],
            env=variables(values["env"] or ()),
            model=service.of_agents(os.environ, values.get("model_url")),
            calibrate=values.get("calibrate", 1),
        )

    def check(self) -> None:
        """Refuse numbers that make no sense; raises BadInput."""
        if not 1 <= self.calibrate <= 100:
            raise BadInput(f"{self.calibrate} is not a number of times", field="calibrate", hint="from 1 to 100")

    def check_boxes(self, demanded: bool | None, file: Path) -> None:
        """Refuse to use boxes again where the scheme demands fresh ones; raises BadInput."""
        if self.reuse and demanded:
            what = "demands a new box for every trial, and --reuse-boxes says otherwise"
            raise BadInput(what, file=file, field="score.fresh_boxes", hint="leave --reuse-boxes out")

    def open_sandbox(self) -> Sandbox:
        """The sandbox; raises BadInput and InfrastructureError where it cannot be used."""
        from assay.judge.sandbox import choose  # late: kinds name their options without it

        return choose(self.sandbox, engine=self.engine, runtime=self.runtime, reuse=self.reuse)


def containers_engine(engine: str | None) -> str | None:
    """The containers' engine that `--engine` names; None if it names where it is judged, or nothing."""
    return engine if engine is not None and "://" in engine else None


def where_judged(values: Mapping[str, Any]) -> tuple[str, str | None]:
    """The engine's name and the cluster's address, by `--engine` and `--address`; `local` for this machine."""
    engine = values.get("engine")
    return ("local" if engine is None or containers_engine(engine) else str(engine)), values.get("address")


def variables(names: Sequence[str]) -> dict[str, str]:
    """The variables of the environment that agents may be given; raises BadInput for one that is not set."""
    values: dict[str, str] = {}
    for name in names:
        value = os.environ.get(name)
        if value is None:
            raise BadInput(f"{name[:80]} is not set", field="--env", hint=f"export {name[:80]}=… first")
        values[name] = value
    return values
