"""The containers sandbox: boxes made by Docker, Podman or a compatible engine, with any runtime, for example gVisor. SPEC 2.1.

- A box is a container without network and capabilities, and with no way to gain any. Its first process is Assay's own program
  (`command.program`). Commands start beside it, and after each command it kills everything else.
- The engine limits memory, processes and cores. Assay watches time, output and disk from outside.
- Files go in and out as archives, and every member of an archive is checked.
- A box starts from an image that the engine has, or that it builds from a task's Dockerfile. The image's id names it in the
  evidence: it is the digest of a configuration that contains the digests of all layers, so other content has another id.

Limitations: the engine owns the hosts file, the host name and the volumes of an image, so they are not frozen. A door needs root,
and an engine on this machine.
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
from assay.judge.sandbox import Box, Image, InfrastructureError, Limits
from assay.judge.sandbox.containers import archive
from assay.judge.sandbox.containers.container import ContainerBox, remove
from assay.judge.sandbox.containers.engine import LABEL, PATIENCE, Engine, Unmet, connect, dead, mine, talking

if TYPE_CHECKING:
    from docker import APIClient


PLAIN = "localhost/assay-base:12"
"""The image for tasks that name none. `tools/containers` makes it, and `examples/base/Dockerfile` does too."""


class Containers:
    """A `Sandbox`. Any number of threads may use one object."""

    name = "containers"

    def __init__(
        self, url: str | None = None, *, runtime: str | None = None, plain: str = PLAIN, build_network: str | None = None
    ) -> None:
        """Raises BadInput for a runtime that the engine does not know, and InfrastructureError if no engine answers.

        url: the engine's socket, instead of $DOCKER_HOST, $CONTAINER_HOST or the usual paths. runtime: as the engine names it,
        such as runsc. plain: the image for tasks that name none. build_network: the network of builds, as the engine names it.
        """
        self._engine: Engine = connect(url)
        if runtime:
            _check_runtime(self._engine, runtime)
        self._runtime, self._plain, self._build_network = runtime, plain, build_network

    def describe(self) -> str:
        """See `Sandbox.describe`."""
        runtime = f", runtime {self._runtime}" if self._runtime else ""
        about = self._engine
        limits = f"memory and processes by control groups v{about.groups}"
        return f"{about.title}{runtime} at {about.url}; {limits}; root without capabilities"

    def image(
        self, environment: Path | None = None, *, name: str = "", limits: Limits | None = None, any_base: bool = False
    ) -> Image:
        """See `Sandbox.image`. An image `name` that the engine has is preferred to building the Dockerfile."""
        if environment is None or not (environment / "Dockerfile").is_file():
            return named(self._engine, name or self._plain)
        with suppress(Unmet):
            if name:
                return named(self._engine, name)
        try:
            return build(self._engine, environment, limits, network=self._build_network)
        except InfrastructureError as error:
            if name:
                error.hint = f"the engine has no image {name} either: pull it, or build it elsewhere and load it"
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
            raise InfrastructureError("the box belongs to another sandbox")
        frozen = box.commit(mine())
        try:
            yield Image(frozen, box.image.env, box.image.workdir)
        finally:
            with closing(self._engine.client()) as client, suppress(Unmet), talking("the frozen image could not be removed"):
                client.remove_image(frozen, force=True)

    def sweep(self) -> int:
        """See `Sandbox.sweep`."""
        count = 0
        with closing(self._engine.client()) as client:
            with talking("the engine could not list its containers and images"):
                wanted = {"label": [LABEL]}
                containers = client.containers(all=True, filters=wanted)
                frozen = client.images(all=True, filters=wanted)
            for container in containers:
                if dead(container.get("Labels")):
                    remove(client, container["Id"])
                    count += 1
            for image in frozen:
                if dead(image.get("Labels")):
                    with suppress(Unmet), talking("an image could not be removed"):
                        client.remove_image(image["Id"], force=True)
                    count += 1
        return count


def _check_runtime(engine: Engine, runtime: str) -> None:
    """Raises BadInput for a runtime that boxes would not really use."""
    known = {*engine.runtimes, engine.runtime}
    if runtime not in known:
        raise BadInput(
            f"{engine.title} does not know the runtime {runtime[:80]!r}",
            field="--runtime",
            hint=f"it has {', '.join(sorted(known - {''}))}; add others in its own settings",
        )
    if runtime != engine.runtime and engine.title.startswith("Podman"):
        # Podman's socket ignores the option, and would run every container with its default runtime.
        raise BadInput(
            f"Podman would run containers with {engine.runtime}, not {runtime}",
            field="--runtime",
            hint=f'set runtime = "{runtime}" under [engine] in its containers.conf, and restart it',
        )


@contextmanager
def _closed(box: ContainerBox) -> Iterator[ContainerBox]:
    """Closes the box. An error in the block hides an error of closing, after which the next sweep removes the rest."""
    try:
        yield box
    except BaseException:
        with suppress(InfrastructureError):
            box.close()
        raise
    box.close()


BUILD = Limits(seconds=1800, memory=4 << 30, processes=4096, disk=4 << 30, output=1 << 20)
"""The default limits of a build. disk: bytes in its context."""
_LAST = 2000
"""Bytes of a failed build's output that the error message quotes."""
_ALWAYS = ("Dockerfile", ".dockerignore")
"""Files that are sent to the engine even if .dockerignore excludes them, as Docker does."""


def named(at: Engine, name: str) -> Image:
    """The image with this name or id. Raises Unmet if the engine does not have it, and InfrastructureError."""
    with closing(at.client()) as client:
        return _image(client, name)


def build(at: Engine, environment: Path, limits: Limits | None = None, *, network: str | None = None) -> Image:
    """The image of `environment/Dockerfile`, built by the engine. The engine caches the steps, so the next build is quick.

    network: the network of RUN, as the engine names it. Raises BadInput for files that cannot be sent, and InfrastructureError.
    """
    limits = limits or BUILD
    with tempfile.TemporaryFile() as file, closing(at.client(max(PATIENCE, int(limits.seconds)))) as client:
        tag = f"localhost/assay-task:{_context(environment, limits, file)[:32]}"
        file.seek(0)
        bounds: Any = {"memory": limits.memory, "memswap": limits.memory}
        with talking("the image could not be built"):
            output = client.build(
                fileobj=file, custom_context=True, dockerfile="Dockerfile", tag=tag, rm=True, forcerm=True, pull=False,
                decode=False, container_limits=bounds, network_mode=network,
            )  # fmt: skip
            _follow(output, limits.seconds, environment / "Dockerfile")
            return _image(client, tag)


def _image(client: APIClient, name: str) -> Image:
    with talking(f"there is no image {name}", hint="pull it or build it first, and give its name as the engine knows it"):
        about: Mapping[str, Any] = client.inspect_image(name)
    config = about.get("Config") or {}
    env = dict(line.split("=", 1) for line in config.get("Env") or () if "=" in line)
    digest = str(about["Id"])
    return Image(digest if digest.startswith("sha256:") else f"sha256:{digest}", env, config.get("WorkingDir") or "/app")


def _context(environment: Path, limits: Limits, file: Any) -> str:
    """Writes an archive of the files that a build may see, and returns its digest, which leaves out the times of files."""
    try:
        context = Context.open(environment, bounds=tree.Bounds(limits.disk, limits.files))
        entries = dict(context.entries)
        for entry in tree.walk(environment):
            if entry.path in _ALWAYS:
                entries[entry.path] = entry
        if sum(entry.size for entry in entries.values() if entry.kind in ("file", "exec")) > limits.disk:
            raise tree.TooMuch(f"has more than {limits.disk} bytes in its files")
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as tar:
            archive.pack_entries(tar, environment, iter(entries[path] for path in sorted(entries)))
        total = sha256()
        for path in sorted(entries):
            total.update(f"{path!r} {entries[path].kind} {entries[path].target!r}\n".encode())
            if entries[path].kind in ("file", "exec"):
                total.update(tree.digest(environment, path).encode())
        return total.hexdigest()
    except tree.TreeError as error:
        raise BadInput(f"the files beside the Dockerfile cannot be sent: {error.what}", file=environment) from error
    except OSError as error:
        raise InfrastructureError(
            f"the files beside the Dockerfile could not be read: {error.strerror}", file=error.filename
        ) from error


def _follow(output: Iterator[bytes], seconds: float, file: Path) -> None:
    """Reads the output of a build until it ends. Raises InfrastructureError if the build fails or takes too long."""
    last = b""
    until = time.monotonic() + seconds
    for piece in output:
        last = (last + piece)[-64 * _LAST :]
        if time.monotonic() > until:
            raise InfrastructureError(f"the image was not built within {seconds:g} seconds", file=file)
    lines = [_line(line) for line in last.splitlines()]
    failed = next((line["error"] for line in lines if line.get("error")), None)
    if failed is not None:
        text = "".join(str(line.get("stream", "")) for line in lines)
        raise InfrastructureError(f"the image could not be built: {failed}\n{text[-_LAST:]}".strip(), file=file)


def _line(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
