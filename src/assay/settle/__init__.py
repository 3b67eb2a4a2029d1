"""From evidence to weights and payouts; pure. SPEC 2–5.

`pipeline.settle` runs all stages. Each can be used by itself: `score`, `consensus`, `reward`, `rewarding`, `emission`.
"""

from assay.settle.inputs import Inputs
from assay.settle.pipeline import settle
from assay.settle.settlement import Settlement

__all__ = ["Inputs", "Settlement", "settle"]
