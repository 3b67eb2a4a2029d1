"""Cases of witnesses: policies, cosignatures, proofs of a fork. What must be refused has a name that ends in `_fail`. SPEC 6."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from oracle import trees

from .case import CaseDraft, File, case
from .proofs import KEY, LEAVES, NAME, ONE, TWO, fail, note

__all__ = ["FILES"]

Doc = dict[str, Any]

KEYS = {f"w{number}": Ed25519PrivateKey.from_private_bytes(bytes([10 + number]) * 32) for number in (1, 2, 3)}
NAMES = {name: f"example.net/{name}" for name in KEYS}
VKEYS = {name: trees.witness_vkey(NAMES[name], key) for name, key in KEYS.items()}
WITNESSES = "".join(f"witness {name} {vkey} https://{name}.example.net\n" for name, vkey in VKEYS.items())
LOG = f"log {KEY}\n"
GOOD = note()
LONGER = note(extra="more\n")


def text_of(checkpoint: str) -> str:
    return checkpoint.partition("\n\n")[0] + "\n"


TEXT = text_of(GOOD)
SAYS = {"origin": NAME, "size": "5", "root": trees.tree_of(LEAVES[:5]).hex()}
TIME = 1_793_610_000
OTHER_NAME = "example.org/other"
LATE = json.loads((Path(__file__).with_name("ml-dsa-44.json")).read_text(encoding="utf-8"))
"""An ML-DSA-44 key, and its cosignature of the same checkpoint."""


def line(name: str, time: int = TIME, text: str = TEXT, key: Ed25519PrivateKey | None = None) -> str:
    return trees.cosignature(text, NAMES[name], key or KEYS[name], time)


def given(rules: str, *lines: str, checkpoint: str = GOOD, key: str = KEY) -> Doc:
    return {"note": checkpoint + "".join(lines), "policy": rules, "key": key}


def seen(name: str, rules: str, cosigned: Doc, *lines: str) -> CaseDraft:
    return case(name, given(rules, *lines), SAYS | {"witnesses": cosigned})


def short(name: str, rules: str, *lines: str) -> CaseDraft:
    return fail(name, given(rules, *lines), "the quorum is not reached")


def no_policy(name: str, rules: str, why: str) -> CaseDraft:
    return fail(name, given(rules, line("w1"), line("w2"), line("w3")), why)


def flipped(signed: str, at: int) -> str:
    """A cosignature with one bit the other way round."""
    head, _, encoded = signed.rpartition(" ")
    data = bytearray(base64.b64decode(encoded))
    data[at] ^= 1
    return f"{head} {base64.b64encode(data).decode()}\n"


TWO_OF = f"{LOG}{WITNESSES}group two 2 w1 w2 w3\nquorum two\n"
BOTH, AT = (line("w1"), line("w3")), str(TIME)
W1 = WITNESSES.partition("\n")[0] + "\n"
AGAIN = trees.witness_vkey("example.net/other", KEYS["w1"])
PQ = f"witness pq {LATE['vkey']}\nquorum pq\n"

WITNESSED = [
    seen("two of three", TWO_OF, {"w1": AT, "w3": AT}, *BOTH),
    seen("more than are needed", TWO_OF, {"w1": AT, "w2": AT, "w3": AT}, line("w2"), *BOTH),
    seen("one witness", f"{WITNESSES}quorum w2\n", {"w2": AT}, line("w2")),
    seen("any", f"{WITNESSES}group g any w1 w2\nquorum g\n", {"w2": AT}, line("w2")),
    seen("all", f"{WITNESSES}group g all w1 w3\nquorum g\n", {"w1": AT, "w3": AT}, *BOTH),
    seen("a group of groups", f"{WITNESSES}group g any w1 w2\ngroup h all g w3\nquorum h\n", {"w1": AT, "w3": AT}, *BOTH),
    seen("nobody is demanded", f"{LOG}quorum none\n", {}, *BOTH),
    seen("no log is named, so any is good", f"{WITNESSES}quorum w1\n", {"w1": AT}, line("w1")),
    seen("a comment, tabs, and an empty line", f"# ours\n\n\t{LOG}{WITNESSES} \tquorum\tw1 \n", {"w1": AT}, line("w1")),
    seen("the newer of two cosignatures", f"{W1}quorum w1\n", {"w1": str(TIME + 9)}, line("w1", TIME + 9), line("w1")),
    seen("a witness that the policy does not name", f"{W1}quorum w1\n", {"w1": AT}, line("w2"), line("w1")),
    seen("a key that the policy does not name", f"{W1}quorum w1\n", {"w1": AT}, line("w1", key=TWO), line("w1")),
    seen("at the time 0", f"{W1}quorum w1\n", {"w1": "0"}, line("w1", 0)),
    seen("ML-DSA-44", PQ, {"pq": AT}, LATE["line"]),
    case(
        "a line after the root",
        given(
            f"{W1}quorum w1\n", line("w1", text=note(extra="more\n").partition("\n\n")[0] + "\n"), checkpoint=note(extra="more\n")
        ),
        SAYS | {"witnesses": {"w1": AT}},
    ),
    short("nobody cosigned", TWO_OF),
    short("one of three", TWO_OF, line("w1")),
    short("one of three, twice", TWO_OF, line("w1"), line("w1", TIME + 1)),
    short("the other group", f"{WITNESSES}group g any w1 w2\ngroup h all g w3\nquorum h\n", line("w1"), line("w2")),
    fail("another log", given(TWO_OF.replace(KEY, trees.vkey(OTHER_NAME, TWO)), *BOTH), "the policy does not name it"),
    fail(
        "the name of another log",
        given(TWO_OF.replace(KEY, trees.vkey(OTHER_NAME, ONE)), *BOTH),
        "the name is part of it",
    ),
    fail("not signed by the log", given(TWO_OF, *BOTH, key=trees.vkey(NAME, TWO)), "the log signs first"),
    fail("a bit of a time", given(TWO_OF, flipped(line("w1"), 11), line("w3"), line("w2")), "the time is signed"),
    fail("a bit of a signature", given(TWO_OF, flipped(line("w1"), 30), line("w3"), line("w2")), "one is wrong"),
    fail(
        "a cosignature of another checkpoint",
        given(TWO_OF, line("w1", text=text_of(note(4))), line("w3"), line("w2")),
        "one is wrong",
    ),
    fail("a time of 2^63", given(f"{W1}quorum w1\n", line("w1", 2**63)), "times are below 2^63"),
    fail("a bit of ML-DSA-44", given(PQ, flipped(LATE["line"], 900)), "it is wrong"),
    fail("ML-DSA-44 of another checkpoint", given(PQ, LATE["line"], checkpoint=note(4)), "it is wrong"),
    no_policy("no quorum", WITNESSES, "a policy has a quorum"),
    no_policy("two quorums", f"{WITNESSES}quorum w1\nquorum w2\n", "it has one"),
    no_policy("a quorum before its witness", f"quorum w1\n{WITNESSES}", "names are defined above"),
    no_policy("a group of a later one", f"{WITNESSES}group h any g\ngroup g any w1\nquorum h\n", "names are defined above"),
    no_policy("a member of two groups", f"{WITNESSES}group g any w1\ngroup h any w1\nquorum h\n", "a name is in one group"),
    no_policy("a member twice", f"{WITNESSES}group g 1 w1 w1\nquorum g\n", "a name is in a group once"),
    no_policy("none as a member", f"{WITNESSES}group g any none\nquorum g\n", "none is no witness"),
    no_policy("a name twice", f"{W1}{W1}quorum w1\n", "names are given once"),
    no_policy("a key twice", f"{W1}{W1.replace('witness w1', 'witness w9')}quorum w1\n", "keys are given once"),
    no_policy(
        "a key twice, under another name of it",
        f"{W1}witness w9 {trees.witness_vkey('example.net/other', KEYS['w1'])}\nquorum w1\n",
        "keys are given once",
    ),
    no_policy("more than there are", f"{WITNESSES}group g 4 w1 w2 w3\nquorum g\n", "there are three"),
    no_policy("none of them", f"{WITNESSES}group g 0 w1 w2 w3\nquorum g\n", "at least one"),
    no_policy("a zero before the number", f"{WITNESSES}group g 01 w1 w2 w3\nquorum g\n", "numbers have one spelling"),
    no_policy("a group without members", f"{WITNESSES}group g any\nquorum g\n", "at least one"),
    no_policy("the key of a log as a witness", f"witness w1 {KEY}\nquorum w1\n", "it has another type"),
    no_policy(
        "the key of a witness as a log",
        f"log {VKEYS['w1']}\n{WITNESSES}quorum w1\n",
        "it has another type",
    ),
    no_policy("a line that is none", f"{WITNESSES}quorums w1\n", "there are four kinds of line"),
    no_policy("lines of Windows", f"{WITNESSES}quorum w1\n".replace("\n", "\r\n"), "only tabs are control characters"),
]


OTHER = [*LEAVES[:2], *LEAVES[6:9], *LEAVES[2:6]]
"""The leaves of another history, which begins alike."""


def other(size: int) -> str:
    return trees.note(NAME, size, trees.tree_of(OTHER[:size]), ONE)


def proof(
    first: str, second: str, sizes: tuple[int, int] | None = None, leaves: list[bytes] | None = None, **changes: Any
) -> Doc:
    """The proof that two checkpoints are of two histories; sizes and leaves: of the second one's tree."""
    document: Doc = {"schema": "assay.fork/1", "key": KEY, "first": first, "second": second, "root": None, "hashes": []}
    if sizes is not None:
        known = (leaves or OTHER)[: sizes[1]]
        hashes = trees.consistency(sizes[0], known)
        document |= {
            "root": trees.tree_of(known[: sizes[0]]).hex(),
            "hashes": [base64.b64encode(digest).decode() for digest in hashes],
        }
    return {"proof": json.dumps(document | changes, ensure_ascii=False)}


APART = proof(note(3), other(7), (3, 7))
FORKS = [
    case("the same size", proof(note(5), other(5)), {"origin": NAME, "first": "5", "second": "5"}),
    case("another size", APART, {"origin": NAME, "first": "3", "second": "7"}),
    case("the other one is larger", proof(other(4), note(9), (4, 9), LEAVES), {"origin": NAME, "first": "4", "second": "9"}),
    fail("the same tree", proof(note(5), note(5)), "one tree is no fork"),
    fail("it only grew", proof(note(2), note(7), (2, 7), LEAVES), "the second begins with the first"),
    fail("they part later", proof(note(2), other(7), (2, 7)), "the second begins with the first"),
    fail("nothing between them", proof(note(3), other(7)), "nothing shows how the second begins"),
    fail("the larger one first", proof(other(7), note(3), (3, 7)), "the smaller comes first"),
    fail("a hash is missing", proof(note(3), other(7), (3, 7), hashes=[]), "the proof leads nowhere"),
    fail("another root", proof(note(3), other(7), (3, 7), root="00" * 32), "the proof leads elsewhere"),
    fail("another key", proof(note(5), other(5), key=trees.vkey(NAME, TWO)), "it signed neither"),
    fail("signed by two keys", proof(note(5), trees.note(NAME, 5, trees.tree_of(OTHER[:5]), TWO)), "anybody can sign one"),
    fail("another format", proof(note(5), other(5), schema="assay.fork/2"), "it is not known"),
    fail("a field too many", proof(note(5), other(5), more=1), "fields are closed"),
]

FILES = [
    File("witnessed", "witnessed", "Whether a quorum of a policy cosigned (C2SP tlog-cosignature, tlog-policy).", WITNESSED),
    File("fork", "fork", "That the key of a log signed two histories (SPEC 6, Witnesses).", FORKS),
]
