"""A short soak: mixed load, a killed worker, and at the end everything that was acknowledged is there once."""

import subprocess
import sys
from pathlib import Path

import pytest

import postgres

ROOT = Path(__file__).parents[2]


def soak(database: str, seconds: int) -> subprocess.CompletedProcess[str]:
    """A run of bench/soak.py as people start it, with a kill in each eighth of it."""
    command = [sys.executable, "-m", "bench.soak", "--seconds", str(seconds), "--kill-every", str(seconds / 8)]
    if "://" in database:
        command += ["--database", database]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.full
def test_nothing_acknowledged_is_lost_when_workers_are_killed(database: str, request: pytest.FixtureRequest) -> None:
    for seconds in (8, 32, 128):  # a busy machine may answer nothing at all in a short run, which then shows nothing
        ended = soak(database, seconds)
        if "the run shows nothing" not in ended.stdout:
            break
        if "://" in database:
            server: postgres.Cluster = request.getfixturevalue("postgresql")
            database = server.database()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "nothing acknowledged is lost" in ended.stdout
    assert "workers killed: 0" not in ended.stdout
