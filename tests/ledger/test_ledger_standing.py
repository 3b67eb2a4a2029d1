"""What follows from closed epochs is stored with each receipt: it says the same as all records, whatever came before."""

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import ledger_kit
import small_folder
from assay.errors import BadInput
from assay.ledger import intake, keys, merkle, settling, standing
from assay.ledger.access import stored_settlement
from assay.ledger.audit import audit_standing
from assay.ledger.evidence import evidence_root
from assay.ledger.exchange import proof_for
from assay.ledger.store import Damaged, View, runs
from cli_kit import output, refused, run
from depth import depth
from inserting import Inserter, batch_row, record_rows, signed_anew
from ledger_kit import SIGNER, V1, V2, V3

Json = dict[str, Any]
VALIDATORS = (V1, V2, V3)
KINDS = ("workflow", "rubric", "joint", "tests", "points", "given")
SCHEMES = {
    "tests": '[score]\nkind = "tests"\ntrials = 2\n',
    "joint": '[score]\nkind = "tests"\ntrials = 2\npassed_by = "all"\n',
    "workflow": '[score]\nkind = "workflow"\nwindow = 3\n',
    "rubric": '[score]\nkind = "rubric"\nchecks = [{id = "c1", weight = 10000, skippable = false}]\n',
    "points": '[score]\nkind = "points"\nwindow_epochs = 2\nrepositories = {"o/r" = "5", "o/s" = "2"}\n',
    "given": '[score]\nkind = "given"\n',
}
RECORDS = {"joint": "tests"}
"""What records the kinds of these tests have, if they are called otherwise."""
RULES = '[scheme]\nname = "small"\n{score}[consensus]\nmin_validators = 1\nmin_stake = "0%"\n'


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "MANY", -1)


def competition(place: Path, kind: str, database: str = "ledger.db", more: str = "") -> Path:
    return ledger_kit.ledger_folder(
        place, RECORDS.get(kind, kind), database, scheme_toml=RULES.format(score=SCHEMES[kind]) + more
    )


def write(place: Path, submissions: Json, validators: Any = VALIDATORS, tasks: str = "t1\nt2\n") -> None:
    rows = [f"{key},{uid},,{name},,,\n" for uid, (key, name) in enumerate(submissions.items(), start=1)]
    (place / "participants.csv").write_text(small_folder.PARTICIPANTS.split("\n")[0] + "\n" + "".join(rows))
    stakes = [f"{key},{100 * VALIDATORS.index(key) + 100},\n" for key in validators]
    (place / "validators.csv").write_text("key,stake,name\n" + "".join(stakes))
    (place / "tasks.txt").write_text(tasks)


def settle(place: Path, epoch: int) -> settling.EpochResult:
    with ledger_kit.opened(place) as ledger:
        return settling.settle(ledger, SIGNER, epoch, skip=True, without_scores=True)


def rows_of(place: Path) -> dict[str, bytes] | None:
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        there = standing.stored(view)
        return None if there is None else there[1]


def check(place: Path) -> None:
    """What was settled last, and every result in it, is what all records say; the rows are those made anew."""
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        receipt = view.last_receipt()
        assert receipt is not None
        document = json.loads(stored_settlement(view, receipt.epoch)[1])
        whole = settling.again(view, receipt, whole=True)
        held = standing.find(view, document, receipt.epoch)
        assert held is not None
        assert settling.again(view, receipt).digest == whole.digest
        bound = settling.rests(view, document, whole.document)
        assert held.results() == bound
        assert proof_for(ledger, "m1")["result"]["records"] == bound["m1"]
        for row in whole.document["agreed"]:
            about = [stored for _, stored in settling.about(view, document, whole.document, row["participant"])]
            root = evidence_root([stored.seq for stored in about], [stored.digest for stored in about])
            assert {"root": root, "count": len(about)} == bound[row["participant"]]
        assert audit_standing(ledger) == len(held.rows) + 1


names = st.sampled_from(("s1", "s2", "s3", ""))
entries = st.fixed_dictionaries(
    {
        "validator": st.sampled_from(VALIDATORS),
        "participant": st.sampled_from(("m1", "m2", "m3")),
        "submission": names,
        "task": st.sampled_from(("t1", "t2", "t3")),
        "trial": st.integers(1, 3),
        "level": st.integers(0, 3),
        "ahead": st.sampled_from((0, 0, 0, 1)),
    }
)
epochs = st.fixed_dictionaries(
    {
        "records": st.lists(entries, max_size=10),
        "submissions": st.fixed_dictionaries({"m1": names, "m2": names}, optional={"m3": names}),
        "validators": st.sampled_from((VALIDATORS, VALIDATORS, VALIDATORS, (V1, V2), (V2, V3))),
        "tasks": st.sampled_from(("t1\nt2\n", "t1\nt2\n", "t1\nt3\n")),
    }
)


def as_record(kind: str, entry: Json, epoch: int) -> Json:
    level, kind = entry["level"], RECORDS.get(kind, kind)
    own: Json = {
        "tests": {"task": entry["task"], "trial": entry["trial"], "outcome": ("pass", "fail", "error", "pass")[level]},
        "workflow": {"task": entry["task"], "quality": f"0.{9 - level}"} | ({"outcome": "service-error"} if level == 3 else {}),
        "rubric": {"verdict": ("COHERENT", "FLAWED", "NONE", "ELEGANT")[level]},
        "points": {"repository": ("o/r", "o/s", "o/t", "o/r")[level], "valid": entry["trial"]},
        "given": {"score": f"0.{level + 1}"},
    }[kind]
    shared = {name: entry[name] for name in ("validator", "participant", "submission")}
    return small_folder.record(kind, **shared, **own, epoch=epoch + entry["ahead"])


def add(place: Path, kind: str, entries: list[Json], epoch: int) -> None:
    """One batch of each validator and epoch, at a time; what two records of a batch contradict is another batch."""
    with ledger_kit.opened(place) as ledger:
        for entry in entries:
            for batch in ledger_kit.batches(place, [as_record(kind, entry, epoch)]):
                try:
                    intake.accept(ledger.store, batch, intake.intake_rules(place))
                except BadInput:  # who left the registry
                    continue


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_records_say_the_same(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    @hypothesis_settings(max_examples=depth(2, 60), phases=[Phase.explicit, Phase.generate])
    @given(st.lists(epochs, min_size=3, max_size=4))
    def season(steps: list[Json]) -> None:
        place = tmp_path_factory.mktemp("season") / "small"
        ledger_kit.once(place, ("standing", kind), lambda template: competition(template, kind))
        for epoch, step in enumerate(steps, start=1):
            write(place, step["submissions"], tasks=step["tasks"])
            add(place, kind, step["records"], epoch)
            write(place, step["submissions"], step["validators"], step["tasks"])
            settle(place, epoch)
            check(place)
        with ledger_kit.opened(place) as ledger:
            assert len(list(settling.replay(ledger))) == len(steps)

    season()


@pytest.fixture
def two(tmp_path: Path, database: str) -> Path:
    """Two settled epochs, with rows of the second."""
    place = competition(tmp_path / "small", "tests", database)
    for epoch in (3, 4):
        ledger_kit.add(place, ledger_kit.records(epoch=epoch, trial=epoch - 2))
        settle(place, epoch)
    return place


CHANGE = "UPDATE standing SET document = CAST(replace(document, '[4,4,4]', '[4,0,4]') AS BLOB) WHERE about = 's:s1'"


def spoil(place: Path, statement: str) -> None:
    with closing(sqlite3.connect(place / "ledger.db")) as connection:
        assert connection.execute(statement).rowcount
        connection.commit()


@pytest.mark.parametrize("database", ["ledger.db"])
class TestRows:
    """What becomes of rows that were changed, are of another receipt, or are not there."""

    def test_a_changed_row_is_damage_until_it_is_made_again(self, two: Path) -> None:
        ledger_kit.add(two, ledger_kit.records(epoch=5))
        spoil(two, CHANGE)
        with ledger_kit.opened(two) as ledger:
            with pytest.raises(Damaged, match=r"not what the log's key signed: a row was changed.*assay ledger rebuild"):
                settling.draft(ledger, 5)
            with pytest.raises(Damaged, match="assay ledger rebuild"):
                audit_standing(ledger)
            assert settling.rebuild(ledger, SIGNER) == 4
            assert audit_standing(ledger) == 3
        settle(two, 5)
        check(two)

    @pytest.mark.parametrize("statement", ["DELETE FROM standing WHERE about = ''", "UPDATE standing SET document = '{}'"])
    def test_rows_that_nobody_signed_are_damage(self, two: Path, statement: str) -> None:
        spoil(two, statement)
        with ledger_kit.opened(two) as ledger, pytest.raises(Damaged, match="not what the log's key signed"):
            settling.shown(ledger)

    def test_a_wrong_row_that_was_signed_is_found(self, two: Path) -> None:
        with ledger_kit.opened(two) as ledger:
            with ledger.counted() as view:
                receipt = view.last_receipt()
                assert receipt is not None
                document = json.loads(stored_settlement(view, 4)[1])
                held = standing.fresh(view, document, 4)
            held.rows["s:s2"].sums[V1][1] -= 1
            with ledger.store.writing() as tx:
                held.store(tx, receipt.digest, view.looked, ledger.key, SIGNER)
            with pytest.raises(Damaged, match="what is stored about 's:s2' does not follow from the evidence of epochs up to 4"):
                audit_standing(ledger)

    @pytest.mark.full
    @pytest.mark.no_cover
    def test_rows_of_another_receipt_are_passed_over(self, two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ledger_kit.add(two, ledger_kit.records(epoch=5))
        before = rows_of(two)
        with monkeypatch.context() as older:  # a program that knows no rows settles an epoch
            older.setattr(standing, "MANY", 10**9)
            settle(two, 5)
        assert rows_of(two) is None
        with ledger_kit.opened(two) as ledger:
            assert audit_standing(ledger) is None
            assert settling.rebuild(ledger, SIGNER) == 5
        check(two)
        assert rows_of(two) != before

    def test_a_small_ledger_stores_nothing(self, two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(standing, "MANY", 10**6)
        with ledger_kit.opened(two) as ledger:
            assert settling.rebuild(ledger, SIGNER) is None
            with ledger.counted() as view:
                assert not runs.standing_rows(view)

    def test_only_the_log_key_stores_rows(self, two: Path) -> None:
        with ledger_kit.opened(two) as ledger, pytest.raises(BadInput, match="is not the key of this log"):
            settling.rebuild(ledger, ledger_kit.VALIDATORS[V1])

    def test_nothing_is_stored_before_a_receipt(self, tmp_path: Path, database: str) -> None:
        place = competition(tmp_path / "small", "tests", database)
        with ledger_kit.opened(place) as ledger:
            assert settling.rebuild(ledger, SIGNER) is None
            assert audit_standing(ledger) is None

    @pytest.mark.no_cover
    def test_an_epoch_reads_what_is_new_and_explaining_reads_one_participant(
        self, two: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ledger_kit.add(two, ledger_kit.records(epoch=5, validators=[V1], trial=3))
        records = View.records

        def new(view: View, first: int = 0, last: int = 2**53 - 1) -> Any:
            assert first == 5
            return records(view, first, last)

        monkeypatch.setattr(View, "records", new)
        with ledger_kit.opened(two) as ledger:
            settlement = settling.settle(ledger, SIGNER, 5).settlement
            assert settling.shown(ledger).digest == settlement.digest
            about = settling.records_about(ledger, settlement, "m1")
        assert {record.participant for record in about} == {"m1"}
        assert len(about) == 14

    def test_a_draft_of_an_earlier_epoch_reads_all(self, two: Path) -> None:
        with ledger_kit.opened(two) as ledger, ledger.counted() as view:
            document = json.loads(stored_settlement(view, 3)[1])
            assert standing.find(view, document, 3) is None
            assert isinstance(settling.draft(ledger, 3), settling.EpochResult)


def test_what_does_not_count_takes_no_place(two: Path, database: str) -> None:
    """Rows that somebody inserted beside the intake are in the index, before and after the true ones."""
    inserter = Inserter(database, two)
    for epoch in (5, 6):
        (true,) = ledger_kit.batches(two, ledger_kit.records(epoch=epoch, trial=2 + epoch % 2, validators=[V1]))
        forged = signed_anew(true, keys.read(b"99" * 32))
        last = inserter.last()
        inserter.put(batch_row(forged, last), record_rows(forged, last))
        with ledger_kit.opened(two) as ledger:
            intake.accept(ledger.store, true, intake.intake_rules(two))
        assert len(settle(two, epoch).aside) == epoch - 4
        check(two)


@pytest.mark.sampled(1)
@pytest.mark.no_cover
def test_the_first_accepted_counts_though_its_epoch_came_later(two: Path) -> None:
    for epoch, outcome in ((6, "pass"), (5, "fail")):
        ledger_kit.add(
            two, ledger_kit.records(epoch=epoch, trial=1, task="t1", submission="s3", participant="m1", outcome=outcome)
        )
    write(two, {"m1": "s3", "m2": "s2"})
    for epoch in (5, 6):
        settle(two, epoch)
        check(two)


def test_a_row_is_made_again_for_a_record_older_than_those_it_has(two: Path) -> None:
    """Epoch 6 is handed in before epoch 5. Its records then come before the last one that the rows of epoch 5 have."""
    for epoch in (6, 5):
        ledger_kit.add(two, ledger_kit.records(epoch=epoch, trial=epoch - 3))
    for epoch in (5, 6):
        settle(two, epoch)
        check(two)


def test_rows_of_submissions_that_come_back_are_made_again_together(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both participants hand in what has records of closed epochs, and what a new epoch has records of as well."""
    for key, submission in (("m1", "s3"), ("m2", "s4")):
        ledger_kit.add(two, ledger_kit.records(epoch=5, participant=key, submission=submission, validators=[V1]))
    settle(two, 5)
    assert sorted(rows_of(two) or ()) == [standing.SPOILT, "s:s1", "s:s2"]
    write(two, {"m1": "s3", "m2": "s4"})
    ledger_kit.add(two, ledger_kit.records(epoch=6, participant="m1", submission="s3", validators=[V2]))
    asked, of_runs = list[int](), runs.of_runs

    def counted(view: View, wanted: Any, last_epoch: int) -> Any:
        asked.append(len(wanted))
        return of_runs(view, wanted, last_epoch)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "of_runs", counted)
        settle(two, 6)
    assert asked == [6], "two submissions, three validators"
    assert sorted(rows_of(two) or ()) == [standing.SPOILT, "s:s3", "s:s4"]
    check(two)


def test_the_command_makes_rows_again(two: Path, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if "://" not in database:
        spoil(Path(database).parent, CHANGE)
        assert "assay ledger rebuild" in run("ledger", "check", two, columns=1000, code=1).stderr
    (tmp_path / "log.key").write_bytes(b"77" * 32)
    (tmp_path / "log.key").chmod(0o600)
    assert "ledger.toml: signer: does not say which key signs" in refused("ledger", "rebuild", two)
    key = ("--key", tmp_path / "log.key")
    assert "up to epoch 4 is stored anew" in output("ledger", "rebuild", two, *key)
    assert json.loads(output("ledger", "rebuild", two, *key, "--json")) == {"epoch": 4}
    assert "(3 rows)" in output("ledger", "check", two)
    assert json.loads(output("ledger", "check", two, "--json"))["standing_rows"] == 3
    monkeypatch.setattr(standing, "MANY", 10**6)
    assert "Nothing is stored" in output("ledger", "rebuild", two, *key)


def test_rows_are_stored_with_the_receipt_or_not_at_all(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, keep = rows_of(two), runs.keep
    ledger_kit.add(two, ledger_kit.records(epoch=5))

    def killed(*given: Any) -> None:
        keep(*given)
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(runs, "keep", killed)
    child = os.fork()
    if child == 0:
        try:
            settle(two, 5)
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    monkeypatch.undo()
    monkeypatch.setattr(standing, "MANY", -1)
    assert rows_of(two) == before
    settle(two, 5)
    check(two)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("database", ["ledger.db"])
@pytest.mark.parametrize("more", ["max_age_epochs = 1\n", 'assign = 1\n[epoch]\nevery = "1h"\nstart = "2026-11-01T00:00:00Z"\n'])
def test_rules_that_need_all_evidence_store_nothing(tmp_path: Path, database: str, more: str) -> None:
    place = competition(tmp_path / "small", "tests", database, more)
    (place / "randomness.csv").write_text("epoch,hex\n" + "".join(f"{epoch},{'ab' * 32}\n" for epoch in (3, 4, 5, 6)))
    if "assign" in more:
        write(place, {"m1": "s1", "m2": ""})
    for epoch in (3, 4, 5):
        ledger_kit.add(place, ledger_kit.records(epoch=epoch, trial=1 + epoch % 2))
        settle(place, epoch)
        assert rows_of(place) is None
    with ledger_kit.opened(place) as ledger:
        assert len(list(settling.replay(ledger))) == 3


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=40))
def test_a_frontier_has_the_root_of_all_leaves(leaves: list[bytes]) -> None:
    frontier = merkle.Frontier()
    for count, leaf in enumerate(leaves, start=1):
        frontier.add(leaf)
        frontier = merkle.Frontier(frontier.count, frontier.hashes)
        assert (frontier.count, frontier.root()) == (count, merkle.root(leaves[:count]))
    assert merkle.Frontier().root() == merkle.root([])
    with pytest.raises(ValueError, match="a tree of 3 leaves has 2 such subtrees, not 1"):
        merkle.Frontier(3, [b""])
