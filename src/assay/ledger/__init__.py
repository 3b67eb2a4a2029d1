"""Keeping and proving: signed evidence, an append-only store, a Merkle log, receipts, and their verification. SPEC 6."""
