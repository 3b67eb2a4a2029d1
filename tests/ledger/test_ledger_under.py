"""A ledger's epochs under other rules: the clocks follow the other rules from the first epoch on, and nothing is stored."""

from pathlib import Path

import ledger_kit
import small_folder
from assay.ledger import settling
from assay.scheme.load import parse
from ledger_kit import SIGNER

DECAY = '[decay]\ngrace_epochs = 0\nrate = "10%"\n'


def test_every_epoch_is_settled_as_it_was_and_under_the_other_rules(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(place, ledger_kit.records(epoch=3))
    for epoch in (3, 4):
        ledger_kit.add(place, ledger_kit.records(epoch=epoch, trial=2))
        with ledger_kit.opened(place) as ledger:
            settling.settle(ledger, SIGNER, epoch)
    before = (place / "ledger.db").read_bytes()
    with ledger_kit.opened(place) as ledger:
        pairs = list(settling.under(ledger, parse(small_folder.SCHEME + DECAY)))
        kept = [result.settlement for result in settling.replay(ledger)]
    assert [old for old, _ in pairs] == kept
    assert [new.decayed.kept for _, new in pairs if new.decayed is not None] == [(10**9, 10**9), (9 * 10**8, 9 * 10**8)]
    assert (place / "ledger.db").read_bytes() == before
