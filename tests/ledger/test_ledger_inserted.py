"""Who may insert into a shared ledger's evidence, and no more, neither has anything counted nor stops the season."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
from assay.exact import canonical
from assay.ledger import bundle, intake, keys, settling, signing
from assay.ledger.batch import Batch
from assay.ledger.verify import verify
from cli_kit import output, run
from inserting import Inserter, batch_row, record_rows, signed_anew
from ledger_kit import KEY, SIGNER, V1, V2, V3, VALIDATORS

MALLORY = keys.read(b"99" * 32)
Rows = tuple[list[Any], list[list[Any]]]
Last = tuple[int, int]


def of(validator: str = V1, place: Path | None = None, **changes: Any) -> Batch:
    """What a validator signs."""
    assert place is not None
    (batch,) = ledger_kit.batches(place, ledger_kit.records(validators=[validator], **changes))
    return batch


def whole(batch: Batch, last: Last, **changes: Any) -> Rows:
    return batch_row(batch, last, **changes), record_rows(batch, last)


def garbage(batch: Batch, last: Last) -> Rows:
    """The true envelope, the true digests, and bodies that say something else."""
    return batch_row(batch, last), record_rows(batch, last, body=b"{}")


def in_anothers_name(place: Path, last: Last) -> Rows:
    """A validator signs, with its own key, records that name another one."""
    return whole(signed_anew(of(V1, place, outcome="pass", trial=1), validator=V2), last)


def anothers_records(place: Path, last: Last) -> Rows:
    """A validator signs what is there already of another one."""
    own = signed_anew(of(V1, place, epoch=1), validator=V2)
    return batch_row(own, last, members="[[1,4]]", first_seq=None, last_seq=None), []


def not_canonical(place: Path, last: Last) -> Rows:
    batch = of(V2, place)
    bodies = sorted((b" " + body for body in batch.bodies), key=lambda body: sha256(body).digest())
    digests = tuple(sha256(body).digest() for body in bodies)
    from assay.ledger.batch import root_of

    changed = replace(batch, bodies=tuple(bodies), digests=digests)
    return whole(signed_anew(changed, root=root_of(digests)), last)


def other_form(place: Path, last: Last) -> Rows:
    row, records = whole(of(V1, place), last)
    return [*row[:6], row[6].replace(b'"payload"', b'"other"'), *row[7:]], records


FORGED: dict[str, tuple[Callable[[Path, Last], Rows], str]] = {
    "its own batch under another signature": (
        lambda place, last: whole(signed_anew(of(V1, place), MALLORY), last),
        "it is not signed by the key",
    ),
    "its own batch, with other records": (lambda place, last: garbage(of(V1, place), last), "its digest differs"),
    "its own batch, with no records": (
        lambda place, last: (batch_row(of(V1, place), last, members="[]", first_seq=None, last_seq=None), []),
        "4 records are expected, 0 are there",
    ),
    "its own batch, with records of before": (
        lambda place, last: (batch_row(of(V1, place), last, members="[[1,4]]", first_seq=None, last_seq=None), []),
        "is stored under another epoch",
    ),
    "records in another's name": (in_anothers_name, "is not of"),
    "records that another signed": (anothers_records, "is not of"),
    "another competition": (
        lambda place, last: whole(signed_anew(of(V2, place), competition="another"), last),
        "it is of the competition 'another'",
    ),
    "another epoch than its statement": (lambda place, last: whole(of(V1, place), last, root="x"), "states changed"),
    "another root": (lambda place, last: whole(signed_anew(of(V2, place), root=f"sha256:{'0' * 64}"), last), "root differs"),
    "an envelope that is none": (other_form, "the envelope of batch 4 cannot be read"),
    "no JSON in the place of ranges": (lambda place, last: whole(of(V1, place), last, members="x"), "0 are there"),
    "brackets without end": (lambda place, last: whole(of(V1, place), last, members="[" * 200_000), "0 are there"),
    "ranges of something": (lambda place, last: whole(of(V1, place), last, members='[[1e400,"4"]]'), "0 are there"),
    "ranges that turn back": (lambda place, last: whole(of(V1, place), last, members="[[4,1]]"), "0 are there"),
    "ranges without end": (
        lambda place, last: whole(of(V1, place), last, members="[[1,9007199254740991]]"),
        "4 records are expected, 9007199254740991 are there",
    ),
    "a slot of another record": (
        lambda place, last: (batch_row(of(V2, place), last), record_rows(of(V2, place), last, slot=bytes(16))),
        "slot",
    ),
    "records that are not canonical": (not_canonical, "not in its canonical form"),
}


def epochs(place: Path) -> Iterator[settling.EpochResult]:
    """Two epochs are settled, each after its true evidence; the ledger may hold more already."""
    ledger_kit.add(place, ledger_kit.records(outcome="fail"))
    ledger_kit.add(place, ledger_kit.records())
    for epoch in (3, 4):
        with ledger_kit.opened(place) as ledger:
            yield settling.settle(ledger, SIGNER, epoch, skip=True)
        ledger_kit.add(place, ledger_kit.records(epoch=4))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The digests of the settlements of both epochs, where nothing was forged."""
    place = ledger_kit.ledger_folder(tmp_path_factory.mktemp("clean") / "small")
    ledger_kit.add(place, ledger_kit.records(epoch=1))
    return [epoch.settlement.digest for epoch in epochs(place)]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("case", FORGED)
def test_a_row_that_is_forged_displaces_nothing_and_stops_nothing(
    case: str, clean: list[str], database: str, tmp_path: Path
) -> None:
    """It is there before the true evidence of the epoch, after that of the first."""
    make, why = FORGED[case]
    place = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    inserter = Inserter(database, place)
    ledger_kit.add(place, ledger_kit.records(epoch=1))
    row, records = make(place, inserter.last())
    inserter.put(row, records)
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        assert view.page(1, 0, 100) == list(view.records(1, 1))
    for epoch, settled, digest in zip((3, 4), epochs(place), clean, strict=True):
        with ledger_kit.opened(place) as ledger:
            assert settled.settlement.digest == digest
            assert [aside.new for aside in settled.aside] == [epoch == 3]
            assert why in settled.aside[0].why
            bundle.export(ledger, epoch, tmp_path / f"bundle-{epoch}")
        assert verify(tmp_path / f"bundle-{epoch}", key=str(KEY)).recomputed
        assert epoch == 4 or "comes out as settled" in output("ledger", "replay", place)
    assert "1 batch does not count; everything else is intact." in run("ledger", "check", place, columns=10_000).stdout


@pytest.mark.no_cover
def test_what_is_forged_makes_no_late_evidence_one_that_was_handed_in(database: str, tmp_path: Path) -> None:
    """A validator's evidence came too late for epoch 3; somebody puts the same records there in its name, which do not count."""
    place = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    ledger_kit.add(place, ledger_kit.records(validators=[V1, V2]))
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER, 3, without_scores=True)
    late = ledger_kit.records(validators=[V3])
    (place / "evidence").mkdir()
    (place / "evidence/late.jsonl").write_bytes(b"".join(canonical(record) + b"\n" for record in late))
    inserter = Inserter(database, place)
    forged = signed_anew(of(V3, place, epoch=4), MALLORY)
    inserter.put(batch_row(forged, inserter.last()), record_rows(forged, inserter.last()))
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        batches = signing.sign_folder(place, VALIDATORS[V3], late=signing.late_in(view, str(KEY)))
    assert [(batch.statement.epoch, batch.statement.count) for batch in batches] == [(4, 2), (4, 2)]
    with ledger_kit.opened(place) as ledger:
        assert [intake.accept(ledger.store, batch, intake.intake_rules(place)).new for batch in batches] == [2, 2]
        assert settling.settle(ledger, SIGNER, 4).settlement.ranking == ["m1", "m2"]
