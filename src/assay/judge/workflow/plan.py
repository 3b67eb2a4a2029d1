"""Parses and checks a plan, the steps of a workflow, and fills references to data into their params. SPEC 2.2.

    {"nodes": [{"id": "find", "service": "search", "action": "find", "params": {"text": "${task.input.question}"}},
               {"id": "answer", "service": "writer", "action": "answer", "params": {"passages": "${find.output.passages}"}}],
     "edges": [["find", "answer"]],
     "error_handling": {"find": {"retry_count": 2, "timeout_seconds": "1.5"}}}

A plan is checked completely before any of its steps runs. Estimates are the participant's and decide nothing: services state the
cost, and the validator measures the time.

References look like `${STEP.output}`, `${STEP.output.key.0}` or `${task.input.key}`:

- A string that is only a reference becomes the value itself. Inside a longer string a reference becomes the value's text: JSON,
  unless the value is a string.
- The parts of a path are separated by points: a key of an object, or the index of a list.
- `$${` stands for a literal `${`. Every other `${` must begin a reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.errors import BadInput, brief
from assay.exact import NANO, digest, text
from assay.folder import strict
from assay.folder.files import decode
from assay.judge.workflow import limits, values
from assay.records import Amount
from assay.scheme.fields import Key, Section
from assay.scheme.reading import validate

TASK = "task"
"""The first part of a reference to the task's input; no step may have this id."""
_OPEN = re.compile(r"\$?\$\{")
_REF = re.compile(r"\$\{([^{}$]*)\}")
_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)


class TooLarge(ValueError):
    """With the referenced data, a request exceeds its limit."""


@dataclass(frozen=True)
class Ref:
    """A reference: a step and the path into its output, or the task and the path into its input."""

    step: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        return "${" + ".".join((self.step, "input" if self.step == TASK else "output", *self.path)) + "}"


def find_refs(params: Any, field: str = "params") -> Iterator[tuple[Ref, str]]:
    """Every reference in a value, with its field. Raises BadInput for a `${` that does not begin a reference."""
    if isinstance(params, str):
        for part in _parts(params, field):
            if isinstance(part, Ref):
                yield part, field
    elif isinstance(params, dict):
        for key, inner in params.items():
            yield from find_refs(inner, f"{field}.{key}")
    elif isinstance(params, list):
        for index, inner in enumerate(params):
            yield from find_refs(inner, f"{field}[{index}]")


def fill_refs(params: Any, known: Callable[[str], Any], most: int) -> bytes:
    """The params as JSON, with every reference replaced by its value.

    known: step → its output, `task` → the input. Raises LookupError for a path that does not exist, and TooLarge for more than
    `most` bytes, before more than that are in memory.
    """
    writer = _ParamsWriter(known, most)
    return "".join(writer.value(params)).encode()


@dataclass
class _ParamsWriter:
    """Writes params as JSON, and counts the bytes that are left."""

    known: Callable[[str], Any]
    left: int

    def value(self, params: Any) -> Iterator[str]:
        if isinstance(params, dict):
            yield "{"
            for place, (key, inner) in enumerate(params.items()):
                yield self.count(f"{',' if place else ''}{values.dumps(key).decode()}:")
                yield from self.value(inner)
            yield "}"
        elif isinstance(params, list):
            yield "["
            for place, inner in enumerate(params):
                yield "," if place else ""
                yield from self.value(inner)
            yield "]"
        elif isinstance(params, str) and "${" in params:
            yield self.text(_parts(params, ""))
        else:
            yield self.count(values.dumps(params).decode())

    def text(self, parts: list[str | Ref]) -> str:
        if len(parts) == 1 and isinstance(parts[0], Ref):
            return self.count(values.dumps(self.look_up(parts[0])).decode())
        whole = []
        for part in parts:
            whole.append(self.count(values.shown(self.look_up(part)) if isinstance(part, Ref) else part))
        return values.dumps("".join(whole)).decode()

    def look_up(self, ref: Ref) -> Any:
        try:
            return values.at(self.known(ref.step), ref.path)
        except LookupError as error:
            raise LookupError(f"{ref} does not exist: there is no {error}") from None

    def count(self, text: str) -> str:
        """The text, counted."""
        self.left -= len(text.encode())
        if self.left < 0:
            raise TooLarge("with the data of earlier steps the request is too large")
        return text


def _parts(text: str, field: str) -> list[str | Ref]:
    """The literal pieces and the references of a text; raises BadInput."""
    parts: list[str | Ref] = []
    end = 0
    while opening := _OPEN.search(text, end):
        parts.append(text[end : opening.start()])
        if opening[0] == "$${":
            parts.append("${")
            end = opening.end()
            continue
        whole = _REF.match(text, opening.start())
        if whole is None:
            what = f"{brief(text[opening.start() :], 40)} begins a reference that does not end"
            raise BadInput(what, field=field, hint="write ${step.output.key}, or $${ for a literal ${")
        parts.append(_parse_ref(whole[1], field))
        end = whole.end()
    parts.append(text[end:])
    return [part for part in parts if part != ""]


def _parse_ref(inner: str, field: str) -> Ref:
    step, *rest = inner.split(".")
    wanted = "input" if step == TASK else "output"
    if _ID.fullmatch(step) is None or not rest or rest[0] != wanted or "" in rest:
        raise BadInput(
            f"{brief('${' + inner + '}')} is not a reference", field=field, hint="write ${step.output.key} or ${task.input.key}"
        )
    return Ref(step, tuple(rest[1:]))


StepId = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]


class PlanStep(Section):
    """A step of a plan: one action of one service, with its params."""

    id: StepId
    service: Key
    action: Key
    params: dict[str, Any] = Field(default_factory=dict)
    estimated_cost: Amount = 0
    estimated_seconds: Amount = 0


class ErrorHandling(Section):
    """The handling of a step's failure: the number of retries, and the longest time of each attempt."""

    retry_count: Annotated[int, Field(ge=0, le=1000)] = 0
    timeout_seconds: Amount | None = None


class Plan(Section):
    """The plan that a participant submits for a task."""

    schema_: Annotated[Literal["assay.plan/1"], Field(alias="schema")] = "assay.plan/1"
    nodes: Annotated[tuple[PlanStep, ...], Field(strict=False, min_length=1, max_length=limits.MOST_NODES)]
    edges: Annotated[
        tuple[Annotated[tuple[str, str], Field(strict=False)], ...], Field(strict=False, max_length=limits.MOST_EDGES)
    ] = ()
    error_handling: dict[str, ErrorHandling] = Field(default_factory=dict)

    @cached_property
    def by_id(self) -> dict[str, PlanStep]:
        """Id → step, in the order of the plan."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def needs(self) -> dict[str, frozenset[str]]:
        """Id → the steps that must be done before it."""
        needs: dict[str, set[str]] = {node.id: set() for node in self.nodes}
        for start, end in self.edges:
            needs[end].add(start)
        return {name: frozenset(before) for name, before in needs.items()}

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        """The steps that no other step needs, in the order of the plan. Their answers are the plan's output."""
        started = {start for start, _ in self.edges}
        return tuple(node.id for node in self.nodes if node.id not in started)

    @property
    def declared_retries(self) -> int:
        """The sum of all retry_count. SPEC 2.2."""
        return sum(handling.retry_count for handling in self.error_handling.values())

    def handling(self, name: str) -> ErrorHandling:
        """The handling of a step's failures; by default without a retry and without a time-out of its own."""
        return self.error_handling.get(name) or ErrorHandling()

    def document(self) -> dict[str, Any]:
        """The plan as JSON."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @cached_property
    def digest(self) -> str:
        """`sha256:…` over its canonical JSON."""
        return digest(self.document())


@dataclass(frozen=True)
class PlanBounds:
    """The limits of a plan's size."""

    nodes: int = limits.NODES
    edges: int = limits.EDGES
    bytes: int = limits.PLAN_BYTES
    depth: int = limits.PLAN_DEPTH


@dataclass(frozen=True)
class PlanRules:
    """The rules of a task that a plan must follow."""

    allowed: Mapping[str, frozenset[str]] | None = None
    """Service → actions; None: any."""
    bounds: PlanBounds = PlanBounds()
    max_retries: int | None = None
    """The number of retries that a step may declare; None: any number."""
    max_nanoseconds: int | None = None
    """The longest time-out of a step: the task's latency."""
    output: str = ""
    """The step whose answer is the plan's output; empty: the sinks."""


def parse_plan(data: bytes, rules: PlanRules | None = None, *, file: Path | str | None = None) -> Plan:
    """The checked plan from its JSON. Raises BadInput, which names the step and what is wrong with it."""
    rules = rules or PlanRules()
    most = rules.bounds.bytes
    if len(data) > most:
        raise BadInput(f"has {len(data)} bytes, the most are {most}", file=file, hint="let services carry the data")
    try:
        content = strict.parse(decode(data, file))
        if not isinstance(content, dict):
            raise BadInput("is not a JSON object", hint="a plan has nodes, edges and error_handling")
        _refuse_floats(content, "")
        plan = validate(Plan, content)
        check_plan(plan, rules)
    except BadInput as error:
        raise error.at(file=file) from None
    return plan


def check_plan(plan: Plan, rules: PlanRules) -> None:
    """Refuses a plan that cannot run or must not run; raises BadInput with the step's field. SPEC 2.2."""
    bounds = rules.bounds
    for name, count, most in (("nodes", len(plan.nodes), bounds.nodes), ("edges", len(plan.edges), bounds.edges)):
        if count > most:
            raise BadInput(f"has {count} {name}, the most are {most}", field=name, hint="make it smaller")
    _check_names(plan)
    _check_edges(plan)
    order = _order(plan)
    for place, node in enumerate(plan.nodes):
        try:
            _check_node(node, rules)
        except BadInput as error:
            raise error.at(field=f"nodes[{place}]") from None
    for name, handling in plan.error_handling.items():
        _check_handling(name, handling, plan, rules)
    _check_refs(plan, order)
    if rules.output and rules.output not in plan.by_id:
        what = f"there is no step {rules.output!r}, and the task takes the output from that step"
        raise BadInput(what, field="nodes", hint=f"call the last step {rules.output!r}")


def _check_names(plan: Plan) -> None:
    first: dict[str, int] = {}
    for place, node in enumerate(plan.nodes):
        if node.id == TASK:
            raise BadInput(
                f"{node.id!r} stands for the task itself", field=f"nodes[{place}].id", hint="give the step another name"
            )
        if first.setdefault(node.id, place) != place:
            what = f"there are two steps {node.id!r}"
            raise BadInput(what, field=f"nodes[{place}].id", hint="give each its own id")


def _check_edges(plan: Plan) -> None:
    seen: set[tuple[str, str]] = set()
    for place, edge in enumerate(plan.edges):
        for end, name in enumerate(edge):
            if name not in plan.by_id:
                raise BadInput(f"there is no step {brief(name)}", field=f"edges[{place}][{end}]", hint="an edge joins two nodes")
        if edge in seen:
            raise BadInput(f"{edge[0]} → {edge[1]} is there twice", field=f"edges[{place}]", hint="keep one")
        seen.add(edge)


def _order(plan: Plan) -> list[str]:
    """The steps, each after all that it needs. Raises BadInput with the cycle, if there is one."""
    try:
        return list(TopologicalSorter(plan.needs).static_order())
    except CycleError as error:
        cycle = list(error.args[1])
        shown = cycle if len(cycle) <= 10 else [*cycle[:5], "…", *cycle[-4:]]
        what = f"is a cycle: {' → '.join(shown)}"
        raise BadInput(what, field="edges", hint="remove one of its edges: a step cannot wait for itself") from None


def _check_node(node: PlanStep, rules: PlanRules) -> None:
    if rules.allowed is not None:
        if node.service not in rules.allowed:
            raise BadInput(
                f"the step {node.id!r} uses the service {brief(node.service)}, which the task does not allow",
                field="service",
                hint=_allowed_names(rules.allowed),
            )
        actions = rules.allowed[node.service]
        if node.action not in actions:
            raise BadInput(
                f"the step {node.id!r} uses the action {brief(node.action)} of {node.service!r}, which the task does not allow",
                field="action",
                hint=_allowed_names(actions),
            )
    if _depth(node.params) > rules.bounds.depth:
        what = f"the step {node.id!r} has params more than {rules.bounds.depth} deep"
        raise BadInput(what, field="params", hint="make them flatter")


def _check_handling(name: str, handling: ErrorHandling, plan: Plan, rules: PlanRules) -> None:
    field = f"error_handling.{name[:64]}"
    if name not in plan.by_id:
        raise BadInput(f"there is no step {brief(name)}", field=field, hint="name one of the nodes, or remove this entry")
    most = rules.max_retries
    if most is not None and handling.retry_count > most:
        what = f"the step {name!r} declares {handling.retry_count} retries, the most are {most}"
        raise BadInput(what, field=f"{field}.retry_count", hint="declare fewer")
    seconds = handling.timeout_seconds
    longest = limits.CALL_SECONDS * NANO if rules.max_nanoseconds is None else rules.max_nanoseconds
    if seconds == 0:
        raise BadInput(f"the step {name!r} has a time-out of 0", field=f"{field}.timeout_seconds", hint="give it more than 0")
    if seconds is not None and seconds > longest:
        what = f"the step {name!r} declares {text(seconds)} s, and the task has {text(longest)} s in all"
        raise BadInput(what, field=f"{field}.timeout_seconds", hint="declare less, or leave it out")


def _check_refs(plan: Plan, order: Iterable[str]) -> None:
    """Refuses a reference to a step that the edges do not put before. A set of steps is the bits of one integer."""
    bit = {node.id: 1 << place for place, node in enumerate(plan.nodes)}
    before: dict[str, int] = {}
    for name in order:
        before[name] = 0
        for needed in plan.needs[name]:
            before[name] |= before[needed] | bit[needed]
    for place, node in enumerate(plan.nodes):
        for ref, field in find_refs(node.params, f"nodes[{place}].params"):
            if ref.step == TASK:
                continue
            if ref.step not in bit:
                hint = "name a step of the plan"
                raise BadInput(f"the step {node.id!r} refers to {ref}, and there is no such step", field=field, hint=hint)
            if not before[node.id] & bit[ref.step]:
                what = f"the step {node.id!r} refers to {ref}, which does not come before it"
                raise BadInput(what, field=field, hint=f'add the edge ["{ref.step}", "{node.id}"]')


def _refuse_floats(value: Any, field: str) -> None:
    if isinstance(value, float | Decimal):
        raise BadInput(f"{value} is a JSON float", field=field, hint=f'write it in quotes, "{value}": plans have no floats')
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_floats(inner, f"{field}.{key}" if field else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_floats(inner, f"{field}[{index}]")


def _depth(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + max((_depth(inner) for inner in (value.values() if isinstance(value, dict) else value)), default=0)
    return 0


def _allowed_names(names: Iterable[str]) -> str:
    return f"it allows {', '.join(sorted(names)[:10])}"
