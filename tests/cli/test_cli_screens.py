"""What people see in a terminal of 80 columns: tables fit, nothing is cut off, one thing is not spoken of as many."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import ledger_kit
from assay.ledger import bundle, keys, settling
from cli_kit import from_preset, output
from ledger_kit import SIGNER, V1

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGEST = re.compile(r"(?:[A-Z][a-z]+ |  )?sha256:[0-9a-f]{64}[.,]?")
"""A line that is a digest, which is never broken."""
SCREENS = {
    "settle": ["settle", "season"],
    "settle-stale": ["settle", "window"],
    "settle-payout": ["settle", "verdicts"],
    "settle-points": ["settle", "bounty-challenge"],
    "settle-ranking": ["settle", "board"],
    "explain": ["explain", "season", "atlas"],
    "explain-none": ["explain", "season", "fjord"],
    "explain-window": ["explain", "window", "gorse"],
    "explain-payout": ["explain", "verdicts", "larch"],
    "explain-points": ["explain", "bounty-challenge", "robin"],
    "explain-ranking": ["explain", "board", "finch"],
    "trials": ["trials", "season"],
    "emission": ["emission", "platform/my-subnet.toml"],
    "bounty-check": ["bounty", "check", "agonaut"],
    "scheme-show": ["scheme", "list"],
    "evidence-list": ["evidence", "list", "small"],
    "evidence-conflicts": ["evidence", "list", "small", "--conflicts"],
    "ledger-check": ["ledger", "check", "small"],
    "ledger-replay": ["ledger", "replay", "small"],
    "ledger-settle": ["settle", "small"],
    "trials-exported": ["trials", "small/epoch-3"],
    "explain-exported": ["explain", "small/epoch-3", "m1"],
    "verify": ["verify", "small/epoch-3", "--key", "small/ledger.toml"],
    "verify-receipt": ["verify", "small/epoch-3/receipts/epoch-3.receipt"],
    "keys": ["keys", "list"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The examples, a board of one run's table, and a small ledger with one record in conflict, settled and exported."""
    place = tmp_path_factory.mktemp("screens")
    for name in ("season", "window", "verdicts", "bounty-challenge", "platform", "agonaut"):
        shutil.copytree(EXAMPLES / name, place / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_KEYS", str(place / "keys"))
        patch.delenv("ASSAY_PASSPHRASE", raising=False)
        keys.save("small-log", SIGNER)
        output("import", "csv", EXAMPLES / "benchmark/trials.csv", place / "board")
        small = ledger_kit.ledger_folder(place / "small")
        ledger_kit.add(small, ledger_kit.records())
        later = [
            record for record in ledger_kit.records(validators=[V1]) if (record["participant"], record["task"]) == ("m1", "t1")
        ]
        ledger_kit.add(small, [record | {"outcome": "fail"} for record in later])
        with ledger_kit.opened(small) as ledger:
            settling.settle(ledger, SIGNER)
            bundle.export(ledger, 3, small / "epoch-3")
        patch.chdir(place)
        yield place


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_fits_eighty_columns(place: Path, name: str) -> None:
    shown = output(*SCREENS[name])
    wide = [
        line for line in shown.splitlines() if len(line) > 80 and not DIGEST.fullmatch(line) and not line.startswith("  assay")
    ]
    assert wide == []


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", SCREENS)
def test_one_is_not_spoken_of_as_many(place: Path, name: str) -> None:
    words = " ".join(output(*SCREENS[name], columns=200).split())
    counted = (
        r"(?<![\d.:–#-])\b1 (?:records|trials|tasks|batches|receipts|validators|participants|scores|epochs|runs|points|checks) "
    )
    assert re.findall(counted, words) == []


def test_the_keys_of_a_verified_receipt_are_shortened_in_the_middle(place: Path) -> None:
    narrow = output(*SCREENS["verify"])
    assert re.search(r"sha256:[0-9a-f]+…[0-9a-f]+\n", narrow)
    assert "…" not in output(*SCREENS["verify"], columns=120)


def test_a_preset_fits_too(tmp_path: Path) -> None:
    for preset in ("agonaut", "cswon", "bounty-challenge", "term-challenge", "benchmark"):
        shown = output("settle", from_preset(tmp_path / preset, preset))
        assert all(len(line) <= 80 for line in shown.splitlines() if not line.startswith("  assay"))
