"""Which publisher sends to a kind of chain: the entry point of that name in `assay.publishers`; ours are there as any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from assay.exact import digest
from assay.publish.outcome import Outcome, Refusal
from assay.publish.settled import SettledEpoch
from assay.publish.targets import Target

__all__ = ["EPOCH", "GROUP", "Comparison", "Line", "Plan", "Publisher", "Pulse", "Tell", "find", "opened", "pulse_of"]

GROUP = "assay.publishers"
Tell = Callable[[str], None]
"""What is told of how it goes on, a sentence at a time."""
EPOCH = "epoch "
"""How the subject of an epoch begins."""


@dataclass(frozen=True, slots=True)
class Line:
    """What would be sent of one participant: its account on the chain, and the value as people read it."""

    participant: str
    account: str
    value: str


@dataclass(frozen=True)
class Plan:
    """What would be sent of a settled epoch: `content` is all of it, as JSON; `lines` the same for people.

    left_out: participants of whom nothing would be sent, and why.
    """

    target: str
    epoch: int
    receipt: str
    content: dict[str, Any]
    lines: tuple[Line, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def subject(self) -> str:
        """What it is called in the target's journal."""
        return f"{EPOCH}{self.epoch}"

    @property
    def digest(self) -> str:
        """`sha256:…` of what would be sent, where, and of which receipt."""
        return digest({"target": self.target, "epoch": self.epoch, "receipt": self.receipt, "content": self.content})


@dataclass(frozen=True)
class Comparison:
    """What the chain holds instead: by account, as people read it, None where that is not known; and what sending would come to.

    outcome: None where it can be sent; Confirmed where the chain has it already; else TooEarly or a Refusal. lines: what would
    be sent now, where that depends on the chain.
    """

    held: dict[str, str] | None
    outcome: Outcome | None
    notes: list[str] = field(default_factory=list)
    lines: tuple[Line, ...] | None = None


@dataclass(frozen=True, slots=True)
class Pulse:
    """How a chain stands that wants to be told anew every so often, by its own account.

    now: its last block. last: the block in which our key last set something there; None if it never did. tempo: in blocks; a
    watch alarms when nothing was set for two. seconds: those of a block.
    """

    now: int
    last: int | None
    tempo: int
    seconds: float


class Publisher(Protocol):
    """From a settled epoch to a chain. One is made for a target of publish.toml by what an entry point leads to.

    For a watch it may have two things more: `pulse() -> Pulse | Refusal | None`, which raises Unreachable, is a Refusal where
    the chain has no place for our key at all, and None for a chain without a tempo, or where no key is known; and
    `every_epoch = True`, where each epoch is published in its turn. Without, it is only the newest that counts.
    """

    def plan(self, epoch: SettledEpoch) -> Plan:
        """What would be sent: needs neither keys nor a network. Raises BadInput for what no chain could take."""

    def compare(self, plan: Plan) -> Comparison:
        """The plan against what the chain holds: needs no keys. Raises Unreachable."""

    def send(self, plan: Plan, tell: Tell) -> Outcome:
        """Send it, once, and see it through; what an earlier try left under way is found out first.

        Everything that is sent stands in the target's journal before it is sent, and what became of it afterwards.
        """

    def confirm(self, plan: Plan) -> Outcome:
        """Read back from the chain, and compare with the receipt; sends nothing."""


def pulse_of(publisher: Publisher) -> Pulse | Refusal | None:
    """How its chain stands, as far as the publisher says it; raises Unreachable."""
    ask: Callable[[], Pulse | Refusal | None] | None = getattr(publisher, "pulse", None)
    return None if ask is None else ask()


def opened(target: Target) -> Publisher:
    """The publisher of a target; raises BadInput if there is none of its kind, or its settings are wrong."""
    made: Publisher = find(target)(target)
    return made


def find(target: Target) -> Callable[[Target], Publisher]:
    """What makes a publisher of the target's kind; raises BadInput if there is none, or none that loads."""
    known = entry_points(group=GROUP)
    found = {one.value: one for one in known if one.name == target.kind}  # one package can be seen twice on the way of imports
    if not found:
        there = ", ".join(sorted(known.names)) or "none"
        hint = f"install a package that has an entry point {target.kind!r} in {GROUP}"
        raise target.refuse(f"there is no publisher of the kind {target.kind!r}, only: {there}", "kind", hint)
    if len(found) > 1:
        several = " and ".join(sorted(map(_origin, found.values())))
        raise target.refuse(f"there are several publishers of the kind {target.kind!r}: {several}", "kind", "keep one")
    one = next(iter(found.values()))
    try:
        made: Callable[[Target], Publisher] = one.load()
    except (ImportError, AttributeError) as error:
        what = f"the publisher {_origin(one)} cannot be loaded: {error}"
        raise target.refuse(what, "kind", f"pip install 'assay[{target.kind}]'") from error
    return made


def _origin(one: EntryPoint) -> str:
    return f"{one.value} of {one.dist.name}" if one.dist is not None else one.value
