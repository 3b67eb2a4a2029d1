"""Cases of what a receipt binds, of receipts and of participants' own proofs. What must be refused ends in `_fail`. SPEC 6."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from typing import Any

from oracle import envelopes, receipts, trees

from .case import CaseDraft, File, case
from .epochs import DEFAULTS as FILLED
from .epochs import LOG, SCHEME, VALIDATORS, VKEY, case_of, record, story, text
from .proofs import NAME, ONE, TWO, fail, flipped

__all__ = ["FILES"]

Doc = dict[str, Any]
A, B = VALIDATORS
STORY = story()
FIRST, LAST = STORY.epochs
RECORDS = FIRST.records


def root(name: str, records: list[Doc], expect: Doc | None = None) -> CaseDraft:
    return case(name, {"records": records}, expect or receipts.evidence_root(records))


def no_root(name: str, records: list[Any], why: str) -> CaseDraft:
    return fail(name, {"records": records}, why)


EMPTY = {"root": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "count": 0}
EVIDENCE_ROOT = [
    root("no records: the root of no entries", [], EMPTY),
    root("one", RECORDS[:1]),
    root("three", RECORDS[:3]),
    root("five, with gaps between the seqs", [row | {"seq": 3 * row["seq"]} for row in [*RECORDS, record(9, 4, A, "m1")]]),
    root("the largest seq", [RECORDS[0] | {"seq": 10**9}]),
    root("seqs of two swapped: another root", [RECORDS[1] | {"seq": 1}, RECORDS[0] | {"seq": 2}]),
    root("a name beyond ASCII", [record(1, 3, A, "é\U0001f600")]),
    case(
        "a score in another spelling is the same record",
        {"records": [RECORDS[0] | {"score": "0.50"}]},
        receipts.evidence_root(RECORDS[:1]),
    ),
    no_root("no seq", [{key: value for key, value in RECORDS[0].items() if key != "seq"}], "the leaf has it"),
    no_root("one seq twice", [RECORDS[0], RECORDS[1] | {"seq": 1}], "a seq is one record's"),
    no_root("not in order of acceptance", [RECORDS[1], RECORDS[0]], "the leaves are in the order of seq"),
    no_root("a seq below 0", [RECORDS[0] | {"seq": -1}], "a seq is a count"),
    no_root("a seq that is a text", [RECORDS[0] | {"seq": "1"}], "a seq is a number"),
    no_root("no record", [{"seq": 1}], "a record is one of evidence"),
    no_root("a field too many", [RECORDS[0] | {"colour": "red"}], "records are closed"),
]


def document(name: str, given: Doc, expect: Doc) -> CaseDraft:
    return case(name, {"case": given}, {"document": expect, "digest": receipts.digest(expect)})


def no_document(name: str, why: str, **changes: Any) -> CaseDraft:
    return fail(name, {"case": case_of(3, evidence=[], **changes)}, why)


BARE = receipts.inputs(case_of(3), FILLED)
PEOPLE, JUDGES = case_of(3)["participants"], case_of(3)["validators"]
HISTORY = [{"epoch": 2, "top_score": "0.5"}, {"epoch": 1, "top_score": "0.25", "submission": "s"}]
RANDOM = [{"epoch": 3, "hex": "ab" * 32}, {"epoch": 2, "hex": "cd" * 32}]
INPUTS = [
    document("a small one", case_of(3, evidence=[]), BARE),
    document("the epoch is not in it", case_of(7, evidence=[]), BARE),
    document("nor is the evidence", case_of(3, evidence=RECORDS), BARE),
    document("rows in another order", case_of(3, evidence=[], participants=PEOPLE[::-1], validators=JUDGES[::-1]), BARE),
    document("a scheme with its defaults", case_of(3, evidence=[], scheme=FILLED), BARE),
    document(
        "what is empty is left out", case_of(3, evidence=[], participants=[person | {"name": ""} for person in PEOPLE]), BARE
    ),
    document(
        "history and randomness by epoch",
        case_of(3, evidence=[], history=HISTORY, randomness=RANDOM),
        BARE | {"history": HISTORY[::-1], "randomness": RANDOM[::-1]},
    ),
    document(
        "keys by their bytes in UTF-8, not by their UTF-16",
        case_of(3, evidence=[], participants=[{"key": "\U0001f600"}, {"key": "ﬀ"}]),
        BARE | {"participants": [{"key": "ﬀ"}, {"key": "\U0001f600"}]},
    ),
    no_document("a participant twice", "a key is one participant's", participants=[PEOPLE[0], PEOPLE[0]]),
    no_document("no participants", "there is somebody to settle", participants=[]),
    no_document("stake below 0", "a stake is an amount", validators=[{"key": A, "stake": "-1"}]),
    no_document("a scheme with a field too many", "schemes are closed", scheme=SCHEME | {"colour": {}}),
    no_document("a table that there is not", "cases are closed", colours=[]),
    no_document("an epoch of history twice", "an epoch has one row", history=[HISTORY[0], HISTORY[0]]),
]

SETTLEMENT = LAST.settlement
HELD = [*RECORDS, *LAST.records]
RESTS = receipts.rests(SETTLEMENT, HELD)
RESULTS = receipts.results(SETTLEMENT, HELD)
LEAVES = [trees.leaf(envelopes.plain(row)) for row in RESULTS]


def result(at: int) -> Doc:
    return {"result": RESULTS[at], "index": at, "inclusion": [digest.hex() for digest in trees.inclusion(at, LEAVES)]}


def redone(settlement: Doc, **changes: Any) -> Doc:
    """A settlement that was changed, with the digest that it has then."""
    bare = {name: value for name, value in (settlement | changes).items() if name != "digest"}
    return bare | {"digest": receipts.digest(bare)}


RESULTS_ROOT = [
    case("two participants", {"settlement": SETTLEMENT, "records": RESTS}, receipts.results_root(SETTLEMENT, HELD)),
    case(
        "as a receipt of version 1 has them, without their records", {"settlement": SETTLEMENT}, receipts.results_root(SETTLEMENT)
    ),
    case("another epoch: another root", {"settlement": FIRST.settlement}, receipts.results_root(FIRST.settlement)),
    *(
        case(
            f"the result of {row['participant']}",
            {"settlement": SETTLEMENT, "records": RESTS, "participant": row["participant"]},
            result(at),
        )
        for at, row in enumerate(RESULTS)
    ),
    case(
        "rows in another order, the same root",
        {"settlement": redone(SETTLEMENT, agreed=SETTLEMENT["agreed"][::-1])},
        receipts.results_root(SETTLEMENT),
    ),
    fail("records of one of them only", {"settlement": SETTLEMENT, "records": {"m1": RESTS["m1"]}}, "each result has its own"),
    fail("somebody else", {"settlement": SETTLEMENT, "participant": "m3"}, "he is not in the settlement"),
    fail("changed after it was made", {"settlement": SETTLEMENT | {"epoch": 6}}, "its digest is of what it was"),
    fail("another digest", {"settlement": SETTLEMENT | {"digest": "sha256:" + "0" * 64}}, "the digest is of the document"),
    fail("no settlement", {"settlement": {}}, "a settlement says assay.settlement/1"),
]

GOOD = STORY.receipts[1]
LEAVES_OF_LOG = [trees.leaf(entry) for _, entry in STORY.entries]


def stated(receipt: Doc, **more: Any) -> Doc:
    """What a receipt says, by the bytes of its payload."""
    payload = base64.b64decode(receipt["envelope"]["payload"])
    predicate = json.loads(payload)["predicate"]
    return {name: predicate[name] for name in ("competition", "epoch", "settlement")} | more


def held(name: str, given: Doc | str, index: int, size: int, **more: Any) -> CaseDraft:
    receipt = given if isinstance(given, str) else text(given)
    expect = stated(json.loads(receipt), index=str(index), size=str(size))
    return case(name, {"receipt": receipt, "key": VKEY} | more, expect)


def refused(name: str, given: Doc | str, why: str, **more: Any) -> CaseDraft:
    return fail(name, {"receipt": given if isinstance(given, str) else text(given), "key": VKEY} | more, why)


def payload(change: Callable[[Doc], Any]) -> Doc:
    """The receipt with another statement under the old signature."""
    statement = json.loads(base64.b64decode(GOOD["envelope"]["payload"]))
    change(statement)
    data = base64.b64encode(envelopes.plain(statement)).decode()
    return GOOD | {"envelope": GOOD["envelope"] | {"payload": data}}


def bits() -> list[CaseDraft]:
    """Each field of the statement, one character another, the signature as it was."""
    refusals = []
    statement = json.loads(base64.b64decode(GOOD["envelope"]["payload"]))

    def walk(value: Any, path: tuple[str | int, ...]) -> None:
        pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in pairs:
            walk(inner, (*path, key))
        if isinstance(value, dict | list):
            return

        def change(document: Doc) -> None:
            *above, last = path
            holder: Any = document
            for step in above:
                holder = holder[step]
            old = holder[last]
            holder[last] = (
                old + 1 if isinstance(old, int) else "sha256:" + "0" * 64 if old is None else old[:-1] + chr(ord(old[-1]) ^ 1)
            )

        name = ".".join(str(step) for step in path)
        refusals.append(refused(f"{name} is another", payload(change), "the statement is signed"))

    walk(statement, ())
    return refusals


def signed_anew(**changes: Any) -> Doc:
    """The receipt with other fields in its statement, rightly signed, in a log of its own."""
    predicate = json.loads(base64.b64decode(GOOD["envelope"]["payload"]))["predicate"] | changes
    rest = {name: value for name, value in predicate.items() if name not in ("competition", "epoch", "settlement")}
    signed = envelopes.receipt(predicate["competition"], predicate["epoch"], predicate["settlement"], LOG, **rest)
    receipt: Doc = receipts.receipts([signed], NAME, LOG)[0]
    return receipt


def twice() -> str:
    """The receipt with its payload twice, once in each alphabet."""
    whole = GOOD["envelope"]["payload"]
    other = whole.replace("+", "-").replace("/", "_")
    return text(GOOD).replace('"payload":', f'"payload":"{other}","payload":')


def lines(change: Callable[[list[str]], list[str]], receipt: Doc = GOOD) -> Doc:
    return receipt | {"proof": "\n".join(change(receipt["proof"].split("\n")))}


HASH = GOOD["proof"].split("\n")[2]
OTHER_HASH = base64.b64encode(bytes.fromhex(flipped(base64.b64decode(HASH).hex(), 5))).decode()
SEEN = trees.note(NAME, 1, trees.tree_of(LEAVES_OF_LOG[:1]), LOG)
LATER = [*LEAVES_OF_LOG, trees.leaf(b"later")]
AFTER = trees.note(NAME, 3, trees.tree_of(LATER), LOG)
STEPS = [digest.hex() for digest in trees.consistency(1, LEAVES_OF_LOG)]
AHEAD = [digest.hex() for digest in trees.consistency(2, LATER)]
FORK = [trees.leaf(b"another"), LEAVES_OF_LOG[1]]
FORKED = trees.note(NAME, 1, trees.tree_of(FORK[:1]), LOG)
ELSEWHERE = story(name="other")
SIGNATURE = GOOD["envelope"]["signatures"][0]
SAFE = GOOD["envelope"] | {"payload": GOOD["envelope"]["payload"].replace("+", "-").replace("/", "_")}
RECEIPT = [
    held("the first", STORY.receipts[0], 0, 1),
    held("the second, which names the first", GOOD, 1, 2),
    held("in a log that has gone on", receipts.receipts([*STORY.entries, ({}, b"later")], NAME, LOG, 3)[1], 1, 3),
    held("the payload in the URL-safe alphabet", GOOD | {"envelope": SAFE}, 1, 2),
    held("an envelope with a field that DSSE does not have", GOOD | {"envelope": GOOD["envelope"] | {"more": 1}}, 1, 2),
    held("of version 1, whose results do not bind their records", story(version=1).receipts[1], 1, 2),
    held("goes on from a checkpoint seen before", GOOD, 1, 2, checkpoint=SEEN, consistency=STEPS),
    held("a checkpoint seen afterwards goes on from it", GOOD, 1, 2, checkpoint=AFTER, consistency=AHEAD),
    held("the checkpoint that it has", GOOD, 1, 2, checkpoint=GOOD["proof"].split("\n\n", 1)[1]),
    *bits(),
    refused("another key", GOOD, "the key is not the signer's", key=trees.vkey(NAME, ONE)),
    refused("the key of another log, of the same bytes", GOOD, "the checkpoint is of another log", key=trees.vkey("other", LOG)),
    refused(
        "a keyid of another",
        GOOD | {"envelope": GOOD["envelope"] | {"signatures": [SIGNATURE | {"keyid": f"ed25519:{A}"}]}},
        "a receipt names the key that signed it",
    ),
    refused(
        "no keyid",
        GOOD | {"envelope": GOOD["envelope"] | {"signatures": [{"sig": SIGNATURE["sig"]}]}},
        "a receipt names the key that signed it",
    ),
    refused("signed by somebody else", story(key=TWO).receipts[1], "the key is not the signer's"),
    refused(
        "the envelope of one key and the checkpoint of another",
        GOOD | {"proof": story(key=TWO).receipts[1]["proof"]},
        "the checkpoint is signed by the log",
    ),
    refused(
        "replayed: the statement of another epoch", GOOD | {"envelope": STORY.receipts[0]["envelope"]}, "it is not that entry"
    ),
    refused(
        "replayed: that of another competition", GOOD | {"envelope": ELSEWHERE.receipts[1]["envelope"]}, "it is not that entry"
    ),
    refused("the proof of another receipt", GOOD | {"proof": STORY.receipts[0]["proof"]}, "proofs are not exchangeable"),
    refused("a bit of a hash", lines(lambda rows: [*rows[:2], OTHER_HASH, *rows[3:]]), "it leads to another root"),
    refused("the hash missing", lines(lambda rows: [*rows[:2], *rows[3:]]), "it does not reach the root"),
    refused(
        "a hash cut off", lines(lambda rows: [*rows[:2], base64.b64encode(bytes(31)).decode(), *rows[3:]]), "hashes have 32 bytes"
    ),
    refused("another index", lines(lambda rows: [rows[0], "index 0", *rows[2:]]), "it is at 1"),
    refused(
        "the first with the index of the second",
        lines(lambda rows: [rows[0], "index 1", *rows[2:]], STORY.receipts[0]),
        "there is one",
    ),
    refused(
        "rolled back: a checkpoint of two was seen",
        STORY.receipts[0],
        "the tree is smaller than what was seen",
        checkpoint=AFTER,
        consistency=[],
    ),
    refused("forked before it", GOOD, "it does not go on from what was seen", checkpoint=FORKED, consistency=STEPS),
    refused(
        "forked: a proof of the other log",
        GOOD,
        "the root is that of another log",
        checkpoint=FORKED,
        consistency=[LEAVES_OF_LOG[1].hex()],
    ),
    refused("no proof from the checkpoint seen", GOOD, "there is an entry between", checkpoint=SEEN),
    refused(
        "a checkpoint seen of another log",
        GOOD,
        "it is of another log",
        checkpoint=trees.note("other", 1, LEAVES_OF_LOG[0], LOG),
        consistency=STEPS,
    ),
    refused(
        "a checkpoint seen by another key",
        GOOD,
        "the key is not the log's",
        checkpoint=trees.note(NAME, 1, LEAVES_OF_LOG[0], ONE),
        consistency=STEPS,
    ),
    refused("two spellings of the payload", twice(), "a key stands once"),
    refused(
        "both alphabets in one payload",
        GOOD | {"envelope": GOOD["envelope"] | {"payload": "-+" + GOOD["envelope"]["payload"][2:]}},
        "one text has one alphabet",
    ),
    refused("another format", GOOD | {"schema": "assay.receipt/2"}, "there is no such format"),
    refused("a field too many", GOOD | {"comment": "x"}, "receipts are closed"),
    refused("a field too many in the statement, signed", signed_anew(more=1), "statements are closed"),
    refused("a count below 0, signed", signed_anew(evidence={"root": EMPTY["root"], "count": -1}), "a count is one"),
    refused("a count that is a text, signed", signed_anew(evidence={"root": EMPTY["root"], "count": "4"}), "a count is a number"),
    refused(
        "a root in capitals, signed",
        signed_anew(results={"root": "sha256:" + "AB" * 32, "count": 2}),
        "digests have one spelling",
    ),
    refused(
        "a batch, which the log signed",
        GOOD | {"envelope": receipts.batch_line(RECORDS[:2], LOG, "term", None)["envelope"]},
        "a batch is no receipt",
    ),
    refused("no signature", GOOD | {"envelope": GOOD["envelope"] | {"signatures": []}}, "an envelope is signed"),
    refused("deep", '{"schema":' + "[" * 2000 + "]" * 2000 + "}", "it is no receipt"),
    refused("nothing", "", "a receipt is JSON"),
]

PROVEN = receipts.receipts(STORY.entries, NAME, LOG, 2)
PROOF = receipts.own_proof("m1", SETTLEMENT, PROVEN[1], {3: RECORDS, 5: LAST.records}, PROVEN[:1])
OTHERS = receipts.own_proof("m2", SETTLEMENT, PROVEN[1], {3: RECORDS, 5: LAST.records}, PROVEN[:1])


def own(name: str, document: Doc, participant: str, records: int) -> CaseDraft:
    expect = stated(document["receipt"], participant=participant, records=records)
    del expect["settlement"]
    return case(name, {"proof": text(document), "key": VKEY}, expect)


def not_own(name: str, document: Doc | str, why: str, **more: Any) -> CaseDraft:
    return fail(name, {"proof": document if isinstance(document, str) else text(document), "key": VKEY} | more, why)


def changed(*path: str | int, to: Any) -> Doc:
    """The proof with another value at a path."""
    copied: Any = copy.deepcopy(PROOF)
    holder = copied
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = to
    return dict(copied)


FORKS = story(
    [RECORDS, LAST.records], lambda epoch, claimed: claimed | ({"task_set": "sha256:" + "1" * 64} if epoch == 3 else {})
)
LENT = receipts.own_proof("m1", SETTLEMENT, PROVEN[1], {3: FORKS.epochs[0].records, 5: LAST.records}, FORKS.receipts[:1])
BEFORE = story(version=1)
OF_VERSION_1 = receipts.own_proof("m1", FIRST.settlement, BEFORE.receipts[0], {3: RECORDS}, first=True)
PROOFS = [
    own("two epochs", PROOF, "m1", 4),
    own("of somebody else", OTHERS, "m2", 4),
    own("of the first epoch", receipts.own_proof("m1", FIRST.settlement, STORY.receipts[0], {3: RECORDS}), "m1", 2),
    own("of a receipt of version 1, which does not say which records there are", OF_VERSION_1, "m1", 2),
    not_own("without records", PROOF | {"records": [], "receipts": []}, "the result rests on four"),
    not_own("a record left out", PROOF | {"records": PROOF["records"][:-1]}, "the result rests on four"),
    not_own(
        "a record twice in place of another",
        PROOF | {"records": [*PROOF["records"][:-1], PROOF["records"][0]]},
        "the records are those that the result binds",
    ),
    not_own("two records swapped", PROOF | {"records": PROOF["records"][::-1]}, "they are in order of acceptance"),
    not_own(
        "a proof of version 1 of a receipt of version 2", PROOF | {"schema": "assay.proof/1"}, "it would not have to be whole"
    ),
    not_own(
        "a proof of version 2 of a receipt of version 1",
        OF_VERSION_1 | {"schema": "assay.proof/2"},
        "its result binds no records",
    ),
    not_own(
        "a result without its records",
        PROOF | {"result": {name: value for name, value in PROOF["result"].items() if name != "records"}},
        "the result is under the root",
    ),
    not_own("another key", PROOF, "the key is not the signer's", key=trees.vkey(NAME, ONE)),
    not_own("the result of another", PROOF | {"result": OTHERS["result"]}, "the proof is of one result"),
    not_own(
        "result and proof of another, own records",
        PROOF | {"result": OTHERS["result"], "result_proof": OTHERS["result_proof"]},
        "the records are about somebody else",
    ),
    not_own("the proofs of two results swapped", PROOF | {"result_proof": OTHERS["result_proof"]}, "proofs are not exchangeable"),
    not_own("another rank", changed("result", "rank", to=2), "the result is under the root"),
    not_own("another score", changed("result", "agreed", "score", to="1"), "the result is under the root"),
    not_own("another weight", changed("result", "weight", "u16", to=65535), "the result is under the root"),
    not_own("no weight", changed("result", "weight", to=None), "the result is under the root"),
    not_own("another index of the result", changed("result_proof", "index", to=1), "it is at 0"),
    not_own("another size of the results", changed("result_proof", "size", to=3), "there are two"),
    not_own(
        "a bit of the proof of the result",
        changed("result_proof", "hashes", to=[flipped(PROOF["result_proof"]["hashes"][0])]),
        "it leads to another root",
    ),
    not_own("the proof of the result cut off", changed("result_proof", "hashes", to=[]), "it does not reach the root"),
    not_own("another score in a record", changed("records", 0, "record", "score", to="1"), "the record is under the root"),
    not_own("another seq of a record", changed("records", 0, "seq", to=2), "the leaf has the seq"),
    not_own(
        "the proofs of two records swapped",
        changed("records", 0, "proof", to=PROOF["records"][1]["proof"]),
        "proofs are not exchangeable",
    ),
    not_own("a record of another epoch's receipt", changed("records", 0, "epoch", to=5), "it is under the root of its own"),
    not_own("a record of an epoch without receipt", changed("records", 0, "epoch", to=4), "there is no such receipt"),
    not_own("a record about somebody else", PROOF | {"records": OTHERS["records"]}, "a proof has nothing of others"),
    not_own("a record in another spelling", changed("records", 0, "record", "score", to="0.50"), "records are in canonical form"),
    not_own("no receipt for the earlier records", PROOF | {"receipts": []}, "they are under its root"),
    not_own("the earlier receipt of another log", LENT, "it is not in the log of the other"),
    not_own(
        "the earlier receipt of another competition",
        PROOF | {"receipts": receipts.receipts(ELSEWHERE.entries, NAME, LOG, 2)[:1]},
        "it is not in this log",
    ),
    not_own("a later receipt among the earlier", PROOF | {"receipts": PROVEN}, "the receipt itself is not another"),
    not_own("the receipt of the epoch before", PROOF | {"receipt": PROVEN[0], "receipts": []}, "the result is in another"),
    not_own("a receipt signed by somebody else", PROOF | {"receipt": story(key=TWO).receipts[1]}, "the key is not the signer's"),
    not_own("a field too many", PROOF | {"comment": "x"}, "proofs are closed"),
    not_own("a key twice", text(PROOF)[:-1] + ',"records":[]}', "a key stands once"),
    not_own("a receipt, no proof", PROVEN[1], "it proves nobody's result"),
]

FILES = [
    File("evidence-root", "evidence-root", "What a receipt states of its evidence (SPEC 6).", EVIDENCE_ROOT),
    File("inputs", "inputs", "What a settlement follows from beside evidence, as a document (SPEC 6).", INPUTS),
    File("results-root", "results-root", "What a receipt states of the results (SPEC 6).", RESULTS_ROOT),
    File("receipt", "receipt", "Receipts, and their place in the log (SPEC 6).", RECEIPT),
    File("proof", "proof", "A participant's own proof of his result (SPEC 6).", PROOFS),
]
