"""The draw of `assign = k`."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.records import Participant
from assay.scheme.model import Consensus
from assay.settle.consensus import may_count
from assay.settle.pipeline import assigned, drawn

RANDOMNESS = bytes(range(32))
KEYS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=4), unique=True, max_size=8)


def place(randomness: bytes, material: str, key: str) -> str:
    return hashlib.sha256(randomness + bytes(1) + material.encode("utf-8") + bytes(1) + key.encode("utf-8")).hexdigest()


@pytest.mark.full
@pytest.mark.no_cover
@given(KEYS, st.data(), st.integers(1, 9))
def test_the_k_lowest_digests_of_those_that_may_count(keys: list[str], data: st.DataObject, k: int) -> None:
    may = data.draw(st.lists(st.booleans(), min_size=len(keys), max_size=len(keys)))
    allowed = [key for key, free in zip(keys, may, strict=True) if free]
    ranked = sorted(allowed, key=lambda key: place(RANDOMNESS, "größe", key))
    rows = assigned(keys, may, "größe", RANDOMNESS, k)
    assert [keys[row] for row in rows] == [key for key in keys if key in ranked[:k]]


def test_a_draw_worked_by_hand() -> None:
    # printf '\\x00…\\x1f\\x00sha256:ab\\x00v1' | sha256sum: v1 5ca0c897…, v2 f1e32c79…, v3 11ab5ce1…, v4 669e11d0…, v5 a6708bc9…
    keys = ("v1", "v2", "v3", "v4", "v5")
    assert assigned(keys, [True] * 5, "sha256:ab", RANDOMNESS, 1) == [2]
    assert assigned(keys, [True] * 5, "sha256:ab", RANDOMNESS, 3) == [0, 2, 3]
    assert assigned(keys, [True, True, False, True, True], "sha256:ab", RANDOMNESS, 2) == [0, 3]


def test_the_draw_depends_on_randomness_and_submission() -> None:
    keys = [f"v{n}" for n in range(64)]
    draws = {
        tuple(assigned(keys, [True] * 64, material, randomness, 8))
        for material in ("a", "b")
        for randomness in (RANDOMNESS, bytes(32))
    }
    assert len(draws) == 4


def test_randomness_of_another_length_is_refused() -> None:
    with pytest.raises(BadInput, match="31 bytes"):
        assigned(["v"], [True], "s", RANDOMNESS[:-1], 1)


def test_who_may_count() -> None:
    assert may_count([0, 1, 5], Consensus()) == [False, True, True]
    assert may_count([0, 1, 5], Consensus.model_validate({"min_validator_stake": "2"})) == [False, False, True]


def test_who_is_drawn_for_a_participant() -> None:
    keys, may = ("v1", "v2", "v3", "v4", "v5"), [True] * 5
    rules, participant = Consensus(assign=3), Participant("ann", submission="sha256:ab")
    assert drawn(participant, 7, keys, may, rules, {7: RANDOMNESS}) == [0, 2, 3]
    assert drawn(Participant("sha256:ab"), 7, keys, may, rules, {7: RANDOMNESS}) == [0, 2, 3]
    assert drawn(participant, 7, keys, may, Consensus(), {}) == [0, 1, 2, 3, 4]
    with pytest.raises(BadInput, match=r"no randomness of epoch 6, in which the submission of 'ann' was accepted"):
        drawn(participant, 6, keys, may, rules, {7: RANDOMNESS})
