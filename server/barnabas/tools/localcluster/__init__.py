"""Several brokers and their ZooKeeper on one machine, started, watched and stopped by one command."""
