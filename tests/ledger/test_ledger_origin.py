"""A batch counts in the ledger of the log that it names, and in no other one of the same competition name."""

from pathlib import Path

import pytest

import ledger_kit
import small_folder
import store_kit as kit
from assay.errors import BadInput, Refused
from assay.exact import canonical
from assay.ledger import access, batch, bundle, intake, settling, store
from assay.ledger.batch import Batch, BatchStatement
from assay.ledger.keys import sign_envelope
from assay.ledger.store import Accepted, Store
from assay.ledger.verify import verify
from cli_kit import output, run
from ledger_kit import KEY, ORIGIN, SIGNER, V1, VALIDATORS
from test_ledger_versions import stored


def first_version(current: Batch) -> Batch:
    """The same records under a statement of version 1, which names no log."""
    statement = current.statement
    fields = (
        statement.competition,
        statement.epoch,
        statement.kind,
        statement.validator,
        statement.task_set,
        statement.count,
        statement.root,
        statement.submissions,
    )
    payload = canonical(BatchStatement(None, *fields, version=1).document())
    envelope = canonical(sign_envelope(payload, VALIDATORS[statement.validator]))
    return batch.read(b"\n".join((envelope, *current.bodies, b"")))


@pytest.fixture
def test_net(tmp_path: Path) -> Path:
    """A competition of the same name, with the same validators, and another log."""
    place = tmp_path / "test-net"
    small_folder.make(place, validators_csv=ledger_kit.NAMES, evidence=None)
    access.make_ledger(place, "example.org/test-net", SIGNER)
    return place


def test_a_batch_of_the_test_net_counts_on_no_main_net(test_net: Path, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "main-net")
    files = []
    for number, signed in enumerate(ledger_kit.batches(test_net, ledger_kit.records())):
        files.append(tmp_path / f"{number}.batch")
        files[-1].write_bytes(signed.data)
    assert "12 records added by 3 batches" in output("evidence", "add", test_net, *files)
    printed = run("evidence", "add", place, *files, columns=10_000, code=2).stderr
    assert f"0.batch: origin: the batch is for the log 'example.org/test-net', the ledger's is '{ORIGIN}'" in printed
    assert "give it to the ledger that it was signed for" in printed
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        assert list(view.batches()) == []


def test_a_batch_for_no_log_is_in_no_ledger(database: str) -> None:
    """As an enclave signs for a bounty that names no log."""
    with store.create(database, kit.META) as ledger:
        with pytest.raises(BadInput, match=f"the batch is for no log, the ledger's is '{kit.META.origin}'") as refusal:
            intake.accept(ledger, kit.signed(kit.trial_record(), origin=None), kit.TERMS)
        assert refusal.value.field == "origin"


def test_a_batch_of_version_1_is_refused(database: str) -> None:
    with store.create(database, kit.META) as ledger:
        with pytest.raises(BadInput, match="of version 1, which names no log") as refusal:
            intake.accept(ledger, first_version(kit.signed(kit.trial_record())), kit.TERMS)
        assert refusal.value.hint == "sign the evidence again: assay evidence sign"


def test_one_that_the_ledger_has_is_kept_known_and_shown(database: str, request: pytest.FixtureRequest) -> None:
    kit.sql(database, stored(database, 1), request.getfixturevalue("postgresql") if "://" in database else None)
    store.migrate(database)
    with store.open(database) as ledger:
        kept = _kept(ledger)
        assert [batch.stated(envelope)[1].version for envelope in kept] == [1, 1]
        again = first_version(kit.signed(*kit.trials(range(1, 4))))
        assert again.envelope == kept[0]

        assert intake.accept(ledger, again, kit.TERMS) == Accepted(new=0, known=3)


def _kept(ledger: Store) -> list[bytes]:
    with ledger.reading() as view:
        return [batch.envelope for batch in view.batches()]


def test_verify_says_that_a_batch_is_for_another_log_or_names_none(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "ours")
    others = [first_version(signed) for signed in ledger_kit.batches(place, ledger_kit.records(validators=[V1]))]
    ledger_kit.add(place, ledger_kit.records())
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
        bundle.export(ledger, 3, tmp_path / "bundle")
    file = tmp_path / "bundle" / bundle.BATCHES
    whole = file.read_bytes()
    mine = next(signed for signed in ledger_kit.batches(place, ledger_kit.records(validators=[V1])))
    file.write_bytes(whole.replace(mine.envelope, others[0].envelope))
    checks = {result.stage: result.what for result in verify(tmp_path / "bundle", key=str(KEY)).checked}
    assert checks["signatures"] == "3 batches by 3 validators; 1 batch of version 1, which names no log"
    elsewhere = batch.make(
        mine.records, origin="example.org/x", competition="small", task_set=None, signer=VALIDATORS[V1], validator=V1
    )
    file.write_bytes(whole.replace(mine.envelope, elsewhere.envelope))
    with pytest.raises(Refused, match=r"signatures: .*the batch is for another log") as refusal:
        verify(tmp_path / "bundle", key=str(KEY))
    assert (refusal.value.expected, refusal.value.found) == (ORIGIN, "example.org/x")
