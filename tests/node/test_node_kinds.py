"""A node judges every kind: from a pull over a real service, by the real judge, to a settled epoch."""

import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import node_kit
import workflow_run_kit
from assay.errors import BadInput
from assay.folder.files import write_text
from assay.judge.workflow.tasks import everything, manifest_text
from assay.node import status
from ledger_kit import V1
from node_kit import lines, one_round
from service_kit import running
from workflow_chaos import serving, well


def scores(folder: Path, epoch: int) -> dict[str, str | None]:
    """Settle an epoch of the operator's folder; participant → agreed score."""
    node_kit.settle(folder, epoch)
    with ledger_kit.opened(folder) as ledger, ledger.store.reading() as view:
        stored = view.settlement(epoch)
        assert stored is not None
        document = json.loads(stored.document)
    return {row["participant"]: row["score"] for row in document["agreed"]}


def records(folder: Path) -> list[dict[str, Any]]:
    """What the ledger has, in the order of acceptance."""
    with ledger_kit.opened(folder) as ledger, ledger.store.reading() as view:
        return [json.loads(record.body) for record in view.records()]


def test_workflows_are_asked_the_tasks_of_each_epoch(tmp_path: Path) -> None:
    mine, told = tmp_path / "mine", list[str]()
    with serving(do=well("done"), fail=well("no"), ping=well("here")) as server:
        plan = workflow_run_kit.plan
        theirs = workflow_run_kit.competition(
            tmp_path / "flows", server, {"ann": plan(), "bob": plan("fail")}, validators=(V1,), services=""
        )
        write_text(theirs / "tasks" / "t0" / "answer.txt", "only validators may see it")
        write_text(theirs / "tasks.txt", manifest_text(everything(theirs / "tasks")))
        with running(node_kit.with_ledger(theirs, "flows")) as service:
            with pytest.raises(BadInput, match=r"services\.toml: no such file"):
                one_round(service, mine)
            assert sorted(path.name for path in (mine / "tasks").iterdir()) == ["t0", "t1"]
            assert (mine / "tasks" / "t0" / "answer.txt").exists()
            content = f"/v1/flows/tasks/{service.ask('GET', '/v1/flows').json['task_set']}/content"
            assert service.ask("GET", content).status == 401
            shutil.copy(theirs / "services.toml", mine)
            assert one_round(service, mine, told)
            assert told[-1] == "epoch 1: sent 4 records, 4 of them new to the service"
            agreed = scores(theirs, 1)
            assert Decimal(agreed["ann"] or 0) > Decimal("0.9") > Decimal("0.5") > Decimal(agreed["bob"] or 1)
            shutil.rmtree(mine / "evidence")
            assert one_round(service, mine, told)
            assert [row["epoch"] for row in map(json.loads, lines(mine))] == [2] * 4
            write_text(theirs / "tasks" / "t0" / "answer.txt", "another one")
            write_text(theirs / "tasks.txt", manifest_text(everything(theirs / "tasks")))
            assert one_round(service, mine, told)
            assert told[-1].endswith("This node uses the new set from epoch 3 on; you need do nothing.")
            node_kit.settle(theirs, 2)
            assert one_round(service, mine, told)
            assert [row["epoch"] for row in map(json.loads, lines(mine))] == [2] * 4 + [3] * 4
            shutil.rmtree(mine)
            mine.mkdir()
            shutil.copy(theirs / "services.toml", mine)
            assert one_round(service, mine, told)
            assert told[-1] == "epoch 3: Not judged again, because the ledger has it from this key: 4 results."
            assert (lines(mine), len(records(theirs)), node_kit.conflicts(theirs)) == ([], 12, 0)
            assert status.read_status(mine).wrong == ()
