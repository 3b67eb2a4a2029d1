"""What the whole package shares is written once: a second copy of it fails here, with the file that has it."""

from pathlib import Path

import pytest

import assay
from assay.cli.output import emit
from assay.judge.running import backoff

PACKAGE = Path(assay.__file__).parent
ALONE = "ledger/check.py"
"""It imports nothing of Assay, by design: a verifier may copy it."""


@pytest.mark.parametrize(
    ("what", "homes"),
    [
        ("get_close_matches", ["errors.py"]),
        ("2**53 - 1", ["exact.py", ALONE]),
        ('pattern="^sha256:', ["scheme/fields.py"]),
        ('pattern="^x25519:', ["scheme/fields.py"]),
        ("** (attempt - 1)", ["judge/running.py"]),
        ("JSONDecoder(object_pairs_hook", ["folder/strict.py"]),
        ("class Refused(", ["errors.py"]),
    ],
)
def test_it_is_written_once(what: str, homes: list[str]) -> None:
    files = sorted(str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py") if what in file.read_text("utf-8"))
    assert files == sorted(homes)


def test_each_further_attempt_waits_longer_up_to_a_bound() -> None:
    assert [backoff(attempt, 2.0) for attempt in (1, 2, 3, 4, 5, 100)] == [2.0, 8.0, 32.0, 128.0, 300.0, 300.0]
    assert [backoff(attempt, 0.0625, factor=2.0, longest=1.0) for attempt in (1, 2, 5, 6)] == [0.0625, 0.125, 1.0, 1.0]


def test_a_result_is_printed_for_programs_only_if_they_asked(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert not emit(lambda: pytest.fail("it is not needed"), False)
    assert emit({"b": 1, "a": "ä"}, True)
    assert capsysbinary.readouterr().out == '{"a":"ä","b":1}\n'.encode()
