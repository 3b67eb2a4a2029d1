"""The kind of case for margins: how little changes the winner, the tier or the order of a board. SPEC 2.1, 3, 5."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import Field

from assay.conformance.kinds.stages import kind
from assay.errors import BadInput
from assay.records import Participant, Tests, Validator
from assay.rules.margin import margins
from assay.scheme.fields import Key, Rao, Section
from assay.scheme.model import Consensus, Payout, Scheme
from assay.scheme.reading import validate
from assay.settle import Settlement, pipeline
from assay.settle.inputs import Inputs

__all__ = ["board_of", "margin"]

Json = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)


class _Seen(Section):
    passed: Annotated[int, Field(ge=0, le=64)]
    missing: Annotated[int, Field(ge=0, le=64)] = 0


class _Judged(Section):
    key: Key
    seen: dict[Key, _Seen]


class _StakedValidator(Section):
    key: Key
    stake: Rao


class _Margin(Section):
    consensus: Consensus = Consensus()
    payout: Payout | None = None
    trials: Annotated[int, Field(ge=1, le=64)]
    validators: Annotated[tuple[_StakedValidator, ...], Field(strict=False, min_length=1, max_length=8)]
    participants: Annotated[tuple[_Judged, ...], Field(strict=False, min_length=1, max_length=8)]


@kind(_Margin)
def margin(given: _Margin) -> Json:
    """A board of kind tests, participants in the order of their submissions, and how many of so many trials each validator saw
    pass: the fewest flips, the fewest missing trials, and the least lying stake that change each verdict; null if none does."""
    found = margins(_settled(given))
    wide = [least for least in found.found if not least.exact]
    if wide:
        raise BadInput("the least is not known", field=wide[0].way, hint="use a smaller board")
    names = dict.fromkeys(least.verdict for least in found.found)
    rows = {
        name: {
            least.way: str(least.at_least) if least.way == "stake" and least.at_least is not None else least.at_least
            for least in found.found
            if least.verdict == name
        }
        for name in names
    }
    return {"verdicts": rows}


def board_of(document: Json) -> Settlement:
    """The settlement of such a board; raises BadInput if it is wrong."""
    return _settled(validate(_Margin, document))


def _settled(given: _Margin) -> Settlement:
    return pipeline.settle(_inputs(given))


def _inputs(given: _Margin) -> Inputs:
    kind = "ranking" if given.payout is None else "payout"
    sections: Json = {"scheme": {"name": "margin"}, "score": {"kind": "tests"}, "reward": {"kind": kind}}
    scheme = Scheme.model_validate(sections | {"consensus": given.consensus, "payout": given.payout})
    known = {row.key for row in given.validators}
    records = []
    for participant in given.participants:
        for validator, seen in participant.seen.items():
            if validator not in known or seen.passed + seen.missing > given.trials or seen.missing == given.trials:
                what = f"{validator!r} cannot have seen that of {participant.key!r}"
                raise BadInput(what, field="participants", hint="name a validator, and leave it out if it saw no trial")
            records += [
                _record(participant.key, validator, number, "pass" if number < seen.passed else "fail")
                for number in range(given.trials - seen.missing)
            ]
    return Inputs(
        scheme=scheme,
        epoch=0,
        participants=tuple(
            Participant(key=row.key, uid=at + 1, name="", submission=row.key, submitted_at=START + timedelta(seconds=at))
            for at, row in enumerate(given.participants)
        ),
        validators=tuple(Validator(key=row.key, stake=row.stake, name="") for row in given.validators),
        evidence=records,
        tasks=tuple(f"t{number}" for number in range(given.trials)),
    )


def _record(participant: str, validator: str, number: int, outcome: str) -> Tests:
    return Tests.model_validate(
        {
            "kind": "tests",
            "epoch": 0,
            "validator": validator,
            "participant": participant,
            "submission": participant,
            "observed_at": START,
            "task": f"t{number}",
            "outcome": outcome,
        }
    )
