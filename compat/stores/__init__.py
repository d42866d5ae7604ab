"""Third-party object stores: tiered storage and snapshots of brokers in servers of the S3 or Azure protocol."""
