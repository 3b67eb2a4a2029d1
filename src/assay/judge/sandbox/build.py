"""An image from a task's Dockerfile, without a container engine: its steps carried out in a box, and the box kept.

- The image after FROM is a root file system of that name, see `bases`. The host's /usr stands in for it only if the task says
  that any will do; otherwise the image is refused by its name. What boxes start from is in the digest.
- RUN has no network, and /usr stays read-only: a Dockerfile that installs something needs a container engine.
- What was built is kept under the digest of everything that went in, and is only ever seen whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING

from assay.errors import BadInput
from assay.judge import dockerfile, tree
from assay.judge.dockerfile import Context, Copy, Placed, Plan, Run
from assay.judge.sandbox.bases import unmet
from assay.judge.sandbox.box import Limits, Trouble
from assay.judge.sandbox.root import Rooted, of_host

if TYPE_CHECKING:
    from assay.judge.sandbox.bubblewrap import BubbleBox, Bubblewrap

__all__ = ["LIMITS", "image"]

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


def _key(base: Rooted, plan: Plan, text: str, context: Context, copies: dict[int, tuple[Placed, ...]]) -> str:
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
    plan: Plan
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
