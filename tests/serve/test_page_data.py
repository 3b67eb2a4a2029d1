"""What stands beside the pages: their data as JSON, what can be downloaded, and that every link of every page leads somewhere."""

import csv
import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO, StringIO
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

import ledger_kit
import small_folder
import test_public
from assay.ledger import settling
from assay.scheme.fields import instant_text
from assay.scheme.load import read as read_scheme
from assay.serve import report, site
from assay.serve.live import LiveState, closes_at, live, live_document
from assay.serve.pages import page
from assay.serve.season import Season, read
from assay.serve.validators import validators
from service_kit import Running, running
from test_pages_bounty import paid
from test_pages_new import NOW, judging
from test_report import EXAMPLES, PageElements

CLOCK = '[epoch]\nevery = "7d"\nstart = 2026-11-02T10:00:00Z\n'


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = ledger_kit.once(tmp_path_factory.mktemp("data") / "small", ("public",), test_public.seasoned)
    with running(folder) as started:
        yield started


@pytest.fixture(scope="module")
def season() -> Season:
    return read(EXAMPLES / "season")


def of(season: Season, name: str) -> dict[str, object]:
    document: dict[str, object] = json.loads(page(season, name))
    return document


# Links


@pytest.mark.full
def test_every_link_of_every_page_of_a_service_answers(service: Running) -> None:
    texts: dict[str, str] = {}
    waiting, named = [f"{service.address}/small/", f"{service.address}/small/live.html"], set[tuple[str, str]]()
    while waiting:
        address = waiting.pop()
        if address in texts:
            continue
        answer = service.ask("GET", address.removeprefix(service.address), headers={"Accept": "text/html"})
        assert answer.status == 200, f"{address} answers {answer.status}"
        texts[address] = answer.body.decode() if answer.headers["content-type"].startswith("text/html") else ""
        if texts[address]:
            for link in (elements := PageElements(texts[address])).links + elements.loads:
                if link == "data:,":  # an icon that asks for nothing
                    continue
                target, anchor = urldefrag(urljoin(address, link))
                if anchor and target.endswith("/verifier/index.html"):  # what the verifier opens, as a link from its page
                    target, anchor = urljoin(target, anchor), ""
                assert target.startswith(service.address), f"{address} leads to {target}"
                named.add((target, unquote(anchor)))
                waiting.append(target)
    for target, anchor in named:
        assert not anchor or anchor in PageElements(texts[target]).ids, f"{target} has no {anchor}"
    epochs = f"{service.address}/v1/small/epochs"
    offered = {f"{epochs}/{number}/{what}" for number in (3, 4) for what in ("bundle", "records", "evidence.parquet")}
    offered |= {f"{epochs}/4/participants/{key}/proof" for key in ("m1", "m2")} | {f"{service.address}/small/log/checkpoint"}
    offered |= {f"{service.address}/small/{name}.csv" for name in ("board", "agreed", "validators", "weights")}
    offered |= {f"{service.address}/small/{name}" for name in ("epoch.receipt", "board.json", "live.json", "start.json")}
    assert offered <= {*texts}


def test_a_download_is_what_it_says(service: Running, tmp_path: Path) -> None:
    files = PageElements(service.ask("GET", "/small/epoch.html").body.decode()).links
    (bundle,) = {link for link in files if link.endswith("/bundle") and "#" not in link}
    body = service.ask("GET", bundle.removeprefix(service.address)).body
    with tarfile.open(fileobj=BytesIO(body)) as archive:
        assert "epoch-4" in archive.getnames()
    document = service.ask("GET", "/small/board.json").json
    for name in ("agreed", "weights"):
        rows = [*csv.DictReader(StringIO(service.ask("GET", f"/small/{name}.csv").body.decode()))]
        assert [row["participant"] for row in rows if row["participant"]] == [row["participant"] for row in document[name]]
        assert service.ask("GET", f"/small/{name}.csv").body == service.ask("GET", f"/v1/small/epochs/4/{name}.csv").body
    target = tmp_path / "site"
    report.write_folder(read(service.site.competition("small").folder), target)
    assert (target / "weights.csv").read_bytes() == service.ask("GET", "/small/weights.csv").body
    assert "v1/" not in "".join(PageElements((target / "epoch.html").read_text()).links), "a report has no service behind it"


# JSON


def test_every_page_has_its_data_beside_it(service: Running, tmp_path: Path) -> None:
    report.write_folder(read(paid(tmp_path / "b")), tmp_path / "bounty")
    report.write_folder(read(EXAMPLES / "season"), tmp_path / "season")
    files = [*(tmp_path / "bounty").glob("*.html"), *(tmp_path / "season").glob("*.html")]
    assert {"bounty.html", "validators.html", "epoch.html", "start.html", "tasks.html"} <= {file.name for file in files}
    for file in files:
        (beside,) = [load for load in PageElements(file.read_text()).loads if load.endswith(".json")]
        assert isinstance(json.loads((file.parent / beside).read_text()), dict | list)
        assert beside in PageElements(file.read_text()).links
    for name in ("live", "start"):
        answer = service.ask("GET", f"/small/{name}.json")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert f"{name}.json" in PageElements(service.ask("GET", f"/small/{name}.html").body.decode()).loads


def test_the_validators_data_are_the_page_s(season: Season) -> None:
    document, view = json.loads(page(season, "validators.json")), validators(season)
    assert [(row["name"], row["judged"], row["of"], row["left_out"]) for row in document["validators"]] == [
        (row["name"], row["done"], row["of"], row["out"]) for row in view["rows"]
    ]
    assert [row["stake"] for row in document["validators"]] == [str(validator.stake) for validator in season.validators.values()]
    names = view["agreement"]["names"]
    cells = {
        (a, b): cell
        for a, row in zip(names, view["agreement"]["rows"], strict=True)
        for b, cell in zip(names, row["cells"], strict=True)
    }
    for pair in document["agreement"]["pairs"]:
        first, other = (season.called[key] for key in pair["validators"])
        assert (cells[first, other]["same"], cells[first, other]["n"]) == (pair["same"], pair["both"])
    assert len(document["agreement"]["pairs"]) == len(names) * (len(names) - 1) // 2
    out = [
        (vote["validator"], row["participant"]) for row in document["scores"] for vote in row["validators"] if vote["excluded"]
    ]
    assert len(out) == len(view["outliers"]) > 0
    assert document["tasks"][0]["task"] == view["disagreed"][0]["task"]


def test_the_epoch_s_data_are_the_receipt_s(service: Running) -> None:
    document, receipts = service.ask("GET", "/small/epoch.json").json, service.ask("GET", "/v1/small/epochs").json["epochs"]
    assert [(row["epoch"], row["digest"]) for row in document["receipts"]] == [
        (row["epoch"], row["receipt"]) for row in reversed(receipts)
    ]
    assert document["states"]["settlement"] == document["settlement"] == service.ask("GET", "/small/board.json").json["digest"]
    assert document["log"]["key"] == str(ledger_kit.KEY)
    assert {row["href"] for row in document["downloads"]} <= {
        *PageElements(service.ask("GET", "/small/epoch.html").body.decode()).links
    }
    without = of(read(EXAMPLES / "season"), "epoch.json")
    assert (without["state"], without["receipts"], without["states"]) == ("none", [], None)


def test_a_bounty_s_data_are_exact(tmp_path: Path) -> None:
    verdicts = read(EXAMPLES / "verdicts")
    document = json.loads(page(verdicts, "bounty.json"))
    payout = verdicts.scheme.payout
    assert payout is not None
    assert (
        int(document["deposit"])
        == payout.deposit
        == sum(int(row["net"]) for row in document["payouts"]) + int(document["fees"]) + int(document["refund"])
    )
    assert [row["key"] for row in document["solutions"]] == verdicts.document["ranking"]
    assert {row["key"]: row["paid"] for row in document["solutions"] if row["paid"] != "0"} == {
        row["participant"]: row["net"] for row in document["payouts"] if row["net"] != "0"
    }
    answers = next(row["answers"] for row in document["rubric"] if row["id"] == "B3")
    assert [*answers.values()] == ["yes", "yes", "yes", "no"]


def test_what_is_judged_now_is_said_by_key_and_by_time() -> None:
    state = LiveState(4, (judging("v1"), judging("v2", heard=600)), 3600, ("m9",))
    document, view = live_document(None, state, NOW), live(None, state, NOW)
    assert [(row["validator"], row["done"], row["silent"]) for row in document["judging"]] == [("v1", 2, False), ("v2", 2, True)]
    assert (document["at"], document["closes_at"], document["waiting"]) == (
        "2026-11-02T10:00:00Z",
        "2026-11-02T11:00:00Z",
        ["m9"],
    )
    assert view["closes_at"] == "11:00"


# Before there is anything


@pytest.mark.parametrize("ledger", [True, False])
def test_live_and_start_answer_before_there_is_evidence(ledger: bool, tmp_path: Path) -> None:
    place = tmp_path / "small"
    if ledger:
        ledger_kit.ledger_folder(place)
    else:
        small_folder.make(place, evidence=None)
    with running(place) as service:
        assert service.ask("GET", "/small/").status == 404
        shown = PageElements(service.ask("GET", "/small/live.html").body.decode())
        assert ("assay ledger init" in shown.words) is not ledger
        assert "No result has come yet." in shown.words
        assert "assay node validator" in PageElements(service.ask("GET", "/small/start.html").body.decode()).words
        for name in ("live", "start"):
            for ending in ("html", "json"):
                assert service.ask("GET", f"/small/{name}.{ending}").status == 200, (name, ending)
        assert service.ask("GET", "/small/live.json").json["judging"] == []
        board = PageElements(service.ask("GET", "/small/", headers={"Accept": "text/html"}).body.decode())
        assert "start.html" in board.links


# When an epoch closes


def test_the_open_epoch_closes_when_the_operators_node_closes_it(tmp_path: Path) -> None:
    scheme = read_scheme(small_folder.make(tmp_path / "small", scheme_toml=small_folder.SCHEME + CLOCK) / "scheme.toml")
    first = datetime(2026, 11, 2, 10, tzinfo=UTC)
    for epoch, days, left in ((1, 0, 7), (1, -1, 8), (1, 6.5, 0.5), (3, 6.5, 14.5), (2, 15, None), (2, 14, None)):
        now = first + timedelta(days=days)
        assert closes_at(scheme, epoch, now) == (None if left is None else now + timedelta(days=left)), (epoch, days)


@pytest.mark.full
def test_a_board_says_when_the_open_epoch_closes_and_says_it_anew_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closing = (datetime.now(UTC) + timedelta(days=3)).replace(microsecond=0)
    start = closing - 5 * timedelta(days=7)  # epoch 5 will be open
    scheme = f'[scheme]\nname = "small"\n[score]\nkind = "tests"\n[epoch]\nevery = "7d"\nstart = {instant_text(start)}\n'
    place = ledger_kit.ledger_folder(tmp_path / "small", scheme_toml=scheme)
    for epoch in (3, 4):
        ledger_kit.add(place, ledger_kit.records(epoch=epoch))
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, ledger_kit.SIGNER, epoch)
    with running(place) as service:
        board = service.ask("GET", "/small/").body.decode()
        assert f'datetime="{closing:%Y-%m-%dT%H:%M:%SZ}"' in board
        assert f"Next epoch {closing.day} {closing:%b %Y, %H:%M} UTC" in PageElements(board).words
        assert "Next epoch" not in PageElements(service.ask("GET", "/small/epoch-3/").body.decode()).words
        served = service.site.competition("small")
        kept = served.cached_page("index.html", None, {})
        assert kept is not None
        monkeypatch.setattr(site, "now", lambda: closing)
        assert served.cached_page("index.html", None, {}) is None, "what was drawn for the epoch before says a time that is over"
    assert "Next epoch" not in PageElements(page(replace(read(place)), "index.html").decode()).words, (
        "a report does not know the time"
    )
