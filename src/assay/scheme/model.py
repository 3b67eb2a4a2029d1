"""The rules of a competition as validated data. SPEC 7 lists the fields; SPEC 2–5 give their meaning.

Fractions are kept as nanos, amounts as integers, and all values are frozen. A scheme has only the sections that apply: `score`
has the fields of its kind (`assay.scheme.score`), `decay` belongs to weights, `payout` to payouts; a ranking has neither. The
published schemas contain the docstrings of the sections, so these do not change.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    Field,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from assay import kind as kinds
from assay.exact import BPS, NANO, digest
from assay.scheme.fields import Bps, Count, Duration, Instant, Key, Nanos, Rao, Section, Share, Wei
from assay.scheme.score import (
    Check,
    GivenScore,
    Penalties,
    PointsScore,
    Positive,
    RubricScore,
    ScoreRules,
    TestsScore,
    Weights,
    WorkflowScore,
)

__all__ = [
    "AuditRules",
    "Check",
    "Consensus",
    "Decay",
    "Duel",
    "EpochClock",
    "EvidenceRules",
    "GivenScore",
    "JudgeChoice",
    "Name",
    "Outliers",
    "Payout",
    "Penalties",
    "PointsScore",
    "Release",
    "Reward",
    "RubricScore",
    "Scheme",
    "Score",
    "ScoreRules",
    "SubmissionRules",
    "TestsScore",
    "Tier",
    "Weights",
    "WorkflowScore",
]


class Name(Section):
    """`[scheme]`: what the rules are called."""

    name: Key
    version: Key = "1.0.0"


def _of_its_kind(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """The rules, read by the model of their kind."""
    name = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    if kinds.known(name):
        return kinds.find(str(name)).rules.model_validate(value)
    if isinstance(value, dict):
        raise PydanticCustomError("union_tag_invalid", "no such kind", {})
    return handler(value)


if TYPE_CHECKING:
    Score = ScoreRules
else:
    _Five = Annotated[TestsScore | WorkflowScore | RubricScore | PointsScore | GivenScore, Field(discriminator="kind")]
    Score = Annotated[SerializeAsAny[_Five], WrapValidator(_of_its_kind)]
"""The rules of any kind. The published JSON schema has only the five kinds of SPEC 2."""


class JudgeChoice(Section):
    """`[judge]`: which judge makes the evidence, if not the one with the kind's name."""

    use: Key
    """The name of an entry point in the group `assay.judges`."""


class SubmissionRules(Section):
    """`[submission]`: how often and how a participant may hand in. SPEC 7."""

    per_epoch: Positive | None = None
    """How many submissions a participant may hand in while one epoch is open; None: the scheme sets no bound."""
    reveal: Positive | None = None
    """How many epochs a submission's digest must be committed to before its content is taken; None: no commitment is needed."""
    copies: Literal["flag", "hold"] | None = None
    """Near-copies of earlier submissions: flagged, and still count; or held, so not judged until released. None: nothing."""


class Release(Section):
    """`[release]`: who may read what the judge kept of a submission. SPEC 7."""

    logs: Literal["own", "after-epoch", "never"] = "own"
    """The participant at once, everybody once the epoch is settled, or nobody."""


class EvidenceRules(Section):
    """`[evidence]`: what validators keep of a trial beside its logs, so that others can judge it again. SPEC 7."""

    keep: Literal["nothing", "work"] = "nothing"
    """work: the agent's finished work, compressed; its digest is in the record. Tasks of the mode separate only."""
    most_mb: Annotated[int, Field(ge=1, le=4096)] = 64
    """MiB of one trial's work, compressed; a larger one is not kept."""
    epochs: Positive | None = None
    """After how many epochs work is removed whose submission does not count any more; None: never."""


class AuditRules(Section):
    """`[audit]`: what an audit of trials confirms, and at which risk. docs/auditing.md."""

    risk: Annotated[Share, Field(ge=NANO // 1000, le=NANO // 2)] = NANO // 20
    """The largest chance with which a wrong outcome is confirmed."""
    places: Positive | None = None
    """How many places are confirmed, each in its order; None: all that are paid."""
    delay: Duration = Field(600, json_schema_extra={"default": "600s"})
    """Seconds between a receipt's cosignature and the public randomness of its draw."""
    failed: Literal["leave-out"] | None = None
    """Whether a validator that the registry marks with a failed audit is left out; None: the mark changes nothing."""


class EpochClock(Section):
    """`[epoch]`: when an epoch ends, by the clock or by a chain's blocks. SPEC 6, 7."""

    every: Duration | None = None
    start: Instant | None = None
    """When epoch 1 begins: epoch N ends at start + N · every."""
    tempo: Positive | None = None
    """Blocks of the chain between two epochs."""
    grace: Duration | None = None
    """How long an epoch that has ended waits for validators that have not reported; None: a tenth of an epoch."""
    empty: Literal["burn"] | None = None
    """Whether an epoch in which nobody has an agreed score is closed, and burns; None: it stays open until somebody has."""

    @model_validator(mode="after")
    def _one_clock(self) -> Self:
        if (self.every is None) == (self.tempo is None):
            raise PydanticCustomError(
                "assay", 'needs either every = "72m" with a start, or the tempo of a chain; write one of them'
            )
        if (self.every is None) != (self.start is None):
            raise PydanticCustomError("assay", "every and start go together; add the one that is missing, or remove the other")
        return self


class Duel(Section):
    """`[duel]`: when a challenger is better than a king, and how certain that must be. SPEC 7."""

    margin: Annotated[Share, Field(lt=NANO)] = 0
    """By how much the challenger's share of trials passed must exceed the king's."""
    alpha: Annotated[Share, Field(ge=1, lt=NANO)] = NANO // 20
    """The largest chance that a challenger wins that is not better; several challengers of one king share it."""
    order: Literal["receipt"] = "receipt"
    """What the order of the pairs is drawn from."""


class Outliers(Section):
    """`[consensus.outliers]`: who is too far from the others. SPEC 3.2."""

    method: Literal["modified-z", "z", "none"] = "modified-z"
    threshold: Nanos = 0
    mad_floor: Share = NANO // 100
    scale: Literal["noise"] | None = None
    """What a deviation is counted in: the MAD or its floor; noise: the binomial standard error too, if that is larger."""

    @model_validator(mode="before")
    @classmethod
    def _threshold_of_the_method(cls, value: Any) -> Any:
        if isinstance(value, dict) and "threshold" not in value:
            return value | {"threshold": "2" if value.get("method") == "z" else "3.5"}
        return value

    @model_validator(mode="after")
    def _noise_of_the_median(self) -> Self:
        if self.scale is not None and self.method != "modified-z":
            raise PydanticCustomError("assay", 'scale = "noise" goes only with method = "modified-z"; change one of them')
        return self


class Consensus(Section):
    """`[consensus]`: when validators' scores become one, and how. SPEC 3."""

    min_validators: Positive = 3
    min_stake: Share = 3 * NANO // 10
    min_validator_stake: Rao = 0
    recheck: bool = False
    combine: Literal["stake-mean", "stake-median", "mean", "clip", "trimmed"] = "stake-mean"
    kappa: Annotated[Share, Field(ge=1)] | None = None
    """clip: the part of the stake that must reach a score."""
    trim: Annotated[Share, Field(lt=NANO // 2)] | None = None
    """trimmed: the part of the stake that is cut off at each end."""
    assign: Positive | None = None
    max_age_epochs: Count | None = None
    outliers: Outliers = Outliers.model_validate({})

    @model_validator(mode="before")
    @classmethod
    def _part_of_the_combination(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        for combine, name, default in (("clip", "kappa", "50%"), ("trimmed", "trim", "20%")):
            if value.get("combine") == combine:
                value = {name: default} | value
            elif name in value:
                raise PydanticCustomError(
                    "assay", '{name} does nothing without combine = "{combine}"; remove it', {"name": name, "combine": combine}
                )
        return value

    def oldest(self, epoch: int) -> int:
        """The first epoch whose evidence counts when this one is settled. SPEC 3.0."""
        return 0 if self.max_age_epochs is None else max(0, epoch - self.max_age_epochs)


class Reward(Section):
    """`[reward]`: agreed scores into shares and weights (SPEC 4), into payouts (SPEC 5), or a ranking and nothing more."""

    kind: Literal["weights", "payout", "ranking"] = "weights"
    strategy: Literal["linear", "direct", "softmax", "winner-takes-all", "quadratic", "ranked"] = "linear"
    min_score: Share = 0
    temperature: Nanos = NANO
    top: Positive = 1
    cap: Share = NANO // 2
    excess: Literal["redistribute", "drop", "burn"] = "redistribute"
    encoding: Literal["round", "exact-sum", "max-upscale"] = "round"

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.excess == "drop" and self.encoding == "exact-sum":
            raise PydanticCustomError(
                "assay", 'excess = "drop" leaves a part unallocated, which exact-sum cannot; use encoding = "round"'
            )
        if self.excess == "drop" and self.encoding != "round":
            raise PydanticCustomError("assay", 'excess = "drop" goes only with encoding = "round"; change one of them')
        if not NANO // 100 <= self.temperature <= 10**6 * NANO:
            raise PydanticCustomError("assay", "temperature must be from 0.01 to 1000000")
        changed = [name for name in type(self).model_fields if name != "kind" and getattr(self, name) != _default(name)]
        if self.kind == "ranking" and changed:
            what = 'a ranking pays nobody, so {field} does nothing; remove it, or use kind = "weights"'
            raise PydanticCustomError("assay", what, {"field": changed[0]})
        if self.cap == 0:
            raise PydanticCustomError("assay", 'cap is 0, so nobody could be paid; use "100%" for no cap')
        return self


def _default(name: str) -> object:
    return Reward.model_fields[name].default


class Decay(Section):
    """`[decay]`: what stale submissions lose. SPEC 4."""

    curve: Literal["linear", "exponential", "none"] = "linear"
    clock: Literal["participant", "competition"] = "participant"
    grace_epochs: Count = 10
    rate: Share = NANO // 20
    max_burn: Share = 8 * NANO // 10
    burn_uid: Annotated[int, Field(ge=0, le=65_535)] = 0
    reset: Literal["improvement", "update"] = "improvement"
    improvement: Share = NANO // 50
    improvement_mode: Literal["relative", "absolute"] = "relative"


class Tier(Section):
    """How much of the deposit is released from which share of the threshold on, both in BPS. SPEC 5."""

    reach_bps: Annotated[int, Field(ge=1, le=BPS)]
    release_bps: Bps


class Payout(Section):
    """`[payout]`: how a sponsor's deposit is paid out. SPEC 5."""

    deposit: Wei
    threshold_bps: Annotated[int, Field(ge=1, le=BPS)] = 7000
    split: Annotated[tuple[Annotated[int, Field(ge=1, le=BPS)], ...], Field(strict=False, min_length=1, max_length=1000)] = (BPS,)
    fee_bps: Bps = 0
    scoring_deadline: Instant | None = None
    tiers: Annotated[tuple[Tier, ...], Field(strict=False, min_length=1, max_length=100)] = (
        Tier(reach_bps=10_000, release_bps=10_000),
        Tier(reach_bps=8_000, release_bps=5_000),
        Tier(reach_bps=5_000, release_bps=2_500),
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if sum(self.split) != BPS:
            raise PydanticCustomError("assay", "split sums to {total}; it must sum to 10000", {"total": sum(self.split)})
        falling = [(tier.reach_bps, tier.release_bps) for tier in self.tiers]
        if any(a[0] <= b[0] or a[1] < b[1] for a, b in pairwise(falling)):
            raise PydanticCustomError(
                "assay", "the tiers must fall: the highest reach_bps first, each releasing no more than the one before"
            )
        return self


class Scheme(Section):
    """A scheme file: the rules of one competition. SPEC 7."""

    scheme: Name
    score: Score
    consensus: Consensus = Consensus()
    reward: Reward = Reward()
    decay: Decay | None = None
    payout: Payout | None = None
    judge: JudgeChoice | None = None
    """From here on a section is absent from the document, and so from the digest, unless it is given."""
    submission: SubmissionRules | None = None
    release: Release | None = None
    epoch: EpochClock | None = None
    evidence: EvidenceRules | None = None
    audit: AuditRules | None = None
    duel: Duel | None = None

    @model_validator(mode="before")
    @classmethod
    def _decay_by_default(cls, value: Any) -> Any:
        if isinstance(value, dict) and "decay" not in value and _kind(value) == "weights":
            return value | {"decay": {}}
        return value

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        if self.consensus.outliers.scale is not None and self.kind.trials(self.score) is None:
            raise PydanticCustomError(
                "assay", 'scale = "noise" needs scores that are a share of trials; use it with [score] kind = "tests"'
            )
        if (self.work_bytes or self.audit is not None) and self.kind.trials(self.score) is None:
            raise PydanticCustomError(
                "assay", 'only trials are kept and audited; remove [evidence] and [audit], or use [score] kind = "tests"'
            )
        if self.consensus.outliers.scale is not None and self.score.scores_jointly():
            raise PydanticCustomError(
                "assay",
                'with passed_by = "all" all validators have one score, so scale = "noise" does nothing; remove one of them',
            )
        if self.duel is not None and self.kind.trials(self.score) is None:
            raise PydanticCustomError("assay", 'a duel needs trials that both sides have; use it with [score] kind = "tests"')
        if self.reward.kind == "ranking":
            if self.decay is not None:
                raise PydanticCustomError("assay", "a ranking does not decay; remove the section [decay]")
            if self.score.whole_share_from() is not None:
                raise PydanticCustomError("assay", "warm_up takes from weights, and there is only a ranking; remove it")
        if self.reward.kind == "payout":
            if self.payout is None:
                raise PydanticCustomError("assay", 'kind = "payout" needs a section [payout] with a deposit')
            if self.decay is not None:
                raise PydanticCustomError("assay", "payouts do not decay; remove the section [decay]")
            if self.score.whole_share_from() is not None:
                raise PydanticCustomError("assay", "warm_up takes from weights, and there are payouts; remove it")
        elif self.payout is not None:
            raise PydanticCustomError("assay", 'the section [payout] needs [reward] kind = "payout"')
        return self

    @property
    def name(self) -> str:
        """The scheme's name."""
        return self.scheme.name

    @property
    def kind(self) -> kinds.Kind:
        """The kind that `score.kind` names: records, scorer and words of this competition."""
        return kinds.find(self.score.kind)

    @property
    def work_bytes(self) -> int:
        """Bytes that the finished work of a trial may have when it is kept; 0: it is not kept."""
        return self.evidence.most_mb << 20 if self.evidence is not None and self.evidence.keep == "work" else 0

    @property
    def stakes(self) -> bool:
        """Whether any rule depends on stake; in a ranking of runs that count alike none does."""
        rules = self.consensus
        asked = rules.min_stake or rules.min_validator_stake or rules.combine != "mean" or rules.outliers.method != "none"
        return self.reward.kind != "ranking" or bool(asked)

    def document(self) -> dict[str, Any]:
        """The scheme as JSON with every default filled in and fractions normalised; its digest is over this. SPEC 6."""
        return self.model_dump(mode="json", exclude_none=True)

    @cached_property
    def digest(self) -> str:
        """`sha256:…` over the canonical JSON of `document()`. SPEC 6."""
        return digest(self.document())


def _kind(value: dict[str, Any]) -> object:
    reward: object = value.get("reward", {})
    if isinstance(reward, BaseModel):
        return getattr(reward, "kind", None)
    return reward.get("kind", "weights") if isinstance(reward, dict) else None
