"""The commands of the ledger: keys, evidence, settled epochs, receipts, verification and upkeep."""
