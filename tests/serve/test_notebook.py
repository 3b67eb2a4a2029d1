"""The service's own tables, on both databases: a nonce counts once, an invitation as often as it says, the first commitment."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import ledger_kit
import postgres
from assay.errors import BadInput
from assay.ledger import config, keys, store
from assay.scheme.fields import instant_text
from assay.serve.notebook import TURN, Invitation, Notebook, SubmissionCommitment, TrialLogs, Upload
from assay.serve.registration import code_digest
from cli_kit import output
from service_kit import running

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def place(database: str) -> str:
    store.create(database, store.Meta("small", "example.org/small", "key")).close()
    return database


@pytest.fixture
def notebook(place: str) -> Iterator[Notebook]:
    opened = Notebook(place)
    yield opened
    opened.close()


def test_a_nonce_counts_once_until_it_is_forgotten(notebook: Notebook, place: str) -> None:
    assert notebook.spend("k1", "n", NOW, 5 * MINUTE)
    other = Notebook(place)  # as another process
    try:
        assert not other.spend("k1", "n", NOW + MINUTE, 5 * MINUTE)
        assert other.spend("k2", "n", NOW, 5 * MINUTE)
    finally:
        other.close()
    assert notebook.spend("k1", "n", NOW + 6 * MINUTE, 5 * MINUTE)


def test_of_many_at_once_one_spends_a_nonce(notebook: Notebook) -> None:
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(notebook.spend("k", "n", NOW, 5 * MINUTE)), daemon=True) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 7 + [True]


def test_heartbeats_are_the_last_of_each(notebook: Notebook) -> None:
    notebook.beat("v1", NOW, [{"task": "a"}])
    notebook.beat("v2", NOW, [])
    notebook.beat("v1", NOW + MINUTE, [{"task": "b"}])
    assert [(beat.validator, beat.at, beat.judging) for beat in notebook.heartbeats()] == [
        ("v1", NOW + MINUTE, ({"task": "b"},)),
        ("v2", NOW, ()),
    ]


def test_a_participant_has_one_key(notebook: Notebook) -> None:
    notebook.register("ann", "k1", NOW)
    notebook.register("ann", "k1", NOW)
    assert (notebook.participant_of("k1"), notebook.participant_of("k2"), notebook.registered()) == ("ann", None, 1)
    with pytest.raises(BadInput, match="'ann' has another key"):
        notebook.register("ann", "k2", NOW)
    with pytest.raises(BadInput, match="registered for 'ann'"):
        notebook.register("bob", "k1", NOW)


def test_an_invitation_is_used_as_often_as_it_says(notebook: Notebook) -> None:
    notebook.invite(Invitation("c", "ann", 2, instant_text(NOW + MINUTE)))
    assert notebook.redeem("c", NOW).uses == 1
    assert notebook.redeem("c", NOW).participant == "ann"
    with pytest.raises(BadInput, match="was used"):
        notebook.redeem("c", NOW)
    notebook.invite(Invitation("d", None, 1, instant_text(NOW)))
    with pytest.raises(BadInput, match="ended at"):
        notebook.redeem("d", NOW + MINUTE)
    with pytest.raises(BadInput, match="no such invitation"):
        notebook.redeem("e", NOW)


def test_the_first_commitment_to_a_digest_counts(notebook: Notebook) -> None:
    first = notebook.commit(SubmissionCommitment("ann", "sha256:a", 3, "2026-11-23T12:00:00Z"))
    assert notebook.commit(SubmissionCommitment("ann", "sha256:a", 5, "2026-11-24T12:00:00Z")) == first
    assert notebook.commitment("ann", "sha256:a") == first
    assert notebook.commitment("bob", "sha256:a") is None


def test_a_turn_is_held_by_one_of_all_processes_and_ends_by_itself(notebook: Notebook, place: str) -> None:
    with closing(Notebook(place)) as other:
        assert notebook.take_turn("m1", "a", NOW)
        assert not other.take_turn("m1", "b", NOW + TURN)
        assert other.take_turn("m2", "b", NOW)
        notebook.keep_turns("a", NOW + TURN)
        late = NOW + TURN + TURN
        assert not other.take_turn("m1", "b", late)
        assert other.take_turn("m1", "b", late + timedelta(seconds=1))  # the process with a was killed
        notebook.end_turns("a")
        assert not notebook.take_turn("m1", "a", late)
        other.end_turns("b")
        assert notebook.take_turn("m1", "a", late)


def test_of_many_at_once_one_takes_a_turn_that_is_over(notebook: Notebook) -> None:
    assert notebook.take_turn("m1", "killed", NOW)
    for when in (NOW + 2 * TURN, NOW + 4 * TURN):
        with ThreadPoolExecutor(8) as pool:
            taken = list(pool.map(lambda number, when=when: notebook.take_turn("m1", f"h{number}", when), range(8)))
        assert sorted(taken) == [False] * 7 + [True]


def test_attempts_are_counted_for_each_epoch(notebook: Notebook) -> None:
    assert [notebook.attempt("m1", 3, 2) for _ in range(3)] == [True, True, False]
    notebook.forgive("m1", 3)
    assert [notebook.attempt("m1", 3, 2) for _ in range(2)] == [True, False]
    assert notebook.attempt("m2", 3, 2)
    assert notebook.attempt("m1", 4, 2)


def test_uploads_are_listed_the_newest_first(notebook: Notebook) -> None:
    rows = [Upload(who, f"sha256:{number}", f"s{number}", 3, "t") for number, who in enumerate(["ann", "bob", "ann"])]
    for row in rows:
        notebook.upload(row)
    assert notebook.uploads("ann") == [rows[2], rows[0]]
    assert notebook.uploads(last=1) == [rows[2]]


def test_the_first_logs_of_a_record_count(notebook: Notebook, place: str) -> None:
    first = TrialLogs("sha256:r1", "sha256:s1", b"{}", {"agent/stdout.txt": "a" * 64})
    other = TrialLogs("sha256:r1", "sha256:s1", b"{}", {"agent/stdout.txt": "b" * 64})
    assert notebook.log(first) == first
    assert notebook.log(other) == first
    second = notebook.log(TrialLogs("sha256:r2", "sha256:s2", b"{}", {}))
    again = Notebook(place)
    try:
        assert again.logged(["sha256:r1", "sha256:r2", "sha256:r3"]) == {"sha256:r1": first, "sha256:r2": second}
        assert (again.logs("sha256:s1"), again.logs("sha256:s3"), again.logged([])) == ([first], [], {})
    finally:
        again.close()


def test_services_that_start_at_once_on_an_empty_database_make_its_tables_once(place: str) -> None:
    at_once = threading.Barrier(8)

    def start(number: int) -> None:
        at_once.wait()
        with closing(Notebook(place)) as opened:
            opened.register(f"m{number}", f"k{number}", NOW)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(start, range(8)))
    with closing(Notebook(place)) as opened:
        assert opened.registered() == 8


def test_a_season_goes_on_from_a_backup(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", database=database)
    upload = Upload("m1", "sha256:a", "s1", 1, "2026-11-23T12:00:00Z")
    me, newcomer = (keys.read(f"{number}".encode() * 32) for number in (44, 55))
    with closing(Notebook(config.read(place).place)) as before:
        before.register("m1", me.public.id, NOW)
        before.upload(upload)
        before.commit(SubmissionCommitment("m1", "sha256:a", 1, "2026-11-23T11:00:00Z"))
        before.invite(Invitation(code_digest("code"), None, 1, "2100-01-01T00:00:00Z"))
        logs = before.log(TrialLogs("sha256:r", "s1", b"{}", {"agent/stdout.txt": "a" * 64}))
    output("ledger", "backup", place, tmp_path / "backup.zip")
    if "://" in database:
        cluster: postgres.Cluster = request.getfixturevalue("postgresql")
        there = (place / "ledger.toml").read_text().replace(json.dumps(database), json.dumps(cluster.database()))
        (place / "ledger.toml").write_text(there)
    else:
        Path(database).rename(tmp_path / "old.db")
    output("ledger", "restore", place, tmp_path / "backup.zip")
    output("ledger", "adopt", place, "--old-is-stopped")
    with running(place) as service:
        own = service.signed(me, "GET", "/v1/small/submissions").json
        assert [(row["submission"], row["state"]) for row in own["submissions"]] == [("s1", "received")]
        assert [row["digest"] for row in own["commitments"]] == ["sha256:a"]
        body = json.dumps({"code": "code"}).encode()
        assert service.signed(newcomer, "POST", "/v1/small/participants", body).status == 201
        _, after = service.site.competition("small").books()
        assert after.logs("s1") == [logs]
        after.upload(upload)  # its number follows
        assert after.uploads() == [upload, upload]
