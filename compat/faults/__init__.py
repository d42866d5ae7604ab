"""Three brokers and three ZooKeepers, each on a separate host, under faults and the load of stock clients."""
