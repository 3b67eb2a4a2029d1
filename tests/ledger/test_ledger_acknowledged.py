"""What was acknowledged is written down beside the ledger, and a batch that is gone from the database is seen."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import store_kit as kit
from assay.errors import BadInput
from assay.exact import digest
from assay.ledger import intake, settling
from assay.ledger.batch import Batch
from assay.ledger.store import Accepted, Damaged
from cli_kit import output, refused, run
from ledger_kit import V1, V2


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return ledger_kit.ledger_folder(tmp_path / "small")


def given(place: Path, **changes: Any) -> list[Batch]:
    return list(ledger_kit.batches(place, ledger_kit.records(**changes)))


def accept(place: Path, batch: Batch) -> Accepted:
    with ledger_kit.opened(place) as ledger:
        return intake.accept(ledger.store, batch, intake.intake_rules(place))


def rows(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / intake.ACKNOWLEDGED).read_bytes().splitlines()]


def forget(place: Path, number: int) -> None:
    """The owner of the tables deletes a batch and its records."""
    with closing(sqlite3.connect(place / "ledger.db", isolation_level=None)) as database:
        for table in ("batches", "records"):
            database.execute(f"DROP TRIGGER IF EXISTS {table}_no_delete")
        database.execute("DELETE FROM records WHERE batch = ?", (number,))
        database.execute("DELETE FROM batches WHERE id = ?", (number,))


def test_each_batch_has_a_line_with_a_running_digest(place: Path) -> None:
    batches = given(place)
    for batch in [*batches, batches[0]]:
        accept(place, batch)
    before = ""
    for row, batch in zip(rows(place), batches, strict=True):
        rest = {"batch": batch.digest, "epoch": 3, "validator": batch.statement.validator}
        assert row == rest | {"digest": digest(rest | {"before": before})}
        before = row["digest"]
    assert "Each of the 3 batches that were acknowledged is there." in output("ledger", "check", place)


@pytest.mark.no_cover
def test_a_batch_of_an_open_epoch_that_is_gone_is_named(place: Path) -> None:
    batches = given(place)
    for batch in batches:
        accept(place, batch)
    forget(place, 3)
    refusal = refused("ledger", "check", place, code=1)
    named = (
        f"batch {batches[2].digest} of {batches[2].statement.validator}, epoch 3, was acknowledged, "
        "but the ledger no longer has it"
    )
    assert f"acknowledged.jsonl:3: {named}" in refusal
    assert f"to continue without it for good: assay ledger lost {place} {batches[2].digest}" in refusal
    assert named in refused("settle", place, "--dry-run", code=1)
    with ledger_kit.opened(place) as ledger, pytest.raises(Damaged, match="was acknowledged, but the ledger no longer has it"):
        settling.settle(ledger, ledger_kit.SIGNER)
    accept(place, batches[2])  # its validator hands it in again
    assert "Each of the 3 batches" in output("ledger", "check", place)
    assert len(rows(place)) == 4  # the database had it no more, so it was new


def test_what_is_given_up_is_missed_no_more(place: Path) -> None:
    batches = given(place)
    for batch in batches:
        accept(place, batch)
    forget(place, 3)
    stranger = f"sha256:{'0' * 64}"
    for name, why in ((stranger, "was never acknowledged here"), (batches[0].digest, "is in the ledger, and counts")):
        assert why in refused("ledger", "lost", place, batches[2].digest, name)
    assert len(rows(place)) == 3
    assert "1 batch is given up" in output("ledger", "lost", place, batches[2].digest)
    assert "2 batches are given up" not in output("ledger", "lost", place, batches[2].digest)  # which adds no second line
    last = rows(place)[-1]
    assert (last["batch"], last["epoch"], last["lost"]) == (batches[2].digest, 3, "for good")
    assert len(rows(place)) == 4
    assert "Each of the 2 batches that were acknowledged is there." in output("ledger", "check", place)
    with ledger_kit.opened(place) as ledger:
        assert settling.settle(ledger, ledger_kit.SIGNER, without_scores=True).new


def test_what_was_given_up_and_is_handed_in_again_is_missed_again(place: Path) -> None:
    batches = given(place)
    for batch in batches:
        accept(place, batch)
    forget(place, 3)
    intake.give_up_batch(place / intake.ACKNOWLEDGED, [batches[2].digest])
    accept(place, batches[2])
    assert "Each of the 3 batches" in output("ledger", "check", place)
    forget(place, 3)
    with ledger_kit.opened(place) as ledger, pytest.raises(Damaged, match="the ledger no longer has it"):
        settling.settle(ledger, ledger_kit.SIGNER)


def test_what_cannot_be_written_down_is_kept_and_not_answered(place: Path, tmp_path: Path) -> None:
    """A directory stands in its place: that stops root too."""
    (first, *_) = given(place)
    file = tmp_path / "a.batch"
    file.write_bytes(first.data)
    (place / intake.ACKNOWLEDGED).mkdir()
    shown = run("evidence", "add", place, file, columns=10_000, code=2)
    what = f"cannot be written (Is a directory): the batch {first.digest} is stored, but not acknowledged"
    assert f"error: {place / intake.ACKNOWLEDGED}: {what}; correct this, then hand the batch in again" in shown.stderr
    assert "0 records added by 0 batches; 1 refused." in shown.stdout
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        assert [batch.digest for batch in view.batches()] == [first.digest]
    assert "cannot be read (Is a directory)" in refused("ledger", "check", place)
    (place / intake.ACKNOWLEDGED).rmdir()
    for _ in range(2):
        assert "a.batch: 0 new, 4 known" in run("evidence", "add", place, file, columns=10_000).stdout
        assert [row["batch"] for row in rows(place)] == [first.digest]


def test_what_a_crash_left_of_a_line_is_cut_off(place: Path) -> None:
    first, second, third = given(place)
    accept(place, first)
    file = place / intake.ACKNOWLEDGED
    whole = file.read_bytes()
    for batch in (second, third):
        file.write_bytes(file.read_bytes() + whole[:20])
        assert "acknowledged is there" in output("ledger", "check", place)
        accept(place, batch)
    assert [row["batch"] for row in rows(place)] == [first.digest, second.digest, third.digest]
    assert "Each of the 3 batches" in output("ledger", "check", place)


@pytest.mark.parametrize("at", [0, 1])
def test_a_line_that_was_changed_or_left_out_is_found(place: Path, at: int) -> None:
    for batch in given(place):
        accept(place, batch)
    file = place / intake.ACKNOWLEDGED
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:at], *lines[at + 1 :]]))
    assert f"acknowledged.jsonl:{at + 1}: digest: was changed, or does not follow the line before" in refused(
        "ledger", "check", place
    )
    file.write_bytes(b"".join([*lines[:at], lines[at].replace(b'"epoch":3', b'"epoch":4'), *lines[at + 1 :]]))
    assert "was changed, or does not follow the line before" in refused("ledger", "check", place)
    for line in (b"{}\n", b"[]\n"):
        file.write_bytes(line)
        assert "acknowledged.jsonl:1: is not an acknowledgement" in refused("ledger", "check", place)


def test_a_ledger_of_an_earlier_version_says_what_could_vanish_unseen(place: Path) -> None:
    """Versions 1 and 2 wrote nothing down of their batches, in the database or beside it."""
    (place / "ledger.db").unlink()
    kit.sql(place / "ledger.db", (Path(__file__).parent / "ledger-v2/sqlite.sql").read_text("utf-8"))
    receipts = "".join(f"DROP TRIGGER {table}_no_delete; DELETE FROM {table};" for table in ("receipts", "settlements"))
    kit.sql(place / "ledger.db", receipts)
    shown = run("ledger", "migrate", place, columns=10_000)
    assert shown.stdout == "The database was migrated from version 2 of the schema to 7.\n"
    assert shown.stderr.startswith("warning: 2 batches of open epochs could be deleted from the database unseen: ")
    assert f"`assay evidence add {place} FILE.batch`" in shown.stderr


def test_what_could_vanish_unseen_is_added_again_or_signed(place: Path, tmp_path: Path) -> None:
    """As after it was brought forward: no line, and no word of the log's key."""
    ledger_kit.add(place, ledger_kit.records())
    batches = given(place)
    (place / intake.ACKNOWLEDGED).unlink()
    assert len(json.loads(output("ledger", "migrate", place, "--json"))["unseen"]) == 3
    forget(place, 3)
    assert "12 records" not in output("ledger", "check", place)  # nobody misses it, as was said
    (tmp_path / "first.batch").write_bytes(batches[0].data)
    output("evidence", "add", place, tmp_path / "first.batch")
    assert "warning: 1 batch of open epochs" in run("ledger", "migrate", place, columns=10_000).stderr
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, without_scores=True)
    assert run("ledger", "migrate", place).stderr == ""
    forget(place, 2)
    assert "2 batches were checked, but the last one there is 1" in refused("ledger", "check", place, code=1)


def test_a_folder_without_a_ledger_has_nothing_to_write_down(tmp_path: Path) -> None:
    import small_folder

    assert intake.intake_rules(small_folder.make(tmp_path, validators_csv=ledger_kit.NAMES)).answers is None


def test_lines_longer_than_what_is_read_from_the_end(place: Path) -> None:
    accept(place, given(place, validators=[V1])[0])
    file = place / intake.ACKNOWLEDGED
    file.write_bytes(b"x" * 2**17 + b"\n" + file.read_bytes())
    accept(place, given(place, validators=[V2])[0])
    assert file.read_bytes().count(b"\n") == 3
    with pytest.raises(BadInput, match=r"acknowledged\.jsonl:1: "):
        intake.check_acknowledged(file, set())
