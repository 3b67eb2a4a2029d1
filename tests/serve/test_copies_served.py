"""Near-copies in a served competition: compared beside the requests, held back from validators, told to everybody concerned."""

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

import ledger_kit
from assay.errors import BadInput
from assay.folder.csvs import HELD
from assay.judge import copies, entries, holds
from assay.judge.terminal.competition import submit_agent
from assay.ledger import keys, settling
from assay.node import fetch
from assay.scheme.load import read as read_scheme
from assay.serve import background
from assay.serve.background import Background, catch_up
from assay.serve.client import Client
from assay.serve.notebook import Upload
from cli_kit import output
from ledger_kit import V1, VALIDATORS
from service_kit import Running, running, settle

ONE, TWO = (keys.read(f"{number}".encode() * 32) for number in (44, 55))
LINES = [
    f"if x{'+' * (at % 7)}1 {op} y[{'z,' * (at % 5)}0]: return a {op} (b{'.c' * (at % 3)})" for at in range(99) for op in "<*|"
]
RULES = '[scheme]\nname = "small"\n[score]\nkind = "tests"\n[submission]\ncopies = "hold"\n'


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    def make(place: Path) -> None:
        ledger_kit.ledger_folder(place, scheme_toml=RULES)

    with running(ledger_kit.once(tmp_path / "small", ("copies", RULES), make)) as service:
        for participant, key in (("m1", ONE), ("m2", TWO)):
            service.site.competition("small").books()[1].register(participant, key.public.id, datetime.now(UTC))
        yield service


def folder_of(service: Running) -> Path:
    return service.site.competition("small").folder


def source(seed: int, lines: int = 90) -> list[str]:
    return Random(seed).sample(LINES, lines)


def hand_in(service: Running, who: str, lines: list[str], at: str = "", number: int = 0) -> str:
    """An agent handed in as the service does it, without its box; returns its digest."""
    place = folder_of(service).parent / f"{who}-{number}-{len(lines)}-{abs(hash(tuple(lines)))}"
    place.mkdir()
    (place / "agent.toml").write_text('name = "a"\ncommand = ["./main.py"]\n')
    (place / "main.py").write_text("\n".join(lines))
    moment = datetime.fromisoformat(f"2026-11-01T{at}:00+00:00") if at else None
    done = submit_agent(folder_of(service), who, str(place), at=moment)
    upload = Upload(who, "sha256:" + "0" * 64, done.agent.digest, 1, f"2026-11-01T{at or '12:00'}:00Z")
    service.site.competition("small").books()[1].upload(upload)
    return done.agent.digest


def offered(service: Running) -> dict[str, str]:
    answer = service.signed(VALIDATORS[V1], "GET", "/v1/small/work")
    assert answer.status == 200, answer
    return {row["participant"]: row["submission"] for row in answer.json["submissions"]}


def own(service: Running, key: keys.PrivateKey) -> Any:
    return service.signed(key, "GET", "/v1/small/submissions").json["submissions"][0]


def stands(service: Running, who: str, submission: str) -> holds.CopyStanding:
    folder = folder_of(service)
    return holds.standings(folder, read_scheme(folder / "scheme.toml"), [(who, submission)], comparing=True)[who, submission]


def test_a_near_copy_waits_is_held_and_is_released_or_confirmed(service: Running) -> None:
    folder, text = folder_of(service), source(1)
    first = hand_in(service, "m1", text, "10:00")
    assert "m1" not in offered(service)  # nobody judges what is not compared yet
    assert own(service, ONE)["copies"]["state"] == "pending"
    catch_up(folder)
    assert offered(service)["m1"] == first
    assert own(service, ONE)["copies"] | {"why": ""} == {
        "state": "clear", "why": "", "todo": "", "near": [], "decision": None,
    }  # fmt: skip
    copy = hand_in(service, "m2", ["# mine", *text[45:], *text[:45]], "11:00")
    assert offered(service).keys() == {"m1"}
    catch_up(folder)
    assert offered(service).keys() == {"m1"}
    page = service.ask("GET", "/small/", headers={"Accept": "text/html"}).body.decode()
    assert "No board yet" in page
    assert "near-copy, held" in page
    row = own(service, TWO)
    assert (row["state"], row["copies"]["state"]) == ("held", "held")
    assert "submission of m1 of 2026-11-01 10:00 UTC. It is not judged meanwhile" in row["why"]
    assert "Ask the organiser to release it" in row["why"]
    (near,) = row["copies"]["near"]
    assert (near["earlier"]["participant"], near["earlier"]["submission"]) == ("m1", first)
    assert near["passages"][0]["file"] == near["passages"][0]["earlier_file"] == "main.py"
    files = service.signed(VALIDATORS[V1], "GET", "/v1/small/folder").json["files"]
    assert f"m2,{copy}," in files[HELD.name]

    output("copies", folder, "--release", "m2", "--by", "alice", "--reason", "same team")
    assert offered(service)["m2"] == copy
    decided = own(service, TWO)["copies"]
    assert (decided["state"], decided["decision"]["reason"], "by" in decided["decision"]) == ("released", "same team", False)
    output("copies", folder, "--confirm", "m2", "--by", "bob", "--reason", "they told me so")
    assert "m2" not in offered(service)
    assert "confirmed that it is a copy: they told me so. Hand in work of your own." in own(service, TWO)["why"]
    assert [row["decision"] for row in map(json.loads, (folder / holds.DECISIONS).read_text().splitlines())] == [
        "release", "confirm",
    ]  # fmt: skip


def test_a_flag_is_shown_and_holds_nobody(tmp_path: Path) -> None:
    folder, text = ledger_kit.ledger_folder(tmp_path / "small", scheme_toml=RULES.replace("hold", "flag")), source(9)
    with running(folder) as service:
        first, copy = hand_in(service, "m1", text, "10:00"), hand_in(service, "m2", ["# mine", *text], "11:00")
        assert offered(service) == {"m1": first, "m2": copy}
        rows = [row | {"submission": {"m1": first, "m2": copy}[row["participant"]]} for row in ledger_kit.records()]
        ledger_kit.add(folder, rows)
        with ledger_kit.opened(folder) as ledger:
            settling.settle(ledger, ledger_kit.SIGNER, 3)
        catch_up(folder)
        assert stands(service, "m2", copy).state == "flagged"
        assert "It counts; the organiser looks at the passages." in stands(service, "m2", copy).todo
        assert offered(service) == {"m1": first, "m2": copy}
        assert "uid 2 · near-copy, flagged" in service.ask("GET", "/small/").body.decode()
        output("copies", folder, "--confirm", "m2", "--by", "bob", "--reason", "told")
        assert "confirmed as a copy" in service.ask("GET", "/small/").body.decode()
        assert offered(service) == {"m1": first, "m2": copy}


def test_versions_are_compared_and_what_was_ones_own_before_stays_so(service: Running) -> None:
    folder, text, more = folder_of(service), source(1), source(2, 60)
    hand_in(service, "m1", text, "09:00", 1)
    copy = hand_in(service, "m2", [*text, "done()"], "10:00")
    second = hand_in(service, "m1", [*more, *text], "11:00", 2)  # m1's own first version, and more
    catch_up(folder)
    assert stands(service, "m2", copy).state == "held"
    assert stands(service, "m1", second).state == "clear"
    late = hand_in(service, "m2", text, "12:00", 3)  # what m1 replaced: nobody else has it as the current one
    catch_up(folder)
    assert "It is the submission of m1 of 2026-11-01 09:00 UTC, byte by byte." in stands(service, "m2", late).why
    stolen = hand_in(service, "m2", [*more, *source(3, 20)], "13:00", 4)
    catch_up(folder)
    assert stands(service, "m2", stolen).state == "held"


def test_evidence_about_a_held_submission_waits_with_its_validator(service: Running) -> None:
    """It is refused and not lost: the same batch is taken after the release, and once it is in the ledger it stays there."""
    folder, text = folder_of(service), source(11)
    first = hand_in(service, "m1", text, "10:00")
    copy = hand_in(service, "m2", ["# mine", *text], "11:00")

    def send(who: str, submission: str) -> Any:
        rows = [row for row in ledger_kit.records() if (row["participant"], row["validator"]) == (who, V1)]
        (batch,) = ledger_kit.batches(folder, [row | {"submission": submission} for row in rows])
        (row,) = service.signed(VALIDATORS[V1], "POST", "/v1/small/evidence", batch.data).json["batches"]
        return row

    early = send("m2", copy)
    assert early["outcome"] == "refused"
    assert "It is being compared with earlier submissions" in early["detail"]
    catch_up(folder)
    assert send("m1", first)["outcome"] == "accepted"
    refused = send("m2", copy)
    assert refused["outcome"] == "refused"
    assert "it is about a submission that is not judged now. It has " in refused["detail"]
    assert refused["hint"] == "keep the batch and send it again: it is taken once the organiser releases the submission"
    output("copies", folder, "--release", "m2", "--by", "alice", "--reason", "same team")
    assert send("m2", copy)["outcome"] == "accepted"
    output("copies", folder, "--confirm", "m2", "--by", "bob", "--reason", "they told me so")
    assert send("m2", copy)["outcome"] == "known"


def test_a_comparison_that_failed_is_shown_and_tried_again(service: Running) -> None:
    folder, why = folder_of(service), "Not compared with earlier submissions: "
    settle(service)
    digest = hand_in(service, "m1", source(12), "10:00")
    (folder / "copies").mkdir(exist_ok=True)
    (folder / "copies" / "prints").write_text("no folder")
    with pytest.raises(BadInput, match="cannot be made"):
        catch_up(folder)
    standing = stands(service, "m1", digest)
    assert (standing.state, standing.judged) == ("pending", False)
    assert standing.why.startswith(why)
    assert standing.why.endswith("; it is tried again.")
    assert own(service, ONE)["copies"]["why"] == standing.why
    assert "not compared" in service.ask("GET", "/small/").body.decode()
    assert why in service.ask("GET", "/small/participant-m1.html").body.decode()
    assert why in service.ask("GET", "/small/live.html").body.decode()
    (folder / "copies" / "prints").unlink()
    catch_up(folder)
    assert stands(service, "m1", digest).state == "clear"
    assert why not in service.ask("GET", "/small/participant-m1.html").body.decode()


def test_the_live_page_says_why_a_held_submission_waits(service: Running) -> None:
    folder, text = folder_of(service), source(13)
    hand_in(service, "m1", text, "10:00")
    hand_in(service, "m2", ["# mine", *text], "11:00")
    catch_up(folder)
    page = service.ask("GET", "/small/live.html").body.decode()
    assert page.count("It is not judged meanwhile; this is no score of 0. Ask the organiser to release it") == 1
    document = service.ask("GET", "/small/live.json").json
    assert sorted(document["waiting"]) == ["m1", "m2"]
    assert list(document["why"]) == ["m2"]


def test_the_time_of_a_commitment_decides_who_was_first(service: Running) -> None:
    folder, text = folder_of(service), source(4)
    mine = hand_in(service, "m2", text, "11:00")
    catch_up(folder)
    assert stands(service, "m2", mine).state == "clear"
    hand_in(service, "m1", ["# 1", *text], "10:00")  # committed to before, handed in after
    catch_up(folder)
    assert stands(service, "m2", mine).state == "held"


def test_the_same_again_is_not_compared_again_and_a_changed_baseline_is(service: Running) -> None:
    folder, text = folder_of(service), source(5)
    hand_in(service, "m1", text, "10:00")
    copy = hand_in(service, "m2", [*text, "#"], "11:00")
    scheme, history = read_scheme(folder / "scheme.toml"), copies.of_ledger(folder, ())
    assert history is not None
    assert copies.compare_new(folder, scheme, history) == 2
    before = (folder / copies.FOUND).read_bytes()
    assert copies.compare_new(folder, scheme, history) == 0
    with (folder / copies.FOUND).open("ab") as file:
        file.write(b'{"participant":"m')  # a process that was killed
    assert stands(service, "m2", copy).state == "held"
    (folder / "baseline").mkdir()
    (folder / "baseline" / "main.py").write_text("\n".join(text))
    assert copies.compare_new(folder, scheme, history) == 2
    assert (folder / copies.FOUND).read_bytes().startswith(before)
    assert stands(service, "m2", copy).state == "clear"


def test_a_validators_copy_of_the_folder_holds_what_the_service_says(service: Running, tmp_path: Path) -> None:
    folder, text, mine = folder_of(service), source(6), tmp_path / "mine"
    (folder / "tasks").mkdir()
    for name in ("t1", "t2"):
        (folder / "tasks" / name).mkdir()
    first = hand_in(service, "m1", text, "10:00")
    hand_in(service, "m2", ["# mine", *text], "11:00")
    catch_up(folder)
    with Client(f"{service.address}/small", VALIDATORS[V1]) as client:
        pulled = fetch.pull(client, mine, VALIDATORS[V1].public, pauses=())
        assert (pulled.submissions, dict(pulled.absent)) == (("m1",), {})
        assert [place.name for place in (mine / "agents").iterdir()] == [first[7:19]]
        seen = entries.read(mine, read_scheme(mine / "scheme.toml"), V1)
        assert [participant.key for participant in entries.judgeable(seen)] == ["m1"]
        (remark,) = entries.held_remarks(seen)
        assert remark.startswith("m2 is held. It has ")
        output("copies", folder, "--release", "m2", "--by", "alice", "--reason", "same team")
        assert fetch.pull(client, mine, VALIDATORS[V1].public, pauses=()).submissions == ("m2",)
    assert [participant.key for participant in entries.judgeable(entries.read(mine, seen.scheme, V1))] == ["m1", "m2"]


def test_pages_and_the_submitters_terminal_say_why(service: Running) -> None:
    folder, text = folder_of(service), source(7)
    settle(service)
    first = hand_in(service, "m1", text, "10:00")
    hand_in(service, "m2", ["# mine", *text], "11:00")
    catch_up(folder)
    board = service.ask("GET", "/small/").body.decode()
    assert "near-copy, held" in board
    assert "It is not judged meanwhile" in board
    assert "stays first unless" in board  # the margin, which was computed too
    ledger_kit.add(folder, [row | {"submission": first} for row in ledger_kit.records(epoch=4) if row["participant"] == "m1"])
    with ledger_kit.opened(folder) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, 4)
    catch_up(folder)
    board = service.ask("GET", "/small/").body.decode()
    assert "Near-copies" in board
    assert "matches main.py:" in board
    page = service.ask("GET", "/small/participant-m2.html").body.decode()
    assert "Near-copy, held" in page
    assert "handed in 1 Nov 2026, 10:00 UTC" in page
    assert "main.py:" in output("copies", folder, "--participant", "m2", columns=140)
    printed = " ".join(output("explain", folder, "m2", columns=140).split())
    assert "Near-copies, held: It has" in printed
    assert json.loads(output("explain", folder, "m2", "--json"))["copies"]["state"] == "held"


def test_the_background_is_a_process_that_is_woken_and_ends_with_its_service(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    served = service.site.competition("small")
    digest = hand_in(service, "m1", source(8), "10:00")
    with Background(service.site, messages.append):
        assert "m1" not in offered(service)  # which wakes it
        until = time.monotonic() + 60
        while stands(service, "m1", digest).state == "pending" and time.monotonic() < until:
            time.sleep(0.05)
    assert offered(service)["m1"] == digest
    assert messages == []
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with Background(service.site, messages.append) as failing:
        failing.wake(served)
        while not messages and time.monotonic() < until:
            time.sleep(0.01)
        failing.wake(served)  # not at once again
        assert not failing._waiting
    assert messages == [
        "small: comparing submissions and computing margins failed: no process can be started (No such file or directory)"
    ]
    assert background.AGAIN > 1


def test_equal_outcomes_are_told_after_judging_and_hold_nobody(tmp_path: Path) -> None:
    tasks = [f"t{at:02}" for at in range(24)]
    passes = {name: {task for task in tasks if Random(f"{name[0]}{task}").random() < 0.5} for name in ("a1", "a2", "b", "c", "d")}
    people = "key,uid,name,submission\n" + "".join(f"{name},{at},,s{name}\n" for at, name in enumerate(passes, start=1))
    records = [
        {"kind": "tests", "epoch": 1, "validator": judge, "participant": name, "submission": f"s{name}", "task": task}
        | {"observed_at": "2026-11-02T10:00:00Z", "outcome": "pass" if task in mine else "fail"}
        for judge in VALIDATORS
        for name, mine in passes.items()
        for task in tasks
    ]
    folder = ledger_kit.ledger_folder(
        tmp_path / "small", scheme_toml=RULES, participants_csv=people, tasks_txt="".join(f"{task}\n" for task in tasks)
    )
    ledger_kit.add(folder, records)
    with ledger_kit.opened(folder) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, 1)
    catch_up(folder)
    with running(folder) as service:
        page = service.ask("GET", "/small/").body.decode()
        assert "a1 and a2 passed exactly the same" in page
        assert "holds nobody" in page
        assert "a1 and a2 passed" in service.ask("GET", "/small/participant-a2.html").body.decode()
        assert "a1 and a2 passed" not in service.ask("GET", "/small/participant-b.html").body.decode()
        assert set(offered(service)) == set(passes)
