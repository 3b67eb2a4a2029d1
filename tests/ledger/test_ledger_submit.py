"""What participants hand in is the ledger's too: whose, in which epoch, and that settling goes by it. SPEC 2, 3.0."""

import csv
from pathlib import Path

import pytest

import ledger_kit
import small_folder
import store_kit as kit
from assay.errors import BadInput
from assay.judge import submitting
from assay.judge.terminal.agent import BUILT_IN
from assay.judge.terminal.competition import submit_agent
from assay.ledger import intake, keys, settling
from assay.ledger.store import ReadOnly, Submission, Writer
from assay.scheme.fields import instant
from cli_kit import output, refused
from inserting import Inserter, batch_row, record_rows, signed_anew
from ledger_kit import SIGNER, V1, V2

ORACLE, NOOP = BUILT_IN["oracle"].digest, BUILT_IN["noop"].digest
AT = instant("2026-11-05T06:07:08Z")


def handed_in(place: Path) -> dict[str, Submission]:
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        return view.submissions()


def row_of(place: Path, key: str) -> dict[str, str]:
    with (place / "participants.csv").open(newline="") as file:
        return next(row for row in csv.DictReader(file) if row["key"] == key)


def test_a_submission_is_of_the_epoch_that_is_judged_now(database: str, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    with ledger_kit.opened(place) as opened:
        ledger = opened.store
        first = intake.hand_in(ledger, "m1", "s1", submitted_at="2026-11-02T09:00:00Z")
        assert first == Submission("m1", "s1", 1, "2026-11-02T09:00:00Z")
        ledger_kit.add(place, ledger_kit.records(epoch=3))
        assert intake.hand_in(ledger, "m1", "s1", submitted_at="2026-11-03T09:00:00Z") == first
        assert intake.hand_in(ledger, "m1", "s2").epoch == intake.open_epoch(ledger) == 3
        with ledger.writing() as tx:
            tx.add_settled(*kit.settled(3))
        assert intake.open_epoch(ledger) == intake.hand_in(ledger, "m2", "s3").epoch == 4
        assert intake.hand_in(ledger, "m2", "s4", epoch=9).epoch == 9
        with pytest.raises(BadInput, match="epoch 3 is settled, the last is 3"):
            intake.hand_in(ledger, "m2", "s5", epoch=3)
        assert intake.hand_in(ledger, "m1", "s1").epoch == 4
        with ledger.reading() as view:
            assert {key: submission.submission for key, submission in view.submissions().items()} == {"m1": "s1", "m2": "s4"}
            assert {key: submission.submission for key, submission in view.submissions(3).items()} == {"m1": "s2"}


@pytest.mark.parametrize("settled", [False, True])
def test_an_epoch_at_which_nobody_is_puts_off_no_submission(settled: bool, database: str, tmp_path: Path) -> None:
    """A validator signs an epoch of another century, and who may insert puts one there that nobody signed."""
    place = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    ledger_kit.add(place, ledger_kit.records(epoch=3))
    if settled:
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, SIGNER, 3)
    ledger_kit.add(place, ledger_kit.records(epoch=4))
    ledger_kit.add(place, ledger_kit.records(epoch=10**9, validators=[V1]))
    (far,) = ledger_kit.batches(place, ledger_kit.records(epoch=10**12, validators=[V2]))
    (near,) = ledger_kit.batches(place, ledger_kit.records(epoch=5, validators=[V2]))
    inserter = Inserter(database, place)
    for signed in (far, near):
        last, forged = inserter.last(), signed_anew(signed, keys.read(b"99" * 32))
        inserter.put(batch_row(forged, last), record_rows(forged, last))
    with ledger_kit.opened(place) as ledger:
        assert intake.hand_in(ledger.store, "m1", "s9").epoch == 4
    ledger_kit.add(place, ledger_kit.records(epoch=5))
    with ledger_kit.opened(place) as ledger:
        assert intake.hand_in(ledger.store, "m1", "s10").epoch == 5


def test_what_is_submitted_is_in_the_ledger_and_in_the_registry(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    done = submit_agent(place, "m1", "oracle", at=AT)
    assert (done.changed, done.epoch) == (True, 1)
    assert handed_in(place) == {"m1": Submission("m1", ORACLE, 1, "2026-11-05T06:07:08Z")}
    assert (row_of(place, "m1")["submission"], row_of(place, "m1")["submitted_at"]) == (ORACLE, "2026-11-05T06:07:08Z")
    again = submit_agent(place, "m1", "oracle", epoch=7)
    assert (again.changed, again.epoch) == (False, 1)
    with pytest.raises(BadInput, match="there is no participant 'eve'"):
        submit_agent(place, "eve", "oracle")
    assert list(handed_in(place)) == ["m1"]


def test_what_stops_between_the_two_is_made_up_for(tmp_path: Path) -> None:
    """The ledger first, and with its time: it ranks ties."""
    place = ledger_kit.ledger_folder(tmp_path / "small")
    before = (place / "participants.csv").read_bytes()
    submit_agent(place, "m1", "oracle", at=AT)
    whole = (place / "participants.csv").read_bytes()
    (place / "participants.csv").write_bytes(before)
    assert submit_agent(place, "m1", "oracle").changed
    assert (place / "participants.csv").read_bytes() == whole
    assert len(handed_in(place)) == 1


def test_a_submission_from_before_the_ledger_is_told_to_it(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(
        tmp_path / "small", participants_csv=f"key,uid,submission,submitted_at\nm1,1,{NOOP},2026-11-02T09:00:00Z\n"
    )
    assert not submit_agent(place, "m1", "noop", at=AT).changed
    assert handed_in(place) == {"m1": Submission("m1", NOOP, 1, "2026-11-02T09:00:00Z")}


def test_where_the_ledger_cannot_be_written_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    before = (place / "participants.csv").read_bytes()

    def broken(*_: object) -> None:
        raise ReadOnly("it cannot be written, nothing of this was stored")

    monkeypatch.setattr(Writer, "add_submission", broken)
    with pytest.raises(ReadOnly):
        submit_agent(place, "m1", "oracle")
    assert (place / "participants.csv").read_bytes() == before
    assert handed_in(place) == {}


@pytest.mark.no_cover
def test_the_epoch_of_acceptance_draws_the_validators(tmp_path: Path) -> None:
    """Of what participants.csv has too, the ledger says since when; not of what only participants.csv has."""
    scheme = small_folder.SCHEME + "[consensus]\nassign = 3\n"
    randomness = "epoch,hex\n" + "".join(f"{epoch},{epoch:064x}\n" for epoch in range(5))
    people = "key,uid,submission,accepted_epoch\nm1,1,s1,\nm2,2,s2,\nm3,3,s3,4\n"
    place = ledger_kit.ledger_folder(tmp_path, participants_csv=people, scheme_toml=scheme, randomness_csv=randomness)
    with ledger_kit.opened(place) as ledger:
        for participant, submission in (("m1", "s1"), ("m2", "older"), ("m3", "s3")):
            intake.hand_in(ledger.store, participant, submission, epoch=2)
    ledger_kit.add(place, ledger_kit.records())
    with ledger_kit.opened(place) as ledger:
        settled = settling.settle(ledger, SIGNER)
        assert [participant.accepted_epoch for participant in settled.settlement.inputs.participants] == [2, None, 4]
        assert [result.settlement.digest for result in settling.replay(ledger)] == [settled.settlement.digest]


def test_the_command_says_in_which_epoch(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    assert "is the submission of m1, accepted in epoch 5:" in output("submit", place, "m1", "oracle", "--epoch", "5")
    assert "is already the submission of m1, accepted in epoch 5" in output("submit", place, "m1", "oracle")
    plain = small_folder.make(tmp_path / "plain")
    assert "no ledger" in refused("submit", plain, "m1", "oracle", "--epoch", "5")
    assert "is the submission of m1:" in output("submit", plain, "m1", "oracle")


def test_whom_a_registry_is_behind_with_is_told_from_the_times(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    submit_agent(place, "m1", "oracle", at=AT)
    with ledger_kit.opened(place) as ledger:
        intake.hand_in(ledger.store, "m2", ORACLE)  # nobody said when

        def behind(rows: str) -> list[str]:
            (place / "participants.csv").write_text(f"key,submission,submitted_at\n{rows}")
            with ledger.store.reading() as view:
                return [submission.submission for submission in intake.replaced(view, place)]

        assert behind(f"m1,{NOOP},2026-11-05T06:07:07Z\nm2,{NOOP},\nm9,s9,\n") == [ORACLE]
        assert behind(f"m1,{NOOP},\n") == [ORACLE]
        assert behind(f"m1,{NOOP},2026-11-05T06:07:09Z\n") == []
        assert behind(f"m1,{ORACLE},2025-11-05T06:07:09Z\n") == []
        assert behind("m1,,\n") == []


def test_a_row_that_came_meanwhile_is_kept(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    row = submitting.find(place, "m2")
    submitting.add_participant(place, submitting.check_participant(place, "newcomer"))
    row.enter("s9")
    assert row.submission == "s9"
    assert submitting.find(place, "m2").submission == "s9"
    assert submitting.find(place, "newcomer").submission == ""
