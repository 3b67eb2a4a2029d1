"""A bounty's contract in tables, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.publish.evm.bounties import State
    from assay.scheme.bounty import Bounty

__all__ = ["elsewhere", "parts", "said"]

Rows = Sequence[tuple[str, str, str]]
_NEXT = {
    "unfunded": "The deposit is not there: nobody can commit yet.",
    "settled": "It is settled: everybody fetches what is his with `assay bounty claim`.",
}


_SAME = "All of it is as bounty.toml and publish.toml have it."
_NO_BOUNTY = "There is no bounty.toml here: its terms were compared with nothing but what publish.toml names."


def elsewhere(found: State, bounty: Bounty | None) -> str:
    """What no contract can tell, in one sentence: what is left to be checked by other ways."""
    from assay.publish.evm.settings import NOBODY

    enclave = None if bounty is None else bounty.enclave
    judged = "nothing attests where it judges"
    if enclave is not None:
        judged = "its enclave is the one that bounty.toml pins (`assay enclave verify`)"
    token = "" if found.terms.token == NOBODY else f", the token {found.terms.token} is worth something,"
    return (
        f"Check elsewhere that {found.terms.scorer} is the scorer whom the sponsor promised (its word is final, and"
        f" {judged}){token} and that your node tells you what the chain has."
    )


def said(found: State, different: Rows, rest: str) -> dict[str, Any]:
    """All of it as JSON."""
    return {
        "round": found.address,
        "state": found.state,
        "terms": found.terms.content(),
        "commitments": found.commitments,
        "held": str(found.held),
        "receipt": found.receipt,
        "scores": [{"agent": agent, "bps": bps, "attestation": proof} for agent, bps, proof in found.scores],
        "owed": [{"account": account, "amount": str(amount)} for account, amount in found.owed],
        "check_elsewhere": rest,
        "differences": [{"field": field, "there": there, "here": here} for field, there, here in different],
    }


def parts(found: State, different: Rows, rest: str, names: Mapping[str, str], *, bounty: bool) -> Iterator[Any]:
    """The round for people. rest: to be checked elsewhere. names: address → participant. bounty: is there a bounty.toml."""
    from assay.cli.show import Column, grid, heading, sentence

    ether = _ether(found)
    yield heading(f"{found.address}: {found.state}")
    yield sentence(_NEXT.get(found.state) or _open(found))
    rows = [*found.terms.told(), ("commitments", str(found.commitments)), ("held", str(found.held))]
    rows = [
        (name, f"{value} wei ({ether(value)} ether)" if ether and name in ("deposit", "held") else value) for name, value in rows
    ]
    yield grid([Column("", [name for name, _ in rows]), Column("there", [value for _, value in rows], kind="text")])
    if found.scores or found.owed:
        yield ""
        yield _people(found, names)
    yield ""
    if not different:
        yield sentence(_SAME if bounty else _NO_BOUNTY)
        yield sentence(rest)
        return
    yield sentence("It is not what bounty.toml and publish.toml say:", style="bold red")
    yield grid(
        [
            Column("field", [field for field, _, _ in different]),
            Column("there", [there for _, there, _ in different], kind="text"),
            Column("here", [here for _, _, here in different], kind="text"),
        ]
    )


def _open(found: State) -> str:
    terms, receipt = found.terms, found.receipt
    if receipt is not None:
        return f"It has its scores, of the receipt {receipt}: `assay bounty settle` divides the deposit."
    if found.now <= terms.commit_until:
        return f"Agents may commit until {_time(terms.commit_until)}."
    if found.now <= terms.score_until:
        return f"Scores may come until {_time(terms.score_until)}."
    return "No scores came in time: `assay bounty settle` gives the deposit back."


def _people(found: State, names: Mapping[str, str]) -> Any:
    from assay.cli.show import Column, grid

    ether = _ether(found)
    scores, owed = {agent: bps for agent, bps, _ in found.scores}, dict(found.owed)
    proofs = {agent: proof or "" for agent, _, proof in found.scores}
    accounts = list(dict.fromkeys([*scores, *owed]))
    roles = {found.terms.sponsor: "sponsor", found.terms.fee_recipient: "fee"} | dict(names)
    return grid(
        [
            Column("who", [roles.get(one, "") for one in accounts], kind="key"),
            Column("account", accounts, kind="key"),
            Column("BPS", [str(scores.get(one, "")) for one in accounts], right=True),
            Column("attestation", [proofs.get(one, "") for one in accounts], kind="key", spare=1),
            Column("owed", [str(owed.get(one, "")) for one in accounts], right=True),
            *([Column("in ether", [ether(owed[one]) if one in owed else "" for one in accounts], right=True)] if ether else []),
        ]
    )


def _ether(found: State) -> Callable[[str | int], str] | None:
    """What shows an amount of wei in ether; None where the deposit is of a token, which has decimals of its own."""
    from assay.cli.show import WEI, coins
    from assay.publish.evm.settings import NOBODY

    return partial(coins, decimals=WEI) if found.terms.token == NOBODY else None


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
