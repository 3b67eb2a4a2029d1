"""Agents that try to win without solving, each in every mode and in every sandbox that this machine has. SPEC 2.1.

    python -m tests.cheating                                      runs them all, and writes the table in docs/security.md
    python -m tests.cheating --only hard-links --only socket-bomb    writes the rows of these alone; the others stay

The task asks for a number that only its tests and its solution know. In `separate` mode nobody may pass; what the weaker modes
cannot stop is listed by name (`Cheat.known`). No cheat may become an error, which would be tried again, nor reach the host.
"""

from __future__ import annotations

import argparse
import socket
import socketserver
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "kits"))

import pytest

import podman
from assay.judge.running import ATTEMPTS
from assay.judge.sandbox import NAMES, Sandbox
from assay.judge.terminal.trial import Keeping, TrialResult, TrialSetup, image_of, run_trial
from judge_kit import bubblewrap, make_task, sh

__all__ = ["CHEATS", "MODES", "Cheat", "Ground", "ground", "main", "opened", "read_table", "table"]

MODES = ("separate", "snapshot", "shared")
ANSWER = "7d0f3c1e-96b2-4a55-8c44-51f0be2a9d17"
TESTS = """#!/bin/bash
if python3 /tests/check.py; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
CHECK = """import pathlib, sys
wanted = pathlib.Path("/tests/answer.txt").read_text().strip()
found = pathlib.Path("/app/out.txt").read_text().strip()
sys.exit(0 if found == wanted else 1)
"""
SCRIPTS = Path(__file__).parent / "cheats"


@dataclass(frozen=True)
class Cheat:
    """One way of cheating: a script in cheats/, whose first lines say what it does and what is known of it.

    @TESTS@ in it is the tests' folder on the host, @PORT@ and @SOCKET@ are listeners on the host that have the answer.
    """

    name: str
    what: str
    script: str
    known: frozenset[str] = frozenset()
    """Modes that cannot stop it: `snapshot`, `shared`, or both."""
    in_containers: frozenset[str] = frozenset()
    """Modes that cannot stop it where the agent may write to the box's /usr."""
    agent_seconds: float = 300
    tests_seconds: float = 300
    looks: bool = False
    """It does no more than read, and so need not stop where it sees that it is not in a box."""

    @classmethod
    def read(cls, file: Path) -> Cheat:
        """The cheat in a file."""
        lines = file.read_text(encoding="utf-8").splitlines()
        head = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
        settings = dict(line.partition(": ")[::2] for line in head[1:])
        unknown = set(settings) - {"known", "known in containers", "agent seconds", "tests seconds", "only looks"}
        if unknown:
            raise ValueError(f"{file.name} says {unknown}")
        return cls(
            file.stem,
            head[0],
            "\n".join(lines) + "\n",
            known=frozenset(settings.get("known", "").split()),
            in_containers=frozenset(settings.get("known in containers", "").split()),
            agent_seconds=float(settings.get("agent seconds", 300)),
            tests_seconds=float(settings.get("tests seconds", 300)),
            looks="only looks" in settings,
        )

    def may_pass(self, mode: str, sandbox: str) -> bool:
        """Whether passing is known and listed."""
        return mode in self.known or (sandbox == "containers" and mode in self.in_containers)


CHEATS = tuple(Cheat.read(file) for file in sorted(SCRIPTS.glob("*.sh")))


@dataclass
class Ground:
    """A sandbox, the task in three modes, and the host's listeners that nobody may reach."""

    sandbox: Sandbox
    folder: Path
    port: int
    name: str
    reached: list[str] = field(default_factory=list)
    """Listeners that somebody did reach."""

    def tried(self, cheat: Cheat, mode: str) -> TrialResult:
        """One trial of one cheat; an error is tried again, as in a run, for an engine may have a bad moment."""
        trial = self._tried(cheat, mode)
        for _ in range(ATTEMPTS - 1):
            if trial.verdict.outcome == "error":
                trial = self._tried(cheat, mode)
        return trial

    def _tried(self, cheat: Cheat, mode: str) -> TrialResult:
        place = Path(tempfile.mkdtemp(prefix=f"{cheat.name}-{mode}-", dir=self.folder))
        task = make_task(
            place / "task",
            tests=TESTS,
            dockerfile="FROM localhost/assay-base\nWORKDIR /app\n",
            solution=f"echo {ANSWER} > /app/out.txt\n",
            mode=mode,
            files={"tests/check.py": CHECK, "tests/answer.txt": f"{ANSWER}\n"},
            agent_seconds=cheat.agent_seconds,
            tests_seconds=cheat.tests_seconds,
            memory="256M",
            storage="64M",
        )
        script = cheat.script
        for mark, value in (("@TESTS@", str(task.tests)), ("@PORT@", str(self.port)), ("@SOCKET@", self.name)):
            script = script.replace(mark, value)
        if not cheat.looks:  # a sandbox that is broken must not cost us the machine
            script = f"[ -e '{task.tests}' ] && exit 99\n{script}"
        (place / "kept").mkdir()
        judge = TrialSetup(self.sandbox, keeping=Keeping(processes=128))
        return run_trial(judge, task, sh(script), image_of(self.sandbox, task), place / "kept")

    def honest(self) -> TrialResult:
        """One trial of somebody who knows the answer."""
        return self.tried(Cheat("honest", "solves it", f"echo {ANSWER} > out.txt"), "separate")


@contextmanager
def opened(name: str) -> Iterator[Sandbox]:
    """The sandbox of that name; a test is skipped where there is none."""
    if name == "bubblewrap":
        yield bubblewrap()
        return
    with contextmanager(podman.sandbox)() as sandbox:
        yield sandbox


@contextmanager
def ground(sandbox: Sandbox, folder: Path) -> Iterator[Ground]:
    """Everything in place, with the listeners open."""
    name = f"assay-cheating-{socket.gethostname()}-{folder.name}-{id(folder)}"
    ground = Ground(sandbox, folder, 0, name)

    class Tell(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            ground.reached.append(str(self.server.server_address))
            self.request.sendall(ANSWER.encode())

    class Loopback(socketserver.ThreadingTCPServer):
        daemon_threads = True

    class Abstract(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    with Loopback(("127.0.0.1", 0), Tell) as loopback, Abstract("\0" + name, Tell) as other:
        ground.port = loopback.server_address[1]
        threads = [threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}) for server in (loopback, other)]
        for thread in threads:
            thread.start()
        try:
            yield ground
        finally:
            loopback.shutdown()
            other.shutdown()
            for thread in threads:
                thread.join()


def table(outcomes: Mapping[tuple[str, str, str], str], sandboxes: Sequence[str]) -> str:
    """The table for people: a row for each cheat, a column for each sandbox and mode."""
    columns = [(sandbox, mode) for sandbox in sandboxes for mode in MODES]
    head = "| cheat | what it does | " + " | ".join(f"{sandbox}, {mode}" for sandbox, mode in columns) + " |"
    rows = [head, "|" + "---|" * (2 + len(columns))]
    for cheat in CHEATS:
        cells = []
        for sandbox, mode in columns:
            outcome = outcomes.get((cheat.name, sandbox, mode), "not run")
            cells.append("**passes** (known)" if outcome == "pass" else outcome)
        rows.append(f"| `{cheat.name}` | {cheat.what} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def read_table(text: str) -> dict[tuple[str, str, str], str]:
    """What a table says: (cheat, sandbox, mode) → outcome."""
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in text.strip().splitlines())
    columns = [cell.split(", ") for cell in head[2:]]
    return {
        (row[0].strip("`"), sandbox, mode): "pass" if cell.startswith("**passes**") else cell
        for row in rows
        for (sandbox, mode), cell in zip(columns, row[2:], strict=True)
    }


def _all(ground: Ground, cheats: Sequence[Cheat], outcomes: dict[tuple[str, str, str], str]) -> list[str]:
    """The cheats in every mode of one sandbox; what is not as it must be."""
    name, wrong = ground.sandbox.name, []
    jobs = [(cheat, mode) for cheat in cheats for mode in MODES]
    with ThreadPoolExecutor(2) as pool:
        for (cheat, mode), tried in zip(jobs, pool.map(lambda job: ground.tried(*job), jobs), strict=True):
            verdict = tried.verdict
            outcomes[cheat.name, name, mode] = verdict.outcome
            ok = verdict.outcome in ("fail", "timeout") or (verdict.outcome == "pass" and cheat.may_pass(mode, name))
            line = f"{name} {mode} {cheat.name}: {verdict.outcome} ({verdict.reason}) {tried.message}"
            print(line if ok else f"WRONG {line}", flush=True)
            wrong += [] if ok else [line]
    return wrong + [f"{name}: reached {listener}" for listener in ground.reached]


BEGIN, END = "<!-- cheats: python -m tests.cheating -->\n", "<!-- end of cheats -->\n"


def main(argv: Sequence[str]) -> int:
    """Runs the cheats everywhere, writes the table, and says what is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="?", type=Path, default=Path(__file__).parents[3] / "docs" / "security.md")
    names = [cheat.name for cheat in CHEATS]
    parser.add_argument("--only", metavar="CHEAT", action="append", choices=names, help="one of cheats/; may be repeated")
    arguments = parser.parse_args(argv)
    page: Path = arguments.page
    cheats = [cheat for cheat in CHEATS if cheat.name in (arguments.only or names)]
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    old, after = rest.split(END)
    outcomes = read_table(old) if arguments.only else {}
    count = 0
    wrong: list[str] = []
    for name in NAMES:
        try:
            with (
                opened(name) as sandbox,
                tempfile.TemporaryDirectory(prefix="assay-cheats-") as folder,
                ground(sandbox, Path(folder)) as prepared,
            ):
                wrong += _all(prepared, cheats, outcomes)
                count += len(cheats) * len(MODES)
        except pytest.skip.Exception as why:
            print(f"{name}: not run: {why}")
    page.write_text(before + BEGIN + table(outcomes, sorted({key[1] for key in outcomes})) + END + after, encoding="utf-8")
    print(f"{count} trials of {len(cheats)} cheats; {len(wrong)} not as they must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
