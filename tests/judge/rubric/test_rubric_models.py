"""How each model is asked, what a service may answer as, and what is said where it refuses. SPEC 2.3."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput, Refused, Unreachable
from assay.judge.rubric import service
from assay.judge.rubric.asking import JudgeProgress, Models, Price
from assay.judge.rubric.judgement import TokenUsage, why_fallback
from assay.judge.rubric.questions import guttered
from assay.judge.rubric.replay import replay_transcript
from assay.judge.rubric.scripted import ScriptedFault
from assay.judge.rubric.scripted_server import scripted_model
from assay.scheme.bounty import read_bounty
from bounty_run_kit import VALIDATOR, judged, make_run, outcomes, scripted
from cli_kit import output, refused
from rubric_kit import ADD, KEY, QUICK, asked, make_bounty, make_case, script

DEEPSEEK = "This response_format type is unavailable now"
SCHEMA = ScriptedFault(kind="400", model="deepseek-ai/DeepSeek-V3", message=DEEPSEEK)


def test_a_bounty_that_says_nothing_of_it_keeps_its_digest(tmp_path: Path) -> None:
    plain = make_bounty(tmp_path / "plain")
    text = (tmp_path / "plain" / "bounty.toml").read_text(encoding="utf-8")
    text = text.split("[judge.model]")[0] + "model = 'big'\nfallback = 'small'\n[[checks]]" + text.split("[[checks]]", 1)[1]
    (tmp_path / "plain" / "bounty.toml").write_text(text, encoding="utf-8")
    old = read_bounty(tmp_path / "plain")
    assert old.document()["judge"] == {"model": "big", "fallback": "small", "solution_tokens": 64_000}
    assert old.digest != plain.digest
    edits = ("[judge.model]\nname='big'\n", "[judge.model]\nname='big'\nformat='json_schema'\nmax_tokens=16000\ntimeout=300\n")
    for edit in edits:  # the defaults, said
        (tmp_path / "plain" / "bounty.toml").write_text(text.replace("model = 'big'\nfallback", "fallback") + edit, "utf-8")
        assert read_bounty(tmp_path / "plain").digest == old.digest


@pytest.mark.parametrize("line", ["format = 'text'", "max_tokens = 8192", "timeout = 60", "names = ['c']"])
def test_how_a_model_is_asked_is_of_the_bountys_digest(line: str, tmp_path: Path) -> None:
    asks = [line] if "names" not in line else []
    other = make_bounty(tmp_path / "b", asks=asks)
    if "names" in line:
        file = tmp_path / "b" / "bounty.toml"
        file.write_text(file.read_text("utf-8").replace("names = ['scripted/small']", line), "utf-8")
        other = read_bounty(tmp_path / "b")
    assert other.digest != make_bounty(tmp_path / "a").digest


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ("format = 'yaml'", "judge.model.format"),
        ("max_tokens = 0", "judge.model.max_tokens"),
        ("timeout = 0", "judge.model.timeout"),
        ("names = ['a b']", "judge.model.names[0]"),
        ("names = 'a'", "judge.model.names"),
        ("seed = 1", "judge.model.seed"),
    ],
)
def test_what_is_no_way_to_ask_is_refused_in_its_line(lines: str, field: str, tmp_path: Path) -> None:
    make_bounty(tmp_path)
    file = tmp_path / "bounty.toml"
    text = file.read_text("utf-8")
    names = next(line for line in text.splitlines() if line.startswith("names"))
    file.write_text(text.replace(names, lines, 1), "utf-8")
    with pytest.raises(BadInput) as refusal:
        read_bounty(tmp_path)
    assert refusal.value.field == field
    assert refusal.value.line == text.splitlines().index(names) + 1


@pytest.mark.parametrize("form", ["json_schema", "json_object", "text"])
def test_each_format_asks_as_it_says_and_is_judged(form: str, tmp_path: Path) -> None:
    asks = [f"format = '{form}'", "max_tokens = 8192", "timeout = 60"]
    case = make_case(tmp_path, asks=asks)
    bodies: list[dict[str, Any]] = []
    with scripted_model(script()) as server:
        models = Models(server.url, KEY)
        for called in models.settings(case.bounty, QUICK).models.values():
            bodies.append(case.baseline().body(called.name, called.model.format, called.parameters))
        judgement = asked(case, server.url)
    wanted = {"json_schema": "json_schema", "json_object": "json_object", "text": None}[form]
    for body in bodies:
        assert body.get("response_format", {}).get("type") == wanted
        assert body["max_tokens"] == 8192
        assert "json" in str(body["messages"]).lower(), "services want the word where they are asked for json_object"
    assert judgement.checks == {"C1": True, "C2": False}
    assert judgement.document()["asked"]["primary"] == {
        "asked": "big",
        "name": "big",
        "names": ["vendor/big", "scripted/big", "scripted/vendor/big"],
        "format": form,
        "max_tokens": 8192,
        "timeout": 60,
    }
    assert replay_transcript(judgement.transcript, case.bounty, case.problem, case.solution).answers == judgement.answers


@pytest.mark.parametrize("kind", ["fence", "think"])
@pytest.mark.parametrize(("form", "tries"), [("json_schema", 9), ("json_object", 3), ("text", 3)])
def test_a_fence_or_a_thought_costs_no_answer(kind: str, form: str, tries: int, tmp_path: Path) -> None:
    case = make_case(tmp_path, asks=[f"format = '{form}'"])
    with scripted_model(script(faults=[{"kind": kind, "times": 1, "each": True}])) as server:
        judgement = asked(case, server.url)
    assert judgement.checks == {"C1": True, "C2": False}
    assert judgement.measured is not None
    assert judgement.measured.tries == tries
    assert replay_transcript(judgement.transcript, case.bounty, case.problem, case.solution).answers == judgement.answers


def test_a_model_has_its_own_time(tmp_path: Path) -> None:
    case = make_case(tmp_path, asks=["timeout = 1"])
    with scripted_model(script(faults=[{"kind": "slow", "seconds": 30, "phase": "verdict", "times": 1}])) as server:
        judgement = asked(case, server.url)
    assert judgement.model == "big"
    assert judgement.measured is not None
    assert judgement.measured.tries == 4
    assert judgement.measured.usage == TokenUsage(None, None), "the request that timed out took tokens that nobody told"


def test_another_model_is_an_error_of_the_service_and_never_a_score(tmp_path: Path) -> None:
    case = make_case(tmp_path)
    with scripted_model(script(faults=[{"kind": "other-model", "model": "big"}])) as server:
        judgement = asked(case, server.url, prices={"big": Price(1, 1), "small": Price(1, 1)})
        assert len(server.seen) == 4
    assert (judgement.model, judgement.fallback) == ("small", "another-model")
    assert (judgement.exchanges[0].asked, judgement.exchanges[0].answered, judgement.exchanges[0].fault) == (
        "big",
        "scripted/another",
        "another-model",
    )
    assert judgement.measured is not None
    assert judgement.measured.cost is None, "what another model costs is not known"
    assert why_fallback(judgement.document()) == "the service answered for big as scripted/another"


@pytest.mark.parametrize(("kind", "code"), [("other-model", "another-model"), ("no-model", "unnamed-model")])
def test_where_both_are_other_models_it_is_missing(kind: str, code: str, tmp_path: Path) -> None:
    case = make_case(tmp_path)
    with scripted_model(script(faults=[{"kind": kind, "phase": "verdict"}])) as server, pytest.raises(Unreachable) as refusal:
        asked(case, server.url)
    assert refusal.value.final
    assert str(refusal.value).count(code) == 2


def test_a_replay_compares_the_model_too(tmp_path: Path) -> None:
    case = make_case(tmp_path)
    with scripted_model(script()) as server:
        judgement = asked(case, server.url)
    for old, new in (("scripted/big", "gpt-4o-mini"), ("big", "gpt-4o-mini")):
        text = judgement.transcript.decode().replace(f'"model":"{old}"', f'"model":"{new}"').replace(f':"{old}"', f':"{new}"')
        with pytest.raises(Refused):
            replay_transcript(text.encode(), case.bounty, case.problem, case.solution)


def test_a_name_that_the_bounty_does_not_list_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "b")
    with scripted() as server:
        with pytest.raises(BadInput, match="'gpt-4o-mini' is not a name under which deepseek-ai/DeepSeek-V3 may be served"):
            judged(folder, server.url, primary="gpt-4o-mini")
        assert not server.seen
        message = refused("run", folder, "--validator", VALIDATOR, "--model-url", server.url, "--fallback", "gpt-4o-mini")
    assert "judge.fallback.names" in " ".join(message.split())


def test_tokens_that_are_not_told_are_unknown(tmp_path: Path) -> None:
    case = make_case(tmp_path)
    with scripted_model(script(faults=[{"kind": "no-usage", "phase": "checks"}])) as server:
        judgement = asked(case, server.url, prices={"big": Price(1_000_000, 1_000_000)})
    assert judgement.measured is not None
    assert (judgement.measured.usage, judgement.measured.cost) == (TokenUsage(None, None), None)
    assert judgement.document()["measured"]["usage"] == {"prompt": None, "completion": None}
    assert Price(1, 1).of(TokenUsage(None, 5)) is None


def test_what_a_missing_solution_took_is_in_the_sums(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "b")
    price = dict.fromkeys(("deepseek-ai/DeepSeek-V3", "Qwen/Qwen2.5-72B-Instruct"), Price(1_000_000, 1_000_000))
    with scripted(ScriptedFault(kind="400", phase="verdict", solution="ann")) as server:
        missing = judged(folder, server.url, participants=("ann",), prices=price)
        everybody = judged(folder, server.url, participants=("bob", "cyd"), prices=price)
    (remark,) = missing.remarks
    assert remark.startswith("1 solution was asked about, 1 of which ended without a judgement; that took ")
    assert "It cost 0 in all" not in remark
    (other_remark,) = everybody.remarks
    assert "2 solutions were asked about; that took" in other_remark
    with scripted(ScriptedFault(kind="no-usage", solution="ann", phase="verdict")) as server:
        (remark,) = judged(folder, server.url, participants=("ann",), prices=price).remarks
    assert "how many tokens that took is not known" in remark
    assert "So what it cost is not known." in remark


def test_a_refusal_is_told_in_the_services_own_words(tmp_path: Path) -> None:
    """What happened with DeepSeek's own API: the fallback judged everything, and nobody was told why."""
    folder = make_run(tmp_path / "b")
    events: list[Any] = []
    with scripted(SCHEMA) as server:
        summary = judged(folder, server.url, tell=events.append)
    assert outcomes(folder) == {"ann": "judged", "bob": "judged", "cyd": "judged"}
    remarks = [remark for remark in summary.remarks if "fallback" in remark]
    whom = "3 solutions (ann, bob and cyd)"
    refusal = f"the service refused deepseek-ai/DeepSeek-V3 (status 400): {DEEPSEEK}"
    assert remarks == [f"The fallback model Qwen/Qwen2.5-72B-Instruct judged {whom}, because {refusal}."]
    assert any(DEEPSEEK in (event.phase or "") for event in events)
    board = " ".join(output("settle", folder, columns=300).split())
    why = "because the service refused deepseek-ai/DeepSeek-V3 (status 400)."
    assert f"The fallback model Qwen/Qwen2.5-72B-Instruct judged ann, bob and cyd, {why}" in board
    explained = " ".join(output("explain", folder, "ann", columns=300).split())
    assert f"The fallback model Qwen/Qwen2.5-72B-Instruct made the judgement by val-1, {why}" in explained
    again = " ".join(output("rejudge", folder, "ann", columns=300).split())
    assert f"The fallback model judged, {why}" in again


def test_where_the_first_model_judges_nothing_is_said_of_the_fallback(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "b")
    with scripted() as server:
        assert not [remark for remark in judged(folder, server.url).remarks if "fallback" in remark]
    assert "fallback" not in output("settle", folder)
    assert "fallback" not in output("explain", folder, "ann")
    for file in (folder / "judgements").iterdir():
        assert json.loads(file.read_text("utf-8"))["fallback"] is None
        file.unlink()
    output("settle", folder)  # documents may be elsewhere


def test_words_have_neither_secrets_nor_solutions(tmp_path: Path) -> None:
    case = make_case(tmp_path)
    message = f"\x1b[31mbad key {KEY}\n in: {ADD}" + "x" * 1000
    with scripted_model(script(faults=[{"kind": "400", "message": message}])) as server, pytest.raises(Unreachable) as refusal:
        asked(case, server.url)
    shown = str(refusal.value)
    assert "bad key … in: …" in shown
    assert "return a + b" not in shown
    assert KEY not in shown
    assert "\x1b" not in shown
    assert "x" * 301 not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("a b", "a b"),
        ("a\u202eb", "a\\u202eb"),
        ("got: the secret text of a solution, sorry", "got:…, sorry"),
        ("the secret text of a solution", "…"),
        ("sk-1 and sk-1", "… and …"),
    ],
)
def test_words(text: str, shown: str) -> None:
    assert service.service_message(text, ["sk-1", ""], ["See the secret text\nof a solution!"]) == shown


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("status-400", "the service refused big (status 400)"),
        ("another-model", "the service answered for big as gpt"),
        ("unnamed-model", "the service did not say that big answered"),
        ("timeout", "big did not answer in time"),
        ("wrong-form", "the answers of big stayed malformed (wrong-form)"),
        (None, ""),
    ],
)
def test_why_the_fallback_judged(code: str | None, why: str) -> None:
    row = {"asked": "big", "answered": "gpt", "fault": code}
    assert why_fallback({"fallback": code, "asked": {"primary": {"asked": "big"}}, "exchanges": [row]}) == why


def test_a_judgement_of_before_has_no_fallback() -> None:
    assert why_fallback({"schema": "assay.judgement/1"}) == ""


def test_bounty_check_says_how_each_model_is_asked(tmp_path: Path) -> None:
    make_bounty(tmp_path / "b", asks=["format = 'json_object'", "max_tokens = 8192"])
    printed = " ".join(output("bounty", "check", tmp_path / "b", columns=300).split())
    assert "small must be served under that name or as scripted/small." in printed
    assert "It answers as a JSON object, with 8192 tokens and 300 seconds at most." in printed


def test_a_missing_solution_tells_what_it_took(tmp_path: Path) -> None:
    case, events = make_case(tmp_path), list[JudgeProgress]()
    with scripted_model(script(faults=[{"kind": "401", "phase": "checks"}])) as server, pytest.raises(Unreachable) as refusal:
        asked(case, server.url, on_event=events.append)
    assert "as the script says" in str(refusal.value)
    assert events[-1].kind == "missing"
    assert events[-1].measured is not None
    assert events[-1].measured.tries == 2
    assert events[-1].measured.usage.total


@pytest.mark.parametrize(
    "written",
    [
        repr,
        json.dumps,
        lambda text: json.dumps(json.dumps(text)),
        lambda text: guttered("0123abcd", text),
        lambda text: repr(guttered("0123abcd", text)),
        lambda text: text.replace("\n", "<br>"),
        str.upper,
    ],
)
def test_what_a_service_repeats_in_its_own_writing_is_left_out(written: Callable[[str], str]) -> None:
    solution = 'k = 7\nq = k * 3\nprint("ключ", q)\nx = hidden()\nreturn x + q\n'
    shown = service.service_message(f"status 400: invalid input {written(solution)}", [], [solution])
    assert shown.startswith("status 400: invalid input ")
    assert not any(part in shown.lower() for part in ("k * 3", "print", "hidden", "return", "ключ", "043a"))
    plain = "This response_format type is unavailable now, and max_tokens is above 8192."
    assert service.service_message(plain, [], [solution]) == plain
