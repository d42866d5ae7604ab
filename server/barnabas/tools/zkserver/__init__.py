"""A ZooKeeper server of one node: its wire protocol, its znodes, sessions and watches, kept in a directory."""
