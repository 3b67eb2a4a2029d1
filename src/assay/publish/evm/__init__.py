"""Scores and bounties on Ethereum and chains like it. It needs the extra `evm`."""
