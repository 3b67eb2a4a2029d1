"""`assay bounty check` and what `assay init` makes of a bounty: told back as it is, numbers that the settlement would give."""

from __future__ import annotations

import json
from pathlib import Path

import rfc8785

from assay.scheme.bounty import read_bounty
from assay.scheme.load import parse, presets, read
from bounty_kit import BOUNTY, make_bounty
from cli_kit import from_preset, narrow, output, refused, rewrite, run

NAME = 'name = "haiku"\n'
ENCLAVE = f'[enclave]\ncompose_hash = "{"ab" * 32}"\n'


def test_a_new_bounty_is_the_preset_in_the_house_s_file_and_the_sponsor_s(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "b", "agonaut")
    assert read(place / "scheme.toml").digest == parse(presets()["agonaut"]).digest
    own = (place / "bounty.toml").read_text(encoding="utf-8")
    assert own.count("[[checks]]") == 8
    assert own.count("[[payout.tiers]]") == 3
    assert "score.checks" not in own
    assert not {"checks", "payout"} & {line.strip("[] ") for line in (place / "scheme.toml").read_text().splitlines()}
    commented = {line for text in (own, (place / "scheme.toml").read_text(encoding="utf-8")) for line in text.splitlines()}
    lost = [
        line for line in presets()["agonaut"].splitlines() if line not in commented and not line.startswith("[[score.checks]]")
    ]
    assert lost == []  # no comment and no rule got lost
    assert read_bounty(place).problem is not None


def test_a_bounty_is_told_back(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "b", "agonaut")
    shown = run("bounty", "check", place, columns=100)
    text, rows = shown.stdout, [line.split() for line in shown.stdout.splitlines()]
    assert narrow(text, 100)
    assert "These must not be missed: C1, C2 and C4." in text
    assert "Write a library that finds the shortest path" in text
    for verdict, bps in (
        ("EXCEPTIONAL", "10000"),
        ("ELEGANT", "9000"),
        ("MINOR_ISSUES", "7200"),
        ("FUNDAMENTALLY_BROKEN", "2000"),
    ):
        (row,) = [row for row in rows if row[:1] == [verdict]]
        assert row[-2:] == [bps, "2000"]
    assert ["5600", "80", "%", "50", "%", "500000000000000000", "0.5"] in rows
    assert ["1st", "100", "%", "1000000000000000000", "0", "1000000000000000000", "1"] in rows
    assert "There is no enclave, so the validators who judge can read the solutions." in text
    assert shown.stderr.count("warning:") == 3
    assert f"Digest {read_bounty(place).digest}" in text


def test_the_same_as_json(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "b", "agonaut")
    rewrite(place / "bounty.toml", "split = [10000] ", "split = [6000, 4000] ")
    rewrite(place / "bounty.toml", "fee_bps = 0 ", "fee_bps = 250 ")
    shown = run("bounty", "check", place, "--json")
    document = json.loads(shown.stdout)
    assert rfc8785.dumps(document) + b"\n" == shown.stdout_bytes
    bounty = read_bounty(place)
    assert (document["bounty"], document["digest"]) == (bounty.document(), bounty.digest)
    assert document["verdicts"]["bps"]["ELEGANT"] == 9000
    assert [tier["from_bps"] for tier in document["release"]["tiers"]] == [7000, 5600, 3500]
    assert [row["net"] for row in document["places"]["places"]] == ["585000000000000000", "390000000000000000"]
    assert len(document["warnings"]) == 3
    assert shown.stderr == ""


def test_a_bounty_of_one_check_and_one_of_none_but_hard_ones(tmp_path: Path) -> None:
    single = BOUNTY.replace("weight = 6000", "weight = 10000")
    single = single[: single.index('[[checks]]\nid = "C2"')] + single[single.index("[payout]") :]
    text = output("bounty", "check", make_bounty(tmp_path / "one", bounty=single))
    assert "A solution that meets everything has a base of 10000 BPS" in " ".join(text.split())
    text = output("bounty", "check", make_bounty(tmp_path / "hard", ("weight = 4000", "weight = 4000\nskippable = false")))
    assert "A solution that meets everything has a base of 10000 BPS" in " ".join(text.split())
    soft = output("bounty", "check", make_bounty(tmp_path / "soft", ("unskippable = true\n", "")), columns=100)
    assert "Each of them may be missed." in soft
    assert next(line.split() for line in soft.splitlines() if "EXCEPTIONAL" in line)[::9] == ["EXCEPTIONAL", "10000"]


def test_sealed_enclaved_and_wary(tmp_path: Path) -> None:
    sealed = f'problem = {{ sealed = "problem.sealed", digest = "sha256:{"0" * 64}" }}'
    edits = [
        ('problem = "Write a haiku about integers."', sealed),
        (NAME, NAME + "commitments_until = 2020-01-01T00:00:00Z\n" + ENCLAVE + 'tcb = ["OutOfDate"]\n'),
    ]
    place = make_bounty(tmp_path, *edits)
    rewrite(place / "scheme.toml", 'kind = "rubric"', 'kind = "rubric"\ninjection = "unjudged"')
    text = " ".join(output("bounty", "check", place, columns=120).split())
    assert "The problem is sealed: only the enclave reads it." in text
    assert "2020-01-01T00:00:00Z, which is past" in text
    assert "Its platform is UpToDate and OutOfDate, and it measures as:" in text
    assert "ab" * 32 in text
    assert "ab" * 32 in output("bounty", "check", place), "a digest is whole, also where the terminal is too narrow for it"
    assert "is unjudged until a person has looked" in text


def test_what_is_paid_is_shown_in_ether_too(tmp_path: Path) -> None:
    place = make_bounty(tmp_path, ('deposit = "1001"', 'deposit = "2500000000000000000"'))
    shown = output("bounty", "check", place)
    assert "The deposit is 2500000000000000000 wei (2.5 ether)" in shown
    assert narrow(shown)


def test_a_bounty_without_a_payout_is_told_without(tmp_path: Path) -> None:
    scheme = '[scheme]\nname = "s"\n[score]\nkind = "rubric"\n'
    place = make_bounty(tmp_path, scheme=scheme, bounty=BOUNTY[: BOUNTY.index("[payout]")])
    assert "released" not in output("bounty", "check", place)


def test_keys_that_are_none_are_refused(tmp_path: Path) -> None:
    place = make_bounty(tmp_path / "a", (NAME, NAME + f'sponsor = "x25519:{"0" * 64}"\n'))
    assert "bounty.toml: bounty.sponsor: " in refused("bounty", "check", place)
    place = make_bounty(tmp_path / "b", (NAME, NAME + 'log = "example.org/log"\n'))
    assert "bounty.toml: bounty.log: " in refused("bounty", "check", place)
    assert "scheme.toml: no such file" in refused("bounty", "check", tmp_path / "none")


def test_a_panel_is_told(tmp_path: Path) -> None:
    place = make_bounty(tmp_path)
    scheme, bounty = place / "scheme.toml", place / "bounty.toml"
    panel = 'kind = "rubric"\n[score.panel]\nanswers = 4\nmax_disagreement = "1/4"\n'
    scheme.write_text(scheme.read_text().replace('kind = "rubric"\n', panel))
    bounty.write_text(bounty.read_text() + '[[judge.panel]]\nname = "one"\n[[judge.panel]]\nname = "two"\n')
    shown = run("bounty", "check", place, columns=100)
    printed = " ".join(shown.stdout.split())
    assert "one and two answer in turn" in printed
    assert "A panel of 4 answers judges each solution: the majority of each question counts." in printed
    assert (
        "If a question has no majority, or more than 1/4 of the votes on one question differ, the solution is unjudged" in printed
    )
    assert "of 4 answers half can say YES and half NO" in " ".join(shown.stderr.split())
