"""A history under other rules: from the first epoch on, exact, and the same as settling a folder with the other rules."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

import assay
import ledger_kit
import small_folder
from assay.cli.backtest import as_markdown
from assay.errors import BadInput, CannotSettle
from assay.exact import digest
from assay.ledger import settling
from assay.rules.backtest import Backtest
from assay.scheme.load import parse
from assay.scheme.load import read as read_scheme
from cli_kit import copied, narrow, output, refused, rewrite
from ledger_kit import SIGNER

SEASON = Path(__file__).parents[2] / "examples/season"
DECAY = '[decay]\ngrace_epochs = 0\nrate = "10%"\n'
CAPPED = small_folder.SCHEME + '[reward]\ncap = "10%"\nexcess = "burn"\n' + DECAY


def under(place: Path, rules: str) -> Backtest:
    return assay.open(place).backtest(parse(rules))


def ledger(place: Path) -> Path:
    """Three settled epochs; m1 improves in the second, and nobody does in the third."""
    folder = ledger_kit.ledger_folder(place, scheme_toml=small_folder.SCHEME + DECAY)
    for epoch, outcome in ((3, "fail"), (4, "pass"), (9, "pass")):
        ledger_kit.add(folder, ledger_kit.records(epoch=epoch, trial=epoch, outcome=outcome))
        ledger_kit.add(folder, ledger_kit.records(epoch=epoch)[:1])
    ledger_kit.add(folder, ledger_kit.records(epoch=3))
    for epoch in (3, 4, 9):
        with ledger_kit.opened(folder) as opened:
            settling.settle(opened, SIGNER, epoch, skip=epoch == 9)
    return folder


def test_the_same_rules_move_nothing_and_give_the_same_digests() -> None:
    backtest = assay.open(SEASON).backtest(read_scheme(SEASON / "scheme.toml"))
    assert [pair.epoch for pair in backtest.epochs] == [1, 3, 9, 11, 12]
    assert all(pair.old == pair.new and pair.moved == 0 for pair in backtest.epochs)
    assert all(change.gain == 0 for change in (*backtest.changes, backtest.rest))


def test_shares_and_what_burns_sum_to_one_and_gains_equal_losses(tmp_path: Path) -> None:
    place = copied(SEASON, tmp_path / "season")
    rewrite(place / "scheme.toml", 'cap = "50%"', 'cap = "25%"')
    backtest = assay.open(SEASON).backtest(read_scheme(place / "scheme.toml"))
    everybody = [*backtest.changes, backtest.rest]
    assert sum(change.old for change in everybody) == sum(change.new for change in everybody) == 1
    assert sum(change.gain for change in everybody) == 0
    assert backtest.rest.gain > 0
    for pair in backtest.epochs:
        losses = [pair.old.of(key) - pair.new.of(key) for key in pair.old.shares] + [pair.old.rest - pair.new.rest]
        assert pair.moved == sum(loss for loss in losses if loss > 0)


def test_a_ledger_is_replayed_from_its_first_epoch(tmp_path: Path) -> None:
    place = ledger(tmp_path / "small")
    backtest = under(place, CAPPED)
    with ledger_kit.opened(place) as opened:
        assert [pair.old.digest for pair in backtest.epochs] == [epoch.settlement.digest for epoch in settling.replay(opened)]
    assert [pair.epoch for pair in backtest.epochs] == [3, 4, 9]
    assert [pair.new.of("m1") for pair in backtest.epochs] == [Fraction(1, 10), Fraction(9, 100), Fraction(4, 100)]
    assert backtest.epochs[2].old.of("m1") == Fraction(2, 10), "the clock runs from epoch 3 on under both"
    again = under(place, CAPPED)
    assert again.document == backtest.document
    assert backtest.document["digest"] == digest({name: value for name, value in backtest.document.items() if name != "digest"})


def test_a_clock_that_only_the_other_rules_read_is_replayed_too(tmp_path: Path) -> None:
    backtest = under(ledger(tmp_path / "small"), small_folder.SCHEME + DECAY.replace("[decay]", '[decay]\nclock = "competition"'))
    with_history = [pair.new.rest for pair in backtest.epochs]
    assert with_history == [0, Fraction(1, 10), Fraction(6, 10)]


def test_payouts_are_compared_as_parts_of_the_deposit(tmp_path: Path) -> None:
    checks = 'checks = [{id = "c1", weight = 10000, skippable = false}]\n'
    rules = '[scheme]\nname = "b"\n[score]\nkind = "rubric"\n' + checks + "[consensus]\nmin_validators = 1\n"
    payout = '[reward]\nkind = "payout"\n[payout]\ndeposit = "1000"\n'
    place = small_folder.make(tmp_path / "b", "rubric", scheme_toml=rules + payout)
    backtest = under(place, rules + payout + "fee_bps = 500\n")
    assert [(change.participant, change.old, change.new) for change in backtest.changes] == [
        ("m1", Fraction(1), Fraction(95, 100))
    ]
    assert backtest.rest.new == Fraction(5, 100)
    assert "*refunded and fees*" in as_markdown(backtest, "b")


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (small_folder.SCHEMES["given"], "score.kind: the competition has 'tests', the other scheme 'given'"),
        (small_folder.SCHEME + '[reward]\nkind = "ranking"\n', "reward.kind: the competition has 'weights', the other"),
    ],
)
def test_rules_that_cannot_be_compared_are_refused(tmp_path: Path, rules: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        under(small_folder.make(tmp_path / "small"), rules)
    assert message in str(error.value)


def test_a_ranking_and_a_ledger_without_an_epoch_have_nothing_to_compare(tmp_path: Path) -> None:
    ranking = small_folder.SCHEME + '[reward]\nkind = "ranking"\n'
    with pytest.raises(BadInput, match="a ranking pays nobody"):
        under(small_folder.make(tmp_path / "small", scheme_toml=ranking), ranking)
    with pytest.raises(CannotSettle, match="no epoch is settled yet"):
        under(ledger_kit.ledger_folder(tmp_path / "empty"), small_folder.SCHEME)


def test_the_command_shows_tables_markdown_and_json(tmp_path: Path) -> None:
    other = tmp_path / "new.toml"
    other.write_text((SEASON / "scheme.toml").read_text(encoding="utf-8"), encoding="utf-8")
    rewrite(other, 'cap = "50%"', 'cap = "25%"')
    rewrite(other, 'version = "1.0.0"', 'version = "1.1.0"')
    shown = output("backtest", SEASON, "--scheme", other)
    assert narrow(shown)
    assert shown.startswith("season: term-challenge 1.0.0 and term-challenge 1.1.0, 5 epochs\n")
    document = json.loads(output("backtest", SEASON, "--scheme", other, "--json"))
    assert document["digest"] in shown
    markdown = tmp_path / "pull.md"
    output("backtest", SEASON, "--scheme", other, "--markdown", "--output", markdown)
    text = markdown.read_text(encoding="utf-8")
    assert text.startswith("## Back-test of season: term-challenge 1.0.0 → term-challenge 1.1.0\n")
    assert all(epoch[side]["settlement"] in text for epoch in document["epochs"] for side in ("old", "new"))
    assert "| 5 of" not in output("backtest", SEASON, "--scheme", other, "--top", "2")
    written = tmp_path / "out.json"
    output("backtest", SEASON, "--scheme", other, "--json", "-o", written)
    assert json.loads(written.read_bytes()) == document


def test_wrong_use_of_the_command_is_refused(tmp_path: Path) -> None:
    assert "is neither a file nor a preset" in refused("backtest", SEASON, "--scheme", "none")
    assert "no such file" in refused("backtest", tmp_path / "nowhere", "--scheme", "term-challenge")
    bad = tmp_path / "bad.toml"
    bad.write_text((SEASON / "scheme.toml").read_text(encoding="utf-8").replace('cap = "50%"', 'cap = "150%"'), encoding="utf-8")
    assert f"{bad}:" in refused("backtest", SEASON, "--scheme", bad)
