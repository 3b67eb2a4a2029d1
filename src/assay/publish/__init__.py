"""From a receipt to a chain: what would be sent, sending it, and reading back that it is there."""
