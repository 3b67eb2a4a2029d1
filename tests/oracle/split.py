"""SPEC 4 Emission split: several competitions of one subnet into one row of weights."""

from fractions import Fraction
from typing import Any

from .defaults import filled
from .numbers import fraction, largest_remainder, show
from .pipeline import settle_exactly
from .reward import encode, takes_part

Doc = dict[str, Any]


def emission(case: Doc) -> Doc:
    """{"subnet", "competitions": [{"name", "share", "case"}]} -> emission per competition, weights, burn. SPEC 4."""
    subnet, competitions = case["subnet"], case["competitions"]
    claims = [fraction(competition["share"]) for competition in competitions]
    settlements = [settle_exactly(competition["case"]) for competition in competitions]
    received = claims
    if subnet.get("unearned") == "others":
        earned = [
            somebody_took_part(competition["case"], settlement.document)
            for competition, settlement in zip(competitions, settlements, strict=True)
        ]
        received = moved(claims, earned)
    parts = largest_remainder(int(subnet["emission"]), [*received, 1 - sum(received, Fraction(0))])
    shares: dict[str, Fraction] = {}
    uids: dict[str, int | None] = {}
    epochs = []
    for settled, claim in zip(settlements, received, strict=True):
        epochs.append(settled.document["epoch"])
        for participant, uid, share in settled.shares:
            shares[participant] = shares.get(participant, Fraction(0)) + claim * share
            assert uids.setdefault(participant, uid) == uid
    burn = 1 - sum(shares.values(), Fraction(0))
    encoding = subnet.get("encoding", "round")
    u16, burn_u16 = encode(list(shares.values()), burn, encoding)
    chain, burn_chain = encode(list(shares.values()), burn, "max-upscale")
    rows = []
    for i, (participant, share) in enumerate(shares.items()):
        row = {"participant": participant, "uid": uids[participant], "share": show(share)}
        rows.append(row | {"u16": u16[i], "chain_u16": chain[i]})
    return {
        "epoch": max(epochs),
        "competitions": [
            {"name": competition["name"], "share": show(claim), "emission": str(part)}
            | ({"received": show(got)} if subnet.get("unearned") == "others" else {})
            for competition, claim, got, part in zip(competitions, claims, received, parts, strict=False)
        ],
        "weights": rows,
        "burn": {"uid": subnet.get("burn_uid", 0), "share": show(burn), "u16": burn_u16, "chain_u16": burn_chain},
    }


def somebody_took_part(case: Doc, settlement: Doc) -> bool:
    """Whether anybody's agreed score is above 0 and not below the floor. SPEC 4."""
    rules = filled(case["scheme"])["reward"]
    return any(takes_part(fraction(row["score"]), rules) for row in settlement["weights"])


def moved(claims: list[Fraction], earned: list[bool]) -> list[Fraction]:
    """The claims of competitions in which nobody took part, given to the others in proportion. SPEC 4."""
    takers = sum((claim for claim, yes in zip(claims, earned, strict=True) if yes), Fraction(0))
    if takers == 0:
        return claims
    free = sum((claim for claim, yes in zip(claims, earned, strict=True) if not yes), Fraction(0))
    return [claim + free * claim / takers if yes else Fraction(0) for claim, yes in zip(claims, earned, strict=True)]
