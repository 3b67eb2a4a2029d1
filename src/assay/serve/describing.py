"""The service's OpenAPI document: what FastAPI finds in the routes, less what the service never answers, and how to sign."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from assay.serve.answers import NULL, with_nulls

__all__ = ["describe"]

Json = dict[str, Any]
SIGNATURE = {
    "type": "apiKey",
    "in": "header",
    "name": "Signature",
    "description": (
        "HTTP Message Signatures (RFC 9421) over @method, @target-uri and content-digest (RFC 9530, sha-256), with created, "
        "nonce and keyid; the label is free. Ed25519 or sr25519 keys. A nonce is used once."
    ),
}


def describe(app: FastAPI) -> None:
    """Make /v1/openapi.json of an application with all its routes; it is made when somebody asks first."""

    def openapi() -> Json:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI) -> Json:
    document = get_openapi(
        title=app.title,
        summary=app.summary,
        description=app.description,
        version=app.version,
        openapi_version=app.openapi_version,
        routes=app.routes,
        servers=app.servers,
    )
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            _plain(operation)
            if method == "get" and "/logs" in path:  # released ones may be read without a key
                operation["security"].append({})
            if method == "get" and not path.endswith("/events"):
                _tagged(operation)
    schemas = document.get("components", {}).get("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):  # the service answers 400 with a problem document instead
        schemas.pop(name, None)
    document.setdefault("components", {})["securitySchemes"] = {"signature": SIGNATURE}
    whole: Json = with_nulls(document, NULL, None)
    return whole


def _tagged(operation: Json) -> None:
    """Say that an answer has an ETag, and that a client that sends it again is spared the body."""
    operation["responses"]["200"]["headers"] = {"ETag": {"schema": {"type": "string"}, "description": "Names this content"}}
    operation["responses"].setdefault("304", {"description": "The client has it already (If-None-Match)"})


def _plain(operation: Json) -> None:
    """Bring an operation to what the service does: its first sentence as the summary, a signature, 400 instead of 422."""
    if "public" not in operation["tags"]:
        operation["security"] = [{"signature": []}]
    operation["responses"].pop("422", None)
    about = str(operation.get("description", ""))
    if about:
        operation["summary"] = about.partition("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".")
