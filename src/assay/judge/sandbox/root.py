"""Makes the root folder of a bubblewrap box, and chooses the user on the host to whom the box belongs.

The owner of a box has no rights on the host:

- If Assay runs as root, the owner is an unused uid from a reserved range, another one for each box. The host refuses whatever
  bubblewrap might let through, and boxes cannot touch each other. A locked file reserves the uid; the lock ends with the process.
- Otherwise the owner is Assay's own user, in a user namespace of the box's own.

The root folder of a box:

- /usr is read-only: the host's, or that of a root file system. /bin, /lib and so on lead into it.
- Everything else belongs to the box, in a folder of the host that the owner may write to: a small /etc, /tmp, /var, /root, …
- Before every command, the mount points are restored, whatever an earlier command did to them.

All of this happens while nothing runs in the box, so nothing can change meanwhile. Still, no link is ever followed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assay.judge import tree
from assay.judge.sandbox import Image, InfrastructureError

INSIDE = 1000
"""The uid and gid that a box's processes see as their own."""
BOXES = 1024
"""The number of boxes that may be open at once on one machine."""
_FIRST = (2_000_000_000, 60_200)
"""The numbers at which the range of uids may begin. The second is for hosts with only 65,536 uids, such as containers."""

_LOCKS = Path("/run/assay/users")
"""The folder in which uids are locked. Only root may write there, and only root takes uids."""


@dataclass(frozen=True)
class Owner:
    """The user and group on the host to whom a box's processes and files belong."""

    uid: int
    gid: int
    switched: bool
    """True if this is not Assay's own user: then files must be given to it, and processes must start as it."""

    @property
    def chown(self) -> tuple[int, int] | None:
        """The uid and gid that files in the box must be given to; None if they belong to the owner already."""
        return (self.uid, self.gid) if self.switched else None


@cache
def first_number() -> int:
    """The first uid of the range for boxes on this host. Raises InfrastructureError."""
    mapped = _mapped(Path("/proc/self/uid_map")) & _mapped(Path("/proc/self/gid_map"))
    for first in _FIRST:
        if mapped.holds(first, BOXES) and not _known(first):
            return first
    raise InfrastructureError("no uids are free for boxes on this machine", hint="run Assay as a user that is not root")


def locks(otherwise: Path) -> Path:
    """The folder in which uids are locked: the same on the whole machine, or `otherwise` if that folder cannot be used.

    If each scratch folder had its own locks, two boxes could get the same uid, and would share one limit on processes.
    """
    try:
        _LOCKS.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return otherwise
    return _LOCKS if os.access(_LOCKS, os.W_OK) else otherwise


@contextmanager
def owner(folder: Path) -> Iterator[Owner]:
    """An owner for one box, until the context ends. folder: where the locks are. Raises InfrastructureError."""
    if os.geteuid() != 0:
        yield Owner(os.geteuid(), os.getegid(), False)
        return
    first = first_number()
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in range(BOXES):
        lock = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            try:
                yield Owner(first + number, first + number, True)
            finally:
                fcntl.flock(
                    lock, fcntl.LOCK_UN
                )  # closing is not enough: a program that another thread is starting holds the file too
            return
        finally:
            os.close(lock)
    raise InfrastructureError(f"{BOXES} boxes are open on this machine, and no more are possible", hint="use fewer jobs")


@dataclass(frozen=True)
class _Ranges:
    """Ranges of uids or gids, each from its first number to the one after its last."""

    spans: tuple[tuple[int, int], ...]

    def holds(self, first: int, count: int) -> bool:
        return any(begin <= first and first + count <= end for begin, end in self.spans)

    def __and__(self, other: _Ranges) -> _Ranges:
        return _Ranges(tuple((max(a, c), min(b, d)) for a, b in self.spans for c, d in other.spans if max(a, c) < min(b, d)))


def _mapped(file: Path) -> _Ranges:
    rows = [line.split() for line in file.read_text().splitlines()]
    return _Ranges(tuple((int(row[0]), int(row[0]) + int(row[2])) for row in rows))


def _known(number: int) -> bool:
    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True


HOSTNAME = "box"
HOME = "/root"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_OURS = ("dev", "proc", "sys", "usr", *_MERGED)
_FOLDERS = ("app", "etc", "etc/ssl", "home", "mnt", "opt", "root", "run", "srv", "var", "var/cache", "var/lib", "var/log")
_OPEN = ("tmp", "var/tmp")
_HOST_ETC = ("etc/alternatives", "etc/ld.so.cache")
"""The only parts of the host's /etc in a box, which /usr needs: links into /usr, and the list of its libraries."""
_COPIED = ("debian_version", "mime.types", "protocols", "services", "ssl/openssl.cnf")
_ETC = {
    "passwd": f"root:x:0:0:root:/root:/bin/bash\nuser:x:{INSIDE}:{INSIDE}:user:{HOME}:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": f"root:x:0:\nuser:x:{INSIDE}:\nnogroup:x:65534:\n",
    "hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost {HOSTNAME}\n",
    "hostname": f"{HOSTNAME}\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\n",
}
_LAYOUT = "1"
"""To be raised when the files that a box starts with change, so that digests differ."""


@dataclass(frozen=True)
class Rooted(Image):
    """An image that consists of folders of the host."""

    top: Path = Path("/")
    """The folder whose /usr the box sees read-only, and whose /bin and so on too if they are folders and not links."""
    tree: Path | None = None
    """The folder from which everything else is copied; None: the box gets only the small files that Assay writes."""

    @property
    def of_host(self) -> bool:
        """Whether /usr is the one of the host."""
        return self.top == Path("/")


@cache
def of_host() -> Rooted:
    """The host's /usr as an image. Its digest covers the distribution's name and, if there is one, the list of packages."""
    total = hashlib.sha256(f"assay host image {_LAYOUT}\n".encode())
    for name in ("usr/lib/os-release", "var/lib/dpkg/status", "var/lib/rpm/rpmdb.sqlite", "lib/apk/db/installed"):
        with suppress(OSError), open(Path("/", name), "rb") as file:
            total.update(f"{name}\n".encode() + hashlib.file_digest(file, "sha256").digest())
    return Rooted(f"sha256:{total.hexdigest()}")


def programs(image: Image) -> str:
    """A digest of the host's programs that a box sees; empty for an image with its own programs.

    It covers name, size and time of everything in `PATH` and /usr/local: no list of packages has what was installed by hand.
    """
    if not (isinstance(image, Rooted) and image.of_host):
        return ""
    total = hashlib.sha256()
    folders = [*PATH.split(":"), "/usr/local"]
    for folder in folders:
        with suppress(OSError):
            for entry in sorted(os.scandir(folder), key=lambda entry: os.fsencode(entry.name)):
                below = entry.is_dir(follow_symlinks=False) and folder.startswith("/usr/local")
                if below and entry.name != "__pycache__" and entry.path not in folders:
                    folders.append(entry.path)
                with suppress(OSError):
                    info = os.stat(entry.path, follow_symlinks=not below)
                    state = "folder" if below else f"{info.st_mode} {info.st_size} {info.st_mtime_ns}"
                    total.update(f"{state} ".encode() + os.fsencode(entry.path) + b"\n")
    return f"sha256:{total.hexdigest()}"


@cache
def of_folder(folder: Path) -> Rooted:
    """A root file system in a folder, such as debootstrap makes, as an image with the tree's digest.

    Raises InfrastructureError.
    """
    if not (folder / "usr").is_dir() or (folder / "usr").is_symlink():
        raise InfrastructureError("is not a root file system: it has no folder usr", file=folder)
    try:
        return Rooted(tree.digest(folder), top=folder.absolute(), tree=folder.absolute())
    except OSError as error:
        raise InfrastructureError(f"cannot be read: {error.strerror}", file=error.filename or folder) from error


class Root:
    """The root folder of one box, on the host."""

    def __init__(self, path: Path, image: Image, owner: Owner) -> None:
        """path: must not exist yet. Raises InfrastructureError and OSError."""
        if not isinstance(image, Rooted):
            raise InfrastructureError("the image belongs to another sandbox")
        self.path, self.image, self._owner = path, image, owner
        self._links, self.read_only = _merged(image.top)
        if image.of_host:
            self.read_only += tuple((f"/{name}", f"/{name}") for name in _HOST_ETC if os.path.exists(f"/{name}"))
        self._mkdir("", 0o755)
        if image.tree is None:
            self._write_host_layout()
        else:
            self._copy(image.tree)
        self.prepare()
        if not self.is_folder(image.workdir):
            self.fresh(image.workdir)

    def prepare(self) -> None:
        """Restores the folders that bubblewrap mounts on and the links into /usr. Raises OSError."""
        self._real("")
        for name in ("dev", "proc"):
            self._real(name)
        for source, inside in self.read_only:
            if os.path.isdir(source):
                self._reals(inside.strip("/"))
            else:
                self._file(inside.strip("/"))
        for name, target in self._links.items():
            place = self._at(name)
            if not os.path.islink(place) or os.readlink(place) != target:
                tree.remove(self.path, name)
                self._link(name, target)

    def programs(self) -> tuple[int, int]:
        """Device and inode of /usr, by which a caller can notice that it was replaced. Raises OSError if it is gone."""
        info = os.stat(self.image.top / "usr")
        return info.st_dev, info.st_ino

    def place(self, inside: str) -> Path:
        """The path on the host of a path in the box. Replaces links above it by folders.

        Raises InfrastructureError if it is read-only.
        """
        parts = self._parts(inside)
        mounts = [place.strip("/").split("/") for _source, place in self.read_only]
        if not parts or parts[0] in _OURS or any(parts[: len(mount)] == mount for mount in mounts):
            raise InfrastructureError(f"{inside!r} cannot be written in a box: it is read-only or mounted there")
        if parts[:-1]:
            self._reals("/".join(parts[:-1]))
        return self.path.joinpath(*parts)

    def beneath(self, inside: str) -> str | None:
        """A path in the box relative to its root; None if it is not in the box's own folder. Raises InfrastructureError."""
        parts = self._parts(inside)
        return None if not parts or parts[0] in _OURS else "/".join(parts)

    def fresh(self, inside: str) -> None:
        """See `Box.fresh`. Raises InfrastructureError and OSError."""
        tree.remove(self.place(inside))
        name = "/".join(self._parts(inside))
        self._mkdir(name, 0o1777 if name in _OPEN else 0o755)

    def folder(self, inside: str, mode: int | None = None) -> None:
        """Makes a folder and its parents, unless they exist. Raises InfrastructureError and OSError."""
        place = self.place(inside)
        self._real("/".join(self._parts(inside)))
        if mode is not None:
            os.chmod(place, mode)

    def link(self, inside: str, target: str) -> None:
        """Makes a link, and replaces whatever is there. Raises InfrastructureError and OSError."""
        tree.remove(self.place(inside))
        self._link("/".join(self._parts(inside)), target)

    def is_folder(self, inside: str) -> bool:
        """True if a command can start there, as far as the host can tell. Links are followed as the box would follow them."""
        place, left = "", self._parts(inside)
        for _step in range(200):
            if not left:
                return True
            name = left.pop(0)
            if not place and name in _OURS:
                return True
            try:
                info = os.lstat(self._at(f"{place}/{name}"))
            except OSError:
                return False
            if stat.S_ISLNK(info.st_mode):
                target = os.readlink(self._at(f"{place}/{name}"))
                parts = [part for part in target.split("/") if part not in ("", ".")]
                if ".." in parts:
                    return False
                left, place = [*parts, *left], "" if target.startswith("/") else place
            elif stat.S_ISDIR(info.st_mode) and info.st_mode & 0o100:
                place = f"{place}/{name}"
            else:
                return False
        return False

    def _write_host_layout(self) -> None:
        for name in _FOLDERS:
            self._mkdir(name, 0o755)
        for name in _OPEN:
            self._mkdir(name, 0o1777)
        for name, target in (("var/run", "/run"), ("etc/os-release", "../usr/lib/os-release")):
            self._link(name, target)
        for name, text in _ETC.items():
            self._write(f"etc/{name}", text.encode())
        for name, data in _copied().items():
            self._write(f"etc/{name}", data)

    def _copy(self, source: Path) -> None:
        skipped = {"dev", "proc", "sys", "usr", *self._links, *(inside.strip("/") for _, inside in self.read_only)}
        links = tree.Links(self.path)
        for name in sorted(set(os.listdir(source)) - skipped):
            place = source / name
            if place.is_symlink():
                self._link(name, os.readlink(place))
            elif place.is_dir() or place.is_file():
                copied = tree.copy(source, self.path / name, beneath=name, inside="/", owner=self._owner.chown, links=links)
                if copied.left:
                    self._more_links(source, name)
        for name in _OPEN:
            self._reals(name)
            os.chmod(self._at(name), 0o1777)

    def _more_links(self, source: Path, top: str) -> None:
        """Makes the links that a copy skips because they lead out of the copied folder: in the box they lead to the box."""
        for entry in tree.walk(source, top):
            name = top if entry.path == "." else f"{top}/{entry.path}"
            if entry.kind == "link" and not os.path.lexists(self._at(name)):
                self._link(name, entry.target)

    def _parts(self, inside: str) -> list[str]:
        parts = [part for part in inside.split("/") if part not in ("", ".")]
        if not inside.startswith("/") or ".." in parts or "\0" in inside:
            raise InfrastructureError(f"{inside!r} is not an absolute path in a box")
        return parts

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}" if name else str(self.path)

    def _reals(self, name: str) -> None:
        """Makes this path and every path above it a real folder."""
        parts = name.split("/")
        for count in range(1, len(parts) + 1):
            self._real("/".join(parts[:count]))

    def _real(self, name: str) -> None:
        """Makes this path a real folder that its owner can enter, unless it is one."""
        place = self._at(name)
        with suppress(FileNotFoundError):
            info = os.lstat(place)
            if stat.S_ISDIR(info.st_mode):
                if info.st_mode & 0o700 != 0o700:
                    os.chmod(place, stat.S_IMODE(info.st_mode) | 0o700)
                return
            tree.remove(self.path, name)
        self._mkdir(name, 0o755)

    def _file(self, name: str) -> None:
        self._reals(os.path.dirname(name))
        with suppress(FileNotFoundError):
            if stat.S_ISREG(os.lstat(self._at(name)).st_mode):
                return
            tree.remove(self.path, name)
        self._write(name, b"")

    def _mkdir(self, name: str, mode: int) -> None:
        place = self._at(name)
        os.mkdir(place)
        os.chmod(place, mode)
        self._give(place)

    def _link(self, name: str, target: str) -> None:
        os.symlink(target, self._at(name))
        self._give(self._at(name))

    def _write(self, name: str, data: bytes) -> None:
        place = self._at(name)
        number = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.write(number, data)
            os.fchmod(number, 0o644)
        finally:
            os.close(number)
        self._give(place)

    def _give(self, place: str) -> None:
        if self._owner.switched:
            os.chown(place, self._owner.uid, self._owner.gid, follow_symlinks=False)


@cache
def _merged(top: Path) -> tuple[Mapping[str, str], tuple[tuple[str, str], ...]]:
    """The links into /usr, and the read-only mounts as pairs of a path on the host and a path in the box."""
    links, mounts = {}, [(str(top / "usr"), "/usr")]
    for name in _MERGED:
        place = top / name
        if place.is_symlink():
            links[name] = os.readlink(place)
        elif place.is_dir():
            mounts.append((str(place), f"/{name}"))
    return links, tuple(mounts)


@cache
def _copied() -> Mapping[str, bytes]:
    files = {}
    for name in _COPIED:
        with suppress(OSError):
            files[name] = Path("/etc", name).read_bytes()
    return files
