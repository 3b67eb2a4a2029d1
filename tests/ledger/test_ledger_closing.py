"""Closing an epoch: settling goes to the next; what passes others, or closes one without any score, takes a word. SPEC 6."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import assay
import ledger_kit
import small_folder
from assay.errors import AssayError, BadInput, CannotSettle
from assay.ledger import closing_cost, keys, settling
from cli_kit import output, refused, rewrite, run
from ledger_kit import SIGNER, V1, V2, V3

DECAYING = (
    small_folder.SCHEME + "[decay]\ncurve = 'linear'\nclock = 'participant'\ngrace_epochs = 1\nrate = '5%'\nmax_burn = '80%'\n"
)


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    keys.save("small-log", SIGNER)


def competition_of(tmp_path: Path, *epochs: int, **changes: Any) -> Path:
    """A competition that has evidence of these epochs, by all three validators, all of them settled but for the last."""
    place = ledger_kit.ledger_folder(tmp_path / "small", **changes)
    with (place / "ledger.toml").open("a") as file:
        file.write('signer = "small-log"\n')
    for at, epoch in enumerate(epochs):
        ledger_kit.add(place, ledger_kit.records(epoch=epoch))
        if at < len(epochs) - 1:
            settle(place, epoch)
    return place


def settle(place: Path, epoch: int | None = None, **meant: Any) -> settling.EpochResult:
    with ledger_kit.opened(place) as ledger:
        return settling.settle(ledger, SIGNER, epoch, **meant)


def settled(place: Path) -> list[int]:
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        return view.settled_epochs()


def test_epochs_are_passed_only_by_saying_so(tmp_path: Path) -> None:
    place = competition_of(tmp_path, 1, 2, scheme_toml=DECAYING)
    settle(place)
    refusal = refused("settle", place, "--epoch", "20", code=1)
    for words in (
        "epoch 20 was not closed",
        "Epochs 3 to 19 (17) would be skipped for good",
        "80 % would burn; in epoch 3, which is next, 5 %",
        "m1 keeps 20 % instead of 95 % and m2 keeps 20 % instead of 95 %",
        "3 validators have not reported yet: ",
        "--epoch 3",
        "--skip",
    ):
        assert words in refusal
    assert settled(place) == [1, 2]
    run("settle", place, "--epoch", "3")
    assert "Epoch 4 would be skipped for good" in refused("settle", place, "--epoch", "5", code=1)
    done = run("settle", place, "--epoch", "20", "--skip", columns=200)
    assert "Epochs 4 to 19 (16) would be skipped for good" in done.stderr
    assert "epoch 20" in done.stdout
    assert settled(place) == [1, 2, 3, 20]
    assert "was skipped" in refused("settle", place, "--epoch", "5")


def test_before_the_first_settlement_epochs_are_passed_too(tmp_path: Path) -> None:
    people = "key,uid,submission,last_reset_epoch\nm1,1,s1,4\nm2,2,s2,\n"
    place = competition_of(tmp_path, participants_csv=people)
    for epoch in (5, 3):
        ledger_kit.add(place, ledger_kit.records(epoch=epoch))
    with pytest.raises(CannotSettle, match=r"Epochs 3 to 4 \(2\) would be skipped for good") as refusal:
        settle(place, 5)
    assert "burn;" not in str(refusal.value)  # epoch 3 cannot be settled by what participants.csv says, and so not be compared
    assert "Every validator has reported" in str(refusal.value)
    (place / "participants.csv").write_text("key,uid,submission\nm1,1,s1\nm2,2,s2\n")
    assert settle(place).settlement.epoch == 3
    assert settle(place, 5, skip=True).settlement.epoch == 5


def test_an_epoch_without_a_score_is_closed_only_by_saying_so(tmp_path: Path) -> None:
    place = competition_of(tmp_path)
    ledger_kit.add(place, ledger_kit.records(epoch=1, validators=[V1]))
    refusal = refused("settle", place, code=1)
    for words in (
        "epoch 1 was not closed. Nobody has an agreed score in epoch 1, so everything would burn.",
        "2 validators have not reported yet: ",
        " and val-2;",
        "wait for the validators",
        "--without-scores",
    ):
        assert words in refusal
    shown = output("settle", place, "--dry-run", columns=200)
    assert "Nothing was stored" in shown
    assert "2 validators have not reported yet" in shown
    assert settled(place) == []
    ledger_kit.add(place, ledger_kit.records(epoch=1, validators=[V2, V3]))
    assert settle(place).settlement.ranking == ["m1", "m2"]


def test_that_nobody_has_a_score_though_all_have_reported_is_said(tmp_path: Path) -> None:
    place = competition_of(tmp_path)
    ledger_kit.add(place, [record for record in ledger_kit.records(epoch=1) if record["task"] == "t1"])
    refusal = refused("settle", place, code=1)
    assert "Every validator has reported; see why: --dry-run" in refusal
    done = run("settle", place, "--without-scores", columns=200)
    assert "everything would burn" in done.stderr
    assert "No participant has an agreed score, so everything burns." in done.stdout
    assert settled(place) == [1]


def test_a_payout_is_refunded_only_by_saying_so(tmp_path: Path) -> None:
    place = competition_of(
        tmp_path, scheme_toml=small_folder.SCHEMES["given"] + "[reward]\nkind = 'payout'\n[payout]\ndeposit = '1000'\n"
    )
    with pytest.raises(CannotSettle, match="so the whole deposit would be refunded"):
        settle(place, 1)
    ledger_kit.add(place, ledger_kit.records("given", epoch=1))
    settle(place)
    with pytest.raises(CannotSettle, match="Epoch 2 would be skipped for good"):
        settle(place, 3)


def test_one_validator_alone_has_not_reported(tmp_path: Path) -> None:
    place = competition_of(tmp_path)
    ledger_kit.add(place, ledger_kit.records(epoch=1, validators=[V1, V2]))
    with pytest.raises(CannotSettle, match=r"1 validator has not reported yet: "):
        settle(place)


def test_who_was_not_drawn_is_not_missed(tmp_path: Path) -> None:
    scheme = small_folder.SCHEME + "[consensus]\nassign = 1\nmin_validators = 1\n"
    place = competition_of(tmp_path, scheme_toml=scheme, randomness_csv=f"epoch,hex\n1,{1:064x}\n2,{2:064x}\n")
    ledger_kit.add(place, ledger_kit.records(epoch=1))
    settle(place)
    with pytest.raises(CannotSettle, match=r"(1 validator has|2 validators have) not reported yet"):
        settle(place, 3)


def test_the_next_epoch_is_settled_where_none_is_named(tmp_path: Path) -> None:
    place = competition_of(tmp_path, 1, 2)
    ledger_kit.add(place, ledger_kit.records(epoch=3))
    assert settle(place).settlement.epoch == 2  # not the highest that has evidence, which is 3
    assert settle(place).settlement.epoch == 3
    assert not settle(place).new
    ledger_kit.add(place, ledger_kit.records(epoch=6, validators=[V1]))
    refusal = refused("settle", place)
    assert "epoch 4 is the next to settle, but has no evidence of its own; the first epoch with evidence is 6" in refusal
    assert "--epoch 6 --skip" in refusal
    assert settle(place, 4).new


@pytest.mark.no_cover
def test_a_batch_that_is_set_aside_is_no_evidence_of_its_epoch(tmp_path: Path) -> None:
    place = competition_of(tmp_path, 1, 2)
    settle(place)
    ledger_kit.add(place, ledger_kit.records(epoch=3))
    with closing(sqlite3.connect(place / "ledger.db")) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        rows = database.execute("SELECT id, envelope FROM batches WHERE epoch = 3").fetchall()
        for number, envelope in rows:
            document = json.loads(envelope)
            document["signatures"][0]["sig"] = "A" * 86 + "=="
            database.execute("UPDATE batches SET envelope = ? WHERE id = ?", (json.dumps(document).encode(), number))
        database.commit()
    made_again = settle(place)
    assert (made_again.settlement.epoch, made_again.new) == (2, False)


@pytest.mark.no_cover
def test_what_is_shown_without_an_epoch_is_the_last_settled(tmp_path: Path) -> None:
    place = competition_of(tmp_path, 1, 2, scheme_toml=DECAYING)
    competition = assay.open(place)
    assert competition.newest == 2
    assert competition.settle().epoch == 1
    for epoch in (2, 3, 4):
        settle(place, epoch)
    assert competition.newest == 2
    assert "Its clock was last reset in epoch 1, 3 epochs ago" in output("explain", place, "m1", columns=200)
    assert "epoch 4" in output("settle", place)
    ledger_kit.add(place, ledger_kit.records(epoch=5))
    assert competition.settle().epoch == 4
    assert json.loads(output("explain", place, "m1", "--json"))["epoch"] == 4
    assert assay.open(small_folder.make(tmp_path / "plain")).newest is None


def test_before_the_first_settlement_the_next_is_shown(tmp_path: Path) -> None:
    place = competition_of(tmp_path)
    with pytest.raises(CannotSettle, match="no evidence"):
        assay.open(place).settle()
    for epoch in (4, 3):
        ledger_kit.add(place, ledger_kit.records(epoch=epoch))
    assert assay.open(place).settle().epoch == 3


@pytest.mark.full
@pytest.mark.no_cover
def test_a_terminal_is_asked_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = competition_of(tmp_path, 1, 2)
    settle(place)
    monkeypatch.setattr("assay.cli.settle._terminal", lambda: True)
    answers = iter([False, True])
    monkeypatch.setattr("typer.confirm", lambda *_, **__: next(answers))
    printed = run("settle", place, "--epoch", "4", "--skip", code=1).stderr
    assert "epoch 4 was not closed; nothing was kept" in " ".join(printed.split())
    assert settled(place) == [1, 2]
    run("settle", place, "--epoch", "4", "--skip")
    run("settle", place, "--epoch", "6", "--skip", "--yes")
    assert settled(place) == [1, 2, 4, 6]


def test_the_words_say_nothing_without_a_ledger(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path / "plain")
    for option in ("--skip", "--without-scores"):
        assert f"{option}: there is no ledger" in refused("settle", place, option)


@pytest.mark.no_cover
def test_who_has_nothing_new_is_named_where_scores_stand(tmp_path: Path) -> None:
    place = competition_of(tmp_path, 1, 2)
    printed = " ".join(output("settle", place, "--dry-run").split())
    assert "nothing new" not in printed
    settle(place)
    ledger_kit.add(place, ledger_kit.records(epoch=3, validators=[V1, V2]))
    assert "sent nothing new: their earlier evidence still counts." in " ".join(output("settle", place).split())


def resubmitted(tmp_path: Path, *validators: str) -> Path:
    """Epochs 1 and 2 are settled; in 3, m2 has a new submission, which only these validators have judged; m3 has none."""
    place = competition_of(tmp_path, 1, 2, participants_csv=small_folder.PARTICIPANTS + "m3,3,,,,,\n")
    settle(place)
    rewrite(place / "participants.csv", "m2,2,,s2,", "m2,2,,s2-new,")
    seen = [record for record in ledger_kit.records(epoch=3, validators=validators) if record["participant"] == "m2"]
    ledger_kit.add(place, [record | {"submission": "s2-new"} for record in seen])
    return place


@pytest.mark.full
@pytest.mark.no_cover
def test_whose_score_is_missing_for_want_of_reports_is_said(tmp_path: Path) -> None:
    place = resubmitted(tmp_path, V1, V2)
    missing = f"{V3[:6]}…{V3[-4:]} has not reported: without it, m2 has no agreed score in epoch 3."
    assert missing in " ".join(output("settle", place, "--dry-run").split())
    result = run("settle", place, "--json")
    assert missing in " ".join(result.stderr.split())
    assert json.loads(result.stdout)["ranking"] == ["m1"]
    assert "without it" not in output("settle", place), "it is settled, and shown as such"


def test_the_board_of_what_was_closed_says_whose_score_is_missing(tmp_path: Path) -> None:
    result = run("settle", resubmitted(tmp_path, V1))
    missing = f"{V3[:6]}…{V3[-4:]} and val-2 have not reported: without it, m2 has no agreed score in epoch 3."
    assert missing in " ".join(result.stdout.split())
    assert "sent nothing new" not in result.stdout
    assert result.stderr == ""


def test_epochs_that_are_passed_cost_a_score_too(tmp_path: Path) -> None:
    place = competition_of(tmp_path, 1, 2)
    settle(place)
    rewrite(place / "participants.csv", "m2,2,,s2,", "m2,2,,s2-new,")
    seen = [record for record in ledger_kit.records(epoch=4, validators=[V1]) if record["participant"] == "m2"]
    ledger_kit.add(place, [record | {"submission": "s2-new"} for record in seen])
    refusal = refused("settle", place, "--epoch", "4", code=1)
    assert "2 validators have not reported yet: " in refusal
    assert "Without their reports, m2 would have no agreed score" in refusal


def test_a_score_that_no_report_could_bring_is_not_laid_at_their_door(tmp_path: Path) -> None:
    place = resubmitted(tmp_path, V1)
    ledger_kit.add(place, ledger_kit.records(epoch=3, validators=[V2]))  # of what was judged before
    printed = " ".join(output("settle", place).split())
    assert "sent nothing new: their earlier evidence still counts." in printed
    assert "without it" not in printed


@pytest.mark.no_cover
def test_errors_are_of_the_right_kind(tmp_path: Path) -> None:
    place = competition_of(tmp_path, 1, 2)
    settle(place)
    for epoch, error in ((0, BadInput), (9, CannotSettle)):
        with pytest.raises(AssayError) as refusal:
            settle(place, epoch)
        assert type(refusal.value) is error


def test_what_counts_and_has_no_score_is_unjudged(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    records = ledger_kit.records()
    ledger_kit.add(place, [row for row in records if row["participant"] == "m1"])
    with ledger_kit.opened(place) as ledger:
        drafted = settling.draft(ledger, 3)
    assert closing_cost.unjudged(drafted.settlement) == ["m2"]
