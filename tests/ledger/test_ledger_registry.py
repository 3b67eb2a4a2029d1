"""A registry that was pulled from a chain: of which block it is, the inputs say, and the receipt says the same."""

import json
from pathlib import Path
from typing import Any

import pytest

import assay
import ledger_kit
import small_folder
from assay.errors import BadInput, Refused
from assay.folder import csvs, registry
from assay.folder.files import Place
from assay.ledger import audit, bundle, check, eligible, settling, statements
from assay.ledger.access import receipt_predicate
from assay.ledger.store import Damaged
from assay.records import Pulled
from assay.scheme.load import read as read_scheme
from check_kit import ONE, file_of, parsed
from oracle import envelopes

Json = dict[str, Any]
BLOCK: Json = {
    "chain": "0x" + "ab" * 32,
    "netuid": 5,
    "mechanism": 0,
    "block": 4_321_000,
    "hash": "0x" + "12" * 32,
    "spec_version": 470,
}


def rows_of(place: Path) -> str:
    """The digest over what the folder's registry says now."""
    people = csvs.read(place / "participants.csv", csvs.PARTICIPANTS)
    judges = csvs.read(place / "validators.csv", csvs.VALIDATORS)
    participants = registry.participants(people, Place(), read_scheme(place / "scheme.toml"))
    return registry.pulled_rows(participants, registry.validators(judges, Place(), len(participants)))


def pull(place: Path, **changes: Any) -> Json:
    """registry.json beside what there is, as if that had been pulled."""
    pulled = Pulled(**{**BLOCK, "rows": rows_of(place), **changes})
    (place / "registry.json").write_bytes(registry.dump_pulled(pulled, ()))
    return pulled.model_dump()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(folder, ledger_kit.records())
    return folder


def settle(place: Path, epoch: int = 3) -> settling.EpochResult:
    with ledger_kit.opened(place) as ledger:
        return settling.settle(ledger, ledger_kit.SIGNER, epoch, without_scores=True)


def exported(place: Path, epoch: int = 3) -> Path:
    with ledger_kit.opened(place) as ledger:
        bundle.export(ledger, epoch, place / f"epoch-{epoch}")
    return place / f"epoch-{epoch}"


@pytest.mark.no_cover
def test_the_receipt_says_of_which_block_the_registry_is(place: Path) -> None:
    block = pull(place)
    settled = settle(place)
    assert settled.receipt is not None
    assert receipt_predicate(settled.receipt)["registry"] == block
    whole = exported(place)
    assert json.loads((whole / "inputs.json").read_bytes())["registry"] == block
    report = assay.verify(whole, key=str(ledger_kit.KEY))
    assert report.recomputed
    assert report.receipt["registry"] == block
    what = next(result.what for result in report.checked if result.stage == "inputs")
    assert what.endswith(f"; registry of subnet 5 at block 4321000, {BLOCK['hash']}")
    with ledger_kit.opened(place) as ledger:
        assert audit.audit_receipts(ledger) == 1
        assert len(list(settling.replay(ledger))) == 1
    assert not settle(place).new


@pytest.mark.no_cover
def test_without_it_nothing_is_said_and_no_digest_changes(place: Path, tmp_path: Path) -> None:
    settled = settle(place)
    assert settled.receipt is not None
    assert "registry" not in receipt_predicate(settled.receipt)
    whole = exported(place)
    assert "registry" not in json.loads((whole / "inputs.json").read_bytes())
    assert "registry" not in next(result.what for result in assay.verify(whole).checked if result.stage == "inputs")
    other = ledger_kit.ledger_folder(tmp_path / "other")
    ledger_kit.add(other, ledger_kit.records())
    pull(other)
    assert settle(other).settlement.digest == settled.settlement.digest  # nothing is computed from it


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("file", "before", "now"),
    [
        ("participants.csv", "m1,1,", "m1,7,"),
        ("participants.csv", "m1,1,", "m1,,"),
        ("participants.csv", "m1,1,", "other,1,"),
        ("validators.csv", ",100,", ",101,"),
        ("validators.csv", ledger_kit.V3, "ab" * 32),
    ],
)
def test_other_uids_or_stakes_than_were_pulled_are_not_settled(place: Path, file: str, before: str, now: str) -> None:
    pull(place)
    text = (place / file).read_text()
    assert before in text
    (place / file).write_text(text.replace(before, now))
    with pytest.raises(BadInput, match=r"registry\.json: the uids and stakes are not those that were pulled at block 4321000"):
        settle(place)
    (place / "registry.json").unlink()
    assert settle(place).new


@pytest.mark.no_cover
def test_names_submissions_and_who_waits_are_free(place: Path) -> None:
    pull(place)
    text = (place / "participants.csv").read_text().replace("m1,1,,s1", "m1,1,Ann,s9") + "waiting,,,,,,\n"
    (place / "participants.csv").write_text(text)
    assert settle(place).new


@pytest.mark.no_cover
def test_a_receipt_of_another_block_than_its_inputs_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = pull(place)
    honest = statements.receipt_statement
    forged = lambda *given, **more: honest(*given, **more | {"registry": block | {"block": 1}})  # noqa: E731
    monkeypatch.setattr(statements, "receipt_statement", forged)
    settle(place)
    monkeypatch.setattr(statements, "receipt_statement", honest)
    with pytest.raises(Refused, match=r"inputs: .*the registry is not the receipt's") as caught:
        assay.verify(exported(place))
    assert (caught.value.expected, caught.value.found) == (block | {"block": 1}, block)
    with pytest.raises(Damaged, match="the registry of epoch 3"), ledger_kit.opened(place) as ledger:
        audit.audit_receipts(ledger)


@pytest.mark.no_cover
def test_a_registry_that_its_rows_are_not_of_is_refused_in_a_bundle_too(place: Path) -> None:
    pull(place)
    settle(place)
    document = json.loads((exported(place) / "inputs.json").read_bytes())
    document["registry"]["rows"] = "sha256:" + "0" * 64
    with pytest.raises(BadInput, match=r"registry: the uids and stakes are not those"):
        eligible.settled_from(document, epoch=3, evidence=lambda known: (), previous=None)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"chain": "finney"}, "chain does not fit"),
        ({"hash": "0x" + "AB" * 32}, "hash does not fit"),
        ({"netuid": "5"}, "netuid does not fit"),
        ({"rows": "sha256:"}, "rows does not fit"),
        ({"more": 1}, "registry does not fit"),
        (None, "registry does not fit"),
    ],
)
def test_the_checks_that_stand_alone_know_its_shape(change: Any, why: str) -> None:
    whole = BLOCK | {"rows": "sha256:" + "0" * 64}
    right, _ = envelopes.receipt("term", 2, "sha256:" + "cd" * 32, ONE, registry=whole)
    assert parsed(file_of(2, 5, right)).predicate["registry"] == whole
    wrong, _ = envelopes.receipt("term", 2, "sha256:" + "cd" * 32, ONE, registry=None if change is None else whole | change)
    with pytest.raises(check.CheckError, match=why):
        parsed(file_of(2, 5, wrong))


@pytest.mark.no_cover
def test_the_command_that_stands_alone_tells_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pull(place)
    settle(place)
    receipt = exported(place) / "receipts/epoch-3.receipt"
    assert check.main([str(receipt), "--key", str(ledger_kit.KEY)]) == 0
    line = f"it says: registry of subnet 5 at block 4321000, {BLOCK['hash']}, of {BLOCK['chain']}\n"
    assert line in capsys.readouterr().out


def test_a_folder_without_a_ledger_is_held_to_it_too(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path / "plain")
    pull(place)
    before = assay.open(place).settle(3).digest
    (place / "validators.csv").write_text("key,stake\nv1,100\nv2,200\nv3,301\n")
    with pytest.raises(BadInput, match="are not those that were pulled"):
        assay.open(place).settle(3)
    (place / "registry.json").unlink()
    assert assay.open(place).settle(3).digest != before
