"""Which service is asked, and what it calls the models. SPEC 2.3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from assay.errors import BadInput, brief
from assay.exact import half_even
from assay.judge.rubric.course import Called, Settings
from assay.judge.rubric.judgement import Usage
from assay.judge.rubric.limits import NAME_CHARACTERS, Limits
from assay.scheme.bounty import Bounty, Model

__all__ = ["Models", "Price"]

_MILLION = 1_000_000


@dataclass(frozen=True)
class Price:
    """Of a million tokens, in millionths of the unit (0.27 $ is 270 000)."""

    prompt: int
    completion: int

    def of(self, usage: Usage) -> int | None:
        """What that many tokens cost, in millionths of the unit, halves to even; None where their number is not known."""
        if usage.prompt is None or usage.completion is None:
            return None
        return half_even(self.prompt * usage.prompt + self.completion * usage.completion, _MILLION)


@dataclass(frozen=True)
class Models:
    """An OpenAI-compatible service and what it calls the two models; raises BadInput for an address that is none."""

    base_url: str
    """Such as https://api.example.com/v1. Over plain http a solution can be read on its way: for this machine alone."""
    api_key: str = field(default="", repr=False)
    primary: str | None = None
    """As the service calls it; None: as the bounty does."""
    fallback: str | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    """By the name that the service is asked for."""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.base_url)
            _ = parts.port
        except ValueError as error:
            raise _no_url(self.base_url, str(error)) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or not self.base_url.isprintable():
            raise _no_url(self.base_url, "it must begin with http:// or https:// and a host")
        if "@" in parts.netloc:  # not said again: what stands before the @ may be a password
            raise BadInput("the address of the model has a user in it", field="model", hint="give the key by itself")
        if parts.query or parts.fragment:
            raise _no_url(self.base_url, "it may have a path, but no query or fragment")
        if not (self.api_key.isascii() and self.api_key.isprintable()) or self.api_key != self.api_key.strip():
            raise BadInput("the key is not printable ASCII", field="model", hint="is there a line end in it?")
        for name in (self.primary, self.fallback):
            if name is not None and not (0 < len(name) <= NAME_CHARACTERS and name.isprintable() and " " not in name):
                raise BadInput(f"{brief(name)} is not the name of a model", field="model", hint="use what the service calls it")

    @property
    def host(self) -> str:
        """Where it is, for messages."""
        return urlsplit(self.base_url).netloc

    def settings(self, bounty: Bounty, limits: Limits) -> Settings:
        """The two models as this service calls them; raises BadInput for a name that the bounty does not list."""
        return Settings(
            primary=_called("model", self.primary, bounty.judge.model, bounty),
            fallback=_called("fallback", self.fallback, bounty.judge.fallback, bounty),
            attempts=limits.attempts,
        )


def _called(field: str, name: str | None, model: Model, bounty: Bounty) -> Called:
    if name is not None and not model.served_as(name):
        listed = ", ".join([model.name, *model.names])
        hint = f"the bounty lists {listed}; the sponsor lists others in judge.{field}.names, which changes the bounty's digest"
        what = f"{brief(name)} is not a name under which {model.name} may be served"
        raise BadInput(what, file=bounty.file, field=f"judge.{field}.names", hint=hint)
    return Called(name or model.name, model)


def _no_url(url: str, why: str) -> BadInput:
    hint = f"{why}; for example https://api.example.com/v1"
    return BadInput(f"{brief(url, 100)} is not the address of a model", field="model", hint=hint)
