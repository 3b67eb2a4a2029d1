"""Bring a validator's folder up to what its service has: rules and registry, the task set, and the submissions to judge.

1. `work` says what counts, by digest. 2. Everything is fetched beside the folder, and checked there: the rules and the task set
against `work`, each task against its pin, each submission against its digest. 3. Submissions are put in their places, then the
tasks, then the tables. So a pull that stops anywhere leaves a folder that the next pull completes, and nothing unchecked.

Downloads go on where they broke off. A service is a peer: an archive from it may hold only plain files, folders, and links that
stay inside.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from assay.errors import BadInput, Unreachable, brief
from assay.exact import canonical, digest
from assay.folder import csvs, registry
from assay.folder.files import Place, flush_folder, write_all, write_bytes
from assay.folder.strict import load_note
from assay.judge import tree
from assay.judge.submitting import flush
from assay.judge.terminal.competition import TASKS, Manifest, read_manifest
from assay.ledger import config, signing
from assay.ledger.keys import PublicKey
from assay.node import FOLDER
from assay.scheme.load import read as read_scheme
from assay.scheme.model import Scheme
from assay.serve.answers import Work
from assay.serve.client import PAUSES, Client, patiently

__all__ = ["PullResult", "ask_work", "pull", "task_set_of"]

Json = dict[str, Any]
T = TypeVar("T")

_NOTE = "pulled.json"
_NAME = re.compile(r"[a-z]{1,40}\.(toml|csv|txt)", re.ASCII)
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_SERVICE = "the service may run another version of Assay, or its folder is changing: try again, then ask its operator"
_ENTRIES = 1_000_000
"""The most entries of an archive."""


@dataclass(frozen=True)
class PullResult:
    """The result of a pull: the work that the service named, and what is new in the folder."""

    work: Work
    tables: tuple[str, ...] = ()
    """Files of rules and registry that changed."""
    tasks: int = 0
    """The number of tasks in the new task set; 0: it is the one that was here."""
    submissions: tuple[str, ...] = ()
    """Participants whose submissions were fetched."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Participant → why the submission could not be fetched."""

    @property
    def document(self) -> Json:
        """The result, for programs."""
        return {
            "epoch": self.work.epoch,
            "settled": self.work.settled,
            "assigned": sum(row.assigned for row in self.work.submissions),
            "counting": len(self.work.submissions),
            "tables": list(self.tables),
            "tasks": self.tasks,
            "submissions": list(self.submissions),
            "absent": dict(self.absent),
        }


def ask_work(client: Client, pauses: Sequence[float] = PAUSES) -> Work:
    """Ask the service what there is to judge now. Raises Unreachable, and BadInput where it refuses."""
    answer = patiently(lambda: client.get("work"), pauses)
    try:
        return Work.model_validate(answer)
    except ValueError:
        raise Unreachable(
            f"{client.base} does not say what to judge as this version expects", final=True, hint=_SERVICE
        ) from None


def task_set_of(folder: Path) -> str | None:
    """The digest of the task set in a folder; None if it has none, or no rules yet. Raises BadInput."""
    if not (folder / "scheme.toml").exists():
        return None
    scheme = read_scheme(folder / "scheme.toml")
    listed = registry.task_set(folder, scheme) if (folder / "tasks.txt").exists() else None
    return None if listed is None else listed.digest


def pull(client: Client, folder: Path, key: PublicKey, *, pauses: Sequence[float] = PAUSES) -> PullResult:
    """Fetch what is new. key: the validator's, who must be in the registry.

    A submission that cannot be fetched does not stop the others. Raises BadInput for a folder that is of another competition or
    has the ledger itself, and for rules or tasks that are not as their digest says; Unreachable. Then these are as they were.
    """
    _check_ours(folder)
    place = folder / FOLDER
    try:
        place.mkdir(parents=True, exist_ok=True)
        for left in place.glob("new-*"):  # of a pull that was killed
            tree.remove(left)
    except OSError as error:
        raise _cannot_write(folder, error) from None
    with TemporaryDirectory(prefix="new-", dir=place) as beside:
        return _ServicePull(client, folder, Path(beside), pauses).carry_out(key)


class _ServicePull:
    """One pull. beside: a new folder on the same disk, which is removed afterwards."""

    def __init__(self, client: Client, folder: Path, beside: Path, pauses: Sequence[float]) -> None:
        self.client, self.folder, self.beside, self.pauses = client, folder, beside, pauses
        self.note_file = folder / FOLDER / _NOTE
        self.note = load_note(self.note_file)  # empty: everything is looked at anew

    def carry_out(self, key: PublicKey) -> PullResult:
        work, files = self._agreeing()
        scheme = self._check_tables(work, files, key)
        tasks = self._new_tasks(work, scheme)
        fetched, absent = self._submissions(work, scheme)
        count = 0 if tasks is None else self._put_tasks(tasks)
        changed = self._put_tables(files)
        note = {"files": sorted(files), "folder": work.folder, "task_set": work.task_set}
        if note != self.note:
            write_bytes(self.note_file, canonical(note) + b"\n")
        return PullResult(work, changed, count, fetched, absent)

    def _agreeing(self) -> tuple[Work, Mapping[str, str]]:
        """Ask for the work, and for the files whose digest it names. The folder may change between the two answers."""
        for _ in range(5):
            work = ask_work(self.client, self.pauses)
            answer = patiently(lambda: self.client.get("folder"), self.pauses)
            files = answer.get("files") if isinstance(answer, dict) else None
            if isinstance(files, dict) and all(isinstance(text, str) for text in files.values()) and digest(files) == work.folder:
                return work, files
        raise Unreachable(f"{self.client.base} hands out other rules than those that it names", hint=_SERVICE)

    def _check_tables(self, work: Work, files: Mapping[str, str], key: PublicKey) -> Scheme:
        """Read the files as a competition's, beside the folder; returns the rules. Raises BadInput."""
        for name, text in files.items():
            if not _NAME.fullmatch(name):
                raise BadInput(f"the service hands out a file {brief(name)}", hint=_SERVICE)
            (self.beside / name).write_text(text, encoding="utf-8", newline="")
        scheme = read_scheme(self.beside / "scheme.toml")
        if scheme.digest != work.scheme:
            raise BadInput(f"the rules have the digest {scheme.digest}, and the service says {work.scheme}", hint=_SERVICE)
        before = self.folder / "scheme.toml"
        if before.exists() and (name := read_scheme(before).name) != scheme.name:
            hint = "give each competition a folder of its own"
            raise BadInput(f"is of the competition {name!r}, and the service's is {scheme.name!r}", file=self.folder, hint=hint)
        if config.exists(self.folder) and config.read(self.folder).origin != (origin := config.read(self.beside).origin):
            raise BadInput(f"is for another log than {origin!r}", file=self.folder / config.FILE, hint="use another folder")
        people, judges = (self.beside / table.name for table in (csvs.PARTICIPANTS, csvs.VALIDATORS))
        participants = registry.participants(csvs.read(people, csvs.PARTICIPANTS), Place(people), scheme)
        rows = registry.validators(csvs.read(judges, csvs.VALIDATORS), Place(judges), len(participants))
        signing.validator_of(key, {row.key: None for row in rows}, judges)
        listed = registry.task_set(self.beside, scheme)
        if listed is not None and listed.digest != work.task_set:
            raise BadInput(f"the task set has the digest {listed.digest}, and the service says {work.task_set}", hint=_SERVICE)
        return scheme

    # Tasks

    def _new_tasks(self, work: Work, scheme: Scheme) -> Path | None:
        """A folder with the tasks, each as tasks.txt pins it; None if they are in the folder already."""
        if work.task_set is None or not scheme.kind.has_tasks(self.beside, scheme.score):
            return None
        manifest = read_manifest(self.beside / "tasks.txt")
        known = self.folder / TASKS
        if self.note.get("task_set") == work.task_set and known.is_dir() and all(pin.digest for pin in manifest.pins):
            return None
        with suppress(BadInput, tree.TreeError, OSError):
            if all(pin.digest for pin in manifest.pins):
                _check_pins(known, manifest)
                return None
        archive = self._fetched(f"tasks/{work.task_set}/content", f"tasks-{work.task_set[7:]}.tar", whole=True)
        unpacked = self.beside / "set"
        _unpack(archive, unpacked)
        archive.unlink()
        tasks = unpacked / TASKS
        _check_pins(tasks, manifest)
        return tasks

    def _put_tasks(self, tasks: Path) -> int:
        """Put the new set in the place of the old one. In between there is none, which the next pull would notice."""
        count = sum(1 for _ in tasks.iterdir())
        try:
            flush(tasks)
            self.note_file.unlink(missing_ok=True)
            if os.path.lexists(self.folder / TASKS):
                (self.folder / TASKS).rename(self.beside / "former")
            tasks.rename(self.folder / TASKS)
            flush_folder(self.folder)
        except OSError as error:
            raise _cannot_write(self.folder / TASKS, error) from None
        return count

    # Submissions

    def _submissions(self, work: Work, scheme: Scheme) -> tuple[tuple[str, ...], dict[str, str]]:
        """Fetch those that are this validator's and are not here; returns whose, and for whom it did not work and why."""
        fetched: list[str] = []
        absent: dict[str, str] = {}
        if scheme.kind.record.by_participant:  # nothing of theirs is run
            return (), {}
        for row in work.submissions:
            if not row.assigned or self._has(scheme, row.submission):
                continue
            try:
                self._submission(scheme, row.submission)
            except Unreachable as error:
                ask_work(self.client, ())  # the service is there: what it cannot give now is this submission
                absent[row.participant] = str(error)
            except (BadInput, tree.TreeError) as error:
                absent[row.participant] = str(error)
            else:
                fetched.append(row.participant)
        return tuple(fetched), absent

    def _has(self, scheme: Scheme, submission: str) -> bool:
        try:
            return scheme.kind.has(self.folder, submission)
        except BadInput:  # its files were damaged here
            return False

    def _submission(self, scheme: Scheme, submission: str) -> None:
        if not _DIGEST.fullmatch(submission):
            raise BadInput(f"{brief(submission)} is not the digest of files", hint="its operator hands it in again")
        archive = self._fetched(f"submissions/{submission}/content", f"submission-{submission[7:]}.tar")
        unpacked = self.beside / submission[7:]
        try:
            _unpack(archive, unpacked)
            scheme.kind.put(self.folder, submission, unpacked)
        finally:
            tree.remove(unpacked)
            archive.unlink()

    def _fetched(self, path: str, name: str, *, whole: bool = False) -> Path:
        """Download a file. whole: its ETag is its SHA-256, which is checked."""
        target = self.folder / FOLDER / name
        tag = patiently(lambda: self.client.fetch(path, target), self.pauses)
        with target.open("rb") as file:
            if whole and file_digest(file, "sha256").hexdigest() != tag:
                target.unlink()
                raise Unreachable(f"{self.client.base} sent another file than it names", hint="try again")
        return target

    # Tables

    def _put_tables(self, files: Mapping[str, str]) -> tuple[str, ...]:
        """Write the files that are new or changed, the rules last; returns their names."""
        former = [name for name in self.note.get("files", ()) if name not in files and _NAME.fullmatch(name)]
        new = {name: text.encode() for name, text in sorted(files.items(), key=lambda row: row[0] == "scheme.toml")}
        changed = [name for name, data in new.items() if _content(self.folder / name) != data]
        write_all([(self.folder / name, new[name]) for name in changed])
        for name in former:
            with suppress(OSError):
                (self.folder / name).unlink(missing_ok=True)
        return (*changed, *former)


def _check_ours(folder: Path) -> None:
    """Refuse the operator's own folder, which is the origin of what a pull would write."""
    if config.exists(folder) and config.read(folder).is_here:
        hint = "pull into another folder, or judge right here: assay run"
        raise BadInput("has the competition's ledger, so there is nothing to pull", file=folder, hint=hint)


def _check_pins(tasks: Path, manifest: Manifest) -> None:
    """Refuse a set in which a task is missing, or is not the one that is pinned. Raises BadInput, OSError."""
    for pin in manifest.pins:
        place = tasks / pin.id
        if not place.is_dir() or "/" in pin.id or pin.id in (".", ".."):
            raise BadInput(f"the task {pin.id!r} is not in the set that the service sent", hint=_SERVICE)
        if pin.digest not in (None, digest_here := tree.digest(place)):
            raise BadInput(f"the task {pin.id!r} has the digest {digest_here}, and {pin.digest} is pinned", hint=_SERVICE)


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _cannot_write(place: Path, error: OSError) -> BadInput:
    return BadInput(f"cannot be written ({error.strerror})", file=place, hint="check permissions and space")


def _unpack(archive: Path, target: Path) -> None:
    """Unpack a tar of plain files, folders and links that stay inside. Raises BadInput for every other one, and where it fails.

    Links are made last, so nothing is ever written through one.
    """
    links: list[tuple[Path, str]] = []
    try:
        target.mkdir()
        with closing(tarfile.open(archive, "r:")) as opened:
            for number, entry in enumerate(opened):
                path = _inside(entry.name)
                if path is None or number >= _ENTRIES:
                    raise _refused(f"has an entry {brief(entry.name)}")
                if entry.isdir():
                    (target / path).mkdir(parents=True, exist_ok=True)
                elif entry.issym() and tree.stays_inside(entry.linkname, len(path.parts) - 1):
                    links.append((target / path, entry.linkname))
                elif entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    _write(opened, entry, target / path)
                else:
                    raise _refused(f"has {brief(entry.name)}, which is neither a file, a folder, nor a link that stays inside")
        _link(links)
    except (tarfile.TarError, EOFError):
        raise _refused("cannot be read") from None
    except FileExistsError as error:
        raise _refused(f"has {brief(str(error.filename))} twice") from None
    except OSError as error:
        raise _cannot_write(target, error) from None


def _write(opened: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = opened.extractfile(entry)
    assert source is not None  # it is a plain file
    with path.open("xb") as file:
        shutil.copyfileobj(source, file, 2**20)
        os.fchmod(file.fileno(), 0o755 if entry.mode & 0o100 else 0o644)


def _link(links: Iterable[tuple[Path, str]]) -> None:
    rows = list(links)
    for path, _ in rows:
        path.parent.mkdir(parents=True, exist_ok=True)
    for path, leads in rows:
        path.symlink_to(leads)


def _inside(name: str) -> PurePosixPath | None:
    """The path of an entry; None for one that is not plainly below the top."""
    path = PurePosixPath(name)
    plain = name and not path.is_absolute() and path.parts and ".." not in path.parts and "\0" not in name
    return path if plain else None


def _refused(what: str) -> BadInput:
    return BadInput(f"the archive that the service sent {what}", hint=_SERVICE)
