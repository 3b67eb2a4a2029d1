"""Texts that a kind tells beside the numbers of a settlement: notes of a board, facts of a participant, out of the folder.

Nothing here reaches a score. `assay explain`, boards and pages ask the kind, and the kind asks here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.folder.registry import unsolved_tasks
from assay.folder.registry import weaker_tasks as weaker
from assay.records import Rubric
from assay.settle.inputs import Scored
from assay.settle.story.judgements import flips_of
from assay.settle.story.telling import named, plural

if TYPE_CHECKING:
    from assay.settle import Settlement
    from assay.settle.story.judgements import PanelFlips

__all__ = ["about_judgements", "judging", "judging_in_words", "sick_tasks", "sick_tasks_in_words", "weaker_tasks"]

TASKS = 8
"""Tasks of a word that are named; JSON has all."""


def weaker_tasks(settlement: Settlement, folder: Path) -> Iterator[str]:
    """A note if scores rest on tests that an agent could have tampered with. SPEC 2.1."""
    if not settlement.ranking:
        return
    modes_of = weaker(folder / "tasks.txt")
    if modes_of:
        modes = [(mode, [task for task, its in modes_of.items() if its == mode]) for mode in sorted({*modes_of.values()})]
        which = "; ".join(f"{mode}: {named(tasks, 4)}" for mode, tasks in modes)
        share = f"{len(modes_of)} of {plural(len(settlement.inputs.tasks), 'task')} {'is' if len(modes_of) == 1 else 'are'}"
        yield f"Weaker scores: {share} verified in the agent's own files ({which})."
    if without := unsolved_tasks(folder):
        share = f"{len(without)} of {plural(len(settlement.inputs.tasks), 'task')} {'has' if len(without) == 1 else 'have'}"
        yield f"Not shown to be solvable: {share} no reference solution ({named(without, 4)})."


def about_judgements(settlement: Settlement, folder: Path) -> Iterator[str]:
    """Notes if scores come from the fallback model's answers, and why; and how far the answers of panels differ. SPEC 2.3."""
    inputs = settlement.inputs
    if isinstance(inputs.evidence, Scored):
        return
    from assay.judge.rubric.stored import by_fallback

    judged: dict[tuple[str, str], list[str]] = {}
    for judgement in by_fallback(folder, inputs.participants, inputs.evidence):
        judged.setdefault((judgement.model, judgement.why), []).append(judgement.participant)
    for (model, why), participants in sorted(judged.items()):
        yield f"The fallback model {model} judged {named(sorted({*participants}))}, because {why}."
    current = {participant.submission for participant in inputs.participants if participant.submission}
    records = (record for record in inputs.evidence if isinstance(record, Rubric) and record.submission in current)
    if (flips := flips_of(records, inputs.scheme.score)) is not None:
        yield " ".join(flips.sentences())


def judging(folder: Path, settlement: Settlement, key: str) -> dict[str, Any]:
    """For a rubric: which judgements the fallback model made, and what attests the place where the judge ran."""
    if isinstance(settlement.inputs.evidence, Scored):
        return {}
    from assay.judge.rubric.stored import by_fallback

    participants = [participant for participant in settlement.inputs.participants if participant.key == key]
    fallback = [
        {"validator": judgement.validator, "model": judgement.model, "why": judgement.why}
        for judgement in by_fallback(folder, participants, settlement.inputs.evidence)
    ]
    records = _counted(settlement, settlement.inputs.evidence, key)
    flips = _flips(settlement, settlement.inputs.evidence, key)
    panels = {} if flips is None else {"panels": flips.document() | {"sentences": flips.sentences()}}
    return {"fallback": fallback, "attestation": _attestation(folder, records)} | panels


def _flips(settlement: Settlement, evidence: Iterable[object], key: str) -> PanelFlips | None:
    """The flip rates of a participant's panels whose judgement does not count; the story has the others."""
    (row,) = (row for row in settlement.document["agreed"] if row["participant"] == key)
    whose = {vote["validator"] for vote in row["not_counted"]}
    first: dict[str, Rubric] = {}
    for record in evidence:
        if not isinstance(record, Rubric) or record.validator not in whose:
            continue
        if record.submission == row["submission"] and (record.submission or record.participant == key):
            first.setdefault(record.validator, record)
    return flips_of(first.values(), settlement.inputs.scheme.score)


def _counted(settlement: Settlement, evidence: Iterable[object], key: str) -> list[Rubric]:
    """The records that a participant's agreed score rests on: of each validator that counts, the first that is not too old."""
    (row,) = (row for row in settlement.document["agreed"] if row["participant"] == key)
    validators = {vote["validator"] for vote in row["validators"] if not vote["excluded"]}
    age = settlement.inputs.scheme.consensus.max_age_epochs
    counted: dict[str, Rubric] = {}
    for record in evidence:
        if not isinstance(record, Rubric) or record.validator not in validators:
            continue
        old = age is not None and record.epoch < settlement.inputs.epoch - age
        if not old and record.submission == row["submission"] and (record.submission or record.participant == key):
            counted.setdefault(record.validator, record)
    return list(counted.values())


def _attestation(folder: Path, records: list[Rubric]) -> dict[str, Any]:
    """The attestation of the machine that judged a participant: the digest of a document with the quote; or why there is none."""
    from assay.judge.rubric.stored import JUDGEMENTS
    from assay.scheme.bounty import read_bounty

    nothing: dict[str, Any] = {"digest": None, "files": []}
    bounty = read_bounty(folder) if (folder / "bounty.toml").exists() else None
    if bounty is None or bounty.enclave is None:
        return nothing | {"why": "there is no enclave; the chain gets 0 instead of a digest"}
    from assay.enclave.proofs import find_proof
    from assay.errors import BadInput

    try:
        proof = find_proof(bounty, records)
    except BadInput as error:
        return nothing | {"why": str(error)}
    if proof is None:
        return nothing | {"why": "it was not judged"}
    return {"digest": proof.digest, "files": [f"{JUDGEMENTS}/{file.name}" for file in proof.files], "why": None}


def judging_in_words(about: dict[str, Any]) -> Iterator[str]:
    """The facts that `judging` gives, in sentences."""
    for judgement in about.get("fallback", ()):
        validator, model, why = (judgement[name] for name in ("validator", "model", "why"))
        yield f"The fallback model {model} made the judgement by {validator}, because {why}."
    yield from about.get("panels", {}).get("sentences", ())
    if about:
        yield _in_words(about["attestation"])


def _in_words(attestation: dict[str, Any]) -> str:
    if attestation["digest"] is None:
        return f"Nothing attests where its judge ran: {attestation['why']}."
    check = "`assay enclave verify FILE --bounty DIR` checks the quote"
    return f"Where its judge ran is attested by {attestation['digest']}, in {', '.join(attestation['files'])}: {check}."


def sick_tasks(folder: Path, settlement: Settlement, key: str) -> dict[str, Any]:
    """The tasks whose health bears on what a participant got: `task_health`, those with a word of docs/task-health.md.

    Empty where single trials are not known, or are too many to look at each.
    """
    from assay.serve.history import Past
    from assay.serve.season import Season

    ledger = (folder / "ledger.toml").exists()
    season = Season(folder, settlement, Past(folder) if ledger else None)  # a ledger has the records that sums are of
    if not season.is_small or (isinstance(settlement.inputs.evidence, Scored) and not ledger):
        return {}
    rows = []
    for task, health in season.tasks.health.items() if season.tasks.names else ():
        own = [outcome for (name, _), outcomes in season.tasks.seen[key].items() if name == task for outcome in outcomes]
        if health.words and (own or "dead" in health.words):
            rows.append(health.document() | {"own": {"passed": own.count("pass"), "trials": len(own) - own.count("error")}})
    return {"task_health": rows} if rows else {}


def sick_tasks_in_words(about: dict[str, Any]) -> Iterator[str]:
    """The facts that `sick_tasks` gives, a sentence for each word; a task that separates nobody is not named here."""
    wordings = {
        "dead": "Nobody ever passed {}, so nothing separates the participants there (dead).",
        "flaky": "Trials of one participant often end differently in {}: luck has a part in them (flaky).",
        "negative": "Those who pass {} pass less of the other tasks than those who do not (negatively separating).",
    }
    for word, text in wordings.items():
        own = [(row["task"], row["own"]) for row in about.get("task_health", ()) if word in row["words"]]
        if own:
            yield text.format(named([f"{task} ({its['passed']} of {its['trials']} passed here)" for task, its in own], TASKS))
