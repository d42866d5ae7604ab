"""Transactions (KIP-98, KIP-360, KIP-890): pure machines, the coordinator that runs them, markers and producer ids."""
