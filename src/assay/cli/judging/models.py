"""What the commands share that ask a model: where it is, what it is called there, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.judge.service import Model

__all__ = ["FallbackOption", "ModelOption", "PriceOption", "UrlOption", "prices", "service"]

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--model-url", metavar="URL", help="The model service; else ASSAY_LLM_BASE_URL of a rubric, ASSAY_MODEL_URL of agents."
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="What the service calls the bounty's model, if something else."),
]
FallbackOption = Annotated[
    str | None, typer.Option("--fallback", metavar="NAME", help="The same of the bounty's fallback model.")
]
PriceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--price", metavar="NAME=IN/OUT", help="What a million tokens of a model cost, asked and answered, such as m=0.27/1.1."
    ),
]


def service(kind: str, url: str | None) -> Model | None:
    """The service for a competition of a kind, with the key that is in the environment alone."""
    import os

    from assay.judge import service as services

    return services.of_judges(os.environ, url) if kind == "rubric" else services.of_agents(os.environ, url)


def prices(said: Sequence[str] | None) -> dict[str, tuple[int, int]]:
    """Model → what a million of its tokens cost, in millionths; raises BadInput."""
    from assay.exact import nanos

    found: dict[str, tuple[int, int]] = {}
    for one in said or ():
        name, equals, amounts = one.rpartition("=")
        asked, slash, answered = amounts.partition("/")
        try:
            both = nanos(asked), nanos(answered)
        except BadInput:
            both = (1, 1)
        if not (name and equals and slash) or any(amount % 1000 for amount in both):
            hint = "write NAME=IN/OUT with at most six digits after the point, such as --price deepseek-chat=0.27/1.1"
            raise BadInput(f"{one[:100]!r} is not a price", field="--price", hint=hint)
        found[name] = both[0] // 1000, both[1] // 1000
    return found
