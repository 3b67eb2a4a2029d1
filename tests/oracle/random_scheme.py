"""Random valid schemes: every field of SPEC 7, left out about half the time so that defaults are tried as well."""

from random import Random
from typing import Any

Doc = dict[str, Any]

KINDS = ("tests", "workflow", "rubric", "points", "given")


def some(r: Random, chance: float = 0.5, **choices: list[Any]) -> Doc:
    """A table with each field present at the given chance, its value one of the choices."""
    return {name: r.choice(values) for name, values in choices.items() if r.random() < chance}


def parts_of(r: Random, whole: int, count: int, step: int) -> list[int]:
    """`count` positive multiples of `step` that sum to `whole`."""
    cuts = sorted(r.sample(range(1, whole // step), count - 1))
    return [(b - a) * step for a, b in zip([0, *cuts], [*cuts, whole // step], strict=True)]


def checks(r: Random) -> list[Doc]:
    """One to six weighted checks in either spelling, weights summing to 10 000."""
    count = r.randint(1, 6)
    result = []
    for i, weight in enumerate(parts_of(r, 10_000, count, r.choice([1, 500, 1000]))):
        check: Doc = {"id": f"C{i + 1}", "label": f"check {i + 1}", "weight": weight}
        skippable = r.random() < 0.6
        check |= {"skippable": skippable} if r.random() < 0.5 else {"unskippable": not skippable}
        result.append(check)
    return result


def score(r: Random, kind: str) -> Doc:
    """The [score] section of one kind."""
    section: Doc = {"kind": kind}
    if kind == "tests":
        section |= some(r, trials=[1, 1, 2, 3], agent_timeout=["fail", "verify"])
    elif kind == "workflow":
        section |= some(r, gate=["0.7", "0.5", "0", "1", "70%"], window=[1, 2, 3, 100], max_retries_per_step=[0, 1, 5])
        weights = [("0.5", "0.25", "0.15", "0.1"), ("1", "0", "0", "0"), ("0.333333333", "0.333333333", "0.333333334", "0")]
        if r.random() < 0.4:
            section["weights"] = dict(zip(("success", "cost", "latency", "reliability"), r.choice(weights), strict=True))
        if r.random() < 0.4:
            values = (r.choice(["0.1", "0.3", "0"]), r.choice(["0.2", "0.05"]), r.choice(["0.5", "1", "0.123456789"]))
            section["penalties"] = dict(zip(("unplanned_retry", "timeout", "hard_failure"), values, strict=True))
    elif kind == "rubric":
        section["checks"] = checks(r)
    elif kind == "points":
        names = ["org/one", "org/two", "org/three"][: r.randint(1, 3)]
        section["repositories"] = {name: r.choice(["5", "5", "1", "0.5", "2.123456789"]) for name in names}
        section |= some(r, star_points=["0.25", "1", "0"], star_max=["1.25", "0.5", "2"])
        section |= some(r, 0.7, full_points=[100, 10, 3, 7, 20], window_epochs=[1, 2, 3, 10])
    return section


def consensus(r: Random) -> Doc:
    """The [consensus] section, with [consensus.outliers]; thresholds that scores can meet exactly are among the choices."""
    section = some(r, 0.75, min_validators=[1, 1, 2, 3, 3], min_stake=["30%", "0%", "0.5", "50%", "33.3%", "100%"])
    section |= some(r, combine=["stake-mean", "stake-median", "stake-median", "mean"], recheck=[True, True, False])
    section |= some(r, 0.25, min_validator_stake=["0", "1", "10", "20", "30"])
    section |= some(r, 0.2, assign=[1, 2, 3, 4, 6])
    section |= some(r, 0.3, max_age_epochs=[0, 1, 2, 5])
    method = r.choice([None, "modified-z", "modified-z", "z", "none"])
    if method is not None:
        outliers: Doc = {"method": method}
        if method == "modified-z":
            outliers |= some(r, threshold=["3.5", "6.745", "0.6745", "1.349", "2"], mad_floor=["0.01", "0", "0.1", "0.000000001"])
        if method == "z":
            outliers |= some(r, 0.8, threshold=["2", "2.0", "1", "0.5", "1.5"])
        section["outliers"] = outliers
    return section


def weights_reward(r: Random, excesses: list[str]) -> Doc:
    """The [reward] section for weights; `drop` only with the encoding `round` (SPEC 4)."""
    section: Doc = {"kind": "weights"} if r.random() < 0.5 else {}
    strategies = ["linear", "direct", "softmax", "winner-takes-all", "quadratic", "ranked"]
    section |= some(r, 0.85, strategy=strategies)
    if section.get("strategy") == "softmax":
        section |= some(r, 0.7, temperature=["1", "0.01", "0.1", "0.5", "10", "0.333333333"])
    if section.get("strategy") == "winner-takes-all":
        section |= some(r, 0.7, top=[1, 2, 3, 5])
    section |= some(r, 0.3, min_score=["0", "0.5", "0.8", "50%", "0.3"])
    section |= some(r, 0.75, cap=["50%", "15%", "100%", "0.25", "0.333333333", "0.4", "10%", "0.5"])
    section |= some(r, 0.7, excess=excesses)
    encodings = ["round", "exact-sum", "max-upscale"] if section.get("excess") != "drop" else ["round"]
    return section | some(r, 0.75, encoding=encodings)


def decay(r: Random) -> Doc:
    """The [decay] section without `burn_uid`."""
    section = some(r, 0.6, curve=["linear", "exponential", "none"], clock=["participant", "competition", "competition"])
    section |= some(r, 0.6, grace_epochs=[0, 0, 1, 2, 10], rate=["5%", "100%", "0.333333333", "10%", "1%"])
    section |= some(r, 0.4, max_burn=["80%", "100%", "50%", "0.999999999"])
    section |= some(r, 0.5, reset=["improvement", "update", "update"])
    return section | some(r, 0.5, improvement=["2%", "0%", "10%", "0.02"], improvement_mode=["relative", "absolute"])


def payout(r: Random) -> Doc:
    """The [payout] section."""
    section: Doc = {"deposit": r.choice(["101", "1000000000000000000", "7", "99999999999999999999999", "10000"])}
    section |= some(r, 0.6, threshold_bps=[7000, 5000, 10000, 1, 3333], fee_bps=[0, 250, 200, 10000])
    splits = [[10000], [5000, 3000, 2000], [3333, 3333, 3334], [6000, 4000], [9999, 1], [2000, 2000, 2000, 2000, 2000]]
    section |= some(r, 0.7, split=splits)
    two = [{"reach_bps": 10000, "release_bps": 10000}, {"reach_bps": 6000, "release_bps": 3333}]
    single = [{"reach_bps": 10000, "release_bps": 9999}]
    return section | some(r, 0.2, tiers=[two, single])


def scheme(r: Random, kind: str, *, for_subnet: bool, burn_uid: int | None) -> Doc:
    """A whole scheme; one for a subnet has weights and leaves nothing unallocated. `burn_uid` None: the default. SPEC 7."""
    result: Doc = {"scheme": {"name": f"random-{kind}", "version": "1.0.0"}, "score": score(r, kind)}
    if kind == "rubric" and r.random() < 0.5:
        result["consensus"] = {"min_validators": 1, "min_stake": "0%"}
    elif r.random() < 0.9:
        result["consensus"] = consensus(r)
    if not for_subnet and r.random() < (0.5 if kind == "rubric" else 0.15):
        return result | {"reward": {"kind": "payout"}, "payout": payout(r)}
    excesses = ["redistribute", "burn"] if for_subnet else ["redistribute", "drop", "burn"]
    if r.random() < 0.95:
        result["reward"] = weights_reward(r, excesses)
    if r.random() < 0.9:
        result["decay"] = decay(r)
    if burn_uid is not None:
        result["decay"] = result.get("decay", {}) | {"burn_uid": burn_uid}
    return result
