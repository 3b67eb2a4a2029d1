"""Commitments and sealed files: what they bind, what opens, what is refused and that a refusal tells nothing."""

import base64
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seal_kit as kit
from assay.enclave import sealing
from assay.enclave.messages import Rejected, RejectionCode, join_parts
from assay.enclave.sealing import SealedFile
from assay.errors import BadInput
from assay.exact import canonical
from assay.ledger import keys
from assay.ledger.keys import seal
from assay.scheme.bounty import Bounty

ENCLAVE = keys.read(b"88" * 32, kind=keys.X25519)
OTHER = f"sha256:{'0' * 64}"
SECRET_TEXT = "the secret of sorting"


@pytest.fixture
def bounty(tmp_path: Path) -> Bounty:
    return kit.bounty_in(tmp_path / "bounty")


@given(first=st.lists(st.binary(max_size=12), max_size=5), second=st.lists(st.binary(max_size=12), max_size=5))
def test_other_parts_are_other_bytes(first: list[bytes], second: list[bytes]) -> None:
    assert (join_parts(*first) == join_parts(*second)) == (first == second)


def test_a_commitment_is_the_hash_of_its_parts_each_after_its_length() -> None:
    salt, submission = bytes(range(32)), f"sha256:{'1' * 64}"
    parts = [b"assay/commitment/v1", OTHER.encode(), b"miner-7", salt, submission.encode()]
    plain = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    assert sealing.commitment_digest(OTHER, "miner-7", salt, submission) == f"sha256:{sha256(plain).hexdigest()}"
    with pytest.raises(ValueError, match="a salt has 32 bytes"):
        sealing.commitment_digest(OTHER, "miner-7", salt[1:], submission)


def test_a_commitment_is_signed_by_its_participant(bounty: Bounty) -> None:
    secret, signed = kit.committed(bounty, kit.P1, kit.solution())
    commitment = sealing.read_commitment(signed.envelope)
    assert (commitment.bounty, commitment.participant, commitment.digest) == (bounty.digest, kit.P1, secret.commitment)
    again = kit.committed(bounty, kit.P1, kit.solution())[0]
    assert again.commitment != secret.commitment  # another salt
    assert secret.salt not in repr(secret)
    assert secret.salt.encode() not in signed.envelope
    assert sealing.read_secret(secret.data) == secret
    with pytest.raises(BadInput, match=r"is not the key that signs, ed25519:.*sign with the participant's own key"):
        sealing.sign_commitment(secret, kit.PEOPLE[kit.P2])
    with pytest.raises(BadInput, match=r"'miner-7' cannot commit, since nobody can sign for it: .* is not a public key"):
        sealing.new_secret(bounty.digest, "miner-7", kit.solution().digest)


def _envelope(change: Callable[[dict[str, Any]], object], signer: keys.PrivateKey) -> bytes:
    """A signed statement, changed before it is signed."""
    from assay.ledger.keys import sign_envelope

    document: dict[str, Any] = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "commitment", "digest": {"sha256": "2" * 64}}],
        "predicateType": "assay:commitment/v1",
        "predicate": {"bounty": OTHER, "participant": signer.public.raw.hex()},
    }
    change(document)
    return canonical(sign_envelope(canonical(document), signer))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda statement: statement, None),
        (lambda statement: statement["predicate"].pop("bounty"), RejectionCode.MALFORMED),
        (lambda statement: statement["predicate"].update(more=1), RejectionCode.MALFORMED),
        (lambda statement: statement["predicate"].update(bounty="sha256:12"), RejectionCode.MALFORMED),
        (lambda statement: statement.update(predicateType="assay:evidence/v1"), RejectionCode.MALFORMED),
        (lambda statement: statement["subject"].append(statement["subject"][0]), RejectionCode.MALFORMED),
        (lambda statement: statement["subject"].clear(), RejectionCode.MALFORMED),
        (lambda statement: statement["subject"][0].update(name="other"), RejectionCode.MALFORMED),
        (lambda statement: statement["predicate"].update(participant="miner-7"), RejectionCode.NO_KEY),
        (lambda statement: statement["predicate"].update(participant=f"x25519:{ENCLAVE.public.raw.hex()}"), RejectionCode.NO_KEY),
        (lambda statement: statement["predicate"].update(participant=kit.P2), RejectionCode.BAD_SIGNATURE),
    ],
)
def test_what_is_no_commitment_is_turned_away(change: Callable[[dict[str, Any]], object], code: RejectionCode | None) -> None:
    envelope = _envelope(change, kit.PEOPLE[kit.P1])
    if code is None:
        assert sealing.read_commitment(envelope).participant == kit.P1
        return
    with pytest.raises(Rejected) as caught:
        sealing.read_commitment(envelope)
    assert caught.value.code == code


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"payload": 1}', b'{"a":1,"a":2}', b"[" * 5000])
def test_no_bytes_whatever_make_it_fail_otherwise(data: bytes) -> None:
    with pytest.raises(Rejected) as caught:
        sealing.read_commitment(data)
    assert caught.value.code == RejectionCode.MALFORMED
    with pytest.raises(BadInput):
        sealing.read_secret(data)
    with pytest.raises(BadInput):
        sealing.parse_sealed(data)


def test_a_secret_that_is_damaged_does_not_show_itself(bounty: Bounty) -> None:
    secret = kit.committed(bounty, kit.P1, kit.solution())[0]
    for data in (secret.data.replace(b"sha256:", b"sha:"), secret.data.replace(b'"salt":"', b'"salt":"0'), secret.data[:-9]):
        with pytest.raises(BadInput) as caught:
            sealing.read_secret(data)
        assert secret.salt[:20] not in str(caught.value)


# Sealing a solution


def test_a_solution_is_sealed_and_opened(bounty: Bounty) -> None:
    what = kit.solution(SECRET_TEXT)
    secret, _ = kit.committed(bounty, kit.P1, what)
    sealed = sealing.seal_solution(bounty, secret, what, ENCLAVE.public)
    assert sealing.parse_sealed(sealed.file) == sealed
    assert sealed.file != sealing.seal_solution(bounty, secret, what, ENCLAVE.public).file
    opened = sealing.open_solution(sealed, ENCLAVE, secret.commitment)
    assert (opened.salt.hex(), opened.solution) == (secret.salt, what)
    for shown in (repr(sealed), repr(opened), str(opened)):
        assert SECRET_TEXT not in shown
        assert secret.salt not in shown


def test_nothing_is_sealed_that_would_not_be_judged(bounty: Bounty) -> None:
    what = kit.solution()
    secret, _ = kit.committed(bounty, kit.P1, what)
    with pytest.raises(BadInput, match=r"is not the one that was committed to.*a participant commits once"):
        sealing.seal_solution(bounty, secret, kit.solution("Another."), ENCLAVE.public)
    with pytest.raises(BadInput, match=r"was committed to for another bounty"):
        sealing.seal_solution(bounty, secret.model_copy(update={"bounty": OTHER}), what, ENCLAVE.public)
    with pytest.raises(BadInput, match=r"nothing can be sealed to ed25519"):
        sealing.seal_solution(bounty, secret, what, keys.new().public)
    large = kit.solution("x" * 1001)
    secret, _ = kit.committed(bounty, kit.P1, large)
    with pytest.raises(BadInput, match=r"has 1021 bytes as a model is shown it, the bounty allows 1000"):
        sealing.seal_solution(bounty, secret, large, ENCLAVE.public)


def _opened(sealed: SealedFile, committed: str) -> Rejected:
    with pytest.raises(Rejected) as caught:
        sealing.open_solution(sealed, ENCLAVE, committed)
    assert SECRET_TEXT not in str(caught.value)
    return caught.value


def test_only_the_right_bounty_and_participant_and_key_open(bounty: Bounty) -> None:
    what = kit.solution(SECRET_TEXT)
    secret, _ = kit.committed(bounty, kit.P1, what)
    sealed = sealing.seal_solution(bounty, secret, what, ENCLAVE.public)
    data = base64.b64decode(sealed.data)
    for change in (
        {"bounty": OTHER},
        {"participant": kit.P2},
        {"kind": "problem"},
        {"data": base64.b64encode(data[:-1]).decode()},
        {"data": base64.b64encode(data[:40] + bytes([data[40] ^ 1]) + data[41:]).decode()},
        {"data": "%"},
        {"data": ""},
    ):
        assert _opened(sealed.model_copy(update=change), secret.commitment).code == RejectionCode.NOT_OPENED
    to_other = sealing.seal_solution(bounty, secret, what, keys.new(keys.X25519).public)
    assert _opened(to_other, secret.commitment).code == RejectionCode.NOT_OPENED


def test_what_was_not_committed_to_is_turned_away_unread(bounty: Bounty) -> None:
    what = kit.solution(SECRET_TEXT)
    secret, _ = kit.committed(bounty, kit.P1, what)
    other = kit.committed(bounty, kit.P1, what)[0]

    def sealed(plain: bytes) -> SealedFile:
        return sealing.seal_bytes("solution", plain, ENCLAVE.public, bounty=bounty.digest, participant=kit.P1)

    text = base64.b64encode(what.data).decode()
    good = {"salt": secret.salt, "solution": text}
    assert sealing.open_solution(sealed(canonical(good)), ENCLAVE, secret.commitment).solution == what
    assert _opened(sealed(canonical(good)), other.commitment).code == RejectionCode.NOT_COMMITTED
    wrongs: tuple[Any, ...] = (
        {"salt": other.salt, "solution": text},
        {"salt": secret.salt[2:], "solution": text},
        {"salt": "zz", "solution": text},
        {"salt": 7, "solution": text},
        {"salt": secret.salt, "solution": text[4:]},
        {"salt": secret.salt, "solution": "%"},
        {"salt": secret.salt},
        [],
        SECRET_TEXT,
    )
    for wrong in wrongs:
        assert _opened(sealed(canonical(wrong)), secret.commitment).code == RejectionCode.NOT_COMMITTED
    for plain in (b"", b"\xff", b"{", SECRET_TEXT.encode()):
        assert _opened(sealed(plain), secret.commitment).code == RejectionCode.NOT_COMMITTED


@pytest.mark.parametrize(
    "data",
    [
        b"",
        SECRET_TEXT.encode(),
        canonical({"schema": "assay.solution/1", "files": {}}),
        canonical({"schema": "assay.solution/1", "files": {"../a": SECRET_TEXT}}),
        json.dumps({"schema": "assay.solution/1", "files": {"a": SECRET_TEXT}}).encode(),
        canonical({"schema": "assay.solution/1", "files": {"a": SECRET_TEXT}, "more": 1}),
        b"[" * 10_000,
    ],
)
def test_what_was_committed_to_may_be_no_solution(bounty: Bounty, data: bytes) -> None:
    submission = f"sha256:{sha256(data).hexdigest()}"
    secret = sealing.new_secret(bounty.digest, kit.P1, submission)
    plain = canonical({"salt": secret.salt, "solution": base64.b64encode(data).decode()})
    sealed = sealing.seal_bytes("solution", plain, ENCLAVE.public, bounty=bounty.digest, participant=kit.P1)
    assert _opened(sealed, secret.commitment).code == RejectionCode.NO_SOLUTION


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": "assay.sealed/2"}, r"is not a sealed file .schema: 'assay.sealed/2'"),
        ({"kind": "letter"}, "kind"),
        ({"bounty": "sha256:1"}, "bounty"),
        ({"to": f"ed25519:{'0' * 64}"}, "to"),
        ({"to": f"x25519:{'0' * 64}"}, "is not a public key of X25519"),
        ({"participant": None}, "participant"),
        ({"participant": ""}, "participant"),
        ({"more": 1}, "more"),
        ({"data": 1}, "data"),
        ({"kind": "problem"}, "belongs to a solution, and only there"),
    ],
)
def test_a_sealed_file_is_closed(bounty: Bounty, change: dict[str, Any], why: str) -> None:
    what = kit.solution()
    _, sealed = kit.handed(bounty, kit.P1, what, ENCLAVE.public)
    with pytest.raises(BadInput, match=why):
        sealing.parse_sealed(canonical(sealed.document() | change))
    with pytest.raises(BadInput, match="is larger than 100 bytes"):
        sealing.parse_sealed(sealed.file, most=100)


def test_two_kinds_are_never_taken_for_one_another() -> None:
    data = seal(b"text", ENCLAVE.public, join_parts("assay/sealed/v1", "problem", OTHER, ""))
    sealed = SealedFile(kind="problem", bounty=OTHER, to=ENCLAVE.public.id, data=base64.b64encode(data).decode())
    assert sealed.open(ENCLAVE) == b"text"
    for change in ({"kind": "results"}, {"kind": "judged"}, {"bounty": f"sha256:{'1' * 64}"}, {"participant": "p"}):
        with pytest.raises(BadInput, match="does not open"):
            sealed.model_copy(update=change).open(ENCLAVE)
