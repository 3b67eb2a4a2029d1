"""The judging of a cell on another machine: the errand that a judge hands to an engine, and the reply that it gets back.

    judge ─Errand─▶ engine ─▶ a station on some node ─reply, files─▶ engine ─Heard─▶ judge

- A station is the judge's own object on a node: it is opened once in a process there, and carries out one errand after the other.
- The files of the competition that an errand needs travel as parcels: folders by digest, fetched once by a node.
- An engine decides where an errand is carried out, and carries it out elsewhere if that node is lost. It neither reads evidence
  nor writes it: that is the run's, which holds the validator's lock. So an errand that is carried out twice still counts once.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast

from assay.errors import BadInput
from assay.judge import tree

__all__ = [
    "Claim",
    "Crew",
    "Errand",
    "ErrandDone",
    "ErrandEngine",
    "Gate",
    "Heard",
    "Leases",
    "Needs",
    "Parcel",
    "Station",
    "StationSpec",
    "Ticket",
    "Turn",
]

BOUNDS = tree.Bounds(64 << 30, 1_000_000)
"""The limits of a parcel. Its content was checked by narrower limits when the competition was read."""


@dataclass(frozen=True)
class Parcel:
    """A folder that an errand needs where it is carried out, read-only."""

    digest: str
    """As `tree.digest` computes it."""
    folder: Path


@dataclass(frozen=True)
class Needs:
    """The resources that an errand takes of a node."""

    cpus: float = 1.0
    memory: int = 0
    """Bytes that it may use at most; 0: next to nothing."""
    gpus: int = 0
    sandbox: bool = False
    """Whether untrusted programs run in it."""


@dataclass(frozen=True)
class Errand:
    """One thing to be carried out on some node. payload: what can be pickled."""

    payload: Any
    seconds: float
    """After so long it is taken for lost."""
    needs: Needs = Needs()
    parcels: Mapping[str, Parcel] = field(default_factory=dict)
    """By the names that the station knows them by."""


@dataclass(frozen=True)
class StationSpec:
    """The station that carries errands out: `module:name` of a callable that gets the settings, which can be pickled."""

    entry: str
    settings: Any
    rate: int | None = None
    """Most requests a minute of all stations together, of those that ask their `Gate`; None: as many as the service takes."""
    asks: bool = True
    """Whether its stations ask their `Gate`."""

    def open(self, home: Path, gate: Gate) -> Station:
        """The station. home: an empty folder for it alone. Raises AssayError."""
        module, _, name = self.entry.partition(":")
        return cast("Station", getattr(import_module(module), name)(self.settings, home, gate))


@dataclass(frozen=True)
class ErrandDone:
    """A station's reply to an errand. cpu: seconds of the processor that it took."""

    reply: Any
    cpu: float = 0.0


Ticket = tuple[str, float]
"""The name of the bucket that gave it, and the time that it is for."""


class Turn(NamedTuple):
    """The turn of a request at a service."""

    seconds: float
    """Until then; 0: now."""
    ticket: Ticket
    """To be shown after the wait: the turn is booked, and only a pause moves it."""


class Gate(Protocol):
    """The one door to a service for all stations of a run, on whichever machine: so its rate limit holds for all together."""

    def turn(self, ticket: Ticket | None = None) -> Turn:
        """The turn of the next request. ticket: of a request that waited for its turn."""

    def pause(self, seconds: float) -> None:
        """The service asked for so many seconds without a request: it gets them from everybody."""


class Station(Protocol):
    """A judge on a node."""

    def carry_out(self, payload: Any, places: Mapping[str, Path], folder: Path, seconds: float) -> ErrandDone:
        """Carry out one errand. places: where its parcels are. folder: an empty one, whose content goes back with the reply.

        Raises AssayError: InfrastructureError and Unreachable for what another attempt may mend, BadInput for what none will.
        """

    def close(self) -> None:
        """Give up what goes on, and clear up."""


@dataclass(frozen=True)
class Heard:
    """The end of an errand: a reply with its files, or why there is none. final: another attempt would not help."""

    number: int
    reply: Any = None
    files: bytes = b""
    trouble: str = ""
    final: bool = False


class Crew(Protocol):
    """The workers that carry out the errands of one run."""

    def idle(self) -> bool:
        """Whether one more errand may be sent: as many are under way as keep all nodes busy, and not more."""

    def send(self, number: int, errand: Errand) -> None:
        """Have an errand carried out; `hear` returns its end later, under its number."""

    def hear(self, seconds: float) -> Iterator[Heard]:
        """The errands that end within so many seconds."""

    def close(self, *, now: bool) -> None:
        """Give up what goes on, and clear up after it; now: without waiting for that."""

    def remarks(self) -> Iterable[str]:
        """Sentences on other events of the run, after the end."""


class ErrandEngine(Protocol):
    """An engine that carries out the errands of runs. Without one a run uses this machine."""

    def crew(self, spec: StationSpec) -> Crew:
        """Open a crew. Raises AssayError."""


Claim = Literal["ours", "held", "done"]


class Leases(Protocol):
    """The claims on cells by several drivers of one validator that share a ledger. See `ledger.leases`."""

    def claim(self, key: tuple[object, ...]) -> Claim:
        """Take a cell, by its key: `held` if another driver has it now, `done` if the ledger has its record."""

    def held(self, keys: Collection[tuple[object, ...]]) -> Collection[tuple[object, ...]]:
        """The cells, out of some, that another driver still has: one look at all of them, which claims none."""

    def renew(self) -> None:
        """Keep what was claimed, when it is time."""

    def holds(self, key: tuple[object, ...]) -> bool:
        """Whether a claim still stands: not if this driver was silent for too long, and another one took it."""

    def release(self, key: tuple[object, ...]) -> None:
        """Give a cell up that was not judged."""


def pack(folder: Path) -> bytes:
    """The content of a folder as a tar archive; nothing for an empty one. Raises OSError."""
    names = sorted(folder.iterdir())
    if not names:
        return b""
    file = io.BytesIO()
    with tarfile.TarFile(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in names:
            _add(archive, path, path.name)
    return file.getvalue()


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a file or a folder with its content. `tarfile` looks up the names of each one's owner and group, which takes long."""
    status = path.lstat()
    member = tarfile.TarInfo(name)
    member.mode, member.mtime = stat.S_IMODE(status.st_mode), status.st_mtime
    if stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
        for child in sorted(os.listdir(path)):
            _add(archive, path / child, f"{name}/{child}")
    elif stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        member.size = status.st_size
        with path.open("rb") as content:
            archive.addfile(member, content)
    else:  # a link, which is rare: of a file with several names, the archive has the content once
        archive.add(path, name, recursive=False, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without its owner, whom nobody needs there."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(archive: bytes, folder: Path) -> None:
    """Put the content of an archive into an existing empty folder; nothing of it lands outside. Raises BadInput and OSError.

    `tarfile` takes four times as long, since it resolves each path twice. Here no link exists until everything else is in place.
    """
    if not archive:
        return
    links: list[tarfile.TarInfo] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            for member in opened:
                place = folder / _inside(member.name)
                if member.isdir():
                    place.mkdir(mode=0o700)
                elif member.isreg():
                    _write(place, memoryview(archive)[member.offset_data :][: member.size], member.mode & 0o777)
                elif member.issym() or member.islnk():
                    links.append(member)
                else:
                    raise tarfile.TarError(f"{member.name!r} is no file, folder or link")
            for member in links:
                _link(folder, member)
            for member in reversed(opened.getmembers()):
                if member.isdir():
                    (folder / member.name).chmod(member.mode & 0o777)
    except tarfile.TarError as error:
        raise BadInput(f"an archive from another machine cannot be unpacked: {error}", file=folder) from None


def _inside(name: str) -> str:
    if name.startswith("/") or ".." in name.split("/"):
        raise tarfile.TarError(f"{name!r} would be outside of the folder")
    return name


def _write(place: Path, content: memoryview, mode: int) -> None:
    number = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(number, "wb") as file:
        file.write(content)
        os.fchmod(number, mode)


def _link(folder: Path, member: tarfile.TarInfo) -> None:
    """Make a link, which must lead to something inside of the folder."""
    place = folder / member.name
    if member.islnk():
        os.link(folder / _inside(member.linkname), place, follow_symlinks=False)
        return
    place.symlink_to(member.linkname)
    if os.path.isabs(member.linkname) or not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(folder)):
        place.unlink()
        raise tarfile.TarError(f"{member.name!r} is a link to the outside of the folder")
