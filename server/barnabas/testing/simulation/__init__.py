"""A simulated world for whole brokers and clients: network, clocks, threads and entropy, all from one seed."""
