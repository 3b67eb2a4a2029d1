"""Network namespaces for tests: each process on a machine of its own, whose line can be cut, and made slow.

host (bridge, .254) ──┬── operator (.1)
                      ├── val-1 (.2)
                      └── …
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property

__all__ = ["Wires"]

_SECONDS = 60
"""For one command of ip or tc, on a busy machine."""
NETEM = ("netem", "delay", "80ms", "40ms", "loss", "10%")
NARROW = ("tbf", "rate", "128kbit", "burst", "4kb", "latency", "300ms")


class Wires:
    """A namespace for each name, on one bridge; they are gone after the block. It needs root.

    host: the address of each name.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self._own = names, os.getpid()
        self._net = f"10.{200 + self._own % 50}.{self._own // 50 % 250}"
        self._bridge = f"assay{self._own}"
        self.host = {name: f"{self._net}.{number}" for number, name in enumerate(names, 1)}

    def __enter__(self) -> Wires:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self._net}.254/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for number, name in enumerate(self.names):
            space, outer = self._space(name), f"as{self._own}-{number}"
            _ip("netns", "add", space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", outer, "master", self._bridge, "up")
            _ip("-n", space, "addr", "add", f"{self.host[name]}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", space, "link", "set", device, "up")

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self._space(name))
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._bridge)

    def _space(self, name: str) -> str:
        return f"assay{self._own}-{name}"

    def prefix(self, name: str) -> list[str]:
        """The words before a command that runs in a namespace."""
        return ["ip", "netns", "exec", self._space(name)]

    def cut(self, name: str, *, off: bool) -> None:
        """Take somebody's network away, or give it back."""
        _ip("-n", self._space(name), "link", "set", "eth0", "down" if off else "up")

    def disturb(self, name: str, *rules: str) -> None:
        """Make somebody's line bad, in the words of `tc qdisc`; without any it is good again."""
        words = ["replace", "dev", "eth0", "root", *(rules or ("pfifo", "limit", "1000"))]
        subprocess.run(["tc", "-n", self._space(name), "qdisc", *words], check=True, capture_output=True, timeout=_SECONDS)

    @cached_property
    def trouble(self) -> tuple[str, ...]:
        """Delay and loss by netem; where the kernel has none, a narrow line with a short queue, which delays and drops too."""
        for rules in (NETEM, NARROW):
            with suppress(subprocess.CalledProcessError):
                self.disturb(self.names[0], *rules)
                self.disturb(self.names[0])
                return rules
        raise AssertionError("`tc qdisc` can do neither netem nor tbf here")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=_SECONDS)
