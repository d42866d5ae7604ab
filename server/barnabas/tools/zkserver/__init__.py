"""A ZooKeeper server of one node: its wire protocol, znodes, sessions and watches, stored in a directory."""
