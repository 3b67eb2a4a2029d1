"""A bounty judged by real processes: dstack's development endpoint, a scripted model, the enclave."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import seal_kit as kit
from assay.enclave import submission
from assay.enclave.attest import EnclaveStatement
from assay.enclave.attest.document import parse_attestation
from assay.enclave.messages import EnclaveClient
from assay.errors import Unreachable
from assay.judge.rubric.solution import Solution
from assay.ledger import access, keys
from assay.ledger.keys import PublicKey, sealing
from assay.scheme.bounty import Bounty, read_bounty

API_KEY = "sk-of-the-operator-0123456789"
HERE = Path(__file__).parent
MINUTE = 60.0

SCRIPT = """
[[solutions]]
name = "good"
contains = "Merge sort"
checks = { C1 = "Merge sort", C2 = "n log n, always" }
verdict = "COHERENT"
[[solutions]]
name = "slow"
contains = "Bubble sort"
checks = { C1 = "Bubble sort" }
verdict = "ELEGANT"
[[solutions]]
name = "other"
contains = "A poem"
baseline = { B4 = "it is a poem" }
[[solutions]]
name = "half"
contains = "Count them"
checks = { C2 = "Count them" }
verdict = "FLAWED"
"""
GOOD = "Merge sort: split, sort, merge; n log n, always. Mark 7Q-good-private."
SLOW = "Bubble sort: swap neighbours until none is wrong. Mark 7Q-slow-private."
POEM = "A poem on lists, in no order at all. Mark 7Q-poem-private."
HALF = "Count them, each key, if they are few. Mark 7Q-half-private."
BPS = {GOOD: 10000, SLOW: 8000, POEM: 0, HALF: 2000}
"""What the script comes to."""


def wait(done: Callable[[], Any], why: str = "") -> Any:
    """What `done` comes to, once it is something; a minute at most."""
    until = time.monotonic() + MINUTE
    while not (outcome := done()):
        assert time.monotonic() < until, f"waited a minute for {why or done}"
        time.sleep(0.02)
    return outcome


@dataclass
class Process:
    """A program that can be killed and started again; its output goes to a file."""

    words: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None
    running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self.log.open("ab") as file:
            self.running = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, **self.environment},
                cwd=self.folder,
            )

    def stop(self, how: signal.Signals = signal.SIGKILL) -> int:
        """End it, and return how it ended."""
        if self.running is None:
            return 0
        self.running.send_signal(how)
        code = self.running.wait(MINUTE)
        self.running = None
        return code


@dataclass
class EnclaveWorld:
    """Everything around one bounty."""

    place: Path
    work: Path
    script: str = SCRIPT
    seconds: str = "20"

    def __post_init__(self) -> None:
        self.work.mkdir(parents=True)
        self.clock = self.work / "clock"
        self.at(kit.BEFORE)
        self.socket, self.listen = self.work / "dstack.sock", self.work / "enclave.sock"
        self.collateral = self.work / "collateral.json"
        self.script_file = self.work / "script.toml"
        self.script_file.write_text(self.script)
        assay = [sys.executable, "-m", "assay"]
        words = ["enclave", "develop", "--socket", str(self.socket), "--state", str(self.work / "dev")]
        self.dstack = Process([*assay, *words, "--collateral", str(self.collateral)], self.work / "dstack.log")
        self.port = _free_port()
        self.model = Process(
            [*assay, "model", "scripted", str(self.script_file), "--port", str(self.port)], self.work / "model.log"
        )
        settings = {
            "competition": str(self.place),
            "listen": f"unix:{self.listen}",
            "dstack": str(self.socket),
            "model": f"http://127.0.0.1:{self.port}/v1",
            "key": API_KEY,
            "clock": str(self.clock),
            "seconds": self.seconds,
        }
        self.cwd, self.temporary = self.work / "cwd", self.work / "tmp"
        for folder in (self.cwd, self.temporary):
            folder.mkdir()
        self.enclave = Process(
            [sys.executable, str(HERE / "serving.py"), json.dumps(settings)],
            self.work / "enclave.log",
            {"TMPDIR": str(self.temporary), "PYTHONFAULTHANDLER": "1", "OPENAI_LOG": "debug"},
            self.cwd,
        )

    @property
    def url(self) -> str:
        """Where the enclave is."""
        return f"unix:{self.listen}"

    @property
    def bounty(self) -> Bounty:
        """The bounty in its folder."""
        return read_bounty(self.place)

    def at(self, time: datetime) -> None:
        """Set the enclave's clock."""
        beside = self.clock.with_suffix(".new")
        beside.write_text(time.isoformat())
        beside.replace(self.clock)

    def start_dstack(self) -> None:
        """Start the development endpoint, and pin what it measures in bounty.toml, if that is not done yet."""
        self.dstack.start()
        wait(lambda: self.socket.exists() and self.collateral.exists(), "dstack")
        text = (self.place / "bounty.toml").read_text()
        if "[enclave]" not in text:
            lines = wait(
                lambda: [
                    splitline for splitline in self.dstack.log.read_text().splitlines() if splitline.startswith("compose hash")
                ]
            )
            pin = f'\n[enclave]\ncompose_hash = "{lines[0].split()[-1]}"\ndevelopment = true\n'
            (self.place / "bounty.toml").write_text(text + pin)

    def ready(self) -> None:
        """Wait until the enclave has its keys."""
        wait(lambda: self.status().get("state") not in (None, "starting"), "the enclave")

    def status(self) -> dict[str, Any]:
        """What /status says; nothing while there is nobody."""
        try:
            with EnclaveClient(self.url, seconds=MINUTE) as client:
                document: dict[str, Any] = json.loads(client.get("/status"))
                return document
        except Unreachable:
            return {}

    def stated(self) -> EnclaveStatement:
        """The enclave's keys, as it states them."""
        with EnclaveClient(self.url, seconds=MINUTE) as client:
            statement = parse_attestation(client.get("/attestation")).statement
        assert isinstance(statement, EnclaveStatement)
        return statement

    @property
    def to(self) -> PublicKey:
        """The key to seal to."""
        return sealing(self.stated().seal)

    def hand_in(self, participant: str, text: str) -> Solution:
        """Commit and submit, over the socket; asking again until it is answered."""
        what = kit.solution(text)
        place, _, signed = submission.commit_to_file(self.bounty, what, participant, kit.PEOPLE[participant])
        self.post("/commitments", signed.envelope)
        _, sealed = submission.seal_to_file(self.bounty, what, participant, self.to)
        assert place.solution.exists()
        self.post("/submissions", sealed.file)
        return what

    def post(self, path: str, body: bytes) -> bytes:
        """What is answered, asking again while nobody does."""

        def ask() -> bytes:
            try:
                with EnclaveClient(self.url, seconds=MINUTE) as client:
                    return client.post(path, body)
            except Unreachable:
                return b""

        answer: bytes = wait(ask, path)
        return answer

    def with_ledger(self) -> None:
        """Give the competition a ledger, whose log the bounty names."""
        keys.save("log", kit.LOG)
        access.make_ledger(self.place, "example.org/sorting", kit.LOG, name="log")

    def close(self) -> None:
        """End what runs."""
        for process in (self.enclave, self.model, self.dstack):
            process.stop()


@contextmanager
def world(folder: Path, **how: Any) -> Iterator[EnclaveWorld]:
    """Everything, running; ended in any case."""
    running = EnclaveWorld(kit.bounty_folder(folder / "bounty", **how.pop("bounty", {})), folder / "work", **how)
    try:
        running.start_dstack()
        running.model.start()
        running.enclave.start()
        running.ready()
        yield running
    finally:
        running.close()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
