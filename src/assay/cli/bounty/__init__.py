"""`assay bounty`."""
