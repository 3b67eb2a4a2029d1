"""`assay push`: what was judged gets into the service's ledger once, whatever happens between judging and its answer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import node_kit
import small_folder
from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.files import write_bytes, write_text
from assay.ledger import intake
from assay.node import spool
from assay.node.spool import Spool, waiting
from assay.serve.client import Client
from cli_kit import output, run
from ledger_kit import V1, V2, VALIDATORS
from node_kit import KEY
from service_kit import Running, running
from small_folder import record

SIGNER = VALIDATORS[V1]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setenv("ASSAY_KEYS", node_kit.keys_in(tmp_path / "keys"))
    with running(ledger_kit.once(tmp_path / "desk" / "small", ("spool",), ledger_kit.ledger_folder)) as started:
        yield started


@pytest.fixture
def mine(service: Running, tmp_path: Path) -> Path:
    """The validator's folder."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("scheme.toml", "participants.csv", "validators.csv", "tasks.txt", "ledger.toml"):
        write_text(folder / name, (desk(service) / name).read_text())
    return folder


def desk(service: Running) -> Path:
    return service.site.competition("small").folder


def address(service: Running) -> tuple[str, ...]:
    return "--url", f"{service.address}/small", "--key", KEY


def judged(folder: Path, task: str = "t1", *, epoch: int = 3, validator: str = V1, **changes: Any) -> None:
    """A line of evidence, as a run writes it."""
    file = folder / "evidence" / "run-val-1.jsonl"
    file.parent.mkdir(exist_ok=True)
    fields = {"epoch": epoch, "validator": validator, "participant": "m1", "submission": "s1", "task": task}
    with file.open("ab") as opened:
        opened.write(canonical(record("tests", **fields | changes)) + b"\n")


def pushed(service: Running, folder: Path, code: int = 0) -> Any:
    return json.loads(run("push", folder, *address(service), "--json", code=code).stdout)


def sent(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "batches" / "sent").glob("*"))


def others(service: Running, epoch: int) -> None:
    """Evidence of other validators, with which an epoch can be settled."""
    ledger_kit.add(desk(service), ledger_kit.records(epoch=epoch, validators=[key for key in VALIDATORS if key != V1]))
    node_kit.settle(desk(service), epoch)


def test_what_is_judged_is_sent_once(service: Running, mine: Path) -> None:
    judged(mine)
    judged(mine, "t2", validator=V2)  # evidence of somebody else is not this validator's to sign
    first = pushed(service, mine)
    assert (first["signed"], first["new"], [row["outcome"] for row in first["sent"]]) == (1, 1, ["accepted"])
    assert (waiting(mine), len(sent(mine))) == ([], 1)
    assert "has everything that was judged here" in output("push", mine, *address(service))
    judged(mine, "t2")
    printed = output("push", mine, *address(service), columns=10_000)
    assert printed.splitlines()[0].endswith(".batch: 1 new, 0 known")
    assert "1 record accepted by the service, in 1 batch." in printed
    assert [row[:3] for row in node_kit.stored(desk(service))] == [(3, "t1", "pass"), (3, "t2", "pass")]


def test_a_batch_whose_answer_was_lost_and_one_that_was_signed_twice_add_nothing(service: Running, mine: Path) -> None:
    judged(mine)
    pushed(service, mine)
    (mine / "batches" / "sent" / sent(mine)[0]).rename(mine / "batches" / sent(mine)[0])  # killed before it was put away
    (mine / "node" / "signed.json").unlink()  # killed before the offset was noted
    judged(mine, "t2")
    again = pushed(service, mine)
    assert (again["signed"], again["new"], node_kit.conflicts(desk(service))) == (2, 1, 0)
    assert len(node_kit.stored(desk(service))) == 2
    others(service, 3)
    (mine / "batches" / "sent" / sent(mine)[0]).rename(mine / "batches" / sent(mine)[0])
    late = pushed(service, mine)
    assert [(row["outcome"], row["again"]) for row in late["sent"]] == [("known", False)], "it came in time"


def test_evidence_of_a_settled_epoch_is_signed_for_the_open_one(service: Running, mine: Path) -> None:
    judged(mine)
    assert Spool(mine, SIGNER).sign() == 1  # and the service is away
    others(service, 3)
    judged(mine, "t2")
    late = pushed(service, mine)
    assert [(row["epoch"], row["outcome"], row["again"]) for row in late["sent"]] == [(4, "accepted", True)] * 2
    rows = [row[:3] for row in node_kit.stored(desk(service)) if row[0] == 4]
    assert (rows, waiting(mine), node_kit.conflicts(desk(service))) == ([(4, "t1", "pass"), (4, "t2", "pass")], [], 0)
    assert b'"epoch":3' in (mine / "evidence" / "run-val-1.jsonl").read_bytes(), "the observation stays as it is"
    printed = output("push", mine, *address(service))
    assert "has everything" in printed


def test_what_the_service_refuses_waits_and_is_named(service: Running, mine: Path) -> None:
    judged(mine)
    tasks = mine / "tasks.txt"
    before = tasks.read_text()
    write_text(tasks, "t1\nt2\nt3\n")
    refused = pushed(service, mine, code=2)
    assert (refused["sent"], len(waiting(mine))) == ([], 1)
    assert "task set" in refused["refused"][0]["detail"]
    write_text(tasks, before)
    done = run("push", mine, *address(service), code=2, columns=10_000)
    assert "error:" in done.stderr
    assert "0 records accepted by the service, in 0 batches; 1 refused." in done.stdout
    (mine / "batches" / "no.batch").write_text("no batch\n")
    assert len(pushed(service, mine, code=2)["refused"]) == 2
    others(service, 3)
    assert len(pushed(service, mine, code=2)["refused"]) == 2, "signed for the open epoch, and still of another task set"
    assert [path.name[:7] for path in waiting(mine)] == ["epoch-4", "no.batc"]


def test_a_batch_goes_by_hand_as_well(service: Running, mine: Path) -> None:
    judged(mine)
    Spool(mine, SIGNER).sign()
    rules = intake.intake_rules(desk(service))
    with ledger_kit.opened(desk(service)) as ledger:
        assert intake.accept(ledger.store, waiting(mine)[0], rules).new == 1
    assert [row["outcome"] for row in pushed(service, mine)["sent"]] == ["known"]


def test_a_half_written_line_waits_and_a_new_file_begins_anew(service: Running, mine: Path) -> None:
    judged(mine)
    file = mine / "evidence" / "run-val-1.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:20])
    desk_spool = Spool(mine, SIGNER)
    assert (desk_spool.sign(), desk_spool.sign()) == (1, 0)
    file.write_bytes(whole + b"\n")
    assert desk_spool.sign() == 0, "an empty line is no record"
    file.write_bytes(whole.replace(b'"t1"', b'"t2"'))
    assert desk_spool.sign() == 1, "another file, however long"
    (mine / "node" / "signed.json").write_text("no json")
    file.write_bytes(b'{"kind":"tests"}\n')
    with pytest.raises(BadInput, match=r"run-val-1\.jsonl"):
        desk_spool.sign()


def test_many_records_go_in_several_batches(service: Running, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for trial in (1, 2, 3):
        judged(mine, trial=trial)
    monkeypatch.setattr(spool, "_AT_ONCE", 2)
    assert [row["new"] for row in pushed(service, mine)["sent"]] in ([2, 1], [1, 2])


def test_a_disk_that_is_full_loses_nothing(service: Running, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(mine)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with Client(f"{service.address}/small", SIGNER) as client, monkeypatch.context() as patched:
        patched.setattr(spool, "flush_folder", full)
        with pytest.raises(BadInput, match="cannot be moved"):
            Spool(mine, SIGNER).push(client, 3)
    assert [row["outcome"] for row in pushed(service, mine)["sent"]] in ([], ["known"])
    assert len(node_kit.stored(desk(service))) == 1


def test_where_the_epoch_is_part_of_what_is_counted_it_stays(tmp_path: Path) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "small", "points")
    (folder / "evidence").mkdir()
    fields = {"epoch": 3, "validator": V1, "participant": "m1", "submission": ""}
    (folder / "evidence" / "run.jsonl").write_bytes(canonical(record("points", **fields)) + b"\n")
    points = Spool(folder, SIGNER)
    assert points.sign() == 1
    assert points._renewed(waiting(folder)[0], 4) is None


def test_what_is_about_an_epoch_that_is_settled_is_put_away_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", node_kit.keys_in(tmp_path / "keys"))
    scheme = small_folder.SCHEMES["given"] + "[consensus]\nmin_validators = 1\n"
    theirs = ledger_kit.ledger_folder(tmp_path / "desk" / "small", "given", scheme_toml=scheme)
    with running(theirs) as service:
        mine = tmp_path / "mine"
        output("pull", mine, *address(service))
        (mine / "evidence").mkdir()
        for epoch in (1, 2):
            about = {"epoch": epoch, "validator": V1, "participant": "m1", "submission": "s1"}
            write_bytes(mine / "evidence" / f"{epoch}.jsonl", canonical(record("given", **about)) + b"\n")
        node_kit.settle(theirs, 1)
        done = run("push", mine, *address(service), "--json")
        document = json.loads(done.stdout)
        assert [(row["epoch"], row["outcome"]) for row in document["sent"]] == [(2, "accepted")]
        (late,) = document["late"]
        assert (late["epoch"], document["refused"]) == (1, [])
        assert "settled" in late["detail"]
        assert waiting(mine) == []
        assert Path(late["file"]).is_file()
        assert Path(late["file"]).parent == mine / "batches" / "late"
