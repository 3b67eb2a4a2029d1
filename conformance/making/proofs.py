"""Cases of trees, proofs and checkpoints. What must be refused has a name that ends in `_fail`. SPEC 6."""

from __future__ import annotations

import base64
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from oracle import trees

from .case import CaseDraft, File, case, refused

__all__ = ["ENTRIES", "FILES", "KEY", "LEAVES", "NAME", "ONE", "TWO", "fail", "flipped", "note"]

Doc = dict[str, Any]

ONE, TWO = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
NAME = "example.org/log"
KEY = trees.vkey(NAME, ONE)
ENTRIES = [f"entry {number}".encode() for number in range(9)]
LEAVES = [trees.leaf(entry) for entry in ENTRIES]
SIZES = (1, 2, 3, 5, 7, 8, 9)


def fail(name: str, given: Doc, why: str) -> CaseDraft:
    return refused(f"{name}_fail", given, why)


def flipped(text: str, at: int = 0) -> str:
    """Hex digits with one bit the other way round."""
    return text[:at] + f"{int(text[at], 16) ^ 1:x}" + text[at + 1 :]


def hexed(hashes: list[bytes]) -> list[str]:
    return [digest.hex() for digest in hashes]


def tree(name: str, entries: list[bytes], root: str | None = None, **more: int) -> CaseDraft:
    return case(name, {"entries": hexed(entries), **more}, None if root is None else {"root": root})


CT = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
TREES = [
    tree("no entries: the SHA-256 of nothing", [], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    tree("one empty entry", CT[:1], "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
    tree("two", CT[:2], "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"),
    tree("three: the last goes up alone", CT[:3], "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"),
    tree("seven", CT[:7], "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c"),
    tree("eight, as Certificate Transparency tests them", CT, "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"),
    tree("an entry that looks like a node", [b"\x01" + bytes(64)]),
    *(
        tree(f"{size}: proof of {index}", ENTRIES[:size], index=index)
        for size in SIZES
        for index in sorted({0, size // 2, size - 1})
    ),
    *(
        tree(f"{size}: from {old}", ENTRIES[:size], old=old)
        for size in SIZES
        for old in sorted({0, 1, size // 2, size - 1, size})
    ),
    fail("proof of an entry beyond the last", {"entries": hexed(ENTRIES[:3]), "index": 3}, "there are three entries"),
    fail("proof in no entries", {"entries": [], "index": 0}, "there is no entry"),
    fail("from more than there are", {"entries": hexed(ENTRIES[:3]), "old": 4}, "a tree does not get smaller"),
    fail("half a byte", {"entries": ["0"]}, "a byte has two hex digits"),
]


def included(size: int, index: int) -> Doc:
    proof = hexed(trees.inclusion(index, LEAVES[:size]))
    top = trees.tree_of(LEAVES[:size]).hex()
    return {"root": top, "size": size, "index": index, "entry": ENTRIES[index].hex(), "proof": proof}


def consistent(old: int, new: int) -> Doc:
    roots = {"old_root": trees.tree_of(LEAVES[:old]).hex(), "new_root": trees.tree_of(LEAVES[:new]).hex()}
    return {"old": old, **roots, "new": new, "proof": hexed(trees.consistency(old, LEAVES[:new]))}


def wrong_proofs(proof: list[str]) -> list[tuple[str, list[str], str]]:
    """Proofs that are another, with a name and a reason each."""
    last = len(proof) - 1
    return [
        ("a bit of the first hash", [flipped(proof[0]), *proof[1:]], "every bit counts"),
        ("a bit of the last hash", [*proof[:-1], flipped(proof[-1], 63)], "every bit counts"),
        ("two hashes swapped", [proof[1], proof[0], *proof[2:]], "the order counts"),
        ("the last hash missing", proof[:last], "it does not reach the root"),
        ("the first hash missing", proof[1:], "it does not begin at the leaf"),
        ("one hash more", [*proof, proof[0]], "it goes on after the root"),
        ("no hashes", [], "it does not reach the root"),
    ]


SIX = included(9, 5)
INCLUSION = [
    *(case(f"{index} of {size}", included(size, index), {"included": True}) for size in SIZES for index in range(size)),
    *(fail(f"5 of 9: {name}", SIX | {"proof": proof}, why) for name, proof, why in wrong_proofs(SIX["proof"])),
    fail("5 of 9: a bit of the entry", SIX | {"entry": flipped(SIX["entry"])}, "it is another entry"),
    fail("5 of 9: a bit of the root", SIX | {"root": flipped(SIX["root"])}, "it is another tree"),
    fail("5 of 9: another index", SIX | {"index": 4}, "it is at 5"),
    fail("5 of 9: an index on the other side", SIX | {"index": 1}, "it is at 5"),
    fail("5 of 9: another size", SIX | {"size": 8}, "a tree of 8 is another"),
    fail("5 of 9: the proof of 4", SIX | {"proof": included(9, 4)["proof"]}, "it is the proof of another entry"),
    fail("5 of 9: the proof in 8", SIX | {"proof": included(8, 5)["proof"]}, "it is the proof in another tree"),
    fail("the index is the size", included(9, 8) | {"index": 9}, "indices are below the size"),
    fail(
        "in no entries", {"root": trees.tree_of([]).hex(), "size": 0, "index": 0, "entry": "", "proof": []}, "there is no entry"
    ),
    fail(
        "a node as an entry",
        included(2, 0) | {"size": 1, "entry": (LEAVES[0] + LEAVES[1]).hex(), "proof": []},
        "leaves and nodes differ",
    ),
]
SEVEN = consistent(5, 9)
CONSISTENCY = [
    *(case(f"{old} to {new}", consistent(old, new), {"consistent": True}) for new in (1, 2, 5, 8, 9) for old in range(new + 1)),
    case("nothing to nothing", consistent(0, 0), {"consistent": True}),
    *(fail(f"5 to 9: {name}", SEVEN | {"proof": proof}, why) for name, proof, why in wrong_proofs(SEVEN["proof"])),
    *(
        fail(f"4 to 9: {name}", consistent(4, 9) | {"proof": proof}, why)
        for name, proof, why in wrong_proofs(consistent(4, 9)["proof"])
    ),
    fail("5 to 9: a bit of the old root", SEVEN | {"old_root": flipped(SEVEN["old_root"])}, "it was another tree"),
    fail("5 to 9: a bit of the new root", SEVEN | {"new_root": flipped(SEVEN["new_root"])}, "it is another tree"),
    fail("5 to 9: the roots swapped", SEVEN | {"old_root": SEVEN["new_root"], "new_root": SEVEN["old_root"]}, "each has its own"),
    fail("5 to 9: another old size", SEVEN | {"old": 6}, "the proof is from 5"),
    fail("5 to 9: the proof from 3", SEVEN | {"proof": consistent(3, 9)["proof"]}, "it is from another tree"),
    fail(
        "forked: another entry in the middle", SEVEN | {"old_root": trees.root([*ENTRIES[:4], b"?"]).hex()}, "it is another log"
    ),
    fail("one size, two roots", consistent(9, 9) | {"new_root": flipped(SEVEN["new_root"])}, "a size has one root"),
    fail("one size, and hashes", consistent(9, 9) | {"proof": SEVEN["proof"]}, "there is nothing to prove"),
    fail("from nothing, and hashes", consistent(0, 9) | {"proof": SEVEN["proof"]}, "there is nothing to prove"),
    fail("from nothing with a root", consistent(0, 9) | {"old_root": SEVEN["old_root"]}, "the empty tree has its own root"),
    fail("nothing to nothing, with a root", consistent(0, 0) | {"new_root": SEVEN["new_root"]}, "the empty tree has another"),
    fail("nothing to nothing, with another old root", consistent(0, 0) | {"old_root": SEVEN["new_root"]}, "it has its own root"),
    fail("rolled back: fewer entries than before", consistent(5, 9) | {"old": 9, "new": 5}, "a log does not get smaller"),
]


def note(size: int = 5, key: Ed25519PrivateKey = ONE, name: str = NAME, extra: str = "") -> str:
    """A signed checkpoint of the first entries."""
    text = f"{name}\n{size}\n{base64.b64encode(trees.tree_of(LEAVES[:size])).decode()}\n{extra}"
    return f"{text}\n{trees.signature(text, name, key)}"


GOOD = note()
TEXT, LINE = GOOD.split("\n\n")
ROOT = TEXT.split("\n")[2]
BY_TWO = note(key=TWO).split("\n\n")[1]
WITNESS = trees.signature(f"{TEXT}\n", "witness.example/w", TWO)
SAYS = {"origin": NAME, "size": "5", "root": trees.tree_of(LEAVES[:5]).hex()}


def read(name: str, text: str, *keys: str) -> CaseDraft:
    return case(name, {"note": text, "keys": list(keys or [KEY])}, SAYS)


def no_note(name: str, text: str, why: str, *keys: str) -> CaseDraft:
    return fail(name, {"note": text, "keys": list(keys or [KEY])}, why)


def resigned(text: str) -> str:
    """Another text, signed by the right key."""
    return f"{text}\n{trees.signature(text, NAME, ONE)}"


def mended(old: str, new: str) -> str:
    assert old in GOOD, old
    return GOOD.replace(old, new)


CHECKPOINT = [
    read("signed by its key", GOOD),
    read("one of two keys", GOOD, trees.vkey(NAME, TWO), KEY),
    read("a witness that is not known, after it", f"{TEXT}\n\n{LINE}{WITNESS}"),
    read("a witness that is not known, before it", f"{TEXT}\n\n{WITNESS}{LINE}"),
    read("another key of the same name", f"{TEXT}\n\n{BY_TWO}{LINE}"),
    read("signed by two keys that are known", f"{TEXT}\n\n{BY_TWO}{LINE}", KEY, trees.vkey(NAME, TWO)),
    read("a line after the root", note(extra="something else\n")),
    case("of no entries", {"note": note(0), "keys": [KEY]}, {"size": "0"}),
    no_note("another key", GOOD, "the key is not the signer's", trees.vkey(NAME, TWO)),
    no_note("another name of the key", GOOD, "the key is of another log", trees.vkey("example.org/other", ONE)),
    fail("no keys", {"note": GOOD, "keys": []}, "nobody is believed"),
    no_note("a bit of the size", mended("\n5\n", "\n4\n"), "the text was signed"),
    no_note("a bit of the origin", mended(f"{NAME}\n", "example.org/loh\n"), "the text was signed"),
    no_note("a bit of the root", mended(ROOT, ("A" if ROOT[0] != "A" else "B") + ROOT[1:]), "the text was signed"),
    no_note("a signature of another text", f"{TEXT}\n\n{note(4).split(chr(10) * 2)[1]}", "the text was signed"),
    no_note(
        "a wrong signature of a known key beside a right one", f"{TEXT}\n\n{LINE}{note(4).split(chr(10) * 2)[1]}", "one is wrong"
    ),
    no_note("only a witness that is not known", f"{TEXT}\n\n{WITNESS}", "nobody who is known signed it"),
    no_note("the log of another name", resigned(f"example.org/other\n5\n{ROOT}\n"), "the origin is the name of the key"),
    no_note("a zero before the size", resigned(f"{NAME}\n05\n{ROOT}\n"), "numbers have one spelling"),
    no_note("a size below 0", resigned(f"{NAME}\n-5\n{ROOT}\n"), "numbers have no sign"),
    no_note("a size of 2^63", resigned(f"{NAME}\n{2**63}\n{ROOT}\n"), "sizes are below 2^63"),
    no_note("a root of 31 bytes", resigned(f"{NAME}\n5\n{base64.b64encode(bytes(31)).decode()}\n"), "roots have 32 bytes"),
    no_note("a root without padding", resigned(f"{NAME}\n5\n{ROOT[:-1]}\n"), "base64 has one spelling"),
    no_note(
        "a root with bits after its end",
        resigned(f"{NAME}\n5\n{ROOT[:-2]}{chr(ord(ROOT[-2]) + 1)}=\n"),
        "base64 has one spelling",
    ),
    no_note(
        "a root in the URL-safe alphabet",
        resigned(f"{NAME}\n5\n{base64.urlsafe_b64encode(bytes([255]) * 32).decode()}\n"),
        "notes are in the standard one",
    ),
    no_note("another root of no entries", resigned(f"{NAME}\n0\n{ROOT}\n"), "the empty tree has its own root"),
    no_note("no root", resigned(f"{NAME}\n5\n"), "a checkpoint has three lines"),
    no_note("an empty line in it", resigned(f"{NAME}\n5\n{ROOT}\n\nmore\n"), "lines are not empty"),
    no_note("a tab that was signed", resigned(f"{NAME}\n5\n{ROOT}\na\tb\n"), "a note has no control characters"),
    no_note("no signature", f"{TEXT}\n\n", "a note is signed"),
    no_note("no empty line before the signature", f"{TEXT}\n{LINE}", "an empty line separates them"),
    no_note("no line end", GOOD.rstrip("\n"), "the last line ends"),
    no_note("lines of Windows", GOOD.replace("\n", "\r\n"), "a note has no control characters"),
    no_note("a hyphen for the dash", mended("—", "-"), "a signature begins with an em dash"),
    no_note("two spaces before the name", mended("— ", "—  "), "there is one space"),
    no_note("text after the signature", f"{GOOD}more\n", "signatures are last"),
    no_note("the key without its digits", GOOD, "a vkey has three parts", KEY.replace(KEY.split("+")[1], "")),
    no_note("the key with other digits", GOOD, "the digits are those of the key", KEY.replace(KEY.split("+")[1], "00000000")),
]


FILES = [
    File("merkle-tree", "merkle-tree", "Roots and proofs of RFC 6962 (SPEC 6).", TREES),
    File("inclusion", "inclusion", "That an entry is in a tree (RFC 9162, 2.1.3.2).", INCLUSION),
    File("consistency", "consistency", "That one tree goes on from another (RFC 9162, 2.1.4.2).", CONSISTENCY),
    File("checkpoint", "checkpoint", "What a log says of itself, signed (C2SP tlog-checkpoint, signed-note).", CHECKPOINT),
]
