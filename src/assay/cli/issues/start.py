"""What a new competition judged by issues begins with beside its rules: issues.toml and an empty accounts.csv."""

from __future__ import annotations

from assay.scheme.model import PointsScore

__all__ = ["files_of"]

ACCOUNTS = "participant,url,key\n"
ISSUES = """# How reported issues are judged. Every validator has the same file; what is counted follows from it and from GitHub.
# The names and ids are an invented sample: put your own in their place. `assay issues id DIR NAME` shows ids.

[github]
api = "https://api.github.com"     # GitHub Enterprise: https://HOST/api/v3

[epochs]
first = 1                          # the number of the first epoch
begins = 2026-11-02T00:00:00Z      # when it begins; what happened before is not looked at
seconds = 86400                    # how long each one lasts: a day
wait = 300                         # seconds after its end before it is judged

[labels]                           # what a maintainer says with a label; the last one set, and not taken off again, decides
valid = ["valid"]
invalid = ["invalid"]
duplicate = ["duplicate"]          # decides too, and counts as neither; listed under invalid, it would count as that

[maintainers]                      # whose labels count: the id of the account; the name is for the reader
kestrel = 9001
# merlin = { id = 9002, since = 2026-11-02T00:00:00Z, until = 2026-12-01T00:00:00Z }    # only while he was one

[repositories]                     # the id of each repository of the scheme's table: names change, and can be taken by others
"""


def files_of(score: PointsScore) -> dict[str, str]:
    """File name → text."""
    rows = "".join(f'"{name}" = {700_001 + place}\n' for place, name in enumerate(score.repositories))
    return {"issues.toml": ISSUES + rows, "accounts.csv": ACCOUNTS}
