"""What the oracle of the tests says of an input: an answer that owes nothing to the package. None where it has none."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import oracle
from oracle import clocks, payout, reward, trees
from oracle.assign import assigned
from oracle.audit import audit
from oracle.consensus import agree
from oracle.defaults import POINTS, WORKFLOW, filled
from oracle.duel import duel
from oracle.margin import margin
from oracle.numbers import fraction, largest_remainder, nanos, show
from oracle.pipeline import task_set_digest
from oracle.score import panel as panel_of
from oracle.score import points as points_of
from oracle.score import rubric as rubric_of
from oracle.score import workflow as workflow_of
from oracle.score.verdict import Verdict
from oracle.task_health import task_health

Doc = dict[str, Any]
NONE = Fraction(0)


def ratio(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


def ratios(values: list[Fraction]) -> list[str]:
    return [ratio(value) for value in values]


def rules(**sections: Any) -> Doc:
    """The defaults of SPEC 7 under the given sections."""
    return filled({"scheme": {"name": "s", "version": "1"}, "score": {"kind": "given"}, **copy.deepcopy(sections)})


def decimal(given: Doc) -> Doc:
    value = fraction(given["value"]) * (1 if given["as"] in ("stake", "wei") else 10**9)
    return {"count": str(int(value))}


def apportion(given: Doc) -> Doc:
    parts = [Fraction(part) for part in given["parts"]]
    return {"amounts": [str(each) for each in largest_remainder(int(given["amount"]), parts)]}


def task_set(given: Doc) -> Doc:
    words = [[word for word in line.replace("\t", " ").split(" ") if word] for line in given["lines"]]
    lines = [" ".join(line) for line in words if line and not line[0].startswith("#")]
    return {"ids": [line.split(" ")[0] for line in lines], "digest": task_set_digest(lines)}


def tests(given: Doc) -> Doc:
    return {"score": show(Fraction(given["passed"], given["trials"]))}


def workflow(given: Doc) -> Doc:
    section = WORKFLOW | given["score"]
    for name in ("weights", "penalties"):
        section[name] = WORKFLOW[name] | section[name]
    zeros = dict.fromkeys(["retries", "declared_retries", "timeouts", "hard_failures"], 0)
    return {"score": show(workflow_of.task_score(zeros | given["task"], section))}


def rubric(given: Doc) -> Doc | None:
    checks = [check if "unskippable" in check else {"skippable": True} | check for check in given["score"]["checks"]]
    if any(value is not None and not isinstance(value, dict) for value in (given["baseline"], given["checks"])):
        return None
    return rubric_of.work(given, checks) if rubric_of.well_formed(given, checks) else {"malformed": True}


def panel(given: Doc) -> Doc | None:
    checks = [check if "unskippable" in check else {"skippable": True} | check for check in given["score"]["checks"]]
    return panel_of.decided(given["panel"], given["score"] | {"checks": checks})


def points(given: Doc) -> Doc:
    section = POINTS | given["score"]
    table = list(section["repositories"])
    records = []
    for place, repository in enumerate(table):
        record = {"repository": repository, "epoch": 0, "valid": given["valid"].get(repository, 0)}
        of_table = given["invalid"] if isinstance(given["invalid"], dict) else {table[0]: given["invalid"]}
        records.append(record | {"invalid": of_table.get(repository, 0), "starred": place < given["starred"]})
    verdict = points_of.verdict(records, section, 0)
    assert verdict.score is not None
    return {"valid": verdict.work["valid"], "points": verdict.work["points"], "score": show(verdict.score)}


def assign(given: Doc) -> Doc:
    participant = {"key": "p", "submission": given["submission"], "accepted_epoch": 0}
    validators = [{"key": key, "stake": "1"} for key in given["validators"]]
    world = {"validators": validators, "randomness": [{"epoch": 0, "hex": given["randomness"]}], "evidence": []}
    drawn = assigned(participant, world, rules(consensus={"assign": given["assign"]}), 0)
    assert drawn is not None
    return {"validators": sorted(drawn, key=str.encode)}


def consensus(given: Doc) -> Doc | None:
    if given.get("bps") or any(vote.get("state", "whole") not in ("whole", "silent") for vote in given["votes"]):
        return None
    if "trials" in given:
        return shown(noisy(given), given)
    head = {"kind": "given", "epoch": 0, "participant": "p", "submission": "s", "observed_at": "2026-01-01T00:00:00Z"}
    asked = [vote for vote in given["votes"] if "score" in vote]
    scheme = {"scheme": {"name": "s", "version": "1"}, "score": {"kind": "given"}, "consensus": given["consensus"]}
    settled = oracle.settle(
        {
            "scheme": scheme,
            "epoch": 0,
            "participants": [{"key": "p", "submission": "s"}],
            "validators": [{"key": vote["validator"], "stake": vote["stake"]} for vote in given["votes"]],
            "evidence": [head | {"validator": vote["validator"], "score": vote["score"]} for vote in asked],
        }
    )
    return shown(settled["agreed"][0], given)


def noisy(given: Doc) -> Doc:
    """The row of the participant, whose scores are shares of so many trials."""
    rules = filled({"scheme": {"name": "s"}, "score": {"kind": "tests"}, "consensus": given["consensus"]})
    verdicts = {vote["validator"]: Verdict(nanos(fraction(vote["score"]))) for vote in given["votes"] if "score" in vote}
    validators = [{"key": vote["validator"], "stake": vote["stake"]} for vote in given["votes"]]
    row, _ = agree(verdicts, None, validators, rules, given["trials"])
    return row


def shown(row: Doc, given: Doc) -> Doc:
    """What a case of consensus shows of a row."""
    names = ("validator", "flagged", "excluded", "modified_z", "z_squared")
    order = {vote["validator"]: place for place, vote in enumerate(given["votes"])}
    votes = sorted(
        ({name: vote[name] for name in names} for vote in row["validators"]), key=lambda vote: order[vote["validator"]]
    )
    same = {
        name: row[name] for name in ("status", "reason", "score", "bps", "stake", "median", "mad", "mean", "flagged_majority")
    }
    return same | {"validators": votes}


def sharing(scores: list[str], section: Doc) -> tuple[list[Fraction], Fraction]:
    """Shares by place, 0 for those that take no part, and what burns."""
    values = [fraction(score) for score in scores]
    inside = [reward.takes_part(value, section) for value in values]
    shares, burn = reward.strategy([value for value, takes in zip(values, inside, strict=True) if takes], section)
    following = iter(shares)
    return [next(following) if takes else Fraction(0) for takes in inside], burn


def strategy(given: Doc) -> Doc:
    shares, burn = sharing(given["scores"], rules(reward=given["reward"])["reward"])
    return {"shares": ratios(shares), "burn": ratio(burn)}


def cap(given: Doc) -> Doc:
    section = rules(reward=given["reward"])["reward"]
    capped = reward.cap([Fraction(share) for share in given["shares"]], fraction(section["cap"]), section["excess"])
    return {"shares": ratios(capped[0]), "burn": ratio(capped[1]), "unallocated": ratio(capped[2])}


def decay(given: Doc) -> Doc | None:
    section = rules(decay=given["decay"])["decay"]
    stale = clocks.stale(given["epoch"], given["last"], section)
    if stale > 100_000:  # the oracle multiplies it out
        return None
    burned = clocks.burned(stale, section)
    return {"stale": stale, "burned": show(burned), "kept": show(1 - burned)}


def clock(given: Doc) -> Doc:
    section = rules(decay=given["decay"])["decay"]
    agreed = [clocks.Agreed(row["participant"], row["submission"], fraction(row["score"])) for row in given["agreed"]]
    previous = given.get("previous")
    if previous is not None:
        previous = {"task_set": previous["task_set"], "clock": previous}
    people = [{"key": row["participant"], "last_reset_epoch": row.get("last_reset_epoch")} for row in given["agreed"]]
    world = {"participants": people, "previous": previous, "history": given.get("history", [])}
    task_set = given.get("task_set")
    states = clocks.participant_clocks(agreed, world, section, given["epoch"], task_set)
    return clocks.clock_document(clocks.competition_clock(agreed, world, section, given["epoch"], task_set), states)


def encoding(given: Doc) -> Doc:
    shares, burn = [Fraction(share) for share in given["shares"]], Fraction(given["burn"])
    u16, burn_u16 = reward.encode(shares, burn, given["encoding"])
    chain, burn_chain = reward.encode(shares, burn, "max-upscale")
    return {"u16": u16, "burn_u16": burn_u16, "chain_u16": chain, "burn_chain_u16": burn_chain}


def weights(given: Doc) -> Doc:
    section = rules(reward=given["reward"])["reward"]
    people = given["participants"]
    by_strategy, burn_strategy = sharing([person["score"] for person in people], section)
    by_cap, burn_cap, unallocated = reward.cap(by_strategy, fraction(section["cap"]), section["excess"])
    decayed = [share * fraction(person.get("kept", "1")) for share, person in zip(by_cap, people, strict=True)]
    final = [share if person.get("registered", True) else Fraction(0) for share, person in zip(decayed, people, strict=True)]
    burnt = {
        "strategy": burn_strategy,
        "cap": burn_cap,
        "decay": sum(by_cap, NONE) - sum(decayed, NONE),
        "unregistered": sum(decayed, NONE) - sum(final, NONE),
    }
    burn = sum(burnt.values(), NONE)
    u16, burn_u16 = reward.encode(final, burn, section["encoding"])
    chain, burn_chain = reward.encode(final, burn, "max-upscale")
    rows = [
        {"strategy": show(a), "capped": show(b), "share": show(c), "u16": d, "chain_u16": e}
        for a, b, c, d, e in zip(by_strategy, by_cap, final, u16, chain, strict=True)
    ]
    parts = {name: show(value) for name, value in burnt.items()}
    whole = {"share": show(burn), "u16": burn_u16, "chain_u16": burn_chain}
    return {"weights": rows, "burn": whole | parts, "unallocated": show(unallocated)}


def pays(given: Doc) -> Doc:
    places = [payout.RankedPlace("", None, 10_000 * fraction(score)) for score in given["scores"]]
    paid = payout.pay(places, rules(payout=given["payout"])["payout"])
    names = ("place", "gross", "fee", "net")
    paid["places"] = [{name: row[name] for name in names} for row in paid.pop("payouts")]
    return paid


ABSENT: Doc = {
    "workflow": dict.fromkeys(["retries", "declared_retries", "timeouts", "hard_failures"], 0),
    "points": {**dict.fromkeys(["valid", "invalid"], 0), "starred": False},
}
"""What the oracle wants written out in a record."""


def settle(given: Doc) -> Doc:
    world = copy.deepcopy(given)
    world["evidence"] = [ABSENT.get(record["kind"], {}) | record for record in world["evidence"]]
    lines = world.get("tasks") or []
    world["tasks"] = [line.split()[0] for line in lines]
    settlement = oracle.settle(world)
    if lines != world["tasks"]:  # a manifest: the oracle reads ids alone
        settlement["task_set"] = task_set_digest(lines)
    return settlement


def emission(given: Doc) -> Doc:
    subnet = copy.deepcopy(given["subnet"])
    known = subnet.get("emission") is not None
    competitions = [
        {"name": competition["case"]["scheme"]["scheme"]["name"], **copy.deepcopy(competition)}
        for competition in given["competitions"]
    ]
    split = oracle.emission({"subnet": subnet | {"emission": subnet.get("emission") or "0"}, "competitions": competitions})
    if not known:
        for row in split["competitions"]:
            row["emission"] = None
    return split


def digest_of(document: Any) -> str:
    """`sha256:…` over RFC 8785, taken without the package."""
    import rfc8785

    return "sha256:" + hashlib.sha256(rfc8785.dumps(document)).hexdigest()


def merkle_tree(given: Doc) -> Doc:
    leaves = [trees.leaf(bytes.fromhex(entry)) for entry in given["entries"]]
    tree: Doc = {"root": trees.tree_of(leaves).hex()}
    if "index" in given:
        tree["inclusion"] = [digest.hex() for digest in trees.inclusion(given["index"], leaves)]
    if "old" in given:
        tree["consistency"] = [digest.hex() for digest in trees.consistency(given["old"], leaves)]
    return tree


ANSWERS: Mapping[str, Callable[[Doc], Doc | None]] = {
    "decimal": decimal,
    "apportion": apportion,
    "task-set": task_set,
    "tests": tests,
    "workflow": workflow,
    "rubric": rubric,
    "panel": panel,
    "points": points,
    "assign": assign,
    "consensus": consensus,
    "strategy": strategy,
    "cap": cap,
    "decay": decay,
    "clock": clock,
    "encoding": encoding,
    "weights": weights,
    "payout": pays,
    "settle": settle,
    "emission": emission,
    "duel": duel,
    "margin": margin,
    "audit": audit,
    "task-health": task_health,
    "merkle-tree": merkle_tree,
}
"""Kind → the oracle's answer. `instant`, `canonical`, `scheme`, `record` and the ledger's formats are held to what is written by
hand; the proofs, notes, envelopes and batches in those inputs are the oracle's own."""
