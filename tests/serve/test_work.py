"""What validators fetch and hand over: the work that is theirs, files by digest that resume, objects that are stored once."""

import csv
import io
import json
import os
import re
import shutil
import sys
import tarfile
import threading
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import assay
import judge_kit
import ledger_kit
from assay.exact import canonical
from assay.folder import files
from assay.judge import tree
from assay.judge.terminal.competition import submit_agent
from assay.kind import find
from assay.ledger import keys, settling
from assay.ledger.counting import BatchVerdicts
from assay.ledger.store import View
from assay.serve import judged, watching, work
from assay.serve.client import Client
from assay.serve.desk import FolderDesk
from assay.serve.signed import sign_request
from ledger_kit import V1, V2, V3, VALIDATORS
from service_kit import Answer, Running, listing, running

EXAMPLES = Path(__file__).parents[2] / "examples"
STRANGER = keys.read(b"66" * 32)
WORK = "/v1/small/work"
BODY = b"a trial's log\n" * 1000
OBJECT = f"/v1/small/objects/{sha256(BODY).hexdigest()}"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    folder = ledger_kit.once(tmp_path / "small", ("work",), ledger_kit.ledger_folder)
    with running(folder) as started:
        yield started


def folder_of(service: Running) -> Path:
    return service.site.competition("small").folder


def asked(service: Running, validator: str = V1, query: str = "") -> Any:
    answer = service.signed(VALIDATORS[validator], "GET", WORK + query)
    assert answer.status == 200, answer
    return answer.json


def test_work_says_what_is_open_and_what_the_ledger_has_already(service: Running) -> None:
    scheme = folder_of(service) / "scheme.toml"
    files.write_text(scheme, scheme.read_text().replace("[score]\n", "[score]\ntrials = 2\n"))
    first = asked(service)
    tasks = service.ask("GET", "/v1/small").json["task_set"]
    assert (first["epoch"], first["settled"], first["kind"], first["task_set"]) == (1, None, "tests", tasks)
    nothing = {"records": 0, "trials": {}}
    rows = [(row["participant"], row["submission"], row["assigned"], row["evidence"]) for row in first["submissions"]]
    assert rows == [("m1", "s1", True, nothing), ("m2", "s2", True, nothing)]
    ledger_kit.add(folder_of(service), ledger_kit.records(validators=[V1]))
    for trial in (2, 3):  # the rules ask for two
        ledger_kit.add(folder_of(service), ledger_kit.records(validators=[V1], trial=trial)[:1])
    mine, others = asked(service), asked(service, V2)
    assert mine["submissions"][0]["evidence"] == {"records": 4, "trials": {"t1": [1, 2], "t2": [1]}}
    assert others["submissions"][0]["evidence"] == nothing
    assert asked(service) == mine, "what was read before is not counted twice"
    ledger_kit.add(folder_of(service), ledger_kit.records(validators=[V2, V3]))
    with ledger_kit.opened(folder_of(service)) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, 3, without_scores=True)
    assert (asked(service)["epoch"], asked(service)["settled"]) == (4, 3)
    for answer in (service.ask("GET", WORK), service.signed(STRANGER, "GET", WORK)):
        assert answer.status in (401, 403)


def test_what_is_too_old_to_count_is_to_be_judged_again(service: Running) -> None:
    folder = folder_of(service)
    scheme = folder / "scheme.toml"
    files.write_text(scheme, scheme.read_text() + "[consensus]\nmax_age_epochs = 1\n")

    def evidence() -> list[tuple[int, int]]:
        rows = asked(service)["submissions"]
        return [(row["evidence"]["records"], sum(map(len, row["evidence"]["trials"].values()))) for row in rows]

    ledger_kit.add(folder, ledger_kit.records(epoch=1, validators=[V1]))
    assert evidence() == [(2, 2), (2, 2)]
    for epoch, there in ((1, 2), (2, 0)):
        with ledger_kit.opened(folder) as ledger:
            settling.settle(ledger, ledger_kit.SIGNER, epoch, without_scores=True)
        assert evidence() == [(there, there)] * 2
    again = [row | {"outcome": "fail"} for row in ledger_kit.records(epoch=3, validators=[V1])]
    [batch] = ledger_kit.batches(folder, again)
    sent = service.signed(VALIDATORS[V1], "POST", "/v1/small/evidence", batch.data).json
    assert [(row["outcome"], row["new"], row["conflicts"]) for row in sent["batches"]] == [("accepted", 4, 0)]
    assert evidence() == [(2, 2), (2, 2)]


def test_evidence_is_read_once_and_only_that_of_who_asks(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    place, read = folder_of(service), list[str]()

    def noted(owner: type, name: str) -> None:
        look = getattr(owner, name)

        def noting(*arguments: Any) -> Any:
            read.append(f"batch {arguments[1].id}" if name == "why" else name)
            return look(*arguments)

        monkeypatch.setattr(owner, name, noting)

    for owner, name in ((View, "between"), (View, "run"), (BatchVerdicts, "why")):
        noted(owner, name)
    ledger_kit.add(place, ledger_kit.records(validators=[V1, V2]))
    read.clear()
    assert asked(service)["submissions"][0]["evidence"]["records"] == 2
    assert sorted(set(read)) == ["batch 1", "between", "run"]
    read.clear()
    assert asked(service)["submissions"][0]["evidence"]["records"] == 2
    assert read == []
    ledger_kit.add(place, ledger_kit.records(validators=[V2, V3], epoch=4))
    read.clear()
    asked(service)
    assert read == [], "evidence of others is not read"
    ledger_kit.add(place, ledger_kit.records(validators=[V1], trial=2))
    read.clear()
    assert asked(service)["submissions"][0]["evidence"]["records"] == 4
    assert read.count("run") == 0
    assert {name for name in read if name.startswith("batch")} == {"batch 5"}


def test_a_desk_holds_few_bytes_however_much_was_judged(service: Running) -> None:
    """400 trials of each task, as sets of numbers, took 30 kB for each submission."""
    place = folder_of(service)
    files.write_text(place / "scheme.toml", (place / "scheme.toml").read_text().replace("[score]\n", "[score]\ntrials = 400\n"))
    desk = work.WorkDesk(service.site.competition("small"))
    many = [row for trial in range(1, 401) for row in ledger_kit.records(validators=[V1], trial=trial)]
    ledger_kit.add(place, [*many, *ledger_kit.records(validators=[V1], submission="s0")])
    for _ in range(2):
        rows = json.loads(desk.document(desk.offer(V1)))["submissions"]
        assert [row["evidence"]["trials"]["t2"] for row in rows] == [[*range(1, 401)]] * 2
        ledger_kit.add(place, ledger_kit.records(validators=[V1], trial=401))
    assert desk._judged is not None
    about = desk._judged._states[V1].about
    assert about.keys() == {"s1", "s2"}, "what nobody may judge any more is not kept"
    assert sum(sys.getsizeof(part) for known in about.values() for part in (known, *known)) < 800


def test_evidence_about_a_submission_that_comes_back_is_known_again(service: Running) -> None:
    place = folder_of(service)
    participants = place / "participants.csv"
    whole = participants.read_text()
    ledger_kit.add(place, ledger_kit.records(validators=[V1]))
    assert asked(service)["submissions"][1]["evidence"]["records"] == 2
    files.write_text(participants, whole.replace(",s2", ",s9"))
    assert asked(service)["submissions"][1]["evidence"] == {"records": 0, "trials": {}}
    ledger_kit.add(place, ledger_kit.records(validators=[V1], trial=2))
    assert asked(service)["submissions"][1]["evidence"]["records"] == 0
    files.write_text(participants, whole)
    assert asked(service)["submissions"][1]["evidence"] == {"records": 4, "trials": {"t1": [1], "t2": [1]}}


def test_what_somebody_else_signed_is_not_what_a_validator_judged(service: Running) -> None:
    """Whoever may insert into a shared database could otherwise keep a validator from judging."""
    place = folder_of(service)

    def forge(trial: int) -> None:
        (true,) = ledger_kit.batches(place, ledger_kit.records(validators=[V1], trial=trial))
        signed = keys.sign_envelope(b64decode(json.loads(true.envelope)["payload"]), STRANGER)
        forged = replace(true, envelope=canonical(signed))
        with ledger_kit.opened(place) as ledger, ledger.store.writing() as tx:
            tx.add_batch(forged)

    forge(1)
    assert asked(service)["submissions"][0]["evidence"]["records"] == 0  # looked up
    forge(2)
    assert asked(service)["submissions"][0]["evidence"]["records"] == 0  # as it came
    ledger_kit.add(place, ledger_kit.records(validators=[V1]))
    assert asked(service)["submissions"][0]["evidence"]["records"] == 2


def test_trials_are_bits() -> None:
    bits = judged.TrialBits(("b", "a", "ä"), 3)
    assert [bits.bit(*trial) for trial in (("c", 1), ("a", 4), ("a", 0), ("b", 1), ("a", 3))] == [0, 0, 0, 1, 1 << 5]
    some = bits.bit("ä", 2) | bits.bit("a", 1) | bits.bit("a", 3)
    assert (bits.document(some), bits.document(0)) == ('{"a":[1,3],"ä":[2]}'.encode(), b"{}")
    learnt = judged.TrialBits((), None)
    both = learnt.bit("x", 1) | learnt.bit("w", 1) | learnt.bit("x", 1) | learnt.bit("x", 2)
    assert learnt.document(both) == b'{"w":[1],"x":[1]}'


def test_assign_draws_whose_work_it_is(service: Running) -> None:
    place = folder_of(service)
    scheme = place / "scheme.toml"
    scheme.write_text(f"{scheme.read_text()}\n[consensus]\nassign = 1\nmin_validators = 1\n")
    (place / "randomness.csv").write_text("".join(f"epoch,hex\n3,{'ab' * 32}\n4,{'cd' * 32}\n"))
    refused = service.signed(VALIDATORS[V1], "GET", WORK)
    assert (refused.status, "no randomness of epoch 1" in refused.json["detail"]) == (503, True)
    ledger_kit.add(place, ledger_kit.records(epoch=3))
    assigned: dict[str, list[str]] = {}
    for validator in VALIDATORS:
        for row in asked(service, validator)["submissions"]:
            if row["assigned"]:
                assigned.setdefault(row["participant"], []).append(validator)
    assert {key: len(drawn) for key, drawn in assigned.items()} == {"m1": 1, "m2": 1}
    with ledger_kit.opened(place) as ledger:
        seats = settling.shown(ledger).seats
        settled = settling.shown(ledger)
    assert seats.drawn is not None
    for column, key in enumerate(settled.frame.participants):
        (row,) = seats.drawn[:, column].nonzero()[0].tolist()
        assert assigned[key] == [settled.frame.validators[row]]


def test_a_request_for_work_waits_for_other_work(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.05)
    place = folder_of(service)
    before = asked(service)
    assert asked(service, query="?wait=60&seen=other")["seen"] == before["seen"], "it waits only for the state it knows"
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(asked(service, query=f"?wait=60&seen={before['seen']}")))
    waiting.start()
    ledger_kit.add(place, ledger_kit.records(epoch=1, validators=[V2]))  # evidence is no other work
    participants = place / "participants.csv"
    files.write_text(participants, participants.read_text().replace(",s2", ",s9"))  # at once, as Assay writes it
    waiting.join(60)
    assert [row["submission"] for row in answers[0]["submissions"]] == ["s1", "s9"]
    late = asked(service, query=f"?wait=1&seen={answers[0]['seen']}")
    assert late["seen"] == answers[0]["seen"]
    monkeypatch.setattr(work, "POLLS", 0)
    refused = service.signed(VALIDATORS[V1], "GET", f"{WORK}?wait=60&seen={late['seen']}")
    assert (refused.status, "retry-after" in refused.headers) == (429, True)
    assert service.signed(VALIDATORS[V1], "GET", f"{WORK}?wait=61").status == 400


def test_work_is_of_one_state_of_the_folder(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are not those of before a change, beside the digest of the files after it."""
    participants, read = folder_of(service) / "participants.csv", FolderDesk.files

    def meanwhile(*words: Any) -> Any:
        files.write_text(participants, participants.read_text().replace(",s2", ",s9"))
        return read(*words)

    monkeypatch.setattr(FolderDesk, "files", meanwhile)
    assert [row["submission"] for row in asked(service)["submissions"]] == ["s1", "s9"]


def test_the_files_of_a_submission_come_as_they_were_submitted(service: Running, tmp_path: Path) -> None:
    agent = judge_kit.make_agent(tmp_path / "agent", "echo done\n")
    (tmp_path / "agent" / "bin").mkdir()
    (tmp_path / "agent" / "bin" / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "agent" / "bin" / "tool").chmod(0o755)
    (tmp_path / "agent" / "link").symlink_to("bin/tool")
    digest = submit_agent(folder_of(service), "m1", str(tmp_path / "agent")).agent.digest
    assert digest != agent.digest
    address = f"/v1/small/submissions/{digest}/content"
    whole = service.signed(VALIDATORS[V1], "GET", address)
    assert (whole.status, whole.headers["etag"], whole.headers["cache-control"]) == (200, f'"{digest}"', "private, no-cache")
    with tarfile.open(fileobj=io.BytesIO(whole.body)) as archive:
        archive.extractall(tmp_path / "out", filter="tar")
    assert tree.digest(tmp_path / "out") == tree.digest(tmp_path / "agent")
    headers = sign_request(VALIDATORS[V2], "GET", f"{service.address}{address}", sha256(b"").digest())
    rest = service.ask("GET", address, headers=headers | {"Range": "bytes=512-", "If-Range": whole.headers["etag"]})
    assert (rest.status, rest.body) == (206, whole.body[512:])
    assert service.ask("GET", address).status == 401
    for other in (f"sha256:{'0' * 64}", "sha256:0", "..%2f..%2fledger.toml"):
        assert service.signed(VALIDATORS[V1], "GET", f"/v1/small/submissions/{other}/content").status in (400, 404)
    (folder_of(service) / "agents").rename(tmp_path / "moved")
    assert service.signed(VALIDATORS[V1], "GET", address).body == whole.body, "the copy that was made stays"


def test_every_kind_says_where_the_files_of_a_submission_are(tmp_path: Path) -> None:
    workflow = shutil.copytree(EXAMPLES / "cswon", tmp_path / "cswon")
    row = next(row for row in csv.DictReader((workflow / "participants.csv").read_text().splitlines()) if row["key"] == "alba")
    assert find("workflow").files(workflow, row["submission"]) == workflow / "planners" / "alba"
    assert find("workflow").files(workflow, f"sha256:{'0' * 64}") is None
    rubric = shutil.copytree(EXAMPLES / "agonaut" / "small", tmp_path / "agonaut")
    shutil.copy(EXAMPLES / "agonaut" / "scheme.toml", rubric)
    terms = re.sub(r"\[enclave\]\n.*\n.*\n|sponsor = .*\n", "", (rubric / "bounty.toml").read_text())
    (rubric / "bounty.toml").write_text(terms.replace("2026-", "2099-"))
    (rubric / "participants.csv").write_text("key\nmaple\n")
    submitted = find("rubric").submit(rubric, "maple", str(EXAMPLES / "agonaut" / "handed-in" / "maple"), None).submission
    assert find("rubric").files(rubric, submitted) == rubric / "solutions" / f"{submitted[7:]}.json"
    assert find("rubric").files(rubric, "anything else") is None
    for kind in ("points", "given", "tests"):
        assert find(kind).files(rubric, f"sha256:{'0' * 64}") is None


def test_the_task_set_comes_by_its_digest(service: Running, tmp_path: Path) -> None:
    task_set = asked(service)["task_set"]
    address = f"/v1/small/tasks/{task_set}/content"
    missing = service.signed(VALIDATORS[V1], "GET", address)
    assert (missing.status, missing.json["detail"]) == (503, "the files of the task set are not here")
    for task in ("t1", "t2", "other"):
        (folder_of(service) / "tasks" / task).mkdir(parents=True)
        (folder_of(service) / "tasks" / task / "instruction.md").write_text(task)
    first = service.signed(VALIDATORS[V1], "GET", address)
    with tarfile.open(fileobj=io.BytesIO(first.body)) as archive:
        names = archive.getnames()
    assert names == ["tasks.txt", "tasks/t1", "tasks/t1/instruction.md", "tasks/t2", "tasks/t2/instruction.md"]
    (folder_of(service) / "tasks" / "t1" / "instruction.md").write_text("changed")
    changed = service.signed(VALIDATORS[V1], "GET", address)
    assert changed.headers["etag"] != first.headers["etag"]
    assert b"changed" in changed.body
    assert service.signed(VALIDATORS[V1], "GET", f"/v1/small/tasks/sha256:{'0' * 64}/content").status == 404
    assert service.ask("GET", address).status == 401


def test_an_object_is_stored_once_under_its_digest(service: Running) -> None:
    name = sha256(BODY).hexdigest()
    assert service.signed(VALIDATORS[V1], "GET", OBJECT).status == 404
    first = service.signed(VALIDATORS[V1], "PUT", OBJECT, BODY)
    assert (first.status, first.json) == (200, {"sha256": name, "size": len(BODY), "new": True})
    file = folder_of(service) / "objects" / name[:2] / name
    assert file.read_bytes() == BODY
    again = service.signed(VALIDATORS[V2], "PUT", OBJECT, BODY)
    assert again.json == first.json | {"new": False}
    assert service.signed(VALIDATORS[V3], "GET", OBJECT).body == BODY
    assert os.listdir(file.parent) == [name]


def test_an_object_that_is_refused_leaves_nothing(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    before = listing(folder_of(service))
    assert service.ask("PUT", OBJECT, BODY).status == 401
    assert service.signed(STRANGER, "PUT", OBJECT, BODY).status == 403
    assert service.signed(VALIDATORS[V1], "PUT", OBJECT, b"other").status == 400
    assert service.signed(VALIDATORS[V1], "PUT", "/v1/small/objects/..%2fx", BODY).status in (400, 404, 405)
    headers = sign_request(VALIDATORS[V1], "PUT", f"{service.address}{OBJECT}", sha256(BODY).digest())
    assert service.ask("PUT", OBJECT, BODY[:-1] + b"x", headers).status == 400
    monkeypatch.setattr(work, "FREE_BYTES", 2**62)
    full = service.signed(VALIDATORS[V1], "PUT", OBJECT, BODY)
    assert (full.status, "almost full" in full.json["detail"]) == (507, True)
    monkeypatch.setattr(work, "OBJECT_BYTES", 100)
    assert service.signed(VALIDATORS[V1], "PUT", OBJECT, BODY).status == 413
    assert listing(folder_of(service)) == before


def test_a_client_of_another_version_is_told_which_to_install_only_if_it_is_not_understood(service: Running) -> None:
    """Earlier and later clients: fewer or unknown fields, and routes that are not here."""
    ours, key = assay.__version__, VALIDATORS[V1]
    for version in ("0.1", "99.1", ours):
        headers = {"User-Agent": f"assay/{version}"}
        assert signed(service, key, "GET", WORK, b"", headers).status == 200
        assert signed(service, key, "POST", "/v1/small/heartbeat", b'{"mood":"good"}', headers).status == 204
        for method, path, body in (
            ("POST", "/v1/small/logs", b'{"logs":[],"mood":"good"}'),
            ("POST", "/v1/small/heartbeat", b'{"judging":5}'),
            ("GET", "/v1/small/moods", b""),
            ("DELETE", "/v1/small/work", b""),
            ("GET", f"{WORK}?wait=x", b""),
        ):
            refused = signed(service, key, method, path, body, headers)
            assert refused.status in (400, 404, 405), refused
            advice = f"this service runs Assay {ours}, and you use {version}: install 'assay=={ours}'"
            assert (advice in refused.json["hint"]) is (version != ours), refused.json


def signed(service: Running, key: keys.PrivateKey, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    """A signed request with further headers."""
    signature = sign_request(key, method, f"{service.address}{path}", sha256(body).digest())
    return service.ask(method, path, body, headers | signature)


def test_the_client_says_its_version(service: Running) -> None:
    with Client(f"{service.address}/small", VALIDATORS[V1]) as client:
        assert client._signed("GET", f"{service.address}{WORK}", b"")["User-Agent"] == f"assay/{assay.__version__}"
        assert client.get("work")["epoch"] == 1
