"""Every attack, by its target; importing this package fills the table."""

from compat.hostile.attack import ATTACKS
from compat.hostile.attacks import connections, fetching, frames, groups, metrics, pipelining, records, topics

__all__ = [
    "ATTACKS",
    "connections",
    "fetching",
    "frames",
    "groups",
    "metrics",
    "pipelining",
    "records",
    "topics",
]
