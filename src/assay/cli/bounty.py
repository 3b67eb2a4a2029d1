"""`assay bounty check` explains a bounty to its sponsor; also commitments as the chain commands read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli import bounty_chain
from assay.cli.errors import warn
from assay.errors import BadInput
from assay.exact import BPS, NANO, WEI, coins
from assay.scheme.advice import deadlines
from assay.scheme.bounty import UP_TO_DATE, Bounty, ModelChoice
from assay.scheme.fields import instant_text
from assay.scheme.model import Check, Payout
from assay.settle.reward import pay
from assay.settle.score.rubric import BASELINE, FIFTH, VERDICTS, judge
from assay.settle.story.telling import Chapter, Table, money, named, ordinal, part, plural

Json = dict[str, Any]

LINES = 20
"""Lines of the problem that are shown; the rest is in its file."""
_MEANS = {
    "bounty.commitments_until": "commitments",
    "bounty.submissions_until": "solutions",
    "payout.scoring_deadline": "judgements: unjudged solutions are then left out",
}
_RULES = {
    "EXCEPTIONAL": "all points missed on skippable checks come back",
    "ELEGANT": "half of them come back",
    "COHERENT": "stays as it is",
    "MINOR_ISSUES": "loses a tenth",
    "FLAWED": "loses a fifth",
    "FUNDAMENTALLY_BROKEN": f"is at most {FIFTH}",
}


def chapters(bounty: Bounty, now: datetime, token: str = "") -> Iterator[Chapter]:
    """The explanation of a bounty, chapter by chapter. token: the token of the deposit, as people read it; empty for ether."""
    yield _asked(bounty)
    yield _when(bounty, now)
    yield _checks(bounty)
    yield _verdicts(bounty)
    if bounty.scheme.payout is not None:
        yield _released(bounty.scheme.payout, token)
        yield _places(bounty.scheme.payout, token)
    yield _judges(bounty)


def document(bounty: Bounty, now: datetime, warnings: list[str]) -> Json:
    """The bounty, its digest and the facts of the chapters as JSON."""
    facts = {chapter.name: {**chapter.facts} for chapter in chapters(bounty, now)}
    return {"bounty": bounty.document(), "digest": bounty.digest, "warnings": warnings, **facts}


def _asked(bounty: Bounty) -> Chapter:
    facts = {"digest": bounty.problem_digest, "sealed": bounty.problem is None}
    if bounty.problem is None:
        text = ["The problem is sealed: only the enclave reads it. The digest of its text is", f"{bounty.problem_digest}."]
    else:
        lines = bounty.problem.strip().splitlines()
        more = len(lines) - LINES
        text = [*lines[:LINES], *([f"… and {plural(more, 'more line')}."] if more > 0 else [])]
    return Chapter(name="problem", title="What is asked", text=tuple(text), facts=facts)


def _when(bounty: Bounty, now: datetime) -> Chapter:
    times = deadlines(bounty)
    rows = tuple(
        (_MEANS[field], "no deadline" if until is None else instant_text(until) + (", which is past" if until < now else ""))
        for field, until in times.items()
    )
    facts = {field: None if until is None else instant_text(until) for field, until in times.items()}
    return Chapter(name="deadlines", title="By when", text=(), facts=facts, table=Table(("which", "until"), rows))


def _checks(bounty: Bounty) -> Chapter:
    rules = bounty.rules
    hard = [check.id for check in rules.checks if not check.skippable]
    text = [
        f"First four questions, {named([*BASELINE])}: is it legal, ethical, no spam, on the problem? One NO makes the score 0.",
        f"Then {plural(len(rules.checks), 'check')}, each YES or NO, for {BPS} BPS in all. "
        + (f"These must not be missed: {named(hard, 20)}." if hard else "Each of them may be missed."),
    ]
    if rules.injection is not None:
        text.append("A solution that seems to speak to its judge is unjudged until a person has looked at it.")
    rows = tuple((check.id, _question(check), str(check.weight), _missed(check)) for check in rules.checks)
    facts = {"unskippable": hard, "injection": rules.injection}
    table = Table(("check", "what it asks", "weight", "a NO"), rows)
    return Chapter(name="checks", title="How a solution is scored", text=tuple(text), facts=facts, table=table)


def _question(check: Check) -> str:
    return ": ".join(text for text in (check.label, check.description) if text)


def _missed(check: Check) -> str:
    return "a good verdict may give it back" if check.skippable else f"leaves {FIFTH} at most"


def _verdicts(bounty: Bounty) -> Chapter:
    """The score that each verdict gives a solution without the last skippable checks, and one that misses another check too."""
    rules = bounty.rules
    soft = [check for check in rules.checks if check.skippable]
    hard = [check for check in rules.checks if not check.skippable]
    missed = [check.id for check in soft[-min(2, len(rules.checks) - 1) :]] if len(rules.checks) > 1 else []
    met = dict.fromkeys(BASELINE, True)
    columns = [missed] + ([[*missed, hard[0].id]] if hard else [])
    judgements = {
        verdict: [judge(met, {check.id: check.id not in lost for check in rules.checks}, verdict, rules) for lost in columns]
        for verdict in VERDICTS
    }
    bps = {verdict: [0 if answer is None else answer.bps for answer in row] for verdict, row in judgements.items()}
    base = next(answer.base for answer in judgements["COHERENT"] if answer is not None)
    without = f"all but {named(missed)}" if missed else "everything"
    text = [f"Last comes a verdict on the whole solution. A solution that meets {without} has a base of {base} BPS:"]
    names = ("verdict", "the base", "BPS", *((f"and without {hard[0].id}",) if hard else ()))
    rows = tuple((verdict, _RULES[verdict], *map(str, bps[verdict])) for verdict in VERDICTS)
    facts = {"missed": missed, "base": base, "bps": {verdict: row[0] for verdict, row in bps.items()}}
    return Chapter(name="verdicts", title="What the verdict does", text=tuple(text), facts=facts, table=Table(names, rows))


def _released(rules: Payout, token: str) -> Chapter:
    tiers: list[Json] = [
        {
            "from_bps": -(-tier.reach_bps * rules.threshold_bps // BPS),
            "of_threshold_bps": tier.reach_bps,
            "released": str(rules.deposit * tier.release_bps // BPS),
        }
        for tier in rules.tiers
    ]
    rows = tuple(
        (
            str(row["from_bps"]),
            part(tier.reach_bps, BPS),
            part(tier.release_bps, BPS),
            row["released"],
            *_in_ether(row["released"], token),
        )
        for row, tier in zip(tiers, rules.tiers, strict=True)
    )
    sentences = (
        f"The deposit is {money(rules.deposit, token)}, the threshold {rules.threshold_bps} BPS.",
        f"The best score decides; below {tiers[-1]['from_bps']} BPS all of it goes back.",
    )
    table = Table(("from BPS", "of the threshold", "of the deposit", "released", *_ether_heading(token)), rows)
    facts = {"deposit": str(rules.deposit), "threshold_bps": rules.threshold_bps, "tiers": tiers}
    return Chapter(name="release", title="What is released", text=sentences, facts=facts, table=table)


def _in_ether(amount: str | int, token: str) -> tuple[str, ...]:
    """The cell of the column `in ether`; a table about a token does not have this column."""
    return () if token else (coins(amount, WEI),)


def _ether_heading(token: str) -> tuple[str, ...]:
    return () if token else ("in ether",)


def _places(rules: Payout, token: str) -> Chapter:
    """The payments if everything is released and each place is taken."""
    payment = pay([NANO] * len(rules.split), rules)
    rows = tuple(
        (ordinal(row.place), part(share, BPS), str(row.gross), str(row.fee), str(row.net), *_in_ether(row.net, token))
        for row, share in zip(payment.rows, rules.split, strict=True)
    )
    sentences = (
        "A place is paid only if its own score reaches the lowest tier. What is not paid goes back.",
        f"If {money(payment.released, token)} is released, less a fee of {part(rules.fee_bps, BPS)}:",
    )
    facts = {
        "places": [
            {"place": row.place, "gross": str(row.gross), "fee": str(row.fee), "net": str(row.net)} for row in payment.rows
        ],
        "fees": str(payment.fees),
        "refund": str(payment.refund),
    }
    table = Table(("place", "share", "gross", "fee", "paid", *_ether_heading(token)), rows)
    return Chapter(name="places", title="Who is paid", text=sentences, facts=facts, table=table)


def _served(model: ModelChoice) -> str:
    """A sentence about how a service must offer a model."""
    forms = {"json_schema": "by a JSON schema", "json_object": "as a JSON object", "text": "as JSON in plain text"}
    also = f" or as {named([*model.names], 6)}" if model.names else ""
    return (
        f"{model.name} must be served under that name{also}. It answers {forms[model.format]}, "
        f"with {model.max_tokens} tokens and {plural(model.timeout, 'second')} at most."
    )


def _panel(bounty: Bounty) -> Iterator[str]:
    """The rule by which the answers become a judgement."""
    panel = bounty.rules.panel
    if panel is None:
        yield "If the answers of both stay malformed, the solution is unjudged, never zero."
        return
    most, of = panel.bound
    bound = "" if most == of else f", or more than {most}/{of} of the votes on one question differ"
    yield f"A panel of {panel.answers} answers judges each solution: the majority of each question counts."
    yield f"If a question has no majority{bound}, the solution is unjudged, never zero."


def _judges(bounty: Bounty) -> Chapter:
    judge, enclave, rules = bounty.judge, bounty.enclave, bounty.scheme.consensus
    members = [model.name for model in judge.members]
    sentences = [
        f"{members[0]} answers; if its answers stay malformed, or it is not available, {judge.fallback.name} does."
        if len(members) == 1
        else f"{named(members, 6)} answer in turn; if the answers of one stay malformed, or it is not available, "
        f"{judge.fallback.name} answers in its place.",
        *_panel(bounty),
        *dict.fromkeys(map(_served, (*judge.members, judge.fallback))),
        f"A solution may have {judge.solution_tokens} tokens, each byte of its UTF-8 counted as one; a larger one is refused.",
        f"{plural(rules.min_validators, 'validator')} must judge it"
        + (f", who hold {part(rules.min_stake, NANO)} of the stake." if rules.min_stake else "."),
    ]
    if enclave is None:
        sentences.append("There is no enclave, so the validators who judge can read the solutions.")
        return Chapter(name="judges", title="Who judges", text=tuple(sentences), facts={"enclave": None})
    values = {name: getattr(enclave, name) for name in ("compose_hash", "mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3")}
    pinned = {name: value for name, value in values.items() if value is not None}
    allowed = named([*dict.fromkeys((UP_TO_DATE, *enclave.tcb))], 6)
    sentences.append(
        f"An enclave judges sealed solutions, and nobody else can read them. Its platform is {allowed}, and it measures as:"
    )
    table = Table(("measurement", "what it must be"), tuple(pinned.items()))
    facts = {"enclave": pinned, "tcb": [*enclave.tcb], "development": enclave.development}
    return Chapter(name="judges", title="Who judges", text=tuple(sentences), facts=facts, table=table)


def commitment_of(folder: Path, text: str) -> tuple[bytes, str | None]:
    """A commitment's 32 bytes and its participant, if known, from its digest or from a file of `assay commit`.

    Raises BadInput if the file is not a commitment, or belongs to another bounty.
    """
    match = re.fullmatch(r"(?:sha256:|0x)?([0-9a-fA-F]{64})", text)
    if match:
        return bytes.fromhex(match[1]), None
    from assay.enclave import sealing
    from assay.enclave.messages import Rejected
    from assay.folder.files import load
    from assay.scheme.bounty import read_bounty

    path = Path(text)
    data = load(path, sealing.SECRET_BYTES * 8, hint="give sha256:…, or the file that `assay commit` wrote")
    try:
        commitment = sealing.read_commitment(data)
        bounty, participant, digest = commitment.bounty, commitment.participant, commitment.digest
    except Rejected:
        try:
            secret = sealing.read_secret(data)
        except BadInput as error:
            raise error.at(file=path) from None
        bounty, participant, digest = secret.bounty, secret.participant, secret.commitment
    expected = read_bounty(folder).digest
    if bounty != expected:
        raise BadInput(f"belongs to another bounty, {bounty}", file=path, hint=f"this one is {expected}")
    return bytes.fromhex(digest.removeprefix("sha256:")), participant


def check_account(folder: Path, participant: str | None, account: str) -> None:
    """Refuse to commit from an account that is not the participant's address in participants.csv."""
    from assay.folder import csvs
    from assay.publish.evm.libraries import checksum

    if participant is None:
        return
    file = folder / "participants.csv"
    rows = {str(row.fields["key"]): row for row in csvs.read(file, csvs.PARTICIPANTS)}
    if participant not in rows:
        raise BadInput(f"has no participant {participant[:80]!r}", file=file, hint="the commitment belongs to this participant")
    address = rows[participant].fields.get("address")
    if not address or checksum(str(address)) != account:
        what = f"{participant} is paid at {address or 'no address'}, but {account} would commit"
        raise rows[participant].place.refuse(what, field="address", hint="the account that commits is the account that is paid")


app = typer.Typer(name="bounty", help="Bounties: write, check, fund and pay them.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="The bounty and its numbers, as canonical JSON.")] = False,
) -> None:
    """Explain a bounty in words: what is asked, the deadlines, how solutions are judged, and what is paid.

    Warns about settings that are allowed but probably not intended. Commitments, sealed solutions and judgements name the digest
    of the whole bounty, so a changed bounty is another bounty.

    \b
    Examples:
      assay bounty check my-bounty
      assay bounty check my-bounty --json | jq -r .digest
    """
    from datetime import UTC, datetime

    from assay.cli.output import emit
    from assay.scheme.advice import advice
    from assay.scheme.bounty import read_bounty

    bounty = read_bounty(folder)
    _check_keys(bounty.terms.sponsor, bounty.terms.log, bounty.file)
    now = datetime.now(UTC)
    warnings = advice(bounty, now)
    if emit(lambda: document(bounty, now, warnings), as_json):
        return
    warn(f"{bounty.file}: {warning}" for warning in warnings)

    from assay.cli.board import token_of
    from assay.cli.show import heading, note, rendered, show

    token = token_of(folder)
    show(
        heading(bounty.terms.title or bounty.terms.name),
        *rendered(chapters(bounty, now, token)),
        "",
        note(f"Digest {bounty.digest}"),
    )


def _check_keys(sponsor: str | None, log: str | None, file: Path) -> None:
    """Raise BadInput for a sponsor's key to which nothing can be sealed, or for a wrong log key."""
    from assay.errors import BadInput
    from assay.ledger import keys
    from assay.ledger.check import LogKey
    from assay.ledger.keys import as_bad_input

    try:
        if sponsor is not None:
            keys.sealing(sponsor)
    except BadInput as error:
        raise error.at(file=file, field="bounty.sponsor") from None
    if log is not None:
        with as_bad_input("copy it from ledger.toml, or from the log's operator", file=file, field="bounty.log"):
            LogKey.parse(log)


for _command in (
    bounty_chain.oracle,
    bounty_chain.create,
    bounty_chain.fund,
    bounty_chain.show,
    bounty_chain.commit,
    bounty_chain.settle,
    bounty_chain.claim,
    bounty_chain.refund,
):
    app.command()(_command)
