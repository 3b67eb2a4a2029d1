"""The server: `/v1/chat/completions` and `/v1/models`; every reply's `model` begins with `scripted/`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

__all__ = ["Server", "opened"]


class Server:
    """A server that runs. `url` is the `base_url` for clients."""

    url: str


def opened(script: Path, *, port: int = 0) -> AbstractContextManager[Server]:
    """The server of a script (TOML), on loopback, in threads of this process; raises BadInput for a script that is none."""
    raise NotImplementedError
