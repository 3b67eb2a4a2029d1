"""Fixtures for tests of bounties: a small one, as files in a folder."""

from __future__ import annotations

from pathlib import Path

SCHEME = """[scheme]
name = "small"
[score]
kind = "rubric"
[consensus]
min_validators = 1
min_stake = "0"
[reward]
kind = "payout"
"""
BOUNTY = """problem = "Write a haiku about integers."

[bounty]
name = "haiku"

[[checks]]
id = "C1"
label = "It is a haiku"
weight = 6000
unskippable = true

[[checks]]
id = "C2"
label = "It rhymes"
weight = 4000

[payout]
deposit = "1001"
threshold_bps = 7000
"""


def make_bounty(folder: Path, *edits: tuple[str, str], scheme: str = SCHEME, bounty: str = BOUNTY) -> Path:
    """A competition's folder with the bounty, some of its text replaced: each must be there."""
    for old, new in edits:
        assert old in bounty, old
        bounty = bounty.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scheme.toml").write_text(scheme, encoding="utf-8")
    (folder / "bounty.toml").write_text(bounty, encoding="utf-8")
    return folder
