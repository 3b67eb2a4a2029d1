"""Attacks: what is known is found by the search, scenarios replay to the same numbers, and what is small is compared with all."""

import copy
import json
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.cli.attack import table
from assay.errors import BadInput, CannotSettle
from assay.exact import NANO, digest
from assay.rules.attack import Arena, Attack, earned, play, replayed, scenario
from assay.rules.lies import NO_SCORE, Coalition, Jury, coalitions
from assay.rules.search import _denial, costs, field_of
from assay.rules.seasons import World, season
from assay.rules.simulate import varied
from assay.scheme.load import parse, presets
from assay.scheme.model import Scheme
from cli_kit import narrow, output, refused

ROOT = Path(__file__).parents[2]
TERM = parse(presets()["term-challenge"])
NONE = {"consensus.outliers": {"method": "none"}}


def small(scheme: Scheme = TERM, draws: int = 6, **options: Any) -> Arena:
    field = field_of(scheme, **options)
    jury = field.jury
    return Arena(Jury(scheme, jury.stakes, jury.items, jury.same, jury.seed, draws))


@pytest.mark.parametrize(
    ("changes", "known"),
    [({}, 0.070), (NONE, 0.120), ({"consensus.combine": "stake-median"}, 0.031)],
    ids=["mad", "mean", "median"],
)
def test_what_is_known_of_thirty_percent_of_the_stake_is_found(changes: dict[str, Any], known: float) -> None:
    """20 validators, a true rate of 0.6 over 80 tasks."""
    jury = Jury(varied(TERM, changes), (10**9,) * 20, 80, same=False, draws=200)
    (members,) = coalitions(jury.stakes, (3000,))
    assert len(members) == 6
    assert abs(Coalition(jury, members, (6000,)).shift(6000) / NANO - known) < 0.005


def test_who_lies_last_gains_at_least_as_much_as_who_lies_blind() -> None:
    bench = small().bench((0, 1, 2, 3))
    for rate in bench.rates:
        assert bench.shift(rate, last=True) >= bench.shift(rate) >= 0 >= bench.shift(rate, up=False)


def test_the_best_lie_is_the_best_of_all_and_members_who_differ_do_no_worse() -> None:
    jury = Jury(TERM, (5, 4, 3, 2, 2), 4, same=False, seed=3, draws=3)
    bench = Coalition(jury, (1, 3), (5000,))
    seen = jury.seen((5000,))[:, 0]

    def total(claims: tuple[int, ...]) -> int:
        counts = seen.copy()
        counts[[1, 3]] = np.array(claims)[:, None]
        return int(np.maximum(0, jury.agreed(counts)).sum())

    together = max(total((claim, claim)) for claim in range(5))
    apart = max(total(claims) for claims in product(range(5), repeat=2))
    assert together == int(bench.chosen(True, False)[1][0].sum())
    claims, moved = bench.refined(5000)
    assert together <= total(claims) <= apart
    assert moved == (total(claims) - int(bench.honest[0].sum())) // 3


def test_coalitions_fit_under_their_bounds_and_come_by_their_stake() -> None:
    stakes = (5, 4, 3, 2, 1)
    assert coalitions(stakes, (2000, 10_000)) == [(2,), (3, 4), (0, 1, 2, 3, 4)]
    assert coalitions(stakes, (100,)) == []


def test_silence_breaks_the_quorum_just_above_what_the_quorum_spares() -> None:
    assert _denial(small().jury) == 75 * NANO // 100, "30 % is the quorum, so more than 70 % must be silent"
    needs_all = varied(TERM, {"consensus.min_stake": "100%"})
    assert _denial(small(needs_all).jury) == 5 * NANO // 100


@pytest.mark.parametrize("keys", [1, 2, 7])
def test_sybils_gain_what_arithmetic_says(keys: int) -> None:
    field = small(varied(TERM, {"reward.cap": "100%"}))
    played = play(field, Attack("sybils", keys=keys))
    own, others = Fraction(6000), Fraction(sum(field.rates) - 6000)
    assert abs(Fraction(played.before, NANO) - own / (own + others)) < Fraction(1, 10**8)
    assert abs(Fraction(played.after, NANO) - keys * own / (keys * own + others)) < Fraction(keys, 10**8)


def test_where_the_winner_takes_all_more_keys_gain_nothing() -> None:
    field = small(varied(TERM, {"reward.strategy": "winner-takes-all", "reward.cap": "100%"}))
    assert all(play(field, Attack(kind, keys=5)).profit == 0 for kind in ("sybils", "copy"))


def test_releasing_in_steps_pays_only_where_shares_decay() -> None:
    steps = Attack("release", steps=4, gap=11)
    assert play(small(), steps).profit > 0
    assert play(small(varied(TERM, {"decay.curve": "none"})), steps).profit < 0
    again = Attack("release", steps=1, gap=10, again=True)
    assert play(small(), again).profit == 0, "a new submission must beat the agent's own best"
    assert play(small(varied(TERM, {"decay.reset": "update"})), again).profit > 0


def test_a_participant_without_a_score_takes_no_part() -> None:
    assert earned(TERM, [NO_SCORE, NANO // 2, NANO // 2]) == [0, NANO // 2, NANO // 2]


def attacks() -> list[tuple[Arena, Attack]]:
    field, bounty = small(draws=3), small(parse(presets()["agonaut"]), draws=3)
    field_attacks = [
        Attack("coalition", (0, 1), lies=((-1,),) * 3 + ((80,),) + ((0,),) * 4),
        Attack("coalition", (0, 1), last=True, lies=((-1,),) * 3 + ((70, 75, 81),) + ((0,),) * 4),
        Attack("sybils", keys=3),
        Attack("copy", keys=2),
        Attack("release", steps=2, gap=5, again=True),
        Attack("last-block"),
    ]
    return [*((field, attack) for attack in field_attacks), (bounty, Attack("sponsor", (0,), lies=((9,),) * 8))]


@pytest.mark.parametrize(("field", "attack"), attacks(), ids=lambda value: getattr(value, "kind", ""))
def test_every_attack_is_played_again_to_the_same_numbers(field: Arena, attack: Attack) -> None:
    played = play(field, attack)
    document = json.loads(json.dumps(scenario(field, played)))
    again, result = replayed(document)
    assert (again, result) == (field, played)
    document["result"]["profit"] = "0.999"
    with pytest.raises(BadInput, match="is not the digest"):
        replayed(document)
    document["digest"] = digest({name: value for name, value in document.items() if name != "digest"})
    with pytest.raises(CannotSettle, match="now comes to"):
        replayed(document)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema", "other/1", "schema: is no assay.attack/1"),
        ("attack.kind", "bribe", "attack.kind: is no attack"),
        ("attack.members", [20], "attack.members: names a validator"),
        ("attack.members", ["0"], "attack.members: is not made of whole numbers"),
        ("attack.lies", [[80]], "attack.lies: needs a lie for each participant"),
        ("attack.lies", [[82]] * 8, "attack.lies: a lie is out of range"),
        ("attack.lies", 7, "attack.lies: is not made of whole numbers"),
        ("attack.more", 1, "attack: must have the fields"),
        ("field.stakes", [1], "field.stakes: is no list of stakes"),
        ("field.stakes", ["0"], "stakes: the stakes are not those of"),
        ("field.attacker", 8, "field.attacker: is not made of whole numbers from 0 to 7"),
        ("field.rates", [], "field.rates: is not made of whole numbers"),
        ("scheme.reward.cap", "7", "reward.cap"),
    ],
)
def test_a_scenario_that_is_wrong_is_refused(path: str, value: Any, message: str) -> None:
    field = small(draws=1)
    document = copy.deepcopy(scenario(field, play(field, Attack("coalition", (0,), lies=((-1,),) * 8))))
    *sections, name = path.split(".")
    inner = document
    for section in sections:
        inner = inner[section]
    inner[name] = value
    document["digest"] = digest({name: value for name, value in document.items() if name != "digest"})
    with pytest.raises(BadInput) as error:
        replayed(document)
    assert message in str(error.value)


def test_a_sponsor_needs_a_bounty() -> None:
    field = small(draws=1)
    document = scenario(field, play(field, Attack("sponsor", (0,), lies=((0,),) * 8)))
    with pytest.raises(BadInput, match="a sponsor needs a scheme that pays out"):
        replayed(document)


def test_a_changed_field_is_priced_for_attackers_and_for_the_honest() -> None:
    all_costs = costs(small(draws=4), season(World(epochs=20, participants=6, validators=20)))
    by_name = {(cost.field, cost.value): cost for cost in all_costs}
    same, none = by_name["as it is", ""], by_name["outliers.method", "none"]
    assert none.shift > same.shift
    assert none.hurt == 0 < same.hurt


@pytest.mark.full
def test_the_page_has_what_the_command_prints() -> None:
    """A small part of the table: the whole of it takes some seconds."""
    page = (ROOT / "docs/attacks.md").read_text(encoding="utf-8")
    rows = table(("agonaut", "term-challenge")).splitlines()
    assert len(rows) == 4
    assert [row for row in rows if row not in page.splitlines()] == [], (
        "run: assay attack --table, and put it into docs/attacks.md"
    )


@pytest.mark.full
def test_the_page_has_the_whole_table() -> None:
    assert table() in (ROOT / "docs/attacks.md").read_text(encoding="utf-8")


def test_the_command_searches_writes_and_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.rules.search.STAKES", (2000, 4000))
    file = tmp_path / "cheapest.json"
    options = ("attack", "bounty-challenge", "--validators", "5", "--items", "10")
    shown = output(*options, "--output", file)
    assert narrow(shown)
    assert "Cheapest that gains 1 %: The weakest participant hands in near-copies" in shown
    document = json.loads(output(*options, "--json"))
    assert document["cheapest"] == json.loads(file.read_bytes())
    assert "The same numbers as in the file." in output("attack", "--replay", file)
    assert json.loads(output("attack", "--replay", file, "--json"))["replayed"] is True
    stakes = tmp_path / "validators.csv"
    stakes.write_text("key,stake,name\na,100,\nb,50,\nc,0,\n", encoding="utf-8")
    assert len(json.loads(output("attack", "agonaut", "--stakes", stakes, "--json"))["coalitions"]) >= 1


def test_wrong_use_of_the_command_is_refused(tmp_path: Path) -> None:
    assert "a ranking pays nobody" in refused("attack", "benchmark")
    assert "items" in refused("attack", "cswon", "--items", "5000")
    file = tmp_path / "x.json"
    file.write_text("{}", encoding="utf-8")
    assert f"{file}: must have the fields" in refused("attack", "--replay", file)
    file.write_text("key,stake,name\na,0,\n", encoding="utf-8")
    assert "no validator has stake" in refused("attack", "cswon", "--stakes", file)
