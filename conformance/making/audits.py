"""Cases of audits: what is claimed, drawn and confirmed; signed audits of an epoch, good and tampered. docs/auditing.md."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from oracle import envelopes, trees
from oracle.audit import audit
from oracle.pipeline import task_set_digest

from . import worlds
from .bundles import TESTED
from .case import CaseDraft, File, case, refused
from .epochs import VALIDATORS, bundle, case_of, record, story
from .proofs import NAME, fail

Doc = dict[str, Any]
A, B = VALIDATORS
RECEIPT, RANDOM = "sha256:" + "0123456789abcdef" * 4, "ab" * 32
TASKS = tuple(f"t{number:02}" for number in range(8))
WINNER: Doc = {"strategy": "winner-takes-all", "cap": "100%"}
Passes = Mapping[tuple[str, str], int]
"""(validator, participant) → how many of the first tasks passed."""


def trial(validator: str, participant: str, task: str, outcome: str, number: int = 1, **more: Any) -> Doc:
    head = {"kind": "tests", "epoch": 3, "validator": validator, "participant": participant, "submission": f"of {participant}"}
    return head | {"observed_at": "2026-01-02T03:04:05Z", "task": task, "outcome": outcome, "trial": number} | more


def seen_by(validator: str, participant: str, passes: int, *, work: bool = True, tasks: tuple[str, ...] = TASKS) -> list[Doc]:
    """A validator's records of a participant: the first tasks passed; the others failed, the last in time."""
    more: Doc = {"work": "sha256:" + "5" * 64} if work else {}
    rows = [trial(validator, participant, task, "pass" if at < passes else "fail", **more) for at, task in enumerate(tasks)]
    return [*rows[:-1], trial(validator, participant, tasks[-1], "timeout") if passes < len(tasks) else rows[-1]]


def board(scores: Mapping[str, int], *, stakes: tuple[int, ...] = (100, 100, 100), work: bool = True, **sections: Any) -> Doc:
    """A case of kind tests: every validator sees the same of each participant."""
    keys = [f"v{number}" for number in range(1, len(stakes) + 1)]
    scheme = {"scheme": {"name": "s", "version": "1"}, "score": {"kind": "tests"}, "reward": WINNER} | sections
    return {
        "scheme": scheme,
        "epoch": 3,
        "participants": [{"key": key, "uid": uid, "submission": f"of {key}"} for uid, key in enumerate(scores, 1)],
        "validators": [{"key": key, "stake": str(stake)} for key, stake in zip(keys, stakes, strict=True)],
        "tasks": list(TASKS),
        "evidence": [row for key in keys for who, passes in scores.items() for row in seen_by(key, who, passes, work=work)],
    }


def given(of: Doc, *differs: tuple[str, str, str, list[str]], randomness: str = RANDOM, receipt: str = RECEIPT) -> Doc:
    """An audit of a case; differs: (participant, validator, task, outcomes) of the trials that do not show what is claimed."""
    rows = [dict(zip(("participant", "validator", "task", "seen"), differ, strict=True)) for differ in differs]
    return {"case": of, "receipt": receipt, "randomness": randomness, "seen": rows}


FALSE, FLAKY, MISSING = ["fail"] * 3, ["fail", "pass"], list[str]()
FAR = board({"m1": 7, "m2": 1})
CLOSE = board({"m1": 6, "m2": 5})
LINEAR = board({"m1": 6, "m2": 5, "m3": 4}, reward={"strategy": "linear", "cap": "100%"})
THREE: dict[str, int] = {"m1": 7, "m2": 5, "m3": 1}
PAYOUT: Doc = {"reward": {"kind": "payout"}, "payout": {"deposit": "1000", "split": [6000, 4000]}}
RANKING: Doc = {"reward": {"kind": "ranking"}}
FIRST = audit(given(FAR))["judged"][0]
LIE = (FIRST["participant"], FIRST["validator"], FIRST["task"])
SHOWS = FALSE if FIRST["claimed"] == "pass" else ["pass"] * 3
EVERY_PASS = [("m1", validator, task, FALSE) for validator in ("v1", "v2", "v3") for task in TASKS[:7]]


def confirmed(name: str, of: Doc, **more: Any) -> CaseDraft:
    return case(name, of, {"verdict": "confirmed", "overstated": []} | more)


def with_sections(scores: dict[str, int], **sections: Any) -> Doc:
    return given(board(scores, **sections))


def changed_board(of: Doc, *rows: Doc, **fields: Any) -> Doc:
    """A board with more records, or other fields."""
    return of | {"evidence": [*of["evidence"], *rows]} | fields


AUDITS = [
    confirmed("every trial holds", given(FAR), claims=[{"above": "m1", "below": "m2", "margin": 749999996}]),
    confirmed("another randomness draws others", given(FAR, randomness="cd" * 32)),
    confirmed("another receipt draws others", given(FAR, receipt="sha256:" + "f" * 64)),
    confirmed("a false claim, and more draws", given(FAR, (*LIE, SHOWS))),
    confirmed("a flaky task holds", given(FAR, (*LIE, [*SHOWS[:1], FIRST["claimed"]]))),
    confirmed("missing work counts as false, and is not called so", given(FAR, (*LIE, MISSING))),
    case("every pass of the winner is false", given(FAR, *EVERY_PASS), {"verdict": "refused"}),
    case("a margin that no sample confirms is recounted at once", given(CLOSE), {"verdict": "recounted", "draws": []}),
    case(
        "a recount that one false claim does not change",
        given(CLOSE, ("m1", "v1", "t00", FALSE)),
        {"verdict": "recounted", "draws": [], "overstated": [{"nanos": "41666667", "stands": True}]},
    ),
    case(
        "false passes of the one above and of the one below weigh against each other",
        given(LINEAR, *(("m1", v, "t00", FALSE) for v in ("v1", "v2", "v3")), ("m2", "v1", "t00", FALSE)),
        {"verdict": "recounted"},
    ),
    case(
        "as many false claims as the margin",
        given(CLOSE, *(("m1", v, "t00", FALSE) for v in ("v1", "v2", "v3"))),
        {"verdict": "refused", "overstated": [{"nanos": "125000000", "stands": False}]},
    ),
    case("equal scores have no margin", given(board({"m1": 5, "m2": 5})), {"verdict": "recounted", "draws": []}),
    confirmed("nobody is outside: only the floor is claimed", with_sections({"m1": 7}, reward=WINNER | {"min_score": "1%"})),
    confirmed("a risk of one half takes fewer draws", with_sections({"m1": 7, "m2": 1}, audit={"risk": "50%"})),
    confirmed("a risk of a thousandth takes more draws", with_sections({"m1": 7, "m2": 2}, audit={"risk": "0.1%"})),
    confirmed("two winners share alike", with_sections(THREE, reward=WINNER | {"top": 2})),
    case("linear: each place beats the next", with_sections(THREE, reward={"strategy": "linear", "cap": "100%"})),
    case("places = 1 of linear", with_sections(THREE, reward={"cap": "100%"}, audit={"places": 1})),
    case("a floor that the last reaches and nobody else", with_sections(THREE, reward={"min_score": "50%", "cap": "100%"})),
    case("a floor that nobody reaches", with_sections(THREE, reward={"min_score": "99%", "cap": "100%"})),
    case("a floor, and winners that are fewer than top", with_sections(THREE, reward=WINNER | {"min_score": "50%", "top": 3})),
    case("a ranking", with_sections(THREE, **RANKING)),
    case("payouts: fewer paid than the split has", with_sections({"m1": 7, "m2": 2, "m3": 1}, **PAYOUT)),
    case("payouts: as many paid as the split has", with_sections({"m1": 8, "m2": 5, "m3": 4}, **PAYOUT)),
    confirmed(
        "nothing that was tested can be overstated", given(board({"m1": 2, "m2": 1}, work=False, **PAYOUT)), draws=[], judged=[]
    ),
    case("payouts: nobody is paid", with_sections({"m1": 2, "m2": 1}, **PAYOUT)),
    confirmed("stakes weigh trials", given(board({"m1": 7, "m2": 1}, stakes=(100, 300, 500)))),
    confirmed(
        "mean: each validator weighs the same",
        given(board({"m1": 7, "m2": 1}, stakes=(9, 300, 500), consensus={"combine": "mean"})),
    ),
    case(
        "a median moves as far as any one validator does",
        with_sections({"m1": 7, "m2": 1}, consensus={"combine": "stake-median"}),
    ),
    case("all must see a task pass", with_sections({"m1": 7, "m2": 1}, score={"kind": "tests", "passed_by": "all"})),
    confirmed(
        "fails without work are not tested",
        given(board({"m1": 7, "m2": 1}, work=False)),
        untested=[{"validator": f"v{n}", "trials": 7} for n in (1, 2, 3)],
    ),
    case(
        "an excluded validator is not audited",
        given(
            changed_board(
                board({"m1": 7, "m2": 1}, stakes=(100, 100, 100)),
                *seen_by("v4", "m1", 0),
                *seen_by("v4", "m2", 1),
                validators=[{"key": f"v{n}", "stake": "100"} for n in (1, 2, 3, 4)],
            )
        ),
        {"trials": {"counted": 56}},
    ),
    case(
        "several trials of a task",
        given(
            changed_board(
                board({"m1": 7, "m2": 1}, score={"kind": "tests", "trials": 2}),
                *(row | {"trial": 2} for row in board({"m1": 7, "m2": 1})["evidence"]),
            )
        ),
    ),
    case(
        "trials beyond the scheme's do not count",
        given(changed_board(FAR, trial("v1", "m1", "t00", "pass", 2))),
        {"trials": {"counted": 48}},
    ),
    refused("nobody has a score above 0", given(board({"m1": 0, "m2": 0})), "cannot-settle: nothing is claimed"),
    refused("a case of another kind", given(case_of(3, evidence=[record(1, 3, A, "m1")])), "only trials are audited"),
    refused("randomness of 31 bytes", given(FAR, randomness="ab" * 31), "it has 32"),
    refused("one run that differs decides nothing", given(FAR, (*LIE, SHOWS[:1])), "there are three"),
    refused("a run after the claim was shown", given(FAR, (*LIE, [FIRST["claimed"], SHOWS[0]])), "the first run ended it"),
    refused("a claim that only a fourth run shows", given(FAR, (*LIE, [*SHOWS, FIRST["claimed"]])), "it was false after three"),
]

# ---- signed audits

AUDITOR, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (7, 8))
AUDITS_LOG = f"{NAME}/audits"
AUDITOR_KEY = trees.vkey(AUDITS_LOG, AUDITOR)
WITNESS = Ed25519PrivateKey.from_private_bytes(bytes([11]) * 32)
WITNESS_KEY = trees.witness_vkey("example.net/w", WITNESS)
POLICY = f"witness w {WITNESS_KEY}\nquorum w\n"
ROUND, AT = 1000, 1_692_806_364
CHAIN = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
SIGNED = "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39"
"""A round of drand's quicknet, when it came, and its signature."""
DRAND: Doc = {"source": "drand", "chain": CHAIN, "round": ROUND, "signature": SIGNED}
SCHEME: Doc = {
    "scheme": {"name": "term", "version": "1.0.0"},
    "score": {"kind": "tests"},
    "consensus": {"min_validators": 2},
    "reward": WINNER,
}
FILLED: Doc = TESTED | {"reward": TESTED["reward"] | {"strategy": "winner-takes-all", "cap": "1"}}
STATED: Doc = {"competition": "term", "epoch": 3}


FEW = TASKS[:4]


def whole() -> Doc:
    """An epoch of kind tests; a witness cosigned its receipt ten minutes before the round of drand."""
    rows = [row for v in (A, B) for who, passes in (("m1", 4), ("m2", 1)) for row in seen_by(v, who, passes, tasks=FEW)]
    numbered = [row | {"seq": seq} for seq, row in enumerate(rows, 1)]
    cases = lambda epoch: case_of(epoch, scheme=SCHEME, tasks=list(FEW))  # noqa: E731
    bundled = bundle(story([numbered], cases=cases, scheme=FILLED, epochs=(3,), task_set=task_set_digest(list(FEW))))
    for receipt in bundled["receipts"].values():
        text = receipt["proof"].partition("\n\n")[2].rpartition("\n\n")[0] + "\n"
        receipt["proof"] += trees.cosignature(text, "example.net/w", WITNESS, AT - 600)
    return bundled


EPOCH = whole()
ENTRY = hashlib.sha256(base64.b64decode(EPOCH["receipts"]["3"]["envelope"]["payload"])).hexdigest()


def predicate(source: Doc, *differs: tuple[str, str, str, list[str]], witnessed: int | None = None) -> Doc:
    """What an audit of the epoch has to state."""
    drawn = hashlib.sha256(bytes.fromhex(source["signature"])).hexdigest() if "round" in source else source["value"]
    held = case_of(3, scheme=SCHEME, tasks=list(FEW), evidence=EPOCH["records"]["3"])
    findings = audit(given(held, *differs, randomness=drawn, receipt=f"sha256:{ENTRY}"))
    return {
        **STATED,
        "receipt": f"sha256:{ENTRY}",
        "settlement": EPOCH["settlement"]["digest"],
        "log": NAME,
        "witnessed": witnessed,
        "randomness": source,
        "risk": "0.05",
        "places": None,
        **findings,
        "software": {"name": "assay", "version": "0.1.0"},
    }


def file_of(stated: Doc, key: Ed25519PrivateKey = AUDITOR, origin: str = AUDITS_LOG, **changes: Any) -> Doc:
    """The file of a signed audit; changes: of its statement."""
    subject = [{"name": "term epoch 3", "digest": {"sha256": EPOCH["settlement"]["digest"].removeprefix("sha256:")}}]
    statement = {"_type": "https://in-toto.io/Statement/v1", "subject": subject, "predicateType": "assay:audit/v1"}
    body = envelopes.plain(statement | {"predicate": stated} | changes)
    return {"schema": "assay.audit/1", "envelope": envelopes.dsse(body, key), "proof": in_log(body, key, origin)}


def in_log(body: bytes, key: Ed25519PrivateKey, origin: str) -> str:
    """The proof that an audit is the second entry of its log."""
    leaves = [trees.leaf(b"earlier"), trees.leaf(hashlib.sha256(body).digest())]
    return trees.proof(1, trees.inclusion(1, leaves), trees.note(origin, 2, trees.tree_of(leaves), key))


def asked(file: Doc, policy: str | None = POLICY, auditor: str | None = AUDITOR_KEY, epoch: Doc = EPOCH) -> Doc:
    request: Doc = {"audit": envelopes.plain(file).decode(), "epoch": epoch}
    request |= {} if policy is None else {"policy": policy}
    return request | ({} if auditor is None else {"auditor": auditor})


GIVEN: Doc = {"source": "given", "value": RANDOM}
HONEST = predicate(DRAND, witnessed=AT - 600)
DRAWN = HONEST["judged"][0]
DIFFERS = ["fail" if DRAWN["claimed"] == "pass" else "pass"]
SHOWN_FIRST, SHOWN_LATE = [DRAWN["claimed"], *DIFFERS], [*DIFFERS * 3, DRAWN["claimed"]]
ONE_LIE = predicate(
    DRAND,
    (DRAWN["participant"], DRAWN["validator"], DRAWN["task"], DIFFERS * 3),
    witnessed=AT - 600,
)
GUESSED = predicate(GIVEN)


def tampered(name: str, why: str, **changes: Any) -> CaseDraft:
    """A statement with other fields, rightly signed."""
    return fail(name, asked(file_of(HONEST | changes)), f"audit: {why}")


def with_row(**changes: Any) -> list[Doc]:
    """The rows of trials judged again, the first of them another."""
    return [HONEST["judged"][0] | changes, *HONEST["judged"][1:]]


def put(file: Doc, field: str, value: Any) -> Doc:
    return copy.deepcopy(file) | {field: value}


def spaced() -> Doc:
    """The audit with a payload that is not canonical, rightly signed."""
    written = json.dumps(json.loads(base64.b64decode(FILES_OF["envelope"]["payload"])), indent=1).encode()
    return {
        "schema": "assay.audit/1",
        "envelope": envelopes.dsse(written, AUDITOR),
        "proof": in_log(written, AUDITOR, AUDITS_LOG),
    }


OTHERS = [
    tampered("another verdict", "it follows", verdict="recounted"),
    tampered("a draw left out", "draws follow", draws=HONEST["draws"][:-1]),
    tampered("another value of the martingale", "it follows", martingale=[*HONEST["martingale"][:-1], "1"]),
    tampered("another margin", "claims follow", claims=[HONEST["claims"][0] | {"margin": 5}]),
    tampered("another risk", "the scheme has it", risk="0.1"),
    tampered("fewer places", "the scheme has none", places=1),
    tampered("another count of trials", "they follow", trials=HONEST["trials"] | {"counted": 7}),
    tampered("untested trials left out", "they follow", untested=[]),
    tampered("another time", "the cosignature has it", witnessed=AT),
    tampered("another receipt", "it is this epoch's", receipt=RECEIPT),
    tampered("a trial left out", "a draw needs it", judged=HONEST["judged"][1:]),
    tampered("a trial too many", "nobody drew it", judged=[*HONEST["judged"], HONEST["judged"][0]]),
    tampered("another claim of a record", "the record has it", judged=with_row(claimed="timeout")),
    tampered("another state", "it follows from what was seen", judged=with_row(state="flaky")),
    tampered("one run that differs", "there are three", judged=with_row(seen=DIFFERS, state="false")),
    tampered("a run after the claim was shown", "there is none", judged=with_row(seen=SHOWN_FIRST, state="flaky")),
    tampered("a claim that only a fourth run shows", "there are three", judged=with_row(seen=SHOWN_LATE, state="flaky")),
    tampered("a false claim without more draws", "draws follow", judged=with_row(seen=DIFFERS * 3, state="false")),
    tampered(
        "overstated, though it is confirmed",
        "it is empty then",
        overstated=[{"above": "m1", "below": "m2", "nanos": "0", "stands": True}],
    ),
    tampered("a field too many", "fields are closed", more=1),
    tampered("the round after", "the rule fixes the round", randomness=DRAND | {"round": ROUND + 1}),
    tampered("another chain", "it is quicknet's", randomness=DRAND | {"chain": "0" * 64}),
    tampered("a bit of the round's signature", "the group signs", randomness=DRAND | {"signature": "b6" + SIGNED[2:]}),
]
FILES_OF = file_of(HONEST)
SIGNED_AUDITS = [
    case("confirmed, by drand", asked(FILES_OF), {"verdict": "confirmed", "counted": 16}),
    case("confirmed, with a false claim", asked(file_of(ONE_LIE)), {"verdict": "confirmed"}),
    case("randomness that was given, without a policy", asked(file_of(GUESSED), None), {"verdict": "confirmed"}),
    case("the auditor's key is the one that it names", asked(file_of(GUESSED), None, None), {"index": "1", "size": "2"}),
    *OTHERS,
    fail("another auditor", asked(FILES_OF, auditor=trees.vkey(AUDITS_LOG, OTHER)), "audit: the key is not the signer's"),
    fail("the log of another name", asked(FILES_OF, auditor=trees.vkey(NAME, AUDITOR)), "audit: its log is another"),
    fail("another format", asked(put(FILES_OF, "schema", "assay.audit/2")), "audit: it is not known"),
    fail("a payload with spaces", asked(spaced()), "audit: it is canonical JSON"),
    fail("no proof", asked({name: FILES_OF[name] for name in ("schema", "envelope")}), "audit: it is in a log"),
    fail("the proof of another audit", asked(put(FILES_OF, "proof", file_of(ONE_LIE)["proof"])), "audit: it is of this one"),
    fail(
        "the signature of another audit", asked(put(file_of(ONE_LIE), "envelope", FILES_OF["envelope"])), "audit: both are signed"
    ),
    fail("another predicate type", asked(file_of(HONEST, predicateType="assay:audit/v2")), "audit: it is not known"),
    fail("another subject", asked(file_of(HONEST, subject=[])), "audit: it is the settlement"),
    fail("drand without a policy", asked(FILES_OF, None), "audit: nothing fixes the round"),
    fail(
        "a policy that nobody fulfils",
        asked(
            FILES_OF,
            POLICY.replace("w ", "x ", 1)
            .replace("quorum w", "quorum x")
            .replace(WITNESS_KEY, trees.witness_vkey("example.net/x", OTHER)),
        ),
        "witnesses: the quorum is missing",
    ),
    fail("given randomness under a policy that fixes a time", asked(file_of(GUESSED)), "audit: witnessed follows"),
    fail(
        "an epoch that is not right",
        asked(FILES_OF, epoch=EPOCH | {"batches": EPOCH["batches"][:1]}),
        "signatures: records nobody signed",
    ),
]

# ---- validators that a scheme leaves out

AUDITED = "sha256:" + "a" * 64
WORDS: Doc = {"a": ["pp", "pp", "pf", "ff"]}


def left_out(scheme: Doc | None = None, stakes: Doc | None = None, words: Doc = WORDS, **parts: Any) -> Doc:
    """A case in which an audit saw false claims of v4."""
    rules = {"outliers": {"method": "none"}} | parts.pop("consensus", {})
    world: Doc = worlds.tests(words, stakes=stakes or {}, consensus=rules, **parts)
    world["scheme"] |= {"audit": {"failed": "leave-out"}} if scheme is None else scheme
    world["validators"][3]["failed_audit"] = AUDITED
    return world


def not_counted(score: str | None, reason: str = "audit-failed", **more: Any) -> Doc:
    return {"agreed": [{"score": score, "not_counted": [{"validator": "v4", "reason": reason, "missing": 0}], **more}]}


EVERYBODY: Doc = {"agreed": [{"not_counted": []}]}
ASSIGN: Doc = {"consensus": {"assign": 3, "min_validators": 3}, "randomness": worlds.SEEDED}
LEFT_OUT = [
    case("it does not count, and is told", left_out(), not_counted("0.833333333")),
    case("without the option nothing changes", left_out({}), EVERYBODY),
    case("with another field of the section nothing changes", left_out({"audit": {"risk": "10%"}}), EVERYBODY),
    case(
        "its stake stays in the whole that the quorum is a part of",
        left_out(stakes={"v4": "701"}),
        {"agreed": [{"status": "no-quorum", "reason": "too-little-stake"}]},
    ),
    case(
        "too few are left",
        left_out(consensus={"min_validators": 4}),
        {"agreed": [{"status": "no-quorum", "reason": "too-few-validators"}]},
    ),
    case("no stake is told first", left_out(stakes={"v4": "0"}), not_counted("0.833333333", "no-stake")),
    case(
        "too little stake is told first",
        left_out(stakes={"v4": "9"}, consensus={"min_validator_stake": "10"}),
        not_counted("0.833333333", "stake-below-minimum"),
    ),
    case("it is never drawn", left_out(**ASSIGN), not_counted("0.833333333", "not-assigned")),
    case("what it misses is not asked", left_out(words={"a": ["pp", "pp", "pf", "-f"]}), not_counted("0.833333333")),
    case(
        "a task that it saw fail passes by all",
        left_out(words={"a": ["pp", "pp", "pf", "ff"]}, score={"passed_by": "all"}),
        not_counted("0.5"),
    ),
    case("an audit of nobody with evidence", left_out(words={"a": ["pp", "pp", "pf"]}, stakes={"v4": "100"}), EVERYBODY),
    refused(
        "a mark that is no digest",
        left_out() | {"validators": [{"key": "v1", "stake": "1", "failed_audit": "yes"}]},
        "an audit has a digest",
    ),
    refused("another word for it", left_out({"audit": {"failed": "zero"}}), "there is one"),
    refused(
        "only trials are audited",
        left_out() | {"scheme": {"scheme": {"name": "s"}, "score": {"kind": "given"}, "audit": {"failed": "leave-out"}}},
        "the kind has none",
    ),
]

FILES = [
    File(
        "settle-audited", "settle", "A validator whose audit failed, where the scheme leaves it out (docs/auditing.md).", LEFT_OUT
    ),
    File("audit", "audit", "What an audit claims, draws and confirms (docs/auditing.md).", AUDITS),
    File("audit-receipt", "audit-receipt", "Signed audits of an epoch, good and tampered (docs/auditing.md).", SIGNED_AUDITS),
]
