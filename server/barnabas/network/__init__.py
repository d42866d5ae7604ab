"""Bytes between machines: what a broker and a client want of a network, and the operating system's sockets."""
