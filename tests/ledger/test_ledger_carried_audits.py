"""Bundles carry the audits of their epoch; verifying makes them again, and says what a reader's policy does not show."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import audit_kit
import joint_kit
import ledger_kit
from assay.errors import BadInput, Refused
from assay.ledger import audit_log, auditing, beacon, bundle, cosigning
from assay.ledger.cosigning import ED25519, WitnessKey
from assay.ledger.verify import verify
from cli_kit import files_under, output, refused

KEY = str(ledger_kit.KEY)
OTHER = WitnessKey("example.net/o", ED25519, ledger_kit.SIGNER.public.raw)
DRAND = {"round": audit_kit.ROUND, "randomness": audit_kit.RANDOMNESS, "signature": audit_kit.SIGNATURE}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A competition whose epoch 3 was exported, and then audited twice: by a drawn round, and by randomness that was given."""
    place = tmp_path_factory.mktemp("carried") / "small"
    audit_kit.witnessed(place)
    epoch = auditing.audited_epoch(place / "epoch-3", KEY, place / "witnesses.policy")
    drawn = auditing.of_beacon(beacon.parse_round(json.dumps(DRAND).encode(), epoch.round))
    for randomness in (drawn, auditing.given("ab" * 32)):
        predicate = auditing.predicate_of(epoch, randomness, audit_kit.carried_out(epoch, randomness.value))
        audit_log.append(place / "audits", "example.org/small/audits", audit_kit.AUDITOR, auditing.statement_of(predicate))
    return place


@pytest.fixture
def exported(place: Path, tmp_path: Path) -> Path:
    with ledger_kit.opened(place) as ledger:
        return bundle.export(ledger, 3, tmp_path / "epoch-3")


def audit_notes(where: Path, policy: Path | None = None) -> list[tuple[bool, str]]:
    checked = verify(where, key=KEY, policy=policy).checked
    return [(result.done, result.what) for result in checked if result.stage == "audit"]


def test_an_export_has_the_audits_of_its_epoch_and_they_are_made_again(place: Path, exported: Path) -> None:
    names = sorted(path.name for path in (place / "audits").glob("*.audit"))
    assert sorted(path.name for path in (exported / "audits").iterdir()) == names
    notes = audit_notes(exported, place / "witnesses.policy")
    assert sum(done for done, _ in notes) == 2
    assert all("of 120 trials judged again; the outcome is confirmed; draw" in what for done, what in notes if done)
    assert [what for done, what in notes if not done and "witnessed" in what] == []
    assert sum("nothing shows that it was not chosen" in what for _, what in notes) == 1
    assert sum("the key that it names itself" in what for _, what in notes) == 2


def test_without_a_policy_or_with_another_the_time_is_not_shown(place: Path, exported: Path, tmp_path: Path) -> None:
    assert sum("give the policy of its witnesses" in what for _, what in audit_notes(exported)) == 2
    policy = tmp_path / "policy"
    policy.write_text(f"witness w {audit_kit.VKEY}\nwitness o {OTHER}\ngroup both any w o\nquorum both\n")
    [receipt] = (exported / "receipts").iterdir()
    document = json.loads(receipt.read_bytes())
    head, _, note = document["proof"].partition("\n\n")
    line = cosigning.cosign(cosigning.text_of(note.encode()), OTHER.name, ledger_kit.SIGNER, audit_kit.ROUND_TIME)
    for path, text in ((exported / "log" / "checkpoint", note), (receipt, None)):
        merged = cosigning.merged(note.encode(), [line]).decode()
        path.write_text(merged if text else json.dumps(document | {"proof": f"{head}\n\n{merged}"}))
    what = f"it states {audit_kit.ROUND_TIME - 600}, and the policy's witnesses say {audit_kit.ROUND_TIME}"
    assert sum(what in words for _, words in audit_notes(exported, policy)) == 2


def test_a_quorum_in_a_newer_checkpoint_shows_no_time_for_the_audit(place: Path, exported: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    policy.write_text(f"witness o {OTHER}\nquorum o\n")
    text = cosigning.text_of((exported / "log" / "checkpoint").read_bytes())
    line = cosigning.cosign(text, OTHER.name, ledger_kit.SIGNER, audit_kit.ROUND_TIME)
    newer = tmp_path / "checkpoint"
    newer.write_bytes(cosigning.merged((exported / "log" / "checkpoint").read_bytes(), [line]))
    notes = verify(exported, key=KEY, policy=policy, checkpoint=newer).checked
    assert sum("give the policy of its witnesses" in result.what for result in notes) == 2


def test_without_the_library_the_audit_is_not_checked_and_the_bundle_verifies(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beacon._signed.cache_clear()
    monkeypatch.setitem(sys.modules, "py_ecc.bls.g2_primitives", None)
    notes = audit_notes(exported)
    assert sum(done for done, _ in notes) == 1
    assert sum("unsupported: drand's signatures" in what and "assay[audit]" in what for _, what in notes) == 1


def re_signed(path: Path, **changes: Any) -> None:
    """The audit in a file with other fields, signed by another auditor into a log of its own."""
    predicate = audit_log.read_audit(path).predicate | changes
    signed = audit_log.append(path.parents[1] / "other", "example.org/o", audit_kit.AUDITOR, auditing.statement_of(predicate))
    shutil.copy(signed, path)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"verdict": "refused"}, "its field verdict does not follow"),
        ({"receipt": f"sha256:{'0' * 64}"}, "its field receipt does not follow"),
        ({"more": 1}, "its statement is not an audit's"),
        ({"witnessed": 1_692_805_000}, "not the round of drand"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_an_audit_that_does_not_follow_is_red(exported: Path, changes: dict[str, Any], why: str) -> None:
    path = next(
        path
        for path in (exported / "audits").iterdir()
        if audit_log.read_audit(path).predicate["randomness"]["source"] == "drand"
    )
    re_signed(path, **changes)
    with pytest.raises(Refused, match=why) as refused:
        verify(exported, key=KEY)
    assert (refused.value.stage, refused.value.file) == ("audit", path)


def test_audits_that_come_later_are_added_to_what_was_exported(place: Path, tmp_path: Path) -> None:
    with ledger_kit.opened(place) as ledger:
        assert bundle.carry_audits(ledger, tmp_path) == []
        for name in ("epoch-3", "epoch-x"):
            (tmp_path / name).mkdir()
        (place / "audits" / "epoch-x-0.audit").write_text("x")
        new = bundle.carry_audits(ledger, tmp_path)
        (place / "audits" / "epoch-x-0.audit").unlink()
        assert sorted(path.name for path in new) == sorted(path.name for path in (place / "audits").glob("*.audit"))
        assert {path.parent for path in new} == {tmp_path / "epoch-3" / "audits"}
        new[0].unlink()
        assert bundle.carry_audits(ledger, tmp_path) == new[:1]


def test_an_imported_epoch_brings_its_audits(place: Path, exported: Path, tmp_path: Path) -> None:
    names = sorted(path.name for path in (exported / "audits").iterdir())
    copy = ledger_kit.ledger_folder(tmp_path / "copy", scheme_toml=(place / "scheme.toml").read_text())
    printed = output("import", "epoch", copy, exported)
    auditor = audit_log.read_audit(exported / "audits" / names[0]).key
    assert [f"Audit {name}, by {auditor}, added." in " ".join(printed.split()) for name in names] == [True, True]
    with ledger_kit.opened(copy) as ledger:
        again = bundle.export(ledger, 3, tmp_path / "again")
        assert files_under(again) == files_under(exported)
        assert audit_log.kept(copy) == []  # they are not of a log of its own, so its board does not repeat them
    (copy / "audits" / names[0]).unlink()
    printed = output("import", "epoch", copy, exported, "--json")
    assert json.loads(printed) == {"audits": names[:1], "batches": 0, "epoch": 3, "new": False, "records": 0}


def test_an_import_leaves_everything_if_an_audit_is_wrong(place: Path, exported: Path, tmp_path: Path) -> None:
    copy = ledger_kit.ledger_folder(tmp_path / "copy", scheme_toml=(place / "scheme.toml").read_text())
    path = min((exported / "audits").iterdir())
    path.write_bytes(path.read_bytes().replace(b'"signatures"', b'"signature"'))
    assert "is not a DSSE envelope" in refused("import", "epoch", copy, exported, code=1)
    assert not (copy / "audits").exists()
    with ledger_kit.opened(copy) as ledger, ledger.store.reading() as view:
        assert view.settled_epochs() == []


def test_audits_are_not_taken_into_a_file(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "audits").write_text("")
    with pytest.raises(BadInput, match="cannot be made"):
        audit_log.take_in(tmp_path, exported / "audits")
    statement = auditing.statement_of(audit_log.read_audit(min((exported / "audits").iterdir())).predicate | {"more": 1})
    other = audit_log.append(tmp_path / "other", "example.org/o", audit_kit.AUDITOR, statement)
    with pytest.raises(Refused, match="its statement is not an audit's"):
        audit_log.take_in(tmp_path / "new", other.parent)


def test_a_subnets_export_carries_the_audits_of_its_competitions(tmp_path: Path) -> None:
    audit_kit.subnet(tmp_path)
    policy = tmp_path / "one" / "witnesses.policy"
    where = tmp_path / "emission-3"

    def of_subnet(where: Path, policy: Path | None = None) -> list[tuple[bool, str]]:
        checked = verify(where, key=joint_kit.KEY, policy=policy).checked
        return [(result.done, result.what) for result in checked if result.stage == "audit"]

    without, shown = of_subnet(where), of_subnet(where, policy)
    assert [what.startswith("small: Audited at 5 % risk") for done, what in without if done] == [True]
    assert [what for what in without if what not in shown] == [
        (False, "small: when the receipt was witnessed, which fixes the draw: give the policy of its witnesses")
    ]
    assert ["is left out" in what for done, what in of_subnet(tmp_path / "emission-4") if done] == [True]
    for epoch in (3, 4):
        [path] = (tmp_path / f"emission-{epoch}").rglob("*.audit")
        assert path.parent == tmp_path / f"emission-{epoch}" / "competitions" / "1" / "audits"
        path.write_bytes(path.read_bytes().replace(b"index 0", b"index 1"))
        with pytest.raises(Refused) as refused_:
            verify(tmp_path / f"emission-{epoch}", key=joint_kit.KEY)
        assert (refused_.value.stage, refused_.value.file) == ("audit", path)
