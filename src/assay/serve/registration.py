"""How a key becomes a participant of a competition that is served.

- A hotkey (or another key) that participants.csv has is a participant already: nothing is to be done.
- An invitation lets a key in: for a participant of participants.csv that has only a name there, or as a new participant.
- Open registration is an invitation without a code: so many new keys, until a certain day.

Only the SHA-256 of a code is stored. A competition whose participants are pulled from a chain takes no new ones.
"""

from __future__ import annotations

import secrets
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from assay.errors import BadInput, brief
from assay.folder import csvs
from assay.folder.files import alone
from assay.judge import submitting
from assay.ledger.keys import ED25519, PublicKey, hotkey
from assay.scheme.fields import instant_text
from assay.scheme.reading import present
from assay.serve.http import HttpProblem
from assay.serve.notebook import Invitation, Notebook
from assay.serve.signed import SignedRequest
from assay.serve.site import ServedCompetition, now

__all__ = ["RegistrationResult", "code_digest", "invite", "participant_name", "register"]

_PULLED = "registry.json"
_FORMULA = ("=", "+", "-", "@")
"""How a cell begins that a spreadsheet computes: boards are handed out as CSV."""


@dataclass(frozen=True)
class RegistrationResult:
    """A participant, and whether it was registered just now."""

    participant: str
    new: bool


def code_digest(code: str) -> str:
    """Return what is stored of an invitation's code: its SHA-256, hex. The empty code is open registration."""
    return sha256(code.encode()).hexdigest()


def invite(notebook: Notebook, participant: str | None, *, uses: int, until: datetime, everybody: bool = False) -> str:
    """Stores a new invitation, and returns its code, which nobody can read again; empty if it is for everybody."""
    code = "" if everybody else secrets.token_urlsafe(18)
    notebook.invite(Invitation(code_digest(code), participant, uses, instant_text(until)))
    return code


def participant_name(key: PublicKey) -> str:
    """Return the name of a participant that is known by its key alone: the key as `assay keys show` prints it."""
    return key.raw.hex() if key.kind == ED25519 else hotkey.address(key.raw)


def register(
    served: ServedCompetition, key: PublicKey, code: str, *, name: str = "", address: str = "", asked: SignedRequest | None = None
) -> RegistrationResult:
    """Makes the owner of a key a participant; again, it changes nothing. asked: the request, whose nonce is used up by that.

    A key that no invitation lets in writes nothing and waits for nobody. Raises HttpProblem (403) for it, BadInput for a name or
    an address that cannot be, StoreError.
    """
    _desk, notebook = served.books()
    if (known := _known(served, key)) is not None:
        return RegistrationResult(known, False)
    before = notebook.participant_of(key.id)
    if before is None:
        _check_invited(served, notebook, code)
    with alone(served.folder):
        if (known := _known(served, key)) is not None:
            return RegistrationResult(known, False)
        newcomer = participant_name(key)
        csvs_row = _row(served.folder, newcomer, name.strip(), address)
        if asked is not None:
            served.spend(asked)
        participant = before or _join(notebook, key, code, newcomer)
        if participant == newcomer:
            submitting.add_participant(served.folder, csvs_row)
    return RegistrationResult(participant, True)


def _known(served: ServedCompetition, key: PublicKey) -> str | None:
    """The participant with a key; None for a stranger."""
    try:
        return served.participant_of(key)
    except HttpProblem as error:
        if error.status != 403:
            raise
    return None


def _row(folder: Path, newcomer: str, name: str, address: str) -> dict[str, str]:
    """The newcomer's row of participants.csv. Raises BadInput for a name of another or a formula of a spreadsheet."""
    file = folder / csvs.PARTICIPANTS.name
    if name.startswith(_FORMULA):
        raise BadInput(
            f"{brief(name, 80)} begins like a formula", field="name", hint=f"begin it with none of {' '.join(_FORMULA)}"
        )
    taken = {_folded(row.fields.get(column, "")) for row in csvs.read(file, csvs.PARTICIPANTS) for column in ("key", "name")} - {
        ""
    }
    if _folded(name) in taken:
        raise BadInput(f"{brief(name, 80)} is the name of another participant", field="name", hint="choose another name")
    try:
        return submitting.check_participant(folder, newcomer, name=name, address=address)
    except BadInput as error:
        if error.file == file:  # it is about what was sent
            error.file = error.line = None
        raise


def _folded(name: str) -> str:
    """A name as people see it: letters that look the same, or differ only in case, are the same."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _check_invited(served: ServedCompetition, notebook: Notebook, code: str) -> None:
    """Raises HttpProblem (403) if there is no invitation with this code, or nobody can use it."""
    invitation = notebook.invitation(code_digest(code))
    if invitation is None and not code:
        hint = "ask the operator for a code: assay register --code CODE"
        raise HttpProblem(403, "registration needs an invitation", hint=hint, stage="invitation")
    try:
        invitation = notebook.usable(code_digest(code), now())
    except BadInput as error:
        raise HttpProblem(403, error.what, hint=error.hint, stage="invitation") from None
    if invitation.participant is None and present(served.folder / _PULLED):
        what = f"the participants of {served.name!r} are those of a chain"
        raise HttpProblem(
            403, what, hint="register the hotkey on the chain; the operator then pulls the registry", stage="invitation"
        )
    known = {row.fields["key"] for row in csvs.read(served.folder / csvs.PARTICIPANTS.name, csvs.PARTICIPANTS)}
    if invitation.participant is not None and invitation.participant not in known:
        what = f"the invitation is for {invitation.participant!r}, who is no participant any more"
        raise HttpProblem(403, what, hint="ask the operator for a new one", stage="invitation")


def _join(notebook: Notebook, key: PublicKey, code: str, newcomer: str) -> str:
    try:
        return notebook.join(code_digest(code), newcomer, key.id, now())
    except BadInput as error:
        raise HttpProblem(403, error.what, hint=error.hint, stage="invitation") from None
