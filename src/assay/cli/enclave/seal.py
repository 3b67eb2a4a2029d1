"""`assay seal`: seal a solution, or a sponsor's problem, so that only the bounty's enclave can read it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.enclave.words import AtOption, CollateralOption, Folder, UrlOption

if TYPE_CHECKING:
    from assay.enclave.attest import Attestation

__all__ = ["seal"]


def seal(
    folder: Folder,
    solution: Annotated[
        Path | None, typer.Argument(metavar="SOLUTION", help="What was committed to.", show_default=False)
    ] = None,
    participant: Annotated[
        str | None, typer.Option(metavar="KEY", help="Whose it is; needed if several committed from here.", show_default=False)
    ] = None,
    url: UrlOption = None,
    attestation: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The enclave's attestation, where it is not asked for.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Verify the attestation before anything is sealed to it.")
    ] = True,
    collateral: CollateralOption = None,
    at: AtOption = None,
    problem: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Seal a sponsor's problem instead, and say what bounty.toml needs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As canonical JSON.")] = False,
) -> None:
    """Seal a solution so that only the bounty's enclave can read it.

    First the enclave's attestation is verified: a real machine, up to date, that runs the program which bounty.toml pins, and
    states this key for this bounty. --no-verify seals to a key that anybody may have. A solution that is too large, or is not
    what was committed to, is refused before it is sealed.

    With --url the attestation is fetched there, and the sealed solution handed in; with --attestation it is left in DIR/sealing.

    A sponsor's problem: --problem alone prints the line for bounty.toml; once that is there, with --url or --attestation, it is
    sealed into the file that the line names, which goes to the enclave with bounty.toml.

    \b
    Examples:
      assay seal my-bounty answer.md --url http://127.0.0.1:8300
      assay seal my-bounty answer.md --attestation attestation.json --collateral collateral.json
      assay seal my-bounty --problem problem.md
    """
    from assay.cli.enclave.words import collateral_in, enclaves_keys, seconds_of
    from assay.errors import BadInput
    from assay.scheme.bounty import read_bounty

    if (solution is None) == (problem is None):
        raise BadInput("say what to seal: either a solution or --problem", hint="assay seal DIR SOLUTION")
    if problem is not None and url is None and attestation is None:
        _lines(problem, as_json=as_json)
        return
    from assay.cli.enclave.words import kept, tell
    from assay.enclave import handing_in
    from assay.judge.rubric.solution import read
    from assay.ledger.keys import sealing

    bounty = read_bounty(folder)
    whose, what = participant or "", None
    if solution is not None:
        whose, what = participant or handing_in.only_participant(bounty), read(solution)
        handing_in.prepared(bounty, what, whose)
    found = _attestation(url, attestation)
    stated = enclaves_keys(bounty, found, at=seconds_of(at), collateral=collateral_in(collateral), verify=verify)
    to = sealing(stated.seal)
    if what is None:
        assert problem is not None  # one of the two
        path = handing_in.seal_problem(bounty, _text(problem), to)
        tell({"problem": bounty.problem_digest, "to": to, "file": path}, as_json=as_json)
        return
    place, made = handing_in.seal(bounty, what, whose, to)
    taken = None
    if url is not None:
        from assay.enclave.client import Client

        with Client(url) as client:
            answer = client.post("/submissions", made.file)
        handing_in.check_taken(answer, bounty, whose, stated.signer)
        taken = kept(place, place.solution, answer)
    tell({"participant": whose, "to": to, "file": place.solution, "taken": taken}, as_json=as_json)


def _attestation(url: str | None, file: Path | None) -> Attestation:
    from assay.enclave.attest.document import ATTESTATION_BYTES, parse, read
    from assay.errors import BadInput

    if file is not None:
        return read(file)
    if url is None:
        raise BadInput("nothing says to which key", hint="give the enclave's --url, or a file with its --attestation")
    from assay.enclave.client import Client

    with Client(url) as client:
        return parse(client.get("/attestation", ATTESTATION_BYTES), f"{url}/attestation")


def _lines(file: Path, *, as_json: bool) -> None:
    """What bounty.toml must say of a problem that will be sealed."""
    from assay.enclave.handing_in import problem_digest, problem_line

    text = _text(file)
    if as_json:
        from assay.cli.output import json_bytes, put

        put(json_bytes({"problem": {"sealed": "problem.sealed", "digest": problem_digest(text)}}), None)
        return
    typer.echo(problem_line(text))


def _text(file: Path) -> bytes:
    from assay.errors import BadInput
    from assay.folder.text import load
    from assay.scheme.bounty import PROBLEM_BYTES

    try:
        return load(file, PROBLEM_BYTES, hint="give the file with the problem's text")
    except BadInput as error:
        raise error.at(file=file) from None
