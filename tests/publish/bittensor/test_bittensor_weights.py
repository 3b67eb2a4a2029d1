"""From exact shares to the vector that a subnet takes, and what becomes of a uid that has changed hands. SPEC 4, Encoding."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ledger_kit
import publish_kit
import subnet_kit as kit
from assay.errors import BadInput, CannotSettle
from assay.ledger import settling
from assay.publish import settled_epoch
from assay.publish.bittensor.weights import content, moved, of_content, vector
from assay.publish.settled_epoch import EpochShares


def test_the_largest_is_65535_and_zeros_are_left_out() -> None:
    encoded = vector(kit.shares({"a": (7, "1/3"), "b": (3, "2/3"), "c": (9, "1/1000000")}, burn="1/3"))
    assert (encoded.uids, encoded.values, encoded.burns) == ((0, 3, 7), (32768, 65535, 32768), True)
    assert vector(kit.shares({"a": (7, "1/2"), "b": (3, "1/2")})).by_uid == {3: 65535, 7: 65535}


def test_halves_go_up() -> None:
    # 1/2 of 65535 is 32767.5; a hair below it goes down, though no float could tell the two apart.
    half, hair = Fraction(1, 2), Fraction(1, 10**40)
    assert vector(EpochShares((("a", 1, Fraction(1)), ("b", 2, half)), Fraction(0), 0)).by_uid == {1: 65535, 2: 32768}
    assert vector(EpochShares((("a", 1, Fraction(1)), ("b", 2, half - hair)), Fraction(0), 0)).by_uid == {1: 65535, 2: 32767}


def test_what_burns_whole_is_the_burn_uid_alone() -> None:
    encoded = vector(kit.shares({}, burn="1", burn_uid=4))
    assert (encoded.uids, encoded.values, encoded.burns) == ((4,), (65535,), True)
    everybody = vector(kit.shares({"a": (7, "1/3"), "b": (3, "2/3")}), without=("a", "b"))
    assert everybody.by_uid == {0: 65535}
    with pytest.raises(BadInput, match="no participant has a weight"):
        vector(kit.shares({}))


def test_a_uid_that_changed_hands_burns_and_the_rest_is_encoded_anew() -> None:
    shares = kit.shares({"a": (2, "1/2"), "b": (3, "3/10"), "c": (4, "1/5")})
    there = kit.subnet("stranger", "b", "c")
    assert moved(shares, there) == {"a": "uid 2 has the hotkey stranger now"}
    encoded = vector(shares, tuple(moved(shares, there)))
    assert encoded.by_uid == {0: 65535, 3: 39321, 4: 26214}
    # The largest has gone: what the settlement shows is relative to one that is not there any more.
    with_it = vector(shares).by_uid
    assert with_it == {2: 65535, 3: 39321, 4: 26214}
    left = vector(kit.shares({"a": (2, "1/10"), "b": (3, "6/10"), "c": (4, "3/10")}), without=("b",))
    assert left.by_uid == {0: 65535, 2: 10923, 4: 32768}


def test_a_participant_that_is_gone_or_has_another_uid_burns() -> None:
    shares = kit.shares({"a": (2, "1/2"), "b": (9, "3/10"), "c": (3, "1/5")})
    assert moved(shares, kit.subnet("c", "x")) == {
        "a": "uid 2 has the hotkey c now",
        "b": "uid 9 is not on the subnet",
        "c": "uid 3 has the hotkey x now, and this one has uid 2",
    }
    assert moved(kit.shares({"a": (2, "1")}), kit.subnet("a")) == {}


def test_the_shares_survive_being_written_down() -> None:
    shares = kit.shares({"a": (7, "1/3"), "b": (3, "99999999999999999999/300000000000000000000")}, burn="1/300000000000000000000")
    document = json.loads(json.dumps(content(shares)))
    assert of_content(document) == shares
    assert [row["chain_u16"] for row in document["weights"]] == [65535, 65535]
    assert document["burn"] == {"uid": 0, "share": "1/300000000000000000000", "chain_u16": 0}


@given(st.lists(st.integers(0, 10**25), min_size=1, max_size=12), st.integers(0, 10**25), st.sets(st.integers(0, 11)))
def test_it_is_what_the_fractions_say(parts: list[int], burn: int, gone: set[int]) -> None:
    """By the words of SPEC 4, with fractions: w/max · 65535, halves up."""
    whole = sum(parts) + burn
    if whole == 0:
        return
    rows = tuple((f"p{at}", at + 1, Fraction(part, whole)) for at, part in enumerate(parts) if part)
    without = tuple(f"p{at}" for at in gone)
    left = {uid: share for key, uid, share in rows if key not in without}
    left[0] = Fraction(burn, whole) + sum(share for key, _, share in rows if key in without)
    top = max(left.values())
    wanted = {uid: int(share / top * 65535 + Fraction(1, 2)) for uid, share in left.items()}
    encoded = vector(EpochShares(rows, Fraction(burn, whole), 0), without)
    assert encoded.by_uid == {uid: value for uid, value in wanted.items() if value}
    assert list(encoded.uids) == sorted(encoded.uids)
    assert max(encoded.values) == 65535


SCHEME = """[scheme]
name = "small"
[score]
kind = "given"
[consensus]
min_validators = 1
min_stake = "0"
[reward]
strategy = "quadratic"
cap = "1"
[decay]
curve = "none"
"""


def test_the_ledger_gives_exact_shares(tmp_path: Path) -> None:
    people = "key,uid,submission\nm1,5,s1\nm2,6,s2\nm3,,s3\n"
    place = ledger_kit.ledger_folder(tmp_path / "c", "given", scheme_toml=SCHEME, participants_csv=people, tasks_txt=None)
    given_ = {"m1": "0.1", "m2": "0.2", "m3": "0.3"}
    ledger_kit.add(
        place,
        [
            record
            for (key, score), submission in zip(given_.items(), ("s1", "s2", "s3"), strict=True)
            for record in ledger_kit.records("given", validators=[ledger_kit.V1], score=score)[:1]
            if record.update(participant=key, submission=submission) is None
        ],
    )
    with ledger_kit.opened(place) as ledger:
        done = settling.settle(ledger, ledger_kit.SIGNER, 3)
        settled = settled_epoch.read(ledger, 3)
        shares = settled.shares()
    assert shares == EpochShares((("m2", 6, Fraction(4, 14)), ("m1", 5, Fraction(1, 14))), Fraction(9, 14), 0)
    assert vector(shares).by_uid == {
        **{row["uid"]: row["chain_u16"] for row in done.settlement.document["weights"] if row["uid"] is not None},
        0: done.settlement.document["burn"]["chain_u16"],
    }


def test_an_epoch_that_pays_out_has_no_weights(tmp_path: Path) -> None:
    scheme = publish_kit.SCHEME.format(deposit=1000)
    people = "key,uid,submission\nm1,,s-m1\n"
    place = ledger_kit.ledger_folder(tmp_path / "c", "rubric", scheme_toml=scheme, participants_csv=people, tasks_txt=None)
    ledger_kit.add(place, [publish_kit.rubric(9000, epoch=3, participant="m1", submission="s-m1")])
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, 3)
        settled = settled_epoch.read(ledger, 3)
        with pytest.raises(CannotSettle, match="settled into payouts, which are not weights"):
            settled.shares()
