"""Cases of whole settlements, each named after the rule that it shows. SPEC 2–5."""

from __future__ import annotations

from . import choices, settle_kinds, settle_rewards, settle_standing
from .case import File

DRAFTS = [*settle_standing.DRAFTS, *settle_kinds.DRAFTS, *settle_rewards.DRAFTS, *choices.SETTLED]

FILES = [File("settle-rules", "settle", "Whole settlements, a case for each rule (SPEC 2–5).", DRAFTS)]
