"""The cluster as a broker sees it: metadata, ZooKeeper, the controller, replicas and the rules of replication."""
