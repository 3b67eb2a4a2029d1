"""The commands `assay bounty oracle`, `create`, `fund`, `show`, `commit`, `settle`, `claim` and `refund`, which use a chain."""

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
    "settled": "It is settled: each winner fetches their payment with `assay bounty claim`.",
}
_SAME = "All terms are those of bounty.toml and publish.toml."
_NO_BOUNTY = "There is no bounty.toml here, so only the terms that publish.toml names were compared."


def elsewhere(round_: RoundState, bounty: Bounty | None) -> str:
    """One sentence about what no contract can prove, and the reader must check elsewhere."""
    from assay.publish.evm.settings import NOBODY

    enclave = None if bounty is None else bounty.enclave
    judged = "nothing attests where it judges"
    if enclave is not None:
        judged = "its enclave is the one that bounty.toml pins (`assay enclave verify`)"
    token = "" if round_.terms.token == NOBODY else f", that the token {round_.terms.token} is worth something,"
    return (
        f"Check elsewhere that {round_.terms.scorer} is the scorer that the sponsor promised (its scores are final, and"
        f" {judged}){token} and that your node shows you the real chain."
    )


def document(round_: RoundState, different: Rows, rest: str) -> dict[str, Any]:
    """The round as JSON."""
    return {
        "round": round_.address,
        "state": round_.state,
        "terms": round_.terms.content(),
        "commitments": round_.commitments,
        "held": str(round_.held),
        "receipt": round_.receipt,
        "scores": [{"agent": agent, "bps": bps, "attestation": proof} for agent, bps, proof in round_.scores],
        "owed": [{"account": account, "amount": str(amount)} for account, amount in round_.owed],
        "check_elsewhere": rest,
        "differences": [{"field": field, "there": there, "here": here} for field, there, here in different],
    }


def parts(round_: RoundState, different: Rows, rest: str, names: Mapping[str, str], *, bounty: bool) -> Iterator[Any]:
    """The round for people.

    rest: what to check elsewhere. names: address → participant. bounty: whether the folder has a bounty.toml.
    """
    from assay.cli.show import Column, grid, heading, sentence

    ether = _ether(round_)
    yield heading(f"{round_.address}: {round_.state}")
    yield sentence(_NEXT.get(round_.state) or _open(round_))
    rows = [*round_.terms.rows(), ("commitments", str(round_.commitments)), ("held", str(round_.held))]
    rows = [
        (name, f"{value} wei ({ether(value)} ether)" if ether and name in ("deposit", "held") else value) for name, value in rows
    ]
    yield grid([Column("", [name for name, _ in rows]), Column("there", [value for _, value in rows], kind="text")])
    if round_.scores or round_.owed:
        yield ""
        yield _people(round_, names)
    yield ""
    if not different:
        yield sentence(_SAME if bounty else _NO_BOUNTY)
        yield sentence(rest)
        return
    yield sentence("Its terms differ from bounty.toml and publish.toml:", style="bold red")
    yield grid(
        [
            Column("field", [field for field, _, _ in different]),
            Column("there", [there for _, there, _ in different], kind="text"),
            Column("here", [here for _, _, here in different], kind="text"),
        ]
    )


def _open(round_: RoundState) -> str:
    terms, receipt = round_.terms, round_.receipt
    if receipt is not None:
        return f"It has its scores, of the receipt {receipt}: `assay bounty settle` divides the deposit."
    if round_.now <= terms.commit_until:
        return f"Agents may commit until {_time(terms.commit_until)}."
    if round_.now <= terms.score_until:
        return f"Scores may come until {_time(terms.score_until)}."
    return "No scores came in time: `assay bounty settle` gives the deposit back."


def _people(round_: RoundState, names: Mapping[str, str]) -> Any:
    from assay.cli.show import Column, grid

    ether = _ether(round_)
    scores, owed = {agent: bps for agent, bps, _ in round_.scores}, dict(round_.owed)
    proofs = {agent: proof or "" for agent, _, proof in round_.scores}
    accounts = list(dict.fromkeys([*scores, *owed]))
    roles = {round_.terms.sponsor: "sponsor", round_.terms.fee_recipient: "fee"} | dict(names)
    return grid(
        [
            Column("who", [roles.get(account, "") for account in accounts], kind="key"),
            Column("account", accounts, kind="key"),
            Column("BPS", [str(scores.get(account, "")) for account in accounts], right=True),
            Column("attestation", [proofs.get(account, "") for account in accounts], kind="key", spare=1),
            Column("owed", [str(owed.get(account, "")) for account in accounts], right=True),
            *(
                [Column("in ether", [ether(owed[account]) if account in owed else "" for account in accounts], right=True)]
                if ether
                else []
            ),
        ]
    )


def _ether(round_: RoundState) -> Callable[[str | int], str] | None:
    """The function that shows wei in ether; None if the deposit is a token, which has its own decimals."""
    from assay.exact import WEI, coins
    from assay.publish.evm.settings import NOBODY

    return partial(coins, decimals=WEI) if round_.terms.token == NOBODY else None


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


Make = Callable[["Bounties", "Signer"], "Sequence[Action]"]
ReceiverOption = Annotated[
    str | None, typer.Option("--receiver", metavar="ADDRESS", help="Where it goes; otherwise the account.")
]


def show(folder: DirArgument, to: ToOption, as_json: JsonOption = False) -> None:
    """Show the state of a bounty's contract: its terms, what it holds, what it owes to whom, and any difference from bounty.toml.

    Look here before you work for a bounty: is the deposit there, and are the terms those that were promised? A contract that was
    not created by the shipped code is refused. If its terms differ, they are listed, and the exit code is 1.

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
    state: RoundState = Bounties(chain).state(_addresses(folder))
    different, rest = chain.differences(bounty), elsewhere(state, bounty)
    if not emit(lambda: document(state, different, rest), as_json):
        from assay.cli.show import show as shown

        shown(*parts(state, different, rest, _names(folder), bounty=bounty is not None))
    if different:
        raise typer.Exit(1)


def oracle(folder: DirArgument, to: ToOption, key: AsOption = None, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Create the scoring oracle, if the chain does not have it yet. It is the contract that accepts the scores of rounds.

    The oracle has no owner, and has the same address on every chain. Each round decides whose scores it accepts.

    \b
    Example:
      assay bounty oracle my-bounty --to sepolia --yes
    """
    from assay.publish.evm.chain import MADE_ORACLE

    _do(folder, to, key, lambda bounties, _: [bounties.make_oracle()], yes=yes, as_json=as_json, subject=MADE_ORACLE)


def create(folder: DirArgument, to: ToOption, key: AsOption = None, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Create the bounty's contract by bounty.toml and publish.toml. It can never be changed.

    Deposit, threshold, tiers, split and fee are those of [payout]. Agents commit until `commitments_until`. Scores come until
    `scoring_deadline`, only from `only_scorer` of publish.toml. The contract's address follows from its code and these terms.
    `assay bounty fund` pays the deposit and opens the contract. Running the command again creates no second contract.

    \b
    Example:
      assay bounty create my-bounty --to sepolia --yes
    """
    from assay.errors import BadInput
    from assay.publish.evm.chain import MADE_ROUND, of_bounty

    bounty = _bounty(folder)
    if bounty is None:
        what = "no such file, so there is no bounty to create a contract for"
        raise BadInput(what, file=folder / "bounty.toml", hint="write it first")
    chain = _chain(folder, to)
    scorer = chain.settings.only_scorer
    if scorer is None:
        hint = "write the account whose scores count; the round never accepts another's"
        raise chain.target.refuse("is missing", "only_scorer", hint)
    terms: list[RoundTerms] = []

    def make(bounties: Bounties, signer: Signer) -> Sequence[Action]:
        terms.append(of_bounty(bounty, chain.settings, sponsor=signer.address, scorer=scorer))
        return [bounties.create(terms[0])]

    _do(folder, to, key, make, yes=yes, as_json=as_json, subject=MADE_ROUND, chain=chain, terms=terms)


def fund(folder: DirArgument, to: ToOption, key: AsOption = None, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Pay the deposit into the bounty's contract, which opens the bounty. For a token, first allows the contract to take it.

    Refused if the contract's terms differ from bounty.toml and publish.toml.

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
    """Bind an account to a commitment on the chain, before anybody sees the solution. A commitment is final.

    The commitment is a hash that includes the participant's own key, so a copy is useless to others. The account must be the
    participant's address in participants.csv. Refused if the contract's terms differ from bounty.toml and publish.toml.

    \b
    Examples:
      assay bounty commit my-bounty my-bounty/sealing/d496ff3ec628/commitment.json --to sepolia --yes
      assay bounty commit my-bounty sha256:… --to sepolia --yes
    """
    from assay.cli.bounty import commitment_of

    digest, participant = commitment_of(folder, commitment)

    def make(bounties: Bounties, signer: Signer) -> Sequence[Action]:
        from assay.cli.bounty import check_account

        check_account(folder, participant, signer.address)
        return [bounties.commit(digest)]

    _do(folder, to, key, make, yes=yes, as_json=as_json)


def settle(folder: DirArgument, to: ToOption, key: AsOption = None, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Divide the deposit by the published scores. If none came before the deadline, the deposit goes back to the sponsor.

    Anyone may do this. It pays nothing: each winner fetches their payment with `assay bounty claim`.

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
    """Fetch the sponsor's refund, which is the whole deposit if no scores came in time. Settles the bounty first if necessary.

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
    subject: str = "",
    chain: EvmChain | None = None,
    terms: Sequence[RoundTerms] = (),
) -> None:
    """Show the actions, send them with `--yes`, and show the outcome. subject: the contract that they create, if any."""
    from assay.errors import Unreachable
    from assay.publish.evm.bounties import Bounties, look, run
    from assay.publish.evm.chain import MADE_ORACLE
    from assay.publish.outcome import Confirmed, Outcome, Refusal, Unknown

    chain = chain or _chain(folder, to)
    bounties, signer = Bounties(chain, _bounty(folder)), chain.signer(name=key)
    outcome: Outcome | None
    actions: Sequence[Action] = []
    try:
        # A round is proven to be one before it is asked anything.
        outcome = chain.wrong() if subject else chain.wrong(chain.round)
        actions = [] if outcome is not None else make(bounties, signer)
        outcome = outcome or (run(chain, signer, actions, telling) if yes else look(actions[0], signer.address))
        if subject and isinstance(outcome, Confirmed):
            present = look(actions[0], signer.address)  # the chain's present state decides, not a transaction's outcome
            outcome = outcome if isinstance(present, Confirmed) else present
        if not subject and actions and not (isinstance(outcome, Refusal) and outcome.code == "wrong-terms"):
            different = chain.differences(bounties.bounty)
            warn(f"the round has {field} {there}, but the files here say {here}" for field, there, here in different)
    except Unreachable as error:
        outcome = Unknown(str(error))
    rows = [("account", signer.address)]
    for action in actions:
        rows += [(action.subject, "")] if len(actions) > 1 else []
        rows += [(name, str(value)) for name, value in action.content.items() if value is not None and not terms]
    rows += [row for round_terms in terms for row in round_terms.rows()]
    result: dict[str, Any] = {
        "account": signer.address,
        "actions": [{"subject": action.subject} | action.content for action in actions],
    }
    parts = [_table(rows)]
    if subject and isinstance(outcome, Confirmed):
        address = str(actions[0].content["address"])
        result["oracle" if subject == MADE_ORACLE else "round"] = address
        parts += [] if subject == MADE_ORACLE else _next(f'round = "{address}"', to)
    finish(outcome, result, parts, as_json=as_json)


def _table(rows: Sequence[tuple[str, str]]) -> Any:
    from assay.cli.show import Column, grid

    return grid([Column("", [name for name, _ in rows]), Column("what", [value for _, value in rows], kind="text")])


def _next(line: str, to: str) -> list[Any]:
    from assay.cli.show import note

    return ["", note(f"Everybody else writes this under [targets.{to}] in publish.toml: {line}")]


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


def _address(text: str | None, option: str) -> str | None:
    from pydantic import TypeAdapter, ValidationError

    from assay.errors import BadInput
    from assay.publish.evm.settings import Address

    try:
        return None if text is None else str(TypeAdapter(Address).validate_python(text))
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
