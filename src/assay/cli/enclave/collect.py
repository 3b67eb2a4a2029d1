"""`assay enclave collect`: bring what an enclave judged into the competition's folder."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.cli.enclave.words import AtOption, CollateralOption, Folder

__all__ = ["FromOption", "collect"]

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

    The enclave's attestation and that of each judgement are verified against what bounty.toml pins; statement and evidence must
    be signed by its key; each record must say what its judgement says. Then participants.csv gets submissions and times, the
    ledger (or evidence/) the evidence, and judgements/ what anybody can verify again. The same command again changes nothing.

    \b
    Example:
      assay enclave collect my-bounty --from http://127.0.0.1:8300
    """
    from assay.cli.enclave.words import collateral_in, seconds_of
    from assay.enclave import collect as collecting
    from assay.enclave.attest.document import ATTESTATION_BYTES, parse
    from assay.enclave.client import Client
    from assay.enclave.results import checked
    from assay.scheme.bounty import read_bounty

    bounty = read_bounty(folder)
    with Client(url) as client:
        attestation = parse(client.get("/attestation", ATTESTATION_BYTES), f"{url}/attestation")
        data = client.get("/results")
    found = checked(bounty, attestation, data, now=seconds_of(at), collateral=collateral_in(collateral))
    written = collecting.write(bounty, found)
    if as_json:
        from assay.cli.output import json_bytes, put

        rows = [{"participant": row.participant, "submission": row.submission, "state": row.state} for row in found.rows]
        put(json_bytes({"epoch": found.epoch, "submissions": rows, "files": [str(path) for path in written]}), None)
        return

    from assay.cli.errors import warn
    from assay.cli.show import Column, grid, heading, note, sentence, show
    from assay.scheme.times import instant_text

    if found.verified.development:
        warn(["the enclave is of a development root: nothing of this is proven"])
    columns = [
        Column("participant", [row.participant for row in found.rows], kind="key"),
        Column("committed at", [instant_text(row.committed_at) for row in found.rows]),
        Column("solution", [row.submission or "" for row in found.rows], kind="key"),
        Column("", [row.state for row in found.rows]),
    ]
    show(heading(f"{bounty.scheme.name} · epoch {found.epoch}: collected"), *([grid(columns)] if found.rows else []), "")
    if not found.rows:
        show(sentence("Nobody committed."))
    show(note(f"{len(found.judgements)} judgements, each proven by a quote; signed by {found.stated.signer}"))
