"""The sender of every chain, on a chain of a few lines: what another package has to write, and what it gets for that."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput, Unreachable
from assay.publish.bittensor.extrinsics import BittensorAttempt as Extrinsic
from assay.publish.evm.transactions import EvmAttempt as Transaction
from assay.publish.journal import FileLines, Journal, stamped
from assay.publish.outcome import Confirmed, Outcome, Refusal, Sent, TooEarly, Unknown
from assay.publish.sender import (
    AttemptEnded,
    Chain,
    ChainAttempt,
    Following,
    Known,
    Prepare,
    Seen,
    Sender,
    SystemClock,
    Waiting,
    under_way,
)

PLAN, OTHER = "sha256:" + "ab" * 32, "sha256:" + "cd" * 32


class Killed(Exception):
    """The process ends here."""


@dataclass
class BoardNote(ChainAttempt):
    """One note for the board."""

    text: str
    hash: str

    @property
    def transaction(self) -> str:
        return self.hash


@dataclass
class NoteBoard:
    """A chain: what was handed to it, and what is in its blocks. answers: what happens at the next looks, one after the other."""

    pool: list[str] = field(default_factory=list)
    block: dict[str, int] = field(default_factory=dict)
    spoiled: set[str] = field(default_factory=set)
    at_look: list[Callable[[], object]] = field(default_factory=list)

    def include(self) -> None:
        """A block with everything that waits."""
        for hash_ in self.pool:
            self.block.setdefault(hash_, 7)


class Notes(Chain[BoardNote, str]):
    """The chain's part of a publisher: what another package writes."""

    attempt = BoardNote

    def __init__(self, board: NoteBoard, account: str = "ann") -> None:
        self.board, self.account = board, account

    @property
    def owner(self) -> tuple[object, ...]:
        return (self.account,)

    def sign(self, number: int, subject: str, plan: str, call: str, attempts: list[BoardNote]) -> BoardNote | Outcome:
        if not call:
            return Refusal("empty", "there is nothing to say")
        return BoardNote(number, subject, plan, self.account, text=call, hash=f"{call}-{number}")

    def follow(self, following: Following[BoardNote, str]) -> Callable[[], Seen]:
        def look() -> Seen:
            if self.board.at_look:
                self.board.at_look.pop(0)()
            attempt = following.attempt
            if attempt.hash in self.board.spoiled:
                return AttemptEnded("failed", None, {"why": "the board tore it up"})
            if attempt.hash in self.board.block:
                return AttemptEnded("confirmed", Confirmed(7, attempt.hash), {"hash": attempt.hash, "block": 7})
            if attempt.hash not in self.board.pool and following.prepare is not None:
                self.board.pool.append(attempt.hash)
                following.mark_sent()
            return Waiting()

        return look


@dataclass
class SenderWorld:
    """A board, a journal on the disk, and time that passes when it is waited for."""

    path: Path
    board: NoteBoard = field(default_factory=NoteBoard)
    time: float = 0.0
    messages: list[str] = field(default_factory=list)

    def sender(self, account: str = "ann", chain: Chain[BoardNote, str] | None = None) -> Sender[BoardNote, str]:
        clock = SystemClock(poll=1, now=lambda: self.time, sleep=self.sleep)
        return Sender(chain or Notes(self.board, account), self.journal(), self.messages.append, wait_seconds=5, clock=clock)

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def journal(self) -> Journal:
        return Journal(FileLines(self.path))

    def states(self) -> list[str]:
        return [entry["state"] for entry in self.journal().entries]

    def run(self, prepare: Prepare[str] = lambda: "hello", plan: str = PLAN) -> Outcome:
        return self.sender().run("epoch 3" if plan == PLAN else "epoch 4", plan, prepare)


@pytest.fixture
def world(tmp_path: Path) -> SenderWorld:
    return SenderWorld(tmp_path / "board.jsonl")


def test_a_chain_of_a_few_lines_is_sent_to_once_and_followed(world: SenderWorld) -> None:
    world.board.at_look = [lambda: None, world.board.include]
    assert world.run() == Confirmed(7, "hello-1")
    assert (world.states(), world.messages) == (["planned", "sent", "confirmed"], ["sent hello-1"])
    (entry, *_) = world.journal().entries
    assert {name: entry[name] for name in entry if name != "at"} == {
        "state": "planned",
        "attempt": 1,
        "subject": "epoch 3",
        "plan": PLAN,
        "account": "ann",
        "text": "hello",
        "hash": "hello-1",
    }


@pytest.mark.parametrize("kill", [0, 1, 2])
def test_killed_anywhere_it_is_sent_once(world: SenderWorld, kill: int) -> None:
    """Before a node hears of it, while it waits, and after it is in a block."""

    def die() -> None:
        raise Killed

    world.board.at_look = [*([lambda: None] * kill), die]
    with pytest.raises(Killed):
        world.run()
    assert world.states() == ["planned", "sent"][: 2 if kill else 1]
    world.board.at_look = [lambda: None, world.board.include]
    assert world.run(lambda: pytest.fail("nothing else is prepared")) == Confirmed(7, "hello-1")
    assert world.states() == ["planned", "sent", "confirmed"]
    assert world.board.pool == ["hello-1"]


def test_when_time_is_up_it_says_what_is_known_and_the_same_command_goes_on(world: SenderWorld) -> None:
    assert world.run() == Sent("hello-1")
    assert world.run() == Sent("hello-1")
    assert world.states() == ["planned", "sent", "sent"], "what the command ended with, once"

    def silent() -> None:
        raise Unreachable("the board does not answer")

    world.board.at_look = [silent] * 20
    assert world.run() == Unknown("the board does not answer; run this command again to continue", "hello-1")
    world.board.at_look = [world.board.include]
    assert world.run() == Confirmed(7, "hello-1")


def test_nothing_is_sent_where_nothing_is_to_be(world: SenderWorld) -> None:
    early = TooEarly(9, "block", "not before block 9")
    assert world.run(lambda: early) == early
    assert world.run(lambda: "") == Refusal("empty", "there is nothing to say")

    def silent() -> str:
        raise Unreachable("the board does not answer", hint="is it there?")

    assert world.run(silent) == Unknown("the board does not answer; is it there?")
    assert (world.states(), world.board.pool) == (["too-early", "refused", "unknown"], [])


def test_an_attempt_that_ended_for_nothing_is_begun_anew_a_few_times(world: SenderWorld) -> None:
    world.board.spoiled = {"hello-1"}
    world.board.at_look = [lambda: None, lambda: None, world.board.include]
    assert world.run() == Confirmed(7, "hello-2")
    assert world.states() == ["planned", "failed", "planned", "sent", "confirmed"]
    world.board.spoiled = {f"bye-{number}" for number in range(20)}
    outcome = world.run(lambda: "bye", OTHER)
    what = "something else sends from ann at the same time"
    assert outcome == Refusal("nonce", what, "let only one program send, then run this command again")
    assert world.states()[5:] == ["planned", "failed"] * 5 + ["refused"]


def test_what_is_under_way_comes_first_and_that_of_others_is_not_touched(world: SenderWorld) -> None:
    assert world.run() == Sent("hello-1")
    outcome = world.run(lambda: "later", OTHER)
    assert outcome == Unknown("epoch 3 is under way, and comes first: sent")
    hint = "finish that one first, with its key and its fields in publish.toml"
    refused = world.sender("bob").run("epoch 4", OTHER, lambda: "later")
    assert refused == Refusal("under-way", "a transaction of ann is under way: epoch 3", hint)
    world.board.at_look = [world.board.include, lambda: None, world.board.include]
    assert world.run(lambda: "later", OTHER) == Confirmed(7, "later-2")
    (first, second) = BoardNote.read(world.journal().entries)
    assert (first.state, second.state) == ("confirmed", "confirmed")
    assert under_way([first, second]) is None


class Careful(Notes):
    """A chain that says more: it is another one, or something has undone what was sent."""

    elsewhere: Outcome | None = None
    undone = False

    def wrong(self) -> Outcome | None:
        return self.elsewhere

    def known(self, attempts: list[BoardNote], plan: str) -> Known[BoardNote] | None:
        done = [attempt for attempt in attempts if attempt.plan == plan and attempt.state == "confirmed"]
        if not done:
            return None
        if self.undone:
            return done[-1], AttemptEnded("lost", Refusal("undone", "it is gone"), {"why": "gone"})
        return Confirmed(7, done[-1].hash)


def test_a_chain_can_say_that_it_is_another_and_what_it_knows(world: SenderWorld) -> None:
    chain = Careful(world.board)
    chain.elsewhere = Refusal("wrong-chain", "the node is of another chain")
    assert world.sender(chain=chain).run("epoch 3", PLAN, lambda: "hello") == chain.elsewhere
    chain.elsewhere = None
    world.board.at_look = [lambda: None, world.board.include]
    assert world.sender(chain=chain).run("epoch 3", PLAN, lambda: "hello") == Confirmed(7, "hello-1")
    assert world.sender(chain=chain).run("epoch 3", PLAN, lambda: pytest.fail("it is there")) == Confirmed(7, "hello-1")
    chain.undone = True
    gone = world.sender(chain=chain).run("epoch 3", PLAN, lambda: pytest.fail("it was there"))
    assert gone == Refusal("undone", "it is gone")
    assert world.states()[-2:] == ["lost", "refused"]
    world.board.at_look = [lambda: None, world.board.include]
    assert world.sender(chain=chain).run("epoch 3", PLAN, lambda: "hello") == Confirmed(7, "hello-2")


# Journals from before there was one sender

OLD_TRANSACTION: dict[str, Any] = json.loads("""
{"state": "planned", "attempt": 1, "subject": "epoch 3", "plan": "sha256:abab", "account": "0x1111", "chain_id": 31337,
"nonce": 7, "to": "0x2222", "value": "5", "data": "0x0102", "gas": 90000, "hash": "0xaaaa", "raw": "0x02f8",
"max_fee": "2000000000", "max_tip": "1000000000"}""")
OLD_EXTRINSIC: dict[str, Any] = json.loads("""
{"state": "planned", "attempt": 1, "subject": "epoch 3", "plan": "sha256:cdcd", "epoch": 3, "account": "5C4h", "chain": "0x3333",
"netuid": 2, "mechanism": 0, "kind": "commit", "uids": [0, 4], "values": [65535, 20550], "hash": "0xbbbb", "raw": "0x4502",
"nonce": 9, "birth": 100, "death": 164, "reveal": 420}""")


def test_entries_of_before_are_read_and_written_as_they_were() -> None:
    (transaction,) = Transaction.read([stamped(OLD_TRANSACTION)])
    assert transaction.entry() == OLD_TRANSACTION
    (extrinsic,) = Extrinsic.read([stamped(OLD_EXTRINSIC)])
    assert extrinsic.entry() == OLD_EXTRINSIC
    plain = {name: value for name, value in OLD_EXTRINSIC.items() if name != "reveal"}
    assert Extrinsic.read([plain])[0].entry() == plain


def _later(entry: dict[str, Any], *states: str) -> list[dict[str, Any]]:
    more = {"hash": "0xdddd", "raw": "0x02f9", "max_fee": "3", "max_tip": "2", "block": 5}
    return [entry, *({"state": state, "attempt": 1, "subject": "epoch 3", "plan": entry["plan"]} | more for state in states)]


def test_what_became_of_entries_of_before_is_read_as_it_was() -> None:
    (sent,) = Transaction.read(_later(OLD_TRANSACTION, "sent", "replaced", "unknown"))
    assert (sent.state, sent.transaction, sent.sent, len(sent.transactions)) == ("planned", "0xdddd", {"0xdddd"}, 2)
    for state in ("confirmed", "reverted", "lost", "dropped"):
        (ended,) = Transaction.read(_later(OLD_TRANSACTION, "sent", state))
        assert (ended.ended, ended.ending["block"]) == (True, 5)
    (waits,) = Extrinsic.read(_later(OLD_EXTRINSIC, "sent", "committed"))
    assert (waits.in_block, waits.ended, waits.block, under_way([waits])) == (True, False, 5, None)
    for state in ("confirmed", "failed", "expired", "lost", "overwritten", "reveal-failed", "superseded"):
        (ended_too,) = Extrinsic.read(_later(OLD_EXTRINSIC, "committed", state))
        assert (ended_too.ended, ended_too.in_block) == (True, False)


def test_a_journal_of_another_kind_of_target_is_refused() -> None:
    for kind, entry in ((BoardNote, OLD_EXTRINSIC), (Transaction, OLD_EXTRINSIC), (Extrinsic, OLD_TRANSACTION)):
        with pytest.raises(BadInput, match="the journal belongs to another kind of target: its entry 'epoch 3'"):
            kind.read([entry])
