"""`assay bounty …` on a chain: the contract that holds a bounty's deposit; from its making to the last claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.errors import warn
from assay.cli.publishing import AsOption, DirArgument, JsonOption, ToOption, YesOption, finish, telling

if TYPE_CHECKING:
    from assay.publish.evm.bounties import Action, Bounties, RoundState
    from assay.publish.evm.chain import EvmChain, RoundTerms
    from assay.publish.evm.signers import Signer
    from assay.scheme.bounty import Bounty


Rows = Sequence[tuple[str, str, str]]
_NEXT = {
    "unfunded": "The deposit is not there: nobody can commit yet.",
    "settled": "It is settled: everybody fetches what is his with `assay bounty claim`.",
}


_SAME = "All of it is as bounty.toml and publish.toml have it."
_NO_BOUNTY = "There is no bounty.toml here: its terms were compared with nothing but what publish.toml names."


def elsewhere(found: RoundState, bounty: Bounty | None) -> str:
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


def said(found: RoundState, different: Rows, rest: str) -> dict[str, Any]:
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


def parts(found: RoundState, different: Rows, rest: str, names: Mapping[str, str], *, bounty: bool) -> Iterator[Any]:
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


def _open(found: RoundState) -> str:
    terms, receipt = found.terms, found.receipt
    if receipt is not None:
        return f"It has its scores, of the receipt {receipt}: `assay bounty settle` divides the deposit."
    if found.now <= terms.commit_until:
        return f"Agents may commit until {_time(terms.commit_until)}."
    if found.now <= terms.score_until:
        return f"Scores may come until {_time(terms.score_until)}."
    return "No scores came in time: `assay bounty settle` gives the deposit back."


def _people(found: RoundState, names: Mapping[str, str]) -> Any:
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


def _ether(found: RoundState) -> Callable[[str | int], str] | None:
    """What shows an amount of wei in ether; None where the deposit is of a token, which has decimals of its own."""
    from assay.exact import WEI, coins
    from assay.publish.evm.settings import NOBODY

    return partial(coins, decimals=WEI) if found.terms.token == NOBODY else None


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


Make = Callable[["Bounties", "Signer"], "Sequence[Action]"]
ReceiverOption = Annotated[
    str | None, typer.Option("--receiver", metavar="ADDRESS", help="Where it goes; otherwise the account.")
]


def show(folder: DirArgument, to: ToOption, as_json: JsonOption = False) -> None:
    """Show where a bounty's contract is: its terms, and whether they are those of bounty.toml; what it holds, and owes to whom.

    Who is about to work for it looks here first: that the deposit is there, and that what decides on it is what was promised. A
    contract that was not made by the code that ships is refused; one with other terms ends with exit code 1, each of them named.

    \b
    Example:
      assay bounty show my-bounty --to sepolia
    """
    from assay.cli.output import emit
    from assay.publish.evm.bounties import Bounties

    chain, bounty = _chain(folder, to), _bounty(folder)
    wrong = chain.wrong(chain.round)
    if wrong is not None:
        finish(wrong, {}, [], as_json=as_json)
    found: RoundState = Bounties(chain).state(_addresses(folder))
    different, rest = chain.differences(bounty), elsewhere(found, bounty)
    if not emit(lambda: said(found, different, rest), as_json):
        from assay.cli.show import show as shown

        shown(*parts(found, different, rest, _names(folder), bounty=bounty is not None))
    if different:
        raise typer.Exit(1)


def oracle(folder: DirArgument, to: ToOption, key: AsOption = None, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Make the scoring oracle, where the chain does not have it yet: the contract that takes scores of rounds.

    It belongs to nobody, and is at the same address on every chain. Which scorer's scores count is up to each round.

    \b
    Example:
      assay bounty oracle my-bounty --to sepolia --yes
    """
    from assay.publish.evm.chain import MADE_ORACLE

    _do(folder, to, key, lambda bounties, _: [bounties.make_oracle()], yes=yes, as_json=as_json, made=MADE_ORACLE)


def create(folder: DirArgument, to: ToOption, key: AsOption = None, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Make the bounty's contract, by bounty.toml and publish.toml. Nothing of it can be changed afterwards.

    Deposit, threshold, tiers, split and fee are those of [payout]; agents commit until `commitments_until`, scores come until
    `scoring_deadline`, from `only_scorer` of publish.toml alone. Its address follows from its code and these terms. `assay bounty
    fund` puts the deposit in, and opens it. Made again, it is the one that is there.

    \b
    Example:
      assay bounty create my-bounty --to sepolia --yes
    """
    from assay.errors import BadInput
    from assay.publish.evm.chain import MADE_ROUND, of_bounty

    bounty = _bounty(folder)
    if bounty is None:
        raise BadInput(
            "no such file, so there is no bounty to make a contract of", file=folder / "bounty.toml", hint="write it first"
        )
    chain = _chain(folder, to)
    scorer = chain.settings.only_scorer
    if scorer is None:
        raise chain.target.refuse(
            "is missing", "only_scorer", "write the account whose scores count: the round takes no other's, ever"
        )
    found: list[RoundTerms] = []

    def make(bounties: Bounties, signer: Signer) -> Sequence[Action]:
        found.append(of_bounty(bounty, chain.settings, sponsor=signer.address, scorer=scorer))
        return [bounties.create(found[0])]

    _do(folder, to, key, make, yes=yes, as_json=as_json, made=MADE_ROUND, chain=chain, terms=found)


def fund(folder: DirArgument, to: ToOption, key: AsOption = None, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Put the deposit into the bounty's contract, which opens it. Of a token, the contract is allowed to take it first.

    Refused where the contract is another than bounty.toml and publish.toml say.

    \b
    Example:
      assay bounty fund my-bounty --to sepolia --yes
    """
    _do(folder, to, key, lambda bounties, _: bounties.fund(), yes=yes, as_json=as_json)


def commit(
    folder: DirArgument,
    commitment: Annotated[
        str, typer.Argument(metavar="COMMITMENT", help="sha256:…, or the file that `assay commit` wrote.", show_default=False)
    ],
    to: ToOption,
    key: AsOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Bind an account to a commitment, on the chain, before anybody sees the solution. Once, and for good.

    The commitment hashes the participant's own key: who copies it can never open it. The account must be the one that
    participants.csv has for the participant. Refused where the contract is another than bounty.toml and publish.toml say.

    \b
    Examples:
      assay bounty commit my-bounty my-bounty/sealing/d496ff3ec628/commitment.json --to sepolia --yes
      assay bounty commit my-bounty sha256:… --to sepolia --yes
    """
    from assay.cli.bounty import commitment_of

    found, participant = commitment_of(folder, commitment)

    def make(bounties: Bounties, signer: Signer) -> Sequence[Action]:
        from assay.cli.bounty import check_account

        check_account(folder, participant, signer.address)
        return [bounties.commit(found)]

    _do(folder, to, key, make, yes=yes, as_json=as_json)


def settle(folder: DirArgument, to: ToOption, key: AsOption = None, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Divide the deposit by the scores that were published; without any, when their time is over, it goes back to the sponsor.

    Anybody may. Nothing is paid by it: everybody fetches what is his with `assay bounty claim`.

    \b
    Example:
      assay bounty settle my-bounty --to sepolia --yes
    """
    _do(folder, to, key, lambda bounties, _: [bounties.settle()], yes=yes, as_json=as_json)


def claim(
    folder: DirArgument,
    to: ToOption,
    receiver: ReceiverOption = None,
    key: AsOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch what the bounty's contract owes an account: a prize, a fee, a refund.

    \b
    Example:
      assay bounty claim my-bounty --to sepolia --as agent --yes
    """

    def make(bounties: Bounties, signer: Signer) -> Sequence[Action]:
        return [bounties.claim(signer.address, _address(receiver, "--receiver"))]

    _do(folder, to, key, make, yes=yes, as_json=as_json)


def refund(
    folder: DirArgument,
    to: ToOption,
    receiver: ReceiverOption = None,
    key: AsOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch what goes back to the sponsor, settling the bounty first where nobody has: if no scores came in time, all of it.

    \b
    Example:
      assay bounty refund my-bounty --to sepolia --as sponsor --yes
    """
    from assay.publish.evm.bounties import look
    from assay.publish.outcome import Confirmed

    def make(bounties: Bounties, signer: Signer) -> Sequence[Action]:
        first, then = bounties.settle(), bounties.claim(signer.address, _address(receiver, "--receiver"))
        return [then] if isinstance(look(first, signer.address), Confirmed) else [first, then]

    _do(folder, to, key, make, yes=yes, as_json=as_json)


def _do(
    folder: Path,
    to: str,
    key: str | None,
    make: Make,
    *,
    yes: bool,
    as_json: bool,
    made: str = "",
    chain: EvmChain | None = None,
    terms: Sequence[RoundTerms] = (),
) -> None:
    """Show what would be done, do it if it is meant, and say what became of it. `made`: the contract that comes of it."""
    from assay.errors import Unreachable
    from assay.publish.evm.bounties import Bounties, look, run
    from assay.publish.evm.chain import MADE_ORACLE
    from assay.publish.outcome import Confirmed, Outcome, Refusal, Unknown

    chain = chain or _chain(folder, to)
    bounties, signer = Bounties(chain, _bounty(folder)), chain.signer(name=key)
    outcome: Outcome | None
    actions: Sequence[Action] = []
    try:
        # Before a round is asked anything, it is proven to be one.
        outcome = chain.wrong() if made else chain.wrong(chain.round)
        actions = [] if outcome is not None else make(bounties, signer)
        outcome = outcome or (run(chain, signer, actions, telling) if yes else look(actions[0], signer.address))
        if made and isinstance(outcome, Confirmed):
            there = look(actions[0], signer.address)  # what the chain has now, not what became of a transaction
            outcome = outcome if isinstance(there, Confirmed) else there
        if not made and actions and not (isinstance(outcome, Refusal) and outcome.code == "wrong-terms"):
            different = chain.differences(bounties.bounty)
            warn(f"the round has {field} {there}, and the files here say {here}" for field, there, here in different)
    except Unreachable as error:
        outcome = Unknown(str(error))
    rows = [("account", signer.address)]
    for action in actions:
        rows += [(action.subject, "")] if len(actions) > 1 else []
        rows += [(name, str(value)) for name, value in action.content.items() if value is not None and not terms]
    rows += [row for one in terms for row in one.told()]
    said: dict[str, Any] = {"account": signer.address, "actions": [{"subject": one.subject} | one.content for one in actions]}
    parts = [_table(rows)]
    if made and isinstance(outcome, Confirmed):
        address = str(actions[0].content["address"])
        said["oracle" if made == MADE_ORACLE else "round"] = address
        parts += [] if made == MADE_ORACLE else _next(f'round = "{address}"', to)
    finish(outcome, said, parts, as_json=as_json)


def _table(rows: Sequence[tuple[str, str]]) -> Any:
    from assay.cli.show import Column, grid

    return grid([Column("", [name for name, _ in rows]), Column("what", [value for _, value in rows], kind="text")])


def _next(line: str, to: str) -> list[Any]:
    from assay.cli.show import note

    return ["", note(f"Under [targets.{to}] in publish.toml, for everybody else: {line}")]


def _chain(folder: Path, to: str) -> EvmChain:
    from assay.cli.ledger.keys import asking
    from assay.errors import BadInput
    from assay.publish import publishers
    from assay.publish.evm.chain import EvmChain

    target = publishers.read_target(folder, to)
    if target.kind != "evm":
        raise BadInput(
            f"is of the kind {target.kind!r}", file=target.file, field=f"targets.{to}", hint="a bounty is on an Ethereum chain"
        )
    return EvmChain(target, ask=asking())


def _bounty(folder: Path) -> Bounty | None:
    from assay.scheme.bounty import read_bounty

    return read_bounty(folder) if (folder / "bounty.toml").exists() else None


def _address(said: str | None, option: str) -> str | None:
    from pydantic import TypeAdapter, ValidationError

    from assay.errors import BadInput
    from assay.publish.evm.settings import Address

    try:
        return None if said is None else str(TypeAdapter(Address).validate_python(said))
    except ValidationError as error:
        raise BadInput(error.errors()[0]["msg"].partition("; ")[0], field=option, hint="write 0x and 40 hex digits") from None


def _names(folder: Path) -> dict[str, str]:
    """Address → participant, by participants.csv."""
    from assay.errors import BadInput
    from assay.folder import csvs
    from assay.publish.evm.libraries import checksum

    try:
        rows = csvs.read(folder / "participants.csv", csvs.PARTICIPANTS)
    except BadInput:
        return {}
    return {checksum(str(row.fields["address"])): str(row.fields["key"]) for row in rows if row.fields.get("address")}


def _addresses(folder: Path) -> list[str]:
    return list(_names(folder))
