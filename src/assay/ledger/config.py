"""Read and write ledger.toml, which says where a competition's ledger is, and which log it has.

A competition has a ledger if its folder has this file. A subnet's is NAME.ledger.toml beside the subnet file NAME.toml. Both have
the same fields:

origin = "example.org/term-challenge"              # the name of the log
key = "example.org/term-challenge+1a2b3c4d+Ab…"    # its public key (vkey)
database = "ledger.db"                             # or postgresql://USER@HOST/DATABASE
log = "log"                                        # the folder of its tiles, for any web server
signer = "term-challenge"                          # the key file that signs; left out where another machine signs
archive = "s3://bucket/archive"                    # only if the archive of dropped epochs has moved: where it is now
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from assay.errors import BadInput
from assay.folder.files import write_text
from assay.ledger.check import LogKey
from assay.ledger.keys import as_bad_input
from assay.scheme.fields import Section, refused
from assay.scheme.reading import present, read_toml, validate

__all__ = ["FILE", "POLICY", "Config", "exists", "file_of", "is_subnet", "load", "read", "write"]

FILE = "ledger.toml"
POLICY = "witnesses.policy"
"""The file that names the witnesses of a log; its operator makes it. See `assay.ledger.cosigning`."""
_COMMENTS = {
    "origin": "the name of the log",
    "key": "its public key, which whoever checks receipts needs",
    "database": "a file, or postgresql://USER@HOST/DATABASE",
    "log": "the folder of the log's tiles, for any web server",
    "signer": "the key file that signs receipts and checkpoints: `assay keys list`",
    "archive": "where the archive of dropped epochs is now, if it has moved",
}


def _vkey(value: object) -> object:
    if isinstance(value, str):
        try:
            with as_bad_input("copy it from `assay ledger init`, or from the log's operator"):
                LogKey.parse(value)
        except BadInput as error:
            raise refused(error) from None
    return value


_Text = Annotated[str, Field(min_length=1, max_length=4096)]


class _LedgerFile(Section):
    origin: _Text
    key: Annotated[_Text, BeforeValidator(_vkey)]
    database: _Text = "ledger.db"
    log: _Text = "log"
    signer: _Text | None = None
    archive: _Text | None = None


@dataclass(frozen=True)
class Config:
    """The fields of ledger.toml. Relative paths are the folder's; `name` is the file's."""

    folder: Path
    origin: str
    key: str
    database: str = "ledger.db"
    log: str = "log"
    signer: str | None = None
    name: str = FILE
    archive: str | None = None

    @property
    def file(self) -> Path:
        """The path of the file itself."""
        return self.folder / self.name

    @property
    def place(self) -> str:
        """The path or URL of the database."""
        return self.database if "://" in self.database else str(self.folder / self.database)

    @property
    def is_here(self) -> bool:
        """Whether this machine can reach the database: its file exists, or it has a URL."""
        return "://" in self.database or (self.folder / self.database).exists()

    @property
    def tiles(self) -> Path:
        """The folder of the log."""
        return self.folder / self.log

    @property
    def policy(self) -> Path:
        """The file that names the log's witnesses, if it has any; beside ledger.toml or NAME.ledger.toml."""
        return self.folder / f"{self.name.removesuffix(FILE)}{POLICY}"


def is_subnet(place: Path) -> bool:
    """Whether a path is a subnet file, not a competition's folder."""
    return os.path.isfile(place)


def file_of(place: Path) -> Path:
    """The ledger.toml of a competition's folder, or of a subnet file."""
    return place.with_suffix(f".{FILE}") if is_subnet(place) else place / FILE


def exists(place: Path) -> bool:
    """Whether a competition's folder, or a subnet file, has a ledger."""
    return present(file_of(place))


def read(place: Path) -> Config:
    """The ledger of a competition's folder or a subnet file; raises BadInput, with the line, if there is none or it is wrong."""
    path = file_of(place)
    if not path.exists():
        whose = "subnet" if is_subnet(place) else "competition"
        raise BadInput(f"no such file, so the {whose} has no ledger", file=path, hint="`assay ledger init` makes one")
    return load(path)


def load(path: Path) -> Config:
    """The fields of a ledger.toml, whatever it is called; raises BadInput, with the line, if it cannot be read or is wrong."""
    content, source = read_toml(path)
    fields = validate(_LedgerFile, content, file=path, source=source)
    if LogKey.parse(fields.key).name != fields.origin:
        raise BadInput(
            f"is the key of another log, not of {fields.origin!r}", file=path, field="key", hint="correct one of the two"
        )
    return Config(path.parent, **fields.model_dump(), name=path.name)


def write(config: Config) -> Path:
    """Write ledger.toml and return its path; raises BadInput if that fails."""
    rows = []
    for name, comment in _COMMENTS.items():
        value = getattr(config, name)
        if value is not None:
            rows.append(f"{name} = {json.dumps(value, ensure_ascii=False)}  # {comment}\n")
    write_text(config.file, "".join(rows))
    return config.file
