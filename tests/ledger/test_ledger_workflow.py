"""Workflows into a ledger: judged, signed, settled with a warm-up, exported, and verified by a stranger. SPEC 2.2, 6."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ledger_kit
from assay.ledger import keys
from cli_kit import output, run
from ledger_kit import SIGNER, V1, VALIDATORS
from workflow_chaos import reply_of, serving, well
from workflow_run_kit import competition, plan


def test_what_was_carried_out_is_signed_settled_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("ASSAY_PASSPHRASE", raising=False)
    keys.save("val-1", VALIDATORS[V1])
    keys.save("log", SIGNER)
    with serving(do=well("done"), ping=reply_of({}, 500)) as server:
        people = {"ann": plan(), "bob": plan("fail")}
        folder = competition(tmp_path / "c", server, people, tasks=3, validators=(V1,), score="warm_up = 4")
        run("ledger", "init", folder, "--origin", ledger_kit.ORIGIN, "--key", "log")
        said_by_run = output("run", folder, "-q", "--sign", "val-1")
        assert "6 tasks judged (3 invalid, 3 ran)." in said_by_run
        assert "6 records signed and added to the ledger." in said_by_run
        run("settle", folder)
        assert "3 tasks judged" in output("run", folder, "-q", "--sign", "val-1", "--participant", "ann", "--epoch", "2")
    run("settle", folder)
    run("export", "epoch", folder, "1", "-o", tmp_path / "epoch-1")
    assert "computed again" in output("verify", tmp_path / "epoch-1", "--key", str(ledger_kit.KEY))
    first = json.loads(output("settle", folder, "--epoch", "1", "--json"))
    second = json.loads(output("settle", folder, "--epoch", "2", "--json"))
    assert [(row["tasks_seen"], row["warm"]) for row in first["weights"]] == [(3, "0.75"), (3, "0.75")]
    assert {row["participant"]: row["tasks_seen"] for row in second["weights"]} == {"ann": 6, "bob": 3}
    assert "So 75 % is kept, and the rest burns." in " ".join(output("explain", folder, "ann", "--epoch", "1").split())
