"""What an agent may ask of a model service, and what a validator says about that. SPEC 2.1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput
from assay.judge.service import ModelAccess, of_agents, of_judges
from assay.judge.terminal.model_proxy import open_proxy
from assay.judge.terminal.worker import WorkerSettings
from proxy_kit import KEY, ask, proxied, say, service


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", each) for each in ("/files", "/v1/files", "/batches", "/threads", "/vector_stores", "/uploads", "/x")),
        *(
            ("POST", each)
            for each in ("/responses/resp_1", "/chat/completions/x", "/models", "/chat/completions/", "/conversations")
        ),
        *(("GET", each) for each in ("/files", "/files/file-1/content", "/responses/resp_1", "/models/a/b")),
        ("DELETE", "/models/a"),
    ],
)
def test_what_one_agent_leaves_at_the_service_no_other_can_read(door: Path, method: str, path: str) -> None:
    with proxied(door, say()) as (behind, seen):
        status, _, body = ask(door, method, path, b"{}" if method == "POST" else None)
    assert status == 403
    assert json.loads(body)["error"]["message"].startswith("only these are forwarded: POST /chat/completions, ")
    assert behind.asked == []
    assert (seen.requests, seen.refused, seen.troubles) == (0, 1, [])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/chat/completions"), ("POST", "/v1/messages"), ("POST", "/v1/embeddings"), ("POST", "/messages/count_tokens"),
        ("GET", "/models"), ("GET", "/models/gpt-x?a=b"), ("POST", "/v1/chat/completions?x=%20"),
    ],
)  # fmt: skip
def test_what_leaves_nothing_is_forwarded_as_it_is(door: Path, method: str, path: str) -> None:
    body = b'{"a":  1.10}' if method == "POST" else None
    with proxied(door, say()) as (behind, _):
        assert ask(door, method, path, body)[0] == 200
    assert [(asked.method, asked.path, asked.body) for asked in behind.asked] == [(method, f"/v1{path}", body or b"")]


@pytest.mark.parametrize(
    ("path", "body", "forwarded"),
    [
        ("/responses", b'{"input": "a"}', {"input": "a", "store": False}),
        ("/v1/responses", b'{"input": "a", "store": true}', {"input": "a", "store": False}),
        ("/responses", b'{"store": false, "store": true, "background": false}', {"store": False, "background": False}),
        ("/chat/completions", b'{"\\u0073tore": true}', {"store": False}),
        ("/responses", b'{"previous_response_id": "resp_1"}', 403),
        ("/responses", b'{"background": true}', 403),
        ("/responses", b'{"conversation": {"id": "conv_1"}}', 403),
        ("/responses", b'{"Previous_Response_ID": "resp_1"}', 400),
        ("/chat/completions", b'{"store": false, "Store": true}', 400),
        ("/chat/completions", '{"\u017ftore": true}'.encode(), 400),
        (
            "/responses",
            b'{"tools": [{"type": "function", "name": "f"}], "store": false}',
            {"tools": [{"type": "function", "name": "f"}], "store": False},
        ),
        (
            "/messages",
            b'{"tools": [{"name": "f"}, {"type": "bash_20250124", "name": "bash"}], "container": null}',
            {"tools": [{"name": "f"}, {"type": "bash_20250124", "name": "bash"}], "container": None},
        ),
        ("/chat/completions", b'{"tools": [{"type": "mcp"}], "tools": []}', {"tools": []}),
        ("/responses", b'{"tools": [{"type": "function"}, {"type": "mcp", "server_url": "https://x"}]}', 403),
        ("/responses", b'{"tools": [{"type": "web_search"}]}', 403),
        ("/responses", b'{"tools": [{"type": "function", "Type": "mcp"}]}', 403),
        ("/responses", b'{"prompt": {"id": "pmpt_1"}}', 403),
        ("/messages", b'{"tools": [{"type": "web_search_20250305", "name": "web_search"}]}', 403),
        ("/messages", b'{"mcp_servers": [{"url": "https://x"}]}', 403),
        ("/messages", b'{"Tools": []}', 400),
        ("/messages", b'{"tools": {"type": "custom"}}', 400),
        ("/chat/completions", b'{"web_search_options": {}}', 403),
        ("/chat/completions", b'{"plugins": [{"id": "web"}]}', 403),
        ("/responses", b"[]", 400),
        ("/responses", b"{", 400),
        ("/responses", b'{"a": NaN}', 400),
        ("/chat/completions", b"[" * 100_000, 400),
    ],
)
def test_the_service_is_told_to_keep_nothing(door: Path, path: str, body: bytes, forwarded: dict[str, Any] | int) -> None:
    with proxied(door, say()) as (behind, seen):
        status = ask(door, path=path, body=body)[0]
    if isinstance(forwarded, int):
        assert (status, behind.asked, seen.refused) == (forwarded, [], 1)
    else:
        assert [json.loads(asked.body) for asked in behind.asked] == [forwarded]
        assert behind.asked[0].headers["Content-Length"] == str(len(behind.asked[0].body))


def test_a_validator_may_say_which_endpoints_there_are(door: Path) -> None:
    given = {"ASSAY_MODEL_ENDPOINTS": "POST /completions,  GET  /deployments/*/models"}
    with service(say()) as behind:
        model = of_agents(given, behind.url)
        assert model is not None
        with open_proxy(model, door):
            assert ask(door, path="/completions")[0] == 200
            assert ask(door, "GET", "/deployments/x/models", None)[0] == 200
            assert ask(door, "GET", "/deployments/x/y/models", None)[0] == 403
            assert ask(door, path="/chat/completions")[0] == 403
        listed = of_agents({"ASSAY_MODEL_ENDPOINTS": "POST /openai/v1/responses"}, behind.url)
        assert listed is not None
        with open_proxy(listed, door):
            assert ask(door, path="/openai/v1/responses", body=b'{"input": "a"}')[0] == 200
        assert json.loads(behind.asked[-1].body) == {"input": "a", "store": False}
    for wrong in ("PUT /x", "/x", "POST x", "POST /../x y", "POST /%2e"):
        with pytest.raises(BadInput, match="is not an endpoint"):
            of_agents({"ASSAY_MODEL_ENDPOINTS": wrong}, "http://a/v1")


@pytest.mark.parametrize(
    "url",
    ["", "x", "ftp://a/", "http://", "http://u:p@a/", "http://a/?q", "http://a/#f", "http://a:x/", "http://a/b c", "file:///etc"],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(BadInput, match="is not the address of a service") as refused:
        ModelAccess(url)
    assert "u:p" not in str(refused.value)  # it may be a password


def test_the_key_is_not_shown() -> None:
    assert KEY not in repr(ModelAccess("https://a/v1", KEY))
    with pytest.raises(BadInput):
        ModelAccess("https://a", "a\r\nX: y")
    with pytest.raises(BadInput):
        ModelAccess("https://a", "a", "X: y")


def test_from_the_environment() -> None:
    assert of_agents({}) is None
    access = of_agents({"ASSAY_MODEL_URL": "https://a/v1", "ASSAY_MODEL_KEY": "k", "ASSAY_MODEL_HEADER": "x-api-key"})
    assert access == ModelAccess("https://a/v1", "k", "x-api-key")
    assert access is not None
    assert access.credentials == {"x-api-key": "k"}
    assert ModelAccess("https://a").credentials == {}
    assert of_agents({"ASSAY_MODEL_URL": "https://a"}, "https://b") == ModelAccess("https://b")
    named = of_agents({"ASSAY_MODEL_NAMES": "a/b, c ,", "ASSAY_MODEL_RATE": "7"}, "https://b")
    assert named == ModelAccess("https://b", names=("a/b", "c"), per_minute=7)
    settings = WorkerSettings("bubblewrap", "fail", named)
    assert WorkerSettings.of_json(settings.to_json()) == settings
    for wrong in ("0", "-1", "1.5", "many", "1000000"):
        with pytest.raises(BadInput, match="is not a number from 1 to 999999"):
            of_agents({"ASSAY_MODEL_RATE": wrong}, "https://b")
    assert of_judges({"ASSAY_MODEL_URL": "https://a", "ASSAY_LLM_API_KEY": "k"}) is None
    assert of_judges({"ASSAY_LLM_BASE_URL": "https://a", "ASSAY_LLM_API_KEY": "k"}) == ModelAccess("https://a", "k")
    assert of_judges({"ASSAY_LLM_BASE_URL": "https://a"}, "https://b/v1") == ModelAccess("https://b/v1")
