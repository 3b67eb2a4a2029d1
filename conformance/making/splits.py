"""Cases of emission splits, each named after the rule that it shows. SPEC 4, Emission split."""

from __future__ import annotations

import copy
from typing import Any

from .case import File, case, refused
from .worlds import ALONE, Doc, given

PAID: Doc = {"reward": {"kind": "payout"}, "consensus": ALONE}


def split(*parts: tuple[str, Doc], **subnet: Any) -> Doc:
    """The input of an emission case: (share, case) for each competition."""
    cases = []
    for place, (share, world) in enumerate(parts, 1):
        world = copy.deepcopy(world)
        world["scheme"]["scheme"]["name"] = f"c{place}"
        cases.append({"share": share, "case": world})
    return {"subnet": {"emission": "1000", **subnet}, "competitions": cases}


X = given({"a": "0.5", "b": "0.5"})
Y = given({"b": "0.5", "c": "0.5"}, people={"b": {"uid": 2}, "c": {"uid": 3}})
X3 = given({"d": "0.5", "e": "0.5"}, people={"d": {"uid": 4}, "e": {"uid": 5}})
NOBODY = given({"z": "0"}, people={"z": {"uid": 9}})
NONE = given({"z": ["0.5"]}, people={"z": {"uid": 9}})
EMISSION = [
    case(
        "two competitions, one participant in both",
        split(("0.75", X), ("25%", Y)),
        {
            "competitions": [{"name": "c1", "share": "0.75", "emission": "750"}, {"share": "0.25", "emission": "250"}],
            "weights": [
                {"participant": "a", "share": "0.375"},
                {"participant": "b", "share": "0.5"},
                {"participant": "c", "share": "0.125"},
            ],
            "burn": {"share": "0"},
        },
    ),
    case(
        "what no competition claims burns",
        split(("50%", X)),
        {"weights": [{"share": "0.25"}, {"share": "0.25"}], "burn": {"share": "0.5", "u16": 32768}},
    ),
    case(
        "rao by largest remainder, ties to the earlier competition",
        split(("0.333333333", X), ("0.333333333", Y), ("0.333333334", X), emission="100"),
        {"competitions": [{"emission": "33"}, {"emission": "33"}, {"emission": "34"}]},
    ),
    case("ties go to the earlier, the burn last", split(("0.5", X), emission="7"), {"competitions": [{"emission": "4"}]}),
    case("no emission is known", split(("0.5", X), emission=None), {"competitions": [{"emission": None}]}),
    case(
        "order by first appearance",
        split(
            ("0.5", given({"z": "0.9", "a": "0.5"})),
            ("0.5", given({"a": "0.9", "z": "0.5"}, people={"a": {"uid": 2}, "z": {"uid": 1}})),
        ),
        {"weights": [{"participant": "z"}, {"participant": "a"}]},
    ),
    case(
        "a competition's burn is the subnet's",
        split(("0.5", given({"a": "0.5"}))),
        {"weights": [{"share": "0.25"}], "burn": {"share": "0.75"}},
    ),
    case(
        "unearned, to the others: what nobody earned goes to them in proportion",
        split(("0.5", NOBODY), ("0.3", X), ("0.1", Y), unearned="others"),
        {
            "competitions": [
                {"share": "0.5", "received": "0", "emission": "0"},
                {"share": "0.3", "received": "0.675", "emission": "675"},
                {"share": "0.1", "received": "0.225", "emission": "225"},
            ],
            "weights": [
                {"participant": "z", "share": "0"},
                {"participant": "a", "share": "0.3375"},
                {"participant": "b", "share": "0.45"},
                {"participant": "c", "share": "0.1125"},
            ],
            "burn": {"share": "0.1"},
        },
    ),
    case(
        "unearned, to the others: thirds stay exact until they are encoded",
        split(("0.1", NOBODY), ("0.3", X), ("0.3", Y), ("0.3", X3), unearned="others", encoding="exact-sum", emission="100"),
        {
            "competitions": [
                {"emission": "0"},
                {"received": "0.333333333", "emission": "34"},
                {"emission": "33"},
                {"emission": "33"},
            ]
        },
    ),
    case(
        "unearned burns by default",
        split(("0.6", NOBODY), ("0.4", X)),
        {"competitions": [{"emission": "600"}, {"emission": "400"}], "burn": {"share": "0.6"}},
    ),
    case(
        "unearned, to the others: with nobody to take it, it burns",
        split(("0.6", NOBODY), ("0.4", NOBODY), unearned="others"),
        {
            "competitions": [{"received": "0.6", "emission": "600"}, {"received": "0.4", "emission": "400"}],
            "burn": {"share": "1"},
        },
    ),
    case(
        "unearned, to the others: those who have no part of the emission take none",
        split(("0.6", NOBODY), ("0", X), unearned="others"),
        {"competitions": [{"received": "0.6"}, {"received": "0"}], "burn": {"share": "1"}},
    ),
    case(
        "unearned, to the others: a score below the floor takes no part",
        split(("0.5", given({"a": "0.4"}, reward={"min_score": "0.5"})), ("0.5", Y), unearned="others"),
        {"competitions": [{"received": "0"}, {"received": "1"}]},
    ),
    case(
        "unearned, to the others: who earned and has no uid burns as before",
        split(("0.5", given({"a": "0.5"}, people={"a": {"uid": None}})), ("0.5", Y), unearned="others"),
        {"competitions": [{"received": "0.5"}, {"received": "0.5"}], "burn": {"share": "0.5"}},
    ),
    case(
        "unearned, to the others: what a cap and decay burn stays burnt",
        split(("0.5", given({"a": "0.5"})), ("0.5", NONE), unearned="others"),
        {"competitions": [{"received": "1"}, {"received": "0"}], "weights": [{"share": "0.5"}], "burn": {"share": "0.5"}},
    ),
    case(
        "no uid in any competition: what it earned burns",
        split(*(("0.5", given({"a": "0.5"}, people={"a": {"uid": None}})) for _ in range(2))),
        {"weights": [{"participant": "a", "uid": None, "share": "0"}], "burn": {"share": "1"}},
    ),
    refused(
        "a uid in one competition and none in another",
        split(("0.5", given({"a": "0.5"}, people={"a": {"uid": None}})), ("0.5", given({"a": "0.5"}))),
        "uids are the subnet's, so the registry is one for all competitions",
    ),
    refused(
        "a uid in one competition and none in another, where it has no agreed score",
        split(("0.5", given({"a": "0.5"})), ("0.5", given({"a": [], "b": "0.5"}, people={"a": {"uid": None}}))),
        "everybody in the registry is asked, agreed score or not",
    ),
    case("exact-sum, once, at the end", split(("0.3", X), ("0.3", Y), encoding="exact-sum")),
    case("max-upscale", split(("0.3", X), ("0.3", Y), encoding="max-upscale"), {"burn": {"u16": 65535}}),
    case("the largest emission", split(("0.5", X), emission=str(2**63 - 1)), {"competitions": [{"emission": str(2**62)}]}),
    refused("an emission of 2^63", split(("0.5", X), emission=str(2**63)), "rao are below 2^63"),
    refused("shares above 1", split(("0.6", X), ("0.5", Y)), "the shares of a subnet sum to at most 1"),
    refused(
        "uids in conflict",
        split(("0.5", X), ("0.5", given({"b": "0.5"}, people={"b": {"uid": 9}}))),
        "a key has one uid on a subnet",
    ),
    refused(
        "one uid for two keys", split(("0.5", X), ("0.5", given({"c": "0.5"}, people={"c": {"uid": 1}}))), "a uid is one key's"
    ),
    refused("the subnet's burn UID is somebody's", split(("0.5", X), burn_uid=2), "the burn UID is nobody's"),
    refused(
        "a competition that pays out",
        split(("0.5", given({"a": ["0.7"]}, payout={"deposit": "1000"}, **PAID))),
        "payouts have no weights to join",
    ),
    refused(
        "a competition that drops",
        split(("0.5", given({"a": "0.5"}, reward={"excess": "drop"}))),
        "a part would belong to nobody",
    ),
    refused("epochs that differ", split(("0.5", X), ("0.5", Y | {"epoch": 6})), "a split is of one epoch"),
    refused("no competition", split(), "a subnet has a competition"),
]


FILES = [
    File(
        "emission-rules",
        "emission",
        "Competitions of one subnet joined, a case for each rule (SPEC 4, Emission split).",
        EMISSION,
    ),
]
