"""The rules of replication, as pure functions of values: leaders, followers, commit."""
