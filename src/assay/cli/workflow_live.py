"""Shows a plan as it runs, and reports its steps and the four parts of its score afterwards. SPEC 2.2.

On a terminal each step has a line that is updated; elsewhere each event is a new line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import typer

from assay.cli.judging.live import duration
from assay.exact import NANO, half_even, nanos, text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

    from assay.judge.workflow.competition import Done
    from assay.judge.workflow.plan import Plan
    from assay.judge.workflow.record import Moment, StepRun
    from assay.judge.workflow.tasks import WorkflowTask
    from assay.scheme.model import WorkflowScore


Json = dict[str, Any]
PARTS = ("success", "cost", "latency", "reliability")
_ENDED = {"waiting": "not begun", "given-up": "given up"}


def report(done: Done, task: WorkflowTask, plan: Plan, rules: WorkflowScore) -> Json:
    """A run of `assay workflow run` as JSON; `score` and `parts` are null if a service was broken."""
    from assay.judge.workflow.competition import fields_of
    from assay.records import Workflow
    from assay.settle.score import workflow

    fields = fields_of(done, task, plan)
    document = {"task": task.id, "task_digest": task.digest, "plan_digest": plan.digest}
    document |= fields | {"steps": [step.model_dump(mode="json", exclude_none=True) for step in fields["steps"]]}
    if fields["outcome"] != "ran":
        return document | {"parts": None, "score": None}
    names = set(Workflow.model_fields) & fields.keys()
    about = {"kind": "workflow", "epoch": 1, "validator": "desk", "participant": "desk", "submission": "", "task": task.id}
    about |= {"observed_at": "2000-01-01T00:00:00Z"}
    scored = workflow.task(Workflow.model_validate(about | {name: fields[name] for name in names}), rules)
    parts = {
        name: {"value": text(getattr(scored, name)), "weight": text(getattr(rules.weights, name))}
        | {"part": text(half_even(getattr(scored, name) * getattr(rules.weights, name), NANO))}
        for name in PARTS
    }
    return document | {"parts": parts, "score": text(scored.score)}


def report_blocks(document: Json, rules: WorkflowScore) -> Iterator[RenderableType]:
    """The report for people."""
    from assay.cli.show import Column, grid, heading, note, sentence

    yield _steps(document["steps"])
    yield ""
    if document["score"] is None:
        yield sentence(f"A service is broken, so the task would count for no participant: {document['message']}.")
        return
    if document["stopped"]:
        yield sentence(f"Stopped: the task's {'budget' if document['stopped'] == 'budget' else 'time'} was used up.")
    parts = document["parts"]
    yield grid(
        [
            Column("part", list(PARTS), style="bold"),
            Column("value", [parts[name]["value"] for name in PARTS], right=True),
            Column("weight", [parts[name]["weight"] for name in PARTS], right=True),
            Column("of the score", [parts[name]["part"] for name in PARTS], right=True),
            Column("because", [_because(name, document, rules) for name in PARTS], kind="text"),
        ]
    )
    yield ""
    yield heading(f"Score {document['score']}")
    yield note(f"Quality {document['quality']}: {_how(document['quality_how'])}")


def steps_table(plan: Plan) -> Table:
    """The steps of a plan that did not run."""
    from assay.cli.show import Column, grid

    handling = [plan.handling(node.id) for node in plan.nodes]
    limits = ["" if rule.timeout_seconds is None else f"{text(rule.timeout_seconds)} s" for rule in handling]
    return grid(
        [
            Column("step", [node.id for node in plan.nodes], style="bold"),
            Column("asks", [f"{node.service}.{node.action}" for node in plan.nodes]),
            Column("needs", [", ".join(sorted(plan.needs[node.id])) for node in plan.nodes], kind="text"),
            Column("retries", [str(rule.retry_count) for rule in handling], right=True, spare=1),
            Column("time-out", limits, right=True, spare=2),
        ]
    )


def _steps(steps: Sequence[Json]) -> Table:
    from assay.cli.show import Column, grid

    def took(step: Json) -> str:
        attempts = step["attempts"]
        return "" if not attempts else f"{text(nanos(attempts[-1]['ended']) // 10**6, 3)} s"

    def spent(step: Json) -> str:
        return text(sum(nanos(attempt["cost"]) for attempt in step["attempts"])) if step["attempts"] else ""

    return grid(
        [
            Column("step", [step["id"] for step in steps], style="bold"),
            Column("asked", [f"{step['service']}.{step['action']}" for step in steps], spare=3),
            Column("ended", [_ENDED.get(str(step["state"]), str(step["state"])) for step in steps]),
            Column("attempts", [str(len(step["attempts"])) for step in steps], right=True),
            Column("at", [took(step) for step in steps], right=True, spare=1),
            Column("cost", [spent(step) for step in steps], right=True, spare=2),
            Column("why", [step["message"] for step in steps], kind="text"),
        ]
    )


def _because(name: str, document: Json, rules: WorkflowScore) -> str:
    gate = nanos(document["parts"]["success"]["value"]) > rules.gate
    if name == "success":
        return f"quality {document['quality']} × {document['steps_completed']} of {document['steps_total']} steps"
    if name in ("cost", "latency") and not gate:
        return f"worth nothing: success is not above {text(rules.gate)}"
    if name == "cost":
        return f"{document['cost']} of {document['budget']}"
    if name == "latency":
        return f"{text(nanos(document['seconds']) // 10**6, 3)} s of {document['max_seconds']} s"
    most = rules.max_retries_per_step * document["steps_total"]
    unplanned = max(0, document["retries"] - min(document["declared_retries"], most))
    troubles = (("unplanned retry", unplanned), ("time-out", document["timeouts"]), ("hard failure", document["hard_failures"]))
    parts = [f"{count} × {what}" for what, count in troubles if count]
    return ", ".join(parts) or f"no trouble ({document['retries']} of {document['declared_retries']} declared retries used)"


def _how(how: Json) -> str:
    def plain(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{key} {plain(item)}" for key, item in value.items())
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

    return "; ".join(f"{key.replace('_', ' ')}: {plain(value)}" for key, value in how.items()) or "nothing to tell"


SHOWN = 30
"""The number of steps that the live display shows."""
_PER_SECOND = 8
_SIGNS = {"waiting": "·", "going": "▸", "completed": "✓", "failed": "✗", "given-up": "–"}


class Follow:
    """`with Follow(plan) as follow: execute(…, on_moment=follow.moment)`."""

    def __init__(self, plan: Plan, *, quiet: bool = False) -> None:
        self.plan, self.quiet = plan, quiet
        self.steps: dict[str, StepRun] = {}
        self.began = time.monotonic()
        self.spent = 0
        self._live: Live | None = None

    def __enter__(self) -> Follow:
        if sys.stderr.isatty() and not self.quiet:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False, markup=False, emoji=False)
            self._live = Live(get_renderable=self._render, console=console, transient=True, refresh_per_second=_PER_SECOND)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def moment(self, moment: Moment) -> None:
        """Shows an event of a step."""
        step = self.steps[moment.step.id] = moment.step
        self.spent = moment.spent
        if self.quiet or self._live is not None:
            return
        from assay.cli.errors import printable

        attempt = step.attempts[-1] if step.attempts else None
        remark = {
            "began": f"attempt {attempt.number}" if attempt is not None and attempt.number > 1 else "",
            "again": f"{attempt.outcome}: {attempt.message}" if attempt is not None else "",
            "completed": "",
            "failed": step.message,
        }[moment.kind]
        word = {"again": "attempt failed"}.get(moment.kind, moment.kind)
        line = f"{duration(moment.nanoseconds / 10**9):>8}  {word:14}  {step.id}  {remark}"
        typer.echo(printable(line.rstrip()), err=True)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from assay.cli.errors import printable
        from assay.exact import text

        lines = []
        for node in self.plan.nodes[:SHOWN]:
            step = self.steps.get(node.id)
            state = "waiting" if step is None else step.state
            tries = f"  attempt {len(step.attempts)}" if step is not None and len(step.attempts) > 1 else ""
            needs = f"  ← {', '.join(sorted(self.plan.needs[node.id]))}" if self.plan.needs[node.id] else ""
            line = f"{_SIGNS[state]} {node.id}  {node.service}.{node.action}{needs}{tries}"
            lines.append(Text(printable(line), no_wrap=True, overflow="ellipsis", style="dim" if state == "waiting" else ""))
        if len(self.plan.nodes) > SHOWN:
            lines.append(Text(f"… and {len(self.plan.nodes) - SHOWN} more", style="dim"))
        return Group(*lines, Text(f"{duration(time.monotonic() - self.began)}, {text(self.spent)} spent"))
