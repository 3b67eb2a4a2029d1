"""A served season that was backed up while nodes sent, and is restored elsewhere: what the backup lacks is sent again."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

import ledger_kit
import node_kit
import postgres
from assay.exact import canonical
from assay.folder.files import write_text
from assay.ledger import config, store
from assay.node.spool import Spool
from assay.serve.client import Client
from cli_kit import output, rewrite, run
from ledger_kit import V1, VALIDATORS
from node_kit import KEY
from service_kit import Running, running
from small_folder import record

PEACE = 60.0
"""Seconds to wait at most for what other threads do."""
Place = Callable[[Path], str]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Where the database of a folder is: a file in it, or a new database of a server."""
    if request.param == "sqlite":
        yield lambda folder: "ledger.db"
        return
    cluster: postgres.Cluster = request.getfixturevalue("postgresql")
    yield lambda folder: cluster.database()


def served(folder: Path, database: Place) -> Path:
    """The operator's folder, with an empty ledger."""
    ledger_kit.once(folder, ("restored",), ledger_kit.ledger_folder)
    if (place := database(folder)) != "ledger.db":
        for file in folder.glob("ledger.db*"):
            file.unlink()
        rewrite(folder / "ledger.toml", '"ledger.db"', json.dumps(place))
        settings = config.read(folder)
        store.create(settings.place, store.Meta("small", settings.origin, settings.key)).close()
    return folder


def mine(folder: Path, desk: Path) -> Path:
    """The validator's folder."""
    folder.mkdir()
    for name in ("scheme.toml", "participants.csv", "validators.csv", "tasks.txt", "ledger.toml"):
        write_text(folder / name, (desk / name).read_text())
    return folder


def judged(folder: Path, trial: int) -> None:
    """A line of evidence, as a run writes it."""
    file = folder / "evidence" / "run-val-1.jsonl"
    file.parent.mkdir(exist_ok=True)
    fields = {"epoch": 3, "validator": V1, "participant": "m1", "submission": "s1", "task": "t1", "trial": trial}
    with file.open("ab") as opened:
        opened.write(canonical(record("tests", **fields)) + b"\n")


def pushed(service: Running, folder: Path, *words: str) -> Any:
    return json.loads(run("push", folder, "--url", f"{service.address}/small", "--key", KEY, *words, "--json").stdout)


def trials(folder: Path) -> list[int]:
    return sorted(row[3] for row in node_kit.stored(folder))


def moved(former: Path, folder: Path, database: Place) -> Path:
    """The files of the operator's folder in another place, without its database and its log; as a backup of files has them."""
    folder.mkdir(parents=True)
    for file in former.iterdir():
        if file.is_file() and not file.name.startswith(("ledger.db", "acknowledged")):
            write_text(folder / file.name, file.read_text())
    shutil.copytree(former / "log", folder / "log")  # before the first receipt it does not follow from the database
    if (place := database(folder)) != "ledger.db":
        rewrite(folder / "ledger.toml", json.dumps(config.read(former).database), json.dumps(place))
    return folder


def lose(former: Path, other: str, request: pytest.FixtureRequest) -> None:
    """The accident: the old database is gone. other: another one of the same server."""
    for file in former.glob("ledger.db*"):
        file.unlink()
    place = config.read(former).place
    if "://" in place:
        cluster: postgres.Cluster = request.getfixturevalue("postgresql")
        cluster.sql(other, f"DROP DATABASE {make_url(place).database}")


@pytest.mark.sampled(1)
def test_what_the_backup_lacks_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Place, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("ASSAY_KEYS", node_kit.keys_in(tmp_path / "keys"))
    former, archive = served(tmp_path / "one" / "small", database), tmp_path / "backup.zip"
    going, signer = threading.Event(), VALIDATORS[V1]
    with running(former) as service:
        copy = mine(tmp_path / "mine", former)

        def send() -> None:
            for trial in range(1, 9):
                judged(copy, trial)
                with Client(f"{service.address}/small", signer) as client:
                    assert Spool(copy, signer).push(client, 3).new == 1
                if trial == 3:
                    going.set()

        sender = threading.Thread(target=send)
        sender.start()
        assert going.wait(PEACE)
        output("ledger", "backup", former, archive)
        sender.join(PEACE)
        assert not sender.is_alive()
    assert trials(former) == [*range(1, 9)]
    folder = moved(former, tmp_path / "two" / "small", database)
    output("ledger", "restore", folder, archive)
    lose(former, config.read(folder).place, request)
    output("ledger", "adopt", folder, "--old-is-stopped")
    held = trials(folder)
    assert held == [*range(1, len(held) + 1)]
    assert 3 <= len(held) <= 8
    with running(folder) as service:
        assert pushed(service, copy)["sent"] == []  # the node believes that all of it is there
        result = pushed(service, copy, "--again")
        assert result["new"] == 8 - len(held)
        assert {row["outcome"] for row in result["sent"]} <= {"accepted", "known"}
        assert trials(folder) == [*range(1, 9)]
        judged(copy, 9)
        assert pushed(service, copy)["new"] == 1
        assert pushed(service, copy, "--again")["new"] == 0
    assert trials(folder) == [*range(1, 10)]
    node_kit.settle(folder, 3)
    output("ledger", "check", folder)
