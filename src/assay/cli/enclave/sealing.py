"""`assay commit`, `assay seal`, `assay open`: commit to a solution, seal it for an enclave, and open a sealed file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.enclave.options import AtOption, CollateralOption, Folder, UrlOption

if TYPE_CHECKING:
    from assay.enclave.attest import Attestation, EnclaveStatement
    from assay.judge.rubric.solution import Solution
    from assay.scheme.bounty import Bounty

CanonicalJson = Annotated[bool, typer.Option("--json", help="As canonical JSON.")]
VerifyOption = Annotated[
    bool, typer.Option("--verify/--no-verify", help="Verify the attestation before anything is sealed to it.")
]
CommittedSolution = Annotated[Path | None, typer.Argument(metavar="SOLUTION", help="The committed solution.", show_default=False)]


def commit(
    folder: Folder,
    solution: Annotated[Path, typer.Argument(metavar="SOLUTION", help="A text file, or a folder of them.", show_default=False)],
    key: Annotated[str, typer.Option(metavar="NAME", help="The participant's key file, for signing.")],
    participant: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="The participant, as participants.csv names it; otherwise found by the key.", show_default=False
        ),
    ] = None,
    url: UrlOption = None,
    as_json: CanonicalJson = False,
) -> None:
    """Commit to a solution before anybody sees it.

    A commitment is a hash that binds bounty, participant, a secret salt and the solution. The salt is written to DIR/sealing,
    for you alone: keep it, because without it the commitment is worthless. The signed commitment is written beside it, and with
    --url sent to the enclave. A participant commits once to a bounty; repeating the command gives the same commitment.

    \b
    Examples:
      assay commit my-bounty answer.md --key agent-7 --url http://127.0.0.1:8300
      assay commit my-bounty answer/ --key agent-7
    """
    from assay.cli.enclave.options import keep_answer, print_values
    from assay.cli.ledger.keys import asking
    from assay.enclave import submission
    from assay.judge.rubric.solution import read_solution
    from assay.ledger import keys
    from assay.scheme.bounty import read_bounty

    bounty, signer = read_bounty(folder), keys.load(key, asking())
    owner = participant or submission.participant_of(bounty, signer.public)
    place, secret, signed = submission.commit_to_file(bounty, read_solution(solution), owner, signer)
    taken = None
    if url is not None:
        from assay.enclave.messages import EnclaveClient

        with EnclaveClient(url) as client:
            taken = keep_answer(place, place.commitment, client.post("/commitments", signed.envelope))
    values = {"participant": owner, "submission": secret.submission, "commitment": secret.commitment}
    print_values(values | {"salt": place.salt, "file": place.commitment, "taken": taken}, as_json=as_json)


def seal(
    folder: Folder,
    solution: CommittedSolution = None,
    participant: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The participant; needed if several committed from here.", show_default=False),
    ] = None,
    url: UrlOption = None,
    attestation: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The enclave's attestation, instead of fetching it.")
    ] = None,
    verify: VerifyOption = True,
    collateral: CollateralOption = None,
    at: AtOption = None,
    problem: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Seal a sponsor's problem instead, and print the line that bounty.toml needs."),
    ] = None,
    as_json: CanonicalJson = False,
) -> None:
    """Seal a solution so that only the bounty's enclave can read it.

    First the enclave's attestation is verified: it must come from a real machine, up to date, that runs the program which
    bounty.toml pins, and state this key for this bounty. With --no-verify anybody may hold the key. A solution that is too large,
    or not the committed one, is refused before it is sealed.

    With --url the attestation is fetched from there, and the sealed solution is handed in there; with --attestation it stays in
    DIR/sealing.

    A sponsor's problem: --problem alone prints the line for bounty.toml. When bounty.toml has that line, --problem with --url or
    --attestation seals the problem into the file that the line names; give that file to the enclave with bounty.toml.

    \b
    Examples:
      assay seal my-bounty answer.md --url http://127.0.0.1:8300
      assay seal my-bounty answer.md --attestation attestation.json --collateral collateral.json
      assay seal my-bounty --problem problem.md
    """
    from assay.cli.enclave.options import enclave_keys, given_collateral, print_values, verification_time
    from assay.enclave.submission import seal_problem
    from assay.errors import BadInput
    from assay.ledger.keys import sealing
    from assay.scheme.bounty import read_bounty

    if (solution is None) == (problem is None):
        raise BadInput("say what to seal: either a solution or --problem", hint="assay seal DIR SOLUTION")
    if problem is not None and url is None and attestation is None:
        _print_problem_line(problem, as_json=as_json)
        return
    bounty = read_bounty(folder)
    owner, content = _read_committed(bounty, solution, participant) if solution is not None else ("", None)
    attested = _attestation(url, attestation)
    stated = enclave_keys(bounty, attested, at=verification_time(at), collateral=given_collateral(collateral), verify=verify)
    if content is not None:
        print_values(_seal_solution(bounty, content, owner, stated, url), as_json=as_json)
        return
    assert problem is not None  # one of the two
    path = seal_problem(bounty, _text(problem), sealing(stated.seal))
    print_values({"problem": bounty.problem_digest, "to": stated.seal, "file": path}, as_json=as_json)


def _read_committed(bounty: Bounty, file: Path, participant: str | None) -> tuple[str, Solution]:
    """The participant, and their committed solution. Raises BadInput for another solution."""
    from assay.enclave import submission
    from assay.judge.rubric.solution import read_solution

    owner, solution = participant or submission.only_participant(bounty), read_solution(file)
    submission.read_secret_for(bounty, solution, owner)
    return owner, solution


def _seal_solution(
    bounty: Bounty, solution: Solution, participant: str, stated: EnclaveStatement, url: str | None
) -> dict[str, object]:
    """Seal a solution to the enclave's key and, with an address, hand it in; returns the values to print."""
    from assay.cli.enclave.options import keep_answer
    from assay.enclave import submission
    from assay.enclave.messages import EnclaveClient
    from assay.ledger.keys import sealing

    files, sealed = submission.seal_to_file(bounty, solution, participant, sealing(stated.seal))
    taken = None
    if url is not None:
        with EnclaveClient(url) as client:
            answer = client.post("/submissions", sealed.file)
        submission.check_taken(answer, bounty, participant, stated.signer)
        taken = keep_answer(files, files.solution, answer)
    return {"participant": participant, "to": stated.seal, "file": files.solution, "taken": taken}


def _attestation(url: str | None, file: Path | None) -> Attestation:
    from assay.enclave.attest.document import ATTESTATION_BYTES, parse_attestation, read_attestation
    from assay.errors import BadInput

    if file is not None:
        return read_attestation(file)
    if url is None:
        raise BadInput("nothing says to which key to seal", hint="give the enclave's --url, or a file with its --attestation")
    from assay.enclave.messages import EnclaveClient

    with EnclaveClient(url) as client:
        return parse_attestation(client.get("/attestation", ATTESTATION_BYTES), f"{url}/attestation")


def _print_problem_line(file: Path, *, as_json: bool) -> None:
    """Print the line of bounty.toml for a problem that will be sealed."""
    from assay.enclave.submission import problem_digest, problem_line

    text = _text(file)
    if as_json:
        from assay.cli.output import emit

        emit({"problem": {"sealed": "problem.sealed", "digest": problem_digest(text)}})
        return
    typer.echo(problem_line(text))


def _text(file: Path) -> bytes:
    from assay.errors import BadInput
    from assay.folder.files import load
    from assay.scheme.bounty import PROBLEM_BYTES

    try:
        return load(file, PROBLEM_BYTES, hint="give the file with the problem's text")
    except BadInput as error:
        raise error.at(file=file) from None


def open_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sealed file (assay.sealed/1).", show_default=False)],
    key: Annotated[str, typer.Option(metavar="NAME", help="The key file that opens it: `assay keys new --kind x25519`.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the content to a file, for you alone.")
    ] = None,
) -> None:
    """Open a file that is sealed to your key.

    Results and released solutions are sealed to a sponsor's key. A solution is sealed to its enclave, whose key never leaves it:
    nobody else can open it.

    \b
    Examples:
      assay open my-bounty/results.sealed --key sponsor
      assay open my-bounty/release.sealed --key sponsor -o release.json
    """
    from assay.cli.ledger.keys import asking
    from assay.enclave import sealing
    from assay.errors import BadInput
    from assay.folder import write_bytes
    from assay.folder.files import load
    from assay.ledger import keys

    data = load(file, sealing.SEALED_BYTES, hint="give a file that was sealed")
    opener = keys.load(key, asking())
    try:
        plain = sealing.parse_sealed(data).open(opener)
    except BadInput as error:
        raise error.at(file=file) from None
    if output is None:
        typer.echo(plain, nl=False)
    else:
        write_bytes(output, plain, private=True)
