"""The library that reads and verifies quotes, an extra: imported when it is needed."""

from __future__ import annotations

from typing import Any

from assay.errors import BadInput

__all__ = ["dcap"]


def dcap() -> Any:
    """`dcap_qvl`; raises BadInput where the extra is not installed."""
    try:
        import dcap_qvl
    except ImportError:
        hint = "install it: pip install 'assay[tee]'"
        raise BadInput("quotes of enclaves need a library that is not installed", hint=hint) from None
    return dcap_qvl
