"""Boxes by a container engine: Docker, Podman, or any other that speaks as they do, with gVisor's runtime or another. SPEC 2.1.

- A box is one container without a network, a capability, or a way to gain one. Its first process is ours (`init`), commands are
  started beside it, and after each of them that process kills everything else.
- Bounds on memory, processes and cores are the engine's; wall-clock, output and disk are watched from here.
- Files go in and out as archives that are checked member by member.

What this sandbox cannot do: the hosts file, the host name and the volumes of an image belong to the engine and are not frozen;
and a door needs an engine on this machine and root.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from assay.errors import BadInput
from assay.judge.sandbox.box import Box, Image, Limits, Trouble
from assay.judge.sandbox.containers import images, whose
from assay.judge.sandbox.containers.container import ContainerBox, remove
from assay.judge.sandbox.containers.engine import Engine, Unmet, connect, talking

__all__ = ["PLAIN", "ContainerBox", "Containers"]

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
            return images.named(self._engine, name or self._plain)
        with suppress(Unmet):
            if name:
                return images.named(self._engine, name)
        try:
            return images.build(self._engine, environment, limits, network=self._build_network)
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
        made = box.commit(whose.mine())
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
                wanted = {"label": [whose.LABEL]}
                containers = client.containers(all=True, filters=wanted)
                frozen = client.images(all=True, filters=wanted)
            for one in containers:
                if whose.dead(one.get("Labels")):
                    remove(client, one["Id"])
                    count += 1
            for one in frozen:
                if whose.dead(one.get("Labels")):
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
