"""The commands of the ledger: keys, evidence."""
