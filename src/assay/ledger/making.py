"""Giving a competition or a subnet a ledger: an empty database, an empty log with a signed checkpoint,
and ledger.toml, which comes last.

What a crash left of it is taken up when it is done again: a database or log that is there is used if it is of this very ledger.
"""

from __future__ import annotations

from pathlib import Path

from assay.errors import BadInput
from assay.ledger import config, note, store
from assay.ledger.check import EMPTY_ROOT
from assay.ledger.config import Config
from assay.ledger.keys import PrivateKey
from assay.ledger.log import Log
from assay.ledger.store import Meta
from assay.scheme import subnet
from assay.scheme.load import read as read_scheme

__all__ = ["make"]


def make(
    place: Path, origin: str, signer: PrivateKey, *, database: str | None = None, log: str | None = None, name: str | None = None
) -> Config:
    """The ledger of a competition's folder or a subnet file, made; `name` is that of the signer's key file.

    database, log: otherwise `ledger.db` and `log`; of a subnet file NAME.toml `NAME.ledger.db` and `NAME-log`. Raises BadInput
    and StoreError. Refused are: a place that has one, a database that is something else's, a log that is another's or ahead of
    the database.
    """
    file = config.file_of(place)
    if config.exists(place):
        raise BadInput("is there already", file=file, hint="there is a ledger: `assay ledger check`")
    if config.is_subnet(place):
        subnet.read(place)
        whose, database, log = place.stem, database or f"{place.stem}.ledger.db", log or f"{place.stem}-log"
    else:
        whose, database, log = read_scheme(place / "scheme.toml").name, database or "ledger.db", log or "log"
    key = note.log_key(origin, signer.public)
    said = Config(file.parent, origin, str(key), database, log, name, file.name)
    meta = Meta(whose, origin, said.key)
    new_log = not (said.tiles / "checkpoint").exists()
    new_database = not _is_there(said.place, meta)
    if new_database and not new_log and Log(said.tiles, key).size:
        raise BadInput(
            "is of another database", file=said.tiles / "checkpoint", hint="name that database, or a new folder for the log"
        )
    if new_database:
        store.create(said.place, meta).close()
    if new_log:
        Log.create(said.tiles, key, note.sign_checkpoint(0, EMPTY_ROOT, key, signer))
    config.write(said)
    return said


def _is_there(place: str, meta: Meta) -> bool:
    """Whether this very ledger is in the database; False if there is nothing, or if `create` will say what there is."""
    try:
        with store.open(place) as found:
            return found.meta == meta
    except store.NotALedger:
        return False
