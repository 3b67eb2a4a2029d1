"""How a key becomes a participant of a competition that is served.

- A hotkey (or another key) that participants.csv has is a participant already: nothing is to be done.
- An invitation lets a key in: for a participant of participants.csv that has only a name there, or as a new participant.
- Open registration is an invitation without a code: so many new keys, until a certain day.

Only the SHA-256 of a code is stored. A competition whose participants are pulled from a chain takes no new ones.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from assay.errors import BadInput
from assay.folder import csvs
from assay.folder.files import alone
from assay.judge import submitting
from assay.ledger.keys import ED25519, PublicKey, hotkey
from assay.scheme.fields import instant_text
from assay.scheme.reading import present
from assay.serve.http import HttpProblem
from assay.serve.notebook import Invitation, Notebook
from assay.serve.site import ServedCompetition, now

__all__ = ["Registered", "code_digest", "invite", "participant_name", "register"]

_PULLED = "registry.json"


@dataclass(frozen=True)
class Registered:
    """A participant, and whether it was registered just now."""

    participant: str
    new: bool


def code_digest(code: str) -> str:
    """What is stored of an invitation's code: its SHA-256, hex. The empty code is open registration."""
    return sha256(code.encode()).hexdigest()


def invite(notebook: Notebook, participant: str | None, *, uses: int, until: datetime, everybody: bool = False) -> str:
    """Stores a new invitation, and returns its code, which nobody can read again; empty if it is for everybody."""
    code = "" if everybody else secrets.token_urlsafe(18)
    notebook.invite(Invitation(code_digest(code), participant, uses, instant_text(until)))
    return code


def participant_name(key: PublicKey) -> str:
    """How a participant is called that is known by its key alone: as `assay keys show` prints the key."""
    return key.raw.hex() if key.kind == ED25519 else hotkey.address(key.raw)


def register(served: ServedCompetition, key: PublicKey, code: str, *, name: str = "", address: str = "") -> Registered:
    """Makes the owner of a key a participant; again, it changes nothing.

    Raises HttpProblem (403) if no invitation lets the key in, BadInput for a name or an address that cannot be, StoreError.
    """
    _desk, notebook = served.books()
    with alone(served.folder):
        try:
            return Registered(served.participant_of(key), False)
        except HttpProblem as error:
            if error.status != 403:
                raise
        before = notebook.participant_of(key.id)
        newcomer = participant_name(key)
        csvs_row = submitting.check_participant(served.folder, newcomer, name=name, address=address)
        participant = before or _join(served, notebook, key, code, newcomer)
        if participant == newcomer:
            submitting.add_participant(served.folder, csvs_row)
    return Registered(participant, True)


def _join(served: ServedCompetition, notebook: Notebook, key: PublicKey, code: str, newcomer: str) -> str:
    pulled = present(served.folder / _PULLED)
    known = {row.fields["key"] for row in csvs.read(served.folder / csvs.PARTICIPANTS.name, csvs.PARTICIPANTS)}
    invitation = notebook.invitation(code_digest(code))
    if invitation is None and not code:
        hint = "ask the operator for a code: assay register --code CODE"
        raise HttpProblem(403, "registration needs an invitation", hint=hint, stage="invitation")
    if invitation is not None and invitation.participant is None and pulled:
        what = f"the participants of {served.name!r} are those of a chain"
        raise HttpProblem(
            403, what, hint="register the hotkey on the chain; the operator then pulls the registry", stage="invitation"
        )
    if invitation is not None and invitation.participant is not None and invitation.participant not in known:
        what = f"the invitation is for {invitation.participant!r}, who is no participant any more"
        raise HttpProblem(403, what, hint="ask the operator for a new one", stage="invitation")
    try:
        return notebook.join(code_digest(code), newcomer, key.id, now())
    except BadInput as error:
        raise HttpProblem(403, error.what, hint=error.hint, stage="invitation") from None
