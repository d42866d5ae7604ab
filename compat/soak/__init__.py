"""Long runs with random kills of clients and brokers, without lost or duplicate records, or partial transactions."""
