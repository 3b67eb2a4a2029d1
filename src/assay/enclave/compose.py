"""app-compose.json, the file that says what a dstack machine runs, and its hash, which dstack logs and a bounty pins.

The compose hash is the SHA-256 of the file's bytes as it is deployed. Tools of dstack write it in one form (keys in order, no
spaces), of which their SDK takes the same hash; in another form it would be another hash of the same content.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.folder import strict
from assay.folder.text import decode, load

__all__ = ["COMPOSE_BYTES", "app_compose", "check_images", "compose_hash", "read_compose"]

COMPOSE_BYTES = 1_000_000
"""Bytes of app-compose.json, and of docker-compose.yml."""
ENVIRONMENT = ("ASSAY_LLM_API_KEY",)
"""Variables that whoever deploys may set without changing the hash: the key that a model's service asks for, and nothing else."""
_IMAGE = re.compile(r"^[ \t]*(?:-[ \t]+)?[\"']?image[\"']?[ \t]*:[ \t]*(.*?)[ \t]*(?:#.*)?$", re.MULTILINE)
_ANYWHERE = re.compile(r"\bimage[\"']?[ \t]*:")
_BUILD = re.compile(r"^[ \t]*[\"']?build[\"']?[ \t]*:", re.MULTILINE)
_PINNED = re.compile(r"[a-z0-9][a-z0-9._/:-]*@sha256:([0-9a-f]{64})")


def read_compose(file: Path, name: str = "assay-enclave") -> bytes:
    """The bytes of app-compose.json: as they are, or made from a docker-compose.yml; raises BadInput.

    Every image must be pinned by its digest: otherwise the hash would not say what runs.
    """
    data = load(file, COMPOSE_BYTES, hint="give app-compose.json, or docker-compose.yml")
    text = decode(data, file)
    if not text.lstrip().startswith("{"):
        check_images(text, file)
        return app_compose(text, name)
    try:
        found = strict.parse(text)
    except BadInput as error:
        raise error.at(file=file) from None
    inner = found.get("docker_compose_file") if isinstance(found, dict) else None
    if not isinstance(inner, str):
        hint = "dstack's tools write it; it holds docker-compose.yml as a text"
        raise BadInput("has no docker_compose_file", file=file, hint=hint)
    check_images(inner, file)
    return data


def compose_hash(data: bytes) -> str:
    """SHA-256 of app-compose.json, in hex."""
    return sha256(data).hexdigest()


def app_compose(docker_compose: str, name: str) -> bytes:
    """An app-compose.json for a docker-compose.yml, in the form that dstack's SDK hashes; raises BadInput without the extra."""
    content: dict[str, Any] = {
        "manifest_version": 2,
        "name": name,
        "runner": "docker-compose",
        "docker_compose_file": docker_compose,
        "kms_enabled": True,
        "gateway_enabled": True,
        "public_logs": False,
        "public_sysinfo": True,
        "public_tcbinfo": True,
        "local_key_provider_enabled": False,
        "allowed_envs": list(ENVIRONMENT),
        "no_instance_id": False,
        "secure_time": True,
    }
    try:
        from dstack_sdk.get_compose_hash import AppCompose, to_deterministic_json
    except ImportError:
        hint = "install it: pip install 'assay[tee]'"
        raise BadInput("app-compose.json is written by a library that is not installed", hint=hint) from None
    return to_deterministic_json(AppCompose.from_dict(content)).encode()


def check_images(docker_compose: str, file: Path | str | None = None) -> list[str]:
    """The images of a docker-compose.yml; raises BadInput if one is not pinned by its digest, or built on the spot."""
    if _BUILD.search(docker_compose):
        raise BadInput("builds an image when it starts", file=file, hint="build it before, and name it by its digest")
    found = [one.strip("\"'") for one in _IMAGE.findall(docker_compose)]
    if not found or len(found) != len(_ANYWHERE.findall(docker_compose)):
        hint = "give each service a line of its own: image: NAME@sha256:…"
        raise BadInput("names no image, or one in the middle of a line", file=file, field="image", hint=hint)
    for one in found:
        pinned = _PINNED.fullmatch(one)
        if pinned is None:
            raise BadInput(f"{one[:200]!r} is not pinned", file=file, field="image", hint="write NAME@sha256:… in place of a tag")
        if set(pinned[1]) == {"0"}:
            hint = "put the digest of the image that you built there; the README beside it says how"
            raise BadInput(f"{one[:200]!r} is only a place to fill", file=file, field="image", hint=hint)
    return found
