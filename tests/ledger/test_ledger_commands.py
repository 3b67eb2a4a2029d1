"""`assay ledger init|check|migrate` and `assay evidence add|list`, and ledger.toml."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import cli_kit
import ledger_kit
import postgres
import small_folder
import store_kit as kit
from assay.errors import BadInput
from assay.ledger import access, config, keys, store
from assay.ledger.config import Config
from assay.ledger.log import Log
from assay.ledger.store import schema
from cli_kit import output, refused, run
from ledger_kit import KEY, NAMES, ORIGIN, SIGNER, V1, V2


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's key, in a folder of its own."""
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    keys.save("log", SIGNER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A competition without a ledger."""
    return small_folder.make(tmp_path / "c", validators_csv=NAMES, evidence=None)


def init(folder: Path, *more: str) -> str:
    return output("ledger", "init", folder, "--origin", ORIGIN, "--key", "log", *more)


def files(tmp_path: Path, *records: dict[str, Any]) -> list[Path]:
    """A file for each validator and epoch of the records."""
    place = tmp_path / "c"
    paths = []
    for number, batch in enumerate(ledger_kit.batches(place, records)):
        paths.append(tmp_path / f"{len(list(tmp_path.glob('*.batch')))}-{number}.batch")
        paths[-1].write_bytes(batch.data)
    return paths


# init


def test_init_makes_database_log_and_file(folder: Path) -> None:
    printed = init(folder)
    assert str(KEY) in re.sub(r"\s", "", printed)
    assert config.read(folder) == Config(folder, ORIGIN, str(KEY), "ledger.db", "log", "log")
    assert Log(folder / "log", KEY).size == 0
    with ledger_kit.opened(folder) as ledger:
        assert ledger.store.meta == store.Meta("small", ORIGIN, str(KEY))
    assert output("ledger", "check", folder) == (
        "0 records in 0 batches, 0 in conflict with an earlier one.\n0 receipts in the log. Everything is intact.\n"
    )


@pytest.mark.no_cover
def test_init_on_postgresql(folder: Path, postgresql: postgres.Cluster) -> None:
    url = postgresql.database()
    printed = init(folder, "--database", url, "--log", "public/log")
    assert "postgresql://assay:***@" in printed
    assert postgres.PASSWORD not in printed
    assert (folder / "public/log/checkpoint").exists()
    assert not list(folder.glob("*.db"))
    assert config.read(folder).place == url
    assert output("ledger", "check", folder).startswith("0 records")


def test_init_says_whose_evidence_cannot_be_taken(folder: Path) -> None:
    (folder / "validators.csv").write_text("key,stake\n" + "".join(f"elm-{number},1\n" for number in range(5)))
    done = run("ledger", "init", folder, "--origin", ORIGIN, "--key", "log", columns=10_000)
    assert "a ledger accepts evidence only from public keys; 5 of these are not: 'elm-0', 'elm-1', 'elm-2' …" in done.stderr


def test_init_before_anybody_is_a_validator(folder: Path) -> None:
    (folder / "validators.csv").write_text("key,stake\n")  # an enclave has its key from the day on which it runs
    done = run("ledger", "init", folder, "--origin", ORIGIN, "--key", "log", columns=10_000)
    assert done.stderr == ""
    assert config.read(folder).origin == ORIGIN


def test_init_refuses_what_is_there(folder: Path) -> None:
    words = ("ledger", "init", folder, "--origin", ORIGIN, "--key", "log")
    init(folder)
    assert "ledger.toml: exists already" in refused(*words)
    (folder / "ledger.toml").unlink()
    init(folder)  # of a crash before ledger.toml was written, what is there is used
    assert output("ledger", "check", folder).startswith("0 records")
    (folder / "ledger.toml").unlink()
    assert "is there already" in refused("ledger", "init", folder, "--origin", "example.org/other", "--key", "log", "--log", "l2")
    assert not (folder / "ledger.toml").exists()


def test_init_refuses_the_log_of_another_database(folder: Path) -> None:
    place = ledger_kit.ledger_folder(folder.parent / "d")
    ledger_kit.add(place, ledger_kit.records())
    from assay.ledger.settling import settle

    with ledger_kit.opened(place) as ledger:
        settle(ledger, SIGNER, 3)
    (place / "log").rename(folder / "log")
    words = ("ledger", "init", folder, "--origin", ORIGIN, "--key", "log")
    assert "checkpoint: belongs to another database" in refused(*words)
    assert not (folder / "ledger.db").exists()
    (folder / "ledger.db").write_bytes((place / "ledger.db").read_bytes())
    init(folder)  # with its database it is the ledger


@pytest.mark.parametrize(
    ("changes", "words", "code", "match"),
    [
        ({"scheme_toml": "[scheme"}, (), 2, "scheme.toml:1: is not TOML"),
        ({"validators_csv": f"key,stake\n{V1},1\n0x{V1},1\n"}, (), 2, "is the same key as"),
        ({}, ("--key", "nobody"), 2, "nobody.key: no such file"),
        ({}, ("--origin", "a name"), 2, "cannot be the name of a log"),
        ({}, ("--database", "mysql://x/y"), 2, "a ledger cannot be in a database of"),
        ({}, ("--database", "no/such/ledger.db"), 1, "cannot be made"),
    ],
)
def test_init_checks_everything_first(
    tmp_path: Path, changes: dict[str, Any], words: tuple[str, ...], code: int, match: str
) -> None:
    folder = small_folder.make(tmp_path / "c", **{"validators_csv": NAMES, "evidence": None} | changes)
    before = cli_kit.files_under(folder)
    assert match in refused("ledger", "init", folder, "--origin", ORIGIN, "--key", "log", *words, code=code)
    assert cli_kit.files_under(folder) == before


# ledger.toml


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (None, "no such file, so the competition has no ledger"),
        ('origin = "a"\n', "key: is missing"),
        (f'origin = "example.org/other"\nkey = "{KEY}"\n', "key: is the key of another log, not of 'example.org/other'"),
        ('origin = "a"\nkey = "a+b"\n', "ledger.toml:2: key: .*vkey"),
        ('origin = "a"\nkey = 1\n', "ledger.toml:2: key"),
        (f'origin = "{ORIGIN}"\nkey = "{KEY}"\ndatabse = "x"\n', "ledger.toml:3: databse: .*did you mean 'database'"),
        ("origin = [", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str | None, match: str) -> None:
    if text is not None:
        (tmp_path / "ledger.toml").write_text(text)
    with pytest.raises(BadInput, match=match):
        config.read(tmp_path)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for settings in (
        Config(tmp_path, ORIGIN, str(KEY), 'a "name".db', "täler", "log"),
        Config(tmp_path, ORIGIN, str(KEY), "postgresql://me@db/ledger"),
    ):
        assert config.write(settings) == tmp_path / "ledger.toml"
        assert config.read(tmp_path) == settings
        assert config.exists(tmp_path)
    assert config.read(tmp_path).place == "postgresql://me@db/ledger"
    assert config.read(tmp_path).tiles == tmp_path / "log"


def test_a_name_is_needed_by_nobody(folder: Path) -> None:
    settings = access.make_ledger(folder, ORIGIN, SIGNER)
    assert settings.signer is None
    assert config.read(folder) == settings


# add, list, check


@pytest.mark.no_cover
def test_add_and_list(folder: Path, tmp_path: Path) -> None:
    init(folder)
    paths = files(tmp_path, *ledger_kit.records(epoch=3), *ledger_kit.records(epoch=4, trial=2))
    assert (
        output("evidence", "add", folder, *paths[:1], columns=200) == f"{paths[0]}: 4 new, 0 known\n4 records added by 1 batch.\n"
    )
    printed = output("evidence", "add", folder, *paths, columns=200)
    assert printed.splitlines()[0] == f"{paths[0]}: 0 new, 4 known"
    assert printed.splitlines()[-1] == "20 records added by 6 batches."
    again = files(tmp_path, *ledger_kit.records(validators=[V2], outcome="fail"))
    added = run("evidence", "add", folder, *again, columns=200)
    assert "4 new, 0 known, 4 in conflict with an earlier one" in added.stdout
    assert "counts (outcome pass); this one does not (outcome fail)" in added.stderr
    assert "4 records contradict earlier ones of the same validator" in added.stderr
    assert "28 records in 7 batches, 4 in conflict with an earlier one.\n" in output("ledger", "check", folder, columns=200)
    listed = output("evidence", "list", folder, columns=200)
    assert listed.splitlines()[-1] == "28 records in 7 batches."
    assert len(listed.splitlines()) == 2 + 7 + 1
    assert cli_kit.narrow(output("evidence", "list", folder, columns=80))
    filtered = output("evidence", "list", folder, "--validator", V1, "--epoch", "3", columns=200)
    assert filtered.splitlines()[-1] == "4 records in 1 batch."
    assert " val-1 " in filtered
    assert V1 not in filtered  # a long key is read by its name
    assert output("evidence", "list", folder, "--validator", "val-1", "--epoch", "3", columns=200) == filtered
    assert output("evidence", "list", folder, "--epoch", "9") == "There is no such evidence.\n"


def test_records_that_are_not_signed_are_not_added(folder: Path) -> None:
    init(folder)
    lines = folder / "records.jsonl"
    lines.write_text("".join(f"{json.dumps(record)}\n" for record in ledger_kit.records()))
    result = run("evidence", "add", folder, lines, columns=200, code=2)
    assert result.stderr == f"error: {lines}: is not a signed batch; sign it first: assay evidence sign\n"
    assert result.stdout == "0 records added by 0 batches; 1 refused.\n"


@pytest.mark.no_cover
def test_records_are_listed_as_a_folder_takes_them(folder: Path, tmp_path: Path) -> None:
    init(folder)
    run("evidence", "add", folder, *files(tmp_path, *ledger_kit.records(epoch=3), *ledger_kit.records(epoch=4, trial=2)))
    lines = output("evidence", "list", folder, "--json").splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, 25))
    assert len(output("evidence", "list", folder, "--json", "--epoch", "4").splitlines()) == 12
    mine = output("evidence", "list", folder, "--json", "--validator", V2).splitlines()
    assert {json.loads(line)["validator"] for line in mine} == {V2}
    assert len(mine) == 8
    other = small_folder.make(tmp_path / "e", validators_csv=NAMES, evidence="\n".join(lines))
    assert "epoch 4" in output("settle", other)


@pytest.mark.no_cover
def test_conflicts_are_listed(folder: Path, tmp_path: Path) -> None:
    init(folder)
    assert output("evidence", "list", folder, "--conflicts") == "No record contradicts an earlier one.\n"
    for changes in ({}, {"outcome": "fail", "image": "sha256:x"}, {"trial": 2}, {"trial": 2, "outcome": "error"}):
        run("evidence", "add", folder, *files(tmp_path, kit.trial_record(**changes)))
    printed = output("evidence", "list", folder, "--conflicts", columns=200)
    assert "2 records contradict an earlier one. The earlier one counts; the later one is only stored." in printed
    assert re.search(r"m1 +t1 +image –, outcome pass, seq 1 +image sha256:x, outcome fail, seq 2", printed)
    assert re.search(r"m1 +t1 trial 2 +outcome pass, seq 3 +outcome error, seq 4", printed)
    conflicts = [json.loads(line) for line in output("evidence", "list", folder, "--conflicts", "--json").splitlines()]
    assert [(conflict["first"]["seq"], conflict["later"]["seq"]) for conflict in conflicts] == [(1, 2), (3, 4)]
    none = ("evidence", "list", folder, "--conflicts", "--validator", V2)
    assert output(*none) == "No record contradicts an earlier one.\n"
    assert output(*none, "--json") == ""


@pytest.mark.no_cover
@pytest.mark.parametrize(("kind", "about"), [("points", "o/r"), ("given", "epoch 3"), ("rubric", "epoch 3")])
def test_a_conflict_of_another_kind(tmp_path: Path, kind: str, about: str) -> None:
    folder = small_folder.make(tmp_path / "c", kind, validators_csv=NAMES, evidence=None)
    init(folder)
    for changes in ({}, {"observed_at": "2026-11-02T11:00:00Z"} if kind != "rubric" else {"checks": {"c1": False}}):
        run("evidence", "add", folder, *files(tmp_path, small_folder.record(kind, validator=V1, **changes)))
    printed = output("evidence", "list", folder, "--conflicts", columns=200)
    assert about in printed
    assert "1 record contradicts" in printed
    assert kind != "rubric" or '{"c1":false}' in printed


def test_one_that_is_refused_does_not_stop_the_others(folder: Path, tmp_path: Path) -> None:
    init(folder)
    good = files(tmp_path, *ledger_kit.records())
    bad = tmp_path / "bad.batch"
    bad.write_bytes(good[1].read_bytes().replace(b'"pass"', b'"fail"'))
    done = run("evidence", "add", folder, good[0], bad, good[2], columns=10_000, code=2)
    summary = "8 records added by 2 batches; 1 refused."
    assert done.stdout == f"{good[0]}: 4 new, 0 known\n{good[2]}: 4 new, 0 known\n{summary}\n"
    assert done.stderr.startswith(f"error: {bad}")
    assert output("ledger", "check", folder).startswith("8 records in 2 batches,")


def test_without_a_ledger_there_is_a_hint(folder: Path) -> None:
    for words in (("ledger", "check"), ("evidence", "list"), ("ledger", "migrate")):
        assert "has no ledger; `assay ledger init` makes one" in refused(*words, folder)


def test_a_damaged_database_is_told(folder: Path, tmp_path: Path) -> None:
    init(folder)
    run("evidence", "add", folder, *files(tmp_path, *ledger_kit.records()))
    with store.open(folder / "ledger.db"):
        kit.sql(folder / "ledger.db", "PRAGMA wal_checkpoint(TRUNCATE)")
    kit.sql(folder / "ledger.db", "DROP TRIGGER records_no_update; UPDATE records SET conflict = 1 WHERE seq = 3;")
    refusal = refused("ledger", "check", folder, code=1)
    assert "the count of conflicts changed: 0 was expected, 1 is there; restore it" in refusal


def test_migrate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init(folder)
    assert output("ledger", "migrate", folder) == "The database already has version 7 of the schema.\n"
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, lambda _: None))
    assert "`assay ledger migrate`" in refused("ledger", "check", folder)
    assert output("ledger", "migrate", folder) == "The database was migrated from version 7 of the schema to 8.\n"
    assert output("ledger", "check", folder).startswith("0 records")


def test_evidence_needs_no_log_folder(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "c")
    batch = files(tmp_path, *ledger_kit.records())[0]
    shutil.rmtree(place / "log")
    (place / "log").write_text("in the way")  # say that of the operator, which a validator has not
    assert "4 new, 0 known" in output("evidence", "add", place, batch, columns=200)
    assert "is the submission of m1" in " ".join(output("submit", place, "m1", "oracle").split())
