"""Settling from the ledger: one receipt an epoch, whoever settles; history from earlier receipts; the same digests once more."""

import base64
import json
import queue
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import assay
import ledger_kit
import small_folder
from assay.errors import BadInput, CannotSettle
from assay.exact import canonical
from assay.ledger import batch, eligible, intake, keys, log, settling
from assay.ledger.access import receipt_predicate
from assay.ledger.store import Damaged, StoredSettlement, Submission, Writer
from assay.records import record
from ledger_kit import SIGNER, V1, V2, V3

Json = dict[str, Any]


def settle(place: Path, epoch: int | None = None, **meant: Any) -> settling.EpochResult:
    with ledger_kit.opened(place) as ledger:
        return settling.settle(ledger, SIGNER, epoch, **meant)


def replayed(place: Path) -> list[str]:
    with ledger_kit.opened(place) as ledger:
        return [settled.settlement.digest for settled in settling.replay(ledger)]


def as_folder(place: Path, target: Path, epoch: int, previous: Path | None = None) -> Json:
    """What the same competition says without a ledger, its records with their seq in evidence/."""
    shutil.copytree(place, target, ignore=shutil.ignore_patterns("ledger*", "log", "evidence"))
    (target / "evidence").mkdir()
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        lines = [canonical(json.loads(body) | {"seq": seq}) + b"\n" for seq, _, body in view.records()]
    (target / "evidence/all.jsonl").write_bytes(b"".join(lines))
    return assay.open(target).settle(epoch, previous=previous).document


@pytest.mark.no_cover
def test_the_ledger_settles_as_the_folder_does_epoch_after_epoch(database: str, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    previous, digests = None, []
    for epoch, outcome in ((3, "fail"), (4, "pass"), (30, "pass")):
        rest = {"task": "t1"} if epoch == 3 else {}
        submissions = {"submission": f"s{epoch}"} if epoch == 30 else {}
        records = [
            record
            for record in ledger_kit.records(epoch=epoch, outcome=outcome, **submissions)
            if record["task"] == "t1" or not rest
        ]
        ledger_kit.add(place, records)
        settled = settle(place, epoch, skip=epoch == 30, without_scores=epoch == 3)
        assert settled.new
        assert settled.receipt is not None
        document = as_folder(place, tmp_path / f"copy-{epoch}", epoch, previous)
        assert settled.settlement.document == document
        previous = tmp_path / f"{epoch}.json"
        previous.write_bytes(canonical(document))
        digests.append(settled.settlement.digest)
        again = settle(place, epoch)
        assert (again.new, again.settlement.digest, again.receipt) == (False, settled.settlement.digest, settled.receipt)
    assert replayed(place) == digests
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        receipts = list(view.receipts())
        stated = [receipt_predicate(receipt) for receipt in receipts]
        assert ledger.log.size == 3
        assert [predicate["epoch"] for predicate in stated] == [3, 4, 30]
        assert [predicate["previous"] for predicate in stated] == [
            None,
            *({"epoch": receipt.epoch, "receipt": receipt.digest} for receipt in receipts[:2]),
        ]
        assert [predicate["evidence"]["count"] for predicate in stated] == [view.count(0, 3), view.count(4, 4), view.count(5, 30)]


def test_without_evidence_there_is_no_epoch(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path)
    with pytest.raises(CannotSettle, match="there is no evidence in the ledger"):
        settle(place)
    with pytest.raises(CannotSettle, match="epoch 3 has no receipt: nothing is settled yet"), ledger_kit.opened(place) as ledger:
        ledger.receipt(3)
    settled = settle(place, 3, without_scores=True)
    assert settled.settlement.ranking == []
    assert settled.receipt is not None
    assert receipt_predicate(settled.receipt)["evidence"]["count"] == 0
    with (
        pytest.raises(CannotSettle, match="epoch 4 has no receipt: the last one settled is 3"),
        ledger_kit.opened(place) as ledger,
    ):
        ledger.receipt(4)


@pytest.mark.no_cover
def test_an_epoch_that_was_passed_is_not_settled_any_more(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path)
    ledger_kit.add(place, ledger_kit.records(epoch=5))
    settle(place)
    with pytest.raises(BadInput, match="epoch 4 was skipped: the last one settled is 5"):
        settle(place, 4)
    assert not settle(place, 5).new


def test_only_the_logs_key_signs(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path)
    ledger_kit.add(place, ledger_kit.records())
    with ledger_kit.opened(place) as ledger, pytest.raises(BadInput, match="is not the key of this log"):
        settling.settle(ledger, ledger_kit.VALIDATORS[V1])


@pytest.mark.no_cover
def test_the_competition_settles_by_its_ledger_and_keeps_nothing(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path)
    ledger_kit.add(place, ledger_kit.records())
    competition = assay.open(place)
    settlement = competition.settle()
    with pytest.raises(BadInput, match="the ledger already has the previous settlement"):
        competition.settle(previous=place / "x.json")
    with competition.ledger as ledger, ledger.store.reading() as view:
        assert view.last_receipt() is None
        assert not settling.is_settled(ledger)
    assert settle(place).settlement == settlement
    with competition.ledger as ledger:
        assert settling.is_settled(ledger)
        assert settling.is_settled(ledger, 3)
        assert not settling.is_settled(ledger, 4)


def _settle_in_process(place: Path, start: Any, answers: Any) -> None:
    assert start.wait(300)
    with ledger_kit.opened(place) as ledger:
        settled = settling.settle(ledger, SIGNER)
        answers.put((settled.new, settled.settlement.digest, None if settled.receipt is None else settled.receipt.digest))


@pytest.mark.no_cover
def test_of_those_who_settle_at_once_one_wins_and_all_report_the_same(database: str, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    ledger_kit.add(place, ledger_kit.records())
    context = ledger_kit.processes()
    start, answers = context.Event(), context.Queue()
    settlers = [context.Process(target=_settle_in_process, args=(place, start, answers)) for _ in range(3)]
    for settler in settlers:
        settler.start()
    start.set()
    reports = [answers.get(timeout=300) for _ in settlers]
    for settler in settlers:
        settler.join(300)
        assert settler.exitcode == 0
    assert sorted(new for new, _, _ in reports) == [False, False, True]
    assert len({(settlement, receipt) for _, settlement, receipt in reports}) == 1
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        assert len(list(view.receipts())) == ledger.log.size == 1


def _hold_in_process(place: Path, held: Any) -> None:
    with ledger_kit.opened(place) as ledger, ledger.store.writing():
        held.set()
        time.sleep(3600)  # until it is killed


@pytest.mark.no_cover
def test_a_settler_goes_on_when_the_one_that_holds_the_turn_is_killed(database: str, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    ledger_kit.add(place, ledger_kit.records())
    context = ledger_kit.processes()
    start, held, answers = context.Event(), context.Event(), context.Queue()
    holder = context.Process(target=_hold_in_process, args=(place, held))
    settler = context.Process(target=_settle_in_process, args=(place, start, answers))
    holder.start()
    settler.start()
    assert held.wait(300)
    start.set()
    with pytest.raises(queue.Empty):
        answers.get(timeout=0.5)  # it is not its turn
    holder.kill()
    holder.join(300)
    assert answers.get(timeout=300)[0] is True
    settler.join(300)
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        assert len(list(view.receipts())) == ledger.log.size == 1


def test_evidence_that_comes_meanwhile_is_settled_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ledger_kit.ledger_folder(tmp_path)
    ledger_kit.add(place, ledger_kit.records(validators=(V1, V2)))
    late = [ledger_kit.records(validators=[V3])]
    compute = settling.compute

    def interrupted(*arguments: Any) -> Any:
        computed = compute(*arguments)
        while late:
            ledger_kit.add(place, late.pop())
        return computed

    monkeypatch.setattr(settling, "compute", interrupted)
    settled = settle(place)
    assert settled.settlement.ranking == ["m1", "m2"]
    assert settled.receipt is not None
    assert receipt_predicate(settled.receipt)["evidence"]["count"] == 12


def test_settling_ends_while_evidence_keeps_coming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time it comes before anything is stored; the second time it waits, and its epoch is settled."""
    place = ledger_kit.ledger_folder(tmp_path)
    ledger_kit.add(place, ledger_kit.records())
    compute, coming, refused = settling.compute, list[threading.Thread](), list[str]()

    def send(trial: int) -> None:
        try:
            ledger_kit.add(place, ledger_kit.records(validators=[V3], trial=trial))
        except BadInput as error:
            refused.append(error.what)

    def interrupted(*arguments: Any) -> Any:
        coming.append(threading.Thread(target=send, args=(len(coming) + 2,)))
        coming[-1].start()
        if len(coming) == 1:
            coming[0].join()
        return compute(*arguments)

    monkeypatch.setattr(settling, "compute", interrupted)
    settled = settle(place)
    coming[-1].join()
    assert (len(coming), refused) == (2, ["epoch 3 is settled, the last is 3"])
    assert settled.receipt is not None
    assert receipt_predicate(settled.receipt)["evidence"]["count"] == 16


def test_an_epoch_that_another_settles_meanwhile_is_settled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ledger_kit.ledger_folder(tmp_path)
    ledger_kit.add(place, ledger_kit.records())
    compute, others = settling.compute, list[settling.EpochResult]()

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(settling, "compute", compute)
        others.append(settle(place))
        return compute(*arguments)

    monkeypatch.setattr(settling, "compute", overtaken)
    settled = settle(place)
    assert [(result.receipt, result.new) for result in (*others, settled)] == [(settled.receipt, True), (settled.receipt, False)]


def test_a_batch_that_is_acknowledged_after_a_snapshot_is_not_missing_in_it(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path)
    ledger_kit.add(place, ledger_kit.records())
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        before = settling.check_answered(ledger, view)
        ledger_kit.add(place, ledger_kit.records(validators=[V3], trial=2))
        assert settling.check_answered(ledger, view) == before + 1


def test_submissions_of_the_ledger_fill_what_participants_csv_leaves_empty(tmp_path: Path) -> None:
    people = "key,uid,submission,submitted_at\nm1,1,,\nm2,2,s2,2026-11-02T09:00:00Z\nm3,3,,\n"
    scheme = small_folder.SCHEME + "[consensus]\nassign = 3\n"
    randomness = "epoch,hex\n" + "".join(f"{epoch},{epoch:064x}\n" for epoch in range(5))
    place = ledger_kit.ledger_folder(tmp_path, participants_csv=people, scheme_toml=scheme, randomness_csv=randomness)
    with ledger_kit.opened(place) as ledger, ledger.store.writing() as tx:
        tx.add_submission(Submission("m1", "s0", 1, "2026-11-01T08:00:00Z"))
        tx.add_submission(Submission("m1", "s1", 2, "2026-11-01T09:00:00Z"))
        tx.add_submission(Submission("m2", "other", 2))
        tx.add_submission(Submission("m3", "s3", 2))
        tx.add_submission(Submission("m3", "later", 4))
    ledger_kit.add(place, ledger_kit.records())
    settled = settle(place)
    assert {row["participant"]: row["submission"] for row in settled.settlement.document["agreed"]} == {
        "m1": "s1",
        "m2": "s2",
        "m3": "s3",
    }
    first, second, third = settled.settlement.inputs.participants
    assert (first.accepted_epoch, second.accepted_epoch, third.accepted_epoch) == (2, None, 2)
    assert first.submitted_at is not None
    assert third.submitted_at is None
    assert replayed(place) == [settled.settlement.digest]


def parted(place: Path) -> None:
    """Validator 3 and participant m2 leave; m3 comes with the submission that m2 had."""
    (place / "validators.csv").write_text(f"key,stake,name\n{V1},100,\n{V2},200,\n")
    people = "key,uid,submission\nm1,1,s1\nm3,2,s2\nm4,4,\n"
    (place / "participants.csv").write_text(people)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("kind", ["tests", "given", "points"])
def test_those_who_left_do_not_count_and_stand_in_nobodys_way(
    kind: str, many: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eligible, "MANY", 0 if many else 10**6)
    scheme = small_folder.SCHEMES[kind] + "[consensus]\nmin_validators = 2\n"
    place = ledger_kit.ledger_folder(tmp_path, kind, scheme_toml=scheme)
    if kind == "points":
        (place / "participants.csv").write_text("key,uid,submission\nm1,1,\nm2,2,\n")
    extra = [small_folder.record(kind, validator=V1, participant="m2", submission="")] if kind != "points" else []
    ledger_kit.add(place, [*ledger_kit.records(kind), *extra])
    before = settle(place)
    assert before.settlement.ranking == ["m1", "m2"]
    parted(place)
    ledger_kit.add(place, ledger_kit.records(kind, epoch=4, validators=(V1, V2))[:1] if kind == "given" else [])
    settled = settle(place, 4)
    assert settled.settlement.ranking == (["m1"] if kind == "points" else ["m1", "m3"])
    assert {vote["validator"] for row in settled.settlement.document["agreed"] for vote in row["validators"]} == {V1, V2}
    assert replayed(place) == [before.settlement.digest, settled.settlement.digest]


@pytest.mark.sampled(1)
@pytest.mark.no_cover
@pytest.mark.parametrize("many", [False, True])
def test_evidence_of_another_task_set_does_not_count(many: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eligible, "MANY", 0 if many else 10**6)
    place = ledger_kit.ledger_folder(tmp_path)
    ledger_kit.add(place, ledger_kit.records(outcome="fail"))
    first = settle(place)
    assert [row["score"] for row in first.settlement.document["agreed"]] == ["0", "0"]
    (place / "tasks.txt").write_text(f"t1 sha256:{'0' * 64}\nt2\n")
    assert settle(place, 4, without_scores=True).settlement.ranking == []
    ledger_kit.add(place, ledger_kit.records(epoch=5, outcome="pass"))
    settled = settle(place, 5)
    assert [row["score"] for row in settled.settlement.document["agreed"]] == ["1", "1"]
    assert len(replayed(place)) == 3


def test_records_in_batches_of_both_task_sets_count() -> None:
    judged = [
        eligible.BatchTaskSet("old", [[1, 4]]),
        eligible.BatchTaskSet("new", [[3, 3], [9, 9]]),
        eligible.BatchTaskSet(None, [[4, 4]]),
    ]
    assert eligible.left_out(judged, "new").tolist() == [1, 2]
    assert eligible.left_out(judged, None).tolist() == []
    assert eligible.left_out(judged[1:], "new").tolist() == []
    assert eligible.left_out(judged[:1], "new").tolist() == [1, 2, 3, 4]


@pytest.mark.no_cover
def test_records_of_a_kind_that_the_scheme_does_not_score_any_more(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path, "given")
    ledger_kit.add(place, ledger_kit.records("given"))
    settle(place)
    (place / "scheme.toml").write_text(small_folder.SCHEMES["points"])
    ledger_kit.add(place, ledger_kit.records("points", epoch=4))
    assert settle(place).settlement.ranking == ["m1", "m2"]
    assert len(replayed(place)) == 2


@pytest.mark.full
@pytest.mark.no_cover
@pytest.mark.parametrize("epoch", [3, 4])
def test_many_records_by_way_of_parquet_settle_to_the_same_bits(
    epoch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ledger_kit.ledger_folder(tmp_path)
    ledger_kit.add(place, ledger_kit.records(image="sha256:a"))
    ledger_kit.add(place, ledger_kit.records(validators=[V1], outcome="fail", observed_at="2026-11-02T11:00:00.5Z"))
    ledger_kit.add(place, ledger_kit.records(epoch=4, outcome="fail", submission="s1"))
    settlement = assay.open(place).settle(epoch)
    monkeypatch.setattr(eligible, "MANY", 0)
    other = assay.open(place).settle(epoch)
    assert other.digest == settlement.digest
    assert not isinstance(other.inputs.evidence, tuple)
    monkeypatch.setattr(settling, "find_spec", lambda name: None)
    assert isinstance(assay.open(place).settle(epoch).inputs.evidence, tuple)


def changed(place: Path, change: Callable[[Any], None]) -> None:
    """Reach into the database past its triggers."""
    database = sqlite3.connect(place / "ledger.db")
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        database.execute(f'DROP TRIGGER "{name}"')
    change(database)
    database.commit()
    database.close()


def test_a_ledger_that_was_changed_does_not_replay(tmp_path: Path) -> None:
    for name in ("evidence", "results", "settlement", "inputs", "gone"):
        place = ledger_kit.ledger_folder(tmp_path / name)
        ledger_kit.add(place, ledger_kit.records())
        settled = settle(place)

        def change(database: Any, name: str = name, settled: settling.EpochResult = settled) -> None:
            if name == "evidence":
                database.execute("UPDATE records SET digest = zeroblob(32) WHERE seq = 1")
            elif name == "settlement":
                database.execute("UPDATE records SET body = replace(body, '\"pass\"', '\"fail\"')")
            elif name == "gone":
                database.execute("DELETE FROM settlements")
            elif name == "inputs":
                database.execute("UPDATE inputs SET document = replace(document, 's1', 's9')")
            else:
                kept = json.loads(database.execute("SELECT envelope FROM receipts").fetchone()[0])
                payload = json.loads(base64.b64decode(kept["payload"]))
                payload["predicate"]["results"]["root"] = "sha256:" + "0" * 64
                kept["payload"] = base64.b64encode(canonical(payload)).decode()
                database.execute("UPDATE receipts SET envelope = ?", (canonical(kept),))

        changed(place, change)
        with pytest.raises(CannotSettle if name in ("results", "inputs", "gone") else Damaged):
            replayed(place)


@pytest.mark.no_cover
def test_what_a_crash_left_out_of_the_log_is_made_up_for(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    whole = []
    for epoch in (3, 4, 5):
        ledger_kit.add(place, ledger_kit.records(epoch=epoch))
        settle(place)
        whole.append(shutil.copytree(place / "log", tmp_path / f"log-{epoch}"))
    for before in whole[:2]:
        shutil.rmtree(place / "log")
        shutil.copytree(before, place / "log")
        with ledger_kit.opened(place) as ledger:
            assert ledger.log.size == 3
        assert (place / "log/checkpoint").read_bytes() == (whole[2] / "checkpoint").read_bytes()


def test_a_log_that_is_ahead_or_another_is_refused(tmp_path: Path) -> None:
    place, other = ledger_kit.ledger_folder(tmp_path / "small"), ledger_kit.ledger_folder(tmp_path / "other")
    ledger_kit.add(place, ledger_kit.records())
    ledger_kit.add(other, ledger_kit.records(outcome="fail"))
    settle(place)
    settle(other)
    shutil.copytree(place / "log", tmp_path / "log")
    shutil.rmtree(place / "log")
    shutil.copytree(other / "log", place / "log")
    with pytest.raises(BadInput, match=r"differs from the database .* in the first 1 receipts"), ledger_kit.opened(place):
        pass
    shutil.rmtree(place / "log")
    shutil.copytree(tmp_path / "log", place / "log")
    shutil.copy(ledger_kit.ledger_folder(tmp_path / "third") / "ledger.db", place / "ledger.db")
    for end in ("-wal", "-shm"):
        (place / f"ledger.db{end}").unlink(missing_ok=True)
    with pytest.raises(BadInput, match=r"has 1 entries, and the database .* has 0 receipts"), ledger_kit.opened(place):
        pass


def test_a_database_of_another_log_is_refused(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path)
    key = log.log_key("example.org/another", SIGNER.public)
    text = (place / "ledger.toml").read_text()
    (place / "ledger.toml").write_text(text.replace(str(ledger_kit.KEY), str(key)).replace(ledger_kit.ORIGIN, key.name))
    with pytest.raises(BadInput, match="is of the log"), ledger_kit.opened(place):
        pass


def test_a_receipt_that_cannot_be_kept_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ledger_kit.ledger_folder(tmp_path)
    ledger_kit.add(place, ledger_kit.records())
    add = Writer.add_settled

    def fails(tx: Writer, settled: StoredSettlement, document: bytes, receipt: Any) -> None:
        add(tx, settled, document, receipt)
        raise OSError("no space")

    monkeypatch.setattr(Writer, "add_settled", fails)
    with pytest.raises(OSError, match="no space"):
        settle(place)
    monkeypatch.undo()
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        assert view.last_receipt() is None
        assert ledger.log.size == 0
    assert settle(place).new


def test_an_sr25519_validator_and_a_second_batch_of_the_same_records(tmp_path: Path) -> None:
    hotkey = keys.new("sr25519")
    spelt = str(hotkey.public)
    place = ledger_kit.ledger_folder(tmp_path, validators_csv=ledger_kit.NAMES + f"{spelt},50,hot\n")
    ledger_kit.add(place, ledger_kit.records())
    records = ledger_kit.records(validators=[spelt])
    terms = intake.intake_rules(place)
    with ledger_kit.opened(place) as ledger:
        for part in (records, records[:2]):
            signed = batch.make(
                map(record, part),
                origin=ledger_kit.ORIGIN,
                competition="small",
                task_set=terms.task_set,
                signer=hotkey,
                validator=spelt,
            )
            intake.accept(ledger.store, signed, terms)
        settled = settling.settle(ledger, SIGNER).settlement
    assert [len(row["validators"]) for row in settled.document["agreed"]] == [4, 4]
