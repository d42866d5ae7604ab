"""Transactional ids and their transactions, without input or output (KIP-98, KIP-360, KIP-890)."""
