"""What everybody reads of a service: every number is the ledger's, files are the ledger's, and no other file is handed out."""

import csv
import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet
import pytest

import audit_kit
import ledger_kit
import small_folder
from assay.exact import canonical
from assay.ledger import audit_log, auditing, bundle, settling
from assay.serve import downloads, epochs
from cli_kit import output, refused
from service_kit import Running, running

EPOCHS = "/v1/small/epochs"


def seasoned(place: Path) -> None:
    """Two settled epochs, and evidence of a third that is open."""
    ledger_kit.ledger_folder(place)
    for epoch in (3, 4, 5):
        records = ledger_kit.records(epoch=epoch)
        if epoch > 3:
            records[0]["outcome"] = "fail"
        ledger_kit.add(place, records)
        if epoch < 5:
            with ledger_kit.opened(place) as ledger:
                settling.settle(ledger, ledger_kit.SIGNER, epoch)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = ledger_kit.once(tmp_path_factory.mktemp("public") / "small", ("public",), seasoned)
    with running(folder) as started:
        yield started


def folder_of(service: Running) -> Path:
    return service.site.competition("small").folder


def test_the_list_of_competitions_says_what_is_open_and_settled(service: Running) -> None:
    (row,) = service.ask("GET", "/v1/competitions").json["competitions"]
    assert row == {
        "name": "small",
        "board": "/small/",
        "api": "/v1/small",
        "kind": "tests",
        "open": 5,
        "settled": 4,
        "origin": ledger_kit.ORIGIN,
        "vkey": str(ledger_kit.KEY),
    }
    competition = service.ask("GET", "/v1/small").json
    assert competition.items() >= row.items()
    scheme = service.site.competition("small").scheme
    assert (competition["digest"], competition["scheme"]) == (scheme.digest, scheme.document())
    assert (competition["participants"], competition["validators"], competition["tasks"]) == (2, 3, 2)


def test_every_number_is_the_ledger_s(service: Running) -> None:
    folder = str(folder_of(service))
    for epoch in (3, 4):
        place = f"{EPOCHS}/{epoch}"
        settlement = service.ask("GET", place).json
        assert canonical(settlement) + b"\n" == output("settle", folder, "--epoch", str(epoch), "--json").encode()
        assert service.ask("GET", f"{place}/receipt").body == output("receipt", folder, str(epoch)).encode()
        board = service.ask("GET", f"{place}/board").json["rows"]
        weights = {row["participant"]: row for row in settlement["weights"]}
        assert [row["participant"] for row in board] == settlement["ranking"]
        for row in board:
            assert (row["share"], row["u16"]) == (weights[row["participant"]]["share"], weights[row["participant"]]["u16"])
            assert row["low"] < float(row["score"]) <= 1
        for key in ("m1", "m2"):
            story = json.loads(output("explain", folder, key, "--epoch", str(epoch), "--json"))
            del story["margins"]  # a service computes them later, and has them beside the board
            assert service.ask("GET", f"{place}/participants/{key}").body == canonical(story)
            own = output("receipt", folder, str(epoch), "--for", key)
            assert service.ask("GET", f"{place}/participants/{key}/proof").body == own.encode()
        rows = [*csv.DictReader(io.StringIO(service.ask("GET", f"{place}/weights.csv").body.decode()))]
        assert [(row["participant"], row["share"], row["u16"]) for row in rows[:-1]] == [
            (key, row["share"], str(row["u16"])) for key, row in weights.items()
        ]
        assert rows[-1]["share"] == settlement["burn"]["share"]
    listed = service.ask("GET", EPOCHS).json["epochs"]
    assert [(row["epoch"], row["position"]) for row in listed] == [(4, 1), (3, 0)]
    with ledger_kit.opened(folder_of(service)) as ledger:
        assert [row["receipt"] for row in listed] == [ledger.receipt(epoch).digest for epoch in (4, 3)]


def test_records_come_in_pages_as_the_command_lists_them(service: Running) -> None:
    lines = output("evidence", "list", str(folder_of(service)), "--epoch", "4", "--json").splitlines()
    records, address = [], f"{EPOCHS}/4/records?limit=5"
    while address:
        page = service.ask("GET", address)
        assert (f"<{page.json['next']}>" in page.headers.get("link", "<None>")) or page.json["next"] is None
        records += page.json["records"]
        address = page.json["next"]
        assert len(page.json["records"]) <= 5
    assert records == [json.loads(line) for line in lines]
    assert len(records) == 12


@pytest.mark.parametrize(("name", "key"), [("participants", "key"), ("validators", "key"), ("epochs", "epoch")])
def test_lists_come_in_pages(service: Running, name: str, key: str) -> None:
    whole = service.ask("GET", f"/v1/small/{name}").json[name]
    rows, address = [], f"/v1/small/{name}?limit=1"
    while address:
        page = service.ask("GET", address).json
        assert len(page[name]) == 1
        rows += page[name]
        address = page["next"]
    assert [row[key] for row in rows] == [row[key] for row in whole]
    assert len(whole) > 1


def test_evidence_is_nobody_s_before_its_epoch_is_settled(service: Running) -> None:
    paths = ["", "/records", "/board", "/receipt", "/bundle", "/evidence.parquet", "/weights.csv", "/participants/m1"]
    for path in (*paths, "/participants/m1/proof"):
        answer = service.ask("GET", f"{EPOCHS}/5{path}")
        assert (answer.status, answer.json["detail"]) == (404, "epoch 5 is not settled: the last one settled is 4"), path
    for path in ("/participants/nobody", "/participants/nobody/proof", "/nothing.csv"):
        assert service.ask("GET", f"{EPOCHS}/4{path}").status == 404
    for epoch in ("-1", "x", str(2**53)):
        assert service.ask("GET", f"{EPOCHS}/{epoch}").status == 400


def test_the_bundle_verifies_and_resumes(service: Running, tmp_path: Path) -> None:
    whole = service.ask("GET", f"{EPOCHS}/4/bundle")
    assert (whole.status, whole.headers["content-type"]) == (200, "application/x-tar")
    assert whole.headers["etag"] == f'"{sha256(whole.body).hexdigest()}"'
    with tarfile.open(fileobj=io.BytesIO(whole.body)) as archive:
        assert {(member.mtime, member.uid, member.uname) for member in archive} == {(0, 0, "")}
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "epoch-4.tar").write_bytes(whole.body)
    assert "it is a tar archive; unpack it" in refused("verify", str(tmp_path / "epoch-4.tar"), code=1)
    assert "verified" in output("verify", str(tmp_path / "epoch-4"), "--key", str(ledger_kit.KEY)).lower()
    output("export", "epoch", str(folder_of(service)), "4", "-o", str(tmp_path / "exported"))
    assert contents(tmp_path / "epoch-4") == contents(tmp_path / "exported")
    tag = {"If-Range": whole.headers["etag"]}
    rest = service.ask("GET", f"{EPOCHS}/4/bundle", headers={"Range": "bytes=1000-"} | tag)
    assert (rest.status, rest.body) == (206, whole.body[1000:])
    assert rest.headers["content-range"] == f"bytes 1000-{len(whole.body) - 1}/{len(whole.body)}"
    for asked, expected in (("bytes=0-9", whole.body[:10]), ("bytes=-10", whole.body[-10:])):
        assert service.ask("GET", f"{EPOCHS}/4/bundle", headers={"Range": asked}).body == expected
    other = service.ask("GET", f"{EPOCHS}/4/bundle", headers={"Range": "bytes=0-9", "If-Range": '"other"'})
    assert (other.status, other.body) == (200, whole.body)
    assert service.ask("GET", f"{EPOCHS}/4/bundle", headers={"If-None-Match": whole.headers["etag"]}).status == 304
    late = service.ask("GET", f"{EPOCHS}/4/bundle", headers={"Range": f"bytes={len(whole.body)}-"})
    assert (late.status, late.headers["content-range"]) == (416, f"bytes */{len(whole.body)}")


def test_the_bundle_has_the_audits_of_its_epoch_also_if_they_came_later(service: Running, tmp_path: Path) -> None:
    place = folder_of(service)
    before = {epoch: service.ask("GET", f"{EPOCHS}/{epoch}/bundle").body for epoch in (3, 4)}
    with ledger_kit.opened(place) as ledger:
        epoch = auditing.audited_epoch(bundle.export(ledger, 3, tmp_path / "exported"))
    randomness = auditing.given("ab" * 32)
    stated = auditing.predicate_of(epoch, randomness, audit_kit.carried_out(epoch, randomness.value))
    audit = audit_log.append(place / "audits", "example.org/audits", audit_kit.AUDITOR, auditing.statement_of(stated))
    with tarfile.open(fileobj=io.BytesIO(service.ask("GET", f"{EPOCHS}/3/bundle").body)) as archive:
        archive.extractall(tmp_path, filter="data")
    assert contents(tmp_path / "epoch-3" / "audits") == {audit.name: audit.read_bytes()}
    assert "trials judged again" in output("verify", str(tmp_path / "epoch-3"), "--key", str(ledger_kit.KEY))
    assert service.ask("GET", f"{EPOCHS}/4/bundle").body == before[4]
    shutil.rmtree(place / "audits")
    assert service.ask("GET", f"{EPOCHS}/3/bundle").body == before[3]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_evidence_as_parquet_needs_a_library(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = service.ask("GET", f"{EPOCHS}/3/evidence.parquet")
    table = pyarrow.parquet.read_table(io.BytesIO(answer.body)).to_pylist()
    lines = output("evidence", "list", str(folder_of(service)), "--epoch", "3", "--json").splitlines()
    assert [row["seq"] for row in table] == [json.loads(line)["seq"] for line in lines]
    monkeypatch.setattr(epochs, "find_spec", lambda name: None)
    without = service.ask("GET", f"{EPOCHS}/4/evidence.parquet")
    assert (without.status, "assay[bulk]" in without.json["hint"]) == (501, True)


def test_only_so_many_files_are_kept(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "KEPT", 1)
    cache = folder_of(service) / ".served"
    shutil.rmtree(cache, ignore_errors=True)
    for epoch in (3, 4, 3):
        assert service.ask("GET", f"{EPOCHS}/{epoch}/bundle").status == 200
        assert [file.name.startswith(f"bundle-{epoch}-") for file in cache.iterdir()] == [True]


def test_the_log_s_files_are_served_and_no_others(service: Running) -> None:
    log = folder_of(service) / "log"
    (log / "other").write_text("secret")
    (log / "tile" / "0" / "001").symlink_to(folder_of(service) / "ledger.toml")
    checkpoint = service.ask("GET", "/small/log/checkpoint")
    assert (checkpoint.body, checkpoint.headers["cache-control"]) == ((log / "checkpoint").read_bytes(), "public, max-age=1")
    for tile in ("tile/0/000.p/2", "tile/entries/000.p/2"):
        answer = service.ask("GET", f"/small/log/{tile}")
        assert (answer.status, answer.body) == (200, (log / tile).read_bytes())
        assert "immutable" not in answer.headers["cache-control"]
    wrong = ["other", "tile/0/001", "tile/0/000", "tile/0/000.p/256", "tile/0/000.p/0", "tile/0/0", "tile/00/000.p/2", "tile"]
    wrong += ["tile/../ledger.toml", "tile/%2e%2e/%2e%2e/ledger.toml", "%2e%2e/ledger.toml", "tile/0/../../checkpoint"]
    wrong += ["tile/0/x000/000", "tile/64/000.p/2", "tile/0/000.p/2/", "tile//0/000.p/2", "tile/0/000.p/%32%0a", "../ledger.toml"]
    for path in wrong:
        answer = service.ask("GET", f"/small/log/{path}")
        assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json"), path
        assert b"origin" not in answer.body


def test_a_full_tile_may_be_kept_for_ever(service: Running) -> None:
    tile = folder_of(service) / "log" / "tile" / "0" / "x001" / "234"
    tile.parent.mkdir()
    tile.write_bytes(bytes(256 * 32))
    answer = service.ask("GET", "/small/log/tile/0/x001/234")
    assert (answer.body, answer.headers["cache-control"]) == (bytes(256 * 32), "public, max-age=31536000, immutable")


def test_head_is_get_without_the_body(service: Running) -> None:
    paths = [
        "/v1/competitions",
        f"{EPOCHS}/4",
        f"{EPOCHS}/4/bundle",
        "/small/",
        "/small/log/checkpoint",
        "/small/nowhere",
        "/healthz",
    ]
    for path in paths:
        full, head = service.ask("GET", path), service.ask("HEAD", path)
        assert (head.status, head.body) == (full.status, b""), path
        same = ("content-length", "content-type", "etag")
        assert [head.headers.get(name) for name in same] == [full.headers.get(name) for name in same], path
    assert service.ask("HEAD", "/small/events").headers["content-type"].startswith("text/event-stream")


def test_a_key_may_have_any_character(tmp_path: Path) -> None:
    key = "a/b?c #%é"
    records = [record | {"participant": key} if record["participant"] == "m1" else record for record in ledger_kit.records()]
    place = ledger_kit.ledger_folder(tmp_path / "small", participants_csv=f"key,uid,submission\n{key},1,s1\nm2,2,s2\n")
    ledger_kit.add(place, records)
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER)
    with running(place) as service:
        name = quote(key, safe="")
        assert service.ask("GET", f"{EPOCHS}/3/participants/{name}").json["participant"] == key
        assert service.ask("GET", f"{EPOCHS}/3/participants/{name}/proof").json["result"]["participant"] == key
        page = service.ask("GET", "/v1/small/participants?limit=1").json
        assert page["participants"][0]["key"] == key
        assert service.ask("GET", page["next"]).json["participants"][0]["key"] == "m2"


def test_without_a_ledger_there_is_what_the_pages_show(tmp_path: Path) -> None:
    place = small_folder.make(tmp_path / "small")
    with running(place) as service:
        (row,) = service.ask("GET", "/v1/competitions").json["competitions"]
        assert (row["open"], row["settled"], row["vkey"]) == (None, None, None)
        assert service.ask("GET", EPOCHS).json == {"epochs": [], "next": None}
        epoch = json.loads(output("settle", str(place), "--json"))["epoch"]
        assert service.ask("GET", f"{EPOCHS}/{epoch}/board").json["epoch"] == epoch
        assert service.ask("GET", f"{EPOCHS}/{epoch}").body + b"\n" == output("settle", str(place), "--json").encode()
        assert service.ask("GET", f"{EPOCHS}/{epoch + 1}").status == 404
        for path in (f"{EPOCHS}/{epoch}/receipt", f"{EPOCHS}/{epoch}/records", "/small/log/checkpoint", "/small/feed.atom"):
            assert service.ask("GET", path).status == 409, path
        assert service.ask("GET", "/healthz").status == 200
