"""Archives carry the audits of their epochs, each once; verifying checks them as in bundles, and settling does not need them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import audit_kit
import ledger_kit
import object_store
from archive_kit import KEY
from assay.archive import LocalWorkers, archive_epochs, export_epochs, settle_all, verify_all
from assay.errors import Refused
from assay.ledger import audit_log, auditing, bundle
from assay.ledger.verify import verify
from assay.ledger.verify.report import StageResult
from cli_kit import files_under, output, run

HERE = LocalWorkers(workers=1)
LIAR = ledger_kit.V1


@pytest.fixture(scope="module")
def season(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Competition `small`: epoch 3 was archived in `before`, then audited; epoch 4 leaves the liar out; `archive` has all."""
    folder = tmp_path_factory.mktemp("audited")
    audit_kit.witnessed(folder / "small", audit_kit.LEAVES_OUT)
    with ledger_kit.opened(folder / "small") as ledger:
        assert export_epochs(ledger, str(folder / "before")).audits == []
    _, digest = audit_kit.signed_audit(folder / "small", lambda trial: audit_kit.is_of(LIAR, trial))
    audit_kit.marked(folder / "small", LIAR, digest, folder / "bundle-4")
    with ledger_kit.opened(folder / "small") as ledger:
        export_epochs(ledger, str(folder / "archive"))
        bundle.export(ledger, 3, folder / "bundle-3")
    return folder


@pytest.fixture
def place(season: Path, tmp_path: Path) -> Path:
    return ledger_kit.copied(season, tmp_path / "all")


def audits(archive: Path) -> list[Path]:
    return sorted(archive.rglob("*.audit"))


def of_bundle(where: Path) -> tuple[StageResult, ...]:
    return tuple(result for result in verify(where, key=KEY).checked if result.stage == "audit")


def test_an_archive_has_each_audit_once_and_checks_it_as_bundles_do(place: Path) -> None:
    [audit] = audits(place / "archive")
    assert audit.parent == place / "archive" / "small" / "epoch-3" / "audits"
    assert audit.read_bytes() == (place / "bundle-4" / "audits" / audit.name).read_bytes()
    report = verify_all(str(place / "archive"), engine=HERE, keys=[KEY])
    assert report.verified
    assert [verdict.audits for verdict in report.verdicts] == [of_bundle(place / f"bundle-{epoch}") for epoch in (3, 4)]
    assert [sum(result.done for result in verdict.audits) for verdict in report.verdicts] == [1, 1]


@pytest.mark.parametrize("where", ["archive", "bundle"])
def test_a_changed_audit_is_red_in_each_epoch_that_carries_it(where: str, place: Path) -> None:
    for path in audits(place / "archive"), audits(place / "bundle-3"), audits(place / "bundle-4"):
        path[0].write_bytes(path[0].read_bytes().replace(b"index 0", b"index 1"))
    if where == "archive":
        report = verify_all(str(place / "archive"), engine=HERE, keys=[KEY])
        faults = [(row.fault.stage, row.fault.file, row.held) for row in report.verdicts if row.fault]
        assert faults == [("audit", str(audits(place / "archive")[0].relative_to(place / "archive")), True)] * 2
        return
    for epoch in (3, 4):
        with pytest.raises(Refused) as refused:
            verify(place / f"bundle-{epoch}", key=KEY)
        assert refused.value.stage == "audit"


def test_what_an_epoch_rests_on_is_told_before_its_audits(place: Path) -> None:
    [path] = audits(place / "archive")
    path.write_bytes(path.read_bytes().replace(b"index 0", b"index 1"))
    batches = place / "archive" / "small" / "epoch-3" / "batches.jsonl"
    line = batches.read_text()
    at = line.index('"sig":"') + 7
    batches.write_text(line[:at] + ("B" if line[at] == "A" else "A") + line[at + 1 :])
    report = verify_all(str(place / "archive"), engine=HERE, keys=[KEY])
    assert [row.fault and row.fault.stage for row in report.verdicts] == ["signatures", "signatures"]


def test_an_audit_that_does_not_follow_ends_no_other_epoch(place: Path) -> None:
    [path] = audits(place / "archive")
    predicate = audit_log.read_audit(path).predicate | {"verdict": "confirmed"}
    signed = audit_log.append(place / "x", "example.org/o", audit_kit.AUDITOR, auditing.statement_of(predicate))
    shutil.copy(signed, path.with_name(signed.name))
    report = verify_all(str(place / "archive"), engine=HERE, keys=[KEY])
    fault = report.verdicts[0].fault
    assert fault is not None
    assert (fault.stage, "its field verdict does not follow" in fault.what) == ("audit", True)
    assert report.verdicts[1].fault is None


def test_an_audit_that_is_gone_or_too_large_is_told(place: Path) -> None:
    [path] = audits(place / "archive")
    path.unlink()
    report = verify_all(str(place / "archive"), engine=HERE, keys=[KEY])
    assert report.verified
    assert [len(row.audits) for row in report.verdicts] == [0, 1]
    assert "is left out for the audit" in report.document()["epochs"][1]["audits"][0]["what"]
    text = " ".join(output("verify", "--all", place / "archive", "--key", KEY, "--workers", "1").split())
    assert "Not checked (small 4): " in text
    path.write_bytes(bytes(20_000_000))
    for row in verify_all(str(place / "archive"), engine=HERE).verdicts:
        assert row.fault is not None
        assert "is larger than" in row.fault.what


def test_settling_an_archive_gives_the_same_bits_with_and_without_its_audits(place: Path) -> None:
    """The receipt binds the mark in validators.csv, which leaves the validator out: the audit is the reason, and no input."""
    wanted = [json.loads((place / f"bundle-{epoch}" / "settlement.json").read_bytes())["digest"] for epoch in (3, 4)]
    last = json.loads((place / "bundle-4" / "settlement.json").read_bytes())
    assert {why["reason"] for row in last["agreed"] for why in row["not_counted"]} == {"audit-failed"}
    for _ in range(2):
        text = output("settle", "--archive", place / "archive", "--workers", "1", "--json")
        rows = json.loads(text)["epochs"]
        assert [(row["settlement"], row["archived"]) for row in rows] == [(digest, digest) for digest in wanted]
        shutil.rmtree(place / "archive" / "small" / "epoch-3" / "audits", ignore_errors=True)
    path = place / "archive" / "small" / "epoch-4" / "inputs.json"
    inputs: dict[str, Any] = json.loads(path.read_bytes())
    for row in inputs["validators"]:
        row.pop("failed_audit", None)
    path.write_text(json.dumps(inputs))
    assert [row.differs for row in settle_all(str(place / "archive"), engine=HERE)[0]] == [False, True]


def test_audits_that_come_later_are_added_to_what_was_archived(place: Path) -> None:
    archive = place / "before"
    assert verify_all(str(archive), engine=HERE, keys=[KEY]).verdicts[0].audits == ()
    before = files_under(archive)
    text = output("export", "archive", place / "small", archive)
    assert "1 epoch added as small; 1 epoch had been there. 1 audit added." in " ".join(text.split())
    after = files_under(archive)
    assert before.items() <= after.items()
    assert after == files_under(place / "archive")
    document = json.loads(output("export", "archive", place / "small", archive, "--json"))
    assert (document["new"], document["there"], document["audits"]) == ([], [3, 4], [])
    text = " ".join(output("verify", "--all", archive, "--key", KEY, "--workers", "1").split())
    assert text.count("verified, with 1 audit") == 2
    (archive / "small" / "epoch-3" / "audits" / "notes.txt").write_text("x")
    assert verify_all(str(archive), engine=HERE).ignored == ("small/epoch-3/audits/notes.txt",)


def test_an_audit_of_no_archived_epoch_stands_with_the_first_that_names_it(place: Path) -> None:
    [path] = audits(place / "archive")
    predicate = audit_log.read_audit(path).predicate | {"receipt": f"sha256:{'0' * 64}", "epoch": 2}
    small = place / "small"
    signed = audit_log.append(small / "audits", "example.org/small/audits", audit_kit.AUDITOR, auditing.statement_of(predicate))
    digest = audit_log.read_audit(signed).digest
    for epoch in (5, 6):
        audit_kit.marked(small, LIAR, digest, place / f"bundle-{epoch}")
    with ledger_kit.opened(small) as ledger:
        added = export_epochs(ledger, str(place / "archive"), last=5).audits
        assert added == [f"small/epoch-5/audits/{signed.name}"]
        run_ = archive_epochs(ledger, str(place / "archive"), epoch=6)  # each is read back and verified
        assert run_.verified == [6]
    report = verify_all(str(place / "archive"), engine=HERE, keys=[KEY])
    assert [row.audits for row in report.verdicts[2:]] == [of_bundle(place / f"bundle-{epoch}") for epoch in (5, 6)]
    assert all(result.done for row in report.verdicts[2:] for result in row.audits)


@pytest.mark.full
def test_audits_of_an_archive_in_an_object_store(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_store.object_store() as store:
        object_store.environment(monkeypatch, store)
        where = f"s3://{object_store.BUCKET}/season"
        document = json.loads(output("export", "archive", place / "small", where, "--json"))
        assert [path.split("/")[:3] for path in document["audits"]] == [["small", "epoch-3", "audits"]]
        assert json.loads(output("export", "archive", place / "small", where, "--json"))["audits"] == []
        report = verify_all(where, engine=HERE, keys=[KEY])
        assert [sum(result.done for result in row.audits) for row in report.verdicts] == [1, 1]
        run("settle", "--archive", where, "--workers", "1")
