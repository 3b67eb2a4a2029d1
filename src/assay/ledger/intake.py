"""Taking a signed batch into the store: everything is checked, then all of it is kept in one transaction, or nothing. SPEC 6.

Refused are: a validator who is not in the registry, a signature that is not its own, evidence for another log, of another
competition, kind or task set, batches of version 1, which name no log, records about participants who are not in the registry,
and anything new of an epoch that is settled. When `accept` returns, the batch is durable, and written down as acknowledged
(`assay.ledger.acknowledged`). The same batch or record once more is known, and adds nothing; what only somebody has put into the
database past the intake is not (`assay.ledger.sound`).

`hand_in` keeps what a participant submitted, and in which epoch that was; `replaced` says whom participants.csv is behind with.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInput, brief
from assay.folder import csvs, registry, tasks
from assay.folder.places import Place
from assay.ledger import acknowledged, config
from assay.ledger import batch as batches
from assay.ledger.batch import Batch
from assay.ledger.keys import PublicKey, public
from assay.ledger.sound import Judge
from assay.ledger.store import Accepted, Store, Submission, View
from assay.scheme.load import read as read_scheme
from assay.scheme.times import instant

__all__ = ["Terms", "accept", "check", "hand_in", "keys_of", "replaced", "terms"]


@dataclass(frozen=True)
class Terms:
    """What a ledger takes in: of which competition and kind, on which task set (None: any), by whom, about whom.

    answers: the file in which it is written down what was acknowledged; None: it is not.
    """

    competition: str
    kind: str
    validators: Mapping[str, PublicKey | BadInput]
    participants: Set[str]
    task_set: str | None = None
    answers: Path | None = None


def terms(folder: Path) -> Terms:
    """The terms that a competition's folder sets; raises BadInput for what is wrong in it, with file and line."""
    scheme = read_scheme(folder / "scheme.toml")
    people = folder / "participants.csv"
    participants = registry.participants(csvs.read(people, csvs.PARTICIPANTS), Place(people), scheme)
    score = scheme.score
    return Terms(
        competition=scheme.name,
        kind=score.kind,
        validators=keys_of(folder, len(participants)),
        participants=frozenset(one.key for one in participants),
        task_set=tasks.read(folder / "tasks.txt", score.trials).digest if score.kind == "tests" else None,
        answers=folder / acknowledged.FILE if config.exists(folder) else None,
    )


def keys_of(folder: Path, columns: int = 1, *, may_be_empty: bool = False) -> dict[str, PublicKey | BadInput]:
    """Validator as the registry spells it → its public key, or why it is none; raises BadInput for a key that is there twice.

    It may be empty where a competition is still being made: an enclave has its key from the day on which it runs.
    """
    path = folder / "validators.csv"
    rows = csvs.read(path, csvs.VALIDATORS)
    if may_be_empty and not rows:
        return {}
    found: dict[str, PublicKey | BadInput] = {}
    spelt: dict[PublicKey, str] = {}
    for one, row in zip(registry.validators(rows, Place(path), columns), rows, strict=True):
        try:
            key = found[one.key] = public(one.key)
        except BadInput as error:
            found[one.key] = error
            continue
        if spelt.setdefault(key, one.key) != one.key:
            raise row.place.refuse(f"is the same key as {spelt[key]!r}", field="key", hint="keep one of the two rows")
    return found


def accept(store: Store, source: Batch | Path | bytes, known: Terms) -> Accepted:
    """Check a batch, keep it, write it down; when this returns, it is durable. Raises BadInput, with the file, and StoreError."""
    file = source if isinstance(source, Path) else None
    batch = source if isinstance(source, Batch) else batches.read(source)
    try:
        if store.meta.competition != known.competition:
            what = f"the ledger is of {store.meta.competition!r}, the scheme is called {known.competition!r}"
            raise BadInput(what, field="scheme.name", hint="a ledger keeps to one competition: call the scheme as before")
        check(batch, known)
        with store.writing() as tx:
            judge = Judge(tx, store.meta.key)
            new = not any(judge.counts(one.id) for one in tx.named(batch.digest))
            if new:
                _check_new(batch, store.meta.origin, tx.settled_epoch())
            found = tx.add_batch(batch, counts=judge.counts)
    except BadInput as error:
        raise error.at(file=file) from None
    if known.answers is not None:
        acknowledged.add(known.answers, batch, new=new)
    return found


def _check_new(batch: Batch, origin: str, last: int | None) -> None:
    """Refuse a batch that the ledger does not have yet and that is for another log, or of a settled epoch; raises BadInput."""
    said = batch.statement
    if said.version == 1:
        what = "the batch is of version 1, which names no log: it would count in every ledger of a competition of this name"
        raise BadInput(what, field="predicateType", hint="sign the evidence again: assay evidence sign")
    if said.origin != origin:
        whose = "no log" if said.origin is None else f"the log {brief(said.origin)}"
        raise BadInput(
            f"the batch is for {whose}, the ledger's is {origin!r}",
            field="origin",
            hint="give it to the ledger that it was signed for, or sign the evidence for this one",
        )
    if last is not None and said.epoch <= last:
        again = f"assay evidence sign DIR --key KEY --epoch {last + 1} --from {said.epoch}"
        hint = f"its validator can sign it for the epoch that is open: {again}"
        raise BadInput(f"epoch {said.epoch} is settled, the last is {last}", field="epoch", hint=hint)


def check(batch: Batch, known: Terms) -> None:
    """Refuse a batch that these terms do not allow, or that its validator did not sign; raises BadInput."""
    said = batch.statement
    for field, ours in (("competition", known.competition), ("kind", known.kind)):
        theirs = getattr(said, field)
        if theirs != ours:
            raise BadInput(
                f"is {brief(theirs)}, the ledger's is {ours!r}", field=field, hint="give it to the ledger that it is for"
            )
    if None not in (said.task_set, known.task_set) and said.task_set != known.task_set:
        raise BadInput(
            f"was judged on the task set {said.task_set}, the competition's is {known.task_set}",
            field="task_set",
            hint="judge on the tasks of tasks.txt, or correct that",
        )
    key = known.validators.get(said.validator)
    if key is None:
        raise BadInput(
            f"there is no validator {brief(said.validator)}",
            field="validator",
            hint="it must be in validators.csv, spelt the same",
        )
    if isinstance(key, BadInput):
        raise BadInput(key.what, field="validator", hint=key.hint)
    batches.check_signature(batch, key)
    unknown = {one.participant for one in batch.records} - known.participants
    if unknown:
        raise BadInput(
            f"there is no participant {brief(min(unknown))}", field="participant", hint="it must be in participants.csv"
        )


def hand_in(store: Store, participant: str, submission: str, *, epoch: int | None = None, submitted_at: str = "") -> Submission:
    """Keep what a participant submitted, accepted in an epoch that is open, and return it as it is kept. SPEC 2, 3.0.

    epoch: None is the one that is judged now, see `_judged_now`. What is its latest submission already stays as it was. Raises
    BadInput for an epoch that is settled, and StoreError.
    """
    with store.writing() as tx:
        known, last = tx.submissions().get(participant), tx.settled_epoch()
        if known is not None and known.submission == submission:
            return known
        if epoch is not None and last is not None and epoch <= last:
            what = f"epoch {epoch} is settled, the last is {last}"
            raise BadInput(what, field="epoch", hint="name an epoch that is open, or none")
        chosen = _judged_now(tx, Judge(tx, store.meta.key), last) if epoch is None else epoch
        made = Submission(participant, submission, chosen, submitted_at)
        tx.add_submission(made)
    return made


def _judged_now(view: View, judge: Judge, last: int | None) -> int:
    """The last of the epochs that follow one another, from the one after the last settled on, and have evidence that counts.

    Before the first settlement they begin with the lowest that has some, or with 1. One batch that is labelled with an epoch at
    which nobody is must not put off what everybody hands in until then.
    """

    def counts(epoch: int) -> bool:
        return any(judge.counts(number) for number in view.numbers_of(epoch))

    epoch = next(filter(counts, view.epochs()), 1) if last is None else last + 1
    while counts(epoch + 1):
        epoch += 1
    return epoch


def replaced(view: View, folder: Path) -> list[Submission]:
    """What participants handed in, by the ledger, after what a folder's participants.csv has of them; raises BadInput.

    A row without a submission is not behind: there the ledger's counts. Nor is one of a later time, or of none that is said.
    """
    found, latest = [], view.submissions()
    for row in csvs.read(folder / "participants.csv", csvs.PARTICIPANTS):
        there, ours = latest.get(str(row.fields["key"])), str(row.fields.get("submission", ""))
        if there is None or not ours or there.submission == ours or not there.submitted_at:
            continue
        since = str(row.fields.get("submitted_at", ""))
        if not since or instant(since) < instant(there.submitted_at):
            found.append(there)
    return found
