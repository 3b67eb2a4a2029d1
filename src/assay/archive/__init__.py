"""Archives: many competitions and epochs in one place, a folder or an object store, verified and settled at once. SPEC 6.

exporting   adds the settled epochs of a ledger
dropping    drops from a ledger the records of epochs that an archive has
listing     what is there, and what in it is wrong
shards      the work on one epoch
workers     where shards run
runs        all shards, joined into one report
"""

from assay.archive.dropping import ArchivedRun, archive_epochs
from assay.archive.exporting import export_epochs
from assay.archive.runs import ArchiveReport, settle_all, verify_all
from assay.archive.workers import LocalWorkers, ShardEngine
from assay.folder.places import open_place

__all__ = [
    "ArchiveReport",
    "ArchivedRun",
    "LocalWorkers",
    "ShardEngine",
    "archive_epochs",
    "export_epochs",
    "open_place",
    "settle_all",
    "verify_all",
]
