"""What every test shares: Hypothesis profiles, the folder of real data, and how earlier steps of `make test` are reported."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import postgres

SHARED = Path(__file__).parents[1].parent / "shared"

# Derandomised and without deadlines: a run on a slow machine finds what every other run finds, and nothing else.
settings.register_profile(
    "check", max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", settings.get_profile("check"), max_examples=150)
# For looking further by hand: ASSAY_PROFILE=search pytest tests/test_settle.py
settings.register_profile("search", settings.get_profile("check"), max_examples=5000, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("ASSAY_PROFILE", "check"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the repository; a test that needs it is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"the data folder {SHARED.name}/ is not beside the repository")
    return SHARED


@pytest.fixture(scope="session")
def postgresql() -> Iterator[postgres.Cluster]:
    """A PostgreSQL of our own, started when the first test asks for it."""
    with postgres.cluster() as made:
        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger may be made, on each database: a path, a URL."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    made: postgres.Cluster = request.getfixturevalue("postgresql")
    return made.database()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the steps of `make test` that failed before the suite, above the summary line."""
    failed = os.environ.get("ASSAY_FAILED_STEPS")
    if failed:
        terminalreporter.section("failed before the suite, see above", red=True)
        terminalreporter.write_line(failed)
