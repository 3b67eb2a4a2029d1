"""The stand-alone checks: inclusion and consistency in the trees of RFC 6962."""

from collections.abc import Sequence

import pytest

from assay.ledger import check
from assay.ledger.check import CheckError
from check_kit import LEAVES
from oracle import trees


def test_roots_and_proofs_of_the_trees_that_everybody_tests_with() -> None:
    """The eight leaves of Certificate Transparency's own tests, and the roots there."""
    leaves = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    hashes = [check.leaf_hash(bytes.fromhex(leave)) for leave in leaves]
    roots = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ]
    assert [trees.tree_of(hashes[: size + 1]).hex() for size in range(8)] == roots
    assert check.EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    proof = [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]
    check.check_inclusion(bytes.fromhex(roots[7]), 8, 5, hashes[5], [bytes.fromhex(digest) for digest in proof])
    proof = [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]
    check.check_consistency(6, bytes.fromhex(roots[5]), 8, bytes.fromhex(roots[7]), [bytes.fromhex(digest) for digest in proof])


def mutations(proof: Sequence[bytes]) -> list[list[bytes]]:
    """Proofs that are not this one: a bit more or less in each hash, one too many or too few, two in each other's place."""
    flipped = [[*proof[:at], bytes([digest[0] ^ 1]) + digest[1:], *proof[at + 1 :]] for at, digest in enumerate(proof)]
    swapped = [[*proof[: at - 1], proof[at], proof[at - 1], *proof[at + 1 :]] for at in range(1, len(proof))]
    return [*flipped, *swapped, [*proof, bytes(32)], *([list(proof[:-1]), list(proof[1:])] if proof else [])]


@pytest.mark.parametrize("size", [*range(1, 18), 31, 32, 33, 40])
def test_inclusion_is_proven_by_its_proof_alone(size: int) -> None:
    hashes = LEAVES[:size]
    top = trees.tree_of(hashes)
    for index in range(size):
        proof = trees.inclusion(index, hashes)
        check.check_inclusion(top, size, index, hashes[index], proof)
        for wrong in mutations(proof):
            with pytest.raises(CheckError, match="log: the proof"):
                check.check_inclusion(top, size, index, hashes[index], wrong)
        for other in {0, index ^ 1, size - 1} - {index}:
            with pytest.raises(CheckError, match="log: "):
                check.check_inclusion(top, size, other, hashes[index], proof)
    for index in (-1, size):
        with pytest.raises(CheckError, match="beyond the tree"):
            check.check_inclusion(top, size, index, hashes[0], [])


@pytest.mark.parametrize("new", [*range(18), 31, 32, 33])
def test_consistency_is_proven_by_its_proof_alone(new: int) -> None:
    after = trees.tree_of(LEAVES[:new])
    for old in range(new + 1):
        before = trees.tree_of(LEAVES[:old])
        proof = trees.consistency(old, LEAVES[:new])
        check.check_consistency(old, before, new, after, proof)
        for wrong in mutations(proof):
            with pytest.raises(CheckError, match="consistency: the "):
                check.check_consistency(old, before, new, after, wrong)
        with pytest.raises(CheckError, match="consistency: the "):
            check.check_consistency(old, trees.leaf(b"?"), new, after, proof)
        if old or not new:
            with pytest.raises(CheckError, match="consistency: the "):
                check.check_consistency(old, before, new, trees.leaf(b"?"), proof)
    with pytest.raises(CheckError, match="has become smaller"):
        check.check_consistency(new + 1, after, new, after, [])
