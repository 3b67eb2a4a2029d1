"""A signed split that was changed, that somebody else signed, or that does not follow is refused by who verifies it."""

import base64
import json
import shutil
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import joint_kit
import ledger_kit
from assay.errors import Refused
from assay.exact import canonical, digest
from assay.ledger import bundle, check, keys, log, merkle, statements, subnet_bundle
from assay.ledger.access import open_ledger
from assay.ledger.keys import sign_envelope
from assay.ledger.merkle import Tree
from assay.ledger.verify import verify
from joint_kit import (
    EPOCH,
    KEY,
    KEYS,
    ORIGIN,
    ORIGINS,
    SIGNERS,
    SUBNET,
    Json,
    competition,
    settle,
)
from ledger_kit import SIGNER

place = pytest.fixture(scope="module")(joint_kit.signed_once)
exported = pytest.fixture(joint_kit.exported)


def put(old: str, new: str) -> Any:
    """A change that replaces the first of a text."""
    return lambda text: text.replace(old, new, 1)


CHANGES = [
    ("emission.receipt", lambda _: "{", "is not strict JSON"),
    ("emission.receipt", lambda _: "[]", "it does not have the format assay.emission-receipt/1"),
    ("emission.receipt", put("c2sp.org/tlog-proof@v1", "c2sp.org/tlog-proof@v2"), "log: "),
    ("log/checkpoint", put("my-subnet", "my-sobnet"), "log: "),
    ("competitions/1/settlement.json", put('"u16":', '"u16":1'), "u16 differs"),
    ("competitions/2/evidence/epoch-3.jsonl", put('"0.5"', '"0.6"'), "was changed after"),
]


@pytest.mark.parametrize(("name", "change", "why"), CHANGES)
def test_what_was_changed_is_found(exported: Path, name: str, change: Any, why: str) -> None:
    path = exported / name
    text = path.read_text(encoding="utf-8")
    assert change(text) != text
    path.write_text(change(text), encoding="utf-8")
    with pytest.raises(Refused) as error:
        verify(exported, key=KEY)
    assert why in str(error.value)


def forge(
    exported: Path,
    change: Callable[[Json], object],
    signer: keys.PrivateKey = SUBNET,
    *,
    digests: bool = True,
    before: Sequence[bytes] = (),
) -> None:
    """The signed split changed, and signed anew in a log of its own by a key: what the holder of the key can make of it.

    before: the entries that the log has before it.
    """
    payload = changed(exported, change, digests=digests)
    entries = [*before, sha256(payload).digest()]
    leaves = [check.leaf_hash(entry) for entry in entries]
    checkpoint = log.sign_checkpoint(len(leaves), merkle.root(leaves), log.log_key(ORIGIN, signer.public), signer)
    place = Tree(leaves).inclusion(len(leaves) - 1)
    document = statements.split_document(canonical(sign_envelope(payload, signer)), place, checkpoint)
    (exported / "emission.receipt").write_bytes(canonical(document))
    shutil.rmtree(exported / "log")
    for name, data in bundle.log_files(entries, checkpoint).items():
        (exported / "log" / name).parent.mkdir(parents=True, exist_ok=True)
        (exported / "log" / name).write_bytes(data)


def changed(exported: Path, change: Callable[[Json], object], *, digests: bool = True) -> bytes:
    """The statement of the signed split, changed; digests: with the digests of what it says then."""
    receipt = json.loads((exported / "emission.receipt").read_bytes())
    stated = json.loads(base64.b64decode(receipt["envelope"]["payload"]))
    change(stated["predicate"])
    predicate = stated["predicate"]
    if digests:
        predicate["split"]["digest"] = digest({name: value for name, value in predicate["split"].items() if name != "digest"})
        stated["subject"][0] |= {"name": f"{predicate['subnet']} epoch {predicate['epoch']}"}
        stated["subject"][0]["digest"]["sha256"] = predicate["split"]["digest"][7:]
    return canonical(stated)


def shares(predicate: Json) -> None:
    """70 and 30 % instead of 60 and 40, and the rao by them."""
    for row, share, rao in zip(predicate["split"]["competitions"], ("0.7", "0.3"), ("700", "300"), strict=True):
        row |= {"share": share, "emission": rao}


def twice(field: str) -> Callable[[Json], object]:
    def change(predicate: Json) -> None:
        first, second = predicate["split"]["receipts"]
        second[field] = first[field]

    return change


def test_a_split_that_somebody_else_signed_is_refused(exported: Path) -> None:
    forge(exported, lambda _: None)
    assert verify(exported, key=KEY).recomputed
    forge(exported, shares, SIGNER)
    with pytest.raises(Refused, match="it is not signed by the key"):
        verify(exported, key=KEY)
    receipt = json.loads((exported / "emission.receipt").read_bytes())
    receipt["envelope"]["signatures"][0]["keyid"] = SUBNET.public.id
    (exported / "emission.receipt").write_bytes(canonical(receipt))
    with pytest.raises(Refused, match="receipt: "):
        verify(exported, key=KEY)


@pytest.mark.parametrize(
    ("previous", "why"),
    [
        ({"epoch": 2, "receipt": f"sha256:{'ab' * 32}"}, "log: .*it does not name the split before it in the log"),
        (None, ""),
    ],
)
def test_the_first_split_of_a_log_follows_nothing(exported: Path, previous: Json | None, why: str) -> None:
    forge(exported, lambda predicate: predicate.update(previous=previous))
    if not why:
        assert verify(exported, key=KEY).recomputed
        return
    with pytest.raises(Refused, match=why):
        verify(exported, key=KEY)


@pytest.mark.parametrize(
    ("previous", "why"),
    [
        (None, "log: .*it does not name the split before it in the log"),
        ({"epoch": EPOCH, "receipt": f"sha256:{'ab' * 32}"}, "log: .*the split before it is not of an earlier epoch"),
        ({"epoch": 2, "receipt": f"sha256:{'ab' * 32}"}, "log: .*the split that it names is not the entry before it"),
        ({"epoch": 2, "receipt": f"sha256:{'01' * 32}"}, "log: .*earlier splits of the log are missing \\(1\\)"),
    ],
)
def test_an_epoch_is_not_signed_twice_in_one_log(exported: Path, previous: Json | None, why: str) -> None:
    """A second split of the epoch, after the first in the same log: who shows it must say what it follows."""
    forge(exported, lambda predicate: predicate.update(previous=previous), before=[b"\x01" * 32])
    with pytest.raises(Refused, match=why):
        verify(exported, key=KEY)


def test_who_says_that_the_first_split_of_an_epoch_is_of_another_is_refused(exported: Path) -> None:
    """The operator signs a second split of the epoch, and that the one before it in the log is of the epoch before."""
    first = json.loads((exported / "emission.receipt").read_bytes())["envelope"]
    entry = sha256(base64.b64decode(first["payload"])).digest()
    forge(exported, lambda predicate: predicate.update(previous={"epoch": 2, "receipt": f"sha256:{entry.hex()}"}), before=[entry])
    (exported / bundle.EARLIER).write_bytes(canonical(first) + b"\n")
    with pytest.raises(Refused, match="split 2 of the log: it does not follow the one before it"):
        verify(exported, key=KEY)


def of_epoch(number: int, previous: Json | None) -> Callable[[Json], object]:
    """The split said to be of another epoch, after another one."""

    def change(predicate: Json) -> None:
        for part in (predicate, predicate["split"], *predicate["split"]["receipts"]):
            part["epoch"] = number
        predicate["previous"] = previous

    return change


def after(number: int, payload: bytes) -> Json:
    return {"epoch": number, "receipt": f"sha256:{sha256(payload).hexdigest()}"}


def show_earlier(exported: Path, *earlier: bytes) -> None:
    """The split after these in one log, all signed by its key, and shown."""
    last = after(2, earlier[-1])
    forge(exported, lambda predicate: predicate.update(previous=last), before=[sha256(payload).digest() for payload in earlier])
    (exported / bundle.EARLIER).write_bytes(b"".join(canonical(sign_envelope(payload, SUBNET)) + b"\n" for payload in earlier))


def test_the_splits_before_it_follow_each_other(exported: Path) -> None:
    """Also where the operator's own key signed them: an epoch of which there are two is found by whoever is shown the later."""
    first = changed(exported, of_epoch(1, None))
    second = changed(exported, of_epoch(2, after(1, first)))
    show_earlier(exported, first, second)
    assert verify(exported, key=KEY).recomputed
    show_earlier(exported, first, changed(exported, of_epoch(2, None)))
    with pytest.raises(Refused, match="split 2 of the log: it does not follow the one before it"):
        verify(exported, key=KEY)
    twice = changed(exported, of_epoch(2, None))
    show_earlier(exported, twice, changed(exported, of_epoch(2, after(2, twice))))
    with pytest.raises(Refused, match="split 2 of the log: it is not of a later epoch than the one before it"):
        verify(exported, key=KEY)


def test_what_is_signed_and_does_not_follow_is_refused(exported: Path, tmp_path: Path) -> None:
    cases: list[tuple[Callable[[Json], object], str]] = [
        (shares, r"m2: weights\[1\].share differs"),
        (lambda predicate: predicate["split"]["weights"][0].update(u16=1), "u16 differs"),
        (lambda predicate: predicate["split"]["competitions"][0].update(share="0.70"), "does not fit"),
        (lambda predicate: predicate["split"]["competitions"][0].update(share="0.9"), "sum to 1.3"),
        (lambda predicate: predicate["rules"].update(emission="1001"), r"competitions\[0\].emission differs"),
        (lambda predicate: predicate["rules"].update(encoding="any"), "encoding"),
        (lambda predicate: predicate["rules"].update(unearned="others"), r"competitions\[0\].received differs"),
        (lambda predicate: predicate.update(colour="red"), "does not fit"),
        (lambda predicate: predicate.update(epoch=4), "the split is of another epoch"),
        (lambda predicate: predicate["split"]["receipts"][0].update(epoch=2), "a receipt is of another epoch"),
        (lambda predicate: predicate["split"]["receipts"].pop(), "it does not name a receipt of each competition"),
        (
            lambda predicate: predicate["split"]["receipts"][0].update(competition="x"),
            "it does not name a receipt of each competition",
        ),
        (lambda predicate: predicate["split"]["receipts"][0].update(log="x"), "it is not a vkey"),
        (lambda predicate: predicate["split"]["receipts"][0].update(log=KEY), "a competition has the subnet's own log"),
        (
            lambda predicate: predicate["split"]["receipts"][0].update(log=KEYS[0].replace("small", "other")),
            "the hex digits of the vkey",
        ),
        (
            lambda predicate: predicate["split"]["receipts"][0].update(digest="sha256:" + "0" * 64),
            "its receipt is not the one that the split names",
        ),
        (twice("log"), "two competitions have the same log"),
        (twice("digest"), "two competitions have the same receipt"),
        (lambda predicate: predicate["split"].update(competitions=[], receipts=[]), "it names no competition"),
    ]
    for number, (change, why) in enumerate(cases):
        copy = Path(shutil.copytree(exported, tmp_path / f"copy-{number}"))
        forge(copy, change)
        with pytest.raises(Refused, match=why):
            verify(copy, key=KEY)
    forge(exported, shares, digests=False)
    with pytest.raises(Refused, match="the split does not have the digest that it states"):
        verify(exported, key=KEY)
    forge(exported, lambda predicate: predicate.update(subnet="other"), digests=False)
    with pytest.raises(Refused, match="its subject is not the split in its statement"):
        verify(exported, key=KEY)


def test_one_competition_does_not_stand_for_another(place: Path, exported: Path, tmp_path: Path) -> None:
    first, second = exported / "competitions" / "1", exported / "competitions" / "2"
    shutil.rmtree(second)
    shutil.copytree(first, second)
    with pytest.raises(Refused, match="it is not signed by the key"):
        verify(exported, key=KEY)
    with pytest.raises(Refused, match="it is not signed by the key"):
        verify(exported)
    shutil.rmtree(first)
    with open_ledger(place / "one") as ledger:
        bundle.export(ledger, 4, first)
    with pytest.raises(Refused, match="its receipt is not the one that the split names"):
        verify(exported, key=KEY)


@pytest.mark.no_cover
def test_who_holds_one_log_cannot_forge_another(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIGNERS, "two", SIGNER)
    forged = competition(tmp_path / "two", "given", EPOCH)
    settle(forged)
    two = exported / "competitions" / "2"
    shutil.rmtree(two)
    with open_ledger(forged) as ledger:
        bundle.export(ledger, EPOCH, two)
    assert verify(two, key=str(log.log_key(ORIGINS["two"], SIGNER.public))).recomputed
    for given in ([KEY], [KEY, *KEYS], []):
        with pytest.raises(Refused, match="it is not signed by the key"):
            verify(exported, key=given)


def test_every_split_before_it_is_shown(place: Path, tmp_path: Path) -> None:
    ledger_kit.copied(place, tmp_path)
    path = tmp_path / "my-subnet.toml"
    for epoch in (4, 5, 6):
        for name, kind in (("one", "tests"), ("two", "given")):
            if (name, epoch) != ("one", 4):
                ledger_kit.add(tmp_path / name, ledger_kit.records(kind, epoch=epoch))
                settle(tmp_path / name, epoch)
        subnet_bundle.sign(path, SUBNET, epoch)
    subnet_bundle.export(path, 6, tmp_path / "out")
    report = verify(tmp_path / "out", key=KEY)
    assert "the only split of epoch 6 of the 4 splits up to it" in [result.what for result in report.checked]
    file = tmp_path / "out" / bundle.EARLIER
    lines = file.read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    payload = base64.b64decode(json.loads(lines[1])["payload"])
    changes: list[tuple[list[bytes], str]] = [
        (lines[:2], r"the file does not have every earlier split \(expected 3, found 2\)"),
        ([lines[1], lines[0], lines[2]], "split 1 of the log: it is not the entry of the log"),
        (
            [lines[0], canonical(sign_envelope(payload, SIGNER)) + b"\n", lines[2]],
            "split 2 of the log: it is not signed by the key",
        ),
        (
            [lines[0], canonical(sign_envelope(b"{}", SUBNET)) + b"\n", lines[2]],
            "split 2 of the log: its statement is not a signed split's",
        ),
        ([lines[0], b"{}\n", lines[2]], "split 2 of the log: it is not a DSSE envelope"),
    ]
    for some, why in changes:
        file.write_bytes(b"".join(some))
        with pytest.raises(Refused, match=why):
            verify(tmp_path / "out", key=KEY)
