"""The service's own memory, in tables beside the ledger's: one SQLite file is a whole season.

Nothing here is proven, and no number rests on it: nonces that were used, what validators are judging now, who registered with
which key, invitations, commitments, uploads, and which files are the logs of which trial. Several processes, on PostgreSQL
several hosts, share it. Rows that nobody can ask for again are removed.

Rows that matter for minutes or an epoch only (nonces, heartbeats, attempts, turns) are in a file of their own beside an SQLite
ledger (`ledger.db.requests`). SQLite has one writer at a time for each file, so a request would have to wait until an epoch is
settled. The file may be removed when the service does not run; what was signed before it was made anew is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    delete,
    event,
    func,
    insert,
    inspect,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from assay.errors import BadInput
from assay.ledger.store import DatabaseUnreachable, transaction
from assay.ledger.store.engine import LOCK, make_engine, shown
from assay.scheme.fields import instant_text

__all__ = ["EVERY_TABLE", "TABLES", "TURN", "Heartbeat", "Invitation", "Notebook", "SubmissionCommitment", "TrialLogs", "Upload"]

Json = dict[str, Any]
CACHE_KIB = 4096
"""KiB of an SQLite database that each connection of the service keeps in memory: it has many, and they stay."""
WAIT_SECONDS = 20.0
"""For so long a request waits for another writer; then it gets an answer, and its thread is free for others."""
_MAKING = LOCK + 1
"""The advisory lock of a process that makes the tables in PostgreSQL."""
TABLES = MetaData()
"""The tables of the service that must outlast a power failure. A backup of the ledger has them too."""
_SHORT_LIVED = MetaData()
"""The tables that matter for minutes or an epoch."""
_Number = BigInteger().with_variant(Integer, "sqlite")

_nonces = Table(
    "serve_nonces",
    _SHORT_LIVED,
    Column("key", Text, primary_key=True),
    Column("nonce", Text, primary_key=True),
    Column("until", _Number, nullable=False, index=True),
)
_heartbeats = Table(
    "serve_heartbeats",
    _SHORT_LIVED,
    Column("validator", Text, primary_key=True),
    Column("at", _Number, nullable=False),
    Column("judging", LargeBinary, nullable=False),
)
_keys = Table(
    "serve_keys",
    TABLES,
    Column("key", Text, primary_key=True),
    Column("participant", Text, nullable=False, unique=True),
    Column("at", Text, nullable=False),
)
_invitations = Table(
    "serve_invitations",
    TABLES,
    Column("code", Text, primary_key=True),
    Column("participant", Text),
    Column("uses", _Number, nullable=False),
    Column("until", Text, nullable=False),
)
_commitments = Table(
    "serve_commitments",
    TABLES,
    Column("id", _Number, primary_key=True),
    Column("participant", Text, nullable=False, index=True),
    Column("digest", Text, nullable=False),
    Column("epoch", _Number, nullable=False),
    Column("at", Text, nullable=False),
    UniqueConstraint("participant", "digest"),
)
_uploads = Table(
    "serve_uploads",
    TABLES,
    Column("id", _Number, primary_key=True),
    Column("participant", Text, nullable=False, index=True),
    Column("archive", Text, nullable=False),
    Column("submission", Text, nullable=False),
    Column("epoch", _Number, nullable=False),
    Column("at", Text, nullable=False),
)
_attempts = Table(
    "serve_attempts",
    _SHORT_LIVED,
    Column("participant", Text, primary_key=True),
    Column("epoch", _Number, primary_key=True, autoincrement=False),
    Column("count", _Number, nullable=False),
)
_turns = Table(
    "serve_turns",
    _SHORT_LIVED,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False, index=True),
    Column("until", _Number, nullable=False),
)
_since = Table(
    "serve_since",
    _SHORT_LIVED,
    Column("id", _Number, primary_key=True, autoincrement=False),
    Column("at", _Number, nullable=False),
)
TURN = timedelta(seconds=30)
"""So long a turn lasts unless its holder keeps it: a worker that was killed delays nobody for longer."""
_logs = Table(
    "serve_logs",
    TABLES,
    Column("record", Text, primary_key=True),
    Column("submission", Text, nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
    Column("files", LargeBinary, nullable=False),
)
EVERY_TABLE = (*TABLES.sorted_tables, *_SHORT_LIVED.sorted_tables)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The last message of a validator about its work: the submissions it is judging, the faults of its machine, the time."""

    validator: str
    at: datetime
    judging: tuple[Json, ...]
    troubles: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Invitation:
    """A code by which somebody may register: for one participant of the registry, or (None) as a new one.

    code: its SHA-256, as 64 hex digits; the code itself is stored nowhere. until: RFC 3339.
    """

    code: str
    participant: str | None
    uses: int
    until: str


@dataclass(frozen=True, slots=True)
class SubmissionCommitment:
    """The digest that a participant committed to, and the epoch and time in which it came."""

    participant: str
    digest: str
    epoch: int
    at: str


@dataclass(frozen=True, slots=True)
class Upload:
    """An archive that a participant handed in: its digest, the submission's, the epoch in which it was accepted, the time."""

    participant: str
    archive: str
    submission: str
    epoch: int
    at: str


@dataclass(frozen=True, slots=True)
class TrialLogs:
    """The logs that a validator handed over about a record of evidence: its digest and JSON, name → SHA-256 of a file (hex)."""

    record: str
    submission: str
    body: bytes
    files: dict[str, str]


class Notebook:
    """The service's tables in the database of a ledger; a context manager. Threads and processes may share it. Raises StoreError.

    Rows that must outlast a power failure are on disk when a method returns; nonces, heartbeats, turns and attempts need not be.
    """

    def __init__(self, place: str) -> None:
        short_lived = place if "://" in place else str(_requests_file(Path(place)))
        self._engine, self._quick = (make_engine(each, wait=WAIT_SECONDS, cache=CACHE_KIB) for each in (place, short_lived))
        self._names = {self._engine: shown(place), self._quick: shown(short_lived)}
        _relax(self._quick)
        for engine, tables in ((self._engine, TABLES), (self._quick, _SHORT_LIVED)):
            with self._changing(engine) as connection:
                _make_tables(connection, tables)
        with self._changing(self._quick) as connection:
            _insert(connection, _since, id=1, at=int(datetime.now(UTC).timestamp()))
            at = connection.execute(select(_since.c.at)).scalar_one()
        self.since = datetime.fromtimestamp(at, UTC)
        """The time since which nonces are remembered, in whole seconds: a request signed before may be a copy."""
        self.file = None if "://" in place else Path(short_lived)
        """The file beside an SQLite ledger."""

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()
        self._quick.dispose()

    @contextmanager
    def _changing(self, engine: Engine) -> Iterator[Connection]:
        """A transaction that writes. On PostgreSQL it does not wait for the ledger's writers."""
        sqlite = engine.dialect.name == "sqlite"
        with transaction(engine, self._names[engine], writing=sqlite, isolation="READ COMMITTED") as connection:
            yield connection

    @contextmanager
    def _reading(self, engine: Engine | None = None) -> Iterator[Connection]:
        engine = engine or self._engine
        with transaction(engine, self._names[engine], writing=False) as connection:
            yield connection

    def spend(self, key: str, nonce: str, now: datetime, window: timedelta) -> bool:
        """Note that a key used a nonce; False if it was used within the window before. Older nonces are forgotten."""
        with self._changing(self._quick) as connection:
            connection.execute(delete(_nonces).where(_nonces.c.until < int(now.timestamp())))
            return _insert(connection, _nonces, key=key, nonce=nonce, until=int((now + window).timestamp()))

    def beat(self, validator: str, at: datetime, judging: Sequence[Json], troubles: Sequence[Json] = ()) -> None:
        """Note what a validator judges now, and what is wrong on its machine."""
        values = {"at": int(at.timestamp()), "judging": json.dumps([*judging, *troubles]).encode()}
        with self._changing(self._quick) as connection:
            if not connection.execute(update(_heartbeats).where(_heartbeats.c.validator == validator).values(values)).rowcount:
                connection.execute(insert(_heartbeats).values(values | {"validator": validator}))

    def heartbeats(self) -> list[Heartbeat]:
        """The last heartbeat of each validator."""
        with self._reading(self._quick) as connection:
            rows = connection.execute(select(_heartbeats).order_by(_heartbeats.c.validator)).all()
        return [Heartbeat(row.validator, datetime.fromtimestamp(row.at, UTC), *_parted(json.loads(row.judging))) for row in rows]

    def participant_of(self, key: str) -> str | None:
        """The participant that registered with a key (as `PublicKey.id` spells it); None if there is none."""
        with self._reading() as connection:
            participant = connection.execute(select(_keys.c.participant).where(_keys.c.key == key)).scalar()
        return None if participant is None else str(participant)

    def register(self, participant: str, key: str, at: datetime) -> None:
        """Note the key of a participant; raises BadInput if the participant has another, or the key is another's."""
        with self._changing(self._engine) as connection:
            _register(connection, participant, key, at)

    def registered(self) -> int:
        """Return how many keys registered."""
        with self._reading() as connection:
            return int(connection.execute(select(func.count()).select_from(_keys)).scalar_one())

    def invite(self, invitation: Invitation) -> None:
        """Store an invitation; one with the same code is replaced."""
        with self._changing(self._engine) as connection:
            connection.execute(delete(_invitations).where(_invitations.c.code == invitation.code))
            connection.execute(insert(_invitations).values(_row(invitation)))

    def invitation(self, code: str) -> Invitation | None:
        """The invitation with this code (its SHA-256, hex), whether it can still be used or not."""
        with self._reading() as connection:
            row = connection.execute(select(_invitations).where(_invitations.c.code == code)).first()
        return None if row is None else Invitation(row.code, row.participant, row.uses, row.until)

    def usable(self, code: str, now: datetime) -> Invitation:
        """The invitation with this code (its SHA-256, hex), unused; raises BadInput as `redeem` does. It only reads."""
        return _usable(self.invitation(code), now)

    def redeem(self, code: str, now: datetime) -> Invitation:
        """Use an invitation once (code: its SHA-256, hex); raises BadInput if there is none, or it is used up or too old."""
        with self._changing(self._engine) as connection:
            return _redeem(connection, code, now)

    def join(self, code: str, newcomer: str, key: str, now: datetime) -> str:
        """Use an invitation, and note the key of the participant that it names, or of `newcomer`; returns that participant.

        Both happen, or none does. Raises BadInput as `redeem` and `register` do.
        """
        with self._changing(self._engine) as connection:
            participant = _redeem(connection, code, now).participant or newcomer
            _register(connection, participant, key, now)
        return participant

    def commit(self, commitment: SubmissionCommitment) -> SubmissionCommitment:
        """Store a commitment, and return it as it is stored: the first time counts."""
        with self._changing(self._engine) as connection:
            where = (_commitments.c.participant == commitment.participant) & (_commitments.c.digest == commitment.digest)
            row = connection.execute(select(_commitments).where(where)).first()
            if row is None:
                connection.execute(insert(_commitments).values(**_row(commitment)))
        return commitment if row is None else SubmissionCommitment(row.participant, row.digest, row.epoch, row.at)

    def commitment(self, participant: str, digest: str) -> SubmissionCommitment | None:
        """A participant's commitment to a digest."""
        where = (_commitments.c.participant == participant) & (_commitments.c.digest == digest)
        with self._reading() as connection:
            row = connection.execute(select(_commitments).where(where)).first()
        return None if row is None else SubmissionCommitment(row.participant, row.digest, row.epoch, row.at)

    def commitments(self, participant: str, last: int = 1000) -> list[SubmissionCommitment]:
        """The commitments of a participant, the newest first, at most `last` of them."""
        query = select(_commitments).where(_commitments.c.participant == participant)
        with self._reading() as connection:
            rows = connection.execute(query.order_by(_commitments.c.id.desc()).limit(last)).all()
        return [SubmissionCommitment(row.participant, row.digest, row.epoch, row.at) for row in rows]

    def attempt(self, participant: str, epoch: int, most: int) -> bool:
        """Count an attempt to hand in; False, and nothing is counted, if there were `most` in this epoch."""
        mine = _attempts.c.participant == participant
        now, few = mine & (_attempts.c.epoch == epoch), _attempts.c.count < most
        with self._changing(self._quick) as connection:
            connection.execute(delete(_attempts).where(mine, _attempts.c.epoch < epoch))
            if connection.execute(update(_attempts).where(now, few).values(count=_attempts.c.count + 1)).rowcount:
                return True
            return most > 0 and _insert(connection, _attempts, participant=participant, epoch=epoch, count=1)

    def forgive(self, participant: str, epoch: int) -> None:
        """Do not count an attempt that failed by no fault of the participant's."""
        now = (_attempts.c.participant == participant) & (_attempts.c.epoch == epoch)
        with self._changing(self._quick) as connection:
            connection.execute(update(_attempts).where(now).values(count=_attempts.c.count - 1))

    def take_turn(self, name: str, holder: str, now: datetime, lasts: timedelta = TURN, *, anyway: bool = False) -> bool:
        """Take or keep the turn of this name for so long; False if another holder has it. All processes and hosts share it.

        anyway: take it from another holder.
        """
        until = int((now + lasts).timestamp())
        with self._changing(self._quick) as connection:
            free = or_(_turns.c.until < int(now.timestamp()), _turns.c.holder == holder, literal(anyway))
            over = (_turns.c.name == name) & free
            if connection.execute(update(_turns).where(over).values(holder=holder, until=until)).rowcount:
                return True
            return _insert(connection, _turns, name=name, holder=holder, until=until)

    def keep_turns(self, holder: str, now: datetime) -> None:
        """Keep the turns of a holder for TURN from now on."""
        with self._changing(self._quick) as connection:
            connection.execute(update(_turns).where(_turns.c.holder == holder).values(until=int((now + TURN).timestamp())))

    def end_turns(self, holder: str) -> None:
        """Give back all turns of a holder."""
        with self._changing(self._quick) as connection:
            connection.execute(delete(_turns).where(_turns.c.holder == holder))

    def upload(self, upload: Upload) -> None:
        """Note what was handed in and accepted."""
        with self._changing(self._engine) as connection:
            connection.execute(insert(_uploads).values(**_row(upload)))

    def uploads(self, participant: str | None = None, last: int = 1000) -> list[Upload]:
        """The uploads of a participant (None: of all), the newest first, at most `last` of them."""
        query = select(_uploads).order_by(_uploads.c.id.desc()).limit(last)
        if participant is not None:
            query = query.where(_uploads.c.participant == participant)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return [Upload(row.participant, row.archive, row.submission, row.epoch, row.at) for row in rows]

    def log(self, logs: TrialLogs) -> TrialLogs:
        """Store the logs of a record, and return them as they are stored: the first ones count."""
        row = {"record": logs.record, "submission": logs.submission, "body": logs.body, "files": json.dumps(logs.files).encode()}
        with self._changing(self._engine) as connection:
            with suppress(IntegrityError), connection.begin_nested():  # another process was faster, or it was there before
                connection.execute(insert(_logs).values(row))
            return _trial_logs(connection.execute(select(_logs).where(_logs.c.record == logs.record)).one())

    def logged(self, records: Sequence[str]) -> dict[str, TrialLogs]:
        """Record → its logs, of those records (by digest) that have some."""
        with self._reading() as connection:
            rows = connection.execute(select(_logs).where(_logs.c.record.in_(records))).all()
        return {row.record: _trial_logs(row) for row in rows}

    def logs(self, submission: str) -> list[TrialLogs]:
        """The logs that were handed over about a submission."""
        with self._reading() as connection:
            rows = connection.execute(select(_logs).where(_logs.c.submission == submission).order_by(_logs.c.record)).all()
        return [_trial_logs(row) for row in rows]


def _parted(rows: list[Json]) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
    return tuple(row for row in rows if "code" not in row), tuple(row for row in rows if "code" in row)


def _trial_logs(row: Any) -> TrialLogs:
    return TrialLogs(row.record, row.submission, row.body, json.loads(row.files))


def _insert(connection: Connection, table: Table, **row: Any) -> bool:
    """Insert a row; False if there is one with its key: another process was faster."""
    new = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    counted = connection.execution_options(preserve_rowcount=True)
    return counted.execute(new(table).values(row).on_conflict_do_nothing()).rowcount == 1


def _make_tables(connection: Connection, tables: MetaData) -> None:
    """Make the tables that are missing. Of several processes that start at once, one makes them and the others wait for it."""
    if connection.dialect.name == "postgresql":
        if set(tables.tables) <= set(inspect(connection).get_table_names()):
            return  # no start waits for another one
        connection.exec_driver_sql("SELECT set_config('lock_timeout', %s, true)", (f"{int(WAIT_SECONDS * 1000)}ms",))
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
    tables.create_all(connection)


def _register(connection: Connection, participant: str, key: str, at: datetime) -> None:
    rows = connection.execute(select(_keys).where((_keys.c.key == key) | (_keys.c.participant == participant))).all()
    if [(row.key, row.participant) for row in rows] == [(key, participant)]:
        return
    if rows:
        mine = rows[0].key == key
        what = f"this key is registered for {rows[0].participant!r}" if mine else f"{participant!r} has another key"
        raise BadInput(what, field="key", hint="use that key, or ask the operator")
    connection.execute(insert(_keys).values(key=key, participant=participant, at=instant_text(at)))


def _redeem(connection: Connection, code: str, now: datetime) -> Invitation:
    row = connection.execute(select(_invitations).where(_invitations.c.code == code).with_for_update()).first()
    there = _usable(None if row is None else Invitation(row.code, row.participant, row.uses, row.until), now)
    connection.execute(update(_invitations).where(_invitations.c.code == code).values(uses=there.uses - 1))
    return replace(there, uses=there.uses - 1)


def _usable(invitation: Invitation | None, now: datetime) -> Invitation:
    if invitation is None:
        raise BadInput("there is no such invitation", field="code", hint="copy the whole code, or ask for a new one")
    if invitation.uses < 1 or invitation.until < instant_text(now):
        why = "was used" if invitation.uses < 1 else f"ended at {invitation.until}"
        raise BadInput(f"the invitation {why}", field="code", hint="ask the operator for a new one")
    return invitation


def _row(value: Invitation | SubmissionCommitment | Upload) -> Json:
    return {name: getattr(value, name) for name in type(value).__slots__}


def _requests_file(ledger: Path) -> Path:
    """The file for what matters for a short time, beside an SQLite ledger; made whole, since other processes may begin meanwhile.

    Raises DatabaseUnreachable if it cannot be made.
    """
    file = ledger.with_name(f"{ledger.name}.requests")
    if not file.exists():
        beside = file.with_name(f".{file.name}.{token_hex(8)}.tmp")
        engine = make_engine(beside, create=True)
        try:
            with transaction(engine, str(beside), writing=True) as connection:
                _SHORT_LIVED.create_all(connection)
            engine.dispose()
            with suppress(FileExistsError):
                os.link(beside, file)
        except OSError as error:
            what = f"cannot be made ({error.strerror})"
            raise DatabaseUnreachable(what, file=file, hint="check the folder, its permissions and its space") from None
        finally:
            engine.dispose()
            beside.unlink(missing_ok=True)
    return file


def _relax(engine: Engine) -> None:
    """Commit without waiting for the disk: the rows survive the process, but perhaps not a power failure."""
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def _connected(connection: Any, record: object) -> None:
            connection.execute("PRAGMA synchronous = NORMAL")

        return

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
