"""A witness: it cosigns a checkpoint only if the log grew from the one before. C2SP tlog-witness."""

from hashlib import sha256
from pathlib import Path
from threading import Thread

import pytest

from assay.errors import BadInput
from assay.ledger import check, cosigning, keys, log
from assay.ledger.check import LogKey
from assay.ledger.cosigning import cosignatures, merged
from assay.ledger.merkle import Tree
from assay.ledger.witness import PROOF_LINES, REQUEST_BYTES, Witness, WitnessAnswer, request_body
from ledger_kit import KEY, SIGNER

OWN = keys.from_seed(b"w1" * 16)
LEAVES = [check.leaf_hash(b"%d" % number) for number in range(9)]
TREE = Tree(LEAVES)
FORKED = Tree([*LEAVES[:3], check.leaf_hash(b"other"), *LEAVES[4:]])


def note(size: int, tree: Tree = TREE, key: LogKey = KEY, signer: keys.PrivateKey = SIGNER) -> bytes:
    return log.sign_checkpoint(size, tree.root(size), key, signer)


def make_witness(
    place: Path, logs: tuple[LogKey, ...] = (KEY,), name: str = "example.net/w1", signer: keys.PrivateKey = OWN
) -> Witness:
    return Witness(place / "state", name, signer, logs, lambda: 1_700_000_000.9)


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return make_witness(tmp_path)


def send(witness: Witness, old: int, size: int, tree: Tree = TREE) -> WitnessAnswer:
    return witness.add(request_body(old, tree.consistency(old, size), note(size, tree)))


def test_a_log_that_grows_is_cosigned(witness: Witness, tmp_path: Path) -> None:
    for old, size in ((0, 0), (0, 1), (1, 3), (3, 3), (3, 8), (8, 9)):
        answer = send(witness, old, size)
        assert answer.status == 200
        cosigned = merged(note(size), [answer.body.decode()])
        assert cosignatures(cosigned, [witness.key]) == {witness.key: 1_700_000_000}
        last = make_witness(tmp_path).last(KEY.name)  # as it is on the disk
        assert last is not None
        assert (last.size, last.root) == (size, TREE.root(size))
    path = witness.file(KEY.name)
    assert path.name == sha256(KEY.name.encode()).hexdigest()
    assert [*witness.folder.iterdir()] == [path]
    assert witness.note(KEY.name) == path.read_bytes()
    check.check_checkpoint(path.read_bytes(), [KEY])


def test_only_the_logs_own_signature_is_kept(witness: Witness) -> None:
    more = merged(note(1), [cosigning.cosign(cosigning.text_of(note(1)), "example.net/other", SIGNER, 1)])
    assert witness.add(request_body(0, (), more)).status == 200
    kept = witness.note(KEY.name)
    assert kept is not None
    assert b"other" not in kept
    assert kept.count("—".encode()) == 2


@pytest.mark.parametrize(("old", "size"), [(0, 5), (2, 5), (5, 5), (4, 4)])
def test_another_old_size_is_told_the_right_one(old: int, size: int, witness: Witness) -> None:
    send(witness, 0, 3)
    answer = send(witness, old, size)
    assert answer == WitnessAnswer(409, b"3\n", "text/x.tlog.size")


def test_an_older_checkpoint_is_not_cosigned(witness: Witness) -> None:
    send(witness, 0, 5)
    assert send(witness, 0, 3) == WitnessAnswer(409, b"5\n", "text/x.tlog.size")
    assert send(witness, 3, 3).status == 409
    answer = witness.add(request_body(5, (), note(3)))
    assert (answer.status, answer.body) == (400, b"the old size 5 is above the checkpoint's 3\n")


@pytest.mark.parametrize("size", [4, 5, 9])
def test_another_history_is_not_cosigned(size: int, witness: Witness, tmp_path: Path) -> None:
    send(witness, 0, 4)
    before = witness.note(KEY.name)
    for proof in (FORKED.consistency(4, size), TREE.consistency(4, size), (bytes(32),)):
        assert witness.add(request_body(4, proof, note(size, FORKED))).status == 422
    assert make_witness(tmp_path).note(KEY.name) == before


def test_a_proof_from_nothing_is_empty(witness: Witness) -> None:
    assert witness.add(request_body(0, (bytes(32),), note(3))).status == 422
    assert witness.add(request_body(0, (bytes(32),), note(0))).status == 422


def test_strangers_change_nothing(witness: Witness, tmp_path: Path) -> None:
    unknown = LogKey(SIGNER.public.raw, "example.org/unknown")
    assert witness.add(request_body(0, (), note(1, key=unknown))).status == 404
    forged = keys.read(b"99" * 32)
    assert witness.add(request_body(0, (), note(1, key=LogKey(forged.public.raw, KEY.name), signer=forged))).status == 403
    changed = note(1).replace(b"\n1\n", b"\n2\n")
    assert witness.add(request_body(0, (), changed)).status == 403
    assert make_witness(tmp_path).note(KEY.name) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"old 0\n",
        b"old 0\n\n",
        b"old 00\n\n" + note(1),
        b"old -1\n\n" + note(1),
        b"old x\n\n" + note(1),
        b"new 0\n\n" + note(1),
        b"old 0\nAAAA\n\n" + note(1),
        b"old 0\n!\n\n" + note(1),
        b"old 0\n\xff\n\n" + note(1),
        request_body(0, [bytes(32)] * (PROOF_LINES + 1), note(1)),
        b"old 0\n\nno checkpoint\n",
        b"old 0\n\na\nb\nc\n\n" + note(1).rpartition(b"\n\n")[2],
        b"old 0\n\n" + note(1)[:-1] + b"x" * REQUEST_BYTES,
    ],
)
def test_what_is_no_request_is_refused(body: bytes, witness: Witness) -> None:
    answer = witness.add(body)
    assert answer.status == 400
    assert answer.body.endswith(b"\n")
    assert witness.note(KEY.name) is None


def test_each_log_has_its_own_state(tmp_path: Path) -> None:
    other = LogKey(keys.read(b"55" * 32).public.raw, "example.org/other")
    witness = make_witness(tmp_path, (KEY, other))
    send(witness, 0, 5)
    assert witness.add(request_body(0, (), note(2, key=other, signer=keys.read(b"55" * 32)))).status == 200
    assert [last.size for name in (KEY.name, other.name) if (last := witness.last(name))] == [5, 2]


def test_a_state_that_the_witness_did_not_sign_is_refused(witness: Witness, tmp_path: Path) -> None:
    send(witness, 0, 3)
    path = witness.file(KEY.name)
    kept = path.read_bytes()
    for data in (note(5), kept.replace(b"\n3\n", b"\n2\n"), b"", kept[:20]):
        path.write_bytes(data)
        with pytest.raises(BadInput, match=path.name):
            make_witness(tmp_path)
        with pytest.raises(BadInput):
            send(witness, 3, 5)
    other = LogKey(SIGNER.public.raw, "example.org/other")
    make_witness(tmp_path, (other,)).file(other.name).write_bytes(kept)
    with pytest.raises(BadInput, match="of another log"):
        make_witness(tmp_path, (other,))


def test_several_at_once_never_sign_two_histories(tmp_path: Path) -> None:
    answers: list[tuple[WitnessAnswer, Tree]] = []

    def ask(tree: Tree) -> None:
        witness = make_witness(tmp_path)  # a process of its own would open the folder so
        for size in range(4, 9):
            answer = send(witness, 0, size, tree)
            if answer.status == 409:
                answer = send(witness, int(answer.body), max(size, int(answer.body)), tree)
            answers.append((answer, tree))

    threads = [Thread(target=ask, args=(tree,)) for tree in (TREE, FORKED) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    signed = {id(tree) for answer, tree in answers if answer.status == 200}
    assert len(signed) == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"signer": keys.new("sr25519")}, "not an Ed25519 key"),
        ({"name": "a b"}, "not the name of a witness"),
        ({"name": ""}, "not the name of a witness"),
        ({"name": "w" * 256}, "not the name of a witness"),
        ({"signer": SIGNER}, "has the key of the log"),
    ],
)
def test_what_cannot_be_a_witness_is_refused(changes: dict[str, object], says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=says):
        make_witness(tmp_path, **changes)  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"")
    with pytest.raises(BadInput, match="cannot be made"):
        make_witness(tmp_path)
