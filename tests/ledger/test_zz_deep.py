"""What follows from closed epochs is stored with each receipt: it says the same as all records, whatever came before."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import ledger_kit
import small_folder
from assay.errors import BadInput
from assay.ledger import eligible, intake, settling, standing
from assay.ledger.audit import audit_standing
from assay.ledger.store import Damaged
from depth import depth
from ledger_kit import SIGNER, V1, V2, V3

Json = dict[str, Any]
VALIDATORS = (V1, V2, V3)
KINDS = ("tests", "workflow", "rubric", "points", "given")
SCHEMES = {
    "tests": '[score]\nkind = "tests"\ntrials = 2\n',
    "workflow": '[score]\nkind = "workflow"\nwindow = 3\n',
    "rubric": '[score]\nkind = "rubric"\nchecks = [{id = "c1", weight = 10000, skippable = false}]\n',
    "points": '[score]\nkind = "points"\nwindow_epochs = 2\nrepositories = {"o/r" = "5", "o/s" = "2"}\n',
    "given": '[score]\nkind = "given"\n',
}
RULES = '[scheme]\nname = "small"\n{score}[consensus]\nmin_validators = 1\nmin_stake = "0%"\n'


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "MANY", -1)


def made(place: Path, kind: str, database: str = "ledger.db", more: str = "") -> Path:
    return ledger_kit.made(place, kind, database, scheme_toml=RULES.format(score=SCHEMES[kind]) + more)


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
        document = json.loads(settling.stored_settlement(view, receipt.epoch)[1])
        whole = settling.again(view, receipt, whole=True)
        held = standing.find(view, document, receipt.epoch)
        assert held is not None
        assert settling.again(view, receipt).digest == whole.digest
        bound = settling.rests(view, document, whole.document)
        assert held.results() == bound
        for row in whole.document["agreed"]:
            about = [stored for _, stored in settling.about(view, document, whole.document, row["participant"])]
            root = eligible.evidence.evidence_root([stored.seq for stored in about], [stored.digest for stored in about])
            assert {"root": root, "count": len(about)} == bound[row["participant"]]
        assert audit_standing(ledger) == len(held.rows) + 1
        list(settling.replay(ledger))


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
        "records": st.lists(entries, max_size=14),
        "submissions": st.fixed_dictionaries({"m1": names, "m2": names}, optional={"m3": names}),
        "validators": st.sampled_from((VALIDATORS, VALIDATORS, VALIDATORS, (V1, V2), (V2, V3))),
        "tasks": st.sampled_from(("t1\nt2\n", "t1\nt2\n", "t1\nt3\n")),
    }
)


def as_record(kind: str, entry: Json, epoch: int) -> Json:
    level = entry["level"]
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


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_records_say_the_same(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    @hypothesis_settings(max_examples=40, phases=[Phase.explicit, Phase.generate])
    @given(st.lists(epochs, min_size=2, max_size=5))
    def season(steps: list[Json]) -> None:
        place = tmp_path_factory.mktemp("season") / "small"
        ledger_kit.once(place, ("standing", kind), lambda template: made(template, kind))
        for epoch, step in enumerate(steps, start=1):
            write(place, step["submissions"], tasks=step["tasks"])
            add(place, kind, step["records"], epoch)
            write(place, step["submissions"], step["validators"], step["tasks"])
            try:
                settle(place, epoch)
            except BadInput:
                assert kind == "rubric" or not step["records"] or True
                return
            check(place)

    season()
