"""The shared vectors are among the cases, with the same numbers: none was lost or changed on the way."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from assay.exact import nanos

Doc = dict[str, Any]

FOLDER = Path(__file__).parents[2] / "conformance"
ZEROS: Doc = dict.fromkeys(["retries", "declared_retries", "timeouts", "hard_failures"], 0)


def vectors(shared: Path, name: str) -> Any:
    return json.loads((shared / "vectors" / f"{name}.json").read_text(encoding="utf-8"))


def line(*parts: Any) -> str:
    """A question and its answer as one text, so that they can be looked for."""
    return json.dumps(parts, sort_keys=True)


def known(name: str, asked: Callable[[Doc, Doc], str | None]) -> set[str | None]:
    """What `asked` makes of every case of a file that has an output."""
    content = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return {asked(case["input"], case["output"]) for case in content["cases"] if "output" in case}


def ratio(share: str) -> str:
    value = Fraction(share)
    return f"{value.numerator}/{value.denominator}"


def test_tests(shared: Path) -> None:
    lines = known("score-tests", lambda given, output: line(given["passed"], given["trials"], output["score"]))
    wanted = {line(vector["passed"], vector["total"], vector["score"]) for vector in vectors(shared, "tests")["cases"]}
    assert wanted
    assert not wanted - lines


def test_workflow(shared: Path) -> None:
    lines = known("score-workflow", lambda given, output: line(given["score"], ZEROS | given["task"], output["score"]))
    for vector in vectors(shared, "workflow")["cases"]:
        task = {name: value for name, value in vector.items() if name not in ("score", "note")}
        assert line({"kind": "workflow"}, task, vector["score"]) in lines, vector


def test_rubric(shared: Path) -> None:
    content = vectors(shared, "rubric")
    weights = [[check["id"], check["weight"], check["skippable"]] for check in content["rubric"]]

    def asked(given: Doc, output: Doc) -> str | None:
        if not isinstance(given["checks"], dict) or not isinstance(given["baseline"], dict) or "bps" not in output:
            return None
        checks = [[check["id"], check["weight"], check.get("skippable", True)] for check in given["score"]["checks"]]
        failed = [name for name, _, _ in checks if given["checks"][name] is not True]
        unmet = [name for name, met in given["baseline"].items() if not met]
        return line(checks, failed, unmet, given["verdict"], output["bps"])

    lines = known("score-rubric", asked)
    for vector in content["cases"]:
        for verdict, final in vector["final"].items():
            assert line(weights, vector["failed"], vector.get("baseline_failed", []), verdict, final) in lines, (vector, verdict)


def test_consensus(shared: Path) -> None:
    def asked(given: Doc, output: Doc) -> str | None:
        votes = [[vote["validator"], vote["stake"], nanos(vote.get("score", "0"))] for vote in given["votes"]]
        flags = [[row["validator"] for row in output["validators"] if row[name]] for name in ("flagged", "excluded")]
        return line(given["consensus"], votes, output["status"], output["score"], *flags)

    lines = known("consensus", asked)
    for vector in vectors(shared, "consensus")["cases"]:
        rules = {name: vector[name] for name in ("min_validators",) if name in vector}
        votes = [[validator, stake, nanos(score)] for validator, stake, score in vector["scores"]]
        flags = [vector.get(name, []) for name in ("flagged", "excluded")]
        assert line(rules, votes, vector.get("status", "agreed"), vector["agreed"], *flags) in lines, vector


def test_cap(shared: Path) -> None:
    lines = known("cap", lambda given, output: line(given["reward"], given["shares"], output["shares"], output["burn"]))
    for vector in vectors(shared, "cap")["cases"]:
        shares, out = ([ratio(share) for share in vector[name]] for name in ("shares", "out"))
        assert line({"cap": vector["cap"], "excess": vector["excess"]}, shares, out, ratio(vector["burn"])) in lines, vector


def test_decay(shared: Path) -> None:
    lines = known("decay", lambda given, output: line(given["decay"], given["last"], given["epoch"], output["kept"]))
    for vector in vectors(shared, "decay")["cases"]:
        assert vector["curve"] == "linear"  # the default
        assert line({}, vector["stale_since"], vector["epoch"], vector["kept"]) in lines, vector


def test_weights(shared: Path) -> None:
    plain = {"strategy": "linear", "temperature": "1", "top": 1, "cap": "100%"}

    def asked(given: Doc, output: Doc) -> str | None:
        if any(len(row) > 1 for row in given["participants"]):
            return None
        scores = [nanos(row["score"]) for row in given["participants"]]
        return line(plain | given["reward"], scores, [row["u16"] for row in output["weights"]], output["burn"]["u16"])

    lines = known("weights", asked)
    for vector in vectors(shared, "weights")["cases"]:
        rules = plain | {name: vector[name] for name in plain if name in vector}
        assert line(rules, [nanos(score) for score in vector["scores"]], vector["u16"], vector.get("burn", 0)) in lines, vector


def test_payout(shared: Path) -> None:
    content = vectors(shared, "payout")
    names = ("gross", "fee", "net")

    def asked(given: Doc, output: Doc) -> str | None:
        bps = [nanos(score) / 100_000 for score in given["scores"]]
        paid = [[row[name] for row in output["places"] if row["gross"] != "0"] for name in names]
        return line(
            {"threshold_bps": 7000} | given["payout"], bps, *([*paid, output["refund"]] if len(bps) > 1 else [output["released"]])
        )

    lines = known("payout", asked)
    for vector in content["cases"]:
        rules = {name: content[name] for name in ("deposit", "threshold_bps")}
        assert line(rules, [float(vector["score"])], vector["released"]) in lines, vector
    for vector in content["places"]:
        rules = {name: vector[name] for name in ("deposit", "threshold_bps", "split", "fee_bps")}
        assert (
            line(rules, [float(score) for score in vector["scores"]], *(vector[name] for name in names), vector["refund"])
            in lines
        ), vector
