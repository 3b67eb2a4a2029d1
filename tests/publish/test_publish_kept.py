"""A target's journal in the ledger, on both databases: one truth, one writer at a time, and what a file had is taken over."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
from assay.errors import BadInput
from assay.ledger import config, store
from assay.publish import publishers
from assay.publish.journal import FileLines, Journal, Overtaken
from assay.publish.outcome import Refusal, TooEarly, Unknown
from assay.publish.publishers import Target
from cli_kit import output, refused


@pytest.fixture
def place(database: str, tmp_path: Path) -> Path:
    """A competition with an empty ledger in a database, and a target."""
    folder = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    (folder / "publish.toml").write_text('[targets.local]\nkind = "evm"\n[targets.other]\nkind = "evm"\n')
    return folder


def target(place: Path, name: str = "local") -> Target:
    return publishers.read_target(place, name)


def journal(place: Path, name: str = "local") -> Journal:
    return target(place, name).journal()


def file_of(place: Path) -> Path:
    return place / "published" / "local.jsonl"


def in_file(place: Path, *numbers: int) -> Path:
    """The journal of the target, as it was while there was no ledger."""
    journal = Journal(FileLines(file_of(place)))
    for number in numbers:
        journal.add({"number": number})
    return file_of(place)


def numbers(place: Path) -> list[Any]:
    return [entry["number"] for entry in journal(place).entries]


def test_what_is_added_is_in_the_ledger(place: Path) -> None:
    first = journal(place)
    first.add({"state": "planned", "number": 1})
    first.add({"state": "sent"})
    assert journal(place).entries == first.entries == [{"state": "planned", "number": 1}, {"state": "sent"}]
    assert journal(place, "other").entries == []
    assert not (place / "published").exists()
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        assert view.attempts("local")[0] == b'{"number":1,"previous":"","state":"planned"}'


def test_a_folder_without_a_ledger_has_a_file(place: Path) -> None:
    (place / config.FILE).unlink()
    journal(place).add({"number": 1})
    assert file_of(place).read_text() == '{"number":1,"previous":""}\n'


def test_who_is_behind_writes_nothing(place: Path) -> None:
    first, second = journal(place), journal(place)
    first.add({"number": 1})
    with pytest.raises(Overtaken, match=r"local: something else is being sent; wait"):
        second.add({"number": 1})
    assert second.read() == [{"number": 1}]
    second.add({"number": 2})
    with pytest.raises(Overtaken):
        first.add({"number": 2})
    assert numbers(place) == [1, 2]


def _race(place: Path, done: Any) -> None:
    count = 0
    while len((mine := journal(place)).entries) < 20:
        try:
            mine.add({"number": len(mine.entries)})
            count += 1
        except Overtaken:
            pass
    done.put(count)


def test_many_at_once_write_one_after_the_other(place: Path) -> None:
    context = ledger_kit.processes()
    done = context.Queue()
    workers = [context.Process(target=_race, args=(place, done)) for _ in range(2)]
    for worker in workers:
        worker.start()
    counts = [done.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join(120)
    assert numbers(place) == list(range(20))
    assert sum(counts) == 20


# What a file had


def test_a_file_from_before_is_taken_over_with_the_first_line(place: Path) -> None:
    path = in_file(place, 1, 2)
    with path.open("ab") as file:
        file.write(b'{"cut')  # by a crash, and never acted upon
    before = path.read_bytes()
    own_journal = journal(place)
    assert own_journal.entries == [{"number": 1}, {"number": 2}]
    assert path.read_bytes() == before, "to look changes nothing"
    own_journal.add({"number": 3})
    assert not path.exists()
    assert path.with_name("local.jsonl.in-ledger").read_bytes() == before
    assert numbers(place) == [1, 2, 3]


def test_a_crash_before_the_file_was_put_aside(place: Path) -> None:
    path = in_file(place, 1, 2)
    shutil.copy(path, path.with_name("copy"))
    journal(place).add({"number": 3})
    path.with_name("copy").rename(path)
    again = journal(place)
    assert again.entries == [{"number": 1}, {"number": 2}, {"number": 3}]
    again.add({"number": 4})
    assert not path.exists()
    assert numbers(place) == [1, 2, 3, 4]


def test_a_file_that_was_written_since_is_not_passed_over(place: Path) -> None:
    journal(place).add({"number": 1})
    before = journal(place)
    path = in_file(place, 8)
    for look in (lambda: journal(place), lambda: before.add({"number": 2})):
        with pytest.raises(BadInput, match=r"local.jsonl: was written after the ledger .* find out what was sent by it"):
            look()
    path.unlink()
    assert numbers(place) == [1]


def test_two_who_take_it_over_at_once(place: Path) -> None:
    in_file(place, 1)
    first, second = journal(place), journal(place)
    first.add({"number": 2})
    with pytest.raises(Overtaken):
        second.add({"number": 2})
    assert numbers(place) == [1, 2]


def test_a_file_that_cannot_be_put_aside_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = in_file(place, 1)
    path.with_name("local.jsonl.in-ledger").mkdir()
    journal(place).add({"number": 2})
    journal(place).add({"number": 3})
    assert path.exists()
    assert numbers(place) == [1, 2, 3]


# What is wrong with the ledger


def test_a_ledger_that_is_not_there_or_another(place: Path, tmp_path: Path) -> None:
    text = (place / config.FILE).read_text()
    other = ledger_kit.ledger_folder(tmp_path / "other")
    with closing(sqlite3.connect(other / "ledger.db")) as database:
        for name in ("update", "delete"):
            database.execute(f"DROP TRIGGER IF EXISTS meta_no_{name}")
        database.execute("UPDATE meta SET value = 'example.org/else' WHERE key = 'origin'")
        database.commit()
    lines = [line for line in text.splitlines() if line.startswith("database")]
    (place / config.FILE).write_text(text.replace(lines[0], f'database = "{other / "ledger.db"}"'))
    with pytest.raises(BadInput, match=r"the database .*other/ledger.db is of the log"):
        journal(place)
    (place / config.FILE).write_text(text.replace(lines[0], 'database = "gone.db"'))
    with pytest.raises(store.NotALedger, match=r"gone.db: there is no such file"):
        journal(place)


def test_a_line_that_was_changed(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    (place / "publish.toml").write_text('[targets.local]\nkind = "evm"\n')
    for number in (1, 2):
        journal(place).add({"number": number})
    assert "2 entries on what was sent to chains." in output("ledger", "check", place)
    with closing(sqlite3.connect(place / "ledger.db")) as database:
        database.execute("DROP TRIGGER attempts_no_update")
        database.execute("UPDATE attempts SET entry = CAST(replace(entry, '1', '9') AS BLOB) WHERE number = 1")
        database.commit()
    with pytest.raises(BadInput, match=r"ledger.db: local:2: was changed"):
        journal(place)
    assert "ledger.db: local:2: was changed" in refused("ledger", "check", place)


# What a command ended with


def test_what_it_ended_with_is_noted_once(place: Path) -> None:
    own_journal = journal(place)
    for outcome in (TooEarly(7, "block", "wait"), Unknown("gone"), Refusal("c", "w")):
        for _ in range(2):
            own_journal.note("epoch 3", "sha256:", outcome)
    again = journal(place).entries
    assert [(entry["state"], entry["subject"], entry["plan"]) for entry in again] == [
        (state, "epoch 3", "sha256:") for state in ("too-early", "unknown", "refused")
    ]
    assert (again[0]["from"], again[0]["unit"]) == (7, "block")
    assert again[0]["at"].startswith("20")


def test_a_pipe_is_no_journal_and_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "published").mkdir()
    os.mkfifo(file_of(tmp_path))
    with pytest.raises(BadInput, match=r"local\.jsonl: cannot be read \(it is a pipe or a device\)"):
        Journal(FileLines(file_of(tmp_path)))
    os.mkfifo(tmp_path / "publish.toml")
    with pytest.raises(BadInput, match=r"publish\.toml: cannot be read \(it is a pipe or a device\)"):
        target(tmp_path)
