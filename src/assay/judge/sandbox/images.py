"""Supplies the images of the bubblewrap sandbox: added root file systems, and images built from a Dockerfile. SPEC 2.1.

Root file systems stand for the images that a Dockerfile names after FROM. A missing one is never replaced by another:

    STATE/bases/NAME/tree/…        the files of the image NAME, whose `/` and `:` are percent-encoded
    STATE/bases/NAME/base.json     schema assay.base/1: name, digest, env, workdir, source

STATE is $ASSAY_STATE, else /var/lib/assay for root, else ~/.local/share/assay. A root file system appears only when complete.

A Dockerfile is built without a container engine: its steps run in a box, and the box's files become the image.

- The image after FROM is a root file system of that name. The host's /usr replaces it only if the task says that any will do;
  otherwise the task is refused. The digest of the start is part of the image's digest.
- RUN has no network, and /usr stays read-only. A Dockerfile that installs packages needs a container engine.

Built images stay until they were not used for two weeks:

    images/KEY/…        one image, under the digest of everything that went into it; it appears only when it is complete
    images/KEY.lock     locked while it is built
    images/used         locked, shared, by every process that may start boxes from an image; alone by one that removes images
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
from assay.judge.sandbox import InfrastructureError, Limits, check_docker
from assay.judge.sandbox.root import Rooted, of_host
from assay.judge.sandbox.scratch import Scratch
from assay.scheme.fields import Digest, Section
from assay.scheme.reading import validate

if TYPE_CHECKING:
    from assay.judge.sandbox.bubblewrap import BubbleBox, Bubblewrap


BOUNDS = tree.Bounds(bytes=32 << 30, files=2_000_000)
"""The limits of a root file system."""
_FILE, _TREE = "base.json", "tree"
_NEW = ".new-"


class _BaseFile(Section):
    """The content of base.json."""

    schema_: Annotated[Literal["assay.base/1"], Field(alias="schema")] = "assay.base/1"
    name: Annotated[str, Field(min_length=1, max_length=500)]
    digest: Digest
    env: dict[str, str]
    workdir: str
    source: str


@dataclass(frozen=True)
class Base:
    """A root file system that was added to this machine."""

    name: str
    """The image that it stands for, with the tag."""
    digest: str
    """Of its tree, see `tree.digest`."""
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """The variables that the image sets, if they are known."""
    workdir: str = "/app"
    source: str = ""
    """The source of the image, for people."""

    @property
    def rooted(self) -> Rooted:
        """This root file system as an image of the bubblewrap sandbox."""
        return Rooted(self.digest, self.env, self.workdir, self.folder / _TREE, self.folder / _TREE)


def state() -> Path:
    """The folder on this machine for everything that outlives a run: root file systems, calibrations."""
    if folder := os.environ.get("ASSAY_STATE"):
        return Path(os.path.abspath(folder))
    if os.geteuid() == 0:
        return Path("/var/lib/assay")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "assay"


def unmet(name: str, file: Path | None = None, line: int | None = None) -> BadInput:
    """The error that bubblewrap does not have an image, with a hint that says what to do."""
    return BadInput(
        f"bubblewrap has no root file system of the image {name[:200]!r}",
        file=file,
        line=line,
        hint=f"add it: assay sandbox base add {name[:200]}; or judge in containers; or, if the task needs nothing of it, "
        'write base = "any" under [metadata.assay] in task.toml',
    )


def find(name: str) -> Rooted | None:
    """The root file system that was added for an image; None if there is none. Raises InfrastructureError if it is damaged."""
    folder = _folder(name)
    if folder is None or not folder.is_dir():
        return None
    base = _read(folder)
    if not (folder / _TREE / "usr").is_dir():
        raise InfrastructureError(
            f"the root file system of {name} is damaged", file=folder, hint=f"assay sandbox base remove {name}"
        )
    return base.rooted


def added() -> Iterator[Base]:
    """Every root file system that was added, sorted by name. Raises InfrastructureError."""
    bases = state() / "bases"
    if bases.is_dir():
        for folder in sorted(bases.iterdir()):
            if not folder.name.startswith("."):
                yield _read(folder)


def add_archive(name: str, file: Path) -> Base:
    """Adds the root file system in a tar archive, compressed or not, as `podman export` writes it.

    Raises BadInput if the file is no such archive, or if the name is taken, and InfrastructureError.
    """
    with _new(name) as folder:
        try:
            with file.open("rb") as opened:
                _unpack(opened, folder)
        except InfrastructureError as error:
            raise BadInput(error.what, file=file, hint="export a container's files: podman export") from None
        except OSError as error:
            raise BadInput(f"cannot be read ({error.strerror})", file=file, hint="name a tar archive") from None
        return _keep(name, folder, {}, "/app", f"archive {file.name}")


def add_image(name: str, url: str | None = None) -> Base:
    """Adds the root file system of an image of a container engine. url: the engine's socket.

    Raises BadInput and InfrastructureError.
    """
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
                container = client.create_container(name, command=["true"], labels=engine.mine())["Id"]
            try:
                with engine.talking(f"the image {name} could not be exported"):
                    _unpack(Incoming(iter(client.export(container))), folder)
            finally:
                remove_container(client, container)
        return _keep(name, folder, about.env, about.workdir, f"{at.title}, image {about.digest}")


def remove(name: str) -> None:
    """Removes the root file system of an image. Raises BadInput if there is none, and InfrastructureError."""
    folder = _folder(name)
    if folder is None or not folder.is_dir():
        raise BadInput(f"there is no root file system of {name[:200]!r}", hint="see which there are: assay sandbox base list")
    gone = folder.with_name(f"{_NEW}{secrets.token_hex(8)}")
    try:
        folder.rename(gone)
        tree.remove(gone)
    except OSError as error:
        raise InfrastructureError(f"cannot be removed: {error.strerror}", file=error.filename or folder) from error


def _full_name(name: str) -> str:
    """An image's name as it is stored: without the name of Docker's registry, and with a tag."""
    plain = name.removeprefix("docker.io/").removeprefix("library/")
    return plain if "@" in plain or ":" in plain.rpartition("/")[2] else f"{plain}:latest"


def _folder(name: str) -> Path | None:
    """The folder of an image's root file system; None if the text cannot be the name of an image."""
    safe = quote(_full_name(name), safe="")
    return None if not name or len(safe) > 200 or safe.startswith(".") else state() / "bases" / safe


@contextmanager
def _new(name: str) -> Iterator[Path]:
    """A new folder beside the others, removed when the context ends unless it was moved into place. Raises BadInput."""
    target = _folder(name)
    if target is None or not name.isprintable() or any(char.isspace() for char in name):
        raise BadInput(f"{name[:80]!r} is not an image's name", hint="give it as the Dockerfile has it after FROM")
    if target.exists():
        raise BadInput(f"there is a root file system of {name} already", hint=f"first run assay sandbox base remove {name}")
    try:
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if os.geteuid() == 0:
            _check_passable(target.parent)
        half = target.parent / f"{_NEW}{secrets.token_hex(8)}"
        half.mkdir(mode=0o755)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=error.filename, hint="set ASSAY_STATE") from None
    try:
        yield half
    finally:
        with suppress(OSError):
            tree.remove(half)


def _check_passable(folder: Path) -> None:
    """Raises BadInput if a box's user, who has no rights, cannot reach the folder."""
    for above in (folder, *folder.parents):
        if not os.stat(above).st_mode & 0o001:
            what = "boxes run as users without rights, and these cannot enter this folder"
            raise BadInput(what, file=above, hint="set ASSAY_STATE to a folder that every user can reach, such as /var/lib/assay")


def _unpack(file: object, folder: Path) -> None:
    from assay.judge.sandbox.containers.archive import unpack_root

    try:
        unpack_root(file, folder / _TREE, bounds=BOUNDS)  # type: ignore[arg-type]
    except tree.TreeError as error:
        raise InfrastructureError(error.what) from error


def _keep(name: str, folder: Path, env: Mapping[str, str], workdir: str, source: str) -> Base:
    """Describes what was unpacked, and moves it into place in one step. Raises BadInput if it is no root file system."""
    top, target = folder / _TREE, _folder(name)
    assert target is not None
    if not (top / "usr").is_dir() or (top / "usr").is_symlink():
        hint = "export a container's files (podman export); an image as `podman save` writes it is in layers"
        raise BadInput("has no folder usr, so it is not a root file system", hint=hint)
    described = _BaseFile(
        name=_full_name(name), digest=tree.digest(top, bounds=BOUNDS), env=dict(env), workdir=workdir, source=source
    )
    write_text(folder / _FILE, described.model_dump_json(by_alias=True, indent=1) + "\n")
    folder.chmod(0o755)
    try:
        folder.rename(target)
        flush_folder(target.parent)
    except OSError as error:
        raise InfrastructureError(f"cannot be written: {error.strerror}", file=target) from error
    return _read(target)


def _read(folder: Path) -> Base:
    file = folder / _FILE
    try:
        described = validate(_BaseFile, json.loads(file.read_bytes()), file=file)
    except (OSError, ValueError, BadInput) as error:
        raise InfrastructureError(
            "cannot be read: the root file system is damaged", file=file, hint=f"remove {folder}"
        ) from error
    return Base(described.name, described.digest, folder, described.env, described.workdir, described.source)


LIMITS = Limits(seconds=600, memory=4 << 30, processes=1024, disk=10 << 30, output=1 << 20)
"""The default limits of a build. Time is for the whole build; the rest is for each RUN."""
_FORMAT = 2
"""To be raised when the same Dockerfile comes to give another image, so that images are built again."""
_LAST = 2000
"""Bytes of a failed command's output that the error message quotes."""


def image(sandbox: Bubblewrap, environment: Path, limits: Limits | None = None, *, any_base: bool = False) -> Rooted:
    """The image of `environment/Dockerfile`.

    Raises BadInput for a Dockerfile that bubblewrap cannot build, and InfrastructureError.
    """
    file = environment / "Dockerfile"
    try:
        text = file.read_bytes().decode()
        plan = dockerfile.plan(text, file)
        plan = plan.checked()
        base = sandbox.base(plan.base) or (of_host() if any_base else None)
        if base is None:
            start = next(instruction for instruction in dockerfile.parse(text, file) if instruction.name == "FROM")
            raise unmet(plan.base, file, start.line)
        plan = dockerfile.plan(text, file, env=base.env)
        context = Context.open(environment)
        copies = {step.line: context.placed(step, file) for step in plan.steps if isinstance(step, Copy)}
        key = _key(base, plan, text, context, copies)
        folder = sandbox.images.use()
        with _locked(folder / f"{key}.lock"):
            if not (folder / key).is_dir():
                _make(_BuildJob(sandbox, plan, context, copies, limits or LIMITS, file), base, folder, key)
            os.utime(folder / key)  # so that `Images.sweep` keeps it
            built = json.loads((folder / key / "image.json").read_bytes())
    except UnicodeDecodeError as error:
        raise BadInput("is not UTF-8", file=file, hint="save it as UTF-8") from error
    except OSError as error:
        raise InfrastructureError(f"the image could not be built: {error.strerror}", file=error.filename or file) from error
    return Rooted(built["digest"], built["env"], built["workdir"], base.top, folder / key / "tree")


def _key(base: Rooted, plan: BuildPlan, text: str, context: Context, copies: dict[int, tuple[Placed, ...]]) -> str:
    starts = f"{base.digest}\n{base.top}\n{sorted(base.env.items())}\n{base.workdir}\n{plan.base}"
    total = sha256(f"{_FORMAT}\n{starts}\n{text}\n".encode())
    for line, placed in copies.items():
        for item in placed:
            content = context.entries[item.source].target if item.kind == "link" else ""
            if item.kind in ("file", "exec"):
                content = tree.digest(context.folder, item.source)
            total.update(repr((line, item.inside, item.kind, item.mode, item.loose, content)).encode(errors="surrogatepass"))
    return total.hexdigest()


@dataclass(frozen=True)
class _BuildJob:
    """Everything that one build needs."""

    sandbox: Bubblewrap
    plan: BuildPlan
    context: Context
    copies: dict[int, tuple[Placed, ...]]
    limits: Limits
    file: Path


def _make(job: _BuildJob, base: Rooted, folder: Path, key: str) -> None:
    """Builds in a box, and moves the image into place in one step."""
    began = monotonic()
    plain = Rooted(base.digest, base.env, "/", base.top, base.tree)
    with job.sandbox.scratch.box() as half, job.sandbox.open(plain, job.limits) as box:
        for step in job.plan.steps:
            if isinstance(step, Run):
                _run(job, box, step, job.limits.seconds - (monotonic() - began))
            elif isinstance(step, Copy):
                for item in job.copies[step.line]:
                    _copy(job, box, step, item)
            else:
                box.root.folder(step.path)
        image = half / "image"
        image.mkdir(mode=0o700)
        built = box.copy(image / "tree")
        about = {"digest": built.digest, "env": {**base.env, **job.plan.env}, "workdir": job.plan.workdir or base.workdir}
        (image / "image.json").write_text(json.dumps(about))
        os.rename(image, folder / key)


def _run(job: _BuildJob, box: BubbleBox, step: Run, left: float) -> None:
    limits = replace(job.limits, seconds=max(0.0, left))
    with TemporaryDirectory(prefix="assay-build-") as output:
        out, err = Path(output, "out"), Path(output, "err")
        ran = box.run(step.command, limits=limits, stdout=out, stderr=err, env=step.env, cwd=step.cwd)
        if ran.exit_code != 0:
            how = f"ended with exit code {ran.exit_code}" if ran.stopped is None else f"reached its {ran.stopped} limit"
            last = " / ".join((out.read_bytes() + err.read_bytes())[-_LAST:].decode(errors="replace").split("\n")).strip(" /")
            raise InfrastructureError(
                f"RUN {how}: {last}", file=job.file, line=step.line,
                hint="without a container engine there is no network, and /usr is read-only",
            )  # fmt: skip


def _copy(job: _BuildJob, box: BubbleBox, step: Copy, item: Placed) -> None:
    inside = item.inside
    try:
        if item.kind == "folder":
            box.root.folder(inside, item.mode)
        elif item.kind == "link":
            box.root.link(inside, job.context.entries[item.source].target)
        else:
            if item.loose and box.root.is_folder(inside):
                inside = posixpath.join(inside, posixpath.basename(item.source))
            box.put(job.context.folder / item.source, inside, mode=item.mode)
    except InfrastructureError as error:
        if error.file is None:
            error.file, error.line = job.file, step.line
        raise


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Lets one process at a time on this machine build an image."""
    number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(number, fcntl.LOCK_UN)
        os.close(number)


KEPT = 14 * 24 * 3600
"""Seconds after its last use until a built image may be removed."""
_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Images:
    """The folder of built images, for one sandbox."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch, self._folder = scratch, scratch.folder / "images"
        self._used: weakref.finalize[..., Images] | None = None

    def use(self) -> Path:
        """The folder. From now on until `close`, no sweep removes anything in it. Raises OSError."""
        if self._used is None:
            self._folder.mkdir(mode=0o711, exist_ok=True)
            number = os.open(self._folder / "used", _LOCK, 0o600)
            self._used = weakref.finalize(self, _release, number)
            fcntl.flock(number, fcntl.LOCK_SH)
        return self._folder

    def sweep(self) -> int:
        """Removes images that were not used for long, unless a process may be using some; returns how many.

        Raises InfrastructureError.
        """
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
                        with self._scratch.box() as gone:  # the folder of a box is removed even after a crash
                            os.rename(image, gone / "image")
                        self._folder.joinpath(f"{image.name}.lock").unlink(missing_ok=True)
                        removed += 1
        except OSError as error:
            raise InfrastructureError(f"old images cannot be removed: {error.strerror}", file=error.filename) from error
        finally:
            _release(number)
        return removed

    def close(self) -> None:
        """Declares that this sandbox uses no image any more."""
        if self._used is not None:
            self._used()
            self._used = None


def _release(number: int) -> None:
    """Frees the lock. Closing is not enough: a program that another thread is starting holds the file too."""
    fcntl.flock(number, fcntl.LOCK_UN)
    os.close(number)
