"""A sandbox that opens no further box when somebody wants the end of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from assay.judge.running import Stop
from assay.judge.sandbox.box import Box, Image, Limits, Sandbox, Trouble

__all__ = ["UntilStopped"]


class UntilStopped:
    """A `Sandbox` around another one."""

    def __init__(self, sandbox: Sandbox, stop: Stop) -> None:
        self.name, self._sandbox, self._stop = sandbox.name, sandbox, stop

    def describe(self) -> str:
        """See `Sandbox.describe`."""
        return self._sandbox.describe()

    def image(
        self, environment: Path | None = None, *, name: str = "", limits: Limits | None = None, any_base: bool = False
    ) -> Image:
        """See `Sandbox.image`."""
        return self._sandbox.image(environment, name=name, limits=limits, any_base=any_base)

    def open(self, image: Image, limits: Limits) -> AbstractContextManager[Box]:
        """See `Sandbox.open`. Raises Trouble when the run is to end."""
        if self._stop.asked:
            raise Trouble("the run was stopped")
        return self._sandbox.open(image, limits)

    @contextmanager
    def freeze(self, box: Box) -> Iterator[Image]:
        """See `Sandbox.freeze`."""
        with self._sandbox.freeze(box) as image:
            yield image

    def sweep(self) -> int:
        """See `Sandbox.sweep`."""
        return self._sandbox.sweep()
