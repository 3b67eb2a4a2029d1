"""`assay run --sign`: what was judged, signed and added to the ledger; with an engine while it is judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from assay.errors import BadInput, brief

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.judge.running import RunEvent, Tell
    from assay.ledger.batch import Batch
    from assay.ledger.config import Config
    from assay.ledger.leases import CellLeases
    from assay.ledger.signing import Late
    from assay.ledger.store import Elsewhere, NotALedger, Submission

__all__ = ["SharedRun", "Signing"]

_EVERY = 5.0
"""Seconds between two additions to the ledger while a run goes on."""
_PART = 20
"""They take at most this part of the run's time."""


class Signing:
    """A validator's key and the ledger that its evidence goes to; both are looked at before anything is judged.

    away: why the ledger is not here, if it is not: then batches are written, to be sent to whoever has it.
    """

    def __init__(self, folder: Path, validator: str | None, name: str) -> None:
        from assay.cli.errors import warn
        from assay.cli.ledger.keys import asking
        from assay.ledger import config, intake, keys, signing
        from assay.ledger.leases import patiently
        from assay.ledger.store import NotALedger

        settings = config.read(folder)
        self.folder, self.signer, file = folder, keys.load(name, asking()), folder / "validators.csv"
        known = intake.keys_of(folder)
        if validator is None:
            validator = signing.validator_of(self.signer.public, dict.fromkeys(known), file)
        self.validator, key = validator, known.get(validator)
        if key is None:
            raise BadInput(f"there is no validator {brief(validator)}", file=file, hint="say its key, or its name in that file")
        if isinstance(key, BadInput):
            raise key.at(file=file)
        if key != self.signer.public:
            what = f"is the key {self.signer.public}, not that of the validator {validator!r}"
            raise BadInput(what, field="sign", hint="sign with the validator's own key: `assay keys list`")
        self.settled: int | None = None
        replaced: list[Submission] = []
        self.away: Elsewhere | NotALedger | None = None
        try:
            self.settled, self.away, replaced = patiently(lambda: _standing(settings, self.validator))
        except NotALedger as error:
            if error.file is None or Path(error.file).exists():
                raise
            self.away = error
        self.published = None if self.away is None else signing.published(settings)
        self.settled = max((epoch for epoch in (self.settled, self.published) if epoch is not None), default=None)
        warn(
            f"{folder / 'participants.csv'} is older than the ledger: {record.participant} handed in {record.submission}, "
            "which is not judged here; get the operator's file, and the submission"
            for record in replaced
        )

    @property
    def epoch(self) -> int | None:
        """The epoch that evidence is for, if nothing else says: the first that is open; None before anything is settled."""
        return None if self.settled is None else self.settled + 1

    def add(self, epoch: int | None = None) -> RenderableType:
        """Sign the validator's evidence of the epochs that are open, and what came too late for others; say how much was new.

        Where the ledger is not here, files are written to be sent: of the epochs from `epoch` on, or of those that are open as
        far as that is known. The records that the ledger has are not known.
        """
        from assay.cli.show import sentence
        from assay.ledger import signing
        from assay.ledger.leases import patiently

        if self.away is not None:
            batches = signing.sign_folder(self.folder, self.signer) if self._written() else []
            first = (0 if self.settled is None else self.settled + 1) if epoch is None else epoch
            return self._to_be_sent([batch for batch in batches if batch.statement.epoch >= first], named=epoch is not None)
        new, late = patiently(self._accepted) if self._written() else (0, None)
        line = f"{new} {'record' if new == 1 else 'records'} signed and added to the ledger"
        if late is not None and late.chosen:
            line += f"; {late.chosen} of an epoch that was settled before, signed for epoch {late.epoch}"
        if late is not None and late.outdated:
            line += f"; {late.outdated} of an epoch that was settled before are of another task set, and count no more"
        return sentence(f"{line}.")

    def _accepted(self) -> tuple[int, Late | None]:
        """Sign what is written, and have the ledger take it; how many records were new, and what came too late."""
        from assay.ledger import config, intake, signing
        from assay.ledger.access import open_store

        known = intake.intake_rules(self.folder)
        with open_store(config.read(self.folder)) as database:
            with database.reading() as view:
                late = signing.late_in(view, database.meta.key)
                batches = signing.sign_folder(self.folder, self.signer, late=late)
            new = 0
            for verdict in intake.accept_all(database, batches, known):
                if isinstance(verdict, BadInput):
                    raise verdict
                new += verdict.new
            return new, late

    @contextmanager
    def shared(self, epoch: int | None = None) -> Iterator[SharedRun | None]:
        """A run that several machines may share, while it goes on; None where the ledger is not here. Raises StoreError."""
        if self.away is not None:
            yield None
            return
        from assay.ledger import config
        from assay.ledger.leases import CellLeases, patiently
        from assay.scheme.load import read

        holder, rules = _holder(self.folder, self.validator), read(self.folder / "scheme.toml").consensus
        oldest = rules.oldest(epoch or self.epoch or 0)
        with patiently(lambda: CellLeases(config.read(self.folder), self.validator, holder, oldest=oldest)) as leases:
            yield SharedRun(leases, lambda: self.add(epoch))
            self.add(epoch)  # before the leases go

    def _to_be_sent(self, batches: list[Batch], *, named: bool) -> RenderableType:
        """Write the batches into batches/, and say what to do with them; named: whether the validator named the epoch."""
        from rich.console import Group

        from assay.cli.show import command, sentence
        from assay.ledger import signing

        why = f"The ledger is not here: {self.away.where}: {self.away.what}." if self.away is not None else ""
        if not batches:
            return sentence(f"{why} There is nothing to be sent.")
        files = signing.write(batches, self.folder / "batches")
        count = sum(batch.statement.count for batch in batches)
        signed = f"{count} {'record' if count == 1 else 'records'} signed, not added to a ledger."
        following = command("Send these files to the operator, who adds them", "assay", "evidence", "add", "DIR", *files)
        of = [] if named else [sentence(signing.of_open(sorted({batch.statement.epoch for batch in batches}), self.published))]
        return Group(sentence(f"{why} {signed}"), *of, following)

    def _written(self) -> bool:
        """Whether the validator has any evidence: a run that was stopped at once has none."""
        word = self.validator.encode()
        return any(word in path.read_bytes() for path in (self.folder / "evidence").glob("*.jsonl"))


class SharedRun:
    """A run whose results go to the ledger as they come, so that another machine sees what is done."""

    def __init__(self, leases: CellLeases, add: Callable[[], object]) -> None:
        self.leases = leases
        self._add = add
        self._next = time.monotonic() + _EVERY

    def heard(self, tell: Tell) -> Tell:
        """`tell`, and now and then an addition to the ledger after a result."""

        def report(event: RunEvent) -> None:
            tell(event)
            began = time.monotonic()
            if event.kind == "ended" and began >= self._next:
                self._add()
                self._next = time.monotonic() + max(_EVERY, _PART * (time.monotonic() - began))

        return report


def _standing(settings: Config, validator: str) -> tuple[int | None, Elsewhere | None, list[Submission]]:
    """The epoch settled last, why the ledger is not here, and the submissions that the folder has an older version of.

    Raises Forbidden for a database whose user may add evidence of another validator only.
    """
    from assay.ledger import intake
    from assay.ledger.access import open_store

    with open_store(settings) as database, database.reading() as view:
        database.check_author(validator)
        return view.settled_epoch(), database.elsewhere(), intake.replaced(view, settings.folder)


def _holder(folder: Path, validator: str) -> str:
    """The holder of the leases of a validator's runs in a folder: the same name whenever one goes on there."""
    from assay.folder.files import write_text
    from assay.judge import run_files

    file = folder / "judging" / run_files.segment(validator) / "holder"
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, f"{token_hex(16)}\n")
        return file.read_text(encoding="ascii").strip()
