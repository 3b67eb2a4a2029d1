"""The service's own tables, on both databases: a nonce counts once, an invitation as often as it says, the first commitment."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from assay.errors import BadInput
from assay.ledger import store
from assay.scheme.fields import instant_text
from assay.serve.notebook import Invitation, Notebook, SubmissionCommitment, TrialLogs, Upload

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
