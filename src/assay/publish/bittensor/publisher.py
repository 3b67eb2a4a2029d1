"""Publishes weights to a subnet of Bittensor: the publisher of kind `bittensor`.

The weights follow from the exact shares of a settled epoch, and from the present owners of the uids. They are sent openly, or as
a commitment that the chain opens later, as the subnet requires. Each epoch is published and confirmed once. The next epoch is
sent even if its weights are the same, because a validator that does not set weights again stops counting.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from assay.errors import BadInput, Unreachable
from assay.ledger.keys import PrivateKey
from assay.publish.bittensor.extrinsics import BittensorAttempt, elsewhere
from assay.publish.bittensor.metagraph import YumaPreview, preview, read_metagraph
from assay.publish.bittensor.node import BittensorNode
from assay.publish.bittensor.refusals import COMMIT_VERSION, preflight, stranger
from assay.publish.bittensor.sending import BittensorCall, Extrinsics, known
from assay.publish.bittensor.settings import (
    CHAINS,
    BittensorSettings,
    address,
    hotkey_of,
    node_of,
    open_to_anybody,
    public_of,
    settings_of,
    witness_of,
)
from assay.publish.bittensor.subnet import SubnetState, read_subnet, weights_of
from assay.publish.bittensor.weights import (
    Vector,
    commit_call,
    commitment,
    content,
    moved,
    of_content,
    pulled_at,
    set_call,
    strangers,
    vector,
    wrong_clock,
)
from assay.publish.outcome import Outcome, Refusal, Sent, Unknown
from assay.publish.publishers import Comparison, Line, PublishPlan, Pulse, Target, Tell
from assay.publish.sender import Sender, SystemClock, under_way
from assay.publish.settled_epoch import EpochShares, SettledEpoch

POLL = 3.0
"""Seconds between two looks: a block takes twelve, and public nodes limit the number of questions."""
BURN = "burn"
"""Shown instead of a participant for the weight that burns."""


@dataclass(frozen=True)
class _Now:
    """The weights that would be sent in the present state of the chain, with that state.

    keys: participants with a share. gone: participants whose share burns because they lost their uid, with the reason.
    """

    subnet: SubnetState
    vector: Vector
    keys: frozenset[str]
    gone: dict[str, str]
    burn_uid: int


def open_publisher(target: Target, clock: SystemClock | None = None) -> BittensorPublisher:
    """The publisher of a target. Raises BadInput if its settings are wrong."""
    return BittensorPublisher(target, settings_of(target), clock or SystemClock(poll=POLL))


class BittensorPublisher:
    """The publisher of a target of kind `bittensor`. `clock`: for tests."""

    def __init__(self, target: Target, settings: BittensorSettings, clock: SystemClock) -> None:
        self._target, self._settings, self._clock = target, settings, clock
        self._key: PrivateKey | None = None  # opened once, so that a watch asks for the passphrase only once
        self._plan: PublishPlan | None = None  # made once, because a watch asks for it again and again

    @cached_property
    def _node(self) -> BittensorNode:
        return node_of(self._target, self._settings)

    @cached_property
    def _witness(self) -> BittensorNode | None:
        return witness_of(self._target, self._settings)

    def plan(self, epoch: SettledEpoch) -> PublishPlan:
        """The shares of an epoch, and the weights that they give if no uid has changed hands."""
        if self._plan is not None and (self._plan.epoch, self._plan.receipt) == (epoch.epoch, epoch.receipt):
            return self._plan
        shares, settings = epoch.shares(), self._settings
        where = {"chain": settings.chain, "netuid": settings.netuid, "mechanism": settings.mechanism}
        sent = {key for key, _, _ in shares.rows}
        burns = [row["participant"] for row in epoch.settlement.get("weights", ()) if row["uid"] is None]
        left_out = tuple((key, "it has no uid, and its share burns") for key in burns if key not in sent)
        lines = tuple(_lines(shares, vector(shares), {}))
        document = where | strangers(epoch.registries, where) | pulled_at(epoch.registries) | content(shares)
        self._plan = PublishPlan(self._target.name, epoch.epoch, epoch.receipt, document, lines, left_out)
        return self._plan

    def compare(self, plan: PublishPlan) -> Comparison:
        """The plan compared with the hotkey's weights on the chain."""
        hotkey = self._hotkey()
        now = self._now(plan)
        if not isinstance(now, _Now):
            return Comparison(None, now)
        notes = self._notes(now)
        own = now.subnet.by_hotkey.get(hotkey or "")
        weights = {} if own is None else weights_of(self._node, now.subnet, own.uid, now.subnet.block)
        if hotkey is None:
            why = "publish.toml names no key" if self._settings.key is None else "the hotkey is encrypted"
            what = "registration, permit, stake, rate limit and present weights were not checked"
            notes.append(f'{why}, so {what}; write account = "5…" among the fields of the key to check them')
        shown = None if hotkey is None else {f"uid {uid}": str(value) for uid, value in sorted(weights.items())}
        if own is not None and own.last_update:
            notes.append(
                f"{hotkey} last set or committed weights in block {own.last_update}; now it is {now.subnet.block.number}"
            )
        lines = tuple(_lines(of_content(plan.content), now.vector, now.gone))
        outcome = self._before(plan) or self._against(now, hotkey)
        if outcome is None and now.subnet.commit_reveal:
            outcome = wrong_clock(self._chain_time(now.subnet), self._clock.wall())
        return Comparison(shown, outcome, notes, lines)

    def preview(self, plan: PublishPlan) -> YumaPreview:
        """The subnet's next epoch without and with the plan's weights, by the metagraph at the head; nothing is sent.

        Raises BadInput if the target is wrong, or if it has no hotkey with a uid. Raises Unreachable.
        """
        now, hotkey = self._now(plan), self._hotkey()
        if not isinstance(now, _Now):
            raise BadInput(now.what, hint=now.hint)
        own = now.subnet.by_hotkey.get(hotkey or "")
        if own is None:
            what = "no hotkey is known" if hotkey is None else f"{hotkey} has no uid on subnet {now.subnet.netuid}"
            raise self._target.refuse(what, "key", 'name a key whose hotkey is registered; an encrypted one needs account = "5…"')
        strange = [uid for uid in now.vector.uids if uid not in now.subnet.by_uid]
        if strange:
            raise BadInput(f"uid {strange[0]}, which gets a weight, is not on the subnet", hint="correct burn_uid in the scheme")
        return preview(read_metagraph(self._node, now.subnet), own.uid, now.vector.by_uid)

    def send(self, plan: PublishPlan, tell: Tell) -> Outcome:
        """Set the weights, or commit to them, once."""
        named = self._settings.key
        if named is None:
            raise self._target.refuse("is missing", "key", "name one of the keys in publish.toml")
        key = self._key or hotkey_of(self._target, named)
        self._key = key

        def prepare() -> BittensorCall | Outcome:
            now = self._now(plan)
            if not isinstance(now, _Now):
                return now
            return self._against(now, self._hotkey()) or self._call(now, key)

        chain = Extrinsics(self._node, self._witness, key, self._settings, plan)
        wait_seconds = self._settings.wait_seconds
        sender = Sender(chain, self._target.journal(), tell, wait_seconds=wait_seconds, clock=self._clock)
        return sender.run(plan.subject, plan.digest, prepare)

    def confirm(self, plan: PublishPlan) -> Outcome:
        """The outcome for these weights, by the journal and, for a commitment, by the weights that the chain has opened."""
        return self._elsewhere() or self._before(plan) or Unknown("nothing of this epoch is known to have been sent")

    def pulse(self) -> Pulse | Refusal | None:
        """The time of the hotkey's last weights. A Refusal if it has no uid or the chain is wrong; None if no hotkey is known."""
        wrong = self._elsewhere()
        if wrong is not None:
            return wrong
        there = read_subnet(self._node, self._settings.netuid, self._settings.mechanism, self._node.head())
        hotkey = self._hotkey()
        if isinstance(there, Refusal) or hotkey is None:
            return there if isinstance(there, Refusal) else None
        own = there.by_hotkey.get(hotkey)
        if own is None:
            return stranger(there, hotkey)
        return Pulse(there.block.number, own.last_update or None, there.tempo, there.block_seconds)

    def _hotkey(self) -> str | None:
        """The address of the hotkey, if it is known without opening a key."""
        if self._key is not None:
            return address(self._key.public)
        return None if self._settings.key is None else public_of(self._target, self._settings.key)

    # The weights that would be sent now

    def _now(self, plan: PublishPlan) -> _Now | Refusal:
        """The weights that would be sent at the head of the chain, or the refusal if the target is wrong."""
        wrong = self._elsewhere() or _of_another(plan)
        if wrong is not None:
            return wrong
        there = read_subnet(self._node, self._settings.netuid, self._settings.mechanism, self._node.head())
        if isinstance(there, Refusal):
            return there
        if there.block.number < plan.content.get("pulled_at", 0):  # at the old block a new participant would have no uid
            what = f"{self._node.host} is at block {there.block.number}, but the uids are of block {plan.content['pulled_at']}"
            raise Unreachable(what, hint="wait until the node has caught up, or ask another")
        shares = of_content(plan.content)
        gone = moved(shares, there)
        keys = frozenset(key for key, _, _ in shares.rows)
        return _Now(there, vector(shares, tuple(gone)), keys, gone, shares.burn_uid)

    def _elsewhere(self) -> Refusal | None:
        return elsewhere(self._settings.chain, self._node, self._witness)

    def _before(self, plan: PublishPlan) -> Outcome | None:
        """The outcome of earlier attempts at this plan; None if nothing was sent, or if all ended without effect."""
        wrong = _of_another(plan)
        if wrong is not None:
            return wrong
        attempts = BittensorAttempt.read(self._target.journal().entries)
        last = under_way(attempts)
        if last is not None and last.plan == plan.digest:
            return Sent(last.transaction) if last.sent else Unknown("it was about to be sent", last.transaction)
        hotkey, settings = self._hotkey(), self._settings
        owner = None if hotkey is None else (hotkey, settings.chain, settings.netuid, settings.mechanism)
        outcome = known(attempts, plan, self._node, self._witness, owner)
        return outcome[1].outcome if isinstance(outcome, tuple) else outcome

    def _against(self, now: _Now, hotkey: str | None) -> Outcome | None:
        """The reason why these weights cannot be sent now; None if they can. Without a hotkey only general rules are checked."""
        if now.gone and now.gone.keys() == now.keys:
            what = f"no participant has its uid on subnet {now.subnet.netuid} any more, so everything would burn"
            return Refusal("all-moved", what, "pull the registry, and settle the next epoch with it; is netuid the right one?")
        burn = None if self._settings.force_burn else self._misdirected(now)
        if burn is not None or hotkey is None:
            return burn
        return preflight(now.subnet, hotkey, now.vector.uids, now.vector.values, self._settings.version_key)

    def _misdirected(self, now: _Now) -> Refusal | None:
        """The refusal if the burned share would pay somebody, because the chain burns only what the subnet's owner would earn."""
        there = now.subnet.by_uid.get(now.burn_uid)
        if not now.vector.burns or there is None or there.hotkey in now.subnet.owner_hotkeys:
            return None  # the check of the chain's own rules reports a missing uid
        what = f"uid {now.burn_uid}, which gets the burned share, is not the subnet owner's: it would pay {there.hotkey}"
        hint = "set burn_uid in the scheme to a uid of the owner, and settle the next epoch with it; or write force_burn = true"
        return Refusal("burn-uid-not-owner", what, hint)

    def _notes(self, now: _Now) -> list[str]:
        notes = [f"{key} gets nothing and its weight burns: {why}" for key, why in now.gone.items()]
        burn = self._misdirected(now)
        if burn is not None and self._settings.force_burn:
            notes.append(f"{burn.what}; force_burn allows it")
        url = self._settings.url
        if url is not None and open_to_anybody(url):
            notes.append(f"others on the network can change the answers of {self._node.host}: its address is not wss://")
        if now.subnet.commit_reveal:
            notes.append("the subnet requires commitments: the chain opens them some epochs later, and only then has the weights")
        return notes

    def _call(self, now: _Now, key: PrivateKey) -> BittensorCall | Outcome:
        """The call with which the subnet accepts the weights, or the refusal if there is none."""
        try:
            return self._locked(now, key) if now.subnet.commit_reveal else self._plain(now)
        except ValueError as error:
            what = f"the chain's runtime does not have the call that Assay makes ({error})"
            return Refusal("runtime", what, "is there a newer version of Assay?")

    def _plain(self, now: _Now) -> BittensorCall:
        there = now.subnet
        runtime = self._node.runtime(there.block.hash)
        data = set_call(runtime, there.netuid, there.mechanism, now.vector, self._settings.version_key)
        return BittensorCall(data, "set", now.vector)

    def _locked(self, now: _Now, key: PrivateKey) -> BittensorCall | Refusal:
        there, version_key = now.subnet, self._settings.version_key
        time = self._chain_time(there)
        locked = commitment(there, key.public, now.vector, version_key, chain=time, here=self._clock.wall())
        if isinstance(locked, Refusal):
            return locked
        runtime = self._node.runtime(there.block.hash)
        data = commit_call(runtime, there.netuid, there.mechanism, locked.data, locked.round, COMMIT_VERSION)
        return BittensorCall(data, "commit", now.vector, locked.reveal)

    def _chain_time(self, there: SubnetState) -> float:
        """The chain's time, in seconds since 1970."""
        time = self._node.query("Timestamp", "Now", (), there.block.hash)
        if not isinstance(time, int):
            raise Unreachable(f"{self._node.host} does not say what time it is")
        return time / 1000


def _of_another(plan: PublishPlan) -> Refusal | None:
    """The refusal if the uids belong to another subnet than the target; None if they belong to the target."""
    others = plan.content.get("registries")
    if not others:
        return None
    other = others[0]
    chain = {genesis: name for name, genesis in CHAINS.items()}.get(other["chain"], other["chain"])
    what = f"the receipt has the uids of subnet {other['netuid']}, mechanism {other['mechanism']}, of the chain {chain}"
    what += ", but publish.toml names another"
    hint = "correct netuid, mechanism or chain; or pull the registry of the right one, and settle the next epoch with it"
    return Refusal("wrong-registry", what, hint)


def _lines(shares: EpochShares, sent: Vector, gone: dict[str, str]) -> list[Line]:
    """The lines of a plan: the value sent for each participant, and the value that burns."""
    values = sent.by_uid
    rows = [Line(key, f"uid {uid}", "0" if key in gone else str(values.get(uid, 0))) for key, uid, _ in shares.rows]
    return [*rows, Line(BURN, f"uid {shares.burn_uid}", str(values.get(shares.burn_uid, 0)))]
