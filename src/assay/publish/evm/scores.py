"""From a settled epoch to what the oracle is told: each agent's BPS, and what attests where its judge ran. SPEC 2.3, 5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.errors import BadInput, CannotSettle
from assay.publish.evm.libraries import checksum
from assay.publish.publishers import Line
from assay.publish.settled import SettledEpoch

__all__ = ["MAX_AGENTS", "Scores", "scores_of"]

MAX_AGENTS = 200
"""What the oracle takes of one round."""
NONE = bytes(32)


@dataclass(frozen=True)
class Scores:
    """The scores of a round, agents ascending by address, and what the settlement pays by them.

    places: (account, gross, fee) of every place that is paid, the first first. left_out: (participant, why).
    """

    receipt: bytes
    rows: tuple[tuple[str, int, bytes], ...]
    places: tuple[tuple[str, int, int], ...]
    fees: int
    refund: int
    lines: tuple[Line, ...]
    left_out: tuple[tuple[str, str], ...]

    def content(self) -> dict[str, Any]:
        """All of it as JSON."""
        return {
            "receipt": f"0x{self.receipt.hex()}",
            "scores": [
                {"agent": agent, "bps": bps, "attestation": f"0x{attestation.hex()}"} for agent, bps, attestation in self.rows
            ],
            "places": [{"agent": agent, "gross": str(gross), "fee": str(fee)} for agent, gross, fee in self.places],
            "fees": str(self.fees),
            "refund": str(self.refund),
        }


def scores_of(epoch: SettledEpoch, attested: Mapping[str, str]) -> Scores:
    """What is to be told of an epoch. attested: participant → the digest of what attests its score; who is not there has none.

    Who has no account is left out, and who is beyond what the oracle takes; the round's own sums show whether that changes what
    is paid, and then nothing is sent. Raises CannotSettle for an epoch that is settled into something else than payouts by BPS,
    and BadInput where two participants have one account, or a winner has none.
    """
    settlement = epoch.settlement
    rows = {row["participant"]: row for row in settlement["agreed"]}
    if settlement["refund"] is None or any(rows[key]["bps"] is None for key in settlement["ranking"]):
        what = f"epoch {epoch.epoch} is not settled into payouts by a rubric's BPS, which is what a bounty's contract divides by"
        raise CannotSettle(what, hint="publish it to a target of another kind")
    accounts: dict[str, str] = {}
    left_out: list[tuple[str, str]] = []
    for key in settlement["ranking"]:
        account = epoch.addresses.get(key)
        if account is None:
            left_out.append((key, "has no address in participants.csv"))
        elif len(accounts) == MAX_AGENTS:
            left_out.append((key, f"is beyond the {MAX_AGENTS} that the oracle takes, and holds no place"))
        else:
            accounts[key] = checksum(account)
    _check_accounts(accounts)
    left_out += [(key, str(row["status"])) for key, row in rows.items() if row["status"] != "agreed"]
    said = sorted(
        ((account, int(rows[key]["bps"]), _digest(attested.get(key))) for key, account in accounts.items()),
        key=lambda row: row[0].lower(),
    )
    paid = [row for row in settlement["payouts"] if row["gross"] != "0"]
    return Scores(
        _digest(epoch.receipt),
        tuple(said),
        tuple((_account(accounts, row["participant"]), int(row["gross"]), int(row["fee"])) for row in paid),
        int(settlement["fees"]),
        int(settlement["refund"]),
        tuple(Line(key, account, f"{rows[key]['bps']} BPS") for key, account in accounts.items()),
        tuple(left_out),
    )


def _check_accounts(accounts: dict[str, str]) -> None:
    seen: dict[str, str] = {}
    for key, account in accounts.items():
        if account in seen:
            what = f"{seen[account]} and {key} have the same address {account}"
            raise BadInput(
                what, file="participants.csv", field="address", hint="an account commits once; give each its own, then settle"
            )
        seen[account] = key


def _account(accounts: dict[str, str], key: str) -> str:
    if key not in accounts:
        what = f"{key} is to be paid and has no address"
        raise BadInput(what, file="participants.csv", field="address", hint="fill it in, then settle the next epoch")
    return accounts[key]


def _digest(text: str | None) -> bytes:
    return NONE if text is None else bytes.fromhex(text.removeprefix("sha256:"))
