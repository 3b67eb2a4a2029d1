"""Near-copies in a folder: who is flagged, what a hold keeps from being judged, and what a release writes down."""

import json
from pathlib import Path
from random import Random

import pytest

import small_folder
from assay.errors import BadInput
from assay.folder import csvs, registry
from assay.folder.files import Place
from assay.judge import entries, holds, prints
from assay.judge.run_files import short
from assay.judge.terminal.agent import load_agent
from assay.records import Participant
from assay.scheme.load import read
from cli_kit import output, refused

LINES = [
    f"if x{'+' * (at % 7)}1 {op} y[{'z,' * (at % 5)}0]: return a {op} (b{'.c' * (at % 3)})"
    for at in range(200)
    for op in ("<", "*", "|")
]


def _agent(place: Path, lines: list[str], **files: bytes) -> str:
    place.mkdir(parents=True)
    (place / "agent.toml").write_text('name = "a"\ncommand = ["./main.py"]\n')
    (place / "main.py").write_text("\n".join(lines))
    for name, data in files.items():
        (place / name).write_bytes(data)
    return load_agent(place).digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """early and late hand in nearly the same, early first; other hands in something else, earliest."""
    source = Random(1).sample(LINES, 120)
    agents = {
        "early": (source, "2026-11-01T10:00:00Z"),
        "late": (["# mine", *(line.replace("x", "mine") for line in source[60:] + source[:60])], "2026-11-01T11:00:00Z"),
        "other": (
            ["\n".join(f"def f{at}(): yield [{at} for _ in range({at})][-1] % {at}" for at in range(60))],
            "2026-11-01T09:00:00Z",
        ),
    }
    rows = []
    for uid, (name, (lines, at)) in enumerate(agents.items(), start=1):
        digest = _agent(tmp_path / name, lines, **({} if name == "other" else {"data.bin": b"\0same"}))
        target = tmp_path / "season" / "agents" / short(digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).rename(target)
        rows.append(f"{name},{uid},,{digest},{at}\n")
    season = small_folder.make(
        tmp_path / "season", participants_csv="key,uid,name,submission,submitted_at\n" + "".join(rows), evidence=""
    )
    return season


def _people(folder: Path) -> tuple[Participant, ...]:
    file = folder / "participants.csv"
    return registry.participants(csvs.read(file, csvs.PARTICIPANTS), Place(file), read(folder / "scheme.toml"))


def _hold(folder: Path) -> None:
    with (folder / "scheme.toml").open("a") as file:
        file.write('\n[submission]\ncopies = "hold"\n')


def _judged(folder: Path) -> list[str]:
    return [participant.key for participant in entries.judgeable(entries.read(folder, read(folder / "scheme.toml"), "v1"))]


def test_the_later_is_flagged_with_passages_and_equal_files(folder: Path) -> None:
    document = json.loads(output("copies", str(folder), "--json"))
    (near,) = document["near"]
    assert (near["participant"], near["earlier"]["participant"], near["held"]) == ("late", "early", False)
    assert near["same_files"] == [{"file": "data.bin", "earlier_file": "data.bin"}]
    assert {passage["file"] for passage in near["passages"]} == {"main.py"}
    assert document["compared"] == 3
    text = output("copies", str(folder), "--participant", "late", columns=120)
    assert "main.py:" in text
    assert "data.bin has the bytes of data.bin" in text


def test_a_baseline_is_left_out(folder: Path) -> None:
    early = next((folder / "agents").glob("*/main.py"))
    texts = [path for path in (folder / "agents").glob("*/main.py") if path.read_text().startswith("# mine")]
    assert json.loads(output("copies", str(folder), "--json", "--baseline", str(texts[0])))["near"] == []
    (folder / "baseline").mkdir()
    (folder / "baseline" / early.name).write_bytes(texts[0].read_bytes())
    assert json.loads(output("copies", str(folder), "--json"))["near"] == []


def test_a_hold_lasts_until_the_release_which_is_written_down(folder: Path) -> None:
    assert _judged(folder) == ["early", "late", "other"]
    _hold(folder)
    assert _judged(folder) == ["early", "other"]
    (why,) = holds.held(folder, read(folder / "scheme.toml"), _people(folder)).values()
    assert "early" in why
    assert "It is not judged meanwhile" in why
    seen = entries.read(folder, read(folder / "scheme.toml"), "v1")
    assert entries.held_remarks(seen) == [f"late is held. {why}"]
    refused("copies", str(folder), "--release", "late")
    refused("copies", str(folder), "--release", "nobody", "--by", "me", "--reason", "so")
    output("copies", str(folder), "--release", "late", "--by", "alice", "--reason", "same author")
    assert _judged(folder) == ["early", "late", "other"]
    (row,) = holds.decisions(folder).values()
    assert (row["participant"], row["by"], row["reason"]) == ("late", "alice", "same author")
    with (folder / holds.DECISIONS).open("a") as file:
        file.write('{"participant":1}\n')
    with pytest.raises(BadInput, match="is no decision"):
        holds.decisions(folder)


def test_what_is_too_large_or_absent_is_said_and_not_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prints, "ALL_BYTES", 100)
    prints._read.cache_clear()
    document = json.loads(output("copies", str(folder), "--json"))
    assert (document["compared"], document["near"], document["too_large"]) == (0, [], ["other", "early", "late"])
    monkeypatch.undo()
    prints._read.cache_clear()
    monkeypatch.setattr(prints, "ALL_PRINTS", 100)
    assert json.loads(output("copies", str(folder), "--json"))["too_large"] == ["other", "early", "late"]
    (folder / "agents").rename(folder / "elsewhere")
    assert json.loads(output("copies", str(folder), "--json"))["absent"] == ["other", "early", "late"]
    assert "whose files are not here" in output("copies", str(folder))
