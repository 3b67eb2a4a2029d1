"""Yuma's epoch, against the traces that subtensor's own tests publish.

The numbers are those of the pallet `subtensor`: tests/epoch.rs, `test_bonds` (a printed trace of an epoch, with ten digits) and
the scenarios of Yuma 3 (`test_yuma_3_…`: bonds and dividends with four digits, which the pallet's tests compare within 0.001).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.rules.fixed import ONE, exp, normalized, of_ratio, proportion, times
from assay.rules.yuma import Neurons, YumaEpoch, YumaRules, epoch
from cli_kit import narrow, output, refused

M = 65_535
LIQUID = YumaRules(
    kappa=M // 2,
    bonds_penalty=0,
    bonds_moving_average=975_000,
    yuma3=True,
    liquid=True,
    alpha_low=of_ratio(1, 10),
    alpha_high=of_ratio(3, 10),
)
PLAIN = YumaRules(kappa=M // 2, bonds_penalty=0, bonds_moving_average=975_000, yuma3=True)


def toward(targets: Sequence[Sequence[int]], n: int) -> list[list[int]]:
    """Three validators, and what each has set on the servers after them."""
    return [[0, 0, 0, *targets[i]] if i < 3 else [0] * n for i in range(n)]


def season(rules: YumaRules, stakes: Sequence[int], steps: Sequence[Any]) -> list[YumaEpoch]:
    """An epoch for each step, each with the bonds that the one before left."""
    n, epochs = len(stakes), list[YumaEpoch]()
    for step in steps:
        bonds = epochs[-1].bonds if epochs else ()
        epochs.append(epoch(Neurons(stakes, toward(step, n), [i < 3 for i in range(n)], bonds), rules))
    return epochs


A, B = (M, 0), (0, M)
FIRST, SECOND, BOTH = (M // 2, 0, M // 2), (0, M // 2, M // 2), [33, 33, 34, 0, 0]
ONE_SWITCH = [(A, A, A), (A, A, A), (A, A, B), (A, A, A), (A, A, A), (A, A, A)]
SCENARIOS: dict[str, tuple[YumaRules, list[int], list[Any], list[Any], list[Any]]] = {
    "kappa moves first": (
        LIQUID,
        [8, 1, 1, 0, 0],
        [(A, A, A), (B, A, A), (B, B, A), (B, B, B), (B, B, B), (B, B, B)],
        [
            [[0.1013, 0], [0.1013, 0], [0.1013, 0]],
            [[0.0908, 0.1013], [0.3697, 0], [0.3697, 0]],
            [[0.0815, 0.1924], [0.3170, 0.1013], [0.5580, 0]],
            [[0.0731, 0.2742], [0.2765, 0.1924], [0.4306, 0.1013]],
            [[0.0656, 0.3478], [0.2435, 0.2742], [0.3589, 0.1924]],
            [[0.0588, 0.4139], [0.2157, 0.3478], [0.3089, 0.2742]],
        ],
        [
            [0.8, 0.1, 0.1],
            [1, 0, 0],
            [0.9382, 0.0618, 0],
            [0.8819, 0.0773, 0.0407],
            [0.8564, 0.0844, 0.0592],
            [0.8418, 0.0884, 0.0697],
        ],
    ),
    "kappa moves second": (
        LIQUID,
        [8, 1, 1, 0, 0],
        [(A, A, A), (A, B, A), (B, B, A), (B, B, B), (B, B, B), (B, B, B)],
        [
            [[0.1013, 0], [0.1013, 0], [0.1013, 0]],
            [[0.1924, 0], [0.0908, 0.2987], [0.1924, 0]],
            [[0.1715, 0.1013], [0.0815, 0.3697], [0.4336, 0]],
            [[0.1531, 0.1924], [0.0731, 0.4336], [0.3608, 0.1013]],
            [[0.1369, 0.2742], [0.0656, 0.4910], [0.3103, 0.1924]],
            [[0.1225, 0.3478], [0.0588, 0.5426], [0.2712, 0.2742]],
        ],
        [
            [0.8, 0.1, 0.1],
            [0.8446, 0.0498, 0.1056],
            [0.6868, 0.3132, 0],
            [0.7421, 0.2090, 0.0489],
            [0.7625, 0.1706, 0.0669],
            [0.7730, 0.1508, 0.0762],
        ],
    ),
    "kappa moves last": (
        LIQUID,
        [8, 1, 1, 0, 0],
        [(A, A, A), (A, B, A), (A, B, B), (B, B, B), (B, B, B), (B, B, B)],
        [
            [[0.1013, 0], [0.1013, 0], [0.1013, 0]],
            [[0.1924, 0], [0.0908, 0.2987], [0.1924, 0]],
            [[0.2742, 0], [0.0815, 0.5081], [0.1715, 0.2987]],
            [[0.2416, 0.1013], [0.0731, 0.5580], [0.1531, 0.3697]],
            [[0.2141, 0.1924], [0.0656, 0.6028], [0.1369, 0.4336]],
            [[0.1903, 0.2742], [0.0588, 0.6430], [0.1225, 0.4910]],
        ],
        [
            [0.8, 0.1, 0.1],
            [0.8446, 0.0498, 0.1056],
            [0.8966, 0.0333, 0.0701],
            [0.4663, 0.3210, 0.2127],
            [0.5976, 0.2340, 0.1683],
            [0.6592, 0.1932, 0.1475],
        ],
    ),
    "one epoch switch": (
        LIQUID,
        BOTH,
        ONE_SWITCH,
        [
            [[0.1013, 0], [0.1013, 0], [0.1013, 0]],
            [[0.1924, 0], [0.1924, 0], [0.1924, 0]],
            [[0.2742, 0], [0.2742, 0], [0.1715, 0.2987]],
            [[0.3478, 0], [0.3478, 0], [0.2554, 0.2618]],
            [[0.4139, 0], [0.4139, 0], [0.3309, 0.2312]],
            [[0.4733, 0], [0.4733, 0], [0.3987, 0.2051]],
        ],
        [
            [0.33, 0.33, 0.34],
            [0.33, 0.33, 0.34],
            [0.3782, 0.3782, 0.2436],
            [0.3628, 0.3628, 0.2745],
            [0.3541, 0.3541, 0.2917],
            [0.3487, 0.3487, 0.3026],
        ],
    ),
    "liquid alpha disabled": (
        PLAIN,
        BOTH,
        ONE_SWITCH,
        [],
        [
            [0.33, 0.33, 0.34],
            [0.33, 0.33, 0.34],
            [0.3734, 0.3734, 0.2532],
            [0.3611, 0.3611, 0.2779],
            [0.3541, 0.3541, 0.2919],
            [0.3495, 0.3495, 0.3009],
        ],
    ),
    "stable miner": (
        LIQUID,
        [8, 1, 1, 0, 0, 0],
        [(FIRST,) * 3, (FIRST, SECOND, FIRST), (SECOND, SECOND, FIRST), (SECOND,) * 3, (SECOND,) * 3, (SECOND,) * 3],
        [
            [[0.0507, 0, 0.0507], [0.0507, 0, 0.0507], [0.0507, 0, 0.0507]],
            [[0.0962, 0, 0.0962], [0.0455, 0.1, 0.0962], [0.0962, 0, 0.0962]],
            [[0.0863, 0.0507, 0.1371], [0.0408, 0.1405, 0.1371], [0.1770, 0, 0.1371]],
            [[0.0774, 0.0962, 0.1739], [0.0367, 0.1770, 0.1739], [0.1579, 0.0507, 0.1739]],
            [[0.0694, 0.1371, 0.2069], [0.0329, 0.2097, 0.2069], [0.1411, 0.0962, 0.2069]],
            [[0.0623, 0.1739, 0.2366], [0.0296, 0.2391, 0.2366], [0.1263, 0.1371, 0.2366]],
        ],
        [
            [0.8, 0.1, 0.1],
            [0.8226, 0.0745, 0.1028],
            [0.7750, 0.1685, 0.0565],
            [0.7864, 0.1372, 0.0764],
            [0.7912, 0.1241, 0.0847],
            [0.7937, 0.1173, 0.0890],
        ],
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_scenarios_of_yuma_3_come_out_as_subtensor_publishes_them(name: str) -> None:
    """To all digits that are printed, but for the last one: closer than the 0.001 that subtensor's own tests allow."""
    rules, stakes, steps, bonds, dividends = SCENARIOS[name]
    epochs = season(rules, stakes, steps)
    for yuma_epoch, want in zip(epochs, dividends, strict=True):
        assert [value / M for value in yuma_epoch.u16("dividends")][:3] == pytest.approx(want, abs=1.5e-4)
    for yuma_epoch, rows in zip(epochs, bonds, strict=False):
        assert [[value / M for value in row[3:]] for row in yuma_epoch.bonds[:3]] == [
            pytest.approx(row, abs=1.5e-4) for row in rows
        ]


def test_the_trace_of_an_epoch_comes_out_to_ten_digits() -> None:
    """`test_bonds`, first epoch: four validators with stakes 1 … 4 set the same weights on four servers."""
    row = [0, 0, 0, 0, M // 4, M // 2, M // 4 * 3, M]
    weights = [row if i < 4 else [0] * 8 for i in range(8)]
    yuma_epoch = epoch(Neurons([1, 2, 3, 4, 0, 0, 0, 0], weights, [True] * 8), YumaRules())
    for name, want in (
        ("stake", [0.0999999999, 0.2, 0.2999999998, 0.4]),
        ("trust", [0.9999999995] * 4),
    ):
        assert [value / ONE for value in getattr(yuma_epoch, name)][:4] == pytest.approx(want, abs=2.4e-10), name
    for name, want in (
        ("consensus", [0.0999975584, 0.2000012207, 0.2999926754, 0.400008545]),
        ("incentive", [0.0999975582, 0.2000012207, 0.2999926752, 0.4000085455]),
    ):
        assert [value / ONE for value in getattr(yuma_epoch, name)][4:] == pytest.approx(want, abs=2.4e-10), name


def test_legacy_bonds_are_exactly_those_that_subtensor_asserts() -> None:
    """`test_bonds` as it was with legacy bonds: after each epoch, one validator more has set weights for itself alone."""
    row = [0, 0, 0, 0, M // 4, M // 2, M // 4 * 3, M]
    weights = [list(row) if i < 4 else [0] * 8 for i in range(8)]
    want = (
        ([16383, 32767, 49151, 65535], [0.0999999978, 0.1999999983, 0.3000000012, 0.4000000022]),
        ([14582, 32767, 49151, 65535], [0.0899967032, 0.2022211233, 0.3033344320, 0.4044477410]),
        ([12603, 28321, 49151, 65535], [0.0809936118, 0.1819995677, 0.3158592721, 0.4211475480]),
    )
    bonds: Sequence[Sequence[int]] = ()
    for at, (column, dividends) in enumerate(want):
        yuma_epoch = epoch(Neurons([1, 2, 3, 4, 0, 0, 0, 0], weights, [True] * 8, bonds), YumaRules())
        assert [line[4] for line in yuma_epoch.bonds][:4] == column
        assert [value / ONE for value in yuma_epoch.dividends][:4] == pytest.approx(dividends, abs=1e-9)
        bonds, weights[at] = yuma_epoch.bonds, [M if j == at else 0 for j in range(8)]


def test_a_weight_that_too_little_stake_supports_is_clipped_and_costs_trust() -> None:
    yuma_epoch = epoch(Neurons([6, 3, 1, 0, 0], toward([A, A, B], 5), [True] * 3 + [False] * 2), YumaRules())
    assert yuma_epoch.u16("consensus") == [0, 0, 0, M, 0]
    assert yuma_epoch.u16("trust") == [M, M, 0, 0, 0]
    assert yuma_epoch.u16("incentive")[3:] == [M, 0]
    assert yuma_epoch.dividends[2] == 0
    assert max(row[3] for row in yuma_epoch.bonds) == M, "legacy bonds are scaled to the largest of a column"


def test_own_outdated_inactive_and_unpermitted_weights_do_not_count() -> None:
    weights = [[M, M, 0], [M, 0, M], [0, M, 0]]

    def of(permits: Sequence[bool] = (True, True, True), **other: Any) -> YumaEpoch:
        return epoch(Neurons([5, 4, 3], weights, permits, **other), YumaRules())

    whole = of()
    assert whole.clipped[0][0] == 0
    assert of(owner=0).clipped[0][0] >= 0
    assert of([True, True, False]).trust[2] == 0
    assert of(outdated=frozenset({(0, 1)})).clipped[0] == [0, 0, 0]
    assert of(inactive=frozenset({0, 1, 2})).incentive == [0, 0, 0]
    bonds = [[M, 0, 0], [0, M, 0], [0, 0, M]]
    fresh = of(bonds=bonds, recent=frozenset({0, 1, 2}))
    assert fresh == whole


@given(st.lists(st.integers(0, 2**40), min_size=2, max_size=6), st.data())
def test_every_row_is_a_whole_or_nothing(stakes: list[int], data: st.DataObject) -> None:
    n = len(stakes)
    weight = st.integers(0, M)
    rows = data.draw(st.lists(st.lists(weight, min_size=n, max_size=n), min_size=n, max_size=n))
    kappa, three, liquid = data.draw(st.integers(1, M)), data.draw(st.booleans()), data.draw(st.booleans())
    yuma_epoch = epoch(Neurons(stakes, rows, [True] * n), YumaRules(kappa=kappa, yuma3=three, liquid=liquid))
    for row in (yuma_epoch.incentive, yuma_epoch.dividends):
        assert all(value >= 0 for value in row)
        assert sum(row) == 0 or abs(sum(row) - ONE) <= n
    assert all(0 <= value <= M for row in yuma_epoch.bonds for value in row)
    assert all(value <= ONE for value in yuma_epoch.trust)


def test_numbers_round_as_the_chain_rounds() -> None:
    assert of_ratio(1, 3) == ONE // 3
    assert of_ratio(-1, 3) == -(ONE // 3)
    assert of_ratio(1, 0) == 0
    assert times(-1, 1) == -1, "a product is rounded down"
    assert times(2**62, 2**62) == 2**63 - 1, "and saturates"
    assert proportion(ONE) == M
    assert proportion(ONE // 2) == M // 2
    assert normalized([0, 0]) == [0, 0]
    assert abs(exp(ONE) / ONE - 2.718281828459045) < 1e-9
    assert abs(exp(-20 * ONE) / ONE) < 1e-8
    assert exp(0) == ONE


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": [[1]]}, "are not those of 2 neurons"),
        ({"weights": [[0, M + 1], [0, 0]]}, "a weight or a bond is out of range"),
        ({"stakes": [1, -1]}, "a stake is out of range"),
    ],
)
def test_neurons_that_are_none_are_refused(changes: dict[str, Any], message: str) -> None:
    whole: dict[str, Any] = {"stakes": [1, 2], "weights": [[0, 1], [1, 0]], "permits": [True, True]}
    with pytest.raises(BadInput, match=message):
        Neurons(**whole | changes)


SEASON = Path(__file__).parents[2] / "examples/season"


def metagraph(place: Path, **changes: Any) -> Path:
    """Twenty neurons, three of them validators that support uid 11."""
    rows = [{"stake": "5", "permit": True, "weights": [[11, M]], "bonds": [[11, M]]}] * 3
    content = {"yuma3": True, "liquid": True, "neurons": [*rows, *({"stake": "0"} for _ in range(17))]} | changes
    file = place / "metagraph.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def test_the_command_previews_an_epoch_with_a_competitions_weights(tmp_path: Path) -> None:
    file = metagraph(tmp_path)
    assert narrow(output("yuma", file))
    (now,) = json.loads(output("yuma", file, "--json"))["epochs"]
    assert now["trust"][:4] == [M - 1 if now["trust"][0] == M - 1 else M] * 3 + [0]
    options = ("--weights", SEASON, "--uid", "2")
    before, after = json.loads(output("yuma", file, *options, "--json"))["epochs"]
    assert before == now
    assert after["trust"][2] < before["trust"][2], "its weights support others, too, whom nobody else supports"
    assert "with the weights of 2" in output("yuma", file, *options, columns=160)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kapa": 1}, "there is no field 'kapa' here; did you mean 'kappa'?"),
        ({"kappa": "1"}, "kappa: is no whole number from 0 to 1000000"),
        ({"neurons": 1}, "neurons: is no metagraph"),
        ({"neurons": [{"stake": 1}]}, "neurons[0].stake: "),
        ({"neurons": [{"stake": "1", "weight": []}]}, "neurons[0]: has stake, permit, weights and bonds"),
        ({"neurons": [{"stake": "1", "weights": [[1, 1]]}]}, "neurons[0].weights: is no whole number from 0 to 0"),
        ({"neurons": [{"stake": "1", "bonds": [1]}]}, "neurons[0].bonds: is no list of pairs"),
    ],
)
def test_a_metagraph_that_is_wrong_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    file = metagraph(tmp_path, **changes)
    printed = refused("yuma", file)
    assert str(file) in printed
    assert message in printed


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file = metagraph(tmp_path)
    assert "there are 20 neurons" in refused("yuma", file, "--weights", SEASON, "--uid", "20")
    few = metagraph(tmp_path, neurons=[{"stake": "1", "permit": True}] * 3)
    assert "and the metagraph has 3 neurons" in refused("yuma", few, "--weights", SEASON, "--uid", "1", code=1)
