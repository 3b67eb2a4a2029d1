"""Cases of whole epochs, each with the stage at which it is refused. What must be refused ends in `_fail`. SPEC 6."""

from __future__ import annotations

import copy
from typing import Any

from oracle import receipts, trees
from oracle.pipeline import task_set_digest

from .case import CaseDraft, File, case
from .epochs import DEFAULTS, LOG, VALIDATORS, bundle, case_of, record, seen, story
from .kept import redone
from .proofs import NAME, ONE, TWO, fail

__all__ = ["FILES"]

Doc = dict[str, Any]
A, B = VALIDATORS
EMPTY_ROOT = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
NULL = "sha256:" + "0" * 64
STORY = story()
ONE_EPOCH, TWO_EPOCHS = bundle(STORY, 1), bundle(STORY)
LONGER = story([*(epoch.records for epoch in STORY.epochs), []], epochs=(3, 5, 7))
THREE_EPOCHS, FORKED = bundle(LONGER), [({}, b"another"), *LONGER.entries[1:2]]
RECORDS = ONE_EPOCH["records"]["3"]


def verified(name: str, whole: Doc) -> CaseDraft:
    counts = {"receipts": len(whole["receipts"]), "batches": len(whole["batches"])}
    counts["records"] = sum(len(records) for records in whole["records"].values())
    settlement = whole["settlement"]
    return case(
        name,
        whole,
        counts | {"competition": settlement["scheme"]["name"], "epoch": settlement["epoch"], "settlement": settlement["digest"]},
    )


def refused(stage: str, name: str, whole: Doc, why: str) -> CaseDraft:
    return fail(name, whole, f"{stage}: {why}")


def put(whole: Doc, *path: str | int, to: Any) -> Doc:
    """The bundle with another value at a path."""
    copied: Any = copy.deepcopy(whole)
    holder = copied
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = to
    return dict(copied)


def lied(**fields: Any) -> Doc:
    """The first epoch with a receipt that states something else, rightly signed."""
    return bundle(story(lie=lambda epoch, stated: stated | fields), 1)


def other(records: list[Doc]) -> Doc:
    """The first epoch with other records, the receipt as it was."""
    return put(ONE_EPOCH, "records", "3", to=records)


def kept(records: list[Doc]) -> Doc:
    """The first epoch with other records, which the receipt is of: what nobody signed."""
    return bundle(story([records], epochs=(3,)), 1) | {"batches": ONE_EPOCH["batches"]}


def line(*members: list[int]) -> Doc:
    """The bundle with other members of the first batch."""
    return put(ONE_EPOCH, "batches", 0, "members", to=list(members))


TESTS: Doc = {"scheme": {"name": "term"}, "score": {"kind": "tests"}, "consensus": {"min_validators": 2}}
TESTED = DEFAULTS | {
    "score": {"kind": "tests", "trials": 1, "agent_timeout": "fail"},
    "reward": DEFAULTS["reward"] | {"cap": "0.5"},
}
SET = task_set_digest(["t1", "t2"])


def trial(seq: int, validator: str, task: str, outcome: str) -> Doc:
    row = record(seq, 3, validator, "m1") | {"kind": "tests", "task": task, "outcome": outcome, "trial": 1}
    return {name: value for name, value in row.items() if name != "score"}


def of_tests() -> Doc:
    """An epoch of kind tests, whose batches are of a task set."""
    trials = [trial(1, A, "t1", "pass"), trial(2, A, "t2", "fail"), trial(3, B, "t1", "pass"), trial(4, B, "t2", "pass")]
    cases = lambda epoch: case_of(epoch, scheme=TESTS, tasks=["t1", "t2"])  # noqa: E731
    return bundle(story([trials], cases=cases, scheme=TESTED, epochs=(3,), task_set=SET))


EARLY = [*seen(3, 1, ("0.5", "0.25", "0.5", "0.3"))[:2], *seen(3, 3, ("0.5", "0.25", "0.5", "0.3"))[2:]]
LATE = [record(3, 5, A, "m1", "0.75"), record(4, 5, A, "m2", "0.25"), record(7, 5, B, "m1", "0.75"), record(8, 5, B, "m2", "0.3")]
CONFLICT = [*RECORDS, record(5, 3, A, "m1", "0.9")]
CONFLICTING = bundle(story([CONFLICT], epochs=(3,))) | {
    "batches": [*ONE_EPOCH["batches"], receipts.batch_line(CONFLICT[4:], ONE, "term", None)]
}
URL_SAFE = copy.deepcopy(ONE_EPOCH)
for each in (*URL_SAFE["receipts"].values(), *URL_SAFE["batches"]):
    each["envelope"]["payload"] = each["envelope"]["payload"].replace("+", "-").replace("/", "_")

OF_VERSION_1 = receipts.batch_line(RECORDS[:2], ONE, "term", None, version=1)
FOR_ANOTHER = receipts.batch_line(RECORDS[:2], ONE, "term", None, log="example.org/test-net")

GOOD = [
    verified("one epoch", ONE_EPOCH),
    verified("two, the second of which follows from the first", TWO_EPOCHS),
    verified("evidence of the later epoch accepted first", bundle(story([EARLY, LATE]))),
    verified("an epoch without evidence of its own", bundle(story([RECORDS, []]))),
    verified("two records of one key: the first accepted counts", CONFLICTING),
    verified("kind tests", of_tests()),
    verified("receipts of version 1", bundle(story(version=1))),
    verified("a batch of version 1, which names no log", put(ONE_EPOCH, "batches", 0, to=OF_VERSION_1)),
    verified("payloads in the URL-safe alphabet", URL_SAFE),
]

FIRST, SECOND = (TWO_EPOCHS["receipts"][epoch] for epoch in ("3", "5"))
ELSEWHERE = bundle(story(name="other"), 1)
REPLAYED = story(lie=lambda epoch, stated: stated | ({"settlement": NULL} if epoch == 3 else {}))
BATCH = ONE_EPOCH["batches"][0]


def resigned(records: list[Doc], key: Any = ONE, competition: str = "term") -> Doc:
    """The first epoch with another first batch."""
    return put(ONE_EPOCH, "batches", 0, to=receipts.batch_line(records, key, competition, None))


MINE = RECORDS[:2]
REVERSED = ONE_EPOCH["inputs"] | {"participants": ONE_EPOCH["inputs"]["participants"][::-1]}
BAD = [
    refused("receipt", "another key", ONE_EPOCH | {"key": trees.vkey(NAME, ONE)}, "the key is not the signer's"),
    refused(
        "receipt",
        "the signature of another receipt",
        put(TWO_EPOCHS, "receipts", "5", "envelope", "signatures", to=FIRST["envelope"]["signatures"]),
        "signatures are not exchangeable",
    ),
    refused(
        "log",
        "the place of another receipt",
        put(TWO_EPOCHS, "receipts", "5", "proof", to=FIRST["proof"]),
        "proofs are not exchangeable",
    ),
    refused("chain", "replayed: the receipt of the epoch before", put(TWO_EPOCHS, "receipts", "5", to=FIRST), "it is of epoch 3"),
    refused(
        "chain",
        "replayed: the receipt of another competition before",
        put(TWO_EPOCHS, "receipts", "3", to=ELSEWHERE["receipts"]["3"]),
        "the next one names another",
    ),
    refused(
        "chain",
        "the two receipts swapped",
        put(TWO_EPOCHS, "receipts", to={"3": SECOND, "5": FIRST}),
        "receipts are in the order of their epochs",
    ),
    refused("chain", "the first receipt left out", put(TWO_EPOCHS, "receipts", to={"5": SECOND}), "every receipt is there"),
    refused(
        "chain",
        "forked: the receipt before is another, rightly signed",
        put(TWO_EPOCHS, "receipts", "3", to=REPLAYED.receipts[0]),
        "the second names the first",
    ),
    refused(
        "chain",
        "no receipt before, signed",
        bundle(story(lie=lambda epoch, stated: stated | {"previous": None})),
        "the second names the first",
    ),
    refused(
        "chain",
        "the receipt before is of a later epoch, signed",
        bundle(story(lie=lambda epoch, stated: stated | ({"epoch": 6} if epoch == 3 else {}))),
        "epochs ascend",
    ),
    refused(
        "chain",
        "no settlement before",
        {name: value for name, value in TWO_EPOCHS.items() if name != "previous"},
        "the second follows from it",
    ),
    refused("chain", "a settlement before the first", ONE_EPOCH | {"previous": ONE_EPOCH["settlement"]}, "nothing is before it"),
    refused(
        "chain",
        "another settlement before",
        TWO_EPOCHS | {"previous": TWO_EPOCHS["settlement"]},
        "the receipt before is not of it",
    ),
    refused(
        "chain",
        "a settlement before that was changed",
        put(TWO_EPOCHS, "previous", "clock", "record", to="0.1"),
        "its digest is of what it was",
    ),
    refused(
        "chain",
        "a settlement before that was changed, digest and all",
        TWO_EPOCHS | {"previous": redone(STORY.epochs[0].settlement, unallocated="0.1")},
        "the receipt before is not of it",
    ),
    refused(
        "chain",
        "a receipt left out after it, by its place in the log",
        put(ONE_EPOCH, "receipts", "3", to=receipts.receipts(STORY.entries, NAME, LOG, 2)[0]),
        "every receipt of the log is there",
    ),
    refused(
        "chain",
        "a receipt proven up to a later checkpoint of the same log",
        put(TWO_EPOCHS, "receipts", "3", to=receipts.receipts(STORY.entries, NAME, LOG, 2)[0]),
        "in a bundle each receipt is the last entry",
    ),
    refused(
        "chain",
        "a receipt before proven in another history of the same size",
        put(THREE_EPOCHS, "receipts", "5", "proof", to=receipts.receipts(FORKED, NAME, LOG)[1]["proof"]),
        "one log has one history",
    ),
    refused(
        "evidence",
        "one seq in two epochs",
        bundle(story([RECORDS, [record(4, 5, A, "m1")]])),
        "a seq is one record's",
    ),
    refused(
        "evidence",
        "the seqs of two records swapped",
        other([RECORDS[1] | {"seq": 1}, RECORDS[0] | {"seq": 2}, *RECORDS[2:]]),
        "the leaf has the seq",
    ),
    refused("evidence", "two records swapped", other([RECORDS[1], RECORDS[0], *RECORDS[2:]]), "they are in order of acceptance"),
    refused("evidence", "another score", other([RECORDS[0] | {"score": "1"}, *RECORDS[1:]]), "the record is under the root"),
    refused(
        "evidence",
        "another time",
        other([RECORDS[0] | {"observed_at": "2026-01-02T03:04:06Z"}, *RECORDS[1:]]),
        "the record is under the root",
    ),
    refused("evidence", "a record dropped", other(RECORDS[:-1]), "the receipt counts them"),
    refused("evidence", "a record added", other([*RECORDS, record(5, 3, A, "m1", "1")]), "the receipt counts them"),
    refused(
        "evidence",
        "a record twice in place of another",
        other([*RECORDS[:3], RECORDS[2] | {"seq": 4}]),
        "the records are under the root",
    ),
    refused(
        "evidence",
        "a record of a later epoch, which the receipt counts",
        bundle(story([[*RECORDS, record(5, 4, A, "m1")]], epochs=(3,))),
        "it belongs to a later receipt",
    ),
    refused("evidence", "no evidence", put(ONE_EPOCH, "records", to={"4": RECORDS}), "a receipt has its evidence"),
    refused("evidence", "evidence without a receipt", put(ONE_EPOCH, "records", "2", to=[]), "evidence has its receipt"),
    refused("evidence", "another root, signed", lied(evidence={"root": NULL, "count": 4}), "the root is over the records"),
    refused("evidence", "another count, signed", lied(evidence=receipts.evidence_root(RECORDS) | {"count": 5}), "there are four"),
    refused(
        "signatures",
        "a record that no validator signed, which the receipt counts",
        kept([*RECORDS, record(5, 3, A, "m1", "1")]),
        "every record is in a batch",
    ),
    refused(
        "signatures",
        "another score, which the receipt is of",
        kept([RECORDS[0] | {"score": "1"}, *RECORDS[1:]]),
        "the batch is of other records",
    ),
    refused("signatures", "a record dropped, which the receipt does not count", kept(RECORDS[:-1]), "the batch has it"),
    refused(
        "signatures",
        "a batch that was signed for another log",
        put(ONE_EPOCH, "batches", 0, to=FOR_ANOTHER),
        "a batch counts in the log that it names",
    ),
    refused("signatures", "a batch left out", ONE_EPOCH | {"batches": ONE_EPOCH["batches"][1:]}, "every record is in a batch"),
    refused("signatures", "a batch twice", ONE_EPOCH | {"batches": [BATCH, *ONE_EPOCH["batches"]]}, "a batch is one"),
    refused("signatures", "a batch signed by another validator", resigned(MINE, TWO), "a validator signs its own"),
    refused("signatures", "a batch of somebody else's records", resigned(RECORDS[2:], ONE), "a validator signs its own"),
    refused(
        "signatures", "a batch of another competition", resigned(MINE, competition="other"), "evidence is of one competition"
    ),
    refused(
        "signatures",
        "a batch with fewer records",
        put(ONE_EPOCH, "batches", 0, to=receipts.batch_line(RECORDS[:1], ONE, "term", None)),
        "every record is in a batch",
    ),
    refused(
        "signatures",
        "envelopes of two batches swapped",
        put(
            put(ONE_EPOCH, "batches", 0, "envelope", to=ONE_EPOCH["batches"][1]["envelope"]),
            "batches",
            1,
            "envelope",
            to=BATCH["envelope"],
        ),
        "a batch is of its own records",
    ),
    refused("signatures", "members of another batch", line([3, 4]), "a batch is of its own records"),
    refused("signatures", "one member too few", line([1, 1]), "the statement counts two"),
    refused("signatures", "one member too many", line([1, 3]), "the statement counts two"),
    refused("signatures", "members of which there are no records", line([1, 1], [9, 9]), "there are four records"),
    refused("signatures", "all members there could be", line([1, 2**53 - 1]), "there are four records"),
    refused("signatures", "members twice", line([1, 2], [1, 2]), "ranges ascend"),
    refused("signatures", "members that overlap", line([1, 2], [2, 2]), "ranges ascend"),
    refused("signatures", "a range backwards", line([2, 1]), "ranges ascend"),
    refused("signatures", "a range of one number", put(ONE_EPOCH, "batches", 0, "members", to=[[1]]), "a range has two ends"),
    refused(
        "signatures",
        "an envelope of the log",
        put(ONE_EPOCH, "batches", 0, "envelope", to=ONE_EPOCH["receipts"]["3"]["envelope"]),
        "a receipt is no batch",
    ),
    refused(
        "signatures",
        "a bit of a signature",
        put(
            ONE_EPOCH,
            "batches",
            0,
            "envelope",
            "signatures",
            0,
            "sig",
            to=ONE_EPOCH["batches"][1]["envelope"]["signatures"][0]["sig"],
        ),
        "the batch is signed",
    ),
    refused(
        "inputs", "another stake", put(ONE_EPOCH, "inputs", "validators", 0, "stake", to="300"), "the receipt names the inputs"
    ),
    refused(
        "inputs", "another scheme", put(ONE_EPOCH, "inputs", "scheme", "reward", "cap", to="0.5"), "the receipt names the inputs"
    ),
    refused(
        "inputs",
        "a participant left out",
        put(ONE_EPOCH, "inputs", "participants", to=ONE_EPOCH["inputs"]["participants"][:1]),
        "the receipt names the inputs",
    ),
    refused(
        "inputs",
        "a participant's submission is another",
        put(ONE_EPOCH, "inputs", "participants", 0, "submission", to="of m2"),
        "the receipt names the inputs",
    ),
    refused("inputs", "the inputs of another epoch, signed", lied(inputs=NULL), "the receipt names other inputs"),
    refused("inputs", "another scheme digest, signed", lied(scheme=NULL), "the inputs have another scheme"),
    refused("inputs", "a task set where there is none, signed", lied(task_set=NULL), "the inputs have another task set"),
    refused(
        "inputs",
        "the name of another competition, signed",
        bundle(story(lie=lambda epoch, stated: stated | {"competition": "other"}), 1) | {"batches": ELSEWHERE["batches"]},
        "the scheme is of this one",
    ),
    refused(
        "inputs",
        "rows in another order, signed",
        lied(inputs=receipts.digest(REVERSED)) | {"inputs": REVERSED},
        "inputs have one spelling",
    ),
    refused(
        "settlement", "another agreed score", put(ONE_EPOCH, "settlement", "agreed", 0, "score", to="1"), "it is computed again"
    ),
    refused(
        "settlement",
        "another weight, digest and all",
        put(ONE_EPOCH, "settlement", to=redone(ONE_EPOCH["settlement"], weights=ONE_EPOCH["settlement"]["weights"][::-1])),
        "it is computed again",
    ),
    refused(
        "settlement",
        "the settlement of another epoch",
        put(TWO_EPOCHS, "settlement", to=TWO_EPOCHS["previous"]),
        "it is computed again",
    ),
    refused("settlement", "a field too many", put(ONE_EPOCH, "settlement", "colour", to="red"), "it is computed again"),
    refused("settlement", "another settlement, signed", lied(settlement=NULL), "it is computed again"),
    refused(
        "results", "other results, signed", lied(results={"root": EMPTY_ROOT, "count": 0}), "they are those of the settlement"
    ),
    refused(
        "results",
        "results that do not bind their records, signed",
        lied(results=receipts.results_root(ONE_EPOCH["settlement"])),
        "version 2 binds them",
    ),
    refused(
        "results",
        "another count of results, signed",
        lied(results=receipts.results_root(ONE_EPOCH["settlement"], RECORDS) | {"count": 3}),
        "there are two",
    ),
]

FILES = [
    File("verify", "verify", "An epoch as a whole: its receipt and everything that it follows from (SPEC 6).", [*GOOD, *BAD])
]
