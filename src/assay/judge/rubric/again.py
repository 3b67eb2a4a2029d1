"""A judgement looked at once more: its kept transcript replayed, or the models asked again and every change told. SPEC 2.3.

It informs. Evidence, judgements and settlements stay what they are, whatever comes of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInput, Refused
from assay.folder import csvs, evidence, registry
from assay.folder.places import Place
from assay.judge.rubric import asking, solutions
from assay.judge.rubric.judgement import Judgement, quote_digest
from assay.judge.rubric.keep import TRANSCRIPTS, document_of, hexed
from assay.judge.rubric.limits import LIMITS, Limits
from assay.judge.rubric.model import Models
from assay.judge.rubric.sealed import Transcript, opened
from assay.judge.rubric.solution import Solution
from assay.judge.rubric.transcript import Change, compare, replay
from assay.ledger import config
from assay.ledger.keys import PrivateKey
from assay.ledger.opened import open_ledger
from assay.records import Evidence, Participant, Rubric, record
from assay.scheme.bounty import Bounty, read_bounty
from assay.settle.score import rubric as score

__all__ = ["Kept", "Round", "ask", "kept", "replayed"]


@dataclass(frozen=True)
class Kept:
    """A judgement that is evidence, and what it was of."""

    bounty: Bounty
    participant: Participant
    solution: Solution
    record: Rubric

    @property
    def problem(self) -> str:
        """The problem's text; raises BadInput where it is sealed."""
        if self.bounty.problem is None:
            raise BadInput("the problem is sealed", file=self.bounty.file, field="problem", hint="only the enclave reads it")
        return self.bounty.problem


@dataclass(frozen=True)
class Round:
    """One more judgement of the solution, and what is different in it."""

    judgement: Judgement
    changes: tuple[Change, ...]
    bps: int | None
    """None where it is unjudged."""


def kept(competition: Path, find: Callable[[tuple[Participant, ...]], str], validator: str | None = None) -> Kept:
    """The judgement of somebody's current submission; find: from all participants the key of the one that is meant.

    Raises BadInput where there is none, or several and `validator` does not say whose, and where the solution is not here.
    """
    bounty = read_bounty(competition)
    file = competition / csvs.PARTICIPANTS.name
    everybody = registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), bounty.scheme)
    key = find(everybody)
    who = next(one for one in everybody if one.key == key)
    record = _record(competition, everybody, who, validator)
    solution = solutions.find(competition, who)
    if solution is None:
        hint = "only who has the solution can judge it: `assay submit` puts it there"
        raise BadInput(f"the solution of {key!r} is not here", file=solutions.place(competition, who.submission), hint=hint)
    return Kept(bounty, who, solution, record)


def _record(competition: Path, everybody: tuple[Participant, ...], who: Participant, validator: str | None) -> Rubric:
    place = competition / "evidence"
    judges = frozenset(row.fields["key"] for row in csvs.read(competition / "validators.csv", csvs.VALIDATORS))
    names = evidence.Registry("rubric", judges, frozenset(one.key for one in everybody))
    records = [] if not config.exists(competition) else _in_ledger(competition)  # what an enclave handed in is there alone
    records += evidence.read(sorted(place.glob("*.jsonl")), names).records
    found = [one for one in records if isinstance(one, Rubric) and who.submission and one.submission == who.submission]
    found = [one for one in found if validator in (None, one.validator)]
    if not found:
        by = "" if validator is None else f" by {validator!r}"
        hint = "`assay run` judges what has no evidence yet"
        raise BadInput(f"there is no judgement of the submission of {who.key!r}{by}", file=place, hint=hint)
    if len({one.validator for one in found}) > 1:
        several = ", ".join(sorted({one.validator for one in found}))
        raise BadInput(f"{who.key!r} was judged by {several}", field="--validator", hint="say whose judgement is meant")
    return found[0]


def _in_ledger(competition: Path) -> list[Evidence]:
    """The records of the competition's ledger that count, the first accepted first."""
    with open_ledger(competition) as ledger, ledger.counted() as view:
        return [record(json.loads(row.body)) for row in view.records()]


def bps(judgement: Judgement, bounty: Bounty) -> int | None:
    """The BPS of a judgement; None where it is unjudged."""
    if judgement.outcome == "unjudged":
        return None
    found = score.judge(judgement.baseline, judgement.checks, judgement.verdict, bounty.rules)
    return None if found is None else found.bps


def replayed(competition: Path, one: Kept, *keys: PrivateKey) -> Round:
    """The kept transcript replayed, without a network; raises BadInput where it does not open, Refused where it does not fit.

    keys: any one of them that it is sealed to opens it.
    """
    attestation = one.record.attestation
    if attestation is None:
        raise BadInput("the judgement names no document", field="attestation", hint="it was not made by `assay run`")
    document = document_of(competition, attestation)
    if document.get("bounty") != one.bounty.digest:
        hint = f"it is {one.bounty.digest} now, and was judged as {document.get('bounty')}: get that back"
        raise BadInput("the bounty was changed since", file=one.bounty.file, hint=hint)
    file = competition / TRANSCRIPTS / f"{hexed(attestation)}.sealed"
    transcript = opened(file, *keys, bounty=one.bounty.digest, judgement=attestation)
    found = replay(transcript.data, one.bounty, one.problem, one.solution)
    if document.get("transcript") != found.transcript_digest:
        raise Refused("transcript", "it is not the one that the judgement names", file=file)
    _check_same(one.record, found, transcript)
    return Round(found, (), bps(found, one.bounty))


def _check_same(record: Rubric, found: Judgement, transcript: Transcript) -> None:
    """Refuse evidence that says something else than its own transcript."""
    told = {"outcome": record.outcome, "baseline": record.baseline, "checks": record.checks, "verdict": record.verdict}
    for name, answer in found.answers.items():
        if told[name] != answer:
            raise Refused("evidence", f"its field {name!r} is not what the transcript leads to", participant=record.participant)
    if (record.quotes or {}) != {name: quote_digest(quote, transcript.blind) for name, quote in found.quotes.items()}:
        raise Refused("evidence", "its quotes are not those of the transcript", participant=record.participant)


async def ask(
    one: Kept, before: Judgement, models: Models, times: int, on_round: Callable[[Round], None], *, limits: Limits = LIMITS
) -> list[Round]:
    """Asks again, so many times, one after the other; on_round: as each ends. Raises Unreachable where nobody answers."""
    found: list[Round] = []
    for _ in range(times):
        judgement = await asking.judge(one.bounty, one.problem, one.solution, models, limits=limits)
        found.append(Round(judgement, tuple(compare(before, judgement)), bps(judgement, one.bounty)))
        on_round(found[-1])
    return found
