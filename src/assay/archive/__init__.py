"""Archives: many competitions and epochs in one place, a folder or an object store, verified and settled at once. SPEC 6.

exporting   adds the settled epochs of a ledger
places      a folder, or a prefix that speaks S3
listing     what is there, and what in it is wrong
shards      the work on one epoch
workers     where shards run
runs        all shards, joined into one report
"""

from assay.archive.exporting import export_epochs
from assay.archive.places import open_place
from assay.archive.runs import ArchiveReport, settle_all, verify_all
from assay.archive.workers import LocalWorkers, ShardEngine

__all__ = ["ArchiveReport", "LocalWorkers", "ShardEngine", "export_epochs", "open_place", "settle_all", "verify_all"]
