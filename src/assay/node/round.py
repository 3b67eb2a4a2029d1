"""One round of a validator's node: send what waits, fetch what is new, judge it, and send what came of it.

A round is a process of its own, so that a node which waits needs little memory. It ends when nothing is left to do. While it
judges, a thread says so to the service, and sends what is judged already. Everything else is the machinery of `assay run`.

A new task set begins with a new epoch. Evidence on the former one counts no more, so it moves to `former/`, and everything is
judged again. If the operator changes the set while an epoch is open in which this validator has judged, the node waits for the
next epoch: half of an epoch's evidence on each set would count for neither.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.errors import AssayError, BadInput, Unreachable
from assay.judge import judges, run_files
from assay.judge.running import Cell, RunEvent, RunOptions, RunSummary
from assay.ledger.keys import PrivateKey
from assay.node import NodeOptions, fetch, status
from assay.node.heartbeat import beat, is_of_another
from assay.node.spool import BATCHES, LATE, PushResult, Spool, waiting
from assay.records import Record
from assay.scheme.load import read as read_scheme
from assay.scheme.model import Scheme
from assay.serve.answers import Work
from assay.serve.client import Client, patiently
from assay.settle.story.telling import plural

__all__ = ["Round"]

BEAT_SECONDS = 5.0
"""Between two looks at how far the judging is."""
_TOLD, _PUSHED = 6, 12
"""After so many of them it is told to the service, which shows a validator as silent after 90 seconds; and evidence is sent."""
_GOING = 64
"""The most things of a heartbeat."""
_NAMED = 20
"""The most results that are missing which the status names."""


class Round:
    """One round in a folder. tell: prints a line for people. pauses: before it asks again whom it does not reach at first."""

    def __init__(
        self,
        folder: Path,
        url: str,
        signer: PrivateKey,
        options: NodeOptions,
        tell: Callable[[str], None] = lambda line: None,
        pauses: Sequence[float] = (),
    ) -> None:
        self.folder, self.url, self.signer, self.options, self.tell = folder, url, signer, options, tell
        self._pauses = pauses
        self.going: dict[Cell, str] = {}
        self.counts = {"done": 0, "total": 0}
        self.uncalibrated: list[str] = []
        self._pushing = threading.Lock()
        self._away: dict[str, Any] | None = None
        """The note that the service does not answer, and since when."""
        self._displaced: BadInput | None = None
        """The reason that this node is to stop: another one took its key over."""

    def carry_out(self) -> bool:
        """Carry the round out; False if somebody stopped it. Raises AssayError, OSError; what is done until then stays."""
        with Client(self.url, self.signer) as client:
            if (self.folder / "validators.csv").exists():
                Spool(self.folder, self.signer).sign()  # before anything is fetched: a batch names the task set of its records
            patiently(lambda: beat(client, self.folder, take_over=self.options.take_over), self._pauses)
            work = fetch.ask_work(client, ())
            self._note(work, "sending")
            if waiting(self.folder):
                self._push(client)
            if self._waits_for_epoch(work):
                return True
            self._note(work, "fetching")
            pulled = fetch.pull(client, self.folder, self.signer.public)
            scheme = read_scheme(self.folder / "scheme.toml")
            judged_here = judges.exists(scheme.kind.name, None if scheme.judge is None else scheme.judge.use)
            absent = [f"{key}: {why}" for key, why in pulled.absent.items()] if judged_here else []
            looks = judged_here and scheme.kind.record.by_participant  # nothing is handed in: the service has no news of it
            sends_only = (
                f"This node signs and sends what is put into evidence/: nothing here judges the kind {scheme.kind.name!r}."
            )
            remarks = {"waits": None, "sends_only": None if judged_here else sends_only, "in_ledger": None}
            self._note(pulled.work, "judging", absent=absent, looks=looks, **remarks)
            self._tell_pull(pulled)
            summary = self._judge(pulled, scheme) if judged_here else None
            Spool(self.folder, self.signer).sign()  # whether the service still answers or not
            if self._displaced is not None:
                self._push(client)  # or the other node judges it again
                raise self._displaced
            if summary is not None and summary.stopped:
                return False
            self._push(client)
            missing = [] if summary is None else [_named(cell, why) for cell, why in summary.errors[:_NAMED]]
            self._note(pulled.work, "idle", missing=missing, uncalibrated=self.uncalibrated, seen=pulled.work.seen)
        return True

    def _note(self, work: Work, state: str, **more: Any) -> None:
        """Note what the service said just now, and so that it is not away."""
        self._answers()
        heard = {"heard": status.now_text(), "epoch": work.epoch, "settled": work.settled, "task_set": work.task_set}
        status.note(self.folder, state=state, **heard, **more)

    def _tell_pull(self, pulled: fetch.PullResult) -> None:
        new = [*pulled.tables, *([plural(pulled.tasks, "task")] if pulled.tasks else [])]
        new += [f"the submission of {key}" for key in pulled.submissions]
        if new:
            self.tell(f"epoch {pulled.work.epoch}: fetched {', '.join(new)}")
        for key, why in pulled.absent.items():
            self.tell(f"epoch {pulled.work.epoch}: no submission of {key}: {why}")

    # Tasks

    def _waits_for_epoch(self, work: Work) -> bool:
        """Whether the task set changed in an epoch in which something was judged; puts former evidence away otherwise."""
        former = fetch.task_set_of(self.folder)
        if former is None or work.task_set is None or former == work.task_set:
            return False
        validator = Spool(self.folder, self.signer).validator
        evidence = run_files.evidence_file(self.folder, validator)
        if _has_epoch(evidence, work.epoch):
            why = f"The task set changed while epoch {work.epoch} is open."
            waits = f"{why} This node uses the new set from epoch {work.epoch + 1} on; you need do nothing."
            self.tell(waits)
            self._note(work, "waiting", waits=waits, seen=work.seen)
            return True
        scheme = read_scheme(self.folder / "scheme.toml")
        if scheme.kind.trials(scheme.score) is not None:  # where records are about an epoch, those of former ones stay true
            self._put_away(former, validator, evidence)
        return False

    def _put_away(self, task_set: str, validator: str, evidence: Path) -> None:
        """Move what was judged on a former task set to former/, the evidence last: a crash in between is made up for."""
        place = self.folder / "former" / run_files.short(task_set)
        trials = self.folder / "trials" / run_files.segment(validator)
        try:
            for source in (*waiting(self.folder), trials, evidence):
                if not source.exists():
                    continue
                target = place / source.relative_to(self.folder)
                number = 1
                while target.exists():
                    number += 1
                    target = target.with_name(f"{source.name}.{number}")
                target.parent.mkdir(parents=True, exist_ok=True)
                source.rename(target)
        except OSError as error:
            raise BadInput(f"cannot be moved ({error.strerror})", file=error.filename, hint="check permissions") from None
        self.tell(f"there is a new task set: what was judged on the former one is in {place}")

    # Judging

    def _judge(self, pulled: fetch.PullResult, scheme: Scheme) -> RunSummary | None:
        """Judge what has no evidence yet; None if there is nothing that could be judged."""
        work = pulled.work
        judgeable = [row for row in work.submissions if row.assigned and row.participant not in pulled.absent]
        if not judgeable and not scheme.kind.record.by_participant:
            return None
        judge = judges.find(
            scheme.kind.name, None if scheme.judge is None else scheme.judge.use, file=self.folder / "scheme.toml"
        )
        since = work.epoch if work.settled is None else work.settled + 1
        own = self.options.settings(scheme.kind)
        options = RunOptions(
            self.options.jobs or scheme.kind.jobs, work.epoch, since, self.options.attempts,
            participants=tuple(row.participant for row in judgeable) if pulled.absent else (),
            done=frozenset(_in_ledger(work, scheme.kind.record)), own=own,
        )  # fmt: skip
        validator, over = Spool(self.folder, self.signer).validator, threading.Event()
        beating = threading.Thread(target=self._beat, args=(over,), daemon=True)
        beating.start()
        try:
            with self.options.engine() as engine:
                summary = judge(self.folder, validator, replace(options, engine=engine), self._heard)
        finally:
            over.set()
            beating.join()
        in_ledger = None
        if summary.in_ledger:
            in_ledger = f"Not judged again, because the ledger has it from this key: {plural(summary.in_ledger, 'result')}."
            self.tell(f"epoch {work.epoch}: {in_ledger}")
        status.note(self.folder, in_ledger=in_ledger)
        if summary.planned:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in summary.outcomes.items())
            self.tell(f"epoch {work.epoch}: judged {summary.judged} of {summary.planned}" + (f" ({counts})" if counts else ""))
        for cell, why in summary.errors[:_NAMED]:
            self.tell(f"epoch {work.epoch}: missing: {_named(cell, why)}")
        return summary

    def _heard(self, event: RunEvent) -> None:
        if event.kind == "planned":
            self.counts = {"done": 0, "total": event.count}
        elif event.kind == "calibrated" and event.why:
            self.uncalibrated.append(f"{event.phase}: {event.why}; {event.hint}")
        elif event.kind == "began" and event.cell is not None:
            self.going[event.cell] = status.now_text()
        elif event.kind in ("ended", "again") and event.cell is not None:
            self.going.pop(event.cell, None)
            self.counts["done"] += event.kind == "ended"

    def _beat(self, over: threading.Event) -> None:
        """Say what is judged, and send what was, until it is over. A service that does not answer changes nothing."""
        number = 0
        with Client(self.url, self.signer) as client:
            while True:
                status.note(self.folder, **self.counts)
                try:
                    if number % _TOLD == 0:
                        if not self._still_ours(client):
                            return
                        self._answers()
                    if number % _PUSHED == _PUSHED - 1:
                        self._push(client)
                except Unreachable as error:
                    self._away = status.trouble_of(error, self._away)
                    status.note(self.folder, trouble=self._away, away=True)
                except (AssayError, OSError):
                    pass  # the push at the end meets it again, and then it is told
                number += 1
                if over.wait(BEAT_SECONDS):
                    return

    def _answers(self) -> None:
        """Take back that the service is away. Other trouble stands until a round was whole, or each trial of it would be told."""
        self._away = None
        content = status.content_of(self.folder)
        if content.get("away") and content.get("trouble") is not None:
            status.note(self.folder, trouble=None, away=False)

    def _still_ours(self, client: Client) -> bool:
        """Say what is judged; False if another node took the key over: then the judging is stopped. Raises AssayError."""
        try:
            beat(client, self.folder, self._entries())
        except BadInput as error:
            if not is_of_another(error):
                raise
            self._displaced = error
            os.kill(os.getpid(), signal.SIGTERM)  # as SIGTERM to `assay run` does
            return False
        return True

    def _entries(self) -> list[dict[str, Any]]:
        rows = list(self.going.items())[:_GOING]
        return [
            {
                "participant": cell.participant,
                "submission": str(getattr(cell, "submission", "")),
                "task": str(cell.parts.get("task", "")),
                "since": since,
                **self.counts,
            }
            for cell, since in rows
        ]

    # Sending

    def _push(self, client: Client) -> PushResult:
        """Send what waits, for the epoch that is open now: in a long round, epochs are settled. Raises Unreachable, BadInput."""
        with self._pushing:
            epoch = fetch.ask_work(client, ()).epoch
            result = Spool(self.folder, self.signer).push(client, epoch, pauses=())
        refused = [f"{BATCHES}/{row.file.name}: {row.outcome.detail}" for row in result.refused]
        status.note(self.folder, refused=refused)
        if count := sum(row.outcome.conflicts for row in result.sent):
            what = f"{plural(count, 'record')} of epoch {epoch} contradict what this key sent before, and do not count"
            status.note(self.folder, conflicts=f"{what}; use the key in one folder only", contradicted=epoch)
            self.tell(f"{what}: does another node use this key?")
        elif _is_older(status.content_of(self.folder).get("contradicted"), epoch):
            status.note(self.folder, conflicts=None, contradicted=None)  # that epoch is settled, and nothing new contradicts
        for again, late in ((False, ""), (True, ", judged in an earlier epoch")):
            sent = [row.outcome for row in result.sent if row.again is again]
            if sent:
                new, records = sum(row.new for row in sent), sum(row.records for row in sent)
                self.tell(f"epoch {epoch}: sent {plural(records, 'record')}, {new} of them new to the service{late}")
        for row in result.late:
            what = f"{plural(row.outcome.records, 'record')} of epoch {row.outcome.epoch} came too late"
            self.tell(f"{what}: the epoch is settled; they are in {BATCHES}/{LATE}")
        for line in refused:
            self.tell(f"refused: {line}")
        return result


def _in_ledger(work: Work, about: type[Record]) -> Iterator[tuple[object, ...]]:
    """The keys (`Cell.key`) of what this validator need not judge, since the ledger has it. about: the kind's records."""
    for row in work.submissions:
        whose = row.submission if about.shared_key else row.participant
        listed = [(task, trial) for task, trials in row.evidence.trials.items() for trial in trials]
        if not about.parts and row.evidence.records:
            yield (whose,)
        elif {*about.parts} <= {"task", "trial", "epoch"}:
            for task, trial in listed:
                named = {"task": task, "trial": trial, "epoch": work.epoch}
                yield (whose, *(named[part] for part in about.parts))


def _is_older(epoch: object, than: int) -> bool:
    return isinstance(epoch, int) and epoch < than


def _has_epoch(evidence: Path, epoch: int) -> bool:
    """Whether a file of evidence has a record of an epoch. It may be large, so it is read line by line."""
    named = f'"epoch":{epoch},'.encode()
    if not evidence.exists():
        return False
    with evidence.open("rb") as lines:
        return any(named in line for line in lines)


def _named(cell: Cell, why: str) -> str:
    parts = " ".join(str(part) for part in (cell.participant, *cell.parts.values()))
    return f"{parts}: {why}"
