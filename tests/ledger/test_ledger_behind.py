"""The records behind results are found by their runs, for all participants at once, and are those that all records give."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import small_folder
from assay.ledger import eligible, intake, keys, settling, standing
from assay.ledger.access import stored_settlement
from assay.ledger.counting import BatchVerdicts, CountedView
from assay.ledger.store import RecordRow, StoredRecord, View, runs
from assay.ledger.store.slots import TaskSets
from assay.ledger.store.tables import SeqRanges, members_of
from assay.serve.telling import sick_tasks
from cli_kit import output
from inserting import Inserter, batch_row, record_rows, signed_anew
from ledger_kit import SIGNER, V1, V2, V3
from postgres import Cluster

Json = dict[str, Any]
KINDS = ("tests", "workflow", "rubric", "points", "given")
OTHER = "sha256:" + "ab" * 32
"""A task set that is not the competition's."""


def participants(place: Path, submissions: Json) -> None:
    head, rows = small_folder.PARTICIPANTS.split("\n")[0], enumerate(submissions.items(), start=1)
    (place / "participants.csv").write_text(head + "\n" + "".join(f"{key},{uid},,{name},,,\n" for uid, (key, name) in rows))


def season(place: Path, kind: str = "tests", database: str = "ledger.db", submissions: int = 2) -> Path:
    """Each participant had so many submissions; the last of m1 and m2 count, m3 has the same as m1, m4 and m5 have none."""
    ledger_kit.ledger_folder(place, kind, database)
    for number in range(submissions):
        last = {"m1": f"a{number}", "m2": f"b{number}", "m3": f"a{number}", "m4": "", "m5": ""}
        participants(place, last)
        values = ledger_kit.records(kind, epoch=3 + number)
        both = [value | {"participant": key, "submission": last[key]} for value in values for key in ("m1", "m2", "m4", "m5")]
        ledger_kit.add(place, {json.dumps(value): value for value in both}.values())
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, SIGNER, 3 + number, without_scores=True)
    return place


def by_all_records(
    view: CountedView, document: Json, settlement: Json, last_seq: int = 2**53 - 1
) -> dict[str, list[StoredRecord]]:
    """Participant → the records behind its result, out of all records: as it was done before runs were."""
    judged = (eligible.judged(stored.envelope, stored.members) for stored in view.batches(0, settlement["epoch"]))
    without = frozenset(eligible.left_out(judged, settlement["task_set"]).tolist())
    records = (stored for stored in view.records(0, settlement["epoch"]) if stored.seq <= last_seq)
    by_participant: dict[str, list[StoredRecord]] = {}
    for key, _, stored in eligible.records_behind_results(records, document, settlement, without):
        by_participant.setdefault(key, []).append(stored)
    return by_participant


def check_same(place: Path, epoch: int) -> dict[str, list[StoredRecord]]:
    """Check both ways, up to some of the records; returns what is behind each result."""
    with ledger_kit.opened(place) as ledger:
        settlement = settling.draft(ledger, epoch).settlement
        document = eligible.inputs_document(settlement.inputs)
        with ledger.counted() as view:
            last = view.last_seq()
            for seq in (last, last // 2, 1):
                wanted = by_all_records(view, document, settlement.document, seq)
                assert settling.records_by_participant(ledger, settlement, seq) == wanted
        return settling.records_by_participant(ledger, settlement)


@pytest.mark.parametrize("kind", KINDS)
def test_the_runs_of_everybody_have_what_all_records_say(tmp_path: Path, kind: str) -> None:
    place = season(tmp_path / "small", kind)
    for epoch in (3, 4):
        assert {"m1", "m2"} <= check_same(place, epoch).keys()


def test_records_of_other_task_sets_and_of_forged_batches_are_left_out(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """m1 is judged again on other tasks; V2's records of m2 came on other tasks first, and once more on ours."""
    place = season(tmp_path / "small", database=database)
    with ledger_kit.opened(place) as ledger:
        rules = intake.intake_rules(place)
    for validator, key, task_sets in ((V1, "m1", (OTHER,)), (V2, "m2", (OTHER, rules.task_set)), (V3, "m1", (rules.task_set,))):
        values = [
            value | {"submission": {"m1": "a1", "m2": "b1"}[key], "trial": 2}
            for value in ledger_kit.records(epoch=5, validators=[validator])
            if value["participant"] == key
        ]
        for task_set in task_sets:
            (batch,) = ledger_kit.batches(place, values)
            batch_again = signed_anew(batch, ledger_kit.VALIDATORS[validator], task_set=task_set)
            with ledger_kit.opened(place) as ledger, ledger.store.writing() as tx:
                tx.add_batch(batch_again)
    inserter = Inserter(database, place)
    (true,) = ledger_kit.batches(place, ledger_kit.records(epoch=5, trial=2, validators=[V1], submission="b1", participant="m2"))
    forged, last = signed_anew(true, keys.read(b"99" * 32)), inserter.last()
    inserter.put(batch_row(forged, last), record_rows(forged, last))
    behind = check_same(place, 5)
    second = Counter(
        (key, json.loads(row.body)["validator"]) for key, rows in behind.items() for row in rows if b'"trial":2' in row.body
    )
    assert second == {("m2", V2): 2, ("m1", V3): 2}
    monkeypatch.setattr(runs, "BATCHES_AT_ONCE", 1)
    monkeypatch.setattr(standing, "_RUNS", 1)
    assert check_same(place, 5) == behind


def test_many_rows_need_as_few_queries_as_they_have_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, asked, of_runs = season(tmp_path / "small"), list[int](), runs.of_runs

    def counted(view: View, wanted: Any, last_epoch: int) -> list[RecordRow]:
        asked.append(len(wanted))
        return of_runs(view, wanted, last_epoch)

    monkeypatch.setattr(runs, "of_runs", counted)
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        receipt = view.last_receipt()
        assert receipt is not None
        scope = standing.scope_of(view, json.loads(stored_settlement(view, receipt.epoch)[1]), receipt.epoch)
        assert len(scope.abouts) == 4
        together: dict[str, list[StoredRecord]] = {about: [] for about in scope.abouts}
        for about, stored, _ in standing.behind(view, scope, scope.abouts, receipt.epoch):
            together[about].append(stored)
        assert asked == [9], "three validators about a1, b1, and nothing, which m4 and m5 share"
        for about, rows in together.items():
            assert rows == [stored for _, stored, _ in standing.behind(view, scope, {about}, receipt.epoch)]
            assert [row.seq for row in rows] == sorted(row.seq for row in rows)
        asked.clear()
        monkeypatch.setattr(standing, "_RUNS", 6)
        assert len(list(standing.behind(view, scope, scope.abouts, receipt.epoch))) == sum(map(len, together.values()))
        assert asked == [3, 6], "m4 and m5, then a1 and b1"
        assert list(standing.behind(view, scope, (), receipt.epoch)) == []


def test_postgresql_looks_runs_up_by_the_index(postgresql: Cluster, tmp_path: Path) -> None:
    """Without statistics a plain join may read all records; this query takes each run in its turn, and is not compiled first."""
    place = season(tmp_path / "small", database=postgresql.database())
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        low, high = [bytes(16)] * 3, [b"\xff" * 16] * 3
        rows = view._connection.exec_driver_sql(f"EXPLAIN {runs._OF_RUNS}", (low, high, 9))
        plan = [line.strip() for (line,) in rows]
        assert plan[0].startswith("Nested Loop")
        assert plan[1].startswith("->  Function Scan on run"), "each run in its turn"
        assert len(runs.of_runs(view, [low[0][:8]], 9)) == 0
        assert view._connection.exec_driver_sql("SHOW jit").scalar() == "off"


def test_rows_without_any_author_have_no_records(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        document = settling._inputs(place, view, 3)
        scope = standing.scope_of(view, document, 3)
        assert list(standing.behind(view, scope, scope.abouts, 3)) == []


def cost(place: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many records, whole passes over records, looks at all batches and settlements `assay explain` needs."""
    count, whole, records, init, compute = Counter[str](), View.whole, View.records, CountedView.__init__, settling.compute

    def counting(name: str, function: Any) -> Any:
        def counted(*given: Any, **named: Any) -> Any:
            count[name] += 1
            return function(*given, **named)

        return counted

    with monkeypatch.context() as patch:
        patch.setattr(standing, "MANY", -1)  # as in a ledger with many records: it stores what follows, and scores are sums
        patch.setattr(View, "whole", counting("records", whole))
        patch.setattr(View, "records", counting("passes", records))
        patch.setattr(CountedView, "__init__", counting("looks", init))
        patch.setattr(settling, "compute", counting("settlements", compute))
        printed = output("explain", place, "m1", "--json")
    assert [row["task"] for row in json.loads(printed)["task_health"] if "dead" in row["words"]] == ["t2"], (
        "the health of tasks is missing"
    )
    return count


def test_explaining_reads_no_record_of_earlier_submissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "MANY", -1)
    costs = []
    for submissions in (1, 4):
        place = ledger_kit.ledger_folder(tmp_path / f"season-{submissions}")
        for number in range(submissions):
            participants(place, {key: f"{key}-{number}" for key in ("m1", "m2", "m3")})
            values = [
                small_folder.record(
                    epoch=3 + number, validator=validator, participant=key, submission=f"{key}-{number}", task=task
                )
                | {"outcome": "fail" if task == "t2" else "pass"}
                for validator in ledger_kit.VALIDATORS
                for key in ("m1", "m2", "m3")
                for task in ("t1", "t2")
            ]
            ledger_kit.add(place, values)
            with ledger_kit.opened(place) as ledger:
                settling.settle(ledger, SIGNER, 3 + number)
        costs.append(cost(place, monkeypatch))
    assert costs[0] == costs[1], "three earlier submissions of everybody cost nothing"
    assert costs[0] == {"records": 18 + 6, "looks": 3, "settlements": 1}, "all current records for the tasks, m1's for its story"


def test_an_epoch_that_is_shown_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, looks, init = season(tmp_path / "small"), list[int](), CountedView.__init__

    def counted(view: CountedView, *given: Any) -> None:
        looks.append(1)
        init(view, *given)

    monkeypatch.setattr(CountedView, "__init__", counted)
    with ledger_kit.opened(place) as ledger:
        assert settling.shown(ledger).epoch == 4
        assert looks == [1]
        assert settling.newest(ledger) == 4
        assert looks == [1]


def test_the_health_of_tasks_needs_a_ledger_where_scores_are_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "MANY", -1)
    place = season(tmp_path / "small")
    with ledger_kit.opened(place) as ledger:
        settlement = settling.shown(ledger)
    (place / "ledger.toml").rename(place / "away.toml")
    assert sick_tasks(place, settlement, "m1") == {}


def test_the_newest_epoch_is_that_of_a_batch_that_counts(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, judged, why = ledger_kit.ledger_folder(tmp_path / "small", database=database), list[int](), BatchVerdicts.why

    def counted(judge: BatchVerdicts, stored: Any) -> str:
        judged.append(stored.id)
        return why(judge, stored)

    monkeypatch.setattr(BatchVerdicts, "why", counted)
    with ledger_kit.opened(place) as ledger:
        assert settling.newest(ledger) is None
        ledger_kit.add(place, ledger_kit.records(epoch=3))
        settling.settle(ledger, SIGNER, 3)
        judged.clear()
        assert settling.newest(ledger) == 3
        assert judged == [], "the log's key signed which batches of epoch 3 count"
        ledger_kit.add(place, ledger_kit.records(epoch=4))
        judged.clear()
        assert settling.newest(ledger) == 4
        assert judged == [4], "of three new batches"
    inserter = Inserter(database, place)
    (true,) = ledger_kit.batches(place, ledger_kit.records(epoch=9, validators=[V1]))
    forged, last = signed_anew(true, keys.read(b"99" * 32)), inserter.last()
    inserter.put(batch_row(forged, last), record_rows(forged, last))
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        assert settling.newest(ledger) == view.highest_epoch() == 4


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("[]", ()),
        ("[[1,1]]", ((1, 1),)),
        ("[[1,3],[4,4],[9007199254740991,9007199254740991]]", ((1, 3), (4, 4), (2**53 - 1, 2**53 - 1))),
        ("[[1,3],[3,4]]", ()),
        ("[[5,6],[1,2]]", ()),
        ("[[2,1]]", ()),
        ("[[0,1]]", ()),
        ("[[1,9007199254740992]]", ()),
        ("[[1,2.0]]", ()),
        ("[[true,2]]", ()),
        ("[[1]]", ()),
        ('["12"]', ()),
        ("7", ()),
        ("[[1,2]", ()),
        ("[" * 100_000, ()),
        (None, ()),
    ],
)
def test_members_are_ranges_that_ascend_or_none(text: str | None, members: tuple[tuple[int, int], ...]) -> None:
    assert members_of(text) == members


def test_ranges_that_overlap_hold_each_seq_once() -> None:
    seqs = SeqRanges([(7, 9), (1, 2), (3, 3), (8, 8), (20, 21), (9, 12)])
    assert seqs.pairs == [(1, 3), (7, 12), (20, 21)]
    assert [seq for seq in range(24) if seq in seqs] == [1, 2, 3, *range(7, 13), 20, 21]
    assert 1 not in SeqRanges([])


def test_a_record_has_the_task_sets_of_every_batch_that_has_it() -> None:
    sets = TaskSets({1: "a", 2: None}, [("b", [(1, 4)]), ("c", [(3, 3)]), ("b", [(9, 9)])])
    assert [sets.of(seq, batch) for seq, batch in ((1, 1), (3, 1), (5, 2), (9, 7), (8, 7))] == [
        {"a", "b"},
        {"a", "b", "c"},
        {None},
        {"b"},
        set(),
    ]
