"""The partitions that this broker holds: their logs, their waiters, and how they follow the metadata."""
