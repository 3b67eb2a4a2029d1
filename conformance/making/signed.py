"""Cases of what is signed and kept: log proofs, envelopes, tiles, logs, batches. What must be refused ends in `_fail`. SPEC 6."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from oracle import envelopes, trees

from .case import CaseDraft, File, case
from .proofs import ENTRIES, KEY, LEAVES, NAME, ONE, TWO, fail, flipped, note

__all__ = ["FILES"]

Doc = dict[str, Any]

PROOF = trees.proof(2, trees.inclusion(2, LEAVES[:5]), note())


def proof(name: str, text: str, index: int = 2, size: int = 5) -> CaseDraft:
    given = {"proof": text, "entry": ENTRIES[index].hex(), "keys": [KEY]}
    return case(name, given, {"origin": NAME, "index": str(index), "size": str(size)})


def no_proof(name: str, text: str, why: str, **change: Any) -> CaseDraft:
    return fail(name, {"proof": text, "entry": ENTRIES[2].hex(), "keys": [KEY]} | change, why)


def lines(change: Any) -> str:
    """The proof with other lines before the checkpoint."""
    head, checkpoint = PROOF.split("\n\n", 1)
    return "\n".join(change(head.split("\n"))) + f"\n\n{checkpoint}"


HASHES = PROOF.split("\n\n")[0].split("\n")[2:]
LOG_PROOF = [
    proof("an entry of five", PROOF),
    proof("the only entry", trees.proof(0, [], note(1)), 0, 1),
    proof("a line of extra data, which nobody has signed", lines(lambda rows: [rows[0], "extra AAAA", *rows[1:]])),
    no_proof("another entry", PROOF, "it is the proof of one entry", entry=ENTRIES[3].hex()),
    no_proof("another key", PROOF, "the key is not the signer's", keys=[trees.vkey(NAME, TWO)]),
    no_proof("another index", PROOF.replace("index 2", "index 3"), "it is at 2"),
    no_proof("an index beyond the log", PROOF.replace("index 2", "index 7"), "there are five entries"),
    no_proof("a zero before the index", PROOF.replace("index 2", "index 02"), "numbers have one spelling"),
    no_proof("two hashes swapped", lines(lambda rows: [*rows[:2], rows[3], rows[2], *rows[4:]]), "the order counts"),
    no_proof("a hash missing", lines(lambda rows: rows[:-1]), "it does not reach the root"),
    no_proof("a hash more", lines(lambda rows: [*rows, rows[-1]]), "it goes on after the root"),
    no_proof("a hash of 31 bytes", PROOF.replace(HASHES[0], base64.b64encode(bytes(31)).decode()), "hashes have 32 bytes"),
    no_proof("a hash in hex", PROOF.replace(HASHES[0], "00" * 32), "hashes are in base64"),
    no_proof(
        "the checkpoint of another size", trees.proof(2, trees.inclusion(2, LEAVES[:5]), note(6)), "it leads to another root"
    ),
    no_proof("the proof of another entry", trees.proof(2, trees.inclusion(3, LEAVES[:5]), note()), "proofs are not exchangeable"),
    no_proof("a checkpoint that was changed", PROOF.replace("\n5\n", "\n4\n"), "the checkpoint was signed"),
    no_proof("another version", PROOF.replace("@v1", "@v2"), "there is no such version"),
    no_proof("two lines of extra data", lines(lambda rows: [rows[0], "extra AAAA", "extra AAAA", *rows[1:]]), "there is one"),
    no_proof("extra data after the index", lines(lambda rows: [*rows[:2], "extra AAAA", *rows[2:]]), "it comes before the index"),
    no_proof("no index", lines(lambda rows: [rows[0], *rows[2:]]), "a proof says where"),
    no_proof("no checkpoint", PROOF.split("\n\n")[0] + "\n", "a proof leads to a checkpoint"),
    no_proof("65 hashes", lines(lambda rows: [*rows[:2], *([rows[2]] * 65)]), "no tree is that high"),
]

BODY = json.dumps({"~~~???>>>": "~~~~???>>>>", "_type": "https://in-toto.io/Statement/v1", "~": ">>>???~~~>>>>???~~~"}).encode()
ENVELOPE = envelopes.dsse(BODY, ONE)
FIRST, SECOND = (f"ed25519:{key.public_key().public_bytes_raw().hex()}" for key in (ONE, TWO))


def safe(text: str) -> str:
    return text.replace("+", "-").replace("/", "_")


def signatures(*changes: Doc) -> Doc:
    return ENVELOPE | {"signatures": [ENVELOPE["signatures"][0] | change for change in changes]}


def envelope(name: str, document: Doc | str, keys: list[str], signed_by: list[str], threshold: int = 1) -> CaseDraft:
    text = document if isinstance(document, str) else json.dumps(document)
    given = {"json": text, "keys": keys} | ({"threshold": threshold} if threshold > 1 else {})
    return case(name, given, {"payload": BODY.hex(), "signed_by": signed_by})


def no_envelope(name: str, document: Doc | str, why: str, keys: list[str] | None = None, threshold: int = 1) -> CaseDraft:
    text = document if isinstance(document, str) else json.dumps(document)
    return fail(
        name, {"json": text, "keys": [FIRST] if keys is None else keys} | ({"threshold": threshold} if threshold > 1 else {}), why
    )


# An sr25519 signature draws a random number, so these were made once, by the seed 5a… (32 bytes).
HOTKEY = "sr25519:9eda665dd261ad54955ad987dbb02c116100953d1f841b81a54912f01f3bc057"
ADDRESS = "5FezJRgQestMaqzff7CRcxn3D4SoFWNw3SXLgfq5GX1vKGoX"
PLAIN = "MBvcm6MTdKKbwrV1Wd7Yg8yWUVb0iOLtz1Edm1EI9SmXtP7a/cTfkzXncbFk9/voDIX+KLHySm7rRY5YXcySiA=="
WRAPPED = "Rr+KEK4JEC5N0xTJLvetaT+BcmC1uITOlsepEkaQ4hB0UvcOlU2bSAe5UQwnMJDDNIctc5ss2Y8Tlta1rBdQjg=="


def hot(signature: str) -> Doc:
    """The envelope, signed by a hotkey."""
    return ENVELOPE | {"signatures": [{"keyid": HOTKEY, "sig": signature}]}


WHOLE = ENVELOPE["payload"]
SIG = ENVELOPE["signatures"][0]["sig"]
BOTH = envelopes.dsse(BODY, ONE, TWO)
DSSE = [
    envelope("signed by its key", ENVELOPE, [FIRST], [FIRST]),
    envelope("one of two keys", ENVELOPE, [SECOND, FIRST], [FIRST]),
    envelope("two of two keys", BOTH, [FIRST, SECOND], [FIRST, SECOND], 2),
    envelope("without a keyid", ENVELOPE | {"signatures": [{"sig": SIG}]}, [FIRST], [FIRST]),
    envelope("a keyid is a hint", signatures({"keyid": SECOND}), [FIRST], [FIRST]),
    envelope("a signature of somebody beside it", BOTH, [SECOND], [SECOND]),
    envelope("the payload in the URL-safe alphabet", ENVELOPE | {"payload": safe(WHOLE)}, [FIRST], [FIRST]),
    envelope("the signature in the URL-safe alphabet", signatures({"sig": safe(SIG)}), [FIRST], [FIRST]),
    envelope("a field that DSSE does not know", ENVELOPE | {"comment": "x"}, [FIRST], [FIRST]),
    envelope("a hotkey's signature (sr25519)", hot(PLAIN), [HOTKEY], [HOTKEY]),
    envelope("a hotkey by its address", hot(PLAIN), [ADDRESS], [HOTKEY]),
    envelope("a hotkey that signs <Bytes> around the message, as wallets do", hot(WRAPPED), [HOTKEY], [HOTKEY]),
    no_envelope(
        "a bit of a hotkey's signature", hot(("B" if PLAIN[0] == "A" else "A") + PLAIN[1:]), "every bit counts", [HOTKEY]
    ),
    no_envelope("an sr25519 signature for Ed25519", hot(PLAIN), "the kind of a key counts", ["ed25519:" + HOTKEY[8:]]),
    no_envelope("an Ed25519 signature for sr25519", ENVELOPE, "the kind of a key counts", ["sr25519:" + FIRST[8:]]),
    no_envelope("an address with another checksum", hot(PLAIN), "it is not an address", [ADDRESS[:-1] + "1"]),
    no_envelope("another key", ENVELOPE, "the key is not the signer's", [SECOND]),
    no_envelope("no keys", ENVELOPE, "nobody is believed", []),
    no_envelope("one key twice for a threshold of two", ENVELOPE, "keys are counted, not signatures", [FIRST, FIRST], 2),
    no_envelope("one signature twice for a threshold of two", signatures({}, {}), "keys are counted", [FIRST, SECOND], 2),
    no_envelope(
        "a bit of the payload", ENVELOPE | {"payload": ("f" if WHOLE[0] == "e" else "e") + WHOLE[1:]}, "the payload is signed"
    ),
    no_envelope("a bit of the signature", signatures({"sig": ("B" if SIG[0] == "A" else "A") + SIG[1:]}), "every bit counts"),
    no_envelope("another type, which was signed", envelopes.dsse(BODY, ONE, kind="text/plain"), "the type is that of in-toto"),
    no_envelope(
        "another type was signed",
        envelopes.dsse(BODY, ONE, kind="text/plain") | {"payloadType": envelopes.TYPE},
        "the type is signed",
    ),
    no_envelope(
        "two spellings of the payload", json.dumps(ENVELOPE)[:-1] + f', "payload": "{safe(WHOLE)}"}}', "a key stands once"
    ),
    no_envelope(
        "one spelling of the payload, twice", json.dumps(ENVELOPE)[:-1] + f', "payload": "{WHOLE}"}}', "a key stands once"
    ),
    no_envelope("two signatures in one", json.dumps(ENVELOPE).replace('"sig":', f'"sig": "{SIG}", "sig":'), "a key stands once"),
    no_envelope(
        "both alphabets in one payload",
        ENVELOPE | {"payload": safe(WHOLE[: len(WHOLE) // 2]) + WHOLE[len(WHOLE) // 2 :]},
        "one text has one alphabet",
    ),
    no_envelope("the payload without padding", ENVELOPE | {"payload": WHOLE.rstrip("=")}, "base64 has one spelling"),
    no_envelope("a line end in the payload", ENVELOPE | {"payload": f"{WHOLE[:8]}\n{WHOLE[8:]}"}, "base64 has one spelling"),
    no_envelope(
        "bits after the end of the signature",
        signatures({"sig": f"{SIG[:-3]}{chr(ord(SIG[-3]) + 1)}=="}),
        "base64 has one spelling",
    ),
    no_envelope(
        "a signature of 63 bytes", signatures({"sig": base64.b64encode(base64.b64decode(SIG)[:63]).decode()}), "it has 64 bytes"
    ),
    no_envelope("no signatures", ENVELOPE | {"signatures": []}, "an envelope is signed"),
    no_envelope("a signature without sig", ENVELOPE | {"signatures": [{"keyid": FIRST}]}, "a signature has a sig"),
    no_envelope("a keyid that is a number", signatures({"keyid": 1}), "a keyid is a text"),
    no_envelope("no payload", {k: v for k, v in ENVELOPE.items() if k != "payload"}, "an envelope has a payload"),
    no_envelope("no JSON", "DSSEv1", "an envelope is a JSON object"),
    no_envelope("a list", "[]", "an envelope is a JSON object"),
    no_envelope("a key that anybody can sign for", ENVELOPE, "it is of small order", ["ed25519:01" + "00" * 31]),
]


def path(name: str, level: int | str, index: int, width: int, expect: str) -> CaseDraft:
    assert trees.tile_name(level, index, width) == expect
    return case(name, {"level": level, "index": index, "width": width}, {"path": expect})


TILE_PATH = [
    path("the first", 0, 0, 256, "tile/0/000"),
    path("the example of the specification", 0, 1234067, 256, "tile/0/x001/x234/067"),
    path("two parts", 1, 1000, 256, "tile/1/x001/000"),
    path("the last of three digits", 2, 999, 256, "tile/2/999"),
    path("a partial one", 0, 273, 112, "tile/0/273.p/112"),
    path("entries", "entries", 1234067, 256, "tile/entries/x001/x234/067"),
    path("a part of the entries", "entries", 1000, 1, "tile/entries/x001/000.p/1"),
    path("the highest level", 63, 0, 255, "tile/63/000.p/255"),
    path("zeros within", 0, 10**9, 256, "tile/0/x001/x000/x000/000"),
    fail("level 64", {"level": 64, "index": 0, "width": 256}, "levels are 0 to 63"),
    fail("an empty tile", {"level": 0, "index": 0, "width": 0}, "there are no empty tiles"),
    fail("257 wide", {"level": 0, "index": 0, "width": 257}, "tiles have 256 hashes"),
    fail("below 0", {"level": 0, "index": -1, "width": 256}, "tiles count from 0"),
    fail("no such kind of tile", {"level": "data", "index": 0, "width": 256}, "there are entries and levels"),
]

MANY = [bytes([number // 256, number % 256]) for number in range(259)]


def files(entries: list[bytes]) -> dict[str, str]:
    """The files of a log, but for its checkpoint."""
    hashes, tiles = [trees.leaf(entry) for entry in entries], {}
    for level in (0, 1):
        for index in range(-(-len(entries) // 256 ** (level + 1))):
            if tile := trees.tile(level, index, hashes):
                tiles[trees.tile_name(level, index, len(tile))] = b"".join(tile).hex()
    for index in range(-(-len(entries) // 256)):
        part = entries[256 * index : 256 * (index + 1)]
        tiles[trees.tile_name("entries", index, len(part))] = b"".join(
            len(entry).to_bytes(2, "big") + entry for entry in part
        ).hex()
    return tiles


def at(entries: list[bytes], size: int) -> str:
    return trees.note(NAME, size, trees.root(entries[:size]), ONE)


def log(entries: list[bytes], **change: Any) -> Doc:
    return {"files": files(entries), "checkpoint": at(entries, len(entries)), "key": KEY} | change


def changed(name: str, data: str | None) -> Doc:
    """The log of five with another file; None: without it."""
    contents = files(FIVE) | {name: data}
    return log(FIVE, files={path: text for path, text in contents.items() if text is not None})


FIVE = ENTRIES[:5]
TILE, BUNDLE = "tile/0/000.p/5", "tile/entries/000.p/5"
HELD = files(FIVE)
FORKED = [*FIVE[:2], b"another", *FIVE[3:]]
TILED_LOG = [
    case("five entries", log(FIVE), {"size": "5", "root": trees.root(FIVE).hex(), "last": FIVE[4].hex()}),
    case("no entries", log([]), {"size": "0", "last": None}),
    case("a full tile", log(MANY[:256]), {"size": "256"}),
    case("a full tile and a part of one", log(MANY), {"size": "259", "root": trees.root(MANY).hex()}),
    case("goes on from a checkpoint of three", log(FIVE, seen=at(FIVE, 3))),
    case("the checkpoint that was seen", log(FIVE, seen=at(FIVE, 5))),
    case("tiles of a crash, of which no checkpoint speaks", log(FIVE, files=HELD | {"tile/0/000.p/6": "00"})),
    fail("a bit of the tile", changed(TILE, flipped(HELD[TILE], 70)), "hashes lead to the root"),
    fail("the tile cut off", changed(TILE, HELD[TILE][:-2]), "a tile is as long as its name says"),
    fail("the tile cut off by a hash", changed(TILE, HELD[TILE][:-64]), "a tile is as long as its name says"),
    fail("the tile too long", changed(TILE, HELD[TILE] + "00" * 32), "a tile is as long as its name says"),
    fail("no tile", changed(TILE, None), "the checkpoint needs it"),
    fail("a bit of an entry", changed(BUNDLE, flipped(HELD[BUNDLE], 11)), "entries are those of the hashes"),
    fail("the entries cut off", changed(BUNDLE, HELD[BUNDLE][:-2]), "it ends within an entry"),
    fail("the last entry missing", changed(BUNDLE, HELD[BUNDLE][: -2 * (len(FIVE[4]) + 2)]), "there are five"),
    fail("no entries where the checkpoint has five", changed(BUNDLE, None), "the checkpoint needs them"),
    fail("the tile of another log", changed(TILE, files(FORKED)[TILE]), "hashes lead to the root"),
    fail("the files of another log", log(FIVE, files=files(FORKED)), "hashes lead to the root"),
    fail(
        "a bit of the full tile",
        log(MANY, files=files(MANY) | {"tile/0/000": flipped(files(MANY)["tile/0/000"], 9)}),
        "its root is above it",
    ),
    fail(
        "a bit of the tile above",
        log(MANY, files=files(MANY) | {"tile/1/000.p/1": flipped(files(MANY)["tile/1/000.p/1"])}),
        "hashes lead to the root",
    ),
    fail("rolled back: a checkpoint of five was seen", log(FIVE[:3], seen=at(FIVE, 5)), "a log does not get smaller"),
    fail("forked before the checkpoint that was seen", log(FORKED, seen=at(FIVE, 3)), "it was another log"),
    fail("forked, and longer", log([*FORKED, b"more"], seen=at(FIVE, 5)), "it was another log"),
    fail("the checkpoint of another key", log(FIVE, checkpoint=note(key=TWO)), "the key is not the signer's"),
    fail("the checkpoint that was seen is of another key", log(FIVE, seen=note(3, key=TWO)), "the key is not the signer's"),
    fail("a larger checkpoint than there are tiles", log(FIVE, checkpoint=note(6)), "the tiles come before the checkpoint"),
    fail("a path that leads out", log(FIVE, files=HELD | {"tile/../../x": "00"}), "paths are those of tiles"),
]

V = ONE.public_key().public_bytes_raw().hex()


def seen(**changes: Any) -> Doc:
    """A record as it is signed: every default in it."""
    head = {"kind": "tests", "epoch": 3, "validator": V, "participant": "miner-1", "submission": "sha256:" + "0a" * 32}
    return head | {"observed_at": "2026-01-02T03:04:05Z", "task": "t1", "outcome": "pass", "trial": 1} | changes


RECORDS = [
    seen(),
    seen(task="t2", outcome="fail"),
    seen(task="t3", outcome="timeout"),
    seen(submission="é", participant="miner-2"),
]
SET = "sha256:" + "ab" * 32
BATCH = envelopes.batch(RECORDS, ONE, "term", SET).decode()
STATED, ROWS = envelopes.statement_of(RECORDS, "term", SET)
SORTED = [row.decode() for row in ROWS]
SIGNED = json.loads(BATCH.split("\n")[0])["signatures"][0]


def batch(name: str, text: str, statement: Doc = STATED, **more: str) -> CaseDraft:
    digest = f"sha256:{hashlib.sha256(envelopes.plain(statement)).hexdigest()}"
    return case(name, {"text": text} | more, {"digest": digest, "statement": statement})


def no_batch(name: str, text: str, why: str, **more: str) -> CaseDraft:
    return fail(name, {"text": text} | more, why)


def stated(change: Doc | None = None, rows: list[str] | None = None, **others: Any) -> str:
    """The batch with another predicate or other rows, rightly signed."""
    statement = STATED | {"predicate": STATED["predicate"] | (change or {})} | others
    head = envelopes.plain(envelopes.dsse(envelopes.plain(statement), ONE)).decode()
    return "".join(f"{row}\n" for row in [head, *(SORTED if rows is None else rows)])


def of_log(origin: str | None) -> Doc:
    """What the batch states, for another log."""
    return STATED | {"predicate": STATED["predicate"] | {"origin": origin}}


def of_version_1(statement: Doc, kind: str = "assay:evidence/v1") -> str:
    """The batch under a statement that names no log, rightly signed."""
    older = envelopes.first_version(statement) | {"predicateType": kind}
    head = envelopes.plain(envelopes.dsse(envelopes.plain(older), ONE)).decode()
    return "".join(f"{row}\n" for row in [head, *SORTED])


def row(old: str, new: str) -> list[str]:
    assert old in SORTED[0]
    return [SORTED[0].replace(old, new), *SORTED[1:]]


def loose(change: Doc) -> str:
    """The batch with another spelling of its envelope, and the same payload and signature."""
    head, rest = BATCH.split("\n", 1)
    return json.dumps(json.loads(head) | change) + "\n" + rest


GIVEN = {"kind": "given", "score": "0.5"} | {k: v for k, v in seen().items() if k not in ("task", "outcome", "trial", "kind")}
BATCHES = [
    batch("four records of two submissions", BATCH),
    batch("by its key, spelt with 0x", BATCH, key=f"0x{V}"),
    batch(
        "one record, of a kind without tasks",
        envelopes.batch([GIVEN], ONE, "term").decode(),
        envelopes.statement_of([GIVEN], "term", None)[0],
    ),
    batch("the same record twice is one", envelopes.batch([*RECORDS, RECORDS[0]], ONE, "term", SET).decode()),
    batch("the payload in the URL-safe alphabet", loose({"payload": safe(json.loads(BATCH.split("\n")[0])["payload"])})),
    batch("for no log", envelopes.batch(RECORDS, ONE, "term", SET, None).decode(), of_log(None)),
    batch("of version 1, which names no log", of_version_1(STATED), envelopes.first_version(STATED)),
    no_batch("of version 1, which names a log", stated(predicateType="assay:evidence/v1"), "version 1 has no origin"),
    no_batch("of version 2, without a log", of_version_1(STATED, "assay:evidence/v2"), "the origin is a name or null"),
    no_batch("a log without a name", stated({"origin": ""}), "the origin is a name or null"),
    batch("an envelope with spaces, and with a field that DSSE does not have", loose({"more": 1})),
    batch("a signature without a keyid, which is only a hint", loose({"signatures": [{"sig": SIGNED["sig"]}]})),
    no_batch(
        "a keyid of another",
        loose({"signatures": [SIGNED | {"keyid": f"ed25519:{TWO.public_key().public_bytes_raw().hex()}"}]}),
        "a keyid that is there is the validator's",
    ),
    no_batch("another key", BATCH, "the key is not the signer's", key=TWO.public_key().public_bytes_raw().hex()),
    no_batch("signed by somebody else", envelopes.batch(RECORDS, TWO, "term", SET).decode(), "a validator signs its own"),
    no_batch(
        "signed by somebody else, checked by his key",
        envelopes.batch(RECORDS, TWO, "term", SET).decode(),
        "the statement names another validator",
        key=TWO.public_key().public_bytes_raw().hex(),
    ),
    no_batch("a record less", stated(rows=SORTED[:-1]), "the statement counts four"),
    no_batch("a record less, and counted so", stated({"count": 3}, SORTED[:-1]), "the root is over four"),
    no_batch("a record more", BATCH + SORTED[0] + "\n", "the statement counts four"),
    no_batch("another record", stated(rows=row("miner-", "minor-")), "the root is of other records"),
    no_batch("another root", stated({"root": SET}), "the root is of these records"),
    no_batch("another epoch", stated({"epoch": 4}), "records are of the epoch"),
    no_batch(
        "another validator", stated({"validator": TWO.public_key().public_bytes_raw().hex()}), "records are the validator's"
    ),
    no_batch("another kind", stated({"kind": "given"}), "records are of the kind"),
    no_batch(
        "two records swapped", stated(rows=[SORTED[1], SORTED[0], *SORTED[2:]]), "records are in the order of their digests"
    ),
    no_batch("a record in another spelling", stated(rows=row('"epoch":3', '"epoch": 3')), "records are in canonical form"),
    no_batch("a record without a default", stated(rows=row(',"trial":1', "")), "records are in canonical form"),
    no_batch("a record with a seq", stated(rows=row('"epoch":3', '"epoch":3,"seq":1')), "the ledger gives it"),
    no_batch("a key twice in a record", stated(rows=row('"epoch":3', '"epoch":3,"epoch":3')), "a key stands once"),
    no_batch(
        "no record",
        stated(rows=row("pass", "maybe") if "pass" in SORTED[0] else ["{}", *SORTED[1:]]),
        "a record is one of evidence",
    ),
    no_batch("a statement with a field more", stated({"more": 1}), "statements are closed"),
    no_batch("a statement of another type", stated(predicateType="assay:receipt/v1"), "a batch is no receipt"),
    no_batch("the subjects swapped", stated(subject=STATED["subject"][::-1]), "subjects are in the order of their bytes"),
    no_batch("a subject missing", stated(subject=STATED["subject"][:1]), "there are two submissions"),
    no_batch(
        "a subject of another digest",
        stated(subject=[subject | {"digest": {"sha256": "0" * 64}} for subject in STATED["subject"]]),
        "the digest is that of the name",
    ),
    no_batch(
        "records that contradict one another",
        envelopes.batch([*RECORDS, seen(outcome="fail")], ONE, "term", SET).decode(),
        "a batch says one thing",
    ),
    no_batch("no records", BATCH.split("\n")[0] + "\n", "a batch has records"),
    no_batch("no line end", BATCH[:-1], "every line ends"),
    no_batch("an empty line", BATCH + "\n", "every line is a record"),
    no_batch("nothing", "", "a batch has an envelope"),
]

FILES = [
    File("log-proof", "log-proof", "That an entry is in a log (C2SP tlog-proof).", LOG_PROOF),
    File("dsse", "dsse", "Envelopes around in-toto payloads (DSSE v1).", DSSE),
    File("tile-path", "tile-path", "Where a tile is (C2SP tlog-tiles).", TILE_PATH),
    File("tiled-log", "tiled-log", "Logs as files: tiles, entries, a checkpoint (C2SP tlog-tiles).", TILED_LOG),
    File("batch", "batch", "Evidence as a validator signs it (SPEC 6).", BATCHES),
]
