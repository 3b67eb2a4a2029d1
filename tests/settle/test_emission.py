"""The emission split over a subnet's competitions, and the subnet file: SPEC 4, 7."""

from dataclasses import replace
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_folder
from assay.competition import emission
from assay.errors import BadInput
from assay.exact import NANO, U16, digest, text
from assay.scheme.model import Reward
from assay.scheme.subnet import SubnetFile, read
from assay.settle.emission import SplitInput, labels, split
from assay.settle.reward import Shares
from cli_kit import output
from test_ledger_registry import pull


def subnet(*shares: str, **fields: Any) -> SubnetFile:
    competitions = [{"path": f"c{i}", "share": share} for i, share in enumerate(shares)]
    return SubnetFile.model_validate({"competitions": competitions} | fields)


def settled(name: str, rows: dict[str, tuple[int | None, int]], denominator: int, **fields: Any) -> SplitInput:
    """rows: key → (uid, part)."""
    return SplitInput(
        name=name,
        epoch=fields.get("epoch", 12),
        digest=f"sha256:{name}",
        reward=Reward.model_validate(fields.get("reward", {})),
        participants=list(rows),
        uids=[uid for uid, _ in rows.values()],
        shares=Shares([part for _, part in rows.values()], denominator),
    )


A = settled("a", {"x": (1, 1), "y": (2, 1)}, 2)
B = settled("b", {"z": (3, 1), "x": (1, 1)}, 3)


def test_shares_add_up_over_the_competitions_and_the_rest_burns() -> None:
    emission = split(subnet("0.6", "0.3", emission="1000"), [A, B])
    assert [(row.participant, row.uid, row.share) for row in emission.rows] == [
        ("x", 1, Fraction(3, 10) + Fraction(1, 10)),
        ("y", 2, Fraction(3, 10)),
        ("z", 3, Fraction(1, 10)),
    ]
    assert emission.burn.share == Fraction(2, 10)  # a tenth that nobody claims, a tenth that b burns
    assert [row.u16 for row in emission.rows] == [26214, 19661, 6554]
    assert [row.chain_u16 for row in emission.rows] == [65535, 49151, 16384]
    assert (emission.burn.u16, emission.burn.chain_u16) == (13107, 32768)
    assert [part.emission for part in emission.competitions] == [600, 300]
    assert emission.unclaimed == 100


def test_the_document_is_closed_and_digested() -> None:
    emission = split(subnet("0.5", "0.5", emission="3", burn_uid=9), [A, B])
    content = dict(emission.document)
    assert content.pop("digest") == digest(content) == emission.digest
    assert content == {
        "schema": "assay.emission/1",
        "epoch": 12,
        "competitions": [
            {"name": "a", "share": "0.5", "emission": "2", "settlement": "sha256:a"},
            {"name": "b", "share": "0.5", "emission": "1", "settlement": "sha256:b"},
        ],
        "weights": [
            {"participant": "x", "uid": 1, "share": "0.416666667", "u16": 27306, "chain_u16": 65535},
            {"participant": "y", "uid": 2, "share": "0.25", "u16": 16384, "chain_u16": 39321},
            {"participant": "z", "uid": 3, "share": "0.166666667", "u16": 10923, "chain_u16": 26214},
        ],
        "burn": {"uid": 9, "share": "0.166666667", "u16": 10923, "chain_u16": 26214},
    }


def test_receipts_are_named_where_there_are_any() -> None:
    plain, with_receipt = (
        split(subnet("0.5", "0.5"), [A, B]),
        split(subnet("0.5", "0.5"), [A, replace(B, receipt="sha256:r", log="vkey")]),
    )
    assert "receipts" not in plain.document
    assert with_receipt.document["receipts"] == [{"competition": "b", "epoch": 12, "digest": "sha256:r", "log": "vkey"}]
    assert {**with_receipt.document, "digest": ""} == {**plain.document, "receipts": with_receipt.receipts, "digest": ""}
    assert with_receipt.digest != plain.digest


def test_an_emission_that_is_not_known_is_null() -> None:
    emission = split(subnet("0.5", "0.5"), [A, B])
    assert [part["emission"] for part in emission.document["competitions"]] == [None, None]
    assert emission.unclaimed is None


def test_the_largest_remainder_of_the_emission_goes_to_the_earlier_and_burns_last() -> None:
    emission = split(subnet("0.25", "0.25", "0.25", emission="2"), [A, B, settled("c", {}, 1)])
    assert [part.emission for part in emission.competitions] == [1, 1, 0]
    assert emission.unclaimed == 0


def test_encoding_happens_once_over_all() -> None:
    emission = split(subnet("0.5", "0.5", encoding="exact-sum"), [A, B])
    assert sum(row.u16 for row in emission.rows) + emission.burn.u16 == U16
    upscaled = split(subnet("0.5", "0.5", encoding="max-upscale"), [A, B])
    assert [row.u16 for row in upscaled.rows] == [row.chain_u16 for row in upscaled.rows] == [65535, 39321, 26214]


def test_a_participant_with_a_uid_here_and_none_there_is_refused() -> None:
    first = settled("a", {"x": (None, 0), "y": (None, 0)}, 1)
    for earlier, other, message in (
        (first, B, "'x' has uid 1 here and no uid in"),
        (B, first, "'x' has no uid here and uid 1 in"),
    ):
        with pytest.raises(BadInput, match=message):
            split(subnet("0.5", "0.5"), [earlier, other])
    emission = split(subnet("0.5", "0.5"), [first, first])
    assert [(row.participant, row.uid, row.share) for row in emission.rows] == [
        ("x", None, Fraction(0)),
        ("y", None, Fraction(0)),
    ]


def test_everybody_in_the_registries_is_asked_for_his_uid() -> None:
    with pytest.raises(BadInput, match="'y' has no uid here and uid 2 in an earlier competition"):
        split(subnet("0.5", "0.5"), [replace(A, listed=[("x", 1), ("y", 2)]), replace(B, listed=[("y", None)])])


@pytest.mark.parametrize("what", ["log", "receipt"])
def test_one_competition_is_not_joined_twice(what: str) -> None:
    same: Any = {what: "the same"}
    first, other = (replace(each, **same) for each in (A, B))
    with pytest.raises(BadInput, match=f"the competitions 'a' and 'b' have one {what}, the same"):
        split(subnet("0.5", "0.5"), [first, other])


def test_two_competitions_of_one_name_are_told_apart_by_their_folders() -> None:
    assert labels(subnet("0.5", "0.2", "0.2"), ["a", "b", "a"]) == ["a in c0", "b", "a in c2"]
    assert labels(subnet("0.5", "0.2"), ["c0", "c0"]) == ["c0", "c0 in c1"]
    twin = settled("a", {"x": (3, 1)}, 1)
    with pytest.raises(BadInput, match=r"uid 1 in an earlier competition \(competition 'a in c1'\)"):
        split(subnet("0.5", "0.5"), [A, twin])
    with pytest.raises(BadInput, match="'a in c0' 12, 'a in c1' 13"):
        split(subnet("0.5", "0.5"), [A, replace(A, epoch=13)])
    with pytest.raises(BadInput, match="the competitions 'a in c0' and 'a in c1' have one log"):
        split(subnet("0.5", "0.5"), [replace(A, log="L"), replace(A, log="L")])


NOBODY = replace(settled("n", {"w": (9, 0)}, 1), took_part=False)


def test_what_nobody_earned_goes_to_the_others_in_proportion() -> None:
    emission = split(subnet("0.4", "0.2", "0.2", emission="1000", unearned="others"), [NOBODY, A, B])
    assert [part.received for part in emission.competitions] == [0, Fraction(2, 5), Fraction(2, 5)]
    assert [part.emission for part in emission.competitions] == [0, 400, 400]
    assert emission.unclaimed == 200
    assert {row.participant: row.share for row in emission.rows} == {
        "w": 0,
        "x": Fraction(2, 5) / 2 + Fraction(2, 5) / 3,
        "y": Fraction(2, 5) / 2,
        "z": Fraction(2, 5) / 3,
    }
    assert emission.burn.share == 1 - sum(row.share for row in emission.rows)
    assert [row["received"] for row in emission.document["competitions"]] == ["0", "0.4", "0.4"]
    by_default = split(subnet("0.4", "0.2", "0.2", emission="1000"), [NOBODY, A, B])
    assert [part.emission for part in by_default.competitions] == [400, 200, 200]
    assert [part.received for part in by_default.competitions] == [None, None, None]
    assert "received" not in by_default.document["competitions"][0]


def test_what_nobody_earned_burns_where_nobody_can_take_it() -> None:
    for shares, rows in ((("0.4", "0.6"), [NOBODY, replace(NOBODY, name="m")]), (("0.4", "0"), [NOBODY, A])):
        emission = split(subnet(*shares, emission="10", unearned="others"), rows)
        assert emission.burn.share == 1
        assert [part.emission for part in emission.competitions] == [floor(Fraction(share) * 10) for share in shares]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (settled("b", {"x": (7, 1)}, 1), "'x' has uid 7 here and uid 1 in an earlier competition"),
        (settled("b", {"z": (2, 1)}, 1), "uid 2 belongs to 'z' here and to 'y' elsewhere"),
        (settled("b", {"z": (0, 1)}, 1), "'z' has uid 0, which is the subnet's burn UID"),
        (settled("b", {}, 1, epoch=13), "different epochs: 'a' 12, 'b' 13"),
        (settled("b", {}, 1, reward={"excess": "drop"}), 'has excess = "drop"'),
        (settled("b", {}, 1, reward={"kind": "payout"}), "settles into payouts"),
    ],
)
def test_what_cannot_be_joined_is_refused(other: SplitInput, message: str) -> None:
    with pytest.raises(BadInput, match=message.replace("(", r"\(")) as caught:
        split(subnet("0.5", "0.5"), [A, other])
    assert caught.value.hint
    assert "'b'" in str(caught.value)


def test_the_burn_uid_is_the_subnets() -> None:
    at_zero = settled("a", {"x": (0, 1)}, 1)
    assert split(subnet("1", burn_uid=4), [at_zero]).burn.uid == 4
    with pytest.raises(BadInput, match="burn UID"):
        split(subnet("1", burn_uid=1), [A])


def test_every_competition_has_its_settlement() -> None:
    with pytest.raises(ValueError, match="one settlement for each"):
        split(subnet("0.5", "0.5"), [A])


@given(data=st.data(), emission=st.integers(0, 2**63 - 1), others=st.booleans())
def test_split_is_what_the_fractions_say(data: st.DataObject, emission: int, others: bool) -> None:
    keys = st.sampled_from("tuvwxyz")
    parts = data.draw(st.lists(st.dictionaries(keys, st.integers(0, 50)), min_size=1, max_size=4))
    weights = data.draw(st.lists(st.integers(0, 100), min_size=len(parts), max_size=len(parts)))
    alpha = [Fraction(floor(Fraction(w, max(1, sum(weights))) * 1000), 1000) for w in weights]
    rest = data.draw(st.integers(1, 50))
    joined = split(
        subnet(*(text(int(a * NANO)) for a in alpha), emission=str(emission), unearned="others" if others else "burn"),
        [
            replace(
                settled(f"c{i}", {key: (ord(key), n) for key, n in rows.items()}, sum(rows.values()) + rest),
                took_part=any(rows.values()),
            )
            for i, rows in enumerate(parts)
        ],
    )
    assert [part.share for part in joined.competitions] == [a * NANO for a in alpha]
    earned = sum(a for a, rows in zip(alpha, parts, strict=True) if any(rows.values()))
    if others and earned:
        alpha = [a * sum(alpha) / earned if any(rows.values()) else Fraction(0) for a, rows in zip(alpha, parts, strict=True)]
    order = list(dict.fromkeys(key for rows in parts for key in rows))
    expected = {
        key: sum(a * Fraction(rows.get(key, 0), sum(rows.values()) + rest) for a, rows in zip(alpha, parts, strict=True))
        for key in order
    }
    assert {row.participant: row.share for row in joined.rows} == expected
    assert [row.participant for row in joined.rows] == order
    assert joined.burn.share == 1 - sum(expected.values())
    assert [row.u16 for row in joined.rows] == [floor(share * U16 + Fraction(1, 2)) for share in expected.values()]

    given_out = [part.emission for part in joined.competitions] + [joined.unclaimed]
    exact = [a * emission for a in [*alpha, Fraction(1 - sum(alpha))]]
    assert sum(rao or 0 for rao in given_out) == emission
    assert all(rao is not None and abs(rao - e) < 1 for rao, e in zip(given_out, exact, strict=True))


# The subnet file.

FILE = """
burn_uid = 3
encoding = "exact-sum"
emission = "7200000000000"

[[competitions]]
path = "term-challenge"
share = "60%"

[[competitions]]
path = "bounty-challenge"
share = "0.4"
"""


def written(folder: Path, content: str) -> Path:
    path = folder / "my-subnet.toml"
    path.write_text(content, encoding="utf-8")
    return path


def test_a_subnet_file_is_read(tmp_path: Path) -> None:
    subnet_file = read(written(tmp_path, FILE))
    assert [(member.path, member.share) for member in subnet_file.competitions] == [
        ("term-challenge", 6 * NANO // 10),
        ("bounty-challenge", 4 * NANO // 10),
    ]
    assert (subnet_file.encoding, subnet_file.burn_uid, subnet_file.emission) == ("exact-sum", 3, 7_200_000_000_000)
    short = read(written(tmp_path, '[[competitions]]\npath = "a"\nshare = "1"\n'))
    assert (short.encoding, short.burn_uid, short.emission) == ("round", 0, None)
    assert (short.unearned, short.competitions[0].log) == ("burn", None)
    log = "example.org/a+1a2b3c4d+AbC="
    more = read(written(tmp_path, f'unearned = "others"\n[[competitions]]\npath = "a"\nshare = "1"\nlog = "{log}"\n'))
    assert (more.unearned, more.competitions[0].log) == ("others", log)


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ('"0.4"', '"0.400000001"', "sum to 1.000000001; they may not be more than 1"),
        ('"0.4"', '"140%"', "competitions[1].share: '140%' is more than 1"),
        ('"0.4"', "0.4", "a JSON float"),
        ('"bounty-challenge"', '"term-challenge"', "'term-challenge' is listed twice"),
        ('path = "bounty-challenge"', "", "competitions[1].path: is missing"),
        ("burn_uid = 3", "burn_uid = 65536", "burn_uid"),
        ("burn_uid = 3", "burn_vid = 3", "did you mean 'burn_uid'"),
        ('"exact-sum"', '"exact"', "use one of"),
        ("burn_uid = 3", 'unearned = "other"', "unearned"),
        ('"0.4"', '"0.4"\nlog = "example.org/a"', "competitions[1].log"),
        ('"7200000000000"', '"-1"', "emission"),
        (FILE, "burn_uid = 0", "competitions: is missing"),
        (FILE, "competitions = []", "competitions"),
    ],
)
def test_a_wrong_subnet_file_is_refused_by_name_and_field(tmp_path: Path, was: str, now: str, message: str) -> None:
    path = written(tmp_path, FILE.replace(was, now))
    with pytest.raises(BadInput) as caught:
        read(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_folder_listed_by_two_paths_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to("a")
    path = written(tmp_path, FILE.replace("term-challenge", "a").replace("bounty-challenge", "b"))
    with pytest.raises(BadInput, match=r"competitions\[1\]\.path: 'b' is the same folder as 'a'; keep one"):
        read(path)


def test_a_missing_subnet_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        read(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("m2,7,,s2", "the participant 'm2' has uid 7 here and uid 2 in an earlier competition"),
        ("m2,,,s2", "the participant 'm2' has no uid here and uid 2 in an earlier competition"),
        ("m3,2,,s3", "the uid 2 belongs to 'm3' here and to 'm2' elsewhere"),
        ("m3,0,,s3", "the participant 'm3' has uid 0, which is the subnet's burn UID"),
    ],
)
def test_uids_in_conflict_are_refused_though_nobody_is_agreed_on(tmp_path: Path, row: str, message: str) -> None:
    small_folder.make(tmp_path / "a")
    scheme = small_folder.SCHEME.replace("small", "other") + "[decay]\nburn_uid = 9\n"
    small_folder.make(tmp_path / "b", scheme_toml=scheme, participants_csv=f"key,uid,name,submission\nm1,1,,s1\n{row}\n")
    file = tmp_path / "s.toml"
    file.write_text("".join(f'[[competitions]]\npath = "{path}"\nshare = "0.5"\n' for path in "ab"))
    with pytest.raises(BadInput, match=rf"s\.toml: uid: {message} \(competition 'other'\)"):
        emission(file)


def test_competitions_that_agree_on_uids_are_joined(tmp_path: Path) -> None:
    small_folder.make(tmp_path / "a")
    small_folder.make(tmp_path / "b", scheme_toml=small_folder.SCHEME.replace("small", "other"))
    file = tmp_path / "s.toml"
    file.write_text("".join(f'[[competitions]]\npath = "{path}"\nshare = "0.5"\n' for path in "ab"))
    joined = emission(file)
    assert [part.name for part in joined.competitions] == ["small", "other"]
    assert sum(row.share for row in joined.rows) + joined.burn.share == 1
    assert joined.receipts == []


def pulled_at(tmp_path: Path, older: str, newer: str, **changes: Any) -> Path:
    """A subnet of two competitions, one with the registry of an older block; rows: participants.csv after m1."""
    for name, rows, block in (("a", older, 100), ("b", newer, 200)):
        scheme = small_folder.SCHEME.replace("small", name)
        table = f"key,uid,name,submission\nm1,1,,s1\n{rows}"
        small_folder.make(tmp_path / name, scheme_toml=scheme, participants_csv=table)
        pull(tmp_path / name, **{"block": block} | (changes if name == "b" else {}))
    file = tmp_path / "s.toml"
    file.write_text("".join(f'[[competitions]]\npath = "{path}"\nshare = "0.5"\n' for path in "ab"))
    return file


@pytest.mark.parametrize(
    ("newer", "held"),
    [("m2,7,,s2\n", "uid 7"), ("m2,,,s2\n", "no uid"), ("m3,2,,s3\n", "no uid"), ("", "no uid")],
)
def test_the_uids_of_an_older_block_are_not_mixed_with_those_of_a_newer(tmp_path: Path, newer: str, held: str) -> None:
    """Also where the newer registry does not know the key any more: nothing else would contradict its uid."""
    older = "'a' has an older registry, of block 100, than 'b', of block 200"
    file = pulled_at(tmp_path, "m2,2,,s2\n", newer)
    with pytest.raises(BadInput, match=rf"s\.toml: competitions: {older}: 'm2' had uid 2, and has {held} since; .*registry pull"):
        emission(file)


def test_uids_that_two_blocks_agree_on_are_joined_and_the_board_says_which_is_older(tmp_path: Path) -> None:
    file = pulled_at(tmp_path, "m2,,,s2\n", "m2,,,s2\nm3,3,,s3\n")
    printed = " ".join(output("emission", file, columns=200).split())
    assert "The registry of a is of block 100, older than block 200; its uids were the same then." in printed
    assert "assay registry pull SUBNET.toml --to NAME" in printed
    pull(tmp_path / "a", block=200)
    assert "registry" not in output("emission", file)


@pytest.mark.parametrize("other", [{"netuid": 6}, {"chain": f"0x{'cd' * 32}"}])
def test_uids_of_two_subnets_are_not_joined(tmp_path: Path, other: dict[str, Any]) -> None:
    file = pulled_at(tmp_path, "m2,2,,s2\n", "m2,2,,s2\n", **other)
    with pytest.raises(BadInput, match=r"'a' has uids of subnet 5 of the chain 0xab.*, but 'b' has uids of subnet"):
        emission(file)


def test_the_board_says_what_the_others_receive(tmp_path: Path) -> None:
    alone = small_folder.SCHEMES["given"] + '[consensus]\nmin_validators = 1\nmin_stake = "0"\n[reward]\nmin_score = '
    small_folder.make(tmp_path / "a", "given", scheme_toml=f'{alone}"0"\n')
    small_folder.make(tmp_path / "b", "given", scheme_toml=f'{alone}"1"\n'.replace("small", "other"))
    file = tmp_path / "s.toml"
    rows = "".join(f'[[competitions]]\npath = "{path}"\nshare = "{share}"\n' for path, share in (("a", "0.5"), ("b", "0.3")))
    file.write_text(f'unearned = "others"\n{rows}')
    board = output("emission", file)
    assert "Nobody took part in other: its part goes to the others in proportion to theirs." in " ".join(board.split())
    assert [line.split() for line in board.splitlines() if line.startswith(("small", "other"))] == [
        ["small", "50", "%", "80", "%"],
        ["other", "30", "%", "0", "%"],
    ]
    file.write_text(rows)
    assert "Nobody took part" not in output("emission", file)
