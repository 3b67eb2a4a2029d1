"""Verifying what a package of somebody else's had a part in: a kind that is not installed here, a judge that a scheme names."""

from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import package_kit
import small_folder
from assay.errors import MISSING, BadInput, Refused
from assay.kind import GROUP, JUDGES
from assay.ledger import bundle, settling
from assay.ledger.verify import verify
from ledger_kit import SIGNER

KEY = str(ledger_kit.KEY)
GIVEN = small_folder.SCHEMES["given"]
LATENCY = Path(__file__).parents[2] / "examples" / "latency" / "src" / "assay_latency" / "__init__.py"

site = pytest.fixture(package_kit.site)


def exported(folder: Path, scheme: str, **changes: Any) -> Path:
    """The bundle of a settled epoch of a competition with this scheme; changes are those of the records of kind `given`."""
    place = ledger_kit.ledger_folder(folder / "small", "given", scheme_toml=scheme)
    ledger_kit.add(place, ledger_kit.records("given", **changes))
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER, 3)
        return bundle.export(ledger, 3, folder / "epoch-3")


def test_a_kind_that_is_not_installed_here_is_missing_and_not_wrong(site: Path, tmp_path: Path) -> None:
    package_kit.package(site, "quick", GROUP, "latency = quick:LATENCY", LATENCY.read_text())
    scheme = GIVEN.replace('"given"', '"latency"\nrounds = 1')
    source = exported(tmp_path, scheme, kind="latency", score=..., round=1, us=1000)
    assert verify(source, key=KEY).recomputed
    with (
        ledger_kit.opened(tmp_path / "small") as ledger,
        pytest.raises(BadInput, match="evidence of the kind 'latency' cannot be Parquet"),
    ):
        bundle.export(ledger, 3, tmp_path / "columns", as_parquet=True)

    package_kit.remove(site, "quick")
    with pytest.raises(BadInput) as missing:
        verify(source, key=KEY)
    assert missing.value.stage == MISSING
    assert str(missing.value) == (
        f"{source}/inputs.json: scheme.score.kind: the competition is of the kind 'latency', which no package here has: "
        "its settlement cannot be computed again; install the package whose entry point in assay.kinds is called so"
    )


@pytest.mark.no_cover
def test_a_kind_that_was_written_into_the_inputs_is_wrong(tmp_path: Path) -> None:
    source = exported(tmp_path, GIVEN)
    file = source / bundle.INPUTS
    changed = file.read_text().replace('"kind":"given"', '"kind":"latency"')
    assert changed != file.read_text()
    file.unlink()
    file.write_text(changed)
    with pytest.raises(Refused, match="the inputs are not those of the receipt") as refused:
        verify(source, key=KEY)
    assert refused.value.stage == "inputs"


def test_a_judge_that_the_scheme_names_is_told(site: Path, tmp_path: Path) -> None:
    source = exported(tmp_path, GIVEN + '[judge]\nuse = "strict"\n')
    ending = "made the evidence, instead of the judge 'given'"

    def judge() -> str:
        report = verify(source, key=KEY)
        assert report.recomputed
        (result,) = (result for result in report.checked if result.stage == "judge")
        assert not result.done
        return result.what

    assert judge() == f"the judge 'strict' (which is not installed here) {ending}"
    package_kit.package(site, "one_judge", JUDGES, "strict = one_judge:run", "")
    assert judge() == f"the judge 'strict' (one_judge:run of one_judge) {ending}"
    package_kit.package(site, "two_judges", JUDGES, "strict = two_judges:run", "")
    assert judge() == f"the judge 'strict' (one_judge:run of one_judge and two_judges:run of two_judges) {ending}"
