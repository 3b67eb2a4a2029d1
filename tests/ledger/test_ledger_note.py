"""Signing checkpoints, log proofs and envelopes: what is written is what the oracle writes."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay.errors import BadInput
from assay.ledger import check, keys, log
from assay.ledger.check import CheckError, LogKey
from assay.ledger.keys import as_bad_input
from assay.ledger.merkle import Tree
from oracle import envelopes, trees

SEED = bytes([7]) * 32
THEIRS = Ed25519PrivateKey.from_private_bytes(SEED)
SIGNER = keys.read(SEED.hex().encode())
NAME = "example.org/log"
KEY = log.log_key(NAME, SIGNER.public)
LEAVES = [trees.leaf(bytes([number])) for number in range(5)]


def test_a_checkpoint_is_signed_as_c2sp_says() -> None:
    assert str(KEY) == trees.vkey(NAME, THEIRS)
    tree = Tree(LEAVES)
    checkpoint = log.sign_checkpoint(5, tree.root(), KEY, SIGNER)
    assert checkpoint.decode() == trees.note(NAME, 5, tree.root(), THEIRS)
    assert check.check_checkpoint(checkpoint, [KEY]).size == 5
    text = log.proof_text(tree.inclusion(3), checkpoint)
    assert text == trees.proof(3, trees.inclusion(3, LEAVES), checkpoint.decode())
    assert check.LogProof.parse(text).checkpoint == checkpoint


def test_a_note_is_signed_by_its_own_key() -> None:
    for text, key in (("text\n", LogKey(keys.new().public.raw, NAME)), ("text", KEY)):
        with pytest.raises(ValueError, match="not one that this key can sign"):
            log.sign_note(text, key, SIGNER)


@pytest.mark.parametrize("origin", ["", "a b", "a+b", "a\u00a0b", "a\nb", "a\x1bb"])
def test_a_log_has_a_name_that_a_note_can_have(origin: str) -> None:
    with pytest.raises(BadInput, match="cannot be the name of a log"):
        log.log_key(origin, SIGNER.public)


def test_a_log_signs_with_ed25519() -> None:
    with pytest.raises(BadInput, match="is not an Ed25519 key; logs sign with Ed25519"):
        log.log_key(NAME, keys.PublicKey(keys.SR25519, bytes(32)))


def test_an_envelope_is_that_of_the_oracle() -> None:
    assert keys.sign_envelope(b'{"a":1}', SIGNER) == envelopes.dsse(b'{"a":1}', THEIRS)
    parsed = check.Envelope.parse(json.loads(json.dumps(keys.sign_envelope(b"{}", SIGNER))), "s")
    assert check.check_envelope(parsed, [SIGNER.public], "s") == [SIGNER.public]


def test_a_refusal_gets_its_place() -> None:
    message = r"a\.batch:1: signatures: it is wrong; look again"
    with pytest.raises(BadInput, match=message), as_bad_input("look again", file="a.batch", line=1, field="signatures"):
        raise CheckError("log", "it is wrong")
    with as_bad_input("look again"):
        pass
