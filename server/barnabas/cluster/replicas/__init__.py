"""The partitions that this broker holds: their logs, who waits on them, and how they follow the metadata."""
