"""The rules of replication, as values in and values out: leaders, followers, what is committed. Pure."""
