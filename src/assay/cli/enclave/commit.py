"""`assay commit`: commit to a solution before anybody sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.enclave.words import Folder, UrlOption

__all__ = ["commit"]


def commit(
    folder: Folder,
    solution: Annotated[Path, typer.Argument(metavar="SOLUTION", help="A text file, or a folder of them.", show_default=False)],
    key: Annotated[str, typer.Option(metavar="NAME", help="The participant's key file, which signs.")],
    participant: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The participant as participants.csv has it; otherwise by the key.", show_default=False),
    ] = None,
    url: UrlOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="As canonical JSON.")] = False,
) -> None:
    """Commit to a solution before anybody sees it.

    A commitment is a hash that binds bounty, participant, a secret salt and the solution. The salt goes into DIR/sealing, for
    you alone: keep it, since without it the commitment is good for nothing. The signed commitment goes beside it, and with
    --url to the enclave. A participant commits once to a bounty; the same command again is the same commitment, and does no
    harm.

    \b
    Examples:
      assay commit my-bounty answer.md --key agent-7 --url http://127.0.0.1:8300
      assay commit my-bounty answer/ --key agent-7
    """
    from assay.cli.enclave.words import kept, tell
    from assay.cli.ledger.keys import asking
    from assay.enclave import handing_in
    from assay.judge.rubric.solution import read
    from assay.ledger import keys
    from assay.scheme.bounty import read_bounty

    bounty, signer = read_bounty(folder), keys.load(key, asking())
    whose = participant or handing_in.participant_of(bounty, signer.public)
    place, secret, signed = handing_in.commit(bounty, read(solution), whose, signer)
    taken = None
    if url is not None:
        from assay.enclave.client import Client

        with Client(url) as client:
            taken = kept(place, place.commitment, client.post("/commitments", signed.envelope))
    said = {"participant": whose, "submission": secret.submission, "commitment": secret.commitment}
    tell(said | {"salt": place.salt, "file": place.commitment, "taken": taken}, as_json=as_json)
