"""What was checked, stage by stage, and the way from other refusals to one that names its stage. SPEC 6."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, BadInput, Refused
from assay.ledger import check

if TYPE_CHECKING:
    from assay.settle import Settlement

__all__ = ["STAGES", "Check", "Verified", "or_null", "several", "stage"]

STAGES = ("receipt", "log", "consistency", "chain", "evidence", "signatures", "inputs", "settlement", "results")
"""In the order in which they are checked."""
HINTED = ("chain", "evidence", "inputs")
"""Stages of files that say what they should be; hints of the others are for those who have the ledger."""


@dataclass(frozen=True)
class Check:
    """A stage, and what was found right there; or, `done` being False, what was not looked at."""

    stage: str
    what: str
    done: bool = True


@dataclass
class Verified:
    """Everything that was checked is right. `receipt`: what the receipt states; of a subnet, `emission` is the signed split."""

    receipt: dict[str, Any] = field(default_factory=dict)
    checked: list[Check] = field(default_factory=list)
    emission: dict[str, Any] | None = None
    settlement: Settlement | None = field(default=None, repr=False, compare=False)
    """As it was computed again, if it was."""
    left_out: frozenset[int] = field(default=frozenset(), repr=False, compare=False)
    """The seqs of records of another task set, from which it was not."""

    def right(self, stage: str, what: str) -> None:
        """Note that a stage is right."""
        self.checked.append(Check(stage, what))

    def not_looked_at(self, stage: str, what: str) -> None:
        """Note what could not be looked at, and what would be needed for it."""
        self.checked.append(Check(stage, what, done=False))

    @property
    def recomputed(self) -> bool:
        """Whether the settlement was computed again from the evidence."""
        return any(one.stage == "settlement" and one.done for one in self.checked)

    def document(self) -> dict[str, Any]:
        """The same as JSON."""
        rows = [{"stage": one.stage, "checked": one.done, "what": one.what} for one in self.checked]
        what = {"receipt": self.receipt} if self.emission is None else {"emission": self.emission}
        return {"verified": True, "recomputed": self.recomputed, **what, "stages": rows}


def several(count: int, one: str, many: str = "") -> str:
    """ "1 receipt", "2 receipts", "3 batches"."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def or_null(value: object) -> object:
    """A value that was expected or found, where None would say that there is nothing to be told."""
    return "null" if value is None else value


@contextmanager
def stage(name: str) -> Iterator[None]:
    """In the block, what is refused for whatever reason is raised as Refused of this stage."""
    try:
        yield
    except check.Refused as refused:
        raise Refused(name, refused.what, expected=refused.expected, found=refused.found) from None
    except Refused:
        raise
    except BadInput as error:
        place = f"{error.field}: " if error.field else ""
        hint = f"; {error.hint}" if error.hint and name in HINTED else ""
        raise Refused(name, f"{place}{error.what}{hint}", file=error.file, line=error.line) from None
    except AssayError as error:
        raise Refused(name, error.what, file=error.file) from None
