"""The controller of a cluster: a pure core that decides, and a shell that reads, writes and sends what it has decided."""
