"""Which rules a settlement shows, in words. SPEC 2–5."""

from __future__ import annotations

from typing import Any

from oracle.defaults import filled

Doc = dict[str, Any]


def shows(case: Doc, document: Doc) -> set[str]:
    """What happens in a case and its settlement, each in a word or two."""
    rules = filled(case["scheme"])
    found = {f"outliers {rules['outliers']['method']}", rules["consensus"]["combine"]}
    if case.get("epoch") is None:
        found.add("no epoch")
    for name in ("assign", "max_age_epochs"):
        if rules["consensus"][name] is not None:
            found.add(name)
    if any("seq" in record for record in case["evidence"]):
        found.add("seq")
    for row in document["agreed"]:
        found |= {row["status"], row["reason"] or "agreed"}
        found |= {f"not counted: {one['reason']}" for one in row["not_counted"]}
        found |= {"excluded" for one in row["validators"] if one["excluded"]}
        if row["flagged_majority"]:
            found.add("flagged majority")
    if rules["reward"]["kind"] == "ranking":
        return found | {"ranking"}
    if document["burn"] is None:
        return found | {"payout", f"tier {document['tier_bps']}", f"{len(document['payouts'])} places"}
    return found | weights(rules, document)


def weights(rules: Doc, document: Doc) -> set[str]:
    """What happens from the agreed scores on."""
    if not document["weights"]:
        return {"nobody has a weight"}
    reward, decay, burn = rules["reward"], rules["decay"], document["burn"]
    found = {reward["strategy"], reward["encoding"], f"{decay['clock']} clock", f"decay {decay['curve']}"}
    found |= {f"burnt by {name}" for name in ("strategy", "cap", "decay", "unregistered") if burn[name] != "0"}
    if any(row["capped"] != row["strategy"] for row in document["weights"]):
        found.add(f"capped, {reward['excess']}")
    if any(row["score"] != "0" and row["strategy"] == "0" for row in document["weights"]):
        found.add("below the floor")
    if document["unallocated"] != "0":
        found.add("unallocated")
    return found
