"""The statement for one participant and one account, made where the participant is. SPEC 2.4."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from assay.errors import BadInput
from assay.folder import csvs
from assay.judge.entries import known
from assay.judge.issues import lookup, rules
from assay.judge.issues.statement import Claim, block
from assay.ledger.keys import PrivateKey, public
from assay.scheme.load import read as read_scheme

__all__ = ["statement"]


def statement(
    competition: Path, signer: PrivateKey, login: str, participant: str | None, tell: Callable[[str, float], None]
) -> str:
    """The signed statement, as it is to be published; the participant is found by the key, if it is not said.

    Raises BadInput for a key that is nobody's, an account that is none, and Unread.
    """
    scheme = read_scheme(competition / "scheme.toml")
    file = competition / csvs.PARTICIPANTS.name
    keys = [row.fields["key"] for row in csvs.read(file, csvs.PARTICIPANTS)]
    if participant is None:
        participant = next((key for key in keys if _is(signer, key)), None)
        if participant is None:
            what = f"no participant has the key {signer.public}"
            raise BadInput(what, file=file, hint="take part with it, or say who you are: --participant")
    known(participant, keys, file, "participant")
    found = lookup.account(rules.api(competition), login, tell)
    if found.type != "User":
        raise BadInput(f"{found.login} is no person's account ({found.type})", field="login", hint="link the account of a person")
    return block(Claim(scheme.name, participant, found.id, found.login), signer)


def _is(signer: PrivateKey, key: str) -> bool:
    try:
        return public(key) == signer.public
    except BadInput:
        return False
