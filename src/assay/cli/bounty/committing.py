"""The commitment that somebody means, and whether it is the account's own."""

from __future__ import annotations

import re
from pathlib import Path

from assay.errors import BadInput

__all__ = ["check_account", "commitment_of"]


def commitment_of(folder: Path, said: str) -> tuple[bytes, str | None]:
    """The commitment's 32 bytes, and whose it is, where that is known: from its digest, or from a file of `assay commit`.

    Raises BadInput for a file that is none, and for one of another bounty.
    """
    found = re.fullmatch(r"(?:sha256:|0x)?([0-9a-fA-F]{64})", said)
    if found:
        return bytes.fromhex(found[1]), None
    from assay.enclave import commitment
    from assay.enclave.rejected import Rejected
    from assay.folder.text import load
    from assay.scheme.bounty import read_bounty

    path = Path(said)
    data = load(path, commitment.SECRET_BYTES * 8, hint="give sha256:…, or the file that `assay commit` wrote")
    try:
        one = commitment.read(data)
        bounty, participant, digest = one.bounty, one.participant, one.digest
    except Rejected:
        try:
            secret = commitment.read_secret(data)
        except BadInput as error:
            raise error.at(file=path) from None
        bounty, participant, digest = secret.bounty, secret.participant, secret.commitment
    expected = read_bounty(folder).digest
    if bounty != expected:
        raise BadInput(f"is of another bounty, {bounty}", file=path, hint=f"this one is {expected}")
    return bytes.fromhex(digest.removeprefix("sha256:")), participant


def check_account(folder: Path, participant: str | None, account: str) -> None:
    """Refuse to commit from another account than the one that participants.csv has for who the commitment is of."""
    from assay.folder import csvs
    from assay.publish.evm.libraries import checksum

    if participant is None:
        return
    file = folder / "participants.csv"
    rows = {str(row.fields["key"]): row for row in csvs.read(file, csvs.PARTICIPANTS)}
    if participant not in rows:
        raise BadInput(f"has no participant {participant[:80]!r}", file=file, hint="the commitment is of that one")
    address = rows[participant].fields.get("address")
    if not address or checksum(str(address)) != account:
        what = f"{participant} is paid at {address or 'no address'}, and {account} would commit"
        raise rows[participant].place.refuse(what, field="address", hint="the account that commits is the one that is paid")
