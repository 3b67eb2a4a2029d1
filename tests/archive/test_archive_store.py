"""An archive in an object store that speaks S3: written, grown, verified and settled; what is missing or changed is named."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import archive_kit
import object_store
from archive_kit import KEY
from assay.archive import LocalWorkers, listing, runs, verify_all
from assay.errors import BadInput, Refused
from assay.folder import places
from assay.folder.places import ObjectPlace, StoredFile
from cli_kit import files_under, output, refused, run
from object_store import BUCKET, SECRET, ObjectStore

HERE = LocalWorkers(workers=1)
WHERE = f"s3://{BUCKET}/season"


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store.object_store() as store:
        yield store


@pytest.fixture
def store(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    object_store.environment(monkeypatch, server)
    return server


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return archive_kit.template(tmp_path / "all")


def put(store: ObjectStore, archive: Path, prefix: str) -> str:
    """Copy an archive into the store, object by object."""
    for path, data in files_under(archive).items():
        store.put(f"{prefix}/{path}", data)
    return f"s3://{BUCKET}/{prefix}"


@pytest.mark.full
def test_an_archive_is_written_verified_and_settled_in_a_store(
    store: ObjectStore, place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for _ in range(2):
        text = output("export", "archive", place / "small", WHERE, "--as", "subnet-1/small", "--parquet", "--json")
        document = json.loads(text)
    assert (document["new"], document["there"]) == ([], [3, 4, 9])
    run("export", "archive", place / "other", WHERE)
    fetched: list[int] = []
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "cache"))
    report = verify_all(
        WHERE,
        engine=HERE,
        keys=[KEY, *archive_kit.OTHER_KEYS],
        progress=lambda *_: fetched.append(len([path for path in (tmp_path / "cache").rglob("*") if path.is_file()])),
    )
    assert report.verified
    assert fetched[2] == fetched[5] == 0 < fetched[0] < fetched[1]  # of one competition at a time
    local = verify_all(str(place / "columns"), engine=HERE)
    assert {(row.settlement, row.records) for row in report.verdicts} == {(row.settlement, row.records) for row in local.verdicts}
    settled = tmp_path / "settled"
    text = output("settle", "--archive", f"{WHERE}/**/*.parquet", "--output", settled, "--workers", "1", "--json")
    assert [row["epoch"] for row in json.loads(text)["epochs"]] == [3, 4, 9]
    for epoch in archive_kit.EPOCHS:
        wanted = (place / f"bundle-{epoch}" / "settlement.json").read_bytes()
        assert (settled / "subnet-1" / "small" / f"epoch-{epoch}.json").read_bytes() == wanted


def test_an_upload_that_was_cut_off_is_finished_by_the_next(store: ObjectStore, place: Path) -> None:
    where = f"s3://{BUCKET}/cut"
    run("export", "archive", place / "small", where)
    store.delete("cut/small/epoch-9/epoch-9.receipt")
    store.put("cut/small/epoch-9/epoch-9.jsonl", b"half")
    assert not verify_all(where, engine=HERE).verified
    text = output("export", "archive", place / "small", where, columns=200)
    assert "1 epoch added as small; 2 epochs had been there" in text
    assert verify_all(where, engine=HERE).verified


def test_an_object_that_is_missing_or_changed_is_named(store: ObjectStore, place: Path) -> None:
    where = put(store, place / "lines", "changing")
    store.delete("changing/subnet-1/small/epoch-4/batches.jsonl")
    result = run("verify", "--all", where, "--workers", "1", columns=300, code=1)
    assert "subnet-1/small/epoch-4/batches.jsonl" in result.stdout
    listed = list(ObjectPlace(where).files())
    gone = next(file for file in listed if file.path == "other/epoch-3/inputs.json")
    store.delete("changing/other/epoch-3/inputs.json")
    changed = next(file for file in listed if file.path == "other/epoch-4/inputs.json")
    store.put("changing/other/epoch-4/inputs.json", b"{}")
    for file, words in ((gone, "is gone"), (changed, "has changed since it was listed")):
        with pytest.raises(Refused, match=words) as error:
            ObjectPlace(where).fetch(file, place)
        assert error.value.file == file.path


def test_objects_are_fetched_in_pieces_and_once(
    store: ObjectStore, place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = bytes(range(256)) * 41
    store.put("pieces/c/epoch-1/epoch-1.jsonl", data)
    monkeypatch.setattr(places, "PIECE", 1000)
    at = ObjectPlace(f"s3://{BUCKET}/pieces")
    (file,) = at.files()
    path = at.fetch(file, tmp_path)
    assert path.read_bytes() == data
    store.delete("pieces/c/epoch-1/epoch-1.jsonl")
    assert at.fetch(file, tmp_path) == path
    huge = StoredFile("c/epoch-1/x.jsonl", 2**60, "")
    with pytest.raises(BadInput, match="has room for"):
        at.fetch(huge, tmp_path)


def test_keys_that_leave_the_archive_are_refused_by_name(store: ObjectStore, place: Path) -> None:
    where = put(store, place / "columns", "hostile")
    store.raw("/hostile/a%5Cb/epoch-3/inputs.json")
    report = verify_all(where, engine=HERE)
    assert [fault.what for _, fault in report.faults] + [row.fault.what for row in report.verdicts if row.fault is not None] == [
        "is not a path below the archive"
    ]
    for key in ("a/../../b", "/a", "a//b", "a\0b", "a/" * 20, "x" * 2000, "."):
        assert places._wrong_key(key)
    assert not places._wrong_key("subnet-1/small/epoch-3/inputs.json")


@pytest.mark.full
def test_a_store_that_is_away_says_nothing_about_the_archive(
    store: ObjectStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = put(store, place / "columns", "away")
    monkeypatch.setattr(places, "RETRIES", 0)
    message = refused("verify", "--all", f"s3://{BUCKET}/nothing-here")
    assert "there is nothing at this address" in message
    original = listing.listed

    def then_away(*arguments: object) -> object:
        result = original(*arguments)  # type: ignore[arg-type]
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        return result

    monkeypatch.setattr(runs, "listed", then_away)
    result = run("verify", "--all", where, "--workers", "1", "--json", columns=300, code=1)
    report = json.loads(result.stdout)
    assert {row["stage"] for row in report["epochs"]} == {"unreachable"}
    assert SECRET not in result.output
    message = refused("verify", "--all", where, code=1)
    assert "listing it: the store does not answer" in message
    assert SECRET not in message
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")


@pytest.mark.full
def test_other_answers_are_told_in_our_words() -> None:
    assert places._why(ValueError(f"status code: 403 Forbidden: {SECRET}")) == ("the store answered 403", True)
    assert places._why(ValueError(f"status code: 503 {SECRET}")) == ("the store answered 503", False)
    assert places._why(ValueError(f"Missing bucket {SECRET}")) == ("the address, or the credentials, are not complete", True)
    with pytest.raises(BadInput, match="names no bucket"):
        list(places.open_place("s3:///x").files())
