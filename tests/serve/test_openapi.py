"""The service's own description of itself: it is complete, and whatever it allows or forbids, the answers are as it says."""

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import jsonschema
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import api_examples
import ledger_kit
import test_public
from assay.serve import feeds
from assay.serve.signed import sign_request
from service_kit import Running, running

for media in ("application/vnd.assay.batches", "application/vnd.assay.sealed"):
    schemathesis.serializer.alias(media, "text/plain")
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
KNOWN: dict[str, list[Any]] = {
    "segment": ["small"],
    "epoch": [3, 4, 5],
    "key": ["m1", "nobody"],
    "table": ["weights", "agreed"],
    "path": ["0/000.p/2", "entries/000.p/2"],
}
"""What there is: a name that was made up alone would hardly ever lead to an answer."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = ledger_kit.once(tmp_path_factory.mktemp("openapi") / "small", ("public",), test_public.seasoned)
    with pytest.MonkeyPatch.context() as patched, running(folder) as started:
        patched.setattr(feeds, "EVENT_SECONDS", 0.01)
        yield started


@pytest.fixture(scope="module")
def document(service: Running) -> Any:
    return service.ask("GET", "/v1/openapi.json").json


def test_every_operation_is_described(document: Any) -> None:
    assert document["openapi"].startswith("3.1")
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            assert operation["description"], where
            assert {parameter["name"] for parameter in operation.get("parameters", ())} >= set(re.findall(r"\{(\w+)\}", path)), (
                where
            )
            assert "422" not in operation["responses"], where
            assert "application/problem+json" in operation["responses"]["default"]["content"], where
            done = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
            assert "204" in operation["responses"] or done["content"], where
            if method in ("post", "put"):
                assert operation["requestBody"]["content"], where
                assert operation["security"] == [{"signature": []}], where
    assert len(document["paths"]) > 25


def resolved(schema: Any, document: Any) -> Any:
    """A schema with what it refers to in it, so that it can be used alone."""
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            target = document
            for part in reference.removeprefix("#/").split("/"):
                target = target[part]
            return resolved(target, document)
        return {name: resolved(value, document) for name, value in schema.items()}
    return [resolved(value, document) for value in schema] if isinstance(schema, list) else schema


def contents_of(document: Any) -> Iterator[tuple[str, str, Any]]:
    """(operation and status, media type, what is said of it) of each body that is asked for or answered."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            answers = {"body": operation.get("requestBody", {}), **operation["responses"]}
            for status, answer in answers.items():
                for media, content in answer.get("content", {}).items():
                    yield f"{where} {status}", media, content


def test_every_body_and_answer_has_an_example_that_fits_its_schema(document: Any) -> None:
    shown = 0
    for where, media, content in contents_of(document):
        schema = resolved(content["schema"], document)
        if schema.get("format") == "binary":
            continue
        examples = [content["example"]] if "example" in content else schema.get("examples", [])
        assert examples, f"{where} {media} has no example"
        for example in examples:
            errors = [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(example)]
            assert errors == [], f"{where} {media}"
            shown += 1
    assert shown > 60


@pytest.mark.full
def test_the_long_examples_are_what_a_service_answers(service: Running) -> None:
    written = json.loads(api_examples.FILE.read_bytes())
    now = api_examples.examples(service)
    assert written.keys() == now.keys()
    for name in ("settlement", "explanation", "weights.csv", "batch"):  # the others name the version that signed them
        assert written[name] == now[name], f"run python {api_examples.__file__}"
    assert written["proof"]["result"] == now["proof"]["result"]


def test_an_answer_says_by_its_tag_that_nothing_changed(document: Any) -> None:
    tagged = [path for path, methods in document["paths"].items() if "304" in methods.get("get", {"responses": ()})["responses"]]
    every = [path for path, methods in document["paths"].items() if "get" in methods]
    assert {*every} - {*tagged} == {"/{segment}/events"}


def ask(service: Running, case: Any, *, sign: bool) -> requests.Response:
    """Send a case that was made up; signed by a validator if it is asked for."""
    words = case.as_transport_kwargs(base_url=service.address)
    words = {name: value for name, value in words.items() if name in ("method", "url", "headers", "params", "data", "json")}
    with requests.Session() as session:
        request = session.prepare_request(requests.Request(**words))
        body = request.body if isinstance(request.body, bytes) else (request.body or "").encode()
        if sign:
            key = next(iter(ledger_kit.VALIDATORS.values()))
            request.headers.update(sign_request(key, str(request.method), str(request.url), sha256(body).digest()))
        return session.send(request, timeout=60)


def conforms(service: Running, document: Any, count: int) -> None:
    """Every operation, with input that is allowed and input that is not, for things that there are and things made up."""
    operations: list[Any] = [*schemathesis.openapi.from_dict(document).get_all_operations()]
    for operation in operations:
        _conforms(service, operation.ok(), count)


def _conforms(service: Running, operation: Any, count: int) -> None:
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def check_case(data: st.DataObject) -> None:
        wrong = bool(operation.path_parameters) and data.draw(st.sampled_from([False, False, True]))
        case = data.draw(operation.as_strategy(GenerationMode.NEGATIVE if wrong else GenerationMode.POSITIVE))
        if not wrong:
            known = {name: data.draw(st.sampled_from(KNOWN[name])) for name in KNOWN if f"{{{name}}}" in operation.path}
            case.path_parameters = (case.path_parameters or {}) | known
        answer = ask(service, case, sign=data.draw(st.booleans()))
        case.validate_response(answer, checks=CHECKS)
        assert answer.status_code < 400 or answer.json()["status"] == answer.status_code

    check_case()


def test_answers_are_as_described(service: Running, document: Any) -> None:
    conforms(service, document, 2)


@pytest.mark.full
def test_answers_are_as_described_for_many_requests(service: Running, document: Any) -> None:
    conforms(service, document, 300)
