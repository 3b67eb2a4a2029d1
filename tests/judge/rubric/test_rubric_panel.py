"""Panels over the real protocol: every answer is kept, apart and replayed; an error is no vote; a split is no fail. SPEC 2.3."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.competition import open_competition
from assay.errors import BadInput, Refused, Unreachable
from assay.exact import canonical, digest
from assay.judge.rubric.asking import JudgeProgress, Models
from assay.judge.rubric.judgement import LIMITS, Judgement
from assay.judge.rubric.panel import panel_judgement, split_transcript
from assay.judge.rubric.questions import PanelSeat, RubricCase
from assay.judge.rubric.replay import replay_transcript
from assay.judge.rubric.scripted import ScriptedFault, ScriptedSolution
from assay.judge.rubric.scripted_server import scripted_model
from assay.judge.rubric.solution import Solution
from assay.scheme.bounty import Bounty, read_bounty
from bounty_run_kit import SOLVED, TEXTS, judged, lines, make_run, scripted
from cli_kit import output, run
from rubric_kit import ADD, asked, make_bounty, script

PANEL = '[[judge.panel]]\nname = "one"\n[[judge.panel]]\nname = "two"\n[[judge.panel]]\nname = "three"\n'
NAMES = ("one", "two", "three")


def panelled(folder: Path, panel: str = PANEL, rules: str = "answers = 3") -> Bounty:
    """A bounty that a panel judges; each model may be served as the scripted one of its name."""
    make_bounty(folder)
    scheme, bounty = folder / "scheme.toml", folder / "bounty.toml"
    scheme.write_text(scheme.read_text().replace('kind = "rubric"\n', f'kind = "rubric"\n[score.panel]\n{rules}\n'))
    for name in NAMES:
        panel = panel.replace(f'name = "{name}"\n', f'name = "{name}"\nnames = ["scripted/{name}"]\n')
    bounty.write_text(bounty.read_text().replace("[[checks]]", f"{panel}[[checks]]", 1))
    return read_bounty(folder)


def a_case(bounty: Bounty, seat: PanelSeat | None = None) -> RubricCase:
    assert bounty.problem is not None
    return RubricCase(bounty, bounty.problem, Solution({"add.py": ADD}), seat)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> RubricCase:
    return a_case(panelled(tmp_path_factory.mktemp("bounty")))


def solved(**by: Any) -> list[dict[str, Any]]:
    """What each model says; others say YES to C1."""
    own = [{"model": name, "checks": {"C1": "return a + b"}} | answer for name, answer in by.items()]
    return [*own, {"checks": {"C1": "return a + b"}}]


def by_panel(
    case: RubricCase, *faults: dict[str, Any], on: Callable[[JudgeProgress], None] | None = None, **by: Any
) -> Judgement:
    panel_script = script(faults=list(faults)).model_validate({"solutions": solved(**by), "faults": list(faults)})
    with scripted_model(panel_script) as server:
        return asked(case, server.url, on_event=on or (lambda _event: None))


def test_each_answer_is_of_its_model_and_the_majority_decides(case: RubricCase) -> None:
    judgement = by_panel(case, two={"checks": {}, "verdict": "FLAWED"})
    assert (judgement.outcome, judgement.checks, judgement.verdict) == ("judged", {"C1": True, "C2": False}, "COHERENT")
    assert [answer.judge for answer in judgement.panel] == list(NAMES)
    assert [(answer.checks or {})["C1"] for answer in judgement.panel] == [True, False, True]
    assert judgement.quotes == {"C1": "return a + b"}
    assert judgement.model is None
    document = judgement.document()
    assert (document["schema"], len(document["answers"])) == ("assay.panel/1", 3)
    assert [answer["parameters"]["seed"] for answer in document["answers"]] == [42, 43, 44]
    assert {answer["schema"] for answer in document["answers"]} == {"assay.judgement/2"}
    assert judgement.measured is not None
    assert judgement.measured.tries == 9


def test_no_two_answers_have_an_equal_request(case: RubricCase) -> None:
    seats = [a_case(case.bounty, PanelSeat(answer, 3)) for answer in (1, 2, 3)]
    for ask in (RubricCase.baseline, lambda of: of.checks(1), lambda of: of.verdict({"C1": True, "C2": False})):
        bodies = {canonical(ask(seat).body("m", "text", seat.parameters)) for seat in seats}
        assert len(bodies) == 3
        assert all(f"This is number {seat.seat.answer}." in ask(seat).parts[-1] for seat in seats if seat.seat is not None)
    assert [[check.id for check in seat.order] for seat in seats] == [["C1", "C2"], ["C1", "C2"], ["C2", "C1"]]
    assert case.baseline().parts[:2] == seats[0].baseline().parts[:2]  # what a service caches of the beginning stays


def test_an_answer_that_fails_is_asked_for_again_and_is_no_vote(case: RubricCase) -> None:
    down = [{"kind": "422", "model": "two", "times": 1}, {"kind": "422", "model": "small", "times": 1}]
    events: list[JudgeProgress] = []
    judgement = by_panel(case, *down, on=events.append)
    assert (judgement.outcome, [answer.judge for answer in judgement.panel]) == ("judged", list(NAMES))
    assert [event.kind for event in events].count("missing") == 1
    assert any(event.phase == "checks 2/3" for event in events)
    with pytest.raises(Unreachable, match=r"gave no judgement: two \(status-422"):
        by_panel(case, *({**fault, "times": 0} for fault in down))


def test_the_fallback_answers_in_a_members_place(case: RubricCase) -> None:
    judgement = by_panel(case, {"kind": "prose", "model": "two"})
    assert [answer.judge for answer in judgement.panel] == ["one", "small", "three"]
    unjudged = by_panel(case, {"kind": "prose", "model": "two"}, {"kind": "prose", "model": "small"})
    assert [(answer.judge, answer.outcome) for answer in unjudged.panel] == [
        ("one", "judged"),
        ("two", "unjudged"),
        ("three", "judged"),
    ]
    assert unjudged.outcome == "judged"
    split = by_panel(case, {"kind": "prose", "model": "two"}, {"kind": "prose", "model": "small"}, three={"checks": {}})
    assert (split.outcome, split.reason, split.checks) == ("unjudged", "panel-split", None)


def test_disagreement_above_the_bound_is_unjudged(tmp_path: Path) -> None:
    case = a_case(panelled(tmp_path, rules='answers = 3\nmax_disagreement = "1/4"'))
    judgement = by_panel(case, two={"checks": {}})
    assert (judgement.outcome, judgement.reason, judgement.baseline) == ("unjudged", "panel-split", None)


def test_a_panel_of_one_model_and_of_a_name_that_is_given(tmp_path: Path) -> None:
    alone = panelled(tmp_path / "a", panel="", rules="answers = 2")
    judgement = by_panel(a_case(alone))
    assert [answer.judge for answer in judgement.panel] == ["big", "big"]
    assert judgement.model == "scripted/big" or judgement.model == "big"
    bounty = panelled(tmp_path / "b")
    models = Models("http://127.0.0.1:1/v1", primary="scripted/two")
    names = [models.settings(bounty, LIMITS, PanelSeat(answer, 3)).primary.name for answer in (1, 2, 3)]
    assert names == ["one", "scripted/two", "three"]
    assert models.settings(bounty, LIMITS).primary.name == "one"
    with pytest.raises(BadInput, match="'four' is not a name under which one may be served"):
        Models("http://127.0.0.1:1/v1", primary="four").settings(bounty, LIMITS)


def test_a_bounty_refuses_models_that_are_not_asked(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has 3 models, and the scheme asks for only 2 answers") as caught:
        panelled(tmp_path, rules="answers = 2")
    assert caught.value.field == "judge.panel"
    scheme = tmp_path / "scheme.toml"
    scheme.write_text(scheme.read_text().replace("[score.panel]\nanswers = 2\n", ""))
    with pytest.raises(BadInput, match="the scheme asks for no panel"):
        read_bounty(tmp_path)


def test_a_replay_comes_to_the_same_panel_and_a_changed_one_is_refused(case: RubricCase) -> None:
    judgement = by_panel(case, two={"checks": {}})
    bare = replace(judgement, measured=None, panel=tuple(replace(answer, measured=None) for answer in judgement.panel))
    assert replay_transcript(judgement.transcript, case.bounty, case.problem, case.solution) == bare
    kept = [data.decode() for data in split_transcript(judgement.transcript)]

    def joined(answers: list[str]) -> bytes:
        return canonical({"schema": "assay.panel-transcript/1", "answers": answers})

    for answers, why in (
        (kept[:2], "another number of answers"),
        ([kept[1], kept[0], kept[2]], "not a transcript of this answer"),
        ([kept[0], kept[1].replace('"YES', '"NO', 1), kept[2]], "do(es)? not follow|do not lead|no request contains"),
    ):
        with pytest.raises((Refused, BadInput), match=why):
            replay_transcript(joined(answers), case.bounty, case.problem, case.solution)
    for data in (b"[]", b"{}", b'{"answers": [], "schema": "assay.panel-transcript/1"}', judgement.panel[0].transcript):
        with pytest.raises(BadInput, match="not the transcript of a panel"):
            replay_transcript(data, case.bounty, case.problem, case.solution)


def test_the_document_binds_every_answer(case: RubricCase) -> None:
    judgement = by_panel(case)
    changed = replace(judgement.panel[2], verdict="FLAWED")
    other = panel_judgement([*judgement.panel[:2], changed], case.bounty)
    assert other.answers == judgement.answers
    assert digest(other.document()) != digest(judgement.document())


TWO = (
    '[[judge.panel]]\nname = "one"\nnames = ["scripted/one"]\n[[judge.panel]]\nname = "two"\nnames = ["scripted/two"]\n\n[payout]'
)


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    folder = make_run(tmp_path / "c")
    scheme, bounty = folder / "scheme.toml", folder / "bounty.toml"
    scheme.write_text(scheme.read_text().replace('kind = "rubric"\n', 'kind = "rubric"\n[score.panel]\nanswers = 3\n'))
    bounty.write_text(bounty.read_text().replace("[payout]", TWO))
    return folder


def test_a_run_settles_explains_and_replays(run_folder: Path) -> None:
    ann = SOLVED[0]
    doubting = ScriptedSolution(model="two", contains="integers march", checks={"C1": ann.checks["C1"]}, verdict="ELEGANT")
    with scripted(ScriptedFault(kind="429", model="two", times=1), solved=(doubting, *SOLVED)) as server:
        judged(run_folder, server.url)
    kept = {line["participant"]: line for line in lines(run_folder)}
    assert kept.keys() == TEXTS.keys()
    assert [answer["judge"] for answer in kept["ann"]["panel"]] == ["one", "two", "one"]
    assert (kept["ann"]["checks"], kept["cyd"]["baseline"]["B3"]) == ({"C1": True, "C2": True}, False)
    agreed = {row["participant"]: row for row in open_competition(run_folder).settle().document["agreed"]}
    assert {key: row["bps"] for key, row in agreed.items()} == {"ann": 10_000, "bob": 6000, "cyd": 0}
    assert [(work["flips"], work["votes"]) for row in agreed.values() for work in [row["validators"][0]["work"]]] == [
        (1, 21),
        (0, 21),
        (0, 12),
    ]
    explained = " ".join(output("explain", run_folder, "ann").split())
    assert "In 1 panel, 1 of 21 votes differ from the majority, most of them at C2 (1/3)." in explained
    assert "By model: one 0/14, two 1/7." in explained
    again = json.loads(output("rejudge", run_folder, "ann", "--json"))
    assert again["bps"] == 10_000
    assert again["panel"]["judges"] == {"one": {"flips": 0, "votes": 14}, "two": {"flips": 1, "votes": 7}}
    board = " ".join(output("settle", run_folder).split())
    assert "In 3 panels, 1 of 54 votes differ from the majority" in board


def test_a_split_panel_is_told_and_no_fail(run_folder: Path) -> None:
    scheme = run_folder / "scheme.toml"
    scheme.write_text(scheme.read_text().replace("answers = 3\n", 'answers = 3\nmax_disagreement = "1/4"\n'))
    doubting = ScriptedSolution(model="two", contains="integers march", verdict="COHERENT")
    with scripted(solved=(doubting, *SOLVED)) as server:
        judged(run_folder, server.url)
    agreed = {row["participant"]: row for row in open_competition(run_folder).settle().document["agreed"]}
    assert (agreed["ann"]["status"], agreed["ann"]["score"]) == ("unjudged", None)
    assert agreed["ann"]["not_counted"] == [{"validator": "val-1", "reason": "panel-split", "missing": 0}]
    assert agreed["bob"]["bps"] == 6000
    explained = " ".join(output("explain", run_folder, "ann").split())
    assert "The answers of the panel of val-1 differ too much" in explained
    assert "In 1 panel, 3 of 21 votes differ from the majority" in explained
    assert "1 of 1 panel is split, so unjudged." in explained


def test_evidence_that_contradicts_its_transcript_is_refused(run_folder: Path) -> None:
    with scripted() as server:
        judged(run_folder, server.url)
    file = run_folder / "evidence" / "run-val-1.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        row["panel"][0]["judge"] = "two"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done = run("rejudge", run_folder, "ann", code=1)
    assert "its field 'panel' does not follow from the transcript" in " ".join(done.stderr.split())
