"""What an enclave must measure as: the `[enclave]` table of a bounty. SPEC 7.

Measurements are lower-case hex digits, as dstack, its tools and `assay enclave compose-hash` print them.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import BadInput, brief
from assay.scheme.fields import Section, refused

__all__ = ["STATUSES", "UP_TO_DATE", "Measured", "Status"]

UP_TO_DATE: Final = "UpToDate"
Status = Literal[
    "UpToDate",
    "SWHardeningNeeded",
    "ConfigurationNeeded",
    "ConfigurationAndSWHardeningNeeded",
    "OutOfDate",
    "OutOfDateConfigurationNeeded",
]
"""What Intel says of a platform's firmware. `Revoked` is no choice: such a platform's keys are lost."""
STATUSES: tuple[Status, ...] = get_args(Status)


def _hex(size: int) -> BeforeValidator:
    """A validator of `size` bytes in lower-case hex."""

    def read(value: object) -> object:
        if isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{2 * size}}}", value):
            return value
        hint = f"write the {size} bytes as {2 * size} lower-case hex digits, nothing before them"
        raise refused(BadInput(f"{brief(value)} is not a measurement", hint=hint))

    return BeforeValidator(read)


_Sha256 = Annotated[str, _hex(32)]
_Sha384 = Annotated[str, _hex(48)]


class Measured(Section):
    """`[enclave]`: the code that may judge, the firmware that it may run on, and what else is allowed.

    `compose_hash` is the SHA-256 of dstack's app-compose.json, which names the service's images; `rtmr3` is the register that
    it, and everything else that dstack logs, went into. One of the two is needed. `mrtd` and `rtmr0` to `rtmr2` are dstack's own
    firmware, hardware, kernel and root file system: unless they are pinned, it may be any system that logs that compose hash.
    """

    compose_hash: _Sha256 | None = None
    mrtd: _Sha384 | None = None
    rtmr0: _Sha384 | None = None
    rtmr1: _Sha384 | None = None
    rtmr2: _Sha384 | None = None
    rtmr3: _Sha384 | None = None
    tcb: Annotated[tuple[Status, ...], Field(strict=False, min_length=1, max_length=len(STATUSES))] = (UP_TO_DATE,)
    """Statuses that are accepted; UpToDate always is."""
    development: bool = False
    """Whether a quote of a development root is accepted, which proves nothing."""

    @model_validator(mode="after")
    def _pins_the_code(self) -> Self:
        if self.compose_hash is None and self.rtmr3 is None:
            raise PydanticCustomError(
                "assay", "pins neither compose_hash nor rtmr3, so any program could judge; give compose_hash"
            )
        return self

    def accepts(self, status: str) -> bool:
        """Whether a platform of this TCB status may judge."""
        return status == UP_TO_DATE or status in self.tcb

    @property
    def unpinned(self) -> tuple[str, ...]:
        """The measurements of dstack's own system that are not pinned."""
        return tuple(name for name in ("mrtd", "rtmr0", "rtmr1", "rtmr2") if getattr(self, name) is None)
