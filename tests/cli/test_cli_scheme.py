"""`assay scheme`: presets, checks and the schema."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import rfc8785

import ledger_kit
from assay.scheme.fields import instant_text
from assay.scheme.load import parse, presets
from cli_kit import from_preset, narrow, output, refused, rewrite, run


def test_every_preset_is_listed_with_what_it_is() -> None:
    shown = output("scheme", "list")
    assert all(f"\n{name} " in shown for name in presets())
    assert narrow(shown)


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_shown_as_it_ships(name: str) -> None:
    assert output("scheme", "show", name) == presets()[name]


def test_with_json_every_default_is_filled_in(tmp_path: Path) -> None:
    shown = run("scheme", "show", "cswon", "--json").stdout_bytes
    assert rfc8785.dumps(json.loads(shown)) + b"\n" == shown
    assert json.loads(shown) == parse(presets()["cswon"]).document()
    place = from_preset(tmp_path / "x", "cswon")
    assert output("scheme", "show", place, "--json").encode() == shown
    assert output("scheme", "show", place / "scheme.toml").encode() == presets()["cswon"].encode()


def test_check_says_what_it_is_or_what_is_wrong(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "x")
    assert output("scheme", "check", place).splitlines()[:2] == [
        "term-challenge 1.0.0: tests into weights",
        parse(presets()["term-challenge"]).digest,
    ]
    rewrite(place / "scheme.toml", 'rate = "5%"', 'rates = "5%"')
    assert "decay.rates: there is no field 'rates' here; did you mean 'rate'?" in refused("scheme", "check", place)


def test_check_warns(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "x")
    rewrite(place / "scheme.toml", 'method = "modified-z"', 'method = "z"')
    assert 'with threshold = "3.5" cannot flag anyone among 13' in run("scheme", "check", place, columns=500).stderr


def test_check_says_that_the_open_epoch_of_the_ledger_beside_ends_late(tmp_path: Path) -> None:
    start = instant_text(datetime.now(UTC).replace(microsecond=0))  # as one who adds [epoch] in the middle of a season writes it
    rules = f'[scheme]\nname = "small"\n[score]\nkind = "tests"\n[epoch]\nevery = "72m"\nstart = "{start}"\n'
    place = ledger_kit.ledger_folder(tmp_path / "small", scheme_toml=rules)
    assert run("scheme", "check", place).stderr == "", "nothing is settled, so epoch 1 is open"
    ledger_kit.add(place, ledger_kit.records(epoch=3))
    warned = run("scheme", "check", place, columns=500).stderr
    assert "epoch 3 is open and ends at" in warned
    (place / "ledger.db").unlink()
    assert run("scheme", "check", place).stderr == ""


def test_a_check_says_what_chance_does_to_honest_validators(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small", scheme_toml='[scheme]\nname = "small"\n[score]\nkind = "tests"\n')
    sentence = output("scheme", "check", place).splitlines()[-1]
    assert sentence.startswith("By chance alone, at least one honest validator is left out as an outlier for ")
    assert "trials, 3 validators; `assay scheme honest` has more)." in sentence
    (place / "tasks.txt").unlink()
    (place / "validators.csv").write_text("key\n")  # which is wrong, and not said here
    assert "(80 trials, 5 validators;" in output("scheme", "check", place)
    rewrite(place / "scheme.toml", '"tests"\n', '"tests"\n[consensus.outliers]\nmethod = "none"\n')
    assert "By chance" not in output("scheme", "check", place)
    assert "honest" not in output("scheme", "check", place, "--json")
    document = json.loads(output("scheme", "honest", place, "--tasks", "4", "--validators", "3", "--json"))
    assert {*document["exclusions"]} == {"this scheme", "the seeds' rule", 'scale = "noise"', 'noise, mad_floor = "0.25"'}
    assert set(document["exclusions"]["this scheme"].values()) == {"0.0 %"}
    assert "A validator that lies" in output("scheme", "honest", "term-challenge", "--tasks", "3")
    assert "the scores of 'cswon' are no shares of trials" in refused("scheme", "honest", "cswon")


def test_what_is_no_scheme_is_refused() -> None:
    assert "is a subnet file, not a scheme" in refused("scheme", "check", "platform")
    assert "neither a file nor a preset" in refused("scheme", "show", "nothing")
    assert "no such file" in refused("scheme", "check", "nothing.toml")


def test_the_schema_is_that_of_the_files() -> None:
    schema = json.loads(output("scheme", "schema"))
    assert schema["title"] == "A scheme: scheme.toml as JSON."
    assert {"scheme", "score", "consensus", "reward"} <= set(schema["properties"])
