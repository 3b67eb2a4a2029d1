"""Ids, looked up by name: of the account that is to be linked, of what issues.toml names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from pydantic import TypeAdapter

from assay.errors import BadInput
from assay.judge.issues import answers
from assay.judge.issues.answers import taken
from assay.judge.issues.client import GitHub, Gone
from assay.judge.running import Stop

__all__ = ["TOKEN", "account", "repository"]

TOKEN = "GITHUB_TOKEN"
"""The variable that holds the token; it is read from nowhere else, and never shown."""
_ACCOUNT, _REPOSITORY = TypeAdapter(answers.Account), TypeAdapter(answers.Repository)


def account(api: str, login: str, tell: Callable[[str, float], None]) -> answers.Account:
    """The account that is called so; raises BadInput if there is none, and Unread."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,60}(\[bot\])?", login) is None:
        raise BadInput(
            f"{login[:60]!r} is not the name of an account", field="login", hint="give it as GitHub shows it, without @"
        )
    return taken(_ACCOUNT, _got(api, f"/users/{login}", tell), f"/users/{login}")


def repository(api: str, name: str, tell: Callable[[str, float], None]) -> answers.Repository:
    """The repository that is called so; raises BadInput if there is none, and Unread."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,60}/[A-Za-z0-9._-]{1,100}", name) is None:
        raise BadInput(f"{name[:160]!r} is not the name of a repository", field="repository", hint="write it as OWNER/NAME")
    return taken(_REPOSITORY, _got(api, f"/repos/{name}", tell), f"/repos/{name}")


def _got(api: str, path: str, tell: Callable[[str, float], None]) -> bytes:
    with GitHub(api, os.environ.get(TOKEN, ""), None, Stop(), attempts=3, delay=2.0, tell=tell) as github:
        try:
            return github.get(path).body
        except Gone as error:
            raise BadInput(error.what, hint="is the name right? A private one takes a token that may read it") from None
