"""A bundle is decided if no outcome of a missing trial could have changed a rank, a tier or a weight: computed again from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import assay
import ledger_kit
import small_folder
from assay.errors import BadInput, Refused
from assay.ledger import bundle, settling
from assay.ledger.verify import verify
from assay.rules.decided import OpenSeason
from cli_kit import output, refused
from ledger_kit import KEY, SIGNER, V1, V2, V3

Json = dict[str, Any]
SCHEME = (
    small_folder.SCHEME + '[consensus]\nmin_validators = 1\nmin_stake = "0%"\n'
    '[reward]\nstrategy = "STRATEGY"\ncap = "100%"\n[decay]\ncurve = "none"\n'
)
OUTCOMES = {"m1": "pass", "m2": "fail"}


def maker(strategy: str, left: Mapping[tuple[str, str], int]) -> Callable[[Path], None]:
    """A ledger with an epoch in which trials are left: (validator, participant) → how many of two."""

    def make(place: Path) -> None:
        ledger_kit.ledger_folder(place, scheme_toml=SCHEME.replace("STRATEGY", strategy))
        records = [
            small_folder.record(validator=name, participant=who, submission=f"s{who[1]}", task=f"t{at}", outcome=outcome)
            for name in (V1, V2, V3)
            for who, outcome in OUTCOMES.items()
            for at in range(1, 3 - left.get((name, who), 0))
        ]
        ledger_kit.add(place, records)
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, SIGNER, 3)

    return make


def exported(place: Path, target: Path) -> Path:
    with ledger_kit.opened(place) as ledger:
        return bundle.export(ledger, 3, target)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Nobody's last trials of the second matter: it failed the others, and the first passed all."""
    key = ("decided", "behind")
    left = {(name, "m2"): 1 for name in (V1, V2, V3)}
    return ledger_kit.once(tmp_path / "small", key, maker("winner-takes-all", left))


def test_a_decided_epoch_is_computed_again_from_its_bundle(place: Path, tmp_path: Path) -> None:
    folder = exported(place, tmp_path / "epoch-3")
    report = verify(folder, key=str(KEY), until="decided")
    assert (report.checked[-1].stage, report.checked[-1].done) == ("decided", True)
    assert report.checked[-1].what.startswith("no outcome of 3 missing trials could change a rank, a tier or a weight: sha256:")
    assert report.settlement is not None
    assert report.checked[-1].what.endswith(assay.open(place).decided(3).digest)
    printed = output("verify", folder, "--key", str(KEY), "--until", "paid")
    assert "no outcome of 3 missing trials could change what anybody is paid" in " ".join(printed.split())
    with pytest.raises(BadInput, match="--until"):
        verify(_joint(tmp_path), until="paid")
    assert "does not go with --all" in refused("verify", folder, "--all", "--until", "paid")


def _joint(tmp_path: Path) -> Path:
    folder = tmp_path / "joint"
    folder.mkdir()
    (folder / "emission.receipt").write_text("{}")
    return folder


def test_what_could_still_be_paid_is_refused(tmp_path: Path) -> None:
    for number, (strategy, left, why) in enumerate(
        (
            ("winner-takes-all", dict.fromkeys(((V1, "m1"), (V2, "m1"), (V3, "m1")), 1), "may-be-paid"),
            ("linear", dict.fromkeys(((V1, "m1"), (V2, "m1"), (V3, "m1")), 1), "part-of-all"),
        )
    ):
        place = tmp_path / str(number)
        place.mkdir()
        maker(strategy, left)(place)
        with pytest.raises(Refused, match=r"missing trials? could change it") as error:
            verify(exported(place, tmp_path / f"epoch-{number}"), key=str(KEY), until="paid")
        assert (error.value.stage, error.value.found) == ("decided", why)


def test_without_a_bundle_it_is_said_that_nothing_was_looked_at(place: Path, tmp_path: Path) -> None:
    for name, asked in (("epoch-3.receipt", ()), ("m1.proof", ("--for", "m1"))):
        (tmp_path / name).write_text(output("receipt", place, "3", *asked))
        report = verify(tmp_path / name, key=str(KEY), until="paid")
        assert ("decided", False) in {(row.stage, row.done) for row in report.checked}


def test_the_open_epoch_of_a_ledger_is_looked_at_with_or_without_evidence(place: Path) -> None:
    competition = assay.open(place)
    assert competition.upcoming().epoch == 4
    season = OpenSeason(competition.upcoming(), "paid")
    assert [season.why(at) for at in range(2)] == ["whole", "behind"]
    assert competition.upcoming(7).epoch == 7


def test_bulk_evidence_says_no_more_than_that_a_score_is_open(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where single records are not known, any number of an incomplete validator's trials may have passed."""
    monkeypatch.setattr("assay.rules.decided.outcomes", lambda settlement: None)
    season = OpenSeason(assay.open(place).settle(3), "paid")
    assert season.judged(0, 0) == []
    assert (int(season.low[1]), int(season.high[1])) == (0, 10**9)
    assert (season.why(0), season.why(1)) == ("whole", "behind")
