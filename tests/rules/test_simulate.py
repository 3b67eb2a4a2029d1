"""Seasons that are drawn: what the simulation gives is what settling the same season record by record gives."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.errors import BadInput
from assay.exact import NANO, text
from assay.records import Participant, Validator, record
from assay.rules.seasons import PATIENCE, DrawnSeason, Draws, World, season
from assay.rules.simulate import _agreement, _shares, knobs, simulate, varied
from assay.scheme.load import parse, presets
from assay.settle import Inputs, pipeline
from cli_kit import narrow, output, refused

TERM = parse(presets()["term-challenge"])
GIVEN = parse('[scheme]\nname = "g"\n[score]\nkind = "given"\n[decay]\ngrace_epochs = 1\nrate = "10%"\n')
SMALL = World(participants=5, validators=4, epochs=14, updates=0.2, churn=0.1, seed=7)
DAY = datetime(2026, 1, 1, tzinfo=UTC)


def settled(scheme: Any, drawn: DrawnSeason) -> list[dict[int, float]]:
    """By epoch: place → share, of the pipeline that settles records."""
    keys = [f"{place:02}-{number}" for place, number in zip(drawn.place.tolist(), drawn.participant.tolist(), strict=True)]
    records = [
        record(
            {
                "kind": "given",
                "epoch": int(drawn.start[s] + drawn.after[v, s]),
                "validator": f"v{v}",
                "participant": keys[s],
                "submission": f"s{s}",
                "observed_at": "2026-01-01T00:00:00Z",
                "score": text(int(drawn.scores[v, s])),
            }
        )
        for s in range(len(drawn.start))
        for v in range(drawn.world.validators)
    ]
    previous, shares = None, []
    for epoch, there in enumerate(drawn.there.tolist()):
        participants = tuple(
            Participant(keys[s], place + 1, submission=f"s{s}", submitted_at=DAY + timedelta(days=int(drawn.start[s])))
            for place, s in enumerate(there)
        )
        validators = tuple(Validator(f"v{v}", stake) for v, stake in enumerate(drawn.stakes))
        here = {participant.key for participant in participants}
        evidence = tuple(each for each in records if each.participant in here)
        result = pipeline.settle(Inputs(scheme, epoch, participants, validators, evidence, previous=previous))
        previous = result.handed_on
        shares.append({int(key[:2]): float(weight.share) for key, weight in result.weights.items()})
    return shares


@pytest.mark.parametrize("clock", ["participant", "competition"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_simulation_gives_what_settling_the_same_records_gives(clock: str, seed: int) -> None:
    scheme = varied(GIVEN, {"decay.clock": clock})
    drawn = season(replace(SMALL, seed=seed))
    shares, _ = _shares(scheme, drawn, _agreement(scheme, drawn))
    for mine, theirs in zip(shares, settled(scheme, drawn), strict=True):
        assert {place: share for place, share in enumerate(mine.tolist()) if not np.isnan(share)} == pytest.approx(theirs)


def test_the_seed_decides_everything() -> None:
    first, again, other = (simulate(TERM, season(replace(SMALL, seed=seed))).document() for seed in (1, 1, 2))
    assert first == again != other


def test_validators_that_all_see_the_skill_pay_by_it_and_none_is_left_out() -> None:
    drawn = season(replace(SMALL, late=0.0))
    whole = replace(drawn, scores=np.broadcast_to(drawn.skill, drawn.scores.shape))
    outcome = simulate(varied(TERM, {"decay.curve": "none"}), whole)
    assert outcome.to_skill == pytest.approx(1)
    assert outcome.correlation == pytest.approx(1)
    assert outcome.panels_hurt == outcome.scores_hurt == outcome.burnt == outcome.never == 0
    assert outcome.agreed == 1
    assert set(outcome.waits) <= {0}
    assert np.allclose(outcome.by_skill[0], outcome.by_skill[1])


def test_noise_takes_from_skill_and_throws_out_honest_validators() -> None:
    quiet, loud = (simulate(TERM, season(replace(SMALL, noise=noise, epochs=60, participants=16))) for noise in (0.0, 0.2))
    assert loud.to_skill < quiet.to_skill
    noiseless = varied(TERM, {"consensus.outliers": {"method": "none"}})
    assert simulate(noiseless, season(SMALL)).panels_hurt == 0 < quiet.panels_hurt


def test_a_season_is_whole_everybody_has_a_place_and_everything_is_judged_in_time() -> None:
    drawn = season(SMALL)
    assert sorted(set(zip(drawn.place.tolist(), drawn.start.tolist(), strict=True))) == sorted(
        zip(drawn.place.tolist(), drawn.start.tolist(), strict=True)
    )
    assert int((drawn.end - drawn.start).sum()) == SMALL.epochs * SMALL.participants
    assert drawn.after.max() <= PATIENCE
    assert drawn.scores.min() >= 0
    assert drawn.scores.max() <= NANO


def test_what_validators_see_is_near_the_skill_on_average() -> None:
    drawn = season(World(participants=200, validators=30, epochs=1, noise=0.0, seed=3))
    errors = (drawn.scores - drawn.skill) / NANO
    assert abs(errors.mean()) < 0.002
    assert errors.std() < 0.06


def test_draws_are_uniform_normal_and_whole() -> None:
    draws = Draws(5)
    assert draws.uniform(2, 3).shape == (2, 3)
    assert abs(draws.normal(20_000).mean()) < 0.03
    assert abs(draws.normal(20_000).std() - 1) < 0.03
    assert set(draws.whole(2, 200).tolist()) == {0, 1, 2, 3}


def test_bounties_are_simulated_by_what_is_paid_of_the_deposit() -> None:
    outcome = simulate(parse(presets()["agonaut"]), season(SMALL))
    assert 0 <= outcome.burnt < 1
    assert [knob.field for knob in knobs(parse(presets()["agonaut"]))].count("cap") == 0


def test_knobs_are_schemes_that_differ_in_one_field() -> None:
    all_knobs = list(knobs(TERM))
    assert len({knob.scheme.digest for knob in all_knobs} | {TERM.digest}) == len(all_knobs) + 1
    assert ("combine", "clip") in {(knob.field, knob.value) for knob in all_knobs}
    trimmed = varied(TERM, {"consensus.combine": "trimmed"})
    assert all(knob.scheme.consensus.trim is None for knob in knobs(trimmed) if knob.field == "combine")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"participants": 0}, "participants: 0 is out of range"),
        ({"tasks": 5000, "trials": 2}, "5000 tasks with 2 trials each are too many"),
        ({"noise": 1.0}, "noise: 1.0 is out of range"),
        ({"stakes": (1,)}, "stakes: there are 1 stakes for 4 validators"),
    ],
)
def test_a_world_that_is_none_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as error:
        season(replace(SMALL, **changes))
    assert message in str(error.value)


def test_what_pays_nobody_or_draws_validators_is_not_simulated() -> None:
    drawn = season(SMALL)
    with pytest.raises(BadInput, match="a ranking pays nobody"):
        simulate(parse(presets()["benchmark"]), drawn)
    with pytest.raises(BadInput, match="is not simulated"):
        simulate(varied(TERM, {"consensus.assign": 3}), drawn)


def test_the_command_shows_figures_and_knobs_and_repeats_itself(tmp_path: Path) -> None:
    options = ("simulate", "term-challenge", "--epochs", "20", "--participants", "6", "--validators", "5", "--seed", "4")
    shown = output(*options, "--knobs")
    assert narrow(shown)
    assert "winner-takes-all" in shown
    assert "What each field changes: --knobs." in output(*options)
    document = json.loads(output(*options, "--json"))
    assert document == json.loads(output(*options, "--json"))
    assert document["world"]["noise"] == "0.01"
    stakes = tmp_path / "validators.csv"
    stakes.write_text("key,stake,name\na,100,\nb,50,\nc,20,\n", encoding="utf-8")
    document = json.loads(output(*options, "--stakes", stakes, "--json"))
    assert document["world"]["stakes"] == ["100", "50", "20"]
    assert document["world"]["validators"] == 3


def test_wrong_use_of_the_command_is_refused() -> None:
    assert "epochs: 0 is out of range" in refused("simulate", "term-challenge", "--epochs", "0")
    assert "is neither a file nor a preset" in refused("simulate", "nothing")
