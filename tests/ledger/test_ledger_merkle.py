"""Building roots and proofs: equal to RFC 6962's definition, and accepted by the stand-alone checks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.ledger import check, merkle
from assay.ledger.merkle import Proof, Tree
from oracle import trees

LEAVES = [trees.leaf(bytes([number])) for number in range(200)]


@pytest.mark.no_cover
@pytest.mark.parametrize("size", range(35))
def test_the_root_is_that_of_the_definition(size: int) -> None:
    assert merkle.root(LEAVES[:size]) == trees.tree_of(LEAVES[:size])
    assert Tree(LEAVES[:size]).root() == trees.tree_of(LEAVES[:size])
    assert Tree(LEAVES[:size]).size == size


@given(st.integers(1, 200), st.data())
def test_proofs_are_those_of_the_definition(size: int, data: st.DataObject) -> None:
    tree = Tree(LEAVES)
    index, old = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, size))
    proof = tree.inclusion(index, size)
    assert proof == Proof(index, size, tuple(trees.inclusion(index, LEAVES[:size])))
    check.check_inclusion(tree.root(size), size, index, LEAVES[index], proof.hashes)
    between = tree.consistency(old, size)
    assert list(between) == trees.consistency(old, LEAVES[:size])
    check.check_consistency(old, tree.root(old), size, tree.root(size), between)


def test_a_tree_proves_for_all_its_leaves() -> None:
    tree = Tree(LEAVES[:5])
    assert tree.inclusion(4).hashes == tuple(trees.inclusion(4, LEAVES[:5]))
    assert list(tree.consistency(3)) == trees.consistency(3, LEAVES[:5])


def test_what_is_not_there_has_no_proof() -> None:
    tree = Tree(LEAVES[:5])
    for index in (-1, 5):
        with pytest.raises(ValueError, match=f"there is no leaf {index} in a tree of 5"):
            tree.inclusion(index)
    for old, new in ((4, 3), (-1, 3)):
        with pytest.raises(ValueError, match=f"a tree of 3 does not go on from one of {old}"):
            tree.consistency(old, new)
