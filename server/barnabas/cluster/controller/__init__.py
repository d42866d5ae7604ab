"""The controller of a cluster: a pure core that makes decisions, and a shell that reads, writes and sends them."""
