"""What of the libraries for Bittensor is used here, imported in one place: they are an extra."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

__all__ = ["connector", "core"]


def core() -> Any:
    """The module bittensor_core: keys, SCALE, extrinsics; raises BadInput if the extra is not installed."""
    try:
        import bittensor_core
    except ImportError:
        raise _missing("bittensor-core") from None
    return bittensor_core


def connector() -> Callable[..., ClientConnection]:
    """What opens a websocket; raises BadInput if the extra is not installed."""
    try:
        from websockets.sync.client import connect
    except ImportError:
        raise _missing("websockets") from None
    return connect


def _missing(package: str) -> BadInput:
    return BadInput(f"Bittensor needs the package {package}", hint="install Assay with it: pip install 'assay[bittensor]'")
