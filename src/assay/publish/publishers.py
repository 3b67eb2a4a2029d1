"""Where results go, and what sends them there.

`publish.toml` beside a scheme names targets and the places of keys:

    [targets.mainnet]       the name after --to
    kind = "evm"            which publisher; the other fields are that publisher's
    key = "operator"        one of the keys below

    [keys.operator]         where a key is; never the key itself
    keystore = "operator.json"

The publisher of a kind is the entry point of that name in `assay.publishers`; Assay's own are there like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from assay.errors import BadInput
from assay.exact import digest
from assay.kind import origin, plugins
from assay.publish.journal import EPOCH, Journal, journal_of
from assay.publish.outcome import Outcome, Refusal
from assay.publish.settled_epoch import SettledEpoch
from assay.scheme.fields import Section
from assay.scheme.reading import line_of, read_toml, validate

__all__ = [
    "GROUP",
    "PUBLISH_FILE",
    "Comparison",
    "Line",
    "PublishPlan",
    "Publisher",
    "Pulse",
    "Target",
    "Tell",
    "open_publisher",
    "pulse_of",
    "read_target",
    "target_names",
]


PUBLISH_FILE = "publish.toml"
_BEGIN = 'write one: a section [targets.NAME] with kind = "bittensor" or "evm", and its fields (documentation, Publishing)'
_Name = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
M = TypeVar("M", bound=BaseModel)


class _Any(BaseModel):
    """A table whose fields somebody else knows."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class _Target(_Any):
    kind: Annotated[str, Field(min_length=1, max_length=64)]


class _PublishFile(Section):
    targets: Annotated[dict[_Name, _Target], Field(min_length=1, max_length=100)]
    keys: dict[_Name, _Any] = Field(default_factory=dict, max_length=100)


@dataclass(frozen=True)
class Target:
    """One target, its fields still as they were written; `keys` are those of the whole file. `ask`: for a key's passphrase."""

    folder: Path
    name: str
    kind: str
    fields: dict[str, Any]
    keys: dict[str, dict[str, Any]]
    source: str = field(repr=False, default="")
    ask: Callable[[], str] | None = field(repr=False, default=None)

    @property
    def file(self) -> Path:
        """publish.toml."""
        return self.folder / PUBLISH_FILE

    def settings(self, model: type[M]) -> M:
        """Its fields as a model of the publisher's; raises BadInput with the line."""
        return self._as(model, self.fields, f"targets.{self.name}")

    def key(self, name: str, model: type[M]) -> M:
        """A key's fields as a model; raises BadInput if publish.toml has no key of this name."""
        if name not in self.keys:
            known = f", only: {', '.join(sorted(self.keys))}" if self.keys else ""
            raise self.refuse(f"there is no key {name[:60]!r}{known}", "key", f"add a section [keys.{name[:60]}]")
        return self._as(model, self.keys[name], f"keys.{name}")

    def refuse(self, what: str, where: str = "", hint: str = "") -> BadInput:
        """An error about a field of the target, with its line."""
        path = ["targets", self.name, *([where] if where else [])]
        return BadInput(what, file=self.file, line=line_of(self.source, path), field=".".join(path), hint=hint)

    def journal(self) -> Journal:
        """What was sent there, and what is under way: in the folder's ledger, or in a file where it has none."""
        return journal_of(self.folder, self.name)

    def _as(self, model: type[M], content: dict[str, Any], where: str) -> M:
        try:
            return validate(model, content)
        except BadInput as error:
            error.at(file=self.file, field=where)
            error.line = line_of(self.source, error.field.split("."))
            raise


def read_target(folder: Path, name: str, ask: Callable[[], str] | None = None) -> Target:
    """A target of publish.toml; raises BadInput if the file is missing or wrong, or has no target of this name."""
    file = folder / PUBLISH_FILE
    if not file.exists():
        raise BadInput("no such file, so there is nowhere to publish to", file=file, hint=_BEGIN)
    content, source = read_toml(file)
    said = validate(_PublishFile, content, file=file, source=source)
    if name not in said.targets:
        known = ", ".join(sorted(said.targets))
        raise BadInput(f"there is no target {name[:60]!r}, only: {known}", file=file, hint=f"add a section [targets.{name[:60]}]")
    fields = {key: value for key, value in content["targets"][name].items() if key != "kind"}
    return Target(folder, name, said.targets[name].kind, fields, content.get("keys", {}), source, ask)


def target_names(folder: Path) -> list[str]:
    """The targets there are, for the shell's completion; none if publish.toml cannot be read."""
    try:
        content, _ = read_toml(folder / PUBLISH_FILE)
    except BadInput:
        return []
    found = content.get("targets")
    return sorted(found) if isinstance(found, dict) else []


GROUP = "assay.publishers"
Tell = Callable[[str], None]
"""What is told of how it goes on, a sentence at a time."""


@dataclass(frozen=True, slots=True)
class Line:
    """What would be sent of one participant: its account on the chain, and the value as people read it."""

    participant: str
    account: str
    value: str


@dataclass(frozen=True)
class PublishPlan:
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

    def plan(self, epoch: SettledEpoch) -> PublishPlan:
        """What would be sent: needs neither keys nor a network. Raises BadInput for what no chain could take."""

    def compare(self, plan: PublishPlan) -> Comparison:
        """The plan against what the chain holds: needs no keys. Raises Unreachable."""

    def send(self, plan: PublishPlan, tell: Tell) -> Outcome:
        """Send it, once, and see it through; what an earlier try left under way is found out first.

        Everything that is sent stands in the target's journal before it is sent, and what became of it afterwards.
        """

    def confirm(self, plan: PublishPlan) -> Outcome:
        """Read back from the chain, and compare with the receipt; sends nothing."""


def pulse_of(publisher: Publisher) -> Pulse | Refusal | None:
    """How its chain stands, as far as the publisher says it; raises Unreachable."""
    ask: Callable[[], Pulse | Refusal | None] | None = getattr(publisher, "pulse", None)
    return None if ask is None else ask()


def open_publisher(target: Target) -> Publisher:
    """The publisher of a target; raises BadInput if there is none of its kind, or its settings are wrong."""
    publisher: Publisher = _loaded(target)(target)
    return publisher


def _loaded(target: Target) -> Callable[[Target], Publisher]:
    """What makes a publisher of the target's kind; raises BadInput if there is none, or none that loads."""
    points = plugins(GROUP, target.kind)
    if not points:
        there = ", ".join(sorted(entry_points(group=GROUP).names)) or "none"
        hint = f"install a package that has an entry point {target.kind!r} in {GROUP}"
        raise target.refuse(f"there is no publisher of the kind {target.kind!r}, only: {there}", "kind", hint)
    if len(points) > 1:
        several = " and ".join(map(origin, points))
        raise target.refuse(f"there are several publishers of the kind {target.kind!r}: {several}", "kind", "keep one")
    try:
        make: Callable[[Target], Publisher] = points[0].load()
    except (ImportError, AttributeError) as error:
        what = f"the publisher {origin(points[0])} cannot be loaded: {error}"
        raise target.refuse(what, "kind", f"pip install 'assay[{target.kind}]'") from error
    return make
