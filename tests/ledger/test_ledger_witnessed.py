"""A log with witnesses: nobody is shown a checkpoint without its quorum, and never an older one. SPEC 6, Witnesses."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.errors import BadInput, Refused
from assay.ledger import backup, bundle, check, config, cosigning, exchange, forks, keys, settling
from assay.ledger import log as note
from assay.ledger.access import Ledger, proven_in
from assay.ledger.audit import audit_receipts
from assay.ledger.check import CheckError, Checkpoint
from assay.ledger.cosigning import ED25519, WitnessKey, merged
from assay.ledger.forks import check_fork, kept, prove, read_checkpoint
from assay.ledger.log import Log
from assay.ledger.store import Damaged, StoredCheckpoint
from assay.ledger.verify import verify
from ledger_kit import KEY, SIGNER, add, ledger_folder, opened, records

W1 = keys.from_seed(b"w1" * 16)
WITNESS = WitnessKey("example.net/w1", ED25519, W1.public.raw)
POLICY = f"log {KEY}\nwitness w1 {WITNESS}\nquorum w1\n"


def cosigned(signed: bytes, at: float | None = None) -> bytes:
    text = cosigning.text_of(signed)
    return merged(signed, [cosigning.cosign(text, WITNESS.name, W1, int(time.time() if at is None else at))])


def settle(place: Path, epoch: int) -> None:
    add(place, records(epoch=epoch))
    with opened(place) as ledger:
        settling.settle(ledger, SIGNER, epoch)


def witness(place: Path) -> None:
    """Have the next checkpoint cosigned."""
    with opened(place) as ledger:
        with ledger.store.reading() as view:
            receipt = ledger.unwitnessed(view)
        assert receipt is not None
        ledger.cosigned(cosigned(receipt.checkpoint), receipt.position + 1)


def shown(place: Path) -> int:
    return Checkpoint.parse(cosigning.text_of((place / "log/checkpoint").read_bytes())).size


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = ledger_folder(tmp_path / "small")
    (folder / config.POLICY).write_text(POLICY, encoding="utf-8")
    return folder


@pytest.fixture
def two(place: Path) -> Path:
    """Two epochs; only the first is cosigned."""
    settle(place, 3)
    witness(place)
    settle(place, 4)
    return place


def test_a_new_checkpoint_waits_for_its_witnesses(place: Path) -> None:
    settle(place, 3)
    assert shown(place) == 0
    assert (place / "log/signed").exists()
    with opened(place) as ledger:
        assert ledger.log.size == 1
        before = ledger.log.shown()
        assert before is not None
        assert before.size == 0
    witness(place)
    assert shown(place) == 1
    assert not (place / "log/signed").exists()
    data = (place / "log/checkpoint").read_bytes()
    assert cosigning.check_policy(cosigning.read_policy(place / config.POLICY), data, KEY).times.keys() == {"w1"}


@pytest.mark.no_cover
def test_each_checkpoint_is_cosigned_one_after_the_other(two: Path) -> None:
    settle(two, 5)
    assert shown(two) == 1
    for size in (2, 3):
        witness(two)
        assert shown(two) == size
    with opened(two) as ledger, ledger.store.reading() as view:
        assert ledger.unwitnessed(view) is None
        assert [view.witnessed(size) and view.witnessed(size).size for size in (0, 1, 2, 3, 4)] == [1, 1, 2, 3, None]  # type: ignore[union-attr]
        assert audit_receipts(ledger) == 3


@pytest.mark.no_cover
def test_a_log_that_gets_witnesses_later_begins_with_its_newest(tmp_path: Path) -> None:
    folder = ledger_folder(tmp_path / "small")
    for epoch in (3, 4):
        settle(folder, epoch)
    assert shown(folder) == 2
    (folder / config.POLICY).write_text(POLICY, encoding="utf-8")
    with opened(folder) as ledger:
        assert ledger.log.shown() == ledger.log.checkpoint
    witness(folder)
    assert shown(folder) == 2
    with opened(folder) as ledger:
        document = check.Receipt.parse(json.dumps(ledger.document(ledger.receipt(3))).encode())
        assert check.check_checkpoint(document.proof.checkpoint, [KEY]).size == 2  # the first is proven in the second's log
        check.check_receipt(document, [KEY])
        bundle.export(ledger, 3, tmp_path / "epoch-3")
    assert verify(tmp_path / "epoch-3", key=str(KEY)).recomputed


@pytest.mark.no_cover
def test_without_the_policy_it_is_shown_at_once(two: Path) -> None:
    (two / config.POLICY).unlink()
    with opened(two):
        pass
    assert shown(two) == 2
    assert not (two / "log/signed").exists()
    settle(two, 5)
    assert shown(two) == 3


def test_what_is_shown_never_becomes_older(two: Path) -> None:
    with opened(two) as ledger:
        first = ledger.store.reading
        with first() as view:
            older = view.witnessed()
        assert older is not None
    witness(two)
    newest = (two / "log/checkpoint").read_bytes()
    with opened(two) as ledger:
        ledger.log.show(older.checkpoint)
        ledger.cosigned(cosigned(older.checkpoint), 1)
        ledger.log.show(ledger.receipt(4).checkpoint)  # the same, without cosignatures
    assert (two / "log/checkpoint").read_bytes() == newest
    more = merged(newest, [cosigning.cosign(cosigning.text_of(newest), "example.net/w2", keys.from_seed(b"w2" * 16), 1)])
    with opened(two) as ledger:
        ledger.log.show(more)
    assert (two / "log/checkpoint").read_bytes() == more


def test_only_a_checkpoint_of_this_log_is_shown(two: Path) -> None:
    other = note.sign_checkpoint(2, bytes(32), KEY, SIGNER)
    with opened(two) as ledger, pytest.raises(BadInput, match="forked"):
        ledger.log.show(other)
    with opened(two) as ledger, pytest.raises(BadInput):
        ledger.log.show(other.replace(b"\n2\n", b"\n1\n"))
    assert shown(two) == 1


@pytest.mark.full
@pytest.mark.no_cover
def test_a_log_made_again_shows_what_was_cosigned(two: Path) -> None:
    shutil.rmtree(two / "log")
    with opened(two) as ledger:
        assert ledger.log.size == 2
        audit_receipts(ledger)
    assert shown(two) == 1
    assert note.is_log(two / "log")


def test_a_log_made_again_before_the_first_is_cosigned_shows_nothing(place: Path) -> None:
    settle(place, 3)
    shutil.rmtree(place / "log")
    with opened(place) as ledger:
        assert ledger.log.shown() is None
        assert ledger.log.size == 1
    assert not (place / "log/checkpoint").exists()
    assert note.is_log(place / "log")
    with pytest.raises(BadInput, match="there is a log already"):
        Log.create(place / "log", KEY, note.sign_checkpoint(0, check.EMPTY_ROOT, KEY, SIGNER))
    witness(place)
    assert shown(place) == 1


def test_a_crash_between_any_two_steps_is_mended(two: Path) -> None:
    """The database has the cosigned checkpoint; the folder does not show it yet, or still has the one that waits."""
    with opened(two) as ledger:
        signed = ledger.receipt(4).checkpoint
        with ledger.store.writing() as tx:
            tx.add_witnessed(StoredCheckpoint(2, cosigned(signed)))
    assert shown(two) == 1
    with opened(two):
        pass
    assert shown(two) == 2
    (two / "log/signed").write_bytes(signed)  # shown, but the other file was not removed
    with opened(two) as ledger:
        assert ledger.log.size == 2
    assert not (two / "log/signed").exists()


def test_the_bundle_has_the_cosigned_checkpoint(two: Path, tmp_path: Path) -> None:
    with opened(two) as ledger:
        bundle.export(ledger, 4, tmp_path / "before")
    policy = two / config.POLICY
    with pytest.raises(Refused, match="too few witnesses"):
        verify(tmp_path / "before", key=str(KEY), policy=policy)
    witness(two)
    with opened(two) as ledger:
        bundle.export(ledger, 4, tmp_path / "epoch-4")
        proof = tmp_path / "m1.proof"
        proof.write_text(json.dumps(exchange.proof_for(ledger, "m1", 4)))
    report = verify(tmp_path / "epoch-4", key=str(KEY), policy=policy)
    assert report.recomputed
    row = next(stage for stage in report.checked if stage.stage == "witnesses")
    assert "cosigned by w1, the newest " in row.what
    assert row.what.endswith("ago; this binds the history of 2 entries")
    assert verify(proof, key=str(KEY), policy=policy).checked
    assert all(stage.stage != "witnesses" for stage in verify(tmp_path / "epoch-4", key=str(KEY)).checked)
    # An older bundle, with a newer checkpoint beside it: the log's tiles join them.
    later = verify(tmp_path / "before", key=str(KEY), policy=policy, checkpoint=two / "log/checkpoint", log=two / "log")
    assert later.recomputed
    with pytest.raises(Refused, match="too few witnesses"):
        verify(tmp_path / "before", key=str(KEY), policy=policy, checkpoint=tmp_path / "before/log/checkpoint")
    (tmp_path / "empty.checkpoint").write_bytes(cosigned(note.sign_checkpoint(0, check.EMPTY_ROOT, KEY, SIGNER)))
    with pytest.raises(Refused, match="too few witnesses"):  # an older one binds less
        verify(tmp_path / "before", key=str(KEY), policy=policy, checkpoint=tmp_path / "empty.checkpoint")


@pytest.mark.full
@pytest.mark.no_cover
def test_an_import_keeps_the_cosignatures(two: Path, tmp_path: Path) -> None:
    witness(two)
    copy = ledger_folder(tmp_path / "copy")
    for epoch in (3, 4):
        with opened(two) as ledger:
            bundle.export(ledger, epoch, tmp_path / f"epoch-{epoch}")
        with opened(copy) as ledger:
            exchange.import_bundle(ledger, tmp_path / f"epoch-{epoch}")
    assert b"example.net/w1" in (copy / "log/checkpoint").read_bytes()


@pytest.mark.full
@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("seconds", "says"),
    [(0, "seconds ago"), (630, "minutes ago"), (9_000, "2 hours ago"), (300_000, "3 days ago")],
)
def test_the_age_of_the_newest_is_told(seconds: int, says: str, two: Path, tmp_path: Path) -> None:
    assert says in _verified_at(two, tmp_path, time.time() - seconds)


@pytest.mark.no_cover
def test_a_time_in_the_future_is_told(two: Path, tmp_path: Path) -> None:
    assert "hours in the future" in _verified_at(two, tmp_path, time.time() + 10_000)


def _verified_at(two: Path, tmp_path: Path, at: float) -> str:
    with opened(two) as ledger:
        ledger.cosigned(cosigned(ledger.receipt(4).checkpoint, at), 2)
        bundle.export(ledger, 4, tmp_path / "epoch-4")
    return next(row.what for row in verify(tmp_path / "epoch-4", policy=two / config.POLICY).checked if row.stage == "witnesses")


def test_a_policy_without_witnesses_demands_nothing(two: Path, tmp_path: Path) -> None:
    (tmp_path / "none.policy").write_text("quorum none\n")
    with opened(two) as ledger:
        bundle.export(ledger, 4, tmp_path / "epoch-4")
    report = verify(tmp_path / "epoch-4", policy=tmp_path / "none.policy")
    assert "the policy demands no witness" in next(row.what for row in report.checked if row.stage == "witnesses")


def test_a_changed_cosigned_checkpoint_is_named(two: Path) -> None:
    with opened(two) as ledger:
        with ledger.store.writing() as tx:
            tx.add_witnessed(StoredCheckpoint(2, cosigned(note.sign_checkpoint(2, bytes(32), KEY, SIGNER))))
        with pytest.raises(Damaged, match="cosigned checkpoint of 2 receipts changed"):
            audit_receipts(ledger)


@pytest.mark.parametrize("data", [b"", "text"])
def test_what_is_no_cosigned_checkpoint_is_named(data: bytes, two: Path) -> None:
    with opened(two) as ledger:
        with ledger.store.writing() as tx:
            tx.add_witnessed(StoredCheckpoint(2, data))
        with pytest.raises(Damaged, match="cosigned checkpoint of 2 receipts is damaged"):
            audit_receipts(ledger)


def test_a_subnet_has_a_policy_of_its_own() -> None:
    assert config.Config(Path("x"), "o", "k", name="two.ledger.toml").policy == Path("x/two.witnesses.policy")
    assert config.Config(Path("x"), "o", "k").policy == Path("x/witnesses.policy")


def test_a_backup_has_the_cosigned_checkpoints(two: Path, tmp_path: Path) -> None:
    backup.back_up(two, tmp_path / "ledger.zip", now="2026-11-24T00:00:00Z")
    (two / "ledger.db").unlink()
    shutil.rmtree(two / "log")
    backup.restore(two, tmp_path / "ledger.zip", now="2026-11-24T00:00:00Z")
    with opened(two) as ledger:
        ledger.store.adopt()
        with ledger.store.reading() as view:
            newest = view.witnessed()
    assert newest is not None
    assert newest.size == 1
    assert shown(two) == 1


# Forks


@pytest.fixture
def forked(two: Path, tmp_path: Path) -> Callable[[int], tuple[bytes, Path]]:
    """Another history of the same log, with one trial flipped: its checkpoint of a size, and its folder."""

    def make(size: int) -> tuple[bytes, Path]:
        other = ledger_folder(tmp_path / f"forked-{size}")
        for epoch in range(3, 3 + size):
            add(other, records(epoch=epoch, outcome="fail"))
            with opened(other) as ledger:
                settling.settle(ledger, SIGNER, epoch)
        return (other / "log/checkpoint").read_bytes(), other

    return make


def test_a_split_view_is_refused_and_proven(two: Path, tmp_path: Path, forked: Callable[[int], tuple[bytes, Path]]) -> None:
    """Two ledgers under one key, one trial flipped: both bundles verify alone, only one has the quorum."""
    witness(two)
    _, other = forked(2)
    for name, folder in (("ours", two), ("theirs", other)):
        with opened(folder) as ledger:
            bundle.export(ledger, 4, tmp_path / name)
        assert verify(tmp_path / name, key=str(KEY)).recomputed
    assert verify(tmp_path / "ours", key=str(KEY), policy=two / config.POLICY).recomputed
    with pytest.raises(Refused) as refused:
        verify(tmp_path / "theirs", key=str(KEY), policy=two / config.POLICY)
    assert refused.value.stage == "witnesses"
    fork = prove((tmp_path / "ours/log/checkpoint").read_bytes(), (tmp_path / "theirs/log/checkpoint").read_bytes(), KEY)
    again = check_fork(json.dumps(fork.document()).encode())
    assert again == fork
    assert again.root is None


@pytest.mark.parametrize("which", [1, 2])
def test_a_fork_of_another_size_is_proven_by_the_larger_tiles(
    which: int, two: Path, forked: Callable[[int], tuple[bytes, Path]]
) -> None:
    ours = (two / "log/signed").read_bytes()
    theirs, other = forked(which)
    if which == 2:
        with opened(two) as ledger:
            ours = ledger.receipt(3).checkpoint
    larger = two if which == 1 else other
    fork = prove(ours, theirs, KEY, Log(larger / "log", KEY))
    assert fork.root is not None
    small, large = check_fork(json.dumps(fork.document()).encode()).checkpoints()
    assert (small.size, large.size) == (1, 2)
    with pytest.raises(BadInput, match="give the log's folder of the larger one"):
        prove(ours, theirs, KEY)
    with pytest.raises(BadInput, match="not the log of the larger checkpoint"):
        prove(ours, theirs, KEY, Log((other if which == 1 else two) / "log", KEY))


def test_a_log_that_only_grew_is_no_fork(two: Path) -> None:
    with opened(two) as ledger:
        first, second = (ledger.receipt(epoch).checkpoint for epoch in (3, 4))
        with pytest.raises(BadInput, match="there is no fork"):
            prove(first, second, KEY, ledger.log)
        with pytest.raises(BadInput, match="of the same tree, so there is no fork"):
            prove(second, second, KEY)
    stranger = note.log_key("example.org/other", SIGNER.public)
    with pytest.raises(BadInput, match="give two checkpoints of one log"):
        prove(first, second, stranger)


def test_what_proves_no_fork_is_refused(two: Path, forked: Callable[[int], tuple[bytes, Path]]) -> None:
    theirs, _ = forked(1)
    ours = (two / "log/signed").read_bytes()
    document = prove(ours, theirs, KEY, Log(two / "log", KEY)).document()
    first, second = document["first"], document["second"]
    small = Checkpoint.parse(cosigning.text_of(first.encode())).root.hex()
    for changes, says in (
        ({"schema": "assay.fork/2"}, "schema does not fit"),
        ({"root": None}, "nothing shows"),
        ({"root": small}, "begins with the first"),
        ({"root": "00" * 32}, "consistency"),
        ({"hashes": []}, "consistency"),
        ({"first": second, "second": first}, "does not come first"),
        ({"second": first}, "of the same tree"),
        ({"first": first.replace("\n1\n", "\n2\n")}, "fork: "),
        ({"key": "x"}, "key"),
    ):
        with pytest.raises(CheckError, match=says):
            check_fork(json.dumps(document | changes).encode())
    with pytest.raises(CheckError, match="not strict JSON"):
        check_fork(b"{")


def test_a_checkpoint_is_read_from_a_receipt_too(two: Path, tmp_path: Path) -> None:
    with opened(two) as ledger:
        (tmp_path / "4.receipt").write_text(json.dumps(ledger.document(ledger.receipt(4))))
        stored = ledger.receipt(4).checkpoint
    assert read_checkpoint(tmp_path / "4.receipt", KEY) == (stored, KEY)
    assert read_checkpoint(two / "log/signed", KEY) == (stored, KEY)
    for path, key, says in (
        (two / "log/signed", None, "whose key is not known"),
        (two / "scheme.toml", KEY, "give a checkpoint of this log"),
        (two / "none", KEY, "none"),
    ):
        with pytest.raises(BadInput, match=says):
            read_checkpoint(path, key)
    (tmp_path / "bad.receipt").write_text("{}")
    with pytest.raises(BadInput, match="give a signed checkpoint, or a receipt"):
        read_checkpoint(tmp_path / "bad.receipt", KEY)


def test_evidence_of_a_fork_is_kept(two: Path, tmp_path: Path, forked: Callable[[int], tuple[bytes, Path]]) -> None:
    folder = tmp_path / "forks"
    tiles = Log(two / "log", KEY)
    ours = (two / "log/signed").read_bytes()
    theirs, _ = forked(1)
    path = kept(folder, KEY, (ours, theirs), tiles)
    assert path is not None
    check_fork(path.read_bytes())
    assert kept(folder, KEY, (ours, theirs), tiles) == path
    longer, _ = forked(3)
    both = kept(folder, KEY, (ours, longer), tiles)  # whether it is a fork, the tiles of the longer one say
    assert both is not None
    assert json.loads(both.read_bytes())["schema"] == "assay.checkpoints/1"
    assert kept(folder, KEY, (ours, ours), tiles) is None
    with opened(two) as ledger:
        assert kept(folder, KEY, (ledger.receipt(3).checkpoint, ours), ledger.log) is None
    assert len([*folder.iterdir()]) == 2
    assert forks.FORMAT == "assay.fork/1"


def test_the_checkpoint_of_a_proof_is_the_first_cosigned(two: Path) -> None:
    settle(two, 5)
    with opened(two) as ledger:
        third = ledger.receipt(5)
        ledger.cosigned(cosigned(third.checkpoint), 3)  # the second was passed over
        with ledger.store.reading() as view:
            sizes = [proven_in(view, ledger.receipt(epoch)).size for epoch in (3, 4, 5)]
            exact = [proven_in(view, ledger.receipt(epoch), exact=True) for epoch in (3, 4, 5)]
        assert sizes == [1, 3, 3]
        assert [checkpoint.size for checkpoint in exact] == [1, 2, 3]
        assert [b"w1" in checkpoint.checkpoint for checkpoint in exact] == [True, False, True]
        assert _size_of(ledger, 4) == 3
        with ledger.store.reading() as view:
            for epoch in (3, 4, 5):  # without the log's folder, as a service does
                assert json.loads(bundle.receipt_now(view, epoch)) == ledger.document(ledger.receipt(epoch))


def _size_of(ledger: Ledger, epoch: int) -> int:
    receipt = check.Receipt.parse(json.dumps(ledger.document(ledger.receipt(epoch))).encode())
    check.check_receipt(receipt, [KEY])
    return check.check_checkpoint(receipt.proof.checkpoint, [KEY]).size
