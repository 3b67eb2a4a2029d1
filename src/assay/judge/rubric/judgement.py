"""Defines a judgement, its public document and its record, and every bound of the rubric judge. SPEC 2.3, 6, 7.

The record's `attestation` is the digest of the document. The document contains answers and verdict; of a quote it contains only
the digest, hidden by `blind`. The texts (quotes, reasons, the transcript) belong to the sponsor and are stored sealed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

from assay.exact import digest
from assay.records import PanelAnswer, Rubric

CHECKS_AT_ONCE = 20
"""Most checks in one question; more checks are asked in several questions."""
CHECKS_BYTES = 32_000
"""Bytes of the shown checks in one question; a single check may have more."""
REQUEST_BYTES = 400_000
"""Bytes of a question's messages without the solution: our prompts, the problem, the checks."""
ANSWER_BYTES = 256_000
"""Bytes of a model's answer."""
BODY_BYTES = 1_000_000
"""Bytes of a body that the service sends."""
NAME_CHARACTERS = 200
"""Characters of a service's name for a model, and of its fingerprint."""
QUOTE_CHARACTERS = 2_000
"""Most characters of a quote."""
QUOTE_LEAST = 8
"""Least characters of a quote without white space, unless its file has fewer."""
REASON_CHARACTERS = 2_000
"""Most characters of a reason."""
WORDS_CHARACTERS = 300
"""Most characters that are shown of a service's own message."""
TRANSCRIPT_BYTES = 64_000_000
"""Bytes of a transcript that is read."""


@dataclass(frozen=True)
class JudgeLimits:
    """Bounds of attempts, and of times in seconds. Users need not change them; tests shorten them."""

    attempts: int = 3
    """Answers of one model to one question; when the last is malformed too, the other model is asked from the start."""
    seconds: float = 3600.0
    """Seconds of one request, from its first byte to the last of the reply; a bounty sets less for each model (300)."""
    tries: int = 6
    """Failed requests for one answer, 429 not counted: no connection, a time-out, 5xx, no completion."""
    patience: float = 900.0
    """Seconds of all pauses for one answer. It is the only bound on 429."""
    first_pause: float = 1.0
    """Seconds of the first pause; each failure doubles it."""
    longest_pause: float = 60.0
    """Seconds of one pause, `Retry-After` included."""


LIMITS = JudgeLimits()


JUDGEMENT_SCHEMA = "assay.judgement/2"
PANEL_SCHEMA = "assay.panel/1"
_QUOTE = b"assay.quote/1\x00"


@dataclass(frozen=True)
class TokenUsage:
    """Tokens as the service counts them; None (not 0) if it does not report them."""

    prompt: int | None = 0
    completion: int | None = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(_sum(self.prompt, other.prompt), _sum(self.completion, other.completion))

    @property
    def total(self) -> int | None:
        """The sum of both."""
        return _sum(self.prompt, self.completion)


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


@dataclass
class Spent:
    """The cost of one question so far, whatever its result: the number of requests, and their tokens."""

    tries: int = 0
    usage: TokenUsage = field(default_factory=TokenUsage)


@dataclass(frozen=True)
class Exchange:
    """One question and its answer without the texts, for the document and for people."""

    phase: str
    """`baseline`, `checks` or `verdict`."""
    part: int
    """Number of the question in its phase, from 1."""
    asked: str
    """The model that was asked."""
    answered: str | None
    """The model that the answer names; None without an answer."""
    fingerprint: str | None
    """`system_fingerprint`."""
    fault: str | None
    """The reason why the answer was not accepted: a code; None if it was accepted."""


@dataclass(frozen=True)
class JudgingCost:
    """The cost of a judgement. No score depends on it; a replay has none."""

    usage: TokenUsage
    cost: int | None
    """Millionths of the prices' unit; None if a price or a number of tokens is not known."""
    milliseconds: int
    """From the first question to the last answer, pauses included."""
    tries: int
    """All requests, including those that failed."""

    def __add__(self, other: JudgingCost) -> JudgingCost:
        return JudgingCost(
            self.usage + other.usage,
            _sum(self.cost, other.cost),
            self.milliseconds + other.milliseconds,
            self.tries + other.tries,
        )


@dataclass(frozen=True)
class Judgement:
    """The judgement of one solution; or `unjudged` with the reason. A missing answer is never a zero. SPEC 2.3."""

    bounty: str
    submission: str
    outcome: Literal["judged", "unjudged"]
    baseline: Mapping[str, bool] | None
    """B1 … B4; None where unjudged."""
    checks: Mapping[str, bool] | None
    """By check id; None if it is unjudged, or if the baseline is not met."""
    verdict: str | None
    """One of the six verdicts; None as for `checks`."""
    quotes: Mapping[str, str] = field(repr=False)
    """Check id → the quote in the shown form of the text, for each check answered YES. Private."""
    reasons: Mapping[str, str] = field(repr=False)
    """`baseline.B1`, `checks.C1`, `verdict` → the model's reason, printable. Private."""
    detectors: tuple[str, ...]
    """Signs of an injection in the solution, sorted. Evidence only: they change no answer."""
    reason: str | None
    """The reason why it is unjudged: a code; None if it is judged."""
    model: str | None
    """The service's name of the model that gave the answers; None if unjudged."""
    asked: Mapping[str, Mapping[str, Any]]
    """`primary`, `fallback` → how the bounty asks that model: name, names, format, most tokens, time-out."""
    fallback: str | None
    """The reason why the fallback model judged: the code with which the primary was given up. None if the primary judged."""
    parameters: Mapping[str, Any]
    """Parameters of each request, besides model, messages, form and most tokens: temperature 0, seed 42."""
    prompts: str
    """The digest of our prompts."""
    exchanges: tuple[Exchange, ...]
    transcript: bytes = field(repr=False)
    """The questions and answers as canonical JSON. Private."""
    measured: JudgingCost | None = None
    """None in a replay."""
    words: str = field(default="", repr=False)
    """The service's own message about `fallback`, for the validator; not in the document."""
    panel: tuple[Judgement, ...] = ()
    """All answers, if it is a panel's judgement: the answers above are then what they decide."""

    @property
    def judge(self) -> str:
        """The bounty's name of the model that answered; if it is unjudged, of the one that was asked first."""
        return str(self.asked["primary" if self.fallback is None else "fallback"]["name"])

    @property
    def injection_suspected(self) -> bool:
        """Whether any detector fired; a scheme may act on it."""
        return bool(self.detectors)

    @property
    def transcript_digest(self) -> str:
        """`sha256:…` over the transcript's bytes."""
        return f"sha256:{sha256(self.transcript).hexdigest()}"

    @property
    def answers(self) -> dict[str, Any]:
        """The outcome, and all answers that decide the score."""
        return {"outcome": self.outcome, "baseline": self.baseline, "checks": self.checks, "verdict": self.verdict}

    def document(self, blind: bytes = b"") -> dict[str, Any]:
        """The judgement as JSON, without the texts; `blind` (a secret, if any) keeps short quotes from being guessed."""
        answers = {"answers": [answer.document(blind) for answer in self.panel]} if self.panel else {}
        return answers | {
            "schema": PANEL_SCHEMA if self.panel else JUDGEMENT_SCHEMA,
            "bounty": self.bounty,
            "submission": self.submission,
            **self.answers,
            "reason": self.reason,
            "quotes": {name: quote_digest(quote, blind) for name, quote in self.quotes.items()},
            "injection_suspected": self.injection_suspected,
            "detectors": list(self.detectors),
            "model": self.model,
            "asked": {name: dict(called) for name, called in self.asked.items()},
            "fallback": self.fallback,
            "parameters": dict(self.parameters),
            "prompts": self.prompts,
            "exchanges": [asdict(exchange) for exchange in self.exchanges],
            "transcript": self.transcript_digest,
            "measured": None if self.measured is None else asdict(self.measured),
        }

    def digest(self, blind: bytes = b"") -> str:
        """`sha256:…` over the canonical JSON of `document(blind)`."""
        return digest(self.document(blind))


def why_fallback(document: Mapping[str, Any]) -> str:
    """The reason why the fallback model judged, in words, from a judgement's document; empty if the primary judged."""
    code = document.get("fallback")
    if code is None:
        return ""
    primary = document["asked"]["primary"]["asked"]
    if code == "another-model":
        rows = [row for row in document["exchanges"] if row["asked"] == primary and row["fault"] == code]
        return f"the service answered for {primary} as {rows[-1]['answered']}"
    status = re.fullmatch("status-([0-9]{3})", str(code))
    if status is not None:
        return f"the service refused {primary} (status {status[1]})"
    sentences = {
        "unnamed-model": f"the service did not say that {primary} answered",
        "timeout": f"{primary} did not answer in time",
        "cut-off": f"the connection to {primary} was cut off",
        "no-completion": f"the service's answer for {primary} was not a completion",
    }
    return sentences.get(str(code), f"the answers of {primary} stayed malformed ({code})")


def quote_digest(quote: str, blind: bytes = b"") -> str:
    """`sha256:…` over a tag, the length of the blind, the blind and the quote's UTF-8."""
    return f"sha256:{sha256(_QUOTE + len(blind).to_bytes(8, 'big') + blind + quote.encode()).hexdigest()}"


def panel_answers(answers: Sequence[Judgement]) -> tuple[PanelAnswer, ...]:
    """The answers of a panel as a record keeps them."""
    return tuple(PanelAnswer(judge=answer.judge, **answer.answers) for answer in answers)


def make_record(
    judgement: Judgement, *, epoch: int, validator: str, participant: str, observed_at: datetime, blind: bytes = b""
) -> Rubric:
    """The record of evidence: the answers, the document's digest as `attestation`, the quotes' digests. SPEC 7."""
    return Rubric(
        kind="rubric",
        epoch=epoch,
        validator=validator,
        participant=participant,
        submission=judgement.submission,
        observed_at=observed_at,
        baseline=judgement.baseline,
        checks=judgement.checks,
        verdict=judgement.verdict,
        outcome=judgement.outcome,
        injection_suspected=judgement.injection_suspected,
        attestation=judgement.digest(blind),
        quotes={name: quote_digest(quote, blind) for name, quote in judgement.quotes.items()} or None,
        panel=panel_answers(judgement.panel) or None,
    )
