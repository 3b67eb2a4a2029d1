"""How firmly a board holds, where it is shown: computed at once for small boards, beside the requests of a service, and kept."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import ledger_kit
from assay.rules.margin import margins as by_rule
from assay.serve import margins, pages
from assay.serve.background import catch_up
from assay.serve.season import read
from cli_kit import output
from service_kit import Running, running, settle

EXAMPLES = Path(__file__).parents[2] / "examples"
FIRM = "How firmly this holds is not known"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(ledger_kit.once(tmp_path / "small", ("margins",), ledger_kit.ledger_folder)) as service:
        settle(service)
        yield service


def board(service: Running) -> str:
    return service.ask("GET", "/small/").body.decode()


def test_a_report_and_the_terminal_say_it_with_the_range_of_missing_trials() -> None:
    season = read(EXAMPLES / "season")
    sentences = by_rule(season.settlement).sentences
    page = pages.page(season, "index.html").decode()
    assert "Atlas Shell stays first unless 2 trials are wrong" in page  # as the table calls it
    assert sentences[1] in page
    assert "score between 0.622 and 0.64, whatever missing trials come to" in page
    assert "the agreed score is between 0.622 and 0.64" in pages.page(season, pages.participant_page("cobalt")).decode()
    text = " ".join(output("settle", EXAMPLES / "season", columns=200).split())
    assert all(sentence in text for sentence in sentences)
    assert "Scores with missing trials: cobalt between 0.622 and 0.64 (1 missing)" in text
    margins = json.loads(output("explain", EXAMPLES / "season", "cobalt", "--json"))["margins"]
    assert margins[:2] == sentences
    assert "its score is between 0.622 and 0.64." in margins[2]
    text = " ".join(output("explain", EXAMPLES / "season", "cobalt", columns=200).split())
    assert all(sentence in text for sentence in sentences)
    assert "1 of its trials is missing. Whatever the outcome, its score is between 0.622 and 0.64." in text


def test_a_service_says_that_it_is_not_known_until_it_was_computed(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = service.site.competition("small").folder
    assert FIRM in board(service)
    monkeypatch.setattr(margins, "compute", None)  # no request computes it
    assert FIRM in board(service)
    monkeypatch.undo()
    catch_up(folder)
    (file,) = (folder / "margins").iterdir()
    assert FIRM not in board(service)
    assert "stays first unless" in board(service)
    kept = file.read_bytes()
    catch_up(folder)
    assert file.read_bytes() == kept
    file.unlink()
    assert FIRM in board(service)


def test_what_never_ends_is_not_begun_for_ever(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, begun = service.site.competition("small").folder, 0

    def killed(settlement: object) -> None:
        nonlocal begun
        begun += 1
        raise KeyboardInterrupt

    monkeypatch.setattr(margins, "compute", killed)
    for _ in range(margins.TRIES):
        with pytest.raises(KeyboardInterrupt):
            catch_up(folder)
    catch_up(folder)
    assert begun == margins.TRIES


def test_a_large_board_and_another_kind_compute_nothing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(margins, "INLINE", 1)
    text = " ".join(output("settle", EXAMPLES / "season", columns=200).split())
    assert "takes some time to compute: assay margin" in text
    page = pages.page(read(EXAMPLES / "season"), "index.html").decode()
    assert "takes long to compute for so many participants" in page
    assert "How firmly" not in output("explain", EXAMPLES / "verdicts", "larch")
