"""The statement by which a participant links a GitHub account: signed with his key, published by that account. SPEC 2.4.

It is a DSSE envelope around an in-toto statement that names competition, participant and account, between two lines that make
it easy to find in a gist or a comment. The signature shows that the participant wants it, the place that the account does.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from assay.errors import BadInput, brief
from assay.exact import canonical
from assay.ledger import check
from assay.ledger.envelope import sign
from assay.ledger.keys import PrivateKey, PublicKey
from assay.ledger.refusal import as_bad_input

__all__ = ["PREDICATE", "Claim", "block", "claimed"]

PREDICATE = "assay:account/v1"
BLOCKS = 100
"""Statements that are looked at in one text."""

_BEGIN, _END = "-----BEGIN ASSAY ACCOUNT-----", "-----END ASSAY ACCOUNT-----"
_BLOCK = re.compile(rf"^{_BEGIN}[ \t\r]*\n[ \t\r]*(\{{[^\n]*\}})[ \t\r]*\n[ \t\r]*{_END}[ \t\r]*$", re.MULTILINE)
_AGAIN = "publish what `assay issues link` prints, unchanged"
_SHAPE = {
    "_type": re.escape(check.STATEMENT),
    "subject": [{"name": check.WORD, "digest": {"sha256": "[0-9a-f]{64}"}}],
    "predicateType": re.escape(PREDICATE),
    "predicate": {"competition": check.WORD, "participant": check.WORD, "account": int, "login": check.WORD},
}


@dataclass(frozen=True)
class Claim:
    """Who says that which account is his: the account by its id, `login` is what it was called then."""

    competition: str
    participant: str
    account: int
    login: str

    def document(self) -> dict[str, Any]:
        """The in-toto statement."""
        name = f"GitHub account {self.account}"
        return {
            "_type": check.STATEMENT,
            "subject": [{"name": name, "digest": {"sha256": sha256(name.encode()).hexdigest()}}],
            "predicateType": PREDICATE,
            "predicate": {
                "competition": self.competition,
                "participant": self.participant,
                "account": self.account,
                "login": self.login,
            },
        }


def block(claim: Claim, signer: PrivateKey) -> str:
    """The signed statement as it is published, three lines."""
    envelope = sign(canonical(claim.document()), signer)
    return f"{_BEGIN}\n{json.dumps(envelope, separators=(',', ':'))}\n{_END}\n"


def claimed(text: str, competition: str, participant: str, key: PublicKey) -> Claim:
    """What a participant claims in a text, signed with his key; statements about others are passed over.

    Raises BadInput if there is no such statement, or if it is not signed with the key.
    """
    refused: BadInput | None = None
    for number, found in enumerate(_BLOCK.finditer(text)):
        if number == BLOCKS:
            break
        try:
            envelope, claim = _read(found[1].encode("utf-8", "surrogatepass"))
            if (claim.competition, claim.participant) != (competition, participant):
                what = f"the statement is about {brief(claim.participant)} in {brief(claim.competition)}"
                raise BadInput(what, hint=f"publish one about {participant!r} in {competition!r}: `assay issues link`")
            with as_bad_input("sign it with the participant's own key: `assay issues link --key`"):
                check.check_envelope(envelope, [key], "statement")
            return claim
        except BadInput as error:
            refused = refused or error
    raise refused or BadInput("there is no statement in it", hint=_AGAIN)


def _read(data: bytes) -> tuple[check.Envelope, Claim]:
    """An envelope, and what it states, whoever signed it; raises BadInput."""
    with as_bad_input(_AGAIN):
        envelope = check.Envelope.parse(check.parse_json(data, "statement"), "statement")
        document = check.parse_json(envelope.payload, "statement")
        if bad := check.misfit(document, _SHAPE):
            raise check.Refused("statement", "it does not state whose account it is", found=f"another {bad}")
    claim = Claim(**document["predicate"])
    if canonical(claim.document()) != envelope.payload:
        raise BadInput("the statement is not in its canonical form", hint=_AGAIN)
    return envelope, claim
