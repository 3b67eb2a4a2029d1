"""A season for tests: an operator and validators in processes of their own, participants who hand in, and the season by hand.

What a participant or a validator was told is there (`acknowledged`) is kept here, outside the operator's folder. At the end the
ledger must have all of it, and `by_hand` settles it again in folders without a ledger: the operator's settlements are the same.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import assay
import ledger_kit
from assay.errors import Unreachable
from assay.exact import canonical
from assay.ledger import batch, config, log, store
from assay.ledger.access import stored_settlement
from assay.ledger.check import EMPTY_ROOT
from assay.ledger.config import Config
from assay.ledger.keys import PrivateKey
from assay.ledger.log import Log
from assay.records import Evidence
from assay.scheme.fields import instant_text
from assay.scheme.load import read as read_scheme
from assay.serve.archives import ARCHIVE, pack
from assay.serve.client import Client
from ledger_kit import SIGNER, VALIDATORS
from node_kit import PATIENCE
from test_serve_process import children

Json = dict[str, Any]
LOG_KEY, NAMES = "log", ("val-1", "val-2", "val-3")
"""The names of the key files: of the log, and of the validators."""
LONG = 300.0
"""Seconds for what takes an epoch, or for a node to try again; a machine may be busy."""


def keys_in(place: Path) -> Path:
    """A folder with the keys of the log and of the three validators, as ASSAY_KEYS names it."""
    place.mkdir()
    for name, seed in {LOG_KEY: b"77" * 32, **{name: b"%02d" % n * 32 for n, name in enumerate(NAMES, 1)}}.items():
        (place / f"{name}.key").write_bytes(seed)
        (place / f"{name}.key").chmod(0o600)
    return place


def with_ledger(place: Path, database: str) -> Path:
    """Give a competition's folder an empty ledger in a database, and the three validators."""
    (place / "validators.csv").write_text(ledger_kit.NAMES)
    key = log.log_key(ledger_kit.ORIGIN, SIGNER.public)
    settings = Config(place, ledger_kit.ORIGIN, str(key), database)
    store.create(settings.place, store.Meta(read_scheme(place / "scheme.toml").name, settings.origin, settings.key)).close()
    Log.create(settings.tiles, key, log.sign_checkpoint(0, EMPTY_ROOT, key, SIGNER))
    config.write(settings)
    return place


def clock_from_now(place: Path, every: str, grace: str) -> None:
    """Epoch 1 begins now."""
    start = instant_text(datetime.now(UTC).replace(microsecond=0))
    with (place / "scheme.toml").open("a") as scheme:
        scheme.write(f'[epoch]\nevery = "{every}"\nstart = "{start}"\ngrace = "{grace}"\n')


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


@dataclass
class KeptProcess:
    """A program that is kept running, as systemd would. command: its words; out: where it prints."""

    name: str
    command: Sequence[str]
    out: Path
    running: subprocess.Popen[str] | None = None
    kills: int = 0

    def start(self) -> None:
        with self.out.open("a") as out:
            self.running = subprocess.Popen(self.command, stdout=out, stderr=out, text=True)

    def kill(self) -> None:
        """As by a power cut: no warning, no clean end."""
        assert self.running is not None
        self.running.kill()
        self.running.wait()
        self.kills += 1

    def kill_parts(self) -> None:
        """Kill the processes that it has begun."""
        assert self.running is not None
        for child in children(self.running.pid):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self.kills += 1

    def stop(self) -> int:
        """SIGTERM, and wait for the end; the exit code."""
        assert self.running is not None
        self.running.terminate()
        try:
            return self.running.wait(PATIENCE)
        finally:
            self.end()

    def end(self) -> None:
        """Kill it, if it runs still."""
        if self.running is not None:
            self.running.kill()
            self.running.wait()

    def ended(self) -> bool:
        return self.running is None or self.running.poll() is not None


def operator(place: Path, port: int, *options: str, prefix: Sequence[str] = ()) -> KeptProcess:
    command = [*prefix, sys.executable, "-m", "assay", "node", "operator", str(place), "--key", LOG_KEY, "--port", str(port)]
    return KeptProcess("operator", [*command, *options], place.with_suffix(".out"))


def validator(folder: Path, url: str, key: str, *options: str, prefix: Sequence[str] = ()) -> KeptProcess:
    command = [*prefix, sys.executable, "-m", "assay", "node", "validator", str(folder), "--url", url, "--key", key]
    return KeptProcess(folder.name, [*command, *options], folder.with_suffix(".out"))


@dataclass
class SeasonParticipants:
    """Who hands in, and what the service told them.

    keys: participant → the key that signs. meanwhile: what is done before the same is sent again.
    """

    url: str
    keys: Mapping[str, PrivateKey]
    acknowledged: list[Json] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: time.sleep(0.2)

    def hand_in(self, participant: str, agent: Path) -> None:
        """Hand in an agent's folder, again and again until it is acknowledged; what is refused raises BadInput."""
        packed, end = io.BytesIO(), time.monotonic() + LONG
        pack(agent, packed, compressed=True)
        while True:
            try:
                with Client(self.url, self.keys[participant]) as client:
                    answer = client.send("PUT", "submissions", packed.getvalue(), ARCHIVE)
                break
            except Unreachable:
                assert time.monotonic() < end, f"{self.url} takes nothing of {participant}"
                self.meanwhile()
        assert answer["participant"] == participant
        self.acknowledged.append(answer)

    def latest(self, epoch: int) -> dict[str, Json]:
        """Participant → what was acknowledged last in the epochs up to one."""
        return {row["participant"]: row for row in self.acknowledged if row["epoch"] <= epoch}


def sent(folders: Sequence[Path]) -> list[batch.Batch]:
    """The batches of which validators were told that the service has them."""
    return [batch.read(file) for folder in folders for file in sorted((folder / "batches" / "sent").glob("*.batch"))]


def settlements(place: Path) -> dict[int, bytes]:
    """Epoch → its settlement, as the operator's ledger has it."""
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        by_epoch = {epoch: view.settlement(epoch) for epoch in view.settled_epochs()}
    return {epoch: settled.document for epoch, settled in by_epoch.items() if settled is not None}


def submitted(place: Path) -> set[tuple[str, str, int]]:
    """(participant, submission, epoch) of each submission in the operator's ledger."""
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        rows = [row for _, row in view.submissions_after(0)]
    return {(row.participant, row.submission, row.epoch) for row in rows}


def batches_in(place: Path) -> set[str]:
    """The digest of each batch in the operator's ledger."""
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        return {row.digest for row in view.batches()}


def all_judged(place: Path, people: SeasonParticipants, tasks: int) -> bool:
    """Whether each of the three validators has sent its results of what each participant handed in last."""
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        rows = [json.loads(row.body) for row in view.records()]
    there = {(row["validator"], row["submission"], row["task"]) for row in rows}
    wanted = {row["submission"] for row in {row["participant"]: row for row in people.acknowledged}.values()}
    return all(sum(row[:2] == (name, each) for row in there) == tasks for name in VALIDATORS for each in wanted)


def by_hand(
    place: Path, into: Path, people: SeasonParticipants, batches: Sequence[batch.Batch], epochs: Sequence[int]
) -> dict[int, bytes]:
    """Epoch → its settlement, computed from what was acknowledged, in a folder without a ledger for each epoch.

    Of the operator's folder only the scheme, the tasks, and the registry of validators of that epoch are used, and of the ledger
    the settlement before the first of these epochs. Who has left the registry sent records that do not count any more.
    """
    documents, there = dict[int, bytes](), settlements(place)
    for epoch in epochs:
        copy = into / f"epoch-{epoch}"
        (copy / "evidence").mkdir(parents=True)
        for name in ("scheme.toml", "tasks.txt"):
            shutil.copy(place / name, copy)
        validators = _write_validators(place, copy, epoch)
        _write_participants(place, copy, people.latest(epoch))
        records = [record for sent in batches if sent.statement.epoch <= epoch for record in sent.records]
        counted = [record for record in records if record.validator in validators]
        (copy / "evidence" / "all.jsonl").write_bytes(b"".join(map(_line, counted)))
        before = documents.get(epoch - 1, there.get(epoch - 1))
        previous = None if before is None else into / f"{epoch - 1}.json"
        if previous is not None and before is not None:
            previous.write_bytes(before)
        documents[epoch] = canonical(assay.open(copy).settle(epoch, previous=previous).document)
    return documents


def _write_validators(place: Path, copy: Path, epoch: int) -> set[str]:
    """Write validators.csv as it was when an epoch was settled, for validators leave and join; returns their keys."""
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        rows = json.loads(stored_settlement(view, epoch)[1])["validators"]
    with (copy / "validators.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["key", "stake", "name"], extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    return {row["key"] for row in rows}


def _line(record: Evidence) -> bytes:
    return canonical(record.document()) + b"\n"


def _write_participants(place: Path, copy: Path, latest: Mapping[str, Json]) -> None:
    with (place / "participants.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (copy / "participants.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["key", "uid", "submission", "submitted_at", "accepted_epoch"])
        table.writeheader()
        for row in rows:
            newest = latest.get(row["key"])
            given = (
                {}
                if newest is None
                else {"submission": newest["submission"], "submitted_at": newest["at"], "accepted_epoch": newest["epoch"]}
            )
            table.writerow({"key": row["key"], "uid": row["uid"], **given})


def status_of(folder: Path) -> Json:
    """What a node says of itself; empty before it has begun."""
    try:
        content = json.loads((folder / "node" / "status.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
