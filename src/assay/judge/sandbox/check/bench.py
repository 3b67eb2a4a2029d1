"""What checks share: a bench with a sandbox to try, scripts run in its boxes, and the list that checks are put on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from assay.errors import AssayError
from assay.judge.sandbox.box import Box, Image, Limits, Ran, Sandbox

__all__ = ["LIMITS", "MIB", "Bench", "Check", "CheckFailed", "Result", "Said", "listing"]

LIMITS = Limits(seconds=300, memory=256 << 20, processes=64, disk=64 << 20, output=1 << 20, files=20_000)
"""Time is far away, so that on a machine that is busy the bound that is checked is still the first one met."""
MIB = 1 << 20


@dataclass(frozen=True)
class Said:
    """How a script ended and what it printed."""

    ran: Ran
    out: str
    err: str

    def must(self) -> str:
        """Its output, if it ended well; raises CheckFailed."""
        if self.ran.exit_code != 0:
            raise CheckFailed(f"a plain script failed: {self.ran}; {self.err.strip()[-300:]}")
        return self.out


class CheckFailed(AssayError):
    """A check could not even be carried out."""


@dataclass(frozen=True)
class Bench:
    """A sandbox and what checks of it need."""

    sandbox: Sandbox
    image: Image
    folder: Path
    """On the host, for whatever the checks keep."""
    token: str
    """Something that occurs nowhere by chance."""

    @contextmanager
    def box(self) -> Iterator[Box]:
        """A new box."""
        with self.sandbox.open(self.image, LIMITS) as box:
            yield box

    def sh(self, box: Box, script: str, *, limits: Limits = LIMITS, stdin: bytes = b"", env: Mapping[str, str] | None = None,
           door: Path | None = None) -> Said:  # fmt: skip
        """Runs a shell script in a box."""
        out, err = self.folder / "stdout", self.folder / "stderr"
        ran = box.run(["sh", "-c", script], limits=limits, stdout=out, stderr=err, stdin=stdin, env=env, door=door)
        return Said(ran, out.read_text(errors="replace"), err.read_text(errors="replace"))

    def once(self, script: str, *, limits: Limits = LIMITS, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Said:
        """Runs a shell script in a box of its own."""
        with self.box() as box:
            return self.sh(box, script, limits=limits, stdin=stdin, env=env)

    def secret(self) -> Path:
        """A file of the host that everybody may read, with the token in it."""
        place = self.folder / "secret"
        place.mkdir(exist_ok=True)
        (place / "file").write_text(self.token)
        return place / "file"


Check = Callable[[Bench], str]


@dataclass(frozen=True)
class Result:
    """One check's."""

    name: str
    ok: bool
    why: str
    """What is wrong; empty if nothing is."""


def listing(checks: dict[str, Check]) -> Callable[[str], Callable[[Check], Check]]:
    """A decorator that puts a check on this list, by what it holds."""

    def named(name: str) -> Callable[[Check], Check]:
        def keep(one: Check) -> Check:
            checks[name] = one
            return one

        return keep

    return named
