"""Three brokers and three ZooKeepers, each on a host of its own, under load of stock clients, and everything fails."""
