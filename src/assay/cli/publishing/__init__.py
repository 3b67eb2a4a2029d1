"""Commands that send to chains."""
