"""Send signed batches to a service: many in one request, each with its own outcome, however often they are sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.errors import BadInput, Unreachable
from assay.ledger import batch
from assay.serve.client import PAUSES, Client, patiently
from assay.serve.evidence import BATCHES, BATCHES_AT_ONCE, BatchOutcome, EvidenceOutcome
from assay.settle.story.telling import plural

__all__ = ["send_batches"]


def send_batches(
    client: Client, files: Sequence[Path], *, pauses: Sequence[float] = PAUSES
) -> Iterator[tuple[Path, BatchOutcome]]:
    """Send the batches in files, and say what became of each, in their order; a file that is no batch is refused here.

    A batch that is `accepted` or `known` is on the service's disk. pauses: before each further attempt while the service does not
    answer. Raises Unreachable, and BadInput if the service refuses the request itself.
    """
    for group in _groups(files):
        yield from _sent(client, group, pauses)


def _groups(files: Sequence[Path]) -> Iterator[list[tuple[Path, bytes | BatchOutcome]]]:
    """The files in groups, each of which fits into one request: with its bytes, or refused here if it is no batch."""
    group, size = list[tuple[Path, bytes | BatchOutcome]](), 0
    for file in files:
        entry: bytes | BatchOutcome
        try:
            entry = batch.read(file).data
        except BadInput as error:
            hint = "sign it first: assay evidence sign" if file.suffix == ".jsonl" else error.hint
            entry = BatchOutcome(outcome="refused", detail=error.what, hint=hint)
        length = len(entry) + 1 if isinstance(entry, bytes) else 0
        if group and (size + length > batch.BATCH_BYTES or len(group) >= BATCHES_AT_ONCE):
            yield group
            group, size = [], 0
        group.append((file, entry))
        size += length
    yield group


def _sent(
    client: Client, group: Sequence[tuple[Path, bytes | BatchOutcome]], pauses: Sequence[float]
) -> Iterator[tuple[Path, BatchOutcome]]:
    """Send the batches of a group together: each file and what became of it."""
    data = [entry for _, entry in group if isinstance(entry, bytes)]
    answered: list[BatchOutcome] = []
    if data:
        answer = patiently(lambda: client.send("POST", "evidence", b"\n".join(data), BATCHES), pauses)
        try:
            answered = EvidenceOutcome.model_validate(answer).batches
        except ValueError:
            answered = []
        if len(answered) != len(data):
            what = f"the service did not say what became of {plural(len(data), 'batch', 'batches')}"
            hint = "check that the service runs this version, then send again: nothing is stored twice"
            raise Unreachable(what, final=True, hint=hint)
    rows = iter(answered)
    for file, entry in group:
        yield file, next(rows) if isinstance(entry, bytes) else entry
