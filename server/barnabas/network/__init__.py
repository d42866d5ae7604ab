"""Bytes between machines: the network interface of brokers and clients, and the operating system's sockets."""
