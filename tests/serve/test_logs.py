"""The logs of trials: validators hand them over, participants read them as the scheme releases them, hidden tasks stay hidden."""

from __future__ import annotations

import http.client
import io
import json
import re
import tarfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest

import judge_kit
import ledger_kit
import small_folder
from assay.errors import BadInput
from assay.judge.terminal.record import Digests, TrialReason, TrialRecord, TrialStore, write_record
from assay.ledger import batch
from assay.ledger.keys import PrivateKey
from assay.serve.client import Client
from assay.serve.log_files import fetch_logs
from assay.serve.logs import object_file
from assay.serve.signed import sign_request
from assay.serve.work import LogsOutcome
from cli_kit import output, refused, run
from ledger_kit import V1, V2, VALIDATORS
from service_kit import Answer, Running, listing
from test_submissions import ONE, PUT, STRANGER, TWO, digest, folder_of, packed, served, settle


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with served(tmp_path / "small") as started:
        yield started


def trial(
    folder: Path, submission: str, task: str, printed: str, *, validator: str = "val-1", participant: str = "m1", epoch: int = 1
) -> TrialRecord:
    place = TrialStore(folder, validator).place(participant, submission, task, 1)
    (place / "agent").mkdir(parents=True)
    (place / "agent" / "stdout.txt").write_text(printed)
    at = datetime(2026, 11, 2, tzinfo=UTC)
    record = TrialRecord(
        validator=validator, participant=participant, submission=submission, task=task, trial=1, outcome="pass",
        reason=TrialReason.PASSED, mode="separate", sandbox="bubblewrap", agent_name="a", agent_version="1",
        digests=Digests(task="sha256:t", agent=submission), started_at=at, finished_at=at, epoch=epoch,
    )  # fmt: skip
    write_record(place, record)
    return record


def logged(service: Running, submission: str, key: PrivateKey | None = ONE, task: str = "") -> Answer:
    path = f"{PUT}/{submission}/logs" + (f"?task={task}" if task else "")
    return service.ask("GET", path) if key is None else service.signed(key, "GET", path)


def with_tasks(service: Running) -> str:
    """Two tasks, one of them hidden, and a third whose files are not here; trials of all."""
    place, submission = folder_of(service), digest(b"submission")
    judge_kit.make_task(place / "tasks" / "t1")
    judge_kit.make_task(place / "tasks" / "t2", base='[metadata.assay]\nbase = "any"\nhidden = true\n')
    for task in ("t1", "t2", "t3"):
        trial(place, submission, task, f"printed on {task}")
    return submission


def test_logs_are_for_their_participant_and_hidden_tasks_stay_hidden(service: Running) -> None:
    submission = with_tasks(service)
    answer = logged(service, submission).json
    assert (answer["release"], answer["hidden"], answer["left_out"]) == ("own", 2, 0)
    (row,) = answer["trials"]
    assert (row["task"], row["trial"], row["outcome"], "printed" in row) == ("t1", 1, "pass", False)
    (file,) = row["files"]
    assert file == {"name": "agent/stdout.txt", "size": 13, "sha256": sha256(b"printed on t1").hexdigest()}
    (row,) = logged(service, submission, task="t1").json["trials"]
    assert row["printed"] == {"agent/stdout.txt": "printed on t1"}
    hidden = sha256(b"printed on t2").hexdigest()
    for path in ("?task=t2", "?task=t3", f"/{hidden}"):
        answer = service.signed(ONE, "GET", f"{PUT}/{submission}/logs{path}")
        assert (answer.status, b"printed on" in answer.body) == (404, False)
    whole = f"{PUT}/{submission}/logs/{file['sha256']}"
    log_answer = service.signed(ONE, "GET", whole)
    assert (log_answer.status, log_answer.body, log_answer.headers["content-type"]) == (
        200,
        b"printed on t1",
        "text/plain; charset=utf-8",
    )
    assert log_answer.headers["x-content-type-options"] == "nosniff"
    headers = sign_request(ONE, "GET", f"{service.address}{whole}", sha256(b"").digest())
    rest = service.ask("GET", whole, headers=headers | {"Range": "bytes=8-"})
    assert (rest.status, rest.body) == (206, b"on t1")
    for key, status in ((TWO, 404), (None, 403), (STRANGER, 403)):
        assert logged(service, submission, key).status == status
        read = service.ask("GET", whole) if key is None else service.signed(key, "GET", whole)
        assert (read.status, b"printed" in read.body) == (status, False)
    assert logged(service, digest(b"other")).status == 404
    assert service.signed(ONE, "GET", f"{PUT}/..%2F..%2Fetc/logs").status in (400, 404)


def test_a_file_of_logs_is_text_in_a_sandbox_whatever_is_in_it(tmp_path: Path) -> None:
    with served(tmp_path / "small", '[release]\nlogs = "after-epoch"\n') as service:
        submission, evil_page = with_tasks(service), b"<script>alert(1)</script>"
        (file,) = folder_of(service).glob("trials/*/*/t1/1/agent/stdout.txt")
        file.write_bytes(evil_page)
        settle(service, 1)
        with closing(http.client.HTTPConnection("127.0.0.1", service.port)) as connection:
            connection.request("GET", f"{PUT}/{submission}/logs/{sha256(evil_page).hexdigest()}")
            answer = connection.getresponse()
            assert answer.read() == evil_page
        assert answer.getheader("content-type") == "text/plain; charset=utf-8"
        assert "sandbox" in (answer.headers.get_all("content-security-policy") or ())
        assert answer.getheader("x-content-type-options") == "nosniff"
        file.unlink()
        file.symlink_to(folder_of(service) / "ledger.toml")
        (row,) = logged(service, submission, None, "t1").json["trials"]
        assert (row["files"], row["printed"]) == ([], {})


def test_logs_follow_the_scheme(tmp_path: Path) -> None:
    with served(tmp_path / "never", '[release]\nlogs = "never"\n') as service:
        assert logged(service, with_tasks(service)).status == 403
    with served(tmp_path / "after", '[release]\nlogs = "after-epoch"\n') as service:
        submission = with_tasks(service)
        for key in (None, ONE, TWO):
            assert logged(service, submission, key, "t1").json["detail"] == "logs are released when their epoch is settled"
        settle(service, 1)
        for key in (None, ONE, TWO):
            (row,) = logged(service, submission, key, "t1").json["trials"]
            assert row["printed"]["agent/stdout.txt"] == "printed on t1"
        assert b"printed on" not in logged(service, submission, None, "t2").body


# Handing over


LOGS = "/v1/small/logs"


SUBMISSION = digest(b"submission")


def judged(folder: Path, submission: str = SUBMISSION) -> list[dict[str, Any]]:
    """Two trials of a validator in a folder of its own, one of a hidden task, with work that was kept; their evidence."""
    documents = []
    for task in ("t1", "t2"):
        record = trial(folder, submission, task, f"printed on {task}", validator=V1)
        evidence = record.evidence()
        assert evidence is not None
        documents.append(evidence.document())
    kept = TrialStore(folder, V1).place("m1", submission, "t1", 1) / "artifacts"
    kept.mkdir()
    (kept / "report.txt").write_text("done")
    return documents


@pytest.fixture
def desk(service: Running, tmp_path: Path) -> Path:
    """A validator's own folder, with a signed batch of what it judged; the service has the tasks, and none of the trials."""
    place = tmp_path / "desk"
    judge_kit.make_task(folder_of(service) / "tasks" / "t1")
    judge_kit.make_task(folder_of(service) / "tasks" / "t2", base='[metadata.assay]\nbase = "any"\nhidden = true\n')
    (place / "batches").mkdir(parents=True)
    (place / "scheme.toml").write_bytes((folder_of(service) / "scheme.toml").read_bytes())
    (signed,) = ledger_kit.batches(folder_of(service), judged(place))
    (place / "batches" / "1.batch").write_bytes(signed.data)
    key = tmp_path / "val-1.key"
    key.write_bytes(b"01" * 32)
    key.chmod(0o600)
    return place


def send(service: Running, desk: Path, *words: str) -> str:
    files = desk / "batches" / "1.batch", "--key", desk.parent / "val-1.key"
    return " ".join(output("evidence", "send", f"{service.address}/small", *files, *words).split())


def test_what_a_validator_hands_over_is_its_participants_to_read(service: Running, desk: Path, tmp_path: Path) -> None:
    assert "handed over" not in send(service, desk, "--no-logs")
    assert logged(service, SUBMISSION).status == 404
    assert "Logs of 2 trials handed over." in send(service, desk)
    before = listing(folder_of(service))
    assert "Logs of 0 trials handed over; 2 were there already." in send(service, desk)
    assert json.loads(send(service, desk, "--json"))["logs"] == {"new": 0, "known": 2}
    assert listing(folder_of(service)) == before
    answer = logged(service, SUBMISSION, task="t1").json
    assert (answer["hidden"], [row["validator"] for row in answer["trials"]]) == (1, [V1])
    (row,) = answer["trials"]
    assert row["printed"] == {"agent/stdout.txt": "printed on t1"}
    files = {file["name"]: file["sha256"] for file in row["files"]}
    assert list(files) == ["agent/stdout.txt", "artifacts.tar"]
    whole = service.signed(ONE, "GET", f"{PUT}/{SUBMISSION}/logs/{files['artifacts.tar']}")
    assert whole.headers["content-type"] == "application/octet-stream"
    with tarfile.open(fileobj=io.BytesIO(whole.body)) as archive:
        assert archive.getnames() == ["report.txt"]
    hidden = sha256(b"printed on t2").hexdigest()
    assert service.signed(VALIDATORS[V2], "GET", f"/v1/small/objects/{hidden}").body == b"printed on t2"
    for key in (ONE, TWO):
        assert service.signed(key, "GET", f"{PUT}/{SUBMISSION}/logs/{hidden}").status == 404
        assert service.signed(key, "GET", f"/v1/small/objects/{hidden}").status == 403
    assert logged(service, SUBMISSION, TWO).status == 404


def test_sending_logs_resumes_after_a_break(service: Running, desk: Path) -> None:
    send(service, desk, "--no-logs")
    first, second = (row["record"] for row in rows_of(desk))
    printed = [sha256(f"printed on {task}".encode()).hexdigest() for task in ("t1", "t2")]
    entries = [{"record": first, "files": {"agent/stdout.txt": printed[0]}}, {"record": second, "files": {"x.txt": printed[1]}}]
    outcomes = outcomes_of(service, entries)
    assert [(row["outcome"], row["missing"]) for row in outcomes] == [("missing", printed[:1]), ("missing", printed[1:])]
    assert service.signed(VALIDATORS[V1], "PUT", f"/v1/small/objects/{printed[0]}", b"printed on t1").status == 200
    assert [row["outcome"] for row in outcomes_of(service, entries)] == ["accepted", "missing"]
    assert [row["outcome"] for row in outcomes_of(service, entries)] == ["known", "missing"]
    (row,) = logged(service, SUBMISSION).json["trials"]
    assert [file["sha256"] for file in row["files"]] == printed[:1]
    object_file(folder_of(service), printed[0]).unlink()  # a backup without the newest objects
    assert [row["missing"] for row in outcomes_of(service, entries)] == [printed[:1], printed[1:]]
    assert service.signed(VALIDATORS[V1], "PUT", f"/v1/small/objects/{printed[0]}", b"printed on t1").status == 200
    assert outcomes_of(service, entries)[0]["outcome"] == "known"


def rows_of(desk: Path) -> list[dict[str, Any]]:
    records = [about.document() for about in batch.read(desk / "batches" / "1.batch").records]
    return [{"record": about, "files": {}} for about in sorted(records, key=lambda about: str(about["task"]))]


def outcomes_of(service: Running, entries: list[dict[str, Any]], validator: str = V1) -> list[dict[str, Any]]:
    answer = service.signed(VALIDATORS[validator], "POST", LOGS, json.dumps({"logs": entries}).encode())
    assert answer.status == 200, answer
    return [LogsOutcome.model_validate(row).model_dump() for row in answer.json["logs"]]


def test_logs_of_what_is_not_ones_own_are_refused(service: Running, desk: Path) -> None:
    entry, _ = rows_of(desk)
    assert outcomes_of(service, [entry])[0]["detail"] == "the ledger does not have this record"
    assert "Logs of 2 trials" in send(service, desk)
    assert outcomes_of(service, [entry], V2)[0]["detail"] == "the record is of another validator"
    assert outcomes_of(service, [entry])[0]["detail"] == "other logs of this record were handed over before"
    changed = {"record": entry["record"] | {"outcome": "fail"}, "files": {}}
    assert outcomes_of(service, [changed])[0]["detail"] == "the ledger does not have this record"
    points = small_folder.record("points", validator=V1)
    assert "only trials have logs" in outcomes_of(service, [{"record": points, "files": {}}])[0]["detail"]
    assert outcomes_of(service, [{"record": {}, "files": {}}])[0]["outcome"] == "refused"
    before = listing(folder_of(service))
    for name in ("../x.txt", "/etc/x", "a//b", ".hidden", "a/./b", "A", "x\n"):
        body = json.dumps({"logs": [entry | {"files": {name: "0" * 64}}]}).encode()
        assert service.signed(VALIDATORS[V1], "POST", LOGS, body).status == 400, name
    for body in (b"", b"[]", b'{"logs":[{}]}', json.dumps({"logs": [entry] * 501}).encode()):
        assert service.signed(VALIDATORS[V1], "POST", LOGS, body).status == 400
    assert service.ask("POST", LOGS, b"{}").status == 401
    assert service.signed(ONE, "POST", LOGS, b"{}").status == 403
    assert listing(folder_of(service)) == before


def test_another_run_of_a_trial_is_not_handed_over_for_it(service: Running, desk: Path) -> None:
    file = next(desk.glob("trials/*/*/t1/1/result.json"))
    file.write_text(file.read_text().replace("2026-11-02", "2026-11-03"))
    assert "Logs of 1 trial handed over." in send(service, desk)


def test_logs_are_not_sent_of_what_is_no_competition(service: Running, desk: Path) -> None:
    (desk / "scheme.toml").rename(desk / "elsewhere.toml")
    assert "handed over" not in send(service, desk)
    assert "Logs of 2 trials handed over." in send(service, desk, "--folder", str(desk)), "if it is named"


# From the command line


@pytest.fixture
def me(service: Running, tmp_path: Path) -> list[str]:
    key = tmp_path / "me.key"
    key.write_bytes(b"44" * 32)
    key.chmod(0o600)
    return ["--url", f"{service.address}/small/", "--key", str(key)]


def words(*given: str | Path) -> str:
    return " ".join(output("logs", *given).split())


def test_a_participant_lists_and_fetches_logs(service: Running, desk: Path, me: list[str], tmp_path: Path) -> None:
    assert "has handed in nothing here" in refused("logs", *me)
    assert "there are no logs of" in refused("logs", *me, "--submission", SUBMISSION)
    send(service, desk)
    mine = [*me, "--submission", SUBMISSION]
    assert "1 trial with released logs. 1 more trial of hidden tasks, whose logs stay hidden." in words(*mine)
    assert "t2" not in words(*mine)
    assert "printed on t1" not in words(*mine)
    assert "printed on t1" in words(*mine, "--task", "t1")
    assert json.loads(output("logs", *mine, "--json"))["hidden"] == 1
    folder = tmp_path / "fetched"
    assert f"2 files fetched into {folder}; 0 were there already." in words(*mine, "-o", folder)
    place = folder / "t1" / "1" / V1
    assert (place / "agent" / "stdout.txt").read_text() == "printed on t1"
    with tarfile.open(place / "artifacts.tar") as archive:
        assert archive.getnames() == ["report.txt"]
    (place / "agent" / "stdout.txt").write_text("changed")
    assert json.loads(output("logs", *mine, "-o", folder, "--json"))["new"] == 1
    assert (place / "agent" / "stdout.txt").read_text() == "printed on t1"
    damaged = object_file(folder_of(service), sha256(b"printed on t1").hexdigest())
    damaged.write_bytes(b"printed on t3")
    (place / "agent" / "stdout.txt").unlink()
    printed = run("logs", *mine, "-o", folder, code=1).stderr
    assert "agent/stdout.txt is another file than the service lists" in " ".join(printed.split())
    assert not (place / "agent" / "stdout.txt").exists()


def test_the_logs_of_many_trials_come_in_pages(
    service: Running, me: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.serve.logs.LISTED", 1)
    submission = with_tasks(service)
    for task in ("t4", "t5"):
        judge_kit.make_task(folder_of(service) / "tasks" / task)
        trial(folder_of(service), submission, task, f"printed on {task}")
    first = logged(service, submission).json
    assert ([row["task"] for row in first["trials"]], first["left_out"]) == (["t1"], 2)
    assert first["next"] == f"{PUT}/{quote(submission)}/logs?after=1"
    second = service.signed(ONE, "GET", first["next"]).json
    assert ([row["task"] for row in second["trials"]], second["left_out"]) == (["t4"], 1)
    assert logged(service, submission, task="t5").json["next"] is None
    last = f"{PUT}/{submission}/logs/{sha256(b'printed on t5').hexdigest()}"
    assert service.signed(ONE, "GET", last).body == b"printed on t5", "what no list has on its first page"
    assert "3 files fetched" in words(*me, "--submission", submission, "-o", tmp_path / "fetched")
    assert "3 trials with released logs." in words(*me, "--submission", submission)


@pytest.mark.full
def test_the_current_submission_is_meant_if_none_is_named(service: Running, desk: Path, me: list[str], tmp_path: Path) -> None:
    source = judge_kit.make_agent(tmp_path / "agent", "echo").folder
    assert source is not None
    current = service.signed(ONE, "PUT", PUT, packed(source)).json["submission"]
    (signed,) = ledger_kit.batches(folder_of(service), judged(desk, current))
    (desk / "batches" / "1.batch").write_bytes(signed.data)
    send(service, desk)
    assert "1 trial with released logs." in words(*me)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "give a trial's folder, or --url"),
        (["trials/x", "--key", "me"], "give a trial's folder, or --url"),
        (["trials/x", "--url", "http://127.0.0.1:1/small"], "--url and TRIAL cannot be used together"),
        (["--url", "http://127.0.0.1:1/small"], "name the submission"),
    ],
)
def test_wrong_arguments_are_refused(given: list[str], message: str) -> None:
    assert message in refused("logs", *given)


class Lying:
    """A service that lists a file of a name that leads out of the folder."""

    def download(self, path: str, most: int) -> bytes:
        raise AssertionError("it is not asked for")


def test_a_service_cannot_write_outside_of_the_folder(tmp_path: Path) -> None:
    row = {"name": "../x", "sha256": "0" * 64}
    listed = {"submission": SUBMISSION, "trials": [{"task": "../t", "trial": 1, "validator": "/v", "files": [row]}]}
    with pytest.raises(BadInput, match="names a file"):
        fetch_logs(cast(Client, Lying()), listed, tmp_path / "logs")
    assert not (tmp_path / "logs").exists()


# Pages


def test_everybody_reads_released_logs_on_a_page(tmp_path: Path) -> None:
    with served(tmp_path / "small", '[release]\nlogs = "after-epoch"\n') as service:
        submission, page = with_tasks(service), "/small/logs.html?submission="
        place = folder_of(service) / "trials" / "val-1"
        (printed,) = place.glob("*/t1/1/agent/stdout.txt")
        printed.write_text("begin " + "x" * 5000 + "<script>alert(1)</script>")
        assert "printed" not in shown(service, page + submission, 404), "nothing is settled"
        people = (folder_of(service) / "participants.csv").read_text()
        (folder_of(service) / "participants.csv").write_text(people.replace(",s1,", f",{submission},"))
        settle(service, 1)
        all_of_it = shown(service, page + submission)
        assert f"logs.html?submission={submission.replace(':', '%3A')}&amp;task=t1" in all_of_it
        assert "2 more trials of hidden tasks" in all_of_it
        assert f"--submission {submission} --json</code>" in all_of_it
        of_task = shown(service, f"{page}{submission}&task=t1")
        assert "&lt;script&gt;" in of_task
        assert "<script>alert" not in of_task
        assert "begin" not in of_task, "only the end is shown"
        beside, href = sorted(set(re.findall(r'href="\.\./(v1/[^"]+)"', of_task)), key=lambda link: "/logs/" in link)
        assert [trial["task"] for trial in service.ask("GET", f"/{beside}").json["trials"]] == ["t1"]
        assert service.ask("GET", f"/{href}").body == printed.read_bytes()
        for hidden in ("t2", "t3"):
            assert f"task={hidden}" not in all_of_it
            assert service.ask("GET", f"{page}{submission}&task={hidden}").status == 404
        assert service.ask("GET", page).status == 404
        own_page = shown(service, "/small/participant-m1.html")
        assert f'href="logs.html?submission={submission.replace(":", "%3A")}"' in own_page
        assert shown(service, "/small/epoch-1/participant-m1.html").count('href="../logs.html?') == 1
        link = f'href="logs.html?submission={submission.replace(":", "%3A")}&amp;task='
        assert f'{link}t1"' in shown(service, "/small/task-t1.html")
        assert "logs.html" not in shown(service, "/small/task-t2.html"), "it is hidden"


def shown(service: Running, path: str, status: int = 200) -> str:
    answer = service.ask("GET", path, headers={"Accept": "text/html"})
    assert answer.status == status, answer
    return answer.body.decode()


@pytest.mark.full
@pytest.mark.parametrize(
    ("rules", "sentence", "command"),
    [
        ("", "Only the participant may read what the trials of this submission printed", "--key my-key --submission s1"),
        ('[release]\nlogs = "never"\n', "This competition releases no logs", ""),
    ],
)
def test_a_page_says_who_may_read_logs(tmp_path: Path, rules: str, sentence: str, command: str) -> None:
    with served(tmp_path / "small", rules) as service:
        settle(service, 1)
        text = shown(service, "/small/participant-m1.html")
        assert sentence in text
        assert ("assay logs --url" in text, command in text) == (bool(command), True)
        assert "logs.html" not in text
        refusal = shown(service, "/small/logs.html?submission=s1", 403)
        assert ("released to their participant only" in refusal) == bool(command)
