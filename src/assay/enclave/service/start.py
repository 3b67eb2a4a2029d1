"""Starting the service of a competition's folder: everything checked before anything is served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from assay.enclave.dstack import Dstack
from assay.enclave.sealed import Opened, parse
from assay.enclave.service.desk import Times
from assay.enclave.service.run import harden, serve
from assay.enclave.service.service import Service, Setting
from assay.enclave.service.work import NoProblem
from assay.errors import BadInput
from assay.folder import csvs
from assay.folder.text import load
from assay.judge.rubric import asking
from assay.judge.rubric.judgement import Judgement, Measured
from assay.judge.rubric.limits import LIMITS, Limits
from assay.judge.rubric.model import Models
from assay.ledger.keys import sealing
from assay.scheme.bounty import PROBLEM_BYTES, Bounty, read_bounty

__all__ = ["Problem", "Start", "serving"]


class Problem:
    """The text that solutions are judged by. A sealed one is opened when the keys are there, and its file."""

    def __init__(self, bounty: Bounty) -> None:
        self._bounty, self._text = bounty, bounty.problem

    def text(self, service: Service) -> str | None:
        """The text; None if it cannot be had yet."""
        if self._text is None and service.work is not None and self._bounty.sealed is not None:
            self._text = self._opened(service, self._bounty.sealed)
        return self._text

    def _opened(self, service: Service, file: Path) -> str | None:
        try:
            found = parse(load(file, 8 * PROBLEM_BYTES, hint=""))
            data = found.open(service.ready().desk.identity.seal)
            right = found.kind == "problem" and f"sha256:{sha256(data).hexdigest()}" == self._bounty.problem_digest
            return data.decode() if right else None
        except (BadInput, UnicodeDecodeError):
            return None


@dataclass(frozen=True)
class Start:
    """What is served, where, and who answers. dstack: its endpoint; None: its usual place. tell: one line for the operator."""

    competition: Path
    listen: str
    models: Models
    tell: Callable[[str], None]
    dstack: str | None = None
    setting: Setting = field(default_factory=Setting)
    limits: Limits = LIMITS


def serving(start: Start) -> None:
    """Serve until the process is told to end; raises BadInput before anything is served, and where the state is not its own."""
    bounty = read_bounty(start.competition)
    _check(bounty)
    start.models.settings(bounty, start.limits)
    problem = Problem(bounty)
    lost: dict[str, Measured] = {}

    def heard(event: asking.Event) -> None:
        """Keeps what it took to ask without an answer: it is added to the judgement that comes in the end."""
        if event.measured is not None:
            before = lost.get(event.submission)
            lost[event.submission] = event.measured if before is None else before + event.measured

    async def judge(service: Service, opened: Opened) -> Judgement:
        text = problem.text(service)
        if text is None:
            raise NoProblem("the sealed problem is not there", hint="`assay seal DIR --problem FILE` makes its file")
        found = await asking.judge(bounty, text, opened.solution, start.models, on_event=heard, limits=start.limits)
        before = lost.pop(found.submission, None)
        return found if before is None or found.measured is None else replace(found, measured=before + found.measured)

    def check(service: Service, opened: Opened) -> None:
        text = problem.text(service)
        if text is not None:
            asking.check(bounty, text, opened.solution)

    def make() -> Service:
        return Service(bounty, lambda: Dstack(start.dstack), judge, check, start.tell, start.setting)

    harden(start.tell)
    serve(make, start.competition, start.listen, tell=start.tell)


def _check(bounty: Bounty) -> None:
    """Refuse what would only be found when it matters: registry, keys, deadlines, extras."""
    Times.of(bounty)
    csvs.read(bounty.file.with_name(csvs.PARTICIPANTS.name), csvs.PARTICIPANTS)
    if bounty.terms.sponsor is not None:
        try:
            sealing(bounty.terms.sponsor)
        except BadInput as error:
            raise error.at(file=bounty.file, field="bounty.sponsor") from None
    for name in ("dstack_sdk", "fastapi", "openai", "uvicorn"):
        if find_spec(name) is None:
            hint = "install them: pip install 'assay[tee,llm]'"
            raise BadInput(f"the service needs libraries that are not installed ({name})", hint=hint)
