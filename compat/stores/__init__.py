"""Stores of others: tiered storage and snapshots of brokers in what speaks S3 or Azure's protocol."""
