"""Describes the model service that a judge uses, or that it gives agents access to: its address, key and limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from assay.errors import BadInput

__all__ = ["HEADER", "PATH", "ModelAccess", "of_agents", "of_judges"]

PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*", re.ASCII)
"""The form of a path."""
_ENDPOINT = re.compile(r"(GET|POST) (/([A-Za-z0-9._~:-]+|\*))+", re.ASCII)
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
"""The form of a header's name."""


@dataclass(frozen=True)
class ModelAccess:
    """The service's base URL, and its key, which is never shown. Raises BadInput if one of them is invalid."""

    base_url: str
    key: str = field(default="", repr=False)
    header: str = "Authorization"
    """`Authorization` carries `Bearer KEY`, any other header the bare key."""
    endpoints: tuple[str, ...] = ()
    """The endpoints that agents may use, such as `POST /chat/completions`; `*` is one name. None: `tests.endpoints`."""
    names: tuple[str, ...] = ()
    """The models that agents may use. None: any that they name."""
    per_minute: int = 120
    """Most requests of one trial in a minute; more wait."""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.base_url)
            _ = parts.port
        except ValueError as error:
            raise _no_url(self.base_url, str(error)) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _no_url(self.base_url, "it must begin with http:// or https:// and a host")
        if parts.query or parts.fragment or "@" in parts.netloc or (parts.path and PATH.fullmatch(parts.path) is None):
            raise _no_url(self.base_url, "it may have a path, but no user, query or fragment")
        if not (self.key.isascii() and self.key.isprintable()) or HEADER.fullmatch(self.header) is None:
            raise BadInput("the key or the name of its header is not printable ASCII", field="model")
        for endpoint in self.endpoints:
            if _ENDPOINT.fullmatch(endpoint) is None:
                hint = "write METHOD /path, such as POST /chat/completions, with commas between several; * is one name"
                raise BadInput(f"{endpoint[:100]!r} is not an endpoint", field="ASSAY_MODEL_ENDPOINTS", hint=hint)

    @property
    def credentials(self) -> dict[str, str]:
        """The header with the validator's key."""
        if not self.key:
            return {}
        return {self.header: f"Bearer {self.key}" if self.header.lower() == "authorization" else self.key}


def of_agents(environment: Mapping[str, str], url: str | None = None) -> ModelAccess | None:
    """The service for agents, at `url`, otherwise ASSAY_MODEL_URL; None without either. Also reads ASSAY_MODEL_KEY and so on."""
    url = url or environment.get("ASSAY_MODEL_URL")
    if not url:
        return None
    endpoints = tuple(
        " ".join(endpoint.split()) for endpoint in environment.get("ASSAY_MODEL_ENDPOINTS", "").split(",") if endpoint.strip()
    )
    names = tuple(name.strip() for name in environment.get("ASSAY_MODEL_NAMES", "").split(",") if name.strip())
    rate = environment.get("ASSAY_MODEL_RATE") or str(ModelAccess.per_minute)
    if re.fullmatch("[1-9][0-9]{0,5}", rate, re.ASCII) is None:
        hint = "write how many requests of one trial may go out in a minute, such as 120"
        raise BadInput(f"{rate[:100]!r} is not a number from 1 to 999999", field="ASSAY_MODEL_RATE", hint=hint)
    key, header = environment.get("ASSAY_MODEL_KEY", ""), environment.get("ASSAY_MODEL_HEADER", "Authorization")
    return ModelAccess(url, key, header, endpoints, names, int(rate))


def of_judges(environment: Mapping[str, str], url: str | None = None) -> ModelAccess | None:
    """The service for rubrics, at `url`, otherwise ASSAY_LLM_BASE_URL, with ASSAY_LLM_API_KEY; None without an address."""
    url = url or environment.get("ASSAY_LLM_BASE_URL")
    return ModelAccess(url, environment.get("ASSAY_LLM_API_KEY", "")) if url else None


def rate(environment: Mapping[str, str], name: str) -> int | None:
    """Most requests a minute of all nodes together, from the variable `name`; None: no limit of ours. Raises BadInput."""
    text = environment.get(name)
    if not text:
        return None
    if re.fullmatch("[1-9][0-9]{0,5}", text, re.ASCII) is None:
        hint = "write how many all nodes together may send in a minute, such as 600"
        raise BadInput(f"{text[:100]!r} is not a number from 1 to 999999", field=name, hint=hint)
    return int(text)


def _no_url(url: str, why: str) -> BadInput:
    hint = f"{why}; for example https://api.example.com/v1"
    shown = url.rpartition("@")[2]  # before the @ there may be a password
    return BadInput(f"{shown[:100]!r} is not the address of a service", field="model", hint=hint)
