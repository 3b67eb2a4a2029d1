"""Plans are checked whole before they run, and refused with the step and why. SPEC 2.2."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.judge.workflow import plan, values
from assay.judge.workflow.plan import Plan, PlanBounds, PlanRules, parse_plan

ALLOWED = {"s": frozenset({"do", "other"})}


def node(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "service": "s", "action": "do"} | more


def document(*names: str, edges: Any = (), **more: Any) -> dict[str, Any]:
    return {"nodes": [node(name) for name in names], "edges": list(edges)} | more


def parsed(content: Any, **rules: Any) -> Plan:
    return parse_plan(json.dumps(content).encode(), PlanRules(**rules))


def refused(content: Any, **rules: Any) -> str:
    with pytest.raises(BadInput) as caught:
        parsed(content, **rules)
    return str(caught.value)


def test_a_plan_says_what_it_needs() -> None:
    plan = parsed(
        document(
            "a", "b", "c", edges=[["a", "c"], ["b", "c"]], error_handling={"a": {"retry_count": 2}, "c": {"retry_count": 1}}
        ),
        allowed=ALLOWED,
        max_retries=2,
    )
    assert plan.needs == {"a": frozenset(), "b": frozenset(), "c": frozenset({"a", "b"})}
    assert (plan.sinks, plan.declared_retries) == (("c",), 3)
    assert plan.handling("b").retry_count == 0
    again = parsed(plan.document())
    assert again.digest == plan.digest


HANDLING = "error_handling"


@pytest.mark.parametrize(
    ("content", "rules", "message"),
    [
        (document("a", "b", edges=[["a", "b"], ["b", "a"]]), {}, "edges: is a cycle: a → b → a"),
        (document("a", edges=[["a", "a"]]), {}, "edges: is a cycle: a → a"),
        (document("a", edges=[["a", "x"]]), {}, "edges[0][1]: there is no step 'x'"),
        (document("a", "b", edges=[["a", "b"], ["a", "b"]]), {}, "edges[1]: a → b is there twice"),
        (document("a", "b", edges=[["a", "b", "c"]]), {}, "edges[0]"),
        (document("a", "b", edges=[{"from": "a", "to": "b"}]), {}, "edges[0]"),
        (document("a", "a"), {}, "nodes[1].id: there are two steps 'a'"),
        (document("task"), {}, "nodes[0].id: 'task' stands for the task itself"),
        (document("1a"), {}, "nodes[0].id"),
        (document(), {}, "nodes: is empty"),
        ({"edges": []}, {}, "nodes: is missing"),
        ([], {}, "is not a JSON object"),
        (document("a", extra=1), {}, "extra: there is no field 'extra' here"),
        ({"nodes": [node("a", params={"n": 0.5})]}, {}, "nodes[0].params.n: 0.5 is a JSON float"),
        ({"nodes": [node("a", params={"n": [1, {"m": 1e3}]})]}, {}, "nodes[0].params.n[1].m: 1000.0 is a JSON float"),
        ({"nodes": [node("a", estimated_cost=1)]}, {}, "nodes[0].estimated_cost: a JSON integer (1) is not a decimal string"),
        ({"nodes": [node("a", service="t")]}, {"allowed": ALLOWED}, "nodes[0].service: the step 'a' uses the service 't'"),
        ({"nodes": [node("a", action="rm")]}, {"allowed": ALLOWED}, "nodes[0].action: the step 'a' uses the action 'rm' of 's'"),
        (document("a", "b"), {"bounds": PlanBounds(nodes=1)}, "nodes: has 2 nodes, the most are 1"),
        (document("a", "b", edges=[["a", "b"]]), {"bounds": PlanBounds(edges=0)}, "edges: has 1 edges, the most are 0"),
        (document("a"), {"bounds": PlanBounds(bytes=10)}, "has 69 bytes, the most are 10"),
        ({"nodes": [node("a", params={"x": [[1]]})]}, {"bounds": PlanBounds(depth=2)}, "has params more than 2 deep"),
        (document("a", error_handling={"b": {}}), {}, f"{HANDLING}.b: there is no step 'b'"),
        (document("a", error_handling={"a": {"retry_count": 6}}), {"max_retries": 5}, "declares 6 retries, the most are 5"),
        (document("a", error_handling={"a": {"retry_count": -1}}), {}, f"{HANDLING}.a.retry_count"),
        (document("a", error_handling={"a": {"timeout_seconds": "0"}}), {}, "the step 'a' has a time-out of 0"),
        (document("a", error_handling={"a": {"timeout_seconds": 3}}), {}, "is not a decimal string"),
        (
            document("a", error_handling={"a": {"timeout_seconds": "11"}}),
            {"max_nanoseconds": 10**10},
            "the step 'a' declares 11 s, and the task has 10 s in all",
        ),
        (document("a"), {"output": "z"}, "there is no step 'z', and the task takes the output from that step"),
    ],
)
def test_what_cannot_run_is_refused(content: Any, rules: dict[str, Any], message: str) -> None:
    assert message in refused(content, **rules)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("${b.output}", "nodes[0].params.x: the step 'a' refers to ${b.output}, which does not come before it"),
        ("${a.output}", "the step 'a' refers to ${a.output}, which does not come before it"),
        ("${z.output.k}", "the step 'a' refers to ${z.output.k}, and there is no such step"),
        ("${b}", "'${b}' is not a reference"),
        ("${b.input}", "'${b.input}' is not a reference"),
        ("${task.output}", "'${task.output}' is not a reference"),
        ("${b.output..k}", "'${b.output..k}' is not a reference"),
        ("see ${b.output", "'${b.output' begins a reference that does not end"),
        ("${${b.output}}", "begins a reference that does not end"),
    ],
)
def test_a_reference_must_be_to_what_is_done_by_then(params: str, message: str) -> None:
    content = {"nodes": [node("a", params={"x": params}), node("b")]}
    assert message in refused(content)


def test_far_ancestors_may_be_referred_to() -> None:
    content = document("a", "b", "c", edges=[["a", "b"], ["b", "c"]])
    content["nodes"][2]["params"] = {"x": ["${a.output}", "${task.input.q}", "$${a.output"]}
    parsed(content)


@pytest.mark.parametrize("text", [b"{", b'{"nodes": [], "nodes": []}', b'{"nodes": NaN}', b"\xff", b"[" * 100])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(BadInput):
        parse_plan(text)


KNOWN: dict[str, Any] = {
    "a": {"text": 'say "hi"', "list": [10, {"deep": values.parse(b"0.10")}], "empty": ""},
    "task": {"question": "why?"},
}


@pytest.mark.parametrize(
    ("params", "filled"),
    [
        ({"x": "${a.output.text}"}, '{"x":"say \\"hi\\""}'),
        ({"x": "${a.output.list}"}, '{"x":[10,{"deep":0.10}]}'),
        ({"x": "${a.output.list.1.deep}"}, '{"x":0.10}'),
        ({"x": "He ${a.output.text}, ${a.output.list.0} times"}, '{"x":"He say \\"hi\\", 10 times"}'),
        ({"x": "$${a.output} costs $5 ${task.input.question}"}, '{"x":"${a.output} costs $5 why?"}'),
        ({"x": ["${a.output.empty}", None, True, 3, {"${k}": 1}]}, '{"x":["",null,true,3,{"${k}":1}]}'),
    ],
)
def test_references_are_filled_with_what_is_there(params: Any, filled: str) -> None:
    assert plan.fill_refs(params, KNOWN.__getitem__, 1000).decode() == filled


@pytest.mark.parametrize("path", ["nowhere", "list.2", "list.-1", "list.x", "list.0.deeper", "text.0"])
def test_a_path_that_leads_nowhere_says_so(path: str) -> None:
    with pytest.raises(LookupError, match="does not exist"):
        plan.fill_refs({"x": f"${{a.output.{path}}}"}, KNOWN.__getitem__, 1000)


def test_what_is_too_large_to_send_is_not_made() -> None:
    huge = {"a": "x" * 1_000_000}
    with pytest.raises(plan.TooLarge):
        plan.fill_refs({"x": ["${a.output}"] * 1000}, huge.__getitem__, 2_000_000)


scalars = st.none() | st.booleans() | st.integers() | st.decimals(allow_nan=False, allow_infinity=False, places=3) | st.text()
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


@given(json_values)
def test_json_comes_back_as_it_was(value: Any) -> None:
    try:
        data = values.dumps(value)
    except UnicodeEncodeError:  # a lone surrogate, which no JSON of bytes has
        return
    assert values.equal(values.parse(data), value)
    assert values.dumps(values.parse(data)) == data


@pytest.mark.parametrize(
    ("first", "other", "same"),
    [
        (b"1.0", b"1", True),
        (b"1e2", b"100", True),
        (b"0.1", b"0.10", True),
        (b"true", b"1", False),
        (b"null", b"false", False),
        (b'"1"', b"1", False),
        (b'{"a": 1, "b": 2}', b'{"b": 2, "a": 1}', True),
        (b"[1, 2]", b"[2, 1]", False),
        (b"[]", b"{}", False),
        (b"[[]]", b"[]", False),
    ],
)
def test_equal_is_what_has_the_same_structure(first: bytes, other: bytes, same: bool) -> None:
    assert values.equal(values.parse(first), values.parse(other)) is same


@pytest.mark.parametrize(
    "data",
    [
        b"NaN",
        b"-Infinity",
        b'{"a":1,"a":2}',
        b"1e9999",
        b"1" * 301,
        b"0." + b"1" * 300,
        b'"\\ud800"',
        b"[" * 40 + b"]" * 40,
        b"\xff",
    ],
)
def test_an_answer_that_two_readers_could_take_differently_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        values.parse(data)
