"""The key with which a validator opens the transcripts of its own judgements: made when the first one is sealed."""

from __future__ import annotations

import os
from collections.abc import Callable

from assay.errors import BadInput
from assay.ledger import keys
from assay.ledger.keys import X25519, PrivateKey

__all__ = ["NAME", "reader"]

NAME = "transcripts"
"""What the key is called in the folder of keys."""


def reader(name: str = NAME, ask: Callable[[], str] | None = None, *, make: bool = False) -> PrivateKey:
    """The key; made where there is none and `make` says so, encrypted with $ASSAY_PASSPHRASE if that is set. Raises BadInput."""
    if make and not keys.path_of(name).exists():
        try:
            keys.save(name, keys.new(X25519), os.environ.get("ASSAY_PASSPHRASE", ""))
        except BadInput:
            if not keys.path_of(name).exists():  # else somebody made it at the same moment
                raise
    found = keys.load(name, ask)
    if found.public.kind != X25519:
        what, hint = f"is a key that signs ({found.public.kind})", "transcripts are sealed to an x25519 key: move this one away"
        raise BadInput(what, file=keys.path_of(name), hint=hint)
    return found
