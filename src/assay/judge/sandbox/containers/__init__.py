"""Boxes by a container engine: Docker, Podman, or any other that speaks as they do, with gVisor's runtime or another. SPEC 2.1.

- A box is one container without a network, a capability, or a way to gain one. Its first process is ours (`init`), commands are
  started beside it, and after each of them that process kills everything else.
- Bounds on memory, processes and cores are the engine's; wall-clock, output and disk are watched from here.
- Files go in and out as archives that are checked member by member.

What this sandbox cannot do: the hosts file, the host name and the volumes of an image belong to the engine and are not frozen;
and a door needs an engine on this machine and root.

What boxes start from: images that the engine has, or builds from a task's Dockerfile; always pinned by their id.

An image's id is the digest of its configuration, which holds the digests of all its layers: other content is another id, wherever
it was pulled or built.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput
from assay.judge import tree
from assay.judge.dockerfile import Context
from assay.judge.sandbox import Box, Image, Limits, Trouble
from assay.judge.sandbox.containers import archive
from assay.judge.sandbox.containers.container import ContainerBox, remove
from assay.judge.sandbox.containers.engine import LABEL, PATIENCE, Engine, Unmet, connect, dead, mine, talking

if TYPE_CHECKING:
    from docker import APIClient


PLAIN = "localhost/assay-base:12"
"""The image that boxes start from when a task names none; `tools/containers` makes it, `examples/base/Dockerfile` too."""


class Containers:
    """A `Sandbox`; one serves any number of threads."""

    name = "containers"

    def __init__(
        self, url: str | None = None, *, runtime: str | None = None, plain: str = PLAIN, build_network: str | None = None
    ) -> None:
        """Raises BadInput without the docker package and for a runtime that the engine does not know, Trouble if nobody answers.

        url: of the engine's socket, instead of $DOCKER_HOST, $CONTAINER_HOST or the usual places. runtime: by the engine's
        name, such as runsc. plain: the image for tasks that name none. build_network: of builds, by the engine's names.
        """
        self._engine: Engine = connect(url)
        if runtime:
            _check_runtime(self._engine, runtime)
        self._runtime, self._plain, self._build_network = runtime, plain, build_network

    def describe(self) -> str:
        """See `Sandbox.describe`."""
        runtime = f", runtime {self._runtime}" if self._runtime else ""
        at = self._engine
        return f"{at.title}{runtime} at {at.url}; memory and processes by control groups v{at.groups}; root without capabilities"

    def image(
        self, environment: Path | None = None, *, name: str = "", limits: Limits | None = None, any_base: bool = False
    ) -> Image:
        """See `Sandbox.image`. An image that the engine has goes before a Dockerfile; the image after FROM is always that one."""
        if environment is None or not (environment / "Dockerfile").is_file():
            return named(self._engine, name or self._plain)
        with suppress(Unmet):
            if name:
                return named(self._engine, name)
        try:
            return build(self._engine, environment, limits, network=self._build_network)
        except Trouble as error:
            if name:
                error.hint = f"the engine has no image {name} either; pull it, or build it elsewhere and load it"
            raise

    @contextmanager
    def open(self, image: Image, limits: Limits) -> Iterator[ContainerBox]:
        """See `Sandbox.open`."""
        with _closed(ContainerBox(self._engine, image, limits, self._runtime)) as box:
            yield box

    @contextmanager
    def freeze(self, box: Box) -> Iterator[Image]:
        """See `Sandbox.freeze`."""
        if not isinstance(box, ContainerBox):
            raise Trouble("the box is not one of this sandbox's")
        made = box.commit(mine())
        try:
            yield Image(made, box.image.env, box.image.workdir)
        finally:
            with closing(self._engine.client()) as client, suppress(Unmet), talking("the frozen image could not be removed"):
                client.remove_image(made, force=True)

    def sweep(self) -> int:
        """See `Sandbox.sweep`."""
        count = 0
        with closing(self._engine.client()) as client:
            with talking("the engine could not say what it has"):
                wanted = {"label": [LABEL]}
                containers = client.containers(all=True, filters=wanted)
                frozen = client.images(all=True, filters=wanted)
            for one in containers:
                if dead(one.get("Labels")):
                    remove(client, one["Id"])
                    count += 1
            for one in frozen:
                if dead(one.get("Labels")):
                    with suppress(Unmet), talking("an image could not be removed"):
                        client.remove_image(one["Id"], force=True)
                    count += 1
        return count


def _check_runtime(engine: Engine, runtime: str) -> None:
    """Refuses a runtime that boxes would not run by. Raises BadInput."""
    known = {*engine.runtimes, engine.runtime}
    if runtime not in known:
        raise BadInput(
            f"{engine.title} does not know the runtime {runtime[:80]!r}",
            field="--runtime",
            hint=f"it has {', '.join(sorted(known - {''}))}; others are named in its own settings",
        )
    if runtime != engine.runtime and engine.title.startswith("Podman"):
        # Podman's socket takes no notice of the wish, and would run everything without what was asked for.
        raise BadInput(
            f"Podman would run containers by {engine.runtime}, not {runtime}",
            field="--runtime",
            hint=f'set runtime = "{runtime}" under [engine] in its containers.conf and start it again',
        )


@contextmanager
def _closed(box: ContainerBox) -> Iterator[ContainerBox]:
    """Closes it; what went wrong inside goes before what goes wrong then, and what is left is for the next sweep."""
    try:
        yield box
    except BaseException:
        with suppress(Trouble):
            box.close()
        raise
    box.close()


BUILD = Limits(seconds=1800, memory=4 << 30, processes=4096, disk=4 << 30, output=1 << 20)
"""What a build may use if nobody says; disk: bytes in its context."""
_LAST = 2000
"""Bytes of a failed build's output that the error quotes."""
_ALWAYS = ("Dockerfile", ".dockerignore")
"""Sent to the engine whatever .dockerignore says, as Docker does."""


def named(at: Engine, name: str) -> Image:
    """The image with this name or id. Raises Unmet if the engine has none, and Trouble."""
    with closing(at.client()) as client:
        return _image(client, name)


def build(at: Engine, environment: Path, limits: Limits | None = None, *, network: str | None = None) -> Image:
    """The image of `environment/Dockerfile`, built by the engine, which keeps its steps and so builds quickly again.

    network: of its RUN steps, by the engine's names. Raises BadInput for files that cannot be sent, Trouble if it fails.
    """
    limits = limits or BUILD
    with tempfile.TemporaryFile() as file, closing(at.client(max(PATIENCE, int(limits.seconds)))) as client:
        tag = f"localhost/assay-task:{_context(environment, limits, file)[:32]}"
        file.seek(0)
        bounds: Any = {"memory": limits.memory, "memswap": limits.memory}
        with talking("the image could not be built"):
            said = client.build(
                fileobj=file, custom_context=True, dockerfile="Dockerfile", tag=tag, rm=True, forcerm=True, pull=False,
                decode=False, container_limits=bounds, network_mode=network,
            )  # fmt: skip
            _follow(said, limits.seconds, environment / "Dockerfile")
            return _image(client, tag)


def _image(client: APIClient, name: str) -> Image:
    with talking(f"there is no image {name}", hint="pull it or build it first, and give its name as the engine knows it"):
        about: Mapping[str, Any] = client.inspect_image(name)
    config = about.get("Config") or {}
    env = dict(line.split("=", 1) for line in config.get("Env") or () if "=" in line)
    digest = str(about["Id"])
    return Image(digest if digest.startswith("sha256:") else f"sha256:{digest}", env, config.get("WorkingDir") or "/app")


def _context(environment: Path, limits: Limits, file: Any) -> str:
    """Writes the archive of what a build may see; returns a digest of it, without the times of files."""
    try:
        context = Context.open(environment, bounds=tree.Bounds(limits.disk, limits.files))
        kept = dict(context.entries)
        for entry in tree.walk(environment):
            if entry.path in _ALWAYS:
                kept[entry.path] = entry
        if sum(entry.size for entry in kept.values() if entry.kind in ("file", "exec")) > limits.disk:
            raise tree.TooMuch(f"has more than {limits.disk} bytes in its files")
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as tar:
            archive.pack_entries(tar, environment, iter(kept[path] for path in sorted(kept)))
        total = sha256()
        for path in sorted(kept):
            total.update(f"{path!r} {kept[path].kind} {kept[path].target!r}\n".encode())
            if kept[path].kind in ("file", "exec"):
                total.update(tree.digest(environment, path).encode())
        return total.hexdigest()
    except tree.TreeError as error:
        raise BadInput(f"the files beside the Dockerfile cannot be sent: {error.what}", file=environment) from error
    except OSError as error:
        raise Trouble(f"the files beside the Dockerfile could not be read: {error.strerror}", file=error.filename) from error


def _follow(said: Iterator[bytes], seconds: float, file: Path) -> None:
    """Reads what a build says until it ends. Raises Trouble if it failed or takes too long."""
    last = b""
    until = time.monotonic() + seconds
    for piece in said:
        last = (last + piece)[-64 * _LAST :]
        if time.monotonic() > until:
            raise Trouble(f"the image was not built within {seconds:g} seconds", file=file)
    lines = [_line(line) for line in last.splitlines()]
    failed = next((line["error"] for line in lines if line.get("error")), None)
    if failed is not None:
        text = "".join(str(line.get("stream", "")) for line in lines)
        raise Trouble(f"the image could not be built: {failed}\n{text[-_LAST:]}".strip(), file=file)


def _line(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
