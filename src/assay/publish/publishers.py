"""Reads the targets of publish.toml, and finds the publisher of each by entry point.

`publish.toml` stands beside a scheme. It names targets, and says where keys are:

    [targets.mainnet]       the name after --to
    kind = "evm"            the publisher; it defines the other fields
    key = "operator"        one of the keys below

    [keys.operator]         where a key is, never the key itself
    keystore = "operator.json"

The publisher of a kind is the entry point of that name in the group `assay.publishers`. Assay's own publishers are found in the
same way.
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
from assay.scheme.reading import line_of, present, read_toml, validate

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
    "target_kinds",
    "target_names",
]


PUBLISH_FILE = "publish.toml"
_BEGIN = 'write one: a section [targets.NAME] with kind = "bittensor" or "evm", and its fields (documentation, Publishing)'
_Name = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
M = TypeVar("M", bound=BaseModel)


class _Any(BaseModel):
    """A table whose fields are checked later, by the publisher."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class _TargetTable(_Any):
    kind: Annotated[str, Field(min_length=1, max_length=64)]


class _PublishFile(Section):
    targets: Annotated[dict[_Name, _TargetTable], Field(min_length=1, max_length=100)]
    keys: dict[_Name, _Any] = Field(default_factory=dict, max_length=100)


@dataclass(frozen=True)
class Target:
    """One target of publish.toml, with its fields as written.

    keys: all keys of the file. ask: asks for the passphrase of a key.
    """

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
        """The target's fields as the publisher's model. Raises BadInput with the line."""
        return self._as(model, self.fields, f"targets.{self.name}")

    def key(self, name: str, model: type[M]) -> M:
        """The fields of a key as a model. Raises BadInput if publish.toml has no key with this name."""
        if name not in self.keys:
            known = f", only: {', '.join(sorted(self.keys))}" if self.keys else ""
            raise self.refuse(f"there is no key {name[:60]!r}{known}", "key", f"add a section [keys.{name[:60]}]")
        return self._as(model, self.keys[name], f"keys.{name}")

    def refuse(self, what: str, where: str = "", hint: str = "") -> BadInput:
        """An error about a field of the target, with the line."""
        path = ["targets", self.name, *([where] if where else [])]
        return BadInput(what, file=self.file, line=line_of(self.source, path), field=".".join(path), hint=hint)

    def journal(self) -> Journal:
        """The target's journal. It is in the folder's ledger, or in a file if the folder has no ledger."""
        return journal_of(self.folder, self.name)

    def _as(self, model: type[M], content: dict[str, Any], where: str) -> M:
        try:
            return validate(model, content)
        except BadInput as error:
            error.at(file=self.file, field=where)
            error.line = line_of(self.source, error.field.split("."))
            raise


def read_target(folder: Path, name: str, ask: Callable[[], str] | None = None) -> Target:
    """A target of publish.toml. Raises BadInput if the file is missing or wrong, or has no target with this name."""
    file = folder / PUBLISH_FILE
    if not file.exists():
        raise BadInput("no such file, so there is nowhere to publish to", file=file, hint=_BEGIN)
    content, source = read_toml(file)
    checked = validate(_PublishFile, content, file=file, source=source)
    if name not in checked.targets:
        known = ", ".join(sorted(checked.targets))
        raise BadInput(f"there is no target {name[:60]!r}, only: {known}", file=file, hint=f"add a section [targets.{name[:60]}]")
    fields = {key: value for key, value in content["targets"][name].items() if key != "kind"}
    return Target(folder, name, checked.targets[name].kind, fields, content.get("keys", {}), source, ask)


def target_kinds(folder: Path) -> dict[str, str]:
    """Return the kind of each target, by its name, sorted. Empty if there is no publish.toml; raises BadInput if it is wrong."""
    file = folder / PUBLISH_FILE
    if not present(file):
        return {}
    content, source = read_toml(file)
    checked = validate(_PublishFile, content, file=file, source=source)
    return {name: target.kind for name, target in sorted(checked.targets.items())}


def target_names(folder: Path) -> list[str]:
    """Return the names of all targets, for the shell's completion. Empty if publish.toml cannot be read."""
    try:
        return [*target_kinds(folder)]
    except BadInput:
        return []


GROUP = "assay.publishers"
Tell = Callable[[str], None]
"""Shows progress to the user, one sentence at a time."""


@dataclass(frozen=True, slots=True)
class Line:
    """The line of a plan for one participant: its account on the chain, and the value as shown to people."""

    participant: str
    account: str
    value: str


@dataclass(frozen=True)
class PublishPlan:
    """The plan of what is sent for a settled epoch: `content` as JSON, and `lines` for people.

    left_out: participants for whom nothing would be sent, each with the reason.
    """

    target: str
    epoch: int
    receipt: str
    content: dict[str, Any]
    lines: tuple[Line, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def subject(self) -> str:
        """The subject of this plan in the target's journal."""
        return f"{EPOCH}{self.epoch}"

    @property
    def digest(self) -> str:
        """`sha256:…` of the content, the target, the epoch and the receipt."""
        return digest({"target": self.target, "epoch": self.epoch, "receipt": self.receipt, "content": self.content})


@dataclass(frozen=True)
class Comparison:
    """The chain's present values, and the outcome that sending would have.

    held: value by account, as shown to people; None if it is not known. outcome: None if the plan can be sent, Confirmed if the
    chain has it already, otherwise TooEarly or a Refusal. lines: what would be sent now, if that depends on the chain.
    """

    held: dict[str, str] | None
    outcome: Outcome | None
    notes: list[str] = field(default_factory=list)
    lines: tuple[Line, ...] | None = None


@dataclass(frozen=True, slots=True)
class Pulse:
    """The state of a chain that expects new weights at regular intervals.

    now: the chain's last block. last: the block in which our key last set weights; None if it never did. tempo: the interval in
    blocks; a watch alarms if nothing was set for two of them. seconds: the duration of a block.
    """

    now: int
    last: int | None
    tempo: int
    seconds: float


class Publisher(Protocol):
    """Sends settled epochs to one target. The function behind an entry point makes it from a target of publish.toml.

    A watch also uses two optional members. `pulse() -> Pulse | Refusal | None` gives the state of the chain: a Refusal if the
    chain has no place for our key, None for a chain without a tempo or if no key is known; it may raise Unreachable. With
    `every_epoch = True` each epoch is published in its turn; without it only the newest epoch is.
    """

    def plan(self, epoch: SettledEpoch) -> PublishPlan:
        """The plan for an epoch. Needs neither keys nor a network. Raises BadInput if no chain could accept it."""

    def compare(self, plan: PublishPlan) -> Comparison:
        """The plan compared with the chain's present values. Needs no keys. Raises Unreachable."""

    def send(self, plan: PublishPlan, tell: Tell) -> Outcome:
        """Send the plan once, and follow it to its end. An earlier attempt that is still under way comes first.

        The target's journal has everything before it is sent, and its outcome afterwards.
        """

    def confirm(self, plan: PublishPlan) -> Outcome:
        """Read the values back from the chain and compare them with the plan. Sends nothing."""


def pulse_of(publisher: Publisher) -> Pulse | Refusal | None:
    """The state of the publisher's chain; None if the publisher does not give it. Raises Unreachable."""
    ask: Callable[[], Pulse | Refusal | None] | None = getattr(publisher, "pulse", None)
    return None if ask is None else ask()


def open_publisher(target: Target) -> Publisher:
    """The publisher of a target. Raises BadInput if no publisher has the target's kind, or if the settings are wrong."""
    publisher: Publisher = _loaded(target)(target)
    return publisher


def _loaded(target: Target) -> Callable[[Target], Publisher]:
    """The function that makes a publisher of the target's kind. Raises BadInput if there is none, or if it cannot be loaded."""
    points = plugins(GROUP, target.kind)
    if not points:
        known = ", ".join(sorted(entry_points(group=GROUP).names)) or "none"
        hint = f"install a package that has an entry point {target.kind!r} in {GROUP}"
        raise target.refuse(f"there is no publisher of the kind {target.kind!r}, only: {known}", "kind", hint)
    if len(points) > 1:
        several = " and ".join(map(origin, points))
        raise target.refuse(f"there are several publishers of the kind {target.kind!r}: {several}", "kind", "keep one")
    try:
        make: Callable[[Target], Publisher] = points[0].load()
    except (ImportError, AttributeError) as error:
        what = f"the publisher {origin(points[0])} cannot be loaded: {error}"
        raise target.refuse(what, "kind", f"pip install 'assay[{target.kind}]'") from error
    return make
