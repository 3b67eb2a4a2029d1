"""Weights to Bittensor: a subnet's metagraph in, a settled epoch's weights out."""
