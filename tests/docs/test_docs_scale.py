"""The page on scale says what its programs print, from figures with sources; the simulated queue has the engine's rules."""

import contextlib
import io
import re
from importlib import import_module
from pathlib import Path

import pytest
from bench import queue, scale

from depth import depth

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "scale.md"
FIGURES = scale.read()
SMALL, NODES = 3_000, 10


def printed(words: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as kept:
        queue.main(words)
    return kept.getvalue()


@pytest.fixture(scope="module")
def tally() -> queue.Tally:
    """Of a small run in which much is lost, and a driver wakes only after another one has judged all that it had."""
    changes = ["nodes.mean_hours_to_loss=5", "trials.error_share=0.2", "nodes.frozen_seconds=5400"]
    return queue.simulate(scale.changed(FIGURES, changes), SMALL, NODES)


def test_each_trial_counts_once_whatever_is_lost(tally: queue.Tally) -> None:
    assert tally.counted + tally.missing == SMALL
    assert (tally.counted_twice, tally.refused) == (0, 0), "a driver kept what it had no lease of"
    assert min(tally.lost, tally.retried, tally.looks, tally.missing, tally.judged_again) > 0, "the simulation lost nothing"
    assert tally.makespan > tally.nearly > tally.ideal * 0.9


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    first, again, other = (queue.simulate(FIGURES, 1_000, 5, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_nothing_is_judged_again_where_nothing_is_lost() -> None:
    tally = queue.simulate(FIGURES, SMALL, NODES, losses=0.0)
    assert (tally.lost, tally.judged_again, tally.looks, tally.refused) == (0, 0, 0, 0)
    assert tally.counted + tally.missing == SMALL


def test_the_driver_remembers_what_is_under_way_and_not_what_waits() -> None:
    few, many = (
        queue.simulate(scale.changed(FIGURES, ["trials.error_share=0"]), trials, 5, losses=0.0) for trials in (2_000, 8_000)
    )
    assert max(few.longest.values()) <= few.bound
    assert max(many.longest.values()) <= many.bound == few.bound


def test_the_rules_are_those_of_the_engine() -> None:
    for name, where in (
        ("ahead", "assay.engine.ray_engine:AHEAD"),
        ("lost", "assay.engine.ray_engine:LOST"),
        ("lease", "assay.ledger.leases:LEASE"),
        ("held", "assay.judge.judge_run:HELD"),
        ("attempts", "assay.judge.running:ATTEMPTS"),
        ("delay", "assay.judge.running:DELAY"),
    ):
        module, _, constant = where.partition(":")
        assert FIGURES.value(f"engine.{name}") == getattr(import_module(module), constant), name
    assert FIGURES.value("load.busy") == import_module("assay.engine.load").BUSY


def test_each_figure_has_a_source_that_there_is() -> None:
    headings = set(re.findall(r"^#+ (.+)$", (ROOT / "docs" / "performance.md").read_text(encoding="utf-8"), re.MULTILINE))
    for name, source in FIGURES.sources.items():
        if source.startswith("performance.md"):
            section = source.removeprefix("performance.md, ").partition(":")[0]
            assert any(heading.startswith(section) for heading in headings), (name, section)
        else:
            assert source.startswith(("assumed", "Terminal-Bench", "src/", "bench/")), (name, source)


def test_a_changed_assumption_changes_what_follows_from_it() -> None:
    def cost(*changes: str) -> float:
        return next(row.amount for row in scale.Scale(scale.changed(FIGURES, changes), 1e9, 1e5).costs() if "nodes" in row.what)

    assert cost("prices.core_hour=0.08") == pytest.approx(2 * cost())
    with pytest.raises(SystemExit, match=r"no figure 'prices\.core'"):
        scale.changed(FIGURES, ["prices.core=1"])
    with pytest.raises(SystemExit, match="not a number"):
        scale.changed(FIGURES, ["prices.core_hour=cheap"])


def test_a_file_of_figures_replaces_what_it_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[load]\ncompetitions = {value = 1, source = "ours"}\n')
    scale.main(["--figures", str(file)])
    assert "participants, 1 competitions\n" in capsys.readouterr().out
    file.write_text("[load]\ncompetitions = 1\n")
    with pytest.raises(SystemExit, match=r"load\.competitions: write"):
        scale.main(["--figures", str(file)])


def test_the_page_has_the_table_of_the_simulation() -> None:
    """In short the table's shape only: a million trials take a minute."""
    (block,) = re.findall(r"<!-- python -m bench\.queue -->\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = [re.sub(r"[\d,.:%]+", "", line).split() for line in block.splitlines()]
    assert names == [
        re.sub(r"[\d,.:%]+", "", line).split() for line in printed(["--trials", "1000", "--nodes", "10"]).splitlines()
    ]
    if depth(False, True):
        assert block == printed([])
