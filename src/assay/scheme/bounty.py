"""bounty.toml beside a scheme: what a sponsor asks for, the deadlines, and who may judge. SPEC 2.3, 5, 7.

problem    a text; or { file = "problem.md" }; or { sealed = "problem.sealed", digest = "sha256:…" }, which only an enclave reads
[bounty]   name, title, sponsor, log, commitments_until, submissions_until
[[checks]] and [payout], as in a scheme
[judge]    model and fallback (a name; or a table of it and how a service is asked for it), solution_tokens, [[judge.panel]]
[enclave]  what an enclave must measure as; left out: the bounty is judged without one

The bounty's digest covers all of it, the whole scheme beside it with every default filled in, and the digest of the problem's
text. Commitments, sealed solutions and judgements name that digest, so nothing can be changed once somebody has worked for the
bounty. Measurements are lower-case hex digits, as dstack, its tools and `assay enclave compose-hash` print them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput, brief
from assay.exact import digest
from assay.scheme.fields import Digest, Instant, Key, SealKey, Section, Text, refused
from assay.scheme.load import BOUNTY, read
from assay.scheme.model import RubricScore, Scheme
from assay.scheme.reading import line_of, opened, read_toml, validate

__all__ = [
    "FORMATS",
    "PROBLEM_BYTES",
    "SCHEMA",
    "STATUSES",
    "UP_TO_DATE",
    "Bounty",
    "BountyJudge",
    "BountyTerms",
    "Format",
    "Measurements",
    "ModelChoice",
    "Problem",
    "TcbStatus",
    "read_bounty",
]


UP_TO_DATE: Final = "UpToDate"
TcbStatus = Literal[
    "UpToDate",
    "SWHardeningNeeded",
    "ConfigurationNeeded",
    "ConfigurationAndSWHardeningNeeded",
    "OutOfDate",
    "OutOfDateConfigurationNeeded",
]
"""Intel's statuses of a platform's firmware. `Revoked` cannot be chosen: the keys of such a platform are lost."""
STATUSES: tuple[TcbStatus, ...] = get_args(TcbStatus)


def _hex(size: int) -> BeforeValidator:
    """A validator of `size` bytes in lower-case hex."""

    def read(value: object) -> object:
        if isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{2 * size}}}", value):
            return value
        hint = f"write the {size} bytes as {2 * size} lower-case hex digits, nothing before them"
        raise refused(BadInput(f"{brief(value)} is not a measurement", hint=hint))

    return BeforeValidator(read)


_Sha256 = Annotated[str, _hex(32)]
_Sha384 = Annotated[str, _hex(48)]


class Measurements(Section):
    """`[enclave]`: the code that may judge, the firmware that it may run on, and what else is allowed.

    `compose_hash` is the SHA-256 of dstack's app-compose.json, which names the service's images; `rtmr3` is the register that
    it, and everything else that dstack logs, went into. One of the two is needed. `mrtd` and `rtmr0` to `rtmr2` are dstack's own
    firmware, hardware, kernel and root file system: unless they are pinned, it may be any system that logs that compose hash.
    """

    compose_hash: _Sha256 | None = None
    mrtd: _Sha384 | None = None
    rtmr0: _Sha384 | None = None
    rtmr1: _Sha384 | None = None
    rtmr2: _Sha384 | None = None
    rtmr3: _Sha384 | None = None
    tcb: Annotated[tuple[TcbStatus, ...], Field(strict=False, min_length=1, max_length=len(STATUSES))] = (UP_TO_DATE,)
    """Statuses that are accepted; UpToDate always is."""
    development: bool = False
    """Whether a quote of a development root is accepted, which proves nothing."""

    @model_validator(mode="after")
    def _pins_the_code(self) -> Self:
        if self.compose_hash is None and self.rtmr3 is None:
            raise PydanticCustomError(
                "assay", "pins neither compose_hash nor rtmr3, so any program could judge; give compose_hash"
            )
        return self

    def accepts(self, status: str) -> bool:
        """Whether a platform of this TCB status may judge."""
        return status == UP_TO_DATE or status in self.tcb

    @property
    def unpinned(self) -> tuple[str, ...]:
        """The measurements of dstack's own system that are not pinned."""
        return tuple(name for name in ("mrtd", "rtmr0", "rtmr1", "rtmr2") if getattr(self, name) is None)


SCHEMA = "assay.bounty/1"
PROBLEM_BYTES = 64_000
"""Bytes of a problem's text."""
_File = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]
_Model = Annotated[Key, Field(max_length=200, pattern=r"^\S+$")]
Format = Literal["json_schema", "json_object", "text"]
"""How the form of an answer is requested: by a JSON schema, as any JSON object, or only in words. SPEC 2.3."""
FORMATS: tuple[Format, ...] = get_args(Format)


class Problem(Section):
    """`problem`: a text, a file beside bounty.toml with one, or a file that is sealed to the enclave and the text's digest."""

    text: Annotated[str, Field(min_length=1)] | None = None
    file: _File | None = None
    sealed: _File | None = None
    digest: Digest | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(source is not None for source in (self.text, self.file, self.sealed)) != 1:
            raise PydanticCustomError("assay", "has not exactly one of text, file and sealed; keep one of them")
        if (self.sealed is None) != (self.digest is None):
            raise PydanticCustomError("assay", "sealed and digest go together; `assay seal --problem` prints both")
        return self


def _text(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


class BountyTerms(Section):
    """`[bounty]`: its name, the key to which results are sealed, and its deadlines."""

    name: Key
    title: Text = ""
    sponsor: SealKey | None = None
    """Results are sealed to it; `assay keys new --kind x25519` makes one."""
    log: Annotated[str, Field(max_length=4096)] | None = None
    """The public key (vkey) of the log in whose ledger the evidence counts, and whose receipts release the winners' solutions."""
    commitments_until: Instant | None = None
    submissions_until: Instant | None = None


class ModelChoice(Section):
    """`[judge.model]`, `[judge.fallback]`: a model, and how a service is asked for it. A text is the name alone. SPEC 2.3."""

    name: _Model
    names: Annotated[tuple[_Model, ...], Field(strict=False, max_length=20)] = ()
    """Other names under which a service may serve it: it is asked for by one of them, and answers by one of them."""
    format: Format = "json_schema"
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 16_000
    """Most tokens of an answer."""
    timeout: Annotated[int, Field(ge=1, le=3600)] = 300
    """Seconds of one request, from connecting to the last byte."""

    def served_as(self, name: str) -> bool:
        """Whether a service may serve it under this name."""
        return name == self.name or name in self.names

    def document(self) -> str | dict[str, Any]:
        """As the bounty's digest has it: only the name if nothing else is given, so that digests of earlier bounties stay."""
        return self.name if self == ModelChoice(name=self.name) else self.model_dump(mode="json")


def _named(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


class BountyJudge(Section):
    """`[judge]`: the models that answer, and the bound on what they are given. SPEC 2.3."""

    model: Annotated[ModelChoice, BeforeValidator(_named)] = ModelChoice(name="deepseek-ai/DeepSeek-V3")
    fallback: Annotated[ModelChoice, BeforeValidator(_named)] = ModelChoice(name="Qwen/Qwen2.5-72B-Instruct")
    solution_tokens: Annotated[int, Field(ge=100, le=1_000_000)] = 64_000
    """Most tokens of a solution, a byte of UTF-8 counted as one: no tokenizer of bytes makes more."""
    panel: Annotated[tuple[Annotated[ModelChoice, BeforeValidator(_named)], ...], Field(strict=False, max_length=25)] = ()
    """The models that answer in turn, if the scheme has a panel; empty: all answers are of `model`."""

    @property
    def members(self) -> tuple[ModelChoice, ...]:
        """The models that are asked first: those of the panel, or `model` alone."""
        return self.panel or (self.model,)

    def of_answer(self, answer: int) -> ModelChoice:
        """The model that is asked first for an answer of a panel, from 1."""
        return self.members[(answer - 1) % len(self.members)]

    def document(self) -> dict[str, Any]:
        """As the bounty's digest has it: without a panel, as it was before there were any."""
        document = {
            "model": self.model.document(),
            "fallback": self.fallback.document(),
            "solution_tokens": self.solution_tokens,
        }
        return document | ({"panel": [model.document() for model in self.panel]} if self.panel else {})


class _Contents(Section):
    problem: Annotated[Problem, BeforeValidator(_text)]
    bounty: BountyTerms
    judge: BountyJudge = BountyJudge()
    enclave: Measurements | None = None


@dataclass(frozen=True)
class Bounty:
    """A bounty as read: the scheme beside it, and its own sections. `problem` is None if it is sealed."""

    scheme: Scheme
    contents: _Contents
    problem: str | None
    problem_digest: str
    file: Path

    @property
    def open_until(self) -> datetime | None:
        """Until when something may be committed or handed in; None if no deadline says it. A payout before it is too early."""
        times = (self.terms.commitments_until, self.terms.submissions_until)
        return max((time for time in times if time is not None), default=None)

    @property
    def terms(self) -> BountyTerms:
        """`[bounty]`."""
        return self.contents.bounty

    @property
    def origin(self) -> str | None:
        """The name of the log in `[bounty]`, for whose ledger the enclave signs its evidence; None if there is none."""
        return None if self.terms.log is None else self.terms.log.partition("+")[0]

    @property
    def judge(self) -> BountyJudge:
        """`[judge]`."""
        return self.contents.judge

    @property
    def enclave(self) -> Measurements | None:
        """`[enclave]`; None if the bounty is judged without an enclave."""
        return self.contents.enclave

    @property
    def rules(self) -> RubricScore:
        """`[score]`, with the checks."""
        assert isinstance(self.scheme.score, RubricScore)  # `read_bounty` saw to it
        return self.scheme.score

    @property
    def sealed(self) -> Path | None:
        """The file with the sealed problem."""
        name = self.contents.problem.sealed
        return None if name is None else self.file.with_name(name)

    def document(self) -> dict[str, Any]:
        """The bounty as JSON with every default filled in; its digest is over this."""
        return {
            "schema": SCHEMA,
            "scheme": self.scheme.document(),
            "problem": self.problem_digest,
            "bounty": self.terms.model_dump(mode="json", exclude_none=True),
            "judge": self.judge.document(),
            "enclave": None if self.enclave is None else self.enclave.model_dump(mode="json", exclude_none=True),
        }

    @cached_property
    def digest(self) -> str:
        """`sha256:…` over the canonical JSON of `document()`: the bounty's id."""
        return digest(self.document())


def read_bounty(folder: Path) -> Bounty:
    """The bounty of a competition's folder; raises BadInput, with file, line and field. SPEC 7."""
    scheme, file = read(folder / "scheme.toml"), folder / BOUNTY
    if not isinstance(scheme.score, RubricScore):
        raise BadInput(
            f"is {scheme.score.kind!r}; a bounty has a rubric",
            file=folder / "scheme.toml",
            field="score.kind",
            hint='use kind = "rubric", or another judge',
        )
    extra, source = read_toml(file)
    own = {name: value for name, value in extra.items() if name not in ("checks", "payout")}
    contents = validate(_Contents, own, file=file, source=source)
    _check_times(contents.bounty, scheme, file, source)
    _check_panel(contents.judge, scheme.score, file, source)
    text, problem_digest = _problem(contents.problem, file, source)
    return Bounty(scheme, contents, text, problem_digest, file)


def _check_panel(judge: BountyJudge, rules: RubricScore, file: Path, source: str) -> None:
    if len(judge.panel) > (0 if rules.panel is None else rules.panel.answers):
        asked = "no panel" if rules.panel is None else f"only {rules.panel.answers} answers"
        what = f"has {len(judge.panel)} models, and the scheme asks for {asked}"
        hint, line = "set answers in [score.panel] of scheme.toml, or leave models out", line_of(source, ["judge", "panel"])
        raise BadInput(what, file=file, line=line, field="judge.panel", hint=hint)


def _check_times(terms: BountyTerms, scheme: Scheme, file: Path, source: str) -> None:
    scoring = scheme.payout.scoring_deadline if scheme.payout is not None else None
    times = [
        ("bounty.commitments_until", terms.commitments_until),
        ("bounty.submissions_until", terms.submissions_until),
        ("payout.scoring_deadline", scoring),
    ]
    given = [(name, time) for name, time in times if time is not None]
    for (first, earlier), (second, later) in pairwise(given):
        if earlier > later:
            line, hint = line_of(source, first.split(".")), "commitments come first, then solutions, then scores"
            raise BadInput(f"is after {second}", file=file, line=line, field=first, hint=hint)


def _problem(problem: Problem, file: Path, source: str) -> tuple[str | None, str]:
    if problem.sealed is not None:
        assert problem.digest is not None  # they go together
        return None, problem.digest
    beside = file if problem.file is None else file.with_name(problem.file)
    data = problem.text.encode() if problem.text is not None else _beside(beside)
    field, line = ("problem", line_of(source, ["problem"])) if problem.file is None else ("", None)
    if len(data) > PROBLEM_BYTES:
        hint = "a problem is a text that a model reads whole"
        raise BadInput(f"is larger than {PROBLEM_BYTES} bytes", file=beside, line=line, field=field, hint=hint)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8", file=beside, hint="save the file as UTF-8") from None
    if not text.strip(" \t\r\n"):
        raise BadInput("is empty", file=beside, line=line, field=field, hint="say what is asked for")
    return text, f"sha256:{sha256(data).hexdigest()}"


def _beside(path: Path) -> bytes:
    """The bytes of a file; one byte more than allowed if it is too large."""
    try:
        with opened(path) as file:
            return file.read(PROBLEM_BYTES + 1)
    except OSError as error:
        what, hint = f"cannot be read ({error.strerror})", "problem.file names a file beside bounty.toml"
        raise BadInput(what, file=path, hint=hint) from None
