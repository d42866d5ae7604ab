"""The controller of a cluster on ZooKeeper: a pure core that decides, and a shell that reads, writes and sends."""
