"""A bounty on the command line, from handing in to paying; and judgements looked at once more."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
import rfc8785

import ledger_kit
from assay.errors import BadInput
from assay.judge.rubric import prompts
from assay.judge.rubric.scripted import ScriptedFault, ScriptedSolution
from assay.ledger import keys
from assay.serve import pages, season
from bounty_kit import make_bounty
from bounty_run_kit import JUDGE, KEY, SOLVED, TEXTS, VALIDATOR, judged, lines, make_run, outcomes, scripted
from cli_kit import files_under, narrow, output, refused, rewrite, run
from ledger_kit import SIGNER


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    for name in ("ASSAY_PASSPHRASE", "ASSAY_LLM_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ASSAY_LLM_API_KEY", KEY)


def test_from_handing_in_to_paying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_bounty(tmp_path / "b", ("[payout]\n", JUDGE))
    (folder / "participants.csv").write_text("key,name,address\nann,Ann,0x" + "ab" * 20 + "\nbob,Bob,\ncyd,Cyd,\n")
    (folder / "validators.csv").write_text(f"key,stake,name\n{VALIDATOR},1,The one\n")
    for key, text in TEXTS.items():
        (tmp_path / f"{key}.md").write_text(text)
        printed = " ".join(output("submit", folder, key, tmp_path / f"{key}.md").split())
        assert f"The solution is the submission of {key}: sha256:" in printed
    assert "is already the submission of ann" in output("submit", folder, "ann", tmp_path / "ann.md")
    with scripted() as model:
        price = "deepseek-ai/DeepSeek-V3=0.27/1.1"
        completed = run("run", folder, "--validator", "The one", "--model-url", model.url, "--price", price)
    assert "3 solutions judged (3 judged)." in completed.stdout
    assert "A judgement took" in completed.stdout
    assert "3 of 3 participants have an agreed score." in completed.stdout
    shown = sorted(line.split()[:2] for line in completed.stderr.splitlines())
    assert shown == [["judged", key] for key in TEXTS]
    assert "[3/3]" in completed.stderr
    monkeypatch.setenv("ASSAY_LLM_BASE_URL", "http://127.0.0.1:9/v1")  # nobody is there, and nobody is needed
    assert "Nothing is missing: every solution of the submissions in participants.csv has its evidence." in " ".join(
        output("run", folder, "--validator", VALIDATOR).split()
    )
    document = json.loads(output("settle", folder, "--json"))
    paid = [(row["participant"], row["net"], row["address"]) for row in document["payouts"]]
    assert paid == [("ann", "1001", "0x" + "ab" * 20)]
    assert KEY not in completed.stdout + completed.stderr


def test_what_is_missing_shows_in_the_exit_code(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "c")
    with scripted(ScriptedFault(kind="400", solution="bob"), ScriptedFault(kind="prose", solution="cyd")) as model:
        completed = run("run", folder, "--validator", VALIDATOR, "--model-url", model.url, "--jobs", "1", columns=200, code=1)
    assert "2 solutions judged (1 judged, 1 unjudged), 1 left." in completed.stdout
    assert "Errors, which are nobody's fails" in completed.stdout
    assert "status-400" in completed.stdout
    assert KEY not in completed.stdout + completed.stderr
    with scripted() as model:
        words = ("run", folder, "--validator", VALIDATOR, "--model-url", model.url)
        assert "1 solution judged (1 judged)." in output(*words, columns=200)
        assert "1 solution judged (1 judged)." in output(*words, "--again", "-q", columns=200)
    assert outcomes(folder) == dict.fromkeys(TEXTS, "judged")


def test_what_the_command_refuses(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "c")
    words = ("run", folder, "--validator", VALIDATOR)
    for more, says in (
        ((), "no model is named that could judge"),
        (("--model-url", "file:///x"), "is not the address of a service"),
        (("--model-url", "http://u:secret@a/"), "is not the address of a service"),
        (("--model-url", "http://127.0.0.1:9/v1", "--price", "m=1"), "'m=1' is not a price; write NAME=IN/OUT"),
        (("--model-url", "http://127.0.0.1:9/v1", "--price", "m=0.0000001/1"), "is not a price"),
    ):
        message = refused(*words, *more)
        assert says in message
        assert "secret" not in message
    assert "says nothing to the judge of the kind 'rubric'" in run(*words, "--task", "t", columns=300, code=2).stderr
    assert "scheme.toml: no such file" in refused("submit", tmp_path, "ann", "x")
    assert "no such file" in refused("submit", folder, "ann", tmp_path / "nothing.md")


def test_signed_and_settled_by_a_ledger(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "c")
    key = keys.new()
    keys.save("judge", key)
    keys.save("log", SIGNER)
    rewrite(folder / "validators.csv", VALIDATOR, key.public.raw.hex())
    run("ledger", "init", folder, "--origin", ledger_kit.ORIGIN, "--key", "log")
    for who in TEXTS:
        assert "accepted in epoch" in output("submit", folder, who, tmp_path / "c-texts" / f"{who}.md", columns=200)
    with scripted() as model:
        printed = output("run", folder, "--sign", "judge", "--model-url", model.url)
        assert "3 records signed and added to the ledger." in printed
    assert "entry 0 of" in output("settle", folder, "--key", "log", columns=200)
    verified = output("export", "epoch", folder, "1", "-o", tmp_path / "epoch")
    assert "verify" in verified
    verdict = output("verify", tmp_path / "epoch", "--key", str(ledger_kit.KEY))
    assert "verified, and computed again" in verdict


# Once more


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bounty that is judged."""
    place = make_run(tmp_path / "c")
    with scripted() as model:
        judged(place, model.url)
    return place


def test_a_replay_comes_out_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files_under(folder)
    printed = " ".join(output("rejudge", folder, "ann").split())
    assert "ann: replayed, the judgement by val-1 comes out as it is in the evidence, 10000 BPS." in printed
    assert "Answered by scripted/deepseek-ai/DeepSeek-V3: 3 requests, " in printed
    assert "0 BPS" in output("rejudge", folder, "cyd")
    shown = run("rejudge", folder, "bob", "--json")
    replay = json.loads(shown.stdout)
    assert rfc8785.dumps(replay) + b"\n" == shown.stdout_bytes
    assert (replay["bps"], replay["asked"], replay["validator"]) == (6000, [], VALIDATOR)
    assert replay["answers"]["checks"] == {"C1": True, "C2": False}
    assert files_under(folder) == before
    monkeypatch.setattr(prompts, "digest", lambda: f"sha256:{'0' * 64}")
    errors = run("rejudge", folder, "ann", code=1).stderr
    assert len(re.findall(r"\b[0-9a-f]{64}\b", errors)) == 2, "digests are whole where --json has no refusal"


def test_published_quotes_are_on_the_page_of_the_bounty(folder: Path) -> None:
    assert "committed by digest, and not released." in shown(folder)
    text = json.loads(output("rejudge", folder, "ann", "--publish-quotes", "--json"))
    (record,) = [line for line in lines(folder) if line["participant"] == "ann"]
    quotes = json.loads(Path(text["quotes"]).read_text())["quotes"]
    assert quotes.keys() == record["quotes"].keys()
    for quote in quotes.values():
        assert html.escape(quote) in shown(folder)
        assert quote in TEXTS["ann"]
    assert f"{len(quotes)} quotes published in" in " ".join(output("rejudge", folder, "ann", "--publish-quotes").split())


def shown(folder: Path) -> str:
    return pages.page(season.read(folder), "bounty.html").decode()


def test_asked_again_every_changed_answer_is_told(folder: Path) -> None:
    before = files_under(folder)
    changed = ScriptedSolution(contains="integers march", checks={"C1": "integers march in order."}, verdict="FLAWED")
    with scripted() as model:
        same = " ".join(output("rejudge", folder, "ann", "--ask", "--times", "2", "--model-url", model.url).split())
        assert "Asked 2 times: 2 with the same answers, 2 with the same score." in same
    with scripted(solved=(changed, *SOLVED)) as model:
        words = ("rejudge", folder, "ann", "--ask", "--times", "3", "--model-url", model.url)
        shown = run(*words, columns=100)
        document = json.loads(output(*words, "--json"))
    text = shown.stdout
    assert narrow(text, 100)
    assert "Asked 3 times: 0 with the same answers, 0 with the same score." in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "C2 YES NO 3 of 3" in rows
    assert "verdict ELEGANT FLAWED 3 of 3" in rows
    assert "Score before: 10000 BPS; after: 4800 BPS." in rows
    assert shown.stderr.count("asked  4800 BPS, 2 changed") == 3
    assert (document["same_answers"], document["same_bps"]) == (0, 0)
    assert document["asked"][0]["changes"] == [
        {"name": "C2", "before": True, "after": False},
        {"name": "verdict", "before": "ELEGANT", "after": "FLAWED"},
    ]
    assert files_under(folder) == before  # it informs, and changes nothing
    assert KEY not in text + shown.stderr


def test_asked_again_it_may_be_unjudged_or_nobody_may_answer(folder: Path) -> None:
    with scripted(ScriptedFault(kind="prose")) as model:
        printed = output("rejudge", folder, "ann", "--ask", "--model-url", model.url)
        assert "Score before: 10000 BPS; after: unjudged." in printed
        assert "outcome" in printed
    with scripted(ScriptedFault(kind="400")) as model:
        assert "gave no judgement" in refused("rejudge", folder, "ann", "--ask", "--model-url", model.url, code=1)
    assert "no model is named" in refused("rejudge", folder, "ann", "--ask")


def test_an_unjudged_one_is_replayed_as_such(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "u")
    with scripted(ScriptedFault(kind="prose")) as model:
        judged(folder, model.url)
    assert "unjudged" in output("rejudge", folder, "ann")


def test_what_cannot_be_replayed(folder: Path, tmp_path: Path) -> None:
    assert "there is no participant 'eve'" in refused("rejudge", folder, "eve")
    assert "there is no judgement of the submission of 'ann' by 'val-2'" in refused(
        "rejudge", folder, "ann", "--validator", "val-2"
    )
    keys.save("other", keys.new("x25519"))
    assert "is not sealed to x25519:" in refused("rejudge", folder, "ann", "--key", "other")
    with scripted() as model:
        judged(folder, model.url, validator="val-2")
    assert "was judged by val-1, val-2; choose the validator" in refused("rejudge", folder, "ann")
    assert "by val-2 comes out as it is" in output("rejudge", folder, "ann", "--validator", "val-2")

    line = next(line for line in lines(folder) if line["participant"] == "ann")
    name = line["attestation"][7:]
    document, transcript = folder / "judgements" / f"{name}.json", folder / "transcripts" / f"{name}.sealed"
    words = ("rejudge", folder, "ann", "--validator", VALIDATOR)
    whole = document.read_bytes()
    document.write_bytes(whole.replace(b'"ELEGANT"', b'"FLAWED"'))
    assert "is not the judgement that the evidence names" in refused(*words)
    document.unlink()
    assert "no such file" in refused(*words)
    document.write_bytes(whole)
    sealed = transcript.read_bytes()
    transcript.write_bytes(sealed[:-40] + b"A" * 37 + sealed[-3:])
    assert "does not open with" in refused(*words)
    transcript.write_bytes(sealed)
    rewrite(folder / "bounty.toml", "a haiku about integers", "a sonnet about integers")
    assert "the bounty was changed since" in refused(*words)
    rewrite(folder / "bounty.toml", "a sonnet about integers", "a haiku about integers")
    solution = next(path for path in (folder / "solutions").iterdir() if b"integers march" in path.read_bytes())
    solution.unlink()
    assert "the solution of 'ann' is not here" in refused(*words)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"verdict":"ELEGANT"', '"verdict":"COHERENT"', "its field 'verdict' does not follow from the transcript"),
        ('"C2":true', '"C2":false', "its field 'checks' does not follow from the transcript"),
        ('"quotes":{"C1":"sha256:', '"quotes":{"C1":"sha255:', "its quotes are not those of the transcript"),
    ],
)
def test_evidence_that_says_something_else_than_its_transcript_is_found_out(folder: Path, old: str, new: str, says: str) -> None:
    file = folder / "evidence" / f"run-{VALIDATOR}.jsonl"
    text = file.read_text()
    (line,) = [splitline for splitline in text.splitlines() if '"ELEGANT"' in splitline]
    assert old in line
    file.write_text(text.replace(line, line.replace(old, new)))
    assert says in refused("rejudge", folder, "ann", code=1)


def test_evidence_from_elsewhere_has_no_transcript(folder: Path) -> None:
    file = folder / "evidence" / f"run-{VALIDATOR}.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    bare = [{name: value for name, value in row.items() if name != "attestation"} for row in rows]
    file.write_text("".join(json.dumps(row) + "\n" for row in bare))
    assert "the judgement names no document" in refused("rejudge", folder, "ann")


def test_a_key_is_asked_for_by_name_only() -> None:
    from assay.judge.rubric.asking import Price, parse_prices

    assert parse_prices(["a=b=0.27/1.1", "m=1/0"]) == {"a=b": Price(270_000, 1_100_000), "m": Price(1_000_000, 0)}
    for wrong in ("", "m", "=1/2", "m=1", "m=a/b", "m=1/-2"):
        with pytest.raises(BadInput, match="is not a price"):
            parse_prices([wrong])
