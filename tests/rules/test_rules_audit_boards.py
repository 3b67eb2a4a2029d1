"""Simulated audits of boards of 400 real-format trials: planted false passes are caught, honest boards are confirmed."""

from __future__ import annotations

import pytest
from bench.audit import EACH, PARTICIPANTS, row, simulated

from depth import depth

AUDITS = depth(5, 500)


def test_no_honest_board_is_refused_or_accused() -> None:
    audits = simulated(0, AUDITS)
    assert PARTICIPANTS * EACH == 400
    assert not any(audit.caught for audit in audits)
    assert row(0, audits)["reruns"] <= 80


@pytest.mark.parametrize("planted", [4, 8, 20])
def test_planted_boards_are_caught(planted: int) -> None:
    line = row(planted, simulated(planted, AUDITS))
    assert line["reruns"] <= 80
    assert line["caught"] >= depth(60, 95)
