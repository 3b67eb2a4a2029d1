"""What participants submit, and how it is asked for a plan: whose fault it is when there is none. SPEC 2.2."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput
from assay.judge.run_files import short
from assay.judge.running import RunEvent
from assay.judge.sandbox import InfrastructureError
from assay.judge.workflow import planner as planners
from assay.judge.workflow.competition import Desk, submit_plans
from judge_kit import bubblewrap
from workflow_chaos import ChaosHandler, Reply, hangs, reply_of, serving, well
from workflow_run_kit import competition, documents, outcomes, plan, planner, run

DONE = well("done")


@pytest.mark.parametrize(
    ("reply", "outcome", "why"),
    [
        (reply_of(plan()), "ran", ""),
        (reply_of(plan(), 500), "invalid", "the planner answered 500"),
        (reply_of(b"", 302, location="http://127.0.0.1:1/"), "invalid", "the planner answered 302"),
        (reply_of(b"<html>"), "invalid", "is not JSON"),
        (reply_of(plan("rm")), "invalid", "which the task does not allow"),
        (reply_of(b" " * 300_000), "invalid", "has more than 256000 bytes"),
        (reply_of(json.dumps(plan()).encode(), content_encoding="gzip"), "invalid", "compressed"),
        (hangs, "invalid", "the planner took longer than 1 s"),
    ],
)
def test_a_planner_is_asked_by_http(tmp_path: Path, reply: Reply, outcome: str, why: str) -> None:
    packages: list[bytes] = []

    def planned(handler: ChaosHandler) -> None:
        packages.append(json.dumps(handler.asked, sort_keys=True).encode())
        reply(handler)

    with serving(do=DONE) as server, serving(**{"": planned}) as far:
        text = f'name = "far"\nurl = "{far.url}"\n'
        folder = competition(tmp_path, server, {"ann": text, "bob": text}, tasks=1)
        services = folder / "services.toml"
        services.write_text(
            services.read_text().replace('seconds = "20"', 'seconds = "1"' if reply is hangs else 'seconds = "60"')
        )
        run(folder)
    assert outcomes(folder) == {("ann", "t0"): outcome, ("bob", "t0"): outcome}
    assert why in documents(folder)[0]["message"]
    assert len(set(packages)) == 1  # everybody is sent the same
    assert b'"schema": "assay.package/1"' in packages[0]
    assert b"done" not in packages[0]


def test_a_planner_that_is_down_is_its_owners_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planners, "_PAUSE", 0.01)
    with serving(do=DONE) as server:
        with serving() as gone:
            text = f'name = "far"\nurl = "{gone.url}"\n'
        folder = competition(
            tmp_path, server, {"ann": text, "bob": 'name = "x"\nurl = "http://no-such-host.invalid/"\n'}, tasks=1
        )
        monkeypatch.setattr(socket, "getaddrinfo", _no_such_host(socket.getaddrinfo))
        run(folder)
    assert set(outcomes(folder).values()) == {"invalid"}
    assert ["the planner cannot be reached" in document["message"] for document in documents(folder)] == [True, False]
    assert "there is no host" in documents(folder)[1]["message"]


def _no_such_host(real: Any, code: int = socket.EAI_NONAME) -> Any:
    def looked_up(host: str, *rest: Any, **more: Any) -> Any:
        if str(host).endswith(".invalid"):
            raise socket.gaierror(code, "not known")
        return real(host, *rest, **more)

    return looked_up


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://[::1]:{port}/", "http://169.254.169.254/"]
)
def test_nobody_has_a_validator_ask_his_own_network(tmp_path: Path, url: str) -> None:
    with serving(do=DONE) as server, serving(**{"": reply_of(plan())}) as far:
        text = f'name = "near"\nurl = "{url.format(port=far.server_address[1])}"\n'
        folder = competition(tmp_path, server, {"ann": text}, tasks=1)
        services = folder / "services.toml"
        services.write_text(services.read_text().replace("private = true", "private = false"))
        run(folder)
        assert far.seen == []
    assert "is not in the public network" in documents(folder)[0]["message"]


def test_trouble_of_ours_is_tried_again_then_left_missing_and_is_no_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(do=DONE) as server, monkeypatch.context() as patch:
        folder = competition(tmp_path, server, {"ann": 'name = "x"\nurl = "http://far.invalid/"\n', "bob": plan()}, tasks=1)
        patch.setattr(socket, "getaddrinfo", _no_such_host(socket.getaddrinfo, socket.EAI_AGAIN))
        events: list[RunEvent] = []
        summary = run(folder, events=events, attempts=3)
        assert [event.kind for event in events if event.cell and event.cell.participant == "ann"].count("again") == 2
    assert [(cell.participant, why) for cell, why in summary.errors] == [
        ("ann", "the name of a planner's host cannot be resolved: not known")
    ]
    assert outcomes(folder) == {("bob", "t0"): "ran"}

    calls = 0
    real = Desk.carry_out

    async def troubled(self: Desk, *rest: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise InfrastructureError("the host's disk is full")
        return await real(self, *rest, **more)

    with serving(do=DONE) as server:
        other = competition(tmp_path / "other", server, {"ann": plan()}, tasks=1)
        monkeypatch.setattr(Desk, "carry_out", troubled)
        assert dict(run(other).outcomes) == {"ran": 1}
    assert calls == 2


def test_what_broke_on_our_side_of_the_network_is_told_apart() -> None:
    ours, theirs = OSError(errno.ENETUNREACH, "Network is unreachable"), OSError(errno.ECONNREFUSED, "Connection refused")
    wrapped = RuntimeError("cannot connect")
    wrapped.__cause__ = ExceptionGroup("all attempts", [theirs, ours])
    with pytest.raises(InfrastructureError, match="the validator's network failed"):
        planners._raise_if_ours(wrapped)
    wrapped.__cause__ = ExceptionGroup("all attempts", [theirs])
    planners._raise_if_ours(wrapped)


PLANNER = """
import json, os, sys
package = json.load(sys.stdin)
assert json.load(open(os.environ["ASSAY_PACKAGE"])) == package
{more}
nodes = [dict(id=name, service="s", action="do", params=dict()) for name in ("first", "last")]
print(json.dumps(dict(nodes=nodes, edges=[["first", "last"]])))
"""


@pytest.mark.parametrize(
    ("more", "outcome", "why"),
    [
        ("", "ran", ""),
        ("sys.exit(3)", "invalid", "the planner ended with 3"),
        ("print('hello')", "invalid", "is not JSON"),
        ("print('x' * 300_000)", "invalid", "the most are 256000"),
        ("import time; time.sleep(100)", "invalid", "ran into its bound on time"),
        ("import socket; socket.create_connection(('127.0.0.1', 80))", "invalid", "the planner ended with 1"),
    ],
)
def test_a_planner_runs_in_a_box(tmp_path: Path, more: str, outcome: str, why: str) -> None:
    bubblewrap()
    with serving(do=DONE) as server:
        folder = competition(tmp_path, server, {"ann": None}, tasks=1)
        services = folder / "services.toml"
        services.write_text(
            services.read_text().replace('seconds = "20"', 'seconds = "1"' if "sleep" in more else 'seconds = "60"')
        )
        place = tmp_path / "mine"
        planner(place, 'name = "near"\nversion = "2"\ncommand = ["python3", "/planner/plan.py"]\n', [])
        (place / "plan.py").write_text(PLANNER.replace("{more}", more), encoding="utf-8")
        submit_plans(folder, "ann", place)
        run(folder)
    assert outcomes(folder) == {("ann", "t0"): outcome}
    document = documents(folder)[0]
    assert why in document["message"]
    assert document["planner"] == "near 2 (command)"


def test_a_submission_is_kept_by_its_digest(tmp_path: Path) -> None:
    with serving(do=DONE) as server:
        folder = competition(tmp_path / "c", server, {"ann": plan(), "bob": None})
        place = tmp_path / "mine"
        planner(place, plan(), ["t0"])
        first = submit_plans(folder, "bob", place)
        assert first.changed
        assert (folder / "planners" / short(first.planner.digest) / "t0.json").exists()
        assert not submit_plans(folder, "bob", place).changed
        run(folder)
        assert outcomes(folder)["bob", "t0"] == "ran"
        assert outcomes(folder)["bob", "t1"] == "invalid"  # there is no plan for it
        (place / "t1.json").write_text(json.dumps(plan()), encoding="utf-8")
        assert submit_plans(folder, "bob", place).changed
        assert run(folder).planned == 0  # in this round it was asked
        assert run(folder, epoch=2).judged == 4
        kept = folder / "planners" / short(submit_plans(folder, "bob", place).planner.digest)
        (kept / "t1.json").write_text("{}", encoding="utf-8")
        with pytest.raises(BadInput, match="is not what 'bob' submitted"):
            run(folder)
    with pytest.raises(BadInput, match=r"has neither planner\.toml nor a plan"):
        submit_plans(folder, "bob", folder / "tasks" / "t0")
    with pytest.raises(BadInput, match="no such folder"):
        submit_plans(folder, "bob", folder / "nothing")
    os.mkfifo(place / "pipe")
    with pytest.raises(BadInput, match="cannot be submitted"):
        submit_plans(folder, "bob", place)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"\n', "has url and command, or neither"),
        ('name = "x"\nurl = "http://a/"\ncommand = ["b"]\n', "has url and command, or neither"),
        ('name = "x"\nurl = "file:///etc/passwd"\n', "is not an address"),
        ('url = "http://a/"\n', "name: is missing"),
    ],
)
def test_a_planner_that_cannot_be_asked_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        planner(tmp_path / "mine", text, [])
