"""Boards stay short for a subnet of 256, and show amounts in the coin beside its smallest unit."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_folder
from assay.exact import RAO, WEI, coins
from cli_kit import output
from small_folder import PARTICIPANTS, lines, record

EXAMPLES = Path(__file__).parents[2] / "examples"
MANY = 256


@pytest.fixture(scope="module")
def subnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A competition of 256 with scores, and 40 without, each of them for a reason of its own."""
    place = tmp_path_factory.mktemp("subnet") / "small"
    head = PARTICIPANTS.splitlines()[0]
    keys = [f"miner-{number:03}" for number in range(MANY + 40)]
    rows = [f"{key},{number + 1},,s-{key},,," for number, key in enumerate(keys)]
    scores = [
        record("given", validator=validator, participant=key, submission=f"s-{key}", score=f"0.{900 - number:03}")
        for number, key in enumerate(keys)
        for validator in (("v1", "v2", "v3") if number < MANY else ("v1",))
    ]
    return small_folder.make(place, "given", participants_csv="\n".join([head, *rows]) + "\n", evidence=lines(scores))


def test_the_board_of_256_stays_short_unless_asked(subnet: Path) -> None:
    short = output("settle", subnet)
    assert short.count("miner-") < 60
    assert len(short.splitlines()) < 90
    assert f"The first 32 of {MANY}. All of them: --top {MANY}." in short
    assert "   burn " in short
    for top in (1, 3, MANY):
        shown = output("settle", subnet, "--top", str(top))
        table = shown.split("─\n")[1].split("\n\n")[0].splitlines()
        rows = [line for line in table if "miner-" in line]
        assert [line.split()[0] for line in rows] == [str(place) for place in range(1, top + 1)]
        assert [line.split()[0] for line in table].count("burn") == 1
        assert (f"The first {top} of {MANY}." in shown) == (top < MANY)


def test_the_board_of_a_subnet_takes_top_as_well() -> None:
    whole = output("emission", EXAMPLES / "platform" / "my-subnet.toml")
    assert "The first" not in whole
    assert whole.count("burn ") == 1
    short = output("emission", EXAMPLES / "platform" / "my-subnet.toml", "--top", "2")
    assert "The first 2 of 6. All of them: --top 6." in short
    assert "60000000000   60" in whole


def test_a_payout_is_shown_in_ether_beside_wei() -> None:
    shown = output("settle", EXAMPLES / "verdicts", columns=200)
    assert "amount  in ether" in shown
    assert "deposit  1000000000000000000         1" in shown


@given(st.integers(0, 2**256 - 1), st.sampled_from([RAO, WEI]))
def test_coins_are_exact(amount: int, decimals: int) -> None:
    whole, _, part = coins(amount, decimals).partition(".")
    assert int(whole) * 10**decimals + int(part.ljust(decimals, "0") or "0") == amount
    assert not part.endswith("0")
    assert coins(str(amount), decimals) == coins(amount, decimals)
