"""Verifying a subnet's epoch: each competition by itself, then the split, computed again from their settlements. SPEC 4, 6."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from assay.errors import Refused
from assay.ledger.bundle import COMPETITIONS, EMISSION, SUBNET
from assay.ledger.check import LogKey, Receipt
from assay.ledger.verify import receipts
from assay.ledger.verify.material import document, gathered
from assay.ledger.verify.recompute import differs
from assay.ledger.verify.report import Check, Verified, several, stage
from assay.scheme import subnet
from assay.settle.emission import Settled, part, split

__all__ = ["is_joint", "verified"]

NAME = "emission"
"""The last stage."""


def is_joint(path: Path) -> bool:
    """Whether a folder is that of a subnet rather than of one competition."""
    return os.path.isfile(path / EMISSION)


def verified(root: Path, keys: Sequence[LogKey], verify: Callable[..., Verified], into: Verified) -> None:
    """Checks every competition's bundle, then the split; raises Refused at the first stage that is not right. SPEC 4, 6.

    keys: of the logs; none: each receipt is checked by the key that it names itself.
    """
    with stage(NAME):
        rules = subnet.read(root / SUBNET)
    settled: list[Settled] = []
    for number, member in enumerate(rules.competitions, start=1):
        place = root / COMPETITIONS / str(number)
        if not place.is_dir():
            raise Refused(NAME, f"the competition {member.path!r} is missing", file=place)
        found = verify(place, key=[str(key) for key in keys])
        assert found.settlement is not None
        receipt = Receipt.parse(gathered(place, None).data)
        log = next((key for key in keys if key.name == receipts.key_of(receipt).name), receipts.key_of(receipt))
        settled.append(part(found.settlement, f"sha256:{receipt.digest.hex()}", str(log)))
        into.checked += [Check(one.stage, f"{member.path}: {one.what}", one.done) for one in found.checked]
    with stage(NAME):
        ours = split(rules, settled).document
        file = root / EMISSION
        found_there = differs(ours, document(file))
        if found_there is not None:
            field, participant, wanted, there = found_there
            raise Refused(NAME, f"{field} differs", participant=participant, expected=wanted, found=there, file=file)
    into.emission = {name: ours[name] for name in ("epoch", "digest", "receipts")}
    into.right(NAME, f"of {several(len(settled), 'competition')}, computed again to the bit: {ours['digest']}")
