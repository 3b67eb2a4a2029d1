"""What every test shares: Hypothesis profiles, the folder of real data, and how earlier steps of `make test` are reported."""

import gc
import os
import signal
import sys
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import postgres

if TYPE_CHECKING:
    import evm_kit

SHARED = Path(__file__).parents[1].parent / "shared"

# Derandomised and without deadlines: a run on a slow machine finds what every other run finds, and nothing else.
# "check" is for `make check` and `make test`; "full" is for `make full`, see also kits/depth.py.
settings.register_profile(
    "check", max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", settings.get_profile("check"), max_examples=150)
# For looking further by hand: ASSAY_PROFILE=search pytest tests/settle/test_settle.py
settings.register_profile("search", settings.get_profile("check"), max_examples=5000, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("ASSAY_PROFILE", "check"))


RECURSION = sys.getrecursionlimit()
gc.disable()  # until all tests are imported, see pytest_collection_finish

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it that starts us in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # or no program that a test starts would hear Ctrl-C


BOTH_DATABASES = (
    "ledger/test_ledger_store.py",
    "ledger/test_ledger_crash.py",
    "ledger/test_ledger_writers.py",
    "ledger/test_ledger_migrating.py",
    "ledger/test_ledger_versions.py",
    "ledger/test_leases.py",
    "ledger/test_ledger_settling.py::test_the_ledger_settles_as_the_folder_does_epoch_after_epoch",
    "ledger/test_ledger_settling.py::test_a_settler_goes_on_when_the_one_that_holds_the_turn_is_killed",
    "ledger/test_ledger_standing.py",
    "serve/test_notebook.py",
)
"""Where the database matters: there the twins on PostgreSQL run in `make test` too; elsewhere only in `make full`."""

LONGEST = (
    "node/test_season.py::test_a_season_end_to_end",
    "node/test_node_kinds.py::test_scores_that_are_given_are_signed_and_sent_when_they_appear",
    "node/test_validator.py::test_a_season_of_kills_loses_nothing_and_judges_nothing_twice",
    "judge/test_plugin.py::test_a_package_adds_a_kind_and_a_publisher",
    "node/test_network_page.py::test_the_page_leads_from_the_rules_to_weights_that_verify",
    "docs/test_demo.py::test_the_demo_is_four_screens",
    "docs/test_docs.py::test_no_page_is_out_of_date",
    "docs/test_example_workflows.py::test_three_validators_carry_out_four_planners_plans",
)
"""They take 20 seconds and more, and begin first: one that begins last keeps all other workers waiting."""


@pytest.hookimpl(tryfirst=True)  # before those are left out that are marked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make full` alone runs on the other database, and put the longest first."""
    for item in items:
        call = getattr(item, "callspec", None)
        elsewhere = call is not None and call.params.get("database") == "postgresql"
        if elsewhere and not item.nodeid.removeprefix("tests/").startswith(BOTH_DATABASES):
            item.add_marker("full")
    leave_to_the_full_run(items)
    items.sort(key=lambda item: item.nodeid.removeprefix("tests/") not in LONGEST)


def leave_to_the_full_run(items: list[pytest.Item]) -> None:
    """Mark `full` what is not drawn of a test that is `sampled(n)`: n of its cases, spread evenly, run in `make test`."""
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("full"):
            families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in families.values():
        marker = cases[0].get_closest_marker("sampled")
        assert marker is not None
        (number,) = marker.args
        last = len(cases) - 1
        kept = set(range(last + 1)) if number > last else {round(n * last / max(1, number - 1)) for n in range(number)}
        for index, item in enumerate(cases):
            if index not in kept:
                item.add_marker("full")


def pytest_collection_finish() -> None:
    """Put back what a library raises when a test imports it (see assay.publish.evm.libraries), and collect garbage again.

    What is imported by now stays until the end. While it is frozen, a collection looks at what the tests make, and at nothing
    else: with some million objects of the libraries, that is a fifth of the time of every test in this process.
    """
    sys.setrecursionlimit(RECURSION)
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a failed test even if its source cannot be shown, so that its name is never lost.

    To show the source pytest parses it. CPython 3.11 raises SystemError if a finalizer, or another thread, parses something
    meanwhile; pytest-xdist would then end the whole run without the test's name. No collection of garbage runs finalizers here.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    except (SystemError, RecursionError) as error:
        text = f"pytest could not show this failure ({error!r}); the plain traceback:\n"
        if call.excinfo is not None:
            text += "".join(traceback.format_exception(call.excinfo.value))
        report = pytest.TestReport.from_item_and_call(item, pytest.CallInfo.from_call(lambda: None, call.when))
        report.outcome, report.longrepr, report.duration = "failed", text, call.duration
        return report
    finally:
        if collects:
            gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What judges keep on a machine is the tests' own, and shared by all of them: a task of many tests is calibrated once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "state"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_STATE", str(folder))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the repository; a test that needs it is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"the data folder {SHARED.name}/ is not beside the repository")
    return SHARED


@pytest.fixture(scope="session")
def postgresql() -> Iterator[postgres.Cluster]:
    """A PostgreSQL of our own, started when the first test asks for it."""
    with postgres.cluster() as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger may be made, on each database: a path, a URL."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    cluster: postgres.Cluster = request.getfixturevalue("postgresql")
    return cluster.database()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator["evm_kit.Anvil"]:
    """An Ethereum node of our own, where gas is free, started when the first test asks for it."""
    import evm_kit

    with evm_kit.anvil(tmp_path_factory.mktemp("anvil"), *evm_kit.OPTIONS) as anvil:
        yield anvil


@pytest.fixture
def chain(node: "evm_kit.Anvil") -> Iterator["evm_kit.AnvilChain"]:
    """The chain of that node, as it was before the first test."""
    import evm_kit

    anvil_chain = evm_kit.AnvilChain(node.url)
    begun = anvil_chain.ask("evm_snapshot")
    yield anvil_chain
    anvil_chain.ask("evm_setAutomine", True)
    anvil_chain.ask("anvil_dropAllTransactions")  # these are not in the snapshot, nor is the price of gas
    anvil_chain.ask("evm_revert", begun)
    anvil_chain.ask("anvil_setNextBlockBaseFeePerGas", "0x0")


@pytest.fixture
def world(chain: "evm_kit.AnvilChain") -> "evm_kit.EvmWorld":
    """A scoring oracle there, and who takes part in a bounty."""
    import evm_kit

    return evm_kit.world(chain)


def pytest_unconfigure() -> None:
    """Let the interpreter take everything down as it ends, or libraries complain of what is left."""
    gc.unfreeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the steps of `make test` that failed before the suite, above the summary line."""
    failed = os.environ.get("ASSAY_FAILED_STEPS")
    if failed:
        terminalreporter.section("failed before the suite, see above", red=True)
        terminalreporter.write_line(failed)


@pytest.fixture
def door() -> Iterator[Path]:
    """Where a proxy may have its socket, whose path must be short."""
    with TemporaryDirectory(prefix="assay-test-") as folder:
        yield Path(folder) / "door"
