"""A bounty's terms as its contract takes them, and in what a contract that is there differs from them. SPEC 5."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from assay.errors import BadInput, Unreachable
from assay.publish.evm.artifacts import ROUND, address_of, artifact, oracle_address
from assay.publish.evm.libraries import checksum
from assay.publish.evm.node import Contract, encoded
from assay.publish.evm.settings import NOBODY, Settings
from assay.scheme.bounty import Bounty
from assay.scheme.times import instant_text

__all__ = ["MAX_PLACES", "MAX_TIERS", "Terms", "differences", "of_bounty", "of_round"]

MAX_PLACES, MAX_TIERS = 32, 16
"""What a round takes."""
LATEST = 253_402_300_799
"""The last second of the year 9999, after which nothing here tells the time."""
Difference = tuple[str, str, str]
"""A field, what stands in the contract, what the files say."""


@dataclass(frozen=True)
class Terms:
    """What a round is made of, addresses as EIP-55 spells them, times in seconds since 1970. In the contract's order."""

    bounty: str
    sponsor: str
    token: str
    deposit: int
    scorer: str
    fee_recipient: str
    fee_bps: int
    threshold_bps: int
    commit_until: int
    score_until: int
    tiers: tuple[tuple[int, int], ...]
    split: tuple[int, ...]

    def values(self) -> tuple[Any, ...]:
        """As the constructor takes them."""
        digest = bytes.fromhex(self.bounty.removeprefix("sha256:"))
        return (digest, *list(vars(self).values())[1:-2], list(self.tiers), list(self.split))

    def code(self, codec: Any) -> bytes:
        """What makes the round: the code that ships, and these terms."""
        found = artifact(ROUND)
        return found.bytecode + encoded(found.abi, "", [self.values()], codec)

    def address(self, codec: Any) -> str:
        """Where a round with these terms is, and nothing else can be."""
        return address_of(self.code(codec))

    def content(self) -> dict[str, Any]:
        """As JSON, with the oracle, which is no choice."""
        found = vars(self) | {"deposit": str(self.deposit), "split": list(self.split), "oracle": oracle_address()}
        return found | {"tiers": [list(one) for one in self.tiers]}

    def told(self) -> list[tuple[str, str]]:
        """Each field for people."""
        return [(name, _shown(name, value)) for name, value in vars(self).items()]


def differences(found: Terms, bounty: Bounty | None, settings: Settings) -> list[Difference]:
    """In what a round's terms are others than bounty.toml and publish.toml say.

    A sponsor or a scorer that publish.toml does not name is not compared; without a bounty.toml nothing but what it names is.
    """
    mine = vars(found)
    if bounty is None:
        said = {"sponsor": settings.sponsor, "token": settings.token, "scorer": settings.only_scorer}
        wanted: dict[str, Any] = {"fee_recipient": settings.fee_recipient} | said
        wanted = {name: value for name, value in wanted.items() if value is not None}
    else:
        try:
            wanted = vars(of_bounty(bounty, settings, sponsor=found.sponsor, scorer=found.scorer))
        except BadInput as error:
            return [("bounty.toml", "", str(error))]
    return [
        (name, _shown(name, mine[name]), _shown(name, wanted[name]))
        for name in mine
        if mine[name] != wanted.get(name, mine[name])
    ]


def of_bounty(bounty: Bounty, settings: Settings, *, sponsor: str, scorer: str) -> Terms:
    """The terms of a bounty's folder. sponsor, scorer: where publish.toml names none.

    Raises BadInput for what a round cannot be made of, and where a deadline is missing.
    """
    payout = bounty.scheme.payout
    if payout is None:
        raise BadInput("has no [payout]", file=bounty.file, hint="a round holds a deposit and pays it out")
    file = bounty.file
    commits = _seconds(bounty.terms.commitments_until, bounty, "bounty.commitments_until")
    scores = _seconds(payout.scoring_deadline, bounty, "payout.scoring_deadline")
    if payout.deposit == 0:
        raise BadInput("is 0", file=file, field="payout.deposit", hint="a round holds a deposit")
    for field, found, most in (("split", payout.split, MAX_PLACES), ("tiers", payout.tiers, MAX_TIERS)):
        if len(found) > most:
            raise BadInput(f"has {len(found)} entries", file=file, field=f"payout.{field}", hint=f"the contract takes {most}")
    if payout.fee_bps and settings.fee_recipient is None:
        hint = "write fee_recipient in publish.toml, or fee_bps = 0"
        raise BadInput("there is a fee, and nobody who gets it", file=file, field="payout.fee_bps", hint=hint)
    return Terms(
        bounty.digest,
        settings.sponsor or sponsor,
        settings.token or NOBODY,
        payout.deposit,
        settings.only_scorer or scorer,
        settings.fee_recipient or NOBODY,
        payout.fee_bps,
        payout.threshold_bps,
        commits,
        scores,
        tuple((one.reach_bps, one.release_bps) for one in payout.tiers),
        tuple(payout.split),
    )


def of_round(round_: Contract) -> Terms:
    """The terms of a round that is there; raises Unreachable for times that no calendar has."""
    ask = round_.ask
    commits, scores = ask("commitUntil"), ask("scoreUntil")
    if max(commits, scores) > LATEST:
        what = f"{round_.address} answers what cannot be: it takes scores until the second {scores}"
        raise Unreachable(what, hint="is it the right address, and does the node tell what the chain has?")
    return Terms(
        f"sha256:{ask('bounty').hex()}",
        checksum(ask("sponsor")),
        checksum(ask("token")),
        ask("deposit"),
        checksum(ask("scorer")),
        checksum(ask("feeRecipient")),
        ask("feeBps"),
        ask("thresholdBps"),
        commits,
        scores,
        tuple((reach, release) for reach, release in ask("tiers")),
        tuple(ask("split")),
    )


def _seconds(time: datetime | None, bounty: Bounty, field: str) -> int:
    if time is None:
        hint = "agents commit until the one, scores come until the other; a contract cannot do without"
        raise BadInput("is missing", file=bounty.file, field=field, hint=hint)
    if time.microsecond:
        raise BadInput(f"{instant_text(time)} is finer than a second", file=bounty.file, field=field, hint="chains count seconds")
    return int(time.timestamp())


def _shown(name: str, value: Any) -> str:
    if name.endswith("_until"):
        return instant_text(datetime.fromtimestamp(value, UTC))
    if value == NOBODY:
        return {"token": "the chain's own coin"}.get(name, "nobody")
    if name == "tiers":
        return ", ".join(f"{reach} → {release}" for reach, release in value)
    return ", ".join(map(str, value)) if name == "split" else str(value)
