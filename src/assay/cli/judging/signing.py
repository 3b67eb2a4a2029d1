"""`assay run --sign`: what was judged, signed and added to the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import BadInput, brief

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Signing"]


class Signing:
    """A validator's key and the ledger that its evidence goes to; both are looked at before anything is judged."""

    def __init__(self, folder: Path, validator: str | None, name: str) -> None:
        from assay.cli.ledger.keys import asking
        from assay.ledger import config, intake, keys, signing
        from assay.ledger.opened import open_ledger

        config.read(folder)
        self.folder, self.signer, file = folder, keys.load(name, asking()), folder / "validators.csv"
        known = intake.keys_of(folder)
        if validator is None:
            validator = signing.validator_of(self.signer.public, dict.fromkeys(known), file)
        self.validator, key = validator, known.get(validator)
        if key is None:
            raise BadInput(f"there is no validator {brief(validator)}", file=file, hint="say its key, or its name in that file")
        if isinstance(key, BadInput):
            raise key.at(file=file)
        if key != self.signer.public:
            what = f"is the key {self.signer.public}, not that of the validator {validator!r}"
            raise BadInput(what, field="sign", hint="sign with the validator's own key: `assay keys list`")
        with open_ledger(folder) as ledger, ledger.store.reading() as view:
            self.settled = view.settled_epoch()

    @property
    def epoch(self) -> int | None:
        """The epoch that evidence is for, if nothing else says: the first that is open; None before anything is settled."""
        return None if self.settled is None else self.settled + 1

    def add(self) -> RenderableType:
        """Sign the validator's evidence of the epochs that are open, and what came too late for others; say how much was new."""
        from assay.cli.show import sentence
        from assay.ledger import intake, signing
        from assay.ledger.opened import open_ledger

        new, late = 0, None
        if self._written():
            known = intake.terms(self.folder)
            with open_ledger(self.folder) as ledger:
                with ledger.store.reading() as view:
                    late = signing.late_in(view)
                    batches = signing.sign_folder(self.folder, self.signer, late=late)
                for batch in batches:
                    new += intake.accept(ledger.store, batch, known).new
        said = f"{new} {'record' if new == 1 else 'records'} signed and added to the ledger"
        if late is not None and late.chosen:
            said += f"; {late.chosen} of an epoch that was settled before, signed for epoch {late.epoch}"
        return sentence(f"{said}.")

    def _written(self) -> bool:
        """Whether the validator has any evidence: a run that was stopped at once has none."""
        word = self.validator.encode()
        return any(word in path.read_bytes() for path in (self.folder / "evidence").glob("*.jsonl"))
