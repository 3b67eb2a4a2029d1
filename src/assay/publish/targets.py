"""publish.toml beside a scheme: where results go, and with whose keys.

[targets.mainnet]       the name after --to
kind = "evm"            which publisher; the other fields are that one's
key = "operator"        one of the keys below

[keys.operator]         where a key is; never the key itself
keystore = "operator.json"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from assay.errors import BadInput
from assay.publish.journal import Journal
from assay.publish.kept import journal_of
from assay.scheme.fields import Section
from assay.scheme.reading import line_of, read_toml, validate

__all__ = ["FILE", "Target", "names", "read"]

FILE = "publish.toml"
_BEGIN = 'write one: a section [targets.NAME] with kind = "bittensor" or "evm", and its fields (documentation, Publishing)'
_Name = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
M = TypeVar("M", bound=BaseModel)


class _Any(BaseModel):
    """A table whose fields somebody else knows."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class _Target(_Any):
    kind: Annotated[str, Field(min_length=1, max_length=64)]


class _File(Section):
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
        return self.folder / FILE

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


def read(folder: Path, name: str, ask: Callable[[], str] | None = None) -> Target:
    """A target of publish.toml; raises BadInput if the file is missing or wrong, or has no target of this name."""
    file = folder / FILE
    if not file.exists():
        raise BadInput("no such file, so there is nowhere to publish to", file=file, hint=_BEGIN)
    content, source = read_toml(file)
    said = validate(_File, content, file=file, source=source)
    if name not in said.targets:
        known = ", ".join(sorted(said.targets))
        raise BadInput(f"there is no target {name[:60]!r}, only: {known}", file=file, hint=f"add a section [targets.{name[:60]}]")
    fields = {key: value for key, value in content["targets"][name].items() if key != "kind"}
    return Target(folder, name, said.targets[name].kind, fields, content.get("keys", {}), source, ask)


def names(folder: Path) -> list[str]:
    """The targets there are, for the shell's completion; none if publish.toml cannot be read."""
    try:
        content, _ = read_toml(folder / FILE)
    except BadInput:
        return []
    found = content.get("targets")
    return sorted(found) if isinstance(found, dict) else []
