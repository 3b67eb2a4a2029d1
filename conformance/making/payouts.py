"""Cases of payouts. SPEC 5."""

from __future__ import annotations

from typing import Any

from .case import CaseDraft, File, case, refused

Doc = dict[str, Any]


def paid(name: str, scores: list[str], expect: Doc, **payout: Any) -> CaseDraft:
    return case(name, {"payout": {"deposit": "1000000000000000000"} | payout, "scores": scores}, expect)


def gave(tier: int, released: str, refund: str) -> Doc:
    return {"tier_bps": tier, "released": released, "refund": refund}


ETHER, HALF, QUARTER = "1000000000000000000", "500000000000000000", "250000000000000000"
SMALL: Doc = {"deposit": "101", "threshold_bps": 5000, "split": [5000, 3000, 2000], "fee_bps": 250}
PAYOUT = [
    paid("the threshold reached", ["0.7"], gave(10000, ETHER, "0")),
    paid("a perfect score", ["1"], gave(10000, ETHER, "0")),
    paid("a BPS below the threshold: half", ["0.6999"], gave(5000, HALF, HALF)),
    paid("a nano below the threshold: half", ["0.699999999"], gave(5000, HALF, HALF)),
    paid("80 % of the threshold exactly", ["0.56"], gave(5000, HALF, HALF)),
    paid("just below 80 %", ["0.5599"], gave(2500, QUARTER, "750000000000000000")),
    paid("50 % of the threshold exactly", ["0.35"], gave(2500, QUARTER, "750000000000000000")),
    paid("just below 50 %: all is refunded", ["0.3499"], gave(0, "0", ETHER)),
    paid("nobody has a score", [], gave(0, "0", ETHER) | {"places": []}),
    paid("a score of 0", ["0"], gave(0, "0", ETHER)),
    paid(
        "three places, fees floored, dust refunded",
        ["0.9", "0.8", "0.7"],
        {
            "places": [
                {"gross": "50", "fee": "1", "net": "49"},
                {"gross": "30", "fee": "0", "net": "30"},
                {"gross": "20", "fee": "0", "net": "20"},
            ],
            "fees": "1",
            "refund": "1",
        },
        **SMALL,
    ),
    paid(
        "a place below the lowest tier is not paid",
        ["0.9", "0.2"],
        {"places": [{"gross": "50"}, {"gross": "0", "net": "0"}], "refund": "51"},
        **SMALL,
    ),
    paid(
        "the same with an ether and a fee of 2 %",
        ["0.9", "0.2"],
        {"places": [{"gross": HALF, "fee": "10000000000000000", "net": "490000000000000000"}, {"gross": "0"}], "refund": HALF},
        **{**SMALL, "deposit": ETHER, "fee_bps": 200},
    ),
    paid(
        "a place at the lowest tier is paid",
        ["0.9", "0.25"],
        {"places": [{"gross": "50"}, {"gross": "30"}], "refund": "21"},
        **SMALL,
    ),
    paid(
        "the best decides the tier for all",
        ["0.4", "0.4"],
        {"tier_bps": 5000, "released": "50", "places": [{"gross": "25"}, {"gross": "15"}], "refund": "61"},
        **SMALL,
    ),
    paid("more scores than places", ["0.9", "0.8"], {"places": [{"place": 1, "gross": ETHER}]}),
    paid("fewer scores than places", ["0.9"], {"places": [{"place": 1, "gross": "50"}], "refund": "51"}, **SMALL),
    paid(
        "a fee of everything",
        ["0.9"],
        {"places": [{"gross": "7", "fee": "7", "net": "0"}], "fees": "7", "refund": "0"},
        deposit="7",
        fee_bps=10000,
    ),
    paid("a deposit of nothing", ["0.9"], {"released": "0", "refund": "0"}, deposit="0"),
    paid(
        "the largest deposit",
        ["0.56"],
        gave(5000, str((2**256 - 1) // 2), str((2**256 - 1) - (2**256 - 1) // 2)),
        deposit=str(2**256 - 1),
    ),
    paid("released is floored", ["0.35"], {"released": "1", "refund": "6"}, deposit="7"),
    paid("a threshold of 1 BPS", ["0.0001"], gave(10000, ETHER, "0"), threshold_bps=1),
    paid("a threshold of 3333 BPS, 80 % between two nanos", ["0.26664"], gave(5000, HALF, HALF), threshold_bps=3333),
    paid("a nano below that", ["0.266639999"], gave(2500, QUARTER, "750000000000000000"), threshold_bps=3333),
    paid(
        "tiers of the sponsor",
        ["0.6"],
        gave(3333, "33", "68"),
        deposit="101",
        threshold_bps=10000,
        tiers=[{"reach_bps": 10000, "release_bps": 10000}, {"reach_bps": 6000, "release_bps": 3333}],
    ),
    paid(
        "one tier only: all or nothing",
        ["0.999999999"],
        gave(0, "0", ETHER),
        threshold_bps=10000,
        tiers=[{"reach_bps": 10000, "release_bps": 10000}],
    ),
    refused(
        "a split that leaves something",
        {"payout": {"deposit": "1", "split": [5000, 4999]}, "scores": []},
        "the split sums to 10 000",
    ),
    refused(
        "tiers that rise",
        {
            "payout": {
                "deposit": "1",
                "tiers": [{"reach_bps": 5000, "release_bps": 5000}, {"reach_bps": 6000, "release_bps": 4000}],
            },
            "scores": [],
        },
        "tiers fall",
    ),
    refused(
        "a lower tier that releases more",
        {
            "payout": {
                "deposit": "1",
                "tiers": [{"reach_bps": 6000, "release_bps": 5000}, {"reach_bps": 5000, "release_bps": 6000}],
            },
            "scores": [],
        },
        "tiers fall",
    ),
    refused(
        "a threshold of 0", {"payout": {"deposit": "1", "threshold_bps": 0}, "scores": []}, "a threshold is from 1 to 10 000"
    ),
    refused("a deposit as a number", {"payout": {"deposit": 1}, "scores": []}, "wei is a string of digits"),
    refused("no deposit", {"payout": {}, "scores": []}, "a payout has a deposit"),
]


FILES = [File("payout", "payout", "A deposit into places, fees and refund (SPEC 5).", PAYOUT)]
