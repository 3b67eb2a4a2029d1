"""Boards stay short for a subnet of 256, and show amounts in ether beside wei, but never an amount of a token."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_folder
from assay.exact import RAO, WEI, coins
from bounty_kit import make_bounty
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


TOKEN = "0x5fbdb2315678afecb367f032d93f642f64180aa3"
TARGET = '[targets.{name}]\nkind = "{kind}"\nrpc = "http://127.0.0.1:8545"\nchain_id = 31337\n'


def with_targets(place: Path, text: str) -> Path:
    (place / "publish.toml").write_text(text)
    return place


@pytest.fixture
def verdicts(tmp_path: Path) -> Path:
    place = tmp_path / "verdicts"
    shutil.copytree(EXAMPLES / "verdicts", place)
    return place


def test_a_payout_in_a_token_is_never_shown_in_ether(verdicts: Path) -> None:
    with_targets(verdicts, TARGET.format(name="main", kind="evm") + f'token = "{TOKEN}"\n')
    board = output("settle", verdicts, columns=200)
    assert "ether" not in board
    assert "deposit  1000000000000000000" in board
    assert "Amounts are in smallest units of the token 0x5fbd…0aa3." in board
    winner = json.loads(output("settle", verdicts, "--json"))["ranking"][0]
    story = output("explain", verdicts, winner, columns=200)
    assert "ether" not in story
    assert "smallest units of the token 0x5fbd…0aa3 after fees" in " ".join(story.split())
    assert "smallest units  of the token" in story


def test_a_bounty_in_a_token_is_explained_without_ether(tmp_path: Path) -> None:
    place = with_targets(make_bounty(tmp_path), TARGET.format(name="main", kind="evm") + f'token = "{TOKEN}"\n')
    shown = output("bounty", "check", place)
    assert "ether" not in shown.replace("whether", "")
    assert "The deposit is 1001 smallest units of the token 0x5fbd…0aa3" in " ".join(shown.split())


@pytest.mark.parametrize(
    "text",
    [
        TARGET.format(name="main", kind="evm"),
        TARGET.format(name="main", kind="bittensor") + f'token = "{TOKEN}"\n',
        TARGET.format(name="main", kind="evm") + 'token = "0xnothing"\n',
        "not TOML",
        "targets = 1\n",
    ],
)
def test_without_a_token_amounts_are_in_ether_too(verdicts: Path, text: str) -> None:
    assert "deposit  1000000000000000000         1" in output("settle", with_targets(verdicts, text), columns=200)


def test_targets_with_different_tokens_are_all_named(verdicts: Path) -> None:
    tokens = [TOKEN, "0x" + "ab" * 20, None, TOKEN]
    targets = [TARGET.format(name=f"t{number}", kind="evm") for number in range(4)]
    text = "".join(target + (f'token = "{token}"\n' if token else "") for target, token in zip(targets, tokens, strict=True))
    shown = output("settle", with_targets(verdicts, text), columns=200)
    assert "Amounts are in smallest units of the token 0x5fbd…0aa3 or 0xabab…abab." in shown


@given(st.integers(0, 2**256 - 1), st.sampled_from([RAO, WEI]))
def test_coins_are_exact(amount: int, decimals: int) -> None:
    whole, _, part = coins(amount, decimals).partition(".")
    assert int(whole) * 10**decimals + int(part.ljust(decimals, "0") or "0") == amount
    assert not part.endswith("0")
    assert coins(str(amount), decimals) == coins(amount, decimals)
