"""Sign what was judged, and send it until the service has it: nothing is lost, and nothing is judged or counted twice. SPEC 6.

    evidence/*.jsonl  ─sign what is new─▶  batches/*.batch  ─send, with the logs─▶  batches/sent/*.batch

A record is signed once, with the epoch in which it was judged. The offset up to which evidence is signed is noted after the batch
is on the disk; a crash between the two signs the same records again, which adds nothing in the ledger. A batch stays in batches/
until the service says that it has it, so it may wait for days, and be carried on a stick as well.

If the service has settled the epoch of a waiting batch and never got it, the service refuses it. Then its records are signed for
the epoch that is open: the label changes, not the observation. A batch that the service did get before the epoch was settled is
`known`, and nothing of it is signed again. So the ledger decides what is late, and not this machine's memory. Records that are
about an epoch cannot change it: their batch is put into batches/late/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput
from assay.exact import canonical
from assay.folder import csvs
from assay.folder.evidence import parse
from assay.folder.files import LINE_BYTES, Place, clear, flush_folder, write_bytes
from assay.folder.strict import load_note
from assay.ledger import batch, config, signing
from assay.ledger.batch import Batch
from assay.ledger.keys import PrivateKey
from assay.node import FOLDER, SIGNED
from assay.node.fetch import task_set_of
from assay.records import Evidence, record
from assay.scheme.load import read as read_scheme
from assay.serve.client import PAUSES, Client

if TYPE_CHECKING:  # a round sends when it has judged, and begins sooner without what is needed for that
    from assay.serve.evidence import BatchOutcome
    from assay.serve.log_files import LogsSent

__all__ = ["BATCHES", "LATE", "SENT", "PushResult", "SentBatch", "Spool", "validator_in", "waiting"]

BATCHES, SENT, LATE = "batches", "sent", "late"
_AT_ONCE = 20_000
"""The most records of a batch that a node signs."""


@dataclass(frozen=True)
class SentBatch:
    """A batch and what became of it. again: it is the same evidence, signed for the open epoch, of a batch that came too late."""

    file: Path
    outcome: BatchOutcome
    again: bool = False

    @property
    def document(self) -> dict[str, Any]:
        """The row, for programs."""
        row = self.outcome
        counts = {"new": row.new, "known": row.records - row.new, "conflicting": row.conflicts}
        why = {"detail": row.detail, "hint": row.hint} if row.outcome == "refused" else {}
        return {"file": str(self.file), "outcome": row.outcome, "epoch": row.epoch, "again": self.again, **counts, **why}


@dataclass
class PushResult:
    """The result of a push."""

    signed: int
    """Records that were signed now."""
    logs: LogsSent
    """The outcome of the logs and the kept work of the trials in these batches."""
    sent: list[SentBatch] = field(default_factory=list)
    """Batches that the service has now."""
    refused: list[SentBatch] = field(default_factory=list)
    """Batches that it does not want; they stay, and are tried again."""
    late: list[SentBatch] = field(default_factory=list)
    """Batches that came after their epoch was settled, and whose records are about that epoch; they were put away."""

    @property
    def new(self) -> int:
        """Records that are new in the service's ledger."""
        return sum(row.outcome.new for row in self.sent)


def waiting(folder: Path) -> list[Path]:
    """The batches in a folder that the service does not have yet, as far as is known here."""
    return sorted((folder / BATCHES).glob("*.batch"))


def validator_in(folder: Path, signer: PrivateKey) -> str:
    """The validator with a key, as the registry of a folder spells it. Raises BadInput."""
    file = folder / csvs.VALIDATORS.name
    rows = csvs.read(file, csvs.VALIDATORS)
    return signing.validator_of(signer.public, {row.fields["key"]: row.place.line for row in rows}, file)


class Spool:
    """The evidence and batches of one validator in a competition's folder. Raises BadInput if the folder is none."""

    def __init__(self, folder: Path, signer: PrivateKey) -> None:
        self.folder, self.signer = folder, signer
        self.validator = validator_in(folder, signer)
        self.scheme, self.origin = read_scheme(folder / "scheme.toml"), config.read(folder).origin
        self.note_file = folder / FOLDER / SIGNED

    def sign(self) -> int:
        """Sign what was judged since the last time; returns how many records. Raises BadInput."""
        before = self._offsets()
        offsets, groups = dict(before), dict[tuple[int, str], list[Evidence]]()
        for file in sorted((self.folder / "evidence").glob("*.jsonl")):
            name = f"{file.name} {_beginning(file)}"  # another file may get this name
            end, records = self._since(file, before.get(name, 0))
            offsets[name] = end
            for item in records:
                groups.setdefault((item.epoch, item.submission), []).append(item)
        over_tasks = self.scheme.kind.trials(self.scheme.score) is not None  # else a record says its epoch's tasks
        task_set = task_set_of(self.folder) if groups and over_tasks else None
        signed = [self._batch(part, task_set) for key in sorted(groups) for part in _parts(groups[key])]
        if signed:
            with suppress(OSError):
                clear(self.folder / BATCHES)  # what a killed writer left
            signing.write(signed, self.folder / BATCHES)
        if offsets != before:
            (self.folder / FOLDER).mkdir(exist_ok=True)
            write_bytes(self.note_file, canonical(offsets) + b"\n")
        return sum(new.statement.count for new in signed)

    def take_out(self) -> int:
        """Put the batches that were sent back among those that wait; returns how many. Raises BadInput.

        It is for a service that was restored from a backup. A batch that it still has is `known` there, and adds nothing.
        """
        files = sorted((self.folder / BATCHES / SENT).glob("*.batch"))
        for file in files:
            _move(file, self.folder / BATCHES)
        return len(files)

    def push(self, client: Client, open_epoch: int, *, logs: bool = True, pauses: Sequence[float] = PAUSES) -> PushResult:
        """Sign what is new, and send what waits. open_epoch: as the service says now. Raises Unreachable, BadInput.

        logs: also hand over the logs and the kept work of the trials. A batch is put away when the service has these as well.
        """
        from assay.serve.log_files import LogsSent

        result = PushResult(self.sign(), LogsSent())
        late = self._send(client, waiting(self.folder), result, open_epoch, pauses, logs=logs)
        if late:
            self._send(client, late, result, open_epoch, pauses, logs=logs, again=True)
        return result

    def _send(
        self,
        client: Client,
        files: Sequence[Path],
        result: PushResult,
        open_epoch: int,
        pauses: Sequence[float],
        *,
        logs: bool,
        again: bool = False,
    ) -> list[Path]:
        """Send batches; returns the files of those that came too late, signed for the open epoch."""
        from assay.serve.log_files import send_logs
        from assay.serve.sending import send_batches

        late: list[Path] = []
        for file, outcome in send_batches(client, files, pauses=pauses) if files else ():
            row = SentBatch(file, outcome, again)
            if outcome.outcome != "refused":
                if logs:
                    send_logs(client, self.folder, batch.read(file).records, result.logs)
                _move(file, file.parent / SENT)
                result.sent.append(row)
            elif (renewed := self._renewed(file, open_epoch)) is not None:
                late += renewed
            elif (past := self._past(file, open_epoch, outcome)) is not None:
                _move(file, file.parent / LATE)
                result.late.append(SentBatch(file.with_name(LATE) / file.name, past))
            else:
                result.refused.append(row)
        return late

    def _renewed(self, file: Path, open_epoch: int) -> list[Path] | None:
        """The files of a refused batch of an earlier epoch, signed for the open one; None if it is refused for another reason.

        Only the label changes: records that are about an epoch are not signed anew.
        """
        try:
            former = batch.read(file)
        except BadInput:
            return None
        if former.statement.epoch >= open_epoch or former.statement.validator != self.validator:
            return None
        records = [record(item.document() | {"epoch": open_epoch}) for item in former.records]
        if any(item.slot != before.slot for item, before in zip(records, former.records, strict=True)):
            return None
        files = signing.write([self._batch(records, former.statement.task_set)], self.folder / BATCHES)
        file.unlink()
        return files

    def _past(self, file: Path, open_epoch: int, outcome: BatchOutcome) -> BatchOutcome | None:
        """The outcome of a refused batch that no epoch can take any more, with what it has in it; None if one can."""
        with suppress(BadInput):
            former = batch.read(file)
            if former.statement.epoch < open_epoch and former.statement.validator == self.validator:
                return outcome.model_copy(update={"epoch": former.statement.epoch, "records": len(former.records)})
        return None

    def _batch(self, records: Iterable[Evidence], task_set: str | None) -> Batch:
        return batch.make(
            records,
            origin=self.origin,
            competition=self.scheme.name,
            task_set=task_set,
            signer=self.signer,
            validator=self.validator,
        )

    def _since(self, file: Path, offset: int) -> tuple[int, list[Evidence]]:
        """The validator's records on the whole lines after an offset, and where these end. Raises BadInput."""
        records: list[Evidence] = []
        try:
            with file.open("rb") as opened:
                opened.seek(offset)
                while (line := opened.readline(LINE_BYTES + 2)).endswith(b"\n"):
                    offset += len(line)
                    if line.strip():
                        records.append(record(parse(line.rstrip(b"\r\n"), Place(file))))
        except OSError as error:
            raise BadInput(f"cannot be read ({error.strerror})", file=file, hint="check its permissions") from None
        except BadInput as error:
            raise error.at(file=file) from None
        return offset, [item for item in records if item.validator == self.validator]

    def _offsets(self) -> dict[str, int]:
        """File of evidence, and how it begins → up to where it is signed; nothing if that cannot be read."""
        return {name: end for name, end in load_note(self.note_file).items() if type(end) is int}


def _parts(records: Sequence[Evidence]) -> Iterator[Sequence[Evidence]]:
    for begin in range(0, len(records), _AT_ONCE):
        yield records[begin : begin + _AT_ONCE]


def _beginning(file: Path) -> str:
    """Identify a file of evidence by the digest of its first line: lines are only added, so it stays the same."""
    try:
        with file.open("rb") as opened:
            return sha256(opened.readline(LINE_BYTES)).hexdigest()[:16]
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=file, hint="check its permissions") from None


def _move(file: Path, place: Path) -> None:
    """Move a batch to another folder of the spool. Raises BadInput."""
    try:
        place.mkdir(exist_ok=True)
        file.replace(place / file.name)
        flush_folder(place)
    except OSError as error:
        raise BadInput(f"cannot be moved ({error.strerror})", file=file, hint="check permissions and space") from None
