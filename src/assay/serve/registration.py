"""Registration: the ways in which a key becomes a participant of a competition that is served.

- A hotkey (or another key) that participants.csv has is a participant already: nothing is to be done.
- An invitation lets a key in: for a participant of participants.csv that has only a name there, or as a new participant.
- Open registration is an invitation without a code: so many new keys, until a certain day.
- A participant may change its name by registering again. Boards show it from the next settled epoch on.

Only the SHA-256 of a code is stored. A competition whose participants are pulled from a chain takes no new ones.
"""

from __future__ import annotations

import secrets
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from assay.characters import mixed_word, unmasked
from assay.errors import BadInput, brief
from assay.folder import csvs
from assay.folder.files import alone
from assay.folder.registry import PULLED_FILE
from assay.judge import submitting
from assay.ledger.intake import open_epoch
from assay.ledger.keys import ED25519, PublicKey, hotkey
from assay.scheme.fields import instant_text
from assay.scheme.reading import present
from assay.serve.http import HttpProblem
from assay.serve.notebook import Invitation, Notebook
from assay.serve.signed import SignedRequest
from assay.serve.site import ServedCompetition, now
from assay.serve.uploads import seconds_to_wait

__all__ = ["RegistrationResult", "code_digest", "invite", "participant_name", "register"]

NAMES_PER_EPOCH = 10
"""The number of name changes that a participant has in an epoch: each is written, and pages are drawn again."""
_FORMULA = ("=", "+", "-", "@")
"""The beginnings of a cell that a spreadsheet computes: boards are handed out as CSV."""


@dataclass(frozen=True)
class RegistrationResult:
    """A participant, and whether it was registered, or got another name, just now."""

    participant: str
    new: bool
    renamed: bool = False


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
    """Makes the owner of a key a participant; again, it changes at most the name. asked: the request, whose nonce is used up.

    A key that no invitation lets in writes nothing and waits for nobody. Raises HttpProblem (403) for it, BadInput for a name or
    an address that cannot be, StoreError.
    """
    _store, notebook = served.books()
    if (known := _known(served, key)) is not None:
        return _renamed(served, known, name.strip(), asked)
    before = notebook.participant_of(key.id)
    if before is None:
        _check_invited(served, notebook, code)
    with alone(served.folder):
        if (known := _known(served, key)) is not None:
            return RegistrationResult(known, False)
        newcomer = participant_name(key)
        _check_name(served.folder, newcomer, name.strip())
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


def _renamed(served: ServedCompetition, participant: str, name: str, asked: SignedRequest | None) -> RegistrationResult:
    """Gives a participant another name; the same name, or none, changes nothing.

    Raises BadInput, HttpProblem (429) if it was changed too often, StoreError.
    """
    store, notebook = served.books()
    if not name:
        return RegistrationResult(participant, False)
    with alone(served.folder):
        if name == submitting.find(served.folder, participant).row.get("name", ""):
            return RegistrationResult(participant, False)
        _check_name(served.folder, participant, name)
        with _about_what_was_sent(served.folder):
            submitting.check_participant(served.folder, participant, name=name)
        if asked is not None:
            served.spend(asked)
        epoch = open_epoch(store)
        if not notebook.attempt(f"{participant}\nname", epoch, NAMES_PER_EPOCH):
            what = f"the name was changed {NAMES_PER_EPOCH} times in epoch {epoch}, and no more is possible"
            retry = seconds_to_wait(served.scheme, epoch)
            raise HttpProblem(429, what, hint=f"wait for epoch {epoch + 1}", field="name", stage="quota", retry=retry)
        submitting.rename_participant(served.folder, participant, name)
    return RegistrationResult(participant, False, renamed=True)


def _check_name(folder: Path, whose: str, name: str) -> None:
    """Raises BadInput for a name that looks like another participant's, or begins a formula of a spreadsheet."""
    file = folder / csvs.PARTICIPANTS.name
    if name.startswith(_FORMULA):
        raise BadInput(
            f"{brief(name, 80)} begins like a formula", field="name", hint=f"begin it with none of {' '.join(_FORMULA)}"
        )
    if (mixed := mixed_word(unicodedata.normalize("NFKC", name))) is not None:
        word, scripts = mixed
        what = f"{brief(name, 80)} has {' and '.join(scripts)} letters in one word, {ascii(word)[:200]}"
        raise BadInput(what, field="name", hint="letters that look the same hide who it is: write each word in one script")
    others = [row.fields for row in csvs.read(file, csvs.PARTICIPANTS) if row.fields["key"] != whose]
    if name and _folded(name) in {_folded(row.get(column, "")) for row in others for column in ("key", "name")}:
        raise BadInput(f"{brief(name, 80)} is the name of another participant", field="name", hint="choose another name")


def _row(folder: Path, newcomer: str, name: str, address: str) -> dict[str, str]:
    """The newcomer's row of participants.csv. Raises BadInput for a cell that it may not have."""
    with _about_what_was_sent(folder):
        return submitting.check_participant(folder, newcomer, name=name, address=address)


@contextmanager
def _about_what_was_sent(folder: Path) -> Iterator[None]:
    """Blame what was sent, not the file, for what is wrong with a new row."""
    try:
        yield
    except BadInput as error:
        if error.file == folder / csvs.PARTICIPANTS.name:
            error.file = error.line = None
        raise


def _folded(name: str) -> str:
    """A name as people see it: letters that look the same, of several scripts too, or differ only in case, are the same."""
    return unicodedata.normalize("NFKC", unmasked(unicodedata.normalize("NFKC", name)).casefold())


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
    if invitation.participant is None and present(served.folder / PULLED_FILE):
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
