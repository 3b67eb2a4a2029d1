"""The key with which a validator opens the transcripts of its own judgements: made when the first one is sealed."""

from __future__ import annotations

import os
from collections.abc import Callable

from assay.errors import BadInput
from assay.ledger import keys
from assay.ledger.keys import X25519, PrivateKey

__all__ = ["NAME", "SPONSOR", "reader", "readers"]

NAME = "transcripts"
"""What the key is called in the folder of keys."""
SPONSOR = "sponsor"
"""What a sponsor's key is called if nothing else is said: what an enclave releases is sealed to it."""


def readers(name: str | None, ask: Callable[[], str] | None = None) -> list[PrivateKey]:
    """The keys that may open a transcript: the one of this name, or those of one's own judgements and of a sponsor."""
    if name is not None:
        return [reader(name, ask)]
    there = [each for each in (NAME, SPONSOR) if keys.path_of(each).exists()]
    return [reader(each, ask) for each in there or [NAME]]


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
