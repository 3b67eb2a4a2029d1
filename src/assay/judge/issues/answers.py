"""What is taken of GitHub's answers. They have many more fields, which are passed over; what is taken is checked."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from assay.errors import AssayError, brief
from assay.peers import NoAnswer, reading
from assay.scheme.times import Instant

__all__ = ["Account", "Comment", "Event", "Gist", "GistFile", "Issue", "Repository", "Star", "Unread", "taken"]

PARTS = 1_000_000
"""Brackets, commas and strings of one answer: a page of a hundred events has some hundred thousand."""
TITLE = 256
"""Characters of a title that are kept."""


class Unread(AssayError):
    """GitHub, or a part of it, could not be read whole: nobody's fault that is judged. What rests on it is left missing."""


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


Id = Annotated[int, Field(ge=1, le=2**53 - 1)]
Name = Annotated[str, Field(max_length=1000)]


class Account(_Answer):
    """A user, an organisation or a bot."""

    id: Id
    login: Name
    type: Name = "User"


class Repository(_Answer):
    """A repository; its name changes, its id does not."""

    id: Id
    full_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100}$")]


class _Label(_Answer):
    name: Name


class Issue(_Answer):
    """An issue in a list; a pull request has `pull_request`. An account that is gone leaves null or a ghost behind."""

    id: Id
    number: Id
    html_url: Name
    title: Annotated[str, Field(max_length=100_000)]
    user: Account | None
    pull_request: Annotated[bool, BeforeValidator(lambda value: value is not None)] = False


class Event(_Answer):
    """Something that happened to an issue; a label is there if the event is `labeled` or `unlabeled`."""

    id: Id
    event: Name
    actor: Account | None
    created_at: Instant
    label: _Label | None = None


class Star(_Answer):
    """A star, with the media type that says since when."""

    starred_at: Instant
    user: Account | None


class GistFile(_Answer):
    """A file of a gist; of a long one GitHub gives the beginning."""

    content: Annotated[str, Field(max_length=2_000_000)] = ""
    truncated: bool = False


class Gist(_Answer):
    """A gist: whose it is, and its files."""

    owner: Account | None = None
    updated_at: Instant
    files: Annotated[dict[str, GistFile], Field(max_length=1000)]


class Comment(_Answer):
    """A comment on an issue."""

    user: Account | None
    updated_at: Instant
    body: Annotated[str, Field(max_length=2_000_000)] | None = None


T = TypeVar("T")


def taken(adapter: TypeAdapter[T], body: bytes, what: str) -> T:
    """What is taken of the JSON in an answer; raises Unread if it is cut off, or not what GitHub answers."""
    try:
        reading.bounded(body.decode("utf-8", "replace"), PARTS)
        return adapter.validate_json(body)
    except NoAnswer as error:
        raise Unread(f"{what}: the answer is not whole, or not GitHub's ({error.why})") from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f", {part}" for part in fault["loc"])
        raise Unread(f"{what}: the answer is not whole, or not GitHub's ({brief(fault['msg'], 200)}{place})") from None
