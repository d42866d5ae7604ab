"""The rules of replication, as values in and values out: who leads, who follows, what is committed. Pure."""
