"""`assay enclave deliver`, `collect`, `results`, `release`: hand in for others, fetch results, and the sponsor's sealed files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.enclave.options import AtOption, CollateralOption, Folder
from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from assay.cli.show import Column


FromOption = Annotated[
    str, typer.Option("--from", metavar="URL", help="The enclave's service: http://HOST:PORT or unix:PATH.", show_default=False)
]


def collect(
    folder: Folder,
    url: FromOption,
    collateral: CollateralOption = None,
    at: AtOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="As canonical JSON.")] = False,
) -> None:
    """Fetch what the enclave gives out, verify it, and put it into DIR: submissions, judgements, quotes, signed evidence.

    The attestations of the enclave and of each judgement are verified against what bounty.toml pins. Statement and evidence must
    be signed by its key, and each record must agree with its judgement. Then participants.csv gets submissions and times, the
    ledger (or evidence/) the evidence, and judgements/ the files that anybody can verify again. Repeating it changes nothing.

    \b
    Example:
      assay enclave collect my-bounty --from http://127.0.0.1:8300
    """
    from assay.cli.enclave.options import given_collateral, verification_time
    from assay.enclave import collect as collecting
    from assay.enclave.attest.document import ATTESTATION_BYTES, parse_attestation
    from assay.enclave.collect import check_results
    from assay.enclave.messages import EnclaveClient
    from assay.scheme.bounty import read_bounty

    bounty = read_bounty(folder)
    with EnclaveClient(url) as client:
        attestation = parse_attestation(client.get("/attestation", ATTESTATION_BYTES), f"{url}/attestation")
        data = client.get("/results")
    results = check_results(bounty, attestation, data, now=verification_time(at), collateral=given_collateral(collateral))
    written = collecting.write_results(bounty, results)
    if as_json:
        from assay.cli.output import emit

        rows = [{"participant": row.participant, "submission": row.submission, "state": row.state} for row in results.rows]
        emit({"epoch": results.epoch, "submissions": rows, "files": [str(path) for path in written]})
        return

    from assay.cli.errors import warn
    from assay.cli.show import Column, grid, heading, note, sentence, show
    from assay.scheme.fields import instant_text
    from assay.settle.story.telling import plural

    if results.verified.development:
        warn(["the enclave is of a development root: nothing of this is proven"])
    columns = [
        Column("participant", [row.participant for row in results.rows], kind="key"),
        Column("committed at", [instant_text(row.committed_at) for row in results.rows]),
        Column("solution", [row.submission or "" for row in results.rows], kind="key"),
        Column("", [row.state for row in results.rows]),
    ]
    show(heading(f"{bounty.scheme.name} · epoch {results.epoch}: collected"), *([grid(columns)] if results.rows else []), "")
    if not results.rows:
        show(sentence("Nobody committed."))
    show(note(f"{plural(len(results.judgements), 'judgement')}, each proven by a quote; signed by {results.stated.signer}"))


def deliver(
    folder: Folder,
    url: Annotated[
        str, typer.Option("--to", metavar="URL", help="The enclave's service: http://HOST:PORT or unix:PATH.", show_default=False)
    ],
    every: Annotated[
        int | None, typer.Option(metavar="SECONDS", min=1, help="Do it again and again, until Ctrl-C.", show_default=False)
    ] = None,
    collateral: CollateralOption = None,
    at: AtOption = None,
    as_json: AsJson = False,
) -> None:
    """Hand to the enclave what participants sent to the service of this competition with `assay submit --url --sealed`.

    The service keeps commitments and sealed solutions in DIR/sealed, and cannot open them. The enclave's attestation is verified
    first, and each of its answers must be signed by its key. Repeating the command sends only what has no answer yet. The time
    that counts is that at which the enclave gets a file: deliver before each deadline, or with --every. If the enclave does not
    answer, --every warns and goes on; another error ends the command.

    \b
    Examples:
      assay enclave deliver my-bounty --to http://127.0.0.1:8300
      assay enclave deliver my-bounty --to unix:enclave.sock --every 60
    """
    if every is None:
        _deliver_once(folder, url, collateral, at, as_json=as_json)
        return
    import time

    from assay.cli.errors import warn
    from assay.errors import Unreachable

    with suppress(KeyboardInterrupt):
        while True:
            try:
                _deliver_once(folder, url, collateral, at, as_json=as_json)
            except Unreachable as error:
                warn([f"{error}; the next try is in {every} s"])
            time.sleep(every)


def _deliver_once(folder: Path, url: str, collateral: Path | None, at: str | None, *, as_json: bool) -> None:
    """Deliver what has no answer yet, and say what became of everything. Raises BadInput, Refused, Unreachable."""
    from assay.cli.enclave.options import enclave_keys, given_collateral, verification_time
    from assay.cli.show import Column, grid, sentence, show
    from assay.enclave.attest.document import ATTESTATION_BYTES, parse_attestation
    from assay.enclave.delivery import deliver as delivering
    from assay.enclave.messages import EnclaveClient
    from assay.scheme.bounty import read_bounty
    from assay.settle.story.telling import plural

    bounty = read_bounty(folder)
    with EnclaveClient(url) as client:
        attestation = parse_attestation(client.get("/attestation", ATTESTATION_BYTES), f"{url}/attestation")
        stated = enclave_keys(bounty, attestation, at=verification_time(at), collateral=given_collateral(collateral), verify=True)
        done = list(delivering(bounty, client, stated.signer))
    rows = [
        {
            "participant": row.upload.participant,
            "kind": row.upload.kind,
            "file": str(row.file),
            "state": row.state,
            "why": row.why,
        }
        for row in done
    ]
    if emit({"delivered": rows}, as_json):
        return
    if rows:
        columns = [Column(name, [row[name] for row in rows]) for name in ("kind", "state")]
        columns.insert(0, Column("participant", [row["participant"] for row in rows], kind="key"))
        columns.append(Column("why", [row["why"] for row in rows], kind="text"))
        show(grid(column for column in columns if any(column.cells)), "")
    taken = sum(row.state == "taken" for row in done)
    show(
        sentence(f"{taken} of {plural(len(rows), 'file')} taken by the enclave." if rows else "Nobody handed in anything sealed.")
    )


KeyOption = Annotated[str, typer.Option(metavar="NAME", help="The sponsor's key file: the key that bounty.toml names.")]


def results(
    folder: Folder,
    url: FromOption,
    key: KeyOption = "sponsor",
    as_json: Annotated[bool, typer.Option("--json", help="As canonical JSON.")] = False,
) -> None:
    """Fetch the results that are sealed to the sponsor, and show them: answers, models, what each judgement took and cost.

    They are stored in DIR/results.sealed. They contain no text of a solution, and no text that a model wrote about one: only the
    winners' texts are released, by `assay enclave release`.

    \b
    Example:
      assay enclave results my-bounty --from http://127.0.0.1:8300 --key sponsor
    """
    from assay.cli.ledger.keys import asking
    from assay.enclave import sealing, sponsor
    from assay.enclave.messages import EnclaveClient
    from assay.folder import write_bytes
    from assay.ledger import keys
    from assay.scheme.bounty import read_bounty

    bounty, opener = read_bounty(folder), keys.load(key, asking())
    with EnclaveClient(url) as client:
        data = client.get("/results/sealed")
    rows = sponsor.open_results(bounty, sealing.parse_sealed(data), opener)
    write_bytes(folder / "results.sealed", data)
    if as_json:
        from assay.cli.output import emit

        emit({"bounty": bounty.digest, "judgements": rows})
        return

    from assay.cli.show import Column, grid, heading, note, sentence, show

    if not rows:
        show(sentence("Nothing was judged."))
        return
    columns = [
        Column("participant", [row["participant"] for row in rows], kind="key"),
        *_names(folder, rows),
        Column("BPS", [_bps(bounty.rules, row) for row in rows], right=True),
        Column("verdict", [row["verdict"] or row["reason"] or row["outcome"] for row in rows]),
        Column("NO", [_noes(row) for row in rows], kind="text"),
        Column("signs of injection", [", ".join(row["detectors"]) for row in rows], kind="text", spare=3),
        Column("model", [row["model"] or "" for row in rows], kind="crop", spare=2),
        Column("tries", [_took(row, "tries") for row in rows], right=True, spare=1),
        Column("seconds", [_thousandth(_took(row, "milliseconds")) for row in rows], right=True),
        Column("cost", [_cost(row) for row in rows], right=True),
    ]
    show(heading(f"{bounty.scheme.name}: judgements"), grid(columns), "", note(_sums(rows)))


def release(
    folder: Folder,
    url: FromOption,
    key: KeyOption = "sponsor",
    epoch: Annotated[int | None, typer.Option(metavar="N", help="The settled epoch; otherwise the ledger's last.", min=0)] = None,
    receipt: Annotated[Path | None, typer.Option(metavar="FILE", help="The receipt, if the ledger is not here.")] = None,
    settlement: Annotated[Path | None, typer.Option(metavar="FILE", help="The settlement of that receipt.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As canonical JSON.")] = False,
) -> None:
    """Ask the enclave for the winners' solutions, after settlement, and put them into DIR/solutions.

    The enclave gets the settlement and the receipt of the settled epoch, signed by the log that bounty.toml names. It releases
    the solutions that both this settlement and its own one pay, sealed to the sponsor's key; the others stay sealed. They are
    checked against the published digests. Transcripts go into DIR/transcripts, for `assay rejudge`.

    \b
    Examples:
      assay enclave release my-bounty --from http://127.0.0.1:8300 --key sponsor
      assay enclave release my-bounty --from unix:enclave.sock --receipt epoch-1.receipt --settlement epoch-1.json
    """
    from assay.cli.ledger.keys import asking
    from assay.enclave import sealing, sponsor
    from assay.enclave.messages import EnclaveClient
    from assay.folder import write_bytes
    from assay.ledger import keys
    from assay.scheme.bounty import read_bounty

    bounty, opener = read_bounty(folder), keys.load(key, asking())
    asked = sponsor.release_request(folder, epoch, receipt, settlement)
    with EnclaveClient(url) as client:
        data = client.post("/release", asked)
    released = sponsor.open_release(bounty, sealing.parse_sealed(data), opener)
    write_bytes(folder / "release.sealed", data)
    written = sponsor.write_released(bounty, released, opener)
    if as_json:
        from assay.cli.output import emit

        rows = [
            {"participant": solution.participant, "submission": solution.solution.digest, "quotes": solution.quotes}
            for solution in released
        ]
        emit({"released": rows, "files": [str(path) for path in written]})
        return

    from assay.cli.errors import printable
    from assay.cli.show import sentence, show

    for solution in released:
        typer.echo(printable(f"{solution.participant}  {', '.join(solution.solution.files)}"))
    show(sentence(f"{len(released)} released into {folder}." if released else "Nobody was paid, so nothing is released."))


def _names(folder: Path, rows: list[dict[str, Any]]) -> list[Column]:
    """A column of the names in participants.csv; no column if it has none."""
    from assay.cli.keys import names
    from assay.cli.show import Column

    known = names(folder)
    column = [known.get(row["participant"], "") for row in rows]
    return [Column("name", column, kind="crop", spare=4)] if any(column) else []


def _bps(rules: Any, row: dict[str, Any]) -> str:
    from assay.settle.score.rubric import judge

    judged = judge(row["baseline"], row["checks"], row["verdict"], rules) if row["outcome"] == "judged" else None
    return "" if judged is None else str(judged.bps)


def _noes(row: dict[str, Any]) -> str:
    answers = (row["baseline"] or {}) | (row["checks"] or {})
    return " ".join(name for name, yes in answers.items() if not yes)


def _took(row: dict[str, Any], name: str) -> str:
    return "" if row["measured"] is None else str(row["measured"][name])


def _thousandth(count: str) -> str:
    from assay.exact import text

    return text(int(count), 3) if count else ""


def _cost(row: dict[str, Any]) -> str:
    from assay.exact import text

    cost = None if row["measured"] is None else row["measured"]["cost"]
    return "" if cost is None else text(cost, 6)


def _sums(rows: list[dict[str, Any]]) -> str:
    from assay.exact import text

    took = [row["measured"] for row in rows if row["measured"] is not None]
    counts = [measured["usage"][name] for measured in took for name in ("prompt", "completion")]
    costs = [measured["cost"] for measured in took]
    tokens = "an unknown number of tokens" if None in counts else f"{sum(counts)} tokens"
    cost = "the cost is not known" if None in costs else f"it cost {text(sum(costs), 6)}"
    return f"In all {text(sum(measured['milliseconds'] for measured in took), 3)} s and {tokens}; {cost}"
