"""Whole runs against a server: right counts, or a clear error and nothing written."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import assay
import github_kit as kit
from assay.errors import AssayError, BadInput
from assay.judge.github.client import Unread
from assay.judge.running import RunEvent
from github_kit import FaultyGithub, GithubFault, counted, github_competition, issue, judged, label, records, sent, status

EXAMPLE = kit.ROOT / "examples" / "bounty-challenge"
ISSUES = [
    issue(1, 50, label("valid", 1)),
    issue(2, 50, label("invalid", 1), label("invalid", 2, off=True), label("valid", 2, 11)),
    issue(3, 51, label("duplicate", 2)),
    issue(4, 51, label("valid", 2, by=kit.STRANGER)),
    issue(5, 60, label("valid", 2)),
    issue(6, 50, label("valid", 1), pull_request=True),
    issue(7, 52, label("valid", 3, by=kit.MERLIN), label("Confirmed", 2, by=kit.MERLIN)),
    issue(8, None, label("valid", 1)),
]
STARS: list[dict[str, Any]] = [
    {"by": 51, "at": kit.at(2, 5)},
    {"by": 60, "at": kit.at(1)},
    {"by": None, "at": kit.at(1)},
    {"by": None, "at": kit.at(1)},
]


@pytest.fixture
def server() -> Iterator[FaultyGithub]:
    with kit.serving(kit.facts(ISSUES, stars=STARS)) as faulty:
        yield faulty


@pytest.fixture
def place(server: FaultyGithub, tmp_path: Path) -> Path:
    return github_competition(tmp_path / "c", server.url)


def test_what_is_counted(place: Path) -> None:
    summary = judged(place)
    assert (summary.planned, summary.judged, summary.errors, summary.epoch) == (9, 9, [], 3)
    assert counted(place, "ann") == {1: "1/1/0/0", 2: "1/0/0/1", 3: "0/0/0/0"}
    assert counted(place, "ben") == {1: "0/0/0/0", 2: "0/0/0/0*", 3: "0/0/0/0*"}
    assert counted(place, "cyd") == {1: "0/0/0/0", 2: "1/0/0/0", 3: "0/0/0/0"}
    assert {record["observed_at"] for record in records(place)} == {kit.at(4, 10)}
    assert summary.remarks == [f"{kit.REPOSITORY}: labels that do not count, set by eve (1), merlin (1)."]
    document = assay.open(place).settle().document
    scores = {row["participant"]: row["score"] for row in document["agreed"]}
    assert scores == {kit.public_of("ann"): "0.1", kit.public_of("ben"): "0", kit.public_of("cyd"): "0.05"}


def test_every_validator_counts_the_same_whenever_it_asks(place: Path, server: FaultyGithub) -> None:
    judged(place)
    server.repository["issues"][0]["events"].append(label("valid", 4, 20, off=True))
    server.world.now = server.world.now.fromisoformat(kit.at(6, 6))
    judged(place, "val-2")
    judged(place)
    assert [record | {"validator": "", "observed_at": ""} for record in records(place)] == [
        record | {"validator": "", "observed_at": ""} for record in records(place, "val-2")
    ]
    assert counted(place)[4] == "0/0/1/0"


def test_an_epoch_is_judged_once_it_is_over_by_github_s_clock(place: Path, server: FaultyGithub) -> None:
    server.world.now = server.world.now.fromisoformat(kit.at(3, 4))
    assert judged(place).planned == 3
    assert {record["epoch"] for record in records(place)} == {1}
    server.world.now = server.world.now.fromisoformat(kit.at(3, 5))
    assert judged(place).planned == 3
    with pytest.raises(BadInput, match="epoch 3 is not over"):
        judged(place, epoch=3)
    server.world.now = server.world.now.fromisoformat(kit.at(6, 5))
    assert judged(place, epoch=4).planned == 3
    assert judged(place, since=4, epoch=4).planned == 3
    assert judged(place).planned == 3
    assert sorted(counted(place)) == [1, 2, 3, 4, 5]


def test_running_again_asks_little_and_writes_nothing(place: Path, server: FaultyGithub) -> None:
    judged(place)
    before, left = records(place), server.left
    asked = len(server.asked)
    assert judged(place).planned == 0
    assert records(place) == before
    assert server.left == left
    assert len(server.asked) == asked + 3  # three gists, which have not changed
    server.world.now = server.world.now.fromisoformat(kit.at(5, 6))
    judged(place)
    assert server.left == left  # nothing has changed, so nothing is paid for


@pytest.mark.parametrize(
    "fault",
    [
        GithubFault("/issues", status(502)),
        GithubFault("/issues/2/events", status(500)),
        GithubFault("/stargazers", sent(b"[", 100)),
        GithubFault("/stargazers", sent(b'[{"starred_at": "2026-11-02T00:00:00Z"}')),
        GithubFault("/issues", sent(b'{"message": "ok"}')),
        GithubFault("/issues/7/events", status(403, "no")),
        GithubFault(f"/repos/{kit.REPOSITORY}$", status(404)),
        GithubFault("/issues/1/events", status(429, retry_after="7200")),
    ],
    ids=["502", "events", "half", "half a list", "no list", "403", "404", "limit"],
)
def test_a_repository_is_read_whole_or_nothing_is_written_about_it(
    server: FaultyGithub, tmp_path: Path, fault: GithubFault
) -> None:
    server.world.facts["repositories"][1]["issues"].append(issue(1, 50, label("valid", 1)))
    place = github_competition(
        tmp_path / "c", server.url, repositories={kit.REPOSITORY: kit.REPOSITORY_ID, kit.OTHER: kit.OTHER_ID}
    )
    fault.match = f"{kit.REPOSITORY}.*{fault.match}" if fault.match.startswith(("/issues", "/star")) else fault.match
    server.faults.append(fault)
    summary = judged(place)
    assert [(cell.participant, cell.parts) for cell, _ in summary.errors] == [("all", {"repository": kit.REPOSITORY})]
    assert (summary.planned, summary.judged) == (18, 9)
    assert {record["repository"] for record in records(place)} == {kit.OTHER}
    server.faults.clear()
    assert judged(place).judged == 9
    assert counted(place) == {1: "1/1/0/0", 2: "1/0/0/1", 3: "0/0/0/0"}
    assert counted(place, repository=kit.OTHER) == {1: "1/0/0/0", 2: "0/0/0/0", 3: "0/0/0/0"}


def test_trouble_that_passes_leaves_no_trace(place: Path, server: FaultyGithub) -> None:
    events: list[RunEvent] = []
    for match in ("/issues", "/issues/1/events", "/stargazers", "/gists"):
        server.faults.append(GithubFault(match, status(502), times=1))
        server.faults.append(GithubFault(match, sent(b"[", 100), times=1))
    assert judged(place, events=events).errors == []
    assert counted(place) == {1: "1/1/0/0", 2: "1/0/0/1", 3: "0/0/0/0"}
    assert [event.kind for event in events].count("again") == 8


def test_a_deleted_issue_keeps_what_it_counted(place: Path, server: FaultyGithub) -> None:
    judged(place)
    server.repository["issues"][0]["gone"] = "deleted"
    server.world.now = server.world.now.fromisoformat(kit.at(5, 6))
    summary = judged(place)
    assert counted(place) == {1: "1/1/0/0", 2: "1/0/0/1", 3: "0/0/0/0", 4: "0/0/0/0"}
    assert f"{kit.REPOSITORY}: deleted or moved away; their earlier counts stay: #1." in summary.remarks
    assert (
        f"{kit.REPOSITORY}: GitHub's history of {kit.public_of('ann')} in epoch 1 is different now; the record stays."
        in summary.remarks
    )
    judged(place, "val-2")
    assert counted(place, validator="val-2")[1] == "0/1/0/0"  # who never saw it cannot count it
    asked = len(server.asked)
    server.world.now = server.world.now.fromisoformat(kit.at(6, 6))
    summary = judged(place)
    assert f"{kit.REPOSITORY}: deleted or moved away; their earlier counts stay: #1." in summary.remarks
    assert not any(path.endswith("/issues/1") for path in server.paths[asked:])  # it is known to be gone


def test_an_issue_that_is_deleted_while_the_list_is_read_is_no_error(place: Path, server: FaultyGithub) -> None:
    server.faults.append(GithubFault("/issues/1/events", status(410)))
    assert judged(place).errors == []
    assert counted(place)[1] == "0/1/0/0"


def test_a_list_that_leaves_out_what_is_there_is_an_error(place: Path, server: FaultyGithub) -> None:
    judged(place)
    server.world.now = server.world.now.fromisoformat(kit.at(5, 6))

    def shorter(handler: Any) -> None:
        rows = server.world.answer(f"/repos/{kit.REPOSITORY}/issues", "")
        handler.reply(200, json.dumps(rows[1:]).encode())

    server.faults.append(GithubFault(r"/issues\?", shorter))
    ((_, why),) = judged(place).errors
    assert "the list leaves out issue 1, which is there" in why
    assert sorted(counted(place)) == [1, 2, 3]


def test_an_issue_that_moves_counts_where_it_was_opened(server: FaultyGithub, tmp_path: Path) -> None:
    place = github_competition(
        tmp_path / "c", server.url, repositories={kit.REPOSITORY: kit.REPOSITORY_ID, kit.OTHER: kit.OTHER_ID}
    )
    judged(place)
    server.repository["issues"][0]["gone"] = f"/repos/{kit.OTHER}/issues/9"
    moved = {"at": kit.at(4, 20), "by": kit.KESTREL, "event": "transferred", "label": None}
    events = [label("valid", 1), moved, label("valid", 4, 30, off=True), label("valid", 4, 31), label("Confirmed", 4, 32)]
    server.world.facts["repositories"][1]["issues"].append(issue(9, 50, *events))
    server.world.now = server.world.now.fromisoformat(kit.at(5, 6))
    summary = judged(place)
    assert (counted(place)[1], counted(place)[4]) == ("1/1/0/0", "0/0/0/0")
    assert counted(place, repository=kit.OTHER)[4] == "0/0/0/0"
    assert f"{kit.OTHER}: moved here from another repository, and do not count: #9." in summary.remarks


def test_names_change_and_ids_do_not(place: Path, server: FaultyGithub) -> None:
    server.world.facts["accounts"][0]["login"] = "ann-was-here"
    server.world.facts["accounts"].append({"id": 77, "login": "ann"})
    server.repository["issues"].append(issue(9, 77, label("valid", 1)))
    server.repository.update(name="acme/renamed", formerly=[kit.REPOSITORY])
    judged(place)
    assert counted(place)[1] == "1/1/0/0"


def test_another_repository_under_the_same_name_is_not_taken_for_it(place: Path, server: FaultyGithub) -> None:
    server.repository["id"] = 999
    ((_, why),) = judged(place).errors
    assert "acme/widget is another repository now: its id is 999" in why
    assert records(place) == []


def test_who_is_not_linked_has_no_record_and_is_told_why(server: FaultyGithub, tmp_path: Path) -> None:
    place = github_competition(tmp_path / "c", server.url, people=("ann", "ben"))
    server.world.facts["gists"][1]["files"] = {"assay.txt": kit.statement("ben", signer="ann")}
    summary = judged(place)
    assert {record["participant"] for record in records(place)} == {kit.public_of("ann")}
    remarks = "\n".join(summary.remarks)
    assert f"No account is linked for {kit.public_of('ben')}: it is not signed by the key" in remarks
    assert f"Not in accounts.csv: {kit.public_of('cyd')}." in remarks
    server.world.facts["gists"][1]["files"] = {"assay.txt": kit.statement("ben")}
    assert judged(place).judged == 3
    assert counted(place, "ben") == {1: "0/0/0/0", 2: "0/0/0/0*", 3: "0/0/0/0*"}


@pytest.mark.parametrize(
    ("gist", "why"),
    [
        (None, "there is nothing there (404)"),
        (kit.gist("ben", owner=60), "it names the account 51 (ben), but eve published it, which is 60"),
        (kit.gist("ben", text="hello"), "there is no statement in it"),
        (kit.gist("ben", text=kit.statement("ann")), "the statement is about"),
        (kit.gist("ben", owner=99), "its owner no longer exists"),
        (kit.gist("ben", text=kit.statement("ben", 88), owner=88), "bot-ben is not a person's account (Bot)"),
    ],
    ids=["gone", "somebody else's", "empty", "another's", "ghost", "bot"],
)
def test_a_link_that_is_not_right(place: Path, server: FaultyGithub, gist: dict[str, Any] | None, why: str) -> None:
    server.world.facts["accounts"].append({"id": 88, "login": "bot-ben", "type": "Bot"})
    server.world.facts["gists"][1:2] = [gist] if gist else []
    summary = judged(place)
    assert any(why in remark for remark in summary.remarks), summary.remarks
    assert {record["participant"] for record in records(place)} == {kit.public_of("ann"), kit.public_of("cyd")}


def test_one_account_is_one_participant_s_the_earlier_stands(place: Path, server: FaultyGithub) -> None:
    server.world.facts["gists"][1] = kit.gist("ben", owner=50, text=kit.statement("ben", 50), moment=kit.at(1, -1))
    summary = judged(place)
    assert counted(place, "ben")[1] == "1/1/0/0"
    assert counted(place, "ann") == {}
    assert any(
        f"the account ann is linked to '{kit.public_of('ben')}', who published their statement earlier" in remark
        for remark in summary.remarks
    )


def test_who_of_two_is_earlier_is_asked_even_where_only_one_is_judged(place: Path, server: FaultyGithub) -> None:
    server.world.facts["gists"][1] = kit.gist("ben", owner=50, text=kit.statement("ben", 50), moment=kit.at(1, 30))
    summary = judged(place, participants=(kit.public_of("ben"),))
    assert records(place) == []
    assert any("who published their statement earlier" in remark for remark in summary.remarks)
    judged(place)
    assert counted(place)[1] == "1/1/0/0"
    server.world.now = server.world.now.fromisoformat(kit.at(5, 6))
    server.faults.append(GithubFault(f"/gists/{kit.gist_id('ann')}", status(502)))
    errors = {cell.participant: why for cell, why in judged(place).errors}
    assert set(errors) == {kit.public_of("ann"), kit.public_of("ben")}
    assert "whose link cannot be read now" in errors[kit.public_of("ben")]
    assert counted(place, "ben") == {}


def test_a_link_counts_from_the_epoch_in_which_it_was_published(place: Path, server: FaultyGithub) -> None:
    judged(place)
    server.world.facts["gists"][0]["at"] = kit.at(3, 59)
    server.world.facts["gists"][1] = kit.gist("ben", owner=50, text=kit.statement("ben", 50), moment=kit.at(2, 1))
    assert sorted(counted(place)) == [1, 2, 3]
    judged(place, "val-2")
    assert counted(place, "ann", "val-2") == {}
    assert counted(place, "ben", "val-2") == {2: "1/0/0/1", 3: "0/0/0/0"}  # what ann had in epoch 1 is not his
    server.world.facts["gists"][1]["at"] = kit.at(4, 1)
    server.world.now = server.world.now.fromisoformat(kit.at(5, 6))
    judged(place, "val-2")
    assert sorted(counted(place, "ann", "val-2")) == [3, 4]


def test_where_nobody_is_linked_nothing_is_counted(place: Path, server: FaultyGithub) -> None:
    server.world.facts["gists"].clear()
    summary = judged(place)
    assert (summary.planned, summary.errors, len(summary.remarks)) == (0, [], 3)
    assert all("there is nothing there (404)" in remark for remark in summary.remarks)


def test_a_statement_may_stand_in_a_comment(place: Path, server: FaultyGithub) -> None:
    comment = {"id": 41, "by": 50, "at": kit.at(1), "body": f"It is me:\r\n\r\n{kit.statement('ann')}".replace("\n", "\r\n")}
    server.repository["issues"][0]["comments"] = [comment]
    row = f"{kit.public_of('ann')},https://github.com/{kit.REPOSITORY}/issues/1#issuecomment-41\n"
    (place / "accounts.csv").write_text(f"participant,url\n{row}", encoding="utf-8")
    assert judged(place).judged == 3
    comment["by"] = 51
    assert "but ben published it" in judged(place, "val-2").remarks[0]
    comment["body"] = None
    assert "there is no statement in it" in judged(place, "val-2").remarks[0]
    (place / "accounts.csv").write_text("participant,url\n", encoding="utf-8")
    with pytest.raises(BadInput, match="has no linked account"):
        judged(place)


def test_a_link_that_cannot_be_read_is_an_error_and_nobody_s_zero(place: Path, server: FaultyGithub) -> None:
    server.faults.append(GithubFault(f"/gists/{kit.gist_id('ben')}", status(502)))
    summary = judged(place)
    assert [(cell.participant, dict(cell.parts)) for cell, _ in summary.errors] == [
        (kit.public_of("ben"), {"repository": "account"})
    ]
    assert counted(place, "ben") == {}
    assert counted(place, "ann") != {}
    server.faults = [GithubFault("", status(502))]
    with pytest.raises(Unread, match="GitHub cannot be read"):
        judged(place, "val-2")
    server.faults = [GithubFault("", status(401))]
    with pytest.raises(BadInput, match="GitHub refuses the token"):
        judged(place, "val-2")
    assert records(place, "val-2") == []


def test_only_some_are_judged(place: Path, server: FaultyGithub) -> None:
    judged(place, participants=(kit.public_of("ben"),))
    assert {record["participant"] for record in records(place)} == {kit.public_of("ben")}
    judged(place)
    assert len(records(place)) == 9
    with pytest.raises(BadInput, match="there is no participant 'zed'"):
        judged(place, participants=("zed",))


def test_only_those_are_judged_for_whom_the_validator_was_drawn(place: Path, server: FaultyGithub) -> None:
    scheme = place / "scheme.toml"
    scheme.write_text(
        scheme.read_text(encoding="utf-8").replace("min_validators = 1", "min_validators = 1\nassign = 1"), encoding="utf-8"
    )
    (place / "randomness.csv").write_text(f"epoch,hex\n1,{'5a' * 32}\n", encoding="utf-8")
    first, second = judged(place), judged(place, "val-2")
    assert len(first.others) + len(second.others) == 3
    assert len(records(place)) + len(records(place, "val-2")) == 9
    assert judged(place, everybody=True).planned == 3 * len(first.others)


def test_stars_that_are_worth_nothing_are_not_asked_for(place: Path, server: FaultyGithub) -> None:
    scheme = place / "scheme.toml"
    text = scheme.read_text(encoding="utf-8").replace('kind = "points"', 'kind = "points"\nstar_points = "0"')
    scheme.write_text(text, encoding="utf-8")
    judged(place)
    assert not any("stargazers" in path for path in server.paths)
    assert not any(record["starred"] for record in records(place))


def test_too_many_records_are_refused_before_anything_is_read(
    place: Path, server: FaultyGithub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.judge.github.counting.MOST_RECORDS", 8)
    with pytest.raises(BadInput, match="there are 9 records to be made"):
        judged(place)
    assert judged(place, epoch=2).judged == 3
    rules = place / "issues.toml"
    rules.write_text(rules.read_text(encoding="utf-8").replace("2026-11-02T00:00:00Z", "0001-01-01T00:00:00Z"), encoding="utf-8")
    with pytest.raises(BadInput, match=r"there are \d+ records to be made"):
        judged(place)


def test_another_kind_of_competition_is_refused(place: Path) -> None:
    shutil.copy(kit.ROOT / "examples" / "season" / "scheme.toml", place / "scheme.toml")
    with pytest.raises(BadInput, match="issues are judged for points"):
        judged(place)


def test_what_is_kept_and_damaged_is_named(place: Path, server: FaultyGithub) -> None:
    judged(place)
    (path,) = (place / "issues" / "val-1").glob("*.json")
    path.write_text("{}", encoding="utf-8")
    server.world.now = server.world.now.fromisoformat(kit.at(5, 6))
    with pytest.raises(BadInput, match="remove it: the next run writes it again"):
        judged(place)
    path.unlink()
    assert judged(place).judged == 3


def test_a_disk_that_is_full_is_an_error_and_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("assay.judge.run_files.append", full)
        ((_, why),) = judged(place).errors
    assert "No space left on device" in why
    assert judged(place).judged == 9


def test_who_asks_for_the_end_gets_it(place: Path, server: FaultyGithub) -> None:
    """By SIGTERM, while GitHub lets the run wait."""
    import os
    import signal

    server.faults.append(GithubFault("/stargazers", status(429, retry_after="600")))

    def stop(event: RunEvent) -> None:
        if event.kind == "again":
            os.kill(os.getpid(), signal.SIGTERM)

    from assay.judge.github.run import run

    assert threading.current_thread() is threading.main_thread()
    summary = run(place, "val-1", on_event=stop)
    assert summary.stopped
    assert records(place) == []
    server.faults.clear()
    assert judged(place).judged == 9


def test_a_run_that_is_killed_goes_on(place: Path, server: FaultyGithub) -> None:
    """Half of the evidence is there, and half of a line."""
    judged(place)
    path = place / "evidence" / "run-val-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4]) + lines[4][:50])
    assert judged(place).judged == 5
    assert sorted(path.read_bytes().splitlines(keepends=True)) == sorted(lines)


@pytest.mark.parametrize("folder", ["bounty-challenge", "platform/bounty-challenge"])
def test_the_example_is_what_a_run_makes_of_its_github(folder: str, tmp_path: Path) -> None:
    source = kit.ROOT / "examples" / folder
    with kit.serving(json.loads((EXAMPLE / "github.json").read_text(encoding="utf-8"))) as server:
        place = tmp_path / "c"
        shutil.copytree(source, place, ignore=shutil.ignore_patterns("evidence", "__pycache__"))
        rules = place / "issues.toml"
        text = rules.read_text(encoding="utf-8").replace("http://127.0.0.1:8765", server.url)
        for path in sorted((source / "evidence").iterdir()):
            expected = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            jay = path.stem == "jay"  # who takes duplicates for valid issues
            duplicates = text.replace('valid = ["valid"]\n', 'valid = ["valid", "duplicate"]\n', 1).replace(
                'duplicate = ["duplicate"]', "duplicate = []"
            )
            rules.write_text(duplicates if jay else text, encoding="utf-8")
            validator = expected[0]["validator"]
            judged(place, validator)
            assert [record | {"revoked_invalid": 0} for record in expected] == records(place, validator)
    documents = [assay.open(folder).settle().document for folder in (place, source)]
    assert documents[0] == documents[1]


def test_nothing_of_the_token_is_left(place: Path, server: FaultyGithub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_verysecret")
    server.faults.append(GithubFault("/stargazers", status(500, "ghp_verysecret")))
    events: list[RunEvent] = []
    summary = judged(place, events=events)
    assert {headers["Authorization"] for _, headers in server.asked} == {"Bearer ghp_verysecret"}
    assert "verysecret" not in repr(events) + repr(summary)
    for path in place.rglob("*"):
        assert path.is_dir() or b"verysecret" not in path.read_bytes()
    monkeypatch.setenv("GITHUB_TOKEN", "very secret")
    with pytest.raises(AssayError) as refused:
        judged(place)
    assert "very secret" not in str(refused.value)
