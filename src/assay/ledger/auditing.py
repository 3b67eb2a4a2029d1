"""Audit a settled epoch: its counted trials, what to judge again next, and the signed statement about what was seen.

    bundle ─verify─▶ settlement, records ─▶ claims, trials, plan ─randomness─▶ draws ─judged again─▶ statement ─▶ audit log

The statement, `assay:audit/v1`, follows from the bundle, the randomness and what was seen of each trial. So verifying it means to
make it again and to compare each field. docs/auditing.md has the rules; `assay.rules.audit` the arithmetic.

Audits stand in a log of their own (its name ends with /audits), so that anybody can be the auditor, and so that the place of a
receipt in its log stays its number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from assay.errors import BadInput, CannotSettle, Refused
from assay.exact import NANO, canonical, nanos, text
from assay.ledger import beacon, check
from assay.ledger.beacon import BeaconRound
from assay.ledger.check import STATEMENT, CheckError, Receipt
from assay.ledger.cosigning import check_policy, read_policy
from assay.ledger.verify import verify
from assay.ledger.verify.claims import read_receipt
from assay.ledger.verify.recompute import records_behind
from assay.ledger.verify.report import Verified, gather_material, stage
from assay.records import Evidence, Tests
from assay.rules.audit import (
    RUNS,
    AuditPath,
    AuditPlan,
    ClaimedTrial,
    claims_of,
    clean_draws,
    draws,
    finding,
    follow,
    needless,
    overstated,
    plan,
    seed_of,
    share_of,
    undecided,
)
from assay.scheme.model import AuditRules, TestsScore
from assay.settle import Settlement

__all__ = [
    "GIVEN",
    "PREDICATE",
    "AuditRandomness",
    "AuditedEpoch",
    "audited_epoch",
    "check_statement",
    "counted_trials",
    "epoch_of",
    "given",
    "next_trials",
    "plan_of",
    "predicate_of",
    "stated_predicate",
    "statement_of",
    "trials_of",
    "witnessed",
]

Json = dict[str, Any]
PREDICATE = "assay:audit/v1"
STAGE = "audit"
GIVEN = "given"
"""The source of randomness that the auditor chose to give."""


@dataclass(frozen=True)
class AuditRandomness:
    """The 32 bytes that decide the draw, and where they come from, as the statement says it."""

    value: bytes
    source: Json


def given(text_: str) -> AuditRandomness:
    """Randomness that the auditor gives, 64 hex digits; nothing shows that it was not chosen. Raises BadInput."""
    try:
        value = bytes.fromhex(text_)
    except ValueError:
        value = b""
    if len(value) != 32:
        raise BadInput(
            "is not 64 hex digits", field="randomness", hint="give the hash of a block, or nothing: then drand is asked"
        )
    return AuditRandomness(value, {"source": GIVEN, "value": value.hex()})


def of_beacon(round_: BeaconRound) -> AuditRandomness:
    """The randomness of a round of drand."""
    return AuditRandomness(round_.randomness, round_.document())


@dataclass(frozen=True)
class AuditedEpoch:
    """A verified epoch with what its audit needs. records: by their digests; manifest: the lines of the task set."""

    predicate: Json
    receipt: bytes
    origin: str
    size: int
    witnessed: int | None
    """The time at which a quorum of the policy had cosigned the checkpoint, in seconds since 1970; None: without a policy."""
    rules: AuditRules
    trials: tuple[ClaimedTrial, ...]
    plan: AuditPlan
    records: Mapping[str, Tests]
    manifest: tuple[str, ...]

    @cached_property
    def clean(self) -> int | None:
        """The number of draws that confirm, if every trial holds; None: all are judged again."""
        return clean_draws(self.plan)

    @property
    def round(self) -> int:
        """The round of drand that decides the draw. Raises BadInput without witnesses: then nothing fixes it."""
        if self.witnessed is None:
            hint = (
                "give the policy of the log's witnesses with --policy; or give 32 bytes with --randomness, but then "
                "nobody can check that you did not choose them"
            )
            raise BadInput("no witness shows when the receipt was public, so no round of drand is fixed for the draw", hint=hint)
        return beacon.round_after(self.witnessed + self.rules.delay)


def audited_epoch(bundle: Path, key: str | None = None, policy: Path | None = None) -> AuditedEpoch:
    """Verify a bundle, and read what its audit needs. Raises Refused, BadInput for a kind without trials, CannotSettle."""
    report = verify(bundle, key=key, policy=policy)
    if report.settlement is None:
        raise BadInput("is no bundle, so there are no trials in it", file=bundle, hint="give what `assay export epoch` wrote")
    material = gather_material(bundle, None)
    receipt, log = read_receipt(material.data, None, material.path)
    return epoch_of(bundle, report, receipt, None if policy is None else witnessed(policy, receipt.proof.checkpoint, log))


def epoch_of(bundle: Path, report: Verified, receipt: Receipt, witnessed: int | None) -> AuditedEpoch:
    """The epoch of a verified bundle, and what its audit needs; raises as `audited_epoch` does. witnessed: see `AuditedEpoch`."""
    settlement = report.settlement
    assert settlement is not None
    scheme = settlement.inputs.scheme
    if not isinstance(scheme.score, TestsScore):
        what = f"is of the kind {scheme.score.kind!r}; only trials, of kind tests, are audited"
        raise BadInput(what, file=bundle, hint='give an epoch of a competition whose scheme has [score] kind = "tests"')
    checkpoint = check.Checkpoint.parse(receipt.proof.checkpoint.decode().rpartition("\n\n")[0] + "\n")
    counted = tuple(counted_trials(settlement, records_behind(bundle, report)))
    audit = plan_of(settlement, [trial for trial, _ in counted])
    if not audit.claims:
        raise CannotSettle("nobody is paid in this epoch, so there is nothing to confirm", file=bundle)
    records = {record.digest: record for _, record in counted}
    return AuditedEpoch(
        receipt.predicate,
        receipt.digest,
        checkpoint.origin,
        checkpoint.size,
        witnessed,
        scheme.audit or AuditRules(),
        tuple(trial for trial, _ in counted),
        audit,
        records,
        tuple(settlement.inputs.manifest),
    )


def plan_of(settlement: Settlement, trials: Iterable[ClaimedTrial]) -> AuditPlan:
    """The claims of a settlement of kind tests, and the trials that can overstate them."""
    scheme, document = settlement.inputs.scheme, settlement.document
    rules = scheme.audit or AuditRules()
    scores = {row["participant"]: nanos(row["score"]) for row in document["agreed"] if row["score"] is not None}
    return plan(claims_of(scheme, document["ranking"], scores, rules.places), tuple(trials), rules.risk)


def trials_of(settlement: Settlement, records: Iterable[tuple[str, Evidence]]) -> list[ClaimedTrial]:
    """The trials that count in a settlement of kind tests. records: (participant, record) of those that results rest on."""
    return [trial for trial, _ in counted_trials(settlement, records)]


def counted_trials(settlement: Settlement, records: Iterable[tuple[str, Evidence]]) -> Iterator[tuple[ClaimedTrial, Tests]]:
    """Each trial that counts, with its record: of validators that count for the participant, of the scheme's tasks and trials.

    records: as for `trials_of`.
    """
    scheme, tasks = settlement.inputs.scheme, frozenset(settlement.inputs.tasks)
    assert isinstance(scheme.score, TestsScore)
    effects = {}
    for row in settlement.document["agreed"]:
        votes = [vote for vote in row["validators"] if not vote["excluded"] and row["status"] == "agreed"]
        total = sum(int(vote["stake"]) for vote in votes)
        for vote in votes:
            share = share_of(scheme, int(vote["stake"]), total, len(votes))
            effects[row["participant"], vote["validator"]] = share * NANO / (len(tasks) * scheme.score.trials)
    for name, record in records:
        if (effect := effects.get((name, record.validator))) is None or not isinstance(record, Tests):
            continue
        if record.task in tasks and record.trial <= scheme.score.trials and record.outcome != "error":
            passed = record.outcome == "pass"
            about = (name, record.validator, record.task, record.trial)
            yield ClaimedTrial(*about, passed, effect, passed or record.work is not None, record.digest), record


def witnessed(policy: Path, note: bytes, key: check.LogKey) -> int | None:
    """The time of the newest cosignature of a checkpoint by a policy's witnesses; Refused if they are no quorum."""
    with stage("witnesses"):
        return check_policy(read_policy(policy), note, key).newest


def _wrong(epoch: AuditedEpoch, seen: Mapping[str, Sequence[str]]) -> dict[int, bool]:
    """Index of a trial that was judged again → whether it counts against the claims."""
    return {
        at: finding(trial.passed, seen[trial.record]) in ("false", "missing")
        for at, trial in enumerate(epoch.plan.trials)
        if trial.record in seen
    }


def next_trials(epoch: AuditedEpoch, randomness: bytes, seen: Mapping[str, Sequence[str]]) -> list[ClaimedTrial]:
    """The trials to judge again next, none if the audit is over. seen: record digest → outcomes (none: its work is missing)."""
    trials, seed = epoch.plan.trials, seed_of(randomness, epoch.receipt)
    rest = [trial for trial in trials if trial.record not in seen]
    if epoch.clean is None:
        return rest
    path = follow(epoch.plan, seed, _wrong(epoch, seen))
    if path.confirmed:
        return []
    if len(path.drawn) == len(trials):
        return rest
    ahead = dict.fromkeys(islice(draws(epoch.plan, seed), epoch.clean))
    wanted = [trials[at] for at in ahead if trials[at].record not in seen]
    return wanted or [next(trials[at] for at in draws(epoch.plan, seed) if trials[at].record not in seen)]


def predicate_of(
    epoch: AuditedEpoch, randomness: AuditRandomness, seen: Mapping[str, Sequence[str]], software: Json | None = None
) -> Json:
    """The predicate of an audit: draw, what was seen, martingale, verdict. Raises BadInput if the audit is not over."""
    if next_trials(epoch, randomness.value, seen):
        raise BadInput("trials are still to be judged again, so the audit is not over", hint="run it again")
    for trial in epoch.plan.trials:
        if undecided(trial.passed, seen.get(trial.record, ())):
            raise BadInput(f"a trial that differs is judged {RUNS} times, so the audit is not over", hint="run it again")
        if needless(trial.passed, seen.get(trial.record, ())):
            what = f"a trial was judged again after it had shown its claim, or more than {RUNS} times"
            raise BadInput(what, hint="an audit judges a trial until a run shows its claim, and three times at most")
    audit, wrong = epoch.plan, _wrong(epoch, seen)
    path = (
        AuditPath((), (), confirmed=False)
        if epoch.clean is None
        else follow(audit, seed_of(randomness.value, epoch.receipt), wrong)
    )
    judged = list(dict.fromkeys(path.drawn)) if path.confirmed else list(range(len(audit.trials)))
    claims = overstated(audit, wrong) if not path.confirmed else []
    verdict = "confirmed" if path.confirmed else "recounted" if all(stands for *_, stands in claims) else "refused"
    untested = dict[str, int]()
    for trial in audit.untested:
        untested[trial.validator] = untested.get(trial.validator, 0) + 1
    return {
        "competition": epoch.predicate["competition"],
        "epoch": epoch.predicate["epoch"],
        "receipt": f"sha256:{epoch.receipt.hex()}",
        "settlement": epoch.predicate["settlement"],
        "log": epoch.origin,
        "witnessed": epoch.witnessed,
        "randomness": randomness.source,
        "risk": text(epoch.rules.risk),
        "places": epoch.rules.places,
        "claims": [{"above": claim.above, "below": claim.below, "margin": claim.margin} for claim in audit.claims],
        "trials": {"counted": len(epoch.trials), "drawn_from": len(audit.trials), "size": str(audit.size)},
        "untested": [{"validator": name, "trials": count} for name, count in sorted(untested.items(), key=_by_key)],
        "judged": [_judged(epoch, audit.trials[at], seen) for at in judged],
        "draws": list(path.drawn),
        "martingale": [str(value) for value in path.values],
        "overstated": [
            {"above": claim.above, "below": claim.below, "nanos": _ceiling(total), "stands": stands}
            for claim, total, stands in claims
        ],
        "verdict": verdict,
        "software": software or {"name": "assay", "version": version("assay")},
    }


def _by_key(item: tuple[str, int]) -> bytes:
    return item[0].encode()


def _ceiling(total: Any) -> str:
    """Nanos, rounded up; below 0 too."""
    return str(-(-total.numerator // total.denominator))


def _judged(epoch: AuditedEpoch, trial: ClaimedTrial, seen: Mapping[str, Sequence[str]]) -> Json:
    outcomes = list(seen[trial.record])
    return {
        "participant": trial.participant,
        "validator": trial.validator,
        "task": trial.task,
        "trial": trial.trial,
        "record": trial.record,
        "claimed": epoch.records[trial.record].outcome,
        "seen": outcomes,
        "state": finding(trial.passed, outcomes),
    }


def statement_of(predicate: Json) -> bytes:
    """The payload that an auditor signs: canonical JSON of an in-toto statement about a settlement."""
    name = f"{predicate['competition']} epoch {predicate['epoch']}"
    subject = [{"name": name, "digest": {"sha256": predicate["settlement"].removeprefix("sha256:")}}]
    return canonical({"_type": STATEMENT, "subject": subject, "predicateType": PREDICATE, "predicate": predicate})


def check_statement(epoch: AuditedEpoch, payload: bytes, *, on_randomness: Callable[[str], None] = lambda _: None) -> Json:
    """The predicate of a statement, made again from the bundle and from what it says was seen; raises Refused where they differ.

    on_randomness: told what is shown, or not shown, about the randomness.
    """
    with stage(STAGE):
        stated = stated_predicate(payload)
        randomness = _checked_randomness(epoch, stated["randomness"], on_randomness)
        seen = {row["record"]: row["seen"] for row in stated["judged"]}
        again = predicate_of(epoch, randomness, seen, stated["software"])
    for name, value in again.items():
        if stated[name] != value:
            raise Refused(STAGE, f"its field {name} does not follow", expected=_short(value), found=_short(stated[name]))
    if statement_of(again) != payload:
        raise Refused(STAGE, "its subject is not the settlement in its statement, or it is not in its canonical form")
    return stated


def stated_predicate(payload: bytes) -> Json:
    """The predicate of a signed statement, which has its shape; nothing in it was checked. Raises CheckError."""
    document = check.parse_json(payload, STAGE)
    if not isinstance(document, dict) or document.get("predicateType") != PREDICATE:
        raise CheckError(STAGE, f"it is not a statement {PREDICATE}")
    if (bad := check.misfit(document.get("predicate"), _SHAPE)) != "":
        raise CheckError(STAGE, f"its statement is not an audit's: {bad} does not fit")
    stated: Json = document["predicate"]
    return stated


def _short(value: object) -> str:
    return json.dumps(value)[:200]


def _checked_randomness(epoch: AuditedEpoch, source: Json, tell: Callable[[str], None]) -> AuditRandomness:
    if "round" not in source:  # no round of drand
        tell("the randomness was given by the auditor: nothing shows that it was not chosen")
        return given(source["value"])
    if epoch.witnessed is None:
        raise CheckError(STAGE, "the draw depends on when the receipt was witnessed: give the policy of its witnesses")
    if source["round"] != epoch.round:
        raise CheckError(STAGE, "it is not the round of drand that the rule fixes", epoch.round, source["round"])
    randomness = of_beacon(beacon.check_round(source["round"], bytes.fromhex(source["signature"])))
    if randomness.source != source:
        raise CheckError(STAGE, "its randomness is of another chain", beacon.CHAIN, source["chain"])
    tell(f"the randomness is round {source['round']} of drand, fixed by when the receipt was witnessed")
    return randomness


_COUNT = "-?(0|[1-9][0-9]{0,60})"
_SHAPE = {
    "competition": check.WORD,
    "epoch": int,
    **dict.fromkeys(("receipt", "settlement"), check.DIGEST),
    "log": check.WORD,
    "witnessed": (None, int),
    "randomness": (
        {"source": "given", "value": "[0-9a-f]{64}"},
        {"source": "drand", "chain": "[0-9a-f]{64}", "round": int, "signature": "[0-9a-f]{96}"},
    ),
    "risk": check.WORD,
    "places": (None, int),
    "claims": [{"above": (None, check.WORD), "below": (None, check.WORD), "margin": object}],
    "trials": {"counted": int, "drawn_from": int, "size": _COUNT},
    "untested": [{"validator": check.WORD, "trials": int}],
    "judged": [
        {
            **dict.fromkeys(("participant", "validator", "task"), check.WORD),
            "trial": int,
            "record": check.DIGEST,
            "claimed": "pass|fail|timeout",
            "seen": ["pass|fail|timeout"],
            "state": "held|flaky|false|missing",
        }
    ],
    "draws": [int],
    "martingale": [_COUNT],
    "overstated": [{"above": (None, check.WORD), "below": (None, check.WORD), "nanos": _COUNT, "stands": object}],
    "verdict": "confirmed|recounted|refused",
    "software": {"name": check.WORD, "version": check.WORD},
}
