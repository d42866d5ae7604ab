"""Events that faults may strike: requests, connections, the disk."""

from __future__ import annotations

REQUEST, CONNECT = "request", "connect"
DISK_WRITE, DISK_READ, DISK_SYNC = "disk.write", "disk.read", "disk.sync"
DISK = (DISK_WRITE, DISK_READ, DISK_SYNC)
EVENTS = (REQUEST, CONNECT, *DISK)
