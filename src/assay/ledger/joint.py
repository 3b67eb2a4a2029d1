"""A subnet's epoch as files: the split of its emission, and the bundle of every competition that it was joined from. SPEC 4, 6.

emission.json           the split; it names the receipts
subnet.toml             the subnet file, as it was
competitions/1, 2, …    the bundles, in the order of the subnet file
"""

from __future__ import annotations

from pathlib import Path

from assay.exact import canonical
from assay.folder.write import new_folder, write_bytes
from assay.ledger import bundle, settling
from assay.ledger.bundle import COMPETITIONS, EMISSION, SUBNET
from assay.ledger.opened import open_ledger
from assay.scheme import subnet
from assay.settle.emission import Emission, join

__all__ = ["export"]


def export(path: Path, epoch: int, target: Path) -> Emission:
    """Write what a subnet's split of a settled epoch follows from to a folder that is not there yet, and return the split.

    Raises CannotSettle if a competition has not settled the epoch, BadInput if one has no ledger, if they cannot be joined, or if
    the folder is there or cannot be written; StoreError.
    """
    rules = subnet.read(path)
    found = []
    with new_folder(target) as beside:
        (beside / COMPETITIONS).mkdir()
        for number, member in enumerate(rules.competitions, start=1):
            with open_ledger(path.parent / member.path) as ledger:
                there = ledger.receipt(epoch)
                settling.check_receipt(ledger, there)
                with ledger.counted() as view:
                    found.append((settling.again(view, there), there.digest))
                bundle.export(ledger, epoch, beside / COMPETITIONS / str(number))
        made = join(rules, found)
        write_bytes(beside / SUBNET, path.read_bytes())
        write_bytes(beside / EMISSION, canonical(made.document) + b"\n")
    return made
