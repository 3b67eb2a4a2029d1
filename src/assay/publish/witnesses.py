"""Ask the witnesses of a policy to cosign a log's checkpoints, and show each as soon as a quorum has. SPEC 6, C2SP tlog-witness.

All witnesses are asked at once. As soon as those that have cosigned are a quorum, the checkpoint is stored and shown to
everybody, and the others are hung up on: a witness that is slow, dead or lying delays nothing but the quorum.

A witness that has seen another history of the log, or a longer one, says so. Then its checkpoint is fetched, and kept beside ours
in the folder `forks` beside the ledger, as evidence that anybody can check: `assay.ledger.forks`.
"""

from __future__ import annotations

import hashlib
import queue
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from assay.errors import BadInput
from assay.ledger import check, cosigning, forks
from assay.ledger.access import Ledger
from assay.ledger.check import CheckError
from assay.ledger.cosigning import Policy, PolicyWitness
from assay.ledger.witness import SIZE_TYPE, request_body
from assay.peers import NoAnswer, Words
from assay.peers.http import Peer

__all__ = ["FORKS", "SECONDS", "CosignedCheckpoint", "LogWitnesses", "policy_of"]

SECONDS = 20.0
"""For all witnesses together, at one checkpoint."""
ANSWER_BYTES = 2**18
TRIES = 4
"""Requests to one witness at one checkpoint: it may have to say several times which size it knows."""
FORKS = "forks"


@dataclass(frozen=True)
class CosignedCheckpoint:
    """The witnesses' answers about one checkpoint. Names are those of the policy file.

    reached: they are a quorum, so it is stored and shown. failed: name → why there is no cosignature; witnesses that were still
    being asked when the quorum was reached are left out. evidence: files that show another history of the log.
    """

    size: int
    reached: bool
    cosigned: tuple[str, ...]
    failed: Mapping[str, str]
    evidence: tuple[Path, ...] = ()


def policy_of(ledger: Ledger) -> Policy | None:
    """The policy of a ledger's log; None if it has no witnesses.

    Raises BadInput for a policy that cannot be read, does not name this log, or whose witnesses with a URL are no quorum.
    """
    path = ledger.config.policy
    if not path.exists():
        return None
    policy = cosigning.read_policy(path)
    if policy.logs and ledger.key not in policy.logs:
        what = f"does not name this log, {ledger.key}"
        raise BadInput(what, file=path, hint="add a line: log, and the key in ledger.toml; or leave out all logs")
    reachable = {name for name, witness in policy.witnesses.items() if witness.url}
    if not policy.reached(reachable):
        what = f"only {len(reachable)} of its {len(policy.witnesses)} witnesses have a URL, too few for the quorum"
        raise BadInput(what, file=path, hint="write where each witness takes checkpoints: witness NAME VKEY URL")
    for name in sorted(reachable):
        parts = urlsplit(policy.witnesses[name].url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"the URL of {name} is not one", file=path, hint="write it as https://witness.example.org/path")
    return policy


class LogWitnesses:
    """The witnesses of one log. seconds: for all of them together, at one checkpoint. It remembers the size that each signed."""

    def __init__(self, policy: Policy, *, seconds: float = SECONDS) -> None:
        self.policy, self.seconds = policy, seconds
        self._sizes = dict[str, int]()

    def bring_up(self, ledger: Ledger) -> Iterator[CosignedCheckpoint]:
        """Have each checkpoint cosigned that is not yet, one after the other, until one has no quorum.

        Raises BadInput, StoreError.
        """
        skipped = 0
        while True:
            with ledger.store.reading() as view:
                receipt, last = ledger.unwitnessed(view), view.last_receipt()
                if receipt is not None and skipped > receipt.position + 1:
                    receipt = view.receipt_at(skipped - 1)
            if receipt is None or last is None:
                return
            ledger.log.reload()
            asked = _WitnessRound(self, ledger, receipt.checkpoint)
            reached = asked.ask()
            if reached:
                ledger.cosigned(asked.note, asked.size)
            yield CosignedCheckpoint(asked.size, reached, tuple(asked.names), dict(asked.failed), tuple(asked.evidence))
            ahead = max(asked.ahead, default=0)
            if not reached and not asked.size < ahead <= last.position + 1:
                return
            skipped = 0 if reached else ahead  # of an older checkpoint they sign nothing any more

    def known(self, name: str, size: int) -> int:
        """The size that a witness has signed, as far as is known: else the one before, since it signs each."""
        return self._sizes.get(name, max(0, size - 1))

    def learn(self, name: str, size: int) -> None:
        """Remember the size that a witness has signed."""
        self._sizes[name] = size


class _Other(Exception):
    """A witness did not cosign; the reason in a few words."""


@dataclass
class _WitnessRound:
    """One checkpoint, and what its witnesses have said so far."""

    witnesses: LogWitnesses
    ledger: Ledger
    note: bytes
    names: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    evidence: list[Path] = field(default_factory=list)
    ahead: list[int] = field(default_factory=list)
    """Larger sizes of this log that witnesses have signed."""

    def __post_init__(self) -> None:
        self.key, self.log = self.ledger.key, self.ledger.log
        self.size = check.check_checkpoint(self.note, [self.key]).size
        self._text = self.note
        self._answers: queue.Queue[tuple[str, list[str] | str]] = queue.Queue()
        self._reading = threading.Lock()  # a log's tiles are read by one thread at a time

    def ask(self) -> bool:
        """Ask all witnesses at once, until those that have cosigned are a quorum; False if they will not be."""
        policy, until = self.witnesses.policy, time.monotonic() + self.witnesses.seconds
        wanted = {name: witness for name, witness in policy.witnesses.items() if witness.url}
        seconds = self.witnesses.seconds
        peers = {name: Peer(witness.url, seconds=seconds, proxies=True, keep=False) for name, witness in wanted.items()}
        try:
            for name, connection in peers.items():
                threading.Thread(target=self._ask_witness, args=(name, wanted[name], connection), daemon=True).start()
            left = set(peers)
            while left and not policy.reached(set(self.names)):
                try:
                    name, answer = self._answers.get(timeout=max(0.0, until - time.monotonic()))
                except queue.Empty:
                    break
                left.discard(name)
                self._take(name, answer)
            if reached := policy.reached(set(self.names)):
                return reached
            self.failed |= dict.fromkeys(left, f"no answer within {self.witnesses.seconds:g} seconds")
            return False
        finally:
            for connection in peers.values():
                connection.hang_up()
                connection.close()

    def _take(self, name: str, answer: list[str] | str) -> None:
        if isinstance(answer, str):
            self.failed[name] = answer
            return
        self.note = cosigning.merged(self.note, answer)
        self.names.append(name)
        self.witnesses.learn(name, self.size)

    def _ask_witness(self, name: str, witness: PolicyWitness, connection: Peer) -> None:
        """Ask one witness, in a thread of its own."""
        try:
            self._answers.put((name, self._lines(name, witness, connection)))
        except _Other as why:
            self._answers.put((name, str(why)))
        except NoAnswer as silent:
            self._answers.put((name, silent.why))
        except (BadInput, CheckError, OSError) as error:  # a tile of ours cannot be read; or the folder of the evidence written
            self._answers.put((name, Words()(error)))

    def _lines(self, name: str, witness: PolicyWitness, connection: Peer) -> list[str]:
        """The signature lines of a witness; raises _Other, NoAnswer."""
        url, old = f"{witness.url.rstrip('/')}/add-checkpoint", min(self.witnesses.known(name, self.size), self.size)
        for _ in range(TRIES):
            with self._reading:
                proof = self.log.consistency(old, self.size)
            body = request_body(old, proof, self._text)
            headers = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))}
            answer = connection.ask("POST", url, headers=headers, body=body, most=ANSWER_BYTES)
            if answer.status == 200:
                return self._cosignature(witness, answer.body)
            size = _size(answer.body) if answer.status == 409 and SIZE_TYPE in (answer.header("content-type") or "") else None
            if size is None and answer.status in (409, 422):
                raise _Other(f"it has seen another history of this log (status {answer.status}){self._keep(witness, connection)}")
            if size is None:
                raise _Other(f"it answers with status {answer.status}: {Words()(answer.body.decode('utf-8', 'replace'))}")
            if size > self.size:
                self.ahead.append(size)
                fork_note = self._keep(witness, connection) if size > self.log.size else ""
                raise _Other(f"it has signed {size} {'entry' if size == 1 else 'entries'} of this log already{fork_note}")
            self.witnesses.learn(name, size)
            old = size
        raise _Other(f"it names another size each time, now {old}")

    def _cosignature(self, witness: PolicyWitness, body: bytes) -> list[str]:
        """The lines of this witness in its answer; raises _Other if it did not cosign this checkpoint."""
        try:
            lines = cosigning.signature_lines(body)
            mine = [line for line in lines if line.split(" ", 2)[1] == witness.key.name]
            if not cosigning.cosignatures(cosigning.merged(self._text, mine), [witness.key]):
                raise _Other("its answer has no cosignature of its key")
        except CheckError as error:
            raise _Other(f"its answer is no cosignature of this checkpoint: {Words()(error.what)}") from None
        return [line for line in mine if cosigning.cosignatures(cosigning.merged(self._text, [line]), [witness.key])]

    def _keep(self, witness: PolicyWitness, connection: Peer) -> str:
        """Fetch what a witness has signed, and keep it beside ours if it is of another history; what was kept, in words."""
        name = hashlib.sha256(self.key.name.encode()).hexdigest()
        try:
            answer = connection.ask("GET", f"{witness.url.rstrip('/')}/{name}/checkpoint", most=check.NOTE_BYTES)
            check.check_checkpoint(answer.body, [self.key])
        except (NoAnswer, CheckError):
            return "; it does not show which"
        with self._reading:
            path = forks.kept(self.ledger.config.folder / FORKS, self.key, (self._text, answer.body), self.log)
        if path is None:
            return ""
        self.evidence.append(path)
        return f"; both checkpoints are in {path}"


def _size(body: bytes) -> int | None:
    """The size in the body of a 409; None if it is none."""
    text = body.decode("ascii", "replace")
    return int(text) if re.fullmatch("(0|[1-9][0-9]{0,18})\n?", text) else None
