"""Which rules a settlement shows, in words. SPEC 2–5."""

from __future__ import annotations

from typing import Any

from oracle.defaults import filled

Doc = dict[str, Any]


def shows(case: Doc, document: Doc) -> set[str]:
    """What happens in a case and its settlement, each in a word or two."""
    rules = filled(case["scheme"])
    features = {f"outliers {rules['outliers']['method']}", rules["consensus"]["combine"]}
    if case.get("epoch") is None:
        features.add("no epoch")
    for name in ("assign", "max_age_epochs"):
        if rules["consensus"][name] is not None:
            features.add(name)
    if any("seq" in record for record in case["evidence"]):
        features.add("seq")
    for row in document["agreed"]:
        features |= {row["status"], row["reason"] or "agreed"}
        features |= {f"not counted: {validator['reason']}" for validator in row["not_counted"]}
        features |= {"excluded" for validator in row["validators"] if validator["excluded"]}
        if row["flagged_majority"]:
            features.add("flagged majority")
    if rules["reward"]["kind"] == "ranking":
        return features | {"ranking"}
    if document["burn"] is None:
        return features | {"payout", f"tier {document['tier_bps']}", f"{len(document['payouts'])} places"}
    return features | weights(rules, document)


def weights(rules: Doc, document: Doc) -> set[str]:
    """What happens from the agreed scores on."""
    if not document["weights"]:
        return {"nobody has a weight"}
    reward, decay, burn = rules["reward"], rules["decay"], document["burn"]
    features = {reward["strategy"], reward["encoding"], f"{decay['clock']} clock", f"decay {decay['curve']}"}
    features |= {f"burnt by {name}" for name in ("strategy", "cap", "decay", "unregistered") if burn[name] != "0"}
    if any(row["capped"] != row["strategy"] for row in document["weights"]):
        features.add(f"capped, {reward['excess']}")
    if any(row["score"] != "0" and row["strategy"] == "0" for row in document["weights"]):
        features.add("below the floor")
    if document["unallocated"] != "0":
        features.add("unallocated")
    return features
