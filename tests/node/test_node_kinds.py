"""A node judges every kind: from a pull over a real service, by the real judge, to a settled epoch."""

import functools
import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import bounty_run_kit
import github_kit
import ledger_kit
import node_kit
import small_folder
import workflow_run_kit
from assay.competition import open_competition
from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.files import write_text
from assay.judge.rubric.run import RubricOptions
from assay.judge.service import ModelAccess
from assay.judge.workflow.tasks import everything, manifest_text
from assay.node import status
from cli_kit import run
from depth import depth
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


@pytest.mark.full
def test_workflows_are_asked_the_tasks_of_each_epoch(tmp_path: Path) -> None:
    mine, messages = tmp_path / "mine", list[str]()
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
            assert one_round(service, mine, messages)
            assert messages[-1] == "epoch 1: sent 4 records, 4 of them new to the service"
            agreed = scores(theirs, 1)
            assert Decimal(agreed["ann"] or 0) > Decimal("0.9") > Decimal("0.5") > Decimal(agreed["bob"] or 1)
            shutil.rmtree(mine / "evidence")
            assert one_round(service, mine, messages)
            assert [row["epoch"] for row in map(json.loads, lines(mine))] == [2] * 4
            write_text(theirs / "tasks" / "t0" / "answer.txt", "another one")
            write_text(theirs / "tasks.txt", manifest_text(everything(theirs / "tasks")))
            assert one_round(service, mine, messages)
            assert messages[-1].endswith("This node uses the new set from epoch 3 on; you need do nothing.")
            node_kit.settle(theirs, 2)
            assert one_round(service, mine, messages)
            assert [row["epoch"] for row in map(json.loads, lines(mine))] == [2] * 4 + [3] * 4
            shutil.rmtree(mine)
            mine.mkdir()
            shutil.copy(theirs / "services.toml", mine)
            assert one_round(service, mine, messages)
            assert messages[-1] == "epoch 3: Not judged again, because the ledger has it from this key: 4 results."
            assert (lines(mine), len(records(theirs)), node_kit.conflicts(theirs)) == ([], 12, 0)
            assert status.read_status(mine).wrong == ()


def validators(folder: Path) -> Path:
    """The same folder with one validator, who has a key, and a ledger."""
    write_text(folder / "validators.csv", f"key,stake,name\n{V1},100,val-1\n")
    name = open_competition(folder).scheme.name
    return node_kit.with_ledger(folder, name)


def test_solutions_are_judged_once_by_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    mine, messages = tmp_path / "mine", list[str]()
    theirs = validators(bounty_run_kit.make_run(tmp_path / "small"))
    with bounty_run_kit.scripted() as model, running(theirs) as service:
        own = RubricOptions(model=ModelAccess(model.url, bounty_run_kit.KEY))
        with pytest.raises(BadInput, match="no model is named that could judge; give the address"):
            one_round(service, mine, own=RubricOptions())
        solution = service.ask("GET", f"/v1/small/submissions/{records_of(theirs, 'ann')}/content")
        assert solution.status == 401, "nobody else reads a solution"
        assert one_round(service, mine, messages, own)
        assert messages[-1] == "epoch 1: sent 3 records, 3 of them new to the service"
        asked = model.statuses.total()
        shutil.rmtree(mine)
        assert one_round(service, mine, messages, own)
        assert messages[-1] == "epoch 1: Not judged again, because the ledger has it from this key: 3 results."
        assert model.statuses.total() == asked
        assert scores(theirs, 1) == {"ann": "1", "bob": "0.6", "cyd": "0"}


def records_of(folder: Path, participant: str) -> str:
    """The submission of a participant, as participants.csv has it."""
    rows = [line.split(",") for line in (folder / "participants.csv").read_text().splitlines()]
    column = rows[0].index("submission")
    return next(row[column] for row in rows if row[0] == participant)


def test_points_are_counted_when_an_epoch_is_over(tmp_path: Path) -> None:
    mine, messages = tmp_path / "mine", list[str]()
    issues = [github_kit.issue(1, 50, github_kit.label("valid", 1)), github_kit.issue(2, 51, github_kit.label("valid", 2))]
    with github_kit.serving(github_kit.facts(issues, now=github_kit.at(1, 30))) as github:
        theirs = validators(github_kit.github_competition(tmp_path / "bounty", github.url))
        with running(theirs) as service:
            assert one_round(service, mine, messages)
            assert (lines(mine), status.read_status(mine).wrong) == ([], ()), "epoch 1 is not over"
            assert status.read_status(mine).content["looks"], "the node looks again, without news of the service"
            github.world.now = github.world.now.fromisoformat(github_kit.at(2, 10))
            assert one_round(service, mine, messages)
            assert messages[-1] == "epoch 1: sent 3 records, 3 of them new to the service"
            ann, ben = (github_kit.public_of(name) for name in ("ann", "ben"))
            agreed = scores(theirs, 1)
            assert (agreed[ann], agreed[ben]) == ("0.05", "0")
            github.world.now = github.world.now.fromisoformat(github_kit.at(3, 10))
            assert one_round(service, mine, messages)
            agreed = scores(theirs, 2)
            assert (agreed[ann], agreed[ben]) == ("0.05", "0.05")
    assert (len(records(theirs)), node_kit.conflicts(theirs)) == (6, 0)


def has(folder: Path, count: int) -> bool:
    """Whether the ledger has so many records."""
    return len(records(folder)) == count


@pytest.mark.full
def test_scores_that_are_given_are_signed_and_sent_when_they_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", node_kit.keys_in(tmp_path / "keys"))
    mine = tmp_path / "mine"
    theirs = validators(small_folder.make(tmp_path / "small", "given", evidence=None))
    write_text(theirs / "scheme.toml", (theirs / "scheme.toml").read_text() + "[consensus]\nmin_validators = 1\n")
    with running(theirs) as service, node_kit.node(mine, f"{service.address}/small") as process:
        node_kit.until(lambda: (mine / "scheme.toml").exists() and "seen" in status.note(mine), "a round")
        assert status.read_status(mine).wrong == ()
        for epoch, score in depth(((1, "0.25"),), ((1, "0.25"), (2, "0.75"))):
            about = {"epoch": epoch, "validator": V1, "participant": "m1", "submission": "s1", "score": score}
            (mine / "evidence").mkdir(exist_ok=True)
            with (mine / "evidence" / "scored.jsonl").open("ab") as file:
                file.write(canonical(small_folder.record("given", **about)) + b"\n")
            node_kit.until(functools.partial(has, theirs, epoch), "it is sent")
            assert scores(theirs, epoch)["m1"] == score
        process.terminate()
        assert process.wait(node_kit.PATIENCE) == 0
    shown = " ".join(run("node", "status", mine, code=1).stdout.split())
    assert "This node signs and sends what is put into evidence/: nothing here judges the kind 'given'." in shown
