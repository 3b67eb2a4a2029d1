"""The public names, how cheap they are to import, and DESIGN's sketch of the library, as written."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import assay
from assay.errors import BadInput
from cli_kit import from_preset

EXPORTED = [
    "AssayError",
    "BadInput",
    "CannotSettle",
    "Competition",
    "Emission",
    "Explanation",
    "Refused",
    "Scheme",
    "Settlement",
    "Verified",
    "__version__",
    "emission",
    "open",
    "verify",
]
HEAVY = {"duckdb", "numpy", "pandas", "polars", "pyarrow", "pydantic", "rich.console", "scipy", "sqlalchemy"}


def test_the_exported_names_are_these_and_sorted() -> None:
    assert assay.__all__ == EXPORTED == sorted(EXPORTED)
    assert set(EXPORTED) <= set(dir(assay))
    for name in EXPORTED:
        assert getattr(assay, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        assay.__getattr__("nothing")


def test_every_class_and_function_says_what_it_is() -> None:
    assert all(getattr(assay, name).__doc__ for name in EXPORTED if name != "__version__")
    assert assay.__doc__


def test_the_version_is_that_of_the_package() -> None:
    assert assay.__version__ == version("assay")


@pytest.mark.parametrize("module", ["assay", "assay.cli", "assay.errors"])
def test_importing_is_cheap(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert HEAVY.isdisjoint(loaded)


def test_the_sketch_of_the_library(tmp_path: Path) -> None:
    from_preset(tmp_path / "my-competition")
    competition = assay.open(tmp_path / "my-competition")
    result = competition.settle(epoch=12)
    first: str = result.ranking[0]
    weight: int = result.weights["miner-a"].u16
    assert (first, weight) == ("miner-a", 31043)
    story: assay.Explanation = result.explain("miner-a")
    assert story["weight"].facts["u16"] == weight
    assert result.to_arrow().weights.column("u16").to_pylist()[0] == weight


def test_values_can_be_compared_hashed_and_serialised(tmp_path: Path) -> None:
    competition = assay.open(str(from_preset(tmp_path / "one")))
    again = assay.open(from_preset(tmp_path / "two"))
    first, two, later = competition.settle(), again.settle(epoch=1), again.settle(epoch=2)
    assert first == two != later
    assert {first, two, later} == {first, later}
    assert first.document == two.document
    assert competition.scheme == again.scheme
    assert len({competition.scheme, again.scheme}) == 1
    assert first.explain("miner-a") == two.explain("miner-a")
    assert competition != again


def test_a_later_settlement_goes_on_from_a_file(tmp_path: Path) -> None:
    from assay.exact import canonical

    competition = assay.open(from_preset(tmp_path / "one"))
    file = tmp_path / "epoch-1.json"
    file.write_bytes(canonical(competition.settle().document))
    later = competition.settle(15, previous=str(file))
    assert later.weights["miner-a"].kept == 800_000_000
    assert competition.settle(15).weights["miner-a"].kept == 1_000_000_000


def test_the_split_of_a_subnet(tmp_path: Path) -> None:
    split: assay.Emission = assay.emission(from_preset(tmp_path / "subnet", "platform") / "my-subnet.toml")
    assert sum(row.share for row in split.rows) + split.burn.share == 1
    assert [part.name for part in split.competitions] == ["term-challenge", "bounty-challenge"]


def test_errors_are_of_one_family(tmp_path: Path) -> None:
    with pytest.raises(assay.AssayError, match="no such file"):
        assay.open(tmp_path)
    assert issubclass(assay.BadInput, assay.AssayError)
    assert issubclass(assay.CannotSettle, assay.AssayError)
    assert assay.BadInput is BadInput
