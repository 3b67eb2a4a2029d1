"""Root file systems of images, for a sandbox without a container engine, which never puts another in their place. SPEC 2.1.

    STATE/bases/NAME/tree/…        the files of the image NAME, whose `/` and `:` are percent-encoded
    STATE/bases/NAME/base.json     schema assay.base/1: name, digest, env, workdir, source

STATE is $ASSAY_STATE, else /var/lib/assay for root, else ~/.local/share/assay. A base is only ever seen whole.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import Field

from assay.errors import BadInput
from assay.folder.write import flush_folder, write_text
from assay.judge import tree
from assay.judge.sandbox.box import Trouble
from assay.judge.sandbox.root import Rooted
from assay.scheme.fields import Section
from assay.scheme.reading import validate

__all__ = ["Base", "add_archive", "add_image", "find", "kept", "remove", "state", "unmet"]

BOUNDS = tree.Bounds(bytes=32 << 30, files=2_000_000)
"""How large a root file system may be."""
_FILE, _TREE = "base.json", "tree"
_NEW = ".new-"


class _Said(Section):
    schema_: Annotated[Literal["assay.base/1"], Field(alias="schema")] = "assay.base/1"
    name: Annotated[str, Field(min_length=1, max_length=500)]
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    env: dict[str, str]
    workdir: str
    source: str


@dataclass(frozen=True)
class Base:
    """A root file system that was added."""

    name: str
    """The image that it stands for, with its tag."""
    digest: str
    """Of its tree, see `tree.digest`."""
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """What the image sets, where that was known."""
    workdir: str = "/app"
    source: str = ""
    """Where it came from, for people."""

    @property
    def rooted(self) -> Rooted:
        """It as an image of bubblewrap's."""
        return Rooted(self.digest, self.env, self.workdir, self.folder / _TREE, self.folder / _TREE)


def state() -> Path:
    """Where what outlives a run is kept on this machine: root file systems, calibrations."""
    if said := os.environ.get("ASSAY_STATE"):
        return Path(os.path.abspath(said))
    if os.geteuid() == 0:
        return Path("/var/lib/assay")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "assay"


def unmet(name: str, file: Path | None = None, line: int | None = None) -> BadInput:
    """The error that an image cannot be had in bubblewrap, with what to do."""
    return BadInput(
        f"bubblewrap has no root file system of the image {name[:200]!r}",
        file=file,
        line=line,
        hint=f"add it: assay sandbox base add {name[:200]}; or judge in containers; or, if the task needs nothing of it, "
        'write base = "any" under [metadata.assay] in task.toml',
    )


def find(name: str) -> Rooted | None:
    """The root file system that was added for an image; None if none was. Raises Trouble for one that is damaged."""
    folder = _folder(name)
    if folder is None or not folder.is_dir():
        return None
    found = _read(folder)
    if not (folder / _TREE / "usr").is_dir():
        raise Trouble(f"the root file system of {name} is damaged", file=folder, hint=f"assay sandbox base remove {name}")
    return found.rooted


def kept() -> Iterator[Base]:
    """Everything that was added, by name. Raises Trouble."""
    place = state() / "bases"
    if place.is_dir():
        for folder in sorted(place.iterdir()):
            if not folder.name.startswith("."):
                yield _read(folder)


def add_archive(name: str, file: Path) -> Base:
    """Adds the root file system in a tar archive, as `podman export` and debootstrap's users write it; may be compressed.

    Raises BadInput for an archive that is none and for a name that is taken, and Trouble.
    """
    with _new(name) as folder:
        try:
            with file.open("rb") as opened:
                _unpack(opened, folder)
        except Trouble as error:
            raise BadInput(error.what, file=file, hint="export a container's files: podman export") from None
        except OSError as error:
            raise BadInput(f"cannot be read ({error.strerror})", file=file, hint="name a tar archive") from None
        return _keep(name, folder, {}, "/app", f"archive {file.name}")


def add_image(name: str, url: str | None = None) -> Base:
    """Adds the root file system of an image that a container engine has; url: of its socket. Raises BadInput and Trouble."""
    from assay.judge.sandbox.containers import engine, images, whose
    from assay.judge.sandbox.containers.archive import Incoming
    from assay.judge.sandbox.containers.container import remove as remove_container

    with _new(name) as folder:
        at = engine.connect(url)
        about = images.named(at, name)
        with closing(at.client()) as client:
            with engine.talking(f"the image {name} could not be exported"):
                made = client.create_container(name, command=["true"], labels=whose.mine())["Id"]
            try:
                with engine.talking(f"the image {name} could not be exported"):
                    _unpack(Incoming(iter(client.export(made))), folder)
            finally:
                remove_container(client, made)
        return _keep(name, folder, about.env, about.workdir, f"{at.title}, image {about.digest}")


def remove(name: str) -> None:
    """Removes one; raises BadInput if there is none, and Trouble."""
    folder = _folder(name)
    if folder is None or not folder.is_dir():
        raise BadInput(f"there is no root file system of {name[:200]!r}", hint="assay sandbox base list")
    gone = folder.with_name(f"{_NEW}{secrets.token_hex(8)}")
    try:
        folder.rename(gone)
        tree.remove(gone)
    except OSError as error:
        raise Trouble(f"cannot be removed: {error.strerror}", file=error.filename or folder) from error


def _spelt(name: str) -> str:
    """An image's name as it is kept: without Docker's own registry, and with its tag."""
    plain = name.removeprefix("docker.io/").removeprefix("library/")
    return plain if "@" in plain or ":" in plain.rpartition("/")[2] else f"{plain}:latest"


def _folder(name: str) -> Path | None:
    """Where the root file system of an image is; None for what cannot be an image's name."""
    safe = quote(_spelt(name), safe="")
    return None if not name or len(safe) > 200 or safe.startswith(".") else state() / "bases" / safe


@contextmanager
def _new(name: str) -> Iterator[Path]:
    """A new folder beside the others, gone when the context ends unless it was moved to its place. Raises BadInput."""
    place = _folder(name)
    if place is None or not name.isprintable() or any(char.isspace() for char in name):
        raise BadInput(f"{name[:80]!r} is not an image's name", hint="give it as the Dockerfile has it after FROM")
    if place.exists():
        raise BadInput(f"there is a root file system of {name} already", hint=f"assay sandbox base remove {name} first")
    try:
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if os.geteuid() == 0:
            _passable(place.parent)
        half = place.parent / f"{_NEW}{secrets.token_hex(8)}"
        half.mkdir(mode=0o755)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=error.filename, hint="set ASSAY_STATE") from None
    try:
        yield half
    finally:
        with suppress(OSError):
            tree.remove(half)


def _passable(folder: Path) -> None:
    for one in (folder, *folder.parents):
        if not os.stat(one).st_mode & 0o001:
            what = "boxes run as users without rights, who cannot pass this folder"
            raise BadInput(what, file=one, hint="set ASSAY_STATE to a place that everybody can get to, such as /var/lib/assay")


def _unpack(file: object, folder: Path) -> None:
    from assay.judge.sandbox.containers.archive import unpack_root

    try:
        unpack_root(file, folder / _TREE, bounds=BOUNDS)  # type: ignore[arg-type]
    except tree.TreeError as error:
        raise Trouble(error.what) from error


def _keep(name: str, folder: Path, env: Mapping[str, str], workdir: str, source: str) -> Base:
    """Describes what was unpacked, and moves it to its place in one step. Raises BadInput for what is no root file system."""
    top, place = folder / _TREE, _folder(name)
    assert place is not None
    if not (top / "usr").is_dir() or (top / "usr").is_symlink():
        hint = "export a container's files (podman export); an image as `podman save` writes it is in layers"
        raise BadInput("has no folder usr, so it is not a root file system", hint=hint)
    said = _Said(name=_spelt(name), digest=tree.digest(top, bounds=BOUNDS), env=dict(env), workdir=workdir, source=source)
    write_text(folder / _FILE, said.model_dump_json(by_alias=True, indent=1) + "\n")
    folder.chmod(0o755)
    try:
        folder.rename(place)
        flush_folder(place.parent)
    except OSError as error:
        raise Trouble(f"cannot be written: {error.strerror}", file=place) from error
    return _read(place)


def _read(folder: Path) -> Base:
    file = folder / _FILE
    try:
        said = validate(_Said, json.loads(file.read_bytes()), file=file)
    except (OSError, ValueError, BadInput) as error:
        raise Trouble("cannot be read: a root file system is damaged", file=file, hint=f"remove {folder}") from error
    return Base(said.name, said.digest, folder, said.env, said.workdir, said.source)
