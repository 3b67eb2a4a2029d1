"""Root file systems of images, for a sandbox without a container engine, which never puts another in their place. SPEC 2.1.

    STATE/bases/NAME/tree/…        the files of the image NAME, whose `/` and `:` are percent-encoded
    STATE/bases/NAME/base.json     schema assay.base/1: name, digest, env, workdir, source

STATE is $ASSAY_STATE, else /var/lib/assay for root, else ~/.local/share/assay. A base is only ever seen whole.

An image from a task's Dockerfile, without a container engine: its steps carried out in a box, and the box kept.

- The image after FROM is a root file system of that name, see `bases`. The host's /usr stands in for it only if the task says
  that any will do; otherwise the image is refused by its name. What boxes start from is in the digest.
- RUN has no network, and /usr stays read-only: a Dockerfile that installs something needs a container engine.
- What was built is kept under the digest of everything that went in, and is only ever seen whole.

The images that bubblewrap built: kept for as long as somebody asks for them, cleared where nobody did for long.

images/KEY/…        one image, only ever seen whole
images/KEY.lock     held while it is built
images/used         held, shared, by every process that may start boxes from an image; alone by who clears
"""

from __future__ import annotations

import fcntl
import json
import os
import posixpath
import secrets
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

from pydantic import Field

from assay.errors import BadInput
from assay.folder.files import flush_folder, write_text
from assay.judge import dockerfile, tree
from assay.judge.dockerfile import BuildPlan, Context, Copy, Placed, Run
from assay.judge.sandbox import Limits, Trouble, check_docker
from assay.judge.sandbox.root import Rooted, of_host
from assay.judge.sandbox.scratch import Scratch
from assay.scheme.fields import Digest, Section
from assay.scheme.reading import validate

if TYPE_CHECKING:
    from assay.judge.sandbox.bubblewrap import BubbleBox, Bubblewrap


BOUNDS = tree.Bounds(bytes=32 << 30, files=2_000_000)
"""How large a root file system may be."""
_FILE, _TREE = "base.json", "tree"
_NEW = ".new-"


class _BaseFile(Section):
    schema_: Annotated[Literal["assay.base/1"], Field(alias="schema")] = "assay.base/1"
    name: Annotated[str, Field(min_length=1, max_length=500)]
    digest: Digest
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
    check_docker()
    from assay.judge.sandbox import containers
    from assay.judge.sandbox.containers import engine
    from assay.judge.sandbox.containers.archive import Incoming
    from assay.judge.sandbox.containers.container import remove as remove_container

    with _new(name) as folder:
        at = engine.connect(url)
        about = containers.named(at, name)
        with closing(at.client()) as client:
            with engine.talking(f"the image {name} could not be exported"):
                made = client.create_container(name, command=["true"], labels=engine.mine())["Id"]
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
    said = _BaseFile(name=_spelt(name), digest=tree.digest(top, bounds=BOUNDS), env=dict(env), workdir=workdir, source=source)
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
        said = validate(_BaseFile, json.loads(file.read_bytes()), file=file)
    except (OSError, ValueError, BadInput) as error:
        raise Trouble("cannot be read: a root file system is damaged", file=file, hint=f"remove {folder}") from error
    return Base(said.name, said.digest, folder, said.env, said.workdir, said.source)


LIMITS = Limits(seconds=600, memory=4 << 30, processes=1024, disk=10 << 30, output=1 << 20)
"""What a build may use if nobody says: all of it together as to time, each RUN as to the rest."""
_FORMAT = 2
_LAST = 2000
"""Bytes of a failed command's output that the error quotes."""


def image(sandbox: Bubblewrap, environment: Path, limits: Limits | None = None, *, any_base: bool = False) -> Rooted:
    """The image of `environment/Dockerfile`; raises BadInput for what cannot be carried out, Trouble for what went wrong."""
    file = environment / "Dockerfile"
    try:
        text = file.read_bytes().decode()
        plan = dockerfile.plan(text, file)
        plan = plan.whole()
        base = sandbox.base(plan.base) or (of_host() if any_base else None)
        if base is None:
            first = next(one for one in dockerfile.parse(text, file) if one.name == "FROM")
            raise unmet(plan.base, file, first.line)
        plan = dockerfile.plan(text, file, env=base.env)
        context = Context.open(environment)
        copies = {step.line: context.placed(step, file) for step in plan.steps if isinstance(step, Copy)}
        key = _key(base, plan, text, context, copies)
        folder = sandbox.images.use()
        with _locked(folder / f"{key}.lock"):
            if not (folder / key).is_dir():
                _make(_Job(sandbox, plan, context, copies, limits or LIMITS, file), base, folder, key)
            os.utime(folder / key)  # it was asked for
            said = json.loads((folder / key / "image.json").read_bytes())
    except UnicodeDecodeError as error:
        raise BadInput("is not UTF-8", file=file, hint="save it as UTF-8") from error
    except OSError as error:
        raise Trouble(f"the image could not be built: {error.strerror}", file=error.filename or file) from error
    return Rooted(said["digest"], said["env"], said["workdir"], base.top, folder / key / "tree")


def _key(base: Rooted, plan: BuildPlan, text: str, context: Context, copies: dict[int, tuple[Placed, ...]]) -> str:
    starts = f"{base.digest}\n{base.top}\n{sorted(base.env.items())}\n{base.workdir}\n{plan.base}"
    total = sha256(f"{_FORMAT}\n{starts}\n{text}\n".encode())
    for line, placed in copies.items():
        for one in placed:
            held = context.entries[one.source].target if one.kind == "link" else ""
            if one.kind in ("file", "exec"):
                held = tree.digest(context.folder, one.source)
            total.update(repr((line, one.inside, one.kind, one.mode, one.loose, held)).encode(errors="surrogatepass"))
    return total.hexdigest()


@dataclass(frozen=True)
class _Job:
    sandbox: Bubblewrap
    plan: BuildPlan
    context: Context
    copies: dict[int, tuple[Placed, ...]]
    limits: Limits
    file: Path


def _make(job: _Job, base: Rooted, folder: Path, key: str) -> None:
    """Builds in a box, and moves what came of it to its place in one step."""
    began = monotonic()
    plain = Rooted(base.digest, base.env, "/", base.top, base.tree)
    with job.sandbox.scratch.box() as half, job.sandbox.open(plain, job.limits) as box:
        for step in job.plan.steps:
            if isinstance(step, Run):
                _run(job, box, step, job.limits.seconds - (monotonic() - began))
            elif isinstance(step, Copy):
                for one in job.copies[step.line]:
                    _copy(job, box, step, one)
            else:
                box.root.folder(step.path)
        made = half / "image"
        made.mkdir(mode=0o700)
        built = box.copy(made / "tree")
        said = {"digest": built.digest, "env": {**base.env, **job.plan.env}, "workdir": job.plan.workdir or base.workdir}
        (made / "image.json").write_text(json.dumps(said))
        os.rename(made, folder / key)


def _run(job: _Job, box: BubbleBox, step: Run, left: float) -> None:
    limits = replace(job.limits, seconds=max(0.0, left))
    with TemporaryDirectory(prefix="assay-build-") as kept:
        out, err = Path(kept, "out"), Path(kept, "err")
        ran = box.run(step.command, limits=limits, stdout=out, stderr=err, env=step.env, cwd=step.cwd)
        if ran.exit_code != 0:
            how = f"ended with exit code {ran.exit_code}" if ran.stopped is None else f"ran into its bound on {ran.stopped}"
            last = " / ".join((out.read_bytes() + err.read_bytes())[-_LAST:].decode(errors="replace").split("\n")).strip(" /")
            raise Trouble(
                f"RUN {how}: {last}", file=job.file, line=step.line,
                hint="without a container engine there is no network, and /usr is read-only",
            )  # fmt: skip


def _copy(job: _Job, box: BubbleBox, step: Copy, one: Placed) -> None:
    inside = one.inside
    try:
        if one.kind == "folder":
            box.root.folder(inside, one.mode)
        elif one.kind == "link":
            box.root.link(inside, job.context.entries[one.source].target)
        else:
            if one.loose and box.root.is_folder(inside):
                inside = posixpath.join(inside, posixpath.basename(one.source))
            box.put(job.context.folder / one.source, inside, mode=one.mode)
    except Trouble as error:
        if error.file is None:
            error.file, error.line = job.file, step.line
        raise


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One build of one image at a time on this machine."""
    number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(number, fcntl.LOCK_UN)
        os.close(number)


KEPT = 14 * 24 * 3600
"""Seconds that an image stays without being asked for."""
_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Images:
    """The folder of built images, as one sandbox uses it."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch, self._folder = scratch, scratch.folder / "images"
        self._used: weakref.finalize[..., Images] | None = None

    def use(self) -> Path:
        """The folder, in which nothing is cleared from now on until `close`. Raises OSError."""
        if self._used is None:
            self._folder.mkdir(mode=0o711, exist_ok=True)
            number = os.open(self._folder / "used", _LOCK, 0o600)
            self._used = weakref.finalize(self, _release, number)
            fcntl.flock(number, fcntl.LOCK_SH)
        return self._folder

    def sweep(self) -> int:
        """Clears what nobody asked for in a long time, unless somebody may be using images; returns how many. Raises Trouble."""
        removed = 0
        try:
            number = os.open(self._folder / "used", _LOCK, 0o600)
        except FileNotFoundError:
            return 0
        try:
            with suppress(BlockingIOError):
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for image in sorted(self._folder.iterdir()):
                    if image.is_dir() and time.time() - image.stat().st_mtime > KEPT:
                        with self._scratch.box() as gone:  # a box's folder goes whatever happens, and never halfway
                            os.rename(image, gone / "image")
                        self._folder.joinpath(f"{image.name}.lock").unlink(missing_ok=True)
                        removed += 1
        except OSError as error:
            raise Trouble(f"old images cannot be cleared: {error.strerror}", file=error.filename) from error
        finally:
            _release(number)
        return removed

    def close(self) -> None:
        """Nothing is used any more."""
        if self._used is not None:
            self._used()
            self._used = None


def _release(number: int) -> None:
    """Lets go of the lock; closing is not enough while another thread is starting a program, which holds the file until then."""
    fcntl.flock(number, fcntl.LOCK_UN)
    os.close(number)
