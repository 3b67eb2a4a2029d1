"""The commands of taking part over a network: `assay register`, `submissions`, `invite`; `assay submit --url`, `logs --url`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlsplit

import typer

from assay.cli.errors import warn
from assay.cli.following import UrlOption, signer_of
from assay.cli.output import AsJson, emit
from assay.cli.show import Column, grid, heading, sentence, show
from assay.errors import BadInput
from assay.serve import installed
from assay.settle.story.telling import plural

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["hand_in", "invite", "register", "released_logs", "submissions"]

Json = dict[str, Any]
KeyOption = Annotated[str, typer.Option("--key", metavar="NAME", help="Your key: `assay keys list`.", show_default=False)]


def register(
    url: UrlOption,
    key: KeyOption,
    code: Annotated[str, typer.Option(metavar="CODE", help="An invitation's code.", show_default=False)] = "",
    name: Annotated[str, typer.Option(metavar="TEXT", help="How people call you on the board.", show_default=False)] = "",
    address: Annotated[
        str, typer.Option(metavar="0x…", help="Where payouts go, for a bounty on an Ethereum chain.", show_default=False)
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Register your key as a participant of a competition that somebody serves.

    A hotkey of the subnet need not register. Registering again with --name changes your name: boards have it from the next
    settled epoch on. Otherwise registering again changes nothing.

    \b
    Examples:
      assay register --url https://assay.example.org/term-challenge --key me
      assay register --url https://assay.example.org/term-challenge --key me --code 4Fz… --name "My agent"
    """
    from assay.serve.client import Client

    body = {"code": code, "name": name, "address": address}
    with Client(url, signer_of(key)) as client:
        answer = client.send("POST", "participants", json.dumps(body).encode(), "application/json")
        board = f"{client.base}/{client.segment}/"
    if emit(answer, as_json):
        return
    message = f"You are the participant {answer['participant']}."
    if not answer.get("new", True):
        message = f"Your key was registered before, as the participant {answer['participant']}"
        message += (
            f". From the next settled epoch on your name is {name.strip()}."
            if answer.get("renamed")
            else "; nothing has changed."
        )
        message += " Only the operator can change an address." if address else ""
    show(sentence(f"{message} The board: {board}"))


_EARLIER = "Somebody handed in the same submission earlier"


def submissions(url: UrlOption, key: KeyOption, as_json: AsJson = False) -> None:
    """List your own submissions to a competition that somebody serves, and how far they are.

    \b
    Example:
      assay submissions --url https://assay.example.org/term-challenge --key me
    """
    from assay.serve.client import Client
    from assay.serve.links import participant_page

    with Client(url, signer_of(key)) as client:
        answer = client.get("submissions")
        page = f"{client.base}/{client.segment}/{participant_page(answer['participant'])}"
    if emit(answer, as_json):
        return
    rows = answer["submissions"]
    if rows:
        columns = [
            Column("handed in", [row["at"] for row in rows]),
            Column("epoch", [str(row["epoch"]) for row in rows], right=True),
            Column("submission", [row["submission"] for row in rows], kind="key"),
            Column("state", [row["state"] for row in rows]),
            Column("score", [row.get("score", "") for row in rows], right=True),
            Column("validators", [", ".join(row.get("validators", ())) for row in rows], kind="text", spare=1),
            Column("why", [_why(row) for row in rows], kind="text"),
        ]
        show(grid(column for column in columns if any(column.cells)))
    else:
        show(sentence(f"{answer['participant']} has handed in nothing yet."))
    for row in rows:
        show(*_copied(row))
    if any(row["state"] == "scored" for row in rows):
        show(sentence(f"Why your score and your weight are what they are: {page}"))
    for row in answer["commitments"]:
        show(sentence(f"Committed in epoch {row['epoch']}, {row['at']}, to the archive {row['digest']}."))
    if answer["per_epoch"] is not None:
        show(sentence(f"Epoch {answer['epoch']} is open. At most {answer['per_epoch']} submissions count in an epoch."))


def _why(row: Json) -> str:
    """The last cell of a row; of one that is held, a paragraph below the table says it."""
    if row.get("duplicate"):
        return _EARLIER
    return "" if row["state"] == "held" else str(row.get("why", ""))


PASSAGES = 5
"""Matching passages of an earlier submission that are shown; --json has more."""


def _copied(row: Json) -> Iterator[RenderableType]:
    """Say of a submission what it has in common with earlier ones, and what was decided: in sentences."""
    stands = row.get("copies") or {}
    if stands.get("state") in (None, "clear"):
        return
    yield ""
    yield sentence(f"{row['submission'][:19]}… {stands['state']}: {stands['why']} {stands['todo']}".rstrip())
    for near in stands["near"]:
        earlier = near["earlier"]
        for passage in near["passages"][:PASSAGES]:
            places = ((passage["file"], passage["lines"]), (passage["earlier_file"], passage["earlier_lines"]))
            mine, theirs = (f"{file}:{a}-{b}" for file, (a, b) in places)
            yield sentence(f"{mine} is {theirs} of {earlier['participant']}, handed in {earlier['at'] or 'earlier'}", indent=2)


def invite(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder, on the operator's machine.")],
    participant: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="The row of participants.csv that the code is for; else a new participant.", show_default=False
        ),
    ] = None,
    uses: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="How many keys it lets in.")] = 1,
    days: Annotated[int, typer.Option(metavar="N", min=1, max=3650, help="How long it holds.")] = 30,
    everybody: Annotated[bool, typer.Option("--everybody", help="No code: anyone may register, up to --uses keys.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let somebody register as a participant: print a code for them.

    The code is stored nowhere, only its SHA-256 is. Send it to the participant, who gives it to `assay register --code`.

    \b
    Examples:
      assay invite my-competition
      assay invite my-competition --participant miner-7
      assay invite my-competition --everybody --uses 500
    """
    from assay.ledger import config

    installed()
    from assay.serve.notebook import Notebook
    from assay.serve.registration import invite as made
    from assay.serve.site import now

    if participant is not None:
        from assay.judge.submitting import find

        if everybody or uses > 1:
            raise BadInput("an invitation of one participant lets in one key", field="--participant", hint="leave --uses out")
        find(folder, participant)
    notebook = Notebook(config.read(folder).place)
    try:
        until = now() + timedelta(days=days)
        code = made(notebook, participant, uses=uses, until=until, everybody=everybody)
    finally:
        notebook.close()
    if emit({"code": code, "participant": participant, "uses": uses, "until": until.isoformat(timespec="seconds")}, as_json):
        return
    if everybody:
        show(sentence(f"Until {until:%Y-%m-%d} {uses} {'key' if uses == 1 else 'keys'} may register without a code."))
        return
    typer.echo(code)


def hand_in(url: str, key: str | None, path: str, *, commit: bool, sealed: bool, as_json: bool) -> None:
    """Hand in a file or folder at a service, or commit to it. Raises BadInput, Unreachable."""
    from assay.serve.archives import ARCHIVE, BOUNDS, SEALED, pack
    from assay.serve.client import Client

    if key is None:
        raise BadInput("name the key that you registered", field="--key", hint="`assay keys list` shows yours")
    signer = signer_of(key)
    with Client(url, signer) as client, tempfile.TemporaryFile() as packed:
        rules = client.get("submissions")
        most = rules.get("archive_bytes", BOUNDS.packed)
        if sealed:
            body = _sealed(client, Path(path))
        else:
            pack(Path(path), packed, compressed=rules["reveal"] is None)  # what is committed to has the same bytes everywhere
            body = _whole(packed) if packed.tell() <= most else b""
        if (size := len(body) or packed.tell()) > most:
            what = f"it has {size:,} bytes {'as it is' if sealed else 'when it is packed'}, and the service takes {most:,}"
            hint = (
                "the bounty limits the length of a solution" if sealed else "leave out what is not needed: models, caches, .git"
            )
            raise BadInput(what, file=path, hint=hint)
        if commit:
            digest = f"sha256:{sha256(body).hexdigest()}"
            answer = client.send("POST", "commitments", json.dumps({"digest": digest}).encode(), "application/json")
            message = (
                f"Committed to {digest}. Hand it in from epoch {answer['from_epoch']} on: the same command without --commit."
            )
        else:
            media = SEALED if sealed else ARCHIVE
            answer = client.send("PUT", "submissions", body, media)
            message = f"{answer['submission']} is your submission, accepted in epoch {answer['epoch']}."
            if answer.get("duplicate"):
                message += f" {_EARLIER}, so this one earns nothing: hand in work of your own."
            if (stands := answer.get("copies") or {}).get("state") not in (None, "clear"):
                message += f" {stands['why']} {stands['todo']}".rstrip() + " `assay submissions` shows how far it is."
            next_ = "The operator delivers it to the enclave" if sealed else "Validators judge it next"
            message += f" {next_}: {client.base}/{client.segment}/{'bounty' if sealed else 'live'}.html"
    if not emit(answer, as_json):
        show(sentence(message))


def _sealed(client: Any, path: Path) -> bytes:
    """The bytes of a sealed solution. The commitment that `assay commit` left beside it is handed in first."""
    from assay.folder.files import load
    from assay.serve.archives import SEALED

    body = load(path, 256 * 2**20, hint="give the file that `assay seal` or `assay commit` wrote")
    commitment = path.with_name("commitment.json")
    if path.name == "solution.sealed" and commitment.is_file():
        client.send("PUT", "submissions", load(commitment, 2**20, hint="`assay commit` writes it"), SEALED)
    return body


def released_logs(
    url: str, key: str | None, submission: str | None, task: str | None, folder: Path | None, *, as_json: bool
) -> None:
    """List the released logs of a submission at a service, or fetch them into a folder. Raises BadInput, Refused, Unreachable."""
    installed()
    from assay.serve.client import Client
    from assay.serve.log_files import fetch_logs

    if key is None and submission is None:
        hint = "with --key NAME it is your current submission; `assay submissions` lists them"
        raise BadInput("name the submission", field="--submission", hint=hint)
    with Client(url, None if key is None else signer_of(key)) as client:
        digest = submission or _current(client.get("submissions"))
        place = f"submissions/{quote(digest, safe=':')}/logs"
        answer = client.get(place + (f"?task={quote(task, safe='')}" if task else ""))
        page = answer
        while page.get("next") and page["trials"]:
            page = client.get(f"{place}?{urlsplit(page['next']).query}")
            answer["trials"] += page["trials"]
            answer |= {name: page[name] for name in ("left_out", "next")}
        if folder is not None:
            files, new = fetch_logs(client, answer, folder)
            if not emit({"submission": digest, "files": list(map(str, files)), "new": new}, as_json):
                show(sentence(f"{plural(new, 'file')} fetched into {folder}; {len(files) - new} were there already."))
            if answer["left_out"]:
                warn([f"{plural(answer['left_out'], 'more trial')} not listed, so not fetched; name a task with --task"])
            return
    if emit(answer, as_json):
        return
    _show_logs(answer, task)


def _current(answer: Json) -> str:
    """The submission that is judged now. Raises BadInput without one."""
    current = [str(row["submission"]) for row in answer["submissions"] if row["current"]]
    if not current:
        what = f"{answer['participant']} has handed in nothing here"
        raise BadInput(what, hint="name a submission with --submission, or hand in: assay submit --url")
    return current[0]


def _show_logs(answer: Json, task: str | None) -> None:
    """Print the trials with their files; of one task also the end of what was printed."""
    from assay.cli.judging.live import memory, text_lines

    rows = answer["trials"]
    if rows:
        columns = [
            Column("outcome", [row["outcome"] for row in rows]),
            Column("task", [row["task"] for row in rows], kind="crop"),
            Column("trial", [str(row["trial"]) for row in rows], right=True),
            Column("epoch", [str(row["epoch"]) for row in rows], right=True, spare=2),
            Column("validator", [row["validator"] for row in rows], kind="key"),
            Column("files", [str(len(row["files"])) for row in rows], right=True),
            Column("size", [memory(sum(file["size"] for file in row["files"])) for row in rows], right=True, spare=1),
        ]
        show(grid(columns))
    for row in rows if task is not None else ():
        for name, text in sorted(row["printed"].items()):
            if text:
                show("", heading(f"{name}, trial {row['trial']} by {row['validator']}: {row['outcome']}"))
                typer.echo("\n".join(text_lines(text.rstrip("\n").encode())))
    hidden = f" {plural(answer['hidden'], 'more trial')} of hidden tasks, whose logs stay hidden." if answer["hidden"] else ""
    more = f" {plural(answer['left_out'], 'more trial')} not listed: name a task with --task." if answer["left_out"] else ""
    show(sentence(f"{plural(len(rows), 'trial')} with released logs.{hidden}{more} -o DIR fetches the files."))


def _whole(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
