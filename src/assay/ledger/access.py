"""Open a ledger of a competition or of a subnet, make a new one, and bring its log up to its database. SPEC 6.

The database decides. Receipts that a crash kept out of the log are written to it when the ledger is opened. A log that is ahead
of the database, or contradicts it, is refused: one of the two was put back or changed. If the log's folder is gone, the log is
made again from the database; so an operator repairs a damaged log by moving its folder away.

A new ledger is an empty database, an empty log with a signed checkpoint, and ledger.toml, which is written last. After a crash,
making it again uses the database and the log that are already there, if they belong to this ledger.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any

from assay.errors import BadInput, CannotSettle
from assay.exact import canonical
from assay.ledger import check, config, store
from assay.ledger import log as note
from assay.ledger.check import EMPTY_ROOT, LogKey
from assay.ledger.config import Config
from assay.ledger.counting import CountedView
from assay.ledger.keys import PrivateKey, sign_envelope
from assay.ledger.log import Log
from assay.ledger.statements import receipt_document
from assay.ledger.store import Damaged, Meta, Store, StoredCheckpoint, StoredReceipt, StoredSettlement, View
from assay.ledger.store.engine import CACHE_KIB, RESTORE
from assay.scheme import subnet
from assay.scheme.load import read as read_scheme

_COPY = "bring the one that is wrong back from a copy"
_ABSENT = (
    "only the operator has it: a validator signs with `assay evidence sign` and sends the batches; the operator can put a backup"
    " there: `assay ledger restore`"
)


class Ledger:
    """An open ledger: its database and its log; a context manager. `folder` is the competition's."""

    def __init__(self, settings: Config, database: Store, log: Log) -> None:
        self.folder, self.config, self.store, self.log = settings.folder, settings, database, log
        self.judged: dict[tuple[object, ...], str] = {}
        """The verdicts on batches, as `CountedView` keeps them; who opens a ledger again may hand them on."""

    @property
    def key(self) -> LogKey:
        """The log's public key."""
        return self.log.key

    @contextmanager
    def counted(self) -> Iterator[CountedView]:
        """One snapshot of the evidence that counts: every batch in it was signed by its validator. Raises StoreError."""
        with self.store.reading() as view:
            yield CountedView(view, self.key, self.judged)

    def bring_up(self) -> None:
        """Write to the log what only the database has; raises BadInput if the two cannot belong to one ledger."""
        with self.store.reading() as view:
            last = view.last_receipt()
            count = 0 if last is None else last.position + 1
            size = self.log.size
            if size > count:
                what = f"has {size} entries, and the database {self.store.name} has {count} receipts: one of them was put back"
                raise BadInput(what, file=self.log.folder / "checkpoint", hint=_COPY)
            if size and self.stated_root(view, size - 1) != self.log.checkpoint.root:
                what = f"differs from the database {self.store.name} in the first {size} receipts"
                raise BadInput(what, file=self.log.folder / "checkpoint", hint=_COPY)
            if last is None:
                return
            waits = self.config.policy.exists()
            if size < count:
                entries = [_entry(receipt.digest) for receipt in view.receipts(size)]
                self.log.publish(last.checkpoint, size, entries, waits=waits)
            cosigned = view.witnessed()
            shown = last.checkpoint if not waits else None if cosigned is None else cosigned.checkpoint
            if shown is not None:
                self.log.show(shown)

    def stated_root(self, view: View, position: int) -> bytes:
        """The log's root with the receipt at a position, by its signed checkpoint; raises Damaged if that was changed."""
        receipt = view.receipt_at(position)
        with _undamaged(self.store):
            return check.EMPTY_ROOT if receipt is None else check.check_checkpoint(receipt.checkpoint, [self.key]).root

    def check_signer(self, signer: PrivateKey) -> None:
        """Refuse a key that is not the log's; raises BadInput."""
        if signer.public.raw != self.key.raw or signer.public.kind != "ed25519":
            what = f"is not the key of this log, ed25519:{self.key.raw.hex()}"
            raise BadInput(f"{signer.public} {what}", field="signer", hint=f"name the log's key in {config.FILE}, or with --key")

    def signed(self, view: View, payload: bytes, epoch: int, signer: PrivateKey) -> StoredReceipt:
        """A receipt for the next place in the log, not stored yet: the signed statement, and the checkpoint with it."""
        last = view.last_receipt()
        digest = sha256(payload).digest()
        entries = [*(_entry(receipt.digest) for receipt in view.receipts(self.log.size)), digest]
        position = 0 if last is None else last.position + 1
        checkpoint = note.sign_checkpoint(position + 1, self.log.root_with(entries), self.key, signer)
        return StoredReceipt(epoch, position, f"sha256:{digest.hex()}", canonical(sign_envelope(payload, signer)), checkpoint)

    def receipt(self, epoch: int) -> StoredReceipt:
        """The receipt of an epoch; raises CannotSettle if it is not settled."""
        with self.store.reading() as view:
            receipt, last = view.receipt(epoch), view.last_receipt()
        if receipt is None:
            settled = "nothing is settled yet" if last is None else f"the last one settled is {last.epoch}"
            raise CannotSettle(f"epoch {epoch} has no receipt: {settled}", file=self.store.name, hint="`assay settle` makes it")
        return receipt

    def document(self, receipt: StoredReceipt, within: StoredReceipt | None = None) -> dict[str, Any]:
        """A receipt as its file has it: signed statement, and proof in the log as `proven_in` says for it, or for `within`."""
        with self.store.reading() as view:
            then = proven_in(view, within or receipt)
        return receipt_document(receipt.envelope, self.log.inclusion(receipt.position, then.size), then.checkpoint)

    def unwitnessed(self, view: View) -> StoredReceipt | None:
        """The receipt whose checkpoint witnesses are asked to cosign next, one after the other; None if there is none.

        A log that gets witnesses later begins with the newest: what everybody was shown before is not signed again.
        """
        newest, shown = view.witnessed(), self.log.shown()
        if newest is not None:
            return view.receipt_at(newest.size)
        return view.receipt_at(0 if shown is None else shown.size) or view.last_receipt()

    def cosigned(self, note: bytes, size: int) -> None:
        """Store a checkpoint that a quorum of witnesses has cosigned, and show it to everybody. Raises BadInput, StoreError."""
        with self.store.writing() as tx:
            newest = tx.witnessed()
            if newest is None or newest.size < size:
                tx.add_witnessed(StoredCheckpoint(size, note))
        self.bring_up()

    def close(self) -> None:
        """Close the database."""
        self.store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def proven_in(view: View, receipt: StoredReceipt, *, exact: bool = False) -> StoredCheckpoint:
    """The checkpoint in which a receipt is proven: the first that witnesses cosigned with it in the log; without one, its own.

    exact: only of the log that ends with this receipt, as a bundle has it.
    """
    size = receipt.position + 1
    cosigned = view.witnessed(size)
    if cosigned is None or (exact and cosigned.size != size):
        return StoredCheckpoint(size, receipt.checkpoint)
    return cosigned


def stored_settlement(view: View, epoch: int) -> tuple[StoredSettlement, bytes]:
    """The settlement of a settled epoch, and the document of its inputs; raises CannotSettle if they are gone."""
    settled = view.settlement(epoch)
    document = None if settled is None else view.inputs(settled.inputs)
    if settled is None or document is None:
        raise CannotSettle(f"the settlement of epoch {epoch} or its inputs are not in the ledger", hint="restore a copy of it")
    return settled, document


def receipt_predicate(receipt: StoredReceipt) -> dict[str, Any]:
    """The predicate of a stored receipt's statement."""
    stated: dict[str, Any] = _statement(receipt)["predicate"]
    return stated


def receipt_version(receipt: StoredReceipt) -> int:
    """The version of a stored receipt's statement."""
    return 1 if _statement(receipt)["predicateType"] == check.FIRST else 2


def _statement(receipt: StoredReceipt) -> dict[str, Any]:
    stated: dict[str, Any] = json.loads(check.Envelope.parse(json.loads(receipt.envelope), "receipt").payload)
    return stated


def open_ledger(folder: Path | str, *, cache: int = CACHE_KIB) -> Ledger:
    """The ledger of a competition's folder or a subnet file, its log brought up to its database. cache: see `store.open`.

    Raises BadInput if ledger.toml is missing or wrong, or log and database are not of one ledger, and StoreError.
    """
    settings = config.read(Path(folder))
    database = open_store(settings, cache=cache)
    try:
        ledger = Ledger(settings, database, _log(settings, LogKey.parse(settings.key), database))
        ledger.bring_up()
    except BaseException:
        database.close()
        raise
    return ledger


def open_store(settings: Config, *, cache: int = CACHE_KIB) -> Store:
    """The database that ledger.toml names (cache: see `store.open`); raises BadInput if it is of another log, and StoreError."""
    if "://" not in settings.place and not Path(settings.place).exists():
        raise store.NotALedger("there is no such file", file=settings.place, hint=_ABSENT)
    database = store.open(settings.place, cache=cache, archive=settings.archive)
    if (database.meta.origin, database.meta.key) != (settings.origin, settings.key):
        database.close()
        what = f"is {settings.key}, and the database {database.name} is of the log {database.meta.key}"
        raise BadInput(what, file=settings.file, field="key", hint=f"correct {settings.name}, or name the right database")
    return database


def _log(settings: Config, key: LogKey, database: Store) -> Log:
    if settings.tiles.exists() or settings.tiles.is_symlink():
        return Log(settings.tiles, key)
    with database.reading() as view:
        last, entries = view.last_receipt(), [_entry(receipt.digest) for receipt in view.receipts()]
    if last is None:
        return Log.absent(settings.tiles, key)
    with _undamaged(database):
        return Log.anew(settings.tiles, key, last.checkpoint, entries, waits=settings.policy.exists())


@contextmanager
def _undamaged(database: Store) -> Iterator[None]:
    try:
        yield
    except check.CheckError as refused:
        raise Damaged(f"a receipt's checkpoint was changed ({refused})", file=database.name, hint=RESTORE) from None


def _entry(digest: str) -> bytes:
    return bytes.fromhex(digest.removeprefix("sha256:"))


def make_ledger(
    place: Path, origin: str, signer: PrivateKey, *, database: str | None = None, log: str | None = None, name: str | None = None
) -> Config:
    """Make the ledger of a competition's folder or of a subnet file. `name` is that of the signer's key file.

    database, log: without them `ledger.db` and `log`; for a subnet file NAME.toml `NAME.ledger.db` and `NAME-log`. Raises
    StoreError, and BadInput for a place that has a ledger, a database or log of another one, and a log ahead of the database.
    """
    file = config.file_of(place)
    if config.exists(place):
        raise BadInput("exists already", file=file, hint="this place has a ledger: `assay ledger check`")
    if config.is_subnet(place):
        subnet.read(place)
        whose, database, log = place.stem, database or f"{place.stem}.ledger.db", log or f"{place.stem}-log"
    else:
        whose, database, log = read_scheme(place / "scheme.toml").name, database or "ledger.db", log or "log"
    key = note.log_key(origin, signer.public)
    settings = Config(file.parent, origin, str(key), database, log, name, file.name)
    meta = Meta(whose, origin, settings.key)
    new_log = not note.is_log(settings.tiles)
    new_database = not _is_there(settings.place, meta)
    if new_database and not new_log and Log(settings.tiles, key).size:
        raise BadInput(
            "belongs to another database",
            file=settings.tiles / "checkpoint",
            hint="name that database, or a new folder for the log",
        )
    if new_database:
        store.create(settings.place, meta).close()
    if new_log:
        Log.create(settings.tiles, key, note.sign_checkpoint(0, EMPTY_ROOT, key, signer))
    config.write(settings)
    return settings


def _is_there(place: str, meta: Meta) -> bool:
    """Whether this ledger is in the database; False if nothing is there, or if `create` will say what is."""
    try:
        with store.open(place) as existing:
            return existing.meta == meta
    except store.NotALedger:
        return False
