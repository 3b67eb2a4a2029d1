"""The service that is asked, through the `openai` client: addresses, keys, prices, and bounded patience. SPEC 2.3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Models", "Price"]


@dataclass(frozen=True)
class Price:
    """Of a million tokens, in millionths of the unit (0.27 $ is 270 000)."""

    prompt: int
    completion: int


@dataclass(frozen=True)
class Models:
    """An OpenAI-compatible service and what it calls the two models; raises BadInput for an address that is none."""

    base_url: str
    api_key: str = field(default="", repr=False)
    primary: str | None = None
    """As the service calls it; None: as the bounty does."""
    fallback: str | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    """By the name that the service is asked for."""
